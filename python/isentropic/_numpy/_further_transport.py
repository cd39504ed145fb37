"""Optimal transport further than between two distributions of equal mass: of a part of the masses, of masses that may change,
of many distributions, and along random directions."""

import math
from typing import Any, NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _grids, _transport, _wasserstein


@documented
class SlicedResult(NamedTuple):
    """The result of sliced_wasserstein, with its standard error."""

    distance: Any
    error: Any


@documented
class PartialResult(NamedTuple):
    """The result of partial_transport: the cost and its proof."""

    cost: Any
    plan: Any
    f: Any
    g: Any
    multiplier: Any
    gap: Any


@documented
class UnbalancedResult(NamedTuple):
    """The result of unbalanced_sinkhorn, and a bound on its distance from the minimum."""

    value: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    iterations: Any
    converged: Any


@documented
class BarycenterResult(NamedTuple):
    """The result of sinkhorn_barycenter, and the distance of its plans from the distributions."""

    barycenter: Any
    marginal_error: Any
    iterations: Any
    converged: Any


def directions(name, dimension, projections, seed):
    """Unit vectors in the rows of a matrix: the given ones, or this many random ones."""
    if np.ndim(projections) == 0:
        count = _checks.integer(name, "projections", projections)
        if count < 1:
            raise ValueError(f"{name}: projections must be above 0, got {count}")
        seed = _checks.integer(name, "seed", seed)
        if not 0 <= seed < 2**64:
            raise ValueError(f"{name}: seed must be at least 0 and below 2^64, got {seed}")
        found = np.empty((count, dimension))
        _core.random_directions(found, seed)
        return found
    found = np.array(projections, np.float64)
    if found.ndim != 2 or found.shape[1] != dimension or len(found) == 0:
        raise ValueError(f"{name}: projections must be directions of shape (count, {dimension}), got {found.shape}")
    most = np.abs(found).max(axis=1, keepdims=True, initial=0)
    good = (np.isfinite(most) & (most > 0))[:, 0]
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"{name}: projections must be finite and not 0, got {found[row].tolist()} in row {row}")
    # The squares of these would overflow or underflow. A power of two keeps their digits.
    exponents = np.where((most < 2.0**-400) | (most > 2.0**400), np.frexp(most)[1], 0)
    found = np.ldexp(found, -exponents)
    return found / np.sqrt((found**2).sum(axis=1, keepdims=True))


@documented
def sliced_wasserstein(x, y, *, order=2.0, a=None, b=None, projections=100, seed=0):
    """
    x, y: Points, of shapes (n, d) and (m, d), or (n,) and (m,) on the line. Finite. Never changed.
    order: The power of distances.
    a, b (array or None): Weights of x's and y's points: finite, at least 0, not all 0; scaled to sum 1. None: all weigh the
        same.
    projections (int above 0, or array of shape (count, d)): The number of random directions, or the directions themselves, of
        any length but 0.
    seed: Of the directions.
    Returns (SlicedResult): A named tuple of `distance` and `error`, its standard error due to the choice of directions: 0 in
        one dimension, NaN for a single direction. Of float16 both are float32.
    Raises: A coordinate is not finite, a weight negative, NaN or infinite, a parameter out of its range, shapes do not fit.
    Notes: Each direction costs a sort. To halve the error, four times as many directions are needed.
    >>> found = isentropic.sliced_wasserstein([[0.0, 0.0], [1.0, 0.0]], [[0.0, 3.0], [1.0, 3.0]], projections=[[0, 1]])
    >>> float(found.distance)
    3.0
    """
    name = "sliced_wasserstein"
    arrays, given = _wasserstein.points_of(name, x, y, a, b)
    theta = directions(name, given[0].shape[1], projections, seed)
    found = np.empty((2, 1))
    _core.sliced_wasserstein(*given, theta, *found, (order,))
    return SlicedResult(*(arrays.back(one, ()) for one in found))


