"""The door of isentropic.torch to the kernels for GPUs, through the emulated library: its device is this machine's memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import isentropic  # noqa: E402
import isentropic.torch as et  # noqa: E402
from isentropic import _cuda, _descriptions  # noqa: E402
from isentropic.torch import _losses, _maps, _measures, backends  # noqa: E402
from isentropic.torch.backends import cpu, cuda, reference  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BUILT = sorted(ROOT.glob("build/*/tests/libisentropic_cuda_emulated.so"), key=os.path.getmtime)
LIBRARY = os.environ.get(cuda.VARIABLE) or (str(BUILT[-1]) if BUILT else None)

pytestmark = [
    pytest.mark.skipif(LIBRARY is None, reason="the emulated library is not built: cmake --build ... isentropic_cuda_emulated"),
    pytest.mark.skipif(isentropic.simd_target() in ("SSE4", "SSE2", "EMU128", "SCALAR"), reason="bits are those of FMA"),
]

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
TYPICAL = {"top_k_softmax": {"k": 3}, "top_p_softmax": {"p": 0.7}, "min_p_softmax": {"p": 0.1}}
TYPICAL |= {"entropy_normalize": {"entropy": 1.1}, "entropy_clip": {"min_entropy": 0.5, "max_entropy": 1.5}}
TYPICAL |= {"top_k_softmax_loss": {"k": 3}, "top_p_softmax_loss": {"p": 0.7}}
TYPICAL |= {"renyi_entropy": {"alpha": 2.5}, "tsallis_entropy": {"alpha": 0.5}}


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setenv(cuda.VARIABLE, LIBRARY)
    _cuda.library.cache_clear()
    return cuda.implementations({**cpu.IMPLEMENTATIONS, **reference.IMPLEMENTATIONS})


def values_of(description):
    """The parameters as operators take them: defaults, and values for parameters without one."""
    given = TYPICAL.get(description["name"], {})
    return [given.get(param["name"], param["default"]) for param in description["params"]]


def scores(dtype, shape=(3, 4, 20), seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(shape, generator=generator)
    x[0, 1, 3] = -torch.inf
    return x.to(dtype)


def rows_of(description, x, dim):
    """A tensor for each parameter that may have a number for each row."""
    shape = [*x.shape[:dim], 1, *x.shape[dim + 1 :]]
    number = {"entropy": 1.1, "perplexity": None, "min_entropy": 0.5, "max_entropy": 1.5, "p": 0.6}
    rows = [number.get(name, 1.4) for name in _descriptions.per_row(description)]
    return [None if value is None else torch.full(shape, value, dtype=torch.float64) for value in rows]


def expect_same(got, want):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert torch.equal(torch.nan_to_num(a, nan=7e4), torch.nan_to_num(b, nan=7e4))


class NoNumbers(TorchDispatchMode):
    """Refuses what would wait for a device: a number of a tensor on the host, or a copy to it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        assert not name.startswith(("aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero")), name
        assert (kwargs or {}).get("device") is None or name != "aten::_to_copy", name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", [name for name, one in _descriptions.MAPS.items() if "device" not in one["not_in"]])
def test_maps_have_the_cpus_bits(name, table):
    one = _descriptions.MAPS[name]
    for k, dtype in enumerate(TYPES):
        for dim in (2, 1):
            x = scores(dtype)
            both = [None] * len(_descriptions.per_row(one)), rows_of(one, x, dim)
            for rows in both[k % 2 :]:
                arguments = (*rows, *values_of(one), dim)
                want = cpu.IMPLEMENTATIONS[name](x, *arguments)
                with NoNumbers():
                    got = table[name](x, *arguments)
                expect_same(got, want)
                grad = scores(want.dtype, want.shape, seed=k + 1) if not one["reduces"] else torch.ones_like(want)
                arguments = (*rows, want, grad, *values_of(one), dim)
                with NoNumbers():
                    got = table[f"{name}_vjp"](x, *arguments)
                expect_same(got, cpu.IMPLEMENTATIONS[f"{name}_vjp"](x, *arguments))


