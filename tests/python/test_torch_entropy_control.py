"""Entropy control and ratio_map on tensors: the numbers of isentropic, derivatives, and what torch does to a function."""

import doctest
import inspect
import math

import numpy as np
import pytest

import isentropic

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def distribution(*shape, seed=0, dtype=torch.float64):
    return torch.softmax(random(*shape, seed=seed), -1).to(dtype)


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64).reshape(-1, 1)


WEIGHTS = 0.5 + distribution(5, seed=3)
# name: (function of tensors, the same of isentropic, an input).
CALLS = {
    "power_transform": (lambda f, p: f.power_transform(p, gamma=0.7), distribution(3, 5)),
    "gamma_for_entropy": (lambda f, x: f.gamma_for_entropy(x, entropy=1.0)[:2], random(3, 5)),
    "normalize_density": (lambda f, p: f.normalize_density(p, like(f, WEIGHTS), entropy=0.8), distribution(3, 5)),
    "joint": (lambda f, t: f.normalize_joint(t, joint=2.0), distribution(2, 12).reshape(2, 3, 4)),
    "marginal": (lambda f, t: f.normalize_joint(t, marginal=0.9), distribution(2, 12).reshape(2, 3, 4)),
    "conditional": (lambda f, t: f.normalize_joint(t, conditional=1.0), distribution(2, 12).reshape(2, 3, 4)),
    "mean_field_entropy": (lambda f, x: f.mean_field_entropy(x, gamma=0.7), random(3, 5)),
    "ratio_map": (lambda f, x: f.ratio_map(x, torch.square if f is et else np.square), random(3, 5)),
}
each = pytest.mark.parametrize(("call", "x"), CALLS.values(), ids=CALLS)


def like(f, tensor):
    return tensor if f is et else tensor.numpy()


def flat(result):
    return result if isinstance(result, tuple) else (result,)


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_numbers_are_those_of_isentropic(call, x, dtype):
    x = x.to(dtype)
    wide = x.float() if dtype is torch.bfloat16 else x
    for got, want in zip(flat(call(et, x)), flat(call(isentropic, wide.numpy())), strict=True):
        # gamma of halves may be beyond their range, and an entropy is a measure.
        numbers = (CALLS["gamma_for_entropy"][0], CALLS["mean_field_entropy"][0])
        kind = torch.as_tensor(want).dtype if call in numbers else dtype
        want = torch.as_tensor(want).to(kind)
        assert got.dtype is kind and got.shape == want.shape and got.is_contiguous()
        if call is CALLS["ratio_map"][0]:
            torch.testing.assert_close(got, want)  # torch and NumPy add in different orders
        else:
            assert torch.equal(got, want)
    for got, want in zip(flat(call(et, x.clone().requires_grad_())), flat(call(et, x)), strict=True):
        assert torch.equal(got, want)


@each
def test_derivatives(call, x):
    x = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: call(et, x), (x,))
    assert torch.autograd.gradgradcheck(lambda x: call(et, x), (x,))


TARGETS = {
    "power_transform": (lambda p, g: et.power_transform(p, gamma=g), distribution(3, 5), column(0.5, 1.0, 2.0)),
    "entropy": (lambda x, h: et.gamma_for_entropy(x, entropy=h)[:2], random(3, 5), column(0.5, 1.0, 1.3)),
    "perplexity": (lambda x, h: et.gamma_for_entropy(x, perplexity=h)[:2], random(3, 5), column(1.5, 2.0, 4.0)),
    "gamma of probs": (
        lambda p, h: et.gamma_for_entropy(p, entropy=h, input="probs").gamma,
        distribution(3, 5),
        column(0.5, 1.0, 1.3),
    ),
    "normalize_density": (
        lambda p, h: et.normalize_density(p, WEIGHTS, entropy=h),
        distribution(3, 5),
        column(0.5, 0.8, 1.0),
    ),
    "weights": (
        lambda w, h: et.normalize_density(distribution(3, 5), w, entropy=h),
        WEIGHTS.expand(3, 5).clone(),
        column(0.5, 0.8, 1.0),
    ),
    "joint": (lambda t, h: et.normalize_joint(t, joint=h), CALLS["joint"][1], column(2.0, 1.5)[:, 0]),
    "marginal": (lambda t, h: et.normalize_joint(t, marginal=h), CALLS["joint"][1], column(0.9, 0.5)[:, 0]),
    "conditional": (lambda t, h: et.normalize_joint(t, conditional=h), CALLS["joint"][1], column(1.0, 0.7)[:, 0]),
}


