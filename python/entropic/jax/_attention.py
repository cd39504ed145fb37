"""Attention with any map, composed of products and the map."""

import jax.numpy as jnp

from entropic.jax._calibration import entropy_invariant_scale
from entropic.jax._maps import make_map
from entropic.jax._parameters import MAPS


def _shared(q, k, v):
    """k and v with as many heads as q: consecutive ones of these share one."""
    if q.ndim > 2 and k.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]):
        k, v = (jnp.repeat(one, q.shape[-3] // k.shape[-3], -3) for one in (k, v))
    return k, v


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
    """Values weighted by any map of the scores, as entropic.attention; composed of products and the map.

    scale: "sqrt", "entropy_invariant" or a number; mask: True where a key is seen, or numbers that are added to the scores.
    """
    k, v = _shared(q, k, v)
    scores = q @ jnp.swapaxes(k, -1, -2)
    seen = jnp.ones(scores.shape, bool)
    if causal:
        seen &= jnp.tril(seen, k=k.shape[-2] - q.shape[-2])
    if mask is not None:
        mask = jnp.asarray(mask)
        seen &= mask if mask.dtype == bool else mask > -jnp.inf
    if isinstance(scale, str):
        if scale not in ("sqrt", "entropy_invariant"):
            raise ValueError(f"attention: scale must be 'sqrt', 'entropy_invariant' or a number, got {scale!r}")
        count = jnp.maximum(seen.sum(-1, keepdims=True), 1)
        invariant = {"train_length": train_length, "kappa": kappa}
        of_count = entropy_invariant_scale(count, q.shape[-1], **invariant)
        scale = q.shape[-1] ** -0.5 if scale == "sqrt" else of_count.astype(scores.dtype)
    scores = scores * scale
    if mask is not None and mask.dtype != bool:
        scores = scores + jnp.where(seen, mask, 0)
    name, more = map if isinstance(map, tuple) else (map, {})
    if name not in MAPS:
        raise ValueError(f"attention: map must be one of {', '.join(MAPS)}, got {name!r}")
    any_seen = seen.any(-1, keepdims=True)
    # A query that sees nothing gets a row of zeros as scores, and weights of 0.
    weights = make_map(MAPS[name])(jnp.where(any_seen, jnp.where(seen, scores, -jnp.inf), 0), **more, **parameters)
    weights = jnp.where(seen, weights, 0)
    found = [weights @ v]
    if return_weights:
        found.append(weights)
    if return_entropy:
        log = jnp.log(jnp.where(weights > 0, weights, 1))
        found.append(-(weights * log).sum(-1))
    return tuple(found) if len(found) > 1 else found[0]


def linear_attention(q, k, v, /, *, causal=False, scale="sqrt"):
    """Attention with taylor_softmax of order 2, as entropic.linear_attention, in time linear in the length; causal by sums."""
    k, v = _shared(q, k, v)
    d, n, m = q.shape[-1], k.shape[-2], q.shape[-2]
    q = q * (d**-0.5 if scale == "sqrt" else scale)

    def features(x):
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], d * d) * 0.5**0.5
        return jnp.concatenate([jnp.ones_like(x[..., :1]), x, squares], -1)

    q, k, v = features(q), features(k), jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    if causal:
        sums = jnp.cumsum(k[..., :, None] * v[..., None, :], -3)
        at = jnp.arange(m) + n - m
        sums = jnp.where((at >= 0)[:, None, None], jnp.take(sums, jnp.maximum(at, 0), -3), 0)
        found = jnp.einsum("...mf,...mfv->...mv", q, sums)
    else:
        found = q @ (jnp.swapaxes(k, -1, -2) @ v)
    total = found[..., -1:]
    return jnp.where(total > 0, found[..., :-1] / jnp.where(total > 0, total, 1), 0)
