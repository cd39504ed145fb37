"""Operations that make one number of each row, with its gradients in the same pass."""

import torch

from entropic.torch._builder import Operator, wants_gradient
from entropic.torch._spec import OpSpec, absent, result_type
from entropic.torch.backends.cpu import CODES


def row_reduction(name, tensors, differentiable, params, rows=(), **further):
    """``torch.ops.entropic.NAME(tensors..., rows..., params..., dim, gradients) -> (value, gradients...)``.

    The first tensor decides shape and dtype, and numbers of halves are float32; each other has its shape, or that without
    dim. rows ("b_rows?") are parameters with a number for each row, of the first tensor's shape with 1 for dim, in float64.
    Gradients are there where asked for: in the tensors named `differentiable`, and in rows.
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
    """Tensors, of which those of float32 are float64 where dtype, that of the result or None, is."""
    if dtype is None:
        return tensors
    if dtype not in CODES:
        raise TypeError(f"{name}: dtype must be float16, bfloat16, float32 or float64, got {dtype!r}")
    if dtype is not torch.float64:
        return tensors
    return tuple(x.double() if x.dtype is torch.float32 else x for x in tensors)


def reduced(operator, tensors, rows, values, dim, dtype=None):
    """The value: one number for each row."""
    given = dict(zip(operator.spec.names, (*tensors, *rows), strict=True))
    wanted = wants_gradient(*(given[name] for name in operator.spec.differentiable))
    value = operator(*tensors, *rows, *values, dim, wanted)[0]
    return value if dtype is None else value.to(dtype)
