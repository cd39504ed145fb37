"""soft_top_k beside its definition in 50 digits, in NumPy, torch and JAX."""

import warnings

import mpmath as mp
import numpy as np
import pytest

import isentropic
from cases import torch_or_skip

INF, NAN = float("inf"), float("nan")


def defined(x, k, temperature):
    with mp.workdps(50):
        x, heat = [mp.mpf(float(one)) for one in x], mp.mpf(temperature)
        low, high = min(x) - 400 * heat - abs(min(x)), max(x) + 400 * heat + abs(max(x))
        for _ in range(400):
            middle = (low + high) / 2
            above = sum(1 / (1 + mp.exp(-(one - middle) / heat)) for one in x) > k
            low, high = (middle, high) if above else (low, middle)
        return [float(1 / (1 + mp.exp(-(one - low) / heat))) for one in x]


@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("offset", [0.0, 1e6, -1e12])
def test_definition(n, scale, offset):
    x = np.random.default_rng(n).standard_normal(n) * scale + offset
    for k in (0.3, 1, 1.5, n - 1, n - 0.01):
        for temperature in (0.1, 5.0) if 0 < k < n else ():
            found = isentropic.soft_top_k(x, k=k, temperature=temperature)
            np.testing.assert_allclose(found, defined(x, k, temperature), atol=1e-14)
            assert found.sum() == pytest.approx(k, rel=1e-13)


@pytest.mark.parametrize(
    ("x", "k", "want"),
    [
        ([1, 2, 3], 3, [1, 1, 1]),
        ([1, 2, 3], 1e300, [1, 1, 1]),
        ([1, -INF, 3], 2, [1, 0, 1]),
        ([0, -INF, 0], 1, [0.5, 0, 0.5]),
        ([INF, 0, 0], 2, [1, 0.5, 0.5]),
        ([INF, INF, 2], 1, [0.5, 0.5, 0]),
        ([INF, INF, 2], 2, [1, 1, 0]),
        ([NAN, 1, 2], 1, [NAN] * 3),
        ([-INF, -INF], 1, [0, 0]),
        ([1e308, -1e308, 0], 1, [1, 0, 0]),
        ([1e308, 1e308, -1e308], 1, [0.5, 0.5, 0]),
        ([4, 4, 4, 4], 1.5, [0.375] * 4),
        ([], 1, []),
    ],
)
def test_edges_in_every_door(x, k, want):
    x = np.array(x, np.float64)
    np.testing.assert_allclose(isentropic.soft_top_k(x, k=k), want, atol=1e-15)
    torch = torch_or_skip()
    import isentropic.torch as et

    moved = torch.tensor(x, requires_grad=True)
    found = et.soft_top_k(moved, k=k)
    np.testing.assert_allclose(found.detach(), want, atol=1e-15)
    found.sum().backward()
    assert bool(moved.grad.isnan().any()) == bool(np.isnan(x).any())
    ej = pytest.importorskip("isentropic.jax")
    import jax

    with jax.enable_x64(True):
        np.testing.assert_allclose(ej.soft_top_k(x, k=k), want, atol=1e-15)
        assert bool(np.isnan(jax.grad(lambda x: ej.soft_top_k(x, k=k).sum())(x)).any()) == bool(np.isnan(x).any())


