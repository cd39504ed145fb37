"""Sliced, partial and unbalanced transport, barycenters, several problems at once: beside POT, scipy and their certificates."""

import itertools

import numpy as np
import ot
import pytest
from scipy import optimize, special
from scipy.spatial import distance

import isentropic
from cases import torch_or_skip


def problem(seed, n=7, m=9):
    rng = np.random.default_rng(seed)
    return rng.random(n) + 0.05, rng.random(m) + 0.05, rng.random((n, m))


@pytest.mark.parametrize("order", [1, 2, 3.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_sliced_distances_are_pots(order, weighted):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((30, 3)), rng.standard_normal((40, 3)) + 1
    a, b = (rng.dirichlet(np.ones(len(points))) if weighted else None for points in (x, y))
    theta = rng.standard_normal((50, 3))
    found = isentropic.sliced_wasserstein(x, y, order=order, a=a, b=b, projections=theta)
    unit = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    want = ot.sliced_wasserstein_distance(x, y, a, b, n_projections=50, p=order, projections=unit.T)
    assert float(found.distance) == pytest.approx(float(want), rel=1e-9)
    torch = torch_or_skip()
    tensors = [torch.from_numpy(points) for points in (x, y)]
    weights = {key: w if w is None else torch.from_numpy(w) for key, w in (("a", a), ("b", b))}
    import isentropic.torch as et

    same = et.sliced_wasserstein(*tensors, order=order, projections=theta, **weights)
    assert float(same.distance) == pytest.approx(float(found.distance), rel=1e-9)
    assert float(same.error) == pytest.approx(float(found.error), rel=1e-6)
    moved = tensors[0][:4].clone().requires_grad_()
    torch.autograd.gradcheck(lambda x: et.sliced_wasserstein(x, tensors[1], order=order, projections=theta).distance, [moved])


def test_directions_have_any_length_but_0():
    x, y = np.random.default_rng(3).standard_normal((2, 20, 3))
    theta = np.array([[0.3, -0.4, 1.2], [2.0, 0.5, -0.1]])
    want = isentropic.sliced_wasserstein(x, y, projections=theta)
    for scale in (1e200, 1e-200, np.array([[1e308], [5e-308]]), 1e160, 1.5):
        found = isentropic.sliced_wasserstein(x, y, projections=theta * scale)
        assert float(found.distance) == pytest.approx(float(want.distance), rel=1e-14)
    least = isentropic.sliced_wasserstein(x, y, projections=[[0, 5e-324, 0]])
    assert least.distance == isentropic.sliced_wasserstein(x, y, projections=[[0, 1, 0]]).distance
    for wrong in (0, np.inf, np.nan):
        with pytest.raises(ValueError, match="projections must be finite and not 0"):
            isentropic.sliced_wasserstein(x, y, projections=[[1.0, 0, 0], [wrong, 0, 0]])


def test_the_error_of_slices_is_that_of_chance():
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((20, 5)), rng.standard_normal((25, 5)) * 2
    found = [isentropic.sliced_wasserstein(x, y, projections=40, seed=seed) for seed in range(200)]
    distances = np.array([float(one.distance) for one in found])
    assert np.mean([float(one.error) for one in found]) == pytest.approx(distances.std(ddof=1), rel=0.2)
    assert found[3] == isentropic.sliced_wasserstein(x, y, projections=40, seed=3)
    assert isentropic.sliced_wasserstein(x[:, :1], y[:, :1]).error == 0
    assert np.isnan(isentropic.sliced_wasserstein(x, y, projections=1).error)
    assert isentropic.sliced_wasserstein(x, x).distance == 0
    line = float(isentropic.sliced_wasserstein(x[:, 0], y[:, 0], order=1).distance)
    assert line == pytest.approx(float(isentropic.wasserstein_1d(x[:, 0], y[:, 0])))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_partial_transport_is_the_linear_programme(share):
    for seed in range(5):
        a, b, cost = problem(seed)
        mass = share * min(a.sum(), b.sum())
        found = isentropic.partial_transport(a, b, cost, mass=mass)
        n, m = cost.shape
        rows = [*np.kron(np.eye(n), np.ones(m)), *np.kron(np.ones(n), np.eye(m))]
        bound = np.concatenate([a, b])
        want = optimize.linprog(cost.ravel(), rows, bound, np.ones((1, n * m)), [mass], method="highs").fun
        assert float(found.cost) == pytest.approx(want, abs=1e-9)
        assert 0 <= found.gap <= 1e-9
        assert (found.plan.sum(axis=1) <= a + 1e-12).all() and (found.plan.sum(axis=0) <= b + 1e-12).all()
        assert found.plan.sum() == pytest.approx(mass, abs=1e-12)
        assert (found.f <= 1e-12).all() and (found.g <= 1e-12).all()
        assert (found.f[:, None] + found.g + found.multiplier <= cost + 1e-9).all()
        if 0 < share < 1:
            pots = ot.partial.partial_wasserstein(a, b, cost, m=mass)
            assert float(found.cost) == pytest.approx((pots * cost).sum(), abs=1e-9)


def test_partial_transport_of_all_is_the_whole_problem():
    """In both types, where sums are as near as rounding leaves them."""
    for dtype, close in ((np.float64, 1e-12), (np.float32, 1e-5)):
        a, b, cost = (x.astype(dtype) for x in problem(1))
        a, b = (x / x.sum() for x in (a, b))
        part, whole = isentropic.partial_transport(a, b, cost, mass=1), isentropic.optimal_transport(a, b, cost)
        assert part.plan.dtype == dtype
        assert float(part.cost) == pytest.approx(float(whole.cost), rel=close)


def test_partial_transport_that_no_arcs_take():
    cost = np.full((2, 2), np.inf)
    cost[0, 0] = 1.0
    assert isentropic.partial_transport([1.0, 1.0], [1.0, 1.0], cost, mass=1.0).cost == 1
    with pytest.raises(ValueError, match="partial_transport: infeasible: every plan needs an entry of cost inf in problem 1"):
        isentropic.partial_transport([1.0, 1.0], [[1.0, 1.0], [0.0, 1.0]], cost, mass=0.5)


def test_partial_transport_moves_no_more_where_moving_pays():
    """Costs below 0: without a limit all mass would move."""
    a, b, cost = problem(2)
    found = isentropic.partial_transport(a, b, cost - 2 * cost.max(), mass=0.3)
    assert found.plan.sum() == pytest.approx(0.3, rel=1e-12)
    assert found.cost == pytest.approx((found.plan * (cost - 2 * cost.max())).sum(), rel=1e-12)


def test_the_multiplier_is_the_price_of_mass():
    a, b, cost = problem(2)
    found = [isentropic.partial_transport(a, b, cost, mass=mass) for mass in (0.7, 0.7 + 1e-7)]
    assert float(found[0].multiplier) == pytest.approx(float(found[1].cost - found[0].cost) / 1e-7, rel=1e-6)
    prices = [float(isentropic.partial_transport(a, b, cost, mass=mass).multiplier) for mass in np.linspace(0.1, 2, 9)]
    assert prices == sorted(prices)


def test_partial_transport_of_several_problems_and_of_tensors():
    torch = torch_or_skip()
    import isentropic.torch as et

    a, b, cost = problem(3)
    costs = np.stack([cost, cost.T[:7, :9] if cost.T.shape == cost.shape else 2 * cost])
    many = isentropic.partial_transport(a, b, costs, mass=1.0)
    for k in range(2):
        one = isentropic.partial_transport(a, b, costs[k], mass=1.0)
        for got, want in zip(many, one, strict=True):
            np.testing.assert_allclose(got[k], want, atol=1e-12)
    tensors = [torch.from_numpy(x) for x in (a, b, cost)]
    moving = tensors[2].clone().requires_grad_()
    found = et.partial_transport(*tensors[:2], moving, mass=1.0)
    found.cost.backward()
    torch.testing.assert_close(moving.grad, found.plan)


def test_partial_transport_is_an_operator_of_torch():
    """Types promote, vmap and the compiler know it, masses have gradients, second derivatives are refused."""
    torch = torch_or_skip()
    import isentropic.torch as et

    a, b, cost = (torch.from_numpy(x) for x in problem(3))
    torch.library.opcheck(torch.ops.isentropic.partial_transport.default, (a, b, cost, 0.7))
    assert et.partial_transport(a, b, cost.float(), mass=0.7).plan.dtype == torch.float64
    costs = torch.stack([cost, 2 * cost, cost + 1])
    want = isentropic.partial_transport(a, b, costs, mass=0.7).cost
    found = torch.func.vmap(lambda c: et.partial_transport(a, b, c, mass=0.7).cost)(costs)
    np.testing.assert_allclose(found, want, rtol=1e-12)
    compiled = torch.compile(lambda c: et.partial_transport(a, b, c, mass=0.7).plan, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(cost), et.partial_transport(a, b, cost, mass=0.7).plan)
    less = (0.9 * a).requires_grad_()  # where no mass is all there is, so that the potentials are unique enough for differences
    et.partial_transport(less, b, cost, mass=0.7).cost.backward()
    for i, step in enumerate(1e-6 * np.eye(len(a))):
        up, down = (
            et.partial_transport(less.detach() + sign * torch.from_numpy(step), b, cost, mass=0.7).cost for sign in (1, -1)
        )
        assert float(less.grad[i]) == pytest.approx(float(up - down) / 2e-6, abs=1e-6)
    with pytest.raises(RuntimeError, match="partial_transport: there are no second derivatives"):
        torch.autograd.functional.hessian(lambda c: et.partial_transport(a, b, c, mass=0.7).cost, cost)


def test_sliced_distances_look_at_every_point():
    x = np.zeros((4, 2))
    x[2, 1] = np.inf
    with pytest.raises(ValueError, match="sliced_wasserstein: y must be finite, got inf at point 2, coordinate 1"):
        isentropic.sliced_wasserstein(np.zeros((3, 2)), x)
    y = np.zeros((3, 2))
    for weights, said in (
        ([1.0, 2.0], "b must have one weight for each of 3 points, got 2"),
        ([1.0, -2.0, 1.0], "b must be at least 0 and finite, got -2 at entry 1"),
        ([0.0, 0.0, 0.0], "b must have a finite sum above 0, got 0"),
    ):
        with pytest.raises(ValueError, match="sliced_wasserstein: " + said):
            isentropic.sliced_wasserstein(y, y, b=weights)


@pytest.mark.parametrize(("epsilon", "penalty"), [(0.05, 1.0), (0.5, 0.2), (0.02, 10.0)])
def test_unbalanced_transport_is_pots_and_certified(epsilon, penalty):
    a, b, cost = problem(4)
    found = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=epsilon, penalty=penalty, tolerance=1e-13)
    assert found.converged and found.gap >= 0
    options = {"numItermax": 200000, "stopThr": 1e-14}
    pots = ot.unbalanced.sinkhorn_unbalanced(a, b, cost, epsilon, penalty, reg_type="kl", **options)
    np.testing.assert_allclose(found.plan, pots, rtol=1e-4, atol=1e-9)

    def value(plan):
        def divergence(p, q):
            return (p * np.log(p / q) - p + q).sum()

        marginals = divergence(plan.sum(axis=1), a) + divergence(plan.sum(axis=0), b)
        return (plan * cost).sum() + epsilon * divergence(plan, np.outer(a, b)) + penalty * marginals

    assert float(found.value) == pytest.approx(value(found.plan), rel=1e-12)
    assert found.value - found.gap <= value(pots) + 1e-12
    early = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=epsilon, penalty=penalty, max_iterations=1)
    assert early.value - early.gap <= found.value + 1e-12 <= early.value + 1e-9
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert value(found.plan * np.exp(0.01 * rng.standard_normal(cost.shape))) >= found.value - 1e-12


