"""Functions of arrays that do not depend on an entry's place or on the other parts."""

import math

import numpy as np

import isentropic._core as _core


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


def rest_of_exponential(a):
    """e^a - 1 - a with a small relative error, for a of at most 1/2 in size."""
    series = np.full_like(a, 1 / math.factorial(17))
    for k in range(16, 1, -1):
        series *= a
        series += 1 / math.factorial(k)
    return series * (a * a)


def above_one(a):
    """e^a - 1 with a small relative error, for a of at most 1/2 in size."""
    return a + rest_of_exponential(a)


def logarithm_above_one(a):
    """log(1 + a) with a small relative error, for a of at most 1/2 in size."""
    whole = 1 + a  # with it, the error of the logarithm and that of whole - 1 cancel
    away = whole - 1
    return np.where(away == 0, a, logarithm(whole) * (a / np.where(away == 0, 1.0, away)))


def masked(condition, values):
    return np.where(condition, values, 0.0)


def _of_differences(x, top, multiple):
    """multiple(x - top) in float64, also where the difference of finite scores leaves the range."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        below = wide - top
        halves = 2 * multiple(0.5 * wide - 0.5 * top)
        return np.where(np.isinf(below) & np.isfinite(wide) & np.isfinite(top), halves, multiple(below))


def relative(x, top, temperature):
    """(x - top) / temperature."""
    return _of_differences(x, top, lambda z: z / temperature)


def scaled(x, top, gamma):
    """gamma (x - top), also where 1 / gamma leaves the range."""
    return _of_differences(x, top, lambda z: gamma * z)


def by_largest(top, dx):
    """The gradient of whole rows by their largest scores: 0 where that is +inf, NaN where there is no distribution."""
    dx = np.where(top == np.inf, 0.0, dx)
    return np.where(np.isnan(top) | (top == -np.inf), np.nan, dx)
