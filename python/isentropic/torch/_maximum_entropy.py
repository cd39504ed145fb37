"""The distribution of given moments that is nearest to a prior."""

import torch

import isentropic
from isentropic._descriptions import documented
from isentropic.formulas.maximum_entropy import refined
from isentropic.torch._arguments import Tensor
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import result_type


@documented
def maximum_entropy(features, moments, *, prior=None):
    """``isentropic.maximum_entropy``, differentiable in features, moments and prior, also twice: p, multipliers, entropy and
    divergence. Where the status is "clamped" there is no gradient.

    >>> die = torch.arange(1.0, 7.0, dtype=torch.float64)
    >>> mean = torch.tensor([4.5], dtype=torch.float64, requires_grad=True)
    >>> found = isentropic.torch.maximum_entropy(die[:, None], mean)
    >>> (slope,) = torch.autograd.grad(found.entropy, mean)  # minus the multiplier
    >>> bool(torch.isclose(slope, -found.multipliers))
    True
    """
    name = "maximum_entropy"
    given = {"features": features, "moments": moments} | ({} if prior is None else {"prior": prior})
    for argument, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(x).__name__}")
    kind = result_type(moments)
    on_host = {argument: x.detach().double().cpu() for argument, x in given.items()}
    known = isentropic.maximum_entropy(on_host.pop("features"), on_host.pop("moments"), **on_host)
    wide = [x.double() for x in (features, moments)]
    table = wide[0] if features.dim() == 2 else wide[0][:, None]
    wanted = wide[1] if moments.dim() else wide[1][None]
    weights = table.new_ones(len(table)) if prior is None else prior.double()
    weights = (weights / weights.sum(-1, keepdim=True)).expand(*wanted.shape[:-1], len(table))
    found, at = (one.to(table.device) for one in (known.p, known.multipliers))
    good = torch.as_tensor(known.status == "ok", device=table.device)[..., None]
    start = torch.where(good, torch.nan_to_num(at, posinf=0.0, neginf=0.0), 0.0)
    p, multipliers = refined(ROWS.xp, table, wanted, weights, start)
    p, multipliers = torch.where(good, p, found), torch.where(good, multipliers, at)
    logs = torch.where(p > 0, torch.where(p > 0, p, 1.0).log(), 0.0)
    apart = torch.where(p > 0, logs - torch.where(weights > 0, weights, 1.0).log(), 0.0)
    results = [p, multipliers, -(p * logs).sum(-1), (p * apart).sum(-1).clamp(min=0)]
    return isentropic.MaximumEntropyResult(*(one.to(kind) for one in results), known.status)
