"""Draws, relaxed draws, and chains of steps."""

import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import isentropic
from isentropic import _checks
from isentropic._descriptions import MAPS, documented
from isentropic._numpy import _sampling
from isentropic.formulas import maps
from isentropic.jax._call import array, call, like, normalized, wide
from isentropic.jax._maps import mapped
from isentropic.jax._parameters import known, split
from isentropic.jax._rows import ROWS


def _noise(function, seed, position, size, stream, x, axis):
    """Parameters of the noise, and the array of streams where there is one. x has its `axis` last."""
    for argument, value in (("seed", seed), ("position", position), ("size", size)):
        known(function, argument, value)
    static = tuple(_sampling.key_of(function, seed, position, size).items())
    rows = SimpleNamespace(lead=x.shape[:-1], axis=axis)
    if isinstance(stream, jax.core.Tracer):
        return static, {"stream": _traced_streams(function, rows, stream)[..., None]}
    if np.ndim(stream) == 0:
        number = stream.item() if hasattr(stream, "__dlpack__") else stream  # an array of one number
        return (*static, ("stream", _sampling.signed(_sampling.natural(function, "stream", number)))), {}
    wide = _sampling.streams_of_rows(function, rows, stream).view(np.int64).reshape(rows.lead)
    if jax.config.jax_enable_x64:
        return static, {"stream": jnp.asarray(wide)[..., None]}
    if wide.size and not 0 <= wide.min() <= wide.max() < 1 << 31:
        raise ValueError(
            f"{function}: stream, an array, must be below 2**31 unless jax_enable_x64 is set, got {wide.view(np.uint64).max()}"
        )
    return static, {"stream": jnp.asarray(wide.astype(np.int32))[..., None]}


def _traced_streams(function, rows, stream):
    """A stream for each row. The values cannot be checked."""
    if stream.dtype not in (jnp.int32, jnp.int64):
        raise TypeError(f"{function}: stream, traced, must be of int32 or int64, got dtype {stream.dtype}")
    if stream.ndim == 0:
        stream = stream + jnp.arange(math.prod(rows.lead), dtype=stream.dtype).reshape(rows.lead)
    try:
        return jnp.broadcast_to(stream, rows.lead)
    except ValueError:
        which = f"x's shape without axis {rows.axis}"
        raise _checks.misfit(function, "stream", rows.lead, which, stream, "an integer or an array") from None


def _draw(operation, static, x, streams, output):
    """The call. If the rows are numbered from one stream, a vectorised call makes one call after the other, since the rows of
    one call are numbered consecutively. (An array of their streams would need 64 bits, which JAX by default does not have.)"""
    return call(operation, static, {"x": x, **streams}, output, vmap_method="broadcast_all" if streams else "sequential")[0]


@documented
def sample(x, *, size=None, replace=True, temperature=1.0, seed, stream=0, position=0, axis=-1):
    """The same indices as isentropic.sample draws. All arguments but x and stream must be known outside of jit; if stream is
    traced, its values are not checked.

    Row r draws from stream + r; an array gives each row its own. Under ``vmap`` each entry of the batch draws what it would
    draw alone, so entries need streams of their own for different noise: ``vmap(lambda x, s: sample(x, seed=1, stream=s))``.
    """
    x = jax.lax.stop_gradient(array("sample", "x", x))
    axis = normalized("sample", axis, x.ndim)
    x = jnp.moveaxis(x, axis, -1)
    static, streams = _noise("sample", seed, position, size, stream, x, axis)
    known("sample", "temperature", temperature, "; x may be divided by it")
    temperature, replace = _checks.number("sample", "temperature", temperature), _checks.flag("sample", "replace", replace)
    static = (*static, ("temperature", temperature), ("replace", replace))
    drawn = _draw("sample", static, x, streams, {"indices": like(x, 1 if size is None else size, jnp.int32)})
    return drawn[..., 0] if size is None else drawn


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _relaxed(hard, temperature, static, x, streams):
    given = (*static, ("temperature", temperature), ("hard", hard))
    return _draw("gumbel_softmax", given, x, streams, {"y": like(x)})


