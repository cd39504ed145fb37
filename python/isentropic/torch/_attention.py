"""Attention with any map: operators, functions and modules."""

import math

import torch

from isentropic import _checks
from isentropic._attention import (
    BY_N,
    check_kappa,
    checked_softcap,
    counted,
    linear_values,
    mask_shape,
    scale_values,
    shape_of,
    sinks_shape,
)
from isentropic._descriptions import documented
from isentropic._maps import MAPS, map_and_params
from isentropic.formulas import attention as formulas
from isentropic.torch import _schemas
from isentropic.torch._arguments import autocast, from_array, misfit, no_gradient, numbers_near, one_device, refuse_nested
from isentropic.torch._builder import Operator, is_alone, wants_gradient
from isentropic.torch._compat import (
    in_forward_mode,
    in_transform,
    is_differentiated,
    is_dtensor,
    stands_for_several,
)
from isentropic.torch._direct import is_plain, tracked
from isentropic.torch._modules import Configured
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import CODES, OpSpec, Tensor
from isentropic.torch.backends import cpu
from isentropic.torch.backends.reference.attention import composed

_HALVES = (torch.float16, torch.bfloat16)


def _shapes(q, k, v, *_):
    shape = shape_of("attention", q.shape, k.shape, v.shape)
    return q.new_empty((*shape.lead, shape.queries, v.shape[-1]))


def _shapes_with_entropy(q, k, v, *_):
    out = _shapes(q, k, v)
    return out, out.new_empty(out.shape[:-1])


def _operator(name, tensors, params, moving, outputs=("out",), shapes=_shapes):
    return Operator(
        OpSpec(
            name=name,
            tensors=("q", "k", "v", *tensors),
            params=params,
            outputs=outputs,
            shapes=shapes,
            differentiable=("q", "k", "v", *moving),
            keeps=("q", "k", "v", *(tensor.removesuffix("?") for tensor in tensors)),
            derivative="operator",
        )
    )


_SCALE = {"scale": "str", "number": "float", "train_length": "float", "kappa": "float?", "causal": "bool", "softcap": "float?"}
_OF_MAP = ["mask?", "rows?"], {**_schemas.MAP_SCHEMA, **_SCALE}, ["rows"]
_attend = _operator("attention", *_OF_MAP)
_attend_with_entropy = _operator("attention_entropy", *_OF_MAP, ("out", "entropy"), _shapes_with_entropy)
_attend_linearly = _operator("linear_attention", [], {"scale": "float?", "causal": "bool"}, [])


def _with_equal_axes(*tensors):
    """Tensors, or None, with equally many axes, at least three, and a function that removes an inserted axis of heads."""
    axes = max(tensor.dim() for tensor in tensors if tensor is not None)
    count = max(axes, 3)
    same = [None if x is None else x.reshape(*[1] * (count - x.dim()), *x.shape) for x in tensors]
    return same, (lambda out: out.squeeze(0)) if axes < 3 else (lambda out: out)


def _check(function, **tensors):
    """These tensors, in autocast's type if it is on."""
    for name, x in tensors.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{function}: {name} must be a torch.Tensor, got {type(x).__name__}")
        refuse_nested(function, name, x)
        if x.dtype not in (torch.float32, torch.float64, *_HALVES):
            raise TypeError(f"{function}: {name} must be of float32, float64, float16 or bfloat16, got {x.dtype}")
    one_device(function, tensors)
    found = autocast(*tensors.values())
    dtypes = {str(x.dtype) for x in found}
    if len(dtypes) > 1:
        *others, last = tensors
        first = ", ".join(others)
        raise TypeError(f"{function}: {first} and {last} must be of one dtype, got {', '.join(sorted(dtypes))}")
    return found


