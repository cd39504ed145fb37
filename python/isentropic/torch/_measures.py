"""Measures of distributions: their operators, and helpers for the functions in _generated.py."""

import functools

import numpy as np
import torch

from isentropic import _checks, _descriptions
from isentropic.formulas.measures import logarithms
from isentropic.torch import _schemas
from isentropic.torch._arguments import Tensor, checked_dim, has_numbers, numbers_and_rows, one_device, one_dim, readable
from isentropic.torch._builder import Operator
from isentropic.torch._compat import is_differentiated, is_dtensor
from isentropic.torch._reductions import reduced, row_reduction, widened
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import OpSpec, result_type, working
from isentropic.torch.backends.reference.measures import entries_vjp

DESCRIPTIONS = _descriptions.MEASURES


_ARGUMENTS = {"measure": ("p",), "divergence": ("p", "q"), "table": ("pxy",)}


def _operator(description):
    name, params = description["name"], _schemas.params(description)
    if description["family"] == "entry":
        return Operator(
            OpSpec(
                name=name,
                tensors=("p",),
                params={**params, "dim": "int"},
                outputs=("value",),
                shapes=lambda p, *_: p.new_empty(p.shape, dtype=result_type(p)),
                differentiable=("p",),
                keeps=("p",),
                derivative=functools.partial(entries_vjp, description),
            )
        )
    if description["family"] == "table":
        params["cols"] = "int"
    arguments = _ARGUMENTS[description["family"]]
    return row_reduction(name, arguments, arguments, params, _descriptions.rows(description))


OPERATORS = {name: _operator(one) for name, one in DESCRIPTIONS.items() if name not in _descriptions.OF_ONE_ROW}


def _of_several(name, tensors, values, dim, axis, dtype):
    """The results for each value of an array for a parameter, in one more last axis; None if there is no such array."""
    several = _descriptions.several(DESCRIPTIONS[name])
    at = [param["name"] for param in DESCRIPTIONS[name]["params"]].index(several) if several else 0
    given = values[at]
    if not several or isinstance(given, (int, float)) or not (isinstance(given, (list, tuple, Tensor)) or np.ndim(given)):
        return None
    if isinstance(given, Tensor):
        if is_differentiated(given) or not has_numbers(given):
            return _of_orders(name, tensors[0], values, at, dim, axis, dtype)
        if given.dim() == 0:
            return None
    given = given.tolist() if isinstance(given, Tensor) else given
    each = given if torch.compiler.is_compiling() else _checks.each_number(name, several, given)
    return torch.stack([call(name, tensors, (*values[:at], one, *values[at + 1 :]), dim, axis, dtype) for one in each], -1)


def _of_orders(name, p, values, at, dim, axis, dtype):
    """hill_number of orders that have a gradient or cannot be read: by the Renyi entropy, which has one for each row."""
    dim, order = checked_dim(name, "p", p, one_dim(name, dim, axis)), values[at]
    if order.dim() > 1 or order.numel() == 0:
        raise ValueError(f"{name}: order must be a number or a list of some numbers, got shape {tuple(order.shape)}")
    given = {param["name"]: value for param, value in zip(DESCRIPTIONS[name]["params"], values, strict=True)} | {"base": None}
    given["alpha"] = order.to(p.device, torch.float64).reshape(*order.shape, *[1] * p.dim())
    found = [given[param["name"]] for param in DESCRIPTIONS["renyi_entropy"]["params"]]
    try:
        entropies = call("renyi_entropy", (p.expand(*order.shape, *p.shape),), found, dim + order.dim(), None, None)
    except ValueError as error:
        raise ValueError(str(error).replace("renyi_entropy: alpha", f"{name}: order").replace("renyi_entropy", name)) from None
    value = entropies.exp().movedim(0, -1) if order.dim() else entropies.exp()
    return value if dtype is None else value.to(dtype)


