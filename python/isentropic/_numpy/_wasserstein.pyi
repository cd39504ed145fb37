from typing import Any, Literal, SupportsFloat, SupportsIndex, overload

PUBLIC: tuple[Any, ...]

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
