"""isentropic.torch's losses: the same numbers as isentropic, under everything that torch does to a function."""

import functools
import inspect
import pickle
import warnings

import numpy as np
import pytest

import isentropic

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic import _descriptions  # noqa: E402
from isentropic.torch._losses import OPERATORS  # noqa: E402
from isentropic.torch.backends import reference  # noqa: E402

DESCRIPTIONS = _descriptions.LOSSES
KINDS = {name: d["target"] for name, d in DESCRIPTIONS.items()}
VARIANTS = [
    ("softmax_loss", {"label_smoothing": 0.1}),
    ("sparsemax_loss", {}),
    *(("entmax_loss", {"alpha": alpha}) for alpha in (0.7, 1.0, 1.3, 2.5)),
    ("top_k_softmax_loss", {"k": 3}),
    ("top_p_softmax_loss", {"p": 0.8}),
    ("smooth_accuracy_loss", {"map": "entmax", "alpha": 1.3}),
    ("surrogate_loss", {"map": "sparsemax"}),
    *(("margin_softmax_loss", {"kind": kind, "scale": 5.0}) for kind in ("am", "arc", "sphere")),
    ("multilabel_softmax_loss", {}),
    ("distillation_loss", {"temperature": 2.0}),
    *(("distillation_loss", {"divergence": one, "temperature": 0.7}) for one in ("reverse_kl", "jsd", "total_variation")),
    ("jsd_loss", {"beta": 0.3}),
]
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in params.items())}" for name, params in VARIANTS]
every_variant = pytest.mark.parametrize(("name", "params"), VARIANTS, ids=IDS)
FUSED = [(variant, identity) for variant, identity in zip(VARIANTS, IDS, strict=True) if variant[0] in OPERATORS]
fused = pytest.mark.parametrize(("name", "params"), [variant for variant, _ in FUSED], ids=[identity for _, identity in FUSED])


