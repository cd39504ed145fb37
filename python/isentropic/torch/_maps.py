"""Maps, log_softmax and logsumexp: their operators, and helpers for the functions in _generated.py."""

import functools
import math

import torch

import isentropic._core as _core
from isentropic import _checks, _descriptions, _threads
from isentropic.formulas.maps import LOGARITHMS
from isentropic.torch import _schemas
from isentropic.torch._arguments import checked_dim, numbers_and_rows, one_dim
from isentropic.torch._builder import Operator, is_alone
from isentropic.torch._compat import is_dtensor
from isentropic.torch._direct import is_plain, tracked
from isentropic.torch._spec import CODES, OpSpec
from isentropic.torch.backends.cpu import CONTIGUOUS, torch_threads
from isentropic.torch.backends.reference.maps import symmetric

Tensor = torch.Tensor
_grad_enabled = torch.is_grad_enabled
_empty_like = torch.empty_like
_code = CODES.get


def _spec(description):
    name, rows = description["name"], tuple(_descriptions.rows(description))

    def shapes(x, *arguments):
        dim = arguments[-1]
        return x.new_empty((*x.shape[:dim], 1, *x.shape[dim + 1 :]) if description["reduces"] else x.shape)

    names = "x", *(row.removesuffix("?") for row in rows)
    return OpSpec(
        name=name,
        tensors=("x", *rows),
        params={**_schemas.params(description), "dim": "int"},
        outputs=("y",),
        shapes=shapes,
        differentiable=names,
        keeps=(*names, "y"),
        derivative="operator",
        symmetric=functools.partial(symmetric, description),
        nothing=(-math.inf if name in LOGARITHMS else 0.0) if description["of_result"] else None,
    )


OPERATORS = {name: Operator(_spec(description)) for name, description in _descriptions.MAPS.items()}


def call(name, x, values, dim, axis, numbers=True):
    """A map of x; `numbers` says that no parameter is a tensor of one for each row."""
    if axis is not None:
        dim = one_dim(name, dim, axis)
    elif dim is None:
        dim = -1
    if is_plain(x):
        if not numbers:
            values = tuple(_number(value, x) for value in values)
            numbers = not any(isinstance(value, Tensor) for value in values)
        code = _code(x.dtype) if numbers else None
        if code is not None:
            try:
                if not (x.requires_grad and _grad_enabled()):
                    return _mapped(name, x, code, dim, values)
                return tracked(_RULES[name], (code, dim, values), x)
            except (IndexError, TypeError):
                pass  # the checks below report errors of dim and of tensors
    return call_operator(name, x, values, dim)


def _number(value, x):
    """A tensor of one number without a gradient becomes that number; anything else is returned unchanged."""
    if not isinstance(value, Tensor) or value.numel() != 1 or value.dim() > x.dim() or not is_alone(value):
        return value
    return value if value.is_complex() or (value.requires_grad and _grad_enabled()) else value.item()


def _mapped(name, x, code, dim, values):
    shape, stride = x.shape, x.stride()
    if x.is_contiguous():
        y = _empty_like(x)
        own = stride
    else:
        y = _empty_like(x, memory_format=CONTIGUOUS)
        own = y.stride()
    _threads.follow(torch_threads())
    _KERNELS[name]((x.data_ptr(), shape, stride, code), (y.data_ptr(), shape, own, code), dim, values)
    return y


class _Rule:
    """A map in _direct. It keeps as little as it can: the result where that says all, and of halves, whose result is rounded,
    the scores, from which the kernel calculates it again."""

    def __init__(self, name, description):
        self.name, self.vjp = name, description["vjp"]
        self.of_result, self.logarithm = description["of_result"], name in LOGARITHMS

    def forward(self, call, tensors):
        (x,), (code, dim, values) = tensors, call
        y = _mapped(self.name, x, code, dim, values)
        if code > 1:
            return y, (x,)
        if self.of_result and not _needs_scores(_place(x, code), _place(y, code), dim, self.logarithm):
            return y, (y,)
        return y, (x, y)

    def backward(self, call, kept, grad):
        (code, dim, values), x, y = call, kept[0], kept[-1]
        dx = _empty_like(y, memory_format=CONTIGUOUS)
        _threads.follow(torch_threads())
        self.vjp(*(_place(one, code) for one in (x, y, grad, dx)), dim, values)
        return (dx,)

    def again(self, call, kept, grad):
        (code, dim, values), x, y = call, kept[0], kept[-1]
        numbers, rows = numbers_and_rows(_descriptions.MAPS[self.name], values, "x", x, dim)
        further = *numbers, dim % x.dim()
        y = OPERATORS[self.name](x, *rows, *further) if code > 1 else y
        found = OPERATORS[self.name].vjp(x, *rows, y, grad, *further)
        return found[:1] if isinstance(found, tuple) else (found,)


def _place(x, code):
    return x.data_ptr(), x.shape, x.stride(), code


_needs_scores = _core.needs_scores
_KERNELS = {name: description["forward"] for name, description in _descriptions.MAPS.items()}
_RULES = {name: _Rule(name, description) for name, description in _descriptions.MAPS.items() if not description["reduces"]}


def call_reduction(name, x, values, dim, axis, keepdim):
    if keepdim is not False:
        _checks.flag(name, "keepdims", keepdim)
    dim = one_dim(name, dim, axis)
    y = call_operator(name, x, values, dim)
    return y if keepdim else y.squeeze(dim)


def call_operator(name, x, values, dim):
    """Calls the operator through torch's dispatcher."""
    if is_dtensor(x):
        from isentropic.torch.distributed._dtensor import of_dtensor

        return of_dtensor(name, x, values, -1 if dim is None else dim, call_operator)
    dim = checked_dim(name, "x", x, dim)
    if x.is_cuda and torch.is_autocast_enabled("cuda") and x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()  # like torch.softmax
    numbers, rows = numbers_and_rows(_descriptions.MAPS[name], values, "x", x, dim)
    return OPERATORS[name](x, *rows, *numbers, dim)
