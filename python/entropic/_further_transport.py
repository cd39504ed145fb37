"""Optimal transport further than between two distributions of equal mass: of a part of the masses, of masses that may change,
of many distributions, and along random directions."""

import math
from typing import Any, NamedTuple

import numpy as np

from entropic import _checks, _core, _transport


class SlicedResult(NamedTuple):
    """What sliced_wasserstein found, and how far chance may have put it off."""

    distance: Any
    error: Any


class PartialResult(NamedTuple):
    """What partial_transport found: the cost and what proves it."""

    cost: Any
    plan: Any
    f: Any
    g: Any
    multiplier: Any
    gap: Any


class UnbalancedResult(NamedTuple):
    """What unbalanced_sinkhorn found, and how far from the minimum it may be."""

    value: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    iterations: Any
    converged: Any


class BarycenterResult(NamedTuple):
    """What sinkhorn_barycenter found, and how far its plans are from the distributions."""

    barycenter: Any
    marginal_error: Any
    iterations: Any
    converged: Any


def within(name, argument, value, low, *, open_=False):
    value = _checks.number(name, argument, value)
    if not (low < value < math.inf if open_ else low <= value < math.inf):
        raise ValueError(f"{name}: {argument} must be {'above' if open_ else 'at least'} {low} and finite, got {value:g}")
    return value


def _count(name, argument, value):
    value = _checks.integer(name, argument, value)
    if value < 1:
        raise ValueError(f"{name}: {argument} must be above 0, got {value}")
    return value


def directions(name, dimension, projections, seed):
    """Unit vectors in the rows of a matrix: those given, or so many at random."""
    if np.ndim(projections) == 0:
        count = _count(name, "projections", projections)
        seed = _checks.integer(name, "seed", seed)
        if not 0 <= seed < 2**64:
            raise ValueError(f"{name}: seed must be at least 0 and below 2^64, got {seed}")
        normal = np.random.Generator(np.random.Philox(seed)).standard_normal((count, dimension))
    else:
        normal = np.array(projections, np.float64)
        if normal.ndim != 2 or normal.shape[1] != dimension or len(normal) == 0:
            raise ValueError(f"{name}: projections must be directions of shape (count, {dimension}), got {normal.shape}")
    sizes = np.sqrt((normal**2).sum(axis=1, keepdims=True))
    if not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ValueError(f"{name}: projections must be finite and not 0")
    return normal / sizes


def sliced_wasserstein(x, y, *, order=2.0, a=None, b=None, projections=100, seed=0):
    """The Wasserstein distance of weighted points along directions: its mean over the sphere, by some of them.

        (mean_theta W_order(<theta, x>, <theta, y>)^order)^(1/order)

    Parameters
    ----------
    x, y : NumPy arrays, anything with DLPack (such as torch CPU tensors) or nested lists
        Points, of shapes (n, d) and (m, d), or (n,) and (m,) on the line. Finite. Never changed.
    order : float, at least 1 and finite, default 2.0
        The power of distances.
    a, b : array or None, default None
        Weights of x's and y's points: finite, at least 0, not all 0; scaled to sum 1. None: all weigh the same.
    projections : int above 0, or array of shape (count, d), default 100
        How many directions are drawn, or these themselves, of any length but 0.
    seed : int in [0, 2**64), default 0
        Of the directions.

    Returns
    -------
    SlicedResult
        A named tuple of `distance` and `error`, the standard error of it that the choice of directions makes: 0 in one
        dimension, NaN for a single direction.

    Raises
    ------
    ValueError
        A coordinate is not finite, a weight negative, NaN or infinite, a parameter out of its range, shapes do not fit.
    TypeError
        An array is masked, of complex numbers or no numbers at all, on another device or requires grad.

    Notes
    -----
    Each direction costs a sort. Halving the error takes four times as many.
    Source: Bonneel, Rabin, Peyre, Pfister, J. Math. Imaging Vis. 2015.

    Examples
    --------
    >>> found = entropic.sliced_wasserstein([[0.0, 0.0], [1.0, 0.0]], [[0.0, 3.0], [1.0, 3.0]], projections=[[0, 1]])
    >>> float(found.distance)
    3.0
    """
    name = "sliced_wasserstein"
    order = within(name, "order", order, 1)
    arrays, (x, y, a, b) = _transport.points_of(name, x, y, a, b)
    for argument, points in (("x", x), ("y", y)):
        for point, coordinate in np.argwhere(~np.isfinite(points))[:1]:
            got = points[point, coordinate]
            raise ValueError(f"{name}: {argument} must be finite, got {got:g} at point {point}, coordinate {coordinate}")
    for argument, weights, points in (("a", a, x), ("b", b, y)):
        if weights.size and weights.shape != points.shape[:1]:
            raise ValueError(
                f"{name}: {argument} must have shape ({len(points)},), one weight for each point, got {weights.shape}"
            )
        for bad in weights[~((weights >= 0) & (weights < math.inf))][:1]:
            raise ValueError(f"{name}: {argument} must be finite and at least 0, got {bad:g}")
        if weights.size and not weights.any():
            raise ValueError(f"{name}: {argument} must not be 0 everywhere")
    theta = directions(name, x.shape[1], projections, seed)
    weights = {"u_weights": a if a.size else None, "v_weights": b if b.size else None}
    u, v = (theta @ np.asarray(points, np.float64).T for points in (x, y))
    largest = max(np.abs(u).max(), np.abs(v).max(), np.finfo(float).tiny)
    powers = _transport.wasserstein_1d(u / largest, v / largest, order=order, **weights) ** order
    mean = powers.mean()
    distance = mean ** (1 / order)
    spread = powers.std(ddof=1) / math.sqrt(len(powers)) if len(powers) > 1 else math.nan
    spread = 0.0 if x.shape[1] == 1 else spread
    error = spread * distance / (order * mean) if mean > 0 else 0.0 * spread
    return SlicedResult(*(arrays.back(np.array(one * largest), ()) for one in (distance, error)))


