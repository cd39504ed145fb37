"""_reductions: what torch does to an operation that gives one number per row, on one that is easy to check."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

from isentropic.torch._reductions import reduced, row_reduction  # noqa: E402
from isentropic.torch.backends import cpu, reference  # noqa: E402


def _cube(tensors, value, gradients, rows, values, dim):
    """a sum p^3 q^2 of each row, by NumPy."""
    p, q = (tensor.detach().numpy() for tensor in tensors)
    a = values[0] if rows[0] is None else rows[0].detach().numpy()
    value.copy_(torch.from_numpy(np.asarray((a * p**3 * q**2).sum(dim))))
    dp, dq, db = gradients
    if dp is not None:
        dp.copy_(torch.from_numpy(3 * a * p**2 * q**2))
        dq.copy_(torch.from_numpy(2 * a * p**3 * q))
    if db is not None:
        db.copy_(torch.from_numpy((p**3 * q**2).sum(dim, keepdims=True)))


def _composed(tensors, params):
    p, q = tensors
    a = params["a"]
    each = p**3 * q**2
    gradients = (3 * a * p**2 * q**2, 2 * a * p**3 * q)
    return (a * each).sum(-1, keepdim=True), gradients, {"a": each.sum(-1, keepdim=True)}


CUBE = row_reduction(
    "test_cube",
    ["p", "q"],
    ["p", "q"],
    {"a": "float"},
    ["a_rows?"],
    implementations={"CPU": cpu.reduction(_cube, (0, 1), rows=1)},
    reference=reference.rows.reduction(_composed, 2, {"params": [{"name": "a", "per_row": True}]}),
)


def cube(p, q, b=None, dim=-1):
    return reduced(CUBE, (p, q), (b,), (2.0,), dim % p.dim())


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def alike(p, dim=-1):
    """b as all rows have it where none is given."""
    return torch.full_like(p.sum(dim, keepdim=True), 2.0)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_value_and_gradients(dim):
    p, q, b = rows(2, 3, 4).requires_grad_(), rows(2, 3, 4, seed=1).requires_grad_(), 2 + rows(2, 3, 4, seed=2)
    b = b.narrow(dim, 0, 1).requires_grad_()
    assert torch.allclose(cube(p, q, dim=dim), 2 * (p**3 * q**2).sum(dim))
    want = (b * p**3 * q**2).sum(dim)
    got = cube(p, q, b, dim)
    assert torch.allclose(got, want)
    weights = rows(*want.shape, seed=3)
    for a, w in zip(torch.autograd.grad(got, (p, q, b), weights), torch.autograd.grad(want, (p, q, b), weights), strict=True):
        assert torch.allclose(a, w)


def test_backward_may_be_asked_in_every_way():
    """The saved gradient only becomes the result if it cannot be used again."""
    p, q, b = (one.requires_grad_() for one in (rows(2, 3), rows(2, 3, seed=1), rows(2, 1, seed=2)))
    inputs, weights = (p, q, b), rows(2, seed=3)
    want = torch.autograd.grad((weights * (b * p**3 * q**2).sum(1)).sum(), inputs)

    def alike(got, factor=1.0):
        return all(torch.allclose(a, factor * w) for a, w in zip(got, want, strict=True))

    kept = cube(p, q, b)
    for _ in range(2):
        got = torch.autograd.grad(kept, inputs, weights, retain_graph=True)
        assert alike(got)
        for one in got:
            one.zero_()
    assert alike(torch.autograd.grad(kept, inputs, 2 * weights), 2)
    got = torch.autograd.grad(cube(p, q, b), inputs, weights, create_graph=True)
    assert alike(got) and all(one.requires_grad for one in got)
    batched = torch.stack([weights, 3 * weights])
    got = torch.autograd.grad(cube(p, q, b), inputs, batched, is_grads_batched=True)
    assert alike([one[0] for one in got]) and alike([one[1] for one in got], 3)
    for _ in range(2):
        (weights * cube(p, q, b)).sum().backward()
    assert alike([one.grad for one in inputs], 2) and not any(one.grad.requires_grad for one in inputs)

    value, dp, *_ = CUBE.op(p, q, None, 2.0, 1, True)
    before = dp.detach().clone()
    torch.autograd.grad(value, p, weights)
    assert torch.equal(dp, before)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda one: packed.append(one.clone()) or len(packed) - 1, packed.__getitem__
    ):
        value = cube(p, q, b)
    assert alike(torch.autograd.grad(value, inputs, weights))
    again = torch.utils.checkpoint.checkpoint(cube, p, q, b, use_reentrant=False)
    assert alike(torch.autograd.grad(again, inputs, weights))


def test_gradcheck_and_gradgradcheck():
    p, q, b = rows(2, 3).requires_grad_(), rows(2, 3, seed=1).requires_grad_(), rows(2, 1, seed=2).requires_grad_()
    for inputs, function in (((p, q), cube), ((p, q, b), cube), ((p, b), lambda p, b: cube(p, q.detach(), b))):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_the_value_and_its_gradients_together():
    """The operator itself gives both; what depends on both has the sum of two derivatives."""
    p, q, b = rows(2, 3).requires_grad_(), rows(2, 3, seed=1).requires_grad_(), rows(2, 1, seed=2).requires_grad_()
    of_value, of_slope = rows(2, seed=3), rows(2, 3, seed=4)
    value, dp, *_ = CUBE.op(p, q, b, 2.0, 1, True)
    got = torch.autograd.grad((of_value * value).sum() + (of_slope * dp).sum(), (p, q, b))
    plain = (of_value * (b * p**3 * q**2).sum(1)).sum() + (of_slope * 3 * b * p**2 * q**2).sum()
    for a, w in zip(got, torch.autograd.grad(plain, (p, q, b)), strict=True):
        assert torch.allclose(a, w)


def test_opcheck():
    p, q, b = rows(2, 3), rows(2, 3, seed=1), rows(2, 1, seed=2)
    for row in (None, b):
        for wanted in (False, True):
            torch.library.opcheck(CUBE.op, (p, q, row, 2.0, 1, wanted))
        inputs = [None if one is None else one.clone().requires_grad_() for one in (p, q, row)]
        torch.library.opcheck(CUBE.op, (*inputs, 2.0, 1, True))
    # Asked for no gradients, it can be differentiated all the same.
    moving = p.clone().requires_grad_()
    (dp,) = torch.autograd.grad(CUBE.op(moving, q, None, 2.0, 1, False)[0].sum(), moving)
    assert torch.allclose(dp, 6 * p**2 * q**2)


def test_transforms():
    p, q, b = rows(4, 3, 5), rows(4, 3, 5, seed=1), rows(4, 3, 1, seed=2)
    for in_dim in (0, 1):
        want = torch.stack([cube(*parts) for parts in zip(p.unbind(in_dim), q.unbind(in_dim), b.unbind(in_dim), strict=True)])
        assert torch.equal(torch.func.vmap(cube, in_dims=in_dim)(p, q, b), want)
    want = torch.stack([cube(p[0], one) for one in q])
    assert torch.equal(torch.func.vmap(cube, in_dims=(None, 0))(p[0], q), want)
    direct = torch.func.vmap(lambda p, q: CUBE.op(p, q, None, 2.0, 1, False)[0])(p, q)
    assert torch.equal(direct, cube(p, q))

    def total(p):
        return cube(p, q, b).sum()

    assert torch.allclose(torch.func.grad(total)(p), 3 * b * p**2 * q**2)
    each = torch.func.vmap(torch.func.grad(lambda p, q, b: cube(p, q, b).sum()))(p, q, b)
    assert torch.allclose(each, 3 * b * p**2 * q**2)
    hessian = torch.func.jacrev(torch.func.grad(lambda p: cube(p, q[0, 0])))(p[0, 0])
    assert torch.allclose(hessian, torch.diag(12 * p[0, 0] * q[0, 0] ** 2))


def test_compile_without_graph_breaks():
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(lambda p, q, b: cube(p * 2, q, b).exp(), fullgraph=True, backend="aot_eager")
        p, q, b = rows(2, 3).requires_grad_(), rows(2, 3, seed=1), rows(2, 1, seed=2)
        got, want = compiled(p, q, b), cube(p * 2, q, b).exp()
        assert torch.equal(got, want)
        assert torch.equal(torch.autograd.grad(got.sum(), p)[0], torch.autograd.grad(want.sum(), p)[0])
        assert torch.equal(compiled(p.detach(), q, b), want)


def test_composed_is_equivalent():
    p, q, b = rows(2, 3), rows(2, 3, seed=1), rows(2, 1, seed=2)
    for row in (None, b):
        for got, want in zip(CUBE._reference(p, q, row, 2.0, 1, True), CUBE.op(p, q, row, 2.0, 1, True), strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert torch.allclose(got, want)
