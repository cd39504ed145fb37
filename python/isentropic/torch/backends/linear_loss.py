"""linear_loss: a loss of hidden @ weight.T + bias, with the scores of only some rows in memory at a time."""

import functools
import json

import torch

from isentropic import _descriptions
from isentropic.torch._arguments import dtype_beside
from isentropic.torch._compat import without_autocast
from isentropic.torch._spec import OPERATORS, absent, result_type
from isentropic.torch.backends.reference.losses import MAPPED, mapped
from isentropic.torch.backends.reference.token_statistics import capped, slope_of_cap

_PART = 1 << 23  # scores
_ALL = {**_descriptions.LOSSES, **_descriptions.SPARSE_LOSSES}


def _loss(loss, options, z_loss, softcap, scores, against, rows, row_names, wanted):
    """(values, gradients in the scores, [those in a parameter for each of row_names]) of rows of scores.

    against: what they are compared with, one tensor or, of a sparse teacher, two.
    """
    values, kind, given = json.loads(options), scores.dtype, scores
    scores = capped(scores, softcap) if softcap else scores
    if loss not in _descriptions.SPARSE_LOSSES and against[0].is_floating_point():
        scores = scores.to(dtype_beside(scores, against[0]))
        against = [_in_type(loss, against[0], scores.dtype)]
    value, d, slopes = _own(loss, values, scores, against, rows, row_names, wanted)
    if z_loss != 0:
        wide = scores.to(result_type(scores))
        log_z = torch.logsumexp(wide, 1)
        counted = torch.where(_ignored(loss, values, against[0]), 0.0, log_z)
        value = value + z_loss * counted.square()
        if wanted:
            d = torch.addcmul(d, torch.exp(wide - log_z[:, None]), counted[:, None], value=2 * z_loss).to(d.dtype)
    if softcap and wanted:
        d = d * slope_of_cap(given, scores, softcap)
    return value, d.to(kind) if wanted else d, slopes


def _in_type(loss, target, dtype):
    """A target in the type of the scores. Sums of a distribution of halves may be further from 1 than a wider type allows."""
    wide = target.to(dtype)
    if dtype == target.dtype or result_type(target) == target.dtype or _ALL[loss]["target"] == "scores":
        return wide
    total = wide.sum(1, keepdim=True)
    return wide / torch.where((total - 1).abs() <= 1e-2, total, 1.0)


def _own(loss, values, scores, against, rows, row_names, wanted):
    if loss in MAPPED:
        function = functools.partial(mapped, loss, target=against[0], named_map=values[0], ignore_index=values[1])
        if not wanted:
            return function(scores), None, []
        value, back = torch.func.vjp(function, scores)
        return value, back(torch.ones_like(value))[0], []
    per_row = [
        rows[:, row_names.index(name), None] if name in row_names else None for name in _descriptions.per_row(_ALL[loss])
    ]
    value, d, *slopes = OPERATORS[loss](scores, *against, *per_row, *values, 1, wanted)
    return value, d, [slope for slope, row in zip(slopes, per_row, strict=True) if row is not None]


def _ignored(loss, values, target):
    """The ignored rows."""
    if loss in _descriptions.SPARSE_LOSSES:
        return (target < 0).all(1)
    ignored = values[-1] if _descriptions.takes_classes(_ALL[loss]) else None
    if ignored is None or target.is_floating_point():
        return torch.zeros(len(target), dtype=torch.bool, device=target.device)
    return target == ignored


def _factors(hidden, target, sample_weight, loss, options, reduction):
    """The factor of each row's loss."""
    factors = hidden.new_ones(len(hidden), dtype=result_type(hidden))
    if sample_weight is not None:
        factors = sample_weight.to(factors.dtype)
    factors = torch.where(_ignored(loss, json.loads(options), target), 0.0, factors)
    if reduction != "mean":
        return factors
    total = factors.sum()
    # Ignored rows alone have no mean, but a gradient of 0; weights that cancel have neither.
    none = torch.where((factors != 0).any(), torch.nan, 1.0).to(factors.dtype)
    return factors / torch.where(total == 0, none, total)


def _scale(by, d):
    """A power of two for rows of float16: with it they are as far from its smallest numbers as sums of their products with d
    allow, which must stay below its largest."""
    if by.numel() == 0 or d.numel() == 0:
        return by.new_ones(())
    most = by.detach().abs().amax() * d.detach().abs().amax().to(by.dtype).clamp(min=1.0) * len(by)
    scale = torch.exp2(torch.floor(torch.log2(2.0**15 / most)))
    return torch.where((scale > 0) & (scale < torch.inf), scale, 1.0)


def _read(hidden, counted):
    """Rows of hidden; those without a part in the result are 0, because a NaN times their gradient, 0, would be NaN."""
    return torch.where(counted, hidden, 0.0)


def _against(part, target, log_probs, teacher_weight):
    """The rows that a part is compared with; a teacher's scores are calculated here, and never stored."""
    if teacher_weight is not None:
        return [linear_scores(target[part], teacher_weight, None)]
    return [target[part]] if log_probs is None else [target[part], log_probs[part]]


