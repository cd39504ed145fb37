"""Attention with any map, composed of products and the map."""

import jax
import jax.numpy as jnp
import numpy as np

import isentropic
from isentropic import _checks
from isentropic._attention import mask_shape, shape_of
from isentropic._descriptions import MAPS
from isentropic._maps import map_and_params
from isentropic.jax._calibration import entropy_invariant_scale
from isentropic.jax._call import array, wide
from isentropic.jax._maps import make_map
from isentropic.jax._parameters import known


def _arrays(function, q, k, v):
    """(their common shape and dtype, q, k, v). k and v have as many heads as q, or one: consecutive heads of q share them."""
    q, k, v = (array(function, name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    shape, dtype = shape_of(function, q.shape, k.shape, v.shape), jnp.result_type(q, k, v)
    if shape.kv_heads not in (1, shape.heads):
        group = shape.heads // shape.kv_heads
        k, v = (jnp.repeat(x, group, -3) if x.ndim > 2 and x.shape[-3] > 1 else x for x in (k, v))
    return shape, dtype, *(wide(x.astype(dtype)) for x in (q, k, v))


def _scaled(function, q, scale, shape):
    """(q, scale); a scale that is an array is multiplied into q."""
    if not (isinstance(scale, jax.Array) or np.ndim(scale)):
        return q, scale
    wanted = (*shape.lead, shape.queries, 1)
    try:
        jnp.broadcast_to(scale, wanted)
    except ValueError:
        raise _checks.misfit(function, "scale", wanted, "(..., m, 1)", scale) from None
    return (q * scale).astype(q.dtype), 1.0


def _checked(function, **arguments):
    """Refuses what the function of NumPy arrays refuses."""
    nothing = np.empty((0, 1))
    function(nothing, nothing, nothing, **arguments)


def _finite(x):
    """x with 0 for what is not finite, without derivatives there."""
    return jnp.where(jnp.isfinite(x), x, 0)


def _scores(q, k, seen):
    """q k^T; no derivative of a key that is not seen is NaN, even if it has numbers that are not finite."""
    scores = _finite(q) @ _finite(k).mT
    wrong = seen & ~(jnp.isfinite(q).all(-1, keepdims=True) & jnp.isfinite(k).all(-1)[..., None, :])
    q, k, found = jax.lax.stop_gradient((q, k, scores))
    found = jax.lax.cond(wrong.any(), lambda: q @ k.mT, lambda: found)
    # 0 times the finite ones is added for the derivative: NaN where that of the score is NaN, and otherwise 0.
    return jnp.where(wrong, found + 0 * _finite(scores), scores)


def _weighted(p, v):
    """p v, where values of weight 0 have no part, even if they are not finite."""
    out = p @ _finite(v)
    weights, values = jax.lax.stop_gradient((p, v))

    def infinite():
        counts = (weights != 0).astype(v.dtype)
        high, low = (counts @ (jnp.isnan(values) | (values == end)).astype(v.dtype) > 0 for end in (jnp.inf, -jnp.inf))
        return jnp.where(high, jnp.inf, jnp.zeros_like(out)) - jnp.where(low, jnp.inf, jnp.zeros_like(out))

    # The sum of the values that are not finite; where there are any, the derivative in the weights is NaN.
    total = jax.lax.cond(jnp.isfinite(values).all(), lambda: jnp.zeros_like(out), infinite)
    slope = jnp.where(total != 0, jnp.nan, 0).astype(out.dtype)
    return out + jnp.where(total != 0, total, p.sum(-1, keepdims=True) * slope)


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
    return_weights=False,
    return_entropy=False,
    **parameters,
):
    """Values weighted by any map of the scores, as isentropic.attention; composed of products and the map.

    scale: "sqrt", "entropy_invariant", a number or an array; mask: True where a key is seen, or numbers that are added to the
    scores.
    """
    shape, dtype, q, k, v = _arrays("attention", q, k, v)
    q, scale = _scaled("attention", q, scale, shape)
    for argument, value in (("train_length", train_length), ("kappa", kappa)):
        known("attention", argument, value)
    _checked(isentropic.attention, scale=scale, causal=causal, train_length=train_length, kappa=kappa)
    name, values = map_and_params("attention", map, parameters)
    seen = jnp.ones((shape.queries, shape.keys), bool)
    if causal:
        seen = jnp.tril(seen, shape.keys - shape.queries)
    if mask is not None:
        mask = jnp.asarray(mask)
        floats = jnp.issubdtype(mask.dtype, jnp.floating)
        mask_shape("attention", mask, floats or mask.dtype == bool, shape)
        seen = seen & (mask != -jnp.inf if floats else mask)
    d = q.shape[-1] or 1  # without columns all scores are 0, whatever the scale is
    if scale == "sqrt":
        scale = d**-0.5
    elif scale == "entropy_invariant":
        count = jnp.maximum(seen.sum(-1, keepdims=True), 1)
        scale = entropy_invariant_scale(count, d, train_length=train_length, kappa=kappa).astype(q.dtype)
    scores = _scores(q * scale, k, seen)
    if mask is not None and floats:
        scores = scores + jnp.where(seen, mask, 0).astype(scores.dtype)
    seen = jnp.broadcast_to(seen, scores.shape)
    some = seen.any(-1, keepdims=True)
    # A query that sees nothing gets a row of zeros as scores, and weights of 0.
    weights = make_map(MAPS[name])(jnp.where(some, jnp.where(seen, scores, -jnp.inf), 0), **values)
    p = jnp.where(seen, weights, 0)
    found = [_weighted(p, v)]
    if return_weights:
        # All weights of a query with a NaN are NaN, also those of keys that it does not see.
        found.append(jnp.where(some & jnp.isnan(weights), weights, p))
    if return_entropy:
        log = jnp.log(jnp.where(p > 0, p, 1))
        found.append(-(p * log).sum(-1))
    found = [x.astype(dtype) for x in found]
    return tuple(found) if len(found) > 1 else found[0]


def linear_attention(q, k, v, /, *, causal=False, scale="sqrt"):
    """Attention with taylor_softmax of order 2, as isentropic.linear_attention, in time linear in the length."""
    shape, dtype, q, k, v = _arrays("linear_attention", q, k, v)
    q, scale = _scaled("linear_attention", q, scale, shape)
    _checked(isentropic.linear_attention, scale=scale, causal=causal)
    d, n, m = q.shape[-1], shape.keys, shape.queries
    if n == 0:
        return jnp.zeros((*shape.lead, m, v.shape[-1]), dtype)
    last = jnp.arange(m)[:, None] + n - m if causal else jnp.full((m, 1), n - 1)  # of the keys that a query sees
    q = jnp.where(last >= 0, q * ((d or 1) ** -0.5 if scale == "sqrt" else scale), 0)

    def features(x):
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], d * d) * 0.5**0.5
        return jnp.concatenate([one(x), x, squares], -1)

    def one(x):
        return jnp.ones((*x.shape[:-1], 1), x.dtype)

    q, k, v = features(q), features(k), jnp.concatenate([v, one(v)], -1)
    if causal:
        sums = jnp.cumsum(k[..., :, None] * v[..., None, :], -3)
        sums = jnp.where(last[..., None] >= 0, jnp.take(sums, jnp.maximum(last[:, 0], 0), -3), 0)
        found = jnp.einsum("...mf,...mfv->...mv", q, sums)
    else:
        found = q @ (k.mT @ v)
    # A query that sees no key gives 0.
    return jnp.where(last >= 0, found[..., :-1] / jnp.where(last >= 0, found[..., -1:], 1), 0).astype(dtype)