def test_unbalanced_transport_tends_to_the_balanced():
    """Of equal masses, as the penalty grows: the plan is that of sinkhorn."""
    a, b, cost = problem(7)
    a, b = a / a.sum(), b / b.sum()
    want = isentropic.sinkhorn(a, b, cost, epsilon=0.1, tolerance=1e-13)
    off = []
    for penalty in (1e1, 1e2, 1e3, 1e4):
        found = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=0.1, penalty=penalty, tolerance=1e-15)
        off.append(np.abs(found.plan - want.plan).max())
    assert all(later < 0.2 * before for before, later in itertools.pairwise(off)) and off[-1] < 1e-5


def test_unbalanced_transport_of_parts_that_shift_apart():
    """Forbidden arcs, or a small epsilon, leave parts of the plan whose potentials hardly know of each other."""
    a, b, cost = problem(14, 8, 8)
    apart = np.where((np.arange(8) < 3)[:, None] == (np.arange(8) < 5), cost, np.inf)
    for one, epsilon in ((apart, 0.01), (cost, 1e-3)):
        found = isentropic.unbalanced_sinkhorn(a, b, one, epsilon=epsilon, penalty=100, tolerance=1e-12)
        assert found.converged and found.iterations < 300
    far = np.isfinite(apart)
    assert (found.plan > 0).any() and (
        isentropic.unbalanced_sinkhorn(a, b, apart, epsilon=0.1, penalty=1).plan[~far] == 0
    ).all()