@documented
def attention(
    q,
    k,
    v,
    *,
    map="softmax",
    scale="sqrt",
    causal=False,
    mask=None,
    train_length=512,
    kappa=None,
    softcap=None,
    sinks=None,
    return_weights=False,
    return_entropy=False,
    **map_params,
):
    """
    Differentiable in q, k, v, in sinks and in parameters that may be per row.

    q, k, v (torch.Tensor): Queries (..., m, d), keys (..., n, d) and values (..., n, dv) of one dtype: float32, float64, or
        float16 or bfloat16, which are computed in float32. Axes before these broadcast. q may have a multiple of the heads (the
        third axis from the end) of k and v: then consecutive heads share keys and values.
    scale ("sqrt", "entropy_invariant", "log_n", float or tensor): "sqrt" is 1/sqrt(d). With n the number of keys that the query
        sees, "entropy_invariant" and "log_n" are log n / (log(train_length) sqrt(d)); with kappa they are kappa log n / d and
        kappa log n / sqrt(d). A number is the factor itself; a tensor broadcasts with (..., m, 1) and gets a gradient.
    mask (torch.Tensor of bools or floats): Broadcasts to (..., m, n). True: the query sees the key. Floats are added to the
        scaled scores; a mask that requires grad gets a gradient.
    kappa (float or tensor, above 0): The factor of log n in a scale by n. A tensor broadcasts with (..., m, 1), such as (heads,
        1, 1), and gets a gradient.
    sinks (torch.Tensor): One further score for each head, of shape (heads,) or of a shape that broadcasts to (..., m, 1). It
        takes mass, and its value is 0. It gets a gradient.
    **map_params: Parameters of the map. Those that may differ per row, such as alpha of entmax, may be tensors that broadcast
        with (..., m, 1); they get gradients.
    Returns (torch.Tensor, or a tuple of tensors): out, (..., m, dv), of the dtype of q; then the weights and the entropy if
        asked for. All have gradients.
    Notes: The backward pass recomputes the scores, for some queries at a time. Double backward stores all of them; so do the
        gradient of a mask and return_weights. Under autocast q, k and v are converted to autocast's type, as in torch.
    """
    if return_weights is False and return_entropy is False:
        further = {}
        out = _of_plain(q, k, v, mask, map, map_params, scale, causal, train_length, kappa, softcap, sinks)
        if out is not None:
            return out
    else:
        asked = {"return_weights": return_weights, "return_entropy": return_entropy}
        further = {name: True for name, value in asked.items() if _checks.flag("attention", name, value)}
    if is_dtensor(q):
        params = {"map": map, "scale": scale, "causal": causal, "mask": mask, "train_length": train_length, "kappa": kappa}
        params["softcap"] = softcap
        if sinks is not None:
            raise ValueError("attention: sinks must not be given for DTensors")
        return _of_dtensors("attention", q, k, v, mask, lambda *local: attention(*local, **params, **further, **map_params))
    tensors = _check("attention", q=q, k=k, v=v)
    given = mask, map, map_params, scale, causal, train_length, kappa, softcap, sinks
    return _attended("attention", *tensors, *given, **further)


def _of_dtensors(*arguments):
    from isentropic.torch.distributed._dtensor import attention_of_dtensors

    return attention_of_dtensors(*arguments)


def _of_plain(q, k, v, mask, map, map_params, scale, causal, train_length, kappa, softcap, sinks):
    """Attention directly by its kernel, if it can read the tensors in place, parameters are numbers, and no transform is
    active; otherwise None, also for errors, which _attended reports."""
    if sinks is not None or torch.compiler.is_compiling():
        return None
    if type(scale) in _NUMBERS:
        name, number = "number", scale
    elif isinstance(scale, str):
        name, number = scale, 1.0
    else:
        return None
    if type(causal) is not bool or type(train_length) not in _NUMBERS:
        return None
    if type(kappa) not in (*_NUMBERS, type(None)) or type(softcap) not in (*_NUMBERS, type(None)):
        return None
    try:
        map_name, params = map_and_params("attention", map, map_params)
        call = map_name, tuple(params.values()), (name, number, train_length, kappa, causal, softcap)
        return _by_kernel(q, k, v, mask, call)
    except (TypeError, ValueError):
        return None


