"""Derivatives of maps.

A Jacobian in the scores is that of a symmetric matrix C, the same forward and backward, and the slopes d of what the map does
to each score before: J v = C (d v), J^T g = d C g. C of a `Point` is ``CORES[name]``, d is ``SLOPES[name]``. A parameter moves
the scores of C (``DIVISORS``) or the result (``BY_PARAM``). `pushed` and `pulled` put them together; logarithms and
soft_top_k, which are not distributions, have rules of their own there.
"""

import math
from typing import Any, NamedTuple

from isentropic.formulas.compositions import ENDS, scores_of, softmax
from isentropic.formulas.rows import INF, carried, divided, entropy, from_most, log_or_0, log_sigmoid, minus_size, second_rest


class Point(NamedTuple):
    """Where a derivative is taken: scores x, the result p, parameters by name."""

    x: Any
    p: Any
    params: dict


def settled(rows, x, p, *changes, logarithm=False):
    """(x, p, *changes) with harmless numbers, and no change, in rows that do not move: those with +inf and, of a logarithm,
    those without a score. All their derivatives are 0."""
    xp = rows.xp
    still = rows.any(x == INF) & ~rows.any(xp.isnan(x) | xp.isnan(p))
    if logarithm:
        still = still | rows.all(x == -INF)
    return xp.where(still, 1.0, x), xp.where(still, 1.0, p), *(xp.where(still, 0.0, one) for one in changes)


def centred(rows, s, w, total=None):
    """s (w - <s, w> / sum s), the Jacobian of a map with a threshold, whose slopes are s; `total` is their sum if it is
    known. An entry without a slope has no part, and is not read."""
    w = carried(rows, s, w)
    if total is None:
        weighted, total = rows.sums(s * w, s)
        total = rows.xp.where(total == 0, 1.0, total)
    else:
        (weighted,) = rows.sums(s * w)
    return rows.xp.where(s == 0, 0.0, s * (w - weighted / total))


def entmax_slopes(rows, p, alpha):
    """p^(2 - alpha) where p has mass; p itself where alpha is 1, and 1 where it is 2."""
    return carried(rows, p, rows.exp((2.0 - alpha) * log_or_0(rows, p)))


def entmax_by_alpha(rows, p, alpha):
    """d entmax / d alpha (Correia, Niculae, Martins, 2019), without differences that cancel near alpha = 1."""
    xp, b, log = rows.xp, alpha - 1.0, log_or_0(rows, p)
    p = xp.where(p == 0, 0.0, p)
    # Where p^-b is larger, alpha no longer has an effect.
    y = xp.minimum(-b * log, xp.zeros_like(log) + 0.845 * math.log(float(xp.finfo(p.dtype).max)))
    h, r = -p * log, p * log * log * second_rest(rows, y)
    total, sum_h, sum_r = rows.sums(p * rows.exp(y), h, r)
    return (p * sum_r - r + b * (h * sum_r - r * sum_h)) / (2 * total)


class AtEntropy(NamedTuple):
    """A row softmax(gamma x) at a given entropy. Scores are in units in which sums and squares have numbers: u, minus their
    mean under p, and gamma; gamma / unit is that of the given scores. Rows that cannot change do not `move`."""

    p: Any
    u: Any
    gamma: Any
    unit: Any
    variance: Any
    moves: Any

    def pushed(self, rows, v):
        """The change of p for scores that change by v, at the same entropy."""
        return rows.xp.where(self.moves, self.gamma / self.unit * self._along(rows, v)[0], self.p * 0)

    def _along(self, rows, v):
        v = carried(rows, self.p, v)
        mean, share = rows.sums(self.p * v, self.p * self.u * v)
        share = share / self.variance
        return self.p * (v - mean) - self.p * self.u * share, share

    def by_entropy(self, rows):
        """dp / dH."""
        return rows.xp.where(self.moves, -self.p * self.u / (self.gamma * self.variance), self.p * 0)