def target_for(one, x):
    if one["target"] == "class":
        return torch.arange(x.numel() // x.shape[-1]).reshape(x.shape[:-1]) % x.shape[-1]
    if one["target"] == "labels":
        return (torch.arange(x.numel()).reshape(x.shape) % 3 == 0).to(x.dtype)
    return scores(x.dtype, x.shape, seed=9)


LOSSES = {name: one for name, one in (_descriptions.LOSSES | _descriptions.SPARSE_LOSSES).items() if name in _losses.OPERATORS}


@pytest.mark.parametrize("name", [name for name, one in LOSSES.items() if "device" not in one["not_in"]])
def test_losses_have_the_cpus_bits(name, table):
    one = LOSSES[name]
    for dtype in TYPES:
        x = scores(dtype) if name != "margin_softmax_loss" else scores(dtype).clamp(-1, 1)
        kind = one["target"]
        target = target_for({"target": "class" if kind.startswith("class") else kind}, x)
        more = (2,) if kind.startswith("class") else ()  # ignored
        for rows in ([None] * len(_descriptions.per_row(one)), [r if r is None else r / 2 for r in rows_of(one, x, 2)]):
            values, given = values_of(one), _descriptions.named(one, rows, values_of(one))
            if isinstance(given.get("beta"), torch.Tensor) and "divergence" in given:  # others refuse beta
                values[list(given).index("divergence")] = "jsd"
            for wanted in (True, False):
                arguments = (target, *rows, *values, *more, 2, wanted)
                with NoNumbers():
                    got = table[name](x, *arguments)
                expect_same(got, cpu.IMPLEMENTATIONS[name](x, *arguments))


@pytest.mark.parametrize("name", [n for n, one in _descriptions.MEASURES.items() if "device" not in one["not_in"]])
def test_measures_have_the_cpus_bits(name, table):
    one = _descriptions.MEASURES[name]
    for dtype in TYPES:
        x = [scores(dtype), scores(dtype, seed=1)][: 1 + (one["family"] == "divergence")]
        values = values_of(one)
        values[[param["name"] for param in one["params"]].index("input")] = "scores"
        for rows in ([None] * len(_descriptions.per_row(one)), rows_of(one, x[0], 1)):
            for wanted in (True, False):
                arguments = (*rows, *values, 1, wanted)
                with NoNumbers():
                    got = table[name](*x, *arguments)
                expect_same(got, cpu.IMPLEMENTATIONS[name](*x, *arguments))


@pytest.mark.parametrize("temperatures", [False, True])
def test_token_statistics_are_nearly_the_cpus(temperatures, table):
    """The host adds in torch's order, so that last digits differ."""
    place = backends.PLACES["CPU"]
    for dtype in TYPES:
        for dim in (2, 1):
            x = scores(dtype)
            target = torch.arange(12).reshape(3, 4) % 20 if dim == 2 else torch.arange(60).reshape(3, 20) % 4
            rows = torch.full([*x.shape[:dim], 1, *x.shape[dim + 1 :]], 0.7, dtype=torch.float64) if temperatures else None
            eps = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
            with NoNumbers():
                got, top = table["token_statistics"](x, target, rows, 0.8, 3, dim)
            want, same = place["token_statistics"](x, target, rows, 0.8, 3, dim)
            torch.testing.assert_close(got, want, rtol=40 * eps, atol=40 * eps)
            values = x.gather(dim, top.movedim(-1, dim)), x.gather(dim, same.movedim(-1, dim))
            assert torch.equal(*values)
            grad = scores(got.dtype, got.shape, seed=3)
            with NoNumbers():
                dx, slopes = table["token_statistics_vjp"](x, target, rows, got, grad, 0.8, 3, dim)
            dx_want, slopes_want = place["token_statistics_vjp"](x, target, rows, want, grad, 0.8, 3, dim)
            near = torch.finfo(dtype).eps if dtype in (torch.float16, torch.bfloat16) else 40 * eps
            torch.testing.assert_close(dx, dx_want, rtol=near, atol=200 * eps)
            torch.testing.assert_close(slopes, slopes_want, rtol=1000 * eps, atol=1000 * eps)


@pytest.mark.parametrize("input", ["scores", "log_probs", "probs"])
def test_gamma_for_entropy_has_the_cpus_bits(input, table):
    for dtype in TYPES:
        x = scores(dtype)
        if input != "scores":
            x = torch.log_softmax(x.double(), -1).to(dtype)
        given = x.double().exp().to(dtype) if input == "probs" else x
        targets = torch.linspace(0, 3.2, 12, dtype=torch.float64).reshape(3, 4, 1)
        for rows in (None, targets):
            arguments = (rows, None, None if rows is not None else 1.1, None, (0.0, float("inf")), 100, input)
            with NoNumbers():
                got = table["gamma_for_entropy"](given, *arguments)
            want = cpu.IMPLEMENTATIONS["gamma_for_entropy"](given, *arguments)
            if input == "probs":  # torch's logarithm is not the library's
                torch.testing.assert_close(got[:2], want[:2], rtol=1e-4, atol=1e-6)
            else:
                expect_same(got, want)


@pytest.mark.parametrize("name", ["gumbel_noise", "gumbel_hard"])
def test_noise_is_the_cpus(name, table):
    for dtype in TYPES:
        x = scores(dtype)
        streams = torch.arange(12).reshape(3, 4) + 5
        with NoNumbers():
            got = table[name](x, streams, -3, -7, 2)
        expect_same(got, cpu.IMPLEMENTATIONS[name](x, streams, -3, -7, 2))


def test_gradients_go_through_the_kernels(table, monkeypatch):
    """As torch calls them: forward and backward of a function, with both operators replaced."""
    called = []

    def watched(name):
        def run(*arguments):
            called.append(name)
            return table[name](*arguments)

        return run

    for operator in (_maps.OPERATORS["entmax"], _maps.OPERATORS["entmax"].vjp):
        monkeypatch.setattr(operator, "_kernel", watched(operator.spec.name))
    x = scores(torch.float32).requires_grad_()
    alpha = torch.full((3, 4, 1), 1.3, dtype=torch.float64, requires_grad=True)
    et.entmax(x, alpha=alpha).square().sum().backward()
    assert called == ["entmax", "entmax_vjp"]
    got = x.grad, alpha.grad
    monkeypatch.undo()
    x.grad = alpha.grad = None
    et.entmax(x, alpha=alpha).square().sum().backward()
    expect_same(got, (x.grad, alpha.grad))


def test_empty_rows(table):
    x = torch.empty(3, 0)
    expect_same(table["softmax"](x, None, 1.0, 1), x)
    q = torch.empty(0, 5)
    value, dx, slope = table["softmax_loss"](q, torch.empty(0, dtype=torch.int64), None, 0.0, None, 1, True)
    assert value.shape == (0,) and dx.shape == (0, 5) and slope.numel() == 0


def test_what_is_wrong_is_named(table):
    with pytest.raises(ValueError, match=r"^entmax: alpha must be above 0 and finite, got -1"):
        table["entmax"](torch.zeros(2, 3), None, None, -1.0, 1.0, 1)


def test_without_a_library_there_is_no_table(monkeypatch, tmp_path):
    monkeypatch.delenv(cuda.VARIABLE)
    monkeypatch.setattr(_cuda, "__file__", str(tmp_path / "_cuda.py"))
    assert cuda.found() is None and cuda.implementations({}) == {}
    (tmp_path / "libisentropic_cuda.so").touch()
    assert cuda.found() == str(tmp_path / "libisentropic_cuda.so")


def test_torch_is_given_the_kernels_where_the_library_is_found():
    program = (
        "import json; from isentropic.torch import backends; from isentropic.torch.backends import cuda\n"
        "named = ((name, getattr(run, 'func', run)) for name, run in backends.PLACES['CUDA'].items())\n"
        "print(json.dumps([name for name, run in named if run.__module__ == cuda.__name__]))"
    )
    environment = os.environ | {cuda.VARIABLE: LIBRARY}
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, env=environment, check=True)
    names = json.loads(done.stdout)
    assert {
        "softmax",
        "entmax_vjp",
        "entropy_normalize",
        "softmax_loss",
        "kl_divergence",
        "token_statistics",
        "token_statistics_vjp",
        "gumbel_noise",
        "perturb_max",
        "gamma_for_entropy",
    } <= set(names)
    assert "sinkhorn" not in names


