"""What all formulas do with rows."""

import math

INF = math.inf


class Rows:
    """An array namespace of the standard, and what formulas need beside it.

    A door with more to say about it, such as sums over other processes, has a subclass.
    """

    def __init__(self, xp):
        self.xp = xp
        self.exp, self.log = xp.exp, xp.log

    def constant(self, x):
        """x, without derivatives."""
        return x

    def known_finite(self, *arrays):
        """Whether all their numbers are known, and finite."""
        return all(bool(self.xp.all(self.xp.isfinite(x))) for x in arrays)

    def if_any(self, condition, value, otherwise):
        """value() if the condition holds anywhere; what need not be calculated if it does not."""
        return value() if bool(self.xp.any(condition)) else otherwise

    def wide(self, x):
        """x in the type in which digits that cancel are not lost."""
        return self.xp.astype(x, self.xp.float64)

    def sums(self, *terms):
        """The sum of each row, of size 1 for the last axis, of all terms."""
        return tuple(self.xp.sum(one, axis=-1, keepdims=True) for one in terms)

    def most(self, x):
        """The largest of each row, without derivatives; 0 of no entries."""
        x = self.constant(x)
        return self.xp.max(x, axis=-1, keepdims=True) if x.shape[-1] else self.xp.sum(x, axis=-1, keepdims=True)

    def softmax(self, x):
        mass = self.exp(x - self.most(x))
        return mass / self.total(mass)

    def log_softmax(self, x):
        z = x - self.most(x)
        return z - self.log(self.total(self.exp(z)))

    def total(self, x):
        return self.sums(x)[0]

    def dot(self, a, b):
        return self.sums(a * b)[0]

    def any(self, condition):
        return self.xp.any(condition, axis=-1, keepdims=True)

    def all(self, condition):
        return self.xp.all(condition, axis=-1, keepdims=True)

    def picked(self, x, indices):
        """x at the indices along the last axis."""
        return self.xp.take_along_axis(x, indices, axis=-1)

    def placed(self, x, indices, values):
        """x with values at the indices along the last axis, without those at indices below 0."""
        xp = self.xp
        column = xp.arange(x.shape[-1])
        for k in range(indices.shape[-1]):
            x = xp.where(column == indices[..., k : k + 1], values[..., k : k + 1], x)
        return x

    def like(self, value, x):
        """value in the type of x."""
        return self.xp.astype(value, x.dtype)

    def number(self, value, x):
        """A number, or an array of numbers, in the wide type."""
        return self.wide(value) if hasattr(value, "dtype") else self.wide(self.xp.zeros_like(x[..., :1])) + value


def canonical(rows, x):
    """If a row has +inf, and no NaN, only these entries count, equally."""
    infinite = x == INF
    flat = rows.xp.where(infinite, rows.xp.zeros_like(x), -INF)
    return rows.xp.where(rows.any(infinite) & rows.all(x == x), flat, x)


def has_none(rows, x):
    """Whether a row of scores has no distribution."""
    return rows.any(rows.xp.isnan(x)) | rows.all(x == -INF)


def below_most(rows, x):
    """x minus the largest of its row, for what does not change if all scores move together; far scores count as -inf."""
    return x - rows.most(x)


def from_most(rows, x, there):
    """Half of x minus the largest of its row, so that it has a number, and 0 where it is not `there`."""
    top = rows.most(rows.xp.where(there, x, -INF))
    return rows.xp.where(there, x / 2 - rows.xp.where(top > -INF, top, 0.0) / 2, 0.0)


def divided(rows, x, divisor):
    """x / divisor. Infinite quotients, and those nearly so, have no part in the derivatives: their own would be infinite, and 0
    times them NaN."""
    quotient = rows.constant(x / divisor)
    there = rows.xp.abs(quotient) < 1e-8 * float(rows.xp.finfo(quotient.dtype).max)
    return rows.xp.where(there, rows.xp.where(there, x, 0.0) / divisor, quotient)


def carried(rows, p, v):
    """v where p has mass, otherwise 0; where p is NaN, NaN with derivatives that are NaN."""
    return rows.xp.where(p == 0, 0.0, v * (p * 0 + 1))


def or_nan(rows, value, valid, *inputs):
    """value; if not valid, NaN with NaN derivatives in the inputs."""
    wrong = rows.xp.where(valid, 1.0, math.nan)
    return rows.xp.where(valid, value, sum(x * wrong for x in inputs if x is not None))


def log_or_0(rows, p):
    """log p, 0 where p is not above 0, so that no derivative of it is infinite."""
    return rows.log(rows.xp.where(p > 0, p, 1.0))


def entropy(rows, p):
    return -rows.dot(p, log_or_0(rows, p))


def minus_size(rows, x):
    """-|x|, with a derivative at 0 that is that of one side: torch's is 0, and of log_sigmoid it would be wrong."""
    return rows.xp.where(x < 0, x, -x)


def log_sigmoid(rows, x):
    return rows.xp.where(x < 0, x, 0.0) - rows.xp.log1p(rows.exp(minus_size(rows, x)))


# (e^y - 1) / y and what it goes on with, by series near 0.


def mean_exp(rows, y):
    """(e^y - 1) / y, the mean of e^(uy) over u from 0 to 1."""
    return _by_series(rows, y, 1, lambda z: rows.xp.expm1(z) / z, lambda k: math.factorial(k + 1))


def mean_exp_slope(rows, y):
    """Its derivative, (y e^y - e^y + 1) / y^2."""

    def far(z):
        return (z * rows.exp(z) - rows.xp.expm1(z)) / (z * z)

    return _by_series(rows, y, 1, far, lambda k: math.factorial(k) * (k + 2))


def second_rest(rows, y):
    """2 (e^y - 1 - y) / y^2."""
    return _by_series(rows, y, 1, lambda z: 2 * (rows.exp(z) - 1 - z) / (z * z), lambda k: math.factorial(k + 2) / 2)


def log1p_over(rows, y):
    """log(1 + y) / y."""
    return _by_series(rows, y, 2**-6, lambda z: rows.xp.log1p(z) / z, lambda k: (-1) ** k * (k + 1))


def _by_series(rows, y, radius, far, divisor):
    """far(y), and within the radius sum_k y^k / divisor(k)."""
    near = rows.xp.abs(y) < radius
    inner, series = rows.xp.where(near, y, 0.0), rows.xp.ones_like(y)
    for k in range(19, 0, -1):  # by quotients of terms: ONNX's exporter takes a term below 1e-8 for 0
        series = 1 + series * inner * (divisor(k - 1) / divisor(k))
    series = series / divisor(0)
    return rows.xp.where(near, series, far(rows.xp.where(near, 1.0, y)))