def partial_transport(a, b, cost, *, mass):
    """Optimal transport of a part of the masses, exactly: the part that costs least.

        min <P, C> over P >= 0 with row sums <= a, column sums <= b and sum P = mass

    Parameters
    ----------
    a, b : NumPy arrays, anything with DLPack (such as torch CPU tensors) or nested lists
        Masses, of shapes (..., n) and (..., m), at least 0; their sums may differ.
    cost : array
        Of shape (..., n, m); inf forbids an arc. Leading axes broadcast.
    mass : float, at least 0 and at most the sum of a and that of b, required
        How much is moved. Above the sums by no more than 1e-6 of them, 1e-4 for float32, it counts as the lesser of the two.

    Returns
    -------
    PartialResult
        A named tuple: `cost`, `plan`, and potentials `f` and `g`, at most 0, with `multiplier`. As f_i + g_j + multiplier is
        at most C_ij, no plan costs less than <a, f> + <b, g> + multiplier mass. `gap` is how far that is below this one's cost.

    Raises
    ------
    ValueError, TypeError
        As optimal_transport, but for sums that differ; mass is out of its range.

    Notes
    -----
    By the method of optimal_transport with one more row and one more column, which take at no cost what stays where it is.
    plan is the gradient of cost in C, f and g are those in a and b, multiplier is that in mass.
    Source: Caffarelli, McCann, Annals of Mathematics 2010; Chapel, Alaya, Gasso, NeurIPS 2020.

    Examples
    --------
    >>> found = entropic.partial_transport([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 9.0]], mass=0.5)
    >>> float(found.cost)
    0.0
    """
    problems = _transport.ProblemArrays("partial_transport", a, b, cost)
    numbers, status = np.empty((problems.count, 3)), np.empty(problems.count, np.uint8)
    _core.partial_transport(*problems.views, numbers, status, (mass,))
    problems.check_feasible(status)
    value, multiplier, gap = (problems.arrays.back(column, problems.lead) for column in np.ascontiguousarray(numbers.T))
    return PartialResult(value, *problems.found(), multiplier, gap)


