# The types of hand-written functions and classes: the beginning of the package's stubs.
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from isentropic._numpy._files import read as read
from isentropic._numpy._files import write as write
from isentropic._numpy._further_transport import BarycenterResult as BarycenterResult
from isentropic._numpy._further_transport import PartialResult as PartialResult
from isentropic._numpy._further_transport import SlicedResult as SlicedResult
from isentropic._numpy._further_transport import UnbalancedResult as UnbalancedResult
from isentropic._numpy._further_transport import partial_transport as partial_transport
from isentropic._numpy._further_transport import sinkhorn_barycenter as sinkhorn_barycenter
from isentropic._numpy._further_transport import sliced_wasserstein as sliced_wasserstein
from isentropic._numpy._further_transport import unbalanced_sinkhorn as unbalanced_sinkhorn
from isentropic._numpy._transport import SinkhornResult as SinkhornResult
from isentropic._numpy._transport import TransportResult as TransportResult
from isentropic._numpy._transport import c_transform as c_transform
from isentropic._numpy._transport import dual_value as dual_value
from isentropic._numpy._transport import lipschitz_constant as lipschitz_constant
from isentropic._numpy._transport import optimal_transport as optimal_transport
from isentropic._numpy._transport import sinkhorn as sinkhorn
from isentropic._numpy._wasserstein import sinkhorn_divergence as sinkhorn_divergence
from isentropic._numpy._wasserstein import wasserstein as wasserstein
from isentropic._numpy._wasserstein import wasserstein_1d as wasserstein_1d
from isentropic._numpy._wasserstein import wasserstein_histogram as wasserstein_histogram
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

def simd_targets() -> list[str]: ...
def simd_target() -> str: ...
def force_simd_target(name: str) -> None: ...
def set_num_threads(n: SupportsIndex) -> None: ...
def get_num_threads() -> int: ...
def attention(
    q: _DLPack | _Lists,
    k: _DLPack | _Lists,
    v: _DLPack | _Lists,
    *,
    map: _Map = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | SupportsFloat = "sqrt",
    causal: bool = False,
    mask: Any = None,
    train_length: SupportsFloat = 512,
    kappa: SupportsFloat | None = None,
    return_weights: bool = False,
    return_entropy: bool = False,
    **map_params: Any,
) -> Any: ...
def attention_vjp(
    q: _DLPack | _Lists,
    k: _DLPack | _Lists,
    v: _DLPack | _Lists,
    grad: Any,
    *,
    map: _Map = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | SupportsFloat = "sqrt",
    causal: bool = False,
    mask: Any = None,
    train_length: SupportsFloat = 512,
    kappa: SupportsFloat | None = None,
    param_grad: bool = False,
    entropy_grad: Any = None,
    **map_params: Any,
) -> tuple[Any, ...]: ...
def linear_attention(
    q: _DLPack | _Lists,
    k: _DLPack | _Lists,
    v: _DLPack | _Lists,
    *,
    causal: bool = False,
    scale: Literal["sqrt"] | SupportsFloat = "sqrt",
) -> Any: ...
def linear_attention_vjp(
    q: _DLPack | _Lists,
    k: _DLPack | _Lists,
    v: _DLPack | _Lists,
    grad: Any,
    *,
    causal: bool = False,
    scale: Literal["sqrt"] | SupportsFloat = "sqrt",
) -> tuple[Any, Any, Any]: ...

_Step: TypeAlias = (
    tuple[Literal["top_k"], SupportsIndex]
    | tuple[Literal["temperature", "top_p", "min_p", "typical_p", "entropy"], SupportsFloat]
    | tuple[Literal["entropy_clip"], tuple[SupportsFloat | None, SupportsFloat | None]]
)

class Sampler:
    def __init__(self, steps: Sequence[_Step], *, seed: SupportsIndex = 0) -> None: ...
    @property
    def steps(self) -> tuple[_Step, ...]: ...
    @property
    def seed(self) -> int: ...
    @overload
    def probs(self, x: _Integers, *, axis: SupportsIndex = -1) -> NDArray[np.float64]: ...
    @overload
    def probs(self, x: _Array, *, axis: SupportsIndex = -1) -> _Array: ...
    @overload
    def probs(self, x: _Lists, *, axis: SupportsIndex = -1) -> NDArray[np.float64]: ...
    def sample(
        self,
        x: _DLPack | _Lists,
        *,
        size: SupportsIndex | None = None,
        stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
        position: SupportsIndex = 0,
        axis: SupportsIndex = -1,
    ) -> Any: ...

