"""Maps as compositions, for devices without kernels: ``FORWARD[name](rows, x, params)``."""

import math

from isentropic.formulas.rows import (
    INF,
    below_most,
    canonical,
    divided,
    entropy,
    has_none,
    log_sigmoid,
    minus_size,
)


def softmax(rows, x, params):
    return rows.softmax(divided(rows, below_most(rows, canonical(rows, x)), params["temperature"]))


def log_softmax(rows, x, params):
    return rows.log_softmax(divided(rows, below_most(rows, canonical(rows, x)), params["temperature"]))


def logsumexp(rows, x, params):
    temperature, top = params["temperature"], rows.most(x)
    top = rows.xp.where(rows.xp.isfinite(top), top, 0.0)
    return top + temperature * rows.log(rows.total(rows.exp(divided(rows, x - top, temperature))))


def sparsemax(rows, x, params):
    return entmax(rows, x, {"alpha": 2.0, "temperature": params["temperature"]})


def entmax(rows, x, params):
    """p_i = m (1 + b z_i m^-b)^(1/b), z = (x - max)/T, by bisection in log m, m the largest p_i."""
    xp, x = rows.xp, canonical(rows, x)
    z = rows.wide((x - xp.max(x, axis=-1, keepdims=True)) / params["temperature"])
    b = rows.number(params["alpha"], x) - 1.0
    small = xp.abs(b) < 1e-9
    safe = xp.where(small, 1.0, b)

    def masses(log_most):
        w = z * xp.exp(-b * log_most)
        grown = xp.where(small, w, xp.log1p(xp.clip(safe * w, min=-1.0)) / safe)
        return xp.exp(log_most + grown)

    high = xp.zeros_like(z[..., :1])
    low = high - math.log(x.shape[-1])
    for _ in range(60):
        middle = (low + high) / 2
        below = rows.total(masses(middle)) < 1
        low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    p = xp.where(z == -INF, 0.0, masses((low + high) / 2))
    return rows.like(xp.where(has_none(rows, x), math.nan, p / rows.total(p)), x)


def taylor_softmax(rows, x, params):
    xp, order, x = rows.xp, params["order"], canonical(rows, x)
    absent = x == -INF
    z = rows.wide(xp.where(absent, 0.0, x))
    # Divided by the largest magnitude to the power `order`, no term overflows.
    scale = xp.clip(xp.max(xp.abs(z), axis=-1, keepdims=True), min=1.0)
    value, y = xp.zeros_like(z), z / scale
    for m in range(order, -1, -1):
        value = value * y + xp.exp((m - order) * xp.log(scale) - math.lgamma(m + 1))
    value = xp.where(absent, 0.0, value)
    return rows.like(value / rows.total(value), x)


def sigsoftmax(rows, x, params):
    x = canonical(rows, x)
    return rows.softmax(x + log_sigmoid(rows, x))


def _kept(rows, x, kept, temperature):
    p = rows.softmax(divided(rows, rows.xp.where(kept, x, -INF), temperature))
    return rows.xp.where(rows.any(rows.xp.isnan(x)), math.nan, p)


def _in_order(rows, x):
    """(the entries from the largest down, of equal ones the lowest index first; the rank of each entry)."""
    order = rows.xp.argsort(x, axis=-1, descending=True, stable=True)
    return order, rows.xp.argsort(order, axis=-1)


def top_k_softmax(rows, x, params):
    x = canonical(rows, x)
    return _kept(rows, x, _in_order(rows, x)[1] < params["k"], params["temperature"])


def top_p_softmax(rows, x, params):
    xp, x = rows.xp, canonical(rows, x)
    order, ranks = _in_order(rows, x)
    mass = xp.take_along_axis(rows.softmax(rows.wide(x) / params["temperature"]), order, axis=-1)
    # The entries below p, and the one that reaches it.
    kept = ranks <= xp.sum(xp.astype(xp.cumulative_sum(mass, axis=-1) < params["p"], xp.int64), axis=-1, keepdims=True)
    return _kept(rows, x, kept | (x > -INF) if params["p"] == 1.0 else kept, params["temperature"])


def min_p_softmax(rows, x, params):
    x = canonical(rows, x)
    z = (x - rows.xp.max(x, axis=-1, keepdims=True)) / params["temperature"]
    return _kept(rows, x, z >= math.log(params["p"]), params["temperature"])


