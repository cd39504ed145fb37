"""Where a call goes straight to the kernel, past the operator, everything is as the operator has it."""

import pytest
import torch
import torch.utils.checkpoint

import isentropic
import isentropic.torch as et
from isentropic.torch import _attention, _losses, _maps, _measures, _reductions
from isentropic.torch.backends import cpu

X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
CLASSES = torch.tensor([0, 3, 6, 2, 2])


def maps():
    for name in ("softmax", "log_softmax", "sparsemax", "entmax", "sigsoftmax"):
        yield pytest.param(getattr(et, name), (), id=name)


def reductions():
    for name in ("softmax_loss", "sparsemax_loss", "entmax_loss"):
        yield pytest.param(getattr(et, name), (CLASSES,), id=name)
    yield pytest.param(et.SoftmaxLoss(), (CLASSES,), id="SoftmaxLoss")
    yield pytest.param(et.EntmaxLoss(alpha=1.3), (torch.tensor([0, -100, 6, 2, -100]),), id="EntmaxLoss, ignored rows")
    yield pytest.param(lambda x: et.entropy(x, input="scores"), (), id="entropy")
    yield pytest.param(lambda x: et.kl_divergence(x, X.roll(1, 0), input="scores"), (), id="kl_divergence")


def attentions():
    q, k, v = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(1)).to(torch.float32).unbind()

    def attention(x, **params):
        return et.attention(q.to(x.dtype) + x[0, 0], k.to(x.dtype) * x[1, 0], v.to(x.dtype) - x[2, 0], **params)

    seen = torch.ones(7, 7, dtype=torch.bool).tril(1)
    for what, params in {
        "softmax": {},
        "entmax": {"map": "entmax", "alpha": 1.3, "causal": True},
        "bools": {"mask": seen, "scale": "entropy_invariant"},
        "floats": {"mask": torch.linspace(-1, 1, 49).reshape(7, 7), "scale": 0.5},
    }.items():

        def one(x, params=params):
            mask = params.get("mask")
            cast = mask if mask is None or mask.dtype is torch.bool else mask.to(x.dtype)
            return attention(x, **{**params, "mask": cast})

        yield pytest.param(one, (), id=f"attention, {what}")


@pytest.fixture
def by_operator(monkeypatch):
    """Calls a function only through the operator."""

    def call(function):
        with monkeypatch.context() as patch:
            for module in (_maps, _reductions, _losses, _attention):
                patch.setattr(module, "is_plain", lambda *tensors: False)
            return function()

    return call


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("function", "others"), [*maps(), *reductions(), *attentions()])
def test_values_and_gradients_are_the_operators(function, others, dtype, by_operator):

    def both():
        x = X.to(dtype, copy=True).requires_grad_()
        y = function(x, *others)
        grad = torch.linspace(-1, 2, max(1, y.numel()), dtype=torch.float64).reshape(y.shape).to(y.dtype)
        first = torch.autograd.grad(y, x, grad, retain_graph=True)[0]
        again = torch.autograd.grad(y, x, grad, retain_graph=True)[0]
        batched = torch.autograd.grad(y, x, torch.stack([grad, -grad]), retain_graph=True, is_grads_batched=True)[0]
        last = torch.autograd.grad(y, x, grad)[0]
        return y.detach(), function(X.to(dtype), *others), first, again, last, *batched

    for got, want in zip(both(), by_operator(both), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2 * torch.finfo(got.dtype).eps, atol=0)


@pytest.mark.parametrize(("function", "others"), [*maps(), *reductions(), *attentions()])
def test_second_derivatives_are_the_operators(function, others, by_operator):
    def second():
        x = X.double().requires_grad_()
        y = function(x, *others)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad((first * X).sum(), x)[0]

    torch.testing.assert_close(second(), by_operator(second), rtol=1e-10, atol=1e-12)
    x = X[:2].double().requires_grad_()
    classes = tuple(other[:2] for other in others)
    if getattr(function, "__name__", "") not in ("<lambda>", "one"):
        assert torch.autograd.gradgradcheck(lambda x: function(x, *classes), x)


PARAMETERS = {  # of et.entmax(alpha, temperature); X is of 5 rows
    "a number": ({"alpha": ()}, -1),
    "one for each row": ({"alpha": (5, 1)}, -1),
    "one for each column": ({"alpha": (7,)}, 0),
    "both": ({"alpha": (1, 1), "temperature": (5, 1)}, -1),
    "the second": ({"temperature": ()}, 0),
}


