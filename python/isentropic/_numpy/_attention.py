"""Attention: arrays of any batch axes as (batch, heads, rows, columns) and back."""

import math
from typing import NamedTuple

import array_api_compat.numpy as xp
import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._attention import (
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
from isentropic._numpy import _convert, _layout
from isentropic.formulas import Rows
from isentropic.formulas import attention as formulas


class MapCall(NamedTuple):
    """A map and its parameters in _core's order; None if a parameter has one value for all queries."""

    name: str
    values: tuple
    per_row: tuple


def map_call(function, given, params):
    """A map by name, or (name, {parameter: value}), with further parameters. Arrays are not converted."""
    name, values = map_and_params(function, given, params)
    per_row = tuple(param["name"] if param["per_row"] else None for param in MAPS[name]["params"])
    return MapCall(name, tuple(values.values()), per_row)


def _four_axes(x, batch, heads):
    """x as (batch, heads, rows, columns), the last axis without gaps; without a copy if possible."""
    whole = np.broadcast_to(x, (*batch, heads, *x.shape[-2:])).reshape(math.prod(batch), heads, *x.shape[-2:])
    if whole.shape[-1] > 1 and whole.strides[-1] != whole.itemsize:
        whole = np.ascontiguousarray(whole)
    return whole


def _mask(function, mask, shape, dtype):
    """The mask for each query of each head: of bools, or of numbers to add."""
    if mask is None:
        return None
    mask = _convert.to_numpy(function, "mask", mask)
    whole = np.broadcast_to(mask, mask_shape(function, mask, mask.dtype.kind in "bf", shape))
    whole = whole.reshape(math.prod(shape.batch), shape.heads, shape.queries, shape.keys)
    return whole if mask.dtype == bool else whole.astype(dtype, copy=False)


class _Call:
    """q, k and v as _core takes them."""

    def __init__(self, function, q, k, v, *others):
        arrays = [
            _convert.to_floats(function, name, _convert.to_numpy(function, name, x))
            for name, x in (("q", q), ("k", k), ("v", v), *others)
        ]
        self.dtype = np.result_type(*(dtype for _, dtype in arrays[:3]))
        self.work = _convert.FLOAT64 if self.dtype == _convert.FLOAT64 else _convert.FLOAT32
        values = [_convert.cast(array, self.work) for array, _ in arrays]
        self.function, self.kinds, self.shapes = function, (q, k, v), [value.shape for value in values[:3]]
        self.shape = shape = shape_of(function, *self.shapes)
        heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        self.arrays = [_four_axes(x, shape.batch, h) for x, h in zip(values[:3], heads, strict=True)]
        self.others = values[3:]
        self.out_shape = (*shape.lead, shape.queries, self.shapes[2][-1])

    def map(self, given, params):
        """The map's name and values, those per row as one number for each query."""
        call = map_call(self.function, given, params)
        pairs = zip(call.per_row, call.values, strict=True)
        return call._replace(values=tuple(value if name is None else self.per_query(name, value) for name, value in pairs))

    def per_query(self, name, value):
        """A number as it is, an array as one number for each query."""
        value = _convert.per_row(self.function, name, value)
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim == 0:
            return value[()]
        wanted = (*self.shape.lead, self.shape.queries, 1)
        try:
            return np.ascontiguousarray(np.broadcast_to(value, wanted)).reshape(-1)
        except ValueError:
            raise _checks.misfit(self.function, name, wanted, "(..., m, 1)", value) from None

    def scaling(self, scale, train_length, kappa):
        """(scale, number, train_length, kappa) as _core takes them; the numbers may differ by query."""
        kappa = self.per_query("kappa", kappa)
        number = scale if isinstance(scale, str) else self.per_query("scale", scale)
        if isinstance(number, np.ndarray):
            check_kappa(self.function, "number", kappa)
            return "number", number, train_length, kappa
        return scale_values(self.function, number, train_length, kappa)

    def sinks(self, given):
        """(one number for each query, the shape that sums them up to those given), or None."""
        if given is None:
            return None, None
        sinks = _convert.to_floats(self.function, "sinks", _convert.to_numpy(self.function, "sinks", given))[0]
        own = sinks_shape(self.function, sinks, self.shape)
        wanted = (*self.shape.lead, self.shape.queries, 1)
        whole = np.broadcast_to(_convert.cast(sinks, self.work).reshape(own), wanted)
        return np.ascontiguousarray(whole).reshape(-1), (own, sinks.shape)

    def empty(self, *shape):
        return np.empty(shape, self.work)

    def gradients(self):
        """The gradient in out, and room for those in q, k and v."""
        g = self.others[0]
        if g.shape != self.out_shape:
            raise ValueError(f"{self.function}: grad must have the shape of out, {self.out_shape}, got {g.shape}")
        return _four_axes(g, self.shape.batch, self.shape.heads), [self.empty(*x.shape) for x in self.arrays]

    def entropy_gradient(self):
        wanted = self.out_shape[:-1]
        if self.others[1].shape != wanted:
            raise ValueError(
                f"{self.function}: entropy_grad must have the shape of the entropy, {wanted}, got {self.others[1].shape}"
            )
        return np.ascontiguousarray(self.others[1]).reshape(-1)

    def back_gradients(self, gradients):
        """Gradients in the form of the caller's q, k and v."""
        results = []
        for like, d, wanted in zip(self.kinds, gradients, self.shapes, strict=True):
            results.append(self.back(like, _layout.sum_to(d.reshape(*self.shape.batch, *d.shape[1:]), wanted), *wanted))
        return results

    def back(self, like, result, *shape):
        return _convert.number_or_array(_convert.same_kind(like, _convert.cast(result.reshape(shape), self.dtype)))


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
    q, k, v: Queries (..., m, d), keys (..., n, d) and values (..., n, dv). Axes before these broadcast. q may have a multiple
        of the heads (the third axis from the end) of k and v: then consecutive heads share keys and values.
    map (str or (str, dict)): A map by name, or (name, {parameter: value}) if a parameter of the map has the name of a parameter
        of attention.
    scale ("sqrt", "entropy_invariant", "log_n", float or array): "sqrt" is 1/sqrt(d). With n the number of keys that the query
        sees, "entropy_invariant" and "log_n" are log n / (log(train_length) sqrt(d)); with kappa they are kappa log n / d and
        kappa log n / sqrt(d). A number is the factor itself; an array broadcasts to (..., m, 1).
    causal: Query i sees keys j <= i + n - m: the queries are the last m positions, as in decoding with a cache. (PyTorch's
        is_causal differs where m is not n: there query i sees keys j <= i.)
    mask (array of bools or floats): Broadcasts to (..., m, n). True: the query sees the key. Floats are added to the scaled
        scores; -inf hides a key.
    train_length: The n at which a scale by n is 1/sqrt(d) without kappa.
    kappa (float or array, above 0): The factor of log n in a scale by n. An array broadcasts to (..., m, 1): (h, 1, 1) is one
        for each head.
    softcap: Scaled scores s become softcap tanh(s / softcap), before the mask.
    sinks (array): One further score for each head, of shape (h,) or of a shape that broadcasts to (..., m, 1). It takes mass,
        and its value is 0. It is not scaled and not counted in n; of equal scores it is the last. -inf: there is no sink.
    return_weights (bool): Return also p, (..., m, n). With sinks their sum may be below 1.
    return_entropy (bool): Return also -sum_j p_ij log p_ij in nats, (..., m). A sink is one more outcome.
    **map_params: Parameters of the map. A parameter that may differ per row may be an array that broadcasts with (..., m,
        1).
    Returns (array, or a tuple of arrays): out, (..., m, dv), of the kind of q and the common dtype; then the weights and the
        entropy if asked for.
    Raises: Shapes do not fit, the map is unknown, a parameter is out of its range.
    TypeError: A parameter is missing, unknown or of the wrong type; an array is masked, complex or not numeric, is on another
        device, or requires grad.
    Notes: A query that sees no key gives zeros (also for weights and entropy), even with a sink. A query that sees one key
        takes its value, unless there is a sink. Hidden keys and their values have no effect, even if they are NaN. A query with
        a NaN among its scores gives NaN, and no other query does. Scores are in memory for at most 48 queries at a time. The
        bits are the same for any number of threads, any batch and every SIMD target with FMA. float16 is computed in float32.
    >>> q = k = v = np.eye(3)
    >>> out, entropy = isentropic.attention(q, k, v, map="entmax", alpha=1.5, scale=2.0, return_entropy=True)
    """
    for argument, value in (("return_weights", return_weights), ("return_entropy", return_entropy)):
        _checks.flag("attention", argument, value)
    call = _Call("attention", q, k, v)
    shape, chosen = call.shape, call.map(map, map_params)
    seen = _mask("attention", mask, shape, call.work)
    (of_sinks, _), batch = call.sinks(sinks), math.prod(shape.batch)
    out = call.empty(batch, shape.heads, shape.queries, call.shapes[2][-1])
    weights = call.empty(batch, shape.heads, shape.queries, shape.keys) if return_weights else None
    entropy = call.empty(batch * shape.heads * shape.queries) if return_entropy else None
    scaling = call.scaling(scale, train_length, kappa)
    params = (chosen.name, chosen.values), *scaling, causal, checked_softcap("attention", softcap)
    _core.attention(*call.arrays, seen, of_sinks, out, weights, entropy, params)
    results = [call.back(q, out, *call.out_shape)]
    if return_weights:
        results.append(call.back(q, weights, *shape.lead, shape.queries, shape.keys))
    if return_entropy:
        results.append(call.back(q, entropy, *shape.lead, shape.queries))
    return tuple(results) if len(results) > 1 else results[0]


@documented
def attention_vjp(
    q,
    k,
    v,
    grad,
    *,
    map="softmax",
    scale="sqrt",
    causal=False,
    mask=None,
    train_length=512,
    kappa=None,
    softcap=None,
    sinks=None,
    param_grad=False,
    entropy_grad=None,
    **map_params,
):
    """
    The gradient of <grad, attention(q, k, v)> with respect to q, k and v.

        dv_j = sum_i p_ij g_i; with ds_i the map's gradient of p_i for <g_i, v_j>: dq_i = scale_i sum_j ds_ij k_j,
        dk_j = sum_i scale_i ds_ij q_i

    q, k, v, map, scale, causal, mask, train_length, kappa, softcap, sinks, **map_params: As given to attention.
    grad: The gradient with respect to out, (..., m, dv).
    param_grad (bool, str or list of str): Return also the gradient in parameters of the map, which must be given and may differ
        per row. Names select them. True selects all except the temperature, or the temperature if there is no other (alpha of
        entmax, the temperature of softmax). "kappa" and "scale", if they are given as numbers or arrays, may be among the
        names; "scale" is the map's own where it has one.
    entropy_grad (array): The gradient with respect to the entropy, (..., m); its contribution is added.
    Returns (dq, dk, dv : arrays): In the shapes of q, k and v, of their kinds and the common dtype. With sinks, then dsinks in
        their shape. With param_grad, then one array (..., m) for each of these parameters.
    Raises: As attention.
    Notes: The scores are recomputed, for some queries at a time. The gradient is 0 for a query that sees no key, and for a key
        that no query sees.
    >>> q = k = v = np.eye(3)
    >>> dq, dk, dv = isentropic.attention_vjp(q, k, v, np.ones((3, 3)), causal=True)
    """
    further = () if entropy_grad is None else (("entropy_grad", entropy_grad),)
    call = _Call("attention_vjp", q, k, v, ("grad", grad), *further)
    shape, chosen = call.shape, call.map(map, map_params)
    seen = _mask("attention_vjp", mask, shape, call.work)
    g, grads = call.gradients()
    queries = math.prod(shape.lead) * shape.queries
    asked = ()
    scaling = call.scaling(scale, train_length, kappa)
    if param_grad:
        names, values = chosen.per_row, chosen.values
        if param_grad is not True:
            names, values = (*names, "kappa"), (*values, scaling[3])
            if "scale" not in names and not isinstance(scale, str):
                names, values = (*names, "scale"), (*values, scale)
        found = _checks.asked_params("attention_vjp", names, values, param_grad)
        in_core = {} if "scale" in chosen.per_row else {"scale": "number"}
        asked = tuple((in_core.get(name, name), np.empty(queries)) for name in found)
    params = (chosen.name, chosen.values), *scaling, causal, checked_softcap("attention_vjp", softcap)
    entropy_gradient = call.entropy_gradient() if further else None
    of_sinks, sums_to = call.sinks(sinks)
    dsinks = None if sinks is None else np.empty_like(of_sinks)
    _core.attention_vjp(*call.arrays, g, seen, of_sinks, entropy_gradient, *grads, dsinks, params, asked)
    results = call.back_gradients(grads)
    if sinks is not None:
        whole = _layout.sum_to(dsinks.reshape(*shape.lead, shape.queries, 1), sums_to[0])
        results.append(call.back(sinks, whole, *sums_to[1]))
    results += [call.back(q, numbers, *shape.lead, shape.queries) for _, numbers in asked]
    return tuple(results)


@documented
def keys_seen(m, n, *, causal=False, mask=None):
    """
    The number of keys that each query of attention sees: the n of its scales "entropy_invariant" and "log_n".

        n_i = the number of keys j that causal and mask leave, causal: j <= i + n - m

    m, n (int, at least 0): How many queries and keys.
    causal (bool): Query i sees keys j <= i + n - m: the queries are the last m positions, as in decoding with a cache.
    mask (array of bools or floats): Broadcasts to (..., m, n). True: the query sees the key. -inf hides a key.
    Returns (array of integers): (m,), or (..., m) where the mask has further axes.
    Raises: m or n is negative; the mask does not fit.
    TypeError: The mask is of other numbers.
    >>> isentropic.keys_seen(2, 5, causal=True)
    array([4, 5])
    >>> isentropic.keys_seen(4, 4, causal=True, mask=np.tri(4, k=0, dtype=bool) & ~np.tri(4, k=-2, dtype=bool))
    array([1, 2, 2, 2])
    """
    kind = mask
    if mask is not None:
        mask = _convert.to_numpy("keys_seen", "mask", mask)
    m, n, causal = counted("keys_seen", m, n, causal, mask, mask is None or mask.dtype.kind in "bf")
    found = formulas.keys_seen(Rows(xp), m, n, causal, mask)
    return found if kind is None else _convert.same_kind(kind, found)


@documented
def linear_attention(q, k, v, *, causal=False, scale="sqrt"):
    """
    q, k, v (array): As given to attention.
    causal: Query i sees keys j <= i + n - m.
    scale ("sqrt" or float): 1/sqrt(d), or the factor itself.
    Returns: out, (..., m, dv), of the kind of q and the common dtype.
    Raises: As attention.
    Notes: f(s) = (1 + <(1, scale q), (1, k)>^2) / 2. So sums of (d + 1) (d + 2) / 2 products times dv represent all keys. They
        are compensated for rounding errors. The time is O(n d^2 dv). attention with map="taylor_softmax" gives the same up to
        rounding in O(n^2 (d + dv)), which for d = dv = 64 is slower from a few thousand keys on. Queries for which the sums
        cancel or overflow, or a number is not finite, are computed in this way too, in O(n (d + dv)) each. There are hardly
        any, unless all keys have nearly the same direction and a query is nearly orthogonal to it.
    Source: Arora et al., ICML 2024; Katharopoulos et al., ICML 2020.
    >>> q = k = v = np.eye(3)
    >>> out = isentropic.linear_attention(q, k, v, causal=True)
    """
    call = _Call("linear_attention", q, k, v)
    shape, values = call.shape, linear_values("linear_attention", scale)
    out = call.empty(math.prod(shape.batch), shape.heads, shape.queries, call.shapes[2][-1])
    _core.linear_attention(*call.arrays, out, (*values, causal))
    return call.back(q, out, *call.out_shape)


@documented
def linear_attention_vjp(q, k, v, grad, *, causal=False, scale="sqrt"):
    """
    The gradient of <grad, linear_attention(q, k, v)> with respect to q, k and v, in time linear in the length too.

        with w_ij = f(s_ij), Z_i = sum_j w_ij, a_i = g_i/Z_i and dw_ij = <a_i, v_j - out_i>: dv_j = sum_i w_ij a_i,
        dq_i = scale sum_j dw_ij (1 + s_ij) k_j, dk_j = scale sum_i dw_ij (1 + s_ij) q_i

    q, k, v, causal, scale: As given to linear_attention.
    grad: The gradient with respect to out, (..., m, dv).
    Returns (dq, dk, dv : arrays): In the shapes of q, k and v, of their kinds and the common dtype.
    Raises: As attention.
    Notes: It sums over keys for the queries and, backwards, over queries for the keys. The time is O(n d^2 dv), about 3 times
        that of linear_attention (except for the queries that its notes name), and the memory is m dv numbers. attention_vjp
        with map="taylor_softmax" gives the same up to rounding.
    >>> q = k = v = np.eye(3)
    >>> dq, dk, dv = isentropic.linear_attention_vjp(q, k, v, np.ones((3, 3)), causal=True)
    """
    call = _Call("linear_attention_vjp", q, k, v, ("grad", grad))
    values = linear_values("linear_attention_vjp", scale)
    g, grads = call.gradients()
    _core.linear_attention_vjp(*call.arrays, g, *grads, (*values, causal))
    return tuple(call.back_gradients(grads))
