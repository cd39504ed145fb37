"""Transport in each type of numbers: halves, points far from 0, and bounds that hold for the numbers as they are returned."""

import functools
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

import isentropic
import isentropic.torch as et

TYPES = ["float64", "float32", "float16", "bfloat16"]
COUNT = 1000


# The optimum in fractions: the best vertex of the transportation polytope. Vertices are flows along spanning trees.


@functools.cache
def trees(n, m, without=()):
    """The spanning trees of the arcs from n rows to m columns, each in the order of its leaves: (arc, whether a row ends)."""
    found = []
    arcs = [arc for arc in itertools.product(range(n), range(m)) if arc not in without]
    for tree in itertools.combinations(arcs, n + m - 1):
        rest, order = list(tree), []
        while rest:
            for arc in rest:
                row_ends = sum(other[0] == arc[0] for other in rest) == 1
                if row_ends or sum(other[1] == arc[1] for other in rest) == 1:
                    order.append((arc, row_ends))
                    rest.remove(arc)
                    break
            else:
                break
        if not rest and len({i for i, _ in tree}) == n and len({j for _, j in tree}) == m:
            found.append(order)
    return found


def exact(a, b, cost, without=()):
    """The least cost of moving a to b, all fractions."""
    best = None
    for order in trees(len(a), len(b), without):
        left, right, total = list(a), list(b), Fraction(0)
        for (i, j), row_ends in order:
            flow = left[i] if row_ends else right[j]
            if flow < 0:
                break
            left[i] -= flow
            right[j] -= flow
            total += flow * cost[i][j]
        else:
            if all(x >= 0 for x in (*left, *right)) and (best is None or total < best):
                best = total
    return best


def fractions(x):
    return [fractions(one) for one in x] if isinstance(x, list) else Fraction(x)


def balanced(a, b, cost):
    """That of one problem of numbers; b is scaled to the sum of a."""
    a, b, cost = fractions(a.tolist()), fractions(b.tolist()), fractions(cost.tolist())
    return exact(a, [x * sum(a) / sum(b) for x in b], cost)


def partial(a, b, cost, mass):
    """That of moving a part: one more row and column take what stays."""
    a, b, cost, mass = fractions(a.tolist()), fractions(b.tolist()), fractions(cost.tolist()), Fraction(mass)
    cost = [[*row, Fraction(0)] for row in cost] + [[Fraction(0)] * (len(b) + 1)]
    return exact([*a, sum(b) - mass], [*b, sum(a) - mass], cost, without=((len(a), len(b)),))


def typed(x, name):
    """Numbers that the type has, in an array that NumPy has."""
    if name == "bfloat16":
        return torch.from_numpy(np.asarray(x)).to(torch.bfloat16)
    return np.asarray(x).astype(name)


def in_float64(x):
    return x.double().numpy() if isinstance(x, torch.Tensor) else x.astype(np.float64)


@functools.cache
def problems(name, n=2, m=3):
    random = np.random.default_rng(5)
    masses = random.integers(1, 9, (COUNT, n)) * 1.0, random.random((COUNT, m)) + 0.1
    masses = masses[0] / masses[0].sum(-1, keepdims=True), masses[1] / masses[1].sum(-1, keepdims=True)
    cost = random.normal(size=(COUNT, n, m)) * 10.0 ** random.integers(-3, 4, (COUNT, 1, 1))
    cost[::3] = abs(cost[::3]).round(1)
    given = [typed(x, name) for x in (*masses, cost)]
    return given, [balanced(*one) for one in zip(*map(in_float64, given), strict=True)]


def as_tensors(given):
    return [x if isinstance(x, torch.Tensor) else torch.from_numpy(x) for x in given]


def on_arrays(name):
    return lambda *given, **options: getattr(isentropic, name)(*given, **options)


def on_tensors(name):
    return lambda *given, **options: getattr(et, name)(*as_tensors(given), **options)


def in_jax(name):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    import isentropic.jax as ej

    def run(*given, **options):
        arrays = [jnp.asarray(x.float().numpy(), jnp.bfloat16) if isinstance(x, torch.Tensor) else x for x in given]
        if arrays[0].dtype == np.float64:
            with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
                return [np.asarray(x) for x in getattr(ej, name)(*map(jnp.asarray, arrays), **options)]
        return [np.asarray(x) for x in getattr(ej, name)(*map(jnp.asarray, arrays), **options)]

    return run


DOORS = {"arrays": on_arrays, "tensors": on_tensors, "jax": in_jax}


def result_dtype(name):
    return "float64" if name == "float64" else "float32"


