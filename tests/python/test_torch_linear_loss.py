"""et.linear_loss: the loss of a linear layer, without its scores."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic.torch import _linear_loss  # noqa: E402
from isentropic.torch.backends import linear_loss as backend  # noqa: E402

LOSSES = [
    ("softmax_loss", {}),
    ("softmax_loss", {"label_smoothing": 0.1}),
    ("sparsemax_loss", {}),
    ("entmax_loss", {"alpha": 1.3}),
    ("top_k_softmax_loss", {"k": 3}),
    ("top_p_softmax_loss", {"p": 0.8}),
    ("smooth_accuracy_loss", {"map": "entmax", "alpha": 1.3}),
    ("surrogate_loss", {"map": "sparsemax"}),
    ("multilabel_softmax_loss", {}),
    ("distillation_loss", {"temperature": 2.0}),
    ("jsd_loss", {"beta": 0.3}),
]
each = pytest.mark.parametrize(("loss", "params"), LOSSES, ids=["-".join(map(str, [one, *p.values()])) for one, p in LOSSES])


def problem(loss, dtype=torch.float64, lead=(2, 5), features=4, classes=7):
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((*lead, features), (classes, features), (classes,))
    )
    if loss == "multilabel_softmax_loss":
        return hidden, weight, bias, torch.randint(0, 2, (*lead, classes), generator=generator)
    if loss in ("distillation_loss", "jsd_loss"):
        return hidden, weight, bias, torch.randn(*lead, classes, generator=generator, dtype=torch.float64).to(dtype)
    target = torch.randint(0, classes, lead, generator=generator)
    target.view(-1)[1] = -100
    return hidden, weight, bias, target


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(backend, "_PART", 21)  # three rows of seven classes


@each
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_is_the_loss_of_the_linear_layer(loss, params, reduction, small_parts):
    hidden, weight, bias, target = problem(loss)
    for offset in (None, bias):
        value = et.linear_loss(hidden, weight, target, loss=loss, bias=offset, reduction=reduction, **params)
        classes = {"ignore_index": -100} if target.dim() == 2 else {}
        scores = torch.nn.functional.linear(hidden, weight, offset)
        want = getattr(et, loss)(scores, target, **classes, **params)
        if reduction != "none":
            want = want.sum() / (1 if reduction == "sum" else 9 if classes else 10)
        torch.testing.assert_close(value, want)
        moving = [hidden, weight] + ([] if offset is None else [offset])
        g = torch.randn(value.shape, dtype=torch.float64)
        for got, expected in zip(torch.autograd.grad(value, moving, g), torch.autograd.grad(want, moving, g), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("loss", "params"), [one for one in LOSSES if one[0] != "surrogate_loss"])
def test_gradcheck_and_gradgradcheck(loss, params, small_parts):
    hidden, weight, bias, target = problem(loss, lead=(4,), features=3, classes=5)

    def function(hidden, weight, bias):
        return et.linear_loss(hidden, weight, target, loss=loss, bias=bias, **params)

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))
    assert torch.autograd.gradgradcheck(function, (hidden, weight, bias), rtol=1e-3, atol=1e-5)


def test_parameters_are_learned(small_parts):
    hidden, weight, _, target = problem("entmax_loss")
    alpha = torch.full((2, 5, 1), 1.4, dtype=torch.float64, requires_grad=True)
    one = torch.nn.Parameter(torch.tensor([1.4], dtype=torch.float64))
    for given in (alpha, one):
        value = et.linear_loss(hidden, weight, target, loss="entmax_loss", alpha=given)
        want = et.entmax_loss(hidden @ weight.T, target, alpha=given, ignore_index=-100).sum() / 9
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(torch.autograd.grad(value, given), torch.autograd.grad(want, given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types(dtype, small_parts):
    hidden, weight, bias, target = problem("softmax_loss", dtype=dtype)
    value = et.linear_loss(hidden, weight, target, bias=bias)
    want = torch.nn.functional.cross_entropy((hidden @ weight.T + bias).float().flatten(0, 1), target.flatten())
    assert value.dtype is torch.float32
    torch.testing.assert_close(value, want, rtol=1e-5 if dtype is torch.float32 else 1e-2, atol=0)
    value.backward()
    assert all(one.grad.dtype is dtype for one in (hidden, weight, bias))
    with torch.autocast("cpu", torch.bfloat16):
        value = et.linear_loss(hidden.float(), weight.float(), target)
    assert value.dtype is torch.float32


def test_transforms_and_compilers(small_parts):
    hidden, weight, bias, target = problem("sparsemax_loss", lead=(5,))
    arguments = hidden, weight, target, bias, None, None, None, None, "sparsemax_loss", "[-100]", 0.0, 0.0, [], "mean"
    torch.library.opcheck(_linear_loss._OPERATOR.op, arguments)

    def function(hidden, weight, target=target):
        return et.linear_loss(hidden, weight, target, loss="sparsemax_loss")

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for got, want in zip(
        torch.autograd.grad(compiled(hidden, weight), (hidden, weight)),
        torch.autograd.grad(function(hidden, weight), (hidden, weight)),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
    many = torch.stack([hidden, 2 * hidden]).detach()
    batched = torch.func.vmap(function, in_dims=(0, None))(many, weight.detach())
    torch.testing.assert_close(batched, torch.stack([function(one, weight) for one in many]))
    per_sample = torch.func.vmap(torch.func.grad(function), in_dims=(0, None))(many, weight.detach())
    torch.testing.assert_close(per_sample[0], torch.autograd.grad(function(hidden, weight), hidden)[0])


@each
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_shapes_only(loss, params, reduction):
    hidden, weight, bias, target = (one.detach().to("meta") for one in problem(loss))
    inputs = [one.requires_grad_() for one in (hidden, weight, bias)]
    value = et.linear_loss(hidden, weight, target, bias=bias, loss=loss, reduction=reduction, **params)
    value.sum().backward()
    assert value.shape == (() if reduction != "none" else hidden.shape[:-1]) and value.is_meta
    assert all(one.grad.shape == one.shape for one in inputs)


@each
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_of_gradients(loss, params, reduction):
    hidden, weight, bias, target = problem(loss)
    inputs = hidden, weight, bias
    value = et.linear_loss(hidden, weight, target, bias=bias, loss=loss, reduction=reduction, **params)
    grads = torch.randn(3, *value.shape, dtype=torch.float64)
    batched = torch.autograd.grad(value, inputs, grads, is_grads_batched=True, retain_graph=True)
    for k, grad in enumerate(grads):
        for got, want in zip(batched, torch.autograd.grad(value, inputs, grad, retain_graph=True), strict=True):
            torch.testing.assert_close(got[k], want)


@each
def test_a_compiler_that_knows_no_number(loss, params):
    """With dynamic=True also the parameters' numbers stand for any."""
    hidden, weight, bias, target = problem(loss)

    def function(hidden, weight, bias):
        return et.linear_loss(hidden, weight, target, bias=bias, loss=loss, z_loss=0.1, **params)

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    inputs = hidden, weight, bias
    for got, want in zip(
        torch.autograd.grad(compiled(*inputs), inputs), torch.autograd.grad(function(*inputs), inputs), strict=True
    ):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("loss", ["softmax_loss", "entmax_loss", "multilabel_softmax_loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_rows_and_z_loss(loss, reduction, small_parts):
    """Equal to the calculation by hand; a row of weight 0 may hold anything; twice differentiable; under the compiler."""
    hidden, weight, bias, target = problem(loss, lead=(7,))
    shares = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0, 0.0, 1.5], dtype=torch.float64)
    classes = target.dim() == 1

    def function(hidden, weight, bias):
        more = {"bias": bias, "sample_weight": shares, "z_loss": 0.3, "loss": loss, "reduction": reduction}
        return et.linear_loss(hidden, weight, target, **more)

    def by_hand(hidden, weight, bias):
        scores = torch.nn.functional.linear(hidden, weight, bias)
        ignored = {"ignore_index": -100} if classes else {}
        each = getattr(et, loss)(scores, target, **ignored)
        counted = (target != -100) if classes else torch.ones(7, dtype=torch.bool)
        each = (each + 0.3 * scores.logsumexp(-1).square()) * counted * shares
        return each if reduction == "none" else each.sum() / (1 if reduction == "sum" else (counted * shares).sum())

    inputs = hidden, weight, bias
    torch.testing.assert_close(function(*inputs), by_hand(*inputs))
    g = torch.randn(7 if reduction == "none" else (), dtype=torch.float64)
    wanted = torch.autograd.grad(by_hand(*inputs), inputs, g)
    torch.testing.assert_close(torch.autograd.grad(function(*inputs), inputs, g), wanted)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(*inputs), inputs, g), wanted)
    assert torch.autograd.gradgradcheck(function, inputs, rtol=1e-3, atol=1e-5, fast_mode=True)
    broken = hidden.detach().clone()
    broken[2] = torch.nan
    assert not function(broken.requires_grad_(), weight, bias).isnan().any()
    slopes = torch.autograd.grad(function(broken, weight, bias).sum(), (broken, weight, bias))
    assert not any(slope.isnan().any() for slope in slopes[1:])


