"""Transport on tensors: the values of isentropic, gradients by differences, and a critic's parts."""

import doctest
import functools
import re

import numpy as np
import pytest

import isentropic
from cases import torch_or_skip

torch = torch_or_skip()
et = pytest.importorskip("isentropic.torch")


def tensors(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_epsilon_of_the_divergence_is_learned(shape):
    x, y = (torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    epsilon = torch.full(shape, 0.4, dtype=torch.float64, requires_grad=True)

    def value(epsilon, x=x):
        return et.sinkhorn_divergence(x, y, epsilon=epsilon, tolerance=1e-13)

    (slope,) = torch.autograd.grad(value(epsilon), epsilon)
    assert slope.shape == shape
    want = (value(0.4 + 1e-5) - value(0.4 - 1e-5)) / 2e-5
    assert slope.item() == pytest.approx(want.item(), rel=1e-6)
    both = torch.autograd.grad(value(epsilon, x.requires_grad_()), (epsilon, x))
    assert both[0] == slope and both[1].shape == x.shape
    parameter = torch.nn.Parameter(torch.tensor(0.4))
    value(parameter).backward()
    assert parameter.grad.item() == pytest.approx(slope.item(), rel=1e-5)
    with pytest.raises(ValueError, match=r"epsilon must be a number or a tensor of one, got shape \(2,\)"):
        value(torch.ones(2, requires_grad=True))
    with pytest.raises(ValueError, match="epsilon"):
        value(torch.tensor(-1.0, requires_grad=True))


@pytest.mark.parametrize("order", [1, 1.5, 2, 5, float("inf")])
def test_line(order):
    u, v, a, b = tensors(0, (3, 7), (3, 5), (3, 7), (3, 5))
    a, b = a.exp(), b.exp()
    for weights in ({}, {"u_weights": a}, {"u_weights": a, "v_weights": b}):
        want = isentropic.wasserstein_1d(u, v, order=order, **weights)
        np.testing.assert_allclose(et.wasserstein_1d(u, v, order=order, **weights), want, rtol=1e-12)
    moved = et.wasserstein_1d(u.T, v.T, dim=0, order=order)
    np.testing.assert_allclose(moved, isentropic.wasserstein_1d(u, v, order=order), rtol=1e-12)
    p, q = a / a.sum(-1, keepdim=True), tensors(1, (3, 7))[0].softmax(-1)
    want = isentropic.wasserstein_histogram(p, q, order=order)
    np.testing.assert_allclose(et.wasserstein_histogram(p, q, order=order), want, rtol=1e-12)
    if order == float("inf"):
        return
    leaves = [x.clone().requires_grad_() for x in (u, v, a, b)]

    def weighted(u, v, a, b):
        return et.wasserstein_1d(u, v, u_weights=a, v_weights=b, order=order)

    torch.autograd.gradcheck(weighted, leaves)
    leaves = [x.clone().requires_grad_() for x in (p, q)]
    torch.autograd.gradcheck(lambda p, q: et.wasserstein_histogram(p, q, order=order), leaves)
    et.wasserstein_histogram(*leaves, order=order).sum().backward()
    _, dp, dq = isentropic.wasserstein_histogram(p, q, order=order, return_grad=True)
    np.testing.assert_allclose(leaves[0].grad, dp, atol=1e-12)
    np.testing.assert_allclose(leaves[1].grad, dq, atol=1e-12)


def with_zeros(seed, n, share=0.5):
    """Masses of sum 1, of which about this share is 0."""
    rng = np.random.default_rng(seed)
    x = rng.random(n) * (rng.random(n) >= share)
    x[rng.integers(n)] += 0.1
    return x / x.sum()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [1, 1.5, 2, 5])
def test_potentials_of_histograms_where_there_is_no_mass(order, dtype):
    """The gradients are NumPy's: for one row, for rows together, in forward mode and under vmap."""
    close = {"rtol": 0, "atol": 1e-11 if dtype is np.float64 else 1e-3}
    for n in (1, 2, 3, 5, 12):
        p, q = (np.stack([with_zeros(seed + k, n) for seed in range(0, 80, 2)]).astype(dtype) for k in (0, 1))
        if order == 1:  # Its kinks have more than one potential: here are none.
            q = np.random.default_rng(n).dirichlet(np.ones(n), len(q)).astype(dtype)
        support = np.random.default_rng(n).standard_normal(n)
        _, *want = isentropic.wasserstein_histogram(p, q, support=support, order=order, return_grad=True)
        leaves = [torch.from_numpy(x).requires_grad_() for x in (p, q)]
        distance = functools.partial(et.wasserstein_histogram, support=torch.from_numpy(support), order=order)

        got = torch.autograd.grad(distance(*leaves).sum(), leaves)
        each = torch.func.vmap(torch.func.grad(distance, argnums=(0, 1)))(*(x.detach() for x in leaves))
        for mine, mapped, theirs in zip(got, each, want, strict=True):
            np.testing.assert_allclose(mine, theirs, **close)
            np.testing.assert_allclose(mapped, theirs, **close)
        moved = [torch.from_numpy(np.roll(x, 1, axis=0)) for x in (p, q)]
        _, tangent = torch.func.jvp(distance, tuple(x.detach() for x in leaves), tuple(moved))
        np.testing.assert_allclose(tangent, sum((g * m).sum(-1) for g, m in zip(got, moved, strict=True)), **close)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_gradients_in_weights_of_0_are_those_of_small_weights(order):
    for seed in range(20):
        u, v = tensors(seed, (4, 6), (4, 5))
        a, b = (
            torch.from_numpy(np.stack([with_zeros(10 * seed + 2 * k + j, n) for k in range(4)])) for j, n in ((0, 6), (1, 5))
        )
        b = b if seed % 2 else b + 0.1  # seed % 2: levels of 1 are equal, where small weights in u alone are on one side
        a = a if seed % 2 == 0 else a + 0.1

        def gradients(a, b, u=u, v=v):
            leaves = [a.clone().requires_grad_(), b.clone().requires_grad_()]
            distance = et.wasserstein_1d(u, v, u_weights=leaves[0], v_weights=leaves[1], order=order)
            return torch.autograd.grad(distance.sum(), leaves)

        small = gradients(*(x.clamp(min=1e-10) for x in (a, b)))
        for mine, limit in zip(gradients(a, b), small, strict=True):
            torch.testing.assert_close(mine, limit, rtol=1e-6, atol=1e-6)

        def sliced(a, x=u.T, y=v.T):
            a = a.clone().requires_grad_()
            return torch.autograd.grad(et.sliced_wasserstein(x, y, a=a, order=order).distance, a)[0]

        torch.testing.assert_close(sliced(a[0]), sliced(a[0].clamp(min=1e-10)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_second_derivatives_in_weights(order):
    u, v, a, b = tensors(20, (2, 5), (2, 4), (2, 5), (2, 4))
    leaves = [x.requires_grad_() for x in (u, v, a.exp(), b.exp())]
    torch.autograd.gradgradcheck(
        lambda u, v, a, b: et.wasserstein_1d(u, v, u_weights=a, v_weights=b, order=order),
        leaves,
        check_fwd_over_rev=True,
        fast_mode=order > 1,  # each entry by itself for one order, a random direction for the others
    )


@pytest.mark.parametrize("order", [2, 3])
def test_second_derivatives_where_points_coincide(order):
    """|u - v|^2 is smooth at 0, though |u - v| is not."""
    u, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in ([0.0, 1.0, 2.0, 3.5], [0.0, 1.5, 2.7, 3.5]))
    weights = [torch.tensor(x, dtype=torch.float64) for x in ([0.1, 0.2, 0.3, 0.4], [0.1, 0.3, 0.2, 0.4])]
    lines = torch.eye(2, dtype=torch.float64)
    for distance in (
        lambda u, v: et.wasserstein_1d(u, v, order=order),
        lambda u, v: et.wasserstein_1d(u, v, u_weights=weights[0], v_weights=weights[1], order=order),
        lambda u, v: et.sliced_wasserstein(u.view(2, 2), v.view(2, 2), projections=lines, order=order).distance,
    ):
        assert torch.autograd.gradgradcheck(distance, (u, v), rtol=1e-3, atol=1e-5)


def test_samples_without_weight_may_be_infinitely_far():
    u, a = torch.tensor([1.0, torch.inf, 3.0], requires_grad=True), torch.tensor([1.0, 0.0, 1.0], requires_grad=True)
    for order in (1, 2, 20):
        distance = et.wasserstein_1d(u, torch.tensor([2.0, 5.0]), u_weights=a, order=order)
        assert distance.isfinite() and all(x.isfinite().all() for x in torch.autograd.grad(distance, (u, a)))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_points(order):
    x, y = tensors(2, (6, 2), (5, 2))
    assert float(et.wasserstein(x, y, order=order)) == pytest.approx(
        float(isentropic.wasserstein(x, y, order=order)), rel=1e-12
    )
    x.requires_grad_()
    torch.autograd.gradcheck(lambda x: et.wasserstein(x, y, order=order), [x])
    value = et.sinkhorn_divergence(x, y, epsilon=0.5, order=order)
    assert float(value) == pytest.approx(float(isentropic.sinkhorn_divergence(x.detach(), y, epsilon=0.5, order=order)))
    torch.autograd.gradcheck(
        lambda x: et.sinkhorn_divergence(x, y, epsilon=0.5, order=order, tolerance=1e-12), [x], rtol=1e-3, atol=1e-6
    )
    two, one = torch.tensor([-1.0, 1.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    far = et.sinkhorn_divergence(two, one, epsilon=10, order=order + 3)  # negative
    assert float(far) == pytest.approx(float(isentropic.sinkhorn_divergence(two, one, epsilon=10, order=order + 3))) and far < 0
    same = x.detach().clone().requires_grad_()
    et.wasserstein(same, x.detach(), order=order).backward()
    assert torch.isfinite(same.grad).all()


def test_optimal_cost():
    a, b, cost = tensors(3, (4,), (2, 5), (4, 5))
    leaves = [a.requires_grad_(), b.requires_grad_(), cost.requires_grad_()]
    torch.autograd.gradcheck(lambda a, b, cost: et.optimal_transport(a.softmax(-1), b.softmax(-1), cost).cost, leaves)


def test_critic():
    critic = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 1, dtype=torch.float64))
    real, fake = tensors(4, (6, 3, 4), (6, 3, 4))
    norm = critic[1].weight.norm()
    assert et.gradient_penalty(critic, real, fake).item() == pytest.approx(((norm - 1) ** 2).item())
    assert et.gradient_penalty(critic, real, fake, target=1e6, one_sided=True) == 0
    et.gradient_penalty(critic, real, fake).backward()
    assert torch.isfinite(critic[1].weight.grad).all()
    loss = et.wgan_critic_loss(critic(real), critic(fake))
    assert -loss / norm <= isentropic.wasserstein(real.flatten(1), fake.flatten(1)) * (1 + 1e-12)
    et.clip_weights(critic, 0.02)
    assert max(p.abs().max() for p in critic.parameters()) <= 0.02
    flat = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    et.gradient_penalty(lambda z: z.flatten(1) @ flat, real, fake).backward()
    assert torch.isfinite(flat.grad).all()
    with pytest.raises(ValueError, match=r"^gradient_penalty: fake must have the shape of real"):
        et.gradient_penalty(critic, real, fake[:2])
    with pytest.raises(TypeError, match=r"^gradient_penalty: critic must be a module or a function, got int$"):
        et.gradient_penalty(3, real, fake)
    with pytest.raises(TypeError, match=r"^gradient_penalty: real must be a torch.Tensor, got list$"):
        et.gradient_penalty(critic, [1.0], fake)
    with pytest.raises(ValueError, match=r"^gradient_penalty: real must have at least one axis"):
        et.gradient_penalty(critic, real[0, 0, 0], fake[0, 0, 0])
    with pytest.raises(TypeError, match=r"^wgan_critic_loss: critic_fake must be a torch.Tensor, got float$"):
        et.wgan_critic_loss(real, 1.0)
    before = [one.clone() for one in critic.parameters()]
    for given in ([*critic.parameters(), 1.0], [1.0], 3):
        with pytest.raises(TypeError, match=r"^clip_weights: parameters must be a module, a tensor or tensors, got"):
            et.clip_weights(given, 1e-6)
    assert all(map(torch.equal, before, critic.parameters()))  # nothing has been changed


def masses(seed, *shapes):
    return [x.softmax(-1) for x in tensors(seed, *shapes)]


def test_plan_with_entropy():
    a, b = masses(5, (4,), (2, 5))
    (cost,) = tensors(6, (4, 5))
    cost = cost.abs()
    options = {"epsilon": 0.3, "tolerance": 1e-13}
    got, want = et.sinkhorn(a, b, cost, **options), isentropic.sinkhorn(a, b, cost, **options)
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert got.iterations.dtype == torch.int64 and got.converged.dtype == torch.bool
    leaves = [x.log().requires_grad_() for x in (a, b)] + [cost.requires_grad_()]

    def parts(a, b, cost):
        result = et.sinkhorn(a.softmax(-1), b.softmax(-1), cost, **options)
        assert not result.f.requires_grad and not result.lower_bound.requires_grad
        return result.cost, result.plan

    torch.autograd.gradcheck(parts, leaves, rtol=1e-5, atol=1e-8)
    # A forbidden arc and a mass of 0 have no part in it.
    cost = cost.detach().clone()
    cost[1, 2] = torch.inf
    a = torch.tensor([0.0, 0.5, 0.25, 0.25], dtype=torch.float64)
    cost.requires_grad_()
    result = et.sinkhorn(a, b, cost, **options)
    result.cost.sum().backward()
    assert cost.grad.isfinite().all() and (cost.grad[0] == 0).all() and cost.grad[1, 2] == 0
    narrow = et.sinkhorn(a.float(), b.float(), cost.detach().float(), epsilon=0.3)
    assert narrow.cost.dtype == narrow.plan.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(6))
def test_derivatives_of_a_plan_in_masses_of_0_are_those_of_small_masses(seed, dtype):
    """First and second ones, of the cost and of a function of the plan, reverse and forward, of several problems."""
    shapes = [(1, 1), (2, 3), (5, 4), (4, 6), (7, 7), (3, 1)]
    n, m = shapes[seed]
    a, b = (
        torch.from_numpy(np.stack([with_zeros(7 * seed + 2 * k + j, size, share) for k in range(3)]))
        for j, size, share in ((0, n, 0.4 * (seed % 3 != 1)), (1, m, 0.4 * (seed % 3 != 2)))
    )
    cost, weights = tensors(40 + seed, (3, n, m), (3, n, m))
    moves = tensors(50 + seed, (3, n), (3, m), (3, n, m))
    functions = {"cost": lambda found: found.cost, "plan": lambda found: (found.plan**2 * weights).sum((-2, -1))}
    # The gradients in masses are for changes that keep the sum.
    close = {"rtol": 2e-3, "atol": 2e-3} if dtype is torch.float32 else {"rtol": 1e-5, "atol": 1e-5}
    for function in functions.values():

        def value(a, b, cost, function=function):
            a, b = (x / x.sum(-1, keepdim=True) for x in (a, b))
            return function(et.sinkhorn(a, b, cost, epsilon=0.5, tolerance=1e-13)).sum()

        def derivatives(dtype, *given, value=value):
            leaves = [x.to(dtype, copy=True).requires_grad_() for x in given]
            first = torch.autograd.grad(value(*leaves), leaves, create_graph=True)
            along = sum((x * move).sum() for x, move in zip(first, moves, strict=True))
            return *first, *torch.autograd.grad(along, leaves)

        found = derivatives(dtype, a, b, cost)
        limits = derivatives(torch.float64, a.clamp(min=1e-9), b.clamp(min=1e-9), cost)
        for mine, limit in zip(found, limits, strict=True):
            torch.testing.assert_close(mine, limit.to(dtype), **close)
        _, tangent = torch.func.jvp(value, tuple(x.to(dtype) for x in (a, b, cost)), tuple(x.to(dtype) for x in moves))
        want = sum((x * move).sum() for x, move in zip(limits[:3], moves, strict=True))
        torch.testing.assert_close(tangent.to(want.dtype), want, **close)


def test_slopes_that_are_not_finite_where_a_plan_is_0_add_nothing():
    half, cost = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64), torch.arange(9.0, dtype=torch.float64).view(3, 3) % 4
    a = half.clone().requires_grad_()
    torch.special.entr(et.sinkhorn(a, half, cost, epsilon=1.0).plan).sum().backward()
    assert a.grad.isfinite().all()


