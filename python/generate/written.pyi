# The beginning of the package's stubs: what those of the sources need, and what is imported from elsewhere.
# ruff: noqa: F401
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from isentropic._numpy._files import Table as _Table
from isentropic.batch import BatchMap as BatchMap
from isentropic.calibration import ReliabilityBins as ReliabilityBins
from isentropic.calibration import TemperatureClampedWarning as TemperatureClampedWarning
from isentropic.calibration import VectorScaling as VectorScaling
from isentropic.calibration import brier_score as brier_score
from isentropic.calibration import entropy_invariant_scale as entropy_invariant_scale
from isentropic.calibration import expected_calibration_error as expected_calibration_error
from isentropic.calibration import fit_target_entropy as fit_target_entropy
from isentropic.calibration import fit_temperature as fit_temperature
from isentropic.calibration import fit_vector_scaling as fit_vector_scaling
from isentropic.calibration import match_entropy as match_entropy
from isentropic.calibration import reliability_bins as reliability_bins
from isentropic.calibration import reliability_diagram as reliability_diagram

__all__: list[str]
__version__: str

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

# Arrays of integers become float64, every other array keeps its kind and dtype.
_Array = TypeVar("_Array", bound=_DLPack)
_Integers: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_]
_Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
_Lists: TypeAlias = Sequence[_Number | _Lists]
_Target: TypeAlias = SupportsFloat | _DLPack | _Lists
_Map: TypeAlias = str | tuple[str, dict[str, Any]]
_Step: TypeAlias = (
    tuple[Literal["top_k"], SupportsIndex]
    | tuple[
        Literal["temperature", "top_p", "min_p", "typical_p", "entropy", "epsilon", "eta", "top_n_sigma", "top_h"],
        SupportsFloat,
    ]
    | tuple[Literal["entropy_clip"], tuple[SupportsFloat | None, SupportsFloat | None]]
    | tuple[Literal["xtc", "mirostat"], tuple[SupportsFloat, SupportsFloat]]
    | tuple[Literal["penalties", "dry"], dict[str, Any]]
    | tuple[Literal["p_less"], None]
)

def simd_targets() -> list[str]: ...
def simd_target() -> str: ...
def force_simd_target(name: str) -> None: ...
def set_num_threads(n: SupportsIndex) -> None: ...
def get_num_threads() -> int: ...
