"""Transport: against linear programming and other libraries' definitions, proofs of the optimum, and errors."""

import doctest
import inspect
import itertools
import re

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import isentropic
from isentropic import _core

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
        with pytest.raises(ValueError, match=r"^optimal_transport: infeasible: every plan needs an entry of cost inf$"):
            isentropic.optimal_transport(a, b, cost)
        return
    result = isentropic.optimal_transport(a, b, cost)
    assert result.cost == pytest.approx(want, rel=1e-9, abs=1e-12)
    check(a, b, cost, result)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from([1e-300, 1e270, 8.6e270, 1e298, 1e307]))
def test_costs_of_any_scale_that_are_near_each_other(n, m, seed, scale):
    random = rng(seed)
    a, b, cost = masses(random, n), masses(random, m), 1 + random.random((n, m))
    found, scaled = (isentropic.optimal_transport(a, b, cost * unit) for unit in (1, scale))
    assert scaled.cost / scale == pytest.approx(found.cost, rel=1e-12)
    assert (scaled.plan / scaled.plan.sum() * (cost)).sum() == pytest.approx(found.cost, rel=1e-12)


def test_costs_of_many_sizes():
    """On a line, the plan in the order of the points is optimal for every convex cost, and costs are as large as 1e70."""
    random = rng(7)
    for order in (2, 6, 10, 20) * 10:
        n, spread = int(random.integers(2, 50)), 10.0 ** random.uniform(-2, 1)
        u = random.random(n) * 1000
        v = u + spread * random.normal(size=n)
        cost, weights = np.abs(u[:, None] - v) ** order, np.full(n, 1 / n)
        best = cost[np.argsort(u), np.argsort(v)]
        found = isentropic.optimal_transport(weights, weights, cost)
        assert found.status == "optimal" and found.cost == pytest.approx(best.mean(), rel=1e-12)
        assert found.gap <= 1e-9 * best.max()
        # Potentials prove it for all costs, those that are not paid too.
        assert (found.f[:, None] + found.g - cost).max() <= 1e-9 * best.max()
        part = isentropic.partial_transport(weights, weights, cost, mass=0.9)
        assert part.gap <= 1e-9 * best.max()
        points = (np.stack([x, np.zeros(n)], axis=1) for x in (u, v))
        assert isentropic.wasserstein(*points, order=order) == pytest.approx(best.mean() ** (1 / order), rel=1e-12)


@pytest.mark.parametrize("order", [1, 31, 33, 200, 1e4, 3e4, 1e5, 1e6, 1e15, 1e300])
def test_wasserstein_of_any_order(order):
    random = rng(5)
    for n, m in ((5, 4), (2, 7), (12, 12)):
        u, v = random.normal(size=n), random.normal(size=m)
        points = (np.stack([x, np.zeros(len(x))], axis=1) for x in (u, v))
        assert isentropic.wasserstein(*points, order=order) == pytest.approx(
            isentropic.wasserstein(u, v, order=order), rel=1e-12
        )


@pytest.mark.parametrize("epsilon", [1e-2, 3e-4, 1e-4, 1e-5, 1e-6])
def test_sinkhorn_where_mass_must_cross_dear_entries(epsilon):
    """Nothing joins the parts of the plan at first: potentials have to move by the cost, 1/epsilon times the unit of a step."""
    a, b, cost = np.array([0.4545, 0.5455]), np.array([0.4615, 0.5385]), np.array([[1.0, 1.0], [1.0, 0.0]])
    for problem in ((a, b, cost), (b, a, cost.T)):
        found = isentropic.sinkhorn(*problem, epsilon=epsilon)
        assert found.converged and found.iterations < 200
        assert found.cost == pytest.approx(isentropic.optimal_transport(*problem).cost, abs=max(1e-7, epsilon))
    random = rng(3)
    for k in range(200):
        n, m = random.integers(2, 12, 2)
        cost = random.integers(0, 4, (n, m)).astype(float) if k % 2 else random.random((n, m))
        found = isentropic.sinkhorn(masses(random, n), masses(random, m), cost, epsilon=max(epsilon, 1e-5))
        assert found.converged and found.iterations < 1000


def gaussians(n, mean, widths):
    x = np.linspace(-1.5, 1.5, n)
    a, b = (np.exp(-((x - centre) ** 2) / (2 * width**2)) for centre, width in zip((0, mean), widths, strict=True))
    return a / a.sum(), b / b.sum(), (x[:, None] - x) ** 2


def passes_alone(a, b, cost, epsilon, tolerance, most):
    """The passes over the matrix that Sinkhorn's iteration takes by itself, with epsilon lowered as in the library."""
    now, g, passes, in_stage = max(epsilon, cost.max()), np.zeros(len(b)), 0, 0
    while passes < most:
        f = -now * scipy.special.logsumexp((g - cost) / now, b=b, axis=1)
        after = -now * scipy.special.logsumexp((f[:, None] - cost) / now, b=a[:, None], axis=0)
        error = abs(b * np.expm1((g - after) / now)).sum()
        passes, in_stage, g = passes + 1, in_stage + 1, after
        if now == epsilon and error <= tolerance:
            break
        if now > epsilon and (error <= 0.05 or in_stage > 20):
            now, in_stage = max(epsilon, now / 4), 0
    return passes


