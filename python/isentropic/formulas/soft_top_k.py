"""Soft top-k: p_i = s((x_i - tau) / T), s the logistic function, with sum p = k."""

import math

from isentropic.formulas.rows import INF, or_nan

_STEPS = 48  # halvings of a bracket of at most some hundred, or Newton's steps inside it


def _logistic(rows, v):
    """Of any size, without overflow."""
    small = rows.exp(-rows.xp.abs(v))
    return rows.xp.where(v >= 0, 1.0, small) / (1 + small)


def soft_top_k(rows, x, k, temperature):
    """Rows x in the wide type, k and T as arrays of size 1 for the last axis; differentiable in all, as often as one likes.

    The root of sum p = k is searched between bounds relative to the score of rank k: beyond log(n / rest) of it, what the
    others have is less than the rest, the part of k that the score itself takes. Where scores of rank k and k + 1 are far from
    each other, every number between them is a root. Two further steps of Newton's method have the derivatives."""
    xp = rows.xp
    infinite, there = x == INF, xp.isfinite(x)
    of_infinite, count = rows.sums(xp.astype(infinite, x.dtype), xp.astype(there, x.dtype))
    left = k - of_infinite
    solvable = (left > 0) & (left < count)
    part = xp.where(solvable, left, 0.5)
    fixed = rows.constant(part)
    ordered = xp.sort(rows.constant(xp.where(there, x, -INF)), axis=-1, descending=True)
    rank = xp.astype(xp.ceil(fixed), xp.int64)
    most = x.shape[-1] - 1

    def ranked(rank):
        found = xp.take_along_axis(ordered, xp.clip(rank, 0, most), axis=-1)
        return xp.where(solvable & xp.isfinite(found), found, 0.0)

    after = xp.floor(fixed)
    pivot, below = ranked(rank - 1), ranked(xp.astype(after, xp.int64))
    n = math.log(x.shape[-1] + 1)
    u = xp.where(there, x, pivot) - pivot
    u = xp.clip(u / temperature, -1e300, 1e300)
    still = rows.constant(u)
    high = n - rows.log(fixed - xp.ceil(fixed) + 1)
    low = xp.clip((below - pivot) / rows.constant(temperature), -1e300, 0.0) - n + rows.log(after + 1 - fixed)

    def at(t, u, k):
        """(sum p - k, -d sum p / dt)"""
        p = xp.where(there, _logistic(rows, u - t), 0.0)
        total, slope = rows.sums(p, p * (1 - p))
        return total - k, slope

    t = low / 2 + high / 2
    for _ in range(_STEPS):
        over, slope = at(t, still, fixed)
        low, high = xp.where(over >= 0, t, low), xp.where(over <= 0, t, high)
        step = t + over / xp.where(slope > 0, slope, 1.0)
        t = xp.where((slope > 0) & (step > low) & (step < high), step, low / 2 + high / 2)
    for _ in range(2):
        over, slope = at(t, u, part)
        t = t + xp.where(slope > 1e-300, over / xp.where(slope > 1e-300, slope, 1.0), 0.0)
    p = _logistic(rows, u - t)
    p = xp.where(solvable, p, xp.where(left > 0, 1.0, 0.0))
    share = k / xp.where(of_infinite > 0, of_infinite, 1.0)
    p = xp.where(infinite, xp.where(left > 0, 1.0, share), xp.where(there, p, 0.0))
    return or_nan(rows, p, ~rows.any(xp.isnan(x)), x)


def soft_top_k_vjp(rows, p, g, temperature):
    """w (g - <w, g> / sum w), w = p (1 - p) / T."""
    xp = rows.xp
    w = p * (1 - p)
    total = rows.total(w)
    w = xp.where(p == p, w, math.nan)
    g = xp.where(w == 0, 0.0, g)
    mean = rows.dot(w, g) / xp.where(total == 0, 1.0, total)
    return w * (g - mean) / temperature