@pytest.mark.parametrize(("function", "x", "target"), TARGETS.values(), ids=TARGETS)
def test_derivatives_in_a_target_for_each_row(function, x, target):
    inputs = x.clone().requires_grad_(), target.clone().requires_grad_()
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@each
def test_compiled_and_batched(call, x):
    def function(x):
        return flat(call(et, x))[0]

    def slope(x):
        return torch.func.grad(lambda x: function(x).square().sum())(x)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    given = x.clone().requires_grad_()
    out = compiled(given)
    out.square().sum().backward()
    torch.testing.assert_close(out, function(x))
    torch.testing.assert_close(given.grad, slope(x))
    batch = torch.stack((x, x.flip(-1)), 1)
    for one, got in zip((x, x.flip(-1)), torch.func.vmap(function, in_dims=1)(batch), strict=True):
        torch.testing.assert_close(got, function(one))
    for one, got in zip((x, x.flip(-1)), torch.func.vmap(slope, in_dims=1)(batch), strict=True):
        torch.testing.assert_close(got, slope(one))


def test_operators():
    p, x, ops = distribution(2, 3, 5), random(5, 2).T, torch.ops.isentropic
    rows = 0.5 + torch.rand(2, 3, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for op, arguments in (
        (ops.power_transform, (p, None, 2.0)),
        (ops.power_transform, (p.float(), rows, 1.0)),
        (ops.mean_field_entropy, (x.bfloat16(), 1.0)),
        (ops.gamma_for_entropy, (x, None, None, 1.0, None, (0.0, math.inf), 100, "scores")),
        (ops.gamma_for_entropy, (p.half(), None, 1 + rows, None, 1.0, (0.0, math.inf), 100, "probs")),
        (ops.normalize_density, (p.float(), WEIGHTS.expand(p.shape), None, 0.8)),
        (ops.normalize_joint, (p, None, None, None, None, None, 1.5)),
    ):
        torch.library.opcheck(op.default, arguments, test_utils=("test_schema", "test_faketensor"))


def test_batches_of_some_arguments():
    p, gammas = distribution(3, 5), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    got = torch.func.vmap(lambda p, gamma: et.power_transform(p, gamma=gamma), in_dims=(None, 0))(p, gammas)
    assert torch.equal(got, torch.stack([et.power_transform(p, gamma=gamma) for gamma in gammas]))
    slopes = torch.func.vmap(torch.func.grad(lambda gamma: et.power_transform(p, gamma=gamma)[0, 0]))(gammas)
    assert (slopes != 0).all()
    x = torch.complex(p, -p).conj().imag  # negative by a flag
    assert x.is_neg() and torch.equal(et.mean_field_entropy(x), et.mean_field_entropy(p))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0, math.inf])
def test_zeros_and_ties_of_powers(gamma):
    p = torch.tensor([[0.5, 0.5, 0.0], [0.7, 0.2, 0.1], [-1.0, 1.0, 1.0], [math.nan, 1.0, 1.0], [0.0, 0.0, 0.0]])
    want = torch.from_numpy(isentropic.power_transform(p.numpy(), gamma=gamma))
    given = p.clone().requires_grad_()
    got = et.power_transform(given, gamma=gamma)
    assert torch.equal(got.detach().nan_to_num(-7.0), want.nan_to_num(-7.0))
    (grad,) = torch.autograd.grad((got[:2] * torch.tensor([1.0, 2.0, 4.0])).sum(), given)
    assert grad[:2].isfinite().all() and grad[0, 2] == 0
    assert (grad[:2] != 0).any() == (0 < gamma < math.inf)


