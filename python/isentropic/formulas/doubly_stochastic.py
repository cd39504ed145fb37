"""Tables with fixed sums of rows and columns: y = exp(x / T + f_i + g_j), by their potentials f and g."""


def _of_sums(rows, z, axis):
    """log sum exp along an axis, which keeps size 1."""
    top = rows.constant(rows.xp.max(z, axis=axis, keepdims=True))
    top = rows.xp.where(rows.xp.isfinite(top), top, 0.0)
    return top + rows.log(rows.xp.sum(rows.exp(z - top), axis=axis, keepdims=True))


def prepared(rows, x, temperature):
    """(x / T, whether a table can have a result). A table that cannot is one of zeros here."""
    xp = rows.xp
    there = x > -xp.inf
    good = xp.all(x < xp.inf, axis=(-2, -1), keepdims=True)
    for axis in (-2, -1):
        good = good & xp.all(xp.any(there, axis=axis, keepdims=True), axis=(-2, -1), keepdims=True)
    return xp.where(good, xp.where(good & there, x, 0.0) / temperature + xp.where(there, 0.0, -xp.inf), 0.0), good


def start(rows, z):
    """The potentials before the first sweep."""
    column = rows.xp.zeros_like(z[..., :1, :])
    return rows.xp.zeros_like(z[..., :1]), column


def sweep(rows, z, potentials):
    """Rows, then columns, divided by their sums."""
    _, g = potentials
    f = -_of_sums(rows, z + g, -1)
    g = rows.log(rows.xp.asarray(z.shape[-2] / z.shape[-1], dtype=z.dtype)) - _of_sums(rows, z + f, -2)
    return f, g


def result(rows, z, good, potentials):
    f, g = potentials
    return rows.xp.where(good, rows.exp(z + f + g), rows.xp.nan)


def of_limit(rows, y, g, temperature):
    """J^T g of the limit, which is J g: y (g - u_i - v_j) / T, u and v such that its rows and columns have sum 0.

    Without u it is a Laplacian of the columns, in which nothing cancels where parts of the table hardly touch; of the rows, if
    they are fewer."""
    xp = rows.xp
    if y.shape[-2] < y.shape[-1]:
        turned = of_limit(rows, xp.matrix_transpose(y), xp.matrix_transpose(g), temperature)
        return xp.matrix_transpose(turned)
    g = xp.where(y == 0, 0.0, g)
    share = y / xp.sum(y, axis=-1, keepdims=True)
    mean = xp.sum(share * g, axis=-1, keepdims=True)
    right = xp.sum(y * (g - mean), axis=-2)[..., None]
    eye = xp.eye(y.shape[-1], dtype=y.dtype)
    between = (xp.matrix_transpose(share) @ y) * (1 - eye)
    # v is only defined up to a constant in each part of the table. A rounding error added to the diagonal chooses one.
    degree = xp.sum(between, axis=-1, keepdims=True) * (1 + 16 * xp.finfo(y.dtype).eps)
    free = xp.astype(xp.arange(y.shape[-1]) > 0, y.dtype)[:, None]
    degree = xp.where(degree > 0, degree, 1.0)
    system = eye * (degree * free + 1 - free) - between * free * xp.matrix_transpose(free)
    v = xp.matrix_transpose(xp.linalg.solve(system, right * free))
    return y * (g - mean - (v - xp.sum(share * v, axis=-1, keepdims=True))) / temperature


def of_sweeps(rows, z, good, g, temperature, iterations):
    """J^T g of a number of sweeps: with the slopes F and G in the last potentials, a step of columns moves what G has to the
    rows, F_i -= sum_j y_ij G_j m / n, and a step of rows what F has to the columns, both with y by the potentials then."""
    xp = rows.xp
    potentials = [start(rows, z)]
    for _ in range(iterations):
        potentials.append(sweep(rows, z, potentials[-1]))
    slopes = rows.exp(z + potentials[-1][0] + potentials[-1][1]) * xp.where(z > -xp.inf, g, 0.0)
    of_rows, of_columns = xp.sum(slopes, axis=-1, keepdims=True), xp.sum(slopes, axis=-2, keepdims=True)
    for t in range(iterations, 0, -1):
        f, after = potentials[t]
        part = rows.exp(z + f + after) * of_columns * (z.shape[-1] / z.shape[-2])
        slopes, of_rows = slopes - part, of_rows - xp.sum(part, axis=-1, keepdims=True)
        part = rows.exp(z + f + potentials[t - 1][1]) * of_rows
        slopes, of_columns = slopes - part, -xp.sum(part, axis=-2, keepdims=True)
        of_rows = xp.zeros_like(of_rows)
    return xp.where(good, slopes / temperature, xp.nan)
