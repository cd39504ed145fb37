"""Attention as torch operators: ``torch.ops.entropic.attention`` and ``linear_attention``, and their ``_vjp``.

A map's parameters travel as text, those with a value for each query as one tensor of them. On the CPU the library runs,
elsewhere a composition of torch's operations, which second derivatives use everywhere.
"""

import ast
import math

import numpy as np
import torch

import entropic
from entropic import _arrays, _attention
from entropic._maps import MAPS, map_and_params
from entropic.torch._modules import Configured
from entropic.torch._ops import Registered, batch_first, from_array, misfit, one_device

Tensor = torch.Tensor
_HALVES = (torch.float16, torch.bfloat16)

_ARGUMENTS = (
    "Tensor? mask, Tensor? rows, str map, str params, str scale, float number, float train_length, float? kappa, bool causal"
)


def _numpy(x):
    """A tensor as an array that the library reads."""
    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _shape(q, k, v):
    return _attention.shape_of("attention", tuple(q.shape), tuple(k.shape), tuple(v.shape))


def _keywords(mask, rows, name, params, scale, number, train_length, kappa, causal):
    """Keywords of entropic.attention, rows as arrays."""
    given = _params(params, None if rows is None else rows.detach().numpy())
    return {
        "map": (name, given),
        "scale": number if scale == "number" else scale,
        "causal": causal,
        "mask": None if mask is None else _numpy(mask),
        "train_length": train_length,
        "kappa": kappa,
    }


def _params(text, rows):
    """Parameters by name; those that rows hold, in their order."""
    params = ast.literal_eval(text)
    held = [name for name, value in params.items() if value == "rows"]
    params.update({name: rows[i] for i, name in enumerate(held)})
    return params


def _forward(q, k, v, *arguments):
    out = entropic.attention(_numpy(q), _numpy(k), _numpy(v), **_keywords(*arguments))
    return torch.from_numpy(np.ascontiguousarray(out)).to(q.dtype)


def _vjp(q, k, v, grad, *arguments):
    rows = arguments[1]
    results = entropic.attention_vjp(
        _numpy(q), _numpy(k), _numpy(v), _numpy(grad), **_keywords(*arguments), param_grad=rows is not None
    )
    dq, dk, dv = (torch.from_numpy(np.ascontiguousarray(d)).to(x.dtype) for d, x in zip(results, (q, k, v), strict=False))
    if rows is None:
        return dq, dk, dv, q.new_empty(0, dtype=torch.float64)
    # Numbers have gradients too, which nobody asked for.
    call = _attention.map_call("attention", (arguments[2], _params(arguments[3], rows)), {})
    given = [value for name, value in zip(call.per_row, call.values, strict=True) if name is not None and value is not None]
    drows = [d for d, value in zip(results[3:], given, strict=True) if isinstance(value, Tensor)]
    return dq, dk, dv, torch.stack([torch.from_numpy(np.asarray(d, np.float64)).unsqueeze(-1) for d in drows])


def _composed(q, k, v, mask, rows, name, params, scale, number, train_length, kappa, causal):
    """The same of operations that can be differentiated again."""
    dtype = q.dtype
    if dtype in _HALVES:
        q, k, v = q.float(), k.float(), v.float()
    shape = _shape(q, k, v)
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
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + torch.where(mask > -math.inf, mask, 0).to(scores.dtype)
    seen = seen.expand(scores.shape)
    some = seen.any(-1, keepdim=True)
    # A query that sees nothing gets scores, so that no NaN arises, and no weights.
    scores = torch.where(seen, scores, -math.inf)
    scores = torch.where(some, scores, 0)
    p = getattr(entropic.torch, name)(scores, **_params(params, rows))
    out = torch.where(some, p, 0) @ v
    return (out if len(shape.lead) else out.reshape(m, -1)).to(dtype)


def _composed_vjp(q, k, v, grad, mask, rows, *arguments):
    inputs = [x.detach().requires_grad_() for x in (q, k, v)] + ([] if rows is None else [rows.detach().requires_grad_()])
    with torch.enable_grad():
        out = _composed(*inputs[:3], mask, inputs[3] if rows is not None else None, *arguments)
        gradients = torch.autograd.grad(out, inputs, grad)
    return (*gradients, q.new_empty(0, dtype=torch.float64)) if rows is None else tuple(gradients)


def _fake(q, k, v, *arguments):
    shape = _shape(q, k, v)
    return q.new_empty((*shape.lead, shape.queries, v.shape[-1]))


def _fake_vjp(q, k, v, grad, mask, rows, *arguments):
    drows = q.new_empty(0 if rows is None else rows.shape, dtype=torch.float64)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), drows


