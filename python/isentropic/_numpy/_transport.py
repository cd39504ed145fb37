"""Optimal transport of masses with a matrix of costs: exact, with entropy, and its dual."""

import functools
import math
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert, _names
from isentropic.formulas import transport

STATUS = np.array(_core.transport_status_names)


def _mapped(name, result, targets, cost=None):
    given = [targets] if cost is None else [targets, cost]
    if isinstance(result.plan, np.ndarray):
        arrays = zip(("targets", "cost"), given, strict=False)
        given = [_convert.to_floats(name, one, _convert.to_numpy(name, one, x, bfloat16=True))[0] for one, x in arrays]
    xp = array_api_compat.array_namespace(result.plan, *given)
    return transport.mapped(name, xp, result, *(xp.astype(x, xp.result_type(x.dtype, result.plan.dtype)) for x in given))


@documented
class TransportResult(NamedTuple):
    """The result of optimal_transport: the cost and its proof."""

    cost: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    status: Any

    def map(self, targets):
        """Where the plan sends each point: the mean of the targets, of shape (..., m, d) or (m,), under its row of the plan.
        NaN for a point without mass."""
        return _mapped("TransportResult.map", self, targets)


@documented
class SinkhornResult(NamedTuple):
    """The result of sinkhorn: the plan, and bounds on the optimum without entropy."""

    cost: Any
    plan: Any
    f: Any
    g: Any
    marginal_error: Any
    lower_bound: Any
    upper_bound: Any
    iterations: Any
    converged: Any
    epsilon: Any = None

    def map(self, targets, cost=None):
        """Where the plan sends each point: the mean of the targets, of shape (..., m, d) or (m,), under its row of the plan.
        With the costs of new points to the targets, of shape (..., new points, m), where it would send these: in proportion to
        b_j exp((g_j - cost_j) / epsilon). NaN for a point without mass, or to which all targets are forbidden."""
        return _mapped("SinkhornResult.map", self, targets, cost)


class Together:
    """Several arrays in one type of computation, with leading axes broadcast, and conversion of results to the kind of the
    first array."""

    def __init__(self, function, optional=None, **arrays):
        self.function = function
        self.given, dtypes = {}, []
        arrays |= {argument: x for argument, x in (optional or {}).items() if x is not None}
        for argument, x in arrays.items():
            values, dtype = _convert.to_floats(function, argument, _convert.to_numpy(function, argument, x, bfloat16=True))
            self.given[argument] = values
            dtypes.append(dtype)
        self.kind = next((x for x in arrays.values() if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray)), None)
        # The tolerance for equal sums: if some are halves, it is larger than for the type of the computation.
        halves = _convert.FLOAT16 in dtypes or any(map(_convert.is_bfloat16, arrays.values()))
        self.sum_tolerance = _core.sum_tolerance[2] if halves else None
        # The type of the computation and of every result: at least float32.
        self.computed = np.result_type(*dtypes, np.float32)

    def check_axes(self, **least):
        for argument, count in least.items():
            if self.given[argument].ndim < count:
                axes = "axis" if count == 1 else "axes"
                raise ValueError(
                    f"{self.function}: {argument} must have at least {count} {axes}, got shape {self.given[argument].shape}"
                )

    def lead(self, **own):
        """The leading axes of all arguments, without their last `own` axes."""
        shapes = {argument: self.given[argument].shape[: self.given[argument].ndim - count] for argument, count in own.items()}
        try:
            return np.broadcast_shapes(*shapes.values())
        except ValueError:
            raise ValueError(
                f"{self.function}: the leading axes of {', '.join(own)} must broadcast, got shapes "
                + ", ".join(str(self.given[argument].shape) for argument in own)
            ) from None

    def rows(self, argument, lead=None, own=1):
        """The argument as a matrix without gaps, its last axis along rows."""
        values = self.given[argument]
        if lead is not None:
            values = np.broadcast_to(values, (*lead, *values.shape[values.ndim - own :]))
        values = np.require(values, self.computed, ["C", "A"])
        return values.reshape(math.prod(values.shape[:-1]), values.shape[-1])

    def vector(self, argument):
        """A one-dimensional argument; empty if it was not given."""
        if argument not in self.given:
            return np.empty(0, self.computed)
        return np.require(self.given[argument], self.computed, ["C", "A"])

    def back(self, values, shape, limit=None):
        """Results as they are returned; those with a limit, inf or -inf, are bounds and rounded toward it."""
        values, dtype = values.reshape(shape), self.computed
        values = _convert.cast(values, dtype) if limit is None else _convert.cast_toward(values, dtype, limit)
        return _convert.number_or_array(values if self.kind is None else _convert.same_kind(self.kind, values, widen=True))

    def certified(self, values, gaps, lead, argument="cost"):
        """Costs as they are returned, and their gaps, which count this rounding too."""
        with np.errstate(invalid="ignore"):  # inf - inf, for a problem without a cost
            rounded = _convert.cast(values, self.computed)
            off = np.where(np.isfinite(rounded), np.abs(values - rounded), 0)
        overflown = np.flatnonzero(np.isfinite(values) & np.isinf(rounded))
        if len(overflown):
            where = _checks.place("in problem", np.unravel_index(overflown[0], lead))
            raise ValueError(
                f"{self.function}: the {argument} of the plan, {values[overflown[0]]:g}, is beyond {self.computed}; "
                f"pass float64 arrays{where}"
            )
        gaps = np.where(off > 0, np.nextafter(gaps + off, np.inf), gaps)
        return self.back(rounded, lead), self.back(gaps, lead, np.inf)