@documented
def partial_transport(a, b, cost, *, mass):
    """
    a, b: Masses, of shapes (..., n) and (..., m), at least 0; their sums may differ.
    cost: Of shape (..., n, m); inf forbids an arc. Leading axes broadcast.
    mass (float, at least 0 and at most the sum of a and that of b): The mass to move. If it is above the smaller sum by at most
        1e-6 of it (1e-4 for float32), it is taken as this sum.
    Returns (PartialResult): A named tuple: `cost`, `plan`, and potentials `f` and `g`, at most 0, with `multiplier`. As f_i +
        g_j + multiplier is at most C_ij, no plan costs less than <a, f> + <b, g> + multiplier mass. `gap` is the cost of this
        plan minus that bound, plus what rounding may have changed: how far from the optimum `cost` may be as it is returned. Of
        float16 all are float32.
    Raises: As optimal_transport, except that sums may differ; mass is out of its range.
    Notes: It uses the method of optimal_transport with an additional row and column, which take the mass that stays, at no
        cost. plan is the gradient of cost in C, f and g are those in a and b, and multiplier is that in mass.
    >>> found = isentropic.partial_transport([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 9.0]], mass=0.5)
    >>> float(found.cost)
    0.0
    """
    problems = _transport.ProblemArrays("partial_transport", a, b, cost)
    values, multipliers, gaps = (np.empty(problems.count) for _ in range(3))
    status = np.empty(problems.count, np.int64)
    _core.partial_transport(*problems.given, values, *problems.results, multipliers, gaps, status, -1, (mass,))
    problems.check_feasible(status)
    value, gap = problems.arrays.certified(values, gaps, problems.lead)
    return PartialResult(value, *problems.found(), problems.arrays.back(multipliers, problems.lead), gap)


@documented
def unbalanced_sinkhorn(a, b, cost, *, epsilon, penalty, tolerance=1e-9, max_iterations=10000):
    """
    a, b: Masses, of shapes (..., n) and (..., m): finite, at least 0, not all 0. Never changed, as cost.
    cost: Of shape (..., n, m), finite or inf, which forbids an arc. Leading axes of all three broadcast: each combination is a
        problem of its own.
    epsilon: The weight of the entropy.
    penalty: The weight of the marginals. The larger it is, the nearer the marginals are to a and b.
    tolerance: The iteration has converged if the gap is at most this, relative to the size of the terms.
    max_iterations: The number of passes over the matrix, for all values of epsilon together.
    Returns (UnbalancedResult): A named tuple: `value`, that of the plan; `plan`; the potentials `f` and `g`, P = a b exp((f + g
        - C) / epsilon); `gap`, the value minus that of the dual, which is a lower bound on the minimum, plus what rounding may
        have changed in the value as it is returned; `iterations` and `converged`. Mass that only has forbidden arcs stays, with
        a potential of inf. Of float16 all are float32.
    Raises: A mass is negative, NaN or infinite, or all are 0; the product of the sums is not finite; a cost is NaN or -inf; a
        parameter is out of its range, shapes do not fit.
    Notes: Sinkhorn's iteration in the log domain, from a larger epsilon down, each step followed by the best shift of f against
        g.
    Source: Chizat, Peyre, Schmitzer, Vialard, Math. Comp. 2018; Sejourne, Vialard, Peyre, AISTATS 2022.
    >>> found = isentropic.unbalanced_sinkhorn([1.0, 2.0], [1.0, 1.0], [[0.0, 1.0], [1.0, 0.0]], epsilon=0.1, penalty=1.0)
    >>> bool(found.gap < 1e-8)
    True
    """
    problems = _transport.ProblemArrays("unbalanced_sinkhorn", a, b, cost)
    values, gaps = np.empty(problems.count), np.empty(problems.count)
    iterations, converged = np.empty(problems.count, np.int64), np.empty(problems.count, bool)
    params = (epsilon, penalty, tolerance, max_iterations)
    _core.unbalanced_sinkhorn(*problems.given, values, *problems.results, gaps, iterations, converged, -1, params)
    lead = problems.lead
    value, gap = problems.arrays.certified(values, gaps, lead, "value")
    return UnbalancedResult(value, *problems.found(), gap, iterations.reshape(lead)[()], converged.reshape(lead)[()])


