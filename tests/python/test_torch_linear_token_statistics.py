"""et.linear_token_statistics: token_statistics of a linear layer, without its scores; and what token_statistics has besides."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic.torch import _token_statistics  # noqa: E402
from isentropic.torch.backends import linear_loss as backend  # noqa: E402


def problem(dtype=torch.float64, lead=(2, 5), features=4, classes=7):
    generator = torch.Generator().manual_seed(3)
    hidden, weight, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in ((*lead, features), (classes, features), (classes,))
    )
    target = torch.randint(0, classes, lead, generator=generator)
    target.view(-1)[1] = -100
    return hidden, weight, bias, target


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(backend, "_PART", 21)  # three rows of seven classes


def by_hand(logits, target, temperature=1.0, softcap=None):
    """(log-probability, entropy, largest probability, log p) in torch's operations."""
    z = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    log_p = torch.log_softmax(z / temperature, -1)
    own = log_p.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(target == -100, 0.0, own), -(log_p.exp() * log_p).sum(-1), log_p.amax(-1).exp(), log_p


OPTIONS = [{}, {"temperature": 0.7}, {"softcap": 2.0}, {"softcap": 3.0, "temperature": 1.6, "top": 3}]


@pytest.mark.parametrize("options", OPTIONS)
def test_are_those_of_the_linear_layer(options, small_parts):
    hidden, weight, bias, target = problem()
    top = options.get("top", 0)
    params = {name: value for name, value in options.items() if name != "top"}
    for offset in (None, bias):
        logits = torch.nn.functional.linear(hidden, weight, offset)
        *want, log_p = by_hand(logits, target, **params)
        moving = [hidden, weight] + ([] if offset is None else [offset])
        g = torch.randn(2, *target.shape, dtype=torch.float64)
        expected = torch.autograd.grad((g[0] * want[0] + g[1] * want[1]).sum(), moving, retain_graph=True)
        for found in (
            et.linear_token_statistics(hidden, weight, target, bias=offset, **options),
            et.token_statistics(logits, target, **options),
        ):
            for got, one in zip(found[:3], want, strict=True):
                torch.testing.assert_close(got, one)
            assert not found.max_probability.requires_grad
            if top:
                values, indices = log_p.topk(top)
                assert torch.equal(found.top_indices, indices) and not found.top_logprobs.requires_grad
                torch.testing.assert_close(found.top_logprobs, values)
            else:
                assert found.top_indices is None and found.top_logprobs is None
            got = torch.autograd.grad((g[0] * found.logprob + g[1] * found.entropy).sum(), moving, retain_graph=True)
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (3,), (0, 3), (1, 2)])
def test_gradients_in_any_subset(asked, small_parts):
    hidden, weight, bias, target = problem()
    temperature = torch.rand(2, 5, 1, dtype=torch.float64) + 0.5
    given = [one.detach().requires_grad_(k in asked) for k, one in enumerate((hidden, weight, bias, temperature))]

    def total(statistics):
        return (2 * statistics.logprob - 0.3 * statistics.entropy).sum()

    found = et.linear_token_statistics(*given[:2], target, bias=given[2], temperature=given[3], softcap=4.0)
    logits = torch.nn.functional.linear(*given[:3])
    want = et.token_statistics(logits, target, temperature=given[3], softcap=4.0)
    moving = [given[k] for k in asked]
    torch.testing.assert_close(torch.autograd.grad(total(found), moving), torch.autograd.grad(total(want), moving))


def test_gradcheck_and_gradgradcheck(small_parts):
    hidden, weight, bias, target = problem(lead=(4,), features=3, classes=5)
    temperature = torch.tensor([[0.7], [1.0], [2.0], [1.3]], dtype=torch.float64, requires_grad=True)

    def function(hidden, weight, bias, temperature):
        found = et.linear_token_statistics(hidden, weight, target, bias=bias, temperature=temperature, softcap=5.0)
        return found.logprob, found.entropy

    assert torch.autograd.gradcheck(function, (hidden, weight, bias, temperature))
    assert torch.autograd.gradgradcheck(function, (hidden, weight, bias, temperature), rtol=1e-3, atol=1e-5)


