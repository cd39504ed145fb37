"""Operations that calculate one number for each row, with its gradients in the same pass."""

import torch

from isentropic.torch._builder import Operator, is_alone, product_with, wants_gradient
from isentropic.torch._compat import function_modes, has_memory, tracing
from isentropic.torch._spec import CODES, Call, OpSpec, absent, result_type
from isentropic.torch.backends.cpu import DIRECT


def row_reduction(name, tensors, differentiable, params, rows=(), **further):
    """``torch.ops.isentropic.NAME(tensors..., rows..., params..., dim, gradients) -> (value, gradients...)``.

    The first tensor decides shape and dtype, and halves give float32 numbers; each other tensor has this shape, or this shape
    without dim. rows ("b_rows?") are parameters with a number for each row, of the first tensor's shape with 1 for dim, in
    float64. Gradients, if wanted, are those in the tensors named `differentiable` and in rows.
    """

    def shapes(x, *arguments):
        *_, dim, wanted = arguments
        per_row = arguments[len(tensors) - 1 : len(tensors) - 1 + len(rows)]
        gradients = [x.new_empty(x.shape) if wanted else absent(x) for _ in differentiable]
        gradients += [absent(x) if row is None or not wanted else row.new_empty(row.shape) for row in per_row]
        return x.new_empty((*x.shape[:dim], *x.shape[dim + 1 :]), dtype=result_type(x)), *gradients

    moving = *differentiable, *(row.removesuffix("?") for row in rows)
    outputs = "value", *(f"d_{one}" for one in moving)
    return Operator(
        OpSpec(
            name=name,
            tensors=(*tensors, *rows),
            params={**params, "dim": "int", "gradients": "bool"},
            outputs=outputs,
            shapes=shapes,
            differentiable=moving,
            keeps=(*tensors, *(row.removesuffix("?") for row in rows), *outputs[1:]),
            derivative="outputs",
        ),
        **further,
    )


def widened(name, dtype, *tensors):
    """Tensors; those of float32 become float64 if dtype, the result's dtype or None, is float64."""
    if dtype is None:
        return tensors
    if dtype not in CODES:
        raise TypeError(f"{name}: dtype must be float16, bfloat16, float32 or float64, got {dtype!r}")
    if dtype is not torch.float64:
        return tensors
    return tuple(x.double() if x.dtype is torch.float32 else x for x in tensors)


def reduced(operator, tensors, rows, values, dim, dtype=None):
    """The value: one number for each row."""
    if not torch.compiler.is_compiling() and all(map(is_alone, tensors)) and all(row is None for row in rows):
        direct = DIRECT.get(operator.spec.name)
        if direct is not None and not function_modes() and tracing() is None:
            value = of_plain(operator, direct, tensors, values, dim)
            return value if dtype is None else value.to(dtype)
    given = dict(zip(operator.spec.names, (*tensors, *rows), strict=True))
    wanted = wants_gradient(*(given[name] for name in operator.spec.differentiable))
    value = operator(*tensors, *rows, *values, dim, wanted)[0]
    return value if dtype is None else value.to(dtype)


def of_plain(operator, direct, tensors, values, dim):
    """The value, if every tensor is plain and no parameter has a number for each row."""
    if torch.is_grad_enabled() and (tensors[0].requires_grad or tensors[-1].requires_grad):
        return _Tracked.apply(operator, direct, values, dim, *tensors)
    return direct(tensors, values, dim, False)[0]


def of_rows(operator, direct, tensors, slopes, values, dim, grad):
    """The gradients in differentiable tensors, from those in the values and from slopes that are not shared."""
    if not torch.is_grad_enabled() and is_alone(grad) and has_memory(grad):
        return product_with(slopes, grad, dim)
    # The slopes are constants here; their own derivatives come from calling the operator again.
    call = Call((*tensors, *[None] * direct.rows), (*values, dim, False), ())
    return operator.by_outputs(call, (grad, *[None] * (len(slopes) + direct.rows)))[: len(slopes)]


def rule(operator, direct, kernel, values):
    """The rule for eager.reduction: values(tail) are the operator's arguments without the last two."""

    def again(*arguments):
        *tensors, grad, tail = arguments
        call = Call((*tensors, *[None] * direct.rows), (*values(tail), tail[0] % tensors[0].dim(), False), ())
        found = operator.by_outputs(call, (grad, *[None] * (len(direct.differentiable) + direct.rows)))
        results = [None] * len(tensors)
        for k, one in zip(direct.differentiable, found, strict=False):
            results[k] = one
        return tuple(results)

    return kernel, len(direct.differentiable), again


class _Tracked(torch.autograd.Function):
    """The value with its gradients: the part of _builder.Operator that plain tensors need."""

    @staticmethod
    def forward(ctx, operator, direct, values, dim, *tensors):
        value, slopes = direct(tensors, values, dim, True)
        ctx.save_for_backward(*tensors, *slopes)
        ctx.call = operator, direct, values, dim
        return value

    @staticmethod
    def backward(ctx, grad):
        operator, direct, values, dim = ctx.call
        saved = ctx.saved_tensors  # read only once: with checkpointing every access unpacks the tensors
        count = len(saved) - len(direct.differentiable)
        tensors, slopes = saved[:count], saved[count:]
        results = [None] * count
        found = of_rows(operator, direct, tensors, slopes, values, dim, grad)
        for k, one in zip(direct.differentiable, found, strict=True):
            results[k] = one
        return None, None, None, None, *results