def test_sinkhorn_of_masses_with_tails():
    """The tails of Gaussians, masses down to 1e-200, do not stop the rest: where passes alone need thousands, or do not end."""
    found = isentropic.sinkhorn(*gaussians(30, 1, (0.15, 0.195)), epsilon=1e-4, tolerance=1e-9)
    assert found.converged and found.iterations < 153
    for n, mean, widths in itertools.product(
        (20, 30, 50), (0, 0.3, 0.7, 1), ((0.15, 0.195), (0.1, 0.3), (0.4, 0.2), (0.05, 0.08), (1, 0.5))
    ):
        for epsilon in (1e-4, 3e-4, 1e-3, 1e-2, 1e-1):
            problem = gaussians(n, mean, widths)
            found = isentropic.sinkhorn(*problem, epsilon=epsilon, tolerance=1e-9)
            assert found.converged and found.iterations < 300, (n, mean, widths, epsilon)
            if found.iterations > 100 and epsilon > 1e-4:
                assert found.iterations <= passes_alone(*problem, epsilon, 1e-9, 400) + 1, (n, mean, widths, epsilon)


def test_sinkhorn_stops_at_max_iterations():
    problem = gaussians(30, 1, (0.15, 0.195))
    for most in range(1, 130):
        found = isentropic.sinkhorn(*problem, epsilon=1e-4, tolerance=1e-9, max_iterations=most)
        assert found.iterations <= most
        assert found.converged == (found.marginal_error <= 1e-9)
        assert found.lower_bound <= found.upper_bound


def test_sinkhorn_of_rows_without_mass_that_are_forbidden():
    cost = np.array([[1.0, 2.0], [np.inf, np.inf]])
    a, b = np.array([1.0, 0.0]), np.array([0.25, 0.75])
    rows, columns = isentropic.sinkhorn(a, b, cost, epsilon=0.1), isentropic.sinkhorn(b, a, cost.T, epsilon=0.1)
    np.testing.assert_allclose(rows.plan, [[0.25, 0.75], [0, 0]])
    np.testing.assert_allclose(columns.plan, rows.plan.T)
    assert rows.f[1] == columns.g[1] == np.inf and rows.cost == pytest.approx(1.75)
    with pytest.raises(ValueError, match=r"sinkhorn: cost must be below \+inf somewhere in row 1, which has mass"):
        isentropic.sinkhorn([0.5, 0.5], b, cost, epsilon=0.1)


def test_blocks_whose_sums_are_equal_up_to_rounding():
    for seed in range(60):
        random = rng(seed)
        sizes = random.integers(1, 6, (2, 3))
        share = masses(random, 3)
        a, b = (np.concatenate([w * masses(random, n) for w, n in zip(share, own, strict=True)]) for own in sizes)
        block_a, block_b = (np.repeat(np.arange(3), own) for own in sizes)
        cost = random.random((len(a), len(b)))
        cost[block_a[:, None] != block_b] = np.inf
        result = isentropic.optimal_transport(a, b, cost, mass_tolerance=1e-5)
        eps = np.finfo(float).eps
        np.testing.assert_allclose(result.plan.sum(1), a, atol=20 * eps)
        np.testing.assert_allclose(result.plan.sum(0), b, atol=20 * eps)
        want = 0
        for k in range(3):
            part = [x[block == k] for x, block in zip((a, b), (block_a, block_b), strict=True)]
            own = cost[np.ix_(block_a == k, block_b == k)]
            want += part[0].sum() * optimum(part[0] / part[0].sum(), part[1] / part[1].sum(), own)
        assert result.cost == pytest.approx(want, abs=float(50 * eps))
        # More than rounding is an error as before.
        a[0] += 0.01
        with pytest.raises(ValueError, match=r"^optimal_transport: infeasible"):
            isentropic.optimal_transport(a / a.sum(), b / b.sum(), cost, mass_tolerance=1e-5)


@pytest.mark.parametrize("n", [1, 2, 30, 200])
def test_equal_masses_solve_the_assignment_problem(n):
    cost = rng(n).random((n, n))
    result = isentropic.optimal_transport(np.ones(n), np.ones(n), cost)
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
        result = isentropic.optimal_transport(a, a, worse)
        assert result.cost == pytest.approx(want, rel=1e-12)
        assert result.gap <= 1e-9


@pytest.mark.parametrize("scale", [1e-300, 1e-16, 1e-14, 1e14, 1e300])
def test_scale_of_costs(scale):
    random = rng(2)
    a, b, cost = masses(random, 100), masses(random, 80), random.random((100, 80))
    result = isentropic.optimal_transport(a, b, cost)
    scaled = isentropic.optimal_transport(a, b, cost * scale)
    assert scaled.cost / scale == pytest.approx(result.cost, rel=1e-13)
    np.testing.assert_allclose(scaled.plan, result.plan, atol=1e-15)


def test_masses_of_float32_and_half_are_scaled_and_unequal_ones_refused():
    random = rng(3)
    cost = random.random((300, 200))
    for dtype in np.float32, np.float16:
        a, b = masses(random, 300).astype(dtype), masses(random, 200).astype(dtype)
        result = isentropic.optimal_transport(a, b, cost.astype(dtype))
        assert result.plan.dtype == result.cost.dtype == np.float32
        assert result.status == "optimal"
    a, b = masses(random, 300), masses(random, 200)
    want = isentropic.optimal_transport(a, b, cost).cost
    assert isentropic.optimal_transport(a, b * (1 + 1e-7), cost).cost == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match=r"^optimal_transport: a and b must have equal sums within 1e-06 of them, got 1"):
        isentropic.optimal_transport(a, b * 1.1, cost)
    assert isentropic.optimal_transport(a, b * 1.1, cost, mass_tolerance=0.2).cost == pytest.approx(want, rel=1e-12)


def test_masses_of_zero_and_of_every_size():
    random = rng(4)
    a, b = 10.0 ** -random.uniform(0, 25, 40), 10.0 ** -random.uniform(0, 25, 30)
    a[::3], b[1::4] = 0, 0
    a, b = a / a.sum(), b / b.sum()
    cost = random.random((40, 30))
    check(a, b, cost, isentropic.optimal_transport(a, b, cost))


