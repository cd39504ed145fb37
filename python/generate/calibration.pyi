# The beginning of the stubs of isentropic.calibration, with scikit-learn's classes as far as its estimators show them.
# ruff: noqa: F401
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from isentropic import _Array, _DLPack, _Integers, _Lists, _Target

__all__: list[str]

class _Estimator:
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...

class _Classifier:
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

class _Transformer:
    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...

class _OneToOneFeature:
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]: ...
