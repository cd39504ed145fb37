"""The losses: names only, so that a second import as ``entmax.losses`` gives the same objects."""

from isentropic.compat.entmax._losses import *  # noqa: F403
from isentropic.compat.entmax._losses import __all__, _GenericLoss  # noqa: F401