def test_leading_axes_are_problems():
    random = rng(5)
    a, b, cost = masses(random, 3, 1, 6), masses(random, 4, 5), random.random((3, 4, 6, 5))
    result = isentropic.optimal_transport(a, b, cost)
    assert result.plan.shape == (3, 4, 6, 5)
    assert result.f.shape == (3, 4, 6)
    assert result.g.shape == (3, 4, 5)
    assert result.cost.shape == result.gap.shape == result.status.shape == (3, 4)
    for i, j in itertools.product(range(3), range(4)):
        one = isentropic.optimal_transport(a[i, 0], b[j], cost[i, j])
        assert one.cost == result.cost[i, j]
        np.testing.assert_array_equal(one.plan, result.plan[i, j])
    shared = isentropic.optimal_transport(a, b, cost[0, 0])
    assert shared.cost[2, 3] == isentropic.optimal_transport(a[2, 0], b[3], cost[0, 0]).cost
    cost[1, 2] = np.inf
    with pytest.raises(ValueError, match=re.escape("every plan needs an entry of cost inf in problem (1, 2)")):
        isentropic.optimal_transport(a, b, cost)


def test_kinds_of_arrays():
    torch = pytest.importorskip("torch")
    a, b, cost = [1, 1], [2, 0], [[1, 2], [3, 4]]
    assert isentropic.optimal_transport(a, b, cost).cost == 4
    result = isentropic.optimal_transport(*(torch.tensor(x, dtype=torch.float32) for x in (a, b, cost)))
    assert isinstance(result.plan, torch.Tensor) and result.plan.dtype == torch.float32
    assert float(result.cost) == 4
    strided = np.asfortranarray(np.array(cost, float))
    assert isentropic.optimal_transport(a, b, strided).cost == 4


@pytest.mark.parametrize(
    ("a", "b", "cost", "message"),
    [
        ([1, -1], [0, 0], np.ones((2, 2)), "a must be at least 0 and finite, got -1 at entry 1"),
        ([1, np.nan], [0, 1], np.ones((2, 2)), "a must be at least 0 and finite, got nan at entry 1"),
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
            "the leading axes of a, b, cost must broadcast, got shapes (2, 1), (3, 1), (1, 1)",
        ),
        ([[1, 1], [1, -2]], [2], [[1], [1]], "a must be at least 0 and finite, got -2 at entry 1 in problem 1"),
    ],
)
def test_refused(a, b, cost, message):
    with pytest.raises(ValueError, match=f"^{re.escape('optimal_transport: ' + message)}$"):
        isentropic.optimal_transport(a, b, cost)


# On the line.

ORDERS = [1, 1.5, 2, 3, 10, 100]
samples = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32), st.booleans())


def drawn(case):
    """Samples and weights, perhaps with ties and zeros."""
    n, m, seed, ties = case
    random = rng(seed)
    u, v = random.normal(size=n), random.normal(size=m)
    a, b = random.random(n) + 0.01, random.random(m) + 0.01
    if ties:
        u, v = u.round(), v.round()
        a[1:][random.random(n - 1) < 0.3] = 0
    return u, v, a, b


def test_scipy_and_pot_values():
    """What others expect: scipy/stats/tests/test_stats.py, TestWassersteinDistance; the examples of ot.emd and ot.sinkhorn."""
    for u, v, a, b, want in (
        ([0, 1], [0], [1, 1], [1], 0.5),
        ([0, 1], [0], [3, 1], [1], 0.25),
        ([0, 2], [0], [1, 1], [1], 1),
        ([0, 1, 2], [1, 2, 3], None, None, 1),
        ([1, 2, 3], [2, 1, 3], None, None, 0),
        ([1, 1, 1, 4], [4, 1], [1, 1, 1, 1], [1, 3], 0),
        ([0], [1], None, None, 1),
        ([-5], [5], None, None, 10),
        ([1, 2, 3, 4, 5], [11, 12, 13, 14, 15], None, None, 10),
        ([4.5, 6.7, 2.1], [4.6, 7, 9.2], [3, 1, 1], [1, 3, 1], 2.5),
        ([1, 2, np.inf], [1, 1], None, None, np.inf),
        ([1, 2, np.inf], [-np.inf, 1], None, None, np.inf),
        ([1, -np.inf, np.inf], [1, 1], None, None, np.inf),
    ):
        assert isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b) == pytest.approx(want, rel=1e-14, abs=0)
        if np.isfinite(want):
            assert isentropic.wasserstein(u, v, a=a, b=b) == pytest.approx(want, rel=1e-14, abs=0)
    merged = isentropic.wasserstein_1d([0, 1, 5], [0, 3, 4], u_weights=[2, 4, 1], v_weights=[1, 4, 2])
    assert merged == pytest.approx(isentropic.wasserstein_1d([0, 0, 1, 1, 1, 1, 5], [0, 3, 3, 3, 3, 4, 4]), rel=1e-15)
    half, cost = [0.5, 0.5], [[0, 1], [1, 0]]
    np.testing.assert_array_equal(isentropic.optimal_transport(half, half, cost).plan, [[0.5, 0], [0, 0.5]])
    isentropic_plan = isentropic.sinkhorn(half, half, cost, epsilon=1, tolerance=1e-12)
    np.testing.assert_allclose(isentropic_plan.plan, [[0.36552929, 0.13447071], [0.13447071, 0.36552929]], rtol=1e-7)
    assert isentropic_plan.cost == pytest.approx(0.26894142136999516)