def _by_kernel(q, k, v, mask, call):
    """The direct call, or None."""
    if not is_plain(q, k, v) or not all(type(value) in _VALUES for value in call[1]):
        return None
    if q.dtype not in CODES or k.dtype is not q.dtype or v.dtype is not q.dtype or not 2 <= q.dim() <= 4:
        return None
    *batch, queries, size = q.shape
    *k_batch, keys, k_size = k.shape
    *v_batch, v_keys, _ = v.shape
    if k_size != size or v_keys != keys or k_batch != v_batch or not _shares_heads(batch, k_batch):
        return None
    if torch.is_autocast_enabled("cpu"):
        return None
    if mask is not None:
        if not is_alone(mask) or mask.dtype not in (torch.bool, q.dtype) or mask.requires_grad:
            return None
        try:
            mask = mask.expand(*batch, queries, keys)
        except RuntimeError:  # a shape that does not fit
            return None
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return tracked(_Rule, call, q, k, v, mask)
    return cpu.attend(q, k, v, mask, *call)


def _shares_heads(batch, kv_batch):
    if batch == kv_batch:
        return True
    if not batch or len(batch) != len(kv_batch) or batch[:-1] != kv_batch[:-1]:
        return False
    return kv_batch[-1] > 0 and batch[-1] % kv_batch[-1] == 0


_NUMBERS = (float, int)
_VALUES = (float, int, str, bool, type(None))


class _Rule:
    """Attention in _direct."""

    @staticmethod
    def forward(call, tensors):
        return cpu.attend(*tensors, *call), tensors

    @staticmethod
    def backward(call, kept, grad):
        q, k, v, mask = kept
        return *cpu.attend_vjp(q, k, v, grad, mask, *call), None

    @staticmethod
    def again(call, kept, grad):
        """By attention's operator."""
        q, k, v, mask = kept
        name, values, (scale, number, train_length, kappa, causal, softcap) = call
        params = dict(zip((param["name"] for param in MAPS[name]["params"]), values, strict=True))
        kappa, softcap = (one if one is None else float(one) for one in (kappa, softcap))
        tensors, back = _with_equal_axes(q, k, v, mask, None, grad)
        further = *_schemas.map_arguments(name, params), scale, float(number), float(train_length), kappa, causal, softcap
        return *(back(one) for one in _attend.vjp(*tensors, *further)[:3]), None


def _attended(
    function, q, k, v, mask, map, map_params, scale, causal, train_length, kappa, softcap=None, sinks=None, **further
):
    """Attention by its operator, or by a composition, which has all scores, for options that only that has: see
    reference.composed."""
    name, params = map_and_params(function, map, map_params)
    shape = shape_of(function, q.shape, k.shape, v.shape)
    rows, own = [], {}
    for param in MAPS[name]["params"]:
        key = param["name"]
        value = from_array(function, key, params[key]) if param["per_row"] else params[key]
        if isinstance(value, Tensor) and param["per_row"]:
            value = _for_queries(function, key, numbers_near(function, key, value, "q", q), shape)
            rows.append(value)
        elif value is not None and param["kind"] in ("float", "optional float"):
            no_gradient(function, key, value)
            value = _checks.number(function, key, value, "a number or a tensor")
            if value != value:
                raise ValueError(f"{function}: {key} must be a number, got nan")
        elif isinstance(value, Tensor):
            value = value.item()
        params[key] = value
    _check_mask(function, mask, shape)
    no_gradient(function, "train_length", train_length)
    kappa = from_array(function, "kappa", kappa)
    if isinstance(kappa, Tensor):
        own["kappa"] = _for_queries(function, "kappa", numbers_near(function, "kappa", kappa, "q", q), shape)
        check_kappa(function, scale if isinstance(scale, str) else "number", kappa)
        kappa = None
    if sinks is not None:
        if not isinstance(sinks, Tensor):
            raise TypeError(f"{function}: sinks must be a torch.Tensor, got {type(sinks).__name__}")
        own["sinks"] = numbers_near(function, "sinks", sinks, "q", q).reshape(sinks_shape(function, sinks, shape))
        own["sinks"] = _for_queries(function, "sinks", own["sinks"], shape)
    q, scale = _scaled(function, q, scale, shape)
    scale, number, train_length, kappa = scale_values(function, scale, train_length, kappa)
    call = [
        scale,
        number,
        _checks.number(function, "train_length", train_length),
        kappa if kappa is None else _checks.number(function, "kappa", kappa),
        _checks.flag(function, "causal", causal),
        checked_softcap(function, softcap),
    ]
    if sinks is None and softcap is None and _is_torchs(q, name, params, further):
        tensors, back = _with_equal_axes(q, k, v, mask)
        call[3] = own.get("kappa", call[3])
        return back(_by_torch(*tensors, params["temperature"], *call[:-1], **further))
    if further.keys() - {"return_entropy"} or _may_move(mask):
        tensors, back = _with_equal_axes(q, k, v, mask)
        call[3] = own.get("kappa", call[3])
        found = composed(*tensors, name, params, *call, sinks=own.get("sinks"), **further)
    else:
        rows += own.values()
        tensors, back = _with_equal_axes(q, k, v, mask, torch.cat(rows, -1) if rows else None)
        operator = _attend_with_entropy if further else _attend
        *of_map, per_row = _schemas.map_arguments(name, params)
        found = operator(*tensors, *of_map, [*per_row, *own], *call)
    return tuple(back(one) for one in found) if isinstance(found, tuple) else back(found)


