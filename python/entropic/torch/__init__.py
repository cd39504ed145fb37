"""entropic's operations on torch tensors: differentiable functions and modules.

Every function is ``entropic.torch.NAME(x, *, parameters, dim=-1)``, of ``torch.float32``, ``float64``, ``float16`` or
``bfloat16`` tensors of any strides; ``axis`` may stand for ``dim``. Parameters that ``entropic`` takes per row may be tensors
that broadcast with x and have size 1 along dim, and have gradients. Works under ``torch.compile`` and ``torch.func`` (``grad``,
``vmap``, ``jacrev``, ``jvp``, ``hessian``, ``linearize``), with double backward and in forward mode. On the CPU the library's
kernels run, on other devices an equivalent composition of torch's operations, which a warning says once; ENTROPIC_STRICT=1 in
the environment makes it an error.
"""

try:
    import torch
except ImportError as error:
    raise ImportError("entropic.torch needs PyTorch: pip install entropic[torch]") from error

from entropic.torch import (
    _descriptions,
    _entropy_control,
    _loss_modules,
    _losses,
    _maps,
    _measures,
    _modules,
    _sampling,
    _transport,
)
from entropic.torch._attention import Attention, LinearAttention, attention, linear_attention
from entropic.torch._ratio_map import ratio_map

functions = dict(_maps.functions)
modules = _modules.build(_descriptions.MAPS.values(), functions)
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