@each
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("way", ["ignored", "sample_weight"])
def test_rows_without_a_part_are_not_read(loss, params, reduction, way, small_parts):
    """Whatever they hold, value and derivatives are those of finite numbers there, and theirs are 0."""
    hidden, weight, bias, target = problem(loss, lead=(7,))
    if way == "ignored" and target.dim() == 2:
        pytest.skip("it ignores no row")
    row = 1 if way == "ignored" else 2
    shares = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0, 1.0, 1.5]) if way == "sample_weight" else None
    found = []
    for content in (0.5, torch.nan, torch.inf):
        own = hidden.detach().clone()
        own[row] = content
        moving = own.requires_grad_(), weight, bias
        more = {"loss": loss, "reduction": reduction, "sample_weight": shares, "z_loss": 0.3, **params}
        value = et.linear_loss(own, weight, target, bias=bias, **more)
        slopes = torch.autograd.grad(value.sum(), moving, create_graph=True)
        second = torch.autograd.grad(sum(slope.sin().sum() for slope in slopes), moving)
        assert not slopes[0][row].any() and not second[0][row].any()
        found.append((value, *slopes, *second))
    for others in found[1:]:
        for got, want in zip(others, found[0], strict=True):
            torch.testing.assert_close(got, want)


def test_learned_parameters_do_not_read_rows_of_weight_0():
    hidden, weight, _, teacher = problem("distillation_loss", lead=(3,))
    teacher[1] = torch.nan
    temperature = torch.full((3, 1), 2.0, requires_grad=True)
    shares = torch.tensor([1.0, 0.0, 2.0])
    et.linear_loss(hidden, weight, teacher, loss="distillation_loss", temperature=temperature, sample_weight=shares).backward()
    assert temperature.grad.isfinite().all() and hidden.grad.isfinite().all() and weight.grad.isfinite().all()