def test_unbalanced_transport_of_several_problems():
    a, b, cost = problem(8)
    many = isentropic.unbalanced_sinkhorn([a, 2 * a], b, [[cost], [cost + 1]], epsilon=0.1, penalty=0.5)
    assert many.value.shape == many.gap.shape == many.iterations.shape == (2, 2) and many.converged.all()
    for i in range(2):
        for j in range(2):
            one = isentropic.unbalanced_sinkhorn((1 + j) * a, b, cost + i, epsilon=0.1, penalty=0.5)
            for got, want in zip(many, one, strict=True):
                np.testing.assert_array_equal(got[i, j], want)
    narrow = isentropic.unbalanced_sinkhorn(*(x.astype(np.float32) for x in (a, b, cost)), epsilon=0.1, penalty=0.5)
    assert narrow.plan.dtype == np.float32
    np.testing.assert_allclose(narrow.plan, many.plan[0, 0], rtol=1e-3)


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_unbalanced_transport_of_any_scale(penalty, scale):
    """Costs, epsilon and penalty in another unit: the same plan, nothing overflows."""
    a, b, cost = problem(9)
    want = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=0.1, penalty=penalty)
    found = isentropic.unbalanced_sinkhorn(a, b, scale * cost, epsilon=0.1 * scale, penalty=penalty * scale)
    np.testing.assert_allclose(found.plan, want.plan, rtol=1e-5)
    assert float(found.value) == pytest.approx(scale * float(want.value), rel=1e-9)
    dear = isentropic.unbalanced_sinkhorn(a, b, cost + 1e5, epsilon=1e-3, penalty=1.0)
    assert dear.converged and dear.plan.sum() == 0 and np.isfinite(dear.value)


def test_gradients_of_unbalanced_transport():
    torch = torch_or_skip()
    import isentropic.torch as et

    tensors = [torch.from_numpy(x).requires_grad_() for x in problem(10, 4, 5)]
    options = {"epsilon": 0.1, "penalty": 0.5}

    def value(a, b, cost):
        return et.unbalanced_sinkhorn(a, b, cost, tolerance=1e-15, **options).value

    assert torch.autograd.gradcheck(value, tensors, rtol=1e-4)
    assert torch.autograd.gradcheck(value, tensors, rtol=1e-4, check_forward_ad=True)
    batch = torch.stack([tensors[2], 2 * tensors[2]]).detach()
    np.testing.assert_array_equal(
        torch.func.vmap(lambda c: et.unbalanced_sinkhorn(tensors[0].detach(), tensors[1].detach(), c, **options).plan)(batch),
        isentropic.unbalanced_sinkhorn(*(x.detach() for x in tensors[:2]), batch, **options).plan,
    )
    # Where mass stays, its price is that of the penalty and of the entropy.
    cost = torch.tensor([[np.inf, np.inf], [1.0, 0.0]], dtype=torch.float64)
    a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    et.unbalanced_sinkhorn(a, torch.ones(2, dtype=torch.float64), cost, **options).value.backward()
    assert float(a.grad[0]) == pytest.approx(0.5 + 0.1 * 2)
    found = et.unbalanced_sinkhorn(*tensors, **options)
    for output in ("plan", "f", "g"):
        with pytest.raises(RuntimeError, match=f"unbalanced_sinkhorn: .*there is no derivative of {output}"):
            getattr(found, output).sum().backward(retain_graph=True)
    for hessian in (torch.autograd.functional.hessian, lambda f, x: torch.func.hessian(f)(x.detach())):
        with pytest.raises(RuntimeError, match="unbalanced_sinkhorn: there are no second derivatives"):
            hessian(lambda c: value(*(x.detach() for x in tensors[:2]), c), tensors[2])
    with pytest.raises(TypeError, match="penalty"):
        et.unbalanced_sinkhorn(*tensors, epsilon=0.1, penalty=torch.tensor(1.0, requires_grad=True))