def test_masses_and_distances_near_the_smallest_numbers():
    tiny = np.array([3, 5, 2]) * 5e-324  # subnormal: whole multiples of the smallest double
    result = isentropic.optimal_transport(tiny, tiny[::-1], [[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
    assert result.cost == 1e-323 and result.plan.sum() == tiny.sum()
    assert isentropic.wasserstein_1d([0.0, 1, 2], [0.0, 1, 2], u_weights=tiny, v_weights=[3e300, 5e300, 2e300]) <= 1e-16
    u = np.array([1.0, 2.0, 5.0])
    near = u + np.array([0, 2.0**-52, 0])  # one unit in the last place of a sample
    assert isentropic.wasserstein_1d(u, near * 1.0) == pytest.approx(np.abs(near - u).sum() / 3, rel=1e-15, abs=0)
    p, q = np.array([0.25, 0.5, 0.25]), np.array([0.25 + 2.0**-50, 0.5, 0.25 - 2.0**-50])
    assert isentropic.wasserstein_histogram(p, q) == 2.0**-49


@given(samples)
def test_first_order_is_scipys(case):
    u, v, a, b = drawn(case)
    close = {"rel": 1e-12, "abs": 1e-15}
    assert isentropic.wasserstein_1d(u, v) == pytest.approx(scipy.stats.wasserstein_distance(u, v), **close)
    want = scipy.stats.wasserstein_distance(u, v, a, b)
    assert isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b) == pytest.approx(want, **close)
    p, q = np.concatenate([a, 0 * b]) / a.sum(), np.concatenate([0 * a, b]) / b.sum()
    support = np.concatenate([u, v])
    assert isentropic.wasserstein_histogram(p, q, support=support) == pytest.approx(want, **close)


@given(samples, st.sampled_from(ORDERS))
def test_any_order_is_the_optimum_over_plans(case, order):
    u, v, a, b = drawn(case)
    want = isentropic.wasserstein(np.stack([u, 0 * u], 1), np.stack([v, 0 * v], 1), order=order, a=a, b=b)
    close = {"rel": 1e-9, "abs": 1e-12}
    assert isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b, order=order) == pytest.approx(want, **close)
    assert isentropic.wasserstein(u, v, a=a, b=b, order=order) == pytest.approx(want, **close)
    cost = abs(u[:, None] - v) ** order
    exact = isentropic.optimal_transport(a / a.sum(), b / b.sum(), cost).cost
    assert want**order == pytest.approx(exact, rel=1e-9, abs=1e-9 * cost.max())
    largest = isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b, order=np.inf)
    assert want <= largest * (1 + 1e-12)


@given(samples, st.sampled_from([1, 1.5, 2, 3]))
def test_gradients_against_differences(case, order):
    n, m, seed, _ = case
    u, v, a, b = drawn((n, m, seed, False))
    random, step = rng(seed + 1), 1e-6

    def check_slope(function, gradient, x, direction):
        slope = (function(x + step * direction) - function(x - step * direction)) / (2 * step)
        np.testing.assert_allclose(slope, gradient @ direction, rtol=1e-3, atol=1e-4 * max(1, abs(x).max()))

    options = {"u_weights": a, "v_weights": b, "order": order}
    distance, du, dv = isentropic.wasserstein_1d(u, v, return_grad=True, **options)
    if distance > 1e-2 and min(abs(np.diff(np.sort(np.concatenate([u, v]))))) > 1e-4:
        check_slope(lambda x: isentropic.wasserstein_1d(x, v, **options), du, u, random.normal(size=n))
        check_slope(lambda x: isentropic.wasserstein_1d(u, x, **options), dv, v, random.normal(size=m))
    p, q, support = masses(random, n) + 0.1, masses(random, n) + 0.1, np.sort(random.normal(size=n))
    p, q = p / p.sum(), q / q.sum()
    distance, dp, dq = isentropic.wasserstein_histogram(p, q, support=support, order=order, return_grad=True)
    np.testing.assert_allclose([p @ dp, q @ dq], 0, atol=1e-12)
    if n > 1:
        check_slope(
            lambda x: isentropic.wasserstein_histogram(x / x.sum(), q, support=support, order=order),
            dp,
            p,
            random.normal(size=n),
        )
        check_slope(
            lambda x: isentropic.wasserstein_histogram(p, x / x.sum(), support=support, order=order),
            dq,
            q,
            random.normal(size=n),
        )


def test_gradient_at_equal_distributions_is_zero():
    p = masses(rng(0), 6)
    for order in 1, 2, 5:
        distance, dp, dq = isentropic.wasserstein_histogram(p, p, order=order, return_grad=True)
        assert distance == 0
        np.testing.assert_array_equal([dp, dq], 0)
        distance, du, dv = isentropic.wasserstein_1d(p, p[::-1], order=order, return_grad=True)
        assert distance == 0
        np.testing.assert_array_equal([du, dv], 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_rows_are_sorted_right(dtype):
    random = rng(1)
    u = np.concatenate([random.normal(size=5000), -np.abs(random.normal(size=100)) * 1e30, [0.0, -0.0, 1e-40]]).astype(dtype)
    v = random.permutation(u)
    assert isentropic.wasserstein_1d(u, v) == 0
    v = random.normal(size=3000).astype(dtype)
    want = scipy.stats.wasserstein_distance(u.astype(np.float64), v.astype(np.float64))
    assert isentropic.wasserstein_1d(u, v) == pytest.approx(want, rel=1e-6 if dtype == np.float32 else 1e-13)


def test_axes_and_batches():
    random = rng(2)
    u, v = random.normal(size=(4, 7, 3)), random.normal(size=(1, 5, 3))
    a, b = random.random((7, 1)), random.random((4, 5, 3))
    with pytest.raises(ValueError, match="v_weights must broadcast to the shape of v"):
        isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b, axis=1)
    b = b[:1]
    distance, du, dv = isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b, axis=1, order=2, return_grad=True)
    assert distance.shape == (4, 3) and du.shape == u.shape and dv.shape == v.shape
    total = 0
    for i, k in itertools.product(range(4), range(3)):
        one = isentropic.wasserstein_1d(
            u[i, :, k], v[0, :, k], u_weights=a[:, 0], v_weights=b[0, :, k], order=2, return_grad=True
        )
        assert distance[i, k] == one[0]
        np.testing.assert_array_equal(du[i, :, k], one[1])
        total = total + one[2] if k == 0 else total
    np.testing.assert_allclose(dv[0, :, 0], total, rtol=1e-14)
    p = masses(random, 2, 3, 5)
    by_last = isentropic.wasserstein_histogram(p, p[:, :1])
    np.testing.assert_array_equal(
        isentropic.wasserstein_histogram(p.transpose(2, 0, 1), p[:, :1].transpose(2, 0, 1), axis=0), by_last
    )
    u[2, 3, 1] = np.nan
    distance, du, _ = isentropic.wasserstein_1d(u, v, axis=1, return_grad=True)
    assert np.isnan(distance).sum() == 1 and np.isnan(du).sum() == 7
    distance, dv, du = isentropic.wasserstein_1d(v, u, axis=1, return_grad=True)
    assert np.isnan(distance).sum() == 1 and np.isnan(du).sum() == 7 and np.isnan(dv).sum() == v.shape[1]


