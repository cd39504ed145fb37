"""The distribution with given moments that is nearest to a prior."""

import numpy as np
import torch

import isentropic
from isentropic._descriptions import documented
from isentropic._numpy._maximum_entropy import check_shapes
from isentropic.formulas.maximum_entropy import refined
from isentropic.torch._arguments import has_numbers, readable
from isentropic.torch._builder import Operator
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import OpSpec
from isentropic.torch._transport import common_type, floats


def _shapes(features, moments, prior):
    return prior.new_empty(prior.shape), moments.new_empty(moments.shape), prior.new_empty(prior.shape[:-1], dtype=torch.int32)


# The solution, through which no derivative goes.
_search = Operator(
    OpSpec(
        name="maximum_entropy",
        tensors=("features", "moments", "prior"),
        params={},
        outputs=("p", "multipliers", "clamped"),
        shapes=_shapes,
    )
)


@documented
def maximum_entropy(features, moments, *, prior=None):
    """``isentropic.maximum_entropy``, differentiable in features, moments and prior, also twice: p, multipliers, entropy and
    divergence. Where the status is "clamped" the gradient is 0. Of several problems, those with NaN give NaN. The status is
    None under a compiler or a transform.

    >>> die = torch.arange(1.0, 7.0, dtype=torch.float64)
    >>> mean = torch.tensor([4.5], dtype=torch.float64, requires_grad=True)
    >>> found = isentropic.torch.maximum_entropy(die[:, None], mean)
    >>> (slope,) = torch.autograd.grad(found.entropy, mean)  # minus the multiplier
    >>> bool(torch.isclose(slope, -found.multipliers))
    True
    """
    name = "maximum_entropy"
    given = floats(name, features=features, moments=moments, prior=prior)
    kind = common_type(*given.values())
    wide = {argument: x.double() for argument, x in given.items()}
    table, wanted, weights = wide["features"], wide["moments"], wide.get("prior")
    table = table[:, None] if table.dim() == 1 else table
    wanted = wanted if wanted.dim() else wanted[None]
    check_shapes(name, table.shape, wanted.shape, None if weights is None else weights.shape)
    if wanted.dim() == 1 and readable(*wide.values()) and not all(bool(x.isfinite().all()) for x in wide.values()):
        isentropic.maximum_entropy(*(x.detach() for x in (table, wanted)), prior=None if weights is None else weights.detach())
    weights = table.new_ones(len(table)) if weights is None else weights
    weights = weights.expand(*wanted.shape[:-1], len(table))
    found, at, clamped = _search(table, wanted, weights)
    good = ((clamped == 0) & ~found.isnan().any(-1))[..., None]
    weights = weights / weights.sum(-1, keepdim=True)
    # Numbers in place of NaN, with which matrices have no inverse: that problem is not good.
    table, wanted = (torch.where(x.isnan(), 0.0, x) for x in (table, wanted))
    weights = torch.where(weights.isnan(), 1.0, weights)
    start = torch.where(good, torch.nan_to_num(at, posinf=0.0, neginf=0.0), 0.0)
    p, multipliers = refined(ROWS.xp, table, wanted, weights, start)
    p, multipliers = torch.where(good, p, found), torch.where(good, multipliers, at)
    logs = torch.where(p > 0, torch.where(p > 0, p, 1.0).log(), 0.0)
    apart = torch.where(p > 0, logs - torch.where(weights > 0, weights, 1.0).log(), 0.0)
    results = [p, multipliers, -(p * logs).sum(-1), (p * apart).sum(-1)]
    results[2:] = (torch.where(one < 0, 0 * one, one) for one in results[2:])  # only rounding can make it negative
    status = None  # words, of numbers that a compiler does not know
    if has_numbers(clamped):
        status = np.where(clamped.cpu().numpy() > 0, "clamped", "ok")[()]
    return isentropic.MaximumEntropyResult(*(one.to(kind) for one in results), status)
