"""ratio_map on tensors: it uses torch's operations, and so is differentiable where the function is."""

from math import inf

import torch

import isentropic
from isentropic._descriptions import documented
from isentropic.formulas.rows import has_none, or_nan
from isentropic.torch._arguments import checked_dim, one_dim, readable
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import working

Tensor = torch.Tensor


@documented
def ratio_map(x, f, *, dim=None, axis=None):
    """
    f (callable): Takes a tensor of floats, of any shape, and gives as many numbers, at least 0, in a way that torch can
        differentiate: torch.square, or one's own.
    Returns: Of x's shape and dtype, differentiable as often as f is; in a row that is NaN the gradient is NaN.
    Raises: If f returns a negative number, NaN or inf for a finite score, only zeros for a row, or another shape. Its values
        are not checked on other devices than the CPU, under a compiler or under a transform.
    >>> isentropic.torch.ratio_map(torch.tensor([1.0, 2.0, -1.0]), torch.square)
    tensor([0.1667, 0.6667, 0.1667])
    """
    name = "ratio_map"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    if not callable(f):
        raise TypeError(f"{name}: f must be callable, got {type(f).__name__}")
    scores = working(x).movedim(dim, -1)
    finite = scores.isfinite()
    weights = f(torch.where(finite, scores, 0.0))
    if not isinstance(weights, Tensor):
        raise TypeError(f"{name}: f must give a torch.Tensor, got {type(weights).__name__}")
    if weights.shape != scores.shape:
        raise ValueError(
            f"{name}: f must give a tensor of the shape that it gets, {tuple(scores.shape)}, got {tuple(weights.shape)}"
        )
    weights = torch.where(finite, weights, 0.0).double()
    if readable(weights) and weights.numel() > 0:
        _refuse_weights(scores.detach(), weights.detach())
    infinite = scores == inf
    weights = torch.where(infinite.any(-1, keepdim=True), infinite.double(), weights)
    nothing = has_none(ROWS, scores)
    if weights.shape[-1] > 0:
        most = weights.detach().amax(-1, keepdim=True)
        weights = weights / torch.where(most > 0, most, 1.0)  # so that no sum is infinite
    total = weights.sum(-1, keepdim=True)
    p = or_nan(ROWS, weights / torch.where(nothing, 1.0, total), ~nothing, scores)
    return p.to(x.dtype).movedim(-1, dim).contiguous()


def _refuse_weights(scores, weights):
    """Refuses invalid values of f, like isentropic.ratio_map."""
    if bool(((weights >= 0) & (weights < inf)).all()) and bool((weights > 0).any(-1).all()):
        return
    isentropic.ratio_map(scores, lambda _: weights.reshape(-1, weights.shape[-1]).numpy(), axis=-1)
