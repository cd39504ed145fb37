"""isentropic's operations on rows that are split over the processes of ``torch.distributed``.

Every process calls the function with its part of ``dim``; the parts follow the order of the ranks. A rank gets its part of the
result, or the number of the whole row. The ranks exchange a few integers for each row, never the scores. Sums are exact, so
the bits do not depend on the number of ranks or on where the row is split.

``group`` is the process group, by default all ranks. ``first`` is the index of this rank's first entry in the whole row and
``n`` the row's length. If one is missing, an exchange of 56 bytes finds both, and checks that all ranks have equally many
rows. Everything is differentiable where its counterpart in ``isentropic.torch`` is. Under ``torch.compile`` a call is one
operator.
"""

from isentropic.torch.distributed import _functions, _sampling
from isentropic.torch.distributed._functions import *  # noqa: F403
from isentropic.torch.distributed._group import Traffic, traffic
from isentropic.torch.distributed._sampling import *  # noqa: F403

__all__ = ["Traffic", "traffic"]
__all__ += _functions.__all__ + _sampling.__all__
