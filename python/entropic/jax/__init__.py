"""The functions of entropic for JAX: under ``jit``, ``grad``, ``jvp``, ``hessian`` and ``vmap``, on the CPU.

Maps, log_softmax and logsumexp can be differentiated forward and backward and more than once, in scores and in parameters that
are arrays. Losses and measures can be differentiated once. Values have the bits of the NumPy functions.
``entropic.jax.distributed`` has functions for rows that are split over devices.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import entropic
from entropic import _core
from entropic.jax import _calibration, _transport
from entropic.jax._call import array, call, like, normalized, wide

_MAPS = {one["name"]: one for one in _core.operations()}
_LOSSES = {one["name"]: one for one in _core.losses()}


def _split(info, given, x, axis):
    """Parameters that are numbers, and those that are arrays, with one value for each row of x; `axis` becomes the last
    axis."""
    operation, static, rows = info["name"], [], {}
    known = {param["name"]: param for param in info["params"]}
    for name, value in given.items():
        if name not in known:
            has = ", ".join(known)
            raise TypeError(f"{operation}: there is no parameter '{name}'" + (f"; it has {has}" if has else ""))
        if isinstance(value, np.generic):
            value = value.item()
        if not (hasattr(value, "ndim") or isinstance(value, jax.core.Tracer)):
            if isinstance(value, (tuple, list)) and known[name]["kind"] == "map":
                value = {"name": value[0], **value[1]}
            static.append((name, value if not isinstance(value, dict) else _Frozen(value)))
            continue
        if not known[name]["per_row"]:
            raise TypeError(f"{operation}: {name} must be one value, got an array of shape {value.shape}")
        value = jnp.asarray(value, wide(x).dtype)
        if value.ndim == x.ndim:
            value = jnp.moveaxis(value, axis, -1)
        shape = (*x.shape[:-1], 1)
        try:
            rows[name] = jnp.broadcast_to(value, shape)
        except ValueError:
            raise ValueError(f"{operation}: {name} must broadcast to {shape}, got shape {value.shape}") from None
    names = {name for name, _ in static} | set(rows)
    for name, param in known.items():
        if param["default"] is None and "optional" not in param["kind"] and name not in names:
            raise TypeError(f"{operation}: {name} is required")
    if not rows:
        # Ranges are checked at once, by a call that only checks, and not when the program runs.
        _check(info, static)
    return tuple(sorted(static)), rows


class _Frozen(dict):
    """A map with its parameters, as part of a key."""

    def __hash__(self):
        return hash(tuple(self.items()))


def _check(info, static):
    if info["name"] in _MAPS and "forward" in info:
        values = dict(static)
        ordered = tuple(values.get(param["name"], param["default"]) for param in info["params"])
        empty = np.empty((0, 1), np.float32)
        info["forward"](empty, empty.copy(), -1, ordered)


# Maps.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _map(operation, static, x, rows):
    return call(operation, static, {"x": x, **rows}, {"y": like(x, 1 if operation == "logsumexp" else None)})[0]


def _centred(p, w, s):
    """The Jacobian s (w - <s, w> / sum s), 0 where s is 0."""
    w = jnp.where(s > 0, w, 0)
    total = s.sum(-1, keepdims=True)
    return s * (w - (s * w).sum(-1, keepdims=True) / jnp.where(total > 0, total, 1))


def _second_rest(y):
    """2 (e^y - 1 - y) / y^2, by its series near 0."""
    near = jnp.abs(y) < 1
    far, inner = jnp.where(near, 1, y), jnp.where(near, y, 0)
    series = jnp.zeros_like(y)
    for m in range(18, -1, -1):
        series = series * inner + 2 / math.factorial(m + 2)
    return jnp.where(near, series, 2 * (jnp.expm1(far) - far) / (far * far))


def _entmax_alpha(p, alpha):
    """d entmax / d alpha, the formula of Correia, Niculae and Martins, 2019, without differences that cancel near 1."""
    on, b = p > 0, alpha - 1
    log = jnp.where(on, jnp.log(jnp.where(on, p, 1)), 0)
    # Where p^-b is larger, alpha no longer has an effect.
    y = jnp.minimum(-b * log, 600.0 if p.dtype == jnp.float64 else 80.0)
    h = -p * log
    r = p * log**2 * _second_rest(y)
    sums = [one.sum(-1, keepdims=True) for one in (p * jnp.exp(y), h, r)]
    return (p * sums[2] - r + b * (h * sums[2] - r * sums[1])) / (2 * sums[0])


def _at_entropy(x, p, v, slope):
    """softmax(gamma x) at a given entropy: its value is p, and `slope` is the derivative of the entropy."""
    finite = p > 0
    x, v = jnp.where(finite, x, 0), jnp.where(finite, v, 0)
    x = x - (p * x).sum(-1, keepdims=True)
    v = v - (p * v).sum(-1, keepdims=True)
    variance = (p * x * x).sum(-1, keepdims=True)
    safe = jnp.where(variance > 0, variance, 1)
    log = jnp.log(jnp.where(finite, p, 1))
    gamma = jnp.where(variance > 0, (p * x * log).sum(-1, keepdims=True) / safe, 1)
    moved = gamma * v - x * (gamma * (p * x * v).sum(-1, keepdims=True) / safe)
    if slope is not None:
        moved = moved - x * jnp.where(variance > 0, slope / (jnp.where(gamma > 0, gamma, 1) * safe), 0)
    return p * (moved - (p * moved).sum(-1, keepdims=True))


def _target(values, slopes, entropy, perplexity=None):
    """The derivative of the target in nats, or None."""
    if entropy in slopes:
        return slopes[entropy]
    if perplexity in slopes:
        return slopes[perplexity] / values[perplexity]
    return None


@_map.defjvp
def _map_jvp(operation, static, primals, tangents):
    x, rows = primals
    y = _map(operation, static, x, rows)
    dtype, (v, slopes) = x.dtype, tangents
    x, p, v = wide(x), wide(y), wide(v)
    values = {param["name"]: param["default"] for param in _MAPS[operation]["params"]}
    values.update(static)
    values.update(rows)
    finite = jnp.isfinite(x)
    if operation == "perturb_max":
        scale = values["scale"]
        if "scale" in slopes:
            v = v - jnp.where(finite, x, 0) / scale * slopes["scale"]

        # The Jacobian is symmetric, so its product from the left is the kernel's from the right.
        def product(kept, v):
            x, y, rows = kept
            given = {"x": x, "y": y, "grad": v.astype(x.dtype), **rows}
            return call(operation, static, given, {"dx": like(x)}, vjp=True)[0].astype(v.dtype)

        v = jax.custom_derivatives.linear_call(product, product, (primals[0], y, rows), v)
        return y, v.astype(dtype)
    if "temperature" in values:
        temperature = values["temperature"]
        if operation == "logsumexp":
            weights = jnp.where(jnp.isfinite(p), jnp.exp((x - jnp.where(jnp.isfinite(p), p, 0)) / temperature), 0)
            dy = (weights * jnp.where(weights > 0, v, 0)).sum(-1, keepdims=True)
            if "temperature" in slopes:
                mean = (weights * jnp.where(finite, x, 0)).sum(-1, keepdims=True)
                dy = dy + slopes["temperature"] * (p - mean) / temperature
            return y, dy.astype(dtype)
        v = v / temperature
        if "temperature" in slopes:
            v = v - jnp.where(finite, x, 0) / temperature**2 * slopes["temperature"]
    if operation == "log_softmax":
        q = jnp.exp(p)
        v = jnp.where(q > 0, v, jnp.where(finite, v, 0))
        dy = jnp.where(finite, v - (q * v).sum(-1, keepdims=True), 0)
    elif operation == "sparsemax":
        dy = _centred(p, v, (p > 0).astype(p.dtype))
    elif operation == "entmax":
        alpha = values["alpha"]
        dy = _centred(p, v, jnp.where(p > 0, jnp.where(p > 0, p, 1) ** (2 - alpha), 0))
        if "alpha" in slopes:
            dy = dy + _entmax_alpha(p, alpha) * slopes["alpha"]
    elif operation == "taylor_softmax":
        terms = [x**k / math.factorial(k) for k in range(values["order"] + 1)]
        dy = _centred(p, v * (sum(terms[:-1]) / sum(terms)), p)
    elif operation == "sigsoftmax":
        dy = _centred(p, v * (2 - jax.nn.sigmoid(x)), p)
    elif operation in ("entropy_normalize", "entropy_clip"):
        if values["input"] == "probs":
            v = jnp.where(x > 0, v / jnp.where(x > 0, x, 1), 0)
            x = jnp.log(x)
        if operation == "entropy_normalize":
            dy = _at_entropy(x, p, v, _target(values, slopes, "entropy", "perplexity"))
        else:
            free = jax.nn.softmax(x, -1)
            entropy = -(free * jnp.where(free > 0, jnp.log(jnp.where(free > 0, free, 1)), 0)).sum(-1, keepdims=True)
            low, high = values["min_entropy"], values["max_entropy"]
            below = False if low is None else entropy < low
            above = False if high is None else entropy > high
            at_low = _at_entropy(x, p, v, _target(values, slopes, "min_entropy"))
            at_high = _at_entropy(x, p, v, _target(values, slopes, "max_entropy"))
            dy = jnp.where(below, at_low, jnp.where(above, at_high, _centred(p, v, p)))
    else:
        dy = _centred(p, v, p)
    return y, dy.astype(dtype)


# Losses and measures: one number for each row, and its gradient by the kernel.


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _value(operation, static, names, moved, arrays, rows):
    given = dict(zip(names, arrays, strict=True))
    x = arrays[0]
    return call(operation, static, {**given, **rows}, {"value": like(x, 1, wide(x).dtype)})[0]


@_value.defjvp
def _value_jvp(operation, static, names, moved, primals, tangents):
    arrays, rows = primals
    value, slopes, of_rows = _graded(operation, static, names, moved, arrays, rows)
    change = jnp.zeros_like(value)
    for (name, _), slope in zip(moved, slopes, strict=True):
        v = wide(tangents[0][names.index(name)])
        change += jnp.where(slope != 0, wide(slope) * v, 0).sum(-1, keepdims=True)
    for name, slope in of_rows.items():
        change += slope * tangents[1][name]
    return value, change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _graded(operation, static, names, moved, arrays, rows):
    """(values, their gradients in arrays, in parameters of rows)."""
    outputs = {"value": like(arrays[0], 1, wide(arrays[0]).dtype)}
    outputs |= {slope: like(arrays[names.index(name)]) for name, slope in moved}
    outputs |= {f"d_{name}": like(row) for name, row in rows.items()}
    value, *slopes = call(operation, static, {**dict(zip(names, arrays, strict=True)), **rows}, outputs)
    return value, slopes[: len(moved)], dict(zip(rows, slopes[len(moved) :], strict=True))


@_graded.defjvp
def _graded_jvp(operation, static, names, moved, primals, tangents):
    arrays, rows = primals
    if operation not in _TWICE or rows:
        of = f" where {next(iter(rows))} is an array" if rows else ""
        raise NotImplementedError(f"entropic.jax: {operation} has no second derivative{of}")
    found = value, slopes, _ = _graded(operation, static, names, moved, arrays, rows)
    vs = [wide(tangents[0][names.index(name)]) for name, _ in moved]
    change = sum(jnp.where(slope != 0, wide(slope) * v, 0) for slope, v in zip(slopes, vs, strict=True))
    turned = _TWICE[operation](dict(static), dict(zip(names, arrays, strict=True)), slopes, vs)
    turned = [one.astype(slope.dtype) for one, slope in zip(turned, slopes, strict=True)]
    return found, (change.sum(-1, keepdims=True).astype(value.dtype), turned, {})


# Derivatives of gradients, for second derivatives: of losses whose gradient is a map minus the target, and of measures of
# probabilities.


def _of_map(name, static, arrays, slopes, vs):
    x = arrays["x"]
    params = tuple((key, static[key]) for key in ("alpha",) if key in static)
    turned = jax.jvp(lambda x: _map(name, params, x, {}), (x,), (vs[0].astype(x.dtype),))[1]
    return [jnp.where((slopes[0] != 0).any(-1, keepdims=True), turned, 0)]  # ignored rows have no gradient


def _of_probabilities(rule):
    def turned(static, arrays, slopes, vs):
        if static.get("input", "probs") != "probs" or static.get("normalize"):
            raise NotImplementedError("entropic.jax: measures have second derivatives in probabilities that are not normalized")
        given = [wide(arrays[name]) for name in ("p", "q")[: len(vs)]]
        safe = [jnp.where(x > 0, x, 1) for x in given]
        unit = math.log(static["base"]) if static.get("base") else 1.0
        zero = [x == 0 for x in given]
        return [jnp.where(at, 0, one / unit) for at, one in zip(zero, rule(*safe, *vs), strict=True)]

    return turned


def _js_turned(p, q, v, w):
    m = p + q
    return 0.5 * (v / p - (v + w) / m), 0.5 * (w / q - (v + w) / m)


_TWICE = {
    "softmax_loss": functools.partial(_of_map, "softmax"),
    "sparsemax_loss": functools.partial(_of_map, "sparsemax"),
    "entmax_loss": functools.partial(_of_map, "entmax"),
    "entropy": _of_probabilities(lambda p, v: (-v / p,)),
    "cross_entropy": _of_probabilities(lambda p, q, v, w: (-w / q, (p * w / q - v) / q)),
    "kl_divergence": _of_probabilities(lambda p, q, v, w: (v / p - w / q, (p * w / q - v) / q)),
    "js_divergence": _of_probabilities(_js_turned),
}


def _make_map(info):
    name = info["name"]

    def function(x, /, *, axis=-1, **parameters):
        keepdims = parameters.pop("keepdims", False) if name == "logsumexp" else True
        x = array(name, "x", x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        static, rows = _split(info, parameters, moved, axis)
        y = _map(name, static, moved, rows)
        return jnp.moveaxis(y, -1, axis) if keepdims else y[..., 0]

    return function


def _make_loss(info):
    name, (first, second) = info["name"], info["arguments"]

    def function(x, target, /, *, axis=-1, ignore_index=None, **parameters):
        x = array(name, first, x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        static, rows = _split(info, parameters, moved, axis)
        if ignore_index is not None:
            static = (*static, ("ignore_index", int(ignore_index)))
        target = jnp.asarray(target)
        if jnp.issubdtype(target.dtype, jnp.integer) and info["target"] in ("class", "class or distribution"):
            if target.shape != moved.shape[:-1]:
                raise ValueError(
                    f"{name}: {second} must have shape {moved.shape[:-1]}, one class for each row, got {target.shape}"
                )
            target = target[..., None].astype(jnp.int32 if target.dtype.itemsize < 8 else jnp.int64)
        else:
            if target.shape != x.shape:
                raise ValueError(f"{name}: {second} must have the shape {x.shape} of {first}, got {target.shape}")
            target = jnp.moveaxis(target.astype(x.dtype), axis, -1)
        target = jax.lax.stop_gradient(target)
        return _value(name, static, ("x", "target"), (("x", "dx"),), (moved, target), rows)[..., 0]

    return function


def _make_measure(info, two):
    name = info["name"]

    def one(p, /, *, axis=-1, **parameters):
        p = array(name, "p", p)
        axis = normalized(name, axis, p.ndim)
        moved = jnp.moveaxis(p, axis, -1)
        static, rows = _split(info, parameters, moved, axis)
        return _value(name, static, ("p",), (("p", "dp"),), (moved,), rows)[..., 0]

    def both(p, q, /, *, axis=-1, **parameters):
        p, q = array(name, "p", p), array(name, "q", q)
        if q.shape != p.shape:
            raise ValueError(f"{name}: q must have the shape {p.shape} of p, got {q.shape}")
        axis = normalized(name, axis, p.ndim)
        dtype = jnp.promote_types(p.dtype, q.dtype)
        arrays = jnp.moveaxis(p.astype(dtype), axis, -1), jnp.moveaxis(q.astype(dtype), axis, -1)
        static, rows = _split(info, parameters, arrays[0], axis)
        return _value(name, static, ("p", "q"), (("p", "dp"), ("q", "dq")), arrays, rows)[..., 0]

    return both if two else one


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _table(operation, static, pxy):
    value = jax.ShapeDtypeStruct((1, 1), wide(pxy).dtype)
    return call(operation, static, {"pxy": pxy}, {"value": value}, vmap_method="sequential")[0]


@_table.defjvp
def _table_jvp(operation, static, primals, tangents):
    (pxy,) = primals
    outputs = {"value": jax.ShapeDtypeStruct((1, 1), wide(pxy).dtype), "dp": like(pxy)}
    value, slope = call(operation, static, {"pxy": pxy}, outputs, vmap_method="sequential")
    return value, jnp.where(slope != 0, wide(slope) * wide(tangents[0]), 0).sum(keepdims=True)


def _make_entry(info):
    name = info["name"]

    def function(p, /, **parameters):
        p = array(name, "p", jnp.atleast_1d(p)) if jnp.ndim(p) == 0 else array(name, "p", p)
        axis = normalized(name, parameters.pop("axis", -1), p.ndim)
        moved = jnp.moveaxis(p, axis, -1)
        static, _ = _split(info, parameters, moved, axis)
        return jnp.moveaxis(_entries(name, static, moved), -1, axis)

    return function


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _entries(operation, static, p):
    return call(operation, static, {"p": p}, {"value": like(p, None, p.dtype)})[0].astype(wide(p).dtype)


@_entries.defjvp
def _entries_jvp(operation, static, primals, tangents):
    (p,) = primals
    value, slope = call(operation, static, {"p": p}, {"value": like(p), "dp": like(p)})
    return value.astype(wide(p).dtype), wide(slope) * wide(tangents[0])


def _make_table(info):
    name = info["name"]

    def function(pxy, /, **parameters):
        pxy = array(name, "pxy", pxy)
        if pxy.ndim != 2:
            raise ValueError(f"{name}: pxy must have two axes, x and y, got shape {pxy.shape}")
        static, _ = _split(info, parameters, pxy, 1)
        return _table(name, static, pxy)[0, 0]

    return function


class GammaResult(NamedTuple):
    """What gamma_for_entropy gives, one for each row. status: an index into _core.gamma_status_names, 0 is "ok"."""

    gamma: jax.Array
    entropy: jax.Array
    status: jax.Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gamma(static, x, rows):
    outputs = {"gamma": like(x, 1), "reached": like(x, 1), "status": like(x, 1, jnp.int32)}
    return tuple(call("gamma_for_entropy", static, {"x": x, **rows}, outputs))


@_gamma.defjvp
def _gamma_jvp(static, primals, tangents):
    (x, rows), (v, slopes) = primals, tangents
    found = gamma, _, status = _gamma(static, x, rows)
    values = dict(static) | rows
    present = x > 0 if values.get("input") == "probs" else jnp.isfinite(x)
    if values.get("input") == "probs":
        v, x = jnp.where(present, v / jnp.where(present, x, 1), 0), jnp.log(jnp.where(present, x, 1))
    still = jnp.where((gamma > 0) & (gamma < jnp.inf), gamma, 0)  # elsewhere there is no gamma and no derivative
    x, v = jnp.where(present, x, 0), jnp.where(present, v, 0)
    p = jax.nn.softmax(jnp.where(present, still * x, -jnp.inf), -1)
    x = x - (p * x).sum(-1, keepdims=True)
    variance, change = ((p * x * one).sum(-1, keepdims=True) for one in (x, v))
    moves = (status == 0) & (variance > 0) & (still > 0)
    target = _target(values, slopes, "entropy", "perplexity")
    right = 0 if target is None else target / jnp.where(moves, still, 1)
    d_gamma = jnp.where(moves, -(right + still * change) / jnp.where(moves, variance, 1), 0)
    d_reached = -still * (still * change + d_gamma * variance)
    undefined = jnp.where(jnp.isnan(gamma), jnp.nan, 0).astype(gamma.dtype) * tangents[0].sum(-1, keepdims=True)
    return found, (d_gamma + undefined, d_reached + undefined, np.zeros(status.shape, jax.dtypes.float0))


def gamma_for_entropy(x, /, *, axis=-1, **parameters):
    """The gamma at which softmax(gamma x) has an entropy; as entropic.gamma_for_entropy.

    gamma and the entropy reached are differentiable, twice, in x and in a target that is an array. A gamma whose status is not
    0 has the derivative 0, or NaN where it is "invalid".
    """
    name = "gamma_for_entropy"
    x = wide(array(name, "x", x))
    axis = normalized(name, axis, x.ndim)
    x = jnp.moveaxis(x, axis, -1)
    if "gamma_range" in parameters:
        parameters["min_gamma"], parameters["max_gamma"] = parameters.pop("gamma_range")
    static, rows = _split(_CONTROL[name], parameters, x, axis)
    return GammaResult(*(one[..., 0] for one in _gamma(static, x, rows)))


def _noise(seed, position, stream, x):
    """Parameters of the noise, and the array of streams where there is one."""
    static = (("seed", int(seed)), ("position", int(position)))
    if isinstance(stream, (int, np.integer)):
        return (*static, ("stream", int(stream))), {}
    return static, {"stream": jnp.broadcast_to(jnp.asarray(stream), x.shape[:-1])[..., None]}


def sample(x, /, *, size=None, temperature=1.0, seed, stream=0, position=0, axis=-1):
    """Indices drawn from softmax(x/T), the same as entropic.sample draws. seed, stream and position are integers.

    Row r draws from stream + r. Under ``vmap`` the rows of the batch are numbered as those of one array.
    """
    x = jax.lax.stop_gradient(array("sample", "x", x))
    x = jnp.moveaxis(x, normalized("sample", axis, x.ndim), -1)
    static, streams = _noise(seed, position, stream, x)
    static = (*static, ("temperature", temperature))
    drawn = call("sample", static, {"x": x, **streams}, {"indices": like(x, 1 if size is None else size, jnp.int32)})[0]
    return drawn[..., 0] if size is None else drawn


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _relaxed(hard, temperature, static, x, streams):
    given = (*static, ("temperature", temperature), ("hard", hard))
    return call("gumbel_softmax", given, {"x": x, **streams}, {"y": like(x)})[0]


@_relaxed.defjvp
def _relaxed_jvp(hard, temperature, static, primals, tangents):
    y = _relaxed(hard, temperature, static, *primals)
    soft = _relaxed(False, temperature, static, *primals) if hard else y
    p = wide(soft)
    return y, _centred(p, wide(tangents[0]) / temperature, p).astype(y.dtype)


def gumbel_softmax(x, /, *, temperature=1.0, hard=False, seed, stream=0, axis=-1):
    """A relaxed draw, as entropic.gumbel_softmax; where hard, with the derivative of the soft one (straight through)."""
    x = array("gumbel_softmax", "x", x)
    axis = normalized("gumbel_softmax", axis, x.ndim)
    moved = jnp.moveaxis(x, axis, -1)
    static, streams = _noise(seed, 0, stream, moved)
    return jnp.moveaxis(_relaxed(bool(hard), float(temperature), static, moved, streams), -1, axis)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _powered(static, p, rows):
    return call("power_transform", static, {"p": p, **rows}, {"q": like(p)})[0]


@_powered.defjvp
def _powered_jvp(static, primals, tangents):
    (p, rows), (v, slopes) = primals, tangents
    q = _powered(static, p, rows)
    there = p > 0
    gamma = rows.get("gamma", dict(static).get("gamma"))
    change = gamma * jnp.where(there, v / jnp.where(there, p, 1), 0)
    if "gamma" in slopes:
        change = change + jnp.where(there, jnp.log(jnp.where(there, p, 1)), 0) * slopes["gamma"]
    return q, _centred(q, change, q)


def power_transform(p, /, *, gamma, axis=-1):
    """A distribution sharpened or flattened, as entropic.power_transform; differentiable in p and gamma."""
    given = array("power_transform", "p", p)
    axis = normalized("power_transform", axis, given.ndim)
    moved = jnp.moveaxis(wide(given), axis, -1)
    static, rows = _split(_CONTROL["power_transform"], {"gamma": gamma}, moved, axis)
    return jnp.moveaxis(_powered(static, moved, rows), -1, axis).astype(given.dtype)


def _shared(q, k, v):
    """k and v with as many heads as q: consecutive ones of these share one."""
    if q.ndim > 2 and k.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]):
        k, v = (jnp.repeat(one, q.shape[-3] // k.shape[-3], -3) for one in (k, v))
    return k, v


def attention(
    q,
    k,
    v,
    /,
    *,
    map="softmax",
    scale="sqrt",
    causal=False,
    mask=None,
    train_length=512,
    kappa=None,
    return_weights=False,
    return_entropy=False,
    **parameters,
):
    """Values weighted by any map of the scores, as entropic.attention; composed of products and the map.

    scale: "sqrt", "entropy_invariant" or a number; mask: True where a key is seen, or numbers that are added to the scores.
    """
    k, v = _shared(q, k, v)
    scores = q @ jnp.swapaxes(k, -1, -2)
    seen = jnp.ones(scores.shape, bool)
    if causal:
        seen &= jnp.tril(seen, k=k.shape[-2] - q.shape[-2])
    if mask is not None:
        mask = jnp.asarray(mask)
        seen &= mask if mask.dtype == bool else mask > -jnp.inf
    if isinstance(scale, str):
        if scale not in ("sqrt", "entropy_invariant"):
            raise ValueError(f"attention: scale must be 'sqrt', 'entropy_invariant' or a number, got {scale!r}")
        count = jnp.maximum(seen.sum(-1, keepdims=True), 1)
        invariant = {"train_length": train_length, "kappa": kappa}
        of_count = entropy_invariant_scale(count, q.shape[-1], **invariant)  # type: ignore[name-defined]  # noqa: F821
        scale = q.shape[-1] ** -0.5 if scale == "sqrt" else of_count.astype(scores.dtype)
    scores = scores * scale
    if mask is not None and mask.dtype != bool:
        scores = scores + jnp.where(seen, mask, 0)
    name, more = map if isinstance(map, tuple) else (map, {})
    any_seen = seen.any(-1, keepdims=True)
    # A query that sees nothing gets a row of zeros as scores, and weights of 0.
    weights = globals()[name](jnp.where(any_seen, jnp.where(seen, scores, -jnp.inf), 0), **more, **parameters)
    weights = jnp.where(seen, weights, 0)
    found = [weights @ v]
    if return_weights:
        found.append(weights)
    if return_entropy:
        log = jnp.log(jnp.where(weights > 0, weights, 1))
        found.append(-(weights * log).sum(-1))
    return tuple(found) if len(found) > 1 else found[0]


def linear_attention(q, k, v, /, *, causal=False, scale="sqrt"):
    """Attention with taylor_softmax of order 2, as entropic.linear_attention, in time linear in the length; causal by sums."""
    k, v = _shared(q, k, v)
    d, n, m = q.shape[-1], k.shape[-2], q.shape[-2]
    q = q * (d**-0.5 if scale == "sqrt" else scale)

    def features(x):
        squares = (x[..., :, None] * x[..., None, :]).reshape(*x.shape[:-1], d * d) * 0.5**0.5
        return jnp.concatenate([jnp.ones_like(x[..., :1]), x, squares], -1)

    q, k, v = features(q), features(k), jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    if causal:
        sums = jnp.cumsum(k[..., :, None] * v[..., None, :], -3)
        at = jnp.arange(m) + n - m
        sums = jnp.where((at >= 0)[:, None, None], jnp.take(sums, jnp.maximum(at, 0), -3), 0)
        found = jnp.einsum("...mf,...mfv->...mv", q, sums)
    else:
        found = q @ (jnp.swapaxes(k, -1, -2) @ v)
    total = found[..., -1:]
    return jnp.where(total > 0, found[..., :-1] / jnp.where(total > 0, total, 1), 0)


def mean_field_entropy(x, /, *, gamma=1.0, axis=-1):
    """An estimate of softmax(gamma x)'s entropy, as entropic.mean_field_entropy; differentiable in x and gamma."""
    x = wide(array("mean_field_entropy", "x", x))
    x = jnp.moveaxis(x, normalized("mean_field_entropy", axis, x.ndim), -1)
    finite, ties = jnp.isfinite(x), (x == jnp.inf).sum(-1)
    count = jnp.maximum(finite.sum(-1), 1).astype(x.dtype)
    most = jnp.where(finite, x, -jnp.inf).max(-1)
    spread = jnp.where(finite.any(-1), most, 0) - jnp.where(finite, x, 0).sum(-1) / count
    value = jnp.where(ties > 0, jnp.log(jnp.maximum(ties, 1).astype(x.dtype)), jnp.log(count) - gamma * spread)
    return jnp.where(jnp.isnan(x).any(-1) | (x == -jnp.inf).all(-1), jnp.nan, value)


