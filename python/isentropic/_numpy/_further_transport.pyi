from typing import Any, NamedTuple, SupportsFloat, SupportsIndex

class SlicedResult(NamedTuple):
    distance: Any
    error: Any

class PartialResult(NamedTuple):
    cost: Any
    plan: Any
    f: Any
    g: Any
    multiplier: Any
    gap: Any

class UnbalancedResult(NamedTuple):
    value: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    iterations: Any
    converged: Any

class BarycenterResult(NamedTuple):
    barycenter: Any
    marginal_error: Any
    iterations: Any
    converged: Any

PUBLIC: tuple[Any, ...]

def directions(name: str, dimension: int, projections: Any, seed: SupportsIndex) -> Any: ...
def sliced_wasserstein(
    x: Any,
    y: Any,
    *,
    order: SupportsFloat = 2.0,
    a: Any = None,
    b: Any = None,
    projections: Any = 100,
    seed: SupportsIndex = 0,
) -> SlicedResult: ...
def partial_transport(a: Any, b: Any, cost: Any, *, mass: SupportsFloat) -> PartialResult: ...
def unbalanced_sinkhorn(
    a: Any,
    b: Any,
    cost: Any,
    *,
    epsilon: SupportsFloat,
    penalty: SupportsFloat,
    tolerance: SupportsFloat = 1e-9,
    max_iterations: SupportsIndex = 10000,
) -> UnbalancedResult: ...
def sinkhorn_barycenter(
    p: Any,
    cost: Any,
    *,
    epsilon: SupportsFloat,
    weights: Any = None,
    tolerance: SupportsFloat = 1e-9,
    max_iterations: SupportsIndex = 10000,
) -> BarycenterResult: ...
