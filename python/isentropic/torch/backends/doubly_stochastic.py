"""Doubly stochastic tables: by the library's kernels, and in torch's operations."""

import functools

import torch

import isentropic
from isentropic import _threads
from isentropic.formulas import doubly_stochastic as formulas
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import working


def _by_kernels(run, *arguments):
    """run(arrays, the parameters), one of the functions of NumPy arrays."""
    _threads.follow(torch.get_num_threads())
    tensors, (temperature, iterations, tolerance) = arguments[:-3], arguments[-3:]
    given = [working(x).detach().resolve_neg().cpu().numpy() for x in tensors]
    found = run(*given, temperature=temperature, iterations=iterations or None, tolerance=tolerance)
    return torch.from_numpy(found).to(tensors[0])


_tables = functools.partial(_by_kernels, isentropic.doubly_stochastic)


def _composed(x, temperature, iterations, tolerance):
    if iterations == 0:  # the search for the limit and for what it can use is the library's
        return _tables(x, temperature, iterations, tolerance)
    z, good = formulas.prepared(ROWS, x.double(), temperature)
    potentials = formulas.start(ROWS, z)
    for _ in range(iterations):
        potentials = formulas.sweep(ROWS, z, potentials)
    return formulas.result(ROWS, z, good, potentials).to(x.dtype)


def _composed_vjp(x, y, grad, temperature, iterations, tolerance):
    if x.numel() == 0:
        return torch.zeros_like(x)
    if iterations == 0:
        return formulas.of_limit(ROWS, y.double(), grad.double(), temperature).to(x.dtype)
    z, good = formulas.prepared(ROWS, x.double(), temperature)
    return formulas.of_sweeps(ROWS, z, good, grad.double(), temperature, iterations).to(x.dtype)


IMPLEMENTATIONS = {
    "doubly_stochastic": _tables,
    "doubly_stochastic_vjp": functools.partial(_by_kernels, isentropic.doubly_stochastic_vjp),
}
REFERENCE = {"doubly_stochastic": _composed, "doubly_stochastic_vjp": _composed_vjp}
