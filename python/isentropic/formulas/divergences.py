"""Divergences of two distributions: the value of each row, and the partial derivatives in both, as formulas/measures.py takes
them."""

import math

from isentropic.formulas.rows import INF, mean_exp


def unit(params):
    return math.log(params["base"]) if params.get("base") else 1.0


def _missing(p, q):
    return p.present & ~q.present


def _cross_entropy(rows, p, q, params):
    where, missing = rows.xp.where, _missing(p, q)
    value = rows.total(where(missing, INF, -p.p * q.log))
    dq = where(missing, -INF, where(q.present, -p.p / where(q.present, q.p, 1.0), 0.0))
    return value, (where(missing, INF, -q.log), (dq, -p.p))


def _kl_divergence(rows, p, q, params):
    where, missing, difference = rows.xp.where, _missing(p, q), p.log - q.log
    value = rows.total(where(missing, INF, where(p.present, p.p * difference - p.p + q.p, q.p)))
    dp = where(missing, INF, where(_missing(q, p), -INF, where(p.present, difference, 0.0)))
    dq = where(missing, -INF, where(q.present, (q.p - p.p) / where(q.present, q.p, 1.0), 0.0))
    return value, (dp, (dq, q.p - p.p))


def _js_divergence(rows, p, q, params):
    where, middle, most = rows.xp.where, (p.p + q.p) / 2, math.log(2)
    log = rows.log(where(middle > 0, middle, 1.0))
    value = rows.total(p.p * (p.log - log) + q.p * (q.log - log)) / 2
    g = [where(one.present, (one.log - log) / 2, where(middle > 0, -INF, 0.0 * middle)) for one in (p, q)]
    return where(value < 0, 0.0, where(value > most, most, value)), tuple(g)


def _js_distance(rows, p, q, params):
    """The square root; only here a base is inside."""
    value, g = _js_divergence(rows, p, q, params)
    value = rows.xp.sqrt(value / unit(params))
    factor = rows.xp.where(value > 0, 0.5 / rows.xp.where(value > 0, value, 1.0), 0.0) / unit(params)
    return value, tuple(one * factor for one in g)


def _total_variation(rows, p, q, params):
    difference = p.p - q.p
    where = rows.xp.where  # sign of array_api_compat waits for a device
    sign = where(difference > 0, 0.5, where(difference < 0, -0.5, difference))
    return rows.total(rows.xp.abs(difference)) / 2, (sign, -sign)


def _hellinger_distance(rows, p, q, params):
    where = rows.xp.where
    roots = [where(one.present, rows.exp(one.log / 2), 0.0) for one in (p, q)]
    difference = roots[0] - roots[1]
    squared = rows.dot(difference, difference) / 2
    apart = squared > 0
    value = where(apart, rows.xp.sqrt(where(apart, squared, 1.0)), 0.0)
    factor = where(apart, 0.25 / where(apart, value, 1.0), 0.0)

    def of(one, other, own, its):
        g = 1 - its / where(one.present, own, 1.0)
        g = where(one.present, g, where(other.present, -INF, 0.0 * own))
        return where(apart, g * factor, 0.0), own * (own - its) * factor

    return value, (of(p, q, *roots), of(q, p, *roots[::-1]))


def _chi_squared_divergence(rows, p, q, params):
    where, missing = rows.xp.where, _missing(p, q)
    ratio = p.p / where(q.present, q.p, 1.0)
    value = rows.total(where(missing, INF, (p.p - q.p) * (ratio - 1) * where(q.present, 1.0, 0.0)))
    dp = where(missing, INF, where(q.present, 2 * (ratio - 1), 0.0))
    dq = where(missing, -INF, where(q.present, (1 - ratio) * (1 + ratio), 0.0))
    return value, (dp, (dq, q.p - p.p * ratio))


def _jeffreys_divergence(rows, p, q, params):
    (there, there_p), (back, back_q) = (_kl_divergence(rows, *pair, params) for pair in ((p, q), (q, p)))
    dp, (dq, weighted_q) = there_p
    own_q, (own_p, weighted_p) = back_q
    return there + back, ((dp + own_p, p.times(dp) + weighted_p), (dq + own_q, q.times(own_q) + weighted_q))


def _log_ratio(rows, p, q):
    """log q - log p where both are above 0, otherwise 0."""
    return rows.xp.where(p.present & q.present, q.log - p.log, 0.0)


