"""Attention with any map, composed of products and the map."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

import isentropic
from isentropic import _checks
from isentropic._attention import checked_softcap, counted, mask_shape, shape_of, sinks_shape
from isentropic._descriptions import MAPS, documented
from isentropic._maps import map_and_params
from isentropic.formulas import attention as formulas
from isentropic.jax._call import array, as_array, wide
from isentropic.jax._maps import make_map
from isentropic.jax._parameters import known
from isentropic.jax._rows import ROWS


def _arrays(function, q, k, v):
    """(their common shape and dtype, q, k, v). k and v have as many heads as q, or one: consecutive heads of q share them."""
    q, k, v = (array(function, name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    shape, dtype = shape_of(function, q.shape, k.shape, v.shape), jnp.result_type(q, k, v)
    if shape.kv_heads not in (1, shape.heads):
        group = shape.heads // shape.kv_heads
        k, v = (jnp.repeat(x, group, -3) if x.ndim > 2 and x.shape[-3] > 1 else x for x in (k, v))
    return shape, dtype, *(wide(x.astype(dtype)) for x in (q, k, v))


def _is_array(value):
    return isinstance(value, jax.Array) or np.ndim(value) > 0


def _check_queries(function, argument, value, shape):
    wanted = (*shape.lead, shape.queries, 1)
    try:
        jnp.broadcast_to(value, wanted)
    except ValueError:
        raise _checks.misfit(function, argument, wanted, "(..., m, 1)", value) from None


def _scaled(function, q, scale, shape):
    """(q, scale); a scale that is an array is multiplied into q."""
    if not _is_array(scale):
        return q, scale
    scale = array(function, "scale", scale, least=0)
    _check_queries(function, "scale", scale, shape)
    return (q * scale).astype(q.dtype), 1.0


SCORES = 1 << 24  # in memory at once; 64 MiB of float32


def _in_blocks(attend, shape, arrays):
    """attend(numbers of queries, arrays) for some queries at a time; their scores are calculated again for the gradient.

    Arrays, by name, with an axis of queries before the last one are cut along it; attend gives arrays (..., queries, columns).
    """
    m = shape.queries
    at_once = max(SCORES // max(math.prod(shape.lead) * shape.keys, 1), 1)
    if at_once >= m:
        return attend(jnp.arange(m), arrays)
    count = -(-m // at_once)
    queries = jnp.minimum(jnp.arange(count * at_once), m - 1)  # the last one fills the last block
    cut = {name: x for name, x in arrays.items() if getattr(x, "ndim", 0) > 1 and x.shape[-2] == m}

    def blocks(x):
        x = jnp.take(x, queries, -2)
        return jnp.moveaxis(x.reshape(*x.shape[:-2], count, at_once, x.shape[-1]), -3, 0)

    def whole(x):
        x = jnp.moveaxis(x, 0, -3)
        return x.reshape(*x.shape[:-3], count * at_once, x.shape[-1])[..., :m, :]

    block = jax.checkpoint(lambda given: attend(given[0], arrays | given[1]))
    found = jax.lax.map(block, (queries.reshape(count, at_once), {name: blocks(x) for name, x in cut.items()}))
    return [whole(x) for x in found]


def _checked(function, **arguments):
    """Refuses what the function of NumPy arrays refuses."""
    nothing = np.empty((0, 1))
    function(nothing, nothing, nothing, **arguments)


@documented
def attention(
    q,
    k,
    v,
    /,
    *,
    map="softmax",
    scale="sqrt",
    causal=False,
    mask=None,
    train_length=512,
    kappa=None,
    softcap=None,
    sinks=None,
    return_weights=False,
    return_entropy=False,
    **parameters,
):
    """As isentropic.attention; composed of products and the map, for some queries at a time unless weights are asked for.

    scale: "sqrt", "entropy_invariant", "log_n", a number or an array; mask: True where a key is seen, or numbers that are added
    to the scores; kappa: a number or an array that broadcasts to (..., m, 1); sinks: of shape (h,), or one that broadcasts to
    (..., m, 1). All arrays have gradients.
    """
    shape, dtype, q, k, v = _arrays("attention", q, k, v)
    q, scale = _scaled("attention", q, scale, shape)
    for argument, value in (("train_length", train_length), ("softcap", softcap)):
        known("attention", argument, value)
    for argument, value in (("return_weights", return_weights), ("return_entropy", return_entropy)):
        _checks.flag("attention", argument, value)
    softcap = checked_softcap("attention", softcap)
    number = kappa
    if _is_array(kappa):
        kappa = array("attention", "kappa", kappa, least=0).astype(q.dtype)
        _check_queries("attention", "kappa", kappa, shape)
        # One that is not positive and finite makes its query's result NaN.
        kappa, number = jnp.where((kappa > 0) & (kappa < jnp.inf), kappa, jnp.nan), 1.0
    _checked(isentropic.attention, scale=scale, causal=causal, train_length=train_length, kappa=number)
    if sinks is not None:
        sinks = array("attention", "sinks", sinks, least=0)
        sinks = sinks.reshape(sinks_shape("attention", sinks, shape))
    name, params = map_and_params("attention", map, parameters)
    if mask is not None:
        mask = as_array("attention", "mask", mask)
        mask_shape("attention", mask, jnp.issubdtype(mask.dtype, jnp.floating) or mask.dtype == bool, shape)
    d = q.shape[-1] or 1  # without columns all scores are 0, whatever the scale is
    scale, number = (scale, 1.0) if isinstance(scale, str) else ("number", scale)

    def attend(queries, own):
        q, mask, sinks, kappa = (own[key] for key in ("q", "mask", "sinks", "kappa"))
        values = {key: own[key] for key in params}
        seen = formulas.seen_keys(ROWS, shape.queries, shape.keys, causal, mask, queries=queries)
        q = q * formulas.scale_of(ROWS, seen, q, d, scale, number, train_length, kappa)
        of_map = functools.partial(make_map(MAPS[name]), **values)
        further = {"softcap": softcap, "sinks": sinks, "weights": return_weights, "entropy": return_entropy}
        found = formulas.attended(ROWS, q, k, v, seen, mask, of_map, **further)
        return [*found[:-1], found[-1][..., None]] if return_entropy else found

    arrays = {"q": q, "mask": mask, "sinks": sinks, "kappa": kappa, **params}
    found = attend(jnp.arange(shape.queries), arrays) if return_weights else _in_blocks(attend, shape, arrays)
    found = [*found[:-1], found[-1][..., 0]] if return_entropy else found
    found = [x.astype(dtype) for x in found]
    return tuple(found) if len(found) > 1 else found[0]


@documented
def keys_seen(m, n, *, causal=False, mask=None):
    """The number of keys that each query of attention sees, as isentropic.keys_seen."""
    if mask is not None:
        mask = as_array("keys_seen", "mask", mask)
    fits = mask is None or jnp.issubdtype(mask.dtype, jnp.floating) or mask.dtype == bool
    m, n, causal = counted("keys_seen", m, n, causal, mask, fits)
    return formulas.keys_seen(ROWS, m, n, causal, mask)


def _size(x, axes):
    """A power of 2 near the largest magnitude along axes."""
    _, exponent = jnp.frexp(jax.lax.stop_gradient(jnp.abs(x).max(axes, keepdims=True, initial=0)))
    of_type = jnp.finfo(x.dtype)  # XLA takes subnormal numbers, also reciprocals, as 0
    return jnp.ldexp(jnp.ones((), x.dtype), jnp.clip(exponent, of_type.minexp, of_type.maxexp - 3))


@documented
def linear_attention(q, k, v, *, causal=False, scale="sqrt"):
    """As isentropic.linear_attention."""
    shape, dtype, q, k, v = _arrays("linear_attention", q, k, v)
    q, scale = _scaled("linear_attention", q, scale, shape)
    _checked(isentropic.linear_attention, scale=scale, causal=causal)
    d, n, m = q.shape[-1], shape.keys, shape.queries
    if n == 0:
        return jnp.zeros((*shape.lead, m, v.shape[-1]), dtype)
    last = jnp.arange(m)[:, None] + n - m if causal else jnp.full((m, 1), n - 1)  # of the keys that a query sees
    q = jnp.where(last >= 0, q * ((d or 1) ** -0.5 if scale == "sqrt" else scale), 0)

    def features(x, *factors):
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], d * d) * 0.5**0.5
        return jnp.concatenate([y * by for y, by in zip((one(x), x, squares), factors, strict=True)], -1)

    def one(x):
        return jnp.ones((*x.shape[:-1], 1), x.dtype)

    # Of (1, s, s^2 / 2) only the ratios count; large s would overflow. Powers of 2 scale without rounding.
    of_q, of_k = _size(q, -1), _size(k, (-2, -1))
    both = of_q * of_k
    less, small = 1 / jnp.maximum(both, 1), jnp.minimum(both, 1)
    q, k = features(q / of_q, less * less, less * small, small * small), features(k / of_k, 1, 1, 1)
    v = jnp.concatenate([v, one(v)], -1)
    if causal:
        sums = jnp.cumsum(k[..., :, None] * v[..., None, :], -3)
        sums = jnp.where(last[..., None] >= 0, jnp.take(sums, jnp.maximum(last[:, 0], 0), -3), 0)
        found = jnp.einsum("...mf,...mfv->...mv", q, sums)
    else:
        found = q @ (k.mT @ v)
    # A query that sees no key gives 0.
    return jnp.where(last >= 0, found[..., :-1] / jnp.where(last >= 0, found[..., -1:], 1), 0).astype(dtype)