@pytest.mark.parametrize("epsilon", [0.02, 0.5])
def test_gradients_of_barycenters(epsilon):
    torch = torch_or_skip()
    import isentropic.torch as et

    rng = np.random.default_rng(11)
    p, cost = torch.from_numpy(rng.dirichlet(np.ones(5), 3)), torch.from_numpy(rng.random((5, 4)))
    p[1, 2] = 0
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)

    def q(p, cost, weights):
        return et.sinkhorn_barycenter(p, cost, epsilon=epsilon, weights=weights, tolerance=1e-14).barycenter

    np.testing.assert_allclose(
        q(p, cost, weights), isentropic.sinkhorn_barycenter(p, cost, epsilon=epsilon, weights=weights).barycenter, atol=1e-8
    )
    for which, moved in enumerate((p, cost, weights)):
        given = [p, cost, weights]

        def of(x, which=which, given=given):
            return q(*given[:which], x, *given[which + 1 :])

        positive = (moved if which else moved + 0.01).clone().requires_grad_()
        assert torch.autograd.gradcheck(of, [positive], rtol=1e-3, atol=1e-5), which
    moved = weights.clone().requires_grad_()
    for hessian in (torch.autograd.functional.hessian, lambda f, x: torch.func.hessian(f)(x.detach())):
        with pytest.raises(RuntimeError, match="sinkhorn_barycenter: there are no second derivatives"):
            hessian(lambda w: q(p, cost, w).square().sum(), moved)
    many = torch.func.vmap(lambda w: q(p, cost, w))(torch.stack([weights, weights.flip(0)]))
    np.testing.assert_allclose(many[1], q(p, cost, weights.flip(0)), rtol=1e-12)


def test_unbalanced_transport_with_zeros_and_forbidden_arcs():
    a, b, cost = problem(5)
    a[2], cost[1, 3] = 0, np.inf
    found = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=0.1, penalty=1.0)
    assert found.converged and found.plan[2].sum() == 0 and found.plan[1, 3] == 0
    large = isentropic.unbalanced_sinkhorn(a, b * a.sum() / b.sum(), cost, epsilon=0.1, penalty=1e4, max_iterations=10**5)
    np.testing.assert_allclose(large.plan.sum(axis=1), a, rtol=1e-3)


def test_barycenters_are_pots():
    rng = np.random.default_rng(6)
    points = np.linspace(0, 1, 30)
    cost = (points[:, None] - points) ** 2
    p = rng.dirichlet(np.ones(30), 3)
    found = isentropic.sinkhorn_barycenter(p[[0, 0, 1, 2]], cost, epsilon=0.01, tolerance=1e-12)
    assert found.converged and found.marginal_error <= 1e-12
    weighted = isentropic.sinkhorn_barycenter(p, cost, epsilon=0.01, weights=[2, 1, 1], tolerance=1e-12)
    np.testing.assert_allclose(weighted.barycenter, found.barycenter, rtol=1e-9)
    want = ot.bregman.barycenter(p[[0, 0, 1, 2]].T, cost, 0.01, numItermax=100000, stopThr=1e-13)
    np.testing.assert_allclose(found.barycenter, want, rtol=1e-5, atol=1e-10)
    assert found.barycenter.sum() == pytest.approx(1)
    alone = isentropic.sinkhorn_barycenter(p[:1], cost, epsilon=1e-4)
    np.testing.assert_allclose(alone.barycenter, p[0], atol=0.02)


def test_barycenters_of_equal_and_of_moved():
    """Of equal distributions, what their plan to itself makes of them; of two translated ones, one between; in any order."""
    rng = np.random.default_rng(12)
    points = np.arange(40.0)
    cost = (points[:, None] - points) ** 2
    hump = np.exp(-((points - 10) ** 2) / 8)
    options = {"epsilon": 0.5, "tolerance": 1e-12}
    q = isentropic.sinkhorn_barycenter([hump, np.roll(hump, 16)], cost, **options).barycenter
    assert q @ points == pytest.approx(18, abs=1e-6)
    skewed = isentropic.sinkhorn_barycenter([hump, np.roll(hump, 16)], cost, weights=[3, 1], **options).barycenter
    assert skewed @ points == pytest.approx(14, abs=1e-6)
    p = rng.dirichlet(np.ones(40), 3)
    alone = isentropic.sinkhorn_barycenter(p[:1], cost, **options).barycenter
    np.testing.assert_allclose(isentropic.sinkhorn_barycenter(p[[0, 0, 0]], cost, **options).barycenter, alone, atol=1e-10)
    np.testing.assert_allclose(isentropic.sinkhorn_barycenter(3 * p[:1], cost, **options).barycenter, alone, rtol=1e-12)
    mixed = [isentropic.sinkhorn_barycenter(p[order], cost, **options).barycenter for order in ([0, 1, 2], [2, 0, 1])]
    np.testing.assert_allclose(*mixed, atol=1e-10)
    several = isentropic.sinkhorn_barycenter([p, p[::-1]], cost, **options)
    np.testing.assert_allclose(several.barycenter, [mixed[0]] * 2, atol=1e-10)
    assert several.iterations.shape == several.marginal_error.shape == (2,)
    with pytest.raises(ValueError, match=r"sinkhorn_barycenter: p must be at least 0 and finite, got -.* in problem 1"):
        isentropic.sinkhorn_barycenter([p, -p], cost, **options)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_sliced_distances_of_translated_points(scale):
    """The distance of translated points is the mean length of the way along directions, at any scale."""
    rng = np.random.default_rng(13)
    x, way = rng.standard_normal((20, 3)), np.array([1.0, -2.0, 2.0])
    theta = rng.standard_normal((11, 3))
    along = np.abs(theta @ way) / np.linalg.norm(theta, axis=1)
    for order in (1, 2, 3.5):
        found = isentropic.sliced_wasserstein(scale * x, scale * (x + way), order=order, projections=theta)
        assert float(found.distance) == pytest.approx(scale * (along**order).mean() ** (1 / order), rel=1e-9)
    many = isentropic.sliced_wasserstein(scale * x, scale * (x + way), projections=20000, seed=5)
    assert abs(float(many.distance) - scale * 3 / np.sqrt(3)) < 5 * float(many.error)
    assert float(many.error) < 0.01 * float(many.distance)


