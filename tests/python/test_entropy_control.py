"""Entropy control: against the definitions, for arrays of every kind, and its errors."""

import doctest
import inspect
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isentropic
from cases import FLOATS, laid_out, scores, torch_or_skip

STATUSES = ["ok", "clamped_low", "clamped_high", "constant", "invalid"]
NAMES = ["gamma_for_entropy", "power_transform", "normalize_density", "normalize_joint", "mean_field_entropy"]


def entropy(p, weights=1.0, axis=-1):
    p = np.asarray(p, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, weights * p * np.log(p), 0).sum(axis=axis)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# What all of them share: any array in, the same kind out.

CALLS = {
    "gamma_for_entropy": lambda x, axis: isentropic.gamma_for_entropy(x, entropy=0.5, axis=axis).gamma,
    "power_transform": lambda x, axis: isentropic.power_transform(abs(x), gamma=1.5, axis=axis),
    "mean_field_entropy": lambda x, axis: isentropic.mean_field_entropy(x, gamma=0.5, axis=axis),
}
REDUCED = ["gamma_for_entropy", "mean_field_entropy"]
each_call = pytest.mark.parametrize("name", CALLS)


@each_call
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_any_axis_and_layout_gives_the_bits_of_the_contiguous_one(name, dtype, data):
    x, axis = data.draw(laid_out(dtype))
    before = x.copy()
    y = CALLS[name](x, axis)
    want = CALLS[name](np.ascontiguousarray(np.moveaxis(x, axis, -1)), -1)
    want = want if name in REDUCED else np.moveaxis(want, -1, axis)
    np.testing.assert_array_equal(y, want, strict=True)
    np.testing.assert_array_equal(x, before)
    assert y.dtype == dtype


@each_call
def test_dtypes_and_lists(name):
    x = np.array([[0, 1, 2], [3, 1, 0]])
    want = CALLS[name](x.astype(float), -1)
    for same in (x, x.astype(np.int8), x.astype(">f8")):
        np.testing.assert_array_equal(CALLS[name](same, -1), want, strict=True)
    for dtype in FLOATS:
        y = CALLS[name](x.astype(dtype), -1)
        assert y.dtype == (np.float32 if name in REDUCED and dtype == np.float16 else dtype)
        np.testing.assert_allclose(y, want, rtol=2e-3 if dtype == np.float16 else 1e-6)
    lists = {"gamma_for_entropy": lambda: isentropic.gamma_for_entropy(x.tolist(), entropy=0.5).gamma,
             "power_transform": lambda: isentropic.power_transform(x.tolist(), gamma=1.5),
             "mean_field_entropy": lambda: isentropic.mean_field_entropy(x.tolist(), gamma=0.5)}  # fmt: skip
    np.testing.assert_array_equal(lists[name](), want, strict=True)


@each_call
def test_torch(name):
    torch = torch_or_skip()
    x = torch.randn(3, 4)
    y = CALLS[name](x, 0)
    assert isinstance(y, torch.Tensor) and y.dtype == torch.float32
    np.testing.assert_array_equal(y.numpy(), CALLS[name](x.numpy(), 0))
    with pytest.raises(TypeError, match=rf"^{name}: . is a Tensor that requires grad"):
        CALLS[name](x.requires_grad_(), 0)


@each_call
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty(name, shape):
    y = CALLS[name](np.empty(shape), -1)
    assert y.shape == (shape[:-1] if name in REDUCED else shape)


@each_call
def test_refused_arrays(name):
    argument = "p" if name == "power_transform" else "x"
    with pytest.raises(ValueError, match=f"^{name}: {argument} must have at least one axis, got a single number"):
        CALLS[name](np.array(1.0), -1)
    with pytest.raises(np.exceptions.AxisError, match=f"^{name}: axis 2 is out of bounds"):
        CALLS[name](np.zeros((2, 3)), 2)
    with pytest.raises(TypeError, match=f"^{name}: axis must be one integer"):
        CALLS[name](np.zeros((2, 3)), None)
    with pytest.raises(TypeError, match=f"^{name}: {argument} is a masked array"):
        CALLS[name](np.ma.masked_array([0.0, 1.0], [True, False]), -1)
    with pytest.raises(TypeError, match=f"^{name}: {argument} must be of float16, .* got dtype"):
        if name == "power_transform":
            isentropic.power_transform(["a"], gamma=1)
        else:
            CALLS[name](np.array(["a", "b"]), -1)