def test_divergence_with_weights():
    x, y, a, b = tensors(7, (6, 2), (5, 2), (6,), (5,))
    a, b = a.exp(), b.exp()
    options = {"epsilon": 0.5, "tolerance": 1e-13}
    leaves = [one.requires_grad_() for one in (x, y, a, b)]

    def value(x, y, a, b):
        return et.sinkhorn_divergence(x, y, a=a, b=b, **options)

    want = isentropic.sinkhorn_divergence(*(one.detach() for one in (x, y)), a=a.detach(), b=b.detach(), **options)
    assert value(*leaves).item() == pytest.approx(float(want), rel=1e-10)
    torch.autograd.gradcheck(value, leaves, rtol=1e-4, atol=1e-7)
    assert et.sinkhorn_divergence(x, x, epsilon=0.5) == 0


def test_duality():
    cost, f, g, points = tensors(8, (2, 4, 5), (2, 4), (2, 5), (6, 2))
    a, b = masses(9, (2, 4), (5,))
    distance = torch.cdist(points, points)
    distance[0, 1] = distance[1, 0] = 0
    h = points[:, 0].clone()
    assert et.lipschitz_constant(h, distance) == torch.inf
    h[1] = h[0]
    for name, given in {"c_transform": (f, cost), "dual_value": (f, g, a, b), "lipschitz_constant": (h, distance)}.items():
        mine = getattr(et, name)
        np.testing.assert_allclose(mine(*given), getattr(isentropic, name)(*given), rtol=1e-14)
        leaves = [one.clone().requires_grad_() for one in given]
        if name == "lipschitz_constant":  # distances at 0 and equal values are kinks
            mine(*leaves).backward()
            assert all(leaf.grad.isfinite().all() for leaf in leaves)
        else:
            torch.autograd.gradcheck(mine, leaves)
    assert et.lipschitz_constant(h[:1], distance[:1, :1]) == 0
    absent = torch.tensor([-torch.inf, 1.0], requires_grad=True)
    mass = torch.tensor([0.0, 1.0])
    value = et.dual_value(absent, absent, mass, mass)
    value.backward()
    assert value == 2 and absent.grad.tolist() == [0, 2]
    assert et.c_transform(absent.detach(), torch.tensor([[torch.inf, 0.0], [3.0, 1.0]])).tolist() == [2, 0]