def test_numbers_of_any_size():
    assert isentropic.wasserstein_1d([1e308, -1e308], [-1e308, -1e308]) == 1e308
    assert isentropic.wasserstein_1d([np.inf, 0], [np.inf, 1]) == 0.5
    assert isentropic.wasserstein_1d([np.inf], [1.0], order=2) == np.inf
    assert isentropic.wasserstein_1d([3e-320], [0.0], order=3) == pytest.approx(3e-320, rel=1e-3)
    for scale in 1e-300, 1e-200, 1e200, 1e300:
        points = np.array([[1, 0], [0, 0]]) * scale, np.array([[0, 0], [0, 1]]) * scale
        for order in 1, 3:  # either both move by scale, or one stays and the other moves by scale sqrt(2)
            want = scale * min(1, (2 ** (order / 2) / 2) ** (1 / order))
            assert isentropic.wasserstein(*points, order=order) == pytest.approx(want, rel=1e-12)
    near = isentropic.wasserstein([[1, 0], [1e-4, 0]], [[1, 0], [0, 0]], order=300)
    assert near == pytest.approx(1e-4 * 0.5 ** (1 / 300), rel=1e-12)


def test_points_are_an_assignment():
    random = rng(3)
    x, y = random.normal(size=(2, 50, 3))
    distance = np.sqrt(((x[:, None] - y) ** 2).sum(-1))
    for order in 1, 2, 4:
        rows, columns = scipy.optimize.linear_sum_assignment(distance**order)
        want = (distance[rows, columns] ** order).mean() ** (1 / order)
        assert isentropic.wasserstein(x, y, order=order) == pytest.approx(want, rel=1e-12)
    assert isentropic.wasserstein(x, x[::-1]) == 0


# With entropy.


def sinkhorn_by_definition(a, b, cost, epsilon, iterations=20000):
    f, g = np.zeros(len(a)), np.zeros(len(b))
    for _ in range(iterations):
        f = -epsilon * scipy.special.logsumexp((g - cost) / epsilon, b=b, axis=1)
        g = -epsilon * scipy.special.logsumexp((f[:, None] - cost) / epsilon, b=a[:, None], axis=0)
    return a[:, None] * b * np.exp((f[:, None] + g - cost) / epsilon)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 50])
def test_sinkhorn_is_the_definition(epsilon):
    random = rng(4)
    a, b, cost = masses(random, 6), masses(random, 9), random.random((6, 9))
    a[2] = b[3] = 0
    a, b = a / a.sum(), b / b.sum()
    want = sinkhorn_by_definition(a, b, cost, epsilon, 2000)
    result = isentropic.sinkhorn(a, b, cost, epsilon=epsilon, tolerance=1e-13)
    assert result.converged and result.iterations < 3000
    np.testing.assert_allclose(result.plan, want, rtol=1e-9, atol=1e-15)
    assert result.cost == pytest.approx((want * cost).sum(), rel=1e-10)
    plan = a[:, None] * b * np.exp((result.f[:, None] + result.g - cost) / epsilon)
    np.testing.assert_allclose(plan, want, rtol=1e-9, atol=1e-15)


def test_sinkhorn_potentials_of_columns_without_mass():
    """g is a soft minimum of C - f in every column, with mass or without: what a point there would cost."""
    random = np.random.default_rng(4)
    a, b, cost = random.random(5), random.random(6), random.random((5, 6))
    a[2] = b[1] = b[4] = 0
    a, b = a / a.sum(), b / b.sum()
    found = isentropic.sinkhorn(a, b, cost, epsilon=0.2, tolerance=1e-13)
    there = a > 0
    want = -0.2 * np.log((a[there, None] * np.exp((found.f[there, None] - cost[there]) / 0.2)).sum(0))
    np.testing.assert_allclose(found.g, want, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1, 1e20, 1e300])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.01, 0.1])
def test_sinkhorn_bounds_hold_whatever_epsilon(epsilon, scale):
    random = rng(5)
    a, b = masses(random, 30), masses(random, 20)
    cost = ((random.normal(size=(30, 1, 2)) - random.normal(size=(1, 20, 2))) ** 2).sum(-1)
    exact = isentropic.optimal_transport(a, b, cost).cost
    for limit in 3, 300:
        result = isentropic.sinkhorn(a, b, cost * scale, epsilon=epsilon * scale, max_iterations=limit)
        assert result.lower_bound / scale <= exact * (1 + 1e-12) <= result.upper_bound / scale * (1 + 2e-12)
        np.testing.assert_allclose(result.plan.sum(axis=1), a, rtol=1e-12)
        assert result.marginal_error == pytest.approx(abs(result.plan.sum(axis=0) - b).sum(), rel=1e-6, abs=1e-14)
        assert result.converged == (result.marginal_error <= 1e-6)
        assert result.iterations <= limit