def test_gradient_of_mean_field_entropy_in_gamma():
    x, gammas = random(3, 5).requires_grad_(), column(0.0, 0.5, 2.0).requires_grad_()
    value = et.mean_field_entropy(x, gamma=gammas)
    want = torch.stack([et.mean_field_entropy(row, gamma=gamma.item()) for row, gamma in zip(x, gammas, strict=True)])
    torch.testing.assert_close(value, want)
    slopes = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (value, want)]
    torch.testing.assert_close(*slopes)
    (slope,) = torch.autograd.grad(value.sum(), gammas)
    torch.testing.assert_close(slope, x.mean(-1, keepdim=True) - x.amax(-1, keepdim=True))
    inside = x, (gammas + 0.1).detach().requires_grad_()
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x, gamma: et.mean_field_entropy(x, gamma=gamma), inside)
    one = torch.tensor(0.7, requires_grad=True)  # for all rows, of another type
    value = et.mean_field_entropy(x.detach().float().T, gamma=one, dim=0)
    assert value.dtype is torch.float32
    torch.testing.assert_close(value, et.mean_field_entropy(x.detach().float(), gamma=0.7))
    torch.testing.assert_close(torch.autograd.grad(value.sum(), one)[0], slope.sum().float())
    torch.testing.assert_close(
        torch.func.grad(lambda gamma: et.mean_field_entropy(x, gamma=gamma).sum())(one), slope.sum().float()
    )
    inf = math.inf
    special = torch.tensor([[inf, inf, 1.0], [1.0, math.nan, 0.0], [0.0, 0.5, -inf]], dtype=torch.float64)
    value = et.mean_field_entropy(special, gamma=gammas)
    torch.testing.assert_close(value, torch.tensor([math.log(2), math.nan, math.log(2) - 0.5]).double(), equal_nan=True)
    found = torch.autograd.grad(value.sum(), gammas)[0]
    torch.testing.assert_close(found, column(0.0, math.nan, -0.25), equal_nan=True)
    for gamma, text in (
        (column(1.0, -1.0, 2.0), "gamma of row 1 must be at least 0 and finite, got -1"),
        (one.detach() - 1, "got -0.3"),
    ):
        with pytest.raises(ValueError, match=text):
            et.mean_field_entropy(x, gamma=gamma)
    with pytest.raises(ValueError, match="gamma must be a number or a tensor that broadcasts to"):
        et.mean_field_entropy(x, gamma=torch.ones(5))


def test_other_axes():
    x = random(4, 5, 3).transpose(0, 1)
    for dim in range(3):
        assert torch.equal(
            et.power_transform(x.abs(), gamma=2, axis=dim), isentropic.power_transform(x.abs(), gamma=2, axis=dim)
        )
        found, want = et.gamma_for_entropy(x, entropy=0.6, dim=dim), isentropic.gamma_for_entropy(x, entropy=0.6, axis=dim)
        assert torch.equal(found.gamma, want.gamma) and (found.status == want.status).all()
        assert torch.equal(et.mean_field_entropy(x, dim=dim), isentropic.mean_field_entropy(x, axis=dim))
        torch.testing.assert_close(et.ratio_map(x, torch.exp, dim=dim), et.softmax(x, dim=dim))
        weights = 0.3 + distribution(x.shape[dim])
        density, gamma = et.normalize_density(x.abs(), weights, entropy=0.4, dim=dim)
        wanted = isentropic.normalize_density(x.abs(), weights, entropy=0.4, axis=dim)
        assert torch.equal(density, wanted[0]) and torch.equal(gamma, wanted[1])


