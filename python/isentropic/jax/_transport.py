"""Transport: distances on the line, plans with and without entropy, and their duals."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

import isentropic
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _wasserstein
from isentropic._numpy._transport import with_nan_alone
from isentropic.formulas import transport
from isentropic.jax._call import HOSTED, array, call_hosted, hosted, plain, sum_tolerance
from isentropic.jax._parameters import known
from isentropic.jax._sinkhorn import moved_plan


@documented
class TransportResult(NamedTuple):
    """What optimal_transport gives; of these only cost has a derivative."""

    cost: jax.Array
    plan: jax.Array
    f: jax.Array
    g: jax.Array
    gap: jax.Array

    def map(self, targets):
        """Where the plan sends each point, as isentropic.TransportResult.map."""
        return transport.mapped("TransportResult.map", jnp, self, jnp.asarray(targets))


@documented
class SinkhornResult(NamedTuple):
    """What sinkhorn gives; of these cost and plan have a derivative. marginal_error is relative to the sum of a."""

    cost: jax.Array
    plan: jax.Array
    f: jax.Array
    g: jax.Array
    marginal_error: jax.Array
    lower_bound: jax.Array
    upper_bound: jax.Array
    iterations: jax.Array
    converged: jax.Array
    epsilon: jax.Array | None = None

    def map(self, targets, cost=None):
        """Where the plan sends each point, or new points with these costs, as isentropic.SinkhornResult.map."""
        given = (jnp.asarray(one) for one in ((targets,) if cost is None else (targets, cost)))
        return transport.mapped("SinkhornResult.map", jnp, self, *given)


def together(operation, own, **arrays):
    """Arrays in one type of computation, with leading axes broadcast, and this type, which is that of the results too: at least
    float32; own: the number of axes that are not leading."""
    arrays = {name: array(operation, name, x) for name, x in arrays.items()}
    dtype = functools.reduce(jnp.promote_types, (x.dtype for x in arrays.values()), jnp.float32)
    shapes = [x.shape[: max(x.ndim - count, 0)] for x, count in zip(arrays.values(), own, strict=True)]
    for (name, x), count in zip(arrays.items(), own, strict=True):
        if x.ndim < count:
            raise ValueError(f"{operation}: {name} must have at least {count} axes, got shape {x.shape}")
    try:
        lead = np.broadcast_shapes(*shapes)
    except ValueError:
        given = ", ".join(str(x.shape) for x in arrays.values())
        raise ValueError(f"{operation}: the leading axes of {', '.join(arrays)} must broadcast, got shapes {given}") from None
    spread = [
        jnp.broadcast_to(x.astype(dtype), (*lead, *x.shape[x.ndim - count :]))
        for x, count in zip(arrays.values(), own, strict=True)
    ]
    return spread, dtype


def empty(*shape, like):
    return jax.ShapeDtypeStruct(shape, like.dtype)


# Plans.


@hosted("optimal_transport")
def _optimal_transport(a, b, cost, *, mass_tolerance):
    def run(a, b, cost):
        return isentropic.optimal_transport(a, b, cost, mass_tolerance=mass_tolerance)[:5]

    return with_nan_alone(run, a, b, cost)


@hosted("sinkhorn")
def _sinkhorn(a, b, cost, *, given):
    return with_nan_alone(lambda a, b, cost: isentropic.sinkhorn(a, b, cost, **given)[:-1], a, b, cost)


def _problem(name, a, b, cost):
    (a, b, cost), dtype = together(name, (1, 1, 2), a=a, b=b, cost=cost)
    if cost.shape[-2:] != (a.shape[-1], b.shape[-1]):
        raise ValueError(f"{name}: cost must have shape (..., {a.shape[-1]}, {b.shape[-1]}), got {cost.shape}")
    return a, b, cost, dtype


def _outputs(a, b, cost, numbers):
    return [empty(*shape, like=a) for shape in (a.shape[:-1], cost.shape, a.shape, b.shape, *[a.shape[:-1]] * numbers)]


def _cast(found, dtype):
    return [x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in found]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _cheapest(mass_tolerance, a, b, cost):
    return call_hosted("optimal_transport", {"mass_tolerance": mass_tolerance}, [a, b, cost], _outputs(a, b, cost, 1))


@_cheapest.defjvp
def _cheapest_jvp(mass_tolerance, primals, tangents):
    found = _cheapest(mass_tolerance, *primals)
    _, plan, f, g, _ = found
    da, db, dcost = tangents
    change = (f * da).sum(-1) + (g * db).sum(-1) + (plan * jnp.where(plan > 0, dcost, 0)).sum((-2, -1))
    return found, [change, *map(jnp.zeros_like, found[1:])]


@documented
def optimal_transport(a, b, cost, *, mass_tolerance=None):
    """As isentropic.optimal_transport; the cost of the plan is differentiable in a, b and cost.

    The gradient in cost is the plan; those in a and b are the potentials, up to a constant. An infeasible problem is an error.
    """
    mass_tolerance = sum_tolerance(a, b, cost) if mass_tolerance is None else mass_tolerance
    mass_tolerance = plain("optimal_transport", "mass_tolerance", mass_tolerance)
    a, b, cost, dtype = _problem("optimal_transport", a, b, cost)
    return TransportResult(*_cast(_cheapest(mass_tolerance, a, b, cost), dtype))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _smooth(given, a, b, cost):
    more = [jax.ShapeDtypeStruct(a.shape[:-1], jnp.int32)] * 2
    return call_hosted("sinkhorn", {"given": dict(given)}, [a, b, cost], [*_outputs(a, b, cost, 3), *more])


@_smooth.defjvp
def _smooth_jvp(given, primals, tangents):
    found, epsilon = _smooth(given, *primals), dict(given)["epsilon"]
    p, f, g = found[1:4]
    (a, b, cost), (da, db, dcost) = primals, tangents
    if p.shape[-2] > p.shape[-1]:
        p, cost, dcost = (jnp.swapaxes(one, -1, -2) for one in (p, cost, dcost))
        slope, moved, dg, df = moved_plan(p, g, f, b, a, cost, db, da, dcost, epsilon)
        cost, slope, moved = (jnp.swapaxes(one, -1, -2) for one in (cost, slope, moved))
    else:
        slope, moved, df, dg = moved_plan(p, f, g, a, b, cost, da, db, dcost, epsilon)
    change = moved.sum((-2, -1)) + (jnp.where(jnp.isfinite(cost), cost, 0) * slope).sum((-2, -1))
    still = [jnp.zeros_like(x) for x in found[4:7]]
    return found, [change, slope, df, dg, *still, *(np.zeros(x.shape, jax.dtypes.float0) for x in found[7:])]


def _numbers(name, **given):
    for argument, value in given.items():
        known(name, argument, value, "; it has no derivative")
    given = plain(name, "", given)
    with _checks.in_the_name_of(name, "sinkhorn"):  # refuses wrong ones before the program runs
        HOSTED["sinkhorn"](np.ones(1), np.ones(1), np.zeros((1, 1)), given=given)
    return tuple(given.items())


@documented
def sinkhorn(a, b, cost, *, epsilon, tolerance=1e-6, max_iterations=10000, mass_tolerance=None):
    """As isentropic.sinkhorn; the cost and the plan are differentiable in a, b and cost.

    The derivative is that of the exact plan, by the implicit function theorem, so tolerance should be small. epsilon may be an
    array, one for each problem, which broadcasts with the leading axes; cost and plan are differentiable in it.
    """
    mass_tolerance = sum_tolerance(a, b, cost) if mass_tolerance is None else mass_tolerance
    a, b, cost, dtype = _problem("sinkhorn", a, b, cost)
    options = {"tolerance": tolerance, "max_iterations": max_iterations, "mass_tolerance": mass_tolerance}
    if isinstance(epsilon, (jax.Array, np.ndarray)):
        return _of_epsilons(a, b, cost, dtype, epsilon, options)
    found = _cast(_smooth(_numbers("sinkhorn", epsilon=epsilon, **options), a, b, cost), dtype)
    found[2:7] = map(jax.lax.stop_gradient, found[2:7])
    return SinkhornResult(
        *found[:-1], found[-1].astype(bool), jnp.where(jnp.isnan(found[2][..., 0]), jnp.nan, epsilon).astype(dtype)
    )


def _of_epsilons(a, b, cost, dtype, epsilon, options):
    """The plan is that of costs divided by epsilon with an epsilon of 1, through which its derivative goes."""
    epsilon = jnp.asarray(epsilon, cost.dtype)
    if not isinstance(epsilon, jax.core.Tracer):
        _checks.positive("sinkhorn", "epsilon", epsilon)
    try:
        lead = np.broadcast_shapes(a.shape[:-1], epsilon.shape)
    except ValueError:
        raise ValueError(f"sinkhorn: epsilon must broadcast to {a.shape[:-1]}, got shape {epsilon.shape}") from None
    epsilon = jnp.broadcast_to(epsilon, lead)
    wrong = ~((epsilon > 0) & (epsilon < jnp.inf))  # traced ones
    epsilon = jnp.where(wrong, 1, epsilon)
    a, b, cost = (jnp.broadcast_to(x, (*lead, *x.shape[x.ndim - own :])) for x, own in ((a, 1), (b, 1), (cost, 2)))
    scaled, costs = transport.scaled_by(jnp, cost, epsilon)
    found = SinkhornResult(*_smooth(_numbers("sinkhorn", epsilon=1.0, **options), a, b, scaled), 1.0)
    still, error = jax.lax.stop_gradient(epsilon), found.marginal_error
    f, g, *bounds = transport.of_scaled(jnp, found, costs, a, still, 8 * jnp.finfo(cost.dtype).eps)
    value = jnp.where(jnp.isnan(error), jnp.nan, (found.plan * costs).sum((-2, -1)))
    numbers = value, found.plan, *map(jax.lax.stop_gradient, (f, g, error, *bounds))
    numbers = [jnp.where(wrong.reshape(*lead, *[1] * (one.ndim - len(lead))), jnp.nan, one) for one in numbers]
    shown = jnp.where(jnp.isnan(error) | wrong, jnp.nan, still).astype(dtype)
    return SinkhornResult(*_cast(numbers, dtype), found.iterations, found.converged.astype(bool) & ~wrong, shown)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _minimum(given, a, b, cost):
    found = _smooth(given, a, b, cost)
    return dual_value(found[2], found[3], a, b)


@_minimum.defjvp
def _minimum_jvp(given, primals, tangents):
    """By the envelope theorem plan and potentials count as constants; second derivatives are those of the plan and the
    potentials."""
    _, plan, f, g, *_ = _smooth(given, *primals)
    da, db, dcost = tangents
    f, g = (jnp.where((mass == 0) & ~jnp.isfinite(one), 0, one) for mass, one in zip(primals[:2], (f, g), strict=True))
    change = (f * da).sum(-1) + (g * db).sum(-1) + (plan * jnp.where(plan > 0, dcost, 0)).sum((-2, -1))
    return dual_value(f, g, *primals[:2]), change


# Points, through plans.


def _points(name, x, y, a, b):
    """Points and weights with leading axes, and the type of the results."""
    given = {
        argument: array(name, argument, one) for argument, one in (("x", x), ("y", y), ("a", a), ("b", b)) if one is not None
    }
    if max(given["x"].ndim, given["y"].ndim) <= 2:
        for argument, weights in (("x", "a"), ("y", "b")):
            points = given[argument]
            _checks.points(name, argument, points.shape)
            given[argument] = points[:, None] if points.ndim == 1 else points
            if weights in given and given[weights].ndim != 1:
                raise ValueError(f"{name}: {weights} must have one axis, got shape {given[weights].shape}")
    spread, dtype = together(name, [1 if argument in "ab" else 2 for argument in given], **given)
    given = dict(zip(given, spread, strict=True))
    x, y = given["x"], given["y"]
    for argument, weights in (("x", "a"), ("y", "b")):
        points = given[argument]
        _checks.points(name, argument, points.shape[-2:])
        if given.setdefault(weights, jnp.ones(points.shape[:-1], points.dtype)).shape != points.shape[:-1]:
            count = points.shape[-2]
            raise ValueError(
                f"{name}: {weights} must have shape (..., {count}), one weight for each point, got {given[weights].shape}"
            )
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"{name}: y must have as many coordinates as x, {x.shape[-1]}, got {y.shape[-1]}")
    return x, y, given["a"], given["b"], dtype


def _powers(x, y, order):
    """|x_i - y_j|^order, with a gradient of 0 where points coincide."""
    square = ((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1)
    return square if order == 2 else jnp.where(square > 0, jnp.where(square > 0, square, 1) ** (order / 2), 0 * square)


def checked_order(name, order):
    known(name, "order", order)
    order = _checks.number(name, "order", order)
    if not 1 <= order < float("inf"):
        raise ValueError(f"{name}: order must be at least 1 and finite, got {order:g}")
    return order


@hosted("wasserstein")
def _plan_of(*given, order, metric):
    return _wasserstein.of_each(functools.partial(_wasserstein.plan_of, order, metric), *given)[1:]


@hosted("wasserstein's weights")
def _slopes_in_weights(*given, order, metric):
    return _wasserstein.of_each(functools.partial(_wasserstein.slopes_of, order, metric, True), *given)[3:]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _by_weights(params, x, y, a, b):
    """0, with wasserstein's derivative in the weights: another solution, only where it is asked for."""
    return jnp.zeros(a.shape[:-1], a.dtype)


