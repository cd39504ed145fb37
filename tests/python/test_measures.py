"""Measures: against their definitions with 50 digits, other libraries' test values, arrays of every kind, and errors."""

import inspect
import itertools
import math
import pickle
import re
import tracemalloc

import mpmath
import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

import isentropic
from cases import FLOATS, laid_out, torch_or_skip
from isentropic._descriptions import MEASURES

ONE, TWO, TABLE = (
    [name for name, one in MEASURES.items() if one["family"] == family] for family in ("measure", "divergence", "table")
)
ENTRY = ["self_information", "binary_entropy"]
ALPHAS = [0, 1e-300, 0.01, 0.5, 0.9, 1 - 1e-4, 1 - 1e-10, 1, 1 + 1e-14, 1 + 1e-6, 1.001, 1.1, 1.2, 2, 3.7, 50, 1e4, math.inf]
LOG2 = math.log(2)


def required(name, **given):
    """A value for each parameter without a default; of those given, the ones that the measure has."""
    params = MEASURES[name]["params"]
    has = {param["name"] for param in params}
    typical = {param["name"]: param["typical"] for param in params if param["required"]}
    return typical | {key: value for key, value in given.items() if key in has}


# Definitions.


def number(x):
    return mpf(float(x))


def numbers(row):
    return [number(x) for x in row]


def xlogx(p):
    return p * mpmath.log(p) if p else mpf(0)


def normalized(p):
    total = mpmath.fsum(p)
    return [pi / total for pi in p]


def softmax(x):
    top = max(x)
    return normalized([mpmath.exp(xi - top) if xi > -mpmath.inf else mpf(0) for xi in x])


def entropy(p):
    return -mpmath.fsum(map(xlogx, p))


def kl_divergence(p, q):
    if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True)):
        return mpmath.inf
    return mpmath.fsum(b if a == 0 else a * mpmath.log(a / b) - a + b for a, b in zip(p, q, strict=True))


def js_divergence(p, q):
    m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return (kl_divergence(p, m) + kl_divergence(q, m)) / 2


def cross_entropy(p, q):
    return -mpmath.fsum(a * mpmath.log(b) for a, b in zip(p, q, strict=True) if a)


def renyi_entropy(p, alpha):
    if alpha == 1:
        return entropy(p)
    if alpha == math.inf:
        return -mpmath.log(max(p))
    alpha = mpf(alpha)
    return mpmath.log(mpmath.fsum(pi**alpha for pi in p if pi)) / (1 - alpha)


def tsallis_entropy(p, alpha):
    if alpha == 1:
        return entropy(p)
    if alpha == math.inf:
        return mpf(0)
    alpha = mpf(alpha)
    return (1 - mpmath.fsum(pi**alpha for pi in p if pi)) / (alpha - 1)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(50):
        yield


def close(got, want, relative, absolute=1e-300):
    assert abs(number(got) - want) <= relative * abs(want) + absolute, (got, mpmath.nstr(want, 20))


rng = np.random.default_rng(7)


def simplex(x):
    return x / x.sum()


PROBS = [simplex(rng.random(n) ** power + 1e-300) for n in (1, 2, 3, 17, 65) for power in (1, 8)]
PROBS += [simplex(np.array([0.0, 3, 0, 1, 2])), np.array([1.0, 0, 0]), np.array([0.5, 5e-324, 0.5])]
SCORES = [rng.normal(size=n) * scale for n in (2, 17, 65) for scale in (1e-8, 1e-3, 1, 30)]
SCORES += [np.array([0.0, -40, -41]), np.array([1, -np.inf, 3, 2.5]), np.array([1e308, 1e308, -1e308]), np.array([5.0])]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entropies_of_every_order(alpha):
    for p in PROBS:
        # Near 1 the definition divides what the sum lacks of 1 by alpha - 1.
        q = normalized(numbers(p))
        close(isentropic.renyi_entropy(p, alpha=alpha), renyi_entropy(q, alpha), 2e-14, 3e-15)
        close(isentropic.tsallis_entropy(p, alpha=alpha), tsallis_entropy(q, alpha), 2e-14, 3e-15)
    for x in SCORES:
        q = softmax(numbers(x))
        close(isentropic.renyi_entropy(x, alpha=alpha, input="scores"), renyi_entropy(q, alpha), 2e-14)
        close(isentropic.tsallis_entropy(x, alpha=alpha, input="scores"), tsallis_entropy(q, alpha), 2e-14)


def test_entropy_relative_to_itself():
    nearly_certain = simplex(np.array([1.0, 1e-12, 1e-14]))
    for p in [*PROBS, nearly_certain]:
        close(isentropic.entropy(p), entropy(numbers(p)), 4e-16 * 4, 2e-322)
        close(isentropic.perplexity(p), mpmath.exp(entropy(numbers(p))), 1e-15)
        if (p > 0).all():
            logs = np.log(p)
            want = -mpmath.fsum(mpmath.exp(number(log)) * number(log) for log in logs)
            close(isentropic.entropy(logs, input="log_probs"), want, 2e-15, 2e-322)
    for p in (np.array([3.0, 1e-10]), np.array([5, 1, 0, 2]), np.array([1e308, 1e308, 1e300])):
        close(isentropic.entropy(p, normalize=True), entropy(normalized(numbers(p))), 2e-15)
    for x in SCORES:
        close(isentropic.entropy(x, input="scores"), entropy(softmax(numbers(x))), 1e-14)
        close(isentropic.entropy(x, input="log_probs", normalize=True), entropy(softmax(numbers(x))), 1e-14)


