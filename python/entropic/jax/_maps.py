"""Maps with their derivatives."""

import functools
import math

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from entropic.jax._call import array, call, like, normalized, wide
from entropic.jax._parameters import MAPS, split


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def mapped(operation, static, x, rows):
    return call(operation, static, {"x": x, **rows}, {"y": like(x, 1 if operation == "logsumexp" else None)})[0]


def undefined(x):
    """NaN for rows with a NaN, otherwise 1. Rules take NaN as outside of the support, where they give 0; so tangents are
    multiplied by this first and results last, which makes both directions of differentiation NaN in these rows."""
    return jnp.where(jnp.isnan(x).any(-1, keepdims=True), jnp.nan, 1).astype(x.dtype)


def centred(w, s):
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
    """softmax(gamma x) at a given entropy: its value is p, and `slope` is the derivative of the entropy.

    Rows of equal shares do not move: their scores are equal, or their target is out of reach.
    """
    finite = p > 0
    # Scores may be far from 0 compared with their spread.
    top = jax.lax.stop_gradient(jnp.where(finite, x, -jnp.inf).max(-1, keepdims=True, initial=-jnp.inf))
    x, v = jnp.where(finite, x - top, 0), jnp.where(finite, v, 0)
    x = x - (p * x).sum(-1, keepdims=True)
    v = v - (p * v).sum(-1, keepdims=True)
    variance = (p * x * x).sum(-1, keepdims=True)
    least, most = jnp.where(finite, p, 2).min(-1, keepdims=True, initial=2), p.max(-1, keepdims=True, initial=0)
    moves = (least < most) & (variance > 0)
    log = jnp.log(jnp.where(finite, p, 1))
    gamma = jnp.where(moves, (p * x * log).sum(-1, keepdims=True) / jnp.where(moves, variance, 1), 0)
    moves = moves & (gamma > 0)
    safe = jnp.where(moves, variance, 1)
    moved = gamma * v - x * (gamma * (p * x * v).sum(-1, keepdims=True) / safe)
    if slope is not None:
        moved = moved - x * (slope / (jnp.where(moves, gamma, 1) * safe))
    return jnp.where(moves, p * (moved - (p * moved).sum(-1, keepdims=True)), 0)


def target_slope(values, slopes, entropy, perplexity=None):
    """The derivative of the target in nats, or None."""
    if entropy in slopes:
        return slopes[entropy]
    if perplexity in slopes:
        return slopes[perplexity] / values[perplexity]
    return None


@jax.custom_jvp
def _differentiated_once(kept):
    return kept


@functools.partial(_differentiated_once.defjvp, symbolic_zeros=True)
def _no_second_derivative(primals, tangents):
    if any(not isinstance(moved, SymbolicZero) for moved in jax.tree.leaves(tangents)):
        raise NotImplementedError("entropic.jax: perturb_max has no second derivative, except with Gumbel noise")
    return primals[0], jax.tree.map(jnp.zeros_like, primals[0])


def _perturbed(static, x, y, rows, v):
    """The Jacobian of perturb_max times v, by the kernel. The Jacobian is symmetric."""
    kept = _differentiated_once({"x": x, "y": y, **rows})

    def product(_, v):
        return call("perturb_max", static, {**kept, "grad": v.astype(x.dtype)}, {"dx": like(x)}, vjp=True)[0].astype(v.dtype)

    # This is a linear function with a given transpose that can also be vectorised, which linear_call cannot. Its equation, here
    # the identity, is never evaluated.
    return jax.lax.custom_linear_solve(lambda v: v, v, product, symmetric=True)