EPSILONS = {"sinkhorn_divergence": {"epsilon": 0.5}, "unbalanced_sinkhorn_divergence": {"epsilon": 0.5, "penalty": 2.0}}


@pytest.mark.parametrize("name", ["wasserstein", *EPSILONS])
def test_several_problems_are_each_alone(name):
    torch = torch_or_skip()
    import isentropic.torch as et

    rng = np.random.default_rng(7)
    x, y, a = rng.standard_normal((3, 1, 6, 2)), rng.standard_normal((2, 5, 2)), rng.random((3, 1, 6))
    options = EPSILONS.get(name, {"order": 2})
    function = getattr(isentropic, name)
    got = function(x, y, a=a, **options)
    assert got.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            assert got[i, j] == function(x[i, 0], y[j], a=a[i, 0], **options)
    tensors = [torch.from_numpy(one) for one in (x, y, a)]
    same = getattr(et, name)(*tensors[:2], a=tensors[2], **options)
    np.testing.assert_allclose(same, got, rtol=1e-9)
    moving = tensors[0].clone().requires_grad_()
    getattr(et, name)(moving, tensors[1], a=tensors[2], **options).sum().backward()
    assert torch.isfinite(moving.grad).all() and (moving.grad != 0).any()
    assert function(x[:0], y, **options).shape == (0, 2)
    with pytest.raises(ValueError, match=rf"{name}: .* in problem \(1, 0\)"):
        function(np.where(np.arange(3)[:, None, None, None] == 1, np.nan, x), y, **options)
    for which, wrong in ((isentropic, (x, y[0, :, 0])), (et, (tensors[0], tensors[1][0, :, 0]))):
        with pytest.raises(ValueError, match="y must have at least 2 axes"):
            getattr(which, name)(*wrong, **options)
    for which, wrong in ((isentropic, (x[:, 0], y)), (et, (tensors[0][:, 0], tensors[1]))):
        with pytest.raises(ValueError, match="leading axes of x, y must broadcast"):
            getattr(which, name)(*wrong, **options)


ERRORS = [
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], order=0.5), "order must be at least 1 and finite, got 0.5"),
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], projections=0), "projections must be above 0, got 0"),
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], projections=[[0.0]]), "projections must be finite and not 0"),
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], projections=[[1.0, 0.0]]), "directions of shape .count, 1."),
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], seed=-1), "seed must be at least 0"),
    (lambda: isentropic.sliced_wasserstein([[np.nan]], [[1.0]]), "x must"),
    (lambda: isentropic.sliced_wasserstein([[0.0]], [[1.0]], a=[-1.0]), "a must|weight"),
    (
        lambda: isentropic.partial_transport([1.0], [2.0], [[1.0]], mass=1.5),
        "mass must be at most the sum of a and that of b, 1",
    ),
    (lambda: isentropic.partial_transport([1.0], [2.0], [[1.0]], mass=-1), "mass must be at least 0 and finite, got -1"),
    (lambda: isentropic.partial_transport([-1.0], [2.0], [[1.0]], mass=0), "a must be at least 0 and finite"),
    (
        lambda: isentropic.partial_transport([1.0], [2.0], [[1.0, 2.0]], mass=1),
        r"cost must have shape \(..., 1, 1\) for these a and b, got \(1, 2\)",
    ),
    (lambda: isentropic.unbalanced_sinkhorn([1.0], [1.0], [[1.0]], epsilon=0, penalty=1), "epsilon must be above 0 and finite"),
    (lambda: isentropic.unbalanced_sinkhorn([1.0], [1.0], [[1.0]], epsilon=1, penalty=np.inf), "penalty must be above 0"),
    (
        lambda: isentropic.unbalanced_sinkhorn([0.0], [1.0], [[1.0]], epsilon=1, penalty=1),
        "a must have a finite sum above 0, got 0",
    ),
    (
        lambda: isentropic.unbalanced_sinkhorn([1.0], [1.0], [[np.nan]], epsilon=1, penalty=1),
        "cost must be finite or .inf, got nan at row 0",
    ),
    (lambda: isentropic.unbalanced_sinkhorn([1.0], [1.0], [1.0], epsilon=1, penalty=1), "cost must have at least 2 axes"),
    (lambda: isentropic.sinkhorn_barycenter([[0.0]], [[1.0]], epsilon=1), "p must have a finite sum above 0, got 0"),
    (lambda: isentropic.sinkhorn_barycenter([[1.0]], [[np.inf]], epsilon=1), "cost must be finite"),
    (
        lambda: isentropic.sinkhorn_barycenter([[1.0]], [[1.0]], epsilon=1, weights=[1.0, 2.0]),
        r"weights must have shape \(..., 1\)",
    ),
]


