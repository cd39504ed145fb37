"""linear_loss: its operator and function."""

import math

import torch

from isentropic import _checks, _descriptions
from isentropic._checks import index_or_none
from isentropic._descriptions import SPARSE_LOSSES, documented, takes_classes
from isentropic._maps import map_and_params
from isentropic.torch._arguments import (
    Tensor,
    as_text,
    autocast,
    checked_sample_weight,
    checked_target,
    dtype_beside,
    no_gradient,
    numbers_and_rows,
    one_device,
    readable,
)
from isentropic.torch._builder import Operator, wants_gradient
from isentropic.torch._compat import dispatch_modes, has_memory, in_forward_mode, in_transform, is_dtensor, never_again, tracing
from isentropic.torch._losses import DESCRIPTIONS, checked_teacher
from isentropic.torch._modules import checked_z_loss
from isentropic.torch._spec import OpSpec, result_type
from isentropic.torch.backends.linear_loss import value_and_gradients

_NAME = "linear_loss"
ALL = {**DESCRIPTIONS, **SPARSE_LOSSES}


def _shapes(hidden, *arguments):
    reduction = arguments[-1]
    lead = hidden.shape[:-1] if reduction == "none" else hidden.shape[:-2]
    return hidden.new_empty(lead, dtype=result_type(hidden))


_OPERATOR = Operator(
    OpSpec(
        name=_NAME,
        tensors=("hidden", "weight", "target", "bias?", "rows?", "sample_weight?", "log_probs?", "teacher_weight?"),
        params={
            "loss": "str",
            "options": "str",
            "z_loss": "float",
            "softcap": "float",
            "row_names": "str[]",
            "reduction": "str",
        },
        outputs=("value",),
        shapes=_shapes,
        differentiable=("hidden", "weight", "bias", "rows"),
        keeps=("hidden", "weight", "target", "bias", "rows", "sample_weight", "log_probs", "teacher_weight"),
        derivative="operator",
    )
)


class _WithGradients(torch.autograd.Function):
    """The loss with gradients from the forward pass, which has the scores: backward does not calculate them again."""

    @staticmethod
    def forward(ctx, of, *arguments):
        value, *gradients = value_and_gradients(*arguments, of=of)
        ctx.save_for_backward(*arguments[: _OPERATOR.count], *gradients)
        ctx.params = arguments[_OPERATOR.count :]
        return value

    @staticmethod
    def backward(ctx, grad):
        saved = ctx.saved_tensors  # read only once: with checkpointing every access unpacks the tensors
        tensors, kept = saved[: _OPERATOR.count], saved[_OPERATOR.count :]
        if torch.is_grad_enabled():  # a second derivative is wanted
            kept = _OPERATOR.vjp(*tensors, grad, *ctx.params)
        else:
            # Another device or a batch has no number to read.
            factor = None if grad.is_cpu and has_memory(grad) and grad == 1 else grad
            dtypes, own = (*[tensors[0].dtype] * 3, kept[3].dtype), never_again(grad)
            kept = [_times(one, factor, dtype, own) for one, dtype in zip(kept, dtypes, strict=True)]
        of_hidden, of_weight, of_bias, of_rows = kept
        found = [of_hidden, of_weight, None, of_bias, of_rows, *[None] * (_OPERATOR.count - 5 + len(ctx.params))]
        return None, *(one if wanted else None for one, wanted in zip(found, ctx.needs_input_grad[1:], strict=True))


def _times(one, factor, dtype, own):
    """one * factor in dtype, rounded once: a loss scale of 2^16 is beyond float16. Without `own`, one stays as it is, and
    autograd, which may write to what it gets, gets another tensor."""
    if factor is None:
        return one.clone() if one.dtype == dtype and not own else one.to(dtype)
    wide = one.to(result_type(one))
    return (wide.mul_(factor) if own else wide * factor).to(dtype)


def _run(hidden, weight, target, bias, rows, *rest):
    moving = hidden, weight, bias, rows
    plain = not (torch.compiler.is_compiling() or in_transform() or in_forward_mode() or dispatch_modes() or tracing())
    if plain and rest[-1] != "none" and wants_gradient(*moving):
        of = hidden.requires_grad, weight.requires_grad
        return _WithGradients.apply(of, hidden, weight, target, bias, rows, *rest)
    return _OPERATOR(hidden, weight, target, bias, rows, *rest)