def _is_torchs(q, name, params, further):
    """Whether torch's own kernels for GPUs compute this: softmax, in a type that they have."""
    if name != "softmax" or not q.is_cuda or q.dtype is torch.float64 or further.keys() - {"dropout_p"}:
        return False
    temperature = params["temperature"]
    return isinstance(temperature, Tensor) or _LEAST <= temperature <= 1 / _LEAST


_LEAST = 2.0**-30  # a scale divided by it is a number of float32


def _by_torch(q, k, v, mask, temperature, scale, number, train_length, kappa, causal, dropout_p=0.0):
    """Softmax attention by torch.nn.functional.scaled_dot_product_attention, which a scale for each query reaches through q.

    A scale for all queries is given to torch, so that q is not rounded.
    """
    shape = shape_of("attention", q.shape, k.shape, v.shape)
    m, n, d = shape.queries, shape.keys, q.shape[-1] or 1

    def four_axes(x, heads, rows=m):
        return x.expand(*shape.batch, heads, rows, x.shape[-1]).reshape(math.prod(shape.batch), heads, rows, x.shape[-1])

    q, k, v = four_axes(q, shape.heads), four_axes(k, shape.kv_heads, n), four_axes(v, shape.kv_heads, n)
    causal = causal and m > 1  # a single query sees all keys
    seen = None if mask is None else mask if mask.dtype is torch.bool else mask != -math.inf
    if causal and (mask is not None or m != n):
        before = torch.ones(m, n, dtype=torch.bool, device=q.device).tril(n - m)
        seen = before if seen is None else seen & before
    if scale in BY_N:
        if isinstance(kappa, Tensor):  # one that is not positive and finite makes its query's result NaN
            kappa = torch.where((kappa > 0) & (kappa < math.inf), kappa, math.nan).to(torch.float32)
        unit = formulas.unit_of(scale, d, train_length, kappa)
        if seen is not None:
            count = seen.expand(*seen.shape[:-1], n).sum(-1, keepdim=True)
            factor = count.clamp(min=1).to(torch.float32).log() * unit
        elif causal:
            factor = torch.arange(1, m + 1, device=q.device, dtype=torch.float32)[:, None].log() * unit
        else:
            factor = math.log(n) * unit if n > 0 else 1.0
    else:
        factor = 1 / math.sqrt(d) if scale == "sqrt" else number
    if isinstance(temperature, Tensor):
        # One that is not positive and finite makes its query's result NaN.
        good = (temperature > 0) & (temperature < math.inf)
        factor = torch.where(good, factor / temperature, math.nan).to(torch.float32)
    else:
        factor = factor / temperature
    if isinstance(factor, Tensor):
        q, factor = (q * four_axes(factor, shape.heads)).to(q.dtype), 1.0
    group, some = shape.heads // max(shape.kv_heads, 1), None
    if seen is not None:
        # A query that sees no key sees all, and gets zeros afterwards: not all of torch's kernels give a result for it.
        some = seen.any(-1, keepdim=True)
        if mask is None or mask.dtype is torch.bool:
            seen = seen | ~some
        else:
            # The map's temperature divides it too.
            seen = torch.where(seen, torch.where(mask != -math.inf, mask, 0) / temperature, -math.inf)
            seen = torch.where(some, seen, 0).to(q.dtype)
        seen, some = four_axes(seen, shape.heads), four_axes(some, shape.heads)
        # Kernels that take masks do not share heads.
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        group = 1
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, seen, dropout_p, causal and seen is None, scale=factor, enable_gqa=group > 1
    )
    out = out if some is None else torch.where(some, out, 0)
    return out.reshape(*shape.lead, m, v.shape[-1])


