"""Chains of steps on tensors that say that they are on a GPU: the tokens of the CPU, and nothing waits for the device."""

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

from isentropic._numpy._chain import Chain  # noqa: E402
from isentropic.torch import backends  # noqa: E402
from isentropic.torch._chain import TensorChain  # noqa: E402
from on_device import NEEDS, OnDevice, device, to_device, to_host, use_kernels  # noqa: E402

pytestmark = NEEDS


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    use_kernels(monkeypatch)


def scores(rows=12, n=40, seed=3):
    x = np.random.default_rng(seed).normal(size=(rows, n)).astype(np.float32) * 3
    x[2, 5:] = -np.inf
    x[3, 4] = x[3, 9] = x[3].max()
    x[4] = -np.inf
    x[5, 7] = np.nan
    x[6, 8] = np.inf
    return x


TEXTS = np.array([([1, 2, 3] * 4)[: 5 + r % 4] + [-1] * (3 - r % 4) for r in range(12)])  # -1 is padding
STEPS = {
    "none": [],
    "of Sampler": [("temperature", 0.7), ("top_k", 12), ("entropy", 1.1), ("top_p", 0.8)],
    "typical_p, entropy_clip": [("typical_p", 0.9), ("entropy_clip", (None, 1.0))],
    "epsilon": [("epsilon", 0.03)],
    "eta": [("top_k", 30), ("eta", 0.05)],
    "top_n_sigma": [("top_n_sigma", 1.0), ("temperature", 2.0)],
    "dry": [("dry", {"allowed_length": 1, "multiplier": 2.0})],
}
DRAWN = {"xtc": [("xtc", (0.5, 0.05)), ("top_p", 0.9)], "mirostat": [("mirostat", (1.2, 0.1))]}


def both(steps, seed, stream, x, position, texts):
    """What Chain gives on the host, and TensorChain on the device."""
    host, there = Chain(steps, seed, stream), TensorChain(steps, seed, stream)
    length = position if isinstance(position, int) else position.numpy()
    found = []
    for turn in range(3):  # mirostat learns, and positions grow
        given = position + turn
        with device():
            on_device = given if isinstance(given, int) else to_device(given)
            got = there(to_device(torch.from_numpy(x)), on_device, texts if there.reads_text else None)
        assert isinstance(got, OnDevice)
        found.append((host(x, length + turn, texts if host.reads_text else None), to_host(got).numpy()))
    return found


@pytest.mark.parametrize("name", STEPS)
def test_distributions_are_those_of_the_cpu(name):
    for want, got in both(STEPS[name], None, 0, scores(), 9, TEXTS):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(got == -np.inf, want == -np.inf)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("streams", [4, "rows", "one"])
@pytest.mark.parametrize("positions", [9, "rows"])
@pytest.mark.parametrize("name", [*STEPS, *DRAWN])
def test_tokens_are_those_of_the_cpu(name, positions, streams, monkeypatch):
    if Chain((STEPS | DRAWN)[name], 1, 0).adjusts:  # its bounds belong to texts, on the CPU
        for read in ("cpu", "numpy", "tolist"):
            monkeypatch.setattr(OnDevice, read, lambda self, how=read: getattr(self.inner, how)())
    stream = {"rows": np.arange(12) * 5, "one": [7]}.get(streams, streams)
    position = torch.tensor([(text >= 0).sum() for text in TEXTS]) if positions == "rows" else positions
    for seed in (1, 1 << 63):
        for want, got in both((STEPS | DRAWN)[name], seed, stream, scores(), position, TEXTS):
            np.testing.assert_array_equal(got, want)


def test_without_kernels_it_runs_on_the_cpu_with_a_warning(monkeypatch):
    for name in ("sampler_probs", "sampler_sample"):
        monkeypatch.delitem(backends.PLACES["CUDA"], name)
    with device(), pytest.warns(UserWarning, match="sampler_sample has no kernel for CUDA, it runs on the CPU"):
        got = TensorChain([("top_k", 3)], 7, 2)(to_device(torch.from_numpy(scores())), 5)
    np.testing.assert_array_equal(to_host(got).numpy(), Chain([("top_k", 3)], 7, 2)(scores(), 5))


# The adapters.


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("seed", [None, 3])
def test_transformers_on_the_device(mask, seed):
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from isentropic.transformers import SamplerLogitsProcessor

    x, ids = torch.from_numpy(scores()), torch.arange(12 * 6).reshape(12, 6)
    seen = (torch.arange(5) >= torch.arange(12)[:, None] % 3).long() if mask else None
    given = {"seed": seed, "stream": 2}
    want = SamplerLogitsProcessor([("min_p", 0.02), ("eta", 0.01)], attention_mask=seen, **given)(ids, x)
    with device():
        there = None if seen is None else to_device(seen)
        got = SamplerLogitsProcessor([("min_p", 0.02), ("eta", 0.01)], attention_mask=there, **given)(
            to_device(ids), to_device(x)
        )
    assert isinstance(got, OnDevice) and got.dtype == x.dtype
    torch.testing.assert_close(to_host(got), want, rtol=2e-6, atol=2e-6, equal_nan=True)


def test_vllm_on_the_device(monkeypatch):
    import isentropic.vllm

    first = isentropic.vllm._make(object)(None, None, False)
    states = types.SimpleNamespace(
        all_token_ids=types.SimpleNamespace(gpu=torch.ones(8, 9, dtype=torch.int32)),
        prompt_len=types.SimpleNamespace(np=np.array([0, 0, 0, 0, 3, 0, 4, 2])),
    )
    second = isentropic.vllm._make_v2(type("Base", (), {"__init__": lambda self, *_: None}))(None, states)
    asked = [{"steps": [["top_k", 5]], "seed": 2}, None, {"steps": [["entropy", 1.0]]}]
    params = [types.SimpleNamespace(extra_args=None if one is None else {"isentropic": one}) for one in asked]
    x = torch.from_numpy(scores()[:2].repeat(2, 0)[:3])
    first.update_state(types.SimpleNamespace(removed=[], moved=[], added=[(r, params[r], [1] * (r + 2), []) for r in range(3)]))
    for slot, one in zip((7, 4, 6), params, strict=True):
        second.add_request(slot, one)
    found = []
    for wrap in (to_device, lambda x: x):
        with device():
            context = types.SimpleNamespace(idx_mapping_np=np.array([7, 4, 6]), pos=wrap(torch.tensor([1, 2, 3])))
            found.append([to_host(first.apply(wrap(x.clone()))), to_host(second.apply(wrap(x.clone()), context))])
    for got in (*found[0], found[0][1], found[1][0]):
        torch.testing.assert_close(got, found[1][1], rtol=2e-6, atol=2e-6)
    assert int(found[0][0][0].isfinite().sum()) == 1 and torch.equal(found[0][0][1], x[1])
