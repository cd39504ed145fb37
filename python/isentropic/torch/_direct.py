"""The direct way: a call of plain tensors by the kernel, past the operator, with what autograd needs of it.

It is taken where no compiler, transform, mode or tangent would see the operator; an operator costs 20 to 100 us before any
arithmetic. Everything is as the operator has it, to which the second derivatives go too.
"""

import torch

from isentropic.torch._builder import is_alone
from isentropic.torch._compat import (
    dispatch_modes,
    forward_ad,
    function_modes,
    has_memory,
    in_transform,
    is_nowhere,
    tracing,
)

Tensor = torch.Tensor
_STRIDED = torch.strided
_grad_enabled = torch.is_grad_enabled
_is_traced = torch.compiler.is_dynamo_compiling  # faster than is_compiling; other tracers pass tensors that are not plain


def is_plain(*tensors):
    """Whether a call of these, which may be of any kind, may be direct: nothing would see the operator, and their numbers are
    in this machine's memory."""
    if (
        _is_traced()
        or in_transform()
        or dispatch_modes()
        or function_modes()
        or forward_ad._current_level >= 0
        or tracing() is not None
    ):
        return False
    for one in tensors:
        if type(one) is not Tensor or not one.is_cpu or one.layout is not _STRIDED or one.is_nested or one.is_neg():
            return False
        if is_nowhere(one):
            return False
    return True


class _Tracked(torch.autograd.Function):
    """A direct call with its gradient. A rule has

    - ``forward(call, tensors)``: (the result, the tensors that the gradient reads),
    - ``backward(call, kept, grad)``: the gradients in the tensors, by the kernel,
    - ``again(call, kept, grad)``: the same by the operator, which can be differentiated.
    """

    @staticmethod
    def forward(ctx, rule, call, *tensors):
        result, kept = rule.forward(call, tensors)
        ctx.save_for_backward(*kept)
        ctx.given = rule, call
        return result

    @staticmethod
    def backward(ctx, grad):
        rule, call = ctx.given
        kept = ctx.saved_tensors  # read only once: with checkpointing every access unpacks the tensors
        alone = not _grad_enabled() and is_alone(grad) and has_memory(grad)
        return None, None, *(rule.backward if alone else rule.again)(call, kept, grad)


tracked = _Tracked.apply
