"""Operations that make one number of each row, with its gradients in the same pass."""

from entropic.torch._builder import Operator, wants_gradient
from entropic.torch._spec import OpSpec, absent


def row_reduction(name, tensors, differentiable, params, rows=(), **further):
    """``torch.ops.entropic.NAME(tensors..., rows..., params..., dim, gradients) -> (value, gradients...)``.

    The first tensor decides shape and dtype; each other one has its shape, or that without dim. rows ("b_rows?") are parameters
    with a number for each row, of the first tensor's shape with 1 for dim, in float64. Gradients are there where asked for: in
    the tensors named `differentiable`, and in rows.
    """

    def shapes(x, *arguments):
        *_, dim, wanted = arguments
        per_row = arguments[len(tensors) - 1 : len(tensors) - 1 + len(rows)]
        gradients = [x.new_empty(x.shape) if wanted else absent(x) for _ in differentiable]
        gradients += [absent(x) if row is None or not wanted else row.new_empty(row.shape) for row in per_row]
        return x.new_empty((*x.shape[:dim], *x.shape[dim + 1 :])), *gradients

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


def reduced(operator, tensors, rows, values, dim):
    """The value: one number for each row."""
    given = dict(zip(operator.spec.names, (*tensors, *rows), strict=True))
    wanted = wants_gradient(*(given[name] for name in operator.spec.differentiable))
    return operator(*tensors, *rows, *values, dim, wanted)[0]
