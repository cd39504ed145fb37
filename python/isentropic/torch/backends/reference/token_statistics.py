"""Statistics of a token from its logits: see isentropic.torch.token_statistics.

A row of the result has log p_target, the entropy, the largest probability and the largest logit; then come the indices of the
largest logits.
"""

import torch

from isentropic.formulas.rows import canonical, has_none
from isentropic.torch._rows import ROWS, last
from isentropic.torch._spec import absent, result_type, working


def top_indices(x, top, dim):
    """Those of the largest logits in descending order, of equal logits the lowest index first; NaN counts as +inf. Along the
    last axis."""
    x, n = x.movedim(dim, -1), x.shape[dim]
    if top == 0:
        return x[..., :0].long()
    x = torch.where(x.isnan(), torch.inf, x)
    # topk says how large they are, but takes any of equal ones. So it chooses again, from integers that all differ.
    last = x.topk(top).values[..., -1:]
    early = torch.arange(n, 0, -1, dtype=torch.int32, device=x.device)
    chosen = torch.where(x > last, early + n, torch.where(x == last, early, 0)).topk(top).indices
    order = x.gather(-1, chosen).sort(dim=-1, descending=True, stable=True).indices
    return chosen.gather(-1, order)


def capped(x, softcap):
    """c tanh(x / c), in the type of the computation; -inf stays absent."""
    x = working(x)
    absent = x == -torch.inf
    return torch.where(absent, x, softcap * torch.tanh(torch.where(absent, 0.0, x) / softcap))


def slope_of_cap(x, y, softcap):
    """Its derivative at x, where y is the result."""
    return torch.where(x == -torch.inf, 0.0, (1 - y / softcap) * (1 + y / softcap))


def limit_of(dtype):
    """Above it, and below its inverse, 1/T is not a normal number of a type, or nearly not. Smaller logits have differences in
    its range."""
    return 2.0**900 if dtype == torch.float64 else 2.0**100


def split(temperature, dtype):
    """(s, t), for which x/T is s x / t with a normal number 1/t. T is a number, or a tensor of float64.

    As in the kernels, temperatures beyond s^-2 act like this limit, where all logits are infinitely far apart, or all equal.
    """
    limit = limit_of(dtype)
    if isinstance(temperature, torch.Tensor):
        one = torch.ones_like(temperature)  # numbers beyond float32, which torch.where would take them for
        s = torch.where(temperature > limit, one / limit, torch.where(temperature < 1 / limit, one * limit, one))
        return s, (temperature * s).clamp(1 / limit, limit)
    s = 1 / limit if temperature > limit else limit if temperature < 1 / limit else 1.0
    return s, min(max(temperature * s, 1 / limit), limit)


def _quotient(value, rows, temperature, dtype):
    """value / T."""
    s, t = split(temperature if rows is None else rows, dtype)
    return value * s / t


def _log_softmax(x, rows, temperature):
    """(z, log p), where z are logits minus the largest, divided; a temperature does not change -inf."""
    x = canonical(ROWS, working(x))
    there, largest = x > -torch.inf, x.amax(-1, keepdim=True).detach()
    largest = torch.where(largest > -torch.inf, largest, 0.0)
    s, t = split(temperature if rows is None else rows, x.dtype)
    # The largest is subtracted before the division, whose rounding grows with the logits. Where the difference would leave the
    # range, which it does only below a large one, all are less beforehand: by a hot temperature's s, or halved.
    hot = s.clamp(max=1.0).to(x.dtype) if isinstance(s, torch.Tensor) else min(s, 1.0)
    less = torch.where(largest > 2.0**100, 0.5, 1.0).to(x.dtype) * hot
    x = x * less - largest * less
    z = torch.where(there, torch.where(there, x, 0.0) / t * (s / less), x)
    return z, torch.log_softmax(z, -1)


def _entropy(log_p):
    there = log_p > -torch.inf
    return -torch.where(there, log_p.exp() * torch.where(there, log_p, 0.0), 0.0).sum(-1, keepdim=True)


def statistics(x, target, rows, temperature, top, dim):
    given, rows = last(dim, x, rows)
    _, log_p = _log_softmax(given, rows, temperature)
    found = (
        log_p.gather(-1, target.unsqueeze(-1)),
        _entropy(log_p),
        log_p.amax(-1, keepdim=True).exp(),
        working(given).amax(-1, keepdim=True),
    )
    found = torch.where(has_none(ROWS, given), torch.nan, torch.cat(found, -1))
    return found.to(result_type(x)).contiguous(), top_indices(x, top, dim)


def statistics_vjp(x, target, rows, _, grad, temperature, top, dim):
    given, moved = last(dim, x, rows)
    none = has_none(ROWS, given)
    z, log_p = _log_softmax(torch.where(none, 0.0, given), moved, temperature)  # for second derivatives, 0 times NaN
    p, there = log_p.exp(), given > -torch.inf
    of_logprob, of_entropy = grad[..., 0:1], grad[..., 1:2]
    own = torch.zeros_like(p).scatter(-1, target.unsqueeze(-1), torch.ones_like(p))
    dz = of_logprob * (own - p) - of_entropy * p * (torch.where(log_p > -torch.inf, log_p, 0.0) + _entropy(log_p))
    dz = torch.where(there & ~(given == torch.inf).any(-1, keepdim=True), dz, 0.0)
    # A row whose incoming gradient is 0 may have NaN. All other rows stay linear in the gradient, also where it is 0.
    idle = none & (of_logprob == 0) & (of_entropy == 0)
    dz = torch.where(none, torch.where(idle, 0.0, torch.nan).to(dz.dtype), dz)
    dx = _quotient(dz, moved, temperature, result_type(x)).movedim(-1, dim).to(x.dtype).contiguous()
    if rows is None:
        return dx, absent(x)
    # From the largest score: dz sums to 0 except where the token is absent, and no slope may depend on what all scores share.
    # Beside +inf all other logits are absent.
    below = torch.where((z > -torch.inf) & ~idle, z - z.amax(-1, keepdim=True), 0.0)
    slope = (dz * below).sum(-1, keepdim=True).to(torch.float64)
    return dx, -(slope / moved).movedim(-1, dim).contiguous()


IMPLEMENTATIONS = {"token_statistics": statistics, "token_statistics_vjp": statistics_vjp}
