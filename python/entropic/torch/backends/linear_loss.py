"""linear_loss: a loss of hidden @ weight.T + bias, of whose scores some rows are there at a time."""

import functools
import json

import torch

from entropic.torch import _descriptions
from entropic.torch._spec import absent, result_type

_PART = 1 << 23  # scores


def _loss(loss, options, scores, target, rows, row_names, wanted):
    """(values, gradients in the scores, [those in a parameter for each of row_names]) of rows of scores."""
    from entropic.torch._losses import OPERATORS, mapped  # which are made of the backends

    values = json.loads(options)
    if loss not in OPERATORS:
        function = functools.partial(mapped, loss, target=target, named_map=values[0], ignore_index=values[1])
        if not wanted:
            return function(scores), None, []
        value, back = torch.func.vjp(function, scores)
        return value, back(torch.ones_like(value))[0], []
    per_row = [
        rows[:, row_names.index(name), None] if name in row_names else None
        for name in _descriptions.per_row(_descriptions.LOSSES[loss])
    ]
    value, d, *slopes = OPERATORS[loss](scores, target, *per_row, *values, 1, wanted)
    return value, d, [slope for slope, row in zip(slopes, per_row, strict=True) if row is not None]


def _count(target, loss, options):
    """How many rows count in a mean."""
    ignored = json.loads(options)[-1] if _descriptions.LOSSES[loss]["target"].startswith("class") else None
    if ignored is None or target.is_floating_point():
        return len(target)
    return (target != ignored).sum()


def _row_parts(hidden, weight):
    step = max(1, _PART // max(1, weight.shape[0]))
    return [slice(begin, begin + step) for begin in range(0, len(hidden), step)]


def _scores(hidden, weight, bias):
    with torch.autocast(hidden.device.type, enabled=False):
        return torch.nn.functional.linear(hidden, weight, bias)


def _each(run):
    """run, and one after the other for a batch of problems along a new first axis."""

    def batched(hidden, weight, *arguments):
        if weight.dim() == 2:
            return run(hidden, weight, *arguments)
        tensors = [x for x in (hidden, weight, *arguments) if isinstance(x, torch.Tensor)]
        found = []
        for k in range(len(weight)):
            one = [x[k] if isinstance(x, torch.Tensor) else x for x in (hidden, weight, *arguments)]
            found.append(run(*one))
        if isinstance(found[0], tuple):
            return tuple(torch.stack(parts) if parts[0].numel() else absent(tensors[0]) for parts in zip(*found, strict=True))
        return torch.stack(found)

    return batched


def _value(parts, hidden, weight, target, bias, rows, loss, options, row_names, reduction):
    values = [
        _loss(
            loss,
            options,
            _scores(hidden[part], weight, bias),
            target[part],
            None if rows is None else rows[part],
            row_names,
            False,
        )[0]
        for part in parts(hidden, weight)
    ]
    values = torch.cat(values) if values else hidden.new_empty(0, dtype=result_type(hidden))
    if reduction == "none":
        return values
    return values.sum() / (_count(target, loss, options) if reduction == "mean" else 1)


def _vjp(parts, hidden, weight, target, bias, rows, grad, loss, options, row_names, reduction):
    factors = (grad / _count(target, loss, options) if reduction == "mean" else grad).expand(len(hidden))
    of_hidden, of_rows = [hidden.new_empty(0, hidden.shape[1])], [hidden.new_empty(0, len(row_names), dtype=torch.float64)]
    of_weight = torch.zeros_like(weight, dtype=result_type(hidden))
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=result_type(hidden))
    for part in parts(hidden, weight):
        some = None if rows is None else rows[part]
        _, d, slopes = _loss(loss, options, _scores(hidden[part], weight, bias), target[part], some, row_names, True)
        factor = factors[part].unsqueeze(1)
        if parts is _row_parts and d.dtype == factor.dtype:
            d.mul_(factor)
        else:
            d = (d * factor).to(hidden.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            of_hidden.append(d @ weight)
            if parts is _whole or of_weight.dtype != d.dtype:
                of_weight = of_weight + d.mT @ hidden[part]
            else:
                of_weight.addmm_(d.mT, hidden[part])
        if bias is not None:
            of_bias = of_bias + d.sum(0, dtype=of_bias.dtype)
        of_rows += [torch.cat(slopes, 1) * factor] if slopes else []
    return (
        torch.cat(of_hidden),
        of_weight.to(weight.dtype),
        absent(hidden) if bias is None else of_bias.to(bias.dtype),
        absent(hidden) if rows is None else torch.cat(of_rows),
    )


def _whole(hidden, weight):
    return [slice(0, len(hidden))]


# In parts, and at once: that torch differentiates.
IMPLEMENTATIONS = {
    "linear_loss": _each(functools.partial(_value, _row_parts)),
    "linear_loss_vjp": _each(functools.partial(_vjp, _row_parts)),
}
REFERENCE = {
    "linear_loss": _each(functools.partial(_value, _whole)),
    "linear_loss_vjp": _each(functools.partial(_vjp, _whole)),
}
