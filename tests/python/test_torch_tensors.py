"""Tensors of every kind for every differentiable operator: views with gaps, negative ones, zeros that are nowhere in memory,
and those that stand for others, twice."""

import functools
import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import torch.autograd.forward_ad as fw  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import isentropic.torch as et  # noqa: E402
from isentropic import _descriptions  # noqa: E402
from isentropic.torch.backends import PLACES  # noqa: E402
from test_torch_forward import ALONG, CASES, CLASSES, HEADS, MASSES, ONCE, ROWS, TABLE, X, Y, close, random  # noqa: E402

WEIGHT, ALPHA = random(4, 5, seed=4), torch.tensor(1.4, dtype=torch.float64)


def of_one_dim(name, function, inputs):
    """A case of `along_dims`, with a target as a constant."""
    if name in _descriptions.LOSSES:
        return (lambda x: function(x, inputs[1][0], dim=-1)), (inputs[0][0],)
    return functools.partial(function, dim=0), tuple(x[0] for x in inputs)


def with_loss(loss, h, w, *params, reduction="mean"):
    return et.linear_loss(h, w, CLASSES, loss=loss, reduction=reduction, **({"alpha": params[0]} if params else {}))


def barycenter(p):
    return et.sinkhorn_barycenter(p.softmax(-1), MASSES[2] @ MASSES[2].mT, epsilon=0.5).barycenter


def unbalanced(a, b, cost):
    return et.unbalanced_sinkhorn(a.softmax(-1), b.softmax(-1), cost, epsilon=0.3, penalty=1.0).value


def sparse_teacher(x, *temperature):
    classes, log_probs = torch.stack([CLASSES, CLASSES + 2], 1), torch.tensor([[-0.5, -1.5]] * 3, dtype=torch.float64)
    params = {"tail": "renormalize", "temperature": temperature[0]} if temperature else {}
    return et.sparse_distillation_loss(x, classes, log_probs, **params)


def table(name):
    return functools.partial(getattr(et, name), normalize=True), (TABLE,)


TABLES = ("joint_entropy", "conditional_entropy", "mutual_information")
TABLES += ("variation_of_information", "normalized_mutual_information")
OPERATIONS = {name: of_one_dim(name, *case) for name, case in ALONG.items()}
OPERATIONS |= {name: case for name, case in (CASES | ONCE).items() if name not in (*OPERATIONS, "sliced_wasserstein")}
OPERATIONS |= {name: table(name) for name in TABLES}
OPERATIONS |= {
    "softmax temperature": (lambda x, t: et.softmax(x, temperature=t), (X, ROWS)),
    "logsumexp temperature": (lambda x, t: et.logsumexp(x, temperature=t), (X, ROWS)),
    "token_statistics": (lambda x: et.token_statistics(x, CLASSES).logprob, (X,)),
    "token_statistics temperature": (lambda x, t: et.token_statistics(x, CLASSES, temperature=t).entropy, (X, ROWS)),
    "linear_token_statistics": (lambda h, w: et.linear_token_statistics(h, w, CLASSES).logprob, (X, WEIGHT)),
    "linear_token_statistics temperature": (
        lambda h, w, t: et.linear_token_statistics(h, w, CLASSES, temperature=t).entropy,
        (X, WEIGHT, ROWS),
    ),
    "sparse_distillation_loss": (sparse_teacher, (X,)),
    "sparse_distillation_loss temperature": (sparse_teacher, (X, ROWS)),
    "attention of softmax": (et.attention, HEADS),
    "scaled_dot_product_attention": (et.scaled_dot_product_attention, HEADS),
    "linear_attention of all keys": (et.linear_attention, HEADS),
    "linear_loss mean": (functools.partial(with_loss, "softmax_loss"), (X, WEIGHT)),
    "linear_loss alpha": (functools.partial(with_loss, "entmax_loss", reduction="none"), (X, WEIGHT, ALPHA)),
    "doubly_stochastic": (et.doubly_stochastic, (random(3, 4),)),
    "sinkhorn_barycenter": (barycenter, (random(3, 4),)),
    "unbalanced_sinkhorn": (unbalanced, MASSES),
}
each = pytest.mark.parametrize(("function", "inputs"), OPERATIONS.values(), ids=OPERATIONS)


def test_every_differentiable_operator_is_here():
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            seen.add(operator.name())
            return operator(*args, **(kwargs or {}))

    seen = set()
    with Seen():
        for function, inputs in OPERATIONS.values():
            function(*inputs)
    names = {f"isentropic::{name}" for name in PLACES["CPU"]} & set(torch._C._dispatch_get_all_op_names())
    differentiable = {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, "Autograd")}
    assert len(differentiable) > 50
    assert {name for name in differentiable if not name.endswith("_vjp")} <= seen


def views(x):
    """The same numbers with gaps, in another order, and as negatives of what is in memory."""
    yield torch.stack([x, x + 7], -1)[..., 0]
    yield x.mT.contiguous().mT if x.dim() > 1 else torch.stack([x + 7, x])[1]
    yield torch._neg_view(-x)


def gradients(function, inputs, back):
    inputs = [x.detach().requires_grad_() for x in inputs]
    y = function(*inputs)
    assert y.requires_grad
    return y.detach(), torch.autograd.grad(y, inputs, back)


@each
def test_views(function, inputs):
    back = random(*function(*inputs).shape, seed=9)
    want, slopes = gradients(function, inputs, back)
    for *now, now_back in zip(*map(views, (*inputs, back)), strict=True):
        for got in (function(*now), gradients(function, now, now_back)[0]):
            close(got, want, 1e-12)
        for got, slope in zip(gradients(function, now, now_back)[1], slopes, strict=True):
            close(got, slope, 1e-11)