def dtype_of(x):
    return str(x.dtype).removeprefix("torch.")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("door", DOORS)
def test_the_gap_holds(door, name):
    given, want = problems(name)
    found = DOORS[door]("optimal_transport")(*given)
    cost, gap = found[0], found[4]
    assert dtype_of(cost) == dtype_of(gap) == result_dtype(name)
    for k in range(COUNT):
        off = abs(Fraction(float(cost[k])) - want[k])
        assert off <= Fraction(float(gap[k])), k
        assert float(gap[k]) <= (1e-12 if name == "float64" else 2e-7) * abs(in_float64(given[2])[k]).max()


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("tolerance", [1e-6, 1e-13])
def test_bounds_of_sinkhorn_hold(door, name, tolerance):
    given, want = problems(name)
    scale = abs(in_float64(given[2])).max()
    for epsilon in (1e-3 * scale, scale):
        lower, upper = DOORS[door]("sinkhorn")(*given, epsilon=epsilon, tolerance=tolerance)[5:7]
        assert dtype_of(lower) == dtype_of(upper) == result_dtype(name)
        for k in range(COUNT):
            assert Fraction(float(lower[k])) <= want[k] <= Fraction(float(upper[k])), k


def test_a_bound_in_float32():
    cost = np.array([[0.1, 0.7], [0.9, 0.3]], np.float32)
    half = np.array([0.5, 0.5], np.float32)
    want = balanced(half, half, cost)
    assert float(want) == pytest.approx(0.20000000671, abs=1e-11)
    for run in (on_arrays("sinkhorn"), on_tensors("sinkhorn"), in_jax("sinkhorn")):
        lower, upper = run(half, half, cost, epsilon=0.01)[5:7]
        assert Fraction(float(lower)) <= want <= Fraction(float(upper))
        assert 0 < float(upper) - float(lower) < 4e-8


@pytest.mark.parametrize("name", TYPES)
def test_the_gap_of_a_part_holds(name):
    given, _ = problems(name, 2, 2)
    a, b, cost = map(in_float64, given)
    for door in (on_arrays, on_tensors):
        found = door("partial_transport")(*given, mass=0.375)
        value, gap = found.cost, found.gap
        assert dtype_of(value) == dtype_of(gap) == result_dtype(name)
        for k in range(COUNT):
            off = abs(Fraction(float(value[k])) - partial(a[k], b[k], cost[k], 0.375))
            assert off <= Fraction(float(gap[k])), k
            assert float(gap[k]) <= (1e-12 if name == "float64" else 2e-7) * abs(cost[k]).max()


def unbalanced_minimum(a, b, cost, epsilon, penalty):
    """By Sinkhorn's iteration in 40 digits: the value of the dual."""
    a, b = ([mpmath.mpf(float(x)) for x in one] for one in (a, b))
    cost = [[mpmath.mpf(float(x)) for x in row] for row in cost]
    epsilon, penalty = mpmath.mpf(epsilon), mpmath.mpf(penalty)
    share = penalty / (penalty + epsilon)
    f, g = [mpmath.mpf(0)] * len(a), [mpmath.mpf(0)] * len(b)
    for _ in range(400):
        f = [
            -share * epsilon * mpmath.log(sum(b[j] * mpmath.exp((g[j] - row[j]) / epsilon) for j in range(len(b))))
            for row in cost
        ]
        before, g = (
            g,
            [
                -share * epsilon * mpmath.log(sum(a[i] * mpmath.exp((f[i] - cost[i][j]) / epsilon) for i in range(len(a))))
                for j in range(len(b))
            ],
        )
        if max(abs(x - y) for x, y in zip(before, g, strict=True)) < mpmath.mpf(10) ** -25:
            break
    moved = sum(a[i] * b[j] * mpmath.exp((f[i] + g[j] - cost[i][j]) / epsilon) for i in range(len(a)) for j in range(len(b)))
    return (
        penalty * sum(x * (1 - mpmath.exp(-y / penalty)) for x, y in [*zip(a, f, strict=True), *zip(b, g, strict=True)])
        + epsilon * sum(a) * sum(b)
        - epsilon * moved
    )


@pytest.mark.parametrize("name", TYPES)
def test_the_gap_of_unequal_masses_holds(name):
    (a, b, cost), _ = problems(name)
    count, cost = 25, abs(in_float64(cost)) % 3
    with mpmath.workdps(40):
        for epsilon, penalty in ((0.5, 1.0), (0.05, 0.3)):
            a, b, cost = a[:count], b[:count] * 2, cost[:count]
            given = [typed(in_float64(x), name) for x in (a, b, cost)]
            numbers = [in_float64(x) for x in given]
            for door in (on_arrays, on_tensors):
                found = door("unbalanced_sinkhorn")(*given, epsilon=epsilon, penalty=penalty)
                assert dtype_of(found.value) == dtype_of(found.gap) == result_dtype(name)
                for k in range(count):
                    want = unbalanced_minimum(*(x[k] for x in numbers), epsilon, penalty)
                    assert abs(float(found.value[k]) - want) <= float(found.gap[k]), k


