"""Doubly stochastic tables of JAX's arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy._doubly_stochastic import numbers
from isentropic.formulas import doubly_stochastic as formulas
from isentropic.jax._call import array, call_hosted, wide
from isentropic.jax._rows import ROWS

_NONE = np.empty((0, 1))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _limit(x, tolerance):
    given = {} if tolerance is None else {"tolerance": tolerance}
    return call_hosted("doubly_stochastic", given, [x], [jax.ShapeDtypeStruct(x.shape, x.dtype)])[0]


@_limit.defjvp
def _limit_jvp(tolerance, primals, tangents):
    y = _limit(primals[0], tolerance)
    return y, formulas.of_limit(ROWS, y, jnp.where(primals[0] > -jnp.inf, tangents[0], 0), 1.0)


@documented
def doubly_stochastic(x, *, temperature=1.0, iterations=None, tolerance=None):
    """As isentropic.doubly_stochastic; differentiable in x and temperature, any number of times. With iterations it consists of
    JAX's operations alone."""
    name = "doubly_stochastic"
    heat = 1.0 if isinstance(temperature, jax.Array) else temperature
    heat, iterations, tolerance = numbers(name, heat, iterations, tolerance)
    _core.doubly_stochastic(_NONE, _NONE, (heat, iterations, tolerance))  # refuses wrong ones before the program runs
    if isinstance(temperature, jax.Array) and not isinstance(temperature, jax.core.Tracer):
        _checks.positive(name, "temperature", temperature)
    x = array(name, "x", x)
    if x.ndim < 2:
        raise ValueError(f"{name}: x must have at least two axes, rows and columns, got shape {x.shape}")
    if x.size == 0:
        return x
    tables = wide(x)
    if isinstance(temperature, jax.Array):
        tables = jnp.where((temperature > 0) & (temperature < jnp.inf), tables, jnp.nan)  # a traced one may be wrong
    if iterations == 0:
        finite = jnp.isfinite(tables)
        scaled = jnp.where(finite, jnp.where(finite, tables, 0) / temperature, tables)
        return _limit(scaled, tolerance).astype(x.dtype)
    z, good = formulas.prepared(ROWS, tables, temperature)
    potentials = jax.lax.fori_loop(0, iterations, lambda _, before: formulas.sweep(ROWS, z, before), formulas.start(ROWS, z))
    return formulas.result(ROWS, z, good, potentials).astype(x.dtype)
