"""The survey's reference code fails where docs/math/maps.md says that it does, and only as often."""

import numpy as np
import pytest

import isentropic


def survey_sparsemax(x):
    sorted_ = np.sort(x)[::-1]
    thresholds = (np.cumsum(sorted_) - 1) / np.arange(1, len(x) + 1, dtype=x.dtype)
    return np.maximum(x - thresholds[(sorted_ >= thresholds).argmin() - 1], 0)


def thresholds_of_15(x):
    """The sorted halves of the scores, and for each k the threshold if the first k have mass."""
    z = np.sort(x / 2)[::-1]
    k = np.arange(1, len(x) + 1, dtype=x.dtype)
    mean = np.cumsum(z) / k
    return z, mean - np.sqrt(np.maximum(1 / k - (np.cumsum(z**2) / k - mean**2), 0))


def survey_entmax15(x):
    """None where no threshold, or more than one, is selected."""
    z, thresholds = thresholds_of_15(x)
    chosen = thresholds[(z > thresholds) & (thresholds > np.append(z[1:], -np.inf))]
    return np.maximum(x / 2 - chosen, 0) ** 2 if len(chosen) == 1 else None


def largest_k_entmax15(x):
    z, thresholds = thresholds_of_15(x)
    return np.maximum(x / 2 - thresholds[np.flatnonzero(z >= thresholds)[-1]], 0) ** 2


def half_integers(count):
    rng = np.random.default_rng(0)
    return [rng.integers(-8, 9, rng.integers(2, 12)) / 2 for _ in range(count)]


def far_from_zero(count):
    return (np.random.default_rng(0).standard_normal((count, 10)) + 1e4).astype(np.float32)


@pytest.mark.parametrize("x", [[2.0, 0.0], [4.0, 2.0, 0.0]])
def test_strict_inequalities_select_nothing_on_a_boundary(x):
    assert survey_entmax15(np.array(x)) is None
    assert isentropic.entmax(x) == pytest.approx([1.0, *[0.0] * (len(x) - 1)], abs=0)


def test_so_do_8_percent_of_half_integers():
    assert 0.07 < np.mean([survey_entmax15(x) is None for x in half_integers(4000)]) < 0.09


def test_the_largest_k_is_right():
    for x in half_integers(1000):
        assert largest_k_entmax15(x) == pytest.approx(isentropic.entmax(x), abs=1e-7)


def test_without_the_maximum_entmax_is_wrong_and_sparsemax_inexact():
    entmax, sparsemax = [], []
    for x in far_from_zero(500):
        p = survey_entmax15(x)
        entmax.append(np.inf if p is None else np.abs(p - isentropic.entmax(x.astype(float))).max())
        sparsemax.append(np.abs(survey_sparsemax(x) - isentropic.sparsemax(x.astype(float))).max())
    assert np.mean(np.array(entmax) > 0.01) > 0.98
    assert 1e-4 < np.median(sparsemax) < 4e-4