def test_gradients_beside_infinite_scores_and_in_gaps():
    """+inf takes its share and has no gradient, what is left still competes; in a gap k moves both sides."""
    torch = torch_or_skip()
    import isentropic.torch as et

    ej = pytest.importorskip("isentropic.jax")
    import jax

    for x, k, g, dx, dk in (
        ([INF, 1.0, 0.0], 2, [5.0, 1.0, 0.0], [0, 0.11750185610079726, -0.11750185610079726], 0.5),
        ([INF, INF, 0.0], 1, [5.0, 1.0, 7.0], [0, 0, 0], 3.0),
        ([300.0, 0.0], 1, [1.0, 3.0], [0, 0], 2.0),
        ([4e3, 0.0], 1, [1.0, 3.0], [0, 0], 2.0),  # where all slopes underflow
        ([1e300, -1e300], 1, [1.0, 3.0], [0, 0], 2.0),
        ([0.0, 4e3, 4e3], 2, [7.0, 1.0, 2.0], [0, 0, 0], 4.25),
        ([4e3 + np.log(3), 4e3, 0.0, -np.log(3), -INF], 2, [5.0, 1.0, 4.0, 8.0, NAN], [0] * 5, 3.5),
        ([INF, 9e3, 0.0], 2, [5.0, 1.0, 3.0], [0, 0, 0], 2.0),
        ([1.0, 0.0], 2, [1.0, 3.0], [0, 0], 0.0),
    ):
        x, g = np.array(x), np.array(g)
        y = isentropic.soft_top_k(x, k=k)
        found, slope = isentropic.soft_top_k_vjp(x, y, g, k=k, param_grad=True)
        np.testing.assert_allclose([*found, slope], [*dx, dk], atol=1e-9)
        tensors = [torch.tensor(x, requires_grad=True), torch.tensor([float(k)], dtype=torch.float64, requires_grad=True)]
        got = torch.autograd.grad((et.soft_top_k(tensors[0], k=tensors[1]) * torch.tensor(g)).sum(), tensors)
        np.testing.assert_allclose([*got[0], *got[1]], [*dx, dk], atol=1e-9)
        with jax.enable_x64(True):
            run = jax.grad(lambda x, k, g=g: (ej.soft_top_k(x, k=k) * g).sum(), (0, 1))
            got = run(x, np.array([float(k)]))
            np.testing.assert_allclose([*got[0], *got[1]], [*dx, dk], atol=1e-9)


@pytest.mark.parametrize("gap", [20.0, 40.0, 200.0, 1000.0, 6e4])
def test_gradients_in_gaps_of_any_type(gap):
    """A half rounds shares to 0 and 1 in gaps of a few tens: the gradient in k is that of the exact shares."""
    torch = torch_or_skip()
    import isentropic.torch as et

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([[gap, 0.0, 0.0]], dtype=dtype)
        g = torch.tensor([[1.0, 2.0, 4.0]], dtype=dtype)
        k = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
        heat = torch.tensor([[1.0]], dtype=torch.float64, requires_grad=True)
        (et.soft_top_k(x, k=k, temperature=heat) * g).sum().backward()
        np.testing.assert_allclose(k.grad.item(), 2.0, rtol=3e-3)
        # v - mean v is gap / 2 above and -gap / 2 below; w is sqrt(2) exp(-gap / 2) above, half of it for each score below.
        np.testing.assert_allclose(heat.grad.item(), np.sqrt(2) * gap * np.exp(-gap / 2), rtol=3e-3)