def scores(name, *shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (torch.tanh(x) * 0.95 if name == "margin_softmax_loss" else x).to(dtype)


def target_of(name, x, dim=-1, soft=False):
    kind, generator = KINDS[name], torch.Generator().manual_seed(9)
    if kind == "labels":
        return torch.randint(0, 2, x.shape, generator=generator)
    if kind == "scores":
        return torch.randn(x.shape, generator=generator, dtype=torch.float64)
    if soft:
        return torch.softmax(torch.randn(x.shape, generator=generator, dtype=torch.float64), dim)
    return torch.randint(0, x.shape[dim], x.sum(dim).shape, generator=generator)


@every_variant
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_the_numbers_are_those_of_isentropic(name, params, dtype):
    x = scores(name, 4, 3, 6, dtype=dtype)
    x[0, 0, 1] = torch.nan
    x[1, :, 2] = -torch.inf
    for dim in (1, -1):
        target = target_of(name, x, dim)
        if KINDS[name] == "labels":
            target[1, :, 2] = 0
        moving = x.clone().requires_grad_()
        got = getattr(et, name)(moving, target, dim=dim, **params)
        want, want_dx = getattr(isentropic, name)(x.numpy(), target.numpy(), axis=dim, return_grad=True, **params)
        close = {"rtol": 1e-9, "atol": 1e-11} if dtype is torch.float64 else {"rtol": 2e-3, "atol": 2e-3}
        torch.testing.assert_close(got.detach(), torch.from_numpy(want).to(got.dtype), equal_nan=True, **close)
        (dx,) = torch.autograd.grad(got.nan_to_num(posinf=0.0).sum(), moving)
        usual = ~torch.from_numpy(np.isnan(want) | np.isinf(want)).unsqueeze(dim).expand_as(x)
        torch.testing.assert_close(dx[usual], torch.from_numpy(want_dx)[usual], **close)
        assert got.dtype is (torch.float32 if dtype is torch.float16 else dtype) and dx.dtype is dtype


@every_variant
def test_gradcheck_and_gradgradcheck(name, params):
    x = scores(name, 2, 5, seed=3).requires_grad_()
    for soft in (False, True):
        if soft and KINDS[name] != "class or distribution":
            continue
        target = target_of(name, x, soft=soft)
        function = lambda x, target=target: getattr(et, name)(x, target, **params)  # noqa: E731
        if name == "surrogate_loss":  # its value is none of which this is the gradient
            p = et.sparsemax(x)
            q = target if soft else torch.nn.functional.one_hot(target, 5)
            (dx,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
            assert torch.allclose(dx, p - q)
            g = scores(name, 2, 5, seed=4)
            for a, b in zip(torch.autograd.grad(dx, x, g), torch.autograd.grad(p, x, g), strict=True):
                assert torch.allclose(a, b)
            continue
        assert torch.autograd.gradcheck(function, (x,))
        assert torch.autograd.gradgradcheck(function, (x,), rtol=1e-3, atol=1e-5)


def test_alpha_is_learned():
    x, alpha = scores("", 3, 5).requires_grad_(), torch.tensor([[1.2], [1.5], [0.8]], dtype=torch.float64, requires_grad=True)
    for soft in (False, True):
        target = target_of("entmax_loss", x, soft=soft)
        function = lambda x, a, t=target: et.entmax_loss(x, t, alpha=a)  # noqa: E731
        assert torch.autograd.gradcheck(function, (x, alpha))
        assert torch.autograd.gradgradcheck(function, (x, alpha), rtol=1e-3, atol=1e-5)
    module = et.EntmaxLoss(alpha=torch.nn.Parameter(torch.tensor(1.0)))
    module(scores("", 3, 5), torch.tensor([0, 1, 2])).backward()
    assert module.alpha.grad.isfinite()


# Parameters that may be a tensor, with values for three rows.
ROWS = [
    ("softmax_loss", "label_smoothing", [0.0, 0.1, 0.9], {}),
    ("entmax_loss", "alpha", [1.2, 1.5, 0.8], {}),
    ("margin_softmax_loss", "margin", [0.2, 0.35, 0.6], {"scale": 5.0}),
    ("margin_softmax_loss", "margin", [0.2, 0.5, 1.4], {"scale": 5.0, "kind": "arc"}),
    *(("margin_softmax_loss", "scale", [1.0, 5.0, 9.0], {"kind": kind}) for kind in ("am", "arc", "sphere")),
    ("distillation_loss", "temperature", [0.7, 1.0, 4.0], {}),
    *(
        ("distillation_loss", "temperature", [0.7, 1.0, 4.0], {"divergence": one})
        for one in ("reverse_kl", "jsd", "total_variation")
    ),
    ("distillation_loss", "beta", [0.2, 0.5, 0.9], {"divergence": "jsd", "temperature": 1.5}),
    ("jsd_loss", "beta", [0.2, 0.5, 0.9], {}),
]
each_param = pytest.mark.parametrize(("name", "param", "values", "params"), ROWS, ids=["-".join(map(str, one)) for one in ROWS])


def test_no_parameter_is_forgotten():
    listed = {(name, p["name"]) for name, one in DESCRIPTIONS.items() for p in one["params"] if p["per_row"]}
    assert listed == {(name, param) for name, param, _, _ in ROWS}


def _has(param, given):
    return param["name"] in given or param["default"] is not None


@each_param
def test_a_parameter_for_each_row_is_learned(name, param, values, params):
    x = scores(name, 3, 5, seed=3)
    x[0, 1] = -torch.inf
    rows = torch.tensor(values, dtype=torch.float64).unsqueeze(1)
    for soft in (False, True)[: 1 + (KINDS[name] == "class or distribution")]:
        target = target_of(name, x, soft=soft)
        if soft:
            target[0, 1], target[0, 2] = 0.0, target[0, 1] + target[0, 2]
        if KINDS[name] == "scores":
            target[0, 1] = -torch.inf

        def function(x, row, t=target):
            return getattr(et, name)(x, t, **{param: row}, **params)

        moving, row = x.clone().requires_grad_(), rows.clone().requires_grad_()
        value = function(moving, row)
        given = {param: rows.detach().numpy(), "return_grad": True, "param_grad": True, **params}
        want, want_dx, slopes = getattr(isentropic, name)(x.numpy(), target.numpy(), **given)
        if isinstance(slopes, tuple):  # one for each that has a value
            slopes = slopes[[p["name"] for p in DESCRIPTIONS[name]["params"] if p["per_row"] and _has(p, given)].index(param)]
        assert np.array_equal(value.detach(), want)
        dx, d_row = torch.autograd.grad(value.sum(), (moving, row))
        assert np.array_equal(dx, want_dx) and np.array_equal(d_row[:, 0], slopes)
        assert torch.equal(torch.func.vmap(function)(x, rows, target), value)

        inner = scores(name, 3, 5, seed=3).requires_grad_()
        inside = (0.5 * rows + 0.05 if param == "label_smoothing" else rows).requires_grad_()
        smooth = function
        if function(inner, inside).isinf().any():  # which has no differences
            smooth = functools.partial(function, t=target.nan_to_num(neginf=-2.0))
        assert torch.autograd.gradcheck(smooth, (inner, inside))
        # Each entry by itself for classes, a random direction for distributions.
        assert torch.autograd.gradgradcheck(smooth, (inner, inside), rtol=1e-3, atol=1e-5, fast_mode=soft)

        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for got, same in zip(torch.autograd.grad(compiled(moving, row).sum(), (moving, row)), (dx, d_row), strict=True):
            assert torch.equal(got, same)


@each_param
def test_a_parameter_for_each_row_composed(name, param, values, params):
    """The reference beside the kernel, also in rows of infinities, of NaN and of none that count."""
    x = scores(name, 7, 5, seed=3)
    x[1, 1], x[2, 2], x[3, 1] = -torch.inf, torch.nan, 0.5 if name == "margin_softmax_loss" else torch.inf
    target = target_of(name, x)
    if KINDS[name].startswith("class"):
        target[:5] = torch.tensor([0, 1, 0, 0, 2])
        target[4] = -100
    elif KINDS[name] == "scores":
        target[0, 3] = -torch.inf
    described = DESCRIPTIONS[name]["params"]
    row = torch.tensor(values, dtype=torch.float64).repeat(3)[:7].unsqueeze(1)
    rows = [row if p["name"] == param else None for p in described if p["per_row"]]
    numbers = [params.get(p["name"], p["default"]) for p in described] + ([-100] if KINDS[name].startswith("class") else [])
    arguments = x, target, *rows, *numbers, 1, True
    for a, b in zip(reference.IMPLEMENTATIONS[name](*arguments), OPERATORS[name].op(*arguments), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)
    x, row = scores(name, 7, 5, seed=3).requires_grad_(), row.clone().requires_grad_()
    rows = [row if p["name"] == param else None for p in described if p["per_row"]]
    # What a compiler traces, which takes long, once for each operator and parameter.
    once = [one[:2] for one in ROWS].index((name, param)) == ROWS.index((name, param, values, params))
    which = {} if once else {"test_utils": ("test_schema", "test_autograd_registration", "test_faketensor")}
    torch.library.opcheck(OPERATORS[name].op, (x, target.nan_to_num(neginf=0), *rows, *numbers, 1, True), **which)


@fused
def test_opcheck_and_composed(name, params):
    operator = OPERATORS[name].op
    x = scores(name, 3, 5)
    target = target_of(name, x)
    target = target.to(x.dtype) if KINDS[name] == "labels" else target
    described = DESCRIPTIONS[name]["params"]
    values = [params.get(p["name"], p["default"]) for p in described] + ([None] if KINDS[name].startswith("class") else [])
    rows = [None for p in described if p["per_row"]]
    for wanted in (False, True):
        # What a compiler traces, which takes long, once.
        which = {} if wanted else {"test_utils": ("test_schema", "test_autograd_registration", "test_faketensor")}
        torch.library.opcheck(operator, (x.clone().requires_grad_(wanted), target, *rows, *values, 1, wanted), **which)
    y = torch.cat([x, scores(name, 2, 5, seed=8)])
    y[3, 1], y[4, 2] = -torch.inf, torch.nan
    soft = KINDS[name] == "class or distribution"
    targets = [target_of(name, y), *([target_of(name, y, soft=True)] if soft else [])]
    for t in targets:
        t = t.to(y.dtype) if KINDS[name] == "labels" else t
        arguments = y, t, *rows, *values, 1, True
        for a, b in zip(reference.IMPLEMENTATIONS[name](*arguments), operator(*arguments), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)


@every_variant
def test_transforms(name, params):
    x = scores(name, 3, 4, 5, seed=4)
    target = target_of(name, x)
    one = lambda x, t: getattr(et, name)(x, t, **params)  # noqa: E731
    want = x.clone().requires_grad_()
    one(want, target).square().sum().backward()
    assert torch.equal(torch.func.vmap(one)(x, target), one(x, target))
    grad = torch.func.grad(lambda x, t: one(x, t).square().sum())
    assert torch.allclose(grad(x, target), want.grad)
    assert torch.allclose(torch.func.vmap(grad)(x, target), want.grad)


@every_variant
def test_compile_without_graph_breaks(name, params):
    x = scores(name, 3, 7, dtype=torch.float32)
    target = target_of(name, x)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = lambda x, t: getattr(et, name)(x * 0.5, t, **params).mean()  # noqa: E731
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
        got, want = compiled(left, target), function(right, target)
        assert torch.allclose(got, want)
        got.backward()
        want.backward()
        assert torch.allclose(left.grad, right.grad)


@pytest.mark.parametrize("name", ["surrogate_loss", "smooth_accuracy_loss"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_of_a_map_are_of_floats(name, dtype):
    q = torch.tensor([[0.5, 0.25, 0.125, 0.125]] * 5)
    x = (q.log() + 0.02 * scores("", 5, 4).float()).to(dtype).requires_grad_()
    value = getattr(et, name)(x, q.to(dtype))
    wide, dx = getattr(isentropic, name)(x.detach().float().numpy(), q.numpy(), return_grad=True)
    (got,) = torch.autograd.grad(value.sum(), x)
    assert got.dtype is dtype and torch.equal(got, torch.from_numpy(dx).to(dtype))
    assert value.dtype is torch.float32 and torch.allclose(value.detach(), torch.from_numpy(wide), rtol=1e-6, atol=1e-7)


HALVES = [torch.float16, torch.bfloat16]


@every_variant
@pytest.mark.parametrize("half", HALVES)
def test_halves_give_float32(name, params, half):
    """The loss of the numbers that halves hold, not one rounded again: -log p of 8.03 is no 8.0."""
    x = scores(name, 6, 50, dtype=half)
    target = target_of(name, x)
    target = target.to(half) if KINDS[name] == "scores" else target
    wide = target.float() if KINDS[name] == "scores" else target
    moving = x.clone().requires_grad_()
    value = getattr(et, name)(moving, target, **params)
    want = getattr(et, name)(x.float(), wide, **params)
    assert value.dtype is torch.float32
    torch.testing.assert_close(value.detach(), want, rtol=1e-6, atol=1e-6)
    # Small factors, of which a half has few digits: 1e-6 is 17 units of float16's smallest number.
    (dx,) = torch.autograd.grad((value * 1e-3).sum(), moving, retain_graph=True)
    (freed,) = torch.autograd.grad((value * 1e-3).sum(), moving)
    assert dx.dtype is half and torch.equal(dx, freed)
    assert getattr(et, name)(x, target, dtype=half, **params).dtype is half
    assert torch.equal(getattr(et, name)(x, target, dtype=half, **params), value.detach().to(half))
    double = getattr(et, name)(x.float(), wide, dtype=torch.float64, **params)
    assert torch.equal(double, getattr(et, name)(x.double(), wide.double() if wide.is_floating_point() else wide, **params))
    transformed = torch.func.vmap(lambda x, t: getattr(et, name)(x, t, **params))(x, target)
    assert torch.equal(transformed, value.detach())
    tangent = torch.func.jvp(lambda x: getattr(et, name)(x, target, **params), (x,), (torch.ones_like(x),))[1]
    assert tangent.dtype is torch.float32
    with pytest.raises(TypeError, match=f"{name}: dtype must be float16, bfloat16, float32 or float64, got torch.int64"):
        getattr(et, name)(x, target, dtype=torch.int64, **params)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_halves_in_parts(half, dim):
    """Backward multiplies by a gradient of float32 part by part."""
    x = scores("", 700, 300).to(half).requires_grad_()
    target, factor = target_of("softmax_loss", x, dim), scores("", 300 if dim == 0 else 700, seed=1).float()
    (dx,) = torch.autograd.grad((et.softmax_loss(x, target, dim=dim) * factor).sum(), x)
    (kept,) = torch.autograd.grad((et.softmax_loss(x, target, dim=dim) * factor).sum(), x, create_graph=True)
    assert dx.dtype is half and torch.equal(dx, kept)


def test_means_are_summed_in_float32():
    x, target = torch.zeros(5000, 2, dtype=torch.float16), torch.zeros(5000, dtype=torch.long)
    assert et.SoftmaxLoss(reduction="sum")(x, target).item() == pytest.approx(5000 * np.log(2), rel=1e-6)
    mean = et.SoftmaxLoss(dtype=torch.float16)(x, target)
    assert mean.dtype is torch.float16 and mean.item() == pytest.approx(np.log(2), rel=1e-3)
    weighted = et.SoftmaxLoss(torch.tensor([3.0, 1.0]))(x, target)
    assert weighted.dtype is torch.float32 and weighted.item() == pytest.approx(np.log(2), rel=1e-6)


def test_modules_are_like_cross_entropy():
    x = scores("", 8, 5).requires_grad_()
    target = torch.tensor([0, 1, -100, 3, 4, -100, 2, 0])
    weight = torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0], dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        for w in (None, weight):
            theirs = torch.nn.CrossEntropyLoss(weight=w, reduction=reduction)(x, target)
            assert torch.allclose(et.SoftmaxLoss(weight=w, reduction=reduction)(x, target), theirs)
    assert et.SoftmaxLoss()(x, torch.full((8,), -100)).isnan()
    smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.2)(x, target)
    assert torch.allclose(et.SoftmaxLoss(label_smoothing=0.2)(x, target), smooth)
    soft = torch.softmax(scores("", 8, 5, seed=1), -1)
    assert torch.allclose(et.SoftmaxLoss()(x, soft), torch.nn.CrossEntropyLoss()(x, soft))
    images = scores("", 2, 5, 3, 3)
    labels = torch.randint(0, 5, (2, 3, 3))
    assert torch.allclose(et.SoftmaxLoss(dim=1)(images, labels), torch.nn.CrossEntropyLoss()(images, labels))


WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["equal", "weights"])
@pytest.mark.parametrize("target", ["classes", "ignored", "soft", "images"])
def test_weights_and_smoothing_are_those_of_cross_entropy(reduction, smoothing, weight, target):
    settings = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    x, targets = scores("", 6, 5), torch.tensor([0, 1, 2, 3, 4, 4])
    if target == "ignored":
        settings["ignore_index"] = 4
        x[5] = float("nan")  # which is not read
    elif target == "soft":
        targets = torch.softmax(scores("", 6, 5, seed=1), -1)
    elif target == "images":
        x, targets = scores("", 2, 5, 3, 2), torch.arange(12).reshape(2, 3, 2) % 5
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    module = et.SoftmaxLoss(**settings, dim=1)
    value = module(ours, targets)
    if target == "ignored":
        theirs = x.nan_to_num(0).requires_grad_()
    want = torch.nn.CrossEntropyLoss(**settings)(theirs, targets)
    torch.testing.assert_close(value, want, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(y.square().sum(), v, create_graph=True)[0] for y, v in ((value, ours), (want, theirs))]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)
    second = [torch.autograd.grad(d[:3].sin().sum(), v)[0] for d, v in zip(slopes, (ours, theirs), strict=True)]
    torch.testing.assert_close(*(d[:3] for d in second), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("soft", [False, True])
def test_weights_with_learned_smoothing(soft):
    """Also with masks, a factor for each row and z_loss, under a compiler."""
    x, target = scores("", 3, 5), torch.tensor([4, 1, 0])
    x[1, 2] = -float("inf")
    hot = torch.nn.functional.one_hot(target, 5).double()
    if soft:
        target = hot = 0.5 * hot + 0.5 * torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0], dtype=torch.float64)
    smoothing = torch.tensor([[0.0], [0.2], [0.5]], dtype=torch.float64)
    shares = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)

    def expected(x, smoothing):
        present = x > -float("inf")
        q = (1 - smoothing) * hot + smoothing * present / present.sum(-1, keepdim=True)
        of_row = (hot * WEIGHTS).sum(-1)
        terms = torch.where(present, WEIGHTS * q * torch.where(present, x.log_softmax(-1), 0.0), 0.0)
        each = (0.3 * of_row * x.logsumexp(-1).square() - terms.sum(-1)) * shares
        return each.sum() / (shares if soft else shares * of_row).sum()

    module = et.SoftmaxLoss(WEIGHTS, label_smoothing=torch.nn.Parameter(smoothing), z_loss=0.3)
    found, want = x.clone().requires_grad_(), [x.clone().requires_grad_(), smoothing.clone().requires_grad_()]
    gradients = torch.autograd.grad(expected(*want), want)
    torch._dynamo.reset()
    for run in (module, torch.compile(module, fullgraph=True, backend="aot_eager")):
        value = run(found, target, shares)
        torch.testing.assert_close(value, expected(*want))
        torch.testing.assert_close(torch.autograd.grad(value, [found, module.label_smoothing]), gradients)
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and at most 1, got"):
        et.SoftmaxLoss(WEIGHTS, label_smoothing=1.5)(x, target)


