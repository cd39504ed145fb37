"""et.token_statistics: log-probability, entropy and largest probability of one reading."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic.torch import _token_statistics  # noqa: E402
from isentropic.torch.backends import reference  # noqa: E402
from isentropic.torch.backends.token_statistics import IMPLEMENTATIONS as KERNEL  # noqa: E402


def cases(*shape, dtype=torch.float64, dim=-1, scale=3.0):
    generator = torch.Generator().manual_seed(1)
    x = (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)
    lead = x.select(dim, 0).shape
    return x, torch.randint(0, shape[dim], lead, generator=generator)


def plain(x, target, temperature=1.0, dim=-1):
    log_p = torch.log_softmax(x.double() / temperature, dim)
    entropy = -(log_p.exp() * log_p).sum(dim)
    return log_p.gather(dim, target.unsqueeze(dim)).squeeze(dim), entropy, log_p.amax(dim).exp()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(7,), (5, 33), (3, 4, 100), (3, 40000), (300, 1000)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients(dtype, shape, temperature):
    for dim in {-1, 0}:
        x, target = cases(*shape, dtype=dtype, dim=dim)
        x.requires_grad_()
        found = et.token_statistics(x, target, temperature=temperature, dim=dim)
        want = plain(x, target, temperature, dim)
        tolerance = {"rtol": 1e-12, "atol": 1e-13} if dtype is torch.float64 else {"rtol": 1e-6, "atol": 1e-6}
        for got, expected in zip(found, want, strict=False):
            assert got.dtype is (torch.float64 if dtype is torch.float64 else torch.float32) and got.shape == target.shape
            torch.testing.assert_close(got.double(), expected, **tolerance)
        assert found.top_indices is None and not found.max_probability.requires_grad
        a, b = (torch.randn(target.shape, dtype=torch.float64) for _ in range(2))
        (dx,) = torch.autograd.grad((found.logprob * a + found.entropy * b).sum(), x)
        (expected,) = torch.autograd.grad((want[0] * a + want[1] * b).sum(), x)
        loose = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5 if dtype is torch.float32 else 1e-12)
        assert dx.dtype is dtype
        torch.testing.assert_close(dx.double(), expected.double(), rtol=loose, atol=loose * 1e-1)


def test_small_entropies_keep_their_digits():
    x = torch.tensor([[0.0, -30.0, -31.0]])
    found = et.token_statistics(x, torch.tensor([0]))
    want = plain(x, torch.tensor([0]))
    assert found.entropy.item() == pytest.approx(want[1].item(), rel=1e-6)
    assert found.logprob.item() == pytest.approx(-(math.exp(-30) + math.exp(-31)), rel=1e-6)


EXTREME = [1e-300, 1e-60, 1e-46, 1e-39, 1e30, 1e38, 1e300, 1e308]


def wide_rows(dtype):
    """Ordinary and equal logits, and such whose differences leave the type's range."""
    big = 1.7e308 if dtype is torch.float64 else 3e38
    rows = [
        [0.0, 1.0, 2.0, 3.0],
        [0.0] * 4,
        [5.0, 5.0, -math.inf, 4.0],
        [big, -big, 0.9 * big, 1.0],
        [-big, -0.99 * big, -big, -1.0],
    ]
    return torch.tensor(rows, dtype=dtype)