def at_entropy(rows, x, p):
    """What derivatives of p = softmax(gamma x) at its entropy are made of; gamma is found from both."""
    xp = rows.xp
    p, log = rows.wide(p), rows.wide(log_or_0(rows, p))
    there = (p > 0) & xp.isfinite(x)
    # Halves, so that no difference overflows, in units of their reach, so that no square does.
    half = from_most(rows, rows.wide(x), there)
    reach = rows.most(-half)
    reach = xp.where(reach > 0, reach, 1.0)
    u = half / reach
    u = u - rows.dot(p, u)
    variance, slope = rows.sums(p * u * u, p * u * log)
    # Uniform rows do not change, though rounding may leave a little of the slope.
    uniform = rows.most(p) <= -rows.most(xp.where(p > 0, -p, -INF))
    fixed = uniform | (variance <= 1e-300) | (slope <= 0)
    variance = xp.where(fixed, 1.0, variance)
    return AtEntropy(p, u, xp.where(fixed, 1.0, slope / variance), 2 * reach, variance, ~fixed)


def held(rows, scores, params):
    """The rows of entropy_clip at each bound, by its name: their entropy is the bound's, within the kernels' tolerance. No row
    is at both."""
    xp = rows.xp
    reached = entropy(rows, softmax(rows, rows.wide(scores), {"temperature": 1.0}))
    tolerance = 1e-12 if scores.dtype == xp.float64 else 1e-6
    low, high = (None if params[name] is None else rows.number(params[name], scores) for name in ENDS)
    found = {}
    if high is not None:
        reached = xp.where(reached > high, high, reached)
        found["max_entropy"] = reached >= high - tolerance * xp.where(high > 1.0, high, 1.0)
    if low is not None:
        found["min_entropy"] = reached <= low + tolerance * xp.where(low > 1.0, low, 1.0)
        if high is not None:
            found["max_entropy"] = found["max_entropy"] & ~found["min_entropy"]
    return found


# C w of a map, at a point.


def _of_softmax(rows, at, w):
    return centred(rows, at.p, w, 1.0)


def _of_sparsemax(rows, at, w):
    return centred(rows, carried(rows, at.p, rows.xp.ones_like(at.p)), w)


def _of_entmax(rows, at, w):
    return centred(rows, entmax_slopes(rows, at.p, at.params["alpha"]), w)


def _of_entropy_normalize(rows, at, w):
    return rows.like(at_entropy(rows, scores_of(rows, *at[::2]), at.p).pushed(rows, rows.wide(w)), at.x)


def _of_entropy_clip(rows, at, w):
    scores, dp = scores_of(rows, *at[::2]), centred(rows, at.p, w, 1.0)
    at_bound = rows.like(at_entropy(rows, scores, at.p).pushed(rows, rows.wide(w)), at.x)
    for rows_at in held(rows, scores, at.params).values():
        dp = rows.xp.where(rows_at, at_bound, dp)
    return dp


CORES = {
    **dict.fromkeys(
        ("softmax", "top_k_softmax", "top_p_softmax", "min_p_softmax", "taylor_softmax", "sigsoftmax", "perturb_max"),
        _of_softmax,  # of perturb_max, that with Gumbel's noise
    ),
    "sparsemax": _of_sparsemax,
    "entmax": _of_entmax,
    "entropy_normalize": _of_entropy_normalize,
    "entropy_clip": _of_entropy_clip,
}


# d of a map: what a change of a score is to C.


def _of_input(rows, at):
    """Scores of probabilities are logarithms."""
    if at.params["input"] != "probs":
        return 1.0
    return rows.xp.where(at.x > 0, 1 / rows.xp.where(at.x > 0, at.x, 1.0), 0.0)


