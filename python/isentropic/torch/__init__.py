"""isentropic's operations on torch tensors: differentiable functions and modules.

Every function is ``isentropic.torch.NAME(x, *, parameters, dim=-1)``, of ``torch.float32``, ``float64``, ``float16`` or
``bfloat16`` tensors of any strides; ``axis`` is another name for ``dim``. Parameters that may differ per row may be tensors
that broadcast with x and have size 1 along dim; they get gradients. Works under ``torch.compile`` and ``torch.func`` (``grad``,
``vmap``, ``jacrev``, ``jvp``, ``hessian``, ``linearize``), with double backward and in forward mode. On the CPU the library's
kernels run. On CUDA those of the library isentropic_cuda run, if it is found. Otherwise an equivalent composition of torch's
operations runs there, or the CPU, with one warning; ISENTROPIC_STRICT=1 in the environment makes it an error. Tensors on other
devices are an error.
"""

try:
    import torch
except ImportError as error:
    raise ImportError("isentropic.torch needs PyTorch: pip install torch") from error

import isentropic as _isentropic
import isentropic.torch._generated as _generated
from isentropic.torch._attention import (
    Attention,
    LinearAttention,
    attention,
    keys_seen,
    linear_attention,
    scaled_dot_product_attention,
)
from isentropic.torch._doubly_stochastic import doubly_stochastic
from isentropic.torch._draws import Sampler, gumbel_noise, sample, speculative_sample
from isentropic.torch._duality import (
    c_transform,
    clip_weights,
    dual_value,
    gradient_penalty,
    lipschitz_constant,
    wgan_critic_loss,
)
from isentropic.torch._entropy_control import (
    gamma_for_entropy,
    mean_field_entropy,
    normalize_density,
    normalize_joint,
    power_transform,
)
from isentropic.torch._entropy_controller import EntropyController
from isentropic.torch._generated import *  # noqa: F403
from isentropic.torch._linear_loss import linear_loss
from isentropic.torch._loss_modules import (
    AMSoftmaxLoss,
    ArcFaceLoss,
    SmoothAccuracyLoss,
    SparseDistillationLoss,
    SphereFaceLoss,
    SurrogateLoss,
)
from isentropic.torch._losses import sparse_distillation_loss
from isentropic.torch._maximum_entropy import maximum_entropy
from isentropic.torch._ratio_map import ratio_map
from isentropic.torch._sampling import gumbel_softmax
from isentropic.torch._tables import conditional_mutual_information
from isentropic.torch._token_statistics import TokenStatistics, linear_token_statistics, token_statistics
from isentropic.torch._transport import (
    optimal_transport,
    partial_transport,
    sinkhorn,
    sinkhorn_barycenter,
    unbalanced_sinkhorn,
)
from isentropic.torch._wasserstein import (
    sinkhorn_divergence,
    sliced_wasserstein,
    unbalanced_sinkhorn_divergence,
    wasserstein,
    wasserstein_1d,
    wasserstein_histogram,
)

for _name in _generated.__all__:
    getattr(_generated, _name).__module__ = "isentropic.torch"

# To train: losses and maps with their modules, attention, and modules of losses that hold parameters.
__all__ = ["AMSoftmaxLoss", "ArcFaceLoss", "SmoothAccuracyLoss", "SparseDistillationLoss", "SphereFaceLoss"]
__all__ += ["SurrogateLoss", *_generated.__all__]
__all__ += ["EntropyController", "TokenStatistics", "linear_loss", "linear_token_statistics", "ratio_map"]
__all__ += ["doubly_stochastic", "sparse_distillation_loss", "token_statistics"]
__all__ += ["Attention", "LinearAttention", "attention", "keys_seen", "linear_attention", "scaled_dot_product_attention"]
# To decode: draws, and the temperature that gives an entropy.
__all__ += ["Sampler", "gamma_for_entropy", "gumbel_noise", "gumbel_softmax", "mean_field_entropy", "sample"]
__all__ += ["speculative_sample"]
__all__ += ["normalize_density", "normalize_joint", "power_transform"]
# To compare distributions: transport.
__all__ += ["conditional_mutual_information", "maximum_entropy"]
__all__ += ["sliced_wasserstein", "wasserstein", "wasserstein_1d", "wasserstein_histogram"]
__all__ += ["optimal_transport", "partial_transport", "sinkhorn", "sinkhorn_barycenter"]
__all__ += ["sinkhorn_divergence", "unbalanced_sinkhorn", "unbalanced_sinkhorn_divergence"]
__all__ += ["c_transform", "clip_weights", "dual_value", "gradient_penalty", "lipschitz_constant", "wgan_critic_loss"]

for _name in __all__:
    if not isinstance(globals()[_name], type):
        torch.fx.wrap(_name)  # torch.fx keeps calls of it, by this module, as they are
del torch


def __getattr__(name):
    if name in _isentropic.__all__:
        raise AttributeError(f"isentropic.torch has no {name}; isentropic.{name} takes tensors on the CPU without grad")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
