"""wasserstein_histogram on a circle and of counts."""

import numpy as np
import pytest

import isentropic


@pytest.mark.parametrize("order", [1, 1.5, 2])
def test_histograms_on_a_circle(order):
    rng = np.random.default_rng(11)
    hours, period = rng.random(9) * 24, 24.0
    apart = abs(hours[:, None] - hours)
    cost = np.minimum(apart, period - apart) ** order
    p, q = rng.dirichlet(np.ones(9), 6), rng.dirichlet(np.ones(9), 6)
    p[1] = q[1]
    got = isentropic.wasserstein_histogram(p, q, support=hours, period=period, order=order)
    want = [isentropic.optimal_transport(*one, cost).cost ** (1 / order) for one in zip(p, q, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-7)
    turned = isentropic.wasserstein_histogram(p, q, support=hours + 7.5 - 48, period=period, order=order)
    np.testing.assert_allclose(turned, got, rtol=1e-7, atol=1e-7)
    assert (got <= isentropic.wasserstein_histogram(p, q, support=hours, order=order) + 1e-9).all()
    if order != 1:
        with pytest.raises(ValueError, match=r"^wasserstein_histogram: with a period order must be finite, and 1 where"):
            isentropic.wasserstein_histogram(p, q, support=hours, period=period, order=order, return_grad=True)
        return
    p, q = p[2:] * 3, q[2:] * 5
    value, dp, dq = isentropic.wasserstein_histogram(p, q, support=hours, period=period, normalize=True, return_grad=True)
    np.testing.assert_allclose(value, got[2:], rtol=1e-12)
    for gradient, which in ((dp, 0), (dq, 1)):
        move = 1e-6 * rng.normal(size=p.shape)
        ahead, back = (
            isentropic.wasserstein_histogram(
                *(x + sign * move * (k == which) for k, x in enumerate((p, q))), support=hours, period=period, normalize=True
            )
            for sign in (1, -1)
        )
        np.testing.assert_allclose((gradient * move).sum(-1), (ahead - back) / 2, rtol=1e-6, atol=1e-12)


def test_on_tensors():
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    rng = np.random.default_rng(12)
    hours, period = torch.tensor(rng.random(9) * 48 - 12), 24.0
    p, q = (torch.tensor(rng.dirichlet(np.ones(9), 6), requires_grad=True) for _ in range(2))

    def distance(p, q, hours=hours, **more):
        return et.wasserstein_histogram(p, q, support=hours, period=period, **more)

    want = isentropic.wasserstein_histogram(*(x.detach() for x in (p, q)), support=hours, period=period, return_grad=True)
    value = distance(p, q)
    for got, wanted in zip((value, *torch.autograd.grad(value.sum(), (p, q))), want, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(distance, (p, q, hours.clone().requires_grad_()))
    counts = [3 * p.detach(), 5 * q.detach()]
    torch.testing.assert_close(distance(*counts, normalize=True), want[0])
    again = isentropic.wasserstein_histogram(*counts, support=hours, period=period, normalize=True, return_grad=True)
    counts = [x.requires_grad_() for x in counts]
    for got, wanted in zip(torch.autograd.grad(distance(*counts, normalize=True).sum(), counts), again[1:], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    each = torch.func.vmap(torch.func.grad(distance))(p.detach(), q.detach())
    torch.testing.assert_close(each, want[1])
    # Of other orders the value.
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: with a period order must be finite, and 1 where"):
        distance(p, q, order=2)
    squares = isentropic.wasserstein_histogram(p.detach(), q.detach(), support=hours, period=period, order=2)
    torch.testing.assert_close(distance(p.detach(), q.detach(), order=2), squares)
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: period must be above 0 and finite, got 0"):
        et.wasserstein_histogram(p, q, period=0)


def test_in_jax():
    jax = pytest.importorskip("jax")
    import isentropic.jax as ej

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(12)
    hours, period = rng.random(9) * 48 - 12, 24.0
    p, q = 3 * rng.dirichlet(np.ones(9), 6), 5 * rng.dirichlet(np.ones(9), 6)
    options = {"support": hours, "period": period, "normalize": True}
    want = isentropic.wasserstein_histogram(p, q, **options, return_grad=True)
    distance = lambda p, q: ej.wasserstein_histogram(p, q, **options)  # noqa: E731
    np.testing.assert_array_equal(jax.jit(distance)(p, q), want[0])
    gradients = jax.jit(jax.grad(lambda p, q: distance(p, q).sum(), (0, 1)))(p, q)
    for got, wanted in zip(gradients, want[1:], strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_allclose(jax.vmap(jax.grad(distance))(p, q), want[1], rtol=1e-13, atol=1e-15)
    np.testing.assert_array_equal(
        ej.wasserstein_histogram(p, q, normalize=True, order=2), isentropic.wasserstein_histogram(p, q, normalize=True, order=2)
    )
    squares = lambda p: ej.wasserstein_histogram(p, q, **options, order=2).sum()  # noqa: E731
    assert squares(p) == isentropic.wasserstein_histogram(p, q, **options, order=2).sum()
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: with a period order must be finite, and 1 where"):
        jax.grad(squares)(p)
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: period must be above 0 and finite, got 0"):
        ej.wasserstein_histogram(p, q, period=0, normalize=True)
    with pytest.raises(TypeError, match=r"^wasserstein_histogram: period must be a number known outside of jit and grad"):
        jax.grad(lambda period: ej.wasserstein_histogram(p, q, period=period).sum())(24.0)


def test_large_orders_on_a_circle():
    """Powers of distances overflow or vanish; a share of 1e-17 that goes the wrong way round would be most of the cost."""
    p, q = np.eye(12)[[0, 3]], np.eye(12)[[6, 5]]
    for order in (2, 50, 300, 1e6):
        got = isentropic.wasserstein_histogram(p, q, support=np.arange(12) * 2.0, period=24, order=order)
        np.testing.assert_allclose(got, [12, 4], rtol=1e-12)
        for scale in (1, 1e-100, 1e100):
            points = {"support": np.array([0, 0.01, 0.5]) * scale, "period": scale}
            got = isentropic.wasserstein_histogram([1, 0, 0], [0, 1, 0], **points, order=order)
            assert got == pytest.approx(0.01 * scale, rel=1e-12)
            half = isentropic.wasserstein_histogram([0.5, 0.5, 0], [0, 0.5, 0.5], **points, order=order)
            # 0 to 0.5 or, the whole order turned, 0 to 0.01 and 0.01 to 0.5.
            want = min(0.5 * 0.5 ** (1 / order), 0.49 * ((0.01 / 0.49) ** order / 2 + 0.5) ** (1 / order))
            assert half == pytest.approx(want * scale, rel=1e-12)
    rng = np.random.default_rng(11)
    p, q = rng.dirichlet(np.ones(9), 2)
    points = {"support": rng.random(9) * 24, "period": 24.0}
    orders = [1, 2, 5, 20, 50, 200, 1000]
    found = [float(isentropic.wasserstein_histogram(p, q, **points, order=order)) for order in orders]
    assert found == sorted(found) and found[-1] <= 12  # power means grow with the power


def test_histograms_of_counts():
    p, q = [[3, 0, 1], [1, 1, 0]], [[0, 2, 2], [5, 0, 0]]
    want = isentropic.wasserstein_histogram(np.array(p) / [[4], [2]], np.array(q) / [[4], [5]], return_grad=True)
    got = isentropic.wasserstein_histogram(p, q, normalize=True, return_grad=True)
    np.testing.assert_allclose(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1] / [[4], [2]])
    for period in (None, 9):  # the sum is beyond the range
        large = isentropic.wasserstein_histogram([[1e308, 1e308], [1, 3]], [1e308, 0], normalize=True, period=period)
        np.testing.assert_array_equal(large, [0.5, 0.75])
    for wrong, match in (
        ([[0, 0, 0]], "must have an entry above 0, got none in row 0"),
        ([[1, -1, 1]], "at least 0 and finite"),
    ):
        with pytest.raises(ValueError, match=f"^wasserstein_histogram: p .*{match}"):
            isentropic.wasserstein_histogram(wrong, [[1, 1, 1]], normalize=True)
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: period must be above 0 and finite, got 0"):
        isentropic.wasserstein_histogram(p, q, normalize=True, period=0)