def nowhere(x):
    return torch._efficientzerotensor(x.shape, dtype=x.dtype)


@each
def test_zeros_that_are_nowhere(function, inputs):
    """torch makes such gradients and tangents of what does not depend on something."""
    zero = nowhere(function(*inputs))
    assert not any(one.any() for one in gradients(function, inputs, zero)[1])
    with fw.dual_level():
        tangent = fw.unpack_dual(function(*(fw.make_dual(x, nowhere(x)) for x in inputs))).tangent
        assert tangent is None or not tangent.any()


@each
def test_operators_of_zeros_that_are_nowhere(function, inputs):
    def result(inputs):
        try:
            return function(*inputs)
        except ValueError:
            return None

    got, want = result(map(nowhere, inputs)), result(map(torch.zeros_like, inputs))
    assert (got is None) == (want is None)
    if got is not None:
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize(
    "name", [name for name in OPERATIONS if name not in ONCE and "barycenter" not in name and "unbalanced" not in name]
)
def test_reverse_over_forward_of_a_linear_functional(name):
    """Here the inner tangents meet gradients that are nowhere."""
    function, inputs = OPERATIONS[name]
    back = random(*function(*inputs).shape, seed=9)

    def total(*inputs):
        return (function(*inputs) * back).sum()

    which = tuple(range(len(inputs)))
    got = torch.func.jacrev(torch.func.jacfwd(total, which), which)(*inputs)
    want = torch.func.jacrev(torch.func.grad(total, which), which)(*inputs)
    scale = max(float(one.abs().amax()) for one in itertools.chain(*want))
    for one, other in zip(itertools.chain(*got), itertools.chain(*want), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8 * scale + 1e-13)


@each
def test_a_batch_of_batches(function, inputs):
    stacks = [torch.stack([torch.stack([x, 0.9 * x]), torch.stack([0.8 * x, 0.7 * x])]) for x in inputs]
    want = torch.stack([torch.stack([function(*(x[i, j] for x in stacks)) for j in range(2)]) for i in range(2)])
    close(torch.func.vmap(torch.func.vmap(function))(*stacks), want)
    last = [x.movedim((0, 1), (-1, -2)) for x in stacks]
    close(torch.func.vmap(torch.func.vmap(function, -1), -1)(*last), want)
    back = random(*want.shape[2:], seed=9)

    def slopes(*inputs):
        return torch.func.vjp(function, *inputs)[1](back)

    found = torch.func.vmap(torch.func.vmap(slopes))(*stacks)
    for got, expected in zip(found, slopes(*(x[1, 0] for x in stacks)), strict=True):
        close(got[1, 0], expected)


HESSIANS = [name for name in OPERATIONS if name.startswith(("linear_loss", "token_statistics", "softmax"))]


@pytest.mark.parametrize("name", HESSIANS)
def test_a_batch_of_second_derivatives(name):
    function, inputs = OPERATIONS[name]

    def total(*inputs):
        return function(*inputs).square().sum()

    batch = [torch.stack([x, 0.9 * x]) for x in inputs]
    want = [torch.func.jacrev(torch.func.jacrev(total))(*(x[k] for x in batch)) for k in range(2)]
    for twice in (torch.func.hessian(total), torch.func.jacrev(torch.func.jacrev(total))):
        found = torch.func.vmap(twice)(*batch)
        for got, one in zip(found, want, strict=True):
            close(got, one, 1e-8)


def test_gradients_in_a_batch():
    """One operator's backward for several gradients at once, of which none is in memory as it is."""
    x = X.clone().requires_grad_()
    y = et.token_statistics(x, CLASSES).logprob
    for back in (torch.eye(3, dtype=torch.float64), Y[:, :1].T.expand(2, 3)):
        (got,) = torch.autograd.grad(y, x, back, is_grads_batched=True, retain_graph=True)
        want = torch.stack([torch.autograd.grad(y, x, one, retain_graph=True)[0] for one in back])
        close(got, want)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: et.softmax(x, dim=-1),
        lambda x: et.softmax_loss(x, torch.tensor([1, 1])),
        lambda x: et.entropy(x),
        lambda x: et.attention(x, x, x),
        lambda x: et.sinkhorn(x, x, x, epsilon=1.0),
        lambda x: et.Entmax()(x),
    ],
)
def test_nested_tensors_are_refused_in_words(call):
    parts = [torch.randn(3, 4), torch.randn(2, 4)]
    for layout, advice in ((torch.strided, r"layout=torch\.jagged and pass "), (torch.jagged, "pass ")):
        with pytest.raises(
            TypeError, match=rf"must be a dense tensor, got a nested one of .* layout; .*{advice}\w\.values\(\)"
        ):
            call(torch.nested.nested_tensor(parts, layout=layout))


@pytest.mark.parametrize("dynamo", [True, False])
def test_torch_onnx_export_names_ours(dynamo, tmp_path):
    with pytest.raises(Exception) as error:
        torch.onnx.export(et.Entmax(1.3).eval(), (torch.randn(2, 3),), tmp_path / "map.onnx", dynamo=dynamo, verbose=False)
    assert "entmax: torch.onnx.export cannot write it; use isentropic.onnx.export" in str(error.value)


def test_torch_jit_trace_says_what_it_needs(monkeypatch):
    monkeypatch.setattr("isentropic.torch._builder._said", set())
    with pytest.warns(UserWarning, match=r"torch\.export\.export keeps a program, isentropic\.onnx\.export writes"):
        torch.jit.trace(lambda x: et.softmax(x), torch.zeros(2, 3))
