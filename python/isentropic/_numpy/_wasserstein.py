"""Distances of samples and of points that come from transport: on the line, in space, and with entropy."""

import functools
import math

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert, _layout, _names
from isentropic._numpy._transport import Together, optimal_transport, with_nan_alone
from isentropic.formulas.transport import METRICS


class _Pairs(Together):
    """Two arrays whose rows run along an axis, with the other axes broadcast, for distances of pairs of rows."""

    def __init__(self, function, axis, optional=None, **two):
        super().__init__(function, optional, **two)
        self.check_axes(**dict.fromkeys(two, 1))
        self.two, self.axis = tuple(two), axis
        self.lengths = [self.moved(x).shape[-1] for x in two]
        try:
            self.others = np.broadcast_shapes(*(self.moved(x).shape[:-1] for x in two))
        except ValueError:
            raise ValueError(
                f"{function}: the axes of {' and '.join(two)} other than {axis} must broadcast, got shapes {self.shapes()}"
            ) from None

    def shapes(self):
        """The shapes for messages."""
        return " and ".join(str(self.given[x].shape) for x in self.two)

    def moved(self, argument):
        """The argument with its rows along the last axis."""
        values = self.given[argument]
        return np.moveaxis(values, _core.normalize_axis(self.function, self.axis, values.ndim), -1)

    def along(self, argument):
        """The argument as a matrix with one row for each pair."""
        moved = self.moved(argument)
        spread = np.broadcast_to(moved, (*self.others, moved.shape[-1]))
        return np.require(spread, self.computed, ["C", "A"]).reshape(math.prod(self.others), moved.shape[-1])

    def distances(self, run, return_grad):
        """The results of run(rows, rows, distances, slopes, slopes): the distances and, with return_grad, the gradients in
        both."""
        _checks.flag(self.function, "return_grad", return_grad)
        rows = [self.along(x) for x in self.two]
        distance = np.empty(math.prod(self.others))
        slopes = [np.empty_like(x) if return_grad else None for x in rows]
        run(*rows, distance, *slopes)
        result = self.back(distance, self.others)
        return (result, *map(self._gradient, self.two, slopes)) if return_grad else result

    def _gradient(self, argument, slopes):
        """Rows of slopes in the shape of the argument, summed where it was repeated."""
        moved = self.moved(argument).shape
        axis = _core.normalize_axis(self.function, self.axis, len(moved))
        summed = _layout.sum_to(slopes.reshape(*self.others, -1), moved)
        return self.back(np.moveaxis(summed, -1, axis), self.given[argument].shape)


@documented
def wasserstein_1d(u, v, *, u_weights=None, v_weights=None, order=1.0, axis=-1, return_grad=False):
    """
    u, v: Samples along axis, of any number each; the other axes count pairs and broadcast. Never changed.
    u_weights, v_weights (array or None): Weights of u's and v's samples: one for each sample along axis, or an array that
        broadcasts to theirs; finite, at least 0, not all 0; scaled to sum 1. None: all weigh the same.
    order (float, at least 1): The power of distances; with inf, the largest distance.
    axis: The axis of samples, in u and in v.
    return_grad (bool): Whether to return the gradient too.
    Returns (distance, or distance, du, dv): The distance in the shape of the other axes, of the kind of array given and the
        widest of their dtypes, at least float32; NaN where a sample is. With return_grad also the gradient of distance in u and
        v (of the sum of distances, where they broadcast). If the distance is 0 or samples coincide, it is one of the possible
        gradients.
    Raises: order is out of its range, a weight is negative, NaN or infinite, all are 0, there are no samples, shapes do not
        fit.
    Notes: Weights are rounded to whole multiples of about 1e-30 of their sum, so equal quantiles are exactly equal. A sample of
        inf is infinitely far from all samples but inf.
    >>> float(isentropic.wasserstein_1d([0.0, 1.0, 3.0], [5.0, 6.0, 8.0]))
    5.0
    >>> distance, du, dv = isentropic.wasserstein_1d([0.0, 2.0], [1.0, 5.0], return_grad=True)
    >>> du
    array([-0.5, -0.5])
    """
    name = "wasserstein_1d"
    arrays = _Pairs(name, axis, {"u_weights": u_weights, "v_weights": v_weights}, u=u, v=v)
    weights = []
    for argument, samples in (("u_weights", "u"), ("v_weights", "v")):
        if argument not in arrays.given:
            weights.append(None)
            continue
        given, shape = arrays.given[argument], arrays.given[samples].shape
        try:
            arrays.given[argument] = np.broadcast_to(_checks.along_axis(given, arrays.given[samples], axis), shape)
        except ValueError:
            raise ValueError(
                f"{name}: {argument} must broadcast to the shape of {samples}, {shape}, got {given.shape}"
            ) from None
        weights.append(arrays.along(argument))

    def run(u, v, *found):
        _core.wasserstein_1d(u, v, *weights, *found, -1, (order,))

    return arrays.distances(run, return_grad)