def test_sinkhorn_with_forbidden_arcs_batches_and_types():
    random = rng(6)
    a, b, cost = masses(random, 3, 5), masses(random, 4), random.random((3, 5, 4))
    cost[1, 2, :3] = np.inf
    a[1, 2] = b.min() / 2
    a /= a.sum(axis=1, keepdims=True)
    result = isentropic.sinkhorn(a, b, cost, epsilon=0.1, tolerance=1e-10)
    assert result.plan.shape == (3, 5, 4) and result.cost.shape == result.converged.shape == (3,)
    assert result.converged.all() and np.isfinite(result.cost).all()
    np.testing.assert_array_equal(result.plan[1, 2, :3], 0)
    one = isentropic.sinkhorn(a[1], b, cost[1], epsilon=0.1, tolerance=1e-10)
    np.testing.assert_array_equal(one.plan, result.plan[1])
    single = isentropic.sinkhorn(*(x.astype(np.float32) for x in (a, b, cost)), epsilon=0.1, tolerance=1e-6)
    assert single.plan.dtype == np.float32
    np.testing.assert_allclose(single.plan, result.plan, atol=1e-5)
    cost[1, 2] = np.inf
    with pytest.raises(ValueError, match=r"^sinkhorn: cost must be .* in row 2, which has mass in problem 1$"):
        isentropic.sinkhorn(a, b, cost, epsilon=0.1)
    with pytest.raises(ValueError, match=r"^sinkhorn: epsilon must be above 0 and finite, got 0$"):
        isentropic.sinkhorn(a, b, cost, epsilon=0)


def test_threads_change_no_bit():
    random = rng(7)
    a, b, cost = masses(random, 500), masses(random, 300), random.random((500, 300))
    results = []
    for threads in 1, 2, 3:
        isentropic.set_num_threads(threads)
        results.append(isentropic.sinkhorn(a, b, cost, epsilon=0.02))
    isentropic.set_num_threads(0)
    for result in results[1:]:
        np.testing.assert_array_equal(result.plan, results[0].plan)


def test_sinkhorn_divergence():
    random = rng(8)
    x, y = random.normal(size=(40, 2)), random.normal(size=(30, 2)) + 1
    a, b = masses(random, 40), masses(random, 30)
    for epsilon in 0.05, 1.0, 100.0:
        assert isentropic.sinkhorn_divergence(x, x, epsilon=epsilon, a=a, b=a) == 0
        assert 0 <= isentropic.sinkhorn_divergence(x, x[::-1], epsilon=epsilon, a=a, b=a[::-1]) < 1e-9
        value = isentropic.sinkhorn_divergence(x, y, epsilon=epsilon, a=a, b=b)
        assert value == pytest.approx(isentropic.sinkhorn_divergence(y, x, epsilon=epsilon, a=b, b=a), rel=1e-6)
        assert value > 0
    # At orders above 2 it may be negative: 1 + epsilon / 2 log((1 + exp(-16 / epsilon)) / 2) for two points against one.
    value = isentropic.sinkhorn_divergence([-1.0, 1.0], [0.0, 0.0], epsilon=10, order=4, tolerance=1e-13)
    assert value == pytest.approx(1 + 5 * np.log((1 + np.exp(-1.6)) / 2), rel=1e-12)
    # A Newton iteration on the dual in 50 digits; that of x with itself is what turns of rows and columns do not reach.
    random = rng(3)
    x, y = random.normal(size=(6, 2)) * 1.5, random.normal(size=(5, 2)) * 1.5
    a, b = random.dirichlet(np.ones(6)), random.dirichlet(np.ones(5))
    found = isentropic.sinkhorn_divergence(x, y, epsilon=0.5, a=a, b=b)
    assert found == pytest.approx(6.81152634488807846557514051735074, rel=1e-13)
    x, y = random.normal(size=(40, 2)), random.normal(size=(30, 2)) + 1
    a, b = masses(random, 40), masses(random, 30)
    # Between the transport cost and, for a large epsilon, the distance of the means.
    exact = isentropic.wasserstein(x, y, order=2, a=a, b=b) ** 2
    assert isentropic.sinkhorn_divergence(x, y, epsilon=0.01, a=a, b=b) == pytest.approx(exact, rel=0.05)
    assert isentropic.sinkhorn_divergence(x, y, epsilon=1e4, a=a, b=b) == pytest.approx(((a @ x - b @ y) ** 2).sum(), rel=1e-2)


# Duality.


def test_duality():
    random = rng(9)
    a, b, cost = masses(random, 12), masses(random, 10), random.random((12, 10))
    result = isentropic.optimal_transport(a, b, cost)
    g = isentropic.c_transform(result.f, cost)
    np.testing.assert_allclose(g, result.g, atol=1e-14)
    assert isentropic.dual_value(result.f, g, a, b) == pytest.approx(result.cost, rel=1e-13)
    f = random.normal(size=12)
    g = isentropic.c_transform(f, cost)
    np.testing.assert_array_equal(g, (cost - f[:, None]).min(axis=0))
    better = isentropic.c_transform(g, cost.T)
    assert (better >= f).all()
    assert isentropic.dual_value(f, g, a, b) <= isentropic.dual_value(better, g, a, b) <= result.cost
    cost[:, 3] = np.inf
    assert isentropic.c_transform(f, cost)[3] == np.inf
    assert isentropic.dual_value([np.inf, 1], [2], [0, 1], [1]) == 3
    many = isentropic.c_transform(np.stack([f, -f]), cost)
    np.testing.assert_array_equal(many[1], isentropic.c_transform(-f, cost))


