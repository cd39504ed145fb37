"""Arrays along an axis, for functions that are not maps."""

import math

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._numpy import _convert


class Along:
    """An array along an axis in .values, with its shape and any strides, and conversions of results."""

    def __init__(self, function, argument, x, axis, *, halves=False, like=None):
        """`halves`: float16 is kept. `like`: the array whose kind results have, if not x."""
        array = _convert.to_numpy(function, argument, x)
        self.values, self._dtype = (_convert.to_floats if halves else _convert.to_wide_floats)(function, argument, array)
        self.shape = self.values.shape
        if not self.shape:
            raise ValueError(f"{function}: {argument} must have at least one axis, got a single number")
        self._function, self._argument, self._x = function, argument, x if like is None else like
        self.axis = _core.normalize_axis(function, axis, len(self.shape))
        self.lead = (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def alike(self, argument, array):
        """Another array of the same shape, in the same dtype."""
        if array.shape != self.shape:
            raise ValueError(
                f"{self._function}: {argument} must have the shape of {self._argument}, {self.shape}, got {array.shape}"
            )
        return _convert.cast(_convert.to_floats(self._function, argument, array)[0], self.values.dtype)

    def back(self, values, dtype=None):
        """Results of the same shape in the kind and dtype of the array."""
        return _convert.of_entries(self._x, _convert.cast(values, self._dtype if dtype is None else dtype))

    def numbers(self, numbers, dtype=None):
        """One number for each row, in the kind and dtype of the array and its shape without the axis."""
        numbers = _convert.cast(numbers.reshape(self.lead), self._dtype if dtype is None else dtype)
        return _convert.of_rows(self._x, numbers, self.axis)

    def measured(self, numbers):
        """As `numbers`, or as `back` if there is one for each entry, of losses and measures."""
        to = self.back if numbers.shape == self.shape else self.numbers
        return to(numbers, _convert.of_value(self._dtype))

    def index(self, row, preposition="of"):
        """The place of a row for messages: " of row 3", " of row (0, 2)", or nothing if there is no other axis."""
        return _checks.place(f"{preposition} row", np.unravel_index(row, self.lead))


class Rows(Along):
    """Like Along, with contiguous rows in .values, for functions that take a matrix."""

    def __init__(self, function, argument, x, axis, *, halves=False):
        super().__init__(function, argument, x, axis, halves=halves)
        moved = np.moveaxis(self.values, self.axis, -1)
        self.values = np.ascontiguousarray(moved).reshape(math.prod(self.lead), moved.shape[-1])

    def back(self, values):
        """Rows of results in the kind, shape and dtype of the array."""
        return super().back(np.moveaxis(values.reshape(*self.lead, values.shape[-1]), -1, self.axis))


def packed(value, gradients, slopes=None):
    """The results of a call: the value alone, or a tuple of it, the gradients and, unless None, the slopes in parameters, which
    are a tuple unless there is one."""
    results = [value, *gradients]
    if slopes is not None:
        results.append(slopes[0] if len(slopes) == 1 else tuple(slopes))
    return results[0] if len(results) == 1 else tuple(results)


def sum_to(x, shape):
    """x summed over the axes along which an array of this shape was repeated."""
    x = x.sum(tuple(range(x.ndim - len(shape)))) if x.ndim > len(shape) else x
    repeated = tuple(i for i, (own, size) in enumerate(zip(shape, x.shape, strict=True)) if own == 1 and size != 1)
    return x.sum(repeated, keepdims=True) if repeated else x
