"""torch.fx.symbolic_trace of isentropic.torch's modules and functions, and a parameter that changes while training."""

import os
import pickle

import pytest

try:
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch is not installed: pip install torch==2.13.0", allow_module_level=True)

from torch._dynamo.testing import CompileCounter

import isentropic.torch as et

NEEDED = {
    "AMSoftmaxLoss": {"in_features": 8, "num_classes": 5},
    "ArcFaceLoss": {"in_features": 8, "num_classes": 5},
    "SphereFaceLoss": {"in_features": 8, "num_classes": 5},
    "EntropyNormalize": {"entropy": 1.0},
    "EntropyClip": {"max_entropy": 1.0},
    "SoftTopK": {"k": 3},
    "TopKSoftmax": {"k": 3},
    "TopPSoftmax": {"p": 0.7},
    "MinPSoftmax": {"p": 0.1},
    "TopKSoftmaxLoss": {"k": 3},
    "TopPSoftmaxLoss": {"p": 0.7},
}
MODULES = [
    name for name in et.__all__ if isinstance(getattr(et, name), type) and issubclass(getattr(et, name), torch.nn.Module)
]


def arguments(name):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 8, generator=generator)
    if name in ("Attention", "LinearAttention"):
        return x, x, x
    if name in ("DistillationLoss", "JSDLoss"):
        return x, torch.randn(4, 8, generator=generator)
    if name == "SparseDistillationLoss":
        return x, *reversed(torch.randn(4, 8, generator=generator).log_softmax(-1).topk(3))
    if name == "MultilabelSoftmaxLoss":
        return x, (x > 0).float()
    if name.endswith("Loss"):
        return x, torch.tensor([1, -100, 3, 0])
    return (x,)


class Within(torch.nn.Module):
    """A model that holds one."""

    def __init__(self, module, count):
        super().__init__()
        self.linear, self.module, self.count = torch.nn.Linear(8, 8), module, count

    def forward(self, x, y=None, z=None):
        return self.module(self.linear(x), *(y, z)[: self.count - 1])


LEARNED = {"Entmax": "alpha", "EntmaxLoss": "alpha", "ArcFaceLoss": "scale", "SoftmaxLoss": "label_smoothing"}


@pytest.mark.parametrize(("name", "learned"), [*((name, None) for name in MODULES), *LEARNED.items()])
def test_modules_are_traced(name, learned):
    params = dict(NEEDED.get(name, {}))
    if learned:
        params[learned] = torch.nn.Parameter(torch.tensor(0.5))
    module, given = getattr(et, name)(**params), arguments(name)
    for model in (module, Within(module, len(given))):
        traced = torch.fx.symbolic_trace(model)
        torch.testing.assert_close(traced(*given), model(*given))
        assert {key for key, _ in traced.named_parameters()} == {key for key, _ in model.named_parameters()}
        again = pickle.loads(pickle.dumps(traced))
        torch.testing.assert_close(again(*given), model(*given))


def test_class_weights_are_traced():
    model = et.SparsemaxLoss(torch.rand(8), reduction="mean")
    given = arguments("SparsemaxLoss")
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(*given), model(*given))


@pytest.mark.parametrize("function", [lambda x: et.entmax(x, alpha=1.3) + 1, lambda x: et.entropy(x, input="scores")])
def test_functions_are_traced(function):
    (x,) = arguments("Softmax")
    torch.testing.assert_close(torch.fx.symbolic_trace(function)(x), function(x))


@pytest.mark.parametrize("kind", [et.Attention, et.Entmax, et.EntmaxLoss])
def test_alpha_changes_while_training(kind):
    """As a number or as a tensor, which one graph is for; torch.compile makes another for each number, as of Dropout's p."""
    map = {"map": "entmax"} if kind is et.Attention else {}
    key, given = ("map_alpha", arguments("Attention")) if map else ("alpha", arguments(kind.__name__))
    number, buffer = kind(**map, alpha=1.5), kind(**map, alpha=torch.tensor(1.5))
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(buffer, fullgraph=True, backend=counter)
    for alpha in torch.linspace(1.0, 2.0, 12).tolist():
        setattr(number, key, alpha)
        getattr(buffer, key).fill_(alpha)
        wanted = kind(**map, alpha=alpha)(*given)
        torch.testing.assert_close(number(*given), wanted)
        torch.testing.assert_close(compiled(*given), wanted)
    assert counter.frame_count == 1
    assert f"{key}" in buffer.state_dict()
