"""Writes the package's __init__.pyi and torch/__init__.pyi from the registry of the built module: stubs.py MODULE PACKAGE.

Needs no torch: the package is built where there is none.
"""

import importlib.util
import pathlib
import sys


def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# By its path: the package itself would want torch.
class_name = load("_names", pathlib.Path(__file__).parent / "entropic/torch/_names.py").class_name

HEADER = """\
# Written by python/stubs.py from the registry of operations.
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, Sequence, SupportsFloat, SupportsIndex, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from entropic._transport import SinkhornResult as SinkhornResult
from entropic._transport import TransportResult as TransportResult
from entropic._transport import c_transform as c_transform
from entropic._transport import dual_value as dual_value
from entropic._transport import lipschitz_constant as lipschitz_constant
from entropic._transport import optimal_transport as optimal_transport
from entropic._transport import sinkhorn as sinkhorn
from entropic._transport import sinkhorn_divergence as sinkhorn_divergence
from entropic._transport import wasserstein as wasserstein
from entropic._transport import wasserstein_1d as wasserstein_1d
from entropic._transport import wasserstein_histogram as wasserstein_histogram
from entropic.calibration import TemperatureClampedWarning as TemperatureClampedWarning
from entropic.calibration import entropy_invariant_scale as entropy_invariant_scale
from entropic.calibration import expected_calibration_error as expected_calibration_error
from entropic.calibration import fit_target_entropy as fit_target_entropy
from entropic.calibration import fit_temperature as fit_temperature
from entropic.calibration import match_entropy as match_entropy
from entropic._files import read as read
from entropic._files import write as write

__all__: list[str]
__version__: str

class _DLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

# Arrays of integers become float64, every other array keeps its kind and dtype.
_Array = TypeVar("_Array", bound=_DLPack)
_Integers: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.bool_]
_Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
_Lists: TypeAlias = Sequence[_Number | _Lists]

def simd_targets() -> list[str]: ...
def simd_target() -> str: ...
def force_simd_target(name: str) -> None: ...
def set_num_threads(n: SupportsIndex) -> None: ...
def get_num_threads() -> int: ...

_Target: TypeAlias = SupportsFloat | _DLPack | _Lists

class GammaResult(NamedTuple):
    gamma: Any
    entropy: Any
    status: Any

_Step: TypeAlias = (
    tuple[Literal["top_k"], SupportsIndex]
    | tuple[Literal["temperature", "top_p", "min_p", "typical_p", "entropy"], SupportsFloat]
    | tuple[Literal["entropy_clip"], tuple[SupportsFloat | None, SupportsFloat | None]]
)

class Sampler:
    steps: list[_Step]
    seed: int
    def __init__(self, steps: Sequence[_Step], *, seed: SupportsIndex = 0) -> None: ...
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
_Map: TypeAlias = str | tuple[str, dict[str, Any]]

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
"""

