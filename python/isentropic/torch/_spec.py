"""The description of an operator, from which _builder makes torch.ops.isentropic.NAME with all rules that torch needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from isentropic._descriptions import documented

Tensor = torch.Tensor

# The types that operators take, with _core's numbers for them.
CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
HALVES = (torch.float16, torch.bfloat16)

# The operators by name, each from when _builder has made it: for those that call others.
OPERATORS: dict[str, Any] = {}


class Call(NamedTuple):
    """A call of an operator, as its derivatives see it."""

    tensors: tuple  # its tensors, None if not given or not kept
    params: tuple
    outputs: tuple  # its results, None if not kept
    owned: bool = False  # whether only the derivatives have the results


@dataclass(frozen=True, kw_only=True)
class OpSpec:
    """``torch.ops.isentropic.NAME(tensors..., params...) -> outputs``.

    Parameters
    ----------
    name : str
    tensors : sequence of str
        Names of the tensor arguments; "b?" may be None.
    params : mapping of str to str
        The other arguments in their order, with their types in torch's schemas. An int "dim" counts an axis from 0.
    outputs : sequence of str
        The results, all tensors. What is not there (a gradient in what was not given) is a tensor of shape (0,).
    shapes : callable
        ``shapes(*arguments)``: empty results.
    differentiable : sequence of str
        The tensors in which there is a derivative.
    keeps : sequence of str
        The tensors and outputs that the derivative reads.
    derivative : "operator", "outputs", "reference" or callable
        Where J^T g comes from. "operator": ``NAME_vjp(kept..., g..., params...)``, an operator itself. "outputs": all outputs
        but the first are gradients of that one, in the order of `differentiable`, where the last parameter, a bool, asks for
        them. "reference": torch differentiates the reference. Otherwise ``derivative(call, grads)``, of operations that torch
        differentiates, where grads may hold None: one gradient, or None, for each of `differentiable`.
    symmetric : callable
        ``symmetric(*params)``: whether the Jacobian in the first tensor is its own transpose, so that J t is J^T t.
    nearby : callable
        ``nearby(call)``: for "reference", what torch differentiates in its place: the outputs in `moving`, as a function of
        tensors around those of a call whose outputs are known.
    moving : sequence of int
        The outputs that have a derivative; by default all.
    once : bool
        Whether that derivative cannot be differentiated.
    nothing : float
        For a map whose derivative in the first tensor is a function of the result: the result of an entry without mass, 0 or
        -inf. For backward it keeps the result, and only the largest number of each row of the first tensor. Other maps have
        None.
    """

    name: str
    tensors: tuple[str, ...]
    params: Mapping[str, str]
    outputs: tuple[str, ...]
    shapes: Callable[..., Any]
    differentiable: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    derivative: str | Callable[..., Any] = "reference"
    symmetric: Callable[..., bool] = lambda *params: False
    nearby: Callable[[Call], Any] | None = None
    moving: tuple[int, ...] | None = None
    once: bool = False
    nothing: float | None = None

    @property
    def names(self):
        """The tensors' names."""
        return tuple(name.removesuffix("?") for name in self.tensors)

    @property
    def schema(self):
        tensors = (f"Tensor{'?' * name.endswith('?')} {name.removesuffix('?')}" for name in self.tensors)
        arguments = [*tensors, *(f"{kind} {name}" for name, kind in self.params.items())]
        outputs = ", ".join(["Tensor"] * len(self.outputs))
        return f"{self.name}({', '.join(arguments)}) -> {outputs if len(self.outputs) == 1 else f'({outputs})'}"


def result_type(x):
    """The type of numbers calculated from tensors of x's type: at least float32."""
    return torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype


def working(x):
    """x in the type of the computation."""
    return x.to(result_type(x))


def absent(x):
    """Stands for an absent result."""
    return x.new_empty(0)


@documented
class TokenStatistics(NamedTuple):
    """The result of token_statistics: one number for each row, the indices of the largest logits, and the log-probabilities of
    these; both are None where they were not asked for."""

    logprob: torch.Tensor
    entropy: torch.Tensor
    max_probability: torch.Tensor
    top_indices: torch.Tensor | None
    top_logprobs: torch.Tensor | None = None
