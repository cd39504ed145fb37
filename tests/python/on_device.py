"""Tensors that say that they are on a GPU, for tests on machines without one: their numbers are in this machine's memory.

Python code sees the device cuda:0, so it takes the same way as for CUDA tensors; torch's autograd sees the CPU. Every operation
of torch on them is refused if it would wait for a GPU, such as reading a number, or if it mixes devices. Operators of
isentropic run by their implementations for CUDA.
"""

import contextlib
import os
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import isentropic
from isentropic import _cuda
from isentropic.torch import backends
from isentropic.torch.backends import cpu, cuda

CUDA = torch.device("cuda", 0)

ROOT = Path(__file__).resolve().parents[2]
BUILT = sorted(ROOT.glob("build/*/tests/libisentropic_cuda_emulated.so"), key=os.path.getmtime)
LIBRARY = os.environ.get(_cuda.VARIABLE) or (str(BUILT[-1]) if BUILT else None)
NEEDS = [
    pytest.mark.skipif(LIBRARY is None, reason="the emulated library is not built: cmake --build ... isentropic_cuda_emulated"),
    pytest.mark.skipif(isentropic.simd_target() in ("SSE4", "SSE2", "EMU128", "SCALAR"), reason="bits are those of FMA"),
]


def use_kernels(monkeypatch):
    """The implementations for CUDA with the kernels of the emulated library."""
    monkeypatch.setenv(_cuda.VARIABLE, LIBRARY)
    _cuda.library.cache_clear()
    kernels = cuda.implementations({**cpu.IMPLEMENTATIONS, **backends.reference.IMPLEMENTATIONS})
    monkeypatch.setitem(backends.PLACES, "CUDA", backends.PLACES["CUDA"] | kernels)
    monkeypatch.setattr(backends, "_said", set())


# Operations whose result the host waits for, or whose result has a shape that depends on numbers.
WAITING = (
    "aten::_local_scalar_dense",
    "aten::item",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::equal",
    "aten::allclose",
    "aten::masked_select",
    "aten::unique",
    "aten::_unique",
    "aten::_linalg_check_errors",
    "aten::repeat_interleave.Tensor",
    "aten::bincount",
)


def refuse_waiting(func, args, kwargs):
    name = func.name()
    assert not name.startswith(WAITING), f"{name} waits for the device"
    if name.startswith(("aten::index", "aten::_index_put")) and len(args) > 1 and isinstance(args[1], (list, tuple)):
        masks = [x for x in args[1] if isinstance(x, torch.Tensor) and x.dtype in (torch.bool, torch.uint8)]
        assert not masks, f"{name} by a mask waits for the device"


class NoWaiting(TorchDispatchMode):
    """Refuses the same of plain tensors: those that an implementation works on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        refuse_waiting(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class OnDevice(torch.Tensor):
    """A tensor of this kind over a plain tensor, `inner`."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def cpu(self, *_, **__):
        raise AssertionError("a copy to the CPU waits for the device")

    numpy = tolist = __array__ = cpu

    def to(self, *args, **kwargs):
        to = [x for x in (*args, *kwargs.values()) if isinstance(x, (torch.device, str))]
        if any(str(x).startswith("cpu") for x in to):
            self.cpu()
        if to:
            args = tuple(x for x in args if not isinstance(x, (torch.device, str)))
            kwargs = {key: x for key, x in kwargs.items() if key != "device"}
        return super().to(*args, **kwargs) if args or kwargs else self

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device="cpu")
        made.inner = inner.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        refuse_waiting(func, args, kwargs)
        name = func.name()
        if kwargs.get("device") is not None:
            kwargs = kwargs | {"device": torch.device("cpu")}
        inner = tree_map(lambda x: cls._inner(name, x), args), tree_map(lambda x: cls._inner(name, x), kwargs)
        if func.namespace == "isentropic":
            run = backends.implementations(func._schema.name.removeprefix("isentropic::"))["CUDA"]
            with NoWaiting():
                results = run(*inner[0], **inner[1])
        else:
            results = func(*inner[0], **inner[1])
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) and not isinstance(x, cls) else x, results)

    @classmethod
    def _inner(cls, name, x):
        if isinstance(x, cls):
            return x.inner
        if isinstance(x, torch.Tensor):
            # Autograd, which sees the CPU, makes zeros there.
            fits = x.dim() == 0 or name.startswith(("aten::copy_", "aten::index")) or torch._C._current_graph_task_id() != -1
            assert fits, f"{name} mixes devices"
        return x

    def __repr__(self):
        return f"OnDevice({self.inner})"


class Factories(TorchFunctionMode):
    """Makes tensors for the device cuda:0 of this kind."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], OnDevice):
            return OnDevice(args[0].to(args[1].dtype))
        to = [x for x in (*args, kwargs.get("device")) if isinstance(x, (torch.device, str)) and str(x).startswith("cuda")]
        if not to:
            return func(*args, **kwargs)

        def host(x):
            return torch.device("cpu") if isinstance(x, (torch.device, str)) and str(x).startswith("cuda") else x

        result = func(*map(host, args), **{key: host(value) for key, value in kwargs.items()})
        return OnDevice(result) if type(result) is torch.Tensor else result


@contextlib.contextmanager
def device():
    """Where tensors can be made for, and moved to, the device cuda:0."""
    with Factories():
        yield


def to_device(x, requires_grad=False):
    return OnDevice(x).requires_grad_(requires_grad)


def to_host(x):
    return x.inner if isinstance(x, OnDevice) else x
