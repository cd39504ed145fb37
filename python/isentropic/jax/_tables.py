"""Tables of three variables."""

import jax.numpy as jnp

from isentropic._checks import flag, in_the_name_of
from isentropic._descriptions import MEASURES, documented
from isentropic.formulas.measures import independent_given
from isentropic.jax._call import array, wide
from isentropic.jax._maps import mapped
from isentropic.jax._values import make_measure

_kl_divergence = make_measure(MEASURES["kl_divergence"], True)


@documented
def conditional_mutual_information(pxyz, *, base=None, input="probs", normalize=False):
    """I(X; Y | Z) of tables in the last three axes, as isentropic.conditional_mutual_information; under jit, grad and vmap
    too."""
    name = "conditional_mutual_information"
    pxyz = array(name, "pxyz", pxyz)
    if pxyz.ndim < 3:
        raise ValueError(f"{name}: pxyz must have at least 3 axes, x, y and z, got shape {pxyz.shape}")
    flag(name, "normalize", normalize)
    if not isinstance(input, str) or input not in ("probs", "log_probs", "scores"):
        raise ValueError(f"{name}: input must be one of probs, log_probs, scores, got {input!r}")
    flat = wide(pxyz).reshape(*pxyz.shape[:-3], -1)
    lost = None
    if input == "scores" or (input == "log_probs" and normalize):
        p = mapped("softmax", (), flat, {})
    else:
        p = jnp.exp(flat) if input == "log_probs" else flat / flat.sum(-1, keepdims=True) if normalize else flat
    if input == "scores":  # a table with NaN, or without a score above -inf, is NaN
        lost = jnp.isnan(p).any(-1)
        p = jnp.where(lost[..., None], 1 / max(p.shape[-1], 1), p)
    q = independent_given(jnp, p.reshape(pxyz.shape)).reshape(p.shape)
    with in_the_name_of(name, "kl_divergence"):
        value = _kl_divergence(p, q, base=base)
    return value if lost is None else jnp.where(lost, jnp.nan, value)
