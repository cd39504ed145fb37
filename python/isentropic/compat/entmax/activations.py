"""sparsemax and 1.5-entmax: names only, so that a second import as ``entmax.activations`` gives the same objects."""

from isentropic.compat.entmax._maps import (  # noqa: F401
    Entmax15,
    Entmax15Function,
    Sparsemax,
    SparsemaxFunction,
    _entmax_threshold_and_support,
    _sparsemax_threshold_and_support,
    entmax15,
    sparsemax,
)

__all__ = ["Entmax15", "Entmax15Function", "Sparsemax", "SparsemaxFunction", "entmax15", "sparsemax"]