def call(name, tensors, values, dim, axis, dtype):
    if (found := _of_several(name, tensors, values, dim, axis, dtype)) is not None:
        return found
    dim = one_dim(name, dim, axis)
    at = [param["name"] for param in DESCRIPTIONS[name]["params"]].index("input")
    kind, pair = _descriptions.inputs_of_two(DESCRIPTIONS[name], values[at])
    values = (*values[:at], kind, *values[at + 1 :])
    if pair is not None and any(map(is_dtensor, tensors)):
        raise TypeError(f"{name}: input must be one kind for DTensors, got {pair!r}")
    if any(map(is_dtensor, tensors)):
        return _of_dtensors(name, tensors, values, dim, dtype)
    for argument, x in zip("pq", tensors, strict=False):
        if name in _descriptions.OF_CLASSES and isinstance(x, Tensor) and not x.is_floating_point():
            raise _descriptions.no_distribution(name, argument, f"dtype {x.dtype}")
        checked_dim(name, argument, x, dim)
    if len(tensors) == 2:
        one_device(name, dict(zip("pq", tensors, strict=True)))
        try:
            tensors = torch.broadcast_tensors(*tensors)
        except RuntimeError:
            shapes = [tuple(x.shape) for x in tensors]
            raise ValueError(
                f"{name}: q must have a shape that broadcasts with that of p, {shapes[0]}, got {shapes[1]}"
            ) from None
        wider = torch.promote_types(*(x.dtype for x in tensors))
        tensors = [x.to(wider) for x in tensors]
    dim = checked_dim(name, "p", tensors[0], dim)
    tensors = widened(name, dtype, *tensors)
    if pair is not None:
        return _of_pair(name, pair, tensors, values, dim, dtype)
    values, rows = numbers_and_rows(DESCRIPTIONS[name], values, "p", tensors[0], dim)
    return reduced(OPERATORS[name], tensors, rows, values, dim, dtype)


def _of_pair(name, pair, tensors, values, dim, dtype):
    """The value for p and q of different kinds, by their logarithms."""
    logs, lost = [], []
    for argument, x, holds in zip("pq", tensors, pair, strict=True):
        if holds == "probs" and readable(x) and bool((wrong := ~((x >= 0) & (x < torch.inf))).any()):
            must = "must be at least 0 and finite where its input is probs"
            raise ValueError(f"{name}: {argument} {must}, got {x[wrong][0].item():g}")
        log, none = logarithms(ROWS, working(x).movedim(dim, -1), holds)
        logs.append(log.movedim(-1, dim))
        lost.append(none.squeeze(-1))
    try:
        value = call(name, logs, values, dim, None, dtype)
    except ValueError as error:
        raise _descriptions.said_of_pair(pair, error) from None
    return torch.where(lost[0] | lost[1], torch.nan, value)


def _of_dtensors(name, tensors, values, dim, dtype):
    from isentropic.torch.distributed._dtensor import rows_of_dtensors

    params = DESCRIPTIONS[name]["params"]
    given = {param["name"]: value for param, value in zip(params, values, strict=True)}
    defaults = {param["name"]: param["default"] for param in params}

    def on_local(*parts):
        return call(name, parts, values, dim, None, dtype)

    value = rows_of_dtensors(name, tensors, dim, given, defaults, on_local)
    return value if dtype is None else value.to(dtype)


def call_entries(name, p, values, dim, axis, dtype):
    single = isinstance(p, Tensor) and p.dim() == 0
    p = p.unsqueeze(0) if single else p
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    if is_dtensor(p):
        from isentropic.torch.distributed._dtensor import entries_of_dtensor

        return entries_of_dtensor(name, p, dim, lambda p: call_entries(name, p, values, dim, None, dtype))
    (p,) = widened(name, dtype, p)
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "p", p, dim)
    value = OPERATORS[name](p, *values, dim)
    value = value if dtype is None else value.to(dtype)
    return value.squeeze(0) if single else value


def call_table(name, pxy, values, dtype):
    checked_dim(name, "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}")
    flat = pxy.flatten(-2)
    if name in _descriptions.OF_ONE_ROW:
        inner = _descriptions.OF_ONE_ROW[name]
        with _checks.in_the_name_of(name, inner):
            return call(inner, (flat,), values, -1, None, dtype)
    (flat,) = widened(name, dtype, flat)
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "pxy", flat, -1)
    return reduced(OPERATORS[name], (flat,), (), (*values, pxy.shape[-1]), flat.dim() - 1, dtype)
