"""The public interface of the package ``entmax`` 1.3, computed by ``isentropic.torch``.

Code written for it runs unchanged after ``sys.modules["entmax"] = isentropic.compat.entmax``. ``k``, ``n_iter`` and
``ensure_sum_one`` are accepted everywhere and have no effect: results are exact up to rounding. docs/coming_from_entmax.md
lists the intended differences.
"""

from isentropic.compat.entmax.activations import Entmax15, Sparsemax, entmax15, sparsemax
from isentropic.compat.entmax.losses import (
    Entmax15Loss,
    EntmaxBisectLoss,
    NormmaxBisectLoss,
    SparsemaxBisectLoss,
    SparsemaxLoss,
    entmax15_loss,
    entmax_bisect_loss,
    normmax_bisect_loss,
    sparsemax_bisect_loss,
    sparsemax_loss,
)
from isentropic.compat.entmax.root_finding import (
    BudgetBisect,
    EntmaxBisect,
    NormmaxBisect,
    SparsemaxBisect,
    budget_bisect,
    entmax_bisect,
    normmax_bisect,
    sparsemax_bisect,
)

# The version of the package that this one replaces.
__version__ = "1.3"

__all__ = ["BudgetBisect", "Entmax15", "Entmax15Loss", "EntmaxBisect", "EntmaxBisectLoss", "NormmaxBisect"]
__all__ += ["NormmaxBisectLoss", "Sparsemax", "SparsemaxBisect", "SparsemaxBisectLoss", "SparsemaxLoss"]
__all__ += ["budget_bisect", "entmax15", "entmax15_loss", "entmax_bisect", "entmax_bisect_loss", "normmax_bisect"]
__all__ += ["normmax_bisect_loss", "sparsemax", "sparsemax_bisect", "sparsemax_bisect_loss", "sparsemax_loss"]
