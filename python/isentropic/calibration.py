"""Choosing the temperature or the entropy by labels, by a reference or by length, and measuring calibration.

``TemperatureScaler``, ``VectorScaler`` and ``EntropyScaler`` are these choices as scikit-learn estimators, and
``EntropyNormalizer`` gives rows a chosen entropy; only they need scikit-learn.
"""

import importlib.util

from isentropic._numpy._calibration import (
    TemperatureClampedWarning,
    entropy_invariant_scale,
    fit_target_entropy,
    fit_temperature,
    match_entropy,
)
from isentropic._numpy._calibration_scores import (
    ReliabilityBins,
    brier_score,
    expected_calibration_error,
    reliability_bins,
    reliability_diagram,
)
from isentropic._numpy._vector_scaling import VectorScaling, fit_vector_scaling

__all__ = ["TemperatureClampedWarning", "VectorScaling", "fit_temperature", "fit_vector_scaling"]
__all__ += ["entropy_invariant_scale", "fit_target_entropy", "match_entropy"]
__all__ += ["ReliabilityBins", "brier_score", "expected_calibration_error", "reliability_bins", "reliability_diagram"]

_ESTIMATORS = ("EntropyNormalizer", "EntropyScaler", "TemperatureScaler", "VectorScaler")


def __getattr__(name):
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from isentropic._numpy import _estimators
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        raise ImportError(f"isentropic.calibration.{name} needs scikit-learn: pip install scikit-learn") from error
    return getattr(_estimators, name)


def __dir__():
    return [*globals(), *(_ESTIMATORS if importlib.util.find_spec("sklearn") else ())]