# Functions that are no maps, of entropy control and sampling: those with an array of x's kind, for each kind of x.
CONTROL = """def power_transform(p: {x}, *, gamma: _Target, axis: SupportsIndex = -1) -> {y}: ...
def normalize_density(p: {x}, weights: Any, *, entropy: _Target, axis: SupportsIndex = -1) -> tuple[{y}, Any]: ...
def normalize_joint(
    pxy: {x}, *, joint: _Target | None = None, marginal: _Target | None = None, conditional: _Target | None = None
) -> {y}: ...
def mean_field_entropy(x: {x}, *, gamma: SupportsFloat = 1.0, axis: SupportsIndex = -1) -> {numbers}: ...
def gumbel_softmax(
    x: {x},
    *,
    temperature: SupportsFloat = 1.0,
    hard: bool = False,
    seed: SupportsIndex,
    stream: SupportsIndex | _DLPack | Sequence[SupportsIndex] = 0,
    axis: SupportsIndex = -1,
) -> {y}: ...
"""
KINDS = (("_Integers", "NDArray[np.float64]"), ("_Array", "_Array"), ("_Lists", "NDArray[np.float64]"))
TORCH_HEADER = """\
# Written by python/stubs.py from the registry of operations.
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import Generator, Tensor, nn

from entropic import GammaResult, SinkhornResult, TransportResult

__all__: list[str]

def gumbel_softmax(
    x: Tensor,
    *,
    temperature: float = 1.0,
    hard: bool = False,
    seed: int,
    stream: int | Tensor = 0,
    dim: int | None = None,
    axis: int | None = None,
) -> Tensor: ...
def power_transform(p: Tensor, *, gamma: float | Tensor, dim: int | None = None, axis: int | None = None) -> Tensor: ...
def mean_field_entropy(x: Tensor, *, gamma: float = 1.0, dim: int | None = None, axis: int | None = None) -> Tensor: ...
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
def ratio_map(
    x: Tensor, f: Callable[[Tensor], Tensor], *, dim: int | None = None, axis: int | None = None
) -> Tensor: ...

class _Map(nn.Module):
    def forward(self, x: Tensor) -> Tensor: ...
    def __call__(self, x: Tensor) -> Tensor: ...
    def extra_repr(self) -> str: ...

class _Loss(nn.Module):
    weight: Tensor | None
    ignore_index: int | None
    reduction: str
    dim: int
    def forward(self, x: Tensor, target: Tensor) -> Tensor: ...
    def __call__(self, x: Tensor, target: Tensor) -> Tensor: ...
    def extra_repr(self) -> str: ...

_MapName = str | tuple[str, dict[str, Any]]

def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    map: _MapName = "softmax",
    scale: Literal["sqrt", "entropy_invariant"] | float = "sqrt",
    causal: bool = False,
    mask: Tensor | None = None,
    train_length: float = 512,
    kappa: float | None = None,
    **map_params: Any,
) -> Tensor: ...
def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: Literal["sqrt"] | float = "sqrt"
) -> Tensor: ...

class Attention(nn.Module):
    def __init__(
        self,
        map: _MapName = "softmax",
        scale: Literal["sqrt", "entropy_invariant"] | float = "sqrt",
        causal: bool = False,
        train_length: float = 512,
        kappa: float | None = None,
        **map_params: Any,
    ) -> None: ...
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor: ...

class LinearAttention(nn.Module):
    def __init__(self, causal: bool = False, scale: Literal["sqrt"] | float = "sqrt") -> None: ...
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...
"""


def declare(param):
    if param["kind"] == "name":
        kind = f"Literal[{', '.join(map(repr, param['names']))}]"
    else:
        number = "SupportsFloat | _DLPack | _Lists" if param["per_row"] else "SupportsFloat"
        kind = {"float": number, "int": "SupportsIndex", "bool": "bool", "optional float": f"{number} | None"}[param["kind"]]
    return f"{param['name']}: {kind}" + ("" if param["required"] else f" = {param['default']!r}")


def vjp_returns(operation, result):
    """(further parameters, type returned) of each overload. In how many parameters there is a gradient is seen at run time."""
    per_row = sum(param["per_row"] for param in operation["params"])
    if not per_row:
        return [([], result)]
    dparam = "_Array" if per_row == 1 and result == "_Array" else "Any"
    return [
        (["param_grad: Literal[False] = False"], result),
        (["param_grad: Literal[True]"], f"tuple[{result}, {dparam}]"),
    ]


def stub(operation):
    name = operation["name"]
    params = [declare(param) for param in operation["params"]] + ["axis: SupportsIndex = -1"]
    lines = []
    for x, result in KINDS:
        if operation["reduces"]:
            keywords = [*params, "keepdims: bool = False"]
            forward = "Any" if x != "_Array" else "_Array"
        else:
            keywords = [*params, f"out: {'_Array' if x == '_Array' else result} | None = None"]
            forward = result
        lines.append(f"@overload\ndef {name}(x: {x}, *, {', '.join(keywords)}) -> {forward}: ...")
        for asked, returned in vjp_returns(operation, result):
            lines.append(
                f"@overload\ndef {name}_vjp(x: {x}, y: Any, grad: Any, /, *, {', '.join(params + asked)}) -> {returned}: ..."
            )
    return "\n".join(sorted(lines, key=lambda line: f"{name}_vjp" in line))


