"""Functions of rows that are split over devices: inside ``shard_map``, on each device's part of ``axis``.

``axis_name`` is the mesh axis over which the rows are split, in order and in equal parts. The devices exchange a few numbers
for each row, by ``pmax`` and ``psum``, never the scores, and nothing leaves them. Sums are of integers (fixed point), which are
exact, so softmax, log_softmax, logsumexp, entropy and softmax_loss have the same bits for any number of devices. sparsemax and
entmax exchange floating point sums, in about ten rounds. All have first and second derivatives.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from isentropic import _checks
from isentropic.formulas import Rows, maps
from isentropic.jax._call import array, normalized, wide
from isentropic.jax._parameters import known


def _top(x, axis_name):
    """The largest score of each row, NaN if there is one."""
    lacks = jax.lax.pmax(jnp.isnan(x).any(-1, keepdims=True).astype(x.dtype), axis_name) > 0  # pmax may ignore NaN
    return jnp.where(lacks, jnp.nan, jax.lax.pmax(x.max(-1, keepdims=True), axis_name))


def _below(x, top, temperature):
    """(x - top) / temperature; beside +inf, all others are as -inf."""
    flat = jnp.isposinf(top)
    return jnp.where(x == top, 0, jnp.where(flat, -jnp.inf, (x - jnp.where(flat, 0, top)) / temperature)).astype(x.dtype)


def _exact(terms, axis_name):
    """The sum of each row of terms of at most 1, by integers: words of 32 bits, which n of them do not overflow. JAX may lack
    wider ones."""
    n = terms.shape[-1] * jax.lax.psum(1, axis_name)
    bits = 30 - n.bit_length()
    words, rest = [], terms
    for _ in range(-(-(44 if terms.dtype == jnp.float32 else 62) // bits)):
        scaled = rest * 2.0**bits
        whole = jnp.round(scaled)
        words.append(whole.astype(jnp.int32).sum(-1))
        rest = scaled - whole
    total = 0.0
    for word in jnp.moveaxis(jax.lax.psum(jnp.stack(words, -1), axis_name), -1, 0)[::-1]:
        total = (total + word.astype(terms.dtype)) * 2.0**-bits
    return total[..., None]


def _undefined(x):
    """NaN for rows with a NaN, otherwise 1. Rules take NaN as outside of the support, where they give 0; so tangents are
    multiplied by this first and results last, which makes both directions of differentiation NaN in these rows."""
    return jnp.where(jnp.isnan(x).any(-1, keepdims=True), jnp.nan, 1).astype(x.dtype)


_IGNORED, _NO_CLASS = -1, -2


def _no_classes(x):
    return jnp.zeros((*x.shape[:-1], 0), jnp.int32)


def _dot(a, b, axis_name):
    return jax.lax.psum((a * b).sum(-1, keepdims=True), axis_name)


class _Parts(Rows):
    """Rows in parts: what is asked of a row is asked of all devices."""

    def __init__(self, axis_name):
        super().__init__(jnp)
        self.axis_name = axis_name

    def constant(self, x):
        return jax.lax.stop_gradient(x)

    def wide(self, x):
        return x

    def sums(self, *terms):
        # One psum of all would mix what is known with what is transposed.
        return tuple(jax.lax.psum(one.sum(-1, keepdims=True), self.axis_name) for one in terms)

    def any(self, condition):
        return jax.lax.psum(condition.any(-1, keepdims=True).astype(jnp.int32), self.axis_name) > 0

    def all(self, condition):
        return ~self.any(~condition)


# Each rule is for rows along the last axis, in float32 or float64.


def _statistics(x, temperature, axis_name):
    """(the largest score, z relative to it, exp(z), the sum of that)."""
    top = _top(x, axis_name)
    z = _below(x, top, temperature)
    e = jnp.where(top > -jnp.inf, jnp.exp(z), 0)  # 0 for rows with NaN or without a score: sums of integers take no NaN
    return top, z, e, _exact(e, axis_name)


def _or_nan(top, value):
    return jnp.where(top > -jnp.inf, value, jnp.nan)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _softmax(temperature, axis_name, x):
    top, _, e, total = _statistics(x, temperature, axis_name)
    return _or_nan(top, e / total)


@_softmax.defjvp
def _softmax_jvp(temperature, axis_name, primals, tangents):
    p = _softmax(temperature, axis_name, *primals)
    return p, maps.pushed(_Parts(axis_name), "softmax", *primals, p, {"temperature": temperature}, *tangents, {})


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _statistic(which, temperature, axis_name, x, classes):
    """log softmax, or a number of each row."""
    top, z, e, total = _statistics(x, temperature, axis_name)
    log = jnp.log(total)
    if which == "log_softmax":
        return _or_nan(top, z - log)
    if which == "logsumexp":
        return jnp.where(jnp.isinf(top), top, top + temperature * log)
    if which == "entropy":
        return jnp.maximum(_or_nan(top, log + _exact(jnp.where(e > 0, -e * z, 0), axis_name) / total), 0)
    place = jax.lax.axis_index(axis_name) * x.shape[-1] + jnp.arange(x.shape[-1])
    of_class = jax.lax.psum(jnp.where(place == classes, z, 0).sum(-1, keepdims=True), axis_name)
    of_class = jnp.where(classes == _NO_CLASS, jnp.nan, of_class)
    return jnp.where(classes == _IGNORED, 0, _or_nan(top, log - of_class))


@_statistic.defjvp
def _statistic_jvp(which, temperature, axis_name, primals, tangents):
    (x, classes), v = primals, tangents[0]
    value = _statistic(which, temperature, axis_name, x, classes)
    if which == "log_softmax":
        return value, maps.pushed(_Parts(axis_name), which, x, value, {"temperature": temperature}, v, {})
    p, lost = _softmax(temperature, axis_name, x), _undefined(value)
    live = (p > 0) & jnp.isfinite(x)
    p = jnp.where(live, p, 0)  # rows of only -inf, whose logarithm does not move, have NaN
    if which == "loss":
        # The target moves the loss however small its probability, but not in a row with +inf.
        target = jax.lax.axis_index(axis_name) * x.shape[-1] + jnp.arange(x.shape[-1]) == classes
        free = jax.lax.psum(jnp.isposinf(x).any(-1, keepdims=True).astype(x.dtype), axis_name) == 0
        v = jnp.where(live | target & free & jnp.isfinite(x), v * lost, 0)
        return value, jnp.where(classes == _IGNORED, 0, _dot(p - target, v, axis_name)) * lost
    v = jnp.where(live, v * lost, 0)
    if which == "logsumexp":
        return value, _dot(p, v, axis_name) * lost
    log = jnp.log(jnp.where(live, p, 1))
    return value, -_dot(p * (log + value), v, axis_name) * lost


def _at(z, b, t):
    """(p, p / u) with p = e^t u^(1/b), u = 1 + b z e^(-b t), by logarithms, which are accurate for b near 0 too."""
    v = jnp.where(z < 0, jnp.maximum(b * z * jnp.exp(-b * t), -1), 0)
    inside = v > -1
    v = jnp.where(inside, v, 0)
    p = jnp.where(inside, jnp.exp(t + jnp.log1p(v) / b), 0)
    return p, p / (1 + v)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _entmax(alpha, temperature, axis_name, x):
    """p_i = m (1 + b z_i m^-b)^(1/b), b = alpha - 1, with sum 1; t = log m, where m is the largest p_i."""
    b, top = alpha - 1, _top(x, axis_name)
    undefined = jnp.isnan(top) | jnp.isneginf(top)
    z = jnp.where(undefined, 0, _below(x, top, temperature))  # NaN would never converge
    high = jnp.zeros_like(top)
    low = jnp.full_like(top, -math.log(max(x.shape[-1] * jax.lax.psum(1, axis_name), 1)))

    # t is between the ends: a Newton step if it stays inside, otherwise the middle.
    def step(state):
        low, high, t, _, count = state
        total, slope = jnp.split(jax.lax.psum(jnp.stack([one.sum(-1) for one in _at(z, b, t)], -1), axis_name), 2, -1)
        low, high = jnp.where(total < 1, t, low), jnp.where(total < 1, high, t)
        newton = t - jnp.log(total) * total / slope
        middle = jnp.where((newton > low) & (newton < high), newton, (low + high) / 2)
        return low, high, jnp.where(total == 1, t, middle), t, count + 1

    def goes_on(state):
        _, _, t, before, count = state
        return (count < 100) & jnp.any(t != before)

    t = jax.lax.while_loop(goes_on, step, (low, high, low / 2, high + 1, jnp.int32(0)))[2]
    p = _at(z, b, t)[0]
    p = p / jax.lax.psum(p.sum(-1, keepdims=True), axis_name)
    return jnp.where(undefined, jnp.nan, p)


@_entmax.defjvp
def _entmax_jvp(alpha, temperature, axis_name, primals, tangents):
    p = _entmax(alpha, temperature, axis_name, *primals)
    params = {"alpha": alpha, "temperature": temperature}
    return p, maps.pushed(_Parts(axis_name), "entmax", *primals, p, params, *tangents, {})


# The functions.


def _rows(name, x, axis, axis_name):
    _devices(name, axis_name)
    x = array(name, "x", x)
    axis = normalized(name, axis, x.ndim)
    return x, axis, wide(jnp.moveaxis(x, axis, -1))


def _devices(name, axis_name):
    try:
        return jax.lax.psum(1, axis_name)
    except NameError:
        raise ValueError(f"{name}: axis_name must be an axis of the mesh of a shard_map around it, got {axis_name!r}") from None


def _positive(name, argument, value):
    known(name, argument, value)
    value = _checks.number(name, argument, value)
    _checks.positive(name, argument, value)
    return value


def _number(which, name, x, axis, temperature, axis_name, classes=None):
    _, _, rows = _rows(name, x, axis, axis_name)
    classes = _no_classes(rows) if classes is None else classes
    return _statistic(which, temperature, axis_name, rows, classes)[..., 0]


def softmax(x, /, *, axis_name, temperature=1.0, axis=-1):
    """As isentropic.softmax, of this device's part. Two rounds."""
    temperature = _positive("softmax", "temperature", temperature)
    x, axis, rows = _rows("softmax", x, axis, axis_name)
    p = _softmax(temperature, axis_name, rows)
    return jnp.moveaxis(p, -1, axis).astype(x.dtype)


