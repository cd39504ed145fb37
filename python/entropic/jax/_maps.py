"""Maps with their derivatives."""

import functools
import math

import jax
import jax.numpy as jnp

from entropic.jax._call import array, call, like, normalized, wide
from entropic.jax._parameters import MAPS, split


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def mapped(operation, static, x, rows):
    return call(operation, static, {"x": x, **rows}, {"y": like(x, 1 if operation == "logsumexp" else None)})[0]


def centred(p, w, s):
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


def target_slope(values, slopes, entropy, perplexity=None):
    """The derivative of the target in nats, or None."""
    if entropy in slopes:
        return slopes[entropy]
    if perplexity in slopes:
        return slopes[perplexity] / values[perplexity]
    return None


@mapped.defjvp
def _map_jvp(operation, static, primals, tangents):
    x, rows = primals
    y = mapped(operation, static, x, rows)
    dtype, (v, slopes) = x.dtype, tangents
    x, p, v = wide(x), wide(y), wide(v)
    values = {param["name"]: param["default"] for param in MAPS[operation]["params"]}
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
        dy = centred(p, v, (p > 0).astype(p.dtype))
    elif operation == "entmax":
        alpha = values["alpha"]
        dy = centred(p, v, jnp.where(p > 0, jnp.where(p > 0, p, 1) ** (2 - alpha), 0))
        if "alpha" in slopes:
            dy = dy + _entmax_alpha(p, alpha) * slopes["alpha"]
    elif operation == "taylor_softmax":
        terms = [x**k / math.factorial(k) for k in range(values["order"] + 1)]
        dy = centred(p, v * (sum(terms[:-1]) / sum(terms)), p)
    elif operation == "sigsoftmax":
        dy = centred(p, v * (2 - jax.nn.sigmoid(x)), p)
    elif operation in ("entropy_normalize", "entropy_clip"):
        if values["input"] == "probs":
            v = jnp.where(x > 0, v / jnp.where(x > 0, x, 1), 0)
            x = jnp.log(x)
        if operation == "entropy_normalize":
            dy = _at_entropy(x, p, v, target_slope(values, slopes, "entropy", "perplexity"))
        else:
            free = jax.nn.softmax(x, -1)
            entropy = -(free * jnp.where(free > 0, jnp.log(jnp.where(free > 0, free, 1)), 0)).sum(-1, keepdims=True)
            low, high = values["min_entropy"], values["max_entropy"]
            below = False if low is None else entropy < low
            above = False if high is None else entropy > high
            at_low = _at_entropy(x, p, v, target_slope(values, slopes, "min_entropy"))
            at_high = _at_entropy(x, p, v, target_slope(values, slopes, "max_entropy"))
            dy = jnp.where(below, at_low, jnp.where(above, at_high, centred(p, v, p)))
    else:
        dy = centred(p, v, p)
    return y, dy.astype(dtype)


def make_map(info):
    name = info["name"]

    def function(x, /, *, axis=-1, **parameters):
        keepdims = parameters.pop("keepdims", False) if name == "logsumexp" else True
        x = array(name, "x", x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        static, rows = split(info, parameters, moved, axis)
        y = mapped(name, static, moved, rows)
        return jnp.moveaxis(y, -1, axis) if keepdims else y[..., 0]

    return function


def ratio_map(x, f, /, *, axis=-1):
    """f of each score over the sum of all, as entropic.ratio_map; f is of jax.numpy, and its values are not checked."""
    x = array("ratio_map", "x", x)
    axis = normalized("ratio_map", axis, x.ndim)
    finite, infinite = jnp.isfinite(x), x == jnp.inf
    weights = jnp.where(finite, f(jnp.where(finite, x, 0)), 0)
    weights = jnp.where(infinite.any(axis, keepdims=True), infinite.astype(weights.dtype), weights)
    none = jnp.isnan(x).any(axis, keepdims=True) | (x == -jnp.inf).all(axis, keepdims=True)
    return jnp.where(none, jnp.nan, weights / weights.sum(axis, keepdims=True)).astype(x.dtype)
