"""The places where operators run: each has a table of implementations by the operator's name.

`cpu` is the library, `cuda` the library isentropic_cuda if it is found, `reference` consists of torch's own operations, for any
device. `tiles`, `linear_attention` and `device_transport` are for a device: its row kernels, and torch's operations between
them. A place without an implementation uses the reference's, or copies to the CPU if there is none, and warns once.
"""

import functools
import os
import warnings

import torch

from isentropic.torch._compat import without_autocast
from isentropic.torch.backends import (
    cpu,
    cuda,
    device_transport,
    doubly_stochastic,
    linear_attention,
    linear_loss,
    linear_token_statistics,
    reference,
    tiles,
    token_statistics,
)

_COMPOSITIONS = {**linear_loss.REFERENCE, **linear_token_statistics.REFERENCE, **doubly_stochastic.REFERENCE}
REFERENCE = {**reference.IMPLEMENTATIONS, **_COMPOSITIONS}
# The functions by which derivatives are differentiated again.
DIFFERENTIABLE = {**reference.DIFFERENTIABLE, **_COMPOSITIONS}
_IN_PARTS = {**linear_loss.IMPLEMENTATIONS, **linear_token_statistics.IMPLEMENTATIONS}
_EMPTY = {**cpu.IMPLEMENTATIONS, **REFERENCE}

# The dispatch keys of torch, each with its table. To add a device, add a module beside `cpu` and its table here.
PLACES = {
    "CPU": {
        **cpu.IMPLEMENTATIONS,
        **token_statistics.IMPLEMENTATIONS,
        **doubly_stochastic.IMPLEMENTATIONS,
        **_IN_PARTS,
        **linear_token_statistics.ON_CPU,
    },
    "CUDA": {**_IN_PARTS, **cuda.implementations(_EMPTY)},
}


def implementations(name):
    """The implementations of an operator at each place."""
    return {place: table.get(name) or _elsewhere(name, place) for place, table in PLACES.items()}


def _elsewhere(name, place):
    if name in REFERENCE:
        run, instead = REFERENCE[name], "a composition of torch's operations runs"
    else:
        run, instead = functools.partial(_on_host, cpu.IMPLEMENTATIONS[name]), "it runs on the CPU"
    if place == "CPU":
        return run
    return functools.partial(_instead, name, place, f"{instead} instead", run)


@functools.cache
def _on_cuda(name):
    return implementations(name)["CUDA"]


_COMPOSED = (
    tiles.attention,
    tiles.attention_vjp,
    tiles.attention_entropy,
    tiles.attention_entropy_vjp,
    linear_attention.linear_attention,
    linear_attention.linear_attention_vjp,
    device_transport.sinkhorn,
    device_transport.sinkhorn_minimum,
)


def _without_autocast(run):
    """run(implementations of maps, tensors...), whose products have the type of its tensors."""

    def running(*arguments):
        with without_autocast(arguments[0]):
            return run(_on_cuda, *arguments)

    return running


PLACES["CUDA"] |= {run.__name__: _without_autocast(run) for run in _COMPOSED}

_said: set[tuple[str, str]] = set()


def _instead(name, place, instead, run, *arguments):
    message = f"isentropic.torch: {name} has no kernel for {place}, {instead}"
    if place == "CUDA" and cuda.found() is None:
        message += "; the library isentropic_cuda is not found"
    if os.environ.get("ISENTROPIC_STRICT", "0") not in ("", "0"):
        raise RuntimeError(f"{message.replace(instead, 'and ISENTROPIC_STRICT allows nothing else')}")
    if (name, place) not in _said:
        _said.add((name, place))
        warnings.warn(f"{message} (ISENTROPIC_STRICT=1 makes this an error)", stacklevel=2)
    return run(*arguments)


def _on_host(run, *arguments):
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    results = run(*(x.cpu() if isinstance(x, torch.Tensor) else x for x in arguments))
    return tuple(x.to(device) for x in results) if isinstance(results, tuple) else results.to(device)