def test_weights_and_smoothing_of_infinite_losses():
    inf = float("inf")
    x = torch.tensor([[0.0, -inf, 1.0], [inf, 0.0, 1.0], [-inf, -inf, -inf]], dtype=torch.float64)
    weight, target = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1, 0, 0])
    for smoothing, want in ((0.1, [inf, inf, float("nan")]), (torch.zeros(()), [inf, 0.0, float("nan")])):
        module = et.SoftmaxLoss(weight, label_smoothing=smoothing, reduction="none")
        np.testing.assert_allclose(module(x, target), want)
    assert et.SoftmaxLoss(weight, label_smoothing=1.0, reduction="none")(x, target)[0].isfinite()


# Those of one target: tests/python/test_sparse_losses.py has the others.
MODULES = [name for name in et.__all__ if name.endswith("Loss") and not name.startswith("Sparse")]
NEEDED = {
    "TopKSoftmaxLoss": {"k": 2},
    "TopPSoftmaxLoss": {"p": 0.9},
    **{name: {"in_features": 4, "num_classes": 3} for name in ("AMSoftmaxLoss", "ArcFaceLoss", "SphereFaceLoss")},
}


@pytest.mark.parametrize("class_name", MODULES)
def test_modules(class_name):
    module_class, needed = getattr(et, class_name), NEEDED.get(class_name, {})
    x = scores("", 6, 4).float().requires_grad_()
    module = module_class(**needed)
    target = torch.tensor([0, 1, 2, -100, 1, 0]) if module._takes_classes else (x.detach() > 0).float()
    value = module(x, target)
    value.backward()
    assert x.grad.isfinite().all()
    assert x.grad[3].any() == (not module._takes_classes)
    assert class_name in repr(module)
    if "in_features" in needed:
        params = {"kind": module._kind, "margin": module.margin, "scale": 30.0, "ignore_index": -100}
        assert torch.equal(value, et.margin_softmax_loss(module.cosines(x), target, **params).sum() / 5)
        assert [name for name, _ in module.named_parameters()] == ["classes"]
        assert module(x[:, None], target[:, None]).isfinite()
    with pytest.raises(ValueError, match="reduction must be 'mean', 'sum' or 'none'"):
        module_class(**needed, reduction="all")