@pytest.mark.parametrize("distance", [1e-9, 1e-6, 1e-3, 1.0, "far"])
def test_divergences(distance):
    for p in PROBS:
        q = simplex(rng.random(len(p)) ** 9) if distance == "far" else simplex(p * np.exp(distance * rng.normal(size=len(p))))
        a, b = numbers(p), numbers(q)
        close(isentropic.kl_divergence(p, q), kl_divergence(a, b), 1e-14, 1e-320)
        close(isentropic.js_divergence(p, q), js_divergence(a, b), 1e-14, 1e-320)
        close(isentropic.js_distance(p, q), mpmath.sqrt(js_divergence(a, b)), 1e-14, 1e-160)
        if distance != "far":
            close(isentropic.cross_entropy(p, q), cross_entropy(a, b), 1e-14, 1e-320)
        # Float32 rows are the numbers that they are.
        p32, q32 = p.astype(np.float32), q.astype(np.float32)
        want = kl_divergence(numbers(p32), numbers(q32))
        if mpmath.isinf(want):
            assert isentropic.kl_divergence(p32, q32) == np.inf
        else:
            close(isentropic.kl_divergence(p32, q32), want, 1e-6, 1e-45)


@pytest.mark.parametrize("distance", [1e-8, 1e-6, 1e-3, 1.0, 30.0])
def test_divergences_of_scores(distance):
    for x in SCORES:
        if len(x) == 1 or abs(x[np.isfinite(x)]).max() > 1e5:
            continue
        y = x + distance * rng.normal(size=len(x))
        p, q = softmax(numbers(x)), softmax(numbers(y))
        relative = 1e-13 + 1e-14 / distance
        close(isentropic.kl_divergence(x, y, input="scores"), kl_divergence(p, q), relative)
        close(isentropic.js_divergence(x, y, input="scores"), js_divergence(p, q), relative)
        logs = [isentropic.log_softmax(z) for z in (x, y)]
        if np.isfinite(logs).all():
            exact = [[mpmath.exp(number(log)) for log in row] for row in logs]
            close(isentropic.kl_divergence(*logs, input="log_probs"), kl_divergence(*exact), relative)
            close(isentropic.js_divergence(*logs, input="log_probs"), js_divergence(*exact), relative)