@documented
def sinkhorn_barycenter(p, cost, *, epsilon, weights=None, tolerance=1e-9, max_iterations=10000):
    """
    p: Distributions in rows, of shape (..., k, n): at least 0, each scaled to sum 1. Never changed, as cost.
    cost: Between the points of their support and those of the result's, of shape (..., n, m), finite. Leading axes count
        problems, and broadcast. Or a tuple of two matrices, of shapes (h, h') and (w, w'): p are images, of shape (k, h, w),
        whose costs are sums over both axes; the barycenter is an image of shape (h', w'). No matrix of all points is made;
        NumPy multiplies, so last digits may depend on the machine.
    epsilon: The weight of the entropy, which also blurs the result.
    weights (array of shape (..., k) or None): The weight of each distribution: at least 0, not all 0; scaled to sum 1. None:
        all equal.
    tolerance: The iteration has converged at this marginal error.
    max_iterations: The number of passes over the k matrices, for all values of epsilon together.
    Returns (BarycenterResult): A named tuple: `barycenter`, of shape (..., m); `marginal_error`, the largest error of the row
        sums of a plan (summed over its rows) whose column sums are the barycenter; `iterations` and `converged`. Of float16 all
        are float32.
    Raises: A number is negative, NaN or infinite, a row of p has no mass, a parameter is out of its range, shapes do not fit.
    Notes: Iterative Bregman projections in the log domain, from a larger epsilon down.
    >>> cost = [[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]]
    >>> found = isentropic.sinkhorn_barycenter([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], cost, epsilon=0.05)
    >>> found.barycenter.round(6)
    array([0., 1., 0.])
    """
    if _grids.is_grid(cost):
        arrays, q, *numbers = _grids.barycenter("sinkhorn_barycenter", p, cost, epsilon, weights, tolerance, max_iterations)
        error, iterations, converged = map(np.array, numbers)
        return BarycenterResult(arrays.back(q, q.shape), arrays.back(error, ()), iterations[()], converged[()])
    arrays, lead, (q, _, _, *numbers) = barycenters(p, cost, weights, (epsilon, tolerance, max_iterations))
    error, iterations, converged = (one.reshape(lead) for one in numbers)
    return BarycenterResult(arrays.back(q, (*lead, q.shape[-1])), arrays.back(error, lead), iterations[()], converged[()])


def barycenters(p, cost, weights, params):
    """Arrays, leading axes, and for each problem q, f, g, marginal_error, iterations and converged."""
    name = "sinkhorn_barycenter"
    arrays = _transport.Together(name, {"weights": weights}, p=p, cost=cost)
    given = arrays.given
    own = {argument: count for argument, count in (("p", 2), ("cost", 2), ("weights", 1)) if argument in given}
    p, cost = (given[one].shape[-2:] for one in ("p", "cost"))
    if min(len(p), len(cost)) < 2 or cost[0] != p[1] or 0 in p or 0 in cost:
        got = " and ".join(str(given[one].shape) for one in ("p", "cost"))
        raise ValueError(f"{name}: p and cost must have shapes (..., k, n) and (..., n, m), got {got}")
    (k, n), m = p, cost[1]
    if "weights" in given and given["weights"].shape[-1:] != (k,):
        got = given["weights"].shape
        raise ValueError(f"{name}: weights must have shape (..., {k}), one for each distribution, got {got}")
    lead = arrays.lead(**own)
    rows = {argument: arrays.rows(argument, lead, count) for argument, count in own.items()}
    count = math.prod(lead)
    q, f, g = (np.empty((count, *shape), arrays.computed) for shape in ((m,), (k, n), (k, m)))
    error, iterations, converged = np.empty(count), np.empty(count, np.int64), np.empty(count, bool)
    for i in range(count):
        own_weights = rows["weights"][i] if "weights" in rows else None
        own_p, own_cost = rows["p"][i * k : (i + 1) * k], rows["cost"][i * n : (i + 1) * n]
        try:
            numbers = (one[i : i + 1] for one in (error, iterations, converged))
            _core.sinkhorn_barycenter(own_p, own_weights, own_cost, q[i : i + 1], f[i], g[i], *numbers, -1, params)
        except ValueError as wrong:
            where = _checks.place("in problem", np.unravel_index(i, lead))
            raise ValueError(f"{wrong}{where}") from None
    return arrays, lead, (q, f, g, error, iterations, converged)
