"""Rows of tensors, for formulas."""

import array_api_compat.torch as xp
import torch

from isentropic.formulas import Rows
from isentropic.torch._compat import can_be_read


class _Rows(Rows):
    def constant(self, x):
        return x.detach()

    def known_finite(self, *tensors):
        return all(can_be_read(x) and bool(x.isfinite().all()) for x in tensors)

    def if_any(self, condition, value, otherwise):
        return value()  # not to wait for a device

    def picked(self, x, indices):
        return x.gather(-1, indices)

    def placed(self, x, indices, values):
        aside = torch.cat([x, x[..., :1]], -1)  # what is not placed goes to one column more
        return aside.scatter(-1, torch.where(indices < 0, x.shape[-1], indices), values)[..., :-1]

    def softmax(self, x):
        return torch.softmax(x, -1)

    def log_softmax(self, x):
        return torch.log_softmax(x, -1)


ROWS = _Rows(xp)


def last(dim, *tensors):
    """Tensors, or None, with dim as their last."""
    return tuple(x if x is None else x.movedim(dim, -1) for x in tensors)