@pytest.mark.parametrize(("call", "text"), ERRORS)
def test_errors(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize(
    ("a", "b", "cost"),
    [
        ([1.0, 2.0], [1.0, 1.0], [[np.inf, np.inf], [1.0, 0.0]]),
        ([1.0, 2.0], [1.0, 1.0], [[np.inf, 1.0], [np.inf, 0.0]]),
        ([1.0, 2.0], [1.0, 1.0], [[np.inf, np.inf], [np.inf, np.inf]]),
        ([1.0, 2.0], [0.0, 1.0], [[0.0, np.inf], [1.0, 0.0]]),
    ],
)
def test_unbalanced_mass_that_may_go_nowhere(a, b, cost):
    """It stays, at the price of the penalty; the rest is the problem without it."""
    found = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=0.1, penalty=0.7)
    cost, a, b = np.array(cost), np.array(a), np.array(b)
    assert found.converged and (found.plan[np.isinf(cost)] == 0).all() and np.isfinite(found.value)
    allowed = np.isfinite(cost) & (a[:, None] > 0) & (b > 0)
    rows, columns = allowed.any(axis=1), allowed.any(axis=0)
    if not rows.any():
        assert (found.plan == 0).all() and found.value == pytest.approx(0.1 * a.sum() * b.sum() + 0.7 * (a.sum() + b.sum()))
        return
    rest = isentropic.unbalanced_sinkhorn(a[rows], b[columns], cost[np.ix_(rows, columns)], epsilon=0.1, penalty=0.7)
    np.testing.assert_allclose(found.plan[np.ix_(rows, columns)], rest.plan, rtol=1e-5, atol=1e-9)


def test_masses_that_are_not_finite():
    with pytest.raises(ValueError, match="partial_transport: a must be at least 0 and finite, got inf"):
        isentropic.partial_transport([np.inf, 0.5], [1.0, 1.0], [[0, 1], [1, 0]], mass=0.5)


