"""Divergences of two distributions: the value of each row, and the partial derivatives in both, as formulas/measures.py takes
them."""

import math
from typing import Any, NamedTuple

from isentropic.formulas.rows import INF, log1p_over, mean_exp, mean_exp_slope


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


def _even_part(rows, d):
    """(1 + d) log(1 + d) + (1 - d) log(1 - d) of d from -1 to 1, near 0 by its series."""
    where = rows.xp.where
    near, size = rows.xp.abs(d) < 0.25, rows.xp.abs(d)
    square, series = where(near, d * d, 0.0), 0.0
    for k in range(12, 0, -1):
        series = 1 / (k * (2 * k - 1)) + square * series
    less = where(near | (size >= 1), 0.5, 1 - size)
    lower = where(size >= 1, 0.0, less * rows.log(less))
    return where(near, square * series, (1 + size) * rows.xp.log1p(size) + lower)


def _js_divergence(rows, p, q, params):
    where, middle, most = rows.xp.where, (p.p + q.p) / 2, math.log(2)
    log = rows.log(where(middle > 0, middle, 1.0))
    # With q = middle (1 + d) and p = middle (1 - d) each term is at least 0, and nothing cancels where p and q are near.
    d = (q.p - p.p) / where(middle > 0, 2 * middle, 1.0)
    value = rows.total(middle * _even_part(rows, d)) / 2
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
    sign = where(difference > 0, 0.5, where(difference < 0, -0.5, 0 * difference))  # 0 with all derivatives, and NaN
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
    # Where q underflows, p may not, and p^2 / q may be large though both do.
    some, both = q.p > 0, p.present & q.present
    ratio = where(some, p.p / where(some, q.p, 1.0), where(both, rows.exp(where(both, p.log - q.log, 0.0)), 0.0))
    tiny = where(both, rows.exp(where(both, 2 * p.log - q.log, 0.0)), 0.0)
    value = rows.total(where(missing, INF, where(some, (p.p - q.p) * (ratio - 1), tiny)))
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
    y = b * z
    far = rows.xp.abs(y) > 1
    near, raised = z * mean_exp(rows, where(far, 0.0, y)), where(far, y, 0.0)
    by = where(b == 0, 1.0, b)
    g = -where(far, (rows.exp(raised) - 1) / by, near)
    weighted = -where(far, (rows.exp(p.log + raised) - p.p) / by, p.p * near)
    no_p, no_q = _missing(q, p), _missing(p, q)
    at_no_q = where(b > 0, 1 / where(b > 0, b, 1.0), INF)
    at_no_p = where(b >= 0, -INF, 1 / where(b >= 0, 1.0, b))
    g = where(no_p, at_no_p, where(no_q, at_no_q, where(p.present, g, 0.0)))
    some = where(no_q & (b > 0), p.p, 1.0)  # what is infinite is so for any p above 0, also one that underflows
    return g, where(no_q, at_no_q * some, where(no_p, 0.0, weighted))


class _Either(NamedTuple):
    """For each row one of two distributions."""

    p: Any
    log: Any
    present: Any


def _either(rows, first, one, other):
    return _Either(*(rows.xp.where(first, getattr(one, name), getattr(other, name)) for name in _Either._fields))


class _Amari:
    """Amari's divergence of order alpha, of p and q in the order for which b = 1 - alpha is at most 1/2."""

    def __init__(self, rows, p, q, alpha):
        where, low = rows.xp.where, alpha < 0.5
        self.p, self.q = _either(rows, low, q, p), _either(rows, low, p, q)
        self.b, self.rest = where(low, alpha, 1 - alpha), where(low, 1 - alpha, alpha)
        weighted = _amari_slope(rows, self.p, self.q, self.b)[1]
        excess = where(_missing(self.q, self.p), self.q.p, self.q.p - self.p.p + weighted)
        self.terms = excess / self.rest
        self.value = rows.total(self.terms)
        self.sign = where(low, 1.0, -1.0)  # d alpha / d b


def bend(rows, p, b, w):
    """p (y e^y - e^y + 1) / b^2, y = b w."""
    where, y = rows.xp.where, b * w
    far = rows.xp.abs(y) > 1
    by, raised = where(b == 0, 1.0, b), where(far, y, 0.0)
    near = p.p * w * w * mean_exp_slope(rows, where(far, 0.0, y))
    return where(far, (rows.exp(p.log + raised) * (raised - 1) + p.p) / by / by, near)


def _alpha_divergence(rows, p, q, params):
    alpha = rows.number(params["alpha"], p.p)
    gradients = _amari_slope(rows, p, q, 1 - alpha), _amari_slope(rows, q, p, alpha)
    return _Amari(rows, p, q, alpha).value, gradients


def _bends(rows, p, q, b, w):
    """bend where p is above 0; where q is 0 its limit for b > 0."""
    where = rows.xp.where
    by = where(b > 0, b, 1.0)
    return where(_missing(p, q), p.p / by / by, where(p.present, bend(rows, p, b, w), 0.0))


def _alpha_divergence_alpha(rows, p, q, params):
    """The derivative of a term in b is (term - p (y e^y - e^y + 1) / b^2) / (1 - b), y = b log(q/p)."""
    of = _Amari(rows, p, q, rows.number(params["alpha"], p.p))
    bends = _bends(rows, of.p, of.q, of.b, _log_ratio(rows, of.p, of.q))
    slope = of.sign * rows.total(of.terms - bends) / of.rest
    return rows.xp.where(rows.xp.isinf(of.value), 0.0, slope)


