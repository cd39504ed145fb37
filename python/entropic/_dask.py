"""Dask arrays: the same functions on their blocks, computed when the array is."""

import numpy as np


def is_lazy(x):
    return type(x).__module__.startswith("dask.array")


def along(function, arrays, results, axis, params=()):
    """function(*blocks, params) over Dask arrays, whose rows lie along axis and come whole and last in the blocks.

    `arrays` are pairs of an array and whether it has rows ("(i)") or one entry for each row ("()"); `results` says the same of
    what function returns. Params that are arrays, of x's shape with 1 for axis, go along with their rows.
    """
    import dask.array as da

    x = arrays[0][0]
    axis = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    lead = (*x.shape[:axis], *x.shape[axis + 1 :])
    spread = {i for i, value in enumerate(params) if np.ndim(value) > 0}
    given, signature = [], []
    for array, has_rows in arrays:
        array = da.asarray(array)
        given.append(da.moveaxis(array, axis, -1) if has_rows else array)
        signature.append("(i)" if has_rows else "()")
    for i in sorted(spread):
        rows = np.broadcast_to(params[i], (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
        given.append(da.from_array(np.ascontiguousarray(np.moveaxis(rows, axis, -1)).reshape(lead)))
        signature.append("()")

    def on_blocks(*blocks):
        rows = iter(blocks[len(arrays) :])
        filled = tuple(np.asarray(next(rows))[..., np.newaxis] if i in spread else value for i, value in enumerate(params))
        return function(*blocks[: len(arrays)], filled)

    # The types that come out are those of one row of one entry: of probability 1, of class 0.
    def one(array, of):
        return np.full((1, 1) if of == "(i)" else (1,), array.dtype.kind == "f", array.dtype)

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
