"""Entropy control as torch differentiates it, in float64 along the last axis: functions of a call whose gamma is known.

``NEARBY[name](call)`` gives the outputs that have derivatives, near the library's values; their derivatives are those of the
implicit function.
"""

from math import inf

import torch

from isentropic import _descriptions
from isentropic.formulas.rows import or_nan
from isentropic.torch._rows import ROWS


def _log(p):
    """(log p, with 0 where p is not above 0; the mask of p above 0)."""
    present = (p > 0) & (p < inf)
    return torch.log(torch.where(present, p, 1.0)), present


def _powers(log_p, present, gamma, log_weight=None):
    """(log q, entropy, its derivative in gamma) of q = p^gamma / sum w p^gamma, the last two with size 1 for the axis.

    gamma = inf keeps only the maxima, equally. Rows without an entry count as rows of equal entries.
    """
    some = present.any(-1, keepdim=True)
    present, log_p = present | ~some, torch.where(some, log_p, 0.0)
    # All entries are relative to one largest entry, which becomes 0. Its derivative then follows from the others, and is exact
    # even if they are tiny.
    top = torch.where(present, log_p, -inf).argmax(-1, keepdim=True)
    most = log_p.gather(-1, top)
    others = torch.arange(log_p.shape[-1], device=log_p.device) != top
    gamma = torch.as_tensor(gamma, dtype=log_p.dtype, device=log_p.device)
    endless = gamma == inf
    present = present & (~endless | (log_p == most))
    gamma = torch.where(endless, 0.0, gamma)
    log_p = torch.where(present & others, log_p - most, 0.0)
    exponent = gamma * log_p + (0.0 if log_weight is None else log_weight)
    total = torch.logsumexp(torch.where(present, exponent, -inf), -1, keepdim=True)
    mass = torch.where(present, torch.exp(exponent - total), 0.0)
    mean = (mass * log_p).sum(-1, keepdim=True)
    variance = (mass * (log_p - mean) ** 2).sum(-1, keepdim=True)
    log_q = torch.where(present, gamma * log_p - total, -inf)
    return log_q, total - gamma * mean, -gamma * variance


def _solution(gamma, solved, target, entropy_of):
    """gamma as a function of all variables of the equation entropy_of(gamma) = target, if it is solved.

    The target is moved to the entropy of gamma, so that even a rough gamma does not change, and the derivatives are those at
    gamma. It makes two steps of Newton's method: each squares the error, so the first derivative of one step is that of the
    solution, and so are the first three of two steps. entropy_of gives an entropy and its derivative.
    """

    def step(gamma, entropy, slope):
        steep = solved & (slope < 0)
        return torch.where(steep, gamma - (entropy - target) / torch.where(steep, slope, -1.0), gamma)

    entropy, slope = entropy_of(gamma)
    target = torch.as_tensor(target, dtype=torch.float64)
    target = entropy.detach() + (target - target.detach())
    gamma = step(gamma, entropy, slope)
    return step(gamma, *entropy_of(gamma))


def _can_move(gamma, log_p, present):
    """Whether gamma is inside the reach of a row's powers, and the row has different entries."""
    high = torch.where(present, log_p, -inf).amax(-1, keepdim=True)
    low = torch.where(present, log_p, inf).amin(-1, keepdim=True)
    return (gamma > 0) & (gamma < inf) & (high > low)


def _unit(x, dims):
    """A power of two of the size of x: relative to it, sums and squares neither underflow nor overflow."""
    largest = x.detach().abs().amax(dims, keepdim=True)
    return torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)


def _power_to(p, target, gamma):
    """p^gamma / sum p^gamma with a given entropy."""
    log_p, present = _log(p)
    gamma = _solution(gamma, _can_move(gamma, log_p, present), target, lambda gamma: _powers(log_p, present, gamma)[1:])
    return _powers(log_p, present, gamma)[0].exp()


def _joint(p, rows, target, gamma):
    return _power_to(p.flatten(-2), target, gamma).reshape(p.shape)


def _given_x(p, rows):
    """p(y|x), 0 where p(x) is 0."""
    return p / torch.where(rows > 0, rows, 1.0).unsqueeze(-1)


def _marginal(p, rows, target, gamma):
    return _power_to(rows, target, gamma).unsqueeze(-1) * _given_x(p, rows)