@pytest.mark.parametrize("class_name", MODULES)
def test_modules_show_what_they_were_made_with(class_name):
    """Each keyword of the constructor, where it is not what it is by default; a tensor by its shape."""
    others = {
        "weight": torch.ones(3),
        "ignore_index": None,
        "reduction": "sum",
        "dim": 0,
        "dtype": torch.float64,
        "z_loss": 0.5,
    }
    others |= {"map": "sparsemax", "margin": 2, "in_features": 7, "num_classes": 9, "k": 4}
    module_class, needed = getattr(et, class_name), NEEDED.get(class_name, {})
    taken = inspect.signature(module_class).parameters
    for name, how in taken.items():
        if how.kind is how.VAR_KEYWORD or (name in ("device", "dtype") and "in_features" in needed):  # these are of the classes
            continue
        value = others.get(name, 0.3)
        shown = "(3,)" if name == "weight" else repr(value)
        assert f"{name}={shown}" in repr(module_class(**{**needed, name: value})), name
    if "map" in taken:
        assert repr(module_class(map="entmax", alpha=1.2)) == f"{class_name}(map='entmax', alpha=1.2, reduction='mean', dim=-1)"


@pytest.mark.parametrize("class_name", MODULES)
def test_modules_of_shapes_only(class_name):
    """On the meta device, where a module is made before its numbers are loaded."""
    module = getattr(et, class_name)(**NEEDED.get(class_name, {})).to("meta")
    x = torch.empty(6, 4, device="meta", requires_grad=True)
    target = torch.empty(6, dtype=torch.int64, device="meta") if module._takes_classes else torch.empty(6, 4, device="meta")
    value = module(x, target)
    value.backward()
    assert value.is_meta and value.shape == () and x.grad.shape == x.shape


