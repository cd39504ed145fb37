"""Entropy and information from counts: against the definitions with 40 digits, by simulation, and what is refused."""

import math

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import isentropic
from cases import torch_or_skip

ESTIMATORS = ("plugin", "miller_madow", "jackknife", "grassberger", "chao_shen", "james_stein", "nsb")
ROWS = [
    [4, 2, 0, 1, 1, 0, 0, 0],
    [1, 1, 1, 1, 1],  # each class once
    [1, 0, 0],
    [7, 0, 0, 0],
    [1000, 1, 0, 3],
    [5, 5, 5, 5],
    [2000, 1500, 1023, 1024, 1025, 0],
    [0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
]


def xlogx(p):
    return p * mpmath.log(p) if p else mpf(0)


def plugin(n):
    total = sum(n)
    return -mpmath.fsum(xlogx(mpf(k) / total) for k in n)


def miller_madow(n):
    return plugin(n) + mpf(sum(k > 0 for k in n) - 1) / (2 * sum(n))


def jackknife(n):
    total = sum(n)
    if total == 1:
        return mpf("nan")
    without = [plugin([*n[:i], k - 1, *n[i + 1 :]]) * k for i, k in enumerate(n) if k]
    return total * plugin(n) - mpf(total - 1) / total * mpmath.fsum(without)


def grassberger(n):
    def g(k):
        return mpmath.psi(0, k) + (-1) ** k * (mpmath.psi(0, mpf(k + 1) / 2) - mpmath.psi(0, mpf(k) / 2)) / 2

    return mpmath.log(sum(n)) - mpmath.fsum(k * g(k) for k in n if k) / sum(n)


def chao_shen(n):
    total, once = sum(n), sum(k == 1 for k in n)
    coverage = 1 - mpf(once - (once == total)) / total
    shares = [coverage * k / total for k in n if k]
    return -mpmath.fsum(xlogx(c) / (1 - (1 - c) ** total) for c in shares)


def james_stein(n, classes=None):
    n = [*n, *[0] * ((classes or len(n)) - len(n))]
    total, uniform = sum(n), mpf(1) / len(n)
    shares = [mpf(k) / total for k in n]
    apart = mpmath.fsum((uniform - p) ** 2 for p in shares)
    share = 1 if total == 1 or apart == 0 else (1 - mpmath.fsum(p * p for p in shares)) / ((total - 1) * apart)
    share = min(max(share, 0), 1)
    return -mpmath.fsum(xlogx(share * uniform + (1 - share) * p) for p in shares)


@mpmath.workdps(60)
def nsb(n, classes=None):
    """(mean, deviation), by quadrature in log beta of the integrals."""
    n = [*n, *[0] * ((classes or len(n)) - len(n))]
    total, size = sum(n), len(n)
    kinds = {k: n.count(k) for k in set(n)}

    def weight(u):
        beta = mpmath.exp(u)
        log = mpmath.loggamma(size * beta) - mpmath.loggamma(total + size * beta)
        log += sum(times * (mpmath.loggamma(k + beta) - mpmath.loggamma(beta)) for k, times in kinds.items() if k)
        return mpmath.exp(log) * (size * mpmath.psi(1, size * beta + 1) - mpmath.psi(1, beta + 1)) * beta

    def moments(u):
        beta = mpmath.exp(u)
        a = {k: k + beta for k in kinds}
        whole = total + size * beta
        psi_1, psi_2, slope = mpmath.psi(0, whole + 1), mpmath.psi(0, whole + 2), mpmath.psi(1, whole + 2)
        first = mpmath.fsum(t * a[k] / whole * (psi_1 - mpmath.psi(0, a[k] + 1)) for k, t in kinds.items())
        terms = {k: mpmath.psi(0, a[k] + 1) - psi_2 for k in kinds}
        cross = mpmath.fsum(t * a[k] * terms[k] for k, t in kinds.items()) ** 2
        cross -= mpmath.fsum(t * (a[k] * terms[k]) ** 2 for k, t in kinds.items())
        cross -= slope * (whole**2 - mpmath.fsum(t * a[k] ** 2 for k, t in kinds.items()))
        own = mpmath.fsum(
            t * a[k] * (a[k] + 1) * ((mpmath.psi(0, a[k] + 2) - psi_2) ** 2 + mpmath.psi(1, a[k] + 2) - slope)
            for k, t in kinds.items()
        )
        return first, (cross + own) / (whole * (whole + 1))

    # The trapezoid rule with small steps, over a range outside of which nothing is left.
    step, nodes = mpf(1) / 4, [mpf(i) / 4 for i in range(-4 * 45, 4 * 45)]
    weights = [weight(u) for u in nodes]
    most = max(weights)
    kept = [(u, w) for u, w in zip(nodes, weights, strict=True) if w > most * mpf(10) ** -25]
    found = [(moments(u), w) for u, w in kept]
    mass = mpmath.fsum(w for _, w in found) * step
    mean, second = (mpmath.fsum(m[i] * w for m, w in found) * step / mass for i in (0, 1))
    return mean, mpmath.sqrt(second - mean**2)


@pytest.mark.parametrize("row", ROWS)
def test_definitions(row):
    for name in ESTIMATORS:
        got = isentropic.entropy_of_counts(row, estimator=name)
        want = nsb(row)[0] if name == "nsb" else globals()[name](row)
        assert math.isnan(got) if mpmath.isnan(want) else abs(got - want) < 1e-13 * (1 + abs(want)), (name, got, want)
    mean, deviation = isentropic.entropy_of_counts(row, estimator="nsb", return_std=True)
    assert abs(deviation - nsb(row)[1]) < 1e-7 and mean == isentropic.entropy_of_counts(row, estimator="nsb")


@pytest.mark.parametrize("classes", [6, 40])
def test_classes_that_were_not_seen(classes):
    row = [3, 0, 2, 1, 1]
    for name, of in (("james_stein", james_stein), ("nsb", lambda row, classes: nsb(row, classes)[0])):
        longer = [*row, *[0] * (classes - len(row))]
        got = isentropic.entropy_of_counts(row, estimator=name, classes=classes)
        assert abs(got - of(row, classes)) < 1e-13
        assert got == isentropic.entropy_of_counts(longer, estimator=name)
    assert isentropic.entropy_of_counts(row, estimator="nsb", classes=10**9) > isentropic.entropy_of_counts(
        row, estimator="nsb"
    )


def test_closed_forms():
    # One class: nothing is uncertain.
    assert isentropic.entropy_of_counts([9], estimator="nsb", return_std=True) == (0, 0)
    for name in ("plugin", "miller_madow", "jackknife", "chao_shen"):
        assert isentropic.entropy_of_counts([5, 0], estimator=name) == 0
    assert isentropic.entropy_of_counts([3, 3], estimator="plugin", base=2) == 1
    assert isentropic.entropy_of_counts([3, 3], estimator="miller_madow", base=2) == pytest.approx(1 + 1 / 12 / math.log(2))
    # Many draws: all agree.
    law = np.array([0.5, 0.25, 0.125, 0.125])
    for name in ESTIMATORS:
        assert isentropic.entropy_of_counts(np.round(law * 2**40), estimator=name, base=2) == pytest.approx(1.75, abs=1e-10)


def test_rows_axes_and_kinds():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (3, 4, 6))
    for name in ESTIMATORS:
        want = [[isentropic.entropy_of_counts(row, estimator=name) for row in block] for block in counts]
        np.testing.assert_array_equal(isentropic.entropy_of_counts(counts, estimator=name), want)
        np.testing.assert_array_equal(isentropic.entropy_of_counts(np.moveaxis(counts, -1, 0), estimator=name, axis=0), want)
        shuffled = rng.permuted(counts, axis=-1)
        np.testing.assert_array_equal(isentropic.entropy_of_counts(shuffled, estimator=name), want)
        np.testing.assert_allclose(isentropic.entropy_of_counts(counts, estimator=name, base=2), np.array(want) / math.log(2))
    floats = isentropic.entropy_of_counts(counts.astype(np.float32))
    assert floats.dtype == np.float32
    mean, deviation = isentropic.entropy_of_counts(counts, estimator="nsb", return_std=True)
    assert mean.shape == deviation.shape == (3, 4) and (deviation > 0).all()
    assert np.isnan(isentropic.entropy_of_counts([[0, 0], [1, 1]])).tolist() == [True, False]
    torch = torch_or_skip()
    assert isinstance(isentropic.entropy_of_counts(torch.tensor([[3, 1]])), torch.Tensor)