def row_parts(hidden, weight):
    step = max(1, _PART // max(1, weight.shape[0]))
    return [slice(begin, begin + step) for begin in range(0, len(hidden), step)]


def whole_part(hidden, weight):
    return [slice(0, len(hidden))]


def linear_scores(hidden, weight, bias):
    with without_autocast(hidden):
        return torch.nn.functional.linear(hidden, weight, bias)


def each_problem(run):
    """Calls run, one problem after the other if there are batches, each along a new first axis."""

    def batched(hidden, weight, *arguments):
        if weight.dim() == 2:
            return run(hidden, weight, *arguments)
        tensors = [x for x in (hidden, weight, *arguments) if isinstance(x, torch.Tensor)]
        found = []
        for k in range(len(weight)):
            one = [x[k] if isinstance(x, torch.Tensor) else x for x in (hidden, weight, *arguments)]
            found.append(batched(*one))
        if isinstance(found[0], tuple):
            return tuple(torch.stack(parts) if parts[0].numel() else absent(tensors[0]) for parts in zip(*found, strict=True))
        return torch.stack(found)

    return batched


def _value(
    parts,
    hidden,
    weight,
    target,
    bias,
    rows,
    sample_weight,
    log_probs,
    teacher_weight,
    loss,
    options,
    z_loss,
    softcap,
    row_names,
    reduction,
):
    factors = _factors(hidden, target, sample_weight, loss, options, reduction)
    values = [hidden.new_empty(0, dtype=factors.dtype)]
    for part in parts(hidden, weight):
        some = None if rows is None else rows[part]
        own = _read(hidden[part], factors[part, None] != 0)
        scores = linear_scores(own, weight, bias)
        against = _against(part, target, log_probs, teacher_weight)
        values.append(_loss(loss, options, z_loss, softcap, scores, against, some, row_names, False)[0])
    return _reduced(torch.cat(values), factors, reduction)


def _reduced(values, factors, reduction):
    values = torch.where(factors == 0, 0.0, values * factors)
    if reduction == "none":
        return values
    # The mean of ignored rows alone is NaN, as in torch, but their gradients are 0.
    return values.sum() if reduction == "sum" else torch.where((factors != 0).any(), values.sum(), torch.nan)


def _vjp(
    parts,
    hidden,
    weight,
    target,
    bias,
    rows,
    sample_weight,
    log_probs,
    teacher_weight,
    grad,
    loss,
    options,
    z_loss,
    softcap,
    row_names,
    reduction,
    of=(True, True),
    wide=False,
):
    """The loss and the gradients. `of`: whether those in hidden and in weight are wanted. `wide`: those of float16 in float32,
    because they are to be multiplied by a loss scale, without which they may be too small for float16."""
    half = hidden.dtype is torch.float16
    kind = result_type(hidden) if wide and half else hidden.dtype
    shares = _factors(hidden, target, sample_weight, loss, options, reduction)
    factors, counts = (shares * grad).unsqueeze(1), (shares != 0).unsqueeze(1)
    values = [hidden.new_empty(0, dtype=shares.dtype)]
    of_hidden = [hidden.new_empty(0, hidden.shape[1], dtype=kind)]
    of_rows = [hidden.new_empty(0, len(row_names), dtype=torch.float64)]
    of_weight = torch.zeros_like(weight, dtype=result_type(hidden))
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=result_type(hidden))
    for part in parts(hidden, weight):
        some, factor, counted = None if rows is None else rows[part], factors[part], counts[part]
        own = _read(hidden[part], counted)
        scores = linear_scores(own, weight, bias)
        against = _against(part, target, log_probs, teacher_weight)
        value, d, slopes = _loss(loss, options, z_loss, softcap, scores, against, some, row_names, True)
        del scores, against
        values.append(value)
        d = torch.where(counted, d, 0.0) if sample_weight is not None else d  # a teacher's row of weight 0 may be NaN
        # It multiplies rows of hidden, which have fewer numbers than d.
        with without_autocast(hidden):
            if of[0]:
                of_hidden.append(((d @ weight) * factor).to(kind))
            by = torch.where(counted, own * factor, 0.0)
            scale = _scale(by, d) if half else None
            by = (by * scale if half else by).to(hidden.dtype)
            if of[1] and half:
                of_weight = of_weight + (d.mT @ by).to(of_weight.dtype) / scale
            elif of[1] and (parts is whole_part or of_weight.dtype != d.dtype):
                of_weight = of_weight + d.mT @ by
            elif of[1]:
                of_weight.addmm_(d.mT, by)
        if bias is not None:
            of_bias = of_bias + (d.to(of_bias.dtype).mT @ factor.to(of_bias.dtype)).squeeze(1)
        of_rows += [torch.where(counted, torch.cat(slopes, 1) * factor, 0.0)] if slopes else []
    gradients = (
        torch.cat(of_hidden) if of[0] else absent(hidden),
        of_weight.to(kind) if of[1] else absent(hidden),
        absent(hidden) if bias is None else of_bias.to(kind),
        absent(hidden) if rows is None else torch.cat(of_rows),
    )
    return _reduced(torch.cat(values), shares, reduction), *gradients


def value_and_gradients(hidden, *arguments, of):
    """The loss and its gradients from the same scores, for a value that is one number."""
    return _vjp(row_parts, hidden, *arguments[:7], 1.0, *arguments[7:], of=of, wide=True)


def _gradients(parts, *arguments):
    return _vjp(parts, *arguments)[1:]


# The implementation in parts, and the one at once, which torch differentiates.
IMPLEMENTATIONS = {
    "linear_loss": each_problem(functools.partial(_value, row_parts)),
    "linear_loss_vjp": each_problem(functools.partial(_gradients, row_parts)),
}
REFERENCE = {
    "linear_loss": each_problem(functools.partial(_value, whole_part)),
    "linear_loss_vjp": each_problem(functools.partial(_gradients, whole_part)),
}
