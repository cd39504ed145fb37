"""maximum_entropy: against closed forms and conditions of the optimum; edges, errors, derivatives."""

import numpy as np
import pytest
from scipy import optimize

import isentropic

DIE = np.arange(1.0, 7.0)[:, None]
of = isentropic.maximum_entropy


@pytest.mark.parametrize("mean", [4.5, 2.5, 3.5, 1.000001, 5.9])
def test_dice(mean):
    found = of(DIE, [mean])
    x = optimize.brentq(lambda x: (x ** (DIE[:, 0] - 3.5)) @ (DIE[:, 0] - mean), 1e-9, 1e9, xtol=1e-15, rtol=1e-15)
    p = x ** DIE[:, 0] / (x ** DIE[:, 0]).sum()
    np.testing.assert_allclose(found.p, p, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(found.multipliers, np.log(x), rtol=1e-6, atol=1e-12)
    assert found.status == "ok" and abs(found.p @ DIE - mean) < 5e-9
    assert found.entropy == pytest.approx(isentropic.entropy(found.p)) == np.log(6) - found.divergence


def test_several_moments_and_a_prior():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(30, 4)) * [1, 1e-6, 1e6, 1] + [0, 0, 0, 1e3]
    prior, law = rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(30))
    prior[3] = 0
    law[3] = 0
    law /= law.sum()
    found = of(features, law @ features, prior=7 * prior)
    spread = np.ptp(features, 0)
    assert (abs(found.p @ features - law @ features) < 1e-9 * spread).all() and found.p[3] == 0
    some = prior > 0
    exponents = np.log(found.p[some] / prior[some] * prior.sum())
    exponents -= features[some] @ found.multipliers
    assert np.ptp(exponents) < 1e-6  # p ~ prior exp(features @ multipliers)
    assert found.divergence == pytest.approx(isentropic.kl_divergence(found.p, prior / prior.sum()), rel=1e-9)
    assert found.divergence <= isentropic.kl_divergence(law, prior / prior.sum()) + 1e-12
    # Nothing is said: the prior itself. Features that depend on each other: the same law.
    np.testing.assert_allclose(of(features, prior / prior.sum() @ features, prior=prior).p, prior / prior.sum(), atol=1e-12)
    twice = np.hstack([features[:, :1], 2 * features[:, :1] + 1])
    one = of(features[:, :1], law @ features[:, :1])
    np.testing.assert_allclose(of(twice, law @ twice).p, one.p, rtol=1e-8)


def test_balancing_a_sample():
    """Weights of 500 controls with the means and squares of 50 treated."""
    rng = np.random.default_rng(1)
    controls, treated = rng.normal(size=(500, 3)), rng.normal(0.4, 0.8, (50, 3))
    features, wanted = (np.hstack([x, x**2]) for x in (controls, treated))
    found = of(features, wanted.mean(0))
    np.testing.assert_allclose(found.p @ features, wanted.mean(0), atol=1e-8)
    assert 50 < 1 / (found.p**2).sum() < 500


def test_problems_and_kinds():
    moments = np.array([[[2.0], [4.5]], [[3.5], [6.0]]])
    found = of(DIE, moments)
    assert found.p.shape == (2, 2, 6) and found.multipliers.shape == (2, 2, 1) and found.entropy.shape == (2, 2)
    assert found.status.tolist() == [["ok", "ok"], ["ok", "clamped"]]
    for at in np.ndindex(2, 2):
        np.testing.assert_array_equal(found.p[at], of(DIE, moments[at]).p)
    priors = np.random.default_rng(2).dirichlet(np.ones(6), (2, 2))
    np.testing.assert_array_equal(of(DIE, moments, prior=priors).p[1, 0], of(DIE, moments[1, 0], prior=priors[1, 0]).p)
    np.testing.assert_array_equal(of(DIE[:, 0].tolist(), 4.5).p, of(DIE, [4.5]).p)


def test_edges():
    for mean, face in ((1, 0), (6, 5)):
        found = of(DIE, [mean])
        assert found.status == "clamped" and found.p[face] == 1 and abs(found.multipliers[0]) == np.inf
        assert found.entropy == 0 and found.divergence == pytest.approx(np.log(6))
    triangle = np.array([[0, 0], [1, 0], [0, 1], [0.3, 0.3], [0.5, 0.5]])
    found = of(triangle, [0.4, 0.6])
    assert found.status == "clamped" and found.p[[0, 3]].tolist() == [0, 0]
    np.testing.assert_allclose(found.p @ triangle, [0.4, 0.6], atol=1e-12)
    assert of(triangle, [0, 0.5]).p[[0, 2]].tolist() == [0.5, 0.5]
    curve = np.stack([np.arange(10.0), np.arange(10.0) ** 2], 1)
    np.testing.assert_allclose(of(curve, [4.5, (16 + 25) / 2]).p[[4, 5]], 0.5)
    for large in (1e308, 5e-324):  # only ratios of the prior count
        np.testing.assert_array_equal(of(DIE, [4.5], prior=np.full(6, large)).p, of(DIE, [4.5], prior=np.ones(6)).p)


