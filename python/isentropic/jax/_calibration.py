"""Choosing a temperature or an entropy, and tables and densities with a chosen entropy, through the functions of NumPy
arrays."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import isentropic
import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _calibration
from isentropic.jax._call import array, as_array, call_hosted, hosted, normalized, sum_tolerance, wide


def _number(name, parameters, *arrays):
    """A single number from all rows. A vectorised call makes one call after the other."""
    dtype = jnp.result_type(float)
    return call_hosted(name, parameters, arrays, [jax.ShapeDtypeStruct((), dtype)], vmap_method="sequential")[0]


def _kind(name, input):
    if not isinstance(input, str) or input not in ("scores", "probs", "log_probs"):
        raise ValueError(f"{name}: input must be one of scores, probs, log_probs, got {input!r}")
    return {"input": input}


def _labelled(name, argument, x, labels):
    x, labels = array(name, argument, x), as_array(name, "labels", labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"{name}: labels must be of an integer type, got dtype {labels.dtype}")
    if labels.shape != x.shape[:-1]:
        raise ValueError(
            f"{name}: labels must have the shape of {argument} without its last axis, {x.shape[:-1]}, got {labels.shape}"
        )
    return x, labels.astype(jnp.int32 if labels.dtype.itemsize < 8 else jnp.int64)


@documented
def fit_temperature(x, labels, *, input="scores"):
    """The temperature that fits labels, as isentropic.fit_temperature. It has no derivative."""
    return _number("fit_temperature", _kind("fit_temperature", input), *_labelled("fit_temperature", "x", x, labels))


@documented
def fit_target_entropy(x, labels, *, input="scores"):
    """The entropy that fits labels, as isentropic.fit_target_entropy. It has no derivative."""
    name = "fit_target_entropy"
    return _number(name, _kind(name, input), *_labelled(name, "x", x, labels))


@documented
def match_entropy(x_reference, *, input="scores"):
    """The mean entropy of softmax(x_reference), as isentropic.match_entropy. It has no derivative."""
    return _number("match_entropy", _kind("match_entropy", input), array("match_entropy", "x_reference", x_reference))


def _distributions(name, p, labels, sum_tolerance):
    """What _core takes; a tolerance is given for p that were halves before."""
    *given, tolerance = _calibration.labelled(name, "p", p, labels, None, None)
    return *given, tolerance if sum_tolerance is None else sum_tolerance


@hosted("expected_calibration_error")
def _expected_calibration_error(p, labels, *, bins, strategy, norm, classwise, debiased, sum_tolerance):
    *given, tolerance = _distributions("expected_calibration_error", p, labels, sum_tolerance)
    return (_core.expected_calibration_error(*given, (bins, strategy, tolerance, norm, classwise, debiased, False)),)


@documented
def expected_calibration_error(p, labels, *, bins=15, strategy="uniform", norm="l1", classwise=False, debiased=False):
    """As isentropic.expected_calibration_error. It has no derivative."""
    name = "expected_calibration_error"
    given = {"bins": bins, "strategy": strategy, "norm": norm, "classwise": classwise, "debiased": debiased}
    given["sum_tolerance"] = sum_tolerance(p)
    return _number(name, given, *_labelled(name, "p", p, labels))


@hosted("brier_score")
def _brier_score(p, labels, *, sum_tolerance):
    return (_core.brier_score(*_distributions("brier_score", p, labels, sum_tolerance)),)


@documented
def brier_score(p, labels):
    """The mean squared distance of distributions from the labels, as isentropic.brier_score. It has no derivative."""
    return _number("brier_score", {"sum_tolerance": sum_tolerance(p)}, *_labelled("brier_score", "p", p, labels))


@documented
def fit_vector_scaling(x, labels, *, ridge=1e-6, input="scores"):
    """A scale and a bias for each class, as isentropic.fit_vector_scaling; a pair of arrays. It has no derivative."""
    x, labels = _labelled("fit_vector_scaling", "x", x, labels)
    output = jax.ShapeDtypeStruct(x.shape[-1:], jnp.result_type(float))
    given = {"ridge": ridge, **_kind("fit_vector_scaling", input)}
    found = call_hosted("fit_vector_scaling", given, [x, labels], [output, output], vmap_method="sequential")
    return isentropic.VectorScaling(*found)


@documented
def entropy_invariant_scale(n, d, *, train_length=512, kappa=None):
    """As isentropic.entropy_invariant_scale, with gradients; d and kappa may be traced or arrays. Traced numbers are not
    checked."""
    name = "entropy_invariant_scale"
    n = array(name, "n", n, least=0)
    seen = 1.0 if isinstance(n, jax.core.Tracer) else np.asarray(n, np.float64)
    numbers = {"d": d, "kappa": kappa}
    for argument, value in numbers.items():
        if isinstance(value, (jax.Array, np.ndarray)):
            numbers[argument] = wide(array(name, argument, value, least=0))
            if not isinstance(value, jax.core.Tracer):
                _checks.positive(name, argument, value)
    given = {key: value for key, value in numbers.items() if not isinstance(value, jax.Array)}
    isentropic.entropy_invariant_scale(seen, given.pop("d", 1.0), train_length=train_length, **given)
    d, kappa = numbers.values()
    log_n = jnp.log(wide(n))
    scale = log_n / (math.log(train_length) * d**0.5) if kappa is None else kappa * log_n / d
    return scale.astype(n.dtype)


@documented
def normalize_density(p, weights, *, entropy, axis=-1):
    """As isentropic.normalize_density. It has no derivative."""
    name = "normalize_density"
    p = array(name, "p", p)
    axis = normalized(name, axis, p.ndim)
    p = jnp.moveaxis(p, axis, -1)
    weights = array(name, "weights", weights).astype(p.dtype)
    if weights.shape != p.shape[-1:]:
        raise ValueError(f"{name}: weights must have shape {p.shape[-1:]}, one for each node, got {weights.shape}")
    kind = wide(p).dtype
    outputs = [jax.ShapeDtypeStruct(p.shape, kind), jax.ShapeDtypeStruct(p.shape[:-1], kind)]
    density, gamma = call_hosted(name, {"entropy": entropy}, [p, weights], outputs, vmap_method="sequential")
    return jnp.moveaxis(density, -1, axis).astype(p.dtype), gamma.astype(p.dtype)


@documented
def normalize_joint(pxy, *, joint=None, marginal=None, conditional=None):
    """As isentropic.normalize_joint. It has no derivative."""
    pxy = array("normalize_joint", "pxy", pxy)
    target = {"joint": joint, "marginal": marginal, "conditional": conditional}
    outputs = [jax.ShapeDtypeStruct(pxy.shape, wide(pxy).dtype)]
    return call_hosted("normalize_joint", target, [pxy], outputs, vmap_method="sequential")[0].astype(pxy.dtype)
