from collections.abc import Sequence
from typing import Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "TemperatureClampedWarning",
    "entropy_invariant_scale",
    "expected_calibration_error",
    "fit_target_entropy",
    "fit_temperature",
    "match_entropy",
]

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

_Array = TypeVar("_Array", bound=_DLPack)
_Integers: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_]
_Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
_Lists: TypeAlias = Sequence[_Number | _Lists]
_Labels: TypeAlias = _DLPack | _Lists | int

class TemperatureClampedWarning(UserWarning): ...

def fit_temperature(x: _DLPack | _Lists, labels: _Labels) -> float: ...
def fit_target_entropy(x: _DLPack | _Lists, labels: _Labels) -> float: ...
def match_entropy(x_reference: _DLPack | _Lists) -> float: ...
def expected_calibration_error(
    p: _DLPack | _Lists, labels: _Labels, *, bins: SupportsIndex = 15, strategy: Literal["uniform", "quantile"] = "uniform"
) -> float: ...
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
    def fit(self, X: Any, y: Any) -> TemperatureScaler: ...
    def transform(self, X: Any) -> NDArray[Any]: ...

class EntropyScaler(_Scaler):
    entropy_: float
    def fit(self, X: Any, y: Any) -> EntropyScaler: ...
    def transform(self, X: Any) -> NDArray[Any]: ...
