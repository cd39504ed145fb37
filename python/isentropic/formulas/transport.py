"""Distances of points, and where a plan sends them, over an array namespace."""

import math


def _unit(xp, u):
    """(the direction of each point from 0, its length)."""
    largest = xp.max(xp.abs(u), axis=-1, keepdims=True)
    scaled = u / largest
    length = xp.sqrt(xp.sum(scaled * scaled, axis=-1, keepdims=True))
    return scaled / length, length * largest


def euclidean(xp, u, v):
    """(the distance of each pair of points, its gradient in u, that in v). It is 0 where points coincide."""
    apart = u - v
    size = xp.max(xp.abs(apart), axis=-1, keepdims=True)
    scaled = apart / xp.where(size > 0, size, 1.0)  # so that no square overflows or vanishes
    length = xp.sqrt(xp.where(size > 0, xp.sum(scaled * scaled, axis=-1, keepdims=True), 1.0))
    direction = scaled / length
    return (length * size)[..., 0], direction, -direction


def sqeuclidean(xp, u, v):
    apart = u - v
    return xp.sum(apart * apart, axis=-1), 2 * apart, -2 * apart


def cityblock(xp, u, v):
    apart = u - v
    return xp.sum(xp.abs(apart), axis=-1), xp.sign(apart), -xp.sign(apart)


def cosine(xp, u, v):
    """1 - <u, v> / (|u| |v|), as half the square of the distance of directions: accurate where it is small."""
    (of_u, length_u), (of_v, length_v) = _unit(xp, u), _unit(xp, v)
    apart = of_u - of_v
    distance = xp.sum(apart * apart, axis=-1, keepdims=True) / 2
    # (c of_u - of_v) / |u| with c = 1 - distance
    return distance[..., 0], (apart - distance * of_u) / length_u, (-apart - distance * of_v) / length_v


METRICS = {function.__name__: function for function in (euclidean, sqeuclidean, cosine, cityblock)}


def scaled_by(xp, cost, epsilon):
    """(costs divided by the epsilon of each problem, whose plan is that of an epsilon of 1; costs without the infinite)."""
    finite = xp.isfinite(cost)
    safe = xp.where(finite, cost, 0.0)
    return xp.where(finite, safe / epsilon[..., None, None], cost), safe


def of_scaled(xp, found, costs, a, epsilon, rounding):
    """(f, g, lower bound, upper bound) from the result for costs divided by epsilon. Dividing and multiplying has rounded the
    costs, and so the bounds, by `rounding` of the largest."""
    f, g = (x * epsilon[..., None] for x in (found.f, found.g))
    size = rounding * xp.max(xp.abs(costs), axis=(-2, -1)) * xp.sum(a, axis=-1)
    return f, g, found.lower_bound * epsilon - size, found.upper_bound * epsilon + size


def of_plan(xp, plan, targets):
    """The mean of the targets to which a plan sends each point; NaN of a point without mass."""
    mass = xp.sum(plan, axis=-1, keepdims=True)
    return plan @ targets / xp.where(mass > 0, mass, math.nan)


def of_potential(xp, plan, g, epsilon, cost, targets):
    """The same of new points, by their costs: P_j in proportion to b_j exp((g_j - C_j) / epsilon)."""
    b = xp.sum(plan, axis=-2)[..., None, :]
    score = xp.where(b > 0, (g[..., None, :] - cost) / epsilon[..., None, None] + xp.log(xp.where(b > 0, b, 1.0)), -math.inf)
    top = xp.max(score, axis=-1, keepdims=True)
    mass = xp.exp(score - xp.where(xp.isfinite(top), top, 0.0))
    return of_plan(xp, mass, targets)


def mapped(name, xp, result, targets, cost=None):
    """result.map(targets, cost): targets of shape (..., m, d), or (m,) on the line."""
    m, line = result.plan.shape[-1], targets.ndim == 1
    if targets.shape[-1 if line else -2] != m:
        raise ValueError(
            f"{name}: targets must have {m} points, one for each column of the plan, got shape {tuple(targets.shape)}"
        )
    targets = targets[:, None] if line else targets
    if cost is None:
        found = of_plan(xp, result.plan, targets)
    else:
        if cost.ndim < 2 or cost.shape[-1] != m:
            raise ValueError(f"{name}: cost must have shape (..., new points, {m}), got {tuple(cost.shape)}")
        found = of_potential(xp, result.plan, result.g, result.epsilon, cost, targets)
    return found[..., 0] if line else found
