"""Measures of distributions: how uncertain one is, how far two are apart, what two variables know of each other."""

import math
from dataclasses import dataclass

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import MEASURES, names_per_row
from isentropic._numpy import _containers, _convert, _device, _layout
from isentropic._numpy._convert import FLOAT32, FLOAT64

ndarray = np.ndarray
empty, empty_like = np.empty, np.empty_like


@dataclass(frozen=True, slots=True)
class Kernel:
    """A measure's function in _core, and its name for errors."""

    name: str
    run: object
    param_run: object
    per_row: tuple = ()  # as in _maps.Kernels


def of_one(operation, p, axis, return_grad, params, param_grad=False):
    if type(p) is ndarray and type(axis) is int and axis == -1 and not param_grad:
        dtype, lead = p.dtype, p.shape[:-1]
        if dtype is FLOAT32 or dtype is FLOAT64:
            value = empty(lead, dtype)
            dp = empty_like(p) if return_grad else None
            operation.run(p, value, dp, axis, params)
            value = value if lead else value[()]
            return (value, dp) if return_grad else value

    _checks.flag(operation.name, "param_grad", param_grad)
    if _containers.is_container(p):
        if param_grad or any(name and np.ndim(value) > 0 for name, value in zip(operation.per_row, params, strict=True)):
            raise TypeError(f"{operation.name}: for arrays of Dask and xarray a parameter is one value and has no gradient")
        results = [False, True] if return_grad else [False]

        def of_blocks(p, params):
            return of_one(operation, p, -1, return_grad, params)

        return _containers.along(operation.name, of_blocks, [(p, True)], results, axis, params)
    if _device.holds(p):
        named = zip(operation.per_row, params, strict=True)
        asked = [param for param, given in named if param and given is not None and param_grad]
        value, gradients, slopes = _device.measure_of(operation.name, (p,), axis, params, asked, return_grad)
        return _layout.packed(value, gradients, slopes if param_grad else None)
    rows = _layout.Along(operation.name, "p", p, axis, halves=True)
    value = empty(rows.lead)
    dp = empty_like(rows.values) if return_grad else None
    named = zip(operation.per_row, params, strict=True)
    asked = [(param, empty(rows.lead)) for param, given in named if param and given is not None and param_grad]
    operation.param_run(rows.values, value, dp, rows.axis, params, asked)
    gradients = [rows.back(dp)] if return_grad else []
    slopes = [rows.measured(slope) for _, slope in asked] if param_grad else None
    return _layout.packed(rows.measured(value), gradients, slopes)


def of_two(operation, p, q, axis, return_grad, params):
    if type(p) is ndarray and type(q) is ndarray and type(axis) is int and axis == -1:
        dtype, shape = p.dtype, p.shape
        if (dtype is FLOAT32 or dtype is FLOAT64) and q.dtype is dtype and q.shape == shape:
            lead = shape[:-1]
            value = empty(lead, dtype)
            gradients = (empty_like(p), empty_like(q)) if return_grad else (None, None)
            operation.run(p, q, value, *gradients, axis, params)
            value = value if lead else value[()]
            return (value, *gradients) if return_grad else value

    name = operation.name
    if _containers.is_container(p) or _containers.is_container(q):
        results = [False, True, True] if return_grad else [False]
        arrays = [(p, True), (q, True)] if np.ndim(p) >= np.ndim(q) else [(q, True), (p, True)]
        swap = slice(None, None, 1 if arrays[0][0] is p else -1)

        def of_blocks(a, b, params):
            return of_two(operation, *(a, b)[swap], -1, return_grad, params)

        return _containers.along(name, of_blocks, arrays, results, axis, params)
    if _device.holds(p):
        value, gradients, _ = _device.measure_of(name, (p, q), axis, params, (), return_grad)
        return (value, *gradients) if return_grad else value
    given = [_convert.to_numpy(name, argument, x) for argument, x in (("p", p), ("q", q))]
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
    like = q if isinstance(p, (list, tuple, int, float)) else p
    first, second = (np.broadcast_to(_convert.cast(array, dtype), shape) for array in (first, second))
    rows = _layout.Along(name, "p", first, position, halves=True, like=like)
    value = empty(rows.lead)
    gradients = [empty(shape, rows.values.dtype) if return_grad else None for _ in range(2)]
    operation.run(rows.values, second, value, *gradients, rows.axis, params)
    return (rows.measured(value), *map(rows.back, gradients)) if return_grad else rows.measured(value)


def of_table(operation, pxy, return_grad, params):
    name = operation.name
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


KERNELS = {name: Kernel(name, one["run"], one["param_run"], names_per_row(one)) for name, one in MEASURES.items()}
