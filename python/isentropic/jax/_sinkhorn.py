"""How sinkhorn's plan moves with masses and costs."""

import jax
import jax.numpy as jnp


def moved_plan(p, f, g, a, b, cost, da, db, dcost, epsilon):
    """(dP, P dC, df, dg). P_ij = exp((F_i + G_j - C_ij) / epsilon), where F and G keep the sums of rows and columns: a
    Laplacian system of the rows, after elimination of G."""
    into_rows, into_columns = _into_empty(f, g, a, b, cost, da, db, epsilon)
    entering = into_rows + into_columns
    da, db = da - into_columns.sum(-1), db - into_rows.sum(-2)
    moved = p * jnp.where(p > 0, dcost, 0)
    columns = p.sum(-2)
    by_column = p / jnp.where(columns > 0, columns, 1)[..., None, :]
    right_columns = epsilon * db + moved.sum(-2)
    right = epsilon * da + moved.sum(-1) - (by_column * right_columns[..., None, :]).sum(-1)
    between = by_column @ jnp.swapaxes(p, -1, -2)
    off = between * (1 - jnp.eye(p.shape[-2], dtype=p.dtype))
    # F and G are only defined up to a constant; here F is 0 at the largest row.
    free = (jnp.arange(p.shape[-2]) != p.sum(-1).argmax(-1)[..., None]).astype(p.dtype)
    # If the plan has separate components, they are free in each. A rounding error added to the diagonal chooses one; what this
    # adds to a whole component cancels below.
    degree = jnp.where(p.sum(-1) > 0, off.sum(-1), 1) * (1 + 16 * jnp.finfo(p.dtype).eps)
    degree = jnp.where(degree > 0, degree, 1)
    eye = jnp.eye(p.shape[-2], dtype=p.dtype)
    system = eye * (degree * free + 1 - free)[..., None] - off * free[..., None] * free[..., None, :]
    rows = jnp.linalg.solve(system, (right * free)[..., None])[..., 0]
    cols = (right_columns - (p * rows[..., None]).sum(-2)) / jnp.where(columns > 0, columns, 1)
    slope = (p * (rows[..., None] + cols[..., None, :]) - moved) / epsilon + entering
    # P_ij = a_i b_j exp((f_i + g_j - C_ij) / epsilon): the derivatives of the potentials follow from F and G.
    df = jnp.where(a > 0, rows - epsilon * da / jnp.where(a > 0, a, 1), 0)
    dg = jnp.where(b > 0, cols - epsilon * db / jnp.where(b > 0, b, 1), 0)
    return slope, moved, df, dg


def _into_empty(f, g, a, b, cost, da, db, epsilon):
    """Mass that enters rows and columns without mass: in proportion to b_j exp((g_j - C_ij) / epsilon) and to
    a_i exp((f_i - C_ij) / epsilon)."""

    def shares(mass, potential, cost):
        score = (potential - cost) / epsilon + jnp.where(mass > 0, jnp.log(jnp.where(mass > 0, mass, 1)), -jnp.inf)
        share = jax.nn.softmax(jnp.where(jnp.isfinite(score), score, -jnp.inf), -1)
        return jnp.where(jnp.isnan(share), 0, share)  # a row in which all is forbidden

    rows = shares(b[..., None, :], g[..., None, :], cost) * jnp.where(a > 0, 0, da)[..., None]
    turned = shares(a[..., None, :], f[..., None, :], jnp.swapaxes(cost, -1, -2)) * jnp.where(b > 0, 0, db)[..., None]
    return rows, jnp.swapaxes(turned, -1, -2)
