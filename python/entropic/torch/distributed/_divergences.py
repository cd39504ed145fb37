"""Measures of two distributions, and what measures check: forward and vjp as in _calls."""

import math

import numpy as np

from entropic import _core
from entropic.torch.distributed._entries import exponential, logarithm, masked, terms_of
from entropic.torch.distributed._group import values_of


def refuse_unless_distributions(call, **logs):
    """Checks rows of probabilities, given as logarithms: every rank finds the same invalid row and raises the same error."""
    terms = []
    for log_p in logs.values():
        p = exponential(log_p.astype(np.float64))
        wrong = np.isnan(log_p) | ~np.isfinite(p)
        terms += [np.where(wrong, 0.0, p), wrong.astype(np.float64)]
    sums = call.sums(*terms, bounded=True)
    for argument, total, wrong in zip(logs, sums[::2], sums[1::2], strict=True):
        bad = ((wrong > 0) | (np.abs(total - 1) > call.spec["tolerance"]))[:, 0]
        if bad.any():
            row = int(np.argmax(bad))
            what = "has an entry that is negative, NaN or infinite" if wrong[row, 0] > 0 else f"sums to {total[row, 0]:.9g}"
            raise ValueError(f"{call.spec['name']}: {argument} must have rows that are distributions, row {row} {what}")


def _pair(call):
    """log p of both arrays, of scores: maxima, then sums, in one round each."""
    both = np.ascontiguousarray(np.concatenate([call.x, call.other]))
    rows = len(both)
    part = call.group.run(
        _core.part_of_statistics(1.0, True, np.zeros(0, np.int64), both.astype(np.float64), call.first, call.n), rows
    )
    values = values_of(part, rows)
    log_p = call.log_p(both, values[:, 0:1], values[:, 1:2], 1.0)
    return log_p[: call.rows], log_p[call.rows :], values


def two_forward(call):
    if "tolerance" in call.spec:
        refuse_unless_distributions(call, p=call.x, q=call.other)
    a, b, values = _pair(call)
    nan = np.isnan(values[: call.rows, 0]) | np.isnan(values[call.rows :, 0])
    nan |= np.isneginf(values[: call.rows, 0]) | np.isneginf(values[call.rows :, 0])
    clean = [np.where(np.isnan(v), 0.0, v) for v in (a, b)]
    if call.spec["name"] == "kl_divergence":
        (result,) = call.sums(terms_of(_core.divergence_terms, *clean), bounded=True)
        results = [np.maximum(result, 0.0)]
    else:
        middle = _middle(*clean)
        first, second = call.sums(*(terms_of(_core.divergence_terms, one, middle) for one in clean), bounded=True)
        results = [np.minimum(0.5 * (first + second), math.log(2)), first, second]
    state = np.concatenate([values[: call.rows, :2], values[call.rows :, :2]], 1)
    results = [np.where(nan[:, None], np.nan, one) for one in results]
    return call.none.astype(call.x.dtype), np.concatenate([*results, state], 1)


def _middle(a, b):
    return logarithm(0.5 * (exponential(a) + exponential(b)))


def two_vjp(call, y, values, gy, gvalues):
    top_a, total_a, top_b, total_b = (values[:, i : i + 1] for i in range(values.shape[1] - 4, values.shape[1]))
    a, b = call.log_p(call.x, top_a, total_a, 1.0), call.log_p(call.other, top_b, total_b, 1.0)
    p, q, g = exponential(a), exponential(b), gvalues[:, 0:1]
    means = np.zeros_like(values) if "tolerance" in call.spec else values  # as in _statistics_vjp
    probs = call.spec.get("input") == "probs"
    with np.errstate(invalid="ignore", over="ignore"):
        if probs:  # the derivatives in p and q themselves; an entry that is 0 in both has none
            middle = _middle(a, b)
            both = (p > 0) | (q > 0)
            if call.spec["name"] == "kl_divergence":
                da, db = masked(both, a - b), masked(both, 1 - exponential(a - b))
            else:
                da, db = masked(both, 0.5 * (a - middle)), masked(both, 0.5 * (b - middle))
            return masked(g != 0, da * g), masked(g != 0, db * g)
        if call.spec["name"] == "kl_divergence":
            da, db = masked(p > 0, p * (a - b - means[:, 0:1])), q - p
        else:
            middle = _middle(np.where(np.isnan(a), 0.0, a), np.where(np.isnan(b), 0.0, b))
            da = masked(p > 0, 0.5 * p * (a - middle - means[:, 1:2]))
            db = masked(q > 0, 0.5 * q * (b - middle - means[:, 2:3]))
        da, db = da * g, db * g
    if "tolerance" in call.spec:
        return masked(a > -np.inf, da), masked(b > -np.inf, db)
    # Without one of the distributions there is no number, and no gradient in either.
    nan = np.isnan(values[:, 0:1])
    return tuple(
        np.where(nan, np.nan, np.where((top == np.inf) | (x == -np.inf), 0.0, d))
        for top, x, d in ((top_a, call.x, da), (top_b, call.other, db))
    )