def _renyi_of_infinite_order(rows, p, q):
    where = rows.xp.where
    ratio = where(p.present, where(q.present, -_log_ratio(rows, p, q), INF), -INF)
    value = rows.xp.max(ratio, axis=-1, keepdims=True)
    value = where(value < 0, 0.0, value)
    top = where(ratio >= rows.constant(value), 1.0, 0.0 * p.p)
    share = top / rows.total(top)
    dp, dq = (where(top > 0, share / where(one.present, one.p, 1.0), 0.0) for one in (p, q))
    return value, ((dp, share), (-dq, -share))


def _renyi_of_order_0(rows, p, q):
    where = rows.xp.where
    missing, there = rows.total(where(p.present, 0.0, q.p)), rows.total(where(p.present, q.p, 0.0))
    by_logs = missing > 0.5
    some = where(by_logs, there, 1.0)
    value = where(by_logs, -rows.log(some), -rows.xp.log1p(where(by_logs, 0.0, -missing)))
    inside = where(by_logs, -1 / some, 0.0)
    outside = where(by_logs, 0.0, 1 / (1 - where(by_logs, 0.0, missing)))
    dq = where(p.present, inside, where(q.present, outside, 0.0))
    return value, by_logs, ((0.0 * p.p, 0.0 * p.p), (dq, q.times(dq)))


class _Renyi:
    """Renyi's divergence: its value, its gradients, and whether it comes from logarithms of the terms p^alpha q^b of S, or
    from S = 1 - alpha b A, A Amari's divergence, which is not small where S is not nearly 1."""

    def __init__(self, rows, p, q, params):
        where, isfinite = rows.xp.where, rows.xp.isfinite
        self.alpha = rows.number(params["alpha"], p.p)
        infinite, none = self.alpha == INF, self.alpha == 0
        alpha = where(infinite | none, 0.5, self.alpha)
        b, z, both = 1 - alpha, _log_ratio(rows, p, q), p.present & q.present
        amari = _Amari(rows, p, q, alpha).value
        lack = alpha * b * where((b == 0) & (amari == INF), 0.0, amari)
        by_logs = (lack > 0.5) | (lack < -1e200)
        logs = where(both, p.log + b * z, where(_missing(p, q) & (b < 0), INF, -INF))
        top = rows.most(logs)
        usual = isfinite(top)
        shares = rows.exp(where(both & usual, logs - where(usual, top, 0.0), -INF))
        total = where(usual, rows.total(shares), 1.0)
        shares = shares / total
        little = where(by_logs, 0.0, -lack)
        log_sum = where(by_logs, top + rows.log(total), rows.xp.log1p(little))
        inside, by = rows.exp(where(by_logs, 0.0, -log_sum)), where(b == 0, 1.0, b)

        def of(one, other, order, factor):
            ratio = where(both, rows.exp(where(by_logs & both, (other.log - one.log) * order - log_sum, 0.0)), 0.0)
            ratio = where(_missing(other, one) & (order > 0), INF, ratio)
            g, weighted = _amari_slope(rows, one, other, order)
            return tuple(where(by_logs, factor * far, alpha * inside * near) for far, near in ((ratio, g), (shares, weighted)))

        value = where(by_logs, -log_sum / by, alpha * amari * log1p_over(rows, little))
        gradients = of(p, q, b, -alpha / by), of(q, p, alpha, -1.0 + 0 * alpha)
        at_none, by_logs_at_none, gradients_at_none = _renyi_of_order_0(rows, p, q)
        at_infinity, gradients_at_infinity = _renyi_of_infinite_order(rows, p, q)

        def chosen(usual, zero, infinity):
            return where(infinite, infinity, where(none, zero, usual))

        self.value = chosen(value, at_none, at_infinity)
        self.by_logs = where(none, by_logs_at_none, by_logs)
        pairs = zip(gradients, gradients_at_none, gradients_at_infinity, strict=True)
        self.gradients = tuple(tuple(map(chosen, *three)) for three in pairs)


def _renyi_divergence(rows, p, q, params):
    found = _Renyi(rows, p, q, params)
    return found.value, found.gradients


def _renyi_divergence_alpha(rows, p, q, params):
    """KL(r, p) / b^2, r = p^alpha q^b / S, plus the terms for sums that are not 1."""
    where, found = rows.xp.where, _Renyi(rows, p, q, params)
    still = (found.alpha == INF) | rows.xp.isinf(found.value)
    value, b = where(still, 0.0, found.value), where(still, 0.5, 1 - found.alpha)
    slope = rows.total(_bends(rows, p, q, b, where(q.present, _log_ratio(rows, p, q) + value, 0.0)))
    p_excess, q_excess = rows.total(p.p) - 1, rows.total(q.p) - 1
    c = where(found.by_logs, 0.0, b * value)
    by = where(found.by_logs, b, 1.0)
    whole = where(found.by_logs, 1 / by / by, value * value * mean_exp_slope(rows, c))
    slope = slope - p_excess * whole + where(found.by_logs, 0.0, (p_excess - q_excess) * value * rows.exp(c))
    return where(still, 0.0, slope)


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

# Gradients in the parameters that may be per row.
BY_PARAM = {
    ("alpha_divergence", "alpha"): _alpha_divergence_alpha,
    ("renyi_divergence", "alpha"): _renyi_divergence_alpha,
}
