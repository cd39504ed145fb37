from typing import Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, overload

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
@overload
def wasserstein_1d(
    u: Any,
    v: Any,
    *,
    u_weights: Any = None,
    v_weights: Any = None,
    order: SupportsFloat = 1.0,
    axis: SupportsIndex = -1,
    return_grad: Literal[False] = False,
) -> Any: ...
@overload
def wasserstein_1d(
    u: Any,
    v: Any,
    *,
    u_weights: Any = None,
    v_weights: Any = None,
    order: SupportsFloat = 1.0,
    axis: SupportsIndex = -1,
    return_grad: Literal[True],
) -> tuple[Any, Any, Any]: ...
@overload
def wasserstein_histogram(
    p: Any,
    q: Any,
    *,
    support: Any = None,
    order: SupportsFloat = 1.0,
    axis: SupportsIndex = -1,
    return_grad: Literal[False] = False,
) -> Any: ...
@overload
def wasserstein_histogram(
    p: Any, q: Any, *, support: Any = None, order: SupportsFloat = 1.0, axis: SupportsIndex = -1, return_grad: Literal[True]
) -> tuple[Any, Any, Any]: ...
def wasserstein(x: Any, y: Any, *, order: SupportsFloat = 1.0, a: Any = None, b: Any = None) -> Any: ...
def sinkhorn_divergence(
    x: Any,
    y: Any,
    *,
    epsilon: SupportsFloat,
    a: Any = None,
    b: Any = None,
    order: SupportsFloat = 2,
    tolerance: SupportsFloat = 1e-9,
    max_iterations: SupportsIndex = 10000,
) -> Any: ...
def c_transform(f: Any, cost: Any) -> Any: ...
def dual_value(f: Any, g: Any, a: Any, b: Any) -> Any: ...
def lipschitz_constant(f: Any, distance: Any) -> Any: ...
