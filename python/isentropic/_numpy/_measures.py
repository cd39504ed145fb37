"""Measures of distributions: how uncertain one is, how far two are apart, what two variables know of each other."""

import math
from dataclasses import dataclass

import array_api_compat.numpy
import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import MEASURES, OF_CLASSES, inputs_of_two, names_per_row, no_distribution, said_of_pair, several
from isentropic._numpy import _containers, _convert, _device, _layout, _names
from isentropic._numpy._convert import FLOAT32, FLOAT64
from isentropic.formulas import Rows
from isentropic.formulas.measures import logarithms

ndarray = np.ndarray
empty, empty_like = np.empty, np.empty_like
ROWS = Rows(array_api_compat.numpy)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A measure's function in _core, and its name for errors."""

    name: str
    run: object
    param_run: object
    per_row: tuple = ()  # as in _maps.Kernels
    several: int | None = None  # the place of the parameter of which an array gives several results
    input: int | None = None  # the place of the kind of input


def _of_several(operation, p, axis, return_grad, params):
    """The results for each of the values of a parameter, in one more last axis."""
    at, name = operation.several, operation.name
    which = MEASURES[name]["params"][at]["name"]
    given = _checks.each_number(name, which, params[at])
    if _containers.is_container(p):
        raise ValueError(f"{name}: {which} must be a number or, unless p is lazy or labelled, a list, got {given}")
    array = _convert.to_numpy(name, "p", p)
    found = [of_one(operation, array, axis, True, (*params[:at], one, *params[at + 1 :])) for one in given]
    value, dp = (_convert.same_kind(p, np.stack(each, -1)) for each in zip(*found, strict=True))
    return (value, dp) if return_grad else value


def _refuse_rows(operation, params, param_grad):
    if param_grad or any(name and np.ndim(value) > 0 for name, value in zip(operation.per_row, params, strict=True)):
        raise TypeError(f"{operation.name}: for arrays of Dask and xarray a parameter is one value and has no gradient")


def _learned(operation, params, param_grad):
    """The parameters in which a gradient is asked for."""
    named = zip(operation.per_row, params, strict=True)
    return [param for param, given in named if param and given is not None and param_grad]


def of_one(operation, p, axis, return_grad, params, param_grad=False):
    if return_grad is not False:
        _checks.flag(operation.name, "return_grad", return_grad)
    if operation.several is not None and np.ndim(params[operation.several]):
        return _of_several(operation, p, axis, return_grad, params)
    if type(p) is ndarray and type(axis) is int and axis == -1 and param_grad is False:
        dtype, lead = p.dtype, p.shape[:-1]
        if dtype is FLOAT32 or dtype is FLOAT64:
            value = empty(lead, dtype)
            dp = empty_like(p) if return_grad else None
            operation.run(p, value, dp, axis, params)
            value = value if lead else value[()]
            return (value, dp) if return_grad else value

    _checks.flag(operation.name, "param_grad", param_grad)
    if _containers.is_container(p):
        _refuse_rows(operation, params, param_grad)
        results = [False, True] if return_grad else [False]

        def of_blocks(p, params):
            return of_one(operation, p, -1, return_grad, params)

        return _containers.along(operation.name, of_blocks, [(p, True)], results, axis, params)
    learned = _learned(operation, params, param_grad)
    if _device.holds(p):
        value, gradients, slopes = _device.measure_of(operation.name, (p,), axis, params, learned, return_grad)
        return _layout.packed(value, gradients, slopes if param_grad else None)
    rows = _layout.Along(operation.name, "p", p, axis, halves=True)
    value = empty(rows.lead)
    dp = empty_like(rows.values) if return_grad else None
    asked = [(param, empty(rows.lead)) for param in learned]
    operation.param_run(rows.values, value, dp, rows.axis, params, asked)
    gradients = [rows.back(dp)] if return_grad else []
    slopes = [rows.measured(slope) for _, slope in asked] if param_grad else None
    return _layout.packed(rows.measured(value), gradients, slopes)