@pytest.mark.parametrize("of_params", [torch.float32, torch.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize(("shapes", "dim"), PARAMETERS.values(), ids=PARAMETERS.keys())
def test_tensors_for_parameters(shapes, dim, learned, dtype, of_params, by_operator):
    def both():
        tensors = {
            name: torch.linspace(1.2, 2.7, max(1, torch.Size(shape).numel()), dtype=of_params)
            .reshape(shape)
            .requires_grad_(learned)
            for name, shape in shapes.items()
        }
        x = X.to(dtype, copy=True).requires_grad_()
        wanted = (x, *tensors.values()) if learned else (x,)
        y = et.entmax(x, dim=dim, **tensors)
        grad = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
        first = torch.autograd.grad(y, wanted, grad, retain_graph=True)
        last = torch.autograd.grad(y, wanted, grad)
        alone = torch.autograd.grad(et.entmax(X.to(dtype), dim=dim, **tensors), wanted[1:], grad) if learned else ()
        return y.detach(), *first, *last, *alone

    for got, want in zip(both(), by_operator(both), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=4 * torch.finfo(got.dtype).eps, atol=1e-12)


def test_second_derivatives_in_parameters(by_operator):
    def second():
        x, alpha = X.double().requires_grad_(), torch.full((5, 1), 1.4, dtype=torch.float64).requires_grad_()
        first = torch.autograd.grad(et.entmax(x, alpha=alpha).square().sum(), (x, alpha), create_graph=True)
        return torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), (x, alpha))

    for got, want in zip(second(), by_operator(second), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_a_parameter_that_was_changed_in_place():
    x, alpha = X.clone().requires_grad_(), torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    y = et.entmax(x, alpha=alpha)
    with torch.no_grad():
        alpha += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y[0, 0].backward()


def test_hooks_of_saved_tensors_and_strides():
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x.clone(), lambda x: x):
        x = X.t().contiguous().t().requires_grad_()
        y = et.softmax(x, dim=0)
        et.softmax_loss(x, CLASSES).sum().backward()
    assert saved
    y.backward(torch.ones(7, 5).t())
    assert torch.isfinite(x.grad).all()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z = et.softmax(x)
        with torch.no_grad():
            z.add_(1)
        z.sum().backward()


def test_a_tensor_of_one_number_is_the_number():
    for alpha in (torch.tensor(1.3, dtype=torch.float64), torch.full((1, 1), 1.3, dtype=torch.float64)):
        assert torch.equal(et.entmax(X, alpha=alpha), et.entmax(X, alpha=1.3))
    with pytest.raises(ValueError, match="alpha must be a number or a tensor that broadcasts to"):
        et.entmax(X, alpha=torch.full((1, 1, 1), 1.3))
    learned = torch.tensor(1.3, requires_grad=True)
    et.entmax(X, alpha=learned)[0, 0].backward()
    assert learned.grad != 0


def test_a_parameter_with_a_gradient_or_of_a_wrong_type_is_not_a_number():
    rate = torch.tensor(0.1, requires_grad=True)
    et.softmax_loss(X, CLASSES, label_smoothing=rate).sum().backward()
    assert rate.grad != 0
    order = torch.tensor(1.5, requires_grad=True)
    et.renyi_entropy(X, alpha=order, input="scores").sum().backward()
    assert order.grad != 0
    for call in (
        lambda: et.softmax(X, temperature="1"),
        lambda: et.softmax_loss(X, CLASSES, label_smoothing=None),
        lambda: et.entropy(X, input="scores", base="e"),
        lambda: et.softmax(X, dim=2),
        lambda: et.softmax_loss(X, CLASSES, ignore_index=1.5),
        lambda: et.attention(X, X, X, scale=None),
        lambda: et.attention(X, X, X[:3]),
    ):
        with pytest.raises((TypeError, IndexError, ValueError), match=r"softmax|entropy|attention"):
            call()


def test_modes_and_subclasses_go_by_the_operator():
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Mine(torch.Tensor):
        pass

    with Watch():
        et.softmax(X), et.entropy(X, input="scores"), et.softmax_loss(X, CLASSES), et.attention(X, X, X)
    for name in ("softmax", "entropy", "softmax_loss", "attention"):
        assert f"isentropic.{name}.default" in seen
    assert type(et.softmax(X.as_subclass(Mine))) is Mine
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        assert torch.autograd.forward_ad.unpack_dual(et.log_softmax(dual)).tangent.abs().max() < 1e-6
        assert torch.autograd.forward_ad.unpack_dual(et.entropy(dual, input="scores")).tangent is not None


