"""What torch.nn modules of the functions are: those in _generated.py, and those written by hand."""

import torch

import entropic.torch
from entropic.torch._arguments import integer_dim

# What forward calls torch.fx keeps as one call: it could not follow a tensor that is only a name.


@torch.fx.wrap
def _mapped(function, x, **values):
    return getattr(entropic.torch, function)(x, **values)


@torch.fx.wrap
def _reduced(module, function, x, target, values, weight, reduction, dim, dtype):
    """A loss of rows, reduced."""
    # In which rows are summed: halves are no place for that.
    wide = None if dtype in (torch.float16, torch.bfloat16) else dtype
    each = getattr(entropic.torch, function)(x, target, **values, dim=dim, dtype=wide)
    classes = "ignore_index" in values and isinstance(target, torch.Tensor) and not target.is_floating_point()
    ignored = target == values["ignore_index"] if classes else None
    factors = None
    if weight is not None:
        if not classes:
            raise ValueError(f"{module}: weight is for targets that are classes, got {target.dtype}")
        if len(weight) != x.shape[dim]:
            raise ValueError(f"{module}: weight must have one factor for each of {x.shape[dim]} classes, got {len(weight)}")
        factors = torch.where(ignored, 0.0, weight[torch.where(ignored, 0, target)]).to(each.dtype)
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
        """What it was made with, as it is now."""
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
    """Calls `_function` with the parameters it was made with, and reduces what it gives."""

    _takes_classes = True

    def __init__(self, values, weight, ignore_index, reduction, dim, dtype):
        super().__init__(values)
        name = type(self).__name__
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if weight is not None and not isinstance(weight, torch.Tensor):
            raise TypeError(f"{name}: weight must be a torch.Tensor, got {type(weight).__name__}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"{name}: weight must have one factor for each class, got shape {tuple(weight.shape)}")
        self.register_buffer("weight", weight)
        self.ignore_index, self.reduction, self.dim, self.dtype = ignore_index, reduction, dim, dtype

    def forward(self, x, target):
        return self._reduced(x, target, self._values())

    def _reduced(self, x, target, values):
        if self._takes_classes:
            values["ignore_index"] = self.ignore_index
        names = type(self).__name__, type(self)._function.__name__
        return _reduced(*names, x, target, values, self.weight, self.reduction, self.dim, self.dtype)

    def extra_repr(self):
        return super().extra_repr("reduction", "dim")