@documented
def wasserstein_histogram(p, q, *, support=None, period=None, normalize=False, order=1.0, axis=-1, return_grad=False):
    """
    p, q: Distributions along axis; the other axes broadcast. Never changed.
    support (array or None): The point of each entry, in any order, of one axis; None: 0, 1, 2, ...
    period (float or None, above 0): Points that differ by it are the same, as hours that differ by 24: mass goes the shorter
        way round. The order must be finite, and 1 if a gradient is wanted; above 1 masses below 1e-15 are not seen.
    normalize (bool): Divide p and q by their sums first: any rows of at least 0 with a positive sum.
    order (float, at least 1): The power of distances; with inf, the largest distance.
    axis: The axis along which p and q are distributions.
    return_grad (bool): Whether to return the gradient too.
    Returns (distance, or distance, dp, dq): The distance in the shape of the other axes, of the kind of array given and the
        widest of their dtypes, at least float32. With return_grad also the gradient of the distance of p / sum(p) and q /
        sum(q), so that <p, dp> = 0. At a kink, such as p = q, it is the mean of the two one-sided derivatives; it is 0 for
        order inf, and for order > 1 if the distance is 0.
    Raises: A row is not a distribution: an entry is negative, NaN or infinite, or the sum is not 1 within 1e-6 (float64), 1e-4
        (float32), 1e-2 (float16). The message names the row. A point of the support is not finite, order is out of its range,
        shapes do not fit.
    Source: Vallender 1974; Santambrogio, Optimal Transport for Applied Mathematicians, 2015, 2.1; Delon, Salomon, Sobolevski,
        SIAM J. Appl. Math. 70, 2010 (on the circle).
    >>> float(isentropic.wasserstein_histogram([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]))
    1.0
    >>> float(isentropic.wasserstein_histogram([1.0, 0.0], [0.0, 1.0], support=[-2.0, 3.0], order=2))
    5.0
    >>> float(isentropic.wasserstein_histogram([0, 0, 0, 2], [4, 0, 0, 0], period=4, normalize=True))
    1.0
    """
    return of_histograms(p, q, support, order, axis, return_grad, period=period, normalize=normalize)