def _of_taylor(rows, at):
    """f'/f of the polynomial, of a high score in powers of 1/x, which do not overflow: f = x^n/n! (1 + n/x (1 + (n-1)/x
    (...)))."""
    xp, order, x = rows.xp, at.params["order"], rows.wide(rows.xp.where(rows.xp.isinf(at.x), 0.0, at.x))
    far = xp.abs(x) > max(order, 1)
    near, inverse = xp.where(far, 0.0, x), 1 / xp.where(far, x, 1.0)
    less = term = above = xp.ones_like(x)
    for k in range(1, order):
        term = term * near / k
        less = less + term
        above = 1 + k * inverse * above  # of order - 1
    whole = less + term * near / order
    return rows.like(xp.where(far, order * inverse * above / (1 + order * inverse * above), less / whole), at.x)


def _of_sigmoid(rows, at):
    return 2 - rows.exp(log_sigmoid(rows, at.x))


SLOPES = {
    "entropy_normalize": _of_input,
    "entropy_clip": _of_input,
    "taylor_softmax": _of_taylor,
    "sigsoftmax": _of_sigmoid,
}


# What a parameter moves: the scores of C, or the result.


def _by_divisor(rows, at, there):
    """d (x - max)/T / dT times T, of scores that have a part, however far."""
    return -2 * from_most(rows, at.x, there & rows.xp.isfinite(at.x))


def _by_alpha(rows, at):
    return rows.like(entmax_by_alpha(rows, rows.wide(at.p), at.params["alpha"]), at.p)


def _by_entropy(rows, at):
    return rows.like(at_entropy(rows, scores_of(rows, *at[::2]), at.p).by_entropy(rows), at.p)


def _by_perplexity(rows, at):
    return _by_entropy(rows, at) / at.params["perplexity"]


def _by_end(name):
    def by(rows, at):
        rows_at = held(rows, scores_of(rows, *at[::2]), at.params)[name]
        return rows.xp.where(rows_at, _by_entropy(rows, at), at.p * 0)  # NaN in rows that are NaN

    return by


BY_PARAM = {
    ("entmax", "alpha"): _by_alpha,
    ("entropy_normalize", "entropy"): _by_entropy,
    ("entropy_normalize", "perplexity"): _by_perplexity,
    ("entropy_clip", "min_entropy"): _by_end("min_entropy"),
    ("entropy_clip", "max_entropy"): _by_end("max_entropy"),
}
# The parameter that divides scores.
DIVISORS = ("temperature", "scale")


def _divisor(params):
    return next((params[name] for name in DIVISORS if name in params), 1.0)


def pushed(rows, name, x, p, params, v, changes, core=None):
    """The change of a map's result for changes v of x and, by name, of parameters; `core` stands for CORES[name]."""
    if name in UNSETTLED:
        return UNSETTLED[name].pushed(rows, Point(x, p, params), v, changes)
    logarithm = name in LOGARITHMS
    x, p, v, *moved = settled(rows, x, p, v, *changes.values(), logarithm=logarithm)
    at, changes = Point(x, p, params), dict(zip(changes, moved, strict=True))
    if logarithm:
        return LOGARITHMS[name].pushed(rows, at, v, changes)
    slope = SLOPES[name](rows, at) if name in SLOPES else 1.0
    w = carried(rows, p, v * slope) / _divisor(params)
    for param in DIVISORS:
        if param in changes:
            w = w + _by_divisor(rows, at, p != 0) / params[param] / params[param] * changes[param]
    found = (core or CORES[name])(rows, at, w)
    for param, change in changes.items():
        if param not in DIVISORS:
            found = found + BY_PARAM[name, param](rows, at) * (change * (p * 0 + 1))  # NaN in rows that are NaN
    # Backwards, what is infinite where there is no mass, such as an entropy's gradient, is not read.
    return rows.xp.where(p == 0, 0.0, found)