def test_as_many_threads_as_torch():
    before = torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            et.softmax(X)
            assert isentropic.get_num_threads() == n
    finally:
        torch.set_num_threads(before)


def test_every_loss_of_classes_and_every_measure_of_rows_is_direct():
    assert set(_losses._OF_CLASSES) <= set(cpu.DIRECT)
    rows = {name for name, one in _measures.DESCRIPTIONS.items() if one["family"] in ("measure", "divergence")}
    assert rows <= set(cpu.DIRECT)


def test_means_of_no_rows_and_of_ignored_rows():
    loss = et.SoftmaxLoss()
    assert loss(X, torch.full((5,), -100)).isnan()
    assert loss(X[:0], CLASSES[:0]).isnan()
    assert loss(X, CLASSES).item() == pytest.approx(torch.nn.functional.cross_entropy(X, CLASSES).item(), rel=1e-6)
    one = X[:1].clone().requires_grad_()
    value = loss(one, CLASSES[:1])
    assert value.shape == ()
    assert value.item() == et.softmax_loss(X[:1], CLASSES[:1]).item()
    torch.testing.assert_close(torch.autograd.grad(value, one)[0][0], et.softmax(X[0]) - torch.eye(7)[0])
    with pytest.raises(ValueError, match="target"):
        loss(X, CLASSES + 7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sparsemax", "entmax", "logsumexp", "sigsoftmax"])
def test_gradients_of_halves_are_of_what_was_not_rounded(name, dtype):
    """Gradients that are nearly equal leave little of J^T g, and of a y that was rounded nothing that is right."""
    generator = torch.Generator().manual_seed(1)
    for shape in ((20, 300), (300, 4096)):
        x = (3 * torch.randn(shape, generator=generator)).to(dtype)
        y = getattr(et, name)(x.double())
        grad = (1 + 0.01 * torch.randn(y.shape, generator=generator)).to(dtype)

        def gradient(x, name=name, grad=grad):
            x = x.clone().requires_grad_()
            return torch.autograd.grad(getattr(et, name)(x), x, grad.to(x.dtype))[0]

        got, want = gradient(x).double(), gradient(x.double())
        eps = torch.finfo(dtype).eps
        assert ((got - want).abs() <= 0.51 * eps * want.abs() + torch.finfo(dtype).smallest_normal * eps + 1e-6).all()


def test_attention_is_as_exact_as_torchs_in_float32():
    """Scores up to 80, for which rounding decides: medians over samples, because a single one is random."""
    errors = {"ours": [], "torch's": []}
    math = torch.nn.attention.SDPBackend.MATH
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        q, k, v, grad = (torch.empty(4, 4, 3, 8).uniform_(-9, 9, generator=generator) for _ in range(4))
        mask = torch.empty(3, 3).uniform_(-9, 9, generator=generator)

        def results(function, dtype, given=(q, k, v), mask=mask, grad=grad):
            tensors = [x.to(dtype, copy=True).requires_grad_() for x in given]
            with torch.nn.attention.sdpa_kernel(math):
                out = function(*tensors, mask.to(dtype))
            return [out.detach(), *torch.autograd.grad(out, tensors, grad.to(dtype))]

        theirs = torch.nn.functional.scaled_dot_product_attention
        exact = results(theirs, torch.float64)
        for who, function in (("ours", lambda q, k, v, mask: et.attention(q, k, v, mask=mask)), ("torch's", theirs)):
            found = results(function, torch.float32)
            errors[who].append([(x - y).abs().max() for x, y in zip(found, exact, strict=True)])
    ours, theirs = (torch.tensor(errors[who]).median(0).values for who in ("ours", "torch's"))
    assert (ours <= theirs).all(), (ours, theirs)


@pytest.mark.parametrize(
    "call", ["softmax_loss(x, y)", "entropy(x, input='scores')", "jsd_loss(x, 2 * x.detach())", "entmax(x)"]
)
def test_checkpointing(call):
    """What checkpointing recomputes is asked for once."""
    x, y = torch.randn(4, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2, 3])
    function = eval(f"lambda x: et.{call}.square().sum()", {"et": et, "y": y})
    torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False).backward()
    again = x.detach().clone().requires_grad_()
    function(again).backward()
    assert torch.equal(x.grad, again.grad)