def test_statuses_and_their_gradients():
    x = torch.tensor(
        [[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [0.0, 1.0, -math.inf], [1.0, 1.0, 1.0], [0.0, 1.0, math.inf], [0.0, math.nan, 1.0]],
        dtype=torch.float64,
    ).requires_grad_()
    target = column(0.9, 0.1, 1.0, 0.5, 0.5, 0.5).requires_grad_()
    found = et.gamma_for_entropy(x, entropy=target)
    assert found.status.tolist() == ["ok", "clamped_low", "clamped_high", "constant", "constant", "invalid"]
    want = isentropic.gamma_for_entropy(x.detach(), entropy=target.detach())
    assert torch.equal(found.gamma.nan_to_num(-7.0), want.gamma.nan_to_num(-7.0))
    dx, dtarget = torch.autograd.grad(found.gamma.sum(), (x, target))
    assert (dx[0] != 0).any() and dtarget[0] != 0
    assert (dx[1:5] == 0).all() and (dtarget[1:5] == 0).all()
    assert dx[5].isnan().all() and dtarget[5].isnan().all()
    assert str(et.gamma_for_entropy(x[0], entropy=0.9).status) == "ok"
    assert et.gamma_for_entropy(torch.zeros(2, 0), entropy=0.5).gamma.isnan().all()


def slope_of_gamma(x, gamma):
    """-gamma u / Var x of gamma_for_entropy at a gamma."""
    p = torch.softmax(gamma * x, -1)
    u = p * (x - (p * x).sum())
    return -gamma * u / (u * x).sum()


def test_gradients_are_those_of_a_rough_gamma():
    x = torch.tensor([0.0, 4.9, 5.0], dtype=torch.float64).requires_grad_()
    found = et.gamma_for_entropy(x, entropy=0.1, max_iterations=2)
    assert found.status == "ok" and abs(found.entropy - 0.1) > 1e-3
    (grad,) = torch.autograd.grad(found.gamma, x)
    torch.testing.assert_close(grad, slope_of_gamma(x.detach(), found.gamma.detach()), rtol=1e-10, atol=1e-12)
    rows = (random(200, 1000) ** 3).requires_grad_()
    (grad,) = torch.autograd.grad(et.gamma_for_entropy(rows, entropy=2.0, max_iterations=1).gamma.sum(), rows)
    assert grad.isfinite().all()


@pytest.mark.parametrize("entropy", [1e-15, 1e-30, 1e-100])
def test_gradients_at_next_to_no_entropy(entropy):
    x = torch.tensor([0.0, 1.0], dtype=torch.float64).requires_grad_()
    gamma = et.gamma_for_entropy(x, entropy=entropy).gamma
    (grad,) = torch.autograd.grad(gamma, x)
    gamma = gamma.detach()
    torch.testing.assert_close(grad, torch.stack((gamma, -gamma)))  # gamma depends on gamma (x_1 - x_0) alone


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1.0, 1e160, 1e308])
def test_gradients_at_scores_of_any_size(size):
    target = torch.tensor(1.0, dtype=torch.float64).requires_grad_()
    x = (torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64) * size).requires_grad_()
    plain = (x.detach() / size).requires_grad_()
    want = et.gamma_for_entropy(plain, entropy=target).gamma
    found = et.gamma_for_entropy(x, entropy=target)
    dx, dtarget = torch.autograd.grad(found.gamma, (x, target))
    plain_dx, plain_dtarget = torch.autograd.grad(want, (plain, target))
    torch.testing.assert_close(dtarget * size, plain_dtarget)
    torch.testing.assert_close(dx, plain_dx / size / size)


@pytest.mark.parametrize("size", [1e-306, 1e-160, 1e160, 1e308])
@pytest.mark.parametrize("target", [{"joint": 1.2}, {"marginal": 0.66}, {"conditional": 0.66}])
def test_gradients_at_tables_of_any_size(size, target):
    plain = torch.tensor([[1.0, 0.5], [0.25, 0.125]], dtype=torch.float64).requires_grad_()
    grads = [torch.autograd.grad(et.normalize_joint(k * plain, **target)[0, 0], plain)[0] for k in (1.0, size)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-12)