def test_weight_comes_first_and_parameters_by_name():
    """SoftmaxLoss(weight) as torch.nn.CrossEntropyLoss(weight)."""
    x, target, weight = scores("", 4, 3), torch.tensor([0, 1, 2, 2]), torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    assert torch.allclose(et.SoftmaxLoss(weight)(x, target), torch.nn.CrossEntropyLoss(weight)(x, target))
    assert torch.equal(et.SurrogateLoss(weight, map="sparsemax").weight, weight)
    for module_class, positional in ((et.EntmaxLoss, [None, 1.5]), (et.DistillationLoss, [2.0]), (et.ArcFaceLoss, [3, 4, 0.5])):
        with pytest.raises(TypeError, match="positional argument"):
            module_class(*positional)


def test_functions_are_source_that_editors_show():
    assert inspect.getsource(et.softmax_loss).startswith("def softmax_loss(x, target, *, label_smoothing=0.0,")
    assert pickle.loads(pickle.dumps(et.Entmax(alpha=1.2))).alpha == 1.2
    assert pickle.loads(pickle.dumps(et.kl_divergence)) is et.kl_divergence


def test_modules_compile():
    torch._dynamo.reset()
    module = et.ArcFaceLoss(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        x, target = scores("", 6, 4).float(), torch.tensor([0, 1, 2, -100, 1, 0])
        assert torch.allclose(compiled(x, target), module(x, target))


def test_errors_name_the_argument():
    x = torch.zeros(2, 3)
    with pytest.raises(
        TypeError, match=r"softmax_loss: target requires grad, and there is no gradient in it; pass target\.detach"
    ):
        et.softmax_loss(x, torch.full((2, 3), 1 / 3, requires_grad=True))
    with pytest.raises(TypeError, match="margin_softmax_loss: margin requires grad, and there is no gradient in it"):
        margin = torch.tensor(4.0, requires_grad=True)
        et.margin_softmax_loss(x, torch.tensor([0, 1]), kind="sphere", margin=margin)
    with pytest.raises(TypeError, match="distillation_loss: teacher requires grad"):
        et.distillation_loss(x, x.clone().requires_grad_())
    with pytest.raises(ValueError, match=r"got shape \(2,\); classes are integers: pass target\.long\(\)"):
        et.softmax_loss(x, torch.tensor([0.0, 1.0]))
    with pytest.raises(TypeError, match=r"target is on device meta, x on cpu; pass target\.to\(x\.device\)"):
        et.softmax_loss(x, torch.tensor([0, 1], device="meta"))
    with pytest.raises(
        ValueError, match=r"target must have one class for each row, of shape \(2,\), got integers of shape \(3,\)"
    ):
        et.softmax_loss(x, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="target must be a class from 0 to 2, got 7 in row 1"):
        et.softmax_loss(x, torch.tensor([0, 7]))
    with pytest.raises(TypeError, match=r"x must be a torch\.Tensor, got list"):
        et.softmax_loss([0.0], 0)
    with pytest.raises(ValueError, match=r"jsd_loss: teacher must have the shape of student, \(2, 3\), got \(2,\)"):
        et.jsd_loss(x, x[:, 0])
    with pytest.raises(ValueError, match="weight must have one factor for each of 3 classes, got 2"):
        et.SoftmaxLoss(weight=torch.ones(2))(x, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"x must be embeddings of shape \(..., 4\), got \(2, 3\)"):
        et.ArcFaceLoss(4, 3)(x, torch.tensor([0, 1]))


@pytest.mark.parametrize("name", ["smooth_accuracy_loss", "surrogate_loss", "softmax_loss"])
@pytest.mark.parametrize("gradients", [False, True])
def test_rows_of_nothing(name, gradients):
    x = torch.zeros(2, 0)
    got = getattr(et, name)(x.clone().requires_grad_(gradients), x)
    assert got.shape == (2,) and got.isnan().all() and np.isnan(getattr(isentropic, name)(x.numpy(), x.numpy())).all()


@pytest.mark.parametrize("name", ["smooth_accuracy_loss", "surrogate_loss", "softmax_loss"])
def test_targets_that_are_none(name):
    x = torch.randn(2, 3)
    p = torch.softmax(x, 1)
    for target, message in (
        (2 * p, "target must be a distribution in every row, got a sum of"),
        (-p, "target must be at least 0 in every entry"),
        (torch.tensor([0, 3]), "target must be a class from 0 to 2, got 3 in row 1"),
    ):
        with pytest.raises(ValueError, match=f"{name}: {message}"):
            getattr(et, name)(x, target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("classes", [True, False])
def test_weights_of_rows_and_z_loss_of_modules(reduction, classes):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    target = torch.tensor([0, 4, -100, 2, 2, 1]) if classes else et.softmax(torch.randn(6, 5, generator=generator).double())
    shares, by_class = torch.rand(6, generator=generator), torch.rand(5, generator=generator)
    counted = (target != -100) if classes else torch.ones(6, dtype=torch.bool)
    factors = shares.double() * counted
    module = et.SparsemaxLoss(by_class if classes else None, reduction=reduction, z_loss=0.2)
    if classes:
        factors = factors * by_class[target.clamp(min=0)]
    each = et.sparsemax_loss(x, target, **({"ignore_index": -100} if classes else {}))
    each = (each + 0.2 * x.logsumexp(-1).square()) * factors
    want = {"none": each, "sum": each.sum(), "mean": each.sum() / factors.sum()}[reduction]
    torch.testing.assert_close(module(x, target, shares), want)
    torch.testing.assert_close(module(x, target, sample_weight=shares), want)
    want = torch.autograd.grad(want.sum(), x)[0]
    torch.testing.assert_close(torch.autograd.grad(module(x, target, shares).sum(), x)[0], want)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x, target, shares).sum(), x)[0], want)
    for wrong, error, text in (
        ([1.0] * 6, TypeError, "sample_weight must be a torch.Tensor, got list"),
        (shares[:5], ValueError, r"sample_weight must have one factor for each row, of shape \(6,\), got \(5,\)"),
        (shares.clone().requires_grad_(), TypeError, "sample_weight requires grad"),
    ):
        with pytest.raises(error, match=f"SparsemaxLoss: {text}"):
            module(x, target, wrong)
    with pytest.raises(ValueError, match="SoftmaxLoss: z_loss must be at least 0 and finite, got -1"):
        et.SoftmaxLoss(z_loss=-1)


