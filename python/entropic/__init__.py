"""Scores to distributions: softmax, sparsemax and the other maps, each with its gradient.

Every map is ``entropic.NAME(x, *, parameters, axis=-1, out=None)`` and has its ``entropic.NAME_vjp(x, y, grad, /, *, ...)``.
NumPy arrays, anything with DLPack (torch CPU tensors) or nested lists in; the same kind, shape and dtype out.
"""

from entropic import _core, _entropy_control, _functions, _losses, _measures, _sampling, _transport
from entropic._attention import attention, attention_vjp, linear_attention, linear_attention_vjp
from entropic._core import __version__
from entropic._files import read, write
from entropic._ratio_map import ratio_map
from entropic.calibration import (
    TemperatureClampedWarning,
    entropy_invariant_scale,
    expected_calibration_error,
    fit_target_entropy,
    fit_temperature,
    match_entropy,
)


def simd_targets():
    """The SIMD targets that this machine can run, best first, for example ["AVX3", "AVX2", "SSE4", "SCALAR"]."""
    return _core.simd_targets()


def simd_target():
    """The name of the SIMD target that the next call runs on."""
    return _core.simd_target()


def force_simd_target(name):
    """Make every later call run on the SIMD target `name`, one of simd_targets(); "" returns to the best.

    Targets with FMA (AVX2, AVX3, NEON and better) give the same bits, the others differ in the last digits.
    """
    if not isinstance(name, str):
        raise TypeError(f"force_simd_target: name must be a string, got {type(name).__name__}")
    _core.force_simd_target(name)


def set_num_threads(n):
    """Use at most `n` threads for every later call; 0 returns to the default, one per processor. Results do not change."""
    _core.set_num_threads(n)


def get_num_threads():
    """The largest number of threads that a call uses."""
    return _core.get_num_threads()


_registered = _functions.build(_core.operations())
_registered |= _entropy_control.build(_core.control_operations())
_registered |= _measures.build(_core.measure_operations())
_registered |= _losses.build(_core.losses())
_registered |= _sampling.build()
_registered |= {one.__name__: one for one in _transport.PUBLIC}
globals().update(_registered)

__all__ = [
    "TemperatureClampedWarning",
    "__version__",
    "attention",
    "attention_vjp",
    "entropy_invariant_scale",
    "expected_calibration_error",
    "fit_target_entropy",
    "fit_temperature",
    "force_simd_target",
    "get_num_threads",
    "linear_attention",
    "linear_attention_vjp",
    "match_entropy",
    "ratio_map",
    "read",
    "set_num_threads",
    "simd_target",
    "simd_targets",
    "write",
    *_registered,
]
