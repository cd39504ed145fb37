"""Transport: against linear programming and other libraries' definitions, what proves an optimum, and what is refused."""

import doctest
import inspect
import itertools
import re

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

import entropic

rng = np.random.default_rng


def masses(random, *shape):
    a = random.random(shape)
    return a / a.sum(axis=-1, keepdims=True)


def optimum(a, b, cost):
    """By linear programming; None where there is no plan."""
    n, m = cost.shape
    allowed = np.isfinite(cost).ravel()
    if not allowed.any():
        return None
    rows = np.concatenate([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])[:, allowed]
    result = scipy.optimize.linprog(np.atleast_1d(cost.ravel()[allowed]), A_eq=rows, b_eq=np.concatenate([a, b]))
    return result.fun if result.status == 0 else None


def check(a, b, cost, result):
    np.testing.assert_allclose(result.plan.sum(axis=-1), a, rtol=1e-14, atol=1e-29)
    np.testing.assert_allclose(result.plan.sum(axis=-2), b * (a.sum() / b.sum()), rtol=1e-14, atol=1e-29)
    used = abs(cost[result.plan > 0]).max()
    scale = max(abs(result.f).max(), abs(result.g).max(), used)
    assert (result.plan >= 0).all()
    assert (result.f[:, None] + result.g <= cost + 1e-15 * scale).all()
    assert 0 <= result.gap <= 1e-9 * used
    assert result.cost == pytest.approx(result.plan[result.plan > 0] @ cost[result.plan > 0], rel=1e-12, abs=1e-14 * used)
    assert a @ result.f + b @ result.g == pytest.approx(result.cost, rel=1e-9, abs=1e-12 * scale)
    assert result.status == "optimal"


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32), st.sampled_from([0, 0, 0.2, 0.5]), st.booleans())
def test_optimum_of_linear_programming(n, m, seed, forbidden, ties):
    random = rng(seed)
    a, b = masses(random, n), masses(random, m)
    cost = random.integers(-3, 4, (n, m)).astype(float) if ties else random.normal(size=(n, m))
    cost[random.random((n, m)) < forbidden] = np.inf
    want = optimum(a, b, cost)
    if want is None:
        with pytest.raises(ValueError, match=r"^optimal_transport: infeasible, every plan needs an arc of cost inf$"):
            entropic.optimal_transport(a, b, cost)
        return
    result = entropic.optimal_transport(a, b, cost)
    assert result.cost == pytest.approx(want, rel=1e-9, abs=1e-12)
    check(a, b, cost, result)


@pytest.mark.parametrize("n", [1, 2, 30, 200])
def test_equal_masses_solve_the_assignment_problem(n):
    cost = rng(n).random((n, n))
    result = entropic.optimal_transport(np.ones(n), np.ones(n), cost)
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    assert result.cost == pytest.approx(cost[rows, columns].sum(), rel=1e-13)
    np.testing.assert_array_equal(np.argmax(result.plan, axis=1), columns)
    np.testing.assert_array_equal(np.sort(result.plan, axis=1)[:, -1], 1)


# What breaks other solvers: see POT's issues 229, 126, 342.


def test_one_huge_entry():
    cost = rng(0).random((5, 5))
    a = np.full(5, 0.2)
    want = optimum(a, a, cost)
    for huge in 1e6, 1e12, 1e18, 1e100, 1e300:
        worse = cost.copy()
        worse[rng(1).permutation(5), np.arange(5)] = huge
        want = optimum(a, a, np.where(worse == huge, np.inf, worse))
        result = entropic.optimal_transport(a, a, worse)
        assert result.cost == pytest.approx(want, rel=1e-12)
        assert result.gap <= 1e-9


@pytest.mark.parametrize("scale", [1e-300, 1e-16, 1e-14, 1e14, 1e300])
def test_scale_of_costs(scale):
    random = rng(2)
    a, b, cost = masses(random, 100), masses(random, 80), random.random((100, 80))
    result = entropic.optimal_transport(a, b, cost)
    scaled = entropic.optimal_transport(a, b, cost * scale)
    assert scaled.cost / scale == pytest.approx(result.cost, rel=1e-13)
    np.testing.assert_allclose(scaled.plan, result.plan, atol=1e-15)


def test_masses_of_float32_and_half_are_scaled_and_unequal_ones_refused():
    random = rng(3)
    cost = random.random((300, 200))
    for dtype in np.float32, np.float16:
        a, b = masses(random, 300).astype(dtype), masses(random, 200).astype(dtype)
        result = entropic.optimal_transport(a, b, cost.astype(dtype))
        assert result.plan.dtype == result.cost.dtype == dtype
        assert result.status == "optimal"
    a, b = masses(random, 300), masses(random, 200)
    want = entropic.optimal_transport(a, b, cost).cost
    assert entropic.optimal_transport(a, b * (1 + 1e-7), cost).cost == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match=r"^optimal_transport: a and b must have equal sums within 1e-06 of them, got 1"):
        entropic.optimal_transport(a, b * 1.1, cost)
    assert entropic.optimal_transport(a, b * 1.1, cost, mass_tolerance=0.2).cost == pytest.approx(want, rel=1e-12)