def test_lipschitz_constant_and_kantorovich_rubinstein():
    random = rng(10)
    x = random.normal(size=(25, 2))
    distance = np.sqrt(((x[:, None] - x) ** 2).sum(-1))
    a, b = masses(random, 25), masses(random, 25)
    result = isentropic.optimal_transport(a, b, distance)
    f = -isentropic.c_transform(result.f, distance)  # on one space the potentials are f and -f
    assert isentropic.lipschitz_constant(f, distance) <= 1 + 1e-12
    assert (a - b) @ f == pytest.approx(result.cost, rel=1e-12)
    for _ in range(20):
        f = random.normal(size=25)
        assert (a - b) @ f / isentropic.lipschitz_constant(f, distance) <= result.cost * (1 + 1e-12)
    assert isentropic.lipschitz_constant([1.0], [[0.0]]) == 0
    assert isentropic.lipschitz_constant([1.0, 2.0], np.zeros((2, 2))) == np.inf


@pytest.mark.parametrize("scale", [1e-300, 1e-40, 1e-12, 0.3, 1.9, 1e12, 1e40, 1e300])
def test_scale_of_weights_changes_nothing(scale):
    """Weights are proportions: those of either side may be of any size beside the other's."""
    rng = np.random.default_rng(12)
    u, v, a, b = rng.normal(size=9), rng.normal(size=7), rng.random(9), rng.random(7)
    x, y = np.stack([u, 0 * u], 1), np.stack([v, 0 * v], 1)
    for order in 1, 2:
        want = isentropic.wasserstein_1d(u, v, u_weights=a, v_weights=b, order=order)
        for weights in (a, b * scale), (a * scale, b), (a / scale if 1e-9 < scale < 1e9 else a, b * scale):
            got = isentropic.wasserstein_1d(u, v, u_weights=weights[0], v_weights=weights[1], order=order)
            assert got == pytest.approx(want, rel=4e-15, abs=0)
            assert isentropic.wasserstein(x, y, a=weights[0], b=weights[1], order=order) == pytest.approx(
                want, rel=1e-13, abs=0
            )
    fraction = a[:7] * (1 + 1e-3)
    assert isentropic.wasserstein_1d(u[:7], u[:7], u_weights=a[:7], v_weights=fraction) < 1e-16
    assert isentropic.wasserstein_1d(u[:7], u[:7], u_weights=a[:7], v_weights=a[:7] * 2.0**700) == 0


