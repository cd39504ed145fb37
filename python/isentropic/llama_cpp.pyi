from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["logits_processor"]

class logits_processor:
    def __init__(self, steps: Sequence[tuple[str, Any]], *, seed: int | None = None, stream: int | None = None) -> None: ...
    def __call__(self, input_ids: NDArray[np.intc], scores: NDArray[np.single]) -> NDArray[np.single]: ...