def _conditional(p, rows, target, gamma):
    px = (rows / rows.sum(-1, keepdim=True)).unsqueeze(-1)
    log_p, present = _log(_given_x(p, rows))

    def entropy_of(gamma):
        _, entropy, slope = _powers(log_p, present, gamma.unsqueeze(-1))
        return (px * entropy).sum(-2), (px * slope).sum(-2)

    movable = _can_move(gamma.unsqueeze(-1), log_p, present).any(-2)
    gamma = _solution(gamma, movable, target, entropy_of)
    return px * _powers(log_p, present, gamma.unsqueeze(-1))[0].exp()


def power_transform(call):
    p, rows = call.tensors
    log_p, present = _log(p.double())
    valid = ((p >= 0) & (p < inf)).all(-1, keepdim=True) & present.any(-1, keepdim=True)
    q = _powers(log_p, present, call.params[0] if rows is None else rows)[0].exp()
    return (or_nan(ROWS, q, valid, p, rows),)


def mean_field_entropy(call):
    (x,), (gamma,) = call.tensors, call.params
    wide, finite = x.double(), x.isfinite()
    count = finite.sum(-1)
    most = torch.where(finite, wide, -inf).amax(-1)
    mean = torch.where(finite, wide, 0.0).sum(-1) / count
    infinite = (x == inf).sum(-1)
    value = torch.where(infinite > 0, infinite.double().log(), count.double().log() - gamma * (most - mean))
    invalid = x.isnan().any(-1, keepdim=True) | (x == -inf).all(-1, keepdim=True)
    return (or_nan(ROWS, value.unsqueeze(-1), ~invalid, wide.sum(-1, keepdim=True)).squeeze(-1),)


def gamma_for_entropy(call):
    x, *rows = call.tensors
    *numbers, _, _, input = call.params
    gamma, _, status = call.outputs
    entropy, perplexity = (number if row is None else row for number, row in zip(numbers, rows, strict=True))
    target = entropy if perplexity is None else torch.as_tensor(perplexity, dtype=torch.float64).log()
    wide, valid = x.double(), (status != _INVALID).unsqueeze(-1)
    log_p, present = _log(wide) if input == "probs" else (wide, wide > -inf)
    still = (status >= _CONSTANT).unsqueeze(-1)
    log_p, present = torch.where(still | ~present, 0.0, log_p), present | still
    unit = _unit(log_p, -1)
    log_p, start = log_p / unit, torch.where(still, 1.0, gamma.detach().unsqueeze(-1)) * unit
    moving = _solution(
        start,
        (status == 0).unsqueeze(-1) & _can_move(start, log_p, present),
        target,
        lambda gamma: _powers(log_p, present, gamma)[1:],
    )
    inputs = wide.sum(-1, keepdim=True), *rows
    found = moving / unit, _powers(log_p, present, moving)[1]
    return tuple(or_nan(ROWS, one, valid, *inputs).squeeze(-1) for one in found)


_CONSTANT = _descriptions.STATUSES.index("constant")  # from this status on gamma does not depend on the row
_INVALID = _descriptions.STATUSES.index("invalid")


def normalize_density(call):
    p, weights, row = call.tensors
    (log_p, present), (log_weight, weighs) = _log(p.double()), _log(weights)
    present, start = present & weighs, call.outputs[1].detach().unsqueeze(-1)
    moving = _solution(
        start,
        _can_move(start, log_p, present),
        call.params[0] if row is None else row,
        lambda gamma: _powers(log_p, present, gamma, log_weight)[1:],
    )
    return _powers(log_p, present, moving, log_weight)[0].exp(), moving.squeeze(-1)


def normalize_joint(call):
    pxy, *tables = call.tensors
    gamma = call.outputs[1].detach()
    kind, table = next(
        (k, t) for k, (n, t) in enumerate(zip(call.params, tables, strict=True)) if n is not None or t is not None
    )
    target = call.params[kind] if table is None else table.unsqueeze(-1)
    p = torch.where(pxy > 0, pxy, 0.0).double()  # an entry of 0 stays 0, also in the sum of its row
    p = p / _unit(p, (-2, -1))
    return ((_joint, _marginal, _conditional)[kind](p, p.sum(-1), target, gamma.unsqueeze(-1)),)


NEARBY = {
    one.__name__: one for one in (power_transform, mean_field_entropy, gamma_for_entropy, normalize_density, normalize_joint)
}
