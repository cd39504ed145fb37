"""The bases of the functions' torch.nn modules: those in _generated.py, and those written by hand."""

import math
import sys

import torch

from entropic import _checks
from entropic.torch._arguments import integer_dim, no_gradient, one_device
from entropic.torch._losses import mean_of_rows


def _public(name):
    """A function of entropic.torch, which imports this module."""
    return getattr(sys.modules["entropic.torch"], name)


# torch.fx keeps the calls of forward as single calls, because it cannot follow a tensor that is only a name.


@torch.fx.wrap
def _mapped(function, x, **values):
    return _public(function)(x, **values)


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


def checked_z_loss(name, value):
    value = _checks.number(name, "z_loss", value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name}: z_loss must be at least 0 and finite, got {value}")
    return value


@torch.fx.wrap
def _reduced(module, function, x, target, values, weight, sample_weight, z_loss, reduction, dim, dtype):
    """A loss of rows, reduced."""
    if reduction == "mean" and dtype is None and weight is None and sample_weight is None and not z_loss:
        mean = mean_of_rows(function, x, target, values, dim) if "ignore_index" in values else None
        if mean is not None:
            return mean
    # The type for sums over rows; halves are too coarse for them.
    wide = None if dtype in (torch.float16, torch.bfloat16) else dtype
    each = _public(function)(x, target, **values, dim=dim, dtype=wide)
    classes = "ignore_index" in values and isinstance(target, torch.Tensor) and not target.is_floating_point()
    ignored = target == values["ignore_index"] if classes else None
    if z_loss:
        log_z = _public("logsumexp")(x.to(each.dtype), dim=dim)
        each = each + z_loss * (log_z if ignored is None else torch.where(ignored, 0.0, log_z)).square()
    factors = None
    if weight is not None:
        if not classes:
            raise ValueError(f"{module}: weight is for targets that are classes, got {target.dtype}")
        if len(weight) != x.shape[dim]:
            raise ValueError(f"{module}: weight must have one factor for each of {x.shape[dim]} classes, got {len(weight)}")
        factors = torch.where(ignored, 0.0, weight[torch.where(ignored, 0, target)]).to(each.dtype)
    if sample_weight is not None:
        own = checked_sample_weight(module, sample_weight, "x", x, each.shape).to(each.dtype)
        own = own if ignored is None else torch.where(ignored, 0.0, own)
        factors = own if factors is None else factors * own
    if factors is not None:
        each = torch.where(factors == 0, 0.0, each * factors)
    if reduction == "none":
        result = each
    elif reduction == "sum":
        result = each.sum()
    elif factors is not None:
        result = each.sum() / factors.sum()
    else:
        result = each.sum() / (each.numel() if ignored is None else (~ignored).sum())
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


class Map(Configured):
    """Calls `_function` with the parameters it was made with."""

    def __init__(self, **values):
        super().__init__(values)
        self.dim = integer_dim(type(self).__name__, self.dim)

    def forward(self, x):
        return _mapped(type(self)._function.__name__, x, **self._values())


class Loss(Configured):
    """Calls `_function` with the parameters it was made with, and reduces the result."""

    _takes_classes = True

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
        self.ignore_index, self.reduction, self.dim, self.dtype = ignore_index, reduction, dim, dtype

    def forward(self, x, target, sample_weight=None):
        return self._reduced(x, target, sample_weight, self._values())

    def _reduced(self, x, target, sample_weight, values):
        if self._takes_classes:
            values["ignore_index"] = self.ignore_index
        names = type(self).__name__, type(self)._function.__name__
        further = self.weight, sample_weight, self.z_loss, self.reduction, self.dim, self.dtype
        return _reduced(*names, x, target, values, *further)

    def extra_repr(self):
        return super().extra_repr("reduction", "dim")
