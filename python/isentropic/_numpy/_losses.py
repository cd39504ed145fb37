"""Losses: one number for each row of scores against a target, and its gradient."""

from dataclasses import dataclass

import numpy as np

from isentropic import _checks, _descriptions
from isentropic._descriptions import LOSSES, SPARSE_LOSSES, documented, names_per_row, per_row
from isentropic._maps import MAPS
from isentropic._numpy import _containers, _convert, _device, _layout, _names
from isentropic._numpy._convert import FLOAT32, FLOAT64

INT64 = np.dtype(np.int64)

ndarray = np.ndarray
empty, empty_like = np.empty, np.empty_like


@dataclass(frozen=True, slots=True)
class Kernel:
    """A loss's function in _core, its name for errors, and its properties."""

    name: str
    run: object
    arguments: tuple  # names of scores and target
    target: str  # kind of target
    per_row: tuple  # for each parameter its name, or None if all rows have the same value
    maps: tuple  # for each parameter whether it is a map


def run(operation, x, target, params, ignore_index, axis, return_grad, param_grad):
    """`params` are the parameters' values in their order; that of a map is (its name, its parameters' values by name)."""
    if return_grad is not False:
        _checks.flag(operation.name, "return_grad", return_grad)
    if type(x) is ndarray and type(target) is ndarray and type(axis) is int and axis == -1 and param_grad is False:
        dtype, shape, kind = x.dtype, x.shape, operation.target
        if (dtype is FLOAT32 or dtype is FLOAT64) and (
            target.shape == shape[:-1] and kind.startswith("class")
            if target.dtype is INT64
            else target.dtype is dtype and target.shape == shape and kind != "class"
        ):
            value = empty(shape[:-1], dtype)
            dx = empty_like(x) if return_grad else None
            operation.run(x, target, value, dx, axis, _in_order(operation, params), ignore_index, None)
            value = value if len(shape) > 1 else value[()]
            return (value, dx) if return_grad else value

    name, (scores, against) = operation.name, operation.arguments
    _checks.flag(name, "param_grad", param_grad)
    learned = _learned(operation, params)
    if _containers.is_container(x):
        if param_grad or any(np.ndim(value) > 0 for value in learned.values()):
            raise TypeError(f"{name}: for arrays of Dask and xarray a parameter is one value and has no gradient")

        def of_blocks(x, target, _):
            return run(operation, x, target, params, ignore_index, -1, return_grad, False)

        arrays = [(x, True), (target, np.ndim(target) == x.ndim)]
        return _containers.along(name, of_blocks, arrays, [False, True] if return_grad else [False], axis)
    still = _descriptions.still(LOSSES[name], params)
    asked = [param for param, given in learned.items() if param_grad and given is not None and param not in still]
    if _device.holds(x):
        value, gradients, slopes = _device.loss_of(name, x, target, params, ignore_index, axis, asked, return_grad)
        return _layout.packed(value, gradients, slopes if param_grad else None)
    rows = _layout.Along(name, scores, x, axis, halves=True)
    prepared = _prepared_target(name, against, operation.target, target, rows)
    if prepared.shape == rows.shape:
        along = rows.axis - len(rows.shape)
        _names.check_order(name, (scores, x, along), (against, target, along))
    value = empty(rows.lead)
    dx = empty_like(rows.values) if return_grad else None
    found = [(param, empty(rows.lead)) for param in asked]
    operation.run(rows.values, prepared, value, dx, rows.axis, _in_order(operation, params), ignore_index, found)
    gradients = [rows.back(dx)] if return_grad else []
    slopes = [rows.measured(slope) for _, slope in found] if param_grad else None
    return _layout.packed(rows.measured(value), gradients, slopes)


def _in_order(operation, params):
    """The values as _core takes them: a map's without their names."""
    if True not in operation.maps:
        return params
    return tuple(
        _map_in_order(operation.name, *value) if is_map else value for value, is_map in zip(params, operation.maps, strict=True)
    )


def _map_in_order(function, name, values):
    return name, tuple(_convert.per_row(function, param, value) for param, value in values.items())


def _learned(operation, params):
    """The names of parameters with a gradient: those that may be per row, and those of a map."""
    found = {}
    for value, name, is_map in zip(params, operation.per_row, operation.maps, strict=True):
        if name:
            found[name] = value
        if is_map:
            found.update({param["name"]: value[1][param["name"]] for param in MAPS[value[0]]["params"] if param["per_row"]})
    return found