# Halves.


def calls(half, points, masses, cost):
    """Every function of transport: its name, arrays, and options."""
    yield "wasserstein_1d", (points[0], points[1]), {}
    yield "wasserstein_1d", (points[0], points[1]), {"order": 2.0}
    yield "wasserstein_histogram", masses, {}
    yield "wasserstein_histogram", masses, {"order": 2.0}
    yield "wasserstein", points, {}
    yield "sliced_wasserstein", points, {"projections": 7}
    yield "wasserstein", points, {"metric": "cosine"}
    yield "sinkhorn_divergence", points, {"epsilon": 0.5}
    yield "unbalanced_sinkhorn_divergence", points, {"epsilon": 0.5, "penalty": 1.0}
    yield "optimal_transport", (*masses, cost), {}
    yield "sinkhorn", (*masses, cost), {"epsilon": 0.5}
    yield "partial_transport", (*masses, cost), {"mass": 0.5}
    yield "unbalanced_sinkhorn", (*masses, cost), {"epsilon": 0.5, "penalty": 1.0}
    yield "sinkhorn_barycenter", (half, cost), {"epsilon": 0.5}
    yield "c_transform", (masses[0], cost), {}
    yield "dual_value", (*masses, *masses), {}
    yield "lipschitz_constant", (masses[0], abs(cost)), {}


def half_calls(name):
    random = np.random.default_rng(8)
    make = functools.partial(typed, name=name)
    masses = [make(x / x.sum()) for x in random.integers(1, 9, (2, 4)).astype(float)]
    p = make(np.stack([x / x.sum() for x in random.integers(1, 9, (3, 4)).astype(float)]))
    return calls(p, [make(random.normal(size=(5, 4))), make(random.normal(size=(5, 4)))], masses, make(random.random((4, 4))))


def leaves(found):
    found = found if isinstance(found, tuple) else (found,)
    return [
        x
        for x in found
        if hasattr(x, "dtype") and str(x.dtype).removeprefix("torch.") in ("float16", "bfloat16", "float32", "float64")
    ]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_numbers_of_halves_are_float32(name):
    """They are those of the same numbers in float32, whatever half they would round to."""
    for function, given, options in half_calls(name):
        wide = [x.float() if isinstance(x, torch.Tensor) else x.astype(np.float32) for x in given]
        more = {"mass_tolerance": 1e-2} if function in ("optimal_transport", "sinkhorn") else {}
        if function == "wasserstein_histogram":
            wide = [x / x.sum() for x in wide]
        for run in (on_arrays(function), on_tensors(function)):
            found, want = leaves(run(*given, **options)), leaves(run(*wide, **options, **more))
            assert [dtype_of(x) for x in found] == ["float32"] * len(want), function
            for one, other in zip(found, want, strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6, err_msg=function)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_gradients_of_halves(name):
    for function, given, options in half_calls(name):
        tensors = [x.clone().requires_grad_() for x in as_tensors(given)]
        found = getattr(et, function)(*tensors, **options)
        value = found[0] if isinstance(found, tuple) else found
        value.sum().backward()
        assert [x.grad.dtype for x in tensors] == [x.dtype for x in tensors], function
        assert all(x.grad.isfinite().all() for x in tensors), function


def test_gradients_of_halves_in_numpy_are_float32():
    u, v = np.float16([0, 1]), np.float16([60000, -60000])
    distance, du, dv = isentropic.wasserstein_1d(u, v, return_grad=True, order=2)
    assert distance.dtype == du.dtype == dv.dtype == np.float32
    p = np.float16([0.5, 0.5, 0])
    distance, dp, dq = isentropic.wasserstein_histogram(p, p[::-1], support=[0, 1e6, 1e7], return_grad=True)
    assert distance.dtype == dp.dtype == dq.dtype == np.float32
    assert np.isfinite(dp).all() and np.isfinite(dq).all()