def control_stubs(operations):
    """Of entropy control: gamma_for_entropy's parameters from its description, the others as written above."""
    overloads = {}
    for x, y in KINDS:
        text = CONTROL.format(x=x, y=y, numbers="_Array" if x == "_Array" else "Any")
        for function in text.replace(": ...\n", ": ...\n\0").split("\0")[:-1]:
            overloads.setdefault(function[4 : function.index("(")], []).append("@overload\n" + function)
    params = next(operation["params"] for operation in operations if operation["name"] == "gamma_for_entropy")
    words = [
        "gamma_range: tuple[SupportsFloat, SupportsFloat] = ..." if param["name"] == "min_gamma" else declare(param)
        for param in params
        if param["name"] != "max_gamma"
    ]
    gamma = f"def gamma_for_entropy(x: _DLPack | _Lists, *, {', '.join(words)}, axis: SupportsIndex = -1) -> GammaResult: ...\n"
    return gamma + "".join("".join(one) for one in overloads.values())


COUNTS = """class Counts:
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
"""
MEASURED = {"measure": "p: _DLPack | _Lists", "divergence": "p: _DLPack | _Lists, q: _DLPack | _Lists",
            "table": "pxy: _DLPack | _Lists", "entry": "p: _DLPack | _Lists | _Number"}  # fmt: skip


def measure_stub(operation):
    """With one number for each row: of the kind of p, which is an array or a number."""
    name, family = operation["name"], operation["family"]
    words = [declare(param) for param in operation["params"]]
    if family != "table" and name != "binary_entropy":
        words.append("axis: SupportsIndex = -1")
    gradients = ", ".join(["Any"] * (3 if family == "divergence" else 2))
    lines = []
    for asked, returned in (("Literal[False] = False", "Any"), ("Literal[True]", f"tuple[{gradients}]")):
        lines.append(
            f"@overload\ndef {name}({MEASURED[family]}, *, {', '.join([*words, f'return_grad: {asked}'])}) -> {returned}: ..."
        )
    return "\n".join(lines) + "\n"


def loss_stub(loss):
    keywords = [declare(param) for param in loss["params"]]
    keywords += ["map: str | tuple[str, dict[str, Any]] = 'softmax'"] if loss["has_map"] else []
    keywords += ["ignore_index: SupportsIndex | None = None"] if loss["target"].startswith("class") else []
    keywords += ["axis: SupportsIndex = -1", "return_grad: bool = False"]
    keywords += ["param_grad: bool = False"] if any(param["per_row"] for param in loss["params"]) else []
    keywords += ["**params: Any"] if loss["has_map"] else []
    x, target = loss["arguments"]
    return f"def {loss['name']}({x}: _DLPack | _Lists, {target}: Any, *, {', '.join(keywords)}) -> Any: ...\n"


RATIO_MAP = "def ratio_map(x: _DLPack | _Lists, f: Callable[[Any], Any], *, axis: SupportsIndex = -1) -> Any: ...\n"


def torch_loss_stub(loss):
    """The function, and the module where it is its function's parameters and what all have."""
    name, classes = loss["name"], loss["target"].startswith("class")
    kinds = {param["name"]: torch_kind(param) for param in loss["params"]}
    params = [
        f"{param['name']}: {kinds[param['name']]}" + ("" if param["required"] else f" = {param['default']!r}")
        for param in loss["params"]
    ]
    keywords = list(params)
    keywords += ["map: str | tuple[str, dict[str, Any]] = 'softmax'"] if loss["has_map"] else []
    keywords += ["ignore_index: int | None = None"] if classes else []
    keywords += ["dim: int | None = None", "axis: int | None = None"]
    keywords += ["**params: Any"] if loss["has_map"] else []
    x, target = loss["arguments"]
    lines = [f"def {name}({x}: Tensor, {target}: Tensor, *, {', '.join(keywords)}) -> Tensor: ..."]
    if not loss["has_map"] and loss["target"] != "class":
        common = ["weight: Tensor | None = None", "ignore_index: int = -100"] if classes else []
        common += ["reduction: str = 'mean'", "dim: int = -1"]
        lines.append(f"\nclass {class_name(name)}(_Loss):")
        lines += [f"    {param}: {kind}" for param, kind in kinds.items()]
        lines.append(f"    def __init__(self, {', '.join(params + common)}) -> None: ...")
    return "\n".join(lines)