@documented
def linear_loss(
    hidden,
    weight,
    target=None,
    *,
    loss="softmax_loss",
    bias=None,
    reduction="mean",
    sample_weight=None,
    z_loss=0.0,
    softcap=None,
    teacher_hidden=None,
    teacher_weight=None,
    **params,
):
    """
    A loss of scores = hidden @ weight.T + bias. Only the scores of some rows are in memory at a time.

    hidden: (..., features).
    weight: (classes, features), of the same dtype. As a DTensor that is sharded by classes, no rank has a whole row of scores;
        then the loss is one that isentropic.torch.distributed has, hidden and target are the same on all ranks, and bias is
        whole or sharded like weight.
    target: As the loss takes it for scores (..., classes): integers of shape (...), or floating-point numbers of shape (...,
        classes); of sparse_distillation_loss the pair (indices, log_probs), each (..., k). It is left out if teacher_hidden is
        given.
    loss (str): A loss by its name.
    bias (torch.Tensor or None): (classes,).
    reduction (str): "mean" over the rows, "sum" or "none".
    sample_weight (torch.Tensor or None): A factor for each row's loss, of shape (...); the mean divides by their sum. It gets
        no gradient.
    z_loss (float, at least 0): Adds z_loss times the square of the logsumexp of a row's scores, which keeps the scores from
        drifting.
    softcap (float, above 0): The scores are softcap tanh(scores / softcap).
    teacher_hidden, teacher_weight (torch.Tensor or None): For losses against a teacher's scores: these are teacher_hidden (...,
        other features) @ teacher_weight.T, (classes, other features), and are not stored either. No gradient is taken in them,
        and softcap does not apply to them.
    **params: Parameters of the loss. One is ignore_index, by default -100: rows with this target do not count in the mean.
        Parameters that may differ per row may be tensors that broadcast with (..., 1); they get gradients. map and its
        parameters are numbers.
    Returns: A number, or one for each row; float32 for halves. Twice differentiable in hidden, weight, bias and parameters.
    Notes: Value and gradients are those of the loss of torch.nn.functional.linear, up to rounding. The scores are computed
        once, together with the gradients if these may be needed. With reduction="none", under torch.compile and under
        torch.func, backward computes the scores again. Double backward stores all scores. Gradients of halves are summed in
        float32. Under autocast the product is computed in autocast's type.
    >>> hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(1000, 8, requires_grad=True)
    >>> isentropic.torch.linear_loss(hidden, weight, torch.arange(6), loss="sparsemax_loss").backward()
    """
    if not isinstance(loss, str) or loss not in ALL:
        raise ValueError(f"{_NAME}: loss must be one of {', '.join(ALL)}, got {loss!r}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{_NAME}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    softcap = checked_softcap(_NAME, softcap)
    teacher = {"teacher_hidden": teacher_hidden, "teacher_weight": teacher_weight}
    if is_dtensor(weight):
        further = "softcap" if softcap else next((name for name, one in teacher.items() if one is not None), None)
        if further is not None or loss not in DESCRIPTIONS:
            raise ValueError(f"{_NAME}: weight as a DTensor has no {further or loss}; pass weight.full_tensor()")
        import isentropic.torch._generated as _generated
        from isentropic.torch.distributed._dtensor import linear_loss_of_dtensors

        functions, z_loss = (getattr(_generated, loss), _generated.logsumexp), checked_z_loss(_NAME, z_loss)
        return linear_loss_of_dtensors(hidden, weight, target, functions, bias, reduction, sample_weight, z_loss, params)
    hidden, weight, bias = checked_linear(_NAME, hidden, weight, bias)
    description, lead = ALL[loss], hidden.shape[:-1]
    scores = hidden.new_empty(1, dtype=dtype_beside(hidden, target)).expand(*lead, len(weight))  # only its shape
    sample_weight = checked_sample_weight(_NAME, sample_weight, "hidden", hidden, lead)
    log_probs = None
    if any(one is not None for one in teacher.values()):
        target, teacher_weight = _checked_teacher(description, hidden, weight, target, teacher)
    elif loss in SPARSE_LOSSES:
        if not isinstance(target, (tuple, list)) or len(target) != 2:
            raise TypeError(f"{_NAME}: target must be (indices, log_probs) for loss {loss!r}, got {type(target).__name__}")
        indices, log_probs = target
        if sample_weight is not None and isinstance(indices, Tensor) and indices.shape[:-1] == lead:
            indices = torch.where((sample_weight == 0).unsqueeze(-1), -1, indices)  # such rows are not read
        target, log_probs = checked_teacher(_NAME, hidden, indices, log_probs, lead)
        log_probs = log_probs.reshape(-1, log_probs.shape[-1])
    else:
        target = checked_target(_NAME, {**description, "arguments": ("hidden", "target")}, scores, target, len(lead))
    values, rows, row_names = _values(description, params, scores, target)
    flat = target.reshape(-1, target.shape[-1]) if target.dim() > len(lead) else target.reshape(-1)
    value = _run(
        hidden.reshape(-1, hidden.shape[-1]),
        weight,
        flat,
        bias,
        rows,
        None if sample_weight is None else sample_weight.reshape(-1),
        log_probs,
        teacher_weight,
        loss,
        as_text(values),
        checked_z_loss(_NAME, z_loss),
        softcap,
        row_names,
        reduction,
    )
    return value.reshape(lead) if reduction == "none" else value


def _checked_teacher(description, hidden, weight, target, teacher):
    """(its hidden states as rows, its weight)."""
    if description.get("target") != "scores":
        raise TypeError(f"{_NAME}: teacher_hidden is for losses against a teacher's scores, got loss {description['name']!r}")
    if target is not None:
        raise TypeError(f"{_NAME}: give one of target and teacher_hidden")
    for name, x in teacher.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(f"{_NAME}: {name} must be a torch.Tensor of floating-point numbers, got {getattr(x, 'dtype', x)}")
        no_gradient(_NAME, name, x)
    one_device(_NAME, {"hidden": hidden, **teacher})
    states, classes = autocast(*teacher.values())
    if states.dtype != classes.dtype:
        raise TypeError(
            f"{_NAME}: teacher_hidden and teacher_weight must be of one dtype, got {states.dtype} and {classes.dtype}"
        )
    if states.dim() != hidden.dim() or states.shape[:-1] != hidden.shape[:-1]:
        raise ValueError(
            f"{_NAME}: teacher_hidden must have the rows of hidden, {tuple(hidden.shape[:-1])}, got {tuple(states.shape)}"
        )
    if classes.shape != (len(weight), states.shape[-1]):
        raise ValueError(
            f"{_NAME}: teacher_weight must be of shape {(len(weight), states.shape[-1])}, a row for each class, got "
            f"{tuple(classes.shape)}"
        )
    return states, classes


def checked_softcap(name, softcap):
    """The number, 0 for None."""
    if softcap is None:
        return 0.0
    softcap = _checks.number(name, "softcap", softcap)
    if not 0 < softcap < math.inf:
        raise ValueError(f"{name}: softcap must be above 0 and finite, got {softcap}")
    return softcap


def checked_linear(function, hidden, weight, bias):
    given = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, x in given.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise TypeError(
                f"{function}: {name} must be a torch.Tensor of floating-point numbers, got {getattr(x, 'dtype', type(x))}"
            )
    one_device(function, given)
    given = dict(zip(given, autocast(*given.values()), strict=True))
    if len({x.dtype for x in given.values()}) > 1:
        raise TypeError(
            f"{function}: {', '.join(given)} must be of one dtype, got {', '.join(str(x.dtype) for x in given.values())}"
        )
    hidden, weight, bias = given["hidden"], given["weight"], given.get("bias")
    if hidden.dim() < 1 or weight.dim() != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"{function}: weight must be of shape (classes, features) for hidden of (..., features), got {tuple(weight.shape)} "
            f"for {tuple(hidden.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{function}: bias must be of shape ({len(weight)},), one for each class, got {tuple(bias.shape)}")
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
