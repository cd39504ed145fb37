# The beginning of the stubs of isentropic.torch.
# ruff: noqa: F401
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Generator, Tensor, nn

from isentropic import (
    BarycenterResult,
    GammaResult,
    PartialResult,
    SinkhornResult,
    SlicedResult,
    TransportResult,
    UnbalancedResult,
)

__all__: list[str]

class _Map(nn.Module):
    def forward(self, x: Tensor) -> Tensor: ...
    def __call__(self, x: Tensor) -> Tensor: ...
    def extra_repr(self) -> str: ...

class _Loss(nn.Module):
    weight: Tensor | None
    ignore_index: int | None
    reduction: str
    dim: int
    z_loss: float
    def forward(self, x: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor: ...
    def __call__(self, x: Tensor, target: Tensor, sample_weight: Tensor | None = None) -> Tensor: ...
    def extra_repr(self) -> str: ...

class _TeacherLoss(_Loss):
    def forward(
        self, x: Tensor, target: Tensor, sample_weight: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor: ...
    def __call__(
        self, x: Tensor, target: Tensor, sample_weight: Tensor | None = None, labels: Tensor | None = None
    ) -> Tensor: ...

class _SparseTeacherLoss(nn.Module):  # a _TeacherLoss at run time, whose rows have no one target
    ignore_index: int | None
    reduction: str
    dim: int
    def __call__(
        self,
        student: Tensor,
        indices: Tensor,
        log_probs: Tensor,
        sample_weight: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor: ...
    def extra_repr(self) -> str: ...

_MapName = str | tuple[str, dict[str, Any]]