def test_what_is_measured_covers_the_operators():
    assert {*_measures.OPERATORS} >= {name for name, one in _descriptions.MEASURES.items() if one["family"] == "divergence"}


COMPILED = """
import torch

import isentropic.torch as et
from isentropic.torch import backends

called = set()
library = torch.library.Library("isentropic", "IMPL")


def watched(name, run):
    def running(*arguments):
        called.add(name)
        return run(*arguments)

    return running


def step(x, target, temperature, alpha):
    p = et.entmax(et.entropy_clip(3 * x, max_entropy=2.0), alpha=alpha)
    q = et.softmax(x, temperature=temperature)
    return p.square().sum() + et.softmax_loss(x, target).sum() + et.kl_divergence(q, p + 0.1, normalize=True).sum()


def gradients(run):
    torch.manual_seed(3)
    x = torch.randn(5, 40).requires_grad_()
    temperature, alpha = torch.tensor(0.7, requires_grad=True), torch.linspace(1.2, 1.9, 5).view(5, 1).requires_grad_()
    value = run(x, torch.arange(5), temperature, alpha)
    value.backward()
    return [value.detach(), x.grad, temperature.grad, alpha.grad]


want = gradients(step)
for name, run in backends.PLACES["CUDA"].items():
    library.impl(name, watched(name, run), "CPU", allow_override=True)
assert not called
got = gradients(torch.compile(step, fullgraph=True, backend="aot_eager"))
assert {"entmax", "entmax_vjp", "entropy_clip_vjp", "softmax_loss", "kl_divergence", "softmax_vjp"} <= called, called
for a, b in zip(got, want, strict=True):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
print("compiled")
"""


def test_a_compiled_step_runs_on_the_kernels():
    """torch.compile with the operators of the CPU replaced by those for CUDA: values and gradients of the whole step."""
    environment = os.environ | {cuda.VARIABLE: LIBRARY}
    done = subprocess.run([sys.executable, "-c", COMPILED], text=True, capture_output=True, env=environment)
    assert done.stdout == "compiled\n", done.stderr
