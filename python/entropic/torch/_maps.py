"""Maps, log_softmax and logsumexp: their operators and public functions, made from the registry like those of entropic."""

import functools
from math import inf  # noqa: F401  a default in signatures

import torch

from entropic import _functions as numpy_functions
from entropic.torch import _descriptions
from entropic.torch._arguments import checked_dim, numbers_and_rows, one_dim
from entropic.torch._builder import Operator
from entropic.torch._compat import dispatch_modes, function_modes, in_forward_mode, in_transform, tracing
from entropic.torch._spec import OpSpec
from entropic.torch.backends.cpu import CODES, CONTIGUOUS
from entropic.torch.backends.reference.maps import symmetric

Tensor = torch.Tensor
_is_compiling = torch.compiler.is_compiling
_grad_enabled = torch.is_grad_enabled
_empty_like = torch.empty_like
_STRIDED = torch.strided
_code = CODES.get


def _spec(description):
    rows = tuple(_descriptions.rows(description))

    def shapes(x, *arguments):
        dim = arguments[-1]
        return x.new_empty((*x.shape[:dim], 1, *x.shape[dim + 1 :]) if description["reduces"] else x.shape)

    names = "x", *(row.removesuffix("?") for row in rows)
    return OpSpec(
        name=description["name"],
        tensors=("x", *rows),
        params={**_descriptions.params(description), "dim": "int"},
        outputs=("y",),
        shapes=shapes,
        differentiable=names,
        keeps=(*names, "y"),
        derivative="operator",
        symmetric=functools.partial(symmetric, description),
    )


OPERATORS = {name: Operator(_spec(description)) for name, description in _descriptions.MAPS.items()}


def build(descriptions):
    return {description["name"]: _build(description) for description in descriptions}


def _build(description):
    name = description["name"]
    params = [numpy_functions.declare(param) for param in description["params"]]
    values = "".join(f"{param['name']}, " for param in description["params"])
    last, tail = ("keepdim=False", ", keepdim") if description["reduces"] else ("", "")
    signature = ", ".join(part for part in ["x", "*", *params, "dim=None", "axis=None", last] if part)
    call = "_call_reduction" if description["reduces"] else "_call"
    given = [f"isinstance({param['name']}, Tensor)" for param in description["params"] if param["per_row"]]
    if given:
        tail = f", not ({' or '.join(given)})"
    namespace = {}
    # In this module's globals, where a compiler's guards look for what a function uses.
    exec(
        f"def {name}({signature}):\n    return {call}({name!r}, x, ({values}), dim, axis{tail})\n",
        globals(),
        namespace,
    )
    function = namespace[name]
    function.__module__ = "entropic.torch"
    function.__doc__ = _doc(description)
    return function


def _call(name, x, values, dim, axis, numbers=True):
    dim = one_dim(name, dim, axis)
    # Straight to the kernel where nobody looks on: no compiler, no transform, no mode, no derivative.
    if (
        not _is_compiling()
        and type(x) is Tensor
        and numbers
        and x.is_cpu
        and not (x.requires_grad and _grad_enabled())
        and not in_transform()
        and not in_forward_mode()
        and not dispatch_modes()
        and not function_modes()
        and x.layout is _STRIDED
        and not x.is_neg()
        and tracing() is None
    ):
        code = _code(x.dtype)
        if code is not None:
            y = _empty_like(x) if x.is_contiguous() else _empty_like(x, memory_format=CONTIGUOUS)
            shape = x.shape
            try:
                _KERNELS[name]((x.data_ptr(), shape, x.stride(), code), (y.data_ptr(), shape, y.stride(), code), dim, values)
                return y
            except (IndexError, TypeError):
                pass  # said again below, of dim and of tensors
    return _call_operator(name, x, values, dim)


_KERNELS = {name: description["forward"] for name, description in _descriptions.MAPS.items()}


def _call_reduction(name, x, values, dim, axis, keepdim):
    dim = one_dim(name, dim, axis)
    y = _call_operator(name, x, values, dim)
    return y if keepdim else y.squeeze(dim)


def _call_operator(name, x, values, dim):
    """Through torch's dispatcher."""
    dim = checked_dim(name, "x", x, dim)
    if x.is_cuda and torch.is_autocast_enabled("cuda") and x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()  # as torch.softmax
    return _apply(name, x, values, dim)


def _apply(name, x, values, dim):
    numbers, rows = numbers_and_rows(_descriptions.MAPS[name], values, "x", x, dim)
    return OPERATORS[name](x, *rows, *numbers, dim)


def apply_map(name, x, params, dim):
    """The map's operator; parameters by name."""
    return _apply(name, x, (params[param["name"]] for param in _descriptions.MAPS[name]["params"]), dim)


def param_doc(description):
    """The parameters as those of tensors."""
    text = numpy_functions.param_doc(description)
    return text.replace("An array", "A tensor").replace("array", "tensor").replace("along axis", "along dim")


def _doc(description):
    name = description["name"]
    result = "keepdim : bool, default False\n    Keep dim, with size 1.\n" if description["reduces"] else ""
    shape = "One number per row" if description["reduces"] else "Of x's shape and dtype, contiguous"
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
x : torch.Tensor
    Scores of float32, float64, float16 or bfloat16, of any shape with at least one axis and any strides. Halves are
    computed in float32.
{param_doc(description)}dim : int, default -1
    The axis along which scores compete; axis is another name for it.
{result}
Returns
-------
torch.Tensor
    {shape}. Differentiable, twice.

Raises
------
ValueError, TypeError, IndexError
    Naming the argument.

Notes
-----
Gradient, J^T g: {description["gradient"]}. See entropic.{name} for the rules on NaN and infinities.
Source: {description["source"]}.

Examples
--------
>>> y = entropic.torch.{name}(torch.tensor([0.0, 1.0, 2.0]){numpy_functions.assignments(description)})
"""


functions = build(_descriptions.MAPS.values())
