"""Arrays of Dask and xarray: the functions work on their blocks, when the array is computed, and keep coordinates."""

import numpy as np

import isentropic._core as _core


def is_container(x):
    return is_lazy(x) or _is_labelled(x)


def is_lazy(x):
    return type(x).__module__.startswith("dask.array")


def _is_labelled(x):
    return type(x).__module__.startswith("xarray") and type(x).__name__ == "DataArray"


def along(name, function, arrays, results, axis, params=()):
    """function(*arrays, params) on arrays that may be Dask arrays or DataArrays. Their rows are along axis, which becomes the
    last one for the function. `name` is the function's name for errors.

    `arrays` are pairs of an array and whether it has rows ("(i)") or one entry for each row ("()"); `results` says the same of
    what function returns. Params that are arrays have x's shape with 1 for axis, and are split with the rows.
    """
    x = arrays[0][0]
    if any(_is_labelled(array) for array, _ in arrays):
        return _labelled(name, function, arrays, results, axis, params)
    axis = _core.normalize_axis(name, axis, x.ndim)
    run = _lazy if any(is_lazy(array) for array, _ in arrays) else _at_once
    return run(function, arrays, results, axis, params)


def with_axis(y, x, axis):
    """One number for each row of x, with an axis of size 1 instead of the row's axis."""
    axis = x.get_axis_num(axis) if isinstance(axis, str) else axis % x.ndim
    if _is_labelled(x):
        return y.expand_dims(x.dims[axis], axis)
    return y[(slice(None),) * axis + (np.newaxis,)]  # no reshape: chunks may have unknown sizes


def _labelled(name, function, arrays, results, axis, params):
    """DataArrays: dimensions are matched by name, and results have names and coordinates; axis may be a dimension's name."""
    x = next(array for array, _ in arrays if _is_labelled(array))
    axis = x.get_axis_num(axis) if isinstance(axis, str) else _core.normalize_axis(name, axis, x.ndim)
    one = x.isel({x.dims[axis]: 0}, drop=True)
    spread = x.isel({x.dims[axis]: slice(1)}).drop_vars(x.dims[axis], errors="ignore")
    given = [
        (_laid_out(array, x if has_rows else one) if _is_labelled(array) else array, has_rows) for array, has_rows in arrays
    ]
    values = tuple(_of_rows(p, one, spread) if _is_labelled(p) else p for p in params)
    found = along(name, function, given, results, axis, values)
    placed = [
        (x if has_rows else one).copy(data=result)
        for result, has_rows in zip(found if isinstance(found, tuple) else (found,), results, strict=True)
    ]
    return placed[0] if len(placed) == 1 else tuple(placed)


def _laid_out(array, like):
    """A DataArray's numbers in the order of the dimensions of another, at the same coordinates."""
    import xarray

    unknown = set(array.dims) - set(like.dims)
    if unknown:
        raise ValueError(f"an array has the dimension {sorted(map(str, unknown))[0]!r}, which the first one lacks: {like.dims}")
    array, _ = xarray.align(array, like, join="exact")
    return array.broadcast_like(like).transpose(*like.dims).data


def _of_rows(param, one, spread):
    """A parameter with a value for each row, with or without the dimension of the axis."""
    like = spread if set(spread.dims) == set(param.dims) else one
    return np.asarray(_laid_out(param, like)).reshape(spread.shape)


def _axis_last(xp, array, dims, axis):
    """The array with its rows along the last axis. With fewer than `dims` axes it lacks the first ones, as NumPy broadcasts."""
    return xp.moveaxis(array[(np.newaxis,) * (dims - array.ndim)], axis, -1)


def _at_once(function, arrays, results, axis, params):
    dims = np.ndim(arrays[0][0])
    moved = [_axis_last(np, np.asarray(array), dims, axis) if has_rows else array for array, has_rows in arrays]
    values = tuple(np.moveaxis(value, axis, -1) if np.ndim(value) > 1 else value for value in params)
    found = function(*moved, values)
    found = found if isinstance(found, tuple) else (found,)
    placed = [np.moveaxis(array, -1, axis) if has_rows else array for array, has_rows in zip(found, results, strict=True)]
    return placed[0] if len(placed) == 1 else tuple(placed)


def _lazy(function, arrays, results, axis, params):
    """Dask arrays: works on blocks that contain whole rows."""
    import dask.array as da

    x = arrays[0][0]
    if x.shape[axis] == 0:  # apply_gufunc would divide by it
        found = _at_once(function, [(np.asarray(array), has_rows) for array, has_rows in arrays], results, axis, params)
        return tuple(map(da.from_array, found)) if isinstance(found, tuple) else da.from_array(found)
    lead = (*x.shape[:axis], *x.shape[axis + 1 :])
    spread = {i for i, value in enumerate(params) if np.ndim(value) > 0}
    given, signature = [], []
    for array, has_rows in arrays:
        array = da.asarray(array)
        given.append(_axis_last(da, array, x.ndim, axis) if has_rows else array)
        signature.append("(i)" if has_rows else "()")
    for i in sorted(spread):
        rows = np.broadcast_to(params[i], (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
        given.append(da.from_array(np.ascontiguousarray(np.moveaxis(rows, axis, -1)).reshape(lead)))
        signature.append("()")

    def on_blocks(*blocks):
        rows = iter(blocks[len(arrays) :])
        filled = tuple(np.asarray(next(rows))[..., np.newaxis] if i in spread else value for i, value in enumerate(params))
        return function(*blocks[: len(arrays)], filled)

    # The types of the results are those for one row of one entry, with probability or count 1 and class 0.
    def one(array, of):
        return np.full((1, 1) if of == "(i)" else (1,), of == "(i)" or array.dtype.kind == "f", array.dtype)

    found = on_blocks(*(one(array, of) for array, of in zip(given, signature, strict=True)))
    found = found if isinstance(found, tuple) else (found,)
    outputs = ",".join("(i)" if has_rows else "()" for has_rows in results)
    computed = da.apply_gufunc(
        on_blocks,
        f"{','.join(signature)}->{outputs}",
        *given,
        output_dtypes=[result.dtype for result in found] if len(found) > 1 else found[0].dtype,
        allow_rechunk=True,
    )
    computed = computed if isinstance(computed, tuple) else (computed,)
    placed = [da.moveaxis(array, -1, axis) if has_rows else array for array, has_rows in zip(computed, results, strict=True)]
    return placed[0] if len(placed) == 1 else tuple(placed)