def test_halves_autocast_and_checkpoint(small_parts):
    hidden, weight, bias, target = problem(torch.bfloat16)
    found = et.linear_token_statistics(hidden, weight, target, bias=bias, softcap=5.0, top=2)
    assert all(one.dtype is torch.float32 for one in (found.logprob, found.entropy, found.top_logprobs))
    logits = torch.nn.functional.linear(hidden, weight, bias)
    want = et.token_statistics(logits, target, softcap=5.0, top=2)
    torch.testing.assert_close(found.logprob, want.logprob)
    (found.logprob.sum() + found.entropy.sum()).backward()
    assert all(one.grad.dtype is torch.bfloat16 for one in (hidden, weight, bias))
    wide = [one.detach().float().requires_grad_() for one in (hidden, weight)]
    with torch.autocast("cpu", torch.bfloat16):
        found = et.linear_token_statistics(*wide, target)
        assert found.logprob.dtype is torch.float32
    found.logprob.sum().backward()
    assert wide[0].grad.dtype is torch.float32

    def step(hidden):
        return et.linear_token_statistics(hidden, wide[1], target).entropy

    direct = torch.autograd.grad(step(wide[0]).sum(), wide[0])
    again = torch.utils.checkpoint.checkpoint(step, wide[0], use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again.sum(), wide[0]), direct)


def test_transforms_and_compilers(small_parts):
    hidden, weight, bias, target = problem(lead=(5,))
    arguments = hidden, weight, target.clamp(min=0), bias, None, 0.8, 3.0, 2
    torch.library.opcheck(_token_statistics._LINEAR_OPERATOR.op, arguments)

    def function(hidden, weight, target=target):
        found = et.linear_token_statistics(hidden, weight, target, softcap=3.0, top=1)
        return (found.logprob + found.entropy).sum()

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    want = function(hidden, weight)
    torch.testing.assert_close(compiled(hidden, weight), want)
    moving = hidden, weight
    torch.testing.assert_close(torch.autograd.grad(compiled(*moving), moving), torch.autograd.grad(want, moving))
    torch.testing.assert_close(torch.func.grad(function)(hidden, weight), torch.autograd.grad(function(*moving), hidden)[0])
    pairs = torch.stack([hidden, 2 * hidden]).detach()
    each = torch.func.vmap(lambda h: function(h, weight.detach()))(pairs)
    torch.testing.assert_close(each[1], function(pairs[1], weight.detach()))


def test_rows_that_nothing_is_asked_of_may_have_nan(small_parts):
    hidden, weight, _, target = problem(lead=(5,))
    spoiled = hidden.detach().clone()
    spoiled[1] = torch.nan  # its target is ignored
    spoiled.requires_grad_()
    found = et.linear_token_statistics(spoiled, weight, target)
    assert found.logprob[1] == 0 and found.entropy[1].isnan()
    of_hidden, of_weight = torch.autograd.grad(found.logprob.sum(), (spoiled, weight))
    rest = target != -100
    want = torch.autograd.grad(et.linear_token_statistics(hidden[rest], weight, target[rest]).logprob.sum(), weight)[0]
    assert of_hidden.isfinite().all() and not of_hidden[1].any()
    torch.testing.assert_close(of_weight, want)
    logits = (spoiled @ weight.T).detach().requires_grad_()
    (dx,) = torch.autograd.grad(et.token_statistics(logits, target).logprob.sum(), logits)
    assert dx.isfinite().all() and not dx[1].any()


