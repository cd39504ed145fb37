"""Checks and conversions of the public functions' arguments, before an operator gets them."""

import functools
import json
import operator

import numpy as np
import torch

import isentropic
from isentropic import _checks
from isentropic._numpy import _convert
from isentropic.torch._compat import constants, get_proxy_mode, in_transform, is_differentiated, is_fake
from isentropic.torch._spec import CODES, result_type

Tensor = torch.Tensor


def one_dim(name, dim, axis):
    """dim, which may also be given as axis."""
    if axis is None:
        return -1 if dim is None else dim
    if dim is not None:
        raise TypeError(f"{name}: give one of dim and axis, got dim={dim!r} and axis={axis!r}")
    return axis


def integer_dim(name, dim):
    """dim, as any kind of integer but not a bool."""
    if isinstance(dim, int) and not isinstance(dim, bool):
        return dim
    try:
        if not isinstance(dim, bool):
            return operator.index(dim)
    except TypeError:
        pass
    raise TypeError(f"{name}: dim must be one integer, got {dim!r}")


def refuse_nested(name, argument, x):
    """Refuses nested tensors, whose strided layout has no shape that could be checked."""
    if x.is_nested:
        layout = "strided" if x.layout is torch.strided else "jagged"
        advice = f"make it with layout=torch.jagged and pass {argument}" if layout == "strided" else f"pass {argument}"
        raise TypeError(f"{name}: {argument} must be a dense tensor, got a nested one of {layout} layout; {advice}.values()")


def checked_dim(name, argument, x, dim):
    """dim counted from 0, after checking that the operators take this tensor."""
    if not isinstance(x, Tensor):
        others = f"; isentropic.{name} takes other arrays" if hasattr(isentropic, name) else ""
        raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(x).__name__}{others}")
    if x.dtype not in CODES:
        raise TypeError(
            f"{name}: {argument} must be of float16, bfloat16, float32 or float64, got dtype {x.dtype}; pass {argument}.float()"
        )
    refuse_nested(name, argument, x)
    if x.layout is not torch.strided:
        raise TypeError(f"{name}: {argument} must be a dense tensor, got layout {x.layout}; pass {argument}.to_dense()")
    dim = integer_dim(name, dim)
    if x.dim() == 0:
        raise ValueError(f"{name}: {argument} must have at least one axis, got a single number")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"{name}: dim {dim} is out of bounds for a tensor of {x.dim()} dimensions")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"{name}: {argument} is on device {x.device}, where this operation has no implementation; pass {argument}.cpu()"
        )
    return dim % x.dim()


def has_numbers(tensor):
    """Whether its numbers can be read: no compiler or transform is active, and the tensor is not only a shape."""
    if torch.compiler.is_compiling() or in_transform() or get_proxy_mode() is not None:
        return False
    return not (tensor.is_meta or is_fake(tensor))


def readable(*tensors):
    """Whether the numbers of tensors can be read on the CPU."""
    return all(tensor.is_cpu and has_numbers(tensor) for tensor in tensors)


def as_text(values):
    """Values for which torch's schemas have no type, as text."""
    return _as_text(constants(values) if torch.compiler.is_compiling() else values)


@torch.compiler.assume_constant_result
def _as_text(values):
    return json.dumps(values)


def one_device(name, tensors):
    """Refuses tensors on several devices, by the arguments' names: a kernel would read all of them as its own device's
    memory."""
    first, x = next(iter(tensors.items()))
    for argument, tensor in tensors.items():
        if tensor.device != x.device:
            raise TypeError(
                f"{name}: {argument} is on device {tensor.device}, {first} on {x.device}; pass {argument}.to({first}.device)"
            )


def autocast(*tensors):
    """Tensors in the type of autocast if it is on, except for float64, like torch's own operations."""
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x if x.dtype is torch.float64 else x.to(dtype) for x in tensors)


def no_gradient(name, argument, value):
    """Refuses a tensor in which a derivative is asked for if there is none."""
    if isinstance(value, Tensor) and is_differentiated(value):
        asks = "requires grad" if value.requires_grad else "has a tangent"
        raise TypeError(f"{name}: {argument} {asks}, and there is no gradient in it; pass {argument}.detach()")


misfit = functools.partial(_checks.misfit, may_be="a number or a tensor")


