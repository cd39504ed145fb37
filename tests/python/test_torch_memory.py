"""What maps keep for backward."""

import contextlib
import os
import subprocess
import sys

import pytest

try:
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch is not installed: pip install torch==2.13.0", allow_module_level=True)

from torch.utils._python_dispatch import TorchDispatchMode

import isentropic
import isentropic.torch as et

MAPS = {
    "softmax": {},
    "log_softmax": {},
    "sparsemax": {},
    "entmax": {"alpha": 1.3},
    "top_k_softmax": {"k": 30},
    "top_p_softmax": {"p": 0.7},
    "min_p_softmax": {"p": 0.1},
}
each = pytest.mark.parametrize("name", MAPS)


def scores(kind=None, shape=(600, 2000)):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if kind == "masked":
        x[:, ::7] = -torch.inf
    if kind == "infinite":
        x[17, 5:9] = torch.inf
    if kind == "infinite elsewhere":
        x[17, :4], x[18, 9] = torch.inf, torch.nan
    return x.requires_grad_()


def kept(function, x):
    """(result, the tensors that are kept for backward by the address of their memory)."""
    places = {}

    def pack(tensor):
        places[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = function(x)
    return y, places


class Watched(TorchDispatchMode):
    """Sees every operator, so that calls are no direct ones."""

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))


@each
@pytest.mark.parametrize("shape", [(1, 16), (64, 100), (600, 2000)])
def test_p_alone_is_kept(name, shape):
    x = scores(shape=shape)
    y, places = kept(lambda x: getattr(et, name)(x, **MAPS[name], temperature=0.8), x)
    assert places.keys() == {y.untyped_storage().data_ptr()}
    # Halves keep their scores alone: their result is rounded.
    half = x.detach().half().requires_grad_()
    _, places = kept(lambda x: getattr(et, name)(x, **MAPS[name]), half)
    assert places.keys() == {half.untyped_storage().data_ptr()}


@each
def test_p_and_a_number_for_each_row_are_kept_by_the_operator(name):
    """What is not on this machine, or is compiled, cannot be looked at for scores of +inf."""
    x = scores(shape=(64, 100))
    with Watched():
        y, places = kept(lambda x: getattr(et, name)(x, **MAPS[name]), x)
    assert len(places) == 2 and sorted(one.numel() for one in places.values()) == [64, 6400]
    assert y.untyped_storage().data_ptr() in places


@each
@pytest.mark.parametrize("kind", [None, "masked", "infinite", "infinite elsewhere"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("operator", [False, True])
def test_the_gradient_is_that_from_scores(name, kind, dim, operator):
    x = scores(kind, (100, 200))
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    turned = (lambda x: x) if dim == 1 else (lambda x: x.mT)
    with Watched() if operator else contextlib.nullcontext():
        y = getattr(et, name)(turned(x), **MAPS[name], dim=dim)
        found = torch.autograd.grad(y, x, turned(g))[0]
    arrays = (turned(one.detach()).numpy() for one in (x, turned(y), g))
    want = turned(torch.from_numpy(getattr(isentropic, f"{name}_vjp")(*arrays, **MAPS[name], axis=dim)))
    torch.testing.assert_close(found, want, rtol=0, atol=0, equal_nan=True)


@each
def test_twice_and_forward(name):
    x = scores()
    v = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))

    def second(function, x):
        first = torch.autograd.grad((function(x) * v).sum(), x, create_graph=True)[0]
        return torch.autograd.grad((first * v).sum(), x)[0]

    function = lambda x: getattr(et, name)(x, **MAPS[name])  # noqa: E731
    rows = slice(5)
    some, few = x.detach()[rows].requires_grad_(), v[rows]
    first = torch.autograd.grad((function(some) * few).sum(), some, create_graph=True)[0]
    want = torch.autograd.grad((first * few).sum(), some)[0]
    torch.testing.assert_close(second(function, x)[rows], want, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(torch.func.jvp(function, (x,), (v,))[1][rows], torch.func.jvp(function, (some,), (few,))[1])


@pytest.mark.parametrize("name", ["softmax", "entmax"])
def test_a_learned_temperature_keeps_what_it_needs(name):
    x = scores()
    temperature = torch.tensor(0.8, requires_grad=True)
    value = getattr(et, name)(x, temperature=temperature, **MAPS[name]).square().sum()
    found = torch.autograd.grad(value, temperature)[0]
    wide = x.detach().double().requires_grad_()
    want = torch.autograd.grad(getattr(et, name)(wide, temperature=temperature, **MAPS[name]).square().sum(), temperature)[0]
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


THREADS = """
import itertools
import torch
import isentropic
import isentropic.torch as et
calls = [
    lambda x: et.softmax(x),
    lambda x: et.softmax_loss(x, torch.zeros(8, dtype=torch.int64)),
    lambda x: et.entropy(x, input='scores'),
    lambda x: et.attention(x, x, x),
]
for k, gradient in itertools.product(range(4), (False, True)):
    def number():
        calls[k](torch.randn(8, 300, requires_grad=gradient))
        return isentropic.get_num_threads()
    torch.set_num_threads(3)
    assert number() == 3, (k, gradient)
    torch.set_num_threads(1)
    assert number() == 1, (k, gradient)
    isentropic.set_num_threads(5)
    torch.set_num_threads(2)
    assert number() == 5, (k, gradient)
    isentropic.set_num_threads(0)
    assert number() == 2, (k, gradient)
"""


def test_as_many_threads_as_torch():
    subprocess.run([sys.executable, "-c", THREADS], check=True)


@pytest.mark.parametrize("first", ["torch.set_num_threads(1)", ""], ids=["before the import", "OMP_NUM_THREADS"])
def test_threads_from_outside(first):
    program = f"import torch\n{first}\nimport isentropic\nimport isentropic.torch as et\net.softmax(torch.randn(4, 5))\n"
    program += "assert isentropic.get_num_threads() == 1, isentropic.get_num_threads()"
    environment = {**os.environ, "OMP_NUM_THREADS": "4" if first else "1"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_masked_row_of_log_softmax_has_the_gradient_of_a_small_batch():
    x = torch.zeros(600, 2000)
    x[4], x[5, ::2], x[5, 1] = -torch.inf, -torch.inf, torch.nan
    weights = torch.arange(1.2e6).reshape(600, 2000)
    weights[4] = 0
    found = []
    for rows in (slice(None), slice(2, 8)):
        part = x[rows].clone().requires_grad_()
        found.append(torch.autograd.grad(et.log_softmax(part), part, weights[rows])[0])
    assert torch.equal(found[0][2:8].nan_to_num(7), found[1].nan_to_num(7)) and not found[0][4].any()
