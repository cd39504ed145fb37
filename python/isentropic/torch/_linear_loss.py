"""linear_loss: its operator and function."""

import torch

from isentropic import _descriptions
from isentropic._checks import index_or_none
from isentropic._descriptions import documented, takes_classes
from isentropic._maps import map_and_params
from isentropic.torch._arguments import (
    Tensor,
    as_text,
    autocast,
    checked_target,
    no_gradient,
    numbers_and_rows,
    one_device,
    readable,
)
from isentropic.torch._builder import Operator, wants_gradient
from isentropic.torch._compat import dispatch_modes, has_memory, in_forward_mode, in_transform, is_dtensor, never_again, tracing
from isentropic.torch._losses import DESCRIPTIONS
from isentropic.torch._modules import checked_sample_weight, checked_z_loss
from isentropic.torch._spec import OpSpec, result_type
from isentropic.torch.backends.linear_loss import value_and_gradients

_NAME = "linear_loss"


def _shapes(hidden, weight, target, bias, rows, sample_weight, loss, options, z_loss, row_names, reduction):
    lead = hidden.shape[:-1] if reduction == "none" else hidden.shape[:-2]
    return hidden.new_empty(lead, dtype=result_type(hidden))


_OPERATOR = Operator(
    OpSpec(
        name=_NAME,
        tensors=("hidden", "weight", "target", "bias?", "rows?", "sample_weight?"),
        params={"loss": "str", "options": "str", "z_loss": "float", "row_names": "str[]", "reduction": "str"},
        outputs=("value",),
        shapes=_shapes,
        differentiable=("hidden", "weight", "bias", "rows"),
        keeps=("hidden", "weight", "target", "bias", "rows", "sample_weight"),
        derivative="operator",
    )
)


class _WithGradients(torch.autograd.Function):
    """The loss with gradients from the forward pass, which has the scores: backward does not calculate them again."""

    @staticmethod
    def forward(ctx, of, *arguments):
        value, *gradients = value_and_gradients(*arguments, of=of)
        ctx.save_for_backward(*arguments[:6], *gradients)
        ctx.params = arguments[6:]
        return value

    @staticmethod
    def backward(ctx, grad):
        hidden, weight, target, bias, rows, sample_weight, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            kept = _OPERATOR.vjp(hidden, weight, target, bias, rows, sample_weight, grad, *ctx.params)
        elif not (grad.is_cpu and has_memory(grad)) or grad != 1:  # another device or a batch has no number to read
            product = torch.Tensor.mul_ if never_again(grad) else torch.mul
            kept = [product(one, grad.to(one.dtype)) for one in kept]
        of_hidden, of_weight, of_bias, of_rows = kept
        found = [of_hidden, of_weight, None, of_bias, of_rows, *[None] * (len(ctx.params) + 1)]
        return None, *(one if wanted else None for one, wanted in zip(found, ctx.needs_input_grad[1:], strict=True))


def _run(hidden, weight, target, bias, rows, *rest):
    moving = hidden, weight, bias, rows
    plain = not (torch.compiler.is_compiling() or in_transform() or in_forward_mode() or dispatch_modes() or tracing())
    if plain and rest[-1] != "none" and wants_gradient(*moving):
        of = hidden.requires_grad, weight.requires_grad
        return _WithGradients.apply(of, hidden, weight, target, bias, rows, *rest)
    return _OPERATOR(hidden, weight, target, bias, rows, *rest)