@documented
def optimal_transport(a, b, cost, *, mass_tolerance=None):
    """
    a: Masses of shape (..., n): finite, at least 0, with a sum above 0 that need not be 1. Never changed, as b and cost.
    b: Masses of shape (..., m), with the sum of a; b is scaled to this sum.
    cost: Of shape (..., n, m); inf forbids an arc, negative costs are allowed. Leading axes of all three broadcast: each
        combination is a problem of its own. Threads share the problems.
    mass_tolerance: How far the sums of a and b may differ, relative to the larger; 1e-6, for float32 1e-4, for float16 1e-2.
    Returns (TransportResult): A named tuple. cost, <P, C>; plan, P, of shape (..., n, m); f (..., n) and g (..., m), potentials
        with f_i + g_j <= C_ij, centred to <a, f> = <b, g>; gap, cost - <a, f> - <b, g> >= 0 plus what rounding may have
        changed: how far from the optimum cost may be as it is returned. They are of the kind of array given and the widest of
        the dtypes, at least float32. status, an array of strings: "optimal". Its method map sends points where the plan does.
    Raises: A problem is infeasible: every plan needs a forbidden arc, for more mass than rounding in float64 explains. A mass
        is negative, NaN or infinite, a cost NaN or -inf, sums differ, the cost overflows, shapes do not fit. The message names
        problem and entry.
    Notes: The gap is at most 1e-9 times the largest finite cost that carries mass, times the sum of a, whatever the scale of
        the costs between 1e-300 and 1e300; in float32 it includes the rounding of the cost, 6e-8 of it. Masses are rounded to
        whole multiples of about 1e-30 of their sum, so that plans of degenerate problems are exact: equally many uniform masses
        give a permutation. plan is the gradient of cost in C, f and g are those in a and b up to a constant. Method: network
        simplex (Dantzig 1951) with strongly feasible trees (Cunningham 1976). It runs on the matrix itself and needs no further
        memory that grows with n m.
    >>> result = isentropic.optimal_transport([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [2.0, 0.0]])
    >>> float(result.cost), result.plan
    (0.25, array([[0.25, 0.25],
           [0.  , 0.5 ]]))
    """
    name = "optimal_transport"
    problems = ProblemArrays(name, a, b, cost)
    costs, gaps = np.empty(problems.count), np.empty(problems.count)
    status = np.empty(problems.count, np.int32)
    mass_tolerance = problems.mass_tolerance(mass_tolerance)
    _core.optimal_transport(*problems.given, costs, *problems.results, gaps, status, -1, (mass_tolerance,))
    problems.check_feasible(status)
    value, gap = problems.arrays.certified(costs, gaps, problems.lead)
    return TransportResult(value, *problems.found(), gap, STATUS[status].reshape(problems.lead)[()])