def of_histograms(p, q, support, order, axis, return_grad, sum_tolerance=None, period=None, normalize=False):
    """wasserstein_histogram; a tolerance is given for arrays that were halves before."""
    name = "wasserstein_histogram"
    arrays = _Pairs(name, axis, p=p, q=q)
    sum_tolerance = arrays.sum_tolerance if sum_tolerance is None else sum_tolerance
    n, m = arrays.lengths
    if n != m:
        raise ValueError(f"{name}: p and q must have equal lengths along axis {axis}, got shapes {arrays.shapes()}")
    along = {x: _core.normalize_axis(name, axis, arrays.given[x].ndim) - arrays.given[x].ndim for x in "pq"}
    _names.check_order(name, ("p", p, along["p"]), ("q", q, along["q"]))
    _names.check_order(name, ("p", p, along["p"]), ("support", support, -1))
    if support is None:
        points = np.arange(n, dtype=np.float64)
    else:
        points = _convert.to_floats(name, "support", _convert.to_numpy(name, "support", support, bfloat16=True))[0]
        points = np.require(points, np.float64, ["C", "A"])
        if points.shape != (n,):
            raise ValueError(f"{name}: support must have shape ({n},), one point for each entry, got {points.shape}")

    _checks.flag(name, "normalize", normalize)
    if period is not None:
        period, order = _checks.number(name, "period", period), _checks.number(name, "order", order)
        if not 0 < period < math.inf:
            raise ValueError(f"{name}: period must be above 0 and finite, got {period:g}")
        if not 1 <= order < math.inf or (return_grad and order != 1):
            raise ValueError(f"{name}: with a period order must be finite, and 1 where there is a gradient, got {order:g}")

    def run(p, q, distance, dp, dq):
        sums = [None, None]
        if normalize:
            (p, sums[0]), (q, sums[1]) = (_divided(name, argument, x) for argument, x in (("p", p), ("q", q)))
        checked = [np.empty_like(x) if x is not None else None for x in (dp, dq)] if period is not None else [dp, dq]
        try:
            _core.wasserstein_histogram(p, q, points, distance, *checked, -1, (order, sum_tolerance))
        except ValueError as error:
            advice = " (normalize=True divides by the sum)" if "must sum to 1" in str(error) else ""
            raise ValueError(f"{error}{advice}") from None
        if period is not None:
            _on_circle(p, q, points, period, order, distance, dp, dq)
        for slopes, sum_ in zip((dp, dq), sums, strict=True):
            if slopes is not None and sum_ is not None:
                slopes /= sum_

    return arrays.distances(run, return_grad)


def _divided(name, argument, x):
    """(rows divided by their sums, the sums)."""
    wrong = np.argwhere(~((x >= 0) & (x < math.inf)))
    if len(wrong):
        row, entry = map(int, wrong[0])
        raise ValueError(f"{name}: {argument} must be at least 0 and finite, got {x[row, entry]} at entry {entry} in row {row}")
    with np.errstate(over="ignore"):
        sums = x.sum(-1, keepdims=True, dtype=np.float64)
    if not (sums > 0).all():
        raise ValueError(f"{name}: {argument} must have an entry above 0, got none in row {int(np.argmin(sums[:, 0]))}")
    if np.isinf(sums).any():  # that of smaller numbers is in the range
        scaled = np.where(np.isinf(sums), x * 2.0**-64, x)
        return scaled / scaled.sum(-1, keepdims=True), sums
    return (x / sums).astype(x.dtype), sums


def _on_circle(p, q, points, period, order, distance, dp, dq):
    """The distances on a circle, and the gradients of order 1, of distributions that were checked."""
    at = np.argsort(points % period, kind="stable")
    x = (points % period)[at]
    if not len(x):
        return
    p, q = (rows[:, at].astype(np.float64) / rows.sum(-1, keepdims=True, dtype=np.float64) for rows in (p, q))
    if order != 1:
        distance[:] = [_least_shift(row, other, x, period, order) for row, other in zip(p, q, strict=True)]
        return
    # The mass that passes each point, minus the mass that goes round the circle: the median, weighted by the distances between
    # points.
    passing, gaps = np.cumsum(p - q, -1), np.diff(x, append=x[0] + period)
    ranks = np.argsort(passing, -1)
    weights = np.cumsum(gaps[ranks], -1)
    middle = np.take_along_axis(ranks, (weights >= period / 2).argmax(-1)[:, None], -1)
    passing = passing - np.take_along_axis(passing, middle, -1)
    distance[:] = np.abs(passing) @ gaps
    sides = np.sign(passing) * gaps
    np.put_along_axis(sides, middle, np.take_along_axis(sides, middle, -1) - sides.sum(-1, keepdims=True), -1)
    potential = np.cumsum(sides[:, ::-1], -1)[:, ::-1]
    for slopes, sign, mass in ((dp, 1, p), (dq, -1, q)):
        if slopes is not None:
            slopes[:, at] = sign * (potential - (mass * potential).sum(-1, keepdims=True))