def test_masses_of_zero_and_of_every_size():
    random = rng(4)
    a, b = 10.0 ** -random.uniform(0, 25, 40), 10.0 ** -random.uniform(0, 25, 30)
    a[::3], b[1::4] = 0, 0
    a, b = a / a.sum(), b / b.sum()
    cost = random.random((40, 30))
    check(a, b, cost, entropic.optimal_transport(a, b, cost))


def test_leading_axes_are_problems():
    random = rng(5)
    a, b, cost = masses(random, 3, 1, 6), masses(random, 4, 5), random.random((3, 4, 6, 5))
    result = entropic.optimal_transport(a, b, cost)
    assert result.plan.shape == (3, 4, 6, 5)
    assert result.f.shape == (3, 4, 6)
    assert result.g.shape == (3, 4, 5)
    assert result.cost.shape == result.gap.shape == result.status.shape == (3, 4)
    for i, j in itertools.product(range(3), range(4)):
        one = entropic.optimal_transport(a[i, 0], b[j], cost[i, j])
        assert one.cost == result.cost[i, j]
        np.testing.assert_array_equal(one.plan, result.plan[i, j])
    shared = entropic.optimal_transport(a, b, cost[0, 0])
    assert shared.cost[2, 3] == entropic.optimal_transport(a[2, 0], b[3], cost[0, 0]).cost
    cost[1, 2] = np.inf
    with pytest.raises(ValueError, match=re.escape("every plan needs an arc of cost inf in problem (1, 2)")):
        entropic.optimal_transport(a, b, cost)


def test_kinds_of_arrays():
    torch = pytest.importorskip("torch")
    a, b, cost = [1, 1], [2, 0], [[1, 2], [3, 4]]
    assert entropic.optimal_transport(a, b, cost).cost == 4
    result = entropic.optimal_transport(*(torch.tensor(x, dtype=torch.float32) for x in (a, b, cost)))
    assert isinstance(result.plan, torch.Tensor) and result.plan.dtype == torch.float32
    assert float(result.cost) == 4
    strided = np.asfortranarray(np.array(cost, float))
    assert entropic.optimal_transport(a, b, strided).cost == 4


@pytest.mark.parametrize(
    ("a", "b", "cost", "message"),
    [
        ([1, -1], [0, 0], np.ones((2, 2)), "a must be at least 0 and finite, got -1 at 1"),
        ([1, np.nan], [0, 1], np.ones((2, 2)), "a must be at least 0 and finite, got nan at 1"),
        ([0.5, 0.5], [0, 0], np.ones((2, 2)), "b must have a finite sum above 0, got 0"),
        ([1], [1], [[np.nan]], "cost must be finite or +inf, got nan at row 0, column 0"),
        ([1], [1], [[-np.inf]], "cost must be finite or +inf, got -inf at row 0, column 0"),
        ([1], [1], [[1, 2]], "cost must have shape (..., 1, 1) for these a and b, got (1, 2)"),
        (1, [1], [[1]], "a must have at least 1 axis, got shape ()"),
        ([1], [1], [1], "cost must have at least 2 axes, got shape (1,)"),
        (
            [[1], [1]],
            [[1]] * 3,
            [[1]],
            "the leading axes of a and b and cost must broadcast, got shapes (2, 1), (3, 1), (1, 1)",
        ),
        ([[1, 1], [1, -2]], [2], [[1], [1]], "a must be at least 0 and finite, got -2 at 1 in problem 1"),
    ],
)
def test_refused(a, b, cost, message):
    with pytest.raises(ValueError, match=f"^{re.escape('optimal_transport: ' + message)}$"):
        entropic.optimal_transport(a, b, cost)


NAMES = ["optimal_transport"]


@pytest.mark.parametrize("name", NAMES)
def test_docstrings(name):
    function = getattr(entropic, name)
    assert set(inspect.signature(function).parameters) <= set(re.findall(r"^    (\w+)(?:, \w+)* :", function.__doc__, re.M)) | {
        "b"
    }
    finder = doctest.DocTestFinder().find(function, name, globs={"entropic": entropic, "np": np})
    runner = doctest.DocTestRunner()
    for test in finder:
        runner.run(test)
    assert runner.failures == 0 and runner.tries > 0