@documented
def sinkhorn(a, b, cost, *, epsilon, tolerance=1e-6, max_iterations=10000, mass_tolerance=None):
    """
    a, b, cost (array): Of shapes (..., n), (..., m), (..., n, m), as in optimal_transport.
    epsilon (float above 0, or array): The weight of the entropy, in units of the cost. An array has one for each problem: it
        broadcasts with the leading axes. 0.01 of the largest cost gives nearly the optimum, but takes longer than
        optimal_transport for the exact one.
    tolerance: The iteration stops at this sum of errors of P's column sums, relative to the mass. The row sums are exact.
    max_iterations: The number of passes over the matrix, for all values of epsilon together.
    mass_tolerance: As in optimal_transport.
    Returns (SinkhornResult): A named tuple. cost, <P, C>, without entropy; plan, P; f and g; marginal_error, the sum of errors
        of the column sums divided by the sum of a, as tolerance; lower_bound and upper_bound on the cost of optimal_transport:
        the dual value of the potentials, and the cost of a plan with exact marginals (inf if there is none), rounded outwards,
        so that they hold as they are returned; iterations; converged; epsilon, as given. Of float16 all are float32. Its method
        map sends points, also new ones, where the plan does.
    Raises: As optimal_transport; epsilon, tolerance or max_iterations is out of its range; all arcs of a row or a column with
        mass are forbidden.
    TypeError: As optimal_transport.
    Notes: The iteration is on the potentials, in the log domain, so nothing underflows at any epsilon. It starts from a larger
        epsilon and lowers it, and may continue by Newton's method, so max_iterations=3 does not give the third iterate of the
        textbook. Each iteration is one pass over the matrix with one exponential per entry, in float64 for every dtype. For an
        epsilon below about 1e-16 of the costs, rounding may keep it from converging, and converged says so.
    Source: Cuturi, NeurIPS 2013; Altschuler, Weed, Rigollet, NeurIPS 2017 (rounding); Schmitzer 2019 (lowering epsilon).
    >>> result = isentropic.sinkhorn([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [2.0, 0.0]], epsilon=0.01)
    >>> bool(result.converged), bool(result.lower_bound <= 0.25 <= result.upper_bound), round(float(result.cost), 4)
    (True, True, 0.25)
    """
    if np.ndim(epsilon) > 0:
        given = {"tolerance": tolerance, "max_iterations": max_iterations, "mass_tolerance": mass_tolerance}
        return _of_epsilons(a, b, cost, epsilon, given)
    problems = ProblemArrays("sinkhorn", a, b, cost)
    costs, errors, lower, upper = (np.empty(problems.count) for _ in range(4))
    iterations, converged = np.empty(problems.count, np.int64), np.empty(problems.count, bool)
    params = (epsilon, tolerance, max_iterations, problems.mass_tolerance(mass_tolerance))
    _core.sinkhorn(*problems.given, costs, *problems.results, errors, lower, upper, iterations, converged, -1, params)
    lead, back = problems.lead, problems.arrays.back
    value, _ = problems.arrays.certified(costs, np.zeros_like(costs), lead)
    bounds = back(lower, lead, -np.inf), back(upper, lead, np.inf)
    return SinkhornResult(
        *(value, *problems.found(), back(errors, lead), *bounds, iterations.reshape(lead)[()], converged.reshape(lead)[()]),
        back(np.full(problems.count, float(epsilon)), lead),
    )


def _of_epsilons(a, b, cost, epsilon, given):
    """sinkhorn of each problem with its own epsilon."""
    name = "sinkhorn"
    arrays = ProblemArrays(name, a, b, cost).arrays
    epsilons = _convert.per_row(name, "epsilon", epsilon).astype(np.float64)
    own = {"a": 1, "b": 1, "cost": 2}
    try:
        lead = np.broadcast_shapes(arrays.lead(**own), epsilons.shape)
    except ValueError:
        raise _checks.misfit(name, "epsilon", arrays.lead(**own), "the leading axes", epsilons) from None
    given_arrays = [(arrays.given[key], count) for key, count in own.items()]
    each = [np.broadcast_to(x, (*lead, *x.shape[x.ndim - count :])) for x, count in given_arrays]
    _checks.positive(name, "epsilon", epsilons, "in problem")
    given["mass_tolerance"] = arrays.sum_tolerance if given["mass_tolerance"] is None else given["mass_tolerance"]
    epsilons = np.broadcast_to(epsilons, lead)
    found = []
    for at in np.ndindex(lead):
        try:
            found.append(sinkhorn(*(x[at].astype(arrays.computed) for x in each), epsilon=float(epsilons[at]), **given))
        except ValueError as error:
            raise ValueError(f"{error}{_checks.place('in problem', at)}") from None
    if not found:
        (n,), (m,) = each[0].shape[-1:], each[1].shape[-1:]
        one = sinkhorn(np.full(n, 1 / n), np.full(m, 1 / m), np.zeros((n, m)), epsilon=1.0)
        return SinkhornResult(*(arrays.back(np.zeros((*lead, *np.shape(x))), (*lead, *np.shape(x))) for x in one))
    columns = [np.stack([np.asarray(one[k]) for one in found]) for k in range(len(found[0]))]
    return SinkhornResult(
        *(arrays.back(x, (*lead, *x.shape[1:])) if x.dtype.kind == "f" else x.reshape(lead)[()] for x in columns)
    )


