from collections.abc import Sequence
from typing import Any

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor"]

class SamplerLogitsProcessor:
    supports_continuous_batching: bool | None
    def __init__(self, steps: Sequence[tuple[str, Any]], *, seed: int | None = None, stream: Any = 0) -> None: ...
    def __call__(self, input_ids: Any, scores: Any) -> Any: ...

class EntropyLogitsProcessor(SamplerLogitsProcessor):
    def __init__(
        self, entropy: float | None = None, *, perplexity: float | None = None, seed: int | None = None, stream: Any = 0
    ) -> None: ...
