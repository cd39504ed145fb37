from typing import Any, NamedTuple, SupportsFloat

class TransportResult(NamedTuple):
    cost: Any
    plan: Any
    f: Any
    g: Any
    gap: Any
    status: Any

def optimal_transport(a: Any, b: Any, cost: Any, *, mass_tolerance: SupportsFloat | None = None) -> TransportResult: ...