@pytest.mark.parametrize("kind", [et.AMSoftmaxLoss, et.ArcFaceLoss, et.SphereFaceLoss])
def test_the_scale_of_a_margin_is_learned(kind):
    scale = torch.nn.Parameter(torch.tensor([7.0], dtype=torch.float64))
    module = kind(4, 3, scale=scale, dtype=torch.float64)
    x, target = (
        torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
        torch.tensor([0, 2, 1, 1, 0]),
    )
    assert dict(module.named_parameters())["scale"] is scale
    module(x, target).backward()
    with torch.no_grad():
        found, step = scale.grad.clone(), 1e-5
        values = [(scale.add_(by), module(x, target))[1] for by in (step, -2 * step)]
    torch.testing.assert_close(found, ((values[0] - values[1]) / (2 * step)).reshape(1), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", [et.SurrogateLoss, et.SmoothAccuracyLoss])
def test_a_parameter_beside_or_within_the_map(kind):
    x, target = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 4, 1])
    values = []
    for alpha in (torch.nn.Parameter(torch.tensor(1.5)), torch.tensor(1.5), 1.5):
        for module in (kind(map="entmax", alpha=alpha), kind(map=("entmax", {"alpha": alpha}))):
            learned = isinstance(alpha, torch.nn.Parameter)
            assert dict(module.named_parameters()) == ({"alpha": alpha} if learned else {})
            assert list(module.state_dict()) == (["alpha"] if isinstance(alpha, torch.Tensor) else [])
            assert repr(module).startswith(f"{kind.__name__}(map='entmax', alpha=")
            values.append(module(x, target) if kind is et.SmoothAccuracyLoss or not learned else None)
    assert len({float(value.detach()) for value in values if value is not None}) == 1
    with pytest.raises(TypeError, match=f"{kind.__name__}: map 'softmax' has no parameter 'alpha'"):
        kind(alpha=1.5)