def pulled(rows, name, x, p, params, g, wanted=(), core=None):
    """(the gradient in x of <g, map>, the gradients in parameters wanted by name)."""
    if name in UNSETTLED:
        return UNSETTLED[name].pulled(rows, Point(x, p, params), g, wanted)
    logarithm = name in LOGARITHMS
    x, p, g = settled(rows, x, p, g, logarithm=logarithm)
    at = Point(x, p, params)
    if logarithm:
        return LOGARITHMS[name].pulled(rows, at, g, wanted)
    back = (core or CORES[name])(rows, at, g) / _divisor(params)
    slopes = {}
    for param in wanted:
        if param in DIVISORS:
            slopes[param] = rows.dot(rows.wide(back), rows.wide(_by_divisor(rows, at, p != 0))) / params[param]
        else:
            by = rows.wide(BY_PARAM[name, param](rows, at))
            slopes[param] = rows.dot(rows.xp.where(by == 0, 0.0, rows.wide(g)), by)
    if name in SLOPES:  # an infinite slope where there is no mass is not read; of 0 it is, since back may change
        back = back * rows.xp.where(p == 0, 0.0, SLOPES[name](rows, at))
    return back, slopes


class _LogSoftmax:
    """log p: every finite score has a part."""

    @staticmethod
    def _there(rows, at):
        return (at.x != -INF) | rows.any(rows.xp.isnan(at.x))

    @staticmethod
    def pushed(rows, at, v, changes):
        there, temperature = _LogSoftmax._there(rows, at), at.params["temperature"]
        v = rows.xp.where(there, v, 0.0) / temperature
        if "temperature" in changes:
            v = v + _by_divisor(rows, at, there) / temperature / temperature * changes["temperature"]
        return rows.xp.where(there, v - rows.dot(rows.exp(at.p), v), 0.0)

    @staticmethod
    def pulled(rows, at, g, wanted):
        there, temperature = _LogSoftmax._there(rows, at), at.params["temperature"]
        g = rows.xp.where(there, g, 0.0)
        dx = rows.xp.where(there, g - rows.exp(at.p) * rows.total(g), 0.0) / temperature
        slope = rows.dot(rows.wide(dx), rows.wide(_by_divisor(rows, at, there))) / temperature
        return dx, {"temperature": slope} if wanted else {}


class _LogSumExp:
    """T log sum exp(x/T), whose gradient is softmax and whose derivative in T is its entropy."""

    @staticmethod
    def pushed(rows, at, v, changes):
        q = softmax(rows, at.x, at.params)
        change = rows.dot(q, carried(rows, q, v))
        return change + changes["temperature"] * entropy(rows, q) if "temperature" in changes else change

    @staticmethod
    def pulled(rows, at, g, wanted):
        q = softmax(rows, at.x, at.params)
        slopes = {"temperature": rows.wide(g) * entropy(rows, rows.wide(q))} if wanted else {}
        return g * q, slopes


_FAR = 1e37  # of scores in units of T: beyond it every exponential is 0; float32 has it too


