"""soft_top_k of arrays."""

import array_api_compat.numpy as xp
import numpy as np

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _layout
from isentropic.formulas import Rows
from isentropic.formulas.soft_top_k import soft_top_k as formula
from isentropic.formulas.soft_top_k import soft_top_k_vjp as pulled

_ROWS = Rows(xp)


def _numbers(name, argument, value, rows):
    """One number for each row."""
    array = np.asarray(value)
    if array.ndim == 0:
        array = np.asarray(_checks.number(name, argument, value))
    elif not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise TypeError(f"{name}: {argument} must be a number or an array of numbers, got dtype {array.dtype}")
    array = array.astype(np.float64)
    shape = [1 if axis == rows.axis else size for axis, size in enumerate(rows.shape)]
    try:
        array = np.broadcast_to(array, shape).reshape(-1, 1)
    except ValueError:
        raise ValueError(f"{name}: {argument} must broadcast to {tuple(shape)}, got shape {array.shape}") from None
    wrong = ~(array > 0) | ((argument == "temperature") & np.isinf(array))
    if wrong.any():
        row = int(np.argmax(wrong))
        where = "" if np.ndim(value) == 0 else rows.index(row, "in")
        end = " and finite" if argument == "temperature" else ""
        raise ValueError(f"{name}: {argument} must be above 0{end}, got {array[row, 0]}{where}")
    return array


@documented
def soft_top_k(x, *, k, temperature=1.0, axis=-1):
    """
    A smooth choice of the k largest scores: each gets a number between 0 and 1, and they add up to k.

        p_i = s((x_i - tau) / temperature), s(v) = 1 / (1 + exp(-v)), tau such that sum p = k

    x: Scores, of any shape with at least one axis; -inf counts as absent. Never changed.
    k (float or array, above 0): How many; it need not be a whole number. An array gives each row its own; it broadcasts with x
        and has size 1 along axis.
    temperature (float or array, above 0 and finite): The smaller, the nearer p is to 0 and 1.
    Returns: Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools. Where k is at least the number
        of finite scores, these get 1. Scores of +inf get 1, and share k if they are more; a row with NaN gives NaN.
    Raises: k or temperature is out of its range.
    Notes: p is the largest <p, x> + T sum_i H(p_i) with H(p) = -p log p - (1 - p) log(1 - p), over all p between 0 and 1 that
        add up to k. Computed in float64.
    Source: Amos, Koltun, Kolter, The Limited Multi-Label Projection Layer, 2019.
    >>> isentropic.soft_top_k([3.0, 1.0, 0.0, -2.0], k=2.0).round(3)
    array([0.924, 0.622, 0.378, 0.076])
    """
    rows = _layout.Rows("soft_top_k", "x", x, axis, halves=True)
    values = [_numbers("soft_top_k", key, one, rows) for key, one in (("k", k), ("temperature", temperature))]
    if 0 in rows.values.shape:
        return rows.back(rows.values)
    with np.errstate(all="ignore"):
        return rows.back(formula(_ROWS, rows.values.astype(np.float64), *values))


@documented
def soft_top_k_vjp(x, y, grad, *, k, temperature=1.0, axis=-1):
    """
    The gradient of <soft_top_k(x), grad> in x.

        w (g - <w, g> / sum w), w = y (1 - y) / temperature

    x, y, grad: Scores, soft_top_k of them, and the incoming gradient, of x's shape.
    k (float or array, above 0): As in soft_top_k.
    temperature (float or array, above 0 and finite): As in soft_top_k.
    Returns: Of the kind, shape and dtype of x; 0 where y is 0 or 1.
    Raises: Shapes differ, k or temperature is out of its range.
    >>> x = [3.0, 1.0, 0.0, -2.0]
    >>> isentropic.soft_top_k_vjp(x, isentropic.soft_top_k(x, k=2), [1.0, 0.0, 0.0, 0.0], k=2).round(3)
    array([ 0.062, -0.027, -0.027, -0.008])
    """
    name = "soft_top_k_vjp"
    rows = _layout.Rows(name, "x", x, axis, halves=True)
    others = [_layout.Rows(name, argument, one, axis, halves=True) for argument, one in (("y", y), ("grad", grad))]
    for argument, one in zip(("y", "grad"), others, strict=True):
        if one.shape != rows.shape:
            raise ValueError(f"{name}: {argument} must have the shape of x, {rows.shape}, got {one.shape}")
    _, heat = (_numbers(name, key, one, rows) for key, one in (("k", k), ("temperature", temperature)))
    with np.errstate(all="ignore"):
        return rows.back(pulled(_ROWS, *(one.values.astype(np.float64) for one in others), heat))
