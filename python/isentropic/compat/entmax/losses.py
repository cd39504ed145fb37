"""The losses: names only, so that a second import as ``entmax.losses`` gives the same objects."""

from isentropic.compat.entmax._losses import (  # noqa: F401
    Entmax15Loss,
    Entmax15LossFunction,
    EntmaxBisectLoss,
    EntmaxBisectLossFunction,
    NormmaxBisectLoss,
    NormmaxBisectLossFunction,
    SparsemaxBisectLoss,
    SparsemaxBisectLossFunction,
    SparsemaxLoss,
    SparsemaxLossFunction,
    _GenericLoss,
    entmax15_loss,
    entmax_bisect_loss,
    normmax_bisect_loss,
    sparsemax_bisect_loss,
    sparsemax_loss,
)

__all__ = [
    "Entmax15Loss",
    "Entmax15LossFunction",
    "EntmaxBisectLoss",
    "EntmaxBisectLossFunction",
    "NormmaxBisectLoss",
    "NormmaxBisectLossFunction",
    "SparsemaxBisectLoss",
    "SparsemaxBisectLossFunction",
    "SparsemaxLoss",
    "SparsemaxLossFunction",
    "entmax15_loss",
    "entmax_bisect_loss",
    "normmax_bisect_loss",
    "sparsemax_bisect_loss",
    "sparsemax_loss",
]