(DIRECTIONS,) = tensors(15, (7, 2))
CALLS = {
    "wasserstein_1d": (lambda u, v, w: et.wasserstein_1d(u, v, u_weights=w.exp(), order=2), ((7,), (5,), (7,))),
    "wasserstein_histogram": (lambda p, q: et.wasserstein_histogram(p.softmax(-1), q.softmax(-1)), ((6,), (6,))),
    "wasserstein_histogram_2": (
        lambda p, q: et.wasserstein_histogram(p.softmax(-1), q.softmax(-1), order=2),
        ((6,), (6,)),
    ),
    "optimal_transport": (lambda a, b, c: et.optimal_transport(a.softmax(-1), b.softmax(-1), c).cost, ((4,), (5,), (4, 5))),
    "sinkhorn": (
        lambda a, b, c: et.sinkhorn(a.softmax(-1), b.softmax(-1), c, epsilon=0.3).plan,
        ((4,), (5,), (4, 5)),
    ),
    "wasserstein": (lambda x, y, a: et.wasserstein(x, y, a=a.exp(), order=2), ((4, 2), (5, 2), (4,))),
    "sliced_wasserstein": (lambda x, y, a: et.sliced_wasserstein(x, y, a=a.exp()).distance, ((4, 2), (5, 2), (4,))),
    "sliced_wasserstein_along": (
        lambda x, y: et.sliced_wasserstein(x, y, order=1, projections=DIRECTIONS).distance,
        ((4, 2), (5, 2)),
    ),
    "sinkhorn_divergence": (
        lambda x, y, a: et.sinkhorn_divergence(x, y, a=a.exp(), epsilon=0.3),
        ((4, 2), (5, 2), (4,)),
    ),
    "c_transform": (et.c_transform, ((4,), (4, 5))),
    "dual_value": (et.dual_value, ((4,), (5,), (4,), (5,))),
    "lipschitz_constant": (lambda f, x: et.lipschitz_constant(f, torch.cdist(x, x).detach()), ((5,), (5, 2))),
    "wgan_critic_loss": (et.wgan_critic_loss, ((4,), (5,))),
}


