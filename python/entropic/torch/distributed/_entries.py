"""Functions of arrays that do not depend on an entry's place or on the other parts."""

import numpy as np

from entropic import _core


def exponential(a):
    y = np.empty_like(a)
    _core.exponentials(a.reshape(-1), y.reshape(-1))
    return y


def logarithm(a):
    y = np.empty_like(a)
    _core.logarithms(np.ascontiguousarray(a).reshape(-1), y.reshape(-1))
    return y


def terms_of(function, *arrays):
    y = np.empty_like(arrays[0])
    function(*(np.ascontiguousarray(a).reshape(-1) for a in arrays), y.reshape(-1))
    return y


def masked(condition, values):
    return np.where(condition, values, 0.0)


def relative(x, top, temperature):
    """(x - top) / temperature in float64, also where the difference of finite scores leaves the range."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        below = wide - top
        halves = 2 * ((0.5 * wide - 0.5 * top) / temperature)
        return np.where(np.isinf(below) & np.isfinite(wide) & np.isfinite(top), halves, below / temperature)


def by_largest(top, dx):
    """The gradient of whole rows by their largest scores: 0 where that is +inf, NaN where there is no distribution."""
    dx = np.where(top == np.inf, 0.0, dx)
    return np.where(np.isnan(top) | (top == -np.inf), np.nan, dx)