def test_powers_of_any_number():
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).requires_grad_()
    q = et.power_transform(p, gamma=0.1)
    (grad,) = torch.autograd.grad(q[0], p)
    q = q.detach()
    want = 0.1 * q / p.detach() * (torch.eye(3, dtype=torch.float64)[0] - q[0])
    torch.testing.assert_close(grad, want, rtol=1e-14, atol=1e-14)
    for dtype in (torch.float32, torch.float64):
        given = p.detach().to(dtype).requires_grad_()
        q = et.power_transform(given, gamma=1e39)
        assert q.tolist() == [1.0, 0.0, 0.0] and (torch.autograd.grad(q[0], given)[0] == 0).all()


NAN_ROWS = {
    "softmax": (lambda x: et.softmax(x), math.nan, -math.inf),
    "power_transform": (lambda x: et.power_transform(x, gamma=2.0), math.nan, 0.0),
    "mean_field_entropy": (et.mean_field_entropy, math.nan, -math.inf),
    "gamma_for_entropy": (lambda x: et.gamma_for_entropy(x, entropy=0.5).gamma, math.nan, -math.inf),
    "the entropy reached": (lambda x: et.gamma_for_entropy(x, entropy=0.5).entropy, math.nan, -math.inf),
    "ratio_map": (lambda x: et.ratio_map(x, torch.square), math.nan, -math.inf),
}


@pytest.mark.parametrize(("function", "wrong", "absent"), NAN_ROWS.values(), ids=NAN_ROWS)
def test_the_gradient_of_a_row_that_is_nan_is_nan(function, wrong, absent):
    x = torch.tensor([[0.2, 0.7, 0.3], [0.2, wrong, 0.3], [absent] * 3], dtype=torch.float64).requires_grad_()
    y = function(x)
    assert y[0].isfinite().all() and y[1:].isnan().all()
    (grad,) = torch.autograd.grad((y.reshape(3, -1)[:, 0]).sum(), x)
    assert grad[0].isfinite().all() and grad[1:].isnan().all()
    assert torch.autograd.gradcheck(function, (x[:1].detach().requires_grad_(),))


@pytest.mark.parametrize("gradients", [False, True])
def test_tensors_without_numbers(gradients):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def shapes(x):
        x = x.requires_grad_(gradients)
        found = et.gamma_for_entropy(x, entropy=0.5)
        assert found.gamma.shape == (2,) and found.status is None
        assert et.ratio_map(x, torch.square).shape == x.shape

    shapes(torch.zeros(2, 3, device="meta"))
    with FakeTensorMode():
        shapes(torch.zeros(2, 3))


def test_targets_as_arrays():
    tables = CALLS["joint"][1]
    want = isentropic.normalize_joint(tables.numpy(), joint=np.array([1.5, 1.6]))
    for value in (
        np.array([1.5, 1.6]),
        np.array([1.6, 1.5])[::-1],
        np.array([1.5, 1.6], ">f8"),
        torch.tensor([1.5, 1.6], dtype=torch.float64),
    ):
        for gradients in (False, True):
            got = et.normalize_joint(tables.clone().requires_grad_(gradients), joint=value)
            assert torch.equal(got.detach(), torch.from_numpy(want))
    for value in (torch.tensor([1.2]), torch.tensor(1.2), np.array([1.2])):
        table = tables[0].clone().requires_grad_()
        got = et.normalize_joint(table, joint=value)
        torch.testing.assert_close(got, et.normalize_joint(table, joint=float(value.item())))
        assert torch.autograd.grad(got[0, 0], table)[0].isfinite().all()
    with pytest.raises(ValueError, match=r"^normalize_joint: joint must be a number or a tensor that broadcasts"):
        et.normalize_joint(tables[0], joint=torch.tensor([1.2, 1.3]))
    with pytest.raises(TypeError, match=r"^normalize_joint: joint must be of float16.* got dtype <U1"):
        et.normalize_joint(tables, joint=np.array(["a", "b"]))


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 0, 3), (0,)])
@pytest.mark.parametrize(
    "function",
    [et.mean_field_entropy, et.power_transform, lambda x, **more: sum(et.gamma_for_entropy(x, entropy=0.5, **more)[:2])],
    ids=["mean_field_entropy", "power_transform", "gamma_for_entropy"],
)
def test_derivatives_of_nothing(function, shape):
    more = {"gamma": 0.5} if function is et.power_transform else {}
    for dim in range(len(shape)):
        x = torch.zeros(shape).requires_grad_()
        y = function(x, dim=dim, **more)
        y.sum().backward()
        assert x.grad.shape == shape
        value, tangent = torch.func.jvp(lambda x, dim=dim: function(x, dim=dim, **more), (x.detach(),), (x.detach(),))
        assert value.shape == tangent.shape == y.shape
        if function is et.mean_field_entropy:
            assert y.isnan().all() and y.shape == shape[:dim] + shape[dim + 1 :]


