"""sinkhorn with an epsilon for each problem, and its derivative in it."""

import numpy as np
import pytest

import isentropic

A, B = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]), np.array([0.25, 0.75])
COST = np.array([[0.0, np.inf], [2.0, 0.5], [1.0, 3.0]])
EPSILONS = np.array([0.1, 0.7])
FOUND = ("cost", "plan", "f", "g", "marginal_error", "lower_bound", "upper_bound", "iterations", "converged", "epsilon")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_problem_alone(dtype):
    a, b, cost = A.astype(dtype), B.astype(dtype), COST.astype(dtype)
    found = isentropic.sinkhorn(a, b, cost, epsilon=EPSILONS)
    for k, epsilon in enumerate(EPSILONS):
        alone = isentropic.sinkhorn(a[k], b, cost, epsilon=epsilon)
        for name in FOUND:
            np.testing.assert_array_equal(getattr(found, name)[k], getattr(alone, name))
            assert np.asarray(getattr(found, name)).dtype == np.asarray(getattr(alone, name)).dtype
    several = isentropic.sinkhorn(a[0], b, cost, epsilon=EPSILONS)
    assert several.plan.shape == (2, 3, 2)
    grid = isentropic.sinkhorn(a, b, cost, epsilon=EPSILONS[:, None])
    np.testing.assert_array_equal(grid.plan[1, 0], several.plan[1])
    np.testing.assert_array_equal(grid.plan[1], isentropic.sinkhorn(a, b, cost, epsilon=0.7).plan)
    np.testing.assert_allclose(found.map([1.0, 2.0], cost=cost), found.map([1.0, 2.0]), rtol=1e-5)


def test_refused():
    for epsilon, message in (
        ([0.1, -1.0], "epsilon must be above 0 and finite, got -1.0 in problem 1"),
        ([0.1, np.nan], "epsilon must be above 0 and finite, got nan in problem 1"),
        ([0.1, 0.2, 0.3], "epsilon must be a number or an array that broadcasts to"),
    ):
        with pytest.raises(ValueError, match=f"^sinkhorn: {message}"):
            isentropic.sinkhorn(A, B, COST, epsilon=epsilon)
    with pytest.raises(ValueError, match=r"^sinkhorn: .* in problem 1$"):
        isentropic.sinkhorn([[1.0, 0.0], [2.0, 0.0]], [0.5, 0.5], np.zeros((2, 2)), epsilon=[0.1, 0.2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    it = pytest.importorskip("isentropic.torch")
    a, b, cost = (torch.tensor(x, dtype=getattr(torch, dtype)) for x in (A, B, COST))
    epsilon = torch.tensor(EPSILONS, requires_grad=True)
    found = it.sinkhorn(a, b, cost, epsilon=epsilon, tolerance=1e-13)
    want = isentropic.sinkhorn(A, B, COST, epsilon=EPSILONS, tolerance=1e-13)
    exact = isentropic.optimal_transport(A, B, COST).cost
    assert (found.lower_bound.double() <= torch.tensor(exact)).all() and (
        found.upper_bound.double() >= torch.tensor(exact)
    ).all()
    for name in ("cost", "plan", "f", "g", "epsilon"):
        assert getattr(found, name).dtype == cost.dtype
        np.testing.assert_allclose(
            getattr(found, name).detach(), getattr(want, name), rtol=1e-6 if dtype == "float32" else 1e-11
        )
    if dtype == "float64":

        def run(epsilon, cost, sign=1):
            moved = it.sinkhorn(a, b, torch.where(torch.tensor(COST) < np.inf, cost, np.inf), epsilon=epsilon, tolerance=1e-14)
            return moved.plan, moved.cost

        moved = torch.where(cost < np.inf, cost, 0.0).requires_grad_()
        assert torch.autograd.gradcheck(run, (epsilon, moved), atol=1e-6)
    with pytest.raises(ValueError, match=r"sinkhorn: epsilon must be above 0 and finite, got -1\.0"):
        it.sinkhorn(a, b, cost, epsilon=torch.tensor([0.1, -1.0]))
    with pytest.raises(ValueError, match="sinkhorn: epsilon must be a number or a tensor that broadcasts to"):
        it.sinkhorn(a, b, cost, epsilon=torch.ones(3))


def test_jax():
    jax = pytest.importorskip("jax")
    ij = pytest.importorskip("isentropic.jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():

        def plan(epsilon):
            return ij.sinkhorn(A, B, COST, epsilon=epsilon, tolerance=1e-13).plan

        want = isentropic.sinkhorn(A, B, COST, epsilon=EPSILONS, tolerance=1e-13)
        found = jax.jit(lambda e: ij.sinkhorn(A, B, COST, epsilon=e, tolerance=1e-13))(EPSILONS)
        for name in ("cost", "plan", "f", "g", "epsilon"):
            np.testing.assert_allclose(getattr(found, name), getattr(want, name), rtol=1e-10)
        step = 1e-6
        slope = jax.jvp(plan, (jax.numpy.asarray(EPSILONS),), (jax.numpy.ones(2),))[1]
        np.testing.assert_allclose(slope, (plan(EPSILONS + step) - plan(EPSILONS - step)) / (2 * step), rtol=1e-5, atol=1e-8)
        alone = jax.grad(lambda e: ij.sinkhorn(A[0], B, COST, epsilon=e, tolerance=1e-13).cost)(0.3)
        up, down = (isentropic.sinkhorn(A[0], B, COST, epsilon=0.3 + s * step, tolerance=1e-14).cost for s in (1, -1))
        assert alone == pytest.approx((up - down) / (2 * step), rel=1e-5)
