from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor", "attention", "learn", "sampling"]

def attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Any = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **further: Any,
) -> tuple[Any, Any]: ...
def learn(
    model: Any,
    *,
    map: str | tuple[str, dict[str, Any]] = "softmax",
    scale: str | float | None = None,
    kappa: float | None = None,
    train_length: int | None = None,
    layers: Sequence[int] | None = None,
    **params: Any,
) -> list[Any]: ...

class SamplerLogitsProcessor:
    supports_continuous_batching: bool | None
    def __init__(
        self,
        steps: Sequence[tuple[str, Any]],
        *,
        seed: int | None = None,
        stream: Any = None,
        attention_mask: Any = None,
        pad_token_id: int | None = None,
        generator: Any = None,
    ) -> None: ...
    def __call__(self, input_ids: Any, scores: Any) -> Any: ...

class EntropyLogitsProcessor(SamplerLogitsProcessor):
    def __init__(
        self,
        entropy: float | Sequence[float] | Callable[[int], Any] | Any = None,
        *,
        perplexity: float | None = None,
        seed: int | None = None,
        stream: Any = None,
        attention_mask: Any = None,
        pad_token_id: int | None = None,
        generator: Any = None,
    ) -> None: ...

def sampling(
    steps: Sequence[tuple[str, Any]],
    *,
    seed: int | None = None,
    stream: Any = None,
    attention_mask: Any = None,
    pad_token_id: int | None = None,
) -> dict[str, Any]: ...