@pytest.mark.parametrize("temperature", EXTREME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_temperatures_and_logits(dtype, temperature):
    """As softmax and log_softmax have them."""
    x = wide_rows(dtype)
    wide = x if dtype is torch.float64 else x.float()
    of_rows = torch.full((len(x), 1), temperature, dtype=torch.float64)
    log_p, p = et.log_softmax(wide, temperature=temperature), et.softmax(wide, temperature=temperature)
    tolerance = {"rtol": 1e-11, "atol": 1e-11} if dtype is torch.float64 else {"rtol": 1e-5, "atol": 2e-6}
    for token in range(4):
        target = torch.full((len(x),), token)
        found = [
            torch.stack(et.token_statistics(x, target, temperature=temperature)[:3], 1),
            torch.stack(et.token_statistics(x, target, temperature=of_rows)[:3], 1),
            reference.IMPLEMENTATIONS["token_statistics"](x, target, None, temperature, 0, 1)[0][:, :3],
            reference.IMPLEMENTATIONS["token_statistics"](x, target, of_rows, 1.0, 0, 1)[0][:, :3],
        ]
        for one in found:
            torch.testing.assert_close(one[:, 0], log_p[:, token], **tolerance)
            torch.testing.assert_close(one[:, 1], et.entropy(p), **tolerance)
            torch.testing.assert_close(one[:, 2], p.amax(1), **tolerance)


@pytest.mark.parametrize("temperature", [1e-30, 1e-39, 1e-46, 1e30, 1e300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_at_extreme_temperatures(dtype, temperature):
    """Never NaN, and those of log_softmax as far as both are normal numbers."""
    x, target = wide_rows(dtype)[:3].requires_grad_(), torch.tensor([3, 0, 1])
    (found,) = torch.autograd.grad(et.token_statistics(x, target, temperature=temperature).logprob.sum(), x)
    log_p = et.log_softmax(x, temperature=temperature).gather(1, target[:, None])
    (want,) = torch.autograd.grad(log_p[log_p.isfinite()].sum(), x)
    assert not found.isnan().any()
    torch.testing.assert_close(found[:2], want[:2], rtol=1e-5, atol=0 if temperature > 1 else 1e-6 / temperature)


@pytest.mark.parametrize("run", ["kernel", "reference"])
def test_infinite_logits_leave_a_shared_temperature_its_gradient(run):
    x, target = torch.tensor([[math.inf, 0.0], [1.0, 2.0]]), torch.tensor([0, 0])
    temperature = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    if run == "kernel":
        found = et.token_statistics(x, target, temperature=temperature)
        slopes = [torch.autograd.grad(one.sum(), temperature, retain_graph=True)[0] for one in found[:2]]
    else:
        rows = torch.ones(2, 1, dtype=torch.float64)
        known, _ = reference.IMPLEMENTATIONS["token_statistics"](x, target, rows, 1.0, 0, 1)
        grads = (torch.eye(4)[k].expand(2, 4) for k in (0, 1))
        of = reference.IMPLEMENTATIONS["token_statistics_vjp"]
        slopes = [of(x, target, rows, known, grad, 1.0, 0, 1)[1].sum() for grad in grads]
    assert slopes[0].item() == pytest.approx(0.7310585786, rel=1e-6)
    assert slopes[1].item() == pytest.approx(0.1966119332, rel=1e-6)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_bits_do_not_depend_on_the_batch(dim):
    x, _ = cases(16, 16, 16, dtype=torch.float32)
    for count in (1, 3, 7, 15):
        lead = tuple(slice(None if d == dim else count) for d in range(3))
        some, all_of = x[lead].contiguous(), x
        target = torch.zeros(16, 16, dtype=torch.int64)
        found = et.token_statistics(some, target[:count, :count], dim=dim)
        want = et.token_statistics(all_of, target, dim=dim)
        for a, b in zip(found[:3], want[:3], strict=True):
            assert torch.equal(a, b[:count, :count])


def test_temperatures_of_numpy():
    x, target = cases(3, 5)
    for value in (np.float32(0.5), np.float64(0.5), np.int64(2), np.float16(2)):
        found, want = (et.token_statistics(x, target, temperature=t) for t in (value, float(value)))
        assert all(torch.equal(a, b) for a, b in zip(found[:3], want[:3], strict=True))


def rows_of_many_kinds(dtype):
    """Rows with absent tokens, of nearly all mass on one token, nearly equal, large, and with +inf or no distribution."""
    x, _ = cases(14, 9, dtype=dtype)
    inf = math.inf
    x[0, ::2] = -inf
    x[1, 1:] = -inf
    x[2], x[2, 4] = x[2] / 100, 20
    x[3], x[3, 0] = x[3] / 100 - 12, 0
    x[4] = x[4] / 1000
    x[5] = 20 * x[5]
    x[6, 3], x[6, 5] = inf, -inf
    x[7, 2] = x[7, 8] = inf
    x[8] = -inf
    x[9, 1] = math.nan
    return x


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("finite", [True, False], ids=["finite maxima", "all rows"])
def test_the_kernel_is_the_definition(dtype, finite):
    """Each token of each row: values to relative accuracy, also of small entropies, and gradients in logits and in T."""
    x = rows_of_many_kinds(dtype)
    if finite:
        x = x[(x.amax(1) < math.inf) & (x.amax(1) > -math.inf)]
    rows = torch.linspace(0.6, 1.4, len(x), dtype=torch.float64)[:, None]
    kernel, definition = KERNEL, reference.IMPLEMENTATIONS
    eps = max(torch.finfo(dtype).eps, 1e-14) if dtype is not torch.bfloat16 else torch.finfo(torch.float32).eps
    for token in range(x.shape[1]):
        target = torch.full((len(x),), token)
        for temperatures in (None, rows):
            got, _ = kernel["token_statistics"](x, target, temperatures, 1.0, 0, 1)
            want, _ = definition["token_statistics"](x.double(), target, temperatures, 1.0, 0, 1)
            torch.testing.assert_close(got.double(), want, rtol=40 * eps, atol=1e-15, equal_nan=True)
            for column in (0, 1):
                grad = torch.zeros(len(x), 4, dtype=got.dtype)
                grad[:, column] = torch.linspace(0.5, 2, len(x))
                arguments = (x, target, temperatures, got, grad, 1.0, 0, 1)
                found = kernel["token_statistics_vjp"](*arguments)
                exact = (x.double(), target, temperatures, want, grad.double(), 1.0, 0, 1)
                expected = definition["token_statistics_vjp"](*exact)
                near = {"rtol": max(eps, torch.finfo(dtype).eps) * 40, "atol": 40 * eps, "equal_nan": True}
                torch.testing.assert_close(found[0].double(), expected[0], **near)
                if temperatures is not None:
                    torch.testing.assert_close(found[1], expected[1], rtol=100 * eps, atol=100 * eps, equal_nan=True)


def test_infinities():
    inf, nan = math.inf, math.nan
    x = torch.tensor(
        [[0.0, -inf, 1.0], [-inf, -inf, -inf], [inf, 0.0, inf], [nan, 0.0, 0.0], [0.0, 1.0, 2.0]], requires_grad=True
    )
    target = torch.tensor([1, 0, 0, 0, 2])
    found = et.token_statistics(x, target)
    assert found.logprob[0] == -inf and found.entropy[0].isfinite()
    assert all(one[1].isnan() and one[3].isnan() for one in found[:3])
    assert found.logprob[2].item() == pytest.approx(math.log(0.5)) and found.entropy[2].item() == pytest.approx(math.log(2))
    (dx,) = torch.autograd.grad(found.entropy.nan_to_num().sum(), x)
    assert dx[0].isfinite().all() and dx[0, 1] == 0 and dx[4].isfinite().all() and (dx[2] == 0).all()
    alone = x[2:3].detach().requires_grad_()  # a part of rows that have no NaN
    (dx,) = torch.autograd.grad(et.token_statistics(alone, target[2:3]).entropy.sum(), alone)
    assert (dx == 0).all()
    whole = et.token_statistics(x[4:], target[4:])
    for got, want in zip(found, whole, strict=False):
        torch.testing.assert_close(got[4:] if got is not None else None, want)


def test_temperatures_are_learned():
    x, target = cases(4, 6)
    rows = torch.tensor([[0.5], [1.0], [2.0], [3.0]], dtype=torch.float64, requires_grad=True)

    def both(x, t):
        found = et.token_statistics(x, target, temperature=t)
        return found.logprob, found.entropy

    x.requires_grad_()
    assert torch.autograd.gradcheck(both, (x, rows))
    assert torch.autograd.gradgradcheck(both, (x, rows))
    one = torch.nn.Parameter(torch.ones(1))
    et.token_statistics(x, target, temperature=one).logprob.sum().backward()
    assert one.grad.shape == (1,) and one.grad.isfinite().all()
    masked = x.detach().clone()
    masked[0, (target[0] + 1) % 6] = -math.inf
    masked.requires_grad_()
    grads = torch.autograd.grad(sum(one.sum() for one in both(masked, rows)), (masked, rows))
    assert all(grad.isfinite().all() for grad in grads)


def test_transforms_and_compilers():
    x, target = cases(4, 6)
    x.requires_grad_()
    rows = torch.full((4, 1), 0.8, dtype=torch.float64)
    operator = _token_statistics._OPERATOR
    for given in (None, rows.clone().requires_grad_()):
        torch.library.opcheck(operator.op, (x, target, given, 0.8, 2, 1))
    composed = reference.IMPLEMENTATIONS["token_statistics"](x.detach(), target, None, 0.8, 2, 1)
    torch.testing.assert_close(composed, operator.op(x.detach(), target, None, 0.8, 2, 1))
    batched = torch.func.vmap(lambda x, t: et.token_statistics(x, t).entropy)(x, target)
    torch.testing.assert_close(batched, et.token_statistics(x, target).entropy)
    tangent = torch.func.jvp(lambda x: et.token_statistics(x, target).logprob, (x,), (torch.ones_like(x),))[1]
    assert tangent.abs().max() < 1e-12
    torch._dynamo.reset()

    def total(x, t):
        found = et.token_statistics(x, t, top=2)
        return (found.logprob - 0.1 * found.entropy).sum(), found.top_indices

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    (got, top), (want, same) = compiled(x, target), total(x, target)
    assert torch.equal(top, same)
    assert torch.equal(*(torch.autograd.grad(one, x)[0] for one in (got, want)))


def rows_of_many_orders(n):
    """Rows with a few or no ties, of absent tokens, with +inf and NaN, and of one value."""
    x = cases(9, n)[0]
    x[1], x[2] = x[1].round(), (x[2] / 4).round()
    x[3, ::2] = x[4, 1:] = x[5] = -math.inf
    x[6, ::3] = math.inf
    x[7, 1::4], x[7, ::4] = math.nan, math.inf
    x[8] = 0
    return x


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_top_indices(dtype):
    """In falling order, of equal ones the lowest first, NaN as +inf; along any axis, by both implementations."""
    for n in (1, 2, 7, 50, 300):
        x = rows_of_many_orders(n).to(dtype)
        target = torch.zeros(len(x), dtype=torch.int64)
        want = torch.where(x.isnan(), math.inf, x).sort(dim=1, descending=True, stable=True).indices
        for top in {1, 2, 5, n // 2, n - 1, n} & set(range(1, n + 1)):
            assert torch.equal(et.token_statistics(x, target, top=top).top_indices, want[:, :top])
            assert torch.equal(et.token_statistics(x.T, target, top=top, dim=0).top_indices, want.T[:top])
            for some in (KERNEL, reference.IMPLEMENTATIONS):
                assert torch.equal(some["token_statistics"](x, target, None, 1.0, top, 1)[1], want[:, :top])


@pytest.mark.parametrize("content", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_ignored_rows_may_hold_anything(softcap, content):
    x, target = cases(3, 5)
    x, target = x.detach().double(), target.clone()
    x[1] = content
    x.requires_grad_()
    target[1] = -100
    found = et.token_statistics(x, target, softcap=softcap)
    (first,) = torch.autograd.grad(found.logprob.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sin().sum(), x)
    assert not first[1].any() and not second[1].any() and first.isfinite().all() and second.isfinite().all()
    (other,) = torch.autograd.grad(et.token_statistics(x[::2], target[::2], softcap=softcap).logprob.sum(), x)
    torch.testing.assert_close(first, other)


def test_errors():
    x, target = cases(2, 3)
    with pytest.raises(ValueError, match="token_statistics: target must be a class from 0 to 2, got 3 in row 1"):
        et.token_statistics(x, torch.tensor([0, 3]))
    with pytest.raises(TypeError, match="token_statistics: target must be integers"):
        et.token_statistics(x, x)
    with pytest.raises(ValueError, match=r"token_statistics: temperature must be above 0 and finite, got 0\.0"):
        et.token_statistics(x, target, temperature=0.0)
    with pytest.raises(ValueError, match="token_statistics: temperature must be above 0 and finite in every row"):
        et.token_statistics(x, target, temperature=torch.tensor([[1.0], [0.0]]))
    with pytest.raises(ValueError, match="token_statistics: top must be an integer from 0 to 3"):
        et.token_statistics(x, target, top=4)