def of_two(operation, p, q, axis, return_grad, params, param_grad=False):
    if return_grad is not False:
        _checks.flag(operation.name, "return_grad", return_grad)
    kind = params[operation.input]
    if (
        type(kind) is str
        and type(p) is ndarray
        and type(q) is ndarray
        and type(axis) is int
        and axis == -1
        and param_grad is False
    ):
        dtype, shape = p.dtype, p.shape
        if (dtype is FLOAT32 or dtype is FLOAT64) and q.dtype is dtype and q.shape == shape:
            lead = shape[:-1]
            value = empty(lead, dtype)
            gradients = (empty_like(p), empty_like(q)) if return_grad else (None, None)
            operation.run(p, q, value, *gradients, axis, params)
            value = value if lead else value[()]
            return (value, *gradients) if return_grad else value

    name = operation.name
    _checks.flag(name, "param_grad", param_grad)
    kind, pair = inputs_of_two(MEASURES[name], kind)
    params = (*params[: operation.input], kind, *params[operation.input + 1 :])
    if pair is not None and any(_containers.is_container(x) or _device.holds(x) for x in (p, q)):
        raise TypeError(f"{name}: input must be one kind for arrays of Dask, xarray and a GPU's memory, got a pair")
    if _containers.is_container(p) or _containers.is_container(q):
        _refuse_rows(operation, params, param_grad)
        results = [False, True, True] if return_grad else [False]
        arrays = [(p, True), (q, True)] if np.ndim(p) >= np.ndim(q) else [(q, True), (p, True)]
        swap = slice(None, None, 1 if arrays[0][0] is p else -1)

        def of_blocks(a, b, params):
            return of_two(operation, *(a, b)[swap], -1, return_grad, params)

        return _containers.along(name, of_blocks, arrays, results, axis, params)
    learned = _learned(operation, params, param_grad)
    if _device.holds(p):
        value, gradients, slopes = _device.measure_of(name, (p, q), axis, params, learned, return_grad)
        return _layout.packed(value, gradients if return_grad else [], slopes if param_grad else None)
    given = [_convert.to_numpy(name, argument, x) for argument, x in (("p", p), ("q", q))]
    if name in OF_CLASSES:
        _refuse_classes(name, *given)
    (first, p_type), (second, q_type) = (
        _convert.to_floats(name, argument, array) for argument, array in zip("pq", given, strict=True)
    )
    # A list or integers take the type of the other.
    if isinstance(p, (list, tuple)) or given[0].dtype.kind in "biu":
        p_type = q_type
    elif isinstance(q, (list, tuple)) or given[1].dtype.kind in "biu":
        q_type = p_type
    dtype = np.promote_types(p_type, q_type)
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ValueError(
            f"{name}: q must have a shape that broadcasts with that of p, {first.shape}, got {second.shape}"
        ) from None
    if not shape:
        raise ValueError(f"{name}: p must have at least one axis, got a single number")
    position = _core.normalize_axis(name, axis, len(shape))
    for argument, array in (("p", first), ("q", second)):
        before_end = len(shape) - position
        size = array.shape[-before_end] if array.ndim >= before_end else 1
        if size != shape[position]:
            raise ValueError(f"{name}: {argument} must have {shape[position]} entries along axis {position}, got {size}")
    _names.check_order(name, ("p", p, position - len(shape)), ("q", q, position - len(shape)))
    like = q if isinstance(p, (list, tuple, int, float)) else p
    first, second = (np.broadcast_to(_convert.cast(array, dtype), shape) for array in (first, second))
    rows = _layout.Along(name, "p", first, position, halves=True, like=like)
    value = empty(rows.lead)
    gradients = [empty(shape, rows.values.dtype) if return_grad else None for _ in range(2)]
    asked = [(param, empty(rows.lead)) for param in learned]
    if pair is None:
        operation.param_run(rows.values, second, value, *gradients, rows.axis, params, asked)
    else:
        _of_pair(operation, pair, (rows.values, second), value, gradients, rows.axis, params, asked)
    slopes = [rows.measured(slope) for _, slope in asked] if param_grad else None
    return _layout.packed(rows.measured(value), map(rows.back, gradients) if return_grad else [], slopes)


def _refuse_classes(name, p, q):
    """Refuses a class for each row in place of a distribution; whole numbers that are one are 0 and 1."""
    for argument, one, other in (("p", p, q), ("q", q, p)):
        beside = one.dtype.kind in "iu" and one.ndim == other.ndim - 1 and one.size
        if beside and (one.shape[-1:] != other.shape[-1:] or one.max() > 1):
            raise no_distribution(name, argument, f"integers of shape {one.shape}")