def sample(
    x: _DLPack | _Lists,
    *,
    size: SupportsIndex | None = None,
    temperature: SupportsFloat = 1.0,
    seed: SupportsIndex,
    stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
    position: SupportsIndex = 0,
    axis: SupportsIndex = -1,
) -> Any: ...
@overload
def gumbel_softmax(
    x: _Integers,
    *,
    temperature: SupportsFloat = 1.0,
    hard: bool = False,
    seed: SupportsIndex,
    stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
    axis: SupportsIndex = -1,
) -> NDArray[np.float64]: ...
@overload
def gumbel_softmax(
    x: _Array,
    *,
    temperature: SupportsFloat = 1.0,
    hard: bool = False,
    seed: SupportsIndex,
    stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
    axis: SupportsIndex = -1,
) -> _Array: ...
@overload
def gumbel_softmax(
    x: _Lists,
    *,
    temperature: SupportsFloat = 1.0,
    hard: bool = False,
    seed: SupportsIndex,
    stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
    axis: SupportsIndex = -1,
) -> NDArray[np.float64]: ...

class GammaResult(NamedTuple):
    gamma: Any
    entropy: Any
    status: Any

@overload
def power_transform(p: _Integers, *, gamma: _Target, axis: SupportsIndex = -1) -> NDArray[np.float64]: ...
@overload
def power_transform(p: _Array, *, gamma: _Target, axis: SupportsIndex = -1) -> _Array: ...
@overload
def power_transform(p: _Lists, *, gamma: _Target, axis: SupportsIndex = -1) -> NDArray[np.float64]: ...
@overload
def normalize_density(
    p: _Integers, weights: Any, *, entropy: _Target, axis: SupportsIndex = -1
) -> tuple[NDArray[np.float64], Any]: ...
@overload
def normalize_density(p: _Array, weights: Any, *, entropy: _Target, axis: SupportsIndex = -1) -> tuple[_Array, Any]: ...
@overload
def normalize_density(
    p: _Lists, weights: Any, *, entropy: _Target, axis: SupportsIndex = -1
) -> tuple[NDArray[np.float64], Any]: ...
@overload
def normalize_joint(
    pxy: _Integers, *, joint: _Target | None = None, marginal: _Target | None = None, conditional: _Target | None = None
) -> NDArray[np.float64]: ...
@overload
def normalize_joint(
    pxy: _Array, *, joint: _Target | None = None, marginal: _Target | None = None, conditional: _Target | None = None
) -> _Array: ...
@overload
def normalize_joint(
    pxy: _Lists, *, joint: _Target | None = None, marginal: _Target | None = None, conditional: _Target | None = None
) -> NDArray[np.float64]: ...
@overload
def mean_field_entropy(x: _Integers, *, gamma: SupportsFloat = 1.0, axis: SupportsIndex = -1) -> Any: ...
@overload
def mean_field_entropy(x: _Array, *, gamma: SupportsFloat = 1.0, axis: SupportsIndex = -1) -> _Array: ...
@overload
def mean_field_entropy(x: _Lists, *, gamma: SupportsFloat = 1.0, axis: SupportsIndex = -1) -> Any: ...

class Counts:
    def __init__(self, *outcomes: SupportsIndex) -> None: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    def add(self, *outcomes: Any) -> Counts: ...
    def merge(self, other: Counts) -> Counts: ...
    def __add__(self, other: Counts) -> Counts: ...
    def entropy(self, *, base: SupportsFloat | None = None) -> np.float64: ...
    def kl_divergence(self, other: Counts, *, base: SupportsFloat | None = None) -> np.float64: ...
    def js_divergence(self, other: Counts, *, base: SupportsFloat | None = None) -> np.float64: ...
    def mutual_information(self, *, base: SupportsFloat | None = None) -> np.float64: ...

def ratio_map(x: _DLPack | _Lists, f: Callable[[Any], Any], *, axis: SupportsIndex = -1) -> Any: ...
