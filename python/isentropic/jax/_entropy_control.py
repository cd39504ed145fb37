"""The gamma that gives an entropy, powers of distributions, an estimate of the entropy."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isentropic._descriptions import CONTROL, STATUSES, documented
from isentropic._numpy._entropy_control import checked_range
from isentropic.formulas import maps
from isentropic.formulas.rows import from_most
from isentropic.jax._call import array, call, like, normalized, wide
from isentropic.jax._parameters import split
from isentropic.jax._rows import ROWS

_CONSTANT = STATUSES.index("constant")


@documented
class GammaResult(NamedTuple):
    """What gamma_for_entropy gives, one for each row.

    status is an integer: 0 "ok", 1 "clamped_low", 2 "clamped_high", 3 "constant", 4 "invalid".
    """

    gamma: jax.Array
    entropy: jax.Array
    status: jax.Array


def _in_units(x, there):
    """(u, h): x less its largest is 2 h u with u in [-1, 0]. Moments of u neither underflow nor overflow."""
    half = from_most(ROWS, x, there)
    h = ROWS.most(-half)
    h = jnp.where(h > 0, h, 1)
    return half / h, h


def _target_slope(values, slopes):
    """The derivative of the target in nats, or None."""
    if "entropy" in slopes:
        return slopes["entropy"]
    return slopes["perplexity"] / values["perplexity"] if "perplexity" in slopes else None


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gamma(static, x, rows):
    outputs = {"gamma": like(x, 1), "reached": like(x, 1), "status": like(x, 1, jnp.int32)}
    return tuple(call("gamma_for_entropy", static, {"x": x, **rows}, outputs))


@_gamma.defjvp
def _gamma_jvp(static, primals, tangents):
    (x, rows), (v, slopes) = primals, tangents
    found = gamma, _, status = _gamma(static, x, rows)
    values = dict(static) | rows
    present = x > 0 if values.get("input") == "probs" else jnp.isfinite(x)
    if values.get("input") == "probs":
        v, x = jnp.where(present, v / jnp.where(present, x, 1), 0), jnp.log(jnp.where(present, x, 1))
    # Elsewhere there is no gamma, or it means nothing, and there is no derivative.
    still = jnp.where((gamma > 0) & (gamma < jnp.inf) & (status != _CONSTANT), gamma, 0)
    v = jnp.where(present, v, 0)
    u, h = _in_units(x, present)
    g = still * h * 2  # of u
    p = jax.nn.softmax(jnp.where(present, g * u, -jnp.inf), -1)
    u = u - (p * u).sum(-1, keepdims=True)
    variance, change = ((p * u * one).sum(-1, keepdims=True) for one in (u, v))
    moves = (status == 0) & (variance > 0) & (still > 0)
    target = _target_slope(values, slopes)
    right = 0 if target is None else target / jnp.where(moves, g, 1)
    d_gamma = jnp.where(moves, -(right + g * change / h / 2) / jnp.where(moves, variance, 1) / h / 2, 0)
    d_reached = jnp.where(moves, 0 if target is None else target, -g * g * change / h / 2)
    undefined = jnp.where(jnp.isnan(gamma), jnp.nan, 0).astype(gamma.dtype) * tangents[0].sum(-1, keepdims=True)
    return found, (d_gamma + undefined, d_reached + undefined, np.zeros(status.shape, jax.dtypes.float0))


@documented
def gamma_for_entropy(x, *, axis=-1, **parameters):
    """As isentropic.gamma_for_entropy.

    gamma and the entropy reached are differentiable, twice, in x and in a target that is an array. A gamma whose status is not
    0 has the derivative 0, or NaN where it is "invalid".
    """
    name = "gamma_for_entropy"
    x = wide(array(name, "x", x))
    axis = normalized(name, axis, x.ndim)
    x = jnp.moveaxis(x, axis, -1)
    if "gamma_range" in parameters:
        parameters["min_gamma"], parameters["max_gamma"] = checked_range(name, parameters.pop("gamma_range"))
    static, rows = split(CONTROL[name], parameters, x, axis)
    return GammaResult(*(one[..., 0] for one in _gamma(static, x, rows)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _powered(static, p, rows):
    return call("power_transform", static, {"p": p, **rows}, {"q": like(p)})[0]


@_powered.defjvp
def _powered_jvp(static, primals, tangents):
    (p, rows), (v, slopes) = primals, tangents
    q = _powered(static, p, rows)
    there = p != 0  # also where p is NaN, which then stays NaN
    gamma = rows.get("gamma", dict(static).get("gamma"))
    # At gamma = inf a small change of p changes nothing.
    change = jnp.where(gamma < jnp.inf, gamma, 0) * jnp.where(there, v / jnp.where(there, p, 1), 0)
    if "gamma" in slopes:
        change = change + jnp.where(there, jnp.log(jnp.where(there, p, 1)), 0) * slopes["gamma"]
    return q, maps.centred(ROWS, q, change)


@documented
def power_transform(p, *, gamma, axis=-1):
    """As isentropic.power_transform; differentiable in p and gamma."""
    given = array("power_transform", "p", p)
    axis = normalized("power_transform", axis, given.ndim)
    moved = jnp.moveaxis(wide(given), axis, -1)
    static, rows = split(CONTROL["power_transform"], {"gamma": gamma}, moved, axis)
    return jnp.moveaxis(_powered(static, moved, rows), -1, axis).astype(given.dtype)


@documented
def mean_field_entropy(x, *, gamma=1.0, axis=-1):
    """As isentropic.mean_field_entropy; differentiable in x and gamma."""
    name = "mean_field_entropy"
    x = wide(array(name, "x", x))
    axis = normalized(name, axis, x.ndim)
    x = jnp.moveaxis(x, axis, -1)
    (param,) = CONTROL[name]["params"]
    static, rows = split({"name": name, "params": [{**param, "per_row": True}]}, {"gamma": gamma}, x, axis)
    gamma = rows["gamma"][..., 0] if rows else dict(static)["gamma"]
    given = np.asarray(1.0 if isinstance(gamma, jax.core.Tracer) else gamma)
    if np.size(wrong := given[~((given >= 0) & (given < np.inf))]):
        raise ValueError(f"{name}: gamma must be at least 0 and finite, got {wrong.flat[0]:g}")
    none = jnp.isnan(x).any(-1, keepdims=True) | (x == -jnp.inf).all(-1, keepdims=True)
    none = none | ~jnp.asarray((gamma >= 0) & (gamma < jnp.inf))[..., None]  # a traced one
    x = x * jnp.where(none, jnp.nan, 1).astype(x.dtype)  # so that the gradient is NaN too
    finite, ties = jnp.isfinite(x), (x == jnp.inf).sum(-1)
    count = jnp.maximum(finite.sum(-1), 1).astype(x.dtype)
    most = jnp.where(finite, x, -jnp.inf).max(-1, keepdims=True, initial=-jnp.inf)
    spread = jnp.where(finite, most - jnp.where(finite, x, 0), 0).sum(-1) / count  # a sum of x would lose their differences
    spread = jnp.minimum(spread, jnp.finfo(x.dtype).max)  # 0 times an overflow would be NaN
    value = jnp.where(ties > 0, jnp.log(jnp.maximum(ties, 1).astype(x.dtype)), jnp.log(count) - gamma * spread)
    return jnp.where(none[..., 0], x.sum(-1) + jnp.nan, value)  # a sum of no numbers is 0