def _check_mask(function, mask, shape):
    if mask is None:
        return
    argument = "mask" if function == "attention" else "attn_mask"
    if not isinstance(mask, Tensor):
        raise TypeError(f"{function}: {argument} must be a torch.Tensor, got {type(mask).__name__}")
    mask_shape(function, mask, mask.dtype is torch.bool or mask.is_floating_point(), shape, argument)


def _may_move(mask):
    """Whether a derivative in the mask may be needed."""
    if mask is None or not mask.is_floating_point():
        return False
    return wants_gradient(mask) or (not torch.compiler.is_compiling() and (in_transform() or in_forward_mode()))


def _for_queries(function, argument, value, shape):
    """A tensor with a number for each query: (..., m, 1)."""
    wanted = (*shape.lead, shape.queries, 1)
    try:
        return value.expand(wanted)
    except RuntimeError:
        raise misfit(function, argument, wanted, "(..., m, 1)", value) from None


def _scaled(function, q, scale, shape):
    """(q, scale); a scale that is a tensor is multiplied into q, so that it gets its gradient."""
    if isinstance(scale, Tensor) and scale.is_complex():
        raise TypeError(f"{function}: scale must be a tensor of real numbers, got dtype {scale.dtype}")
    compiling = torch.compiler.is_compiling()
    if not isinstance(scale, Tensor):
        # If it were a number of the operator, each scale would be compiled anew. Products of halves would be rounded.
        if compiling and type(scale) is float and q.dtype not in _HALVES and abs(scale) < math.inf:
            return q * scale, 1.0
        return q, scale
    if scale.dim() == 0 and not is_differentiated(scale) and (compiling or not stands_for_several(scale)):
        return q, scale
    _for_queries(function, "scale", scale, shape)
    return (q * scale).to(q.dtype), 1.0


