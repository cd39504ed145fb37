from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ReliabilityBins",
    "TemperatureClampedWarning",
    "VectorScaling",
    "brier_score",
    "entropy_invariant_scale",
    "expected_calibration_error",
    "fit_target_entropy",
    "fit_temperature",
    "fit_vector_scaling",
    "match_entropy",
    "reliability_bins",
    "reliability_diagram",
]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Array = TypeVar("_Array", bound=_DLPack)
_Integers: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_]
_Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
_Lists: TypeAlias = Sequence[_Number | _Lists]
_Labels: TypeAlias = _DLPack | _Lists | int
_Rows: TypeAlias = _DLPack | _Lists | float

class TemperatureClampedWarning(UserWarning): ...

def fit_temperature(
    x: _DLPack | _Lists, labels: _Labels, *, sample_weight: _Rows | None = None, ignore_index: SupportsIndex | None = None
) -> float: ...
def fit_target_entropy(
    x: _DLPack | _Lists, labels: _Labels, *, sample_weight: _Rows | None = None, ignore_index: SupportsIndex | None = None
) -> float: ...
def match_entropy(x_reference: _DLPack | _Lists, *, sample_weight: _Rows | None = None) -> float: ...
def expected_calibration_error(
    p: _DLPack | _Lists,
    labels: _Labels,
    *,
    bins: SupportsIndex = 15,
    strategy: Literal["uniform", "quantile"] = "uniform",
    sample_weight: _Rows | None = None,
    ignore_index: SupportsIndex | None = None,
) -> float: ...

class ReliabilityBins(NamedTuple):
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    weight: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]

def reliability_bins(
    p: _DLPack | _Lists,
    labels: _Labels,
    *,
    bins: SupportsIndex = 15,
    strategy: Literal["uniform", "quantile"] = "uniform",
    sample_weight: _Rows | None = None,
    ignore_index: SupportsIndex | None = None,
) -> ReliabilityBins: ...
def reliability_diagram(
    p: _DLPack | _Lists,
    labels: _Labels,
    *,
    bins: SupportsIndex = 15,
    strategy: Literal["uniform", "quantile"] = "uniform",
    sample_weight: _Rows | None = None,
    ignore_index: SupportsIndex | None = None,
    ax: Any = None,
) -> Any: ...
def brier_score(
    p: _DLPack | _Lists, labels: _Labels, *, sample_weight: _Rows | None = None, ignore_index: SupportsIndex | None = None
) -> float: ...

class VectorScaling(NamedTuple):
    scale: NDArray[np.float64]
    bias: NDArray[np.float64]

def fit_vector_scaling(
    x: _DLPack | _Lists,
    labels: _Labels,
    *,
    ridge: SupportsFloat = 1e-6,
    sample_weight: _Rows | None = None,
    ignore_index: SupportsIndex | None = None,
) -> VectorScaling: ...
@overload
def entropy_invariant_scale(
    n: float, d: SupportsFloat, *, train_length: SupportsFloat = 512, kappa: SupportsFloat | None = None
) -> float: ...
@overload
def entropy_invariant_scale(
    n: _Integers | _Lists, d: SupportsFloat, *, train_length: SupportsFloat = 512, kappa: SupportsFloat | None = None
) -> NDArray[np.float64]: ...
@overload
def entropy_invariant_scale(
    n: _Array, d: SupportsFloat, *, train_length: SupportsFloat = 512, kappa: SupportsFloat | None = None
) -> _Array: ...

class _Scaler:
    classes: Any
    classes_: NDArray[Any]
    n_features_in_: int
    def __init__(self, *, classes: Any = None) -> None: ...
    def predict_proba(self, X: Any) -> NDArray[Any]: ...
    def predict(self, X: Any) -> NDArray[Any]: ...
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...

class TemperatureScaler(_Scaler):
    temperature_: float
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TemperatureScaler: ...
    def transform(self, X: Any) -> NDArray[Any]: ...

class VectorScaler(_Scaler):
    ridge: float
    scale_: NDArray[np.float64]
    bias_: NDArray[np.float64]
    def __init__(self, *, classes: Any = None, ridge: float = 1e-6) -> None: ...
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> VectorScaler: ...
    def transform(self, X: Any) -> NDArray[Any]: ...

class EntropyScaler(_Scaler):
    entropy_: float
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EntropyScaler: ...
    def transform(self, X: Any) -> NDArray[Any]: ...

class EntropyNormalizer:
    n_features_in_: int
    def __init__(
        self,
        *,
        perplexity: float = 2.0,
        entropy: float | None = None,
        input: Literal["scores", "probs", "log_probs"] = "scores",
    ) -> None: ...
    def fit(self, X: Any, y: Any = None) -> EntropyNormalizer: ...
    def transform(self, X: Any) -> Any: ...
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...