def test_less_bias_than_frequencies():
    """Of laws of 50 classes and 100 draws, where frequencies lack a fifth."""
    rng = np.random.default_rng(1)
    zipf, uniform = 1 / np.arange(1, 51), np.ones(50)
    for law in (uniform / 50, zipf / zipf.sum(), 0.8 ** np.arange(50) / (0.8 ** np.arange(50)).sum()):
        counts = rng.multinomial(100, law, 1000)
        truth = isentropic.entropy(law)
        bias = {name: isentropic.entropy_of_counts(counts, estimator=name).mean() - truth for name in ESTIMATORS}
        for name in ("miller_madow", "jackknife", "grassberger", "chao_shen", "nsb"):
            assert abs(bias[name]) < 0.6 * abs(bias["plugin"]), bias
        mean, deviation = isentropic.entropy_of_counts(counts, estimator="nsb", return_std=True)
        assert 0.6 < mean.std() / deviation.mean() < 1.6  # it knows how sure it is


def test_information():
    rng = np.random.default_rng(2)
    table = rng.integers(0, 9, (2, 3, 4))
    for one in table:
        x, y, both = one.sum(1).tolist(), one.sum(0).tolist(), one.ravel().tolist()
        for name in ("plugin", "miller_madow", "jackknife", "grassberger", "chao_shen", "nsb"):
            want = sum(isentropic.entropy_of_counts(part, estimator=name) * sign for part, sign in ((x, 1), (y, 1), (both, -1)))
            assert isentropic.mutual_information_of_counts(one, estimator=name) == pytest.approx(want, abs=1e-14)
    got = isentropic.mutual_information_of_counts(table, estimator="plugin", base=2)
    np.testing.assert_allclose(got, [isentropic.mutual_information(one, normalize=True, base=2) for one in table])
    counts = [[12, 3], [4, 11]]
    p = np.array(counts) / 30
    share = min(1, (1 - (p**2).sum()) / (29 * ((0.25 - p) ** 2).sum()))
    want = isentropic.mutual_information(share / 4 + (1 - share) * p)
    assert isentropic.mutual_information_of_counts(counts, estimator="james_stein") == pytest.approx(want, abs=1e-15)
    assert np.isnan(isentropic.mutual_information_of_counts(np.zeros((2, 2))))