# Shares of the mass below this are rounding of cumulated masses.
_SLIVER = 1e-15


def _least_shift(p, q, x, period, order):
    """The distance of two rows: the least cost of the quantiles of q turned by a share of the mass. The sum of powers is convex
    in it, and linear unless quantiles meet; its root has the same minimum, and no powers that overflow or vanish."""
    to_p, to_q = np.cumsum(p), np.cumsum(q)
    to_p[-1] = to_q[-1] = 1.0

    def cost(shift):
        moved = to_q + shift
        edges = np.sort(np.concatenate([[0.0, 1.0], to_p, moved % 1.0]))
        middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        turns = np.floor(middle - shift)
        own = x[np.minimum(np.searchsorted(to_p, middle), len(x) - 1)]
        other = x[np.minimum(np.searchsorted(to_q, middle - shift - turns), len(x) - 1)] + turns * period
        distance, width = np.abs(own - other)[width > _SLIVER], width[width > _SLIVER]
        largest = distance.max()
        return largest and largest * (width @ (distance / largest) ** order) ** (1 / order)

    low, high, golden = -1.0, 1.0, (math.sqrt(5) - 1) / 2
    inner = [high - golden * (high - low), low + golden * (high - low)]
    costs = [cost(one) for one in inner]
    for _ in range(80):
        if costs[0] < costs[1]:
            high, inner, costs = inner[1], [inner[1] - golden * (inner[1] - low), inner[0]], [None, costs[0]]
            costs[0] = cost(inner[0])
        else:
            low, inner, costs = inner[0], [inner[1], inner[0] + golden * (high - inner[0])], [costs[1], None]
            costs[1] = cost(inner[1])
    # The minimum is where quantiles meet. A share just beside it is enough for a large order: its power may be all of the cost.
    edges = np.concatenate([[0.0], to_q])
    turned = (to_p - low) % 1.0
    after = np.searchsorted(edges, turned).clip(1, len(edges) - 1)
    apart = np.concatenate([turned - edges[after - 1], turned - edges[after]])
    nearest = apart[np.argsort(np.abs(apart))[:8]]
    return min(*costs, *map(cost, low + nearest))


def points_of(name, x, y, a, b):
    """Points as matrices; those without an axis of coordinates are on the line."""
    arrays = Together(name, {"a": a, "b": b}, x=x, y=y)
    for argument in ("x", "y"):
        points = arrays.given[argument]
        _checks.points(name, argument, points.shape)
        arrays.given[argument] = points.reshape(len(points), -1)
    for argument in ("a", "b"):
        if argument in arrays.given and arrays.given[argument].ndim != 1:
            raise ValueError(f"{name}: {argument} must have one axis, got shape {arrays.given[argument].shape}")
        if argument in arrays.given and arrays.given[argument].size == 0:
            raise ValueError(f"{name}: {argument} must have one weight for each point, got none")
    return arrays, (arrays.rows("x"), arrays.rows("y"), arrays.vector("a"), arrays.vector("b"))


def _of_problems(name, x, y, a, b, function):
    """The function applied to each of several problems, whose points have leading axes; None for a single problem."""
    arrays = Together(name, {"a": a, "b": b}, x=x, y=y)
    given = arrays.given
    if max(given["x"].ndim, given["y"].ndim) <= 2:
        return None
    arrays.check_axes(x=2, y=2)
    own = {argument: count for argument, count in (("x", 2), ("y", 2), ("a", 1), ("b", 1)) if argument in given}
    lead = arrays.lead(**own)
    each = {
        argument: np.broadcast_to(given[argument], (*lead, *given[argument].shape[given[argument].ndim - count :]))
        for argument, count in own.items()
    }
    values = np.empty(lead)
    for at in np.ndindex(lead):
        try:
            values[at] = function(*(each[argument][at] if argument in each else None for argument in "xyab"))
        except ValueError as error:
            raise ValueError(f"{error}{_checks.place('in problem', at)}") from None
    return arrays.back(values, lead)