@pytest.mark.parametrize("name", CALLS)
def test_compile_vmap_and_func(name):
    """One graph without breaks, batches, and torch.func: the value and the gradient of the plain call."""
    function, shapes = CALLS[name]
    batch = tensors(10, *((3, *shape) for shape in shapes))

    def summed(*given):
        value = function(*given)
        return (value * torch.arange(1, value.numel() + 1, dtype=value.dtype).view(value.shape)).sum()

    leaves = [one[0].clone().requires_grad_() for one in batch]
    want = summed(*leaves)
    gradients = torch.autograd.grad(want, leaves, allow_unused=True)
    torch._dynamo.reset()
    compiled = torch.compile(summed, fullgraph=True, backend="aot_eager")
    got = compiled(*leaves)
    np.testing.assert_allclose(got.detach(), want.detach(), rtol=1e-13)
    for mine, theirs in zip(torch.autograd.grad(got, leaves, allow_unused=True), gradients, strict=True):
        if theirs is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-13)
    each = torch.stack([function(*one) for one in zip(*batch, strict=True)])
    np.testing.assert_allclose(torch.func.vmap(function)(*batch), each, rtol=1e-13, atol=1e-15)
    one_fixed = torch.func.vmap(lambda first: function(first, *(one[0] for one in batch[1:])))(batch[0])
    assert one_fixed.shape == each.shape
    np.testing.assert_allclose(one_fixed[0], each[0], rtol=1e-13, atol=1e-15)
    by_func = torch.func.grad(summed)(*(one[0] for one in batch))
    np.testing.assert_allclose(by_func, gradients[0], rtol=1e-12, atol=1e-13)
    all_by_func = torch.func.vmap(torch.func.grad(summed))(*batch)
    np.testing.assert_allclose(all_by_func[0], gradients[0], rtol=1e-9, atol=1e-12)