def with_nan_alone(run, *given, own=(1, 1, 2), total=1.0):
    """run(*given), arrays with `own` axes after those of problems, for doors whose batches may have a problem with NaN, which
    gives NaN, no iteration and no convergence, and does not disturb the others. Alone it is refused. `total` is a mass that run
    takes."""
    lead = np.broadcast_shapes(*(x.shape[: x.ndim - count] for x, count in zip(given, own, strict=True)))
    pairs = [(x, tuple(range(-count, 0))) for x, count in zip(given, own, strict=True)]
    wrong = functools.reduce(np.logical_or, (np.isnan(x).any(axes) for x, axes in pairs))
    if not lead or not wrong.any():
        return run(*given)
    wrong = np.broadcast_to(wrong, lead)
    # Masses with this sum, costs that are equal, points that coincide.
    stand_ins = (x.dtype.type(total / x.shape[-1]) for x in given)
    found = run(*(np.where(np.expand_dims(wrong, axes), one, x) for one, (x, axes) in zip(stand_ins, pairs, strict=True)))

    def marked(x):
        x = np.asarray(x)
        nothing = x.dtype.type(np.nan if np.issubdtype(x.dtype, np.floating) else 0)
        return np.where(wrong.reshape(lead + (1,) * (x.ndim - len(lead))), nothing, x)

    return tuple(map(marked, found))


class ProblemArrays:
    """a, b and cost of a batch of problems, and arrays for the results, plan, f and g: as _core takes them."""

    def __init__(self, name, a, b, cost):
        arrays = self.arrays = Together(name, a=a, b=b, cost=cost)
        arrays.check_axes(a=1, b=1, cost=2)
        n, m = self.shape = arrays.given["a"].shape[-1], arrays.given["b"].shape[-1]
        matrix = arrays.given["cost"]
        if matrix.shape[-2:] != (n, m):
            raise ValueError(f"{name}: cost must have shape (..., {n}, {m}) for these a and b, got {matrix.shape}")
        _names.check_order(name, ("a", a, -1), ("cost", cost, -2))
        _names.check_order(name, ("b", b, -1), ("cost", cost, -1))
        lead = self.lead = arrays.lead(a=1, b=1, cost=2)
        self.count = count = math.prod(lead)
        one_cost = math.prod(matrix.shape[:-2]) == 1
        given = arrays.rows("a", lead), arrays.rows("b", lead), arrays.rows("cost", None if one_cost else lead, 2)
        self.given = given
        self.results = [np.empty(shape, arrays.computed) for shape in ((count * n, m), (count, n), (count, m))]

    def mass_tolerance(self, given):
        return self.arrays.sum_tolerance if given is None else given

    def check_feasible(self, status):
        infeasible = np.flatnonzero(status == 1)
        if len(infeasible):
            where = _checks.place("in problem", np.unravel_index(infeasible[0], self.lead))
            raise ValueError(f"{self.arrays.function}: infeasible: every plan needs an entry of cost inf{where}")

    def found(self):
        """plan, f, g."""
        (n, m), lead, back = self.shape, self.lead, self.arrays.back
        plan, f, g = self.results
        return back(plan, (*lead, n, m)), back(f, (*lead, n)), back(g, (*lead, m))