def test_refused():
    match = (
        r"^maximum_entropy: moments must be within the reach of the features, got 6.1 for feature 0, which is between 1 and 6$"
    )
    with pytest.raises(ValueError, match=match):
        of(DIE, [6.1])
    with pytest.raises(ValueError, match=r"got 9 for feature 1, which is between 0 and 1 in problem 1$"):
        of(np.array([[0, 0], [1, 1], [0, 1]]), [[0.5, 0.5], [0.5, 9]])
    with pytest.raises(
        ValueError, match=r"^maximum_entropy: moments must be within the reach of the features together, got \[0.6"
    ):
        of(np.array([[0, 0], [1, 0], [0, 1]]), [0.6, 0.6])
    with pytest.raises(ValueError, match=r"^maximum_entropy: features must have shape \(classes, moments\)"):
        of(DIE, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"^maximum_entropy: moments must be finite, got nan at \(0,\)"):
        of(DIE, [np.nan])
    with pytest.raises(ValueError, match=r"^maximum_entropy: prior must be at least 0 and finite, got -1.0 at \(0,\)"):
        of(DIE, [3.0], prior=[-1, 1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match=r"^maximum_entropy: prior must have an entry above 0"):
        of(DIE, [3.0], prior=np.zeros(6))
    with pytest.raises(ValueError, match=r"^maximum_entropy: prior must have shape \(6,\)"):
        of(DIE, [3.0], prior=[1, 1])


def test_derivatives():
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    rng = np.random.default_rng(3)
    features = torch.tensor(rng.normal(size=(7, 2)), requires_grad=True)
    law = rng.dirichlet(np.ones(7), 3)
    moments = torch.tensor(law @ features.detach().numpy(), requires_grad=True)
    prior = torch.tensor(rng.dirichlet(np.ones(7)), requires_grad=True)
    found = et.maximum_entropy(features, moments, prior=prior)
    want = of(features.detach().numpy(), moments.detach().numpy(), prior=prior.detach().numpy())
    for got, wanted in zip(found[:4], want[:4], strict=True):
        np.testing.assert_allclose(got.detach(), wanted, rtol=1e-7, atol=1e-9)
    for k in range(4):
        one = lambda *given, k=k: et.maximum_entropy(given[0], given[1], prior=given[2])[k]  # noqa: E731
        assert torch.autograd.gradcheck(one, (features, moments, prior), atol=1e-4)
        assert torch.autograd.gradgradcheck(one, (features, moments, prior), atol=1e-3, fast_mode=True)
    edge = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    clamped = et.maximum_entropy(torch.tensor(DIE), edge)
    assert clamped.status == "clamped" and torch.autograd.grad(clamped.p.sum(), edge)[0] == 0


def test_jax():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    import isentropic.jax as ej

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(3)
    features, prior, laws = rng.normal(size=(7, 2)), rng.dirichlet(np.ones(7)), rng.dirichlet(np.full(7, 9.0), 3)
    prior[4] = 0
    laws[:, 4] = 0
    moments = laws / laws.sum(1, keepdims=True) @ features
    run = lambda *given: ej.maximum_entropy(given[0], given[1], prior=given[2])[:4]  # noqa: E731
    want = of(features, moments, prior=prior)
    for found in (run(features, moments, prior), jax.jit(run)(features, moments, prior)):
        for got, wanted in zip(found, want[:4], strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)
    # In every argument, forward and backward, of all results; twice; each problem alone, and with features of its own.
    given = features, moments, prior
    v = [rng.normal(size=x.shape) for x in given]
    v[2] *= prior
    moved = [run(*(x + sign * 1e-5 * by for x, by in zip(given, v, strict=True))) for sign in (1, -1)]
    _, tangents = jax.jvp(run, given, tuple(v))
    for got, above, below in zip(tangents, *moved, strict=True):
        np.testing.assert_allclose(got, (above - below) / 2e-5, rtol=1e-6, atol=1e-7)
    total = lambda *given: sum((one**2).sum() for one in run(*given))  # noqa: E731
    gradient = jax.grad(total, (0, 1, 2))
    slopes = jax.jit(gradient)(*given)
    assert sum((g * by).sum() for g, by in zip(slopes, v, strict=True)) == pytest.approx(jax.jvp(total, given, tuple(v))[1])
    moved = [gradient(*(x + sign * 1e-5 * by for x, by in zip(given, v, strict=True))) for sign in (1, -1)]
    for got, above, below in zip(jax.jvp(gradient, given, tuple(v))[1], *moved, strict=True):
        np.testing.assert_allclose(got, (above - below) / 2e-5, rtol=1e-5, atol=1e-5)
    several = jax.vmap(run, (None, 0, None))(features, jnp.stack([moments, moments[::-1]]), prior)
    np.testing.assert_allclose(several[0][1], want.p[::-1], rtol=1e-12)
    scaled = jax.vmap(run, (0, 0, None))(jnp.stack([features, 2 * features]), jnp.stack([moments, 2 * moments]), prior)
    np.testing.assert_allclose(scaled[0][1], want.p, rtol=1e-7)
    np.testing.assert_allclose(scaled[1][1], want.multipliers / 2, rtol=1e-7)
    # An edge, NaN, half types, errors.
    edge = ej.maximum_entropy(DIE, jnp.array([[6.0], [4.5], [np.nan]]))
    assert edge.clamped.tolist() == [True, False, False] and edge.p[0].tolist() == [0, 0, 0, 0, 0, 1]
    assert np.isnan(edge.p[2]).all() and np.isnan(edge.entropy[2]) and np.isfinite(edge.entropy[:2]).all()
    slope = jax.grad(lambda m: ej.maximum_entropy(DIE, m).entropy[:2].sum())(jnp.array([[6.0], [4.5]]))
    assert slope[0] == 0 and slope[1] == pytest.approx(-edge.multipliers[1])
    assert ej.maximum_entropy(DIE.astype(np.float16), jnp.array([4.5], jnp.float16)).p.dtype == jnp.float32
    assert ej.maximum_entropy(DIE[:, 0], 4.5).p.shape == (6,)
    with pytest.raises(Exception, match=r"moments must be within the reach of the features, got 6.1 for feature 0"):
        ej.maximum_entropy(DIE, jnp.array([6.1])).p.block_until_ready()
    with pytest.raises(ValueError, match=r"^maximum_entropy: features must have shape \(classes, moments\)"):
        ej.maximum_entropy(DIE, jnp.array([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"^maximum_entropy: prior must have shape \(6,\)"):
        ej.maximum_entropy(DIE, jnp.array([3.0]), prior=jnp.ones(2))


def test_types_and_batches_without_problems():
    for dtype, wanted in ((np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)):
        found = of(np.arange(1, 7).astype(dtype)[:, None], np.array([4]).astype(dtype))
        assert {one.dtype for one in found[:4]} == {np.dtype(wanted)}
    none = of(DIE, np.zeros((0, 1)))
    assert [one.shape for one in none] == [(0, 6), (0, 1), (0,), (0,), (0,)]
    certain = of(DIE, [6.0])
    assert str(certain.entropy) == "0.0"  # not -0.0
    with pytest.raises(ValueError, match=r"^maximum_entropy: prior must have shape \(6,\), got \(2,\)"):
        of(DIE, [3.0], prior=[1, 2])


def test_torch_under_a_compiler_and_transforms():
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    rng = np.random.default_rng(5)
    features = torch.tensor(rng.normal(size=(6, 2)))
    moments = torch.tensor(rng.dirichlet(np.ones(6), 3)) @ features
    want = et.maximum_entropy(features, moments)
    run = lambda features, moments: et.maximum_entropy(features, moments)[:4]  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    moving = moments.clone().requires_grad_()
    for got, wanted in zip(compiled(features, moving), want[:4], strict=True):
        torch.testing.assert_close(got.detach(), wanted, rtol=1e-9, atol=1e-11)
    (slope,) = torch.autograd.grad(compiled(features, moving)[2].sum(), moving)
    torch.testing.assert_close(slope, -want.multipliers, rtol=1e-7, atol=1e-9)
    each = torch.func.vmap(run, (0, 0))(torch.stack([features, 2 * features]), torch.stack([moments, 2 * moments]))
    torch.testing.assert_close(each[0][1], want.p, rtol=1e-7, atol=1e-9)
    for m in (moments[0], moments[:1], moments[:0], moments[0][None, None]):
        shapes = [one.shape for one in of(features.numpy(), m.numpy())]
        assert [tuple(one.shape) for one in et.maximum_entropy(features, m)] == shapes
    entropy = lambda m: et.maximum_entropy(features, m).entropy  # noqa: E731
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(entropy))(moments), slope, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(torch.func.jacrev(entropy)(moments[0]), torch.func.jacfwd(entropy)(moments[0]))
    # A problem with NaN among several is NaN, and alone refused.
    spoilt = moments.clone()
    spoilt[1, 0] = torch.nan
    found = et.maximum_entropy(features, spoilt.requires_grad_())
    assert torch.equal(found.p[::2], want.p[::2]) and found.p[1].isnan().all() and found.entropy[1].isnan()
    (slope,) = torch.autograd.grad(found.entropy[::2].sum(), spoilt)
    assert slope[::2].isfinite().all()
    with pytest.raises(ValueError, match="maximum_entropy: moments must be finite, got nan"):
        et.maximum_entropy(features, spoilt[1].detach())
    with pytest.raises(ValueError, match=r"maximum_entropy: moments must be within the reach .* in problem 1"):
        et.maximum_entropy(features, torch.tensor([[0.0, 0.0], [99.0, 0.0]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"maximum_entropy: features must have shape \(classes, moments\)"):
        et.maximum_entropy(features, torch.zeros(3))