@_relaxed.defjvp
def _relaxed_jvp(hard, temperature, static, primals, tangents):
    y = _relaxed(hard, temperature, static, *primals)
    soft = _relaxed(False, temperature, static, *primals) if hard else y
    x, p, v = map(wide, (primals[0], soft, tangents[0]))
    return y, maps.pushed(ROWS, "softmax", x, p, {"temperature": temperature}, v, {}).astype(y.dtype)


def _relaxed_at(temperature, static, x, streams):
    """The soft draw at a temperature for each row. The noise is log softmax of the noise alone, whose spread is small."""
    zeros = jnp.zeros_like(x)
    noise = jnp.log(_relaxed(False, 1.0, static, zeros, streams))
    infinite = x == jnp.inf
    others = infinite.any(-1, keepdims=True) & ~jnp.isnan(x)
    x = jnp.where(others, jnp.where(infinite, 0, -jnp.inf), x)
    top = jax.lax.stop_gradient(x.max(-1, keepdims=True, initial=-jnp.inf))
    return mapped("softmax", (), x - jnp.where(jnp.isfinite(top), top, 0) + noise, {"temperature": temperature})


@documented
def gumbel_softmax(x, *, temperature=1.0, hard=False, seed, stream=0, axis=-1):
    """As isentropic.gumbel_softmax; if hard, with the derivative of the soft draw (straight through).

    A temperature that is traced, or an array with one number for each row, has a derivative, and the result is NumPy's up to
    rounding.
    """
    x, hard = array("gumbel_softmax", "x", x), _checks.flag("gumbel_softmax", "hard", hard)
    axis = normalized("gumbel_softmax", axis, x.ndim)
    moved = jnp.moveaxis(x, axis, -1)
    static, streams = _noise("gumbel_softmax", seed, 0, None, stream, moved, axis)
    if isinstance(temperature, jax.core.Tracer) or getattr(temperature, "ndim", 0):
        info = {**MAPS["softmax"], "name": "gumbel_softmax"}
        _, rows = split(info, {"temperature": temperature}, moved, axis)
        y = _relaxed_at(rows["temperature"], static, wide(moved), streams)
        if hard:
            y = jax.lax.stop_gradient(_relaxed(True, 1.0, static, moved, streams)) + (y - jax.lax.stop_gradient(y))
        return jnp.moveaxis(y.astype(x.dtype), -1, axis)
    temperature = _checks.number("gumbel_softmax", "temperature", temperature)
    return jnp.moveaxis(_relaxed(hard, temperature, static, moved, streams), -1, axis)


@documented
class Sampler:
    """A chain of steps that change a distribution, and draws from the result, as isentropic.Sampler: with its bits, on the CPU.

    Under vmap each entry of the batch draws what it would draw alone, as with the function sample.
    """

    def __init__(self, steps, *, seed=0):
        checked = isentropic.Sampler(steps, seed=seed)
        if checked.reads_text or checked.adjusts:
            raise NotImplementedError("isentropic.jax.Sampler has no penalties, dry and mirostat, which read the text")
        self.steps, self.seed = checked.steps, checked.seed
        self._parameters = checked._named()

    def probs(self, x, *, axis=-1):
        """The distribution that sample draws from. It has no derivative."""
        x = jax.lax.stop_gradient(array("Sampler.probs", "x", x))
        axis = normalized("Sampler.probs", axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        p = call("sampler_probs", (("steps", self._parameters),), {"x": moved}, {"y": like(moved)})[0]
        return jnp.moveaxis(p, -1, axis)

    def sample(self, x, *, size=None, stream=0, position=0, axis=-1):
        """Indices drawn from probs(x), as the function sample draws them."""
        x = jax.lax.stop_gradient(array("Sampler.sample", "x", x))
        axis = normalized("Sampler.sample", axis, x.ndim)
        x = jnp.moveaxis(x, axis, -1)
        static, streams = _noise("Sampler.sample", self.seed, position, size, stream, x, axis)
        static = (*static, ("steps", self._parameters))
        indices = like(x, 1 if size is None else size, jnp.int32)
        drawn = _draw("sampler_sample", static, x, streams, {"indices": indices})
        return drawn[..., 0] if size is None else drawn
