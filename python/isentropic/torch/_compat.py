"""All uses of torch beyond its public interface, so that only this file depends on torch's version."""

import contextlib

import torch
from torch._functorch import pyfunctorch
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode  # noqa: F401
from torch.fx.experimental.symbolic_shapes import guard_scalar

in_transform = torch._C._are_functorch_transforms_active  # whether torch.func is active
dispatch_modes = torch._C._len_torch_dispatch_stack
function_modes = torch._C._len_torch_function_stack
tracing = torch._C._get_tracing_state  # None unless torch.jit.trace is active
is_nowhere = torch.Tensor._is_zerotensor  # whether it is zeros without memory, as torch makes for what has no tangent
_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def alive(tensors):
    """Tensors, or None, without the wrappers of transforms that are over: saved ones keep theirs."""
    return tuple(x if x is None else torch._C._functorch.unwrap_if_dead(x) for x in tensors)


def in_forward_mode():
    """Whether tensors may carry tangents (torch.autograd.forward_ad)."""
    return forward_ad._current_level >= 0


def pushing_further():
    """Turns forward mode on in the jvp of a Function, for the transforms around it: torch calls it with forward mode off."""
    return forward_ad._set_fwd_grad_enabled(True) if in_transform() else contextlib.nullcontext()


def primals(tensors):
    """Tensors, or None, without the tangents of the innermost forward mode."""
    return tuple(x if x is None else forward_ad.unpack_dual(x).primal for x in tensors)


def in_reverse_transform():
    """Whether torch.func takes a gradient, and not only maps or pushes forward."""
    return any(one.key() == torch._C._functorch.TransformType.Grad for one in torch._C._functorch.get_interpreter_stack() or ())


def is_dtensor(x):
    """Whether it is a DTensor; the class exists once torch.distributed's meshes are imported."""
    return type(x).__name__ == "DTensor"


def has_memory(x):
    """Whether it has its own numbers in this machine's memory, and does not stand for other tensors, as under vmap."""
    return torch._C._dispatch_keys(x).has(torch._C.DispatchKey.CPU) and not is_nowhere(x)


def never_again(grad):
    """Whether the saved tensors of the node whose backward runs are freed after it. False for tensors that stand for others, as
    under vmap."""
    plain = has_memory(grad) and not in_transform() and not in_forward_mode()
    return plain and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or _graph_is_kept())


def without_autocast(x):
    """Turns autocast off for x's device; for a tensor that is only a shape there is none."""
    device = x.device.type
    return contextlib.nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def constants(values):
    """Numbers in lists and dicts, of which a compiler with dynamic=True knows only that they are numbers, become the ones that
    they are; the compiled code is for these alone."""
    if isinstance(values, dict):
        return {name: constants(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [constants(value) for value in values]
    return guard_scalar(values) if isinstance(values, (int, float)) else values


def carries_tangent(x):
    """Whether it carries a tangent: of torch.autograd.forward_ad, or of a transform around the innermost one."""
    if not in_transform():
        return in_forward_mode() and forward_ad.unpack_dual(x).tangent is not None
    innermost = pyfunctorch.retrieve_current_functorch_interpreter().level()
    return any(level < innermost for level in _levels_with_tangent(x))


def _levels_with_tangent(x):
    """The levels of the transforms in which it has a tangent. Each is asked as if it were the innermost: also a tensor that has
    been detached, or made by such a transform, is wrapped by it."""
    levels = []
    with contextlib.ExitStack() as outside:
        while in_transform():
            innermost = pyfunctorch.retrieve_current_functorch_interpreter()
            if innermost.key() == torch._C._functorch.TransformType.Jvp and forward_ad.unpack_dual(x).tangent is not None:
                levels.append(innermost.level())
            if torch._C._functorch.maybe_get_level(x) == innermost.level():
                x = torch._C._functorch.get_unwrapped(x)
            outside.enter_context(pyfunctorch.temporarily_pop_interpreter_stack())
    return levels


def is_differentiated(x):
    """Whether a derivative in a tensor may be asked for: it requires a gradient or carries a tangent, in any transform."""
    if not (x.is_floating_point() or x.is_complex()):
        return False
    if torch.compiler.is_compiling():
        return x.requires_grad
    if in_forward_mode():
        if in_transform() and _levels_with_tangent(x):
            return True
        if not in_transform() and forward_ad.unpack_dual(x).tangent is not None:
            return True
    while torch._C._functorch.is_functorch_wrapped_tensor(x) and not x.requires_grad:
        x = torch._C._functorch.get_unwrapped(x)
    return x.requires_grad


def stands_for_several(x):
    """Whether vmap maps over it, so that it is not one number."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        if torch._C._functorch.is_batchedtensor(x):
            return True
        x = torch._C._functorch.get_unwrapped(x)
    return False


def can_be_read(x):
    """Whether Python may decide by its numbers: they are in this machine's memory, and no program is made of the operations."""
    if torch.compiler.is_compiling() or tracing() is not None or dispatch_modes() or stands_for_several(x):
        return False
    return x.is_cpu and not is_fake(x)
