"""Measures: values and gradients, which can be differentiated again.

`graded` gives the value of each row, of size 1 for the last axis, the gradients in the arrays and those in parameters that are
arrays. Tables are flat, with ``params["cols"]`` columns. Measures of each entry are `entries` and `entries_pulled`.
"""

import math

from isentropic.formulas.divergences import BY_PARAM as ORDERS_OF_TWO
from isentropic.formulas.divergences import DIVERGENCES, bend, unit
from isentropic.formulas.rows import (
    INF,
    canonical,
    has_none,
    log1p_over,
    log_sigmoid,
    mean_exp,
    or_nan,
)


def logarithms(rows, x, holds):
    """(log p of what rows hold, which rows have no distribution): in this form distributions of different kinds are compared.
    Rows of scores without one get the uniform one; the logarithm of a number that is not a probability is NaN."""
    where = rows.xp.where
    if holds == "scores":
        lost = has_none(rows, x)
        return rows.log_softmax(canonical(rows, where(lost, 0.0, x))), lost
    log = x
    if holds == "probs":
        some = x > 0
        log = where(some, rows.log(where(some, x, 1.0)), rows.like(where(x == 0, -INF, math.nan), x))
    return log, rows.any(rows.xp.isnan(x))


class Distribution:
    """The distribution in an array: p, and log p where p > 0."""

    def __init__(self, rows, x, params):
        xp, self.rows = rows.xp, rows
        if params["input"] == "probs":
            self.through = "probs"
            if params["normalize"]:
                self.through, self.divisor = "division", rows.total(x)
                x = x / self.divisor
            self.p, self.present = x, x > 0
            self.log = rows.log(xp.where(self.present, x, 1.0))
            return
        softmax = params["input"] == "scores" or params["normalize"]
        self.still = rows.any(x == INF) & ~rows.any(xp.isnan(x))
        # A row without a distribution is NaN. This is said here, since other runtimes' log_softmax may not make it so.
        log = or_nan(rows, rows.log_softmax(canonical(rows, x)), ~has_none(rows, x), x) if softmax else x
        self.p, self.present = rows.exp(log), log != -INF
        self.log = xp.where(self.present, log, 0.0)
        self.through = "softmax" if softmax else "logs"

    def gradient(self, g, weighted=None):
        """The gradient of a function whose partial derivatives in p are g, where p > 0. `weighted` is p g, if that is known for
        p that are rounded to 0 too."""
        if self.through == "probs":
            return g
        where, total = self.rows.xp.where, self.rows.total
        weighted = where(self.present, self.times(g) if weighted is None else weighted, 0.0)
        if self.through == "logs":
            return weighted
        if self.through == "softmax":
            return where(self.still, 0.0, weighted - self.p * total(weighted))
        return (g - total(weighted)) / self.divisor

    def times(self, g):
        """p g, 0 where p is 0, where g may be infinite."""
        return self.p * self.rows.xp.where(self.p == 0, 0.0, g)


class Smoothed(Distribution):
    """The distribution with a number added to every class of what is given, divided by the sum."""

    def __init__(self, rows, x, params):
        self.rows, self.of = rows, Distribution(rows, x, params)
        added = params["smoothing"] + 0 * rows.total(self.of.p)
        if self.of.through == "division":
            added = added / self.of.divisor
        if params["input"] == "log_probs" and params["normalize"]:  # to exp(x), as without normalize
            top = rows.most(x)
            added = added * rows.exp(-top) / rows.total(rows.exp(x - top))
            self.of.through = "logs"
        self.divisor = rows.total(self.of.p) + x.shape[-1] * added
        self.p = (self.of.p + added) / self.divisor
        self.present, self.log = self.p > 0, rows.log(self.p)

    def gradient(self, g, weighted=None):
        g = (g - self.rows.dot(self.p, g)) / self.divisor
        return g / self.of.divisor if self.of.through == "division" else self.of.gradient(g)


def _entropy(rows, p, params):
    return -rows.dot(p.p, p.log), (rows.xp.where(p.present, -p.log - 1, INF),)


def _perplexity(rows, p, params):
    value = rows.exp(_entropy(rows, p, params)[0])
    return value, (rows.xp.where(p.present, (-p.log - 1) * value, INF),)


def _varentropy(rows, p, params):
    where, mean = rows.xp.where, rows.dot(p.p, p.log)
    c = where(p.present, p.log - mean, 0.0)
    g = c * (c + 2) + 2 * mean * (rows.total(p.p) - 1) * (p.log + 1)
    squared = unit(params) ** 2
    return rows.dot(p.p, c * c) / squared, (where(p.present, g / squared, INF),)


