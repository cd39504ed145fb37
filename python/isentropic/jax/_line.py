"""Distances on the line: a number for each row, and its gradient by the function of NumPy arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

import isentropic
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _wasserstein
from isentropic._numpy._transport import with_nan_alone
from isentropic.jax._call import array, call_hosted, hosted, normalized, plain, sum_tolerance
from isentropic.jax._parameters import known
from isentropic.jax._transport import checked_order, empty, together

OTHERS = {"wasserstein_1d": "its weights", "wasserstein_histogram": "support"}


@hosted("wasserstein_1d")
def _wasserstein_1d(u, v, *weights, order, slopes):
    def run(u, v, u_weights=None, v_weights=None):
        found = isentropic.wasserstein_1d(u, v, u_weights=u_weights, v_weights=v_weights, order=order, return_grad=slopes)
        return found if slopes else (found,)

    return with_nan_alone(run, u, v, *weights, own=(1,) * (2 + len(weights)))


@hosted("wasserstein_histogram")
def _wasserstein_histogram(p, q, *support, order, sum_tolerance, period, normalize, slopes):
    options = order, -1, slopes, sum_tolerance, period, normalize
    if not support or support[0].ndim == 1:

        def run(p, q):
            found = _wasserstein.of_histograms(p, q, support[0] if support else None, *options)
            return found if slopes else (found,)

        return with_nan_alone(run, p, q, own=(1, 1))
    # In a vectorised call each problem has its own.
    lead, n = np.broadcast_shapes(p.shape[:-1], q.shape[:-1], support[0].shape[:-1]), p.shape[-1]
    problems = (np.broadcast_to(x, (*lead, n)).reshape(-1, n) for x in (p, q, support[0]))

    def of_each(p, q, support):
        each = [_wasserstein.of_histograms(*three, *options) for three in zip(p, q, support, strict=True)]
        outputs = zip(*each, strict=True) if slopes else (each,)
        return tuple(np.array(one, p.dtype) for one in outputs)

    found = with_nan_alone(of_each, *problems, own=(1, 1, 1))
    return tuple(one.reshape(*lead, *one.shape[1:]) for one in found)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _distance(name, given, two, others):
    outputs = [empty(*two[0].shape[:-1], like=two[0])]
    return call_hosted(name, {**dict(given), "slopes": False}, [*two, *others], outputs)[0]


@functools.partial(_distance.defjvp, symbolic_zeros=True)
def _distance_jvp(name, given, primals, tangents):
    two, others = primals
    if any(not isinstance(moved, SymbolicZero) for moved in tangents[1]):
        raise NotImplementedError(
            f"isentropic.jax: {name} has no derivative in {OTHERS[name]}; jax.lax.stop_gradient takes it as constant"
        )
    if "period" in dict(given):
        _check_histograms(slopes=True, **dict(given))
    value, *slopes = _distance_and_slopes(name, given, two, others)
    moving = [(slope, v) for slope, v in zip(slopes, tangents[0], strict=True) if not isinstance(v, SymbolicZero)]
    return value, sum((slope * v).sum(-1) for slope, v in moving)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _distance_and_slopes(name, given, two, others):
    outputs = [empty(*two[0].shape[:-1], like=two[0]), *(empty(*x.shape, like=x) for x in two)]
    return call_hosted(name, {**dict(given), "slopes": True}, [*two, *others], outputs)


@_distance_and_slopes.defjvp
def _distance_and_slopes_jvp(name, given, primals, tangents):
    raise NotImplementedError(f"isentropic.jax: {name} has no second derivative")


def _line(name, order, axis, two, others, **more):
    order = checked_order(name, order)
    two = {argument: array(name, argument, x) for argument, x in two.items()}
    moved = {argument: jnp.moveaxis(x, normalized(name, axis, x.ndim), -1) for argument, x in two.items()}
    spread, dtype = together(name, (1, 1), **moved)
    # A support of float64 is one beside masses of float32 too: its points may be far from 0.
    others = tuple(x.astype(jnp.promote_types(x.dtype, dtype)) for x in others)
    return _distance(name, (("order", order), *more.items()), tuple(spread), others).astype(dtype)


@documented
def wasserstein_1d(u, v, *, u_weights=None, v_weights=None, order=1.0, axis=-1):
    """As isentropic.wasserstein_1d; differentiable in the samples."""
    name, weights = "wasserstein_1d", []
    if u_weights is not None or v_weights is not None:
        for argument, x, w in (("u_weights", u, u_weights), ("v_weights", v, v_weights)):
            x = array(name, argument[0], x)
            w = jnp.ones((), x.dtype) if w is None else array(name, argument, w, least=0)
            try:
                w = jnp.broadcast_to(_checks.along_axis(w, x, axis), x.shape)
            except ValueError:
                raise ValueError(
                    f"{name}: {argument} must broadcast to the shape {x.shape} of {argument[0]}, got {w.shape}"
                ) from None
            weights.append(jnp.moveaxis(w, normalized(name, axis, x.ndim), -1))
        lead = np.broadcast_shapes(*(w.shape[:-1] for w in weights))
        weights = [jnp.broadcast_to(w, (*lead, w.shape[-1])) for w in weights]
    return _line(name, order, axis, {"u": u, "v": v}, weights)


@documented
def wasserstein_histogram(p, q, *, support=None, period=None, normalize=False, order=1.0, axis=-1):
    """As isentropic.wasserstein_histogram, with its gradients."""
    name = "wasserstein_histogram"
    support = [] if support is None else [array(name, "support", support)]
    p = array(name, "p", p)
    n = p.shape[normalized(name, axis, p.ndim)]
    if support and support[0].shape != (n,):
        raise ValueError(f"{name}: support must have shape ({n},), one point for each entry, got {support[0].shape}")
    order = checked_order(name, order)
    known(name, "period", period)
    more = plain(name, "", {"sum_tolerance": sum_tolerance(p, q), "period": period, "normalize": normalize})
    _check_histograms(slopes=False, order=order, **more)
    return _line(name, order, axis, {"p": p, "q": q}, support, **more)


def _check_histograms(**parameters):
    """A call that only checks."""
    _wasserstein_histogram(np.ones(1), np.ones(1), **parameters)
