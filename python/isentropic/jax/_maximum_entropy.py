"""The distribution with given moments that is nearest to a prior."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from isentropic._descriptions import documented
from isentropic._numpy._maximum_entropy import check_shapes, of_each
from isentropic.jax._call import array, call_hosted, hosted


@documented
class MaximumEntropyResult(NamedTuple):
    """What maximum_entropy found, as isentropic.MaximumEntropyResult, with `clamped` in place of the status: whether the
    moments are on the edge of what the features reach."""

    p: jax.Array
    multipliers: jax.Array
    entropy: jax.Array
    divergence: jax.Array
    clamped: jax.Array


@documented
def maximum_entropy(features, moments, *, prior=None):
    """The distribution with given moments that is nearest to a prior, as isentropic.maximum_entropy; p, multipliers, entropy
    and divergence are differentiable in features, moments and prior, also twice, by implicit differentiation.

    Moments beyond the reach of the features are an error when the program runs, a problem with NaN is NaN, and where moments
    are clamped the derivatives are 0.
    """
    name = "maximum_entropy"
    features, moments = array(name, "features", features), jnp.atleast_1d(array(name, "moments", moments, least=0))
    features = features[:, None] if features.ndim == 1 else features
    prior = None if prior is None else array(name, "prior", prior)
    check_shapes(name, features.shape, moments.shape, None if prior is None else prior.shape)
    lead, n = moments.shape[:-1], len(features)
    prior = jnp.ones(n, features.dtype) if prior is None else prior
    dtype = functools.reduce(jnp.promote_types, (x.dtype for x in (features, moments, prior)), jnp.float32)
    features, moments, prior = (x.astype(dtype) for x in (features, moments, prior))
    prior = jnp.broadcast_to(prior, (*lead, n))
    p, multipliers, clamped = _solution(features, moments, prior)
    logs = jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, 1)), 0)
    share = prior / prior.sum(-1, keepdims=True)
    apart = jnp.where(p > 0, logs - jnp.log(jnp.where(share > 0, share, 1)), 0)
    divergence = jnp.maximum((p * apart).sum(-1), 0)
    return MaximumEntropyResult(p, multipliers, jnp.maximum(-(p * logs).sum(-1), 0), divergence, clamped)


hosted("maximum_entropy")(of_each)


@jax.custom_jvp
def _solution(features, moments, prior):
    """(p, multipliers, whether the moments are clamped)."""
    outputs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (prior, moments)]
    outputs.append(jax.ShapeDtypeStruct(moments.shape[:-1], jnp.int32))
    p, multipliers, clamped = call_hosted("maximum_entropy", {}, [features, moments, prior], outputs)
    return p, multipliers, clamped.astype(bool)


@_solution.defjvp
def _solution_jvp(primals, tangents):
    """With u_i = d log prior_i + d features_i multipliers, log p moves by u + centred d multipliers less its mean, and the
    moments of p by Cov d multipliers + Cov(centred, u) + p d features, which is d moments."""
    (features, moments, prior), (d_features, d_moments, d_prior) = primals, tangents
    p, multipliers, clamped = _solution(*primals)
    at = jnp.where(clamped[..., None], 0, multipliers)
    low, high = features.min(0), features.max(0)
    unit = jnp.where(high > low, high - low, 1)
    centred = (features - moments[..., None, :]) / unit
    own = jnp.where(prior > 0, d_prior / jnp.where(prior > 0, prior, 1), 0) + (d_features * at[..., None, :]).sum(-1)
    own = own - (p * own).sum(-1, keepdims=True)
    weighted = p[..., None] * centred
    spread = jnp.swapaxes(centred, -1, -2) @ weighted
    missing = (d_moments - (p[..., None] * d_features).sum(-2)) / unit - (weighted * own[..., None]).sum(-2)
    turned = (jnp.linalg.pinv(spread) @ missing[..., None])[..., 0]
    change = p * (own + (centred * turned[..., None, :]).sum(-1))
    still = [jnp.where(clamped[..., None], 0, one) for one in (change - p * change.sum(-1, keepdims=True), turned / unit)]
    return (p, multipliers, clamped), (*still, np.zeros(clamped.shape, jax.dtypes.float0))