@documented
def scaled_dot_product_attention(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
    *,
    map="softmax",
    window=None,
    softcap=None,
    sinks=None,
    train_length=512,
    kappa=None,
    return_weights=False,
    **map_params,
):
    """
    torch.nn.functional.scaled_dot_product_attention with any map in place of softmax, and the same arguments.

        out_i = sum_j p_ij v_j, p_i = map(scale <q_i, k_j> + attn_mask_ij over the keys j that query i sees)

    query, key, value (torch.Tensor): (..., m, d), (..., n, d) and (..., n, dv) of one dtype: float32, float64, or float16 or
        bfloat16, which are computed in float32. Under autocast they are converted to autocast's type.
    attn_mask (torch.Tensor of bools or floats): Broadcasts to (..., m, n). True: the key is seen. Floats are added to the
        scaled scores, and have a gradient.
    dropout_p (float in [0, 1]): The probability that a weight becomes 0; the others are divided by 1 - dropout_p. Give it in
        training only.
    is_causal (bool): Query i sees keys j <= i, both counted from the first, also if there are fewer queries than keys. (In
        isentropic.torch.attention the last query sees the last key.) Not together with attn_mask.
    scale (float, tensor, "sqrt", "entropy_invariant" or "log_n"): None is 1/sqrt(d); otherwise as in
        isentropic.torch.attention.
    enable_gqa (bool): Whether query may have a multiple of the heads (the third axis from the end) of key and value.
    map (str or (str, dict)): A map by name, or (name, {parameter: value}) if a parameter has the name of one of these
        arguments.
    window (int, at least 1): Query i sees keys j with abs(i - j) < window only.
    softcap (float, above 0): Scaled scores s become softcap tanh(s / softcap).
    sinks (torch.Tensor): The score of an additional key with value 0: one for each head, (heads,), or of a shape that
        broadcasts to (..., m, 1). It gets a gradient.
    train_length, kappa: As in isentropic.torch.attention.
    return_weights (bool): Return also the weights, (..., m, n), after dropout.
    **map_params: Parameters of the map. Those that may differ per row, such as alpha of entmax, may be tensors that broadcast
        with (..., m, 1); they get gradients.
    Returns (torch.Tensor, or a tuple of tensors): (..., m, dv), of the dtype of query, then the weights if asked for. A query
        that sees no key gives zeros, and has gradient 0.
    Notes: All scores are in memory at once only with dropout, return_weights or a gradient in attn_mask.
    >>> q, k, v = torch.randn(3, 2, 4, 5, 8).unbind()
    >>> out = isentropic.torch.scaled_dot_product_attention(q, k, v, is_causal=True, map="entmax", alpha=1.5)
    """
    function = "scaled_dot_product_attention"
    for argument, given in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        _checks.flag(function, argument, given)
    if is_dtensor(query):
        params = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "map": map}
        params |= {"enable_gqa": enable_gqa, "window": window, "softcap": softcap, "sinks": sinks}
        params |= {"train_length": train_length, "kappa": kappa, "return_weights": return_weights, **map_params}
        if dropout_p or sinks is not None:
            raise ValueError(f"{function}: dropout_p and sinks must not be given for DTensors")
        return _of_dtensors(
            function, query, key, value, attn_mask, lambda *local: scaled_dot_product_attention(*local, **params)
        )
    query, key, value = _check(function, query=query, key=key, value=value)
    if is_causal and attn_mask is not None:
        raise ValueError(f"{function}: attn_mask must be None if is_causal is True; give one of them")
    shape = shape_of(function, query.shape, key.shape, value.shape)
    if not enable_gqa and shape.kv_heads not in (1, shape.heads):
        raise ValueError(
            f"{function}: query must have the heads of key and value, {shape.kv_heads}, unless enable_gqa is True, got "
            f"{shape.heads}"
        )
    further = {}
    no_gradient(function, "dropout_p", dropout_p)
    if dropout_p != 0.0:
        if not 0.0 <= dropout_p <= 1.0:
            raise ValueError(f"{function}: dropout_p must be in [0, 1], got {dropout_p}")
        further["dropout_p"] = dropout_p
    if _checks.flag(function, "return_weights", return_weights):
        further["return_weights"] = True
    m, n, causal = shape.queries, shape.keys, bool(is_causal)
    # With dropout there must be as many weights as in torch, so that the same ones are dropped.
    if window is not None or (causal and (m > n or further)):
        attn_mask, causal = _within(function, attn_mask, shape, window, causal, query.device), False
    elif causal and m < n:
        key, value = key[..., :m, :], value[..., :m, :]
    scale = "sqrt" if scale is None else scale
    given = attn_mask, map, map_params, scale, causal, train_length, kappa, softcap, sinks
    if not further:
        out = _of_plain(query, key, value, *given)
        if out is not None:
            return out
    return _attended(function, query, key, value, *given, **further)


@documented
def keys_seen(m, n, *, causal=False, mask=None):
    """
    mask (torch.Tensor of bools or floats): Broadcasts to (..., m, n). True: the query sees the key. -inf hides a key.
    Returns (torch.Tensor of integers): (m,), or (..., m) where the mask has further axes, on its device.
    """
    if mask is not None and not isinstance(mask, Tensor):
        raise TypeError(f"keys_seen: mask must be a torch.Tensor, got {type(mask).__name__}")
    fits = mask is None or mask.dtype is torch.bool or mask.is_floating_point()
    m, n, causal = counted("keys_seen", m, n, causal, mask, fits)
    return formulas.keys_seen(ROWS, m, n, causal, mask, None if mask is None else mask.device)


