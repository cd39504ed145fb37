"""Transport on tensors: the values of entropic, gradients by differences, and a critic's parts."""

import doctest

import numpy as np
import pytest

import entropic
from cases import torch_or_skip

torch = torch_or_skip()
et = pytest.importorskip("entropic.torch")


def tensors(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("order", [1, 1.5, 2, 5, float("inf")])
def test_line(order):
    u, v, a, b = tensors(0, (3, 7), (3, 5), (3, 7), (3, 5))
    a, b = a.exp(), b.exp()
    for weights in ({}, {"u_weights": a}, {"u_weights": a, "v_weights": b}):
        want = entropic.wasserstein_1d(u, v, order=order, **weights)
        np.testing.assert_allclose(et.wasserstein_1d(u, v, order=order, **weights), want, rtol=1e-12)
    moved = et.wasserstein_1d(u.T, v.T, dim=0, order=order)
    np.testing.assert_allclose(moved, entropic.wasserstein_1d(u, v, order=order), rtol=1e-12)
    p, q = a / a.sum(-1, keepdim=True), tensors(1, (3, 7))[0].softmax(-1)
    want = entropic.wasserstein_histogram(p, q, order=order)
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
    _, dp, dq = entropic.wasserstein_histogram(p, q, order=order, return_grad=True)
    np.testing.assert_allclose(leaves[0].grad, dp, atol=1e-12)
    np.testing.assert_allclose(leaves[1].grad, dq, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_points(order):
    x, y = tensors(2, (6, 2), (5, 2))
    assert float(et.wasserstein(x, y, order=order)) == pytest.approx(float(entropic.wasserstein(x, y, order=order)), rel=1e-12)
    x.requires_grad_()
    torch.autograd.gradcheck(lambda x: et.wasserstein(x, y, order=order), [x])
    value = et.sinkhorn_divergence(x, y, epsilon=0.5, order=order)
    assert float(value) == pytest.approx(float(entropic.sinkhorn_divergence(x.detach(), y, epsilon=0.5, order=order)))
    torch.autograd.gradcheck(
        lambda x: et.sinkhorn_divergence(x, y, epsilon=0.5, order=order, tolerance=1e-12), [x], rtol=1e-3, atol=1e-6
    )
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
    assert -loss / norm <= entropic.wasserstein(real.flatten(1), fake.flatten(1)) * (1 + 1e-12)
    et.clip_weights(critic, 0.02)
    assert max(p.abs().max() for p in critic.parameters()) <= 0.02
    flat = torch.zeros(12, dtype=torch.float64, requires_grad=True)
    et.gradient_penalty(lambda z: z.flatten(1) @ flat, real, fake).backward()
    assert torch.isfinite(flat.grad).all()
    with pytest.raises(ValueError, match=r"^gradient_penalty: fake must have the shape of real"):
        et.gradient_penalty(critic, real, fake[:2])


@pytest.mark.parametrize(
    "name",
    [
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
    for test in doctest.DocTestFinder().find(getattr(et, name), name, globs={"entropic": entropic, "torch": torch}):
        runner.run(test)
    assert runner.failures == 0 and runner.tries > 0
