"""Losses on tensors: their operators, and helpers for the functions in _generated.py."""

import functools
import math

import numpy as np
import torch

import isentropic
from isentropic import _descriptions
from isentropic._descriptions import documented
from isentropic.torch import _schemas
from isentropic.torch._arguments import (
    Tensor,
    checked_dim,
    checked_target,
    dtype_beside,
    no_gradient,
    numbers_and_rows,
    one_device,
    one_dim,
    readable,
)
from isentropic.torch._compat import is_dtensor
from isentropic.torch._direct import is_plain, tracked
from isentropic.torch._reductions import RULES, Rule, of_plain, reduced, row_reduction, widened
from isentropic.torch._spec import CODES, working
from isentropic.torch.backends.reference.losses import MAPPED

DESCRIPTIONS = _descriptions.LOSSES


def _operator(description):
    params = _schemas.params(description)
    if _descriptions.takes_classes(description):
        params["ignore_index"] = "int?"
    return row_reduction(description["name"], ["x", "target"], ["x"], params, _descriptions.rows(description))


_SPARSE = _descriptions.SPARSE_LOSSES


def _sparse_operator(description):
    arrays = ["x", "indices", "log_probs"]
    return row_reduction(description["name"], arrays, ["x"], _schemas.params(description), _descriptions.rows(description))


OPERATORS = {name: _operator(one) for name, one in DESCRIPTIONS.items() if not _descriptions.takes_map(one)}


OPERATORS |= {name: _sparse_operator(one) for name, one in _SPARSE.items()}


def _are_plain(name, x, target, values):
    """Whether these are rows of scores and their classes as the kernel takes them, and parameters that are numbers."""
    return (
        name in _OF_CLASSES
        and is_plain(x, target)
        and target.dtype is torch.int64
        and x.dtype in CODES
        and target.shape == x.shape[:-1]
        and x.dim() > 0
        and not any(isinstance(value, _ARRAYS) for value in values)
    )


_OF_CLASSES = {name for name, one in DESCRIPTIONS.items() if one["target"].startswith("class") and name in OPERATORS}
_ARRAYS = Tensor, np.ndarray


@functools.lru_cache(maxsize=256, typed=True)
def _in_their_types(name, *values):
    return DESCRIPTIONS[name]["in_their_types"](values)


def mean_of_rows(name, x, target, values, dim):
    """The mean of a loss over the rows that are not ignored, or None if there is no direct call for it."""
    *numbers, ignore_index = values.values()
    if dim != -1 or not _are_plain(name, x, target, numbers) or (ignore_index is not None and type(ignore_index) is not int):
        return None
    numbers = (*_in_their_types(name, *numbers), ignore_index)
    count = target.numel()
    if ignore_index is not None:  # a list takes less time for few, an array a quarter of torch's
        ignored = target.tolist().count(ignore_index) if count <= 64 and target.dim() == 1 else None
        count -= np.count_nonzero(target.numpy() == ignore_index) if ignored is None else ignored
    if x.requires_grad and torch.is_grad_enabled():
        return tracked(_MEANS[name], (numbers, x.dim() - 1, count), x, target)
    return _mean(RULES[name].run((x, target), numbers, x.dim() - 1, False)[0], count)


def _mean(value, count):
    if count != value.numel():
        return value.sum() / count
    return value.mean() if count != 1 else value.reshape(())


class _MeanRule(Rule):
    """The mean with its gradient in _direct."""

    def forward(self, call, tensors):
        *call, count = call
        value, kept = super().forward(call, tensors)
        return _mean(value, count), kept

    def backward(self, call, kept, grad):
        return super().backward(*self._of_rows(call, kept, grad))

    def again(self, call, kept, grad):
        return super().again(*self._of_rows(call, kept, grad))

    @staticmethod
    def _of_rows(call, kept, grad):
        *call, count = call
        # Where all rows are ignored, the mean is 0 / 0, but their gradients are 0.
        return call, kept, (grad / max(count, 1)).expand(kept[1].shape)


_MEANS = {name: _MeanRule(name, RULES[name].run) for name in _OF_CLASSES}


