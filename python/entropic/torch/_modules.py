"""What torch.nn modules of the functions are: those in _generated.py, and those written by hand."""

import torch

from entropic.torch._arguments import integer_dim


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
        return type(self)._function(x, **self._values())


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
        each = type(self)._function(x, target, **values, dim=self.dim, dtype=self._wide())
        result = self._total(each, x, target)
        return result if self.dtype is None else result.to(self.dtype)

    def _wide(self):
        """That in which rows are summed: halves are no place for that."""
        return None if self.dtype in (torch.float16, torch.bfloat16) else self.dtype

    def _total(self, each, x, target):
        classes = self._takes_classes and isinstance(target, torch.Tensor) and not target.is_floating_point()
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