def _of_pair(operation, pair, arrays, value, gradients, axis, params, asked):
    """The results for p and q of different kinds, by their logarithms."""
    name, logs, lost = operation.name, [], np.zeros(value.shape, bool)
    for argument, x, holds in zip("pq", arrays, pair, strict=True):
        # Without gaps: the order of NumPy's sums depends on the layout.
        wide = np.ascontiguousarray(np.moveaxis(x, axis, -1), np.float32 if x.dtype == np.float16 else x.dtype)
        if holds == "probs" and not ((wide >= 0) & (wide < math.inf)).all():
            *row, entry = map(int, np.argwhere(~((wide >= 0) & (wide < math.inf)))[0])
            wrong = f"{argument} must be at least 0 and finite, got {wide[(*row, entry)]}"
            raise ValueError(f"{name}: {wrong} at entry {entry}{_checks.place('of row', row)}")
        log, none = logarithms(ROWS, wide, holds)
        logs.append(np.moveaxis(log, -1, axis))
        lost |= none[..., 0]
    found = [None if one is None else np.empty(one.shape, log.dtype) for one in gradients]
    try:
        operation.param_run(*logs, value, *found, axis, params, asked)
    except ValueError as error:
        raise said_of_pair(pair, error) from None
    for numbers in (value, *(slope for _, slope in asked)):
        numbers[lost] = math.nan
    for x, holds, log, slope, gradient in zip(arrays, pair, logs, found, gradients, strict=True):
        if gradient is None:
            continue
        if holds == "probs":
            slope = np.divide(slope, x, out=np.zeros_like(slope), where=x > 0)
        elif holds == "scores":
            slope = np.where(x == math.inf, 0, slope - np.exp(log) * slope.sum(axis, keepdims=True))
        gradient[...] = np.where(np.expand_dims(lost, axis), math.nan, slope)


def refuse_labels(name, argument, table):
    """Refuses a frame of two columns of labels, which is not a table."""
    if not type(table).__module__.startswith(("pandas", "polars")) or getattr(table, "ndim", 2) != 2 or table.shape[1] != 2:
        return
    if any(str(kind).lower().startswith(("float", "double")) for kind in table.dtypes):
        return
    if getattr(table.columns, "name", None) is not None:  # of pandas.crosstab
        return
    first, second = table.columns
    raise ValueError(
        f"{name}: {argument} is a frame of two columns, which may be labels: mutual_information_of_labels takes {first!r} and "
        f"{second!r}, and {argument}.to_numpy() is a table"
    )


def of_table(operation, pxy, return_grad, params):
    name = operation.name
    _checks.flag(name, "return_grad", return_grad)
    refuse_labels(name, "pxy", pxy)
    values, dtype = _convert.to_floats(name, "pxy", _convert.to_numpy(name, "pxy", pxy))
    if values.ndim < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {values.shape}")
    lead = values.shape[:-2]
    tables = np.ascontiguousarray(values).reshape(math.prod(lead), *values.shape[-2:])
    value = np.empty(len(tables))
    dp = np.empty_like(tables) if return_grad else None
    operation.run(tables, value, dp, params)
    result = _convert.number_or_array(_convert.same_kind(pxy, _convert.cast(value.reshape(lead), _convert.of_value(dtype))))
    return (result, _convert.same_kind(pxy, _convert.cast(dp.reshape(values.shape), dtype))) if return_grad else result


def of_entries(operation, p, axis, return_grad, params):
    if return_grad is not False:
        _checks.flag(operation.name, "return_grad", return_grad)
    if _containers.is_container(p):
        results = [True, True] if return_grad else [True]
        return _containers.along(
            operation.name,
            lambda p, params: of_entries(operation, p, -1, return_grad, params),
            [(p, True)],
            results,
            axis,
            params,
        )
    array = _convert.to_numpy(operation.name, "p", p)
    rows = _layout.Along(operation.name, "p", array if array.ndim else array.reshape(1), axis, like=p)
    value = empty_like(rows.values)
    dp = empty_like(rows.values) if return_grad else None
    operation.run(rows.values, value, dp, rows.axis, params)
    results = [rows.measured(value), rows.back(dp)] if return_grad else [rows.measured(value)]
    if array.ndim == 0:
        results = [_convert.number_or_array(result.reshape(())) for result in results]
    return tuple(results) if return_grad else results[0]


def _kernel(name, one):
    place = [param["name"] for param in one["params"]].index(several(one)) if several(one) else None
    names = [param["name"] for param in one["params"]]
    return Kernel(name, one["run"], one["param_run"], names_per_row(one), place, names.index("input"))


KERNELS = {name: _kernel(name, one) for name, one in MEASURES.items()}
