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


def test_histograms_of_counts():
    p, q = [[3, 0, 1], [1, 1, 0]], [[0, 2, 2], [5, 0, 0]]
    want = isentropic.wasserstein_histogram(np.array(p) / [[4], [2]], np.array(q) / [[4], [5]], return_grad=True)
    got = isentropic.wasserstein_histogram(p, q, normalize=True, return_grad=True)
    np.testing.assert_allclose(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1] / [[4], [2]])
    for wrong, match in (
        ([[0, 0, 0]], "must have an entry above 0, got none in row 0"),
        ([[1, -1, 1]], "at least 0 and finite"),
    ):
        with pytest.raises(ValueError, match=f"^wasserstein_histogram: p .*{match}"):
            isentropic.wasserstein_histogram(wrong, [[1, 1, 1]], normalize=True)
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: period must be above 0 and finite, got 0"):
        isentropic.wasserstein_histogram(p, q, normalize=True, period=0)