@pytest.mark.parametrize("name", [*NAMES, "GammaResult"])
def test_public_documented_and_pickled(name):
    one = getattr(isentropic, name)
    assert name in isentropic.__all__ and one.__module__ == "isentropic"
    assert pickle.loads(pickle.dumps(one)) is one
    if name == "GammaResult":
        return
    for parameter in inspect.signature(one).parameters.values():
        assert f"\n{parameter.name} : " in inspect.cleandoc(one.__doc__)
    for section in ("Parameters", "Returns", "Raises", "Notes", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in inspect.cleandoc(one.__doc__)
    assert max(map(len, inspect.cleandoc(one.__doc__).splitlines())) <= 124
    test = doctest.DocTestParser().get_doctest(one.__doc__, {"isentropic": isentropic, "np": np}, name, None, 0)
    said = []
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


def test_signatures():
    signature = "(x, *, entropy=None, perplexity=None, gamma_range=(0.0, inf), max_iterations=100, axis=-1)"
    shown = str(inspect.signature(isentropic.gamma_for_entropy)).replace("input='scores', ", "")
    assert shown == signature
    assert str(inspect.signature(isentropic.power_transform)) == "(p, *, gamma, axis=-1)"
    assert str(inspect.signature(isentropic.normalize_density)) == "(p, weights, *, entropy, axis=-1)"
    assert str(inspect.signature(isentropic.normalize_joint)) == "(pxy, *, joint=None, marginal=None, conditional=None)"
    assert str(inspect.signature(isentropic.mean_field_entropy)) == "(x, *, gamma=1.0, axis=-1)"


# gamma_for_entropy and power_transform


@given(st.integers(0, 2**32), st.floats(0.05, 0.95), st.sampled_from([1e-6, 1.0, 1e6]))
def test_gamma_gives_the_entropy(seed, share, scale):
    x = scores(np.random.default_rng(seed), (3, 40), scale=scale)
    target = share * np.log(40)
    gamma, reached, status = isentropic.gamma_for_entropy(x, entropy=target)
    assert (status == "ok").all()
    np.testing.assert_allclose(reached, target, rtol=0, atol=1e-12 * max(1, target))
    np.testing.assert_allclose(entropy(softmax(gamma[:, None] * (x - x.max(axis=1, keepdims=True)))), target, atol=4e-12)
    again = isentropic.gamma_for_entropy(x, perplexity=np.exp(target)).gamma
    np.testing.assert_allclose(again, gamma, rtol=1e-9)
    # One thing said in three ways.
    p = isentropic.entropy_normalize(x, entropy=target)
    np.testing.assert_allclose(isentropic.softmax(x * gamma[:, None]), p, atol=1e-10)
    if scale == 1:  # elsewhere softmax(x) has rounded x away, or to 0
        np.testing.assert_allclose(isentropic.power_transform(isentropic.softmax(x), gamma=gamma[:, None]), p, atol=1e-10)


def test_statuses():
    inf, nan = np.inf, np.nan
    x = [[1, 1, 0, -inf], [2, 2, 2, -inf], [inf, 0, inf, 1], [0, nan, 1, 2], [-inf, -inf, -inf, -inf]]
    low = isentropic.gamma_for_entropy(x, entropy=0.5)
    assert low.status.tolist() == ["clamped_low", "constant", "constant", "invalid", "invalid"]
    np.testing.assert_allclose(low.gamma, [inf, 1, 1, nan, nan])
    np.testing.assert_allclose(low.entropy, [np.log(2), np.log(3), np.log(2), nan, nan])
    high = isentropic.gamma_for_entropy(x, entropy=1.2)
    assert (high.status[0], high.gamma[0]) == ("clamped_high", 0)
    met = isentropic.gamma_for_entropy(x[0], entropy=1.0)
    assert met.status == "ok" and isinstance(met.gamma, np.float64) and isinstance(met.status, str)
    assert set(STATUSES) == set(isentropic._core.gamma_status_names)


def test_targets_for_each_row():
    x = scores(np.random.default_rng(1), (2, 3, 20), np.float32)
    targets = np.array([[0.5], [1.0], [2.0]])
    got = isentropic.gamma_for_entropy(x, entropy=targets)
    for i in range(3):
        one = isentropic.gamma_for_entropy(x[:, i], entropy=float(targets[i, 0]))
        for a, b in zip(got, one, strict=True):
            np.testing.assert_array_equal(a[:, i], b)
    moved = isentropic.gamma_for_entropy(np.moveaxis(x, -1, 0), entropy=targets[:, 0], axis=0)
    np.testing.assert_array_equal(moved.gamma, got.gamma)
    shown = re.escape(
        "entropy must be a number or an array that broadcasts to (2, 3, 1), x's shape with 1 for axis 2, got shape "
    )
    for wrong in ((2,), (3,), (2, 3), (2, 3, 20)):
        with pytest.raises(ValueError, match=f"^gamma_for_entropy: {shown}{re.escape(str(wrong))}"):
            isentropic.gamma_for_entropy(x, entropy=np.ones(wrong))
    with pytest.raises(ValueError, match=r"^gamma_for_entropy: entropy of row 5 must be at least 0 and finite, got -1"):
        isentropic.gamma_for_entropy(x, entropy=np.array([[[1.0]] * 3, [[1.0], [1.0], [-1.0]]]))


def test_options():
    x = scores(np.random.default_rng(2), (4, 50))
    gamma = isentropic.gamma_for_entropy(x, entropy=2).gamma
    low = isentropic.gamma_for_entropy(x, entropy=2, gamma_range=(0, gamma.min() / 2))
    assert (low.status == "clamped_low").all() and (low.entropy > 2).all()
    np.testing.assert_allclose(low.gamma, gamma.min() / 2, rtol=1e-14)
    high = isentropic.gamma_for_entropy(x, entropy=2, gamma_range=(2 * gamma.max(), np.inf))
    assert (high.status == "clamped_high").all() and (high.entropy < 2).all()
    assert (isentropic.gamma_for_entropy(x, entropy=2, gamma_range=np.array([0, 100])).gamma == gamma).all()
    rough = isentropic.gamma_for_entropy(x, entropy=2, max_iterations=2)
    assert 1e-12 < np.abs(rough.entropy - 2).max() < 0.5


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        ({}, ValueError, "exactly one of entropy and perplexity must be given"),
        ({"entropy": 1, "perplexity": 2}, ValueError, "exactly one of entropy and perplexity must be given"),
        ({"entropy": -1}, ValueError, "entropy must be at least 0 and finite, got -1"),
        ({"entropy": np.nan}, ValueError, "entropy must be at least 0 and finite, got nan"),
        ({"perplexity": 0.5}, ValueError, "perplexity must be at least 1 and finite, got 0.5"),
        ({"entropy": "1"}, TypeError, "entropy must be a number or an array of numbers, got str"),
        ({"entropy": 1, "max_iterations": 0}, ValueError, "max_iterations must be above 0 and at most 1000, got 0"),
        ({"entropy": 1, "max_iterations": 2.5}, TypeError, "max_iterations must be an integer, got float"),
        ({"entropy": 1, "gamma_range": 3}, TypeError, r"gamma_range must be a pair of numbers \(least, largest\), got 3"),
        ({"entropy": 1, "gamma_range": ("1", 2)}, TypeError, r"gamma_range must be a pair of numbers .*, got \('1', 2\)"),
        ({"entropy": 1, "gamma_range": (1, 2, 3)}, TypeError, r"gamma_range must be a pair of numbers .*, got \(1, 2, 3\)"),
        *(
            ({"entropy": 1, "gamma_range": wrong}, ValueError, r"gamma_range must be \(least, largest\) with 0 <= least <= .*")
            for wrong in ((2, 1), (-1, 1), (0, 0), (np.nan, 1), (0, np.nan), (np.inf, np.inf))
        ),
    ],
)
def test_refused_parameters(params, error, text):
    with pytest.raises(error, match=f"^gamma_for_entropy: {text}"):
        isentropic.gamma_for_entropy(np.zeros((2, 3)), **params)
    with pytest.raises(error, match=f"^gamma_for_entropy: {text}"):
        isentropic.gamma_for_entropy(np.zeros((0, 3)), **params)


