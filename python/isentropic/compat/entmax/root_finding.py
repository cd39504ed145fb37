"""The maps that the package finds by bisection: names only, so that a second import as ``entmax.root_finding`` gives the same
objects."""

from isentropic.compat.entmax._maps import (
    BudgetBisect,
    BudgetBisectFunction,
    EntmaxBisect,
    EntmaxBisectFunction,
    NormmaxBisect,
    NormmaxBisectFunction,
    SparsemaxBisect,
    SparsemaxBisectFunction,
    budget_bisect,
    entmax_bisect,
    normmax_bisect,
    sparsemax_bisect,
)

__all__ = ["BudgetBisect", "EntmaxBisect", "NormmaxBisect", "SparsemaxBisect"]
__all__ += ["BudgetBisectFunction", "EntmaxBisectFunction", "NormmaxBisectFunction", "SparsemaxBisectFunction"]
__all__ += ["budget_bisect", "entmax_bisect", "normmax_bisect", "sparsemax_bisect"]