def _prepared_target(name, argument, kind, target, rows):
    """An int64 for each row, or an array of x's dtype."""
    array = _convert.to_numpy(name, argument, target)
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
        return array.astype(INT64, copy=False)
    if kind == "class" or array.dtype.kind != "f":
        wanted = "integers, one class for each row" + ("" if kind == "class" else ", or floating-point numbers, a distribution")
        raise TypeError(f"{name}: {argument} must be {wanted}, got dtype {array.dtype}")
    if array.shape == rows.lead:
        raise ValueError(
            f"{name}: {argument} must have one probability for each entry, of shape {rows.shape}, got shape {array.shape}; "
            f"classes are integers: pass {argument}.astype(int)"
        )
    return rows.alike(argument, array)


def _kernel(description):
    maps = tuple(param["kind"] == "map" for param in description["params"])
    return Kernel(*(description[key] for key in ("name", "run", "arguments", "target")), names_per_row(description), maps)


KERNELS = {name: _kernel(one) for name, one in LOSSES.items()}


@documented
def sparse_distillation_loss(
    student,
    indices,
    log_probs,
    *,
    temperature=1.0,
    divergence="forward_kl",
    beta=None,
    tail="bin",
    axis=-1,
    return_grad=False,
    param_grad=False,
):
    """
    student: Scores, of any shape with at least one axis. -inf: the class counts as absent. Never changed.
    indices (array of integers): The classes that each row of the teacher has, along a last axis after student's shape without
        axis; -1 means no class. A row without any class is ignored: it gives 0 and has no gradient.
    log_probs: Their log-probabilities, in the shape of indices; the mass of a row is at most 1. Not read where there is no
        class. No gradient is taken in them.
    return_grad (bool): Return also the gradient in student.
    param_grad (bool): Return also the gradient in temperature, with tail="renormalize", and in beta, if it is given.
    Returns (array, or a tuple of arrays): One number for each row in nats, of the kind and dtype of student (float32 for
        float16), in its shape without the axis. With return_grad=True also the gradient in student, of its shape. With
        param_grad=True also the gradient in parameters: one number per row, or a tuple for several.
    Raises: A parameter is out of its range, shapes do not fit; a class is listed twice, a mass is above 1, or with tail="bin"
        below 1 where all classes are listed; the message names row and entry.
    Notes: A row with NaN, or with only -inf, gives NaN. reverse_kl is inf, with gradient 0, if a class is absent in the teacher
        and not in the student.
    >>> log_p = np.log([0.6, 0.3])
    >>> isentropic.sparse_distillation_loss([3.0, 1.0, 2.0, 0.0], [0, 2], log_p).round(4)
    np.float64(0.0087)
    """
    name, params = "sparse_distillation_loss", (temperature, divergence, beta, tail)
    description = SPARSE_LOSSES[name]
    for argument, value in (("return_grad", return_grad), ("param_grad", param_grad)):
        _checks.flag(name, argument, value)
    rows = _layout.Along(name, "student", student, axis, halves=True)
    indices, log_probs = _convert.to_numpy(name, "indices", indices), _convert.to_numpy(name, "log_probs", log_probs)
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices must be integers, the classes of each row, got dtype {indices.dtype}")
    if indices.ndim == 0 or indices.shape[:-1] != rows.lead:
        raise ValueError(
            f"{name}: indices must have the classes of each row as last axis, {rows.lead} + (k,), got {indices.shape}"
        )
    if log_probs.shape != indices.shape:
        raise ValueError(f"{name}: log_probs must have the shape of indices, {indices.shape}, got {log_probs.shape}")
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(2**63 - 1))
    given = dict(zip((one["name"] for one in description["params"]), params, strict=True))
    still = _descriptions.still(description, params)
    asked = [one for one in per_row(description) if param_grad and given[one] is not None and one not in still]
    values = tuple(_convert.per_row(name, one, given[one]) if one in per_row(description) else given[one] for one in given)
    value, found = empty(rows.lead), [(one, empty(rows.lead)) for one in asked]
    dx = empty_like(rows.values) if return_grad else None
    logs = _convert.to_floats(name, "log_probs", log_probs)[0]
    description["param_run"](rows.values, indices.astype(INT64, copy=False), logs, value, dx, rows.axis, values, found)
    slopes = [rows.measured(slope) for _, slope in found] if param_grad else None
    return _layout.packed(rows.measured(value), [rows.back(dx)] if return_grad else [], slopes)