def _setup(ctx, inputs, output):
    q, k, v, mask, rows, *ctx.arguments = inputs
    ctx.save_for_backward(q, k, v, mask, rows)


def _backward(ctx, grad):
    q, k, v, mask, rows = ctx.saved_tensors
    dq, dk, dv, drows = _call_vjp(q, k, v, grad, mask, rows, *ctx.arguments)
    return (dq, dk, dv, None, None if rows is None else drows, *(None for _ in ctx.arguments))


def _setup_vjp(ctx, inputs, output):
    q, k, v, grad, mask, rows, *ctx.arguments = inputs
    ctx.save_for_backward(q, k, v, grad, mask, rows)


def _backward_vjp(ctx, *cotangents):
    q, k, v, grad, mask, rows = ctx.saved_tensors
    second = _second_derivative(cotangents, q, k, v, grad, mask, rows, *ctx.arguments)
    return (*second[:4], None, None if rows is None else second[4], *(None for _ in ctx.arguments))


def _second_derivative(cotangents, q, k, v, grad, mask, rows, *arguments):
    given = [q, k, v, grad] + ([] if rows is None else [rows])

    def gradients(q, k, v, grad, rows=None):
        def out(q, k, v, rows=None):
            return _composed(q, k, v, mask, rows, *arguments)

        return torch.func.vjp(out, q, k, v, *([] if rows is None else [rows]))[1](grad)

    outputs, pullback = torch.func.vjp(gradients, *given)
    pairs = zip(cotangents, outputs, strict=False)
    return pullback(tuple(torch.zeros_like(out) if c is None else c.to(out.dtype) for c, out in pairs))


def _batch(info, in_dims, tensors):
    """Tensors with the batch first and at least three axes after it, each as many: the heads stay where they are."""
    most = max(3, *(t.dim() - (b is not None) for t, b in zip(tensors, in_dims, strict=True) if t is not None))
    moved = []
    for tensor, batched in zip(tensors, in_dims, strict=True):
        if tensor is None:
            moved.append(None)
            continue
        whole = tensor.unsqueeze(0) if batched is None else tensor.movedim(batched, 0)
        moved.append(whole.reshape(whole.shape[0], *(1,) * (most + 1 - whole.dim()), *whole.shape[1:]))
    return moved


def _rows_first(rows, batched):
    """Rows have their own axis first; after it comes the batch."""
    if rows is None:
        return None
    return rows.unsqueeze(1) if batched is None else rows.movedim(batched, 1)


def _batched(call, info, in_dims, q, k, v, mask, rows, *arguments):
    tensors = _batch(info, in_dims[:4], (q, k, v, mask))
    plain = [t.dim() - (b is not None) for t, b in zip((q, k, v), in_dims[:3], strict=True)]
    if rows is not None:
        rows = _rows_first(rows, in_dims[4])
        most = tensors[0].dim()
        rows = rows.reshape(*rows.shape[:2], *(1,) * (most + 1 - rows.dim()), *rows.shape[2:])
        rows = rows.expand(rows.shape[0], info.batch_size, *rows.shape[2:])
    out = call(*tensors, rows, *arguments)
    if out.shape[0] != info.batch_size:
        out = out.expand(info.batch_size, *out.shape[1:])
    return out.reshape(out.shape[0], *out.shape[-2:]) if max(plain) == 2 else out, 0


def _batched_vjp(call, info, in_dims, q, k, v, grad, mask, rows, *arguments):
    # Every gradient is each sample's own: nothing may be shared over the batch.
    q, k, v, grad = batch_first(info, in_dims[:4], (q, k, v, grad))
    shapes = [t.shape for t in (q, k, v)]
    tensors = _batch(info, (0, 0, 0, 0, in_dims[4]), (q, k, v, grad, mask))
    row_shape = None
    if rows is not None:
        rows = _rows_first(rows, in_dims[5])
        rows = rows.expand(rows.shape[0], info.batch_size, *rows.shape[2:])
        row_shape = rows.shape
        rows = rows.reshape(*rows.shape[:2], *(1,) * (tensors[0].dim() + 1 - rows.dim()), *rows.shape[2:])
    dq, dk, dv, drows = call(*tensors, rows, *arguments)
    results = tuple(d.reshape(shape) for d, shape in zip((dq, dk, dv), shapes, strict=True))
    if row_shape is None:
        return (*results, drows), (0, 0, 0, None)
    return (*results, drows.reshape(row_shape)), (0, 0, 0, 1)


_call = Registered(
    f"attention(Tensor q, Tensor k, Tensor v, {_ARGUMENTS}) -> Tensor", _forward, _composed, _fake, _setup, _backward, _batched
)
_call_vjp = Registered(
    f"attention_vjp(Tensor q, Tensor k, Tensor v, Tensor grad, {_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _vjp,
    _composed_vjp,
    _fake_vjp,
    _setup_vjp,
    _backward_vjp,
    _batched_vjp,
)


