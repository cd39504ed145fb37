"""The torch.nn modules of losses that are written by hand: those of any map, and those with a margin, which hold their own
classes."""

import torch

import isentropic.torch._generated as _generated
from isentropic._descriptions import documented
from isentropic._maps import map_and_params
from isentropic.torch._arguments import checked_dim, checked_sample_weight, is_ignored, quotient
from isentropic.torch._compat import without_autocast
from isentropic.torch._losses import sparse_distillation_loss
from isentropic.torch._modules import Loss, TeacherLoss, weight_of_classes, without_ignored


@torch.fx.wrap
def _sparse(module, student, indices, log_probs, values, sample_weight, labels, ignore_index, reduction, dim, dtype):
    """sparse_distillation_loss, reduced over the rows that have a class and a weight."""
    sample_weight = without_ignored(module, student, sample_weight, labels, ignore_index, dim)
    out = None if sample_weight is None else sample_weight == 0
    if out is not None:
        dim = checked_dim(module, "student", student, dim)
        checked_sample_weight(module, sample_weight, "student", student, (*student.shape[:dim], *student.shape[dim + 1 :]))
        if isinstance(indices, torch.Tensor) and indices.shape[:-1] == out.shape:  # otherwise it is refused by what follows
            indices = torch.where(out.unsqueeze(-1), -1, indices)
    wide = None if dtype in (torch.float16, torch.bfloat16) else dtype
    each = sparse_distillation_loss(student, indices, log_probs, **values, dim=dim, dtype=wide)
    factors = (indices >= 0).any(-1).to(each.dtype)
    if out is not None:
        factors = torch.where(factors == 0, 0.0, sample_weight.to(each.dtype))
        each = torch.where(factors == 0, 0.0, each * factors)
    result = each if reduction == "none" else each.sum() if reduction == "sum" else quotient(each.sum(), factors.sum())
    return result if dtype is None else result.to(dtype)


@documented
class SparseDistillationLoss(TeacherLoss):
    """Divergence from a teacher that stores only a few classes: isentropic.torch.sparse_distillation_loss as a module.

    Call it with (student, indices, log_probs), and sample_weight, a factor for the loss of each row, and labels. Rows without
    any class, and those whose label is ignore_index, give 0 and do not count in the mean.

    Parameters
    ----------
    temperature, divergence, beta, tail
        See isentropic.sparse_distillation_loss. temperature and beta may be an nn.Parameter, and are then learned.
    ignore_index : int or None, default -100
        Rows whose label is this are ignored.
    reduction : str, default "mean"
        "mean" over the rows, "sum" or "none".
    dim : int, default -1
        The axis of the classes.
    dtype : torch.dtype, optional
        The type of the result.

    Examples
    --------
    >>> best = torch.randn(4, 9).log_softmax(-1).topk(3)
    >>> loss = isentropic.torch.SparseDistillationLoss(divergence="jsd")
    >>> loss(torch.randn(4, 9, requires_grad=True), best.indices, best.values).backward()
    """

    _function = staticmethod(sparse_distillation_loss)

    def __init__(
        self,
        *,
        temperature=1.0,
        divergence="forward_kl",
        beta=None,
        tail="bin",
        ignore_index=-100,
        reduction="mean",
        dim=-1,
        dtype=None,
    ):
        values = {"temperature": temperature, "divergence": divergence, "beta": beta, "tail": tail}
        super().__init__(values, None, ignore_index, reduction, dim, dtype)

    def forward(self, student, indices, log_probs, sample_weight=None, labels=None):
        of_rows = sample_weight, labels, self.ignore_index
        values = self._values()
        return _sparse(type(self).__name__, student, indices, log_probs, values, *of_rows, self.reduction, self.dim, self.dtype)


_COMMON = """\
ignore_index : int or None, default -100
    Rows with this target give 0 and no gradient, and do not count in the mean.
reduction : str, default "mean"
    "mean" over the rows, "sum" or "none".
"""

_MAP = f"""\
Parameters
----------
weight : torch.Tensor, optional
    One factor for each class, which multiplies the loss of the rows with this class; the mean divides by the sum of these
    factors. Targets must be classes.
map : str, or (str, dict), default "softmax"
    The map, its parameters as further keywords or in the dict.
{_COMMON}dim : int, default -1
    The axis of the classes.
"""


@documented
class SurrogateLoss(Loss):
    __doc__ = f"""The gradient p - q for any map: the module of isentropic.torch.surrogate_loss. Its value has no meaning.

{_MAP}"""

    _function = staticmethod(_generated.surrogate_loss)

    def __init__(self, weight=None, *, map="softmax", ignore_index=-100, reduction="mean", dim=-1, dtype=None, **params):
        name, values = map_and_params(type(self).__name__, map, params)
        given = (*params, *(() if isinstance(map, str) else map[1]))
        super().__init__({key: values[key] for key in given}, weight, ignore_index, reduction, dim, dtype)
        self.map = name

    def forward(self, x, target, sample_weight=None):
        return self._reduced(x, target, sample_weight, {"map": self.map, **self._values()})

    def extra_repr(self):
        return f"map={self.map!r}, {super().extra_repr()}"


