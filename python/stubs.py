"""Writes the package's torch/__init__.pyi from the registry of the built module: stubs.py MODULE PACKAGE.

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
    on_tensors = TORCH_HEADER + "".join(f"\n{torch_stub(operation)}\n" for operation in module.operations())
    on_tensors += torch_losses(module.losses())
    on_tensors += "".join(f"\n{torch_measure_stub(one)}\n" for one in module.measure_operations()) + TORCH_TRANSPORT
    (pathlib.Path(package) / "torch" / "__init__.pyi").write_text(on_tensors)


main(*sys.argv[1:])
