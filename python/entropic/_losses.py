"""Losses: one number for each row of scores against a target, and its gradient."""

import numpy as np

from entropic import _arrays, _core, _dask
from entropic._maps import MAPS


def run(description, x, target, params, named_map, ignore_index, axis, return_grad, param_grad):
    name = description["name"]
    scores, against = description["arguments"]
    if _dask.is_lazy(x):
        if param_grad or any(np.ndim(value) > 0 for value in params.values()):
            raise TypeError(f"{name}: a Dask array takes one value of each parameter and gives no gradient in it")

        def of_blocks(x, target, _):
            return run(description, x, target, params, named_map, ignore_index, -1, return_grad, False)

        arrays = [(x, True), (target, np.ndim(target) == x.ndim)]
        return _dask.along(of_blocks, arrays, [False, True] if return_grad else [False], axis)
    rows = _arrays.Rows(name, scores, x, axis, halves=True)
    prepared = _prepared_target(name, against, description["target"], target, rows)
    learned = {param["name"]: params[param["name"]] for param in description["params"] if param["per_row"]}
    if named_map is not None:
        learned = {param["name"]: named_map[1][param["name"]] for param in MAPS[named_map[0]]["params"] if param["per_row"]}
        named_map = named_map[0], tuple(rows.per_row(param, value) for param, value in named_map[1].items())
    value = np.empty(len(rows.values))
    dx = np.empty_like(rows.values) if return_grad else None
    asked = [(param, np.empty(len(rows.values))) for param, given in learned.items() if param_grad and given is not None]
    values = tuple(
        rows.per_row(param["name"], params[param["name"]]) if param["per_row"] else params[param["name"]]
        for param in description["params"]
    )
    _core.loss(
        name,
        rows.values,
        prepared,
        value,
        dx,
        values,
        named_map,
        ignore_index,
        asked,
    )
    results = [rows.numbers(value)]
    results += [rows.back(dx)] if return_grad else []
    if param_grad:
        slopes = tuple(rows.numbers(slope) for _, slope in asked)
        results.append(slopes[0] if len(slopes) == 1 else slopes)
    return results[0] if len(results) == 1 else tuple(results)


def _prepared_target(name, argument, kind, target, rows):
    """One int64 for each row, or rows of x's dtype."""
    array = _arrays._to_numpy(name, argument, target)
    if kind in ("labels", "scores"):
        return rows.alike(argument, array)
    if array.dtype.kind in "iu":
        if array.shape != rows.lead:
            also = "; a distribution is of floating-point numbers" if array.shape == rows.shape else ""
            raise ValueError(
                f"{name}: {argument} must have one class for each row, of shape {rows.lead}, got integers of shape "
                f"{array.shape}{also}"
            )
        if array.dtype == np.uint64:
            array = np.minimum(array, np.uint64(2**63 - 1))
        return np.ascontiguousarray(array, np.int64).reshape(-1)
    if kind == "class" or array.dtype.kind != "f":
        wanted = "integers, one class for each row" + ("" if kind == "class" else ", or floating-point numbers, a distribution")
        raise TypeError(f"{name}: {argument} must be {wanted}, got dtype {array.dtype}")
    if array.shape == rows.lead:
        raise ValueError(
            f"{name}: {argument} must have one probability for each entry, of shape {rows.shape}, got shape {array.shape}; "
            f"classes are integers: pass {argument}.astype(int)"
        )
    return rows.alike(argument, array)


def index_or_none(name, ignore_index):
    if ignore_index is None:
        return None
    return min(max(_arrays.integer(name, "ignore_index", ignore_index, "an integer or None"), -(2**63)), 2**63 - 1)


def takes_classes(description):
    return description["target"].startswith("class")


DESCRIPTIONS = {description["name"]: description for description in _core.losses()}
