"""ratio_map: any non-negative function as a map."""

import numpy as np

from isentropic._descriptions import documented
from isentropic._numpy import _layout


@documented
def ratio_map(x, f, *, axis=-1):
    """
    Any non-negative function as a map: f of each score divided by the sum over the row.

        p_i = f(x_i) / sum_j f(x_j)

    x: Scores, of any shape with at least one axis. Never changed.
    f (callable): Takes a NumPy array of floats, of any shape, and returns as many numbers, at least 0: np.square, or your own
        function.
    Returns: Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools.
    Raises: f returns a negative number, NaN or inf for a finite score, only 0 for a row, or another shape.
    TypeError: An array is masked, complex or not numeric, is on another device, or requires grad; f is not callable.
    Notes: A row with NaN gives NaN; -inf scores count as absent; +inf scores share the mass; a row with only -inf gives NaN. A
        rising f keeps the order of the scores. Only with f = exp does adding a constant change nothing.
    >>> isentropic.ratio_map([1.0, 2.0, -1.0], np.square)
    array([0.16666667, 0.66666667, 0.16666667])
    """
    name = "ratio_map"
    if not callable(f):
        raise TypeError(f"{name}: f must be callable, got {type(f).__name__}")
    rows = _layout.Rows(name, "x", x, axis)
    scores = rows.values
    finite = np.isfinite(scores)
    weights = np.asarray(f(np.where(finite, scores, 0)))
    if weights.shape != scores.shape:
        raise ValueError(f"{name}: f must give an array of the shape that it gets, {scores.shape}, got {weights.shape}")
    weights = np.where(finite, weights, 0).astype(np.float64)
    bad = ~((weights >= 0) & (weights < np.inf))
    if bad.any():
        row, entry = np.argwhere(bad)[0]
        raise ValueError(
            f"{name}: f must be at least 0 and finite, got {weights[row, entry]} of {scores[row, entry]} at entry "
            f"{entry}{rows.index(row, 'in')}"
        )
    infinite = scores == np.inf
    weights = np.where(infinite.any(1, keepdims=True), infinite, weights)
    none = np.isnan(scores).any(1) | (scores == -np.inf).all(1)
    most = weights.max(1, initial=0)
    empty = (most == 0) & ~none & (scores.shape[1] > 0)
    if empty.any():
        raise ValueError(f"{name}: f must give a positive number somewhere, got only 0{rows.index(np.argmax(empty), 'in')}")
    weights /= np.where(most > 0, most, 1)[:, None]
    total = weights.sum(1, keepdims=True)
    p = np.where(none[:, None], np.nan, weights / np.where(total > 0, total, 1))
    return rows.back(p)
