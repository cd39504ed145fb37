"""Optimal transport: exact, along a line, with entropy, and its dual."""

import math
from typing import Any, NamedTuple

import numpy as np

from entropic import _arrays, _core

STATUS = np.array(_core.transport_status_names)


class TransportResult(NamedTuple):
    """What optimal_transport found: the cost and what proves it."""

    cost: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    status: Any


class _Together:
    """Several arrays in one type to compute in, leading axes broadcast, and the way back to the kind of the first array."""

    def __init__(self, function, **arrays):
        self.function = function
        self.given, dtypes = {}, []
        for argument, x in arrays.items():
            values, dtype = _arrays._to_floats(function, argument, _arrays._to_numpy(function, argument, x))
            self.given[argument] = values
            dtypes.append(dtype)
        self.kind = next((x for x in arrays.values() if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray)), None)
        self.dtype = np.result_type(*dtypes)
        self.half = any(dtype == _arrays.FLOAT16 for dtype in dtypes)
        self.computed = np.result_type(self.dtype, np.float32)

    def check_axes(self, **least):
        for argument, count in least.items():
            if self.given[argument].ndim < count:
                axes = "axis" if count == 1 else "axes"
                raise ValueError(
                    f"{self.function}: {argument} must have at least {count} {axes}, got shape {self.given[argument].shape}"
                )

    def lead(self, **own):
        """The leading axes of all arguments, of which the last `own` axes are not."""
        shapes = {argument: self.given[argument].shape[: self.given[argument].ndim - count] for argument, count in own.items()}
        try:
            return np.broadcast_shapes(*shapes.values())
        except ValueError:
            raise ValueError(
                f"{self.function}: the leading axes of {', '.join(own)} must broadcast, got shapes "
                + ", ".join(str(self.given[argument].shape) for argument in own)
            ) from None

    def rows(self, argument, lead=None, own=1):
        """The argument as a matrix without gaps, its last axis along rows."""
        values = self.given[argument]
        if lead is not None:
            values = np.broadcast_to(values, (*lead, *values.shape[values.ndim - own :]))
        values = np.require(values, self.computed, ["C", "A"])
        return values.reshape(math.prod(values.shape[:-1]), values.shape[-1])

    def back(self, values, shape):
        values = _arrays._cast(values.reshape(shape), self.dtype)
        return _arrays._number_or_array(values if self.kind is None else _arrays._same_kind(self.kind, values))


def optimal_transport(a, b, cost, *, mass_tolerance=None):
    """The cheapest plan that moves the masses a to the masses b, exactly, and the potentials that prove it.

        min <P, C> over P >= 0 with row sums a and column sums b = max <a, f> + <b, g> over f_i + g_j <= C_ij

    Parameters
    ----------
    a : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Masses of shape (..., n): finite, at least 0, with a sum above 0 that need not be 1. Never changed, as b and cost.
    b : array
        Masses of shape (..., m), their sum a's. It is scaled to it.
    cost : array
        Of shape (..., n, m); inf forbids an arc, negative costs are allowed. Leading axes of all three broadcast: each
        combination is a problem of its own, and problems are shared out over threads.
    mass_tolerance : float from 0 to 1, or None, default None
        How far the sums of a and b may differ, relative to the larger; 1e-6, for float32 1e-4, for float16 1e-2.

    Returns
    -------
    TransportResult
        A named tuple. cost, <P, C>; plan, P, of shape (..., n, m); f (..., n) and g (..., m), potentials with
        f_i + g_j <= C_ij, centred to <a, f> = <b, g>; gap, cost - <a, f> - <b, g> >= 0: how far from the optimum cost may
        be. These in the kind of array given and the widest of their dtypes. status, an array of strings: "optimal".

    Raises
    ------
    ValueError
        A problem is infeasible: every plan needs a forbidden arc. A mass is negative, NaN or infinite, a cost NaN or
        -inf, sums differ, shapes do not fit. The message names problem and entry.
    TypeError
        An array is masked, of complex numbers or no numbers at all, on another device or requires grad.

    Notes
    -----
    The gap is at most 1e-9 times the largest finite cost that carries mass, times the sum of a, whatever the scale of the
    costs between 1e-300 and 1e300. Masses enter as whole multiples of about 1e-30 of their sum, so that plans of degenerate
    problems are exact: uniform masses of equal number give a permutation.
    plan is the gradient of cost in C, f and g are those in a and b up to a constant.
    Method: network simplex (Dantzig 1951) with strongly feasible trees (Cunningham 1976). It runs on the matrix itself and
    needs no further memory that grows with n m.

    Examples
    --------
    >>> result = entropic.optimal_transport([0.5, 0.5], [0.25, 0.75], [[0.0, 1.0], [2.0, 0.0]])
    >>> float(result.cost), result.plan
    (0.25, array([[0.25, 0.25],
           [0.  , 0.5 ]]))
    """
    name = "optimal_transport"
    arrays = _Together(name, a=a, b=b, cost=cost)
    arrays.check_axes(a=1, b=1, cost=2)
    n, m = arrays.given["a"].shape[-1], arrays.given["b"].shape[-1]
    if arrays.given["cost"].shape[-2:] != (n, m):
        raise ValueError(f"{name}: cost must have shape (..., {n}, {m}) for these a and b, got {arrays.given['cost'].shape}")
    lead = arrays.lead(a=1, b=1, cost=2)
    problems = math.prod(lead)
    one_cost = math.prod(arrays.given["cost"].shape[:-2]) == 1
    computed = arrays.computed
    plan = np.empty((problems * n, m), computed)
    f, g = np.empty((problems, n), computed), np.empty((problems, m), computed)
    costs, gaps, status = np.empty(problems), np.empty(problems), np.empty(problems, np.uint8)
    if mass_tolerance is None and arrays.half:
        mass_tolerance = 1e-2
    costs_given = arrays.rows("cost", None if one_cost else lead, 2)
    _core.optimal_transport(
        arrays.rows("a", lead), arrays.rows("b", lead), costs_given, plan, f, g, costs, gaps, status, (mass_tolerance,)
    )
    infeasible = np.flatnonzero(status == 1)
    if len(infeasible):
        at = tuple(map(int, np.unravel_index(infeasible[0], lead)))
        where = f" in problem {at[0] if len(at) == 1 else at}" if at else ""
        raise ValueError(f"{name}: infeasible, every plan needs an arc of cost inf{where}")
    return TransportResult(
        arrays.back(costs, lead),
        arrays.back(plan, (*lead, n, m)),
        arrays.back(f, (*lead, n)),
        arrays.back(g, (*lead, m)),
        arrays.back(gaps, lead),
        STATUS[status].reshape(lead)[()],
    )