@each
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_autograd_gets_is_its_own(loss, params, reduction, small_parts):
    """Saved tensors are read once, for checkpoints, and are not the gradients that leaves accumulate into."""
    hidden, weight, _, target = problem(loss)

    def run(hidden, weight):
        return et.linear_loss(hidden, weight, target, loss=loss, reduction=reduction, **params)

    want = torch.autograd.grad(run(hidden, weight), (hidden, weight))
    if "map" not in params:  # whose gradient torch.func calculates, which refuses checkpoints
        torch.utils.checkpoint.checkpoint(run, hidden, weight, use_reentrant=False).backward()
        torch.testing.assert_close((hidden.grad, weight.grad), want)
    hidden.grad = weight.grad = None
    value = run(hidden, weight)
    value.backward(retain_graph=True)
    for x in (hidden, weight):
        x.grad.mul_(2)
    value.backward()
    torch.testing.assert_close((hidden.grad, weight.grad), tuple(3 * x for x in want))


@pytest.mark.parametrize(("of_hidden", "of_weight"), [(1, 0.05), (0.1, 3), (30, 0.05)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_scales(of_hidden, of_weight, dtype, reduction):
    """Gradients of halves are rounded once, after torch.amp's loss scale, which may be beyond float16's range."""
    generator = torch.Generator().manual_seed(2)
    hidden = (of_hidden * torch.randn(4096, 16, generator=generator)).to(dtype).requires_grad_()
    weight = (of_weight * torch.randn(300, 16, generator=generator)).to(dtype).requires_grad_()
    target = torch.randint(0, 300, (4096,), generator=generator)
    scale = (1 if of_hidden < 2 else 0.125) * {"mean": 65536.0, "sum": 16.0, "none": 65536.0}[reduction]

    def loss(hidden, weight):
        value = et.linear_loss(hidden, weight, target, reduction=reduction)
        return scale * (value.mean() if reduction == "none" else value)

    got = torch.autograd.grad(loss(hidden, weight), (hidden, weight))
    want = torch.autograd.grad(loss(hidden.double(), weight.double()), (hidden, weight))
    torch_loss = torch.nn.functional.cross_entropy(
        torch.nn.functional.linear(hidden, weight).float(), target, reduction="sum" if reduction == "sum" else "mean"
    )
    torchs = torch.autograd.grad(scale * torch_loss, (hidden, weight))
    for one, exact, other in zip(got, want, torchs, strict=True):
        assert one.dtype == dtype and one.isfinite().all()
        error, allowed = ((x.double() - exact.double()).norm() for x in (one, other))
        assert error <= 1.2 * allowed + 1e-3 * exact.double().norm() * (dtype == torch.bfloat16)


def test_the_product_of_float16_does_not_overflow(small_parts):
    """The weight's gradient is the sum of hidden states of a class, of which each is multiplied by the loss scale."""
    hidden = torch.full((7, 4), 200.0, dtype=torch.float16).requires_grad_()
    weight = torch.zeros(7, 4, dtype=torch.float16).requires_grad_()
    value = et.linear_loss(hidden, weight, torch.zeros(7, dtype=torch.int64), reduction="none")
    (slope,) = torch.autograd.grad(value.mean() * 350, weight)
    torch.testing.assert_close(
        slope[0].double(), torch.full((4,), -200.0 * 350 * 6 / 7, dtype=torch.float64), rtol=1e-3, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_beside_softcap_and_other_types(dtype):
    """A distribution of halves has a half's tolerance, whatever the scores' type; another type keeps its digits."""
    generator = torch.Generator().manual_seed(5)
    hidden, weight = (torch.randn(n, 8, generator=generator).to(dtype).requires_grad_() for n in (3, 1000))
    q = torch.randn(3, 1000, generator=generator).softmax(-1)
    best = q.log().topk(1000)
    for softcap in (None, 30.0):
        more = {"softcap": softcap}
        for given in (q, q.double()):
            wide = et.linear_loss(hidden.float(), weight.float(), q, **more)
            torch.testing.assert_close(et.linear_loss(hidden, weight, given, **more), wide, rtol=1e-2, atol=0)
        torch.testing.assert_close(et.linear_loss(hidden, weight, q.to(dtype), **more), wide, rtol=1e-2, atol=0)
        more["loss"] = "sparse_distillation_loss"
        assert et.linear_loss(hidden, weight, (best.indices, best.values.to(dtype)), **more).isfinite()
    teacher = 1e6 * torch.randn(3, 1000, generator=generator)  # beyond float16
    found = et.linear_loss(hidden, weight, teacher, loss="distillation_loss")
    want = et.distillation_loss(torch.nn.functional.linear(hidden, weight).float(), teacher).mean()
    torch.testing.assert_close(found, want)
    slopes = torch.autograd.grad(found, (hidden, weight))
    assert [slope.dtype for slope in slopes] == [dtype, dtype] and slopes[1].isfinite().all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_teachers_rows_of_weight_0_are_not_read(reduction):
    """Neither their classes nor their log-probabilities, as collators pad them."""
    hidden, weight, _, _ = problem("softmax_loss", lead=(4,))
    best = torch.randn(4, 7, dtype=torch.float64).log_softmax(-1).topk(3)
    shares = torch.tensor([1.0, 2.0, 0.0, 0.5], dtype=torch.float64)
    found = []
    for classes, log_probs in ((None, None), (0, 0.0), (99, torch.nan)):
        indices, logs = best.indices.clone(), best.values.clone()
        if classes is not None:
            indices[2], logs[2] = classes, log_probs
        more = {"loss": "sparse_distillation_loss", "sample_weight": shares, "reduction": reduction}
        value = et.linear_loss(hidden, weight, (indices, logs), **more)
        found.append((value, *torch.autograd.grad(value.sum(), (hidden, weight))))
    for others in found[1:]:
        torch.testing.assert_close(others, found[0], rtol=0, atol=0)


def test_weights_that_cancel_have_no_mean():
    hidden, weight, _, target = problem("softmax_loss", lead=(4,))
    target[1] = 0
    assert et.linear_loss(hidden, weight, target, sample_weight=torch.tensor([1.0, -1.0, 2.0, -2.0])).isnan()


@pytest.mark.parametrize("frozen", ["hidden", "weight", None])
def test_backward_again_and_without_one(frozen, small_parts):
    """Gradients kept from the forward pass can be used again, and frozen tensors have none."""
    hidden, weight, bias, target = problem("sparsemax_loss")
    moving = [x for name, x in (("hidden", hidden), ("weight", weight), ("bias", bias)) if name != frozen]
    for x in (hidden, weight):
        x.requires_grad_(any(x is one for one in moving))
    value = et.linear_loss(hidden, weight, target, bias=bias, loss="sparsemax_loss")
    first = torch.autograd.grad(3 * value, moving, retain_graph=True)
    again = torch.autograd.grad(3 * value, moving)
    want = torch.autograd.grad(
        3 * et.linear_loss(hidden, weight, target, bias=bias, loss="sparsemax_loss", reduction="none").sum() / 9, moving
    )
    torch.testing.assert_close(first, want)
    torch.testing.assert_close(again, want)


def test_scores_are_never_all_there(monkeypatch):
    """Of 64 x 1000 scores at most 8 rows at a time."""
    monkeypatch.setattr(backend, "_PART", 8000)
    made = []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda *given: made.append(linear(*given)) or made[-1])
    hidden, weight, _, target = problem("softmax_loss", lead=(64,), classes=1000)
    et.linear_loss(hidden, weight, target).backward()
    # Made once where the gradients are made with them, and otherwise again.
    assert len(made) == 8 and max(len(one) for one in made) == 8
    et.linear_loss(hidden, weight, target, reduction="none").sum().backward()
    assert len(made) == 24 and max(len(one) for one in made) == 8


def test_errors():
    hidden, weight, _, target = problem("softmax_loss")
    with pytest.raises(ValueError, match=r"linear_loss: loss must be one of softmax_loss, .*, got 'nll'"):
        et.linear_loss(hidden, weight, target, loss="nll")
    with pytest.raises(ValueError, match=r"linear_loss: weight must be of shape \(classes, features\)"):
        et.linear_loss(hidden, weight.T, target)
    with pytest.raises(TypeError, match="linear_loss: hidden, weight must be of one dtype"):
        et.linear_loss(hidden.float(), weight, target)
    with pytest.raises(TypeError, match="linear_loss: loss 'softmax_loss' has no parameter 'alpha'"):
        et.linear_loss(hidden, weight, target, alpha=1.5)
    with pytest.raises(TypeError, match="linear_loss: loss 'top_k_softmax_loss' needs the parameter 'k'"):
        et.linear_loss(hidden, weight, target, loss="top_k_softmax_loss")
    with pytest.raises(ValueError, match="linear_loss: reduction must be"):
        et.linear_loss(hidden, weight, target, reduction="avg")
    with pytest.raises(ValueError, match="linear_loss: target must have one class for each row"):
        et.linear_loss(hidden, weight, target[0])
    with pytest.raises(ValueError, match="linear_loss: target must be a class from 0 to 6, got 7"):
        et.linear_loss(hidden, weight, torch.full_like(target, 7), loss="smooth_accuracy_loss")


@pytest.mark.parametrize(
    "params", [{}, {"divergence": "reverse_kl"}, {"divergence": "jsd", "beta": 0.2, "tail": "renormalize"}]
)
def test_a_sparse_teacher(params, small_parts):
    hidden, weight, bias, _ = problem("softmax_loss")
    best = torch.randn(2, 5, 7, dtype=torch.float64).log_softmax(-1).topk(3)
    indices, log_probs = best.indices.clone(), best.values
    indices[0, 3] = -1  # a row without a teacher does not count
    for softcap in (None, 2.0):
        for reduction in ("mean", "sum", "none"):
            value = et.linear_loss(
                hidden,
                weight,
                (indices, log_probs),
                bias=bias,
                loss="sparse_distillation_loss",
                softcap=softcap,
                reduction=reduction,
                **params,
            )
            scores = torch.nn.functional.linear(hidden, weight, bias)
            scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
            want = et.sparse_distillation_loss(scores, indices, log_probs, **params)
            want = want if reduction == "none" else want.sum() / (9 if reduction == "mean" else 1)
            torch.testing.assert_close(value, want)
            g = torch.randn(value.shape, dtype=torch.float64)
            moving = hidden, weight, bias
            torch.testing.assert_close(torch.autograd.grad(value, moving, g), torch.autograd.grad(want, moving, g))


@pytest.mark.parametrize("loss", ["distillation_loss", "jsd_loss"])
def test_a_teacher_of_hidden_states(loss, small_parts):
    hidden, weight, bias, _ = problem("softmax_loss")
    states, head = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    value = et.linear_loss(hidden, weight, bias=bias, loss=loss, teacher_hidden=states, teacher_weight=head, softcap=3.0)
    scores = 3 * torch.tanh(torch.nn.functional.linear(hidden, weight, bias) / 3)
    want = getattr(et, loss)(scores, states @ head.T).mean()
    torch.testing.assert_close(value, want)
    moving = hidden, weight, bias
    torch.testing.assert_close(torch.autograd.grad(value, moving), torch.autograd.grad(want, moving))

    def function(hidden, weight):
        return et.linear_loss(hidden, weight, loss=loss, teacher_hidden=states, teacher_weight=head, softcap=3.0)

    assert torch.autograd.gradcheck(function, (hidden, weight))
    assert torch.autograd.gradgradcheck(function, (hidden, weight), rtol=1e-3, atol=1e-5)


def test_softcap_of_classes(small_parts):
    hidden, weight, _, target = problem("softmax_loss")
    value = et.linear_loss(hidden, weight, target, softcap=1.5, z_loss=0.1)
    scores = 1.5 * torch.tanh(hidden @ weight.T / 1.5)
    want = et.SoftmaxLoss(z_loss=0.1)(scores, target)
    torch.testing.assert_close(value, want)
    torch.testing.assert_close(torch.autograd.grad(value, (hidden, weight)), torch.autograd.grad(want, (hidden, weight)))


def test_what_does_not_fit_is_refused():
    hidden, weight, _, target = problem("softmax_loss")
    states, head = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    for text, given in {
        "teacher_hidden is for losses against a teacher's scores, got loss 'softmax_loss'": {"teacher_hidden": states},
        "give one of target and teacher_hidden": {"target": states, "teacher_hidden": states, "loss": "jsd_loss"},
        "teacher_weight must be a torch.Tensor": {"teacher_hidden": states, "loss": "jsd_loss"},
        r"target must be \(indices, log_probs\)": {"target": target, "loss": "sparse_distillation_loss"},
        "target must be a torch.Tensor, got NoneType": {},
    }.items():
        with pytest.raises(TypeError, match=text):
            et.linear_loss(hidden, weight, **given)
    with pytest.raises(ValueError, match="teacher_hidden must have the rows of hidden"):
        et.linear_loss(hidden, weight, teacher_hidden=states[0], teacher_weight=head, loss="jsd_loss")
    with pytest.raises(ValueError, match=r"teacher_weight must be of shape \(7, 3\)"):
        et.linear_loss(hidden, weight, teacher_hidden=states, teacher_weight=head[1:], loss="jsd_loss")
    with pytest.raises(ValueError, match="softcap must be above 0 and finite, got 0"):
        et.linear_loss(hidden, weight, target, softcap=0)