def call(name, x, target, values, ignore_index, dim, axis, dtype):
    description = DESCRIPTIONS[name]
    if dtype is None and axis is None and (dim is None or dim == -1) and _are_plain(name, x, target, values):
        return of_plain(RULES[name], (x, target), (*_in_their_types(name, *values), ignore_index), x.dim() - 1)
    params = {param["name"]: value for param, value in zip(description["params"], values, strict=True)}
    scores = description["arguments"][0]
    if is_dtensor(x):
        return _of_dtensors(name, x, target, values, params, ignore_index, one_dim(name, dim, axis), dtype)
    dim = checked_dim(name, scores, x, one_dim(name, dim, axis))
    (x,) = widened(name, dtype, x)
    x = x.to(dtype_beside(x, target))
    target = checked_target(name, description, x, target, dim)
    if _descriptions.takes_map(description):
        named_map = params["map"]
        if readable(target) and not _is_target(target, x, dim, ignore_index):
            # The library reports what is wrong for any scores; torch's operations would accept it.
            numpy = torch.float16 if x.dtype is torch.bfloat16 else x.dtype
            given = target.to(numpy) if target.is_floating_point() else target
            getattr(isentropic, name)(torch.zeros(x.shape, dtype=numpy), given, axis=dim, ignore_index=ignore_index)
        # p - q has no digits left if p is rounded to a half and near q.
        wide = working(x)
        if target.is_floating_point():
            target = working(target)
        if x.shape[dim] == 0:  # there is no distribution; with classes, all rows are ignored
            value = wide.sum(dim) + (math.nan if target.is_floating_point() else 0.0)
        else:
            value = MAPPED[name](wide, target, named_map, ignore_index, dim)
        return value if dtype is None else value.to(dtype)
    for param in _descriptions.still(description, values):
        no_gradient(name, param, params[param])
    values, rows = numbers_and_rows(description, values, scores, x, dim)
    if _descriptions.takes_classes(description):
        values = (*values, ignore_index)
    return reduced(OPERATORS[name], (x, target), rows, values, dim, dtype)


def _of_dtensors(name, x, target, values, params, ignore_index, dim, dtype):
    from isentropic.torch.distributed._dtensor import rows_of_dtensors

    description = DESCRIPTIONS[name]
    ignored = {"ignore_index": ignore_index} if _descriptions.takes_classes(description) else {}
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: {description['arguments'][1]} must be a torch.Tensor, got {type(target).__name__}")
    defaults = {param["name"]: param["default"] for param in description["params"]}

    def on_local(x, target):
        return call(name, x, target, values, ignore_index, dim, None, dtype)

    value = rows_of_dtensors(name, (x, target), dim, {**params, **ignored}, defaults, on_local)
    return value if dtype is None else value.to(dtype)


def checked_teacher(name, student, indices, log_probs, lead):
    """(indices as int64, log_probs) for scores whose rows have the axes `lead`."""
    for argument, one in (("indices", indices), ("log_probs", log_probs)):
        if not isinstance(one, Tensor):
            raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(one).__name__}")
        no_gradient(name, argument, one)
    one_device(name, {"student": student, "indices": indices, "log_probs": log_probs})
    if indices.is_floating_point() or indices.is_complex() or indices.dtype is torch.bool:
        raise TypeError(f"{name}: indices must be integers, the classes of each row, got dtype {indices.dtype}")
    if log_probs.dtype not in CODES:
        raise TypeError(f"{name}: log_probs must be of float16, bfloat16, float32 or float64, got dtype {log_probs.dtype}")
    if indices.shape[:-1] != lead or indices.dim() == 0:
        raise ValueError(
            f"{name}: indices must have the classes of each row as last axis, of shape {tuple(lead)} + (k,), got "
            f"{tuple(indices.shape)}"
        )
    if log_probs.shape != indices.shape:
        raise ValueError(
            f"{name}: log_probs must have the shape of indices, {tuple(indices.shape)}, got {tuple(log_probs.shape)}"
        )
    return indices.long(), log_probs


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
    dim=None,
    axis=None,
    dtype=None,
):
    """
    student: Scores, of any shape with at least one axis; -inf counts as absent.
    indices (torch.Tensor of integers): The classes that each row of the teacher has, as last axis; -1 is not a class.
    log_probs (torch.Tensor): Their log-probabilities, of any floating-point type.
    dtype (torch.dtype or None): The type of the result: by default that of student, or float32 for float16 and bfloat16.
    Returns: One number for each row, in student's shape without dim. Differentiable, twice, in student, temperature and beta.
    >>> scores, best = torch.randn(4, 9), torch.randn(4, 9).log_softmax(-1).topk(3)
    >>> value = isentropic.torch.sparse_distillation_loss(scores, best.indices, best.values)
    """
    name = "sparse_distillation_loss"
    description, dim = _SPARSE[name], checked_dim(name, "student", student, one_dim(name, dim, axis))
    (student,) = widened(name, dtype, student)
    lead = (*student.shape[:dim], *student.shape[dim + 1 :])
    indices, log_probs = checked_teacher(name, student, indices, log_probs, lead)
    values = temperature, divergence, beta, tail
    for param in _descriptions.still(description, values):
        no_gradient(name, param, dict(zip((one["name"] for one in description["params"]), values, strict=True))[param])
    values, rows = numbers_and_rows(description, values, "student", student, dim)
    rows = [row if row is None else row.movedim(dim, -1) for row in rows]
    student = student.movedim(dim, -1)
    return reduced(OPERATORS[name], (student, indices, log_probs), rows, values, student.dim() - 1, dtype)


def _is_target(target, x, dim, ignore_index):
    """Whether each row has a class, or a distribution whose sum is within half of the tolerance."""
    if not target.is_floating_point():
        known = (target >= 0) & (target < x.shape[dim])
        return bool((known if ignore_index is None else known | (target == ignore_index)).all())
    sums = target.sum(dim, dtype=torch.float64)
    allowed = isentropic._core.sum_tolerance[target.dtype.itemsize]
    return bool((target >= 0).all()) and bool(((sums - 1).abs() <= allowed / 2).all())