@documented
class SmoothAccuracyLoss(SurrogateLoss):
    __doc__ = f"""Minus the probability that a map gives to the target: the module of isentropic.torch.smooth_accuracy_loss.

{_MAP}"""

    _function = staticmethod(_generated.smooth_accuracy_loss)


@torch.fx.wrap
def _cosines(module, x, classes):
    if not isinstance(x, torch.Tensor) or x.dim() < 1 or x.shape[-1] != classes.shape[1]:
        shape = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"{module}: x must be embeddings of shape (..., {classes.shape[1]}), got {shape}")
    # Halves have too few digits for an angle near 0.
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    with without_autocast(x):
        return _unit(x.to(wide)) @ _unit(classes.to(wide)).T


def _unit(v):
    """Rows over their lengths; 0, with gradient 0, for a row of zeros, which has no direction.

    A row is first divided by its largest number, whose square may be out of range. The result does not depend on this divisor,
    so no gradient goes through it.
    """
    largest = v.detach().abs().amax(-1, keepdim=True)
    zero = largest == 0
    scaled = v / torch.where(zero, 1, largest)
    return torch.where(zero, 0, scaled / torch.where(zero, 1, scaled.square().sum(-1, keepdim=True)).sqrt())


@torch.fx.wrap
def _read(x, target, sample_weight, weight, ignore_index):
    """The embeddings; those of rows without a part in the loss are 0, because a NaN times their gradient, 0, would be NaN."""
    of_rows = (target,) if sample_weight is None else (target, sample_weight)
    tensors = all(isinstance(one, torch.Tensor) for one in (x, *of_rows))
    if not tensors or any(one.shape != x.shape[:-1] for one in of_rows) or target.is_floating_point():
        return x  # refused by what follows
    target = target.long()
    out = is_ignored(target, ignore_index)
    if weight is not None:
        out = out | (weight_of_classes(weight, target) == 0)
    if sample_weight is not None:
        out = out | (sample_weight == 0)
    return torch.where(out.unsqueeze(-1), 0.0, x)


class _MarginLoss(Loss):
    """margin_softmax_loss of the cosines between embeddings and one learned direction for each class."""

    _function = staticmethod(_generated.margin_softmax_loss)

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        margin=None,
        scale=30.0,
        weight=None,
        ignore_index=-100,
        reduction="mean",
        device=None,
        dtype=None,
    ):
        margin = self._usual_margin if margin is None else margin
        super().__init__({"margin": margin, "scale": scale}, weight, ignore_index, reduction, -1, None)
        for name, value in (("in_features", in_features), ("num_classes", num_classes)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be an integer of at least 1, got {value!r}")
        self.in_features, self.num_classes = in_features, num_classes
        self.classes = torch.nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.normal_(self.classes)  # only directions matter: uniform on the sphere

    def cosines(self, x):
        """Cosines of the angles between embeddings (..., in_features) and the classes, in (..., num_classes)."""
        return _cosines(type(self).__name__, x, self.classes)

    def forward(self, x, target, sample_weight=None):
        x = _read(x, target, sample_weight, self.weight, self.ignore_index)
        return self._reduced(self.cosines(x), target, sample_weight, {"kind": self._kind, **self._values()})

    def extra_repr(self):
        return f"in_features={self.in_features}, num_classes={self.num_classes}, {super().extra_repr()}"


def _margin_doc(class_name, kind, margin, what):
    return f"""Cross-entropy of scaled cosines to learned class directions, {what}.

The parameter `classes` holds the directions, one row for each class; `cosines(x)` are the scores to classify with, and
embeddings are compared by their angle.

Parameters
----------
in_features, num_classes : int
    Size of an embedding, how many classes there are.
margin : float, default {margin}
    See isentropic.margin_softmax_loss, kind "{kind}".
scale : float, default 30.0
    Multiplies the cosines; it may be an nn.Parameter, and is then learned.
weight : torch.Tensor, optional
    One factor for each class, which multiplies the loss of the rows with this class; the mean divides by the sum of these
    factors.
{_COMMON}
Examples
--------
>>> loss = isentropic.torch.{class_name}(64, 10)
>>> loss(torch.randn(4, 64), torch.tensor([0, 9, 2, 2])).backward()
"""


@documented
class AMSoftmaxLoss(_MarginLoss):
    __doc__ = _margin_doc("AMSoftmaxLoss", "am", 0.35, "the target's lowered by a margin")
    _kind, _usual_margin = "am", 0.35


@documented
class ArcFaceLoss(_MarginLoss):
    __doc__ = _margin_doc("ArcFaceLoss", "arc", 0.5, "a margin added to the target's angle, in radians")
    _kind, _usual_margin = "arc", 0.5


@documented
class SphereFaceLoss(_MarginLoss):
    __doc__ = _margin_doc("SphereFaceLoss", "sphere", 4, "the target's angle multiplied by an integer margin")
    _kind, _usual_margin = "sphere", 4