class _Order:
    """alpha, one number or one for each row, and the formulas to use for it. `usual` is alpha, or 2 instead of inf."""

    def __init__(self, rows, params, p):
        where, self.alpha = rows.xp.where, rows.number(params["alpha"], p.p)
        self.infinite, self.none = self.alpha == INF, self.alpha == 0
        self.near_1 = rows.xp.abs(self.alpha - 1) < 2**-10
        self.usual = where(self.infinite, 2.0, self.alpha)
        self.minus_1 = where(self.infinite, 1.0, self.alpha - 1)
        self.little = where(self.near_1, self.minus_1, 0.0)  # elsewhere its powers may overflow
        self.apart = where(self.infinite | self.near_1, 1.0, self.alpha - 1)  # entries by which one may divide


def _excess(rows, p, minus_1):
    """sum p (p^(alpha - 1) - 1) / (alpha - 1): minus the entropy at 1."""
    where, z = rows.xp.where, minus_1 * p.log
    near = rows.xp.abs(z) < 1  # elsewhere p^(alpha - 1) may overflow where p^alpha does not
    by = where(near, 1.0, minus_1)
    far = (rows.exp((minus_1 + 1) * p.log) - p.p) / by
    return rows.total(where(p.present, where(near, p.p * p.log * mean_exp(rows, where(near, z, 0.0)), far), 0.0))


def _near(rows, p, order, divisor=1.0):
    where, z, rising = rows.xp.where, order.little * p.log, order.minus_1 > 0
    # At p = 0 the limit, 1 / (alpha - 1), or infinite.
    at_0 = where(rising, 1 / where(rising, order.minus_1, 1.0) / divisor, INF)
    return where(p.present, (-rows.exp(z) - p.log * mean_exp(rows, z)) / divisor, at_0)


def _or_at_0(rows, p, order, g):
    """g, and where p is 0 the limit of a multiple of p^(alpha - 1)."""
    return rows.xp.where(p.present, g, rows.xp.where(order.alpha > 1, 0.0, INF))


def _renyi_entropy(rows, p, params):
    where, order = rows.xp.where, _Order(rows, params, p)
    largest = rows.xp.max(p.p, axis=-1, keepdims=True)
    alpha = where(order.infinite | order.near_1, 2.0, order.alpha)
    powers = where(p.present, rows.exp(alpha * (p.log - rows.log(largest))), 0.0)
    log_sum = rows.log(rows.total(powers)) + alpha * rows.log(largest)
    excess = _excess(rows, p, order.little)
    more = order.little * excess
    near = -excess * log1p_over(rows, more)
    value = where(order.near_1, near, where(order.infinite, -rows.log(largest), log_sum / -order.apart))
    g = _or_at_0(rows, p, order, -alpha / order.apart * rows.exp((alpha - 1) * p.log - log_sum))
    top = where(p.p == largest, 1.0, 0.0 * p.p)
    ties = rows.total(top)
    g = where(order.infinite, -top / (largest * ties), g)
    near = _near(rows, p, order, 1 + more)
    g = where(order.none, 0.0, where(order.near_1, near, g))
    # p^(alpha - 1) may overflow, and p times it does not.
    weighted = -alpha / order.apart * rows.exp(alpha * p.log - log_sum)
    weighted = where(order.infinite, -top / ties, weighted)
    return value, ((g, where(order.near_1, p.times(near), weighted)),)


def _hill_number(rows, p, params):
    value, ((g, weighted),) = _renyi_entropy(rows, p, {"alpha": params["order"]})
    value = rows.exp(value)
    return value, ((g * value, weighted * value),)


def _renyi_entropy_alpha(rows, p, params):
    """-KL(q, p) / (alpha - 1)^2, q = p^alpha / sum p^alpha, plus the terms for a sum that is not 1."""
    where, order = rows.xp.where, _Order(rows, params, p)
    w = p.log + _renyi_entropy(rows, p, {"alpha": order.usual})[0]
    slope = -rows.total(where(p.present, bend(rows, p, order.usual - 1, w), 0.0))
    slope = slope + where(order.near_1, 0.0, (rows.total(p.p) - 1) / order.apart**2)
    return where(order.infinite, 0.0, slope)


def _tsallis_entropy(rows, p, params):
    where, order = rows.xp.where, _Order(rows, params, p)
    total = rows.total(p.p)
    missing = where(order.near_1, 0.0, (1 - total) / order.apart)
    value = where(order.infinite, 0.0 * total, missing - _excess(rows, p, order.minus_1))
    g = _or_at_0(rows, p, order, -order.usual / order.apart * rows.exp(order.minus_1 * p.log))
    near = _near(rows, p, order)
    g = where(order.near_1, near, g)
    weighted = -order.usual / order.apart * rows.exp(order.usual * p.log)  # as for Renyi
    weighted = where(order.near_1, p.times(near), weighted)
    return value, ((where(order.infinite | order.none, 0.0, g), where(order.infinite, 0.0, weighted)),)