@pytest.mark.parametrize("name", TYPES[:3])
def test_halves_in_jax_are_float32(name):
    jax = pytest.importorskip("jax")
    import isentropic.jax as ej

    for kind in ("float16", "bfloat16"):
        for function, given, options in half_calls(name):
            if not hasattr(ej, function) or name == "float64":
                continue
            arrays = [jax.numpy.asarray(x, kind) for x in given]
            found = leaves(getattr(ej, function)(*arrays, **options))
            assert [str(x.dtype) for x in found] == ["float32"] * len(found), (function, kind)


@pytest.mark.parametrize("door", [isentropic, et])
def test_numbers_beyond_halves(door):
    make = torch.tensor if door is et else np.array
    half = torch.float16 if door is et else np.float16
    found = door.wasserstein_1d(make([60000.0], dtype=half), make([-60000.0], dtype=half))
    assert dtype_of(found) == "float32" and float(found) == 120000
    masses, cost = make([50.0, 50.0], dtype=half), make([[60000.0] * 2] * 2, dtype=half)
    found = door.optimal_transport(masses, masses, cost)
    assert dtype_of(found.cost) == "float32" and float(found.cost) == 6e6
    assert float(door.sinkhorn(masses, masses, cost, epsilon=1e4).cost) == pytest.approx(6e6)
    assert float(door.partial_transport(masses, masses, cost, mass=50).cost) == 3e6
    assert float(door.wasserstein(make([[60000.0] * 2], dtype=half), make([[-60000.0] * 2], dtype=half))) == pytest.approx(
        120000 * 2**0.5
    )
    f = make([60000.0, -60000.0], dtype=half)
    assert float(door.dual_value(f, f, masses, masses * 0 + 1)) == 0
    assert float(door.dual_value(abs(f), abs(f), masses, masses)) == 12e6
    assert float(door.lipschitz_constant(f, make([[0, 0.5], [0.5, 0]], dtype=half))) == 240000
    assert np.asarray(door.c_transform(f, -abs(cost))).tolist() == [-120000.0] * 2


def test_critics_of_halves():
    real, fake = torch.full((4,), 60000.0, dtype=torch.float16), torch.full((4,), -60000.0, dtype=torch.float16)
    assert et.wgan_critic_loss(real, fake).item() == -120000
    zeros = torch.zeros(3, 2, dtype=torch.float16)
    assert et.gradient_penalty(lambda z: (z * 300).sum(1), zeros, zeros).item() == pytest.approx((300 * 2**0.5 - 1) ** 2)


def test_costs_beyond_the_type_are_refused():
    for dtype, most in ((np.float32, 3e38), (np.float64, 1e308)):
        masses, cost = np.array([50, 50], dtype), np.full((2, 2), most, dtype)
        for name, options in (("optimal_transport", {}), ("partial_transport", {"mass": 99}), ("sinkhorn", {"epsilon": 1.0})):
            with pytest.raises(ValueError, match=f"^{name}: the cost of the plan"):
                getattr(isentropic, name)(masses, masses, cost, **options)


# Points far from 0.

OFFSETS = [("float32", 1e4), ("float32", 1e6), ("float64", 1e12), ("float64", 1e15)]


@pytest.mark.parametrize(("dtype", "offset"), OFFSETS)
def test_points_far_from_0(dtype, offset):
    step = 0.125  # what both types have there
    random = np.random.default_rng(1)
    x, y = (random.integers(-40, 41, (6, 2)) * step for _ in range(2))
    theta = np.array([[np.cos(k * np.pi / 8 + 0.1), np.sin(k * np.pi / 8 + 0.1)] for k in range(8)])  # no ties
    close = {"rtol": 1e-5 if dtype == "float32" else 1e-12}
    moved = [(one + offset).astype(dtype) for one in (x, y)]
    calls = [("sliced_wasserstein", {"projections": theta, "order": order}) for order in (1.0, 2.0)] + [
        ("wasserstein", {}),
        ("wasserstein", {"order": 2.0}),
        ("sinkhorn_divergence", {"epsilon": 1.0}),
    ]
    for name, options in calls:
        want = getattr(isentropic, name)(x, y, **options)
        found = getattr(isentropic, name)(*moved, **options)
        np.testing.assert_allclose(found, want, **close, err_msg=name)
        slopes = []
        for given in ((x, y), moved):
            tensors = [torch.from_numpy(one).requires_grad_() for one in given]
            value = getattr(et, name)(*tensors, **options)
            value = value[0] if isinstance(value, tuple) else value
            value.backward()
            slopes.append([value.detach().numpy(), *(one.grad.numpy() for one in tensors)])
        np.testing.assert_allclose(slopes[1][0], np.ravel(want)[0], **close, err_msg=name)
        for one, other in zip(*slopes, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4 if dtype == "float32" else 1e-9, atol=1e-6, err_msg=name)
    for order in (1.0, 2.0):
        for run in (on_arrays("wasserstein_1d"), on_tensors("wasserstein_1d")):
            want = isentropic.wasserstein_1d(x.ravel(), y.ravel(), order=order)
            np.testing.assert_allclose(run(*(one.ravel() for one in moved), order=order), want, **close)
            p, q = np.array([0.5, 0.25, 0.25]), np.array([0.0, 0.5, 0.5])
            support = np.array([0, 1, 4]) * step
            want = isentropic.wasserstein_histogram(p, q, support=support, order=order)
        for masses in ((p, q), (p.astype(np.float32), q.astype(np.float32))):
            found = isentropic.wasserstein_histogram(*masses, support=support + offset, order=order)
            tensors = et.wasserstein_histogram(
                *map(torch.from_numpy, masses), support=torch.tensor(support + offset), order=order
            )
            np.testing.assert_allclose(found, want, rtol=1e-6)
            np.testing.assert_allclose(tensors, want, rtol=1e-6)