def test_ratio_map_of_nothing():
    for shape in ((3, 0), (0,), (0, 3)):
        assert et.ratio_map(torch.ones(shape), torch.square).shape == shape


def test_a_gamma_at_the_end_of_its_range_leaves_an_entropy_that_moves():
    x = random(2, 5).requires_grad_()
    found = et.gamma_for_entropy(x, entropy=0.01, gamma_range=(0.5, 2.0))
    assert found.status.tolist() == ["clamped_low", "clamped_low"]
    (grad,) = torch.autograd.grad(found.entropy.sum(), x)
    (want,) = torch.autograd.grad(et.entropy(2 * x, input="scores").sum(), x)
    torch.testing.assert_close(grad, want)


def test_ends_of_densities_and_tables():
    p = torch.tensor([0.2, 0.5, 0.3, 0.0], dtype=torch.float64).requires_grad_()
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64).requires_grad_()
    for entropy, gamma in ((math.log(6.0), 0.0), (math.log(2.0), math.inf)):
        density, found = et.normalize_density(p, weights, entropy=entropy)
        assert found == gamma
        dp, dw = torch.autograd.grad(density.sum(), (p, weights))
        assert (dp == 0).all() and dw.isfinite().all()
    table = torch.tensor([[0.5, 0.1, 0.0], [0.0, 0.0, 0.0], [0.2, 0.1, 0.1]], dtype=torch.float64).requires_grad_()
    for target in ({"joint": 1.2}, {"marginal": 0.5}, {"conditional": 0.6}):
        q = et.normalize_joint(table, **target)
        assert torch.equal(q == 0, table == 0)
        (grad,) = torch.autograd.grad(q[0, 0], table)
        assert grad.isfinite().all() and (grad[table == 0] == 0).all() and (grad != 0).any()


def test_ratio_map_at_infinities():
    x = torch.tensor([[1.0, 2.0, -math.inf], [math.inf, 1.0, math.inf], [-math.inf] * 3, [math.nan, 1.0, 2.0]]).requires_grad_()
    p = et.ratio_map(x, torch.square)
    want = torch.from_numpy(isentropic.ratio_map(x.detach().numpy(), np.square))
    torch.testing.assert_close(p.detach(), want, equal_nan=True)
    (grad,) = torch.autograd.grad(p[0, 0], x)
    assert grad[:2].isfinite().all() and grad[2:].isnan().all()
    assert torch.equal(et.ratio_map(torch.full((2,), 1e200, dtype=torch.float64), torch.abs), torch.full((2,), 0.5).double())