def _amari_slope(rows, p, q, b):
    """-((q/p)^b - 1) / b, the derivative in p of the divergence of order 1 - b, and p times it."""
    where, z = rows.xp.where, _log_ratio(rows, p, q)
    far = rows.xp.abs(b * z) > 1
    near = z * mean_exp(rows, where(far, 0.0, b * z))
    by = b or 1.0
    g = -where(far, (rows.exp(where(far, b * z, 0.0)) - 1) / by, near)
    weighted = -where(far, (rows.exp(p.log + where(far, b * z, 0.0)) - p.p) / by, p.p * near)
    no_p, no_q = _missing(q, p), _missing(p, q)
    at_no_q = 1 / b if b > 0 else INF
    g = where(no_p, -INF if b >= 0 else 1 / b, where(no_q, at_no_q, where(p.present, g, 0.0)))
    return g, where(no_q, at_no_q * where(no_q, p.p, 1.0), where(no_p, 0.0, weighted))


def _amari(rows, p, q, alpha, b):
    if alpha < 0.5:
        return _amari(rows, q, p, b, alpha)
    where = rows.xp.where
    weighted = _amari_slope(rows, p, q, b)[1]
    return rows.total(where(_missing(q, p), q.p, q.p - p.p + weighted)) / alpha


def _alpha_divergence(rows, p, q, params):
    alpha = params["alpha"]
    return _amari(rows, p, q, alpha, 1 - alpha), (_amari_slope(rows, p, q, 1 - alpha), _amari_slope(rows, q, p, alpha))


def _renyi_divergence_of_infinite_order(rows, p, q):
    where = rows.xp.where
    ratio = where(p.present, where(q.present, -_log_ratio(rows, p, q), INF), -INF)
    value = rows.xp.max(ratio, axis=-1, keepdims=True)
    value = where(value < 0, 0.0, value)
    top = where(ratio >= rows.constant(value), 1.0, 0.0 * p.p)
    share = top / rows.total(top)
    dp, dq = (where(top > 0, share / where(one.present, one.p, 1.0), 0.0) for one in (p, q))
    return value, ((dp, share), (-dq, -share))


def _renyi_divergence_of_order_0(rows, p, q):
    where = rows.xp.where
    missing, there = rows.total(where(p.present, 0.0, q.p)), rows.total(where(p.present, q.p, 0.0))
    by_logs = missing > 0.5
    some = where(by_logs, there, 1.0)
    value = where(by_logs, -rows.log(some), -rows.xp.log1p(where(by_logs, 0.0, -missing)))
    inside = where(by_logs, -1 / some, 0.0)
    outside = where(by_logs, 0.0, 1 / (1 - where(by_logs, 0.0, missing)))
    return value, (0.0 * p.p, where(p.present, inside, where(q.present, outside, 0.0)))


def _renyi_divergence(rows, p, q, params):
    where, alpha = rows.xp.where, params["alpha"]
    if alpha == 1:
        return _kl_divergence(rows, p, q, params)
    if alpha == INF:
        return _renyi_divergence_of_infinite_order(rows, p, q)
    if alpha == 0:
        return _renyi_divergence_of_order_0(rows, p, q)
    b, z, both = 1 - alpha, _log_ratio(rows, p, q), p.present & q.present
    lack = alpha * b * _amari(rows, p, q, alpha, b)
    by_logs = (lack > 0.5) | (lack < -1e200)
    # By logarithms of the terms, and 1 - lack.
    logs = where(both, p.log + b * z, -INF)
    if b < 0:
        logs = where(_missing(p, q), INF, logs)
    top = rows.most(logs)
    usual = rows.xp.isfinite(top)
    shares = rows.exp(where(both & usual, logs - where(usual, top, 0.0), -INF))
    total = rows.total(shares)
    log_sum = where(by_logs, top + rows.log(where(usual, total, 1.0)), rows.xp.log1p(-where(by_logs, 0.0, lack)))
    inside = rows.exp(where(by_logs, 0.0, -log_sum))
    shares = shares / where(usual, total, 1.0)

    def of(one, other, order, factor):
        ratio = where(both, rows.exp(where(by_logs & both, (other.log - one.log) * order - log_sum, 0.0)), 0.0)
        if order > 0:
            ratio = where(_missing(other, one), INF, ratio)
        g, weighted = _amari_slope(rows, one, other, order)
        return tuple(where(by_logs, factor * far, alpha * inside * near) for far, near in ((ratio, g), (shares, weighted)))

    return -log_sum / b, (of(p, q, b, -alpha / b), of(q, p, alpha, -1.0))


DIVERGENCES = {
    "cross_entropy": _cross_entropy,
    "kl_divergence": _kl_divergence,
    "js_divergence": _js_divergence,
    "js_distance": _js_distance,
    "total_variation": _total_variation,
    "hellinger_distance": _hellinger_distance,
    "chi_squared_divergence": _chi_squared_divergence,
    "jeffreys_divergence": _jeffreys_divergence,
    "alpha_divergence": _alpha_divergence,
    "renyi_divergence": _renyi_divergence,
}
