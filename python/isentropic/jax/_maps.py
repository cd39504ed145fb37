"""Maps with their derivatives."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from isentropic._descriptions import MAPS
from isentropic.jax._call import array, call, like, normalized, wide
from isentropic.jax._parameters import split


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def mapped(operation, static, x, rows):
    return call(operation, static, {"x": x, **rows}, {"y": like(x, 1 if MAPS[operation]["reduces"] else None)})[0]


def undefined(x):
    """NaN for rows with a NaN, otherwise 1. Rules take NaN as outside of the support, where they give 0; so tangents are
    multiplied by this first and results last, which makes both directions of differentiation NaN in these rows."""
    return jnp.where(jnp.isnan(x).any(-1, keepdims=True), jnp.nan, 1).astype(x.dtype)


def centred(w, s):
    """The Jacobian s (w - <s, w> / sum s), 0 where s is 0. There, backwards, an infinite gradient of the result, such as an
    entropy's, is not read."""
    w = jnp.where(s > 0, w, 0)
    total = s.sum(-1, keepdims=True)
    return jnp.where(s > 0, s * (w - (s * w).sum(-1, keepdims=True) / jnp.where(total > 0, total, 1)), 0)


def from_top(x, there):
    """x less its largest, halved so that it has a number: the scores' offset, which would be rounded into what is small, is
    gone. 0 elsewhere; differentiable as x is, for a function that shifts do not change."""
    top = jax.lax.stop_gradient(jnp.where(there, x, -jnp.inf).max(-1, keepdims=True, initial=-jnp.inf))
    return jnp.where(there, x / 2 - top / 2, 0)


def in_units(x, there):
    """(u, h): x less its largest is 2 h u with u in [-1, 0]. Moments of u neither underflow nor overflow."""
    half = from_top(x, there)
    h = jax.lax.stop_gradient(jnp.abs(half).max(-1, keepdims=True, initial=0))
    h = jnp.where(h > 0, h, 1)
    return half / h, h


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
    u, h = in_units(x, finite)
    v = jnp.where(finite, v, 0)
    u = jnp.where(finite, u - (p * u).sum(-1, keepdims=True), 0)
    v = v - (p * v).sum(-1, keepdims=True)
    variance = (p * u * u).sum(-1, keepdims=True)
    least, most = jnp.where(finite, p, 2).min(-1, keepdims=True, initial=2), p.max(-1, keepdims=True, initial=0)
    moves = (least < most) & (variance > 0)
    log = jnp.log(jnp.where(finite, p, 1))
    gamma = jnp.where(moves, (p * u * log).sum(-1, keepdims=True) / jnp.where(moves, variance, 1), 0)  # of u
    moves = moves & (gamma > 0)
    safe = jnp.where(moves, variance, 1)
    moved = gamma * ((v - u * ((p * u * v).sum(-1, keepdims=True) / safe)) / h / 2)
    if slope is not None:
        moved = moved - u * (slope / (jnp.where(moves, gamma, 1) * safe))
    return jnp.where(moves & finite, p * (moved - (p * moved).sum(-1, keepdims=True)), 0)


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
        raise NotImplementedError("isentropic.jax: perturb_max has no second derivative, except with Gumbel noise")
    return primals[0], jax.tree.map(jnp.zeros_like, primals[0])


def _perturbed(static, x, y, rows, v):
    """The Jacobian of perturb_max times v, by the kernel. The Jacobian is symmetric."""
    kept = _differentiated_once({"x": x, "y": y, **rows})

    def product(_, v):
        return call("perturb_max", static, {**kept, "grad": v.astype(x.dtype)}, {"dx": like(x)}, vjp=True)[0].astype(v.dtype)

    # This is a linear function with a given transpose that can also be vectorised, which linear_call cannot. Its equation, here
    # the identity, is never evaluated.
    return jax.lax.custom_linear_solve(lambda v: v, v, product, symmetric=True)


class _Point(NamedTuple):
    """Where a derivative is taken: finite scores x, with 0 for others, the result p, parameters and their tangents by name, and
    (static, x, y, rows) of the call."""

    x: jax.Array
    finite: jax.Array
    p: jax.Array
    values: dict
    slopes: dict
    call: tuple


# Rules: the tangent of the result for v, the tangent of the scores over the temperature; logsumexp has that of the scores.


def _logsumexp(at, v):
    static, _, y, rows = at.call
    there = at.finite & jnp.isfinite(y)
    # Rows without a logarithm get one, so that no NaN is multiplied by 0.
    scores = jnp.where(there, at.x, jnp.where(jnp.isfinite(y), -jnp.inf, 0))
    weights = jnp.where(there, mapped("softmax", static, scores, rows), 0)
    dy = (weights * jnp.where(weights > 0, v, 0)).sum(-1, keepdims=True)
    if "temperature" in at.slopes:
        log = jnp.log(jnp.where(weights > 0, weights, 1))
        dy = dy - at.slopes["temperature"] * (weights * log).sum(-1, keepdims=True)  # its entropy
    return dy


def _log_softmax(at, v):
    q = jnp.where(at.finite, jnp.exp(at.p), 0)
    return jnp.where(at.finite, v - (q * v).sum(-1, keepdims=True), 0)


def _perturb_max(at, v):
    scale = at.values["scale"]
    if "scale" in at.slopes:
        v = v - from_top(at.x, at.finite) / (scale / 2) * at.slopes["scale"]
    return centred(v / scale, at.p) if at.values["noise"] == "gumbel" else _perturbed(*at.call, v)


def _sparsemax(at, v):
    return centred(v, (at.p > 0).astype(at.p.dtype))


