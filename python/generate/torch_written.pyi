# The types of hand-written functions and classes: the beginning of the stubs of isentropic.torch.
from collections.abc import Callable, Iterable
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

def gumbel_softmax(
    x: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    hard: bool = False,
    seed: int,
    stream: int | Tensor = 0,
    dim: int | None = None,
    axis: int | None = None,
) -> Tensor: ...
def power_transform(p: Tensor, *, gamma: float | Tensor, dim: int | None = None, axis: int | None = None) -> Tensor: ...
def mean_field_entropy(
    x: Tensor, *, gamma: float | Tensor = 1.0, dim: int | None = None, axis: int | None = None
) -> Tensor: ...
def gamma_for_entropy(
    x: Tensor,
    *,
    entropy: float | Tensor | None = None,
    perplexity: float | Tensor | None = None,
    gamma_range: tuple[float, float] = ...,
    max_iterations: int = 100,
    input: Literal["scores", "probs", "log_probs"] = "scores",
    dim: int | None = None,
    axis: int | None = None,
) -> GammaResult: ...
def normalize_density(
    p: Tensor, weights: Tensor, *, entropy: float | Tensor, dim: int | None = None, axis: int | None = None
) -> tuple[Tensor, Tensor]: ...
def normalize_joint(
    pxy: Tensor,
    *,
    joint: float | Tensor | None = None,
    marginal: float | Tensor | None = None,
    conditional: float | Tensor | None = None,
) -> Tensor: ...
def ratio_map(x: Tensor, f: Callable[[Tensor], Tensor], *, dim: int | None = None, axis: int | None = None) -> Tensor: ...
def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    loss: str = "softmax_loss",
    bias: Tensor | None = None,
    reduction: str = "mean",
    sample_weight: Tensor | None = None,
    z_loss: float = 0.0,
    **params: Any,
) -> Tensor: ...

class TokenStatistics(NamedTuple):
    logprob: Tensor
    entropy: Tensor
    max_probability: Tensor
    top_indices: Tensor | None

def token_statistics(
    logits: Tensor,
    target: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    top: int = 0,
    dim: int | None = None,
    axis: int | None = None,
) -> TokenStatistics: ...

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

_MapName = str | tuple[str, dict[str, Any]]

@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    map: _MapName = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | float | Tensor = "sqrt",
    causal: bool = False,
    mask: Tensor | None = None,
    train_length: float = 512,
    kappa: float | None = None,
    return_weights: Literal[False] = False,
    return_entropy: Literal[False] = False,
    **map_params: Any,
) -> Tensor: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    map: _MapName = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | float | Tensor = "sqrt",
    causal: bool = False,
    mask: Tensor | None = None,
    train_length: float = 512,
    kappa: float | None = None,
    return_weights: Literal[True],
    return_entropy: bool = False,
    **map_params: Any,
) -> tuple[Tensor, ...]: ...
@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    map: _MapName = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | float | Tensor = "sqrt",
    causal: bool = False,
    mask: Tensor | None = None,
    train_length: float = 512,
    kappa: float | None = None,
    return_weights: Literal[False] = False,
    return_entropy: Literal[True],
    **map_params: Any,
) -> tuple[Tensor, Tensor]: ...
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Literal["sqrt", "entropy_invariant"] | float | Tensor | None = None,
    enable_gqa: bool = False,
    *,
    map: _MapName = "softmax",
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    train_length: float = 512,
    kappa: float | None = None,
    **map_params: Any,
) -> Tensor: ...
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: Literal["sqrt"] | float | Tensor = "sqrt"
) -> Tensor: ...

class Attention(nn.Module):
    def __init__(
        self,
        map: _MapName = "softmax",
        scale: Literal["sqrt", "entropy_invariant"] | float | Tensor = "sqrt",
        causal: bool = False,
        train_length: float = 512,
        kappa: float | None = None,
        **map_params: Any,
    ) -> None: ...
    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        return_weights: bool = False,
        return_entropy: bool = False,
    ) -> Any: ...

