"""linear_token_statistics: token_statistics of a linear layer, with the scores of only some rows in memory at a time."""

import functools

import torch

from isentropic.torch._compat import without_autocast
from isentropic.torch._spec import OPERATORS, absent, result_type
from isentropic.torch.backends.linear_loss import each_problem, linear_scores, row_parts, whole_part
from isentropic.torch.backends.reference.token_statistics import capped, slope_of_cap
from isentropic.torch.backends.token_statistics import check_classes


def _statistics(parts, hidden, weight, target, bias, rows, temperature, softcap, top):
    """(statistics of four numbers, then the largest scores; the indices of these)."""
    kind = result_type(hidden)
    found = [(hidden.new_empty(0, 4 + top, dtype=kind), target.new_empty(0, top))]
    for part in parts(hidden, weight):
        scores = linear_scores(hidden[part], weight, bias)
        scores = capped(scores, softcap) if softcap else scores
        some = None if rows is None else rows[part]
        statistics, indices = OPERATORS["token_statistics"](scores, target[part], some, temperature, top, 1)
        found.append((torch.cat([statistics, scores.gather(1, indices).to(kind)], 1), indices))
    return tuple(map(torch.cat, zip(*found, strict=True)))


def _vjp(parts, hidden, weight, target, bias, rows, known, grad, temperature, softcap, top):
    kind, known, grad = result_type(hidden), known[:, :4], grad[:, :4]
    counted = (grad[:, :2] != 0).any(1, keepdim=True)  # a row that nothing is asked of may have NaN
    if parts is whole_part:  # its derivative in the gradient is not 0 where that is 0
        counted = counted | hidden.isfinite().all(1, keepdim=True)
    of_hidden, of_rows = [hidden.new_empty(0, hidden.shape[1])], [hidden.new_empty(0, 1, dtype=torch.float64)]
    of_weight = torch.zeros_like(weight, dtype=kind)
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=kind)
    for part in parts(hidden, weight):
        own = torch.where(counted[part], hidden[part], 0.0)
        scores = given = linear_scores(own, weight, bias)
        scores = capped(scores, softcap) if softcap else scores
        some = None if rows is None else rows[part]
        d, slopes = OPERATORS["token_statistics"].vjp(scores, target[part], some, known[part], grad[part], temperature, 0, 1)
        d = (d * slope_of_cap(given, scores, softcap)).to(hidden.dtype) if softcap else d
        del scores, given
        d = torch.where(counted[part], d, 0.0) if parts is whole_part else d  # 0 already, except for a second derivative
        with without_autocast(hidden):
            of_hidden.append(d @ weight)
            if parts is whole_part or of_weight.dtype != d.dtype:
                of_weight = of_weight + d.mT @ own
            else:
                of_weight.addmm_(d.mT, own)
        if bias is not None:
            of_bias = of_bias + d.sum(0, dtype=of_bias.dtype)
        of_rows += [] if rows is None else [torch.where(counted[part], slopes, 0.0)]
    return (
        torch.cat(of_hidden).to(hidden.dtype),
        of_weight.to(weight.dtype),
        absent(hidden) if bias is None else of_bias.to(bias.dtype),
        absent(hidden) if rows is None else torch.cat(of_rows),
    )


def _checked_statistics(hidden, weight, target, *others):
    # The classes are checked here, because a part does not know its place among all rows.
    check_classes("linear_token_statistics", target, len(weight))
    return _statistics(row_parts, hidden, weight, target, *others)


def _tables(parts):
    return {
        "linear_token_statistics": each_problem(functools.partial(_statistics, parts)),
        "linear_token_statistics_vjp": each_problem(functools.partial(_vjp, parts)),
    }


# The implementation in parts, and the one at once, which torch differentiates.
IMPLEMENTATIONS, REFERENCE = _tables(row_parts), _tables(whole_part)
# On the CPU classes can be read without waiting.
ON_CPU = {"linear_token_statistics": each_problem(_checked_statistics)}
