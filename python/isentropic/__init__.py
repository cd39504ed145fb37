"""Turn scores into distributions: softmax, sparsemax and the other maps, each with its gradient.

To train, begin with softmax_loss, entmax_loss, entmax, attention and, with gradients, isentropic.torch; to decode a language
model with Sampler, sample, top_p_softmax, entropy_normalize and gamma_for_entropy; to compare distributions with entropy,
kl_divergence, js_distance, wasserstein_1d and sinkhorn; to trust predictions with fit_temperature, fit_vector_scaling,
expected_calibration_error, reliability_diagram and brier_score.

Every map is ``isentropic.NAME(x, *, parameters, axis=-1, out=None)`` and has its ``isentropic.NAME_vjp(x, y, grad, /, *,
...)``. Functions take NumPy arrays, anything with DLPack (torch CPU tensors) or nested lists, and return the same kind, shape
and dtype.
"""

import isentropic._core as _core
import isentropic._generated as _generated
from isentropic._core import __version__
from isentropic._generated import *  # noqa: F403
from isentropic._numpy._attention import attention, attention_vjp, keys_seen, linear_attention, linear_attention_vjp
from isentropic._numpy._counts import Counts
from isentropic._numpy._doubly_stochastic import doubly_stochastic, doubly_stochastic_vjp
from isentropic._numpy._entropy_control import (
    GammaResult,
    gamma_for_entropy,
    mean_field_entropy,
    normalize_density,
    normalize_joint,
    power_transform,
)
from isentropic._numpy._estimators_of_counts import (
    conditional_mutual_information,
    entropy_of_counts,
    mutual_information_of_counts,
)
from isentropic._numpy._files import read, write
from isentropic._numpy._further_transport import (
    BarycenterResult,
    PartialResult,
    SlicedResult,
    UnbalancedResult,
    partial_transport,
    sinkhorn_barycenter,
    sliced_wasserstein,
    unbalanced_sinkhorn,
)
from isentropic._numpy._labels import (
    ContingencyTable,
    contingency_table,
    mutual_information_of_labels,
    mutual_information_scores,
)
from isentropic._numpy._losses import sparse_distillation_loss
from isentropic._numpy._maximum_entropy import MaximumEntropyResult, maximum_entropy
from isentropic._numpy._ratio_map import ratio_map
from isentropic._numpy._sampling import Sampler, gumbel_noise, gumbel_softmax, sample
from isentropic._numpy._speculative import speculative_sample
from isentropic._numpy._transport import (
    SinkhornResult,
    TransportResult,
    c_transform,
    dual_value,
    lipschitz_constant,
    optimal_transport,
    sinkhorn,
)
from isentropic._numpy._wasserstein import (
    sinkhorn_divergence,
    unbalanced_sinkhorn_divergence,
    wasserstein,
    wasserstein_1d,
    wasserstein_histogram,
)
from isentropic._threads import get_num_threads, set_num_threads
from isentropic.batch import BatchMap
from isentropic.calibration import (
    ReliabilityBins,
    TemperatureClampedWarning,
    VectorScaling,
    brier_score,
    entropy_invariant_scale,
    expected_calibration_error,
    fit_target_entropy,
    fit_temperature,
    fit_vector_scaling,
    match_entropy,
    reliability_bins,
    reliability_diagram,
)


def simd_targets():
    """The SIMD targets that this machine can run, best first, for example ["AVX3", "AVX2", "SCALAR"]."""
    return _core.simd_targets()


def simd_target():
    """The name of the SIMD target that the next call runs on."""
    return _core.simd_target()


def force_simd_target(name):
    """Make every later call run on the SIMD target `name`, one of simd_targets(); "" returns to the best.

    Targets with FMA (AVX2, AVX3, NEON and better) give the same bits. The others differ in the last digits.
    """
    if not isinstance(name, str):
        raise TypeError(f"force_simd_target: name must be a string, got {type(name).__name__}")
    _core.force_simd_target(name)


for _name in _generated.__all__:
    getattr(_generated, _name).__module__ = "isentropic"

# By task, the first of each in the docstring above. The maps, losses and measures of the registry are for all of them.
__all__ = ["__version__", *_generated.__all__]
# To train: attention, and maps of one's own.
__all__ += ["attention", "attention_vjp", "keys_seen", "linear_attention", "linear_attention_vjp", "ratio_map"]
__all__ += ["doubly_stochastic", "doubly_stochastic_vjp", "sparse_distillation_loss"]
# To decode: draws, and the temperature that gives an entropy, of scores and of distributions.
__all__ += ["Sampler", "gumbel_noise", "gumbel_softmax", "sample", "speculative_sample"]
__all__ += ["GammaResult", "gamma_for_entropy", "mean_field_entropy", "normalize_density", "normalize_joint", "power_transform"]
# To compare distributions: counts and labels, and transport.
__all__ += ["conditional_mutual_information", "entropy_of_counts", "mutual_information_of_counts"]
__all__ += ["ContingencyTable", "contingency_table", "mutual_information_of_labels", "mutual_information_scores"]
__all__ += ["MaximumEntropyResult", "maximum_entropy"]
__all__ += ["Counts", "wasserstein", "wasserstein_1d", "wasserstein_histogram"]
__all__ += ["PartialResult", "TransportResult", "optimal_transport", "partial_transport"]
__all__ += ["SinkhornResult", "UnbalancedResult", "sinkhorn", "sinkhorn_divergence", "unbalanced_sinkhorn"]
__all__ += ["unbalanced_sinkhorn_divergence"]
__all__ += ["BarycenterResult", "SlicedResult", "sinkhorn_barycenter", "sliced_wasserstein"]
__all__ += ["c_transform", "dual_value", "lipschitz_constant"]
# To trust predictions: the temperature or the entropy that fits, and how well confidences agree with labels.
__all__ += ["TemperatureClampedWarning", "VectorScaling", "fit_temperature", "fit_vector_scaling"]
__all__ += ["entropy_invariant_scale", "fit_target_entropy", "match_entropy"]
__all__ += ["ReliabilityBins", "brier_score", "expected_calibration_error", "reliability_bins", "reliability_diagram"]
# To work on files and tables, and to say where it runs.
__all__ += ["BatchMap", "read", "write"]
__all__ += ["force_simd_target", "get_num_threads", "set_num_threads", "simd_target", "simd_targets"]