@documented
def c_transform(f, cost):
    """
    The largest g with f_i + g_j <= C_ij.

        g_j = min_i (C_ij - f_i)

    f: A potential of shape (..., n): finite, or -inf for a row to ignore.
    cost: Of shape (..., n, m), inf where an arc is forbidden. Leading axes of both broadcast. Its transpose gives f of g.
    Returns: g, of shape (..., m), of the kind of array given and the wider of their dtypes, at least float32.
    Raises: f is NaN or inf, a cost NaN or -inf, shapes do not fit.
    Notes: Two transforms turn any f into a pair (f, g) that cannot be improved in f or g alone: its dual_value is a lower bound
        on every plan's cost.
    Source: Villani, Optimal Transport, 2009, chapter 5.
    >>> isentropic.c_transform([0.0, 0.5], [[0.0, 1.0], [2.0, 0.0]])
    array([ 0. , -0.5])
    """
    name = "c_transform"
    arrays = Together(name, f=f, cost=cost)
    arrays.check_axes(f=1, cost=2)
    n, m = arrays.given["cost"].shape[-2:]
    if arrays.given["f"].shape[-1] != n:
        raise ValueError(f"{name}: f must have shape (..., {n}) for this cost, got {arrays.given['f'].shape}")
    lead = arrays.lead(f=1, cost=2)
    fs, costs = arrays.rows("f", lead), arrays.rows("cost", lead, 2)
    g = np.empty((len(fs), m), arrays.computed)
    for k in range(len(fs)):
        _core.c_transform(fs[k], costs[k * n : (k + 1) * n], g[k])
    return arrays.back(g, (*lead, m))


@documented
def dual_value(f, g, a, b):
    """
    The dual value of potentials: if f_i + g_j <= C_ij, no plan from a to b costs less.

        <a, f> + <b, g>

    f, g: Potentials, of shapes (..., n) and (..., m). Leading axes of all four broadcast.
    a, b: Masses, of shapes (..., n) and (..., m). Where a mass is 0 the potential does not matter.
    Returns (array or number): In the shape of the leading axes, of the kind of array given and the widest of their dtypes, at
        least float32.
    Raises: Shapes do not fit.
    >>> float(isentropic.dual_value([0.0, 1.0], [0.5, 0.0], [0.25, 0.75], [1.0, 0.0]))
    1.25
    """
    name = "dual_value"
    arrays = Together(name, f=f, g=g, a=a, b=b)
    arrays.check_axes(f=1, g=1, a=1, b=1)
    for potential, mass in (("f", "a"), ("g", "b")):
        if arrays.given[potential].shape[-1] != arrays.given[mass].shape[-1]:
            raise ValueError(
                f"{name}: {potential} and {mass} must have equal lengths, got shapes "
                f"{arrays.given[potential].shape} and {arrays.given[mass].shape}"
            )
    lead = arrays.lead(f=1, g=1, a=1, b=1)
    rows = [arrays.rows(argument, lead) for argument in ("f", "g", "a", "b")]
    return arrays.back(np.array([_core.dual_value(*row) for row in zip(*rows, strict=True)]), lead)


@documented
def lipschitz_constant(f, distance):
    """
    The largest slope of a function, from its values at points and the distances of the points.

        max |f_i - f_j| / D_ij over i != j

    f: Values of shape (n,), finite.
    distance: Of shape (n, n), at least 0; its diagonal is not used.
    Returns (number): inf where points at distance 0 have different values; 0 for a single point.
    Raises: f is not finite, a distance is negative or NaN, shapes do not fit.
    Notes: By Kantorovich and Rubinstein, W_1(a, b) >= <a - b, f> / lipschitz_constant(f, D), with equality for the best f. A
        critic is trained to find it.
    >>> float(isentropic.lipschitz_constant([0.0, 1.0, 4.0], [[0, 1, 2], [1, 0, 1], [2, 1, 0]]))
    3.0
    """
    name = "lipschitz_constant"
    arrays = Together(name, f=f, distance=distance)
    n = arrays.given["f"].shape[-1] if arrays.given["f"].ndim else 0
    if arrays.given["f"].ndim != 1 or arrays.given["distance"].shape != (n, n):
        raise ValueError(
            f"{name}: f must have shape (n,) and distance (n, n), got {arrays.given['f'].shape} and "
            f"{arrays.given['distance'].shape}"
        )
    return arrays.back(np.array(_core.lipschitz_constant(arrays.vector("f"), arrays.rows("distance"))), ())
