"""The bases of the functions' torch.nn modules: those in _generated.py, and those written by hand."""

import math
from typing import Any

import torch

from isentropic import _checks
from isentropic._checks import index_or_none
from isentropic.torch._arguments import (
    checked_dim,
    checked_sample_weight,
    checked_target,
    dtype_beside,
    from_array,
    integer_dim,
    is_ignored,
    quotient,
    spread,
)
from isentropic.torch._losses import DESCRIPTIONS, mean_of_rows
from isentropic.torch._reductions import widened
from isentropic.torch._spec import result_type

# The functions by name, which modules name when they are made of them.
_FUNCTIONS: dict[str, Any] = {}


class _OfFunction:
    """A base of classes whose `_function` is a function of isentropic.torch."""

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        function = getattr(cls, "_function", None)
        if function is not None:
            _FUNCTIONS[function.__name__] = function


# torch.fx keeps the calls of forward as single calls, because it cannot follow a tensor that is only a name.


@torch.fx.wrap
def _mapped(function, x, **values):
    return _FUNCTIONS[function](x, **values)


def checked_z_loss(name, value):
    value = _checks.number(name, "z_loss", value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: z_loss must be at least 0 and finite, got {value}")
    return value


def _part_of(share, value):
    """share * value; of an infinite value no share is 0."""
    return share * torch.where((share == 0) & value.isinf(), 0.0, value)


def _along(weight, x, dim):
    """The weights of classes, to be multiplied with scores."""
    shape = [1] * x.dim()
    shape[dim] = -1
    return weight.reshape(shape)


def weight_of_classes(weight, target):
    """The weight of each row's class."""
    known = (target >= 0) & (target < len(weight))  # the function refuses others, or they are ignored
    return torch.where(known, weight[torch.where(known, target, 0)], 1.0)


def _weighted_cross_entropy(x, target, weight, of_target, smoothing, ignored, dim):
    """torch's cross-entropy with weights of classes: every term has its class's weight, those of smoothing too."""
    of_class, present = _along(weight, x, dim), x != -math.inf
    log_p = _FUNCTIONS["log_softmax"](x, dim=dim)

    def loss(terms):
        return -torch.where(terms == 0, 0.0, terms * log_p).sum(dim)

    if ignored is None:
        value = loss(of_class * target.to(x.dtype))
    else:
        own = torch.where(ignored, 0, target).unsqueeze(dim)
        value = _part_of(of_target, -log_p.gather(dim, own).squeeze(dim))
    smoothing = from_array("softmax_loss", "label_smoothing", smoothing)
    if isinstance(smoothing, torch.Tensor):
        smoothing = spread("softmax_loss", "label_smoothing", smoothing, "x", x, dim).squeeze(dim).to(x.dtype)
    smooth = loss(present * of_class / present.sum(dim, keepdim=True).clamp(min=1))
    value = _part_of(1 - smoothing, value) + _part_of(smoothing, smooth)
    return value if ignored is None else torch.where(ignored, 0.0, value)


def _weighted(module, function, x, target, values, weight, sample_weight, z_loss, dim, dtype):
    """(the loss of each row with z_loss and times its weights, these weights or None, by which the mean divides)."""
    description = DESCRIPTIONS[function]
    dim = checked_dim(function, description["arguments"][0], x, dim)
    (x,) = widened(function, dtype, x)
    x = x.to(dtype_beside(x, target))
    target = checked_target(function, description, x, target, dim)
    number = result_type(x) if dtype is None else dtype
    classes = "ignore_index" in values and not target.is_floating_point()
    ignored = is_ignored(target, values["ignore_index"]) if classes else None
    smooth = values.get("label_smoothing", 0)
    smooth = not isinstance(smooth, (int, float)) or smooth != 0
    # Smoothing gives rows mass at other classes, and distributions at several, each with its own weight.
    by_terms = weight is not None and function == "softmax_loss" and (smooth or not classes)
    of_target = own = None
    if weight is not None:
        if not (classes or by_terms):
            raise ValueError(f"{module}: weight is for targets that are classes, got {target.dtype}")
        if len(weight) != x.shape[dim]:
            raise ValueError(f"{module}: weight must have one factor for each of {x.shape[dim]} classes, got {len(weight)}")
        weight = weight.to(number)
        of_target = weight_of_classes(weight, target) if classes else (_along(weight, x, dim) * target.to(number)).sum(dim)
    if sample_weight is not None:
        lead = (*x.shape[:dim], *x.shape[dim + 1 :])
        own = checked_sample_weight(module, sample_weight, "x", x, lead).to(number)
    if ignored is not None:
        of_target, own = (one if one is None else torch.where(ignored, 0.0, one) for one in (of_target, own))

    # Rows without a part in the result are not read: a NaN times their gradient, 0, would be NaN.
    out = ignored
    for factor in (own, None if by_terms and smooth else of_target):
        if factor is not None:
            out = factor == 0 if out is None else out | (factor == 0)
    if classes and not (by_terms or z_loss or values["ignore_index"] is None):
        target = torch.where(out, values["ignore_index"], target)  # needs no copy of x
    elif out is not None:
        x = torch.where(out.unsqueeze(dim), 0.0, x)
        if description["target"] == "scores":
            target = torch.where(out.unsqueeze(dim), 0.0, target)
    # If by_terms, this only checks the arguments.
    each = _FUNCTIONS[function](x.detach() if by_terms else x, target, **values, dim=dim, dtype=dtype)

    if by_terms:
        smoothing = values["label_smoothing"]
        each = _weighted_cross_entropy(x.to(number), target, weight, of_target, smoothing, ignored, dim)
    if z_loss:
        log_z = _FUNCTIONS["logsumexp"](x.to(number), dim=dim)
        penalty = z_loss * (log_z if ignored is None else torch.where(ignored, 0.0, log_z)).square()
        each = each + (of_target * penalty if by_terms else penalty)
    factors = own if by_terms or of_target is None else of_target if own is None else of_target * own
    if factors is not None:
        each = torch.where(factors == 0, 0.0, each * factors)
    divisors = own if of_target is None or not classes else of_target if own is None else of_target * own
    return each, ~ignored if classes and divisors is None else divisors


@torch.fx.wrap
def _reduced(module, function, x, target, values, weight, sample_weight, z_loss, reduction, dim, dtype):
    """A loss of rows, reduced."""
    plain = weight is None and sample_weight is None and not z_loss
    if reduction == "mean" and dtype is None and plain:
        mean = mean_of_rows(function, x, target, values, dim) if "ignore_index" in values else None
        if mean is not None:
            return mean
    # The type for sums over rows; halves are too coarse for them.
    wide = None if dtype in (torch.float16, torch.bfloat16) else dtype
    if plain:
        each, divisors = _FUNCTIONS[function](x, target, **values, dim=dim, dtype=wide), None
        if values.get("ignore_index") is not None and not target.is_floating_point():
            divisors = target.long() != values["ignore_index"]
    else:
        each, divisors = _weighted(module, function, x, target, values, weight, sample_weight, z_loss, dim, wide)
    if reduction == "none":
        result = each
    elif reduction == "sum":
        result = each.sum()
    elif divisors is not None:
        result = quotient(each.sum(), divisors.sum())
    else:
        result = each.mean()
    return result if dtype is None else result.to(dtype)


class Configured(torch.nn.Module):
    """Keeps the values it was made with under their names: tensors among them move with the module, and an nn.Parameter is
    learned."""

    def __init__(self, values):
        super().__init__()
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self._names = tuple(values)

    def _values(self):
        """The current values of its parameters."""
        return {name: getattr(self, name) for name in self._names}

    def extra_repr(self, *also):
        shown = ((name, getattr(self, name)) for name in (*self._names, *also))
        return ", ".join(f"{name}={tuple(v.shape) if isinstance(v, torch.Tensor) else repr(v)}" for name, v in shown)


class Map(_OfFunction, Configured):
    """Calls `_function` with the parameters it was made with."""

    def __init__(self, **values):
        super().__init__(values)
        self.dim = integer_dim(type(self).__name__, self.dim)

    def forward(self, x):
        return _mapped(type(self)._function.__name__, x, **self._values())


class Loss(_OfFunction, Configured):
    """Calls `_function` with the parameters it was made with, and reduces the result."""

    _takes_classes = True
    _usual_index: int | None = -100

    def __init__(self, values, weight, ignore_index, reduction, dim, dtype, z_loss=0.0):
        super().__init__(values)
        name = type(self).__name__
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if weight is not None and not isinstance(weight, torch.Tensor):
            raise TypeError(f"{name}: weight must be a torch.Tensor, got {type(weight).__name__}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"{name}: weight must have one factor for each class, got shape {tuple(weight.shape)}")
        self.register_buffer("weight", weight)
        self.z_loss = checked_z_loss(name, z_loss)
        self.ignore_index, self.reduction, self.dim, self.dtype = index_or_none(name, ignore_index), reduction, dim, dtype

    def forward(self, x, target, sample_weight=None):
        return self._reduced(x, target, sample_weight, self._values())

    def _reduced(self, x, target, sample_weight, values):
        if self._takes_classes:
            values["ignore_index"] = self.ignore_index
        names = type(self).__name__, type(self)._function.__name__
        weight = self._buffers["weight"]  # torch.nn.Module's own lookup takes longer than a small loss
        return _reduced(*names, x, target, values, weight, sample_weight, self.z_loss, self.reduction, self.dim, self.dtype)

    def extra_repr(self):
        usual = {"weight": None, "ignore_index": self._usual_index, "dtype": None, "z_loss": 0}
        further = [name for name, value in usual.items() if getattr(self, name) != value]
        return super().extra_repr("reduction", "dim", *further)


@torch.fx.wrap
def without_ignored(module, x, sample_weight, labels, ignore_index, dim):
    """The factors of rows, 0 where the label says that a row is ignored; None without either."""
    if labels is None:
        return sample_weight
    dim = checked_dim(module, "student", x, dim)
    lead = (*x.shape[:dim], *x.shape[dim + 1 :])
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.shape != lead:
        got = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, torch.Tensor) else type(labels).__name__
        raise ValueError(f"{module}: labels must be integers, one for each row, of shape {tuple(lead)}, got {got}")
    given = checked_sample_weight(module, sample_weight, "student", x, lead)
    given = x.new_ones((), dtype=result_type(x)) if given is None else given
    return torch.where(is_ignored(labels, ignore_index), torch.zeros_like(given), given)


class TeacherLoss(Loss):
    """A loss against a teacher, whose rows labels may leave out."""

    _takes_classes = False

    def forward(self, x, target, sample_weight=None, labels=None):
        name = type(self).__name__
        return super().forward(x, target, without_ignored(name, x, sample_weight, labels, self.ignore_index, self.dim))