# Metrics.


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "cityblock"])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("d", [1, 3])
def test_metrics_are_scipys_in_every_door(metric, order, d):
    rng = np.random.default_rng(d)
    x, y, a, b = rng.standard_normal((6, d)), rng.standard_normal((9, d)), rng.random(6), rng.random(9)
    cost = distance.cdist(x, y, metric) ** order
    want = ot.emd2(a / a.sum(), b / b.sum(), cost) ** (1 / order)
    options = {"order": order, "metric": metric}
    assert float(isentropic.wasserstein(x, y, a=a, b=b, **options)) == pytest.approx(want, rel=1e-12, abs=1e-15)
    torch = torch_or_skip()
    import isentropic.torch as et

    tensors = [torch.from_numpy(one).requires_grad_() for one in (x, y, a, b)]

    def of_tensors(x, y, a, b):
        return et.wasserstein(x, y, a=a, b=b, **options)

    assert float(of_tensors(*tensors).detach()) == pytest.approx(want, rel=1e-12, abs=1e-15)
    if metric != "cosine" or d > 1:  # of numbers it is 0 or 2, and plans are not unique
        torch.autograd.gradcheck(lambda x, y: of_tensors(x, y, *tensors[2:]), tensors[:2])
    slopes = torch.autograd.grad(of_tensors(*tensors), tensors)
    jax = pytest.importorskip("jax")
    ej = pytest.importorskip("isentropic.jax")
    with jax.enable_x64(True):
        value, found = jax.value_and_grad(lambda x, y, a, b: ej.wasserstein(x, y, a=a, b=b, **options), (0, 1, 2, 3))(
            x, y, a, b
        )
    assert float(value) == pytest.approx(want, rel=1e-9, abs=1e-12)
    for one, other in zip(found, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_cosines_and_squares_keep_their_digits():
    u, tiny = np.array([[1e300, 1e300]]), 2.0**-30
    near = isentropic.wasserstein(u, u * [[1, 1 + tiny]], metric="cosine")
    assert float(near) == pytest.approx(tiny**2 / 8, rel=1e-6)  # 1 - cos t = t^2 / 2, t = tiny / 2
    assert float(isentropic.wasserstein([[1e-200, 0]], [[0, 1e-200]], metric="cosine")) == pytest.approx(1)
    assert float(isentropic.wasserstein([[1e150, 0]], [[0, 0]], metric="sqeuclidean")) == pytest.approx(1e300)
    for points in (u, np.zeros((1, 2))), (np.zeros((1, 2)), u):
        with pytest.raises(ValueError, match="at 0, which has no cosine"):
            isentropic.wasserstein(*points, metric="cosine")
    with pytest.raises(ValueError, match="metric must be one of euclidean, sqeuclidean, cosine, cityblock, got 'manhattan'"):
        isentropic.wasserstein(u, u, metric="manhattan")


# Where plans send points.


def test_points_go_where_the_plan_sends_them():
    a, b, cost = problem(3)
    a, b = a / a.sum(), b / b.sum()
    a[2] = 0
    a /= a.sum()
    targets = np.random.default_rng(4).standard_normal((9, 2))
    exact, smooth = isentropic.optimal_transport(a, b, cost), isentropic.sinkhorn(a, b, cost, epsilon=0.1, tolerance=1e-13)
    for result in (exact, smooth):
        there = np.delete(np.arange(7), 2)
        np.testing.assert_allclose(result.map(targets)[there], (result.plan @ targets / a[:, None])[there], rtol=1e-9)
        assert np.isnan(result.map(targets)[2]).all()
        np.testing.assert_allclose(result.map(targets[:, 0].tolist()), result.map(targets)[:, 0], rtol=1e-14)
    # New points that cost what the old ones cost, also one without mass.
    np.testing.assert_allclose(smooth.map(targets, cost)[there], smooth.map(targets)[there], rtol=1e-9)
    assert np.isfinite(smooth.map(targets, cost)[2]).all()
    assert np.isnan(smooth.map(targets, np.full((1, 9), np.inf))).all()
    assert float(smooth.epsilon) == 0.1
    torch = torch_or_skip()
    import isentropic.torch as et

    tensors = [torch.from_numpy(one) for one in (a, b, cost, targets)]
    found = et.sinkhorn(*tensors[:3], epsilon=0.1, tolerance=1e-13)
    np.testing.assert_allclose(found.map(tensors[3], tensors[2]), smooth.map(targets, cost), rtol=1e-12)
    np.testing.assert_allclose(et.optimal_transport(*tensors[:3]).map(tensors[3]), exact.map(targets), rtol=1e-12)
    jax = pytest.importorskip("jax")
    ej = pytest.importorskip("isentropic.jax")
    with jax.enable_x64(True):
        found = jax.jit(lambda *given: ej.sinkhorn(*given, epsilon=0.1, tolerance=1e-13))(a, b, cost)
        np.testing.assert_allclose(found.map(targets, cost), smooth.map(targets, cost), rtol=1e-12)
        np.testing.assert_allclose(ej.optimal_transport(a, b, cost).map(targets), exact.map(targets), rtol=1e-12)


def test_points_of_several_problems_and_wrong_ones():
    a, b, cost = problem(5)
    many = isentropic.sinkhorn(np.stack([a, a[::-1]]) / a.sum(), b / b.sum(), cost, epsilon=0.3)
    targets = np.ones((9, 4))
    assert many.map(targets).shape == (2, 7, 4) and many.map(targets, cost[:3]).shape == (2, 3, 4)
    assert many.epsilon.shape == (2,)
    for call, message in (
        (lambda: many.map(targets[:3]), r"SinkhornResult.map: targets must have 9 points, .* got shape \(3, 4\)"),
        (lambda: many.map(targets, cost[0]), r"cost must have shape \(..., new points, 9\), got \(9,\)"),
        (lambda: many.map("a"), "SinkhornResult.map: targets must be of"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


# Masses that differ.


@pytest.mark.parametrize("order", [1, 2, 3])
def test_unbalanced_divergences_are_their_definition(order):
    rng = np.random.default_rng(order)
    x, y, a, b = rng.standard_normal((6, 2)), rng.standard_normal((9, 2)), rng.random(6), rng.random(9)
    options = {"epsilon": 0.1, "penalty": 0.7, "tolerance": 1e-13}

    def least(u, v, p, q):
        return isentropic.unbalanced_sinkhorn(p, q, distance.cdist(u, v) ** order, **options).value

    want = least(x, y, a, b) - 0.5 * (least(x, x, a, a) + least(y, y, b, b)) + 0.05 * (a.sum() - b.sum()) ** 2
    options["order"] = order
    assert float(isentropic.unbalanced_sinkhorn_divergence(x, y, a=a, b=b, **options)) == pytest.approx(want, rel=1e-12)
    assert isentropic.unbalanced_sinkhorn_divergence(x, x, a=a, b=a, **options) == 0
    equal = isentropic.unbalanced_sinkhorn_divergence(x, y, a=np.full(6, 1 / 6), b=np.full(9, 1 / 9), **options)
    assert isentropic.unbalanced_sinkhorn_divergence(x, y, **options) == equal
    torch = torch_or_skip()
    import isentropic.torch as et

    tensors = [torch.from_numpy(one).requires_grad_() for one in (x, y, a, b)]

    def of_tensors(x, y, a, b):
        return et.unbalanced_sinkhorn_divergence(x, y, a=a, b=b, **options)

    assert float(of_tensors(*tensors).detach()) == pytest.approx(want, rel=1e-12)
    torch.autograd.gradcheck(of_tensors, tensors, rtol=1e-3, atol=1e-6)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        isentropic.unbalanced_sinkhorn_divergence(x, y, epsilon=0, penalty=1)
    with pytest.raises(ValueError, match="the squares of the sums of a and b must be finite"):
        isentropic.unbalanced_sinkhorn_divergence(x, y, a=1e200 * a, b=b, **options)


def test_a_large_penalty_makes_masses_equal():
    """As balanced transport, with a gap that counts what is left; the penalty times the masses would hide it."""
    a, b, cost = problem(7)
    a, b = a / a.sum(), b / b.sum()
    balanced = isentropic.sinkhorn(a, b, cost, epsilon=0.01, tolerance=1e-13)
    plan = balanced.plan
    want = balanced.cost + 0.01 * (plan * np.log(np.where(plan > 0, plan / np.outer(a, b), 1))).sum()
    for penalty in (1e3, 1e6, 1e9, 1e12):
        found = isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=0.01, penalty=penalty)
        assert found.converged and found.gap <= 2e-9 and found.iterations < 200
        assert abs(found.value - want) <= 2 / penalty + 3e-9


@pytest.mark.parametrize("n", [10, 30, 100])
def test_smooth_plans_of_narrow_and_wide_masses_converge_in_500_iterations(n):
    """Small epsilon with tails of tiny mass once took 10,000 and more."""
    x = np.linspace(-1.5, 1.5, n)
    cost = (x[:, None] - x) ** 2
    for deviation, ratio, apart in itertools.product((0.05, 0.15, 0.4, 1.0), (1.0, 1.3), (0.0, 0.3, 1.0)):
        a = np.exp(-(x**2) / (2 * deviation**2))
        b = np.exp(-((x - apart) ** 2) / (2 * (ratio * deviation) ** 2))
        for epsilon in (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
            found = isentropic.sinkhorn(a / a.sum(), b / b.sum(), cost, epsilon=epsilon, tolerance=1e-9)
            assert found.converged and found.iterations <= 500, (deviation, ratio, apart, epsilon, found.iterations)


def test_many_points_need_no_matrix():
    """Beyond 2^24 pairs costs are made in each pass: the same distance."""
    rng = np.random.default_rng(0)
    x, y = rng.random((4200, 2)), rng.random((4200, 2))
    even = np.full(4200, 1 / 4200)
    for options, cost in (
        ({}, distance.cdist(x, y)),
        ({"order": 2, "metric": "cityblock"}, distance.cdist(x, y, "cityblock") ** 2),
    ):
        want = isentropic.optimal_transport(even, even, cost).cost ** (1 / options.get("order", 1))
        assert float(isentropic.wasserstein(x, y, **options)) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (7, 4), (1, 6), (6, 1)])
@pytest.mark.parametrize("scale", [1.0, 1e5, 1e-5])
def test_barycenters_by_the_stored_kernel_and_in_logarithms(n, m, scale):
    """Both beside the iteration as it is written; an epsilon of a 600th of the costs' range divides them."""
    rng = np.random.default_rng(n)
    cost, p, weights = rng.random((n, m)) * scale, rng.dirichlet(np.ones(n) * 0.2, 3), rng.dirichlet(np.ones(3))
    cost.flat[:2] = 0, scale
    p[0] = np.eye(n)[0]
    p[1, -1] = 1e-300
    p /= p.sum(1, keepdims=True)
    for epsilon in (scale, scale / 50, scale / 599, scale / 601):
        g = np.zeros((3, m))
        for _ in range(5000):
            with np.errstate(divide="ignore"):
                f = np.log(p) - special.logsumexp(g[:, None] - cost / epsilon, axis=2)
            reached = special.logsumexp(f[:, :, None] - cost / epsilon, axis=1)
            mean = weights @ reached
            before, g = g, mean - reached
            if abs(g - before).max() < 1e-14:
                break
        found = isentropic.sinkhorn_barycenter(p, cost, weights=weights, epsilon=epsilon, tolerance=1e-13)
        assert found.converged
        np.testing.assert_allclose(found.barycenter, special.softmax(mean), atol=2e-13)


# Images.


def of_axis(n, m):
    return (np.linspace(0, 1, n)[:, None] - np.linspace(0, 1, m)) ** 2


@pytest.mark.parametrize("epsilon", [1.0, 0.05, 0.004, 0.003])
def test_barycenters_of_images_are_those_of_all_their_points(epsilon):
    """By products of the kernels of both axes, and for the smaller epsilon in logarithms."""
    rng = np.random.default_rng(0)
    p, weights, costs = rng.random((3, 9, 7)), rng.dirichlet(np.ones(3)), (of_axis(9, 6), of_axis(7, 8))
    p[0, :3] = 0
    matrix = (costs[0][:, None, :, None] + costs[1][None, :, None, :]).reshape(63, 48)
    options = {"epsilon": epsilon, "weights": weights, "tolerance": 1e-9}
    found = isentropic.sinkhorn_barycenter(p, costs, **options)
    want = isentropic.sinkhorn_barycenter(p.reshape(3, 63), matrix, **options)
    assert found.converged and abs(found.iterations - want.iterations) <= 1
    np.testing.assert_allclose(found.barycenter.ravel(), want.barycenter, rtol=1e-6, atol=1e-12)
    half = isentropic.sinkhorn_barycenter(p.astype(np.float16), costs, epsilon=epsilon, max_iterations=3)
    assert half.barycenter.dtype == np.float64 and not half.converged and half.iterations == 3
    narrow = isentropic.sinkhorn_barycenter(p.astype(np.float32), tuple(np.float32(one) for one in costs), epsilon=epsilon)
    assert narrow.barycenter.dtype == np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost": (of_axis(9, 9), of_axis(9, 7))}, r"must have shapes \(k, h, w\), .*, got \(2, 9, 7\), \(9, 9\) and \(9, 7\)"),
        ({"cost": (of_axis(9, 9), np.inf + of_axis(7, 7))}, "costs must be finite"),
        ({"p": -np.ones((2, 9, 7))}, "p must be at least 0 and finite, got -1.0 at image 0, row 0, column 0"),
        ({"p": np.zeros((2, 9, 7))}, "p must have a finite sum above 0, got 0 in image 0"),
        ({"weights": [1.0]}, r"weights must have shape \(2,\), one for each distribution, got \(1,\)"),
        ({"weights": [1.0, -1.0]}, "weights must be finite, at least 0 and not all 0"),
        ({"epsilon": 0.0}, "epsilon must be above 0 and finite, got 0.0"),
        ({"max_iterations": 0}, "max_iterations must be above 0 and finite, got 0"),
        ({"tolerance": -1.0}, "tolerance must be at least 0 and finite, got -1.0"),
    ],
)
def test_wrong_images_are_refused(change, message):
    given = {"p": np.ones((2, 9, 7)), "cost": (of_axis(9, 9), of_axis(7, 7)), "epsilon": 0.1} | change
    with pytest.raises(ValueError, match=f"sinkhorn_barycenter: .*{message}|sinkhorn_barycenter: {message}"):
        isentropic.sinkhorn_barycenter(**given)