def test_near_equal_where_the_textbook_sum_fails():
    p = simplex(rng.random(300))
    q = simplex(p * (1 + 1e-6 * rng.normal(size=300)))
    want = kl_divergence(numbers(p), numbers(q))
    close(isentropic.kl_divergence(p, q), want, 1e-13)
    assert abs(scipy.stats.entropy(p, q) - float(want)) > 1e-5 * float(want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-1, 1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_near_equal_scores(size, shift, dtype):
    """Relative to themselves, however near: what each score differs by is all there is to know."""
    x = (2 * rng.normal(size=(4, 30))).astype(dtype)
    y = (x + dtype(shift) + size * rng.normal(size=x.shape)).astype(dtype)
    x[3, 5:9] = y[3, 5:9] = -np.inf
    x[2, :5], y[2, :5] = 40, 40 + dtype(shift)  # nearly all mass in five places
    for name, definition in (("kl_divergence", kl_divergence), ("js_divergence", js_divergence)):
        got = getattr(isentropic, name)(x.astype(np.float64), y.astype(np.float64), input="scores")
        with mpmath.workdps(90):  # the terms of 1e-37 are 1e-10
            for row, pair in zip(got, zip(x, y, strict=True), strict=True):
                close(row, definition(*(softmax([number(v) for v in one]) for one in pair)), 1e-14)


def test_near_equal_but_for_what_one_lacks():
    x, y = [2.7e-12, -6.9e32, 1.4e-17], [0, -51.7, 0]
    with mpmath.workdps(90):
        want = js_divergence(*(softmax([number(v) for v in one]) for one in (x, y)))
        close(isentropic.js_divergence(x, y, input="scores"), want, 1e-14)
        close(isentropic.js_divergence(y, x, input="scores"), want, 1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("far", [-1, -60, -300, -699, -700, -701, -740, -1000, -1e30])
def test_an_absent_class_of_q_is_infinitely_far_however_unlikely_in_p(dtype, far):
    """Up to a probability of e^-745, which is 0 in float64, also of float32 scores."""
    x, y = np.array([0, far, -200], dtype), np.array([-0.6, -np.inf, 0], dtype)
    assert isentropic.kl_divergence(x, y, input="scores") == np.inf
    assert isentropic.kl_divergence(x[:2], y[:2], input="scores") == np.inf
    x[1] = -np.inf
    assert isentropic.kl_divergence(x, y, input="scores") < np.inf


def test_exact_zero_and_bounds():
    for p in PROBS:
        for kind, x in (("probs", p), ("scores", 3 * p)):
            for name in TWO[1:]:
                assert getattr(isentropic, name)(x, x, input=kind, **required(name)) == 0
                assert getattr(isentropic, name)(x, x, input=kind, normalize=True, **required(name)) == 0
    for dtype in FLOATS:
        far = isentropic.js_divergence(np.array([1, 0], dtype), np.array([0, 1], dtype))
        assert far.dtype == (np.float32 if dtype == np.float16 else dtype) and LOG2 - 1e-7 < float(far) <= LOG2
        assert isentropic.js_divergence(np.array([1, 0], dtype), np.array([0, 1], dtype), base=2) == 1
        assert isentropic.js_distance(np.array([1, 0], dtype), np.array([0, 1], dtype), base=2) == 1
    assert isentropic.kl_divergence([1.0, 0.0], [0.0, 1.0]) == np.inf
    assert isentropic.kl_divergence([1.0, 0.0], [0.5, 0.5]) == pytest.approx(LOG2, rel=1e-15)
    assert isentropic.cross_entropy([0.5, 0.5], [1.0, 0.0]) == np.inf
    assert str(isentropic.entropy([1.0, 0.0])) == "0.0"


def test_subnormals():
    p, q = np.array([1.0, 5e-324]), np.array([1.0, 1e-300])
    assert isentropic.kl_divergence(p, q) == pytest.approx(1e-300, rel=1e-14)
    assert isentropic.js_divergence(p, q) == pytest.approx(1e-300 * LOG2 / 2, rel=1e-14)
    close(isentropic.kl_divergence(q, p), kl_divergence(numbers(q), numbers(p)), 1e-14)
    # Quotients that are no numbers of the type.
    for tiny in 5e-324, 1e-310, 3e-308:
        p, q = np.array([tiny, 1.0]), np.array([0.07, 0.93])
        exact = math.log(tiny) - math.log(0.07)
        assert isentropic.kl_divergence(p, q, return_grad=True)[1][0] == pytest.approx(exact, rel=1e-14)
        half = math.log(tiny) - math.log(0.07 / 2)
        assert isentropic.js_divergence(p, q, return_grad=True)[1][0] == pytest.approx(half / 2, rel=1e-14)
        assert isentropic.kl_divergence(q, p) == pytest.approx(0.07 * -exact + 0.93 * math.log(0.93), rel=1e-14)


# Tables.

TABLES = [simplex(rng.random((n, m))) for n, m in ((1, 1), (2, 3), (5, 4), (17, 33))] + [
    simplex(np.array([[4.0, 0, 1], [0, 0, 5]]))
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.shape))
def test_tables(table):
    rows, cols = ([mpmath.fsum(numbers(line)) for line in side] for side in (table, table.T))
    joint, of_x, of_y = entropy(numbers(table.ravel())), entropy(rows), entropy(cols)
    for kind, x in (
        ("probs", table),
        ("log_probs", np.log(np.maximum(table, 0), where=table > 0, out=np.full_like(table, -np.inf))),
    ):
        close(isentropic.joint_entropy(x, input=kind), joint, 1e-14)
        close(isentropic.conditional_entropy(x, input=kind), joint - of_x, 1e-14, 1e-15)
        close(isentropic.conditional_entropy(x, given="y", input=kind), joint - of_y, 1e-14, 1e-15)
        close(isentropic.mutual_information(x, input=kind), of_x + of_y - joint, 1e-13, 1e-15)
    scaled = {
        "probs": (table * 7, True),
        "scores": (np.log(table, where=table > 0, out=np.full_like(table, -np.inf)) + 2, False),
    }
    for kind, (x, normalize) in scaled.items():
        close(
            isentropic.mutual_information(x, input=kind, normalize=normalize, base=2),
            (of_x + of_y - joint) / mpmath.log(2),
            1e-13,
            1e-15,
        )
    stacked = isentropic.mutual_information(np.stack([table, table]))
    assert stacked.shape == (2,) and (stacked == isentropic.mutual_information(table)).all()


def test_a_product_says_nothing():
    for n, m in ((2, 2), (30, 50), (200, 300)):
        table = np.outer(simplex(rng.random(n)), simplex(rng.random(m)))
        assert 0 <= isentropic.mutual_information(table) < 1e-28
    near = np.outer(simplex(rng.random(4)), simplex(rng.random(4)))
    near[0, 0] += 1e-7
    near[1, 1] += 1e-7
    near[0, 1] -= 1e-7
    near[1, 0] -= 1e-7
    p = numbers(near.ravel())
    rows, cols = ([mpmath.fsum(numbers(line)) for line in side] for side in (near, near.T))
    total = mpmath.fsum(p)
    want = kl_divergence(p, [a * b / total for a in rows for b in cols])
    close(isentropic.mutual_information(near), want, 1e-7)


# Entries.


def test_entries():
    p = np.array([0, 5e-324, 1e-300, 1e-12, 0.1, 0.5, 0.9, 1 - 1e-15, 1])
    for value, pi in zip(isentropic.self_information(p), p, strict=True):
        assert value == (np.inf if pi == 0 else pytest.approx(-math.log(pi), rel=1e-15))
    for value, pi in zip(isentropic.binary_entropy(p), numbers(p), strict=True):
        close(value, -xlogx(pi) - (1 - pi) * (mpmath.log1p(-pi) if pi < 1 else 0), 1e-15, 1e-320)
    for value, x in zip(
        isentropic.binary_entropy(np.array([-800.0, -3, 0, 3, 800]), input="scores"), (-800, -3, 0, 3, 800), strict=True
    ):
        pi = 1 / (1 + mpmath.exp(-x))
        close(value, -xlogx(pi) - xlogx(1 - pi), 1e-14, 1e-320)
    assert isentropic.binary_entropy(0.5, base=2) == 1 and isentropic.self_information(0.25, base=2) == 2
    assert isinstance(isentropic.binary_entropy(np.float32(0.5)), np.float32)
    x = np.array([[1.0, 2, 3], [0, 0, -np.inf]])
    np.testing.assert_allclose(isentropic.self_information(x, input="scores"), -isentropic.log_softmax(x), rtol=1e-15)
    np.testing.assert_allclose(
        isentropic.self_information(x.T, input="scores", axis=0), -isentropic.log_softmax(x).T, rtol=1e-15
    )


# What others' tests expect.


def test_scipy_values():
    # scipy/stats/tests/test_entropy.py and spatial/tests/test_distance.py
    assert isentropic.entropy([1, 1], normalize=True) == pytest.approx(0.6931471805599453)
    assert isentropic.entropy([1, 1], normalize=True, base=2) == 1
    assert isentropic.kl_divergence([0.5, 0.2, 0.3], [0.1, 0.5, 0.4]) == pytest.approx(
        scipy.stats.entropy([0.5, 0.2, 0.3], [0.1, 0.5, 0.4])
    )
    assert isentropic.entropy(np.array([0, 1, 2]), normalize=True) == pytest.approx(0.63651416829481278, rel=1e-12)
    pk, qk = [[0.1, 0.2], [0.6, 0.3], [0.3, 0.5]], [[0.2, 0.1], [0.3, 0.6], [0.5, 0.3]]
    np.testing.assert_allclose(isentropic.kl_divergence(pk, qk, axis=0), [0.1933259, 0.18609809], rtol=1e-6)
    np.testing.assert_allclose(isentropic.entropy(pk, axis=0), scipy.stats.entropy(pk), rtol=1e-14)
    assert isentropic.js_distance([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], base=2) == 1
    assert isentropic.js_distance([1.0, 0.0], [0.5, 0.5]) == pytest.approx(0.46450140402245893)
    a, b = rng.random((6, 40)), rng.random((6, 40))
    np.testing.assert_allclose(
        isentropic.js_distance(a, b, normalize=True), scipy.spatial.distance.jensenshannon(a, b, axis=1), rtol=1e-12
    )
    np.testing.assert_allclose(
        isentropic.kl_divergence(a, b, normalize=True, base=3), scipy.stats.entropy(a, b, axis=1, base=3), rtol=1e-12
    )


def test_dit_values():
    # dit: tests/divergences, tests/other, tests/shannon; bits.
    assert isentropic.entropy([0.5, 0.5], base=2) == 1
    assert isentropic.binary_entropy(0.3, base=2) == pytest.approx(0.8812908992306927)
    assert isentropic.js_divergence([0.5, 0.5, 0.0], [0.0, 0.5, 0.5], base=2) == pytest.approx(0.5)
    for alpha in (0, 0.5, 1, 2, 5, math.inf):
        for n in range(2, 11):
            assert isentropic.renyi_entropy(np.full(n, 1 / n), alpha=alpha, base=2) == pytest.approx(math.log2(n))
            assert isentropic.perplexity(np.full(n, 1 / n)) == pytest.approx(n)
    # tests/other/test_tsallis_entropy.py, there in nats: additive up to (1 - q) S S
    p, q = np.array([0.75, 0.25]), np.array([0.5, 0.3, 0.2])
    for alpha in (0.5, 2, 3):
        one, two = isentropic.tsallis_entropy(p, alpha=alpha), isentropic.tsallis_entropy(q, alpha=alpha)
        both = isentropic.tsallis_entropy(np.outer(p, q).ravel(), alpha=alpha)
        assert both == pytest.approx(one + two + (1 - alpha) * one * two)
    xor = np.array([[0.25, 0.25], [0.25, 0.25]])
    assert isentropic.mutual_information(xor, base=2) == 0 and isentropic.conditional_entropy(xor, base=2) == 1


def test_identities():
    p, q, table = simplex(rng.random(9)), simplex(rng.random(9)), simplex(rng.random((3, 4)))
    x = rng.normal(size=9)
    assert isentropic.cross_entropy(p, q) == pytest.approx(isentropic.kl_divergence(p, q) + isentropic.entropy(p), rel=1e-14)
    assert isentropic.entropy(p) == pytest.approx(p @ isentropic.self_information(p), rel=1e-14)
    assert isentropic.tsallis_entropy(p, alpha=2) == pytest.approx(1 - p @ p, rel=1e-14)
    s = isentropic.softmax(x)
    assert isentropic.tsallis_entropy(s, alpha=2) == pytest.approx(abs(np.diag(s) - np.outer(s, s)).sum() / 2, rel=1e-13)
    information = isentropic.mutual_information(table)
    assert information == pytest.approx(isentropic.entropy(table.sum(0)) - isentropic.conditional_entropy(table), rel=1e-12)
    assert information == pytest.approx(
        isentropic.entropy(table.sum(1)) - isentropic.conditional_entropy(table, given="y"), rel=1e-12
    )
    assert isentropic.entropy(x, input="scores") == pytest.approx(
        isentropic.gamma_for_entropy(x, entropy=isentropic.entropy(x, input="scores")).entropy
    )
    assert isentropic.perplexity(p, base=2) == isentropic.perplexity(p)


# Gradients, through what they are functions of.


def difference(function, x, h=1e-6):
    result = np.empty_like(x)
    for index in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()
        above[index] += h
        below[index] -= h
        result[index] = (function(above) - function(below)) / (2 * h)
    return result


@pytest.mark.parametrize("name", [*ONE, *TWO, *TABLE])
@pytest.mark.parametrize(("kind", "normalize"), [("scores", False), ("probs", True), ("log_probs", True)])
@pytest.mark.parametrize("order", [0.6, 1.7])
@pytest.mark.parametrize("smoothing", [0, 0.3])
def test_gradients(name, kind, normalize, order, smoothing):
    function = getattr(isentropic, name)
    params = required(name, input=kind, normalize=normalize, base=2, alpha=order, order=order, smoothing=smoothing)
    if (smoothing and "smoothing" not in params) or (order == 0.6 and not {"alpha", "order"} & {*params}):
        return
    shape = (3, 4) if name in TABLE else (7,)
    p, q = rng.random(shape) + 0.2, rng.random(shape) + 0.2
    if name not in TWO:
        _, dp = function(p, return_grad=True, **params)
        np.testing.assert_allclose(dp, difference(lambda x: function(x, **params), p), rtol=1e-6, atol=1e-8)
        return
    _, dp, dq = function(p, q, return_grad=True, **params)
    np.testing.assert_allclose(dp, difference(lambda x: function(x, q, **params), p), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dq, difference(lambda x: function(p, x, **params), q), rtol=1e-6, atol=1e-8)


def test_gradients_at_a_zero_do_not_depend_on_its_sign():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.0, 0.75, 0.25])
    for name in ("cross_entropy", "kl_divergence", "js_divergence", "js_distance"):
        want = getattr(isentropic, name)(p, q, return_grad=True)
        got = getattr(isentropic, name)(np.where(p == 0, -0.0, p), np.where(q == 0, -0.0, q), return_grad=True)
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)
    for one, other in zip(
        *(isentropic.self_information(x * p, return_grad=True) for x in (1, 1 * np.sign(p - 0.1))), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_gradients_of_weights_that_are_tiny():
    for name, params in [
        ("entropy", {}),
        ("perplexity", {}),
        ("renyi_entropy", {"alpha": 2.0}),
        ("tsallis_entropy", {"alpha": 3.0}),
    ]:
        _, dp = getattr(isentropic, name)(np.full(4, 1e-320), **params, normalize=True, return_grad=True)
        np.testing.assert_allclose(dp * 1e-320, 0, atol=1e-15)  # not NaN
    # The derivative in weights w is 2^1040 times that in 2^1040 w, and here beyond every number.
    w = np.array([3.0, 1.0, 2.0])
    _, want = isentropic.entropy(w, normalize=True, return_grad=True)
    _, dp = isentropic.entropy(np.ldexp(w, -1040), normalize=True, return_grad=True)
    np.testing.assert_array_equal(dp, np.copysign(np.inf, want))


# Weights whose sum overflows, or whose quotients by it underflow.
FAR_WEIGHTS = [[1, 1, 1], [1e308, 1e308, 1e-300], [1e308, 1e-300, 3], [5e-324, 1000, 2], [1.7e308, 1e-320, 1.7e308]]


@pytest.mark.parametrize("p", FAR_WEIGHTS)
@pytest.mark.parametrize("q", FAR_WEIGHTS)
def test_weights_that_are_far_apart(p, q):
    p, q = np.array(p, float), np.array(q, float)
    sums = [mpmath.fsum(numbers(w)) for w in (p, q)]
    a, b = normalized(numbers(p)), normalized(numbers(q))
    m = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
    logs = [[mpmath.log(x / y) for x, y in zip(*rows, strict=True)] for rows in ((a, b), (a, m), (b, m))]
    slopes = {
        "entropy": [[-mpmath.log(x) for x in a]],
        "cross_entropy": [[-mpmath.log(y) for y in b], [-x / y for x, y in zip(a, b, strict=True)]],
        "kl_divergence": [logs[0], [-x / y for x, y in zip(a, b, strict=True)]],
        "js_divergence": [[x / 2 for x in logs[1]], [x / 2 for x in logs[2]]],
    }
    for name, partials in slopes.items():
        rows = (p, q) if len(partials) == 2 else (p,)
        value, *gradients = getattr(isentropic, name)(*rows, normalize=True, return_grad=True)
        close(value, globals()[name](*(a, b)[: len(rows)]), 1e-13, 1e-16)
        for gradient, partial, row, total in zip(gradients, partials, (a, b), sums, strict=False):
            mean = mpmath.fsum(x * y for x, y in zip(row, partial, strict=True))
            for got, slope in zip(gradient, partial, strict=True):
                want = (slope - mean) / total
                if abs(slope) < 1e308:
                    assert abs(number(got) - want) <= 1e-12 * abs(want) + 1e-15 * (abs(mean) + 1) / total + 5e-324, name
                else:
                    assert got == math.copysign(math.inf, want), name


def test_gradients_of_probabilities():
    p, q = simplex(rng.random(5)), simplex(rng.random(5))
    np.testing.assert_allclose(isentropic.entropy(p, return_grad=True)[1], -np.log(p) - 1)
    _, dp, dq = isentropic.kl_divergence(p, q, return_grad=True)
    np.testing.assert_allclose(dp, np.log(p / q))
    np.testing.assert_allclose(dq, 1 - p / q)
    _, dp, dq = isentropic.cross_entropy(p, q, return_grad=True)
    np.testing.assert_allclose(dp, -np.log(q))
    np.testing.assert_allclose(dq, -p / q)
    m = (p + q) / 2
    _, dp, dq = isentropic.js_divergence(p, q, return_grad=True)
    np.testing.assert_allclose(dp, np.log(p / m) / 2)
    np.testing.assert_allclose(dq, np.log(q / m) / 2)
    np.testing.assert_allclose(isentropic.renyi_entropy(p, alpha=3, return_grad=True)[1], -1.5 * p**2 / (p**3).sum())
    np.testing.assert_allclose(isentropic.tsallis_entropy(p, alpha=3, return_grad=True)[1], -1.5 * p**2)
    np.testing.assert_allclose(isentropic.self_information(p, return_grad=True)[1], -1 / p)
    np.testing.assert_allclose(isentropic.binary_entropy(p, return_grad=True)[1], np.log((1 - p) / p))
    # Where nothing is, nothing changes.
    for name in TWO:
        _, dp, dq = getattr(isentropic, name)([0.4, 0.6, 0.0], [0.5, 0.5, 0.0], return_grad=True, **required(name))
        assert dp[2] == 0 and dq[2] == 0 and np.isfinite([dp, dq]).all()
    # Continuous through order 1.
    for name in ("renyi_entropy", "tsallis_entropy"):
        for alpha in (1 - 1e-7, 1 + 1e-12, 1 + 1e-7):
            grad = getattr(isentropic, name)(p, alpha=alpha, return_grad=True)[1]
            np.testing.assert_allclose(grad, -np.log(p) - 1, rtol=1e-5, atol=1e-5)


def test_extremes_of_new_measures():
    value, dp = isentropic.varentropy([0.0, 0.0, 1.0], return_grad=True)
    assert value == 0 and dp.tolist() == [math.inf, math.inf, 0]
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2])
    far = isentropic.renyi_divergence(p, q, alpha=1e25, return_grad=True)
    for one, other in zip(far, isentropic.renyi_divergence(p, q, alpha=math.inf, return_grad=True), strict=True):
        np.testing.assert_array_equal(one, other)
    # Scores whose logarithms cancel, or whose differences overflow.
    x = np.array([1e20, 0.0, -3e20])
    assert isentropic.renyi_divergence(x, x[::-1], alpha=1e-30, input="scores") >= 0
    y = np.array([1.7e308, -1.3e308, -1.7e308])
    for name in ("hellinger_distance", "total_variation"):
        one, other = (getattr(isentropic, name)(*pair, input="scores") for pair in ((y, p), (p, y)))
        assert one == other and 0 < one < 1