def log_softmax(x, /, *, axis_name, temperature=1.0, axis=-1):
    """As isentropic.log_softmax, of this device's part. Two rounds."""
    temperature = _positive("log_softmax", "temperature", temperature)
    x, axis, rows = _rows("log_softmax", x, axis, axis_name)
    y = _statistic("log_softmax", temperature, axis_name, rows, _no_classes(rows))
    return jnp.moveaxis(y, -1, axis).astype(x.dtype)


def logsumexp(x, /, *, axis_name, temperature=1.0, axis=-1):
    """As isentropic.logsumexp: the whole row's number, on every device. Two rounds."""
    value = _number("logsumexp", "logsumexp", x, axis, _positive("logsumexp", "temperature", temperature), axis_name)
    return value.astype(array("logsumexp", "x", x).dtype)


def entropy(x, /, *, axis_name, axis=-1):
    """The entropy of softmax(x): the whole row's number, on every device. Two rounds."""
    return _number("entropy", "entropy", x, axis, 1.0, axis_name)


def softmax_loss(x, target, /, *, axis_name, ignore_index=None, axis=-1):
    """As isentropic.softmax_loss of classes, which are counted in the whole row and known to every device. Two rounds. A class
    that is traced and outside of the row gives NaN."""
    name, ignored = "softmax_loss", _checks.index_or_none("softmax_loss", ignore_index)
    _, _, rows = _rows(name, x, axis, axis_name)
    n = rows.shape[-1] * _devices(name, axis_name)
    xp = jnp if isinstance(target, jax.core.Tracer) else np  # operations of jax.numpy would be traced under jit
    target = xp.asarray(target)
    if not jnp.issubdtype(target.dtype, jnp.integer):
        raise TypeError(f"{name}: target must be of an integer type, one class for each row, got {target.dtype}")
    if target.shape != rows.shape[:-1]:
        raise ValueError(f"{name}: target must have shape {rows.shape[:-1]}, one class for each row, got {target.shape}")
    target = target.astype(np.int32 if target.dtype.itemsize < 8 else np.int64)
    bounds = jnp.iinfo(target.dtype)
    counts = True if ignored is None or not bounds.min <= ignored <= bounds.max else target != ignored
    wrong = counts & ((target < 0) | (target >= n))
    if xp is np and wrong.any():
        row = tuple(np.argwhere(wrong)[0])
        where = _checks.place("in row", row)
        raise ValueError(f"{name}: target must be at least 0 and below the number of classes, {n}, got {target[row]}{where}")
    classes = jnp.where(counts, jnp.where(wrong, _NO_CLASS, target), _IGNORED).astype(jnp.int32)
    return _number("loss", name, x, axis, 1.0, axis_name, classes[..., None])


def entmax(x, /, *, axis_name, alpha=1.5, temperature=1.0, axis=-1):
    """As isentropic.entmax, of this device's part, up to rounding; alpha is at least 1. About ten rounds."""
    alpha, temperature = (_positive("entmax", *one) for one in (("alpha", alpha), ("temperature", temperature)))
    if alpha < 1:
        raise ValueError(f"entmax: alpha must be at least 1 for rows in parts, got {alpha!r}")
    if alpha == 1:
        return softmax(x, axis_name=axis_name, temperature=temperature, axis=axis)
    x, axis, rows = _rows("entmax", x, axis, axis_name)
    return jnp.moveaxis(_entmax(alpha, temperature, axis_name, rows), -1, axis).astype(x.dtype)


def sparsemax(x, /, *, axis_name, temperature=1.0, axis=-1):
    """As isentropic.sparsemax, of this device's part, up to rounding. About ten rounds."""
    temperature = _positive("sparsemax", "temperature", temperature)
    return entmax(x, axis_name=axis_name, alpha=2.0, temperature=temperature, axis=axis)


__all__ = ["entmax", "entropy", "log_softmax", "logsumexp", "softmax", "softmax_loss", "sparsemax"]