@documented
def linear_loss(
    hidden, weight, target, *, loss="softmax_loss", bias=None, reduction="mean", sample_weight=None, z_loss=0.0, **params
):
    """
    A loss of scores = hidden @ weight.T + bias, computed for some rows at a time, so that never all scores are stored.

    hidden: (..., features).
    weight: (classes, features), of the same dtype. As a DTensor that is sharded by classes, no rank has a whole row of scores;
        then the loss is one that isentropic.torch.distributed has, hidden and target are the same on all ranks, and bias is
        whole or sharded like weight.
    target: As the loss takes it for scores (..., classes): integers of shape (...), or floating-point numbers of shape (...,
        classes).
    loss (str): A loss by its name.
    bias (torch.Tensor or None): (classes,).
    reduction (str): "mean" over the rows, "sum" or "none".
    sample_weight (torch.Tensor or None): A factor for each row's loss, of shape (...); the mean divides by their sum. It gets
        no gradient.
    z_loss (float, at least 0): Adds z_loss times the square of the logsumexp of a row's scores, which keeps the scores from
        drifting.
    **params: Parameters of the loss. One is ignore_index, by default -100: rows with this target do not count in the mean.
        Parameters that may differ per row may be tensors that broadcast with (..., 1); they get gradients. map and its
        parameters are numbers.
    Returns: A number, or one for each row; float32 for halves. Twice differentiable in hidden, weight, bias and parameters.
    Notes: Value and gradients are those of the loss of torch.nn.functional.linear, up to rounding. The scores are computed
        once, together with the gradients if these may be asked for. With reduction="none", under torch.compile and under
        torch.func, backward computes the scores again. Double backward stores all scores. Gradients of halves are summed in
        float32. Under autocast the product has its type.
    >>> hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(1000, 8, requires_grad=True)
    >>> isentropic.torch.linear_loss(hidden, weight, torch.arange(6), loss="sparsemax_loss").backward()
    """
    if not isinstance(loss, str) or loss not in DESCRIPTIONS:
        raise ValueError(f"{_NAME}: loss must be one of {', '.join(DESCRIPTIONS)}, got {loss!r}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{_NAME}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if is_dtensor(weight):
        import isentropic.torch._generated as _generated
        from isentropic.torch.distributed._dtensor import linear_loss_of_dtensors

        functions, z_loss = (getattr(_generated, loss), _generated.logsumexp), checked_z_loss(_NAME, z_loss)
        return linear_loss_of_dtensors(hidden, weight, target, functions, bias, reduction, sample_weight, z_loss, params)
    hidden, weight, bias = _checked(hidden, weight, bias)
    description, lead = DESCRIPTIONS[loss], hidden.shape[:-1]
    scores = hidden.new_empty(1).expand(*lead, len(weight))  # only its shape
    target = checked_target(_NAME, {**description, "arguments": ("hidden", "target")}, scores, target, len(lead))
    values, rows, row_names = _values(description, params, scores, target)
    flat = target.reshape(-1, len(weight)) if target.shape == scores.shape and target.dim() > len(lead) else target.reshape(-1)
    sample_weight = checked_sample_weight(_NAME, sample_weight, "hidden", hidden, lead)
    value = _run(
        hidden.reshape(-1, hidden.shape[-1]),
        weight,
        flat,
        bias,
        rows,
        None if sample_weight is None else sample_weight.reshape(-1),
        loss,
        as_text(values),
        checked_z_loss(_NAME, z_loss),
        row_names,
        reduction,
    )
    return value.reshape(lead) if reduction == "none" else value


def _checked(hidden, weight, bias):
    given = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, x in given.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(
                f"{_NAME}: {name} must be a torch.Tensor of floating-point numbers, got {getattr(x, 'dtype', type(x))}"
            )
    one_device(_NAME, given)
    given = dict(zip(given, autocast(*given.values()), strict=True))
    if len({x.dtype for x in given.values()}) > 1:
        raise TypeError(
            f"{_NAME}: {', '.join(given)} must be of one dtype, got {', '.join(str(x.dtype) for x in given.values())}"
        )
    hidden, weight, bias = given["hidden"], given["weight"], given.get("bias")
    if hidden.dim() < 1 or weight.dim() != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{_NAME}: weight must be of shape (classes, features) for hidden of (..., features), got {tuple(weight.shape)} "
            f"for {tuple(hidden.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{_NAME}: bias must be of shape ({len(weight)},), one for each class, got {tuple(bias.shape)}")
    return hidden, weight, bias


def _values(description, params, scores, target):
    """(the loss's values with ignore_index, rows (count, k) or None, the names of these k parameters)."""
    ignored = []
    if takes_classes(description):
        ignored = [index_or_none(_NAME, params.pop("ignore_index", -100))]
    if _descriptions.takes_map(description):
        name, given = map_and_params(_NAME, params.pop("map", "softmax"), params)
        for param, value in given.items():
            no_gradient(_NAME, param, value)
        given = {param: value.item() if isinstance(value, Tensor) else value for param, value in given.items()}
        if not target.is_floating_point() and readable(target):
            wrong = ((target < 0) | (target >= scores.shape[-1])) & (target != ignored[0])
            if wrong.any():
                raise ValueError(
                    f"{_NAME}: target must be a class from 0 to {scores.shape[-1] - 1}, got {int(target[wrong][0])}"
                )
        return [[name, given], *ignored], None, []
    values = []
    for param in description["params"]:
        if param["required"] and param["name"] not in params:
            raise TypeError(f"{_NAME}: loss {description['name']!r} needs the parameter {param['name']!r}")
        values.append(params.pop(param["name"], param["default"]))
    if params:
        raise TypeError(f"{_NAME}: loss {description['name']!r} has no parameter {next(iter(params))!r}")
    for param in _descriptions.still(description, values):
        no_gradient(_NAME, param, values[[one["name"] for one in description["params"]].index(param)])
    numbers, rows = numbers_and_rows(description, values, "hidden", scores, scores.dim() - 1)
    names = [name for name, row in zip(_descriptions.per_row(description), rows, strict=True) if row is not None]
    given = [row.reshape(-1, 1) for row in rows if row is not None]
    return [*numbers, *ignored], torch.cat(given, 1) if given else None, names
