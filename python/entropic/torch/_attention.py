"""Attention with any map: operators, functions and modules."""

import torch

from entropic import _attention, _checks
from entropic._maps import MAPS, map_and_params
from entropic.torch import _descriptions
from entropic.torch._arguments import from_array, misfit, no_gradient, one_device
from entropic.torch._builder import Operator
from entropic.torch._modules import Configured
from entropic.torch._spec import OpSpec, Tensor

_HALVES = (torch.float16, torch.bfloat16)


def _shape(q, k, v):
    return _attention.shape_of("attention", tuple(q.shape), tuple(k.shape), tuple(v.shape))


def _shapes(q, k, v, *_):
    shape = _shape(q, k, v)
    return q.new_empty((*shape.lead, shape.queries, v.shape[-1]))


def _operator(name, tensors, params, moving):
    return Operator(
        OpSpec(
            name=name,
            tensors=("q", "k", "v", *tensors),
            params=params,
            outputs=("out",),
            shapes=_shapes,
            differentiable=("q", "k", "v", *moving),
            keeps=("q", "k", "v", *(tensor.removesuffix("?") for tensor in tensors)),
            derivative="operator",
        )
    )


_SCALE = {"scale": "str", "number": "float", "train_length": "float", "kappa": "float?", "causal": "bool"}
_attend = _operator("attention", ["mask?", "rows?"], {**_descriptions.MAP_SCHEMA, **_SCALE}, ["rows"])
_attend_linearly = _operator("linear_attention", [], {"scale": "float?", "causal": "bool"}, [])


def _with_equal_axes(*tensors):
    """Tensors, or None, with as many axes each, at least three, and how to take the heads away again that this has put in."""
    axes = max(tensor.dim() for tensor in tensors if tensor is not None)
    count = max(axes, 3)
    same = [None if x is None else x.reshape(*[1] * (count - x.dim()), *x.shape) for x in tensors]
    return same, (lambda out: out.squeeze(0)) if axes < 3 else (lambda out: out)


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
    scale : "sqrt", "entropy_invariant", float or tensor, default "sqrt"
        1/sqrt(d); log n / (log(train_length) sqrt(d)), or kappa log n / d where kappa is given, with n the number of keys that
        the query sees; or the factor itself, of which a tensor broadcasts with (..., m, 1) and has a gradient.
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
    name, params = map_and_params("attention", map, map_params)
    shape = _shape(q, k, v)
    rows = []
    for param in MAPS[name]["params"]:
        key = param["name"]
        value = from_array("attention", key, params[key]) if param["per_row"] else params[key]
        if isinstance(value, Tensor) and param["per_row"]:
            wanted = (*shape.lead, shape.queries, 1)
            try:
                value = value.to(device=q.device, dtype=torch.float64).expand(wanted)
            except RuntimeError:
                raise misfit("attention", key, wanted, "(..., m, 1)", value) from None
            rows.append(value)
        elif value is not None and param["kind"] in ("float", "optional float"):
            no_gradient("attention", key, value)
            value = _checks.number("attention", key, value, "a number or a tensor")
            if value != value:
                raise ValueError(f"attention: {key} must be a number, got nan")
        elif isinstance(value, Tensor):
            value = value.item()
        params[key] = value
    if mask is not None and not isinstance(mask, Tensor):
        raise TypeError(f"attention: mask must be a torch.Tensor, got {type(mask).__name__}")
    if mask is not None and mask.requires_grad:
        raise ValueError("attention: no gradient flows into the mask: pass mask.detach()")
    no_gradient("attention", "train_length", train_length)
    no_gradient("attention", "kappa", kappa)
    q, scale = _scaled(q, scale)
    scale, number, train_length, kappa = _attention.scale_values("attention", scale, train_length, kappa)
    tensors, back = _with_equal_axes(q, k, v, mask, torch.cat(rows, -1) if rows else None)
    out = _attend(
        *tensors,
        *_descriptions.map_arguments(name, params),
        scale,
        number,
        _checks.number("attention", "train_length", train_length),
        kappa if kappa is None else _checks.number("attention", "kappa", kappa),
        _checks.flag("attention", "causal", causal),
    )
    return back(out)


def _scaled(q, scale):
    """(q, scale), where a tensor has gone into q, from which it has its gradient."""
    if not isinstance(scale, Tensor) or (scale.dim() == 0 and not scale.requires_grad):
        return q, scale
    return (q * scale).to(q.dtype), 1.0


def linear_attention(q, k, v, *, causal=False, scale="sqrt"):
    """Attention with taylor_softmax of order 2 in time linear in the length: see entropic.linear_attention. Differentiable.

    The backward pass is linear in the length too; a second derivative is that of attention with map="taylor_softmax".
    """
    _check("linear_attention", q=q, k=k, v=v)
    q, scale = _scaled(q, scale)
    tensors, back = _with_equal_axes(q, k, v)
    (number,), causal = _attention.linear_values("linear_attention", scale), _checks.flag("linear_attention", "causal", causal)
    return back(_attend_linearly(*tensors, number, causal))


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
