"""Operations that calculate one number for each row, with its gradients in the same pass."""

import torch

from isentropic.torch._builder import Operator, product_with, wants_gradient
from isentropic.torch._direct import is_plain, tracked
from isentropic.torch._spec import CODES, OPERATORS, Call, OpSpec, absent, result_type
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
    if all(row is None for row in rows) and is_plain(*tensors):
        rule = RULES.get(operator.spec.name)
        if rule is not None:
            value = of_plain(rule, tensors, values, dim)
            return value if dtype is None else value.to(dtype)
    given = dict(zip(operator.spec.names, (*tensors, *rows), strict=True))
    wanted = wants_gradient(*(given[name] for name in operator.spec.differentiable))
    value = operator(*tensors, *rows, *values, dim, wanted)[0]
    return value if dtype is None else value.to(dtype)


def of_plain(rule, tensors, values, dim):
    """The value, if every tensor is plain and no parameter has a number for each row."""
    if torch.is_grad_enabled() and (tensors[0].requires_grad or tensors[-1].requires_grad):
        return tracked(rule, (values, dim), *tensors)
    return rule.run(tensors, values, dim, False)[0]


class Rule:
    """Such an operation in _direct."""

    def __init__(self, name, run):
        self.name, self.run = name, run

    def forward(self, call, tensors):
        value, slopes = self.run(tensors, *call, True)
        return value, (*tensors, *slopes)

    def backward(self, call, kept, grad):
        tensors, slopes = self._parted(kept)
        return self._placed(tensors, product_with(slopes, grad, call[1]))

    def again(self, call, kept, grad):
        tensors, _ = self._parted(kept)
        values, dim = call
        # The slopes are constants here; their own derivatives come from calling the operator again.
        again = Call((*tensors, *[None] * self.run.rows), (*values, dim, False), ())
        nothing = [None] * (len(self.run.differentiable) + self.run.rows)
        return self._placed(tensors, OPERATORS[self.name].by_outputs(again, (grad, *nothing)))

    def _parted(self, kept):
        """(the tensors, their slopes)."""
        count = len(kept) - len(self.run.differentiable)
        return kept[:count], kept[count:]

    def _placed(self, tensors, found):
        results = [None] * len(tensors)
        for k, one in zip(self.run.differentiable, found, strict=False):
            results[k] = one
        return results


RULES = {name: Rule(name, run) for name, run in DIRECT.items()}