def ratio_map(x, f, /, *, axis=-1):
    """f of each score over the sum of all, as entropic.ratio_map; f is of jax.numpy, and its values are not checked."""
    x = array("ratio_map", "x", x)
    axis = normalized("ratio_map", axis, x.ndim)
    finite, infinite = jnp.isfinite(x), x == jnp.inf
    weights = jnp.where(finite, f(jnp.where(finite, x, 0)), 0)
    weights = jnp.where(infinite.any(axis, keepdims=True), infinite.astype(weights.dtype), weights)
    none = jnp.isnan(x).any(axis, keepdims=True) | (x == -jnp.inf).all(axis, keepdims=True)
    return jnp.where(none, jnp.nan, weights / weights.sum(axis, keepdims=True)).astype(x.dtype)


class Sampler:
    """A chain of steps, and draws from the distribution that it leaves, as entropic.Sampler: with its bits, on the CPU.

    Under vmap the rows of the batch are counted through, as those of one array.
    """

    def __init__(self, steps, *, seed=0):
        checked = entropic.Sampler(steps, seed=seed)
        self.steps, self.seed = checked.steps, checked.seed
        names = {"entropy_clip": ("min_entropy", "max_entropy"), "top_k": ("k",)}
        names |= {name: ("p",) for name in ("top_p", "min_p", "typical_p")}
        self._parameters = []
        for name, value in self.steps:
            values = value if isinstance(value, (tuple, list)) else (value,)
            given = {key: one for key, one in zip(names.get(name, (name,)), values, strict=True) if one is not None}
            self._parameters.append(_Frozen({"name": name, **given}))

    def probs(self, x, /, *, axis=-1):
        """The distribution that sample draws from. It has no derivative."""
        x = jax.lax.stop_gradient(array("Sampler.probs", "x", x))
        axis = normalized("Sampler.probs", axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        p = call("sampler_probs", (("steps", self._parameters),), {"x": moved}, {"y": like(moved)})[0]
        return jnp.moveaxis(p, -1, axis)

    def sample(self, x, /, *, size=None, stream=0, position=0, axis=-1):
        """Indices drawn from probs(x), as the function sample draws them."""
        x = jax.lax.stop_gradient(array("Sampler.sample", "x", x))
        x = jnp.moveaxis(x, normalized("Sampler.sample", axis, x.ndim), -1)
        static, streams = _noise(self.seed, position, stream, x)
        static = (*static, ("steps", self._parameters))
        indices = like(x, 1 if size is None else size, jnp.int32)
        drawn = call("sampler_sample", static, {"x": x, **streams}, {"indices": indices})[0]
        return drawn[..., 0] if size is None else drawn


_MEASURES = {one["name"]: one for one in _core.measure_operations()}
_CONTROL = {one["name"]: one for one in _core.control_operations()}
_OTHERS: tuple[Any, ...] = (*_transport.PUBLIC, *_calibration.PUBLIC)
globals().update({one.__name__: one for one in _OTHERS})
__all__ = ["GammaResult", "Sampler", "attention", "gamma_for_entropy", "gumbel_softmax", "linear_attention"]
__all__ += ["mean_field_entropy", "power_transform", "ratio_map", "sample"]
__all__ += [one.__name__ for one in _OTHERS]


def _publish(name, function, info):
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"{info['summary']}\n\n{info['formula']}\n\nAs entropic.{name}; under jit, grad and vmap too."
    globals()[name] = function
    __all__.append(name)


for _name, _info in _MAPS.items():
    _publish(_name, _make_map(_info), _info)
for _name, _info in _LOSSES.items():
    _publish(_name, _make_loss(_info), _info)
for _name, _info in _MEASURES.items():
    if _info["family"] in ("measure", "divergence"):
        _publish(_name, _make_measure(_info, _info["family"] == "divergence"), _info)
    elif _info["family"] == "table":
        _publish(_name, _make_table(_info), _info)
    elif _info["family"] == "entry":
        _publish(_name, _make_entry(_info), _info)