def test_operators():
    """What torch itself asks of an operator."""
    a, b = masses(11, (2, 4), (5,))
    (cost,) = tensors(12, (4, 5))
    torch.library.opcheck(torch.ops.isentropic.optimal_transport.default, (a, b, cost, None))
    torch.library.opcheck(torch.ops.isentropic.sinkhorn.default, (a, b, cost.abs(), 0.5, 1e-9, 1000, None))
    with pytest.raises(RuntimeError, match="optimal_transport: there are no second derivatives"):
        torch.autograd.functional.hessian(lambda c: et.optimal_transport(a[0], b, c).cost, cost)


def test_divergence_has_no_second_derivative():
    x, y = tensors(13, (4, 2), (5, 2))
    with pytest.raises(RuntimeError, match="sinkhorn_minimum: there are no second derivatives"):
        torch.autograd.functional.hessian(lambda x: et.sinkhorn_divergence(x, y, epsilon=0.5), x.detach())
    torch.library.opcheck(
        torch.ops.isentropic.sinkhorn_minimum.default,
        (*masses(11, (4,), (5,)), tensors(12, (4, 5))[0].abs(), 0.5, 1e-9, 1000, None),
    )


def test_plans_in_parts():
    """Where arcs of cost inf leave a plan of two parts potentials are free in each, and the derivative is defined."""
    (cost,) = tensors(14, (4, 4))
    cost = cost.detach().abs()
    apart = torch.kron(torch.eye(2), torch.ones(2, 2)) == 0
    mass = torch.full((4,), 0.25, dtype=cost.dtype)

    def plan(cost):
        return et.sinkhorn(mass, mass, cost.masked_fill(apart, torch.inf), epsilon=0.2, tolerance=1e-13).plan

    found, step = torch.autograd.functional.jacobian(plan, cost), 1e-5
    for i in range(4):
        for j in range(4):
            moved = torch.zeros_like(cost)
            moved[i, j] = step
            want = (plan(cost + moved) - plan(cost - moved)) / (2 * step)
            torch.testing.assert_close(found[:, :, i, j], want, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "name",
    [
        "c_transform",
        "dual_value",
        "lipschitz_constant",
        "sinkhorn",
        "wasserstein_1d",
        "wasserstein_histogram",
        "optimal_transport",
        "wasserstein",
        "sinkhorn_divergence",
        "wgan_critic_loss",
        "clip_weights",
        "gradient_penalty",
    ],
)
def test_docstrings(name):
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(getattr(et, name), name, globs={"isentropic": isentropic, "torch": torch}):
        runner.run(test)
    assert runner.failures == 0 and runner.tries > 0


def test_integers_and_far_points():
    """Integers are computed in float64, as from NumPy; points far apart or close together do not overflow."""
    ones, cost = torch.tensor([1, 1]), torch.tensor([[1, 2], [0, 4]])
    plan = et.sinkhorn(ones, ones, cost, epsilon=1.0).plan
    assert plan.dtype is torch.float64
    want = isentropic.sinkhorn(ones.numpy(), ones.numpy(), cost.numpy(), epsilon=1.0).plan
    np.testing.assert_allclose(plan.numpy(), want, rtol=1e-12)
    assert et.optimal_transport(ones, ones, cost).cost == 2.0
    assert et.optimal_transport(ones, ones, cost).status == "optimal"
    assert et.optimal_transport(ones, ones, cost.expand(3, 2, 2)).status.tolist() == ["optimal"] * 3
    for scale in (1e-25, 1e20):
        x, y = (torch.tensor([[0.0, 0.0], [far, 0.0]]) * scale for far in (1.0, 3.0))
        torch.testing.assert_close(et.wasserstein(x, y), torch.tensor(scale), rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match=r"wasserstein: order must be at least 1 and finite, got 0\.5"):
        et.wasserstein(torch.zeros(1, 1), torch.ones(1, 1), order=0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [1, 5, 14, 100, 1e4])
def test_distances_that_the_plan_does_not_use_do_not_count(order, dtype):
    """Each point moves by 0.5, and others are 2000 times as far away: the value and the gradient of every order."""
    x = torch.tensor([[0.0, 0.0], [1000.0, 0.0]], dtype=dtype, requires_grad=True)
    y = x.detach() + torch.tensor([0.5, 0.0], dtype=dtype)
    distance = et.wasserstein(x, y, order=order)
    assert distance.dtype is dtype
    distance.backward()
    torch.testing.assert_close(distance, torch.tensor(0.5, dtype=dtype), rtol=1e-15, atol=0)
    torch.testing.assert_close(x.grad, torch.tensor([[-0.5, 0.0], [-0.5, 0.0]], dtype=dtype), rtol=1e-15, atol=0)


