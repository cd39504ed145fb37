"""The public functions, made from the registry like those of entropic."""

from math import inf  # noqa: F401  a default in signatures

import torch

from entropic import _functions as numpy_functions
from entropic.torch._ops import (
    CODES,
    OPERATORS,  # noqa: F401  functions made below use it
    checked_dim,
    in_transform,
    numbers_and_rows,
    one_dim,
)

Tensor = torch.Tensor
_is_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_tracing = torch._C._get_tracing_state
_grad_enabled = torch.is_grad_enabled
_empty_like = torch.empty_like
_CONTIGUOUS = torch.contiguous_format
_STRIDED = torch.strided
_code = CODES.get


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
        f"def {name}({signature}):\n    return {call}(OPERATORS[{name!r}], x, ({values}), dim, axis{tail})\n",
        globals(),
        namespace,
    )
    function = namespace[name]
    function.__module__ = "entropic.torch"
    function.__doc__ = _doc(description)
    return function


def _call(operator, x, values, dim, axis, numbers=True):
    dim = one_dim(operator.name, dim, axis)
    # Straight to the kernel where nobody looks on: no compiler, no transform, no mode, no gradient.
    if (
        not _is_compiling()
        and type(x) is Tensor
        and numbers
        and x.is_cpu
        and not (x.requires_grad and _grad_enabled())
        and not in_transform()
        and not _modes()
        and not _function_modes()
        and x.layout is _STRIDED
        and not x.is_neg()
        and _tracing() is None
    ):
        code = _code(x.dtype)
        if code is not None:
            y = _empty_like(x) if x.is_contiguous() else _empty_like(x, memory_format=_CONTIGUOUS)
            shape = x.shape
            try:
                operator.forward((x.data_ptr(), shape, x.stride(), code), (y.data_ptr(), shape, y.stride(), code), dim, values)
                return y
            except (IndexError, TypeError):
                pass  # said again below, of dim and of tensors
    return _call_operator(operator, x, values, dim)


def _call_reduction(operator, x, values, dim, axis, keepdim):
    dim = one_dim(operator.name, dim, axis)
    y = _call_operator(operator, x, values, dim)
    return y if keepdim else y.squeeze(dim)


def _call_operator(operator, x, values, dim):
    """Through torch's dispatcher."""
    dim = checked_dim(operator.name, "x", x, dim)
    if x.is_cuda and torch.is_autocast_enabled("cuda") and x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()  # as torch.softmax
    numbers, rows = numbers_and_rows(operator.description, values, "x", x, dim)
    return operator.call(x, *numbers, *rows, dim)


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
