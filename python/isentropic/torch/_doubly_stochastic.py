"""Doubly stochastic tables of tensors."""

import torch

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy._doubly_stochastic import numbers
from isentropic.torch._arguments import checked_dim, readable
from isentropic.torch._builder import Operator
from isentropic.torch._spec import OpSpec

_tables = Operator(
    OpSpec(
        name="doubly_stochastic",
        tensors=("x",),
        params={"temperature": "float", "iterations": "int", "tolerance": "float?"},
        outputs=("y",),
        shapes=lambda x, *_: x.new_empty(x.shape),
        differentiable=("x",),
        keeps=("x", "y"),
        derivative="operator",
        symmetric=lambda temperature, iterations, tolerance: iterations == 0,
    )
)


@documented
def doubly_stochastic(x, *, temperature=1.0, iterations=None, tolerance=None):
    """``isentropic.doubly_stochastic`` of tables in the last two axes; differentiable in x and in a temperature tensor.

    temperature may be a tensor of one number for each table, which broadcasts to (..., 1, 1). Gradients are those of the
    iterations, or of the limit.

    >>> x = torch.tensor([[2.0, 0.0], [1.0, 0.0]], requires_grad=True)
    >>> isentropic.torch.doubly_stochastic(x, iterations=20)[0, 0].backward()
    >>> x.grad
    tensor([[ 0.1175, -0.1175],
            [-0.1175,  0.1175]])
    """
    name = "doubly_stochastic"
    checked_dim(name, "x", x, -1)
    if x.dim() < 2:
        raise ValueError(f"{name}: x must have at least two axes, rows and columns, got shape {tuple(x.shape)}")
    heat = temperature if isinstance(temperature, torch.Tensor) else None
    temperature, *others = numbers(name, 1.0 if heat is not None else temperature, iterations, tolerance)
    if heat is None:
        return _tables(x, temperature, *others)
    try:
        torch.broadcast_shapes(heat.shape, (*x.shape[:-2], 1, 1))
        heat = heat.to(x.device, torch.float64).expand(*x.shape[:-2], 1, 1)
    except RuntimeError:
        shape = (*x.shape[:-2], 1, 1)
        raise ValueError(f"{name}: temperature must broadcast to {shape}, got shape {tuple(heat.shape)}") from None
    if readable(heat):
        _checks.positive(name, "temperature", heat.detach().cpu().numpy())
    finite = x.isfinite()
    scaled = torch.where(finite, torch.where(finite, x, 0) / heat, x.double())
    return _tables(scaled, 1.0, *others).to(x.dtype)