# Arrays.


def call(name, p, axis=-1, **params):
    params |= required(name, alpha=2.5)
    if name in TWO:
        return getattr(isentropic, name)(
            p, p[..., ::-1] if axis in (-1, p.ndim - 1) else p, axis=axis, input="scores", **params
        )
    return getattr(isentropic, name)(p, axis=axis, input="scores", **params)


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_any_axis_and_layout_gives_the_bits_of_the_contiguous_one(name, dtype, data):
    x, axis = data.draw(laid_out(dtype))
    before = x.copy()
    q = np.flip(x, axis)
    params = required(name, alpha=2.5)
    arrays = (x, q) if name in TWO else (x,)
    got = getattr(isentropic, name)(*arrays, axis=axis, input="scores", return_grad=True, **params)
    rows = [np.ascontiguousarray(np.moveaxis(array, axis, -1)) for array in arrays]
    want = getattr(isentropic, name)(*rows, input="scores", return_grad=True, **params)
    np.testing.assert_array_equal(got[0], want[0], strict=True)
    for dp, wanted in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(dp, np.moveaxis(wanted, -1, axis), strict=True)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "call", [isentropic.entropy, isentropic.self_information, isentropic.softmax_loss], ids=lambda f: f.__name__
)
def test_rows_that_lie_side_by_side_are_not_copied(call):
    x = np.full((8, 1 << 17), 1 / (1 << 17)).T
    target = (np.zeros(8, np.int64),) if call is isentropic.softmax_loss else ()
    tracemalloc.start()
    result = call(x, *target, axis=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < result.nbytes + x.nbytes / 8


@pytest.mark.parametrize("name", ONE)
def test_dtypes_and_lists(name):
    params = required(name, alpha=2.5)
    function = getattr(isentropic, name)
    x = np.array([[1, 1, 2], [3, 1, 0]])
    want = function(x.astype(float), normalize=True, **params)
    for same in (x, x.astype(np.int8), x.astype(">f8"), x.tolist()):
        np.testing.assert_array_equal(function(same, normalize=True, **params), want, strict=True)
    for dtype in FLOATS:
        y, dp = function(x.astype(dtype), normalize=True, return_grad=True, **params)
        assert dp.dtype == dtype and y.dtype == (np.float32 if dtype == np.float16 else dtype)
        np.testing.assert_allclose(y, want, rtol=1e-3 if dtype == np.float16 else 1e-6)  # the float16 are not a distribution
    assert function(np.empty((0, 3)), **params).shape == (0,)
    assert function(np.empty((2, 0)), **params).shape == (2,)
    torch = torch_or_skip()
    y = function(torch.tensor(x, dtype=torch.float32), normalize=True, **params)
    assert isinstance(y, torch.Tensor) and y.dtype == torch.float32


def test_broadcast():
    p, q = isentropic.softmax(rng.normal(size=(4, 3, 5))), isentropic.softmax(rng.normal(size=5))
    want = [[isentropic.kl_divergence(row, q) for row in block] for block in p]
    np.testing.assert_array_equal(isentropic.kl_divergence(p, q), want)
    np.testing.assert_array_equal(isentropic.kl_divergence(p, q[None]), want)
    np.testing.assert_array_equal(isentropic.kl_divergence(q, p).shape, (4, 3))
    other = isentropic.softmax(rng.normal(size=(3, 5)))
    want = [[isentropic.js_divergence(row, q) for row, q in zip(block, other, strict=True)] for block in p]
    np.testing.assert_array_equal(isentropic.js_divergence(p, other), want)
    assert isentropic.kl_divergence(p.astype(np.float32), q).dtype == np.float64
    with pytest.raises(ValueError, match=r"^kl_divergence: q must have a shape that broadcasts"):
        isentropic.kl_divergence(p, np.ones((2, 5)))
    with pytest.raises(ValueError, match=r"^kl_divergence: q must have 5 entries along axis 2, got 1"):
        isentropic.kl_divergence(p, np.ones((3, 1)))


# What is refused.


@pytest.mark.parametrize("name", [*ONE, *TWO, *TABLE])
def test_no_distribution(name):
    params = required(name)
    argument = "pxy" if name in TABLE else "p"

    def of(x, **more):
        arrays = (x, [[0.5, 0.5]]) if name in TWO else (x,)
        return getattr(isentropic, name)(*arrays, **params, **more)

    advice = "" if name in TABLE else ' (input="scores" takes scores)'
    at = "column 0 in row 1" if name in TABLE else "entry 0 in row 1"
    good = [0.25, 0.25] if name in TABLE else [0.5, 0.5]
    for wrong, got in ((-0.5, "-0.5"), (np.nan, "nan"), (np.inf, "inf")):
        for normalize in (False, True):
            with pytest.raises(
                ValueError, match=f"^{name}: {argument} must be at least 0 and finite, got {got} at {at}{re.escape(advice)}$"
            ):
                of(np.array([good, [wrong, 0.5]]), normalize=normalize)
    with pytest.raises(ValueError, match=f"^{name}: {argument} must sum to 1 within 1e-06.*got "):
        of(np.array([good, [0.5, 0.6]]))
    with pytest.raises(ValueError, match=rf"^{name}: {argument} must sum to 1 within 0\.0001"):
        of(np.array([good, [0.5, 0.6]], np.float32))
    with pytest.raises(ValueError, match=f"^{name}: {argument} must have an entry above 0"):
        of(np.zeros((1, 2)), normalize=True)
    if "base" in required(name, base=1):
        with pytest.raises(ValueError, match=f"^{name}: base must be above 1"):
            of(np.array([good]), base=1)
        with pytest.raises(TypeError, match=f"^{name}: base must be a number, got str"):
            of(np.array([good]), base="2")
    with pytest.raises(ValueError, match=f"^{name}: input must be one of scores, probs, log_probs, got 'logits'"):
        of(np.array([good]), input="logits")
    with pytest.raises(TypeError, match=f"^{name}: normalize must be a bool, got int"):
        of(np.array([good]), normalize=1)
    x = np.array([[np.nan, 1.0]])
    assert np.isnan(getattr(isentropic, name)(*([x, x] if name in TWO else [x]), input="scores", **params)).all()


def test_tolerances():
    for dtype, tolerance in ((np.float64, 1e-6), (np.float32, 1e-4), (np.float16, 1e-2)):
        for off, good in (
            (0.8 * tolerance, True),
            (-0.8 * tolerance, True),
            (1.4 * tolerance, False),
            (-1.4 * tolerance, False),
        ):
            p = np.array([0.5 + off, 0.5], dtype)
            if good:
                assert isentropic.entropy(p) > 0
            else:
                with pytest.raises(ValueError, match=r"^entropy: p must sum to 1"):
                    isentropic.entropy(p)
    # As given.
    p = np.array([0.5, 0.5 + 9e-7])
    close(isentropic.entropy(p), entropy(numbers(p)), 1e-15)
    close(isentropic.renyi_entropy(p, alpha=2), renyi_entropy(numbers(p), 2), 1e-14)
    close(isentropic.tsallis_entropy(p, alpha=2), tsallis_entropy(numbers(p), 2), 1e-14)


def test_entries_refused():
    for name in ENTRY:
        with pytest.raises(ValueError, match=rf"^{name}: p must be in \[0, 1\], got 1.5 at entry 1 in row 0"):
            getattr(isentropic, name)([0.5, 1.5])
        with pytest.raises(ValueError, match=rf"^{name}: p must be in \[0, 1\], got nan"):
            getattr(isentropic, name)(np.nan)
    with pytest.raises(ValueError, match=r"^self_information: there is no gradient with input scores or normalize"):
        isentropic.self_information([1.0, 2.0], input="scores", return_grad=True)


# Counts.


@given(st.lists(st.lists(st.integers(0, 4), max_size=6), max_size=5), st.lists(st.integers(0, 4), min_size=1))
def test_counts_in_chunks(chunks, last):
    parts = [isentropic.Counts(5).add(np.array(chunk, int)) for chunk in [*chunks, last]]
    together = isentropic.Counts(5).add([outcome for chunk in [*chunks, last] for outcome in chunk])
    merged = isentropic.Counts(5)
    for part in parts:
        merged.merge(part)
    np.testing.assert_array_equal(merged.weights, together.weights)
    assert merged.entropy(base=2) == together.entropy(base=2)
    assert parts[-1].js_divergence(together) <= LOG2
    assert together.kl_divergence(together) == 0


def test_counts():
    counts = isentropic.Counts(2, 3).add([0, 1, 1], [2, 0, 0]).add([0], [2])
    np.testing.assert_array_equal(counts.weights, [[0, 0, 2], [2, 0, 0]])
    assert counts.mutual_information(base=2) == 1 and counts.entropy(base=2) == 1
    assert repr(counts + counts) == "Counts(2, 3) of 8"
    assert isentropic.Counts(3).add([0, 2]).kl_divergence(isentropic.Counts(3).add([0, 1])) == np.inf
    with pytest.raises(ValueError, match=r"^Counts\.add: outcomes must be at least 0 and below 3, got 3"):
        isentropic.Counts(3).add([1, 3])
    with pytest.raises(TypeError, match=r"^Counts\.add: outcomes is a masked array; fill it first$"):
        isentropic.Counts(3).add(np.ma.masked_array([0, 2, 2], mask=[0, 0, 1]))
    with pytest.raises(TypeError, match=r"^Counts\.add: outcomes must be integers, got dtype float64"):
        isentropic.Counts(3).add([1.0])
    with pytest.raises(TypeError, match=r"^Counts\.merge: other must be Counts of"):
        isentropic.Counts(3).merge(isentropic.Counts(4))
    with pytest.raises(TypeError, match=r"^Counts\.mutual_information: one variable has none"):
        isentropic.Counts(3).mutual_information()
    with pytest.raises(ValueError, match=r"^entropy: p must have an entry above 0"):
        isentropic.Counts(3).entropy()


@pytest.mark.parametrize("name", [*ONE, *TWO, *TABLE, *ENTRY, "Counts"])
def test_public_documented_and_pickled(name):
    one = getattr(isentropic, name)
    assert name in isentropic.__all__ and one.__module__ == "isentropic"
    assert pickle.loads(pickle.dumps(one)) is one
    if name == "Counts":
        return
    for parameter in inspect.signature(one).parameters.values():
        assert parameter.name in inspect.cleandoc(one.__doc__).split("Returns")[0]
    example = one.__doc__.split(">>> ")[1]
    exec(example, {"isentropic": isentropic})


KINDS = ("scores", "probs", "log_probs")


def held(x, kind):
    """The distribution of scores x in numbers of a kind."""
    return {"scores": x, "probs": isentropic.softmax(x), "log_probs": isentropic.log_softmax(x)}[kind]


@pytest.mark.parametrize("pair", list(itertools.permutations(KINDS, 2)), ids="-".join)
@pytest.mark.parametrize("name", TWO)
def test_two_kinds_of_input(name, pair):
    """The numbers of one kind for both, and gradients in what was given."""
    measure, rng = getattr(isentropic, name), np.random.default_rng(7)
    x, y = rng.normal(size=(2, 4, 5)), rng.normal(size=(2, 4, 5))
    params = required(name)
    p, q = held(x, pair[0]), held(y, pair[1])
    want = measure(x, y, input="scores", return_grad=True, **params)
    got = measure(p, q, input=pair, return_grad=True, **params)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    np.testing.assert_array_equal(measure(p, q, input=pair, **params), got[0])
    for found, alone, kind, k in zip(got[1:], want[1:], pair, (0, 1), strict=True):
        if kind == "scores":
            np.testing.assert_allclose(found, alone, rtol=1e-10, atol=1e-13)
        else:
            alone = measure(held(x, kind), held(y, kind), input=kind, return_grad=True, **params)[1 + k]
            np.testing.assert_allclose(found, alone, rtol=1e-10, atol=1e-12)
    # Along another axis, in other types, one row for all; the same kind twice; smoothed, divided by the sum.
    turned = measure(np.moveaxis(p, -1, 0), np.moveaxis(q, -1, 0), input=pair, axis=0, return_grad=True, **params)
    np.testing.assert_array_equal(turned[0], got[0])
    np.testing.assert_array_equal(np.moveaxis(turned[2], 0, -1), got[2])
    np.testing.assert_array_equal(measure(p, q[0, 0], input=pair, **params)[0, 0], got[0][0, 0])
    for dtype, tolerance in ((np.float32, 3e-6), (np.float16, 3e-2)):
        narrow = measure(p.astype(dtype), q.astype(dtype), input=pair, normalize=True, **params)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, got[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(measure(p, p, input=(pair[0], pair[0]), **params), measure(p, p, input=pair[0], **params))
    if name != "cross_entropy":
        smooth = measure(p, q, input=pair, smoothing=0.1, **params)
        both = [isentropic.softmax(one) for one in (x, y)]
        np.testing.assert_allclose(smooth, measure(*both, smoothing=0.1, **params), rtol=1e-10)


def test_two_kinds_of_input_of_special_rows_and_wrong_ones():
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])
    x = np.array([[1.0, 2.0, -np.inf], [np.nan, 0, 1], [-np.inf] * 3, [np.inf, np.inf, 1]])
    value, dp, dx = isentropic.kl_divergence(p, x, input=("probs", "scores"), return_grad=True)
    assert np.isnan(value[1:3]).all() and np.isnan(dp[1:3]).all() and np.isnan(dx[1:3]).all()
    assert value[3] == 0 and np.isfinite(dx[[0, 3]]).all() and (dx[3] == 0).all() and dx[0, 2] == dp[0, 2] == 0
    far = isentropic.kl_divergence([0.5, 0.5], [0.0, -2000.0], input=("probs", "scores"))
    assert far == pytest.approx(1000 - math.log(2))
    pair = {"input": ("probs", "scores")}
    for wrong, message in (
        ([[0.5, 0.6, 0.0]], r"kl_divergence: p must sum to 1 within 1e-06, got 1.1 in row 0 \(normalize=True"),
        ([[0.5, -0.5, 1.0]], "kl_divergence: p must be at least 0 and finite, got -0.5 at entry 1 of row 0"),
        ([[0.5, np.nan, 1.0]], "kl_divergence: p must be at least 0 and finite, got nan at entry 1 of row 0"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            isentropic.kl_divergence(wrong, x[:1], **pair)
    with pytest.raises(
        ValueError, match=r"^kl_divergence: input must be one of .*, or a pair of them, for p and q, got \('pro"
    ):
        isentropic.kl_divergence(p, p, input=("probs", "logits"))


@pytest.mark.parametrize(
    ("name", "alphas"),
    [
        ("kl_divergence", [None]),
        ("jeffreys_divergence", [None]),
        ("chi_squared_divergence", [None]),
        ("alpha_divergence", [1, 1.5, 3]),
        ("renyi_divergence", [1, 1.1, 1.5, 3, np.inf]),
    ],
)
def test_a_class_that_q_lacks_however_far_its_score_is_below_the_others(name, alphas):
    for far in (-5.0, -2000.0, -1.2e308):
        for alpha in alphas:
            params = {} if alpha is None else {"alpha": alpha}
            assert (
                getattr(isentropic, name)(
                    [far, 1.2e308 if far < -1e308 else 0.0, 0.0], [-np.inf, 0.0, 1.0], input="scores", **params
                )
                == np.inf
            )


def test_smoothed_gradients_near_the_largest_number():
    """q g is finite where the slope g in a smoothed q is not. The right values are differences at 60 digits."""
    q = np.array([65.85631262718749, 0, 0, 0, 0, 0, 0])
    params = {"alpha": 12.128570250038571, "input": "scores", "smoothing": 2.7712959437752643e-30}
    value, dp, dq = isentropic.alpha_divergence(np.zeros(7), q, **params, return_grad=True)
    np.testing.assert_allclose(value, 1.51261972691494e306, rtol=1e-12)
    np.testing.assert_allclose(dp[:2], [-2.6208449456403e306, 4.36807490940049e305], rtol=1e-12)
    np.testing.assert_allclose(dq[:2], [1.51570733046372e307, -2.5261788841062e306], rtol=1e-12)