def unbalanced_sinkhorn(a, b, cost, *, epsilon, penalty, tolerance=1e-9, max_iterations=10000):
    """Entropic transport between masses that need not be equal: what is neither moved nor received has a price.

        min <P, C> + epsilon KL(P | a b^T) + penalty (KL(P 1 | a) + KL(P^T 1 | b)), KL(p | q) = sum p log(p / q) - p + q

    Parameters
    ----------
    a, b : NumPy arrays, anything with DLPack (such as torch CPU tensors) or nested lists
        Masses, of shapes (n,) and (m,): finite, at least 0, not all 0.
    cost : array
        Of shape (n, m), finite or inf, which forbids an arc.
    epsilon : float, above 0 and finite, required
        The weight of the entropy.
    penalty : float, above 0 and finite, required
        The weight of the marginals; the larger, the nearer they are to a and b.
    tolerance : float, at least 0 and finite, default 1e-9
        Converged when the gap is at most so much of the terms' sizes.
    max_iterations : int, above 0, default 10000
        Passes over the matrix.

    Returns
    -------
    UnbalancedResult
        A named tuple: `value`, that of the plan; `plan`; the potentials `f` and `g`, P = a b exp((f + g - C) / epsilon); `gap`,
        the value less that of the dual, which the minimum is above; `iterations` and `converged`.

    Raises
    ------
    ValueError
        A mass is negative, NaN or infinite, or all are 0; a cost is NaN or -inf; a parameter is out of its range, shapes do
        not fit.
    TypeError
        An array is masked, of complex numbers or no numbers at all, on another device or requires grad.

    Notes
    -----
    Sinkhorn's iteration in the log domain, each step followed by the best shift of f against g.
    Source: Chizat, Peyre, Schmitzer, Vialard, Math. Comp. 2018; Sejourne, Vialard, Peyre, AISTATS 2022.

    Examples
    --------
    >>> found = entropic.unbalanced_sinkhorn([1.0, 2.0], [1.0, 1.0], [[0.0, 1.0], [1.0, 0.0]], epsilon=0.1, penalty=1.0)
    >>> bool(found.gap < 1e-8)
    True
    """
    name = "unbalanced_sinkhorn"
    epsilon, rho = (within(name, k, v, 0, open_=True) for k, v in (("epsilon", epsilon), ("penalty", penalty)))
    tolerance, max_iterations = within(name, "tolerance", tolerance, 0), _count(name, "max_iterations", max_iterations)
    arrays = _transport.Together(name, a=a, b=b, cost=cost)
    a, b, cost = (np.asarray(arrays.given[one], np.float64) for one in ("a", "b", "cost"))
    if a.ndim != 1 or b.ndim != 1 or cost.shape != (len(a), len(b)):
        raise ValueError(
            f"{name}: a, b and cost must have shapes (n,), (m,) and (n, m), got {a.shape}, {b.shape}, {cost.shape}"
        )
    for argument, masses in (("a", a), ("b", b)):
        if not ((masses >= 0) & (masses < math.inf)).all() or not masses.sum() > 0:
            raise ValueError(f"{name}: {argument} must be finite, at least 0 and not all 0")
    if not (cost > -math.inf).all():
        raise ValueError(f"{name}: cost must not be NaN or -inf")

    with np.errstate(divide="ignore"):
        log_a, log_b = np.log(a), np.log(b)

    def potential(others, log_weights, along):
        # What is forbidden, or has no partner's mass, gets none, whatever the other potential is there: it may be inf.
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.isposinf(along) | np.isneginf(log_weights) | np.isposinf(others)
            exponent = np.where(apart, -np.inf, (others - along) / epsilon + log_weights)
            top = np.maximum(exponent.max(axis=1), -1e300)
            return -rho / (rho + epsilon) * epsilon * (np.log(np.exp(exponent - top[:, None]).sum(axis=1)) + top)

    def mean_exponential(potentials, log_masses):
        exponent = log_masses - potentials / rho
        top = exponent.max()
        if top == -math.inf:  # all mass stays where it is
            return 0.0
        return top + math.log(np.exp(exponent - top).sum())

    f, g = np.zeros(len(a)), np.zeros(len(b))
    for iterations in range(1, max_iterations + 1):
        f = potential(g, log_b, cost)
        g = potential(f, log_a, cost.T)
        shift = rho / 2 * (mean_exponential(f, log_a) - mean_exponential(g, log_b))
        f, g = f + shift, g - shift
        if iterations % 10 and iterations != max_iterations:
            continue
        with np.errstate(invalid="ignore"):
            exponent = (f[:, None] + g - cost) / epsilon + log_a[:, None] + log_b
        plan = np.exp(np.where(np.isposinf(cost) | (a[:, None] == 0) | (b == 0), -np.inf, exponent))
        rows, columns, moved = plan.sum(axis=1), plan.sum(axis=0), plan.sum()
        with np.errstate(invalid="ignore"):
            paid = np.where(plan > 0, plan * (f[:, None] + g), 0).sum()  # <P, C> + epsilon <P, log(P / a b)>
        total = a.sum() * b.sum()
        value = paid + epsilon * (total - moved) + rho * (_divergence(rows, a) + _divergence(columns, b))
        stays = rho * (a.sum() - (a * np.exp(-f / rho)).sum() + b.sum() - (b * np.exp(-g / rho)).sum())
        gap = value - (stays + epsilon * (total - moved))
        size = abs(paid) + epsilon * total + rho * (a.sum() + b.sum())
        converged = gap <= tolerance * size
        if converged:
            break
    results = (value, ()), (plan, plan.shape), (f, f.shape), (g, g.shape), (max(gap, 0.0), ())
    return UnbalancedResult(
        *(arrays.back(np.asarray(one), shape) for one, shape in results), np.int64(iterations), np.bool_(converged)
    )