class LinearAttention(nn.Module):
    def __init__(self, causal: bool = False, scale: Literal["sqrt"] | float | Tensor = "sqrt") -> None: ...
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...

class SurrogateLoss(_Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        map: _MapName = "softmax",
        ignore_index: int = -100,
        reduction: str = "mean",
        dim: int = -1,
        dtype: torch.dtype | None = None,
        **params: Any,
    ) -> None: ...

class SmoothAccuracyLoss(SurrogateLoss): ...

class _MarginLoss(_Loss):
    margin: float | Tensor
    scale: float | Tensor
    classes: nn.Parameter
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float | Tensor | None = None,
        scale: float | Tensor = 30.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...
    def reset_parameters(self) -> None: ...
    def cosines(self, x: Tensor) -> Tensor: ...

class AMSoftmaxLoss(_MarginLoss): ...
class ArcFaceLoss(_MarginLoss): ...
class SphereFaceLoss(_MarginLoss): ...

def wasserstein_1d(
    u: Tensor,
    v: Tensor,
    *,
    u_weights: Tensor | None = None,
    v_weights: Tensor | None = None,
    order: float = 1.0,
    dim: int | None = None,
    axis: int | None = None,
) -> Tensor: ...
def wasserstein_histogram(
    p: Tensor,
    q: Tensor,
    *,
    support: Tensor | None = None,
    order: float = 1.0,
    dim: int | None = None,
    axis: int | None = None,
) -> Tensor: ...
def wasserstein(x: Tensor, y: Tensor, *, order: float = 1.0, a: Tensor | None = None, b: Tensor | None = None) -> Tensor: ...
def optimal_transport(a: Tensor, b: Tensor, cost: Tensor, *, mass_tolerance: float | None = None) -> TransportResult: ...
def sinkhorn(
    a: Tensor,
    b: Tensor,
    cost: Tensor,
    *,
    epsilon: float,
    tolerance: float = 1e-6,
    max_iterations: int = 10000,
    mass_tolerance: float | None = None,
) -> SinkhornResult: ...
def sinkhorn_divergence(
    x: Tensor,
    y: Tensor,
    *,
    epsilon: float | Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    order: float = 2,
    tolerance: float = 1e-9,
    max_iterations: int = 10000,
) -> Tensor: ...
def sliced_wasserstein(
    x: Tensor,
    y: Tensor,
    *,
    order: float = 2.0,
    a: Tensor | None = None,
    b: Tensor | None = None,
    projections: Any = 100,
    seed: int = 0,
) -> SlicedResult: ...
def partial_transport(a: Tensor, b: Tensor, cost: Tensor, *, mass: float) -> PartialResult: ...
def unbalanced_sinkhorn(
    a: Tensor,
    b: Tensor,
    cost: Tensor,
    *,
    epsilon: float,
    penalty: float,
    tolerance: float = 1e-9,
    max_iterations: int = 10000,
) -> UnbalancedResult: ...
def sinkhorn_barycenter(
    p: Tensor,
    cost: Tensor,
    *,
    epsilon: float,
    weights: Tensor | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 10000,
) -> BarycenterResult: ...
def c_transform(f: Tensor, cost: Tensor) -> Tensor: ...
def dual_value(f: Tensor, g: Tensor, a: Tensor, b: Tensor) -> Tensor: ...
def lipschitz_constant(f: Tensor, distance: Tensor) -> Tensor: ...
def wgan_critic_loss(critic_real: Tensor, critic_fake: Tensor) -> Tensor: ...
def clip_weights(parameters: nn.Module | Tensor | Iterable[Tensor], bound: float = 0.01) -> None: ...
def gradient_penalty(
    critic: Callable[[Tensor], Tensor],
    real: Tensor,
    fake: Tensor,
    *,
    target: float = 1.0,
    one_sided: bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