def test_a_row_may_be_ignored_and_absent_classes_stay_so():
    x = torch.tensor([[1.0, -torch.inf, 100.0], [0.0, 1.0, 2.0]])
    found = et.token_statistics(x, torch.tensor([0, 7]), softcap=10.0, top=3, ignore_index=7)
    assert found.logprob[1] == 0 and found.top_logprobs[0, 2] == -torch.inf
    capped = torch.tensor([[10 * torch.tanh(torch.tensor(0.1)), -torch.inf, 10.0]])
    torch.testing.assert_close(found.logprob[:1], torch.log_softmax(capped, 1)[:, 0])
    with pytest.raises(ValueError, match="target must be a class from 0 to 2, got -100 in row 0"):
        et.token_statistics(x, torch.tensor([-100, 0]), ignore_index=None)
    assert et.token_statistics(x, torch.tensor([-100, -100])).logprob.tolist() == [0, 0]


def test_functions_ignore_the_same_index_as_modules():
    x, target = torch.randn(3, 4), torch.tensor([1, -100, 2])
    want = torch.nn.functional.cross_entropy(x, target, reduction="none")
    torch.testing.assert_close(et.softmax_loss(x, target), want)
    for name in ("sparsemax_loss", "entmax_loss", "smooth_accuracy_loss", "surrogate_loss"):
        assert getattr(et, name)(x, target)[1] == 0
    with pytest.raises(ValueError, match="target must be a class from 0 to 3, got -100"):
        et.softmax_loss(x, target, ignore_index=None)


def test_errors():
    hidden, weight, _, target = problem()
    for text, call in {
        r"linear_token_statistics: weight must be of shape \(classes, features\)": lambda: et.linear_token_statistics(
            hidden, weight[:, :2], target
        ),
        "linear_token_statistics: softcap must be above 0 and finite, got -1.0": lambda: et.linear_token_statistics(
            hidden, weight, target, softcap=-1.0
        ),
        "linear_token_statistics: top must be an integer from 0 to 7": lambda: et.linear_token_statistics(
            hidden, weight, target, top=8
        ),
        "linear_token_statistics: temperature must be above 0": lambda: et.linear_token_statistics(
            hidden, weight, target, temperature=0.0
        ),
        "token_statistics: softcap must be above 0 and finite": lambda: et.token_statistics(hidden, target, softcap=0.0),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(ValueError, match="target must be a class from 0 to 6, got 7 in row 3"):
        et.linear_token_statistics(hidden, weight, torch.tensor([0, 1, 2, 7, 4] * 2).reshape(2, 5))
    with pytest.raises(TypeError, match="linear_token_statistics: target must be integers"):
        et.linear_token_statistics(hidden, weight, target.float())


def test_entropy_controller():
    controller = et.EntropyController(2.0, coefficient=0.1, rate=0.5, high=0.4)
    assert controller.update(1.9) == pytest.approx(0.15) and controller.coefficient == controller.update(2.0)
    assert controller.update(torch.tensor(0.0)) == 0.4 and controller.update(100.0) == 0.0
    other = et.EntropyController(1.0)
    other.load_state_dict(controller.state_dict())
    assert repr(other) == repr(controller) and other.update(1.5) == controller.update(1.5)
    for text, call in {
        "rate must be above 0": lambda: et.EntropyController(1.0, rate=0.0),
        r"coefficient must be from low, 0\.0, to high, 1\.0, got 2\.0": lambda: et.EntropyController(1.0, coefficient=2.0),
        "target must be finite": lambda: et.EntropyController(float("nan")),
        "EntropyController.update: entropy must be finite": lambda: controller.update(float("nan")),
        "state must have target": lambda: controller.load_state_dict({"target": 1.0}),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()


def test_a_wrong_class_is_named_with_its_row(small_parts):
    hidden, weight, _, target = problem()
    target = target.clone()
    target[1, 3] = len(weight)
    last = len(weight) - 1
    row = target.shape[1] + 3
    message = rf"^linear_token_statistics: target must be a class from 0 to {last}, got {last + 1} in row {row}$"
    with pytest.raises(ValueError, match=message):
        et.linear_token_statistics(hidden, weight, target)