@pytest.mark.parametrize("order", [1, 2.5, 60])
def test_gradients_in_points_and_weights(order):
    x, y, a, b = (one.requires_grad_() for one in tensors(63, (5, 3), (4, 3), (5,), (4,)))
    torch.autograd.gradcheck(lambda x, y, a, b: et.wasserstein(x, y, order=order, a=a.exp(), b=b.exp()), (x, y, a, b))
    given = (x.detach(), y.detach(), a.detach().exp(), b.detach().exp())
    torch.library.opcheck(torch.ops.isentropic.wasserstein.default, (*given, order, "euclidean", True))


def test_gradient_of_a_plan_that_hardly_connects():
    """Two corners that mass rarely changes between: exactly the slope of the well connected ones."""
    half = torch.full((2,), 0.5, dtype=torch.float64, requires_grad=True)
    cost, weights = torch.tensor([[0.0, 10.0], [10.0, 0.0]]).double(), torch.tensor([[1.0, 2.0], [5.0, 3.0]]).double()
    plan = et.sinkhorn(half, half.detach(), cost, epsilon=0.3, tolerance=1e-14).plan
    (grad,) = torch.autograd.grad((plan * weights).sum(), half)
    torch.testing.assert_close(grad[0] - grad[1], torch.tensor(-2.5, dtype=torch.float64), rtol=1e-6, atol=0)


T = torch.tensor
INTEGERS = {
    "wasserstein_1d": ((T([1, 2]), T([3, 4])), {}),
    "wasserstein": ((T([[1, 2], [3, 4]]), T([[1, 5], [9, 8]])), {}),
    "sinkhorn_divergence": ((T([[1, 2], [3, 4]]), T([[1, 5], [9, 8]])), {"epsilon": 0.5}),
    "c_transform": ((T([1, 2]), T([[3, 5], [2, 7]])), {}),
    "dual_value": ((T([1, 2]), T([3, 4]), T([1, 3]), T([2, 2])), {}),
    "lipschitz_constant": ((T([1, 2, 7]), T([[0, 1, 2], [1, 0, 3], [2, 3, 0]])), {}),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_float64(name):
    tensors, keywords = INTEGERS[name]
    got = getattr(et, name)(*tensors, **keywords)
    assert got.dtype is torch.float64
    want = getattr(isentropic, name)(*(x.numpy() for x in tensors), **keywords)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)