@documented
def wasserstein(x, y, *, order=1.0, metric="euclidean", a=None, b=None):
    """
    x, y: Points, of shapes (..., n, d) and (..., m, d), or (n,) and (m,) on the line. Finite. Never changed. The axes before
        these count problems, and broadcast.
    order: The power of distances.
    a, b (array or None): Weights of x's and y's points, of shapes (..., n) and (..., m): finite, at least 0, not all 0; scaled
        to sum 1. None: all weigh the same.
    Returns (number or array): One for each problem, of the kind of array given and the widest of their dtypes, at least
        float32.
    Raises: A coordinate is not finite, a weight negative, NaN or infinite, order is out of its range, a point is at 0 and has
        no cosine, shapes do not fit.
    Notes: It uses the method of optimal_transport, in one dimension that of wasserstein_1d. Powers of distances are computed
        relative to the largest one that matters, so no order overflows.
    >>> float(isentropic.wasserstein([[0.0, 0.0], [1.0, 0.0]], [[0.0, 3.0], [1.0, 3.0]]))
    3.0
    """
    options = {"order": order, "metric": metric}
    many = _of_problems("wasserstein", x, y, a, b, lambda *one: wasserstein(*one[:2], a=one[2], b=one[3], **options))
    if many is not None:
        return many
    arrays, given = points_of("wasserstein", x, y, a, b)
    distance = np.empty(1)
    _core.wasserstein(*given, distance, None, (order, metric))
    return arrays.back(distance, ())