def test_two_parallel_segments():
    """At distance theta, KL is inf and JS log 2 unless theta is 0, W1 is |theta|."""
    height = np.linspace(0, 1, 32)
    for theta in -1.5, -1e-3, 0.0, 1e-9, 0.7:
        x = np.stack([np.zeros(32), height], 1)
        y = np.stack([np.full(32, theta), height], 1)
        assert isentropic.wasserstein(x, y) == pytest.approx(abs(theta), rel=1e-12, abs=0)
        cost = np.linalg.norm(x[:, None] - y, axis=-1)
        plan = isentropic.optimal_transport(np.full(32, 1 / 32), np.full(32, 1 / 32), cost)
        assert plan.cost == pytest.approx(abs(theta), rel=1e-12, abs=0) and np.array_equal(plan.plan, np.eye(32) / 32)
        points, index = np.unique(np.concatenate([x, y]), axis=0, return_inverse=True)
        p, q = (np.bincount(part, minlength=len(points)) / 32 for part in np.split(index.ravel(), 2))
        assert isentropic.kl_divergence(p, q) == (0 if theta == 0 else np.inf)
        assert isentropic.js_divergence(p, q) == (0 if theta == 0 else pytest.approx(np.log(2), rel=1e-15))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: isentropic.wasserstein_1d([], [1.0]), "wasserstein_1d: u and v must have at least one sample, got 0 and 1"),
        (
            lambda: isentropic.wasserstein_1d([1.0], [1.0], order=0.5),
            "wasserstein_1d: order must be at least 1 (inf is allowed), got 0.5",
        ),
        (
            lambda: isentropic.wasserstein_1d([1.0], [1.0], u_weights=[-1.0]),
            "wasserstein_1d: u_weights must be at least 0 and finite, got -1 at entry 0 in row 0",
        ),
        (
            lambda: isentropic.wasserstein_histogram([0.5, 0.6], [0.5, 0.5]),
            "wasserstein_histogram: p must sum to 1 within 1e-06, got 1.1 in row 0 (normalize=True divides by the sum)",
        ),
        (
            lambda: isentropic.wasserstein_histogram([[0.5, 0.5], [0.5, np.nan]], [0.5, 0.5]),
            "wasserstein_histogram: p must be at least 0 and finite, got nan at entry 1 in row 1",
        ),
        (
            lambda: isentropic.wasserstein_histogram([1.0], [1.0], support=[np.inf]),
            "wasserstein_histogram: support must be finite, got inf at entry 0",
        ),
        (
            lambda: isentropic.wasserstein([[np.nan]], [[0.0]]),
            "wasserstein: x must be finite, got nan at point 0, coordinate 0",
        ),
        (
            lambda: isentropic.wasserstein(np.zeros((0, 2)), np.zeros((3, 2))),
            "wasserstein: x must have at least one point, got shape (0, 2)",
        ),
        (
            lambda: isentropic.sinkhorn_divergence(np.zeros((2, 0)), np.zeros((3, 0)), epsilon=1),
            "sinkhorn_divergence: x must have at least one coordinate, got shape (2, 0)",
        ),
        (
            lambda: isentropic.wasserstein([[1.0, 2.0]], [[0.0]]),
            "wasserstein: y must have points of as many coordinates as x, 2, got 1",
        ),
        (lambda: isentropic.c_transform([np.nan], [[1.0]]), "c_transform: f must be finite or -inf, got nan at 0"),
        (
            lambda: isentropic.lipschitz_constant([0.0, 1.0], [[0, -1], [1, 0]]),
            "lipschitz_constant: distance must be at least 0, got -1 at row 0, column 1",
        ),
    ],
)
def test_others_refused(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


NAMES = [
    "c_transform",
    "dual_value",
    "lipschitz_constant",
    "optimal_transport",
    "sinkhorn",
    "sinkhorn_divergence",
    "wasserstein",
    "wasserstein_1d",
    "wasserstein_histogram",
]


@pytest.mark.parametrize("name", NAMES)
def test_docstrings(name):
    function = getattr(isentropic, name)
    described = ", ".join(re.findall(r"^    (\w+(?:, \w+)*) :", function.__doc__, re.M)).split(", ")
    assert set(inspect.signature(function).parameters) <= set(described)
    finder = doctest.DocTestFinder().find(function, name, globs={"isentropic": isentropic, "np": np})
    runner = doctest.DocTestRunner()
    for test in finder:
        runner.run(test)
    assert runner.failures == 0 and runner.tries > 0


def test_sinkhorn_converges_at_small_epsilon():
    """At 1e-4 to 1e-3 of the costs' range, where sweeps without Newton's method need hundreds of thousands of passes."""
    rng = np.random.default_rng(0)
    for k in range(250):
        n, m = int(rng.integers(4, 58)), int(rng.integers(4, 59))
        if k % 4 == 0:
            cost = rng.random((n, m))
        elif k % 4 == 1:
            cost = ((rng.standard_normal((n, 1, 2)) - rng.standard_normal((m, 2))) ** 2).sum(-1)
        elif k % 4 == 2:
            cost = abs(rng.random((n, 1)) - rng.random(m))
        else:
            n = m = min(n, m)
            x = rng.standard_normal((n, 1, 3))
            cost = ((x - (x[:, 0] + 0.1 * rng.standard_normal((n, 3)))) ** 2).sum(-1)
        a, b = (np.full(size, 1 / size) if k % 3 == 0 else rng.dirichlet(np.ones(size)) for size in (n, m))
        epsilon = np.ptp(cost) * 10 ** rng.uniform(-4, -3)
        found = isentropic.sinkhorn(a, b, cost, epsilon=epsilon, tolerance=1e-9, max_iterations=1000)
        assert found.converged and found.marginal_error <= 1e-9
        np.testing.assert_allclose(found.plan.sum(axis=0), b, atol=1e-8)
        np.testing.assert_allclose(found.plan.sum(axis=1), a, atol=1e-8)
        # The potentials are those of the plan, which has the optimum between its bounds.
        want = a[:, None] * b * np.exp((found.f[:, None] + found.g - cost) / epsilon)
        np.testing.assert_allclose(found.plan, want, rtol=1e-6, atol=1e-12)
        exact = float(isentropic.optimal_transport(a, b, cost).cost)
        assert found.lower_bound - 1e-12 <= exact <= found.upper_bound + 1e-12


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "complex64"])
def test_numbers_of_unknown_types_are_never_written(dtype):
    """A status was once written as 4 bytes into an array of single bytes, and so beyond its end."""
    a, cost = np.full((5, 3), 1 / 3), np.ones((15, 3))
    value, gap, status = np.empty(5), np.empty(5), np.empty(5, dtype)
    with pytest.raises(TypeError, match="there is no array of numbers of format"):
        _core.optimal_transport(
            a, a, cost, value, np.empty((15, 3)), np.empty((5, 3)), np.empty((5, 3)), gap, status, -1, (None,)
        )


@pytest.mark.parametrize("masses", ["equal", "random"])
@pytest.mark.parametrize("shape", [(60, 60), (90, 40), (1, 7), (40, 2)])
def test_costs_of_a_line_are_solved_from_their_order(shape, masses):
    """(i + j)^2, i j, those of points in any order, with noise, and with forbidden arcs, beside a linear program."""
    rng = np.random.default_rng(shape[0])
    n, m = shape
    i, j = rng.permutation(n)[:, None] / n, rng.permutation(m) / m
    a, b = (np.ones(size) if masses == "equal" else rng.random(size) + 0.01 for size in shape)
    a, b = a / a.sum(), b / b.sum()
    if n > 2:
        a[1] = 0
        a /= a.sum()
    for cost in ((i + j) ** 2, i * j, abs(i - j), i * j + 0.1 * rng.random(shape), -(i**2) * j, np.exp(i + j), 0 * i * j):
        forbidden = np.where(rng.random(shape) < 0.1, np.inf, cost)
        for costs in (cost, forbidden) if min(shape) > 20 else (cost,):
            found = isentropic.optimal_transport(a, b, costs)
            rows, columns = np.repeat(np.eye(n), m, axis=1), np.tile(np.eye(m), n)
            finite = np.isfinite(costs).ravel()
            matrix, sums = np.vstack([rows, columns])[:, finite], np.concatenate([a, b])
            program = scipy.optimize.linprog(costs.ravel()[finite], A_eq=matrix, b_eq=sums, method="highs")
            assert float(found.cost) == pytest.approx(program.fun, rel=1e-9, abs=1e-12)
            assert abs(found.gap) <= 1e-12 * max(1, abs(cost).max())
            np.testing.assert_allclose(found.plan.sum(1), a, atol=1e-15)
