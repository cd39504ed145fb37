"""The mathematics outside the kernels, written once for all doors: second derivatives, derivatives in parameters, forward-mode
rules, and compositions for devices without kernels.

Every function takes rows along the last axis, and first of all a `Rows`: the namespace of the arrays (of NumPy, torch or JAX)
and the sums along a row. It is an argument, because a namespace that is looked up from the arrays in each call makes
torch.compile warn about a cache. Parameters are numbers, or arrays that have size 1 for the last axis.

Rules for special rows stand here and nowhere else: an absent entry moves nothing; a row with NaN is NaN, with derivatives that
are NaN; if a row has +inf, only these entries count, equally, and nothing moves them.
"""

from isentropic.formulas import attention, compositions, losses, maps, measures, sampling
from isentropic.formulas.rows import Rows

__all__ = ["Rows", "attention", "compositions", "losses", "maps", "measures", "sampling"]