@documented
def sinkhorn_divergence(x, y, *, epsilon, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """
    x, y: Points, of shapes (..., n, d) and (..., m, d), or (n,) and (m,) on the line. Finite. Never changed. The axes before
        these count problems, and broadcast.
    epsilon: The weight of the entropy, in units of distance to the power order.
    a, b (array or None): Weights of x's and y's points, of shapes (..., n) and (..., m): finite, at least 0, not all 0; scaled
        to sum 1. None: all weigh the same.
    order: The power of Euclidean distances. No root is taken of the result.
    tolerance: As in sinkhorn.
    max_iterations: Passes over each of the three matrices.
    Returns (number or array): One for each problem: 0 where x = y and a = b, and at least 0 for an order of at most 2; of the
        kind of array given and the widest of their dtypes, at least float32.
    Raises: A coordinate is not finite, a weight negative, NaN or infinite, a parameter out of its range, shapes do not fit.
    Notes: For an order above 2 the result may be negative, because exp(-|x - y|^order / epsilon) is not positive definite
        there.
    >>> round(float(isentropic.sinkhorn_divergence([0.0, 1.0], [2.0, 3.0], epsilon=0.1)), 6)
    4.0
    """
    options = {"epsilon": epsilon, "order": order, "tolerance": tolerance, "max_iterations": max_iterations}
    many = _of_problems(
        "sinkhorn_divergence", x, y, a, b, lambda *one: sinkhorn_divergence(*one[:2], a=one[2], b=one[3], **options)
    )
    if many is not None:
        return many
    arrays, given = points_of("sinkhorn_divergence", x, y, a, b)
    value = np.empty(1)
    _core.sinkhorn_divergence(*given, value, (epsilon, order, tolerance, max_iterations))
    return arrays.back(value, ())


@documented
def unbalanced_sinkhorn_divergence(x, y, *, epsilon, penalty, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """
    x, y: Points, as in sinkhorn_divergence.
    epsilon: The weight of the entropy, in units of distance to the power order.
    penalty: The weight of the marginals' error, in the same units: mass is moved over distances whose power is well below it,
        and otherwise left.
    a, b (array or None): Masses of x's and y's points, of shapes (..., n) and (..., m): finite, at least 0, not all 0; they are
        not scaled. None: 1 / n and 1 / m.
    order: The power of Euclidean distances. No root is taken of the result.
    tolerance: As in unbalanced_sinkhorn.
    max_iterations: Passes over each of the three matrices.
    Returns (number or array): One for each problem: 0 where x = y and a = b, and at least 0 for an order of at most 2; of the
        kind of array given and the widest of their dtypes, at least float32.
    Raises: A coordinate is not finite, a mass negative, NaN or infinite, a parameter out of its range, shapes do not fit.
    >>> round(float(isentropic.unbalanced_sinkhorn_divergence([0.0], [1.0], epsilon=0.1, penalty=1.0, a=[1.0], b=[2.0])), 6)
    1.345068
    """
    options = {"epsilon": epsilon, "penalty": penalty, "order": order, "tolerance": tolerance}
    options["max_iterations"] = max_iterations
    name = "unbalanced_sinkhorn_divergence"
    many = _of_problems(name, x, y, a, b, lambda *one: unbalanced_sinkhorn_divergence(*one[:2], a=one[2], b=one[3], **options))
    if many is not None:
        return many
    arrays, given = points_of(name, x, y, a, b)
    value = np.empty(1)
    _core.unbalanced_sinkhorn_divergence(*given, value, tuple(options.values()))
    return arrays.back(value, ())


# For torch and JAX: plans and gradients of problems in float64, whose points are x and y and whose weights are a and b.


def of_each(function, x, y, a, b):
    """The results of function(x, y, a, b), a tuple of arrays, for each of several problems: their axes come first. A problem
    with NaN among several is NaN."""
    given = [np.require(one, np.float64, ["C", "A"]) for one in (x, y, a, b)]
    return with_nan_alone(functools.partial(_of_each, function), *given, own=(2, 2, 1, 1))


def _of_each(function, *given):
    own = (2, 2, 1, 1)
    lead = np.broadcast_shapes(*(one.shape[:-count] for one, count in zip(given, own, strict=True)))
    spread = [np.broadcast_to(one, (*lead, *one.shape[-count:])) for one, count in zip(given, own, strict=True)]
    found = []
    for at in np.ndindex(lead):
        try:
            found.append(function(*(one[at] for one in spread)))
        except ValueError as error:
            raise ValueError(f"{error}{_checks.place('in problem', at)}") from None
    return tuple(np.reshape(column, (*lead, *np.shape(column[0]))) for column in zip(*found, strict=True))


def plan_of(order, metric, *given):
    """(wasserstein, the plan as parts of the whole)."""
    plan, distance = np.empty((len(given[0]), len(given[1]))), np.empty(1)
    _core.wasserstein(*given, distance, plan, (order, metric))
    return distance[0], plan


def slopes_of(order, metric, of_weights, x, y, a, b):
    """(wasserstein, and its gradients in x, y, a and b). Those in weights take another solution and are 0 unless asked for.

    It is m (sum P_ij (d_ij / m)^order)^(1/order), where m is the largest distance over which the plan P moves mass. Relative to
    that no power overflows, and only those vanish that do not count.
    """
    value, plan = plan_of(order, metric, x, y, a, b)
    slopes = [np.zeros_like(one) for one in (x, y, a, b)]
    i, j = np.nonzero(plan)
    distance, of_x, of_y = METRICS[metric](np, x[i], y[j])
    largest = distance.max()
    if largest == 0:
        return value, *slopes
    powers = (distance / largest) ** (order - 1)
    total = (plan[i, j] * powers * (distance / largest)).sum()
    change = total ** (1 / order - 1)  # of the root
    pull = (plan[i, j] * powers * change)[:, None]
    np.add.at(slopes[0], i, pull * of_x)
    np.add.at(slopes[1], j, pull * of_y)
    if of_weights:
        with np.errstate(over="ignore"):
            cost = np.minimum(1e250, (METRICS[metric](np, x[:, None], y)[0] / largest) ** order)
        found = optimal_transport(a, b, cost, mass_tolerance=1)
        for k, weights, potential in ((2, a, found.f), (3, b, found.g)):
            share = weights / weights.sum()
            slopes[k] = largest / order * change * (potential - share @ potential) / weights.sum()
    return value, *slopes