REFUSED = [
    (lambda: et.dual_value(T([1.0]), T([1.0]), T([1.0, 2.0]), T([1.0])), "dual_value: f and a must have equal lengths"),
    (lambda: et.wasserstein_histogram(T([0.5, 0.5]), T([1.0])), "wasserstein_histogram: p and q must have equal lengths"),
    (lambda: et.wasserstein_histogram(T([-0.5, 1.5]), T([0.5, 0.5])), "wasserstein_histogram: p must be at least 0"),
    (lambda: et.wasserstein_histogram(T([-0.5, -0.5]), T([0.5, 0.5])), "wasserstein_histogram: p must be at least 0"),
    (lambda: et.wasserstein(T([[1.0]]), T([[4.0]]), a=T([-1.0])), "wasserstein: a must be finite, at least 0 and not all 0"),
    (lambda: et.wasserstein(T([[1.0]]), T([[4.0, 1.0]])), "wasserstein: y must have as many coordinates as x, 1, got 2"),
    (lambda: et.wasserstein(T([]), T([[4.0]])), "wasserstein: x must have at least one point, got shape (0,)"),
    (lambda: et.sinkhorn_divergence(torch.zeros(2, 0), torch.zeros(3, 0), epsilon=1), "x must have at least one coordinate"),
    (lambda: et.wasserstein_1d(T([1.0, 2.0]), T([3.0]), u_weights=T([1.0, -1.0])), "u_weights must be at least 0 and finite"),
    (lambda: et.wasserstein_1d(T([1.0]), T([3.0]), order=0.5), "order must be at least 1"),
    (lambda: et.lipschitz_constant(T([1.0, 2.0]), T([[0.0, -1.0], [-1.0, 0.0]])), "distance must be at least 0"),
    (lambda: et.optimal_transport([1.0], [1.0], [[1.0]]), "optimal_transport: a must be a torch.Tensor, got list"),
    (lambda: et.wasserstein_1d(T([1j]), T([1.0])), "wasserstein_1d: u must be of float16, bfloat16, float32, float64"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_refused(case):
    call, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        call()


def test_masses_may_differ_as_in_numpy():
    a, b, cost = T([1.0]), T([1.1]), T([[3.0]])
    for call in (et.optimal_transport, functools.partial(et.sinkhorn, epsilon=1.0)):
        with pytest.raises(ValueError, match="a and b must have equal sums"):
            call(a, b, cost)
        assert call(a, b, cost, mass_tolerance=0.2).plan.shape == (1, 1)


HALVES = {
    "optimal_transport": {},
    "partial_transport": {"mass": 0.5},
    "sinkhorn": {"epsilon": 0.5},
    "unbalanced_sinkhorn": {"epsilon": 0.5, "penalty": 1.0},
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_wider(name, dtype):
    """Also beside wider types: the results are those of the same numbers in float32."""
    function = functools.partial(getattr(et, name), **HALVES[name])
    a, b = (x.to(dtype) for x in masses(60, (2, 30), (40,)))
    given = a, b, tensors(61, (30, 40))[0].abs().to(dtype)
    # Masses rounded to halves have sums that differ.
    wide = [x.double() for x in given]
    if name in ("optimal_transport", "sinkhorn"):
        with pytest.raises(ValueError, match="a and b must have equal sums"):
            function(*wide)
        wide[1] = wide[1] * (wide[0].sum(-1, keepdim=True) / wide[1].sum())
    for together in (given, (given[0], given[1].float(), given[2])):
        leaves = [x.clone().requires_grad_() for x in together]
        found, want = function(*leaves), function(*wide)
        assert all(x.dtype in (torch.float32, torch.int64, torch.bool) for x in found if isinstance(x, torch.Tensor))
        assert found.plan.dtype is found[0].dtype is torch.float32
        close = {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(found[0].double(), want[0], **close)
        torch.testing.assert_close(found.plan.double(), want.plan, **close)
        found[0].sum().backward()
        assert [x.grad.dtype for x in leaves] == [x.dtype for x in together]
        assert all(x.grad.isfinite().all() for x in leaves)
    # A tolerance that is given counts.
    if name in ("optimal_transport", "sinkhorn"):
        with pytest.raises(ValueError, match="a and b must have equal sums"):
            function(*given, mass_tolerance=1e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_points_of_halves(dtype):
    x, y, a = (one.to(dtype) for one in tensors(62, (5, 2), (6, 2), (5,)))
    found, want = (et.wasserstein(x.to(kind), y.to(kind), a=a.to(kind).exp()) for kind in (dtype, torch.float64))
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), want, rtol=2e-2, atol=0)


@pytest.mark.parametrize("name", ["optimal_transport", "sinkhorn", "partial_transport", "unbalanced_sinkhorn"])
def test_a_problem_with_nan_is_nan_alone(name):
    params = {"sinkhorn": {"epsilon": 0.1}, "partial_transport": {"mass": 0.6}}
    params = params.get(name, {"epsilon": 0.1, "penalty": 1.0} if name == "unbalanced_sinkhorn" else {})
    function = functools.partial(getattr(et, name), **params)
    a, b = (torch.softmax(torch.randn(3, 4, generator=torch.Generator().manual_seed(k)), -1) for k in range(2))
    cost = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(2))
    spoilt = cost.clone()
    spoilt[1, 2, 0] = torch.nan
    leaf = spoilt.requires_grad_()
    found, alone = function(a, b, leaf), function(a[::2], b[::2], cost[::2])
    for one, other in zip(found, alone, strict=True):
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            assert torch.equal(one[::2], other) and one[1].isnan().all()
    found[0][::2].sum().backward()
    assert leaf.grad[::2].isfinite().all()
    with pytest.raises(ValueError, match="nan"):
        function(a[1], b[1], spoilt[1].detach())


OF_POINTS = {
    "wasserstein": {},
    "wasserstein of masses": {"order": 2.0, "metric": "cosine"},
    "sinkhorn_divergence": {"epsilon": 0.3},
    "unbalanced_sinkhorn_divergence": {"epsilon": 0.3, "penalty": 1.0},
}


@pytest.mark.parametrize("name", OF_POINTS)
def test_points_with_nan_are_nan_alone(name):
    function = functools.partial(getattr(et, name.split()[0]), **OF_POINTS[name])
    x, y, a = tensors(5, (3, 4, 2), (6, 2), (3, 4))
    a, kind = a.exp(), name.split()[0]
    want = function(x[::2], y, a=a[::2])
    for spoil in ("x", "a"):
        given = {"x": x.clone(), "a": a.clone()}
        given[spoil][1, 2] = torch.nan
        moving = given["x"].requires_grad_()
        found = function(moving, y, a=given["a"])
        torch.testing.assert_close(found[::2], want, rtol=1e-12, atol=1e-14)
        assert found[1].isnan()
        found[::2].sum().backward()
        assert moving.grad[::2].isfinite().all()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")(given["x"].detach(), y, a=given["a"])
        torch.testing.assert_close(compiled, found.detach(), equal_nan=True)
        with pytest.raises(ValueError, match=f"^{kind}: {spoil} must be finite.*, got nan at"):
            function(given["x"][1].detach(), y, a=given["a"][1])
    infinite = x.clone()
    infinite[1, 2, 0] = torch.inf
    with pytest.raises(ValueError, match=rf"^{kind}: x must be finite, got inf at point 2, coordinate 0 in problem 1"):
        function(infinite, y, a=a)


def test_rows_with_nan_have_distances_of_nan_alone():
    p, q = (torch.softmax(x, -1) for x in tensors(6, (3, 5), (3, 5)))
    u, v = tensors(7, (3, 5), (3, 5))
    calls = [
        lambda p: et.wasserstein_histogram(p, q),
        lambda p: et.wasserstein_histogram(p, q, normalize=True, order=2.0),
        lambda p: et.wasserstein_histogram(p.T, q.T, period=5.0, dim=0),
        lambda p: et.wasserstein_histogram(p.detach(), q, period=5.0, order=2.0),
        lambda p: et.wasserstein_1d(u, v, u_weights=p),
        lambda p: et.wasserstein_1d(u, v, v_weights=p, order=float("inf")),
    ]
    for call in calls:
        spoilt = p.clone()
        spoilt[1, 3] = torch.nan
        moving = spoilt.requires_grad_()
        found = call(moving)
        assert torch.equal(found[::2], call(p)[::2]) and found[1].isnan()
        if found.requires_grad:
            found[::2].sum().backward()
            assert moving.grad[::2].isfinite().all()
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: p must be at least 0 and finite, got nan"):
        et.wasserstein_histogram(spoilt[1].detach(), q[1])


def test_a_barycenter_of_nan_is_nan_alone():
    p = torch.softmax(tensors(8, (3, 2, 4))[0], -1)
    cost, weights = tensors(9, (4, 4))[0].square(), torch.tensor([0.5, 0.5], dtype=torch.float64)
    want = et.sinkhorn_barycenter(p, cost, epsilon=0.5, weights=weights).barycenter
    spoilt = p.clone()
    spoilt[1, 0, 2] = torch.nan
    moving, shared = spoilt.requires_grad_(), cost.clone().requires_grad_()
    found = et.sinkhorn_barycenter(moving, shared, epsilon=0.5, weights=weights).barycenter
    assert torch.equal(found[::2], want[::2]) and found[1].isnan().all()
    found[::2].square().sum().backward()
    assert moving.grad[::2].isfinite().all() and shared.grad.isfinite().all()
    with pytest.raises(ValueError, match=r"^sinkhorn_barycenter: p must be finite"):
        et.sinkhorn_barycenter(spoilt[1].detach(), cost, epsilon=0.5)


def test_distances_of_points_under_a_compiler():
    """Several problems; an epsilon that is a tensor, whose number a compiler and vmap do not know; a period."""
    x, y = tensors(10, (3, 4, 2), (5, 2))
    epsilon = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    smooth = lambda x, y, epsilon: et.sinkhorn_divergence(x, y, epsilon=epsilon)  # noqa: E731
    want = smooth(x, y, 0.3)
    torch.testing.assert_close(smooth(x, y, epsilon).detach(), want, rtol=1e-9, atol=1e-12)
    compiled = torch.compile(smooth, fullgraph=True, backend="aot_eager")
    found = compiled(x, y, epsilon)
    torch.testing.assert_close(found.detach(), want, rtol=1e-9, atol=1e-12)
    slopes = [torch.autograd.grad(one.sum(), epsilon)[0] for one in (found, smooth(x, y, epsilon))]
    torch.testing.assert_close(*slopes)
    each = torch.func.vmap(smooth, (None, None, 0))(x[0], y, torch.tensor([0.3, 0.6], dtype=torch.float64))
    torch.testing.assert_close(each[1], smooth(x[0], y, 0.6), rtol=1e-9, atol=1e-12)
    for wrong in (0.0, -1.0, torch.nan):
        with pytest.raises(ValueError, match=r"^sinkhorn_divergence: epsilon must be above 0 and finite, got"):
            smooth(x, y, torch.tensor(wrong, requires_grad=True))
    p, q = (torch.softmax(one, -1) for one in tensors(11, (3, 5), (3, 5)))
    circle = lambda p, q: et.wasserstein_histogram(p, q, period=5.0)  # noqa: E731
    torch.testing.assert_close(torch.compile(circle, fullgraph=True, backend="aot_eager")(p, q), circle(p, q))


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (5, 5)])
def test_the_gradient_of_a_tall_plan_is_that_of_the_wide_one(shape):
    """The linear system is of the smaller side: also with empty masses, f and g, and second derivatives."""
    rng = np.random.default_rng(4)
    a, b, cost = (torch.tensor(rng.random(size)) for size in (shape[:1], shape[1:], shape))
    a[1] = 0
    a, b = a / a.sum(), b / b.sum()
    given = [one.requires_grad_() for one in (a, b, cost)]

    def value(a, b, cost):
        found = et.sinkhorn(a, b, cost, epsilon=0.3, tolerance=1e-13)
        return (found.plan**2).sum() + found.cost

    def turned(a, b, cost):
        return value(b, a, cost.mT)

    for one, other in zip(torch.autograd.grad(value(*given), given), torch.autograd.grad(turned(*given), given), strict=True):
        one, other = (x - x.mean() if x.dim() == 1 else x for x in (one, other))
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    torch.autograd.gradgradcheck(lambda cost: value(a.detach(), b.detach(), cost), [given[2]], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("door", ["arrays", "torch", "jax"])
def test_weights_of_one_axis_lie_along_the_samples(door):
    """Whatever the axis: also where there are as many problems as samples."""
    if door == "jax":
        jax = pytest.importorskip("jax")
        module, to, axis = __import__("isentropic.jax").jax, jax.numpy.asarray, "axis"
    else:
        module, to, axis = (et, torch.as_tensor, "dim") if door == "torch" else (isentropic, np.asarray, "axis")
    rng = np.random.default_rng(3)
    u, v, a, b = rng.normal(size=(4, 4, 2)), rng.normal(size=(4, 4, 2)), rng.random(4), rng.random(4)
    for at in (0, 1, -2):
        along = [1] * 3
        along[at] = 4
        want = isentropic.wasserstein_1d(
            u,
            v,
            u_weights=np.broadcast_to(a.reshape(along), u.shape),
            v_weights=np.broadcast_to(b.reshape(along), v.shape),
            axis=at,
        )
        got = module.wasserstein_1d(to(u), to(v), u_weights=to(a), v_weights=to(b), **{axis: at})
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5 if door == "jax" else 1e-12)
    with pytest.raises(ValueError, match=r"u_weights must broadcast to the shape .*\(4, 4, 2\).* got (shape )?\(2,\)"):
        module.wasserstein_1d(to(u), to(v), u_weights=to(rng.random(2)), **{axis: 0})
