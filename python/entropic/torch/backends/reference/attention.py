"""Attention with all scores in memory, and any map by its operator."""

import math

import torch

from entropic._attention import shape_of
from entropic.torch import _descriptions
from entropic.torch._compat import without_autocast
from entropic.torch._spec import absent
from entropic.torch.backends.reference.maps import call_map
from entropic.torch.backends.reference.rows import working


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
        m, n, d = shape.queries, shape.keys, q.shape[-1]
        q = q.expand(*shape.batch, shape.heads, m, d)
        group = shape.heads // max(shape.kv_heads, 1)
        k = k.expand(*shape.batch, shape.kv_heads, n, d).repeat_interleave(group, -3)
        v = v.expand(*shape.batch, shape.kv_heads, n, v.shape[-1]).repeat_interleave(group, -3)
        seen = torch.ones(m, n, dtype=torch.bool, device=q.device)
        if causal:
            seen = seen.tril(n - m)
        if mask is not None:
            seen = seen & (mask if mask.dtype == torch.bool else mask > -math.inf)
        if scale == "sqrt":
            factor = 1 / math.sqrt(d)
        elif scale == "number":
            factor = number
        else:
            log_n = seen.sum(-1, keepdim=True).clamp(min=1).to(q.dtype).log()
            factor = log_n * (kappa / d if kappa is not None else 1 / (math.log(train_length) * math.sqrt(d)))
        scores = (q * factor) @ k.mT
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is not None and mask.dtype != torch.bool:
            scores = scores + torch.where(mask > -math.inf, mask, 0).to(scores.dtype)
        seen = seen.expand(scores.shape)
        some = seen.any(-1, keepdim=True)
        # A query that sees nothing gets finite scores, to avoid NaN, and weights of 0.
        scores = torch.where(seen, scores, -math.inf)
        scores = torch.where(some, scores, 0)
        if sinks is not None:
            scores = torch.cat([scores, sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)], -1)
        p = call_map(name, scores, params, scores.dim() - 1)
        p = torch.where(some, p if sinks is None else p[..., :n], 0)
        if dropout_p > 0:
            p = torch.dropout(p, dropout_p, True)
        found = [p @ v]
        if return_weights:
            found.append(p)
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