def test_the_example_of_slices():
    theta = np.array([[np.cos(k * np.pi / 8), np.sin(k * np.pi / 8)] for k in range(8)])
    x, y = np.array([[1e6, 1e6]], np.float32), np.array([[1e6 + 0.5, 1e6 - 0.5]], np.float32)
    want = abs(0.5 * theta[:, 0] - 0.5 * theta[:, 1]).mean()
    for run in (on_arrays("sliced_wasserstein"), on_tensors("sliced_wasserstein")):
        assert float(run(x, y, order=1.0, projections=theta).distance) == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_slices_of_numbers_of_any_size(scale):
    x, y = np.array([[1.0, -1.0], [-1.5, 1.0]]), np.array([[0.5, 1.0], [1.5, -1.5]])
    want = isentropic.sliced_wasserstein(x, y).distance
    assert isentropic.sliced_wasserstein(x * scale, y * scale).distance / scale == pytest.approx(want, rel=1e-12)
    far = np.finfo(float).max
    assert isentropic.sliced_wasserstein([[far, 0.0]], [[far, 1e-9]], projections=[[0, 1]]).distance == pytest.approx(1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_slices_of_points_far_from_each_other(order):
    """No centre brings them near 0: the projections themselves need more digits than float32 has."""
    x = np.float32([[0, 0], [1e6, 0]])
    y = x + np.float32([0.5, 0])
    angles = np.arange(8) * np.pi / 8
    theta = np.stack([np.cos(angles), np.sin(angles)], 1)
    found = et.sliced_wasserstein(torch.from_numpy(x), torch.from_numpy(y), order=order, projections=torch.from_numpy(theta))
    want = (np.abs(0.5 * np.cos(angles)) ** order).mean() ** (1 / order)
    assert found.distance.dtype == torch.float32 and float(found.distance) == pytest.approx(want, rel=1e-6)


def test_the_divergence_in_jax_keeps_its_digits():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import isentropic.jax as ej

    x = np.linspace(0, 10, 50, dtype=np.float32)[:, None]
    for shift, epsilon in ((1e-3, 0.01), (0.5, 0.1), (3e-5, 0.5)):
        y = (x + np.float32(shift)).astype(np.float32)
        want = isentropic.sinkhorn_divergence(x.astype(float), y.astype(float), epsilon=epsilon)
        found, slope = jax.value_and_grad(lambda x: ej.sinkhorn_divergence(x, y, epsilon=epsilon))(x)  # noqa: B023
        assert found.dtype == np.float32 and float(found) == pytest.approx(float(want), rel=1e-5) and found >= 0
        assert slope.shape == x.shape and np.isfinite(slope).all()
    many = jax.vmap(lambda x: ej.sinkhorn_divergence(x, y, epsilon=0.5))(np.stack([x, x + 1]))
    assert many.shape == (2,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_beside_forbidden_entries(dtype):
    """A plan with exactly these masses may need a forbidden entry; the cheapest plan bounds the optimum then."""
    half = np.full(2, 0.5, dtype)
    found = isentropic.sinkhorn(half, half, np.array([[0, np.inf], [1, 0]], dtype), epsilon=0.1)
    assert found.converged and np.isfinite(found.upper_bound) and found.lower_bound <= 0 <= found.upper_bound < 1e-5
    infeasible = np.array([0.6, 0.4], dtype), np.array([[0, 1], [np.inf, 0]], dtype)
    with pytest.raises(ValueError, match="sinkhorn: infeasible: every plan needs an entry of cost inf"):
        isentropic.sinkhorn(half, *infeasible, epsilon=0.1)