# Linear attention, elsewhere and in second derivatives attention with taylor_softmax, which is the same function.


def _linear(q, k, v, scale, causal):
    given = {} if scale is None else {"scale": scale}
    out = entropic.linear_attention(_numpy(q), _numpy(k), _numpy(v), causal=causal, **given)
    return torch.from_numpy(np.ascontiguousarray(out)).to(q.dtype)


def _taylor(scale, causal):
    """What attention takes after its tensors."""
    return (
        None,
        None,
        "taylor_softmax",
        "{'order': 2}",
        "sqrt" if scale is None else "number",
        1.0 if scale is None else scale,
        512.0,
        None,
        causal,
    )


def _linear_elsewhere(q, k, v, scale, causal):
    return _composed(q, k, v, *_taylor(scale, causal))


def _linear_vjp(q, k, v, grad, scale, causal):
    given = {} if scale is None else {"scale": scale}
    results = entropic.linear_attention_vjp(_numpy(q), _numpy(k), _numpy(v), _numpy(grad), causal=causal, **given)
    return tuple(torch.from_numpy(np.ascontiguousarray(d)).to(x.dtype) for d, x in zip(results, (q, k, v), strict=True))


def _linear_vjp_elsewhere(q, k, v, grad, scale, causal):
    return _composed_vjp(q, k, v, grad, *_taylor(scale, causal))[:3]


def _fake_linear_vjp(q, k, v, grad, scale, causal):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _linear_setup(ctx, inputs, output):
    *tensors, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(*tensors)


def _linear_backward(ctx, grad):
    return (*_call_linear_vjp(*ctx.saved_tensors, grad, ctx.scale, ctx.causal), None, None)


def _linear_backward_vjp(ctx, *cotangents):
    return (*_second_derivative(cotangents, *ctx.saved_tensors, *_taylor(ctx.scale, ctx.causal)), None, None)


def _linear_batched(call, info, in_dims, q, k, v, scale, causal):
    tensors = _batch(info, in_dims[:3], (q, k, v))
    plain = [t.dim() - (b is not None) for t, b in zip((q, k, v), in_dims[:3], strict=True)]
    out = call(*tensors, scale, causal)
    return out.reshape(out.shape[0], *out.shape[-2:]) if max(plain) == 2 else out, 0


def _linear_batched_vjp(call, info, in_dims, q, k, v, grad, scale, causal):
    tensors = batch_first(info, in_dims[:4], (q, k, v, grad))
    gradients = call(*_batch(info, (0, 0, 0, 0), tensors), scale, causal)
    return tuple(d.reshape(t.shape) for d, t in zip(gradients, tensors, strict=False)), (0, 0, 0)


_call_linear = Registered(
    "linear_attention(Tensor q, Tensor k, Tensor v, float? scale, bool causal) -> Tensor",
    _linear,
    _linear_elsewhere,
    _fake,
    _linear_setup,
    _linear_backward,
    _linear_batched,
)
_call_linear_vjp = Registered(
    "linear_attention_vjp(Tensor q, Tensor k, Tensor v, Tensor grad, float? scale, bool causal) -> (Tensor, Tensor, Tensor)",
    _linear_vjp,
    _linear_vjp_elsewhere,
    _fake_linear_vjp,
    _linear_setup,
    _linear_backward_vjp,
    _linear_batched_vjp,
)


def _check(function, **tensors):
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{function}: {name} must be a torch.Tensor, got {type(x).__name__}")
        if x.dtype not in (torch.float32, torch.float64, *_HALVES):
            raise TypeError(f"{function}: {name} must be of float32, float64, float16 or bfloat16, got {x.dtype}")
    one_device(function, tensors)
    dtypes = {str(x.dtype) for x in tensors.values()}
    if len(dtypes) > 1:
        raise TypeError(f"{function}: q, k and v must be of one dtype, got {', '.join(sorted(dtypes))}")


