"""Attention with all scores in memory, by any map: out_i = sum_j p_ij v_j. Keys that a query does not see have no part, even if
they or their values are not finite."""

import math

from isentropic.formulas.rows import INF


def seen_keys(rows, m, n, causal, mask, device=None, queries=None):
    """Which of n keys each of m queries sees, or some of them by their numbers; a mask of numbers hides those that are -inf."""
    xp = rows.xp
    seen = xp.ones((m if queries is None else queries.shape[0], n), dtype=xp.bool, device=device)
    if causal and queries is not None:
        seen = xp.arange(n) <= queries[:, None] + (n - m)
    elif causal:
        seen = xp.tril(seen, k=n - m)
    return seen if mask is None else seen & (mask if mask.dtype == xp.bool else mask != -INF)


def keys_seen(rows, m, n, causal, mask, device=None):
    """The number of keys that each query sees, (m,) or (..., m) of a mask (..., m, n)."""
    xp = rows.xp
    if mask is not None:
        return xp.sum(xp.where(seen_keys(rows, m, n, causal, mask, device), 1, 0), axis=-1)
    if causal:
        return xp.clip(xp.arange(m, device=device) + (n - m + 1), 0, n)
    return xp.zeros_like(xp.arange(m, device=device)) + n


def unit_of(scale, d, train_length, kappa):
    """The factor of log n in a scale by the number n of keys that a query sees: a number, or like kappa."""
    if kappa is None:
        return 1 / (math.log(train_length) * math.sqrt(d))
    return kappa / (math.sqrt(d) if scale == "log_n" else d)


def scale_of(rows, seen, like, d, scale, number, train_length, kappa):
    """The factor of the scores of queries with d numbers: a number, or of `like`'s type one for each query. number and kappa
    may be arrays (..., m, 1)."""
    if scale == "number":
        return number
    if scale == "sqrt":
        return 1 / math.sqrt(d)
    count = rows.xp.sum(rows.like(seen, like), axis=-1, keepdims=True)
    log_n = rows.log(rows.xp.where(count > 1, count, 1.0))
    return log_n * unit_of(scale, d, train_length, kappa)


def _finite(rows, x):
    """x with 0 for what is not finite, without derivatives there."""
    return rows.xp.where(rows.xp.isfinite(x), x, 0.0)


def _scores(rows, q, k, seen):
    """q k^T; no derivative of a key that is not seen is NaN, even if it has numbers that are not finite."""
    if rows.known_finite(q, k):
        return q @ k.mT
    xp, found = rows.xp, _finite(rows, q) @ _finite(rows, k).mT
    fine = [rows.all(xp.isfinite(x)) for x in (q, k)]
    wrong = seen & xp.logical_not(fine[0] & fine[1].mT)
    q, k = rows.constant(q), rows.constant(k)
    others = rows.if_any(wrong, lambda: q @ k.mT, rows.constant(found))
    # 0 times the finite ones is added for the derivative: NaN where that of the score is NaN, and otherwise 0.
    return xp.where(wrong, others + 0 * _finite(rows, found), found)


def _weighted(rows, p, v):
    """p v, where values of weight 0 have no part."""
    if rows.known_finite(v):
        return p @ v
    xp, out = rows.xp, p @ _finite(rows, v)
    weights, values = rows.constant(p), rows.constant(v)

    def infinite():
        counts = rows.like(weights != 0, v)
        high, low = (counts @ rows.like(xp.isnan(values) | (values == end), v) > 0 for end in (INF, -INF))
        return rows.like(xp.where(high, INF, 0.0), v) - rows.like(xp.where(low, INF, 0.0), v)

    # The sum of the values that are not finite; where there are any, the derivative in the weights is NaN.
    total = rows.if_any(xp.logical_not(xp.isfinite(values)), infinite, rows.constant(xp.zeros_like(out)))
    slope = rows.like(xp.where(total != 0, math.nan, 0.0), v)
    return out + xp.where(total != 0, total, rows.total(p) * slope)


def attended(rows, q, k, v, seen, mask, of_map, *, softcap=None, sinks=None, drop=None, weights=False, entropy=False):
    """[out], then the weights and their entropy if asked for. q is scaled; q, k and v have the same heads.

    ``of_map(scores)`` gives the weights. softcap c makes c tanh(s/c) of scaled scores s; sinks, (..., m, 1), are the score of a
    key whose value is 0; ``drop(weights)`` loses some.
    """
    xp, scores = rows.xp, _scores(rows, q, k, seen)
    if softcap is not None:
        scores = softcap * xp.tanh(scores / softcap)
    if mask is not None and mask.dtype != xp.bool:
        scores = scores + rows.like(xp.where(mask != -INF, mask, 0.0), scores)
    seen = xp.broadcast_to(seen, scores.shape)
    some = rows.any(seen)
    # A query that sees nothing gets finite scores, to avoid NaN, and weights of 0.
    scores = xp.where(some, xp.where(seen, scores, -INF), 0.0)
    if sinks is not None:
        sinks = xp.broadcast_to(rows.like(sinks, scores), (*scores.shape[:-1], 1))
        sinks = xp.where(some, sinks, 0.0)
        scores = xp.concat([scores, sinks], axis=-1)
    found = of_map(scores)
    if sinks is not None:
        found, taken = found[..., :-1], found[..., -1:]
    p = xp.where(seen, found, 0.0)
    p = p if drop is None else drop(p)
    results = [_weighted(rows, p, v)]
    if weights:
        # All weights of a query with a NaN are NaN, also those of keys that it does not see.
        results.append(xp.where(some & xp.isnan(found), found, p))
    if entropy:
        # The logarithm of 0 would make the gradient NaN. The sink is one more outcome.
        p = p if sinks is None else xp.concat([p, xp.where(some, taken, 0.0)], axis=-1)
        results.append(-xp.sum(p * rows.log(xp.where(p > 0, p, 1.0)), axis=-1))
    return results