MEANS = {
    "softmax": lambda x, t: et.SoftmaxLoss()(x, t),
    "smoothed": lambda x, t: et.SoftmaxLoss(label_smoothing=0.1)(x, t),
    "weighted": lambda x, t: et.SoftmaxLoss(weight=torch.ones(5, dtype=x.dtype))(x, t),
    "z_loss": lambda x, t: et.SoftmaxLoss(z_loss=0.1)(x, t),
    "sparsemax": lambda x, t: et.SparsemaxLoss()(x, t),
    "entmax": lambda x, t: et.EntmaxLoss(alpha=1.3)(x, t),
    "smooth_accuracy": lambda x, t: et.SmoothAccuracyLoss()(x, t),
    "images": lambda x, t: et.SparsemaxLoss(dim=1)(x.T[None], t[None]),
    "linear": lambda x, t: et.linear_loss(x, torch.eye(5, dtype=x.dtype), t),
    "linear sparsemax": lambda x, t: et.linear_loss(x, torch.eye(5, dtype=x.dtype), t, loss="sparsemax_loss"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mean", MEANS.values(), ids=MEANS)
def test_rows_that_are_all_ignored(mean, dtype):
    """As in torch: the mean is NaN, and the gradient 0, so that a batch of padding adds nothing to others."""
    x, ignored = torch.randn(3, 5, dtype=dtype, requires_grad=True), torch.full((3,), -100)
    value = mean(x, ignored)
    value.backward()
    assert value.isnan() and (x.grad == 0).all()
    assert (torch.func.grad(mean)(x.detach(), ignored) == 0).all()
    if dtype is torch.float64:
        (first,) = torch.autograd.grad(mean(x, ignored), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True)
        assert second is None or (second == 0).all()


def _with_options(class_names):
    """(class, options) for all options that the class has."""
    all_options = ({}, {"z_loss": 0.1}, {"label_smoothing": 0.3}, {"z_loss": 0.1, "label_smoothing": 0.3})
    known = {name: inspect.signature(getattr(et, name)).parameters for name in class_names}
    return [(name, options) for name in class_names for options in all_options if set(options) <= set(known[name])]


WITH_CLASSES = _with_options([name for name in MODULES if getattr(et, name)._takes_classes])


@pytest.mark.parametrize("ignore_index", [-100, 255])
@pytest.mark.parametrize(("class_name", "options"), WITH_CLASSES)
def test_weights_take_integers_of_every_type(class_name, options, ignore_index):
    module_class = getattr(et, class_name)
    generator = torch.Generator().manual_seed(1)
    x, target = torch.rand(200, 4, generator=generator), torch.tensor([1, 2, 1, 0, 2]).repeat(40)
    given = NEEDED.get(class_name, {})
    weight = torch.rand(given.get("num_classes", 4), generator=generator)
    for reduction in ("mean", "none"):
        module = module_class(weight=weight, **given, **options, ignore_index=ignore_index, reduction=reduction)
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64):
            classes = target.clone()
            if ignore_index in range(torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1):
                classes[3] = ignore_index
            assert torch.equal(module(x, classes.to(dtype)), module(x, classes)), dtype


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("class_name", "options"), WITH_CLASSES)
def test_no_index_is_ignored(class_name, options, reduction):
    """None, whatever else is given: as an index that no row has."""
    given = {**NEEDED.get(class_name, {}), **options, "reduction": reduction}
    x, target = torch.rand(4, 4), torch.tensor([1, 0, 2, 1])
    shares, classes = torch.tensor([1.0, 2.0, 0.0, 3.0]), torch.ones(given.get("num_classes", 4))
    known = inspect.signature(getattr(et, class_name)).parameters
    for more in ({}, {"dtype": torch.float64}, {"weight": classes}):
        if not set(more) <= set(known) or ("dtype" in more and "num_classes" in given):
            continue
        modules = []
        for index in ({}, {"ignore_index": None}):
            torch.manual_seed(0)
            modules.append(getattr(et, class_name)(**given, **more, **index))
        for weights in (None, shares):
            for scores_ in (x, torch.nn.Parameter(x)):
                assert torch.equal(*(module(scores_, target, weights) for module in modules))
    with pytest.raises(TypeError, match="ignore_index must be an integer or None, got float"):
        getattr(et, class_name)(**given, ignore_index=1.5)


@pytest.mark.parametrize("class_name", ["DistillationLoss", "JSDLoss", "SparseDistillationLoss"])
def test_no_label_is_ignored(class_name):
    student, labels = torch.randn(3, 5), torch.tensor([0, -100, 2])
    teacher = (torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3, 1)) if class_name[0] == "S" else (torch.randn(3, 5),)
    value = getattr(et, class_name)(ignore_index=None)(student, *teacher, labels=labels)
    torch.testing.assert_close(value, getattr(et, class_name)()(student, *teacher))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("other", [torch.float32, torch.float64, "half"])
def test_halves_beside_another_type_keep_its_digits(half, other):
    """A teacher or a distribution of another type is not rounded to the scores' half, and scores beyond its range stay."""
    other = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float16}[half] if other == "half" else other
    x = (3 * torch.randn(3, 8)).to(half).requires_grad_()
    teacher, q = (3 * torch.randn(3, 8)).to(other), torch.softmax(torch.randn(3, 8), -1).to(other)
    large = teacher * (1e5 if other in (torch.float32, torch.float64) else 1)
    for function, target in ((et.distillation_loss, teacher), (et.distillation_loss, large), (et.jsd_loss, teacher)):
        found = function(x, target)
        torch.testing.assert_close(found, function(x.float(), target.float()))
        (slope,) = torch.autograd.grad(found.sum(), x)
        assert slope.dtype == half
    module = et.DistillationLoss()
    torch.testing.assert_close(module(x, teacher, torch.ones(3)), module(x.float(), teacher.float(), torch.ones(3)))
    if other in (torch.float32, torch.float64):
        for loss in (et.softmax_loss, functools.partial(et.smooth_accuracy_loss, map="softmax")):
            torch.testing.assert_close(loss(x, q), loss(x.float(), q.float()))
        same = x.detach().float().softmax(-1)
        assert (et.entmax_loss(x, same, alpha=1.0).abs() < 1e-6).all()