def test_gradients_axes_types_and_transforms():
    torch = torch_or_skip()
    import isentropic.torch as et

    rng = np.random.default_rng(0)
    x, g = rng.standard_normal((3, 6, 2)), rng.standard_normal((3, 6, 2))
    k, heat = np.array([1.5, 2.0, 3.3])[:, None, None], 0.7
    y = isentropic.soft_top_k(x, k=k, temperature=heat, axis=1)
    np.testing.assert_allclose(y.sum(1), np.broadcast_to(k[:, 0], (3, 2)), rtol=1e-13)
    dx = isentropic.soft_top_k_vjp(x, y, g, k=k, temperature=heat, axis=1)
    tensors = [torch.tensor(one, dtype=torch.float64, requires_grad=True) for one in (x, k, heat)]

    def of_tensors(x, k, heat):
        return et.soft_top_k(x, 1, k=k, temperature=heat)

    np.testing.assert_allclose(of_tensors(*tensors).detach(), y, atol=1e-15)
    np.testing.assert_allclose(
        torch.autograd.grad((of_tensors(*tensors) * torch.tensor(g)).sum(), tensors[0])[0], dx, atol=1e-14
    )
    torch.autograd.gradcheck(of_tensors, tensors)
    torch.autograd.gradgradcheck(of_tensors, tensors)
    plain = torch.tensor(x)
    same = torch.func.vmap(lambda x: et.soft_top_k(x, 0, k=2.0))(plain)
    torch.testing.assert_close(same, et.soft_top_k(plain, 1, k=2.0), rtol=0, atol=1e-15)
    compiled = torch.compile(lambda x: et.soft_top_k(x, k=2.0, dim=1), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(plain), et.soft_top_k(plain, 1, k=2.0), rtol=0, atol=1e-14)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert et.soft_top_k(plain.to(dtype), k=1.0).dtype == dtype
    assert isentropic.soft_top_k(x.astype(np.float32), k=1).dtype == np.float32
    ej = pytest.importorskip("isentropic.jax")
    import jax

    with jax.enable_x64(True):
        run = jax.jit(lambda x, k: (ej.soft_top_k(x, k=k, temperature=heat, axis=1) * g).sum())
        np.testing.assert_allclose(jax.grad(run)(x, k), dx, atol=1e-14)
        slope = torch.autograd.grad((of_tensors(*tensors) * torch.tensor(g)).sum(), tensors[1])[0]
        np.testing.assert_allclose(jax.grad(run, 1)(x, k), slope, atol=1e-13)


def test_gradients_of_jax_without_float64():
    """JAX has no float64 unless it is asked for: numbers of formulas must be in float32 too."""
    ej = pytest.importorskip("isentropic.jax")
    import jax

    for x, k in (([1.0, 2.0, 0.5], 2.0), ([50.0, -50.0, 0.0], 1.5), ([3e38, 0.0, -3e38], 1.0)):
        x = np.float32(x)
        g = np.float32([1.0, 0.5, -0.25])
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            dx = jax.grad(lambda x, k=k, g=g: (ej.soft_top_k(x, k=k) * g).sum())(x)
        want = isentropic.soft_top_k_vjp(x, isentropic.soft_top_k(x, k=k), g, k=k)
        np.testing.assert_allclose(dx, want, rtol=1e-5, atol=1e-6)


def test_wrong_numbers_are_refused():
    torch = torch_or_skip()
    import isentropic.torch as et

    ej = pytest.importorskip("isentropic.jax")
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    tensor = torch.tensor(x)
    range_of = "must be above 0 and finite, got"
    above = f"k {range_of}"
    for call, message in (
        (lambda: isentropic.soft_top_k(x, k=0), f"{above} 0"),
        (lambda: isentropic.soft_top_k(x, k=NAN), f"{above} nan"),
        (lambda: isentropic.soft_top_k(x, k=[[1], [-1]]), f"k of row 1 {range_of} -1"),
        (lambda: isentropic.soft_top_k(x, k=[1, 1, 1]), r"k must be .* broadcasts to \(2, 1\)"),
        (lambda: isentropic.soft_top_k(x, k=1, temperature=INF), "temperature must be above 0 and finite, got inf"),
        (lambda: isentropic.soft_top_k(x, k="a"), "k must be a number"),
        (lambda: isentropic.soft_top_k_vjp(x, x[:1], x, k=1), r"y must have the shape of x, where x is \(2, 2\), got \(1, 2\)"),
        (lambda: et.soft_top_k(tensor, k=-1), f"{above} -1"),
        (lambda: et.soft_top_k(tensor, k=torch.tensor([[1.0], [0.0]])), f"k of row 1 {range_of} 0"),
        (lambda: et.soft_top_k(tensor.long(), k=1), "x must be of float16, bfloat16, float32 or float64"),
        (lambda: ej.soft_top_k(x, k=0.0), f"{above} 0"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"soft_top_k.*: {message}"):
            call()