TORCH_LOSSES = """
class SurrogateLoss(_Loss):
    def __init__(
        self,
        map: str | tuple[str, dict[str, Any]] = "softmax",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        dim: int = -1,
        **params: Any,
    ) -> None: ...

class SmoothAccuracyLoss(SurrogateLoss): ...
"""
TORCH_MARGIN_LOSS = """
class {name}(_Loss):
    margin: float
    scale: float
    classes: nn.Parameter
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        margin: float = {margin},
        scale: float = 30.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...
    def reset_parameters(self) -> None: ...
    def cosines(self, x: Tensor) -> Tensor: ...
"""
MARGIN_LOSSES = (("AMSoftmaxLoss", 0.35), ("ArcFaceLoss", 0.5), ("SphereFaceLoss", 4))


def torch_losses(losses):
    text = "".join(f"\n{torch_loss_stub(loss)}\n" for loss in losses) + TORCH_LOSSES
    return text + "".join(TORCH_MARGIN_LOSS.format(name=name, margin=margin) for name, margin in MARGIN_LOSSES)


def torch_kind(param):
    if param["kind"] == "name":
        return f"Literal[{', '.join(map(repr, param['names']))}]"
    number = "float | Tensor" if param["per_row"] else "float"
    return {"float": number, "int": "int", "optional float": f"{number} | None"}[param["kind"]]


def torch_stub(operation):
    """The function and the module, which keeps its parameters under their names."""
    name = operation["name"]
    kinds = {param["name"]: torch_kind(param) for param in operation["params"]}
    params = [
        f"{param['name']}: {kinds[param['name']]}" + ("" if param["required"] else f" = {param['default']!r}")
        for param in operation["params"]
    ]
    keywords = [*params, "dim: int | None = None", "axis: int | None = None"]
    if operation["reduces"]:
        keywords.append("keepdim: bool = False")
    lines = [f"def {name}(x: Tensor, *, {', '.join(keywords)}) -> Tensor: ...", ""]
    lines.append(f"class {class_name(name)}(_Map):")
    lines += [f"    {param}: {kind}" for param, kind in kinds.items()]
    lines.append("    dim: int")
    lines += ["    keepdim: bool"] if operation["reduces"] else []
    first = params[: next(iter(kinds), "temperature") != "temperature"]
    keywords = params[len(first) :] + (["keepdim: bool = False"] if operation["reduces"] else [])
    lines.append(
        f"    def __init__(self, {', '.join([*first, 'dim: int = -1', *(['*'] if keywords else []), *keywords])}) -> None: ..."
    )
    return "\n".join(lines)


def torch_measure_stub(operation):
    names = {"measure": "p", "divergence": "p, q", "table": "pxy", "entry": "p"}[operation["family"]]
    kinds = {"bool": "bool"}
    words = [
        f"{param['name']}: {kinds.get(param['kind']) or torch_kind(param)}"
        + ("" if param["required"] else f" = {param['default']!r}")
        for param in operation["params"]
    ]
    if operation["family"] != "table" and operation["name"] != "binary_entropy":
        words += ["dim: int | None = None", "axis: int | None = None"]
    arrays = ", ".join(f"{name}: Tensor" for name in names.split(", "))
    return f"def {operation['name']}({arrays}, *, {', '.join(words)}) -> Tensor: ..."


TORCH_TRANSPORT = """
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
def wasserstein(
    x: Tensor, y: Tensor, *, order: float = 1.0, a: Tensor | None = None, b: Tensor | None = None
) -> Tensor: ...
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
    epsilon: float,
    a: Tensor | None = None,
    b: Tensor | None = None,
    order: float = 2,
    tolerance: float = 1e-9,
    max_iterations: int = 10000,
) -> Tensor: ...
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
"""


def main(module_file, package):
    module = load("_core", module_file)
    maps = module.operations()
    functions = HEADER + "".join(f"\n{stub(operation)}\n" for operation in maps)
    on_tensors = TORCH_HEADER + "".join(f"\n{torch_stub(operation)}\n" for operation in maps) + torch_losses(module.losses())
    measures = module.measure_operations()
    on_tensors += "".join(f"\n{torch_measure_stub(operation)}\n" for operation in measures) + TORCH_TRANSPORT
    functions += "\n" + "".join(map(loss_stub, module.losses())) + RATIO_MAP
    functions += "\n" + control_stubs(module.control_operations())
    functions += "\n" + "\n".join(map(measure_stub, measures)) + "\n" + COUNTS
    (pathlib.Path(package) / "__init__.pyi").write_text(functions)
    (pathlib.Path(package) / "torch" / "__init__.pyi").write_text(on_tensors)


main(*sys.argv[1:])