def _within(function, mask, shape, window, causal, device):
    """The mask combined with the window: a query sees only keys nearer than window and, if causal, none after its own."""
    behind = torch.arange(shape.queries, device=device)[:, None] - torch.arange(shape.keys, device=device)
    seen = behind >= 0 if causal else torch.ones_like(behind, dtype=torch.bool)
    if window is not None:
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ValueError(f"{function}: window must be an integer of at least 1, got {window!r}")
        seen = seen & (behind.abs() < window)
    if mask is None:
        return seen
    _check_mask(function, mask, shape)
    return mask & seen if mask.dtype == torch.bool else torch.where(seen, mask, -torch.inf)


@documented
def linear_attention(q, k, v, *, causal=False, scale="sqrt"):
    """
    Differentiable. The backward pass is linear in the length too; a second derivative is that of attention with
    map="taylor_softmax".
    """
    q, k, v = _check("linear_attention", q=q, k=k, v=v)
    q, scale = _scaled("linear_attention", q, scale, shape_of("linear_attention", q.shape, k.shape, v.shape))
    tensors, back = _with_equal_axes(q, k, v)
    (number,), causal = linear_values("linear_attention", scale), _checks.flag("linear_attention", "causal", causal)
    return back(_attend_linearly(*tensors, number, causal))


@documented
class Attention(Configured):
    """isentropic.torch.attention as a module. A parameter of the map, kappa or sinks that is an nn.Parameter is learned. With
    heads, kappa of a scale by the number of keys is a parameter for each head, 1 / log(train_length) in the beginning.

    Examples: ``Attention(map="entmax", alpha=nn.Parameter(torch.full((heads, 1, 1), 1.5)), causal=True)``,
    ``Attention(map="entmax", scale="log_n", heads=8, causal=True)``.
    """

    def __init__(
        self,
        map="softmax",
        scale="sqrt",
        causal=False,
        train_length=512,
        kappa=None,
        softcap=None,
        sinks=None,
        heads=None,
        **map_params,
    ):
        map, params = map_and_params("Attention", map, map_params)
        if heads is not None:
            kappa = _kappa_of_heads(scale, train_length, kappa, heads)
        own = {"map": map, "scale": scale, "causal": causal, "train_length": train_length, "kappa": kappa}
        own |= {"softcap": softcap, "sinks": sinks}
        super().__init__(own | {f"map_{name}": value for name, value in params.items()})

    def forward(self, q, k, v, mask=None, return_weights=False, return_entropy=False):
        values = self._values()
        params = {name: values.pop(f"map_{name}") for name in (param["name"] for param in MAPS[self.map]["params"])}
        returned = {"return_weights": return_weights, "return_entropy": return_entropy}
        return attention(q, k, v, mask=mask, **values | returned | {"map": (self.map, params)})


def _kappa_of_heads(scale, train_length, kappa, heads):
    """A parameter for each head, kappa or the default in the beginning."""
    heads = _checks.integer("Attention", "heads", heads)
    if heads < 1:
        raise ValueError(f"Attention: heads must be at least 1, got {heads}")
    if scale not in BY_N:
        got = repr(scale) if isinstance(scale, str) else type(scale).__name__
        raise ValueError(f"Attention: heads is for scale 'log_n' and 'entropy_invariant', whose kappa it learns, got {got}")
    if kappa is None and scale == "entropy_invariant":
        raise ValueError(
            "Attention: kappa must be given with heads and scale 'entropy_invariant': it begins at sqrt(d) / log(train_length)"
        )
    kappa = 1 / math.log(train_length) if kappa is None else _checks.number("Attention", "kappa", kappa)
    return torch.nn.Parameter(torch.full((heads, 1, 1), kappa))


@documented
class LinearAttention(Configured):
    """isentropic.torch.linear_attention as a module."""

    def __init__(self, causal=False, scale="sqrt"):
        super().__init__({"causal": causal, "scale": scale})

    def forward(self, q, k, v):
        return linear_attention(q, k, v, **self._values())


# torch.fx keeps calls of these as they are.
torch.fx.wrap("attention")
torch.fx.wrap("linear_attention")