def _with_entropy(rows, x, target):
    """softmax(gamma x) with a given entropy, by bisection in log gamma."""
    xp, x = rows.xp, canonical(rows, x)
    z = rows.wide(x - xp.max(x, axis=-1, keepdims=True))
    present = z > -INF
    reach = xp.max(xp.where(present, -z, 0.0), axis=-1, keepdims=True)
    z = z / xp.where(reach > 0, reach, 1.0)
    target = rows.number(target, x)

    def masses(log_gamma):
        return rows.softmax(xp.where(present, z * xp.exp(log_gamma), -INF))

    low, high = xp.zeros_like(reach) - 60.0, xp.zeros_like(reach) + 60.0
    for _ in range(80):
        middle = (low + high) / 2
        above = entropy(rows, masses(middle)) > target
        low, high = xp.where(above, middle, low), xp.where(above, high, middle)
    p = masses((low + high) / 2)
    top, all_ = xp.astype(z == 0, z.dtype), xp.astype(present, z.dtype)
    ties, count = rows.sums(top, all_)
    p = xp.where(target <= xp.log(ties), top / ties, p)
    p = xp.where(target >= xp.log(count), all_ / count, p)
    return rows.like(xp.where(has_none(rows, x), math.nan, p), x)


def _target(rows, params):
    if params["entropy"] is not None:
        return params["entropy"]
    perplexity = params["perplexity"]
    return rows.log(perplexity) if hasattr(perplexity, "dtype") else math.log(perplexity)


def scores_of(rows, x, params):
    """Scores; those of probabilities are their logarithms."""
    return rows.log(rows.xp.where(x == INF, math.nan, x)) if params["input"] == "probs" else x


def entropy_normalize(rows, x, params):
    return _with_entropy(rows, scores_of(rows, x, params), _target(rows, params))


ENDS = ("min_entropy", "max_entropy")


def entropy_clip(rows, x, params):
    x = scores_of(rows, x, params)
    p = softmax(rows, x, {"temperature": 1.0})
    reached = entropy(rows, rows.wide(p))
    for end, sign in zip(ENDS, (1, -1), strict=True):
        if params[end] is not None:
            p = rows.xp.where(sign * (params[end] - reached) > 0, _with_entropy(rows, x, params[end]), p)
    return p


def soft_top_k(rows, x, params):
    """s((x - tau)/T), s the logistic function, with sum k, without derivatives: maps.py has them.

    tau is searched between bounds relative to the score of rank k: beyond log(n / rest) of it, what the others have is less
    than the rest, the part of k that the score itself takes. Where scores of rank k and k + 1 are far from each other, every
    number between them will do."""
    xp, wide = rows.xp, rows.constant(rows.wide(x))
    k, temperature = (rows.constant(rows.number(params[name], x)) for name in ("k", "temperature"))
    infinite, there = wide == INF, xp.isfinite(wide)
    of_infinite, count = rows.sums(xp.astype(infinite, wide.dtype), xp.astype(there, wide.dtype))
    left = k - of_infinite
    solvable = (left > 0) & (left < count)
    part = xp.where(solvable, left, 0.5)
    ordered = xp.sort(xp.where(there, wide, -INF), axis=-1, descending=True)

    def ranked(rank):
        found = rows.picked(ordered, xp.clip(xp.astype(rank, xp.int64), 0, x.shape[-1] - 1))
        return xp.where(solvable & xp.isfinite(found), found, 0.0)

    whole, after = xp.ceil(part), xp.floor(part)
    pivot, below = ranked(whole - 1), ranked(after)
    u = xp.clip((xp.where(there, wide, pivot) - pivot) / temperature, -1e300, 1e300)
    n = math.log(x.shape[-1] + 1)
    high = n - rows.log(part - whole + 1)
    low = xp.clip((below - pivot) / temperature, -1e300, 0.0) - n + rows.log(after + 1 - part)

    def shares(t):
        small = rows.exp(minus_size(rows, u - t))
        return xp.where(there, xp.where(u >= t, 1.0, small) / (1 + small), 0.0)

    t = low / 2 + high / 2
    for _ in range(48):  # halvings of a bracket of at most some hundred, or Newton's steps inside it
        p = shares(t)
        total, slope = rows.sums(p, p * (1 - p))
        over = total - part
        low, high = xp.where(over >= 0, t, low), xp.where(over <= 0, t, high)
        step = t + over / xp.where(slope > 0, slope, 1.0)
        t = xp.where((slope > 0) & (step > low) & (step < high), step, low / 2 + high / 2)
    p = xp.where(solvable, shares(t), xp.where(there & (left > 0), 1.0, 0.0))
    of_each = xp.where(left > 0, 1.0, k / xp.where(of_infinite > 0, of_infinite, 1.0))
    p = xp.where(infinite, of_each, p)
    return rows.like(xp.where(rows.any(xp.isnan(wide)), math.nan, p), x)


FORWARD = {
    function.__name__: function
    for function in (
        softmax,
        log_softmax,
        logsumexp,
        sparsemax,
        entmax,
        taylor_softmax,
        sigsoftmax,
        top_k_softmax,
        top_p_softmax,
        min_p_softmax,
        entropy_normalize,
        entropy_clip,
        soft_top_k,
    )
}
