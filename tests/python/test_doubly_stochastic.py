"""doubly_stochastic beside its definition in 50 digits, in NumPy, torch and JAX."""

import itertools

import mpmath
import numpy as np
import pytest

import isentropic

INF, NAN = np.inf, np.nan
SHAPES = [(1, 1), (1, 4), (4, 1), (2, 2), (4, 4), (3, 7), (7, 3), (16, 16), (17, 18), (40, 9)]


def definition(x, temperature, iterations):
    """Rows, then columns, divided by their sums."""
    n, m = x.shape
    with mpmath.workdps(60):
        y = [
            [mpmath.exp(mpmath.mpf(v) / mpmath.mpf(temperature)) if v > -INF else mpmath.mpf(0) for v in row]
            for row in x.tolist()
        ]
        for _ in range(iterations):
            y = [[v / sum(row) for v in row] for row in y]
            sums = [sum(row[j] for row in y) * m / n for j in range(m)]
            y = [[v / s for v, s in zip(row, sums, strict=True)] for row in y]
        return np.array([[float(v) for v in row] for row in y])


def close(found, want, spread):
    """Within the documented error: `spread` is the largest difference of finite scores in a row, over T."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.where(want > 0, want * (16 + 2 * spread + np.abs(np.log(want))), 0)
    np.testing.assert_array_less(np.abs(found - want), 2.0**-52 * size + 1e-300)


def spread_of(x):
    finite = np.where(x > -INF, x, NAN)
    return (np.nanmax(finite, 1) - np.nanmin(finite, 1)).max()


def scores(shape, spread, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape) * spread


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spread", [0.5, 20, 150, 3000])
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_number_of_iterations(shape, spread, iterations):
    x = scores(shape, spread)
    if min(shape) > 1 and spread == 20:
        x[0, 1] = -INF
    for temperature in (1.0, 3.0):
        want = definition(x, temperature, iterations)
        found = isentropic.doubly_stochastic(x, temperature=temperature, iterations=iterations)
        close(found, want, spread_of(x) / temperature)
        narrow = x.astype(np.float32)
        want = definition(narrow.astype(float), temperature, iterations)
        found = isentropic.doubly_stochastic(narrow, temperature=temperature, iterations=iterations)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=2e-7, atol=1e-37)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spread", [0.5, 5, 30, 1000])
def test_the_limit(shape, spread):
    """It has the sums, and is x / T plus a number for each row and each column."""
    x, temperature, (n, m) = scores(shape, spread), 2.0, shape
    y = isentropic.doubly_stochastic(x, temperature=temperature, tolerance=1e-11)
    np.testing.assert_allclose(y.sum(0), n / m, rtol=1e-12)
    assert np.abs(np.log(y.sum(1))).max() <= max(1e-11, 2.0**-50 * (n + m))
    with np.errstate(divide="ignore"):
        rest = np.log(y) - x / temperature
    certain = y > 1e-290
    for i, j in itertools.product(range(n - 1), range(m - 1)):
        corners = (slice(i, i + 2), slice(j, j + 2))
        if certain[corners].all():
            part = rest[corners]
            assert abs(part[0, 0] - part[0, 1] - part[1, 0] + part[1, 1]) <= 1e-9 * (1 + np.abs(part).max())


def test_default_tolerance():
    x = scores((3, 9, 9), 8)
    y = isentropic.doubly_stochastic(x)
    assert 1e-9 < np.abs(np.log(y.sum(-1))).max() <= 1e-6
    np.testing.assert_allclose(y, isentropic.doubly_stochastic(x, tolerance=1e-13), atol=1e-4)


def brute_support(allowed):
    """(whether there is a table with these zeros, which entries one can use), by linear programs."""
    optimize = pytest.importorskip("scipy.optimize")
    n, m = allowed.shape
    cells = np.argwhere(allowed)
    sums = np.zeros((n + m, len(cells)))
    sums[cells[:, 0], range(len(cells))] = 1
    sums[n + cells[:, 1], range(len(cells))] = 1
    right = np.concatenate([np.ones(n), np.full(m, n / m)])
    used = np.zeros(allowed.shape, bool)
    for k, (i, j) in enumerate(cells):
        found = optimize.linprog(-np.eye(len(cells))[k], A_eq=sums, b_eq=right, method="highs")
        if found.status == 2:
            return False, used
        used[i, j] = found.x[k] > 1e-7
    return len(cells) > 0, used


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (4, 4), (3, 5), (4, 2), (5, 5)], ids=str)
def test_what_zeros_leave(shape):
    """Entries that no table can use are 0 in the limit; a table without one is NaN, alone."""
    random = np.random.default_rng(3)
    x = np.where(random.random((60, *shape)) < random.uniform(0.1, 0.6, (60, 1, 1)), -INF, random.normal(size=(60, *shape)))
    y = isentropic.doubly_stochastic(x, tolerance=1e-10)
    kinds = set()
    for table, found in zip(x, y, strict=True):
        feasible, used = brute_support(table > -INF)
        kinds.add((feasible, bool((used != (table > -INF)).any())))
        if not feasible:
            assert np.isnan(found).all()
            continue
        assert ((found > 0) == used).all()
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-9)
        np.testing.assert_allclose(found.sum(0), shape[0] / shape[1], atol=1e-12)
    assert {kind[0] for kind in kinds} == {True, False}
    np.testing.assert_array_equal(y, np.stack([isentropic.doubly_stochastic(table, tolerance=1e-10) for table in x]))


def test_tables_without_a_result():
    good = scores((4, 4), 1)
    bad = np.stack([good] * 6)
    bad[1, 2, 3], bad[2, 0, 0], bad[3, 1], bad[4, :, 2] = NAN, INF, -INF, -INF
    for more in ({}, {"iterations": 3}):
        y = isentropic.doubly_stochastic(bad, **more)
        assert np.isnan(y[1:5]).all() and np.isfinite(y[[0, 5]]).all()
        np.testing.assert_array_equal(y[5], isentropic.doubly_stochastic(good, **more))
        dx = isentropic.doubly_stochastic_vjp(bad, y, np.ones_like(bad), **more)
        assert np.isnan(dx[1:5]).all() and np.isfinite(dx[[0, 5]]).all()


def test_extreme_finite_numbers():
    """Never NaN."""
    big = np.finfo(float).max
    for x in ([[big, -big], [0, 0]], [[big, big], [-big, big]], [[0, 1000], [1000, 2000]], [[1e300, 0, 1], [5, 1e290, 7]]):
        for more in ({}, {"iterations": 2}, {"temperature": 1e-300}, {"temperature": 1e300}):
            y = isentropic.doubly_stochastic(x, **more)
            assert np.isfinite(y).all() and (y >= 0).all(), (x, more, y)
            np.testing.assert_allclose(y.sum(0), len(x) / len(x[0]), rtol=1e-12)


def numeric(x, grad, direction, step, **given):
    up, down = (isentropic.doubly_stochastic(x + sign * step * direction, **given) for sign in (1, -1))
    return ((up - down) * grad).sum() / (2 * step)


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (20, 17)], ids=str)
@pytest.mark.parametrize("given", [{"iterations": 1}, {"iterations": 6}, {"tolerance": 1e-13}], ids=str)
@pytest.mark.parametrize("spread", [1, 350])
def test_gradient(shape, given, spread):
    x = scores(shape, 1)
    if spread > 1:
        x[0] += np.linspace(0, spread, shape[1])  # too far apart for sums of products, but only in this row
        x[:, 1] += spread / 7
    grad, direction = scores(shape, 1, 1), scores(shape, 1, 2)
    y = isentropic.doubly_stochastic(x, temperature=0.7, **given)
    dx = isentropic.doubly_stochastic_vjp(x, y, grad, temperature=0.7, **given)
    want = numeric(x, grad, direction, 1e-5, temperature=0.7, **given)
    assert abs((dx * direction).sum() - want) < 1e-7 * (1 + abs(want))


def test_gradients_of_small_and_large_tables_agree():
    """Tables in lanes, by sums of products, and by logarithms: a further column of zeros changes the way alone."""
    x, grad = scores((15, 16), 3), scores((15, 16), 1, 1)
    wide = np.concatenate([x, x[:2]])  # 17 x 16 are no longer in lanes
    assert wide.size > 256 >= x.size
    for t, g in ((x, grad), (wide, np.concatenate([grad, grad[:2]]))):
        y = isentropic.doubly_stochastic(t, iterations=4)
        dx = isentropic.doubly_stochastic_vjp(t, y, g, iterations=4)
        far = np.where(np.eye(*t.shape) > 0, t, t)
        far[0] = t[0] + np.array([0] * 15 + [-1000.0])
        near = far.copy()
        near[0, -1] = -INF  # the same to all digits, and no longer too far apart
        a, b = (
            isentropic.doubly_stochastic_vjp(z, isentropic.doubly_stochastic(z, iterations=4), g, iterations=4)
            for z in (far, near)
        )
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
        assert np.isfinite(dx).all()


def test_batches_and_strides_change_no_bit():
    x = scores((5, 6, 4, 4), 2)
    for given in ({}, {"iterations": 3}):
        whole = isentropic.doubly_stochastic(x, **given)
        grad = scores(x.shape, 1, 1)
        slopes = isentropic.doubly_stochastic_vjp(x, whole, grad, **given)
        for at in np.ndindex(5, 6):
            np.testing.assert_array_equal(whole[at], isentropic.doubly_stochastic(x[at], **given))
            np.testing.assert_array_equal(slopes[at], isentropic.doubly_stochastic_vjp(x[at], whole[at], grad[at], **given))
        turned = isentropic.doubly_stochastic(np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)[::-1, ::2], **given)
        np.testing.assert_array_equal(turned, whole[::-1, ::2])


def test_targets_and_threads_change_no_bit():
    x, grad = scores((200, 6, 5), 3), scores((200, 6, 5), 1, 1)

    def results():
        found = []
        for tables, g in ((x, grad), (x.reshape(2, 30, 100), grad.reshape(2, 30, 100))):
            for given in ({}, {"iterations": 4}):
                y = isentropic.doubly_stochastic(tables, **given)
                found += [y, isentropic.doubly_stochastic_vjp(tables, y, g, **given)]
        return found

    want = results()
    try:
        for target in isentropic.simd_targets():
            isentropic.force_simd_target(target)
            isentropic.set_num_threads(2)
            for one, other in zip(want, results(), strict=True):
                np.testing.assert_array_equal(one, other)
    finally:
        isentropic.force_simd_target("")
        isentropic.set_num_threads(0)


def test_torch():
    torch = pytest.importorskip("torch")
    it = pytest.importorskip("isentropic.torch")
    x = torch.tensor(scores((2, 4, 3), 1), requires_grad=True)
    heat = torch.tensor([[[0.7]], [[1.3]]], dtype=torch.float64, requires_grad=True)
    for given in ({"iterations": 3}, {"tolerance": 1e-13}):

        def run(x, heat=0.8, given=given):
            return it.doubly_stochastic(x, temperature=heat, **given)

        np.testing.assert_array_equal(
            run(x).detach(), isentropic.doubly_stochastic(x.detach().numpy(), temperature=0.8, **given)
        )
        loose = 1e-6 if "tolerance" in given else 1e-7
        assert torch.autograd.gradcheck(run, (x,), atol=loose)
        assert torch.autograd.gradcheck(run, (x, heat), atol=loose)
        assert torch.autograd.gradgradcheck(run, (x, heat), atol=1e-5)
        assert torch.autograd.gradcheck(run, (x,), atol=loose, check_forward_ad=True)
        mapped = torch.func.vmap(run)(x.detach())
        torch.testing.assert_close(mapped, run(x.detach()), rtol=0, atol=0)
        compiled = torch.compile(lambda x, run=run: run(x).square().sum(), fullgraph=True, backend="aot_eager")
        want = torch.autograd.grad(run(x).square().sum(), x)[0]
        torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], want)
        half = run(x.detach().to(torch.bfloat16))
        assert half.dtype == torch.bfloat16
    forbidden = torch.tensor([[0.0, -INF], [1.0, 2.0]], requires_grad=True)
    it.doubly_stochastic(forbidden).sum().backward()
    assert (forbidden.grad == 0).all()
    for wrong, message in (
        (lambda: it.doubly_stochastic(x, temperature=-1.0), "temperature must be above 0"),
        (lambda: it.doubly_stochastic(x, temperature=torch.tensor(0.0)), "temperature must be above 0 and finite, got 0.0"),
        (lambda: it.doubly_stochastic(x, temperature=torch.ones(3)), r"temperature must broadcast to \(2, 1, 1\)"),
        (lambda: it.doubly_stochastic(x[0, 0]), "at least two axes"),
        (lambda: it.doubly_stochastic(x, iterations=2, tolerance=1e-3), "tolerance must not be given beside iterations"),
    ):
        with pytest.raises(ValueError, match=f"doubly_stochastic: .*{message}"):
            wrong()


def test_jax():
    jax = pytest.importorskip("jax")
    ij = pytest.importorskip("isentropic.jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        x, grad = scores((2, 4, 3), 1), scores((2, 4, 3), 1, 1)
        x[0, 0, 0] = -INF
        for given in ({"iterations": 3}, {"tolerance": 1e-13}):

            def value(x, heat, given=given):
                return (ij.doubly_stochastic(x, temperature=heat, **given) * grad).sum()

            y = isentropic.doubly_stochastic(x, temperature=0.8, **given)
            np.testing.assert_allclose(ij.doubly_stochastic(x, temperature=0.8, **given), y, rtol=1e-11, atol=1e-14)
            found, slope = jax.jit(jax.grad(value, (0, 1)))(x, 0.8)
            want = isentropic.doubly_stochastic_vjp(x, y, grad, temperature=0.8, **given)
            np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-11)
            step = 1e-6
            np.testing.assert_allclose(slope, (value(x, 0.8 + step) - value(x, 0.8 - step)) / (2 * step), rtol=1e-6)
            finite = np.where(x > -INF, x, 0.5)
            second = jax.jvp(jax.grad(value), (finite, 0.8), (grad, 0.0))[1]
            up, down = (jax.grad(value)(finite + s * step * grad, 0.8) for s in (1, -1))
            np.testing.assert_allclose(second, (up - down) / (2 * step), rtol=1e-4, atol=1e-7)
            mapped = jax.vmap(lambda x, given=given: ij.doubly_stochastic(x, **given))(finite)
            np.testing.assert_allclose(mapped, isentropic.doubly_stochastic(finite, **given), rtol=1e-11)
        with pytest.raises(ValueError, match=r"doubly_stochastic: temperature must be above 0 and finite, got -1$"):
            ij.doubly_stochastic(x, temperature=-1.0)


def test_parameters():
    x = scores((2, 2), 1)
    for given, error, message in (
        ({"temperature": 0}, ValueError, "temperature must be above 0 and finite, got 0"),
        ({"temperature": "1"}, TypeError, "temperature must be a number, got str"),
        ({"iterations": 0}, ValueError, "iterations must be at least 1, or None for the limit, got 0"),
        ({"iterations": 2.5}, TypeError, "iterations must be an integer or None, got float"),
        ({"iterations": 3, "tolerance": 0.1}, ValueError, "tolerance must not be given beside iterations, got 0.1"),
        ({"tolerance": 0}, ValueError, "tolerance must be above 0 and finite, got 0"),
    ):
        with pytest.raises(error, match=f"doubly_stochastic: {message}"):
            isentropic.doubly_stochastic(x, **given)
        with pytest.raises(error, match=f"doubly_stochastic(_vjp)?: {message}"):
            isentropic.doubly_stochastic_vjp(x, x, x, **given)
    with pytest.raises(
        ValueError, match=r"doubly_stochastic: x must have at least two axes, rows and columns, got shape \(2,\)"
    ):
        isentropic.doubly_stochastic(x[0])
    with pytest.raises(ValueError, match=r"doubly_stochastic_vjp: grad must have the shape of x, \(2, 2\), got \(1, 2\)"):
        isentropic.doubly_stochastic_vjp(x, x, x[:1])
    for empty in ((0, 3), (3, 0), (0, 2, 2)):
        assert isentropic.doubly_stochastic(np.zeros(empty)).shape == empty
