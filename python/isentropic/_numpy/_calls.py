"""The functions of maps: they take any array and return the same kind; _core takes floating-point NumPy arrays.

Each function takes an operation (see _maps.Kernels) and first tries the common case, a plain array.
"""

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._numpy import _containers, _convert, _device
from isentropic._numpy._convert import FLOAT16, FLOAT32, FLOAT64

ndarray = np.ndarray
empty, empty_like = np.empty, np.empty_like
may_share_memory = np.may_share_memory


def run_map(operation, x, axis, out, params):
    """operation(x) in x's shape, written to out if given."""
    if type(x) is ndarray:
        dtype = x.dtype
        if dtype is FLOAT32 or dtype is FLOAT64 or dtype is FLOAT16:
            if out is None:
                y = empty(x.shape, dtype) if x.ndim == 1 else empty_like(x)  # empty is faster, and has no order
                operation.forward(x, y, axis, params)
                return y
            if out is x or (
                type(out) is ndarray and out.dtype is dtype and out.shape == x.shape and not may_share_memory(x, out)
            ):
                operation.forward(x, out, axis, params)
                return out

    name = operation.name
    if _containers.is_container(x):
        if out is not None:
            raise TypeError(f"{name}: out cannot be given for arrays of Dask or xarray, whose results are new")
        return _containers.along(
            name, lambda x, params: run_map(operation, x, -1, None, params), [(x, True)], [True], axis, params
        )
    if _device.holds(x):
        if out is not None:
            raise TypeError(f"{name}: out cannot be given for arrays of a GPU, whose results are new")
        return _device.map_of(name, x, axis, params)
    array = _convert.to_numpy(name, "x", x, bfloat16=True)
    values, dtype = _convert.to_floats(name, "x", array)
    if out is None:
        y = empty_like(values)
        operation.forward(values, y, axis, params)
        return _convert.of_entries(x, _convert.cast(y, dtype))
    target = _convert.writable(name, out, array.shape, dtype)
    if not _convert.same_memory(array, target) and may_share_memory(array, target):
        # The check is exact, within a limit of time.
        if may_share_memory(array, target, max_work=100_000):
            raise ValueError(f"{name}: out must be x itself or share no memory with it, got arrays that overlap in part")
        values = values.copy()  # interleaved arrays are legal, but the library does not take them
    y = target if target.dtype == values.dtype else empty_like(values)
    operation.forward(values, y, axis, params)
    if y is not target:
        with np.errstate(all="ignore"):
            target[...] = y
    return out


def run_reduction(operation, x, axis, keepdims, params):
    """operation(x), one number per row."""
    name = operation.name
    _checks.flag(name, "keepdims", keepdims)
    if _containers.is_container(x):

        def of_blocks(x, params):
            return run_reduction(operation, x, -1, False, params)

        y = _containers.along(name, of_blocks, [(x, True)], [False], axis, params)
        return _containers.with_axis(y, x, axis) if keepdims else y
    if _device.holds(x):
        return _device.map_of(name, x, axis, params, keepdims)
    values, dtype = _floats(name, "x", x)
    shape = list(values.shape)
    position = _core.normalize_axis(name, axis, values.ndim)
    if keepdims:
        shape[position] = 1
    else:
        del shape[position]
    y = np.empty(shape, values.dtype)
    operation.forward(values, y, axis, params)
    y = _convert.cast(y, dtype)
    return _convert.number_or_array(_convert.same_kind(x, y)) if keepdims else _convert.of_rows(x, y, position)


def run_vjp(operation, x, y, grad, axis, params):
    """J^T grad in x's shape."""
    if type(x) is ndarray and type(y) is ndarray and type(grad) is ndarray:
        dtype = x.dtype
        if (dtype is FLOAT32 or dtype is FLOAT64 or dtype is FLOAT16) and y.dtype is dtype and grad.dtype is dtype:
            dx = empty(x.shape, dtype) if x.ndim == 1 else empty_like(x)
            operation.vjp(x, y, grad, dx, axis, params)
            return dx
    if _containers.is_container(x):
        arrays = [(x, True), *((array, array.ndim == x.ndim) for array in (y, grad))]

        def of_blocks(x, y, grad, params):
            return run_vjp(operation, x, y, grad, -1, params)

        return _containers.along(operation.name + "_vjp", of_blocks, arrays, [True], axis, params)
    if _device.holds(x):
        return _device.vjp_of(operation.name, x, y, grad, axis, params)[0]

    values, others, dtype = _vjp_arrays(operation, x, y, grad, axis, params)
    dx = empty_like(values)
    operation.vjp(values, *others, dx, axis, params)
    return _convert.same_kind(x, _convert.cast(dx, dtype))


def run_param_vjp(operation, x, y, grad, axis, params, param_grad):
    """J^T grad, and the gradients in the parameters that param_grad names, one number per row."""
    names = _checks.asked_params(operation.name + "_vjp", operation.per_row, params, param_grad)
    if _device.holds(x):
        dx, slopes = _device.vjp_of(operation.name, x, y, grad, axis, params, names)
        return dx, slopes[0] if len(slopes) == 1 else tuple(slopes)
    values, others, dtype = _vjp_arrays(operation, x, y, grad, axis, params)
    dx = empty_like(values)
    shape = list(values.shape)
    del shape[_core.normalize_axis(operation.name + "_vjp", axis, values.ndim)]
    asked = tuple((name, np.empty(shape)) for name in names)
    operation.param_vjp(values, *others, dx, axis, params, asked)
    dparams = tuple(_convert.number_or_array(_convert.same_kind(x, _convert.cast(dparam, dtype))) for _, dparam in asked)
    return _convert.same_kind(x, _convert.cast(dx, dtype)), dparams[0] if len(dparams) == 1 else dparams


def _vjp_arrays(operation, x, y, grad, axis, params):
    """(x, [y, grad], dtype of the result), with arrays in the type of the computation."""
    name = operation.name + "_vjp"
    values, dtype = _floats(name, "x", x)
    given = _floats(name, "y", y)[0]
    others = [_convert.cast(array, values.dtype) for array in (given, _floats(name, "grad", grad)[0])]
    if (_convert.is_bfloat16(y) or given.dtype.itemsize < values.dtype.itemsize) and others[0].shape == values.shape:
        # Rounding has lost y's entropy and its small entries, as in the kernels of float16, which do the same.
        others[0] = empty_like(values)
        operation.forward(values, others[0], axis, params)
    return values, others, dtype


def _floats(name, argument, x):
    return _convert.to_floats(name, argument, _convert.to_numpy(name, argument, x, bfloat16=True))
