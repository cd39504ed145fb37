"""Losses: the formulas, on tensors; and the losses of any map."""

import functools
import math

import torch

from isentropic import _descriptions
from isentropic.formulas import losses
from isentropic.formulas.rows import INF, canonical
from isentropic.torch._compat import primals, pushing_further
from isentropic.torch._rows import ROWS, last
from isentropic.torch._spec import working
from isentropic.torch.backends.reference.maps import call_map
from isentropic.torch.backends.reference.rows import reduction


def _by_operator(name, x, params):
    return call_map(name, x, params, x.dim() - 1)


def _loss(description, tensors, params):
    x, target = tensors
    if target.is_floating_point():
        value, dx, slopes = losses.graded(ROWS, description, working(x), working(target), None, params, _by_operator)
        return value, [dx], slopes
    ignored = -(2**63) if params.get("ignore_index") is None else params["ignore_index"]
    x, q, ignored = _matrix(working(x), target, ignored, x.dim() - 1)
    value, dx, slopes = losses.graded(ROWS, description, x, q, ignored.unsqueeze(-1), params, _by_operator)
    return value, [dx], slopes


LOSSES = losses.LOSSES
IMPLEMENTATIONS = {
    name: reduction(functools.partial(_loss, one), 2, one, ["ignore_index"] if one["target"].startswith("class") else [])
    for name, one in ((name, _descriptions.LOSSES[name]) for name in LOSSES)
}


def _sparse(tensors, params):
    x, indices, log_probs = tensors
    value, dx, slopes = losses.sparse_graded(ROWS, working(x), indices, log_probs, params)
    return value, [dx], slopes


IMPLEMENTATIONS |= {name: reduction(_sparse, 3, one) for name, one in _descriptions.SPARSE_LOSSES.items()}


# Losses of any map. They use the maps' own operators, which decide where they run, and are not operators themselves.


def _matrix(x, target, ignore_index, dim):
    """(x with 0 in ignored rows, target as a matrix, mask of ignored rows)."""
    if target.is_floating_point():
        return x, target, None
    ignored = None
    if ignore_index is not None:
        ignored = target == ignore_index
        x, target = torch.where(ignored.unsqueeze(dim), 0.0, x), torch.where(ignored, 0, target)
    index = target.unsqueeze(dim)
    return x, torch.zeros_like(x).scatter(dim, index, torch.ones_like(index, dtype=x.dtype)), ignored


def _of_map(named_map, x, dim):
    return call_map(named_map[0], x, named_map[1], dim)


def _smooth_accuracy_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    value = -torch.where(q > 0, q * _of_map(named_map, x, dim), 0.0).sum(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


class _Surrogate(torch.autograd.Function):
    """value, of size 1 along dim, with slope as its gradient in x; slope has its own gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, x, slope, dim):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[3]
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return None, grad * slope, None, None


class _SurrogateForward(_Surrogate):
    """Also with forward mode, which torch.compile takes in no Function."""

    @staticmethod
    def jvp(ctx, of_value, of_x, *others):
        with pushing_further():
            (slope,) = primals(ctx.saved_tensors)
            return torch.where(slope == 0, 0.0, slope * of_x).sum(ctx.dim, keepdim=True)


def _surrogate_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    p = _of_map(named_map, x, dim)
    still = (x == -INF) | (x == INF).any(dim, keepdim=True)
    (scores,) = last(dim, x.detach())
    scores = canonical(ROWS, scores).movedim(-1, dim)
    slope = torch.where(still, 0.0, p - q)
    each = torch.where(q == p.detach(), 0.0, (q - p.detach()) * (scores.amax(dim, keepdim=True) - scores))
    value = torch.where(p.isnan().any(dim), math.nan, each.sum(dim))
    function = _Surrogate if torch.compiler.is_compiling() else _SurrogateForward
    value = function.apply(value.unsqueeze(dim), x, slope, dim).squeeze(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


MAPPED = {"smooth_accuracy_loss": _smooth_accuracy_loss, "surrogate_loss": _surrogate_loss}


def mapped(name, x, target, named_map, ignore_index):
    """A loss of a map, of rows of scores along the last axis."""
    target = working(target) if target.is_floating_point() else target
    return MAPPED[name](working(x), target, tuple(named_map), ignore_index, x.dim() - 1)