def _tsallis_entropy_alpha(rows, p, params):
    where, order = rows.xp.where, _Order(rows, params, p)
    slope = -rows.total(where(p.present, bend(rows, p, order.minus_1, p.log), 0.0))
    slope = slope - where(order.near_1, 0.0, (1 - rows.total(p.p)) / order.apart**2)
    return where(order.infinite, 0.0, slope)


def _tables(p, params):
    """(tables, log p) of flat ones."""
    lead, cols = p.p.shape[:-1], params["cols"]
    shape = (*lead, p.p.shape[-1] // cols if cols else 0, cols)
    return p.rows.xp.reshape(p.p, shape), p.rows.xp.reshape(p.log, shape)


def _flat(rows, x, shape, p):
    return rows.xp.reshape(rows.xp.broadcast_to(x, shape), p.p.shape)


def _safe_log(rows, x):
    return rows.log(rows.xp.where(x > 0, x, 1.0))


def _infinite_where(rows, marginal, table, p):
    """-log p at p = 0; it is 0 if its marginal is 0 too."""
    return _flat(rows, rows.xp.where(marginal > 0, INF, 0.0 * marginal), table.shape, p)


def _conditional_entropy(rows, p, params):
    table, log = _tables(p, params)
    given = rows.xp.sum(table, axis=-1 if params["given"] == "x" else -2, keepdims=True)
    g = _flat(rows, _safe_log(rows, given) - log, table.shape, p)
    return rows.dot(p.p, g), (rows.xp.where(p.present, g, _infinite_where(rows, given, table, p)),)


def _mutual_information(rows, p, params):
    table, log = _tables(p, params)
    of_x, of_y = (rows.xp.sum(table, axis=axis, keepdims=True) for axis in (-1, -2))
    both = _safe_log(rows, of_x) + _safe_log(rows, of_y) - _safe_log(rows, rows.xp.sum(of_x, axis=-2, keepdims=True))
    g = _flat(rows, log - both, table.shape, p)
    value = rows.dot(p.p, g)
    infinite = _infinite_where(rows, of_x * of_y, table, p)
    return rows.xp.where(value < 0, 0.0, value), (rows.xp.where(p.present, g, -infinite),)


def _variation_of_information(rows, p, params):
    (there, (first,)), (back, (second,)) = (_conditional_entropy(rows, p, {**params, "given": one}) for one in "xy")
    return there + back, (first + second,)


def _normalized_mutual_information(rows, p, params):
    where, (table, _) = rows.xp.where, _tables(p, params)
    information, (slope,) = _mutual_information(rows, p, params)
    sums = [rows.xp.sum(table, axis=axis, keepdims=True) for axis in (-1, -2)]
    logs = [_safe_log(rows, one) for one in sums]
    x, y = (-rows.xp.sum(one * log, axis=(-1, -2)) for one, log in zip(sums, logs, strict=True))
    x, y = x[..., None], y[..., None]
    some = (x > 0) & (y > 0)
    safe_x, safe_y = where(some, x, 1.0), where(some, y, 1.0)
    if params["average"] == "arithmetic":
        mean, of_x, of_y = (x + y) / 2, 0.5, 0.5
    elif params["average"] == "geometric":
        mean = where(some, rows.xp.sqrt(safe_x * safe_y), 0.0)
        of_x, of_y = mean / safe_x / 2, mean / safe_y / 2
    else:
        least = where(x == y, 0.5, where(x < y, 1.0, 0.0 * x))
        of_x = least if params["average"] == "min" else 1 - least
        of_y = 1 - of_x
        mean = of_x * x + of_y * y
    there = mean > 0
    value = where(there, information / where(there, mean, 1.0), 0.0)
    slopes = [_flat(rows, log + 1, table.shape, p) for log in logs]
    g = slope + value * (of_x * slopes[0] + of_y * slopes[1])
    return value, (where(there, g / where(there, mean, 1.0), 0.0),)


def independent_given(xp, p):
    """p(x,z) p(y,z) / p(z) of tables p(x, y, z): the distribution with these marginals in which x and y are independent given
    z. Its divergence from p is the conditional mutual information."""
    of_xz, of_yz = xp.sum(p, axis=-2, keepdims=True), xp.sum(p, axis=-3, keepdims=True)
    of_z = xp.sum(of_xz, axis=-3, keepdims=True)
    return of_xz * (of_yz / xp.where(of_z > 0, of_z, 1.0))


MEASURES = {
    "entropy": _entropy,
    "joint_entropy": _entropy,
    "perplexity": _perplexity,
    "varentropy": _varentropy,
    "hill_number": _hill_number,
    "renyi_entropy": _renyi_entropy,
    "tsallis_entropy": _tsallis_entropy,
    **DIVERGENCES,
    "conditional_entropy": _conditional_entropy,
    "mutual_information": _mutual_information,
    "normalized_mutual_information": _normalized_mutual_information,
    "variation_of_information": _variation_of_information,
}

# Gradients in the parameters that may be per row.
BY_PARAM = {
    ("renyi_entropy", "alpha"): _renyi_entropy_alpha,
    ("tsallis_entropy", "alpha"): _tsallis_entropy_alpha,
    **ORDERS_OF_TWO,
}
# The measures that apply the base themselves, or on which it has no effect.
_WITHOUT_UNIT = ("perplexity", "varentropy", "js_distance")


def graded(rows, name, arrays, params):
    """(the value of each row, [the gradient in each array], {parameter that is an array: its gradient})."""
    given = [(Smoothed if params.get("smoothing") else Distribution)(rows, x, params) for x in arrays]
    value, partials = MEASURES[name](rows, *given, params)
    gradients = [one.gradient(*(g if isinstance(g, tuple) else (g,))) for one, g in zip(given, partials, strict=True)]
    nats = 1.0 if name in _WITHOUT_UNIT else unit(params)
    slopes = {
        param: by(rows, *given, params) / nats
        for (measure, param), by in BY_PARAM.items()
        if measure == name and hasattr(params[param], "dtype")
    }
    lost = sum(rows.total(one.p) for one in given)  # NaN where one of them is not a distribution
    nan = rows.xp.isnan(lost)
    gradients = [rows.xp.where(nan, lost, g / nats) for g in gradients]
    return (
        rows.xp.where(nan, lost, value / nats),
        gradients,
        {param: rows.xp.where(nan, lost, slope) for param, slope in slopes.items()},
    )


# Measures of each entry, with a derivative that can be differentiated.


def _self_information(rows, x, params):
    p = Distribution(rows, x, {"normalize": False, **params})
    return rows.xp.where(p.present, -p.log, INF)


def _self_information_pulled(rows, x, g, params):
    if params["input"] == "scores" or (params.get("normalize") and params["input"] == "log_probs"):
        return rows.softmax(x) * rows.total(g) - g
    if params["input"] == "log_probs":
        return -g
    through_sum = rows.total(g) / rows.total(x) if params.get("normalize") else 0
    some = rows.xp.where(x == 0, 1.0, x)  # at 0 the slope is infinite, and has no derivative
    return through_sum - _times(rows, g, rows.xp.where(x == 0, INF, 1 / some))


def _times(rows, g, slope):
    """Their product, 0 if the factor of an infinite slope is 0."""
    return g * rows.xp.where((g == 0) & rows.xp.isinf(slope), 0.0, slope)


def _binary_entropy(rows, x, params):
    xp = rows.xp
    if params["input"] == "scores":
        logs = log_sigmoid(rows, x), log_sigmoid(rows, -x)
    elif params["input"] == "probs":
        logs = rows.log(x), xp.log1p(-x)
    else:
        logs = x, rows.log(-xp.expm1(x))
    first, second = (xp.where(log == -INF, 0.0, rows.exp(log) * log) for log in logs)  # NaN stays
    return -first - second


def _binary_entropy_pulled(rows, x, g, params):
    xp = rows.xp
    if params["input"] == "scores":
        steep = rows.exp(log_sigmoid(rows, x) + log_sigmoid(rows, -x))
        return g * -xp.where(steep > 0, x, 0.0) * steep
    if params["input"] == "probs":
        inside = (x != 0) & (x != 1)
        some = xp.where(inside, x, 0.5)
        return _times(rows, g, xp.where(inside, xp.log1p(-some) - rows.log(some), xp.where(x == 0, INF, -INF)))
    p = rows.exp(x)
    some = xp.where(p > 0, x, 0.0)
    return _times(rows, g, xp.where(p > 0, p * (rows.log(-xp.expm1(x)) - some), 0.0))


ENTRIES = {
    "self_information": (_self_information, _self_information_pulled),
    "binary_entropy": (_binary_entropy, _binary_entropy_pulled),
}


def entries(rows, name, x, params):
    return ENTRIES[name][0](rows, x, params) / unit(params)


def entries_pulled(rows, name, x, g, params):
    return ENTRIES[name][1](rows, x, g, params) / unit(params)
