"""Statistics of a token from its logits: see entropic.torch.token_statistics.

A row of the result has log p_target, the entropy, the largest probability and the largest logit; then come the indices of the
largest logits.
"""

import torch

from entropic.torch._spec import absent, result_type
from entropic.torch.backends.reference.rows import canonical, has_none, working


def top_indices(x, top, dim):
    """Those of the largest logits in falling order, of equal ones the lowest first; NaN counts as +inf. Along the last axis."""
    x, n = x.movedim(dim, -1), x.shape[dim]
    if top == 0:
        return x[..., :0].long()
    x = torch.where(x.isnan(), torch.inf, x)
    # topk says how large they are, but takes any of equal ones. So it chooses again, from integers that all differ.
    last = x.topk(top).values[..., -1:]
    early = torch.arange(n, 0, -1, dtype=torch.int32, device=x.device)
    chosen = torch.where(x > last, early + n, torch.where(x == last, early, 0)).topk(top).indices
    order = x.gather(-1, chosen).sort(dim=-1, descending=True, stable=True).indices
    return chosen.gather(-1, order)


def _log_softmax(x, rows, temperature, dim):
    """(z, log p), where z are logits minus the largest, divided; a temperature does not change -inf."""
    x = canonical(working(x), dim)
    there, largest = x > -torch.inf, x.amax(dim, keepdim=True).detach()
    x = x - torch.where(largest > -torch.inf, largest, 0.0)  # before the division, whose rounding grows with the logits
    z = torch.where(there, torch.where(there, x, 0.0) / (temperature if rows is None else rows), x)
    return z, torch.log_softmax(z, dim)


def _entropy(log_p, dim):
    there = log_p > -torch.inf
    return -torch.where(there, log_p.exp() * torch.where(there, log_p, 0.0), 0.0).sum(dim, keepdim=True)


def statistics(x, target, rows, temperature, top, dim):
    _, log_p = _log_softmax(x, rows, temperature, dim)
    none = has_none(x, dim)
    found = (
        log_p.gather(dim, target.unsqueeze(dim)),
        _entropy(log_p, dim),
        log_p.amax(dim, keepdim=True).exp(),
        working(x).amax(dim, keepdim=True),
    )
    found = torch.cat([torch.where(none, torch.nan, one) for one in found], dim)
    return found.movedim(dim, -1).to(result_type(x)).contiguous(), top_indices(x, top, dim)


def statistics_vjp(x, target, rows, _, grad, temperature, top, dim):
    z, log_p = _log_softmax(x, rows, temperature, dim)
    p, there = log_p.exp(), x > -torch.inf
    of_logprob, of_entropy = (grad[..., k].unsqueeze(dim) for k in (0, 1))
    own = torch.zeros_like(p).scatter(dim, target.unsqueeze(dim), torch.ones_like(p))
    dz = of_logprob * (own - p) - of_entropy * p * (torch.where(log_p > -torch.inf, log_p, 0.0) + _entropy(log_p, dim))
    dz = torch.where(there & ~(x == torch.inf).any(dim, keepdim=True), dz, 0.0)
    dz = torch.where(has_none(x, dim), torch.nan, dz)
    dx = (dz / (temperature if rows is None else rows)).to(x.dtype).contiguous()
    if rows is None:
        return dx, absent(x)
    # From the largest score: dz sums to 0 except where the token is absent, and no slope may depend on what all scores share.
    below = torch.where(there, z - z.amax(dim, keepdim=True), 0.0)
    return dx, -((dz * below).sum(dim, keepdim=True) / rows).to(torch.float64).contiguous()


IMPLEMENTATIONS = {"token_statistics": statistics, "token_statistics_vjp": statistics_vjp}
