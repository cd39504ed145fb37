"""Attention with all scores in memory, and any map by its operator."""

import torch

from isentropic import _descriptions
from isentropic._attention import shape_of
from isentropic.formulas import attention as formulas
from isentropic.torch._compat import without_autocast
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import absent, working
from isentropic.torch.backends.reference.maps import call_map


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
    softcap=None,
    *,
    sinks=None,
    dropout_p=0.0,
    return_weights=False,
    return_entropy=False,
):
    """Attention by the map called `name`, whose params are by name; differentiable in kappa, the mask and sinks too.

    kappa, softcap and sinks are as in formulas.attention; dropout_p is the probability of losing a weight, as in torch. The
    weights and their entropy follow the result if asked for.
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
        seen = formulas.seen_keys(ROWS, m, n, causal, mask, q.device)
        if isinstance(kappa, torch.Tensor):
            kappa = kappa.to(q.dtype)
        q = q * formulas.scale_of(ROWS, seen, q, d, scale, number, train_length, kappa)
        found = formulas.attended(
            ROWS,
            q,
            k,
            v,
            seen,
            mask,
            lambda scores: call_map(name, scores, params, scores.dim() - 1),
            softcap=softcap,
            sinks=sinks,
            drop=(lambda p: torch.dropout(p, dropout_p, True)) if dropout_p > 0 else None,
            weights=return_weights,
            entropy=return_entropy,
        )
        if not shape.lead:
            found = [x.squeeze(0) for x in found]
        found = [x.to(dtype) for x in found]
        return found[0] if len(found) == 1 else tuple(found)


def attention(q, k, v, mask, rows, map, names, values, row_names, *call, **returned):
    params = _descriptions.map_params(map, names, values, row_names, rows)
    scale, number, train_length, kappa, *further = call
    sinks, kappa = params.pop("sinks", None), params.pop("kappa", kappa)
    call = scale, number, train_length, kappa, *further
    return composed(q, k, v, mask, map, params, *call, sinks=sinks, **returned)


def attention_entropy(*arguments):
    return attention(*arguments, return_entropy=True)


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
    return attention(q, k, v, None, None, "taylor_softmax", ["order"], [2.0], [], *number, 512.0, None, causal, None)


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