@mapped.defjvp
def _map_jvp(operation, static, primals, tangents):
    x, rows = primals
    y = mapped(operation, static, x, rows)
    dtype = x.dtype
    x, p = wide(x), wide(y)
    values = {param["name"]: param["default"] for param in MAPS[operation]["params"]}
    values.update(static)
    values.update(rows)
    # Infinite scores, and rows with +inf, do not change anything. Rows without a distribution have no derivative; logarithms
    # have one, 0, where all scores are -inf.
    lost = undefined(x if operation in ("log_softmax", "logsumexp") else p)
    finite = jnp.isfinite(x)
    free = ~(x == jnp.inf).any(-1, keepdims=True)
    v = jnp.where(finite & free, wide(tangents[0]) * lost, 0)
    slopes = {name: jnp.where(free, slope * lost, 0) for name, slope in tangents[1].items()}
    x = jnp.where(finite, x, 0)
    if "temperature" in values and operation != "logsumexp":
        temperature = values["temperature"]
        v = v / temperature
        if "temperature" in slopes:
            v = v - x / temperature**2 * slopes["temperature"]
    if operation == "logsumexp":
        temperature = values["temperature"]
        p = jnp.where(jnp.isfinite(p), p, 0)
        there = finite & jnp.isfinite(wide(y))
        weights = jnp.where(there, jnp.exp(jnp.where(there, x - p, 0) / temperature), 0)
        dy = (weights * jnp.where(weights > 0, v, 0)).sum(-1, keepdims=True)
        if "temperature" in slopes:
            dy = dy + slopes["temperature"] * (p - (weights * x).sum(-1, keepdims=True)) / temperature
    elif operation == "log_softmax":
        q = jnp.where(finite, jnp.exp(p), 0)
        dy = jnp.where(finite, v - (q * v).sum(-1, keepdims=True), 0)
    elif operation == "perturb_max":
        scale = values["scale"]
        if "scale" in slopes:
            v = v - x / scale * slopes["scale"]
        dy = centred(v / scale, p) if values["noise"] == "gumbel" else _perturbed(static, primals[0], y, rows, v)
    elif operation == "sparsemax":
        dy = centred(v, (p > 0).astype(p.dtype))
    elif operation == "entmax":
        alpha = values["alpha"]
        dy = centred(v, jnp.where(p > 0, jnp.where(p > 0, p, 1) ** (2 - alpha), 0))
        if "alpha" in slopes:
            dy = dy + _entmax_alpha(p, alpha) * slopes["alpha"]
    elif operation == "taylor_softmax":
        terms = [x**k / math.factorial(k) for k in range(values["order"] + 1)]
        dy = centred(v * (sum(terms[:-1]) / sum(terms)), p)
    elif operation == "sigsoftmax":
        dy = centred(v * (2 - jax.nn.sigmoid(x)), p)
    elif operation in ("entropy_normalize", "entropy_clip"):
        if values["input"] == "probs":
            finite = x > 0
            v = jnp.where(finite, v / jnp.where(finite, x, 1), 0)
            x = jnp.log(jnp.where(finite, x, 1))
        if operation == "entropy_normalize":
            dy = _at_entropy(x, p, v, target_slope(values, slopes, "entropy", "perplexity"))
        else:
            whole = jax.nn.softmax(jnp.where(finite, x, -jnp.inf), -1)
            entropy = -(whole * jnp.log(jnp.where(whole > 0, whole, 1))).sum(-1, keepdims=True)
            low, high = values["min_entropy"], values["max_entropy"]
            below = False if low is None else entropy < low
            above = False if high is None else entropy > high
            at_low = _at_entropy(x, p, v, target_slope(values, slopes, "min_entropy"))
            at_high = _at_entropy(x, p, v, target_slope(values, slopes, "max_entropy"))
            dy = jnp.where(below, at_low, jnp.where(above, at_high, centred(v, p)))
    else:
        dy = centred(v, p)
    return y, (dy * lost).astype(dtype)


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
    none = jnp.isnan(x).any(axis, keepdims=True) | (x == -jnp.inf).all(axis, keepdims=True)
    x = x * jnp.where(none, jnp.nan, 1).astype(x.dtype)  # so that the gradient is NaN too
    weights = jnp.where(finite, f(jnp.where(finite, x, 0)), 0)
    weights = jnp.where(infinite.any(axis, keepdims=True), infinite.astype(weights.dtype), weights)
    return jnp.where(none, x, weights / weights.sum(axis, keepdims=True)).astype(x.dtype)
