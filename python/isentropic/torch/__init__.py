"""isentropic's operations on torch tensors: differentiable functions and modules.

Every function is ``isentropic.torch.NAME(x, *, parameters, dim=-1)``, of ``torch.float32``, ``float64``, ``float16`` or
``bfloat16`` tensors of any strides; ``axis`` may stand for ``dim``. Parameters that may differ per row may be tensors that
broadcast with x and have size 1 along dim; they get gradients. Works under ``torch.compile`` and ``torch.func`` (``grad``,
``vmap``, ``jacrev``, ``jvp``, ``hessian``, ``linearize``), with double backward and in forward mode. On the CPU the library's
kernels run. On CUDA those of the library isentropic_cuda run, if it is found. Elsewhere an equivalent composition of torch's
operations runs, with a warning once; ISENTROPIC_STRICT=1 in the environment makes it an error.
"""

try:
    import torch
except ImportError as error:
    raise ImportError("isentropic.torch needs PyTorch: pip install torch") from error

import isentropic.torch._generated as _generated
from isentropic.torch import _duality, _entropy_control, _loss_modules, _transport, _wasserstein
from isentropic.torch._attention import Attention, LinearAttention, attention, linear_attention, scaled_dot_product_attention
from isentropic.torch._generated import *  # noqa: F403
from isentropic.torch._linear_loss import linear_loss
from isentropic.torch._ratio_map import ratio_map
from isentropic.torch._sampling import gumbel_softmax
from isentropic.torch._token_statistics import TokenStatistics, token_statistics

for _name in _generated.__all__:
    getattr(_generated, _name).__module__ = "isentropic.torch"

_modules = (_entropy_control, _loss_modules, _transport, _wasserstein, _duality)
_written = {one.__name__: one for module in _modules for one in module.PUBLIC}
globals().update(_written)

__all__ = [
    "Attention",
    "LinearAttention",
    "TokenStatistics",
    "attention",
    "gumbel_softmax",
    "linear_attention",
    "linear_loss",
    "ratio_map",
    "scaled_dot_product_attention",
    "token_statistics",
    *_generated.__all__,
    *_written,
]
for _name in __all__:
    if not isinstance(globals()[_name], type):
        torch.fx.wrap(_name)  # torch.fx keeps calls of it, by this module, as they are
del torch
