"""Attention with all scores in memory, and any map by its operator."""

import math

import torch

from isentropic import _descriptions
from isentropic._attention import shape_of
from isentropic.formulas.rows import INF
from isentropic.torch._compat import can_be_read, without_autocast
from isentropic.torch._spec import absent, working
from isentropic.torch.backends.reference.maps import call_map


def _known_finite(*tensors):
    return all(can_be_read(x) and bool(x.isfinite().all()) for x in tensors)


def _finite(x):
    """x with 0 for what is not finite, without derivatives there."""
    return torch.where(x.isfinite(), x, 0)


def _scores(q, k, seen):
    """q k^T; no derivative of a key that is not seen is NaN, even if it has numbers that are not finite."""
    if _known_finite(q, k):
        return q @ k.mT
    scores = _finite(q) @ _finite(k).mT
    fine = q.isfinite().all(-1, keepdim=True) & k.isfinite().all(-1).unsqueeze(-2)
    wrong = seen & fine.logical_not()
    # 0 times the finite ones is added for the derivative: NaN where that of the score is NaN, and otherwise 0.
    return torch.where(wrong, q.detach() @ k.detach().mT + 0 * _finite(scores), scores)


def _weighted(p, v):
    """p v, where values of weight 0 have no part, even if they are not finite."""
    if _known_finite(v):
        return p @ v
    counts = (p != 0).to(v.dtype)
    high, low = (counts @ (v.isnan() | (v == end)).to(v.dtype) > 0 for end in (INF, -INF))
    # The sum of the values that are not finite; where there are any, the derivative in the weights is NaN.
    total = torch.where(high, INF, 0.0).to(v.dtype) - torch.where(low, INF, 0.0).to(v.dtype)
    slope = torch.where(total != 0, math.nan, 0.0).to(v.dtype)
    return p @ _finite(v) + torch.where(total != 0, total, p.sum(-1, keepdim=True) * slope)


def composed(
    q,
    k,
    v,
    mask,
    name,
    params,
    scale,
    number,
    train_length,
    kappa,
    causal,
    *,
    softcap=None,
    sinks=None,
    dropout_p=0.0,
    return_weights=False,
    return_entropy=False,
):
    """Attention by the map called `name`, whose params are by name; differentiable in the mask and in sinks too.

    softcap c makes c tanh(s/c) of scaled scores s; sinks, (..., m, 1), are the score of a key whose value is 0; dropout_p is
    the probability of losing a weight, as in torch. The weights and their entropy follow the result if asked for.
    """
    with without_autocast(q):
        dtype = q.dtype
        q, k, v = working(q), working(k), working(v)
        shape = shape_of("attention", q.shape, k.shape, v.shape)
        m, n = shape.queries, shape.keys
        d = q.shape[-1] or 1  # without columns all scores are 0, whatever the scale is
        q = q.expand(*shape.batch, shape.heads, m, q.shape[-1])
        group = shape.heads // max(shape.kv_heads, 1)
        k = k.expand(*shape.batch, shape.kv_heads, n, k.shape[-1]).repeat_interleave(group, -3)
        v = v.expand(*shape.batch, shape.kv_heads, n, v.shape[-1]).repeat_interleave(group, -3)
        seen = torch.ones(m, n, dtype=torch.bool, device=q.device)
        if causal:
            seen = seen.tril(n - m)
        if mask is not None:
            seen = seen & (mask if mask.dtype == torch.bool else mask != -INF)
        if scale == "sqrt":
            factor = 1 / math.sqrt(d)
        elif scale == "number":
            factor = number
        else:
            log_n = seen.sum(-1, keepdim=True).clamp(min=1).to(q.dtype).log()
            factor = log_n * (kappa / d if kappa is not None else 1 / (math.log(train_length) * math.sqrt(d)))
        scores = _scores(q * factor, k, seen)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None and mask.dtype != torch.bool:
            scores = scores + torch.where(mask != -INF, mask, 0).to(scores.dtype)
        seen = seen.expand(scores.shape)
        some = seen.any(-1, keepdim=True)
        # A query that sees nothing gets finite scores, to avoid NaN, and weights of 0.
        scores = torch.where(seen, scores, -INF)
        scores = torch.where(some, scores, 0)
        if sinks is not None:
            scores = torch.cat([scores, sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)
        weights = call_map(name, scores, params, scores.dim() - 1)
        weights = weights if sinks is None else weights[..., :n]
        p = torch.where(seen, weights, 0)
        if dropout_p > 0:
            p = torch.dropout(p, dropout_p, True)
        found = [_weighted(p, v)]
        if return_weights:
            # All weights of a query with a NaN are NaN, also those of keys that it does not see.
            found.append(torch.where(some & weights.isnan(), weights, p))
        if return_entropy:
            # The logarithm of 0 would make the gradient NaN.
            found.append(-(p * torch.where(p > 0, p, 1).log()).sum(-1))
        if not shape.lead:
            found = [x.squeeze(0) for x in found]
        found = [x.to(dtype) for x in found]
        return found[0] if len(found) == 1 else tuple(found)


def attention(q, k, v, mask, rows, map, names, values, row_names, *call):
    return composed(q, k, v, mask, map, _descriptions.map_params(map, names, values, row_names, rows), *call)


def attention_entropy(q, k, v, mask, rows, map, names, values, row_names, *call):
    params = _descriptions.map_params(map, names, values, row_names, rows)
    return composed(q, k, v, mask, map, params, *call, return_entropy=True)


def _pulled_back(run, q, k, v, mask, rows, grads, arguments):
    def outputs(q, k, v, rows=None):
        found = run(q, k, v, mask, rows, *arguments)
        return found if isinstance(found, tuple) else (found,)

    outs, back = torch.func.vjp(outputs, q, k, v, *([] if rows is None else [rows]))
    grads = (torch.zeros_like(out) if grad is None else grad for out, grad in zip(outs, grads, strict=True))
    found = back(tuple(grads))
    return found if rows is not None else (*found, absent(q))


def attention_vjp(q, k, v, mask, rows, grad, *arguments):
    return _pulled_back(attention, q, k, v, mask, rows, (grad,), arguments)


def attention_entropy_vjp(q, k, v, mask, rows, grad, entropy_grad, *arguments):
    return _pulled_back(attention_entropy, q, k, v, mask, rows, (grad, entropy_grad), arguments)


def linear_attention(q, k, v, scale, causal):
    """Attention with taylor_softmax, which is the same function."""
    number = ("sqrt", 1.0) if scale is None else ("number", scale)
    return attention(q, k, v, None, None, "taylor_softmax", ["order"], [2.0], [], *number, 512.0, None, causal)


def linear_attention_vjp(q, k, v, grad, scale, causal):
    return torch.func.vjp(lambda *tensors: linear_attention(*tensors, scale, causal), q, k, v)[1](grad)


IMPLEMENTATIONS = {
    one.__name__: one
    for one in (
        attention,
        attention_vjp,
        attention_entropy,
        attention_entropy_vjp,
        linear_attention,
        linear_attention_vjp,
    )
}