def _divergence(p, q):
    """sum p log(p / q) - p + q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(np.where(q > 0, p / q, 1)), 0).sum() - p.sum() + q.sum()


def sinkhorn_barycenter(p, cost, *, epsilon, weights=None, tolerance=1e-9, max_iterations=10000):
    """The distribution on a support that is least far from several: a mean that moves mass in place of mixing it.

        argmin_q sum_k weights_k min_P <P, C> - epsilon H(P) over plans P from p_k to q

    Parameters
    ----------
    p : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Distributions in rows, of shape (k, n): at least 0, each scaled to sum 1.
    cost : array
        Between the points of their support and those of the result's, of shape (n, m), finite.
    epsilon : float, above 0 and finite, required
        The weight of the entropy, which also blurs the result.
    weights : array of shape (k,) or None, default None
        How much each counts: at least 0, not all 0; scaled to sum 1. None: all alike.
    tolerance : float, at least 0 and finite, default 1e-9
        The marginal error at which it has converged.
    max_iterations : int, above 0, default 10000
        Passes over the k matrices.

    Returns
    -------
    BarycenterResult
        A named tuple: `barycenter`, of shape (m,); `marginal_error`, the largest sum over a p_k of what its plan's rows are off
        where the columns are those of the barycenter; `iterations` and `converged`.

    Raises
    ------
    ValueError
        A number is negative, NaN or infinite, a row of p has no mass, a parameter is out of its range, shapes do not fit.
    TypeError
        An array is masked, of complex numbers or no numbers at all, on another device or requires grad.

    Notes
    -----
    Iterative Bregman projections in the log domain.
    Source: Benamou, Carlier, Cuturi, Nenna, Peyre, SIAM J. Sci. Comput. 2015.

    Examples
    --------
    >>> cost = [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
    >>> found = entropic.sinkhorn_barycenter([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], cost, epsilon=0.05)
    >>> found.barycenter.round(6)
    array([0., 1., 0.])
    """
    name = "sinkhorn_barycenter"
    epsilon = within(name, "epsilon", epsilon, 0, open_=True)
    tolerance, max_iterations = within(name, "tolerance", tolerance, 0), _count(name, "max_iterations", max_iterations)
    arrays = _transport.Together(name, {"weights": weights}, p=p, cost=cost)
    p, cost = (np.asarray(arrays.given[one], np.float64) for one in ("p", "cost"))
    if p.ndim != 2 or cost.ndim != 2 or len(cost) != p.shape[1] or p.size == 0 or cost.size == 0:
        raise ValueError(f"{name}: p and cost must have shapes (k, n) and (n, m), got {p.shape} and {cost.shape}")
    weights = np.asarray(arrays.given.get("weights", np.ones(len(p))), np.float64)
    if weights.shape != (len(p),):
        raise ValueError(f"{name}: weights must have shape ({len(p)},), one for each distribution, got {weights.shape}")
    for argument, masses in (("p", p), ("weights", weights[None])):
        sums = masses.sum(axis=1)
        if not (masses >= 0).all() or not ((sums > 0) & (sums < math.inf)).all():
            raise ValueError(f"{name}: {argument} must be finite, at least 0 and not all 0")
    if not np.isfinite(cost).all():
        raise ValueError(f"{name}: cost must be finite")
    p, weights = p / p.sum(axis=1, keepdims=True), weights / weights.sum()
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    kernel = -cost / epsilon
    v = np.zeros((len(p), cost.shape[1]))  # logarithms of the factors of columns
    u = np.full(p.shape, math.inf)  # and of rows
    iterations, converged = 0, False
    while not converged and iterations < max_iterations:
        iterations += 1
        sums = _log_sums(kernel[None] + v[:, None], 2)
        error = np.abs(np.exp(sums + u) - p).sum(axis=1).max()
        converged = error <= tolerance
        if not converged:
            u = log_p - sums
            reached = _log_sums(kernel[None] + u[:, :, None], 1)
            log_q = weights @ reached
            v = log_q - reached
    q = np.exp(log_q)
    return BarycenterResult(
        arrays.back(q / q.sum(), q.shape), arrays.back(np.asarray(error), ()), np.int64(iterations), np.bool_(converged)
    )


def _log_sums(exponents, axis):
    top = np.maximum(exponents.max(axis=axis, keepdims=True), -1e300)
    return (np.log(np.exp(exponents - top).sum(axis=axis, keepdims=True)) + top).squeeze(axis)


PUBLIC = (
    *(SlicedResult, PartialResult, UnbalancedResult, BarycenterResult),
    *(sliced_wasserstein, partial_transport, unbalanced_sinkhorn, sinkhorn_barycenter),
)
for _one in PUBLIC:
    _one.__module__ = "entropic"