@functools.partial(_by_weights.defjvp, symbolic_zeros=True)
def _by_weights_jvp(params, primals, tangents):
    value = _by_weights(params, *primals)
    if all(isinstance(v, SymbolicZero) for v in tangents[2:]):
        return value, jnp.zeros_like(value)
    pairs = zip(_weight_slopes(params, *primals), tangents[2:], strict=True)
    return value, sum((slope * v).sum(-1) for slope, v in pairs if not isinstance(v, SymbolicZero))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _weight_slopes(params, *given):
    outputs = [empty(*weights.shape, like=weights) for weights in given[2:]]
    return call_hosted("wasserstein's weights", dict(params), given, outputs)


@_weight_slopes.defjvp
def _weight_slopes_jvp(params, primals, tangents):
    raise NotImplementedError("isentropic.jax: wasserstein has no second derivative in weights")


@documented
def wasserstein(x, y, *, order=1.0, metric="euclidean", a=None, b=None):
    """As isentropic.wasserstein; differentiable in points and weights."""
    order = checked_order("wasserstein", order)
    if not isinstance(metric, str) or metric not in transport.METRICS:
        raise ValueError(f"wasserstein: metric must be one of {', '.join(transport.METRICS)}, got {metric!r}")
    x, y, a, b, dtype = _points("wasserstein", x, y, a, b)
    if 0 in a.shape[:-1]:
        return jnp.zeros(a.shape[:-1], dtype)
    fixed = [jax.lax.stop_gradient(one) for one in (x, y, a, b)]
    params = {"order": order, "metric": metric}
    (plan,) = call_hosted("wasserstein", params, fixed, [empty(*a.shape, b.shape[-1], like=x)])
    # As in isentropic._numpy._wasserstein.slopes_of: relative to the largest distance over which the plan moves mass.
    u, v = x[..., :, None, :], y[..., None, :, :]
    distance = transport.METRICS[metric](jnp, u, jnp.where(plan[..., None] > 0, v, u))[0]
    largest = jax.lax.stop_gradient(distance.max((-2, -1), keepdims=True))
    there = distance > 0
    share = jnp.where(there, distance, 1) / jnp.where(there & (largest > 0), largest, 1)
    total = (plan * share**order * there).sum((-2, -1))
    root = jnp.where(total > 0, jnp.where(total > 0, total, 1) ** (1 / order), 0 * total)
    value = largest[..., 0, 0] * root + _by_weights(tuple(params.items()), *fixed[:2], a, b)
    return jnp.where(jnp.isnan(plan).any((-2, -1)), jnp.nan, value).astype(dtype)