def _entmax(at, v):
    p, alpha = at.p, at.values["alpha"]
    dy = centred(v, jnp.where(p > 0, jnp.where(p > 0, p, 1) ** (2 - alpha), 0))
    return dy + jnp.where(p > 0, _entmax_alpha(p, alpha) * at.slopes["alpha"], 0) if "alpha" in at.slopes else dy


def _taylor_softmax(at, v):
    order = at.values["order"]
    # f'/f of the polynomial, of a high score in powers of 1/x, which do not overflow: f = x^n/n! (1 + n/x (1 + (n-1)/x (...))).
    far = jnp.abs(at.x) > max(order, 1)
    near, inverse = jnp.where(far, 0, at.x), 1 / jnp.where(far, at.x, 1)
    less = term = jnp.ones_like(near)
    for k in range(1, order):
        term = term * near / k
        less = less + term
    whole = less + term * near / order
    above = jnp.ones_like(near)
    for k in range(1, order):
        above = 1 + k * inverse * above  # of order - 1
    ratio = order * inverse * above / (1 + order * inverse * above)
    return centred(v * jnp.where(far, ratio, less / whole), at.p)


def _sigsoftmax(at, v):
    return centred(v * (2 - jax.nn.sigmoid(at.x)), at.p)


def _as_scores(at, v):
    """Scores, where they are finite, and their tangent; of probabilities these are the logarithms."""
    if at.values["input"] != "probs":
        return at.x, at.finite, v
    finite = at.x > 0
    safe = jnp.where(finite, at.x, 1)
    return jnp.log(safe), finite, jnp.where(finite, v / safe, 0)


def _entropy_normalize(at, v):
    x, _, v = _as_scores(at, v)
    return _at_entropy(x, at.p, v, target_slope(at.values, at.slopes, "entropy", "perplexity"))


def _entropy_clip(at, v):
    x, finite, v = _as_scores(at, v)
    whole = jax.nn.softmax(jnp.where(finite, x, -jnp.inf), -1)
    entropy = -(whole * jnp.log(jnp.where(whole > 0, whole, 1))).sum(-1, keepdims=True)
    low, high = at.values["min_entropy"], at.values["max_entropy"]
    below = False if low is None else entropy < low
    above = False if high is None else entropy > high
    at_low, at_high = (_at_entropy(x, at.p, v, at.slopes.get(end)) for end in ("min_entropy", "max_entropy"))
    return jnp.where(below, at_low, jnp.where(above, at_high, centred(v, at.p)))


def _softmax(at, v):
    return centred(v, at.p)


_RULES = {
    **dict.fromkeys(("softmax", "top_k_softmax", "top_p_softmax", "min_p_softmax"), _softmax),
    "logsumexp": _logsumexp,
    "log_softmax": _log_softmax,
    "perturb_max": _perturb_max,
    "sparsemax": _sparsemax,
    "entmax": _entmax,
    "taylor_softmax": _taylor_softmax,
    "sigsoftmax": _sigsoftmax,
    "entropy_normalize": _entropy_normalize,
    "entropy_clip": _entropy_clip,
}


@mapped.defjvp
def _map_jvp(operation, static, primals, tangents):
    if operation not in _RULES:
        raise NotImplementedError(f"isentropic.jax: {operation} has no derivative")
    given, rows = primals
    y = mapped(operation, static, given, rows)
    x, p = wide(given), wide(y)
    values = {param["name"]: param["default"] for param in MAPS[operation]["params"]} | dict(static) | rows
    # Infinite scores, and rows with +inf, do not change anything. Rows without a distribution have no derivative; logarithms
    # have one, 0, where all scores are -inf.
    lost = undefined(p if "laws" in MAPS[operation] else x)  # maps have laws, logarithms none
    finite = jnp.isfinite(x)
    free = ~(x == jnp.inf).any(-1, keepdims=True)
    v = jnp.where(finite & free, wide(tangents[0]) * lost, 0)
    slopes = {name: jnp.where(free, slope * lost, 0) for name, slope in tangents[1].items()}
    x = jnp.where(finite, x, 0)
    if "temperature" in values and not MAPS[operation]["reduces"]:
        temperature = values["temperature"]
        v = v / temperature
        if "temperature" in slopes:
            v = v - from_top(x, finite) / (temperature / 2) * (slopes["temperature"] / temperature)
    at = _Point(x, finite, p, values, slopes, (static, given, y, rows))
    dy = _RULES[operation](at, v)
    return y, (dy * lost).astype(given.dtype)


def make_map(info):
    name = info["name"]

    def function(x, /, *, axis=-1, **parameters):
        keepdims = parameters.pop("keepdims", False) if info["reduces"] else True
        x = array(name, "x", x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        static, rows = split(info, parameters, moved, axis)
        y = mapped(name, static, moved, rows)
        return jnp.moveaxis(y, -1, axis) if keepdims else y[..., 0]

    return function


def ratio_map(x, f, /, *, axis=-1):
    """f of each score over the sum of all, as isentropic.ratio_map; f is of jax.numpy, and its values are not checked."""
    x = array("ratio_map", "x", x)
    axis = normalized("ratio_map", axis, x.ndim)
    finite, infinite = jnp.isfinite(x), x == jnp.inf
    none = jnp.isnan(x).any(axis, keepdims=True) | (x == -jnp.inf).all(axis, keepdims=True)
    x = x * jnp.where(none, jnp.nan, 1).astype(x.dtype)  # so that the gradient is NaN too
    weights = jnp.where(finite, f(jnp.where(finite, x, 0)), 0)
    weights = jnp.where(infinite.any(axis, keepdims=True), infinite.astype(weights.dtype), weights)
    p = jnp.where(x == -jnp.inf, 0, weights / weights.sum(axis, keepdims=True))
    return jnp.where(none, x, p).astype(x.dtype)
