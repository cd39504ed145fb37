"""entropic's operations on torch tensors: differentiable functions and modules.

Every function is ``entropic.torch.NAME(x, *, parameters, dim=-1)``, of ``torch.float32``, ``float64``, ``float16`` or
``bfloat16`` tensors of any strides; ``axis`` may stand for ``dim``. Parameters that ``entropic`` takes per row may be tensors
that broadcast with x and have size 1 along dim, and have gradients. Works under ``torch.compile``, ``torch.func.grad``,
``vmap`` and ``jacrev``, and with double backward; not under forward-mode differentiation. On the CPU the library's kernels
run, on other devices an equivalent composition of torch's operations.
"""

try:
    import torch
except ImportError as error:
    raise ImportError("entropic.torch needs PyTorch: pip install torch") from error

from entropic import _core
from entropic.torch import _entropy_control, _functions, _loss_modules, _losses, _measures, _modules, _sampling, _transport
from entropic.torch._attention import Attention, LinearAttention, attention, linear_attention
from entropic.torch._ratio_map import ratio_map

functions = _functions.build(_core.operations())
modules = _modules.build(_core.operations(), functions)
functions |= _losses.FUNCTIONS
modules |= _loss_modules.build()
functions |= _measures.functions
functions |= {one.__name__: one for one in _entropy_control.PUBLIC}
globals().update(functions)
globals().update(modules)
gumbel_softmax = _sampling.gumbel_softmax
transport = {one.__name__: one for one in _transport.PUBLIC}
globals().update(transport)

__all__ = [
    "Attention",
    "LinearAttention",
    "attention",
    "gumbel_softmax",
    "linear_attention",
    "ratio_map",
    *functions,
    *modules,
    *transport,
]
del functions, modules, torch, transport
