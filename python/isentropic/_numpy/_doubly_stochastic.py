"""Doubly stochastic tables of arrays."""

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert


def numbers(name, temperature, iterations, tolerance):
    """The parameters as _core takes them, checked in their types."""
    temperature = _checks.number(name, "temperature", temperature)
    if iterations is None:
        return temperature, 0, None if tolerance is None else _checks.number(name, "tolerance", tolerance)
    iterations = _checks.integer(name, "iterations", iterations, "an integer or None")
    if iterations < 1:
        raise ValueError(f"{name}: iterations must be at least 1, or None for the limit, got {iterations}")
    if tolerance is not None:
        raise ValueError(f"{name}: tolerance must not be given beside iterations, got {tolerance!r}")
    return temperature, iterations, None


def _tables(name, argument, x):
    values, dtype = _convert.to_wide_floats(name, argument, _convert.to_numpy(name, argument, x))
    if values.ndim < 2:
        raise ValueError(f"{name}: {argument} must have at least two axes, rows and columns, got shape {values.shape}")
    return np.ascontiguousarray(values), dtype


@documented
def doubly_stochastic(x, *, temperature=1.0, iterations=None, tolerance=None):
    """
    x: Scores, of shape (..., n, m): rows and columns of tables; -inf is an entry of 0. Never changed.
    temperature (float above 0): Divides the scores.
    iterations (int at least 1, or None): How often rows, then columns, are scaled to their sums. None: until the sums are
        reached.
    tolerance (float above 0, or None): Without iterations: the largest error of the logarithm of a row's sum; None means 1e-6.
        The sums of columns are exact up to rounding.
    Returns: Tables of the kind, shape and dtype of x; float64 if x is a list or has integers or bools. Without iterations an
        entry that no table with these zeros and sums can use is 0. A table without such a solution is NaN, as is one with NaN,
        +inf, or a row or column of only -inf; no other table changes.
    Raises: A parameter is out of its range, x has fewer than two axes, both iterations and tolerance are given.
    Notes: Computed in float64. Where sweeps are slow, Newton's method finds the limit.
    >>> isentropic.doubly_stochastic([[2.0, 0.0], [1.0, 0.0]]).round(3)
    array([[0.622, 0.378],
           [0.378, 0.622]])
    """
    name = "doubly_stochastic"
    params = numbers(name, temperature, iterations, tolerance)
    values, dtype = _tables(name, "x", x)
    y = np.empty_like(values)
    _core.doubly_stochastic(values, y, params)
    return _convert.of_entries(x, _convert.cast(y, dtype))


@documented
def doubly_stochastic_vjp(x, y, grad, *, temperature=1.0, iterations=None, tolerance=None):
    """
    The gradient of <doubly_stochastic(x), grad> in x.

    x, y, grad: Scores, their doubly_stochastic, and the incoming gradient, of x's shape.
    temperature (float above 0): As in doubly_stochastic, like iterations and tolerance.
    Returns: Of the kind, shape and dtype of x. With iterations it is the gradient of these iterations, computed from x. Without
        them it is the gradient of the limit, by the implicit function theorem, computed from y: y (grad - u_i - v_j) /
        temperature, with u and v such that its rows and columns sum to 0.
    Raises: As doubly_stochastic; shapes differ.
    >>> x = [[2.0, 0.0], [1.0, 0.0]]
    >>> isentropic.doubly_stochastic_vjp(x, isentropic.doubly_stochastic(x), [[1.0, 0.0], [0.0, 0.0]]).round(3)
    array([[ 0.118, -0.118],
           [-0.118,  0.118]])
    """
    name = "doubly_stochastic_vjp"
    params = numbers(name, temperature, iterations, tolerance)
    values, dtype = _tables(name, "x", x)
    others = []
    for argument, one in (("y", y), ("grad", grad)):
        array, _ = _tables(name, argument, one)
        if array.shape != values.shape:
            raise ValueError(f"{name}: {argument} must have the shape of x, {values.shape}, got {array.shape}")
        others.append(_convert.cast(array, values.dtype))
    dx = np.empty_like(values)
    _core.doubly_stochastic_vjp(values, *others, dx, params)
    return _convert.of_entries(x, _convert.cast(dx, dtype))
