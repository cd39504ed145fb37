"""The functions of isentropic for JAX: under ``jit``, ``grad``, ``jvp``, ``hessian`` and ``vmap``, on the CPU.

Maps, log_softmax, logsumexp, losses and measures can be differentiated forward and backward and more than once, in scores and
in parameters that are arrays. Values have the bits of the NumPy functions.
``isentropic.jax.distributed`` has functions for rows that are split over devices.
"""

import isentropic as _isentropic
from isentropic._descriptions import LOSSES, MAPS, MEASURES
from isentropic.jax._attention import attention, keys_seen, linear_attention
from isentropic.jax._calibration import (
    brier_score,
    entropy_invariant_scale,
    expected_calibration_error,
    fit_target_entropy,
    fit_temperature,
    fit_vector_scaling,
    match_entropy,
    normalize_density,
    normalize_joint,
)
from isentropic.jax._doubly_stochastic import doubly_stochastic
from isentropic.jax._entropy_control import GammaResult, gamma_for_entropy, mean_field_entropy, power_transform
from isentropic.jax._line import wasserstein_1d, wasserstein_histogram
from isentropic.jax._maps import make_map, ratio_map
from isentropic.jax._maximum_entropy import MaximumEntropyResult, maximum_entropy
from isentropic.jax._sampling import Sampler, gumbel_softmax, sample
from isentropic.jax._tables import conditional_mutual_information
from isentropic.jax._transport import (
    SinkhornResult,
    TransportResult,
    c_transform,
    dual_value,
    lipschitz_constant,
    optimal_transport,
    sinkhorn,
    sinkhorn_divergence,
    wasserstein,
)
from isentropic.jax._values import make_entry, make_loss, make_measure, make_table, sparse_distillation_loss

__all__ = ["attention", "conditional_mutual_information", "doubly_stochastic", "keys_seen", "linear_attention", "ratio_map"]
__all__ += ["MaximumEntropyResult", "maximum_entropy", "sparse_distillation_loss"]
__all__ += ["GammaResult", "gamma_for_entropy", "mean_field_entropy", "normalize_density", "normalize_joint", "power_transform"]
__all__ += ["Sampler", "gumbel_softmax", "sample"]
__all__ += ["SinkhornResult", "TransportResult", "optimal_transport", "sinkhorn", "sinkhorn_divergence"]
__all__ += ["c_transform", "dual_value", "lipschitz_constant", "wasserstein", "wasserstein_1d", "wasserstein_histogram"]
__all__ += ["brier_score", "expected_calibration_error", "fit_target_entropy", "fit_temperature", "fit_vector_scaling"]
__all__ += ["entropy_invariant_scale", "match_entropy"]


def _publish(name, function, info):
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = (
        f"{info['summary']}\n\n{info['formula']}\n\nAs isentropic.{name}, with its parameters; under jit, grad and vmap too."
    )
    globals()[name] = function
    __all__.append(name)


for _name, _info in MAPS.items():
    _publish(_name, make_map(_info), _info)
for _info in LOSSES.values():
    _publish(_info["name"], make_loss(_info), _info)
for _info in MEASURES.values():
    _name = _info["name"]
    if _info["family"] in ("measure", "divergence"):
        _publish(_name, make_measure(_info, _info["family"] == "divergence"), _info)
    elif _info["family"] == "table":
        _publish(_name, make_table(_info), _info)
    elif _info["family"] == "entry":
        _publish(_name, make_entry(_info), _info)


def __getattr__(name):
    if name in _isentropic.__all__:
        raise AttributeError(f"isentropic.jax has no {name}; isentropic.{name} takes NumPy arrays: numpy.asarray(x)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