def attention(q, k, v, *, map="softmax", scale="sqrt", causal=False, mask=None, train_length=512, kappa=None, **map_params):
    """Attention with any map in place of softmax, differentiable in q, k, v and in parameters that may be per row.

        out_i = sum_j p_ij v_j, p_i = map(scale_i <q_i, k_j> + mask_ij over the keys j that query i sees)

    Parameters
    ----------
    q, k, v : torch.Tensor
        Queries (..., m, d), keys (..., n, d) and values (..., n, dv) of one dtype: float32, float64, or float16 or bfloat16,
        which are computed in float32. Axes before these broadcast, but q may have a multiple of the heads (the third axis
        from the end) of k and v: consecutive heads then share theirs.
    map : str or (str, dict), default "softmax"
        A map by name, or (name, {parameter: value}) where a parameter has the name of one of attention's.
    scale : "sqrt", "entropy_invariant" or float, default "sqrt"
        1/sqrt(d); log n / (log(train_length) sqrt(d)), or kappa log n / d where kappa is given, with n the number of keys that
        the query sees; or the factor itself.
    causal : bool, default False
        Query i sees keys j <= i + n - m.
    mask : torch.Tensor of bools or floats, default None
        Broadcasts to (..., m, n). True: the key is seen. Floats are added to the scaled scores; no gradient flows into them.
    train_length, kappa
        As in entropic.attention.
    **map_params
        Parameters of the map; those that may be per row, as entmax's alpha, may be tensors that broadcast with (..., m, 1), and
        have gradients.

    Returns
    -------
    torch.Tensor
        out, (..., m, dv), of the dtype of q.

    Notes
    -----
    The backward pass computes the scores again, a tile of queries at a time; a second one stores them all.
    """
    _check("attention", q=q, k=k, v=v)
    call = _attention.map_call("attention", map, map_params)
    shape = _shape(q, k, v)
    names = [param["name"] for param in MAPS[call.name]["params"]]
    rows, texts = [], []
    for name, per_row, value in zip(names, call.per_row, call.values, strict=True):
        if per_row is not None:
            value = from_array("attention", name, value)
        if isinstance(value, Tensor):
            if per_row is None:
                value = value.item()
            else:
                wanted = (*shape.lead, shape.queries, 1)
                try:
                    rows.append(value.to(device=q.device, dtype=torch.float64).expand(wanted))
                except RuntimeError:
                    raise misfit("attention", name, wanted, "(..., m, 1)", value) from None
                value = "rows"
        texts.append(f"{name!r}: {_text(name, value)}")
    if mask is not None and not isinstance(mask, Tensor):
        raise TypeError(f"attention: mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask is not None and mask.requires_grad:
        raise ValueError("attention: no gradient flows into the mask: pass mask.detach()")
    scale, number, train_length, kappa = _attention.scale_values("attention", scale, train_length, kappa)
    return _call(
        q,
        k,
        v,
        mask,
        torch.stack(rows) if rows else None,
        call.name,
        "{" + ", ".join(texts) + "}",
        scale,
        number,
        _arrays.number("attention", "train_length", train_length),
        kappa if kappa is None else _arrays.number("attention", "kappa", kappa),
        _arrays.flag("attention", "causal", causal),
    )


def _text(name, value):
    """A parameter as ast.literal_eval reads it."""
    if value is None or isinstance(value, (str, int)):
        return repr(value)
    value = _arrays.number("attention", name, value, "a number or a tensor")
    if value != value:
        raise ValueError(f"attention: {name} must be a number, got nan")
    return "1e999" if value == math.inf else repr(value)


def linear_attention(q, k, v, *, causal=False, scale="sqrt"):
    """Attention with taylor_softmax of order 2 in time linear in the length: see entropic.linear_attention. Differentiable.

    The backward pass is linear in the length too; a second derivative is that of attention with map="taylor_softmax".
    """
    _check("linear_attention", q=q, k=k, v=v)
    return _call_linear(
        q, k, v, *_attention._linear_values("linear_attention", scale), _arrays.flag("linear_attention", "causal", causal)
    )


class Attention(Configured):
    """entropic.torch.attention with its parameters; a map's parameter that is an nn.Parameter is learned.

    Example: ``Attention(map="entmax", alpha=nn.Parameter(torch.full((heads, 1, 1), 1.5)), causal=True)``.
    """

    def __init__(self, map="softmax", scale="sqrt", causal=False, train_length=512, kappa=None, **map_params):
        map, params = map_and_params("Attention", map, map_params)
        own = {"map": map, "scale": scale, "causal": causal, "train_length": train_length, "kappa": kappa}
        super().__init__(own | {f"map_{name}": value for name, value in params.items()})

    def forward(self, q, k, v, mask=None):
        values = self._values()
        params = {name: values.pop(f"map_{name}") for name in (param["name"] for param in MAPS[self.map]["params"])}
        return attention(q, k, v, mask=mask, **values | {"map": (self.map, params)})


class LinearAttention(Configured):
    """entropic.torch.linear_attention with its parameters."""

    def __init__(self, causal=False, scale="sqrt"):
        super().__init__({"causal": causal, "scale": scale})

    def forward(self, q, k, v):
        return linear_attention(q, k, v, **self._values())


for _public in (attention, linear_attention, Attention, LinearAttention):
    _public.__module__ = "entropic.torch"