@documented
def sinkhorn_divergence(x, y, *, epsilon, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """As isentropic.sinkhorn_divergence; differentiable in points and weights.

    Second derivatives are those of the exact plan, so tolerance should be small for them. epsilon is a number.
    """
    name = "sinkhorn_divergence"
    order = checked_order(name, order)
    x, y, a, b, dtype = _points(name, x, y, a, b)
    a, b = (weights / weights.sum(-1, keepdims=True) for weights in (a, b))
    given = _numbers(name, epsilon=epsilon, tolerance=tolerance, max_iterations=max_iterations, mass_tolerance=None)

    return _divergence(given, order, x, y, a, b).astype(dtype)


@hosted("sinkhorn_divergence")
def _divergence_of(x, y, a, b, *, order, given):
    def run(x, y, a, b):
        return (isentropic.sinkhorn_divergence(x, y, a=a, b=b, order=order, **given),)

    return with_nan_alone(run, x, y, a, b, own=(2, 2, 1, 1))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _divergence(given, order, x, y, a, b):
    """By the library, since it is a difference: in float32 it would keep few digits, and its sign might change."""
    numbers = {key: value for key, value in given if value is not None}
    outputs = [empty(*a.shape[:-1], like=x)]
    (value,) = call_hosted("sinkhorn_divergence", {"order": order, "given": numbers}, [x, y, a, b], outputs)
    return value


@_divergence.defjvp
def _divergence_jvp(given, order, primals, tangents):
    def minimum(u, v, from_, to):
        return _minimum(given, from_, to, _powers(u, v, order))

    def composed(x, y, a, b):
        return minimum(x, y, a, b) - 0.5 * (minimum(x, x, a, a) + minimum(y, y, b, b))

    return _divergence(given, order, *primals), jax.jvp(composed, primals, tangents)[1]


# Duals.


@documented
def c_transform(f, cost):
    """The largest g with f_i + g_j <= C_ij, as isentropic.c_transform."""
    (f, cost), dtype = together("c_transform", (1, 2), f=f, cost=cost)
    if f.shape[-1] != cost.shape[-2]:
        raise ValueError(f"c_transform: f must have shape (..., {cost.shape[-2]}) for this cost, got {f.shape}")
    return (cost - f[..., None]).min(-2).astype(dtype)


@documented
def dual_value(f, g, a, b):
    """<a, f> + <b, g>, as isentropic.dual_value."""
    (f, g, a, b), dtype = together("dual_value", (1, 1, 1, 1), f=f, g=g, a=a, b=b)
    for potential, mass, names in ((f, a, "f and a"), (g, b, "g and b")):
        if potential.shape != mass.shape:
            raise ValueError(f"dual_value: {names} must have equal lengths, got shapes {potential.shape} and {mass.shape}")
    first, second = (
        (mass * jnp.where((mass == 0) & ~jnp.isfinite(potential), 0, potential)).sum(-1) for potential, mass in ((f, a), (g, b))
    )
    return (first + second).astype(dtype)


@documented
def lipschitz_constant(f, distance):
    """max |f_i - f_j| / D_ij over i != j, as isentropic.lipschitz_constant."""
    f, distance = array("lipschitz_constant", "f", f), array("lipschitz_constant", "distance", distance)
    f, distance = (x.astype(jnp.promote_types(x.dtype, jnp.float32)) for x in (f, distance))
    if f.ndim != 1 or distance.shape != (len(f), len(f)):
        raise ValueError(f"lipschitz_constant: f must have shape (n,) and distance (n, n), got {f.shape} and {distance.shape}")
    rise, apart = jnp.abs(f[:, None] - f), distance > 0
    slope = jnp.where(apart, rise / jnp.where(apart, distance, 1), jnp.where(rise > 0, jnp.inf, 0 * rise))
    return jnp.where(jnp.eye(len(f), dtype=bool), 0, slope).max()