class _SoftTopK:
    """Shares s(v), v = (x - tau)/T, that add up to k; their slopes in v are w = s(v) s(-v). v follows from p where p is nearest
    to 1/2, and from there by x: where p is rounded to 1, 1 - p has no digits.

    In a gap all shares are rounded to 0 or 1. There those below have sum exp(v) together, and those above lack as much, sum
    exp(-v), so that tau follows from x alone. All w may underflow, so they are relative to a unit, about the largest."""

    @staticmethod
    def _slopes(rows, at):
        """(w / unit, v, unit) in the wide type."""
        xp, x, p = rows.xp, rows.wide(at.x), rows.wide(at.p)
        if x.shape[-1] == 0:
            return p, x, 1.0
        there = xp.isfinite(x)
        clear = xp.where(p > 0.9, (1 - p) * 1e-3, xp.minimum(p, 1 - p))
        index = xp.argmax(rows.constant(xp.where(there & (clear == clear), clear, -1.0)), axis=-1, keepdims=True)
        one, x_one = rows.picked(p, index), rows.picked(xp.where(there, x, 0.0), index)
        inner = (one > 0) & (one < 1)
        one = xp.where(inner, one, 0.5)
        apart = divided(rows, xp.where(there, x, x_one) - x_one, at.params["temperature"])
        v = rows.log(one / (1 - one)) + xp.clip(apart, -_FAR, _FAR)
        small = rows.exp(minus_size(rows, v))
        w = xp.where(there & inner, small / (1 + small) ** 2, 0.0)

        above, below = there & (p == 1), there & (p == 0)
        gap = ~inner & rows.any(above) & rows.any(below)
        least, top = -rows.most(xp.where(gap & above, -x, -INF)), rows.most(xp.where(gap & below, x, -INF))
        least, top = xp.where(gap, least, 0.0), xp.where(gap, top, 0.0)

        def over(bound, where):
            far = divided(rows, xp.where(where, x, bound) - bound, at.params["temperature"])
            return xp.clip(far, -_FAR, _FAR)

        width = xp.clip(divided(rows, least - top, at.params["temperature"]), 0.0, _FAR)
        lack = rows.total(xp.where(gap & above, rows.exp(-over(least, gap & above)), 0.0))
        have = rows.total(xp.where(gap & below, rows.exp(over(top, gap & below)), 0.0))
        more = (rows.log(xp.where(gap, have, 1.0)) - rows.log(xp.where(gap, lack, 1.0))) / 2
        v = xp.where(gap, over(least, gap & there) + width / 2 - more, v)
        nearest = width / 2 - xp.abs(more)
        w = xp.where(
            gap & there, rows.exp(xp.minimum(nearest - xp.abs(xp.where(gap & there, v, nearest)), xp.zeros_like(v))), w
        )
        return w * xp.where(rows.any(p != p), math.nan, 1.0), v, xp.where(gap, rows.exp(-nearest), 1.0)

    @staticmethod
    def _by_k(rows, at, w):
        """dp / dk."""
        xp, infinite = rows.xp, rows.wide(rows.like(at.x == INF, at.x))
        total, count = rows.sums(w, infinite)
        share = (count > 0) & (count >= rows.number(at.params["k"], at.x))
        return xp.where(share, infinite / xp.where(count > 0, count, 1.0), w / xp.where(total == 0, 1.0, total))

    @staticmethod
    def pushed(rows, at, v, changes):
        w, scaled, unit = _SoftTopK._slopes(rows, at)
        moved = rows.wide(v)
        if "temperature" in changes:
            moved = moved - scaled * changes["temperature"]
        found = unit * centred(rows, w, moved) / at.params["temperature"]
        if "k" in changes:
            by = _SoftTopK._by_k(rows, at, w)
            found = found + rows.xp.where(by == 0, 0.0, by * changes["k"])  # so that its transpose reads no g of masked scores
        return rows.like(found, at.x)

    @staticmethod
    def pulled(rows, at, g, wanted):
        w, scaled, unit = _SoftTopK._slopes(rows, at)
        g = rows.wide(g)
        dx = unit * centred(rows, w, g) / at.params["temperature"]
        slopes = {}
        if "temperature" in wanted:
            slopes["temperature"] = -rows.dot(dx, scaled)
        if "k" in wanted:
            by = _SoftTopK._by_k(rows, at, w)
            slopes["k"] = rows.dot(rows.xp.where(by == 0, 0.0, g), by)
        return rows.like(dx, at.x), slopes


LOGARITHMS = {"log_softmax": _LogSoftmax, "logsumexp": _LogSumExp}
# What is not a map has rules of its own, for all its parameters.
# Where what is not +inf still moves beside scores of +inf.
UNSETTLED = {"soft_top_k": _SoftTopK}
RULES = {**LOGARITHMS, **UNSETTLED}


def known(name, param=None):
    """Whether there are derivatives of a map here, or those in a parameter."""
    return name in RULES or (name in CORES and (param is None or param in DIVISORS or (name, param) in BY_PARAM))