def from_array(name, param, value):
    """An array for a parameter becomes a tensor of float64; anything else is returned unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    return torch.from_numpy(np.array(_convert.per_row(name, param, value), np.float64))


def numbers_near(name, param, value, argument, x):
    """A parameter's numbers in float64 on x's device."""
    if value.is_meta and not x.is_meta:
        raise TypeError(f"{name}: {param} is on device meta, where it has no numbers, {argument} on {x.device}")
    return value.to(device=x.device, dtype=torch.float64)


def spread(name, param, value, argument, x, dim):
    """A value for each row in float64: of x's shape with 1 for dim."""
    if value.is_complex():
        raise TypeError(f"{name}: {param} must be a number or a tensor of real numbers, got dtype {value.dtype}")
    shape = list(x.shape)
    shape[dim] = 1
    try:
        return numbers_near(name, param, value, argument, x).expand(shape)
    except RuntimeError:
        raise misfit(name, param, shape, f"{argument}'s shape with 1 for dim {dim}", value) from None


def numbers_and_rows(description, values, argument, x, dim):
    """(values of an operation's parameters in their types, for each that may be per row a tensor of one for each row or None).

    A tensor for a parameter that may be per row gives rows, and its value becomes the default, or 0 without one; any other
    tensor gives its number.
    """
    numbers, rows = [], []
    for param, value in zip(description["params"], values, strict=True):
        row = None
        if param["per_row"]:
            value = from_array(description["name"], param["name"], value)
            if isinstance(value, Tensor):
                row = spread(description["name"], param["name"], value, argument, x, dim)
                value = 0.0 if param["required"] else param["default"]
            rows.append(row)
        elif isinstance(value, Tensor) and value.numel() == 1:
            no_gradient(description["name"], param["name"], value)
            value = value.item()
        numbers.append(value)
    if not torch.compiler.is_compiling():
        numbers = description["in_their_types"](tuple(numbers))
    return tuple(numbers), rows


def dtype_beside(x, target):
    """The type for both: a half has float32 beside distributions or scores of another type, whose digits it would lose."""
    if not (isinstance(target, Tensor) and target.is_floating_point() and isinstance(x, Tensor)):
        return x.dtype
    return result_type(x) if target.dtype != x.dtype else x.dtype


def checked_target(name, description, x, target, dim):
    """target as the operators take it, on x's device."""
    scores, argument = description["arguments"]
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(target).__name__}")
    no_gradient(name, argument, target)
    one_device(name, {scores: x, argument: target})
    kind = description["target"]
    if kind.startswith("class") and not target.is_floating_point():
        if target.dtype is torch.bool or target.is_complex():
            raise TypeError(f"{name}: {argument} must be integers, one class for each row, got dtype {target.dtype}")
        lead = (*x.shape[:dim], *x.shape[dim + 1 :])
        if target.shape != lead:
            raise ValueError(
                f"{name}: {argument} must have one class for each row, of shape {tuple(lead)}, got integers of shape "
                f"{tuple(target.shape)}"
            )
        return target.long()
    if kind == "class":
        raise TypeError(f"{name}: {argument} must be integers, one class for each row, got dtype {target.dtype}")
    if kind.startswith("class") and target.shape == (*x.shape[:dim], *x.shape[dim + 1 :]):
        raise ValueError(
            f"{name}: {argument} must have one probability for each entry, of shape {tuple(x.shape)}, got shape "
            f"{tuple(target.shape)}; classes are integers: pass {argument}.long()"
        )
    if target.shape != x.shape:
        raise ValueError(f"{name}: {argument} must have the shape of {scores}, {tuple(x.shape)}, got {tuple(target.shape)}")
    return target.to(x.dtype)


def checked_sample_weight(name, weight, argument, x, shape):
    if weight is None:
        return None
    if not isinstance(weight, torch.Tensor):
        raise TypeError(f"{name}: sample_weight must be a torch.Tensor, got {type(weight).__name__}")
    no_gradient(name, "sample_weight", weight)
    one_device(name, {argument: x, "sample_weight": weight})
    if weight.shape != shape:
        raise ValueError(
            f"{name}: sample_weight must have one factor for each row, of shape {tuple(shape)}, got {tuple(weight.shape)}"
        )
    return weight


def is_ignored(target, ignore_index):
    """Which rows are; None ignores none."""
    return torch.zeros_like(target, dtype=torch.bool) if ignore_index is None else target == ignore_index


def quotient(total, count):
    """total / count. Where all rows are ignored this is 0 / 0, NaN, but their gradients are 0, as they would not be by the
    quotient's derivative."""
    nothing = count == 0
    return total / torch.where(nothing, 1, count) + torch.where(nothing, torch.nan, 0.0).to(total.dtype)
