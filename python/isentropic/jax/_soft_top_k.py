"""soft_top_k of JAX's arrays."""

import jax.numpy as jnp

from isentropic._descriptions import documented
from isentropic.formulas.soft_top_k import soft_top_k as formula
from isentropic.jax._call import array, normalized, wide
from isentropic.jax._rows import ROWS


@documented
def soft_top_k(x, /, *, k, temperature=1.0, axis=-1):
    """A smooth choice of the k largest, as isentropic.soft_top_k; differentiable in x, k and temperature."""
    name = "soft_top_k"
    x = array(name, "x", x)
    axis = normalized(name, axis, x.ndim)
    rows = wide(jnp.moveaxis(x, axis, -1))
    values = []
    for argument, value in (("k", k), ("temperature", temperature)):
        if isinstance(value, (int, float)) and (not value > 0 or (argument == "temperature" and value == float("inf"))):
            end = " and finite" if argument == "temperature" else ""
            raise ValueError(f"{name}: {argument} must be above 0{end}, got {value}")
        value = jnp.asarray(value, rows.dtype)
        value = jnp.moveaxis(value, axis, -1) if value.ndim == x.ndim else value
        try:
            values.append(jnp.broadcast_to(value, (*rows.shape[:-1], 1)))
        except ValueError:
            raise ValueError(f"{name}: {argument} must broadcast to one number for each row, got shape {value.shape}") from None
    if x.size == 0:
        return x
    return jnp.moveaxis(formula(ROWS, rows, *values), -1, axis).astype(x.dtype)