def test_power_transform():
    p = np.array([0.5, 0.0, 0.25, 0.25])
    for gamma in (0, 0.5, 1, 3, 1e300):
        want = np.where(p > 0, (p / 0.5) ** gamma, 0)
        np.testing.assert_allclose(isentropic.power_transform(p, gamma=gamma), want / want.sum(), rtol=1e-15)
    np.testing.assert_array_equal(isentropic.power_transform([3, 1, 3, 0], gamma=np.inf), [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(isentropic.power_transform(p * 7e-300, gamma=2), isentropic.power_transform(p * 7, gamma=2))
    near = np.array([1.0, 1 - 2**-50, 1 - 2**-51]) * 2.0**-900  # differences that a logarithm of p itself would lose
    want = np.exp(2.0**50 * np.array([0, -(2**-50), -(2**-51)]))
    np.testing.assert_allclose(isentropic.power_transform(near, gamma=2.0**50), want / want.sum(), rtol=1e-12)
    rows = isentropic.power_transform([[0.5, -1], [np.nan, 1], [np.inf, 1], [0, 0], [1, 3]], gamma=2)
    assert np.isnan(rows[:4]).all()
    np.testing.assert_allclose(rows[4], [0.1, 0.9], rtol=1e-15)
    for wrong in (-1, np.nan):
        with pytest.raises(ValueError, match=r"^power_transform: gamma must be at least 0 \(inf is allowed\), got"):
            isentropic.power_transform(p, gamma=wrong)
    with pytest.raises(ValueError, match=r"^power_transform: gamma of row 1 must be at least 0 \(inf is allowed\), got -1"):
        isentropic.power_transform([p, p], gamma=[[1], [-1]])
    with pytest.raises(TypeError, match="'gamma'"):
        isentropic.power_transform(p)


# Densities

GRID = np.linspace(-60, 60, 4001)
TRAPEZOID = np.full(4001, GRID[1] - GRID[0])


def normal_entropy(s):
    return np.log(s * np.sqrt(2 * np.pi * np.e))


@pytest.mark.parametrize("s", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("wanted", [0.15, 0.5, 2.0, 4.0])
def test_normal_density(s, wanted):
    p = np.exp(-0.5 * (GRID / s) ** 2)
    q, gamma = isentropic.normalize_density(p, TRAPEZOID, entropy=normal_entropy(wanted))
    assert gamma == pytest.approx((s / wanted) ** 2, rel=1e-10)
    np.testing.assert_allclose(q, np.exp(-0.5 * (GRID / wanted) ** 2) / (wanted * np.sqrt(2 * np.pi)), atol=1e-11)
    assert entropy(q, TRAPEZOID) == pytest.approx(normal_entropy(wanted), abs=1e-12)


def test_exponential_density_by_gauss_legendre():
    nodes, weights = np.polynomial.legendre.leggauss(200)
    t, w = 30 * (nodes + 1), 30 * weights  # [0, 60]
    rates = np.array([[1.0], [2.0]])
    q, gamma = isentropic.normalize_density(rates * np.exp(-rates * t), w, entropy=1 - np.log(4.0))  # a negative entropy
    np.testing.assert_allclose(gamma, [4, 2], rtol=1e-11)
    np.testing.assert_allclose(q, np.broadcast_to(4 * np.exp(-4 * t), q.shape), atol=1e-10)


def test_density_arrays():
    p = np.exp(-0.5 * np.stack([GRID, GRID / 2, GRID / 3]) ** 2).astype(np.float32)
    targets = np.array([0.5, 1.0, 2.0])
    q, gamma = isentropic.normalize_density(p, TRAPEZOID, entropy=targets[:, None])
    assert q.dtype == gamma.dtype == np.float32 and gamma.shape == (3,)
    np.testing.assert_allclose(entropy(q, TRAPEZOID), targets, atol=1e-6)
    other, same = isentropic.normalize_density(np.asfortranarray(p.T), TRAPEZOID[:, None], entropy=targets, axis=0)
    np.testing.assert_array_equal(other.T, q)
    np.testing.assert_array_equal(same, gamma)
    each = np.stack([TRAPEZOID, 2 * TRAPEZOID, TRAPEZOID])  # in units of half the length
    _, changed = isentropic.normalize_density(p, each, entropy=[[0.5], [1 + np.log(2)], [2]])
    np.testing.assert_allclose(changed, gamma, rtol=1e-6)
    torch = torch_or_skip()
    q, gamma = isentropic.normalize_density(torch.ones(3) * torch.arange(3), torch.ones(3), entropy=0.3)
    assert isinstance(q, torch.Tensor) and isinstance(gamma, torch.Tensor) and q[0] == 0


def test_density_left_out_nodes_and_ends():
    q, gamma = isentropic.normalize_density([1, 5, 2, 0], [1, 0, 1, 1], entropy=0.5)
    assert q[1] == q[3] == 0 and gamma > 0
    assert entropy(q) == pytest.approx(0.5, abs=1e-12)
    q, gamma = isentropic.normalize_density([1.0, 2.0, 2.0], [0.5, 0.25, 0.25], entropy=np.log(0.5))
    np.testing.assert_array_equal(q, [0, 2, 2])
    assert gamma == np.inf
    q, gamma = isentropic.normalize_density([1.0, 2.0, 2.0], [0.5, 0.25, 0.25], entropy=0.0)
    np.testing.assert_array_equal(q, [1, 1, 1])
    assert gamma == 0
    q, gamma = isentropic.normalize_density([3.0, 3.0], [0.5, 0.5], entropy=0)
    np.testing.assert_array_equal(q, [1, 1])
    assert gamma == 1


@pytest.mark.parametrize(
    ("p", "weights", "target", "error", "text"),
    [
        ([1, 2, 3], [1, 1, 1], 2, ValueError, r"entropy must be in \[0, 1.09861229\], which powers of p reach, got 2"),
        (
            [1, 2, 3],
            [1, 1, 0.5],
            -1,
            ValueError,
            r"entropy must be in \[-0.693147181, 0.916290732\], which powers of p reach, ",
        ),
        ([[1, 2], [2, 2]], [1, 1], 0.5, ValueError, r"entropy of row 1 must be in \[0.693147181, 0.693147181\], which "),
        ([[[1, 2], [1, 2]]], [1, 1], [[[0.5], [2]]], ValueError, r"entropy of row \(0, 1\) must be in \[0, 0.69"),
        ([1, 2], [1, 1], np.inf, ValueError, "entropy must be finite, got inf"),
        ([1, 2], [1, 1], [[1]], ValueError, r"entropy must be a number or an array that broadcasts to \(1,\), p's shape"),
        ([1, 2], [1, 1], "0", TypeError, "entropy must be a number or an array of numbers, got str"),
        ([1, -2], [1, 1], 0, ValueError, r"p must be at least 0 and finite, got -2.0 at entry 1$"),
        ([[1, 2], [np.nan, 2]], [1, 1], 0, ValueError, r"p must be at least 0 and finite, got nan at entry 0 in row 1$"),
        ([[1, 2], [0, 0]], [1, 1], 0, ValueError, r"p of row 1 must have an entry above 0"),
        ([1, 0], [0, 1], 0, ValueError, r"p must have an entry above 0"),
        ([1, 2], [1, -1], 0, ValueError, "weights must be at least 0 and finite, got -1 at entry 1"),
        ([1, 2], [1, np.nan], 0, ValueError, "weights must be at least 0 and finite, got nan at entry 1"),
        (
            [[1, 2], [1, 2]],
            [[1, 1], [np.inf, 1]],
            0,
            ValueError,
            "weights must be at least 0 and finite, got inf at entry 0 in row",
        ),
        ([1, 2], [0, 0], 0, ValueError, "weights must not all be 0"),
        ([1, 2], [1, 1, 1], 0, ValueError, r"weights must have an entry for each of 2 nodes along axis 0, or broadcast"),
        ([1, 2], 1.0, 0, ValueError, r"weights must have an entry for each of 2 nodes along axis 0, or broadcast"),
        ([1, 2], ["a", "b"], 0, TypeError, "weights must be of float16, .* got dtype"),
        (1.0, [1], 0, ValueError, "p must have at least one axis"),
    ],
)
def test_refused_densities(p, weights, target, error, text):
    with pytest.raises(error, match=f"^normalize_density: {text}"):
        isentropic.normalize_density(p, weights, entropy=target)


# Tables


def entropies(table):
    x = table.sum(axis=-1)
    return {
        "joint": entropy(table.reshape(*table.shape[:-2], -1)),
        "marginal": entropy(x),
        "conditional": entropy(table.reshape(*table.shape[:-2], -1)) - entropy(x),
    }


def reach(table):
    x = table.sum(axis=1) / table.sum()
    rows = table[x > 0]
    ties = (rows == rows.max(axis=1, keepdims=True)).sum(axis=1)
    return {
        "joint": (np.log((table == table.max()).sum()), np.log((table > 0).sum())),
        "marginal": (np.log((x == x.max()).sum()), np.log((x > 0).sum())),
        "conditional": ((x[x > 0] * np.log(ties)).sum(), (x[x > 0] * np.log((rows > 0).sum(axis=1))).sum()),
    }


@pytest.mark.parametrize("target", ["joint", "marginal", "conditional"])
@given(seed=st.integers(0, 2**32), share=st.floats(0.001, 0.999), kind=st.sampled_from(["smooth", "ties", "zeros", "spiky"]))
def test_tables(target, seed, share, kind):
    rng = np.random.default_rng(seed)
    table = rng.random((rng.integers(1, 8), rng.integers(1, 8)))
    if kind == "ties":
        table = np.ceil(3 * table)
    elif kind == "zeros":
        table *= rng.random(table.shape) < 0.6
        table[rng.integers(len(table))] = 0
        table[-1, -1] = 1
    elif kind == "spiky":
        table = np.exp(30 * table)
    low, high = reach(table)[target]
    wanted = low + share * (high - low)
    q = isentropic.normalize_joint(table, **{target: wanted})
    assert q.sum() == pytest.approx(1, abs=1e-14)
    assert entropies(q)[target] == pytest.approx(wanted, abs=1e-12 * max(1, wanted) + 1e-14)
    assert ((q == 0) | (table > 0)).all()
    x, y = table.sum(axis=1) / table.sum(), q.sum(axis=1)
    if target == "marginal":
        np.testing.assert_allclose(q * x[:, None], table / table.sum() * y[:, None], rtol=1e-13, atol=1e-300)
    if target == "conditional":
        np.testing.assert_allclose(y, x, rtol=1e-13)
        given_x, given_q = (
            table[x > 0] / table[x > 0].max(axis=1, keepdims=True),
            q[x > 0] / q[x > 0].max(axis=1, keepdims=True),
        )
        some = (given_x > 0) & (given_x < 0.999) & (given_q > 1e-290)
        gammas = np.log(given_q[some]) / np.log(given_x[some])  # one gamma for all rows
        if len(gammas):
            np.testing.assert_allclose(gammas, gammas[0], rtol=1e-9)


def test_tables_of_every_kind():
    tables = np.random.default_rng(5).random((2, 3, 4, 5)).astype(np.float32)
    q = isentropic.normalize_joint(tables, conditional=1.0)
    assert q.dtype == np.float32 and q.shape == tables.shape
    np.testing.assert_allclose(entropies(q.astype(float))["conditional"], 1, atol=1e-6)
    np.testing.assert_array_equal(isentropic.normalize_joint(np.asfortranarray(tables), conditional=1.0), q)
    np.testing.assert_array_equal(isentropic.normalize_joint(tables, conditional=np.ones((2, 1))), q)
    targets = np.linspace(0.5, 1, 6).reshape(2, 3)
    each = isentropic.normalize_joint(tables, marginal=targets)
    np.testing.assert_array_equal(each[1, 2], isentropic.normalize_joint(tables[1, 2], marginal=1.0))
    np.testing.assert_array_equal(
        each[0, 0], isentropic.normalize_joint(tables[0, 0].tolist(), marginal=0.5).astype(np.float32)
    )
    assert isentropic.normalize_joint(np.empty((2, 0, 3)), joint=1).shape == (2, 0, 3)
    torch = torch_or_skip()
    assert isinstance(isentropic.normalize_joint(torch.rand(3, 3), joint=1.0), torch.Tensor)


@pytest.mark.parametrize(
    ("pxy", "params", "error", "text"),
    [
        ([[3, 1], [1, 3]], {}, ValueError, "exactly one of joint, marginal and conditional must be given"),
        ([[3, 1], [1, 3]], {"joint": 1, "marginal": 1}, ValueError, "exactly one of joint, marginal and conditional must be"),
        (
            [[3, 1], [1, 3]],
            {"joint": 2},
            ValueError,
            r"joint must be in \[0.693147181, 1.38629436\], which powers of pxy reach",
        ),
        (
            [[3, 1], [1, 3]],
            {"marginal": 0.1},
            ValueError,
            r"marginal must be in \[0.693147181, 0.693147181\], which powers",
        ),
        ([[3, 3, 1], [1, 3, 0]], {"conditional": 0.1}, ValueError, r"conditional must be in \[0.441093660?, 0.951170431"),
        ([[[3, 1], [1, 3]]] * 2, {"joint": [1, 2]}, ValueError, r"joint of table 1 must be in \[0.693147181, 1.38629436\]"),
        ([[[3, 1], [1, 3]]] * 2, {"joint": [1, 2, 3]}, ValueError, r"joint must be .* broadcasts to \(2,\), the axes of pxy"),
        ([[3, 1], [1, 3]], {"joint": -1}, ValueError, "joint must be at least 0 and finite, got -1"),
        ([[3, 1], [1, 3]], {"joint": np.nan}, ValueError, "joint must be at least 0 and finite, got nan"),
        ([[3, 1], [1, 3]], {"joint": "1"}, TypeError, "joint must be a number, got str"),
        ([[3, -1], [1, 3]], {"joint": 1}, ValueError, r"pxy must be at least 0 and finite, got -1.0 at entry \(0, 1\)$"),
        (
            [[[1, 1]], [[np.inf, 3]]],
            {"joint": np.log(2)},
            ValueError,
            r"pxy must be at least 0 and finite, got inf at entry \(0, 0\) in table 1$",
        ),
        ([[0, 0], [0, 0]], {"joint": 1}, ValueError, "pxy must have an entry above 0"),
        ([3, 1], {"joint": 1}, ValueError, r"pxy must have at least two axes, x in rows and y in columns, got shape \(2,\)"),
        ([["a"]], {"joint": 1}, TypeError, "pxy must be of float16, .* got dtype"),
        (np.empty((0, 2)), {"joint": -1}, ValueError, "joint must be at least 0 and finite, got -1"),
    ],
)
def test_refused_tables(pxy, params, error, text):
    with pytest.raises(error, match=f"^normalize_joint: {text}"):
        isentropic.normalize_joint(pxy, **params)


# The mean-field estimate


@given(st.integers(0, 2**32), st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3]), st.integers(1, 200))
def test_mean_field_bound(seed, scale, n):
    rng = np.random.default_rng(seed)
    x = scores(rng, n, scale=scale) if rng.random() < 0.5 else scale * rng.exponential(size=n)
    x[rng.random(n) < 0.2] = -np.inf
    x[rng.integers(n)] = 0
    gamma = rng.choice([0.0, 0.3, 1.0, 4.0])
    finite = x[x > -np.inf]
    estimate = isentropic.mean_field_entropy(x, gamma=gamma)
    gap = entropy(softmax(gamma * finite)) - estimate
    spread, above = np.ptp(finite), finite.max() - finite.mean()
    rounding = 1e-12 * (1 + gamma * above)
    assert -rounding <= gap <= gamma**2 * spread**2 / 8 + min(gamma * above, np.log(len(finite))) + rounding
    assert estimate == pytest.approx(np.log(len(finite)) - gamma * above, abs=rounding)


def test_mean_field_special_rows():
    inf = np.inf
    x = [[1.0, 1, 1], [1, np.nan, 1], [-inf, -inf, -inf], [inf, 0, inf], [-inf, 3, -inf], [1e308, -1e308, 1e308]]
    want = [np.log(3), np.nan, np.nan, np.log(2), 0, -inf]
    np.testing.assert_allclose(isentropic.mean_field_entropy(x, gamma=3), want, rtol=1e-15)
    want = np.log(3) - 1e-308 * 2e308 / 3
    np.testing.assert_allclose(isentropic.mean_field_entropy(x[5], gamma=1e-308), np.log(3) - 2 / 3, rtol=1e-14)
    x = np.float32([1e6, 1e6 + 1, 1e6 + 0.5])
    assert isentropic.mean_field_entropy(x) == np.float32(np.log(3) - 0.5)
    for wrong in (-1, np.nan, inf):
        with pytest.raises(ValueError, match=r"^mean_field_entropy: gamma must be at least 0 and finite, got"):
            isentropic.mean_field_entropy(x, gamma=wrong)
    with pytest.raises(TypeError, match=r"^mean_field_entropy: gamma must be a number, got list"):
        isentropic.mean_field_entropy(x, gamma=[1])


def test_gamma_of_halves_has_the_range_of_float32():
    x = np.array([[0, 1e-5, 2e-5]], np.float16)
    found = isentropic.gamma_for_entropy(x, entropy=0.5)
    assert found.gamma.dtype == found.entropy.dtype == np.float32 and found.status == "ok"
    np.testing.assert_allclose(found.gamma, isentropic.gamma_for_entropy(x.astype(np.float64), entropy=0.5).gamma, rtol=1e-6)