def test_a_class_of_one_byte_is_not_ignored():
    """torch reads -100 as 156 beside a uint8."""
    x, target = torch.zeros(2, 200), torch.tensor([156, 0])
    for options in ({}, {"z_loss": 0.1}, {"weight": torch.ones(200)}, {"dtype": torch.float64}):
        module = et.SoftmaxLoss(**options)
        assert torch.equal(module(x, target.to(torch.uint8)), module(x, target))


def _weightless(way, module_class, given, classes):
    """(a module, its sample_weight) in which row 2, of class 1, has no part."""
    sample_weight = torch.tensor([1.0, 2.0, 0.0, 1.5], dtype=torch.float64) if way == "sample_weight" else None
    if way == "weight":
        given = {**given, "weight": torch.tensor([1.0, 0.0, 2.0, 0.5], dtype=torch.float64)[:classes]}
    if way == "ignored":
        given = {**given, "ignore_index": 1}
    return module_class(**given), sample_weight


WITHOUT_A_PART = [
    *((name, options, "sample_weight") for name, options in _with_options(MODULES)),
    *((name, options, "ignored") for name, options in WITH_CLASSES),
    # Smoothing gives rows a part at other classes.
    *((name, options, "weight") for name, options in WITH_CLASSES if "label_smoothing" not in options),
]


@pytest.mark.parametrize("content", [np.nan, np.inf])
@pytest.mark.parametrize(("class_name", "options", "way"), WITHOUT_A_PART)
def test_rows_without_a_part_are_not_read(class_name, options, way, content):
    """Whatever they hold, value and derivatives are those of finite scores there, and theirs are 0."""
    module_class, given = getattr(et, class_name), {**NEEDED.get(class_name, {}), **options}
    margin = "in_features" in given
    if margin:
        given["dtype"] = torch.float64
    for reduction in ("mean", "sum", "none"):
        module, sample_weight = _weightless(way, module_class, {**given, "reduction": reduction}, 3 if margin else 4)
        target = torch.tensor([0, 2, 1, 2]) if module._takes_classes else (scores("", 4, 4, seed=1) > 0).double()
        x = scores("", 4, 4)
        found = []
        for third in (x[2], torch.tensor([0.0, 1.0, content, 0.0], dtype=torch.float64)):
            given_x = torch.stack([x[0], x[1], third, x[3]]).requires_grad_()
            moving = given_x, *module.parameters()
            value = module(given_x, target, sample_weight)
            slopes = torch.autograd.grad(value.sum(), moving, create_graph=True)
            second = torch.autograd.grad(sum(slope[:2].sin().sum() for slope in slopes), moving, allow_unused=True)
            found.append((value, *slopes, *(one for one in second if one is not None)))
            assert not slopes[0][2].any()
        for got, want in zip(*found, strict=True):
            torch.testing.assert_close(got, want)


def test_learned_parameters_do_not_read_rows_of_weight_0():
    temperature = torch.nn.Parameter(torch.tensor(2.0))
    student, teacher = torch.randn(3, 4), torch.randn(3, 4)
    for scores_ in (student, teacher):
        scores_[1] = torch.nan
        et.DistillationLoss(temperature=temperature)(student, teacher, torch.tensor([1.0, 0.0, 2.0])).backward()
        assert temperature.grad.isfinite()


@pytest.mark.parametrize("soft", [False, True])
def test_smoothed_rows_of_a_class_of_weight_0_are_read(soft):
    x, target = torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), torch.tensor([1, 0])
    target = torch.nn.functional.one_hot(target, 2).float() if soft else target
    for smoothing in (0.0, 0.5):
        value = et.SoftmaxLoss(torch.tensor([0.0, 1.0]), label_smoothing=smoothing, reduction="none")(x, target)
        assert value[0].isfinite() and value[1].isnan() == (smoothing > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", [et.AMSoftmaxLoss, et.ArcFaceLoss, et.SphereFaceLoss])
def test_only_the_direction_of_an_embedding_counts(kind, dtype):
    """Embeddings and classes of any length whose numbers the type has; their squares may be out of range."""
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    module = kind(4, 3, dtype=wide)
    last = 2.0**60 if wide == torch.float32 else 2.0**500
    v, target = torch.randn(5, 4, generator=torch.Generator().manual_seed(2)).to(dtype), torch.tensor([0, 2, 1, 0, 2])
    want = None
    for factor in (1.0, 2.0**66, 2.0**-43, last, 1 / last):  # a power of two changes no digit
        x = (v * factor).requires_grad_()
        loss = module(x, target)
        (slope,) = torch.autograd.grad(loss, x)
        want = (loss.detach(), slope * factor) if want is None else want
        torch.testing.assert_close(loss, want[0], rtol=1e-6, atol=0)
        torch.testing.assert_close((slope.double() * factor).to(slope.dtype), want[1], rtol=1e-5, atol=1e-8)
        assert slope.abs().max() > 0
    with torch.no_grad():
        module.classes.mul_(last)
    torch.testing.assert_close(module(v, target), want[0], rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", [et.AMSoftmaxLoss, et.ArcFaceLoss, et.SphereFaceLoss])
def test_an_embedding_of_zeros_has_no_direction(kind):
    module = kind(4, 3)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
    x[1] = 0
    x.requires_grad_()
    assert (module.cosines(x)[1] == 0).all()
    module(x, torch.tensor([0, 1, 2])).backward()
    assert (x.grad[1] == 0).all() and (x.grad[[0, 2]] != 0).any(1).all()
    assert module.classes.grad.isfinite().all()
    double = x.detach().double()
    module = kind(4, 3, dtype=torch.float64)
    torch.autograd.gradcheck(lambda a: module(a, torch.tensor([0, 2])), (double[[0, 2]].requires_grad_(),))
    torch.autograd.gradgradcheck(lambda a: module(a, torch.tensor([0, 2])), (double[[0, 2]].requires_grad_(),))