REFUSED = [
    (
        lambda x: et.power_transform(x, gamma=-1.0),
        ValueError,
        r"power_transform: gamma must be at least 0 \(inf is allowed\), got -1",
    ),
    (lambda x: et.power_transform(x, gamma="a"), TypeError, "power_transform: gamma must be a number .*, got str"),
    (lambda x: et.power_transform(x, gamma=torch.ones(3)), ValueError, "power_transform: gamma must be a number or a tensor"),
    (lambda x: et.power_transform(x.long(), gamma=1), TypeError, "power_transform: p must be of float16"),
    (lambda x: et.power_transform(x, gamma=1, dim=2), IndexError, "power_transform: dim 2 is out of bounds"),
    (lambda x: et.gamma_for_entropy(x), ValueError, "gamma_for_entropy: exactly one of entropy and perplexity"),
    (lambda x: et.gamma_for_entropy(x, entropy=-1.0), ValueError, "gamma_for_entropy: entropy must be at least 0"),
    (lambda x: et.gamma_for_entropy(x, entropy=1.0, gamma_range=3), TypeError, "gamma_for_entropy: gamma_range must be a pair"),
    (lambda x: et.gamma_for_entropy(x, entropy=1.0, max_iterations=0), ValueError, "gamma_for_entropy: max_iterations must be"),
    (lambda x: et.normalize_density(x, torch.ones(3), entropy=1), ValueError, "normalize_density: weights must have an entry"),
    (
        lambda x: et.normalize_density(x, torch.ones(4), entropy=9),
        ValueError,
        r"normalize_density: entropy of row 0 must be in",
    ),
    (lambda x: et.normalize_density(x, 1.0, entropy=1), TypeError, "normalize_density: weights must be a torch.Tensor"),
    (lambda x: et.normalize_joint(x), ValueError, "normalize_joint: exactly one of"),
    (lambda x: et.normalize_joint(x, joint=9.0), ValueError, "normalize_joint: joint must be in"),
    (lambda x: et.normalize_joint(x, joint=torch.ones(2)), ValueError, "normalize_joint: joint must be a number or a tensor"),
    (lambda x: et.normalize_joint(x[0], joint=1.0), ValueError, "normalize_joint: pxy must have at least two axes"),
    (lambda x: et.mean_field_entropy(x, gamma=-1.0), ValueError, "mean_field_entropy: gamma must be at least 0"),
    (lambda x: et.mean_field_entropy(x.detach().numpy()), TypeError, "mean_field_entropy: x must be a torch.Tensor"),
    (lambda x: et.ratio_map(x, 3), TypeError, "ratio_map: f must be callable"),
    (
        lambda x: et.ratio_map(x, torch.neg),
        ValueError,
        "ratio_map: f must be at least 0 and finite, got .* at entry . in row 0$",
    ),
    (lambda x: et.ratio_map(x, torch.zeros_like), ValueError, "ratio_map: f must give a positive number somewhere"),
    (lambda x: et.ratio_map(x, torch.sum), ValueError, "ratio_map: f must give a tensor of the shape"),
    (lambda x: et.ratio_map(x, lambda x: 1.0), TypeError, "ratio_map: f must give a torch.Tensor, got float"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
@pytest.mark.parametrize("gradients", [False, True])
def test_refused(call, error, message, gradients):
    x = distribution(2, 4).requires_grad_(gradients)
    with pytest.raises(error, match=f"^{message}"):
        call(x)


@pytest.mark.parametrize(
    "name", ["power_transform", "gamma_for_entropy", "normalize_density", "normalize_joint", "mean_field_entropy", "ratio_map"]
)
def test_public_and_documented(name):
    function = getattr(et, name)
    assert name in et.__all__ and function.__module__ == "isentropic.torch"
    ours = [p for p in inspect.signature(function).parameters if p not in ("dim", "axis")]
    assert ours == [p for p in inspect.signature(getattr(isentropic, name)).parameters if p != "axis"]
    for parameter in ours:
        assert f"\n{parameter} : " in inspect.cleandoc(function.__doc__)
    names = {"isentropic": isentropic, "torch": torch, "math": math}
    test = doctest.DocTestParser().get_doctest(function.__doc__, names, name, None, 0)
    said = []
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gamma_of_halves_has_the_range_of_float32(dtype):
    x = torch.tensor([[0, 1e-5, 2e-5]], dtype=dtype)
    found = et.gamma_for_entropy(x, entropy=0.5)
    assert found.gamma.dtype == found.entropy.dtype == torch.float32 and found.status == "ok"
    torch.testing.assert_close(found.gamma, et.gamma_for_entropy(x.float(), entropy=0.5).gamma)
