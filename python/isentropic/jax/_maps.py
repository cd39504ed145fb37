"""Maps with their derivatives."""

import functools

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from isentropic._checks import flag
from isentropic._descriptions import MAPS, documented
from isentropic.formulas import maps
from isentropic.jax._call import array, call, like, normalized, wide
from isentropic.jax._parameters import split
from isentropic.jax._rows import ROWS


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def mapped(operation, static, x, rows):
    return call(operation, static, {"x": x, **rows}, {"y": like(x, 1 if MAPS[operation]["reduces"] else None)})[0]


@jax.custom_jvp
def _differentiated_once(kept):
    return kept


@functools.partial(_differentiated_once.defjvp, symbolic_zeros=True)
def _no_second_derivative(primals, tangents):
    if any(not isinstance(moved, SymbolicZero) for moved in jax.tree.leaves(tangents)):
        raise NotImplementedError("isentropic.jax: perturb_max has no second derivative, except with Gumbel noise")
    return primals[0], jax.tree.map(jnp.zeros_like, primals[0])


def _perturbed(static, x, y, rows, v):
    """The Jacobian of perturb_max times v, by the kernel. The Jacobian is symmetric."""
    kept = _differentiated_once({"x": x, "y": y, **rows})

    def product(_, v):
        return call("perturb_max", static, {**kept, "grad": v.astype(x.dtype)}, {"dx": like(x)}, vjp=True)[0].astype(v.dtype)

    # This is a linear function with a given transpose that can also be vectorised, which linear_call cannot. Its equation, here
    # the identity, is never evaluated.
    return jax.lax.custom_linear_solve(lambda v: v, v, product, symmetric=True)


@mapped.defjvp
def _map_jvp(operation, static, primals, tangents):
    if not maps.known(operation):
        raise NotImplementedError(f"isentropic.jax: {operation} has no derivative")
    x, rows = primals
    y, core = mapped(operation, static, x, rows), None
    values = {param["name"]: param["default"] for param in MAPS[operation]["params"]} | dict(static) | rows
    if values.get("noise", "gumbel") != "gumbel":
        # The kernel's Jacobian is with respect to x, C is with respect to x / scale.
        def core(_, at, w):
            return _perturbed(static, x, y, rows, w * values["scale"])

    dy = maps.pushed(ROWS, operation, wide(x), wide(y), values, wide(tangents[0]), tangents[1], core)
    return y, dy.astype(x.dtype)


def make_map(info):
    name = info["name"]

    def function(x, axis=-1, **parameters):
        keepdims = flag(name, "keepdims", parameters.pop("keepdims", False)) if info["reduces"] else True
        x = array(name, "x", x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        static, rows = split(info, parameters, moved, axis)
        y = mapped(name, static, moved, rows)
        return jnp.moveaxis(y, -1, axis) if keepdims else y[..., 0]

    return function


@documented
def ratio_map(x, f, *, axis=-1):
    """f of each score over the sum of all, as isentropic.ratio_map; f is of jax.numpy, and its values are not checked."""
    x = array("ratio_map", "x", x)
    axis = normalized("ratio_map", axis, x.ndim)
    finite, infinite = jnp.isfinite(x), x == jnp.inf
    none = jnp.isnan(x).any(axis, keepdims=True) | (x == -jnp.inf).all(axis, keepdims=True)
    x = x * jnp.where(none, jnp.nan, 1).astype(x.dtype)  # so that the gradient is NaN too
    weights = jnp.where(finite, f(jnp.where(finite, x, 0)), 0)
    weights = jnp.where(infinite.any(axis, keepdims=True), infinite.astype(weights.dtype), weights)
    p = jnp.where(x == -jnp.inf, 0, weights / weights.sum(axis, keepdims=True))
    return jnp.where(none, x, p).astype(x.dtype)
