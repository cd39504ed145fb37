from typing import Any, NamedTuple, SupportsFloat, SupportsIndex

class TransportResult(NamedTuple):
    cost: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    status: Any

class SinkhornResult(NamedTuple):
    cost: Any
    plan: Any
    f: Any
    g: Any
    marginal_error: Any
    lower_bound: Any
    upper_bound: Any
    iterations: Any
    converged: Any

PUBLIC: tuple[Any, ...]

def with_nan_alone(run: Any, a: Any, b: Any, cost: Any, total: float = 1.0) -> Any: ...
def optimal_transport(a: Any, b: Any, cost: Any, *, mass_tolerance: SupportsFloat | None = None) -> TransportResult: ...
def sinkhorn(
    a: Any,
    b: Any,
    cost: Any,
    *,
    epsilon: SupportsFloat,
    tolerance: SupportsFloat = 1e-6,
    max_iterations: SupportsIndex = 10000,
    mass_tolerance: SupportsFloat | None = None,
) -> SinkhornResult: ...
def c_transform(f: Any, cost: Any) -> Any: ...
def dual_value(f: Any, g: Any, a: Any, b: Any) -> Any: ...
def lipschitz_constant(f: Any, distance: Any) -> Any: ...