def test_refused():
    of = isentropic.entropy_of_counts
    for wrong, got in ((1.5, "1.5"), (-1, "-1"), (np.nan, "nan"), (np.inf, "inf")):
        message = f"^entropy_of_counts: counts must be whole numbers of at least 0, got {got} at entry 1 in row 1"
        with pytest.raises(ValueError, match=message):
            of([[1, 2], [3, wrong]])
        with pytest.raises(
            ValueError, match=f"^mutual_information_of_counts: table must be whole.*got {got} at column 1 in row 1"
        ):
            isentropic.mutual_information_of_counts([[1, 2], [3, wrong]])
    with pytest.raises(ValueError, match=r"^entropy_of_counts: classes must be at least the 3 seen, got 2 in row 1"):
        of([[1, 0, 0], [1, 1, 1]], estimator="nsb", classes=2)
    with pytest.raises(
        ValueError, match=r"^entropy_of_counts: classes must not be given, it is for estimators james_stein and nsb"
    ):
        of([1, 2], classes=5)
    with pytest.raises(ValueError, match=r"^entropy_of_counts: classes must be a whole number"):
        of([1, 2], estimator="nsb", classes=2.5)
    with pytest.raises(ValueError, match=r'^entropy_of_counts: return_std needs estimator "nsb", got "grassberger"'):
        of([1, 2], return_std=True)
    with pytest.raises(ValueError, match=r"^entropy_of_counts: estimator must be one of plugin, miller_madow"):
        of([1, 2], estimator="ml")
    with pytest.raises(ValueError, match=r"^mutual_information_of_counts: table must have at least 2 axes"):
        isentropic.mutual_information_of_counts([1, 2])
