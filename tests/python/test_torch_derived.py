"""Second derivatives by differences, for operations without a composition of torch's operations, agree with those of
compositions."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic.torch import _losses, _maps  # noqa: E402
from isentropic.torch.backends.reference import derived  # noqa: E402

REQUIRED = {"k": 3, "p": 0.8, "entropy": 0.9}


def params_of(name, description):
    return {
        p["name"]: REQUIRED[p["name"]] for p in description["params"] if p["name"] in REQUIRED and p["name"] != "perplexity"
    }


def second_derivatives(function, *inputs):
    """In inputs, of <c, gradient>; and the gradient's derivative forward."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs)
    weights = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape).requires_grad_()
    first = torch.autograd.grad(y, inputs, weights, create_graph=True)
    total = sum((one * torch.sin(1.0 + torch.arange(one.numel(), dtype=one.dtype).reshape(one.shape))).sum() for one in first)
    second = torch.autograd.grad(total, [*inputs, weights], allow_unused=True)

    def gradient(*inputs):
        return torch.func.vjp(function, *inputs)[1](weights.detach())[0]

    forward = torch.func.jvp(gradient, tuple(x.detach() for x in inputs), tuple(torch.cos(x.detach()) for x in inputs))[1]
    return [torch.zeros(()) if one is None else one for one in second] + [forward]


@pytest.mark.parametrize("name", [name for name in _maps.OPERATORS if name not in ("log_softmax", "logsumexp")])
@pytest.mark.parametrize("axis", [0, 1])
def test_maps(name, axis, monkeypatch):
    description = _maps._descriptions.MAPS[name]
    params = params_of(name, description)
    torch.manual_seed(5)
    x = torch.randn(4, 6, dtype=torch.float64) * 1.5
    learned = [p["name"] for p in description["params"] if p["per_row"] and p["name"] not in ("perplexity", "max_entropy")]
    values = [torch.tensor({"alpha": 1.4, "entropy": 0.9}.get(one, 1.2), dtype=torch.float64) for one in learned]

    def function(x, *rows):
        return getattr(et, name)(x, **{**params, **dict(zip(learned, rows, strict=True))}, axis=axis)

    want = second_derivatives(function, x, *values)
    operator = _maps.OPERATORS[name].vjp
    monkeypatch.setattr(operator, "_reference", derived.of_maps(())[f"{name}_vjp"])
    got = second_derivatives(function, x, *values)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-7, atol=2e-8)


@pytest.mark.parametrize("name", [name for name in _losses.OPERATORS if name in _losses.DESCRIPTIONS])
@pytest.mark.parametrize("axis", [0, 1])
def test_losses(name, axis, monkeypatch):
    description = _losses.DESCRIPTIONS[name]
    params = params_of(name, description)
    if name == "distillation_loss":
        params["divergence"] = "jsd"  # the one with a beta
    torch.manual_seed(7)
    x = torch.rand(4, 6, dtype=torch.float64) * 1.8 - 0.9
    kind = description["target"]
    lead = x.shape[1 - axis]
    if kind.startswith("class"):
        target = torch.arange(lead) % 3
    elif kind == "labels":
        target = (torch.rand_like(x) > 0.6).double()
    else:
        target = torch.randn_like(x)
    learned = [p["name"] for p in description["params"] if p["per_row"]]
    start = {"alpha": 1.4, "beta": 0.3, "label_smoothing": 0.1, "margin": 0.3, "scale": 4.0, "temperature": 1.3}
    values = [torch.tensor(start[one], dtype=torch.float64) for one in learned]

    def function(x, *rows):
        return getattr(et, name)(x, target, **{**params, **dict(zip(learned, rows, strict=True))}, axis=axis)

    want = second_derivatives(function, x, *values)
    monkeypatch.setattr(_losses.OPERATORS[name], "_reference", derived.of_losses(())[name])
    got = second_derivatives(function, x, *values)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-7, atol=2e-8)
