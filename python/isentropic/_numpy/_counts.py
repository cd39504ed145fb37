"""Counts of outcomes that arrive in chunks."""

import numpy as np

import isentropic._generated as _generated
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert


@documented
class Counts:
    """Counts of outcomes that arrive in chunks, and the measures of their frequencies.

    Parameters
    ----------
    *outcomes : int
        How many outcomes there are: of one variable, or of x and of y for a table with x in rows.

    Examples
    --------
    >>> morning, evening = isentropic.Counts(3), isentropic.Counts(3)
    >>> morning.add([0, 2, 2, 1]).add([2])
    Counts(3) of 5
    >>> evening.add([0, 0])
    Counts(3) of 2
    >>> float(morning.js_divergence(evening, base=2)) < 1
    True
    >>> (morning + evening).weights
    array([3., 1., 3.])
    """

    def __init__(self, *outcomes):
        if len(outcomes) not in (1, 2):
            raise TypeError(f"Counts: give the number of outcomes of one variable or of two, got {len(outcomes)} numbers")
        self._shape = tuple(_count(number) for number in outcomes)
        self._weights = np.zeros(self._shape)

    @property
    def weights(self):
        """The counts so far, as float64: exact up to 2^53 each."""
        return self._weights.copy()

    def add(self, *outcomes):
        """Count a chunk: outcomes 0 to n - 1 in an array, or as many of x and of y. Returns self."""
        if len(outcomes) != len(self._shape):
            raise TypeError(f"Counts.add: give {len(self._shape)} arrays of outcomes, got {len(outcomes)}")
        arrays = [_convert.to_numpy("Counts.add", "outcomes", array) for array in outcomes]
        flat = np.zeros(arrays[0].shape, np.int64)
        for array, size in zip(arrays, self._shape, strict=True):
            if array.size > 0 and array.dtype.kind not in "biu":
                raise TypeError(f"Counts.add: outcomes must be integers, got dtype {array.dtype}")
            if array.shape != flat.shape:
                raise ValueError(f"Counts.add: y must have as many outcomes as x, got shapes {flat.shape} and {array.shape}")
            wrong = array[(array < 0) | (array >= size)]
            if wrong.size > 0:
                raise ValueError(f"Counts.add: outcomes must be at least 0 and below {size}, got {wrong[0]}")
            flat = flat * size + array.astype(np.int64)
        self._weights += np.bincount(flat.ravel(), minlength=self._weights.size).reshape(self._shape)
        return self

    def merge(self, other):
        """Add what another has counted. Returns self."""
        self._weights += self._same(other, "merge")
        return self

    def __add__(self, other):
        return Counts(*self._shape).merge(self).merge(other) if isinstance(other, Counts) else NotImplemented

    def __repr__(self):
        return f"Counts({', '.join(map(str, self._shape))}) of {self._weights.sum():.0f}"

    def entropy(self, *, base=None):
        """Of one variable, or of both together."""
        return _generated.entropy(self._weights.ravel(), base=base, normalize=True)

    def kl_divergence(self, other, *, base=None):
        """From these frequencies, p, to those of another, q."""
        return self._with("kl_divergence", other, base)

    def js_divergence(self, other, *, base=None):
        """Between these frequencies and those of another."""
        return self._with("js_divergence", other, base)

    def mutual_information(self, *, base=None):
        """Of the two variables."""
        if len(self._shape) != 2:
            raise TypeError("Counts.mutual_information: one variable has none, count two: Counts(n, m)")
        return _generated.mutual_information(self._weights, base=base, normalize=True)

    def _with(self, name, other, base):
        others = self._same(other, name).ravel()
        return getattr(_generated, name)(self._weights.ravel(), others, base=base, normalize=True)

    def _same(self, other, name):
        if not isinstance(other, Counts) or other._shape != self._shape:
            got = f"those of {other._shape}" if isinstance(other, Counts) else type(other).__name__
            raise TypeError(f"Counts.{name}: other must be Counts of {self._shape} outcomes, got {got}")
        return other._weights


def _count(number):
    count = _checks.integer("Counts", "the number of outcomes", number)
    if count < 1:
        raise ValueError(f"Counts: the number of outcomes must be at least 1, got {count}")
    return count
