"""torch.nn modules of the losses, those with a margin with classes of their own."""

import torch

from entropic import _functions
from entropic import _losses as numpy_losses
from entropic.torch import _losses
from entropic.torch._modules import Configured
from entropic.torch._names import class_name

Tensor = torch.Tensor

_COMMON = """
weight : torch.Tensor, optional
    One factor for each class, on the loss of the rows that have it; the mean divides by these. For targets that are classes.
ignore_index : int, default -100
    Rows with this target give 0 and no gradient, and do not count in the mean.
reduction : str, default "mean"
    "mean" over the rows, "sum" or "none".
dim : int, default -1
    The axis of the classes."""


class _Loss(Configured):
    """Calls `_function` with the parameters it was made with, and reduces what it gives."""

    _takes_classes = True

    def __init__(self, values, weight, ignore_index, reduction, dim):
        super().__init__(values)
        name = type(self).__name__
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if weight is not None and not isinstance(weight, Tensor):
            raise TypeError(f"{name}: weight must be a torch.Tensor, got {type(weight).__name__}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"{name}: weight must have one factor for each class, got shape {tuple(weight.shape)}")
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.dim = ignore_index, reduction, dim

    def forward(self, x, target):
        return self._reduced(x, target, self._values())

    def _reduced(self, x, target, values):
        if self._takes_classes:
            values["ignore_index"] = self.ignore_index
        each = type(self)._function(x, target, **values, dim=self.dim)
        classes = self._takes_classes and isinstance(target, Tensor) and not target.is_floating_point()
        ignored = target == self.ignore_index if classes else None
        factors = None
        if self.weight is not None:
            if not classes:
                raise ValueError(f"{type(self).__name__}: weight is for targets that are classes, got {target.dtype}")
            if len(self.weight) != x.shape[self.dim]:
                raise ValueError(
                    f"{type(self).__name__}: weight must have one factor for each of {x.shape[self.dim]} classes, got "
                    f"{len(self.weight)}"
                )
            factors = torch.where(ignored, 0.0, self.weight[torch.where(ignored, 0, target)]).to(each.dtype)
            each = torch.where(factors == 0, 0.0, each * factors)
        if self.reduction == "none":
            return each
        total = each.sum()
        if self.reduction == "sum":
            return total
        if factors is not None:
            return total / factors.sum()
        return total / (each.numel() if ignored is None else (~ignored).sum())

    def extra_repr(self):
        return super().extra_repr("reduction", "dim")


_MAP = f"""

Parameters
----------
map : str, or (str, dict), default "softmax"
    The map, its parameters as further keywords or in the dict.{_COMMON}"""


class SurrogateLoss(_Loss):
    __doc__ = f"The gradient p - q for any map: the module of entropic.torch.surrogate_loss. Its value means nothing.{_MAP}"

    _function = staticmethod(_losses.FUNCTIONS["surrogate_loss"])

    def __init__(self, map="softmax", weight=None, ignore_index=-100, reduction="mean", dim=-1, **params):
        super().__init__(params, weight, ignore_index, reduction, dim)
        self.map = map

    def forward(self, x, target):
        return self._reduced(x, target, {"map": self.map, **self._values()})


class SmoothAccuracyLoss(SurrogateLoss):
    __doc__ = f"Minus the probability that a map gives to the target: the module of entropic.torch.smooth_accuracy_loss.{_MAP}"

    _function = staticmethod(_losses.FUNCTIONS["smooth_accuracy_loss"])


class _MarginLoss(_Loss):
    """margin_softmax_loss of the cosines between embeddings and one learned direction for each class."""

    _function = staticmethod(_losses.FUNCTIONS["margin_softmax_loss"])

    def __init__(self, in_features, num_classes, margin, scale, weight, ignore_index, reduction, device, dtype):
        super().__init__({"margin": margin, "scale": scale}, weight, ignore_index, reduction, -1)
        for name, value in (("in_features", in_features), ("num_classes", num_classes)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be an integer of at least 1, got {value!r}")
        self.in_features, self.num_classes = in_features, num_classes
        self.classes = torch.nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.normal_(self.classes)  # directions: evenly over the sphere

    def cosines(self, x):
        """Of the angles between embeddings (..., in_features) and the classes, in (..., num_classes)."""
        if not isinstance(x, Tensor) or x.dim() < 1 or x.shape[-1] != self.in_features:
            shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{type(self).__name__}: x must be embeddings of shape (..., {self.in_features}), got {shape}")
        # Halves lose too much of an angle near 0.
        wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        with torch.autocast(x.device.type, enabled=False):
            unit, classes = (torch.nn.functional.normalize(v.to(wide), dim=-1) for v in (x, self.classes))
            return unit @ classes.T

    def forward(self, x, target):
        return self._reduced(self.cosines(x), target, {"kind": self._kind, **self._values()})

    def extra_repr(self):
        return f"in_features={self.in_features}, num_classes={self.num_classes}, {super().extra_repr()}"


def _margin_module(class_name, kind, margin, what):
    def __init__(
        self,
        in_features,
        num_classes,
        margin=margin,
        scale=30.0,
        weight=None,
        ignore_index=-100,
        reduction="mean",
        device=None,
        dtype=None,
    ):
        _MarginLoss.__init__(self, in_features, num_classes, margin, scale, weight, ignore_index, reduction, device, dtype)

    doc = f"""Cross-entropy of scaled cosines to learned class directions, {what}.

The parameter `classes` holds the directions, one row for each class; `cosines(x)` are the scores to classify with, and
embeddings are compared by their angle.

Parameters
----------
in_features, num_classes : int
    Size of an embedding, how many classes there are.
margin : float, default {margin}
    See entropic.margin_softmax_loss, kind "{kind}".
scale : float, default 30.0
    Multiplies the cosines.{_COMMON.partition(chr(10) + "dim :")[0]}

Examples
--------
>>> loss = entropic.torch.{class_name}(64, 10)
>>> loss(torch.randn(4, 64), torch.tensor([0, 9, 2, 2])).backward()
"""
    return type(
        class_name, (_MarginLoss,), {"__init__": __init__, "__doc__": doc, "__module__": "entropic.torch", "_kind": kind}
    )


# The others are their functions' parameters and what all have.


def _plain_module(description, function):
    name = description["name"]
    takes_classes = numpy_losses.takes_classes(description)
    params = [_functions.declare(param) for param in description["params"]]
    values = ", ".join(f"{param['name']!r}: {param['name']}" for param in description["params"])
    common = ["weight=None", "ignore_index=-100"] if takes_classes else []
    handed = "weight, ignore_index" if takes_classes else "None, None"
    namespace = {}
    exec(
        f"def __init__(self, {', '.join([*params, *common, 'reduction=' + repr('mean'), 'dim=-1'])}):\n"
        f"    _Loss.__init__(self, {{{values}}}, {handed}, reduction, dim)\n",
        {"_Loss": _Loss, "inf": float("inf")},
        namespace,
    )
    learned = " and ".join(param["name"] for param in description["params"] if param["per_row"])
    shared = _COMMON if takes_classes else _COMMON[_COMMON.index("\nreduction") :]
    doc = (
        f"{description['summary']}\n\nThe module of entropic.torch.{name}, with its parameters and these:\n\n"
        f"Parameters\n----------{shared}\n"
    )
    if learned:
        doc += f"\n{learned} may be an nn.Parameter that broadcasts with x and has size 1 along dim: it is then learned.\n"
    members = {
        "__init__": namespace["__init__"],
        "__doc__": doc,
        "__module__": "entropic.torch",
        "_function": staticmethod(function),
        "_takes_classes": takes_classes,
    }
    return type(class_name(name), (_Loss,), members)


def build():
    """The modules by name."""
    modules = [
        _plain_module(description, _losses.FUNCTIONS[name])
        for name, description in _losses.DESCRIPTIONS.items()
        if name in _losses.OPERATORS and description["target"] != "class"
    ]
    modules += [
        SurrogateLoss,
        SmoothAccuracyLoss,
        _margin_module("AMSoftmaxLoss", "am", 0.35, "the target's lowered by a margin"),
        _margin_module("ArcFaceLoss", "arc", 0.5, "a margin added to the target's angle, in radians"),
        _margin_module("SphereFaceLoss", "sphere", 4, "the target's angle multiplied by an integer margin"),
    ]
    for module in modules:
        module.__module__ = "entropic.torch"
    return {module.__name__: module for module in modules}
