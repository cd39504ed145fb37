"""soft_top_k of tensors: torch's operations alone."""

import torch

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.formulas.soft_top_k import soft_top_k as formula
from isentropic.torch._arguments import checked_dim, one_dim, readable, spread
from isentropic.torch._rows import ROWS


def _numbers(argument, value, x, dim):
    """One number for each row, in x's axes with dim as the last."""
    name, finite = "soft_top_k", argument == "temperature"
    if not isinstance(value, torch.Tensor):
        number = _checks.number(name, argument, value)
        if not number > 0 or (finite and number == float("inf")):
            raise ValueError(f"{name}: {argument} must be above 0{' and finite' if finite else ''}, got {number}")
        return x.new_full((), number, dtype=torch.float64).expand(*[1] * x.dim())
    value = spread(name, argument, value, "x", x, dim)
    if readable(value) and bool((wrong := ~(value > 0) | (finite & value.isinf())).any()):
        got = value[wrong][0].item()
        raise ValueError(f"{name}: {argument} must be above 0{' and finite' if finite else ''}, got {got}")
    return value.movedim(dim, -1)


@documented
def soft_top_k(x, dim=None, *, k, temperature=1.0, axis=None):
    """``isentropic.soft_top_k``, differentiable in x, k and temperature, as often as one likes.

    >>> x = torch.tensor([3.0, 1.0, 0.0, -2.0], requires_grad=True)
    >>> isentropic.torch.soft_top_k(x, k=2)[0].backward()
    >>> x.grad
    tensor([ 0.0620, -0.0270, -0.0270, -0.0081])
    """
    dim = checked_dim("soft_top_k", "x", x, one_dim("soft_top_k", dim, axis))
    k, temperature = (_numbers(key, one, x, dim) for key, one in (("k", k), ("temperature", temperature)))
    if x.numel() == 0:
        return x.clone()
    wide = x.movedim(dim, -1).to(torch.float64)
    return formula(ROWS, wide, k, temperature).to(x.dtype).movedim(-1, dim)
