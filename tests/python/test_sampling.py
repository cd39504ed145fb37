"""Sampling: arrays of every kind, draws that only depend on their noise and their row, laws, and errors."""

import copy
import doctest
import importlib
import inspect
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isentropic
from cases import FLOATS, laid_out, torch_or_skip

CHAIN = [("temperature", 0.8), ("top_k", 20), ("top_p", 0.95)]
STEPS = [
    ("temperature", 0.5),
    ("top_k", 5),
    ("top_p", 0.8),
    ("min_p", 0.1),
    ("typical_p", 0.7),
    ("entropy", 1.0),
    ("entropy_clip", (0.5, 1.5)),
    ("epsilon", 0.03),
    ("eta", 0.2),
    ("top_n_sigma", 1.2),
    ("top_h", 0.6),
    ("p_less", None),
]
each_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step[0])


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def entropy(p):
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


def after(step, p):
    """What a step leaves of a distribution, from its definition."""
    name, value = step
    if name == "temperature":
        q = p ** (1 / value)
    elif name == "min_p":
        q = np.where(p >= value * p.max(), p, 0)
    elif name in ("epsilon", "eta", "p_less", "top_n_sigma"):
        with np.errstate(divide="ignore"):
            scores = np.log(p[p > 0])
        bound = {
            "epsilon": lambda: value,
            "eta": lambda: min(value, np.sqrt(value) * np.exp(-entropy(p))),
            "p_less": lambda: (p**2).sum() * (1 - 1e-12),
            "top_n_sigma": lambda: np.exp(scores.max() - value * scores.std()),
        }[name]()
        q = np.where(p >= min(bound, p.max()), p, 0)
    elif name == "top_h":
        order = np.argsort(-p, kind="stable")
        entropies = [entropy(p[order[:j]] / p[order[:j]].sum()) for j in range(1, (p > 0).sum() + 1)]
        count = np.flatnonzero(np.array(entropies) <= value * entropy(p)).max(initial=0) + 1
        q = np.zeros_like(p)
        q[order[:count]] = p[order[:count]]
    elif name in ("top_k", "top_p", "typical_p"):
        surprise = -np.log(np.where(p > 0, p, 1e-300))
        order = np.argsort(np.abs(surprise - entropy(p)) if name == "typical_p" else -p, kind="stable")
        count = value if name == "top_k" else np.searchsorted(np.cumsum(p[order]), value) + 1
        q = np.zeros_like(p)
        q[order[:count]] = p[order[:count]]
    else:
        low, high = value if name == "entropy_clip" else (value, value)
        target = np.clip(entropy(p), low, high)
        if target == entropy(p):
            return p
        log_p = np.log(np.where(p > 0, p, 1))
        a, b = -20, 20
        for _ in range(80):
            power = np.where(p > 0, np.exp(np.exp((a + b) / 2) * np.minimum(log_p - log_p[p > 0].max(), 0)), 0)
            a, b = ((a + b) / 2, b) if entropy(power / power.sum()) > target else (a, (a + b) / 2)
        q = power
    return q / q.sum()


@each_step
@pytest.mark.parametrize("second", [None, *STEPS], ids=lambda step: step and step[0])
def test_probs_are_the_definition(step, second):
    x = np.random.default_rng(1).normal(size=40) * 2
    steps = [step] if second is None else [step, second]
    want = softmax(x)
    for one in steps:
        want = after(one, want)
    got = isentropic.Sampler(steps).probs(x)
    np.testing.assert_allclose(got, want, atol=1e-11)
    np.testing.assert_array_equal(got > 0, want > 0)


def chi_square(counts, p):
    kept = p > 0
    expected = counts.sum() * p[kept]
    assert counts[~kept].sum() == 0
    return ((counts[kept] - expected) ** 2 / expected).sum(), kept.sum() - 1


@each_step
def test_draws_have_the_law(step):
    x = np.random.default_rng(2).normal(size=30)
    sampler = isentropic.Sampler([step], seed=5)
    p = sampler.probs(x)
    draws = sampler.sample(x, size=20000)
    chi, freedom = chi_square(np.bincount(draws, minlength=30), p)
    assert chi < freedom + 4.5 * np.sqrt(2 * freedom) + 8
    rows = sampler.sample(np.tile(x, (20000, 1)))
    chi, freedom = chi_square(np.bincount(rows, minlength=30), p)
    assert chi < freedom + 4.5 * np.sqrt(2 * freedom) + 8
    assert abs((draws == rows).mean() - (p**2).sum()) < 0.02


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_any_axis_and_layout_draws_alike(dtype, data):
    x, axis = data.draw(laid_out(dtype))
    before = x.copy()
    moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    sampler = isentropic.Sampler(CHAIN, seed=3)
    for call in (
        lambda x, axis: isentropic.sample(x, seed=1, stream=4, axis=axis),
        lambda x, axis: sampler.sample(x, stream=4, axis=axis),
        lambda x, axis: sampler.sample(x, size=2, axis=axis),
    ):
        got = call(x, axis)
        np.testing.assert_array_equal(got, call(moved, -1))
        assert got.dtype == np.int64
    for call in (
        lambda x, axis: sampler.probs(x, axis=axis),
        lambda x, axis: isentropic.gumbel_softmax(x, seed=2, axis=axis),
    ):
        got = call(x, axis)
        assert got.dtype == dtype and got.shape == x.shape
        np.testing.assert_array_equal(got, np.moveaxis(call(moved, -1), -1, axis))
    np.testing.assert_array_equal(x, before)


def test_draws_depend_on_their_row_alone():
    x = np.random.default_rng(3).normal(size=(6, 500)).astype(np.float32) * 2
    sampler = isentropic.Sampler(CHAIN, seed=9)
    for draw in (sampler.sample, lambda *a, **k: isentropic.sample(*a, seed=9, **k)):
        batch = draw(x, stream=2, position=7, size=3)
        for r in range(6):
            for c in range(3):
                assert draw(x[r], stream=2 + r, position=7 + c) == batch[r, c]
        order = [3, 0, 5]
        np.testing.assert_array_equal(draw(x[order], stream=np.add(order, 2), position=7), batch[order, 0])
        for target in isentropic.simd_targets():
            isentropic.force_simd_target(target)
            np.testing.assert_array_equal(draw(x, stream=2, position=7, size=3), batch)
        isentropic.force_simd_target("")
    # What a cut takes away changes nothing for what stays.
    cut = np.where(x < np.sort(x, axis=1)[:, -50:-49], -np.inf, x)
    full = isentropic.sample(x, seed=1, size=50)
    masked = isentropic.sample(cut, seed=1, size=50)
    stays = np.isfinite(np.take_along_axis(cut, full, axis=1))
    np.testing.assert_array_equal(full[stays], masked[stays])


def test_streams_wrap_and_seeds_are_64_bits():
    x = np.zeros((2, 1000))
    top = 2**64 - 1
    draws = isentropic.sample(x, seed=top, stream=top)
    assert draws[1] == isentropic.sample(x[0], seed=top, stream=0)
    assert isentropic.sample(x[0], seed=0, position=top) >= 0
    assert len(set(isentropic.sample(x[0], seed=1, size=40).tolist())) > 30


def test_shapes():
    x = np.zeros((2, 3, 4))
    assert isentropic.sample(x, seed=1).shape == (2, 3)
    assert isentropic.sample(x, seed=1, axis=1, size=5).shape == (2, 4, 5)
    assert isentropic.sample(x, seed=1, size=0).shape == (2, 3, 0)
    assert isentropic.sample(np.zeros((0, 4)), seed=1).shape == (0,)
    assert isentropic.sample(x, seed=1, stream=[[1], [2]]).shape == (2, 3)
    own = isentropic.sample(x, seed=1, stream=[9, 8, 7, 6, 5, 4])
    assert own[1, 0] == isentropic.sample(x[1, 0], seed=1, stream=[6])
    one = isentropic.sample([0.0, 1.0], seed=1)
    assert isinstance(one, np.int64)
    assert isentropic.sample(np.zeros((2, 0)), seed=1).tolist() == [-1, -1]


def test_rows_out_of_the_ordinary():
    inf, nan = np.inf, np.nan
    x = np.array([[1, nan, 2], [-inf, -inf, -inf], [-inf, 3, -inf], [inf, 0, -inf]])
    for sampler in [isentropic.Sampler([step], seed=1) for step in STEPS] + [isentropic.Sampler([])]:
        assert sampler.sample(x).tolist() == [-1, -1, 1, 0]
        p = sampler.probs(x)
        assert np.isnan(p[:2]).all()
        assert p[2:].tolist() == [[0, 1, 0], [1, 0, 0]]
    assert isentropic.sample(x, seed=0).tolist() == [-1, -1, 1, 0]
    both = isentropic.sample([inf, 0, inf], seed=0, size=1000)
    assert set(both.tolist()) == {0, 2} and abs((both == 0).mean() - 0.5) < 0.1


def test_gumbel_softmax():
    x = np.random.default_rng(4).normal(size=(5, 30))
    hard = isentropic.gumbel_softmax(x, hard=True, seed=3, stream=8)
    np.testing.assert_array_equal(hard.argmax(axis=1), isentropic.sample(x, seed=3, stream=8))
    assert hard.sum() == 5
    cold = isentropic.gumbel_softmax(x, temperature=1e-3, seed=3, stream=8)
    np.testing.assert_array_equal(cold.argmax(axis=1), hard.argmax(axis=1))
    warm = isentropic.gumbel_softmax(x, temperature=2.0, seed=3, stream=8)
    np.testing.assert_allclose(warm.sum(axis=1), 1)
    # The same noise: twice the logarithms differ by the same.
    log_cold = np.log(isentropic.gumbel_softmax(x, temperature=1.0, seed=3, stream=8))
    np.testing.assert_allclose(2 * np.log(warm) - log_cold, (2 * np.log(warm) - log_cold)[:, :1].repeat(30, 1), atol=1e-12)


def test_sampler_is_a_value():
    sampler = isentropic.Sampler([["top_k", 3], ("entropy_clip", (None, 2))], seed=4)
    assert repr(sampler) == "Sampler([('top_k', 3), ('entropy_clip', (None, 2))], seed=4)"
    x = np.arange(9.0)
    again = pickle.loads(pickle.dumps(sampler))
    assert again.sample(x, size=9).tolist() == sampler.sample(x, size=9).tolist()
    assert isentropic.Sampler([]).probs([0.0, 0.0]).tolist() == [0.5, 0.5]


def test_a_sampler_does_not_change():
    """Its draws follow what it was made with, so an attribute that could be written would not say how it draws."""
    steps = [["top_k", 3], ("entropy_clip", [0.5, 2])]
    made = isentropic.Sampler(steps, seed=4)
    steps[1][1][0] = 9
    for sampler in (made, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert sampler.steps == (("top_k", 3), ("entropy_clip", (0.5, 2))) and sampler.seed == 4
        for name, value in (("seed", 5), ("steps", [])):
            with pytest.raises(AttributeError):
                setattr(sampler, name, value)
        assert isentropic.Sampler(sampler.steps, seed=sampler.seed).sample(np.arange(9.0)) == made.sample(np.arange(9.0))


def refuses(kind, message, call):
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


def test_refusals():
    x = np.zeros((2, 3))
    sampler = isentropic.Sampler
    refuses(ValueError, "Sampler: top_k: k must be above 0, got 0", lambda: sampler([("top_k", 0)]))
    refuses(TypeError, "Sampler: top_k: k must be an integer, got float", lambda: sampler([("top_k", 1.5)]))
    refuses(ValueError, "Sampler: top_p: p must be above 0 and at most 1, got 0", lambda: sampler([("top_p", 0)]))
    refuses(
        ValueError,
        "Sampler: temperature: temperature must be above 0 and finite, got inf",
        lambda: sampler([("temperature", np.inf)]),
    )
    refuses(
        ValueError, "Sampler: entropy: entropy must be at least 0 and finite, got nan", lambda: sampler([("entropy", np.nan)])
    )
    clip = "Sampler: entropy_clip: min_entropy must be at most max_entropy, got min_entropy 2, max_entropy 1"
    refuses(ValueError, clip, lambda: sampler([("entropy_clip", (2, 1))]))
    names = (
        "temperature, top_k, top_p, min_p, typical_p, entropy, entropy_clip, epsilon, eta, top_n_sigma, top_h, p_less, xtc, "
        "penalties, dry, mirostat"
    )
    for wrong, right in (("topk", "top_k"), ("top_nsigma", "top_n_sigma"), ("temprature", "temperature")):
        refuses(
            ValueError,
            f"Sampler: a step must be one of {names}, got '{wrong}': did you mean {right}?",
            lambda wrong=wrong: sampler([(wrong, 1)]),
        )
    refuses(ValueError, f"Sampler: a step must be one of {names}, got 'beam'", lambda: sampler([("beam", 1)]))
    pair = 'a step must be a pair of name and value such as ("top_k", 50)'
    refuses(TypeError, f"Sampler: {pair}, got 'top_k'", lambda: sampler(["top_k"]))
    refuses(
        TypeError,
        "Sampler: entropy_clip must have a pair (min_entropy, max_entropy), got 1",
        lambda: sampler([("entropy_clip", 1)]),
    )
    steps = 'Sampler: steps must be a list of (name, value) pairs such as ("top_k", 50)'
    refuses(TypeError, steps + ", got {'top_k': 1}", lambda: sampler({"top_k": 1}))
    refuses(ValueError, "Sampler: seed must be at least 0 and below 2**64, got -1", lambda: sampler([], seed=-1))
    refuses(TypeError, "sample: seed must be an integer, got float", lambda: isentropic.sample(x, seed=1.0))
    with pytest.raises(TypeError, match="seed"):
        isentropic.sample(x)
    refuses(ValueError, "sample: size must be at least 0 and below 2**62, got -1",
            lambda: isentropic.sample(x, seed=1, size=-1))  # fmt: skip
    refuses(ValueError, "sample: stream must be at least 0, got -2", lambda: isentropic.sample(x, seed=1, stream=[1, -2]))
    both_sides = [2**63, 0]  # of which NumPy makes floats
    assert isentropic.sample(x, seed=1, stream=both_sides).tolist() == [
        isentropic.sample(x[r], seed=1, stream=one) for r, one in enumerate(both_sides)
    ]
    big = "sample: stream must be at least 0 and below 2**64, got 18446744073709551616"
    refuses(ValueError, big, lambda: isentropic.sample(x, seed=1, stream=[2**64, 0]))
    refuses(
        ValueError,
        "sample: stream must be an integer or an array that broadcasts to (2,), x's shape without axis 1, got shape (3,)",
        lambda: isentropic.sample(x, seed=1, stream=[1, 2, 3]),
    )
    refuses(
        ValueError, "sample: temperature must be above 0 and finite, got 0", lambda: isentropic.sample(x, seed=1, temperature=0)
    )
    refuses(
        ValueError,
        "gumbel_softmax: temperature must be above 0 and finite, got -1",
        lambda: isentropic.gumbel_softmax(x, seed=1, temperature=-1),
    )
    refuses(ValueError, "sample: x must have at least one axis, got a single number", lambda: isentropic.sample(1.0, seed=1))


def test_documentation():
    for one in (
        isentropic.sample,
        isentropic.gumbel_softmax,
        isentropic.gumbel_noise,
        isentropic.speculative_sample,
        isentropic.Sampler,
        isentropic.Sampler.probs,
        isentropic.Sampler.sample,
    ):
        documented = inspect.getdoc(one)
        assert documented
        target = one.__init__ if inspect.isclass(one) else one
        for name in inspect.signature(target).parameters:
            assert name in ("self",) or f"{name} : " in documented, (one, name)
    finder = doctest.DocTestFinder(recurse=True)
    runner = doctest.DocTestRunner()
    for one in (
        isentropic.sample,
        isentropic.gumbel_softmax,
        isentropic.gumbel_noise,
        isentropic.speculative_sample,
        isentropic.Sampler,
    ):
        for test in finder.find(one, one.__name__, globs={"isentropic": isentropic, "np": np}):
            runner.run(test)
    assert runner.failures == 0 and runner.tries > 4


def test_torch():
    torch = torch_or_skip()
    import isentropic.torch

    x = torch.randn(4, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    drawn = isentropic.sample(x, seed=3)
    assert isinstance(drawn, torch.Tensor) and drawn.dtype == torch.int64 and drawn.shape == (4,)
    assert drawn.tolist() == isentropic.sample(x.numpy(), seed=3).tolist()
    p = isentropic.torch.gumbel_softmax(x, temperature=0.7, seed=3)
    np.testing.assert_array_equal(p.numpy(), isentropic.gumbel_softmax(x.numpy(), temperature=0.7, seed=3))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        scores = (x * 8 + 3).to(dtype)
        got = isentropic.torch.gumbel_softmax(scores, temperature=0.7, seed=3)
        want = torch.from_numpy(isentropic.gumbel_softmax(scores.float().numpy(), temperature=0.7, seed=3))
        assert got.dtype is dtype and torch.equal(got, want.to(dtype))
    for wrong in (-1, 0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"gumbel_softmax: temperature must be above 0 and finite, got {wrong}"):
            isentropic.torch.gumbel_softmax(x, temperature=wrong, seed=3)
    with pytest.raises(TypeError, match="gumbel_softmax: temperature must be a number or a tensor, got str"):
        isentropic.torch.gumbel_softmax(x, temperature="1", seed=3)
    with pytest.raises(ValueError, match=r"gumbel_softmax: temperature must be .* broadcasts to \(4, 1\), .* got shape \(3,\)"):
        isentropic.torch.gumbel_softmax(x, temperature=torch.ones(3), seed=3)
    of_rows = torch.tensor([0.2, 0.7, 1.0, 3.0], dtype=torch.float64)[:, None]
    rows = isentropic.torch.gumbel_softmax(x, temperature=of_rows, seed=3)
    assert torch.equal(rows[1], p[1]) and not torch.equal(rows[2], p[2])

    with pytest.raises(ValueError, match="gumbel_softmax: temperature must be above 0 and finite, got 0"):
        isentropic.torch.gumbel_softmax(x, temperature=torch.tensor(0.0), seed=3)
    for special in ([0.0, math.nan, math.inf], [0.0, math.nan, 1.0], [math.inf, 0.0, math.inf], [-math.inf] * 3):
        scores = torch.tensor(special)
        got = isentropic.torch.gumbel_softmax(scores, seed=1).numpy()
        np.testing.assert_array_equal(got, isentropic.gumbel_softmax(scores.numpy(), seed=1))

    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: isentropic.torch.gumbel_softmax(x, temperature=0.7, seed=3, dim=0), x)
    streams = torch.tensor([[7], [2**63 - 1]])
    own = isentropic.torch.gumbel_softmax(x.reshape(2, -1, x.shape[-1]), hard=True, seed=3, stream=streams)
    want = isentropic.gumbel_softmax(x.detach().numpy().reshape(own.shape), hard=True, seed=3, stream=streams.numpy())
    np.testing.assert_array_equal(own.detach().numpy(), want)
    hard = isentropic.torch.gumbel_softmax(x, temperature=0.7, hard=True, seed=3)
    assert hard.argmax(dim=1).tolist() == drawn.tolist() and set(hard.detach().flatten().tolist()) == {0.0, 1.0}
    weight = torch.arange(30.0, dtype=torch.float64)
    (straight,) = torch.autograd.grad((hard * weight).sum(), x)
    (relaxed,) = torch.autograd.grad((isentropic.torch.gumbel_softmax(x, temperature=0.7, seed=3) * weight).sum(), x)
    assert torch.equal(straight, relaxed) and straight.abs().sum() > 0

    for hard_too in (False, True):

        def drawn_once(x, hard=hard_too):
            return isentropic.torch.gumbel_softmax(x, temperature=0.5, hard=hard, seed=3)

        compiled = torch.compile(drawn_once, fullgraph=True, backend="aot_eager")(x)
        assert torch.equal(compiled, drawn_once(x))
        (want,) = torch.autograd.grad(drawn_once(x).pow(2).sum(), x)
        assert torch.equal(torch.autograd.grad(compiled.pow(2).sum(), x)[0], want)

    want = isentropic.torch.gumbel_softmax(x, seed=1, stream=torch.tensor([4, 3, 2, 1]))
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int32):
        streams = torch.tensor([4, 3, 2, 1]).to(dtype)
        assert torch.equal(isentropic.torch.gumbel_softmax(x, seed=1, stream=streams), want)
    for streams in ([4, 3, 2, 1], (4, 3, 2, 1), np.arange(1, 5)[::-1], np.array([4, 3, 2, 1], ">u2")):
        assert torch.equal(isentropic.torch.gumbel_softmax(x, seed=1, stream=streams), want)
    last = np.array([[0], [2**64 - 1]], np.uint64)
    got = isentropic.torch.gumbel_softmax(x.detach().reshape(2, 2, -1), seed=1, hard=True, stream=last)
    want = isentropic.gumbel_softmax(x.detach().numpy().reshape(2, 2, -1), seed=1, hard=True, stream=last)
    np.testing.assert_array_equal(got.numpy(), want)
    for hard_too in (False, True):
        nothing = torch.zeros(4, 0, requires_grad=True)
        drawn = isentropic.torch.gumbel_softmax(nothing, seed=1, hard=hard_too)
        assert drawn.shape == (4, 0) and torch.autograd.grad(drawn.sum(), nothing)[0].shape == (4, 0)

    half = x.detach().to(torch.bfloat16)
    assert isentropic.torch.gumbel_softmax(half, seed=1).dtype == torch.bfloat16
    odd = torch.tensor([[0.0, float("inf"), float("inf")], [float("nan"), 0, 0], [0, -float("inf"), 1]])
    p = isentropic.torch.gumbel_softmax(odd, seed=1)
    assert p[0, 0] == 0 and abs(p[0].sum() - 1) < 1e-6 and p[1].isnan().all() and p[2, 1] == 0
    for stream, error, message in (
        (torch.tensor(-1), ValueError, "stream must be at least 0, got -1"),
        (torch.tensor(1.0), TypeError, "stream must be of integers, got dtype torch.float32"),
        (np.array([-1]), ValueError, "stream must be at least 0, got -1"),
        ([0.5] * 4, TypeError, "stream must be of integers, got dtype float64"),
        (torch.arange(99), ValueError, "stream must be an integer or a tensor that broadcasts"),
        ("a", TypeError, "stream must be an integer, got str"),
    ):
        with pytest.raises(error, match=f"gumbel_softmax: {message}"):
            isentropic.torch.gumbel_softmax(x, seed=1, stream=stream)
    with pytest.raises(TypeError, match=r"gumbel_softmax: x must be a torch\.Tensor"):
        isentropic.torch.gumbel_softmax([1.0], seed=1)
    with pytest.raises(IndexError, match="dim 2 is out of bounds"):
        isentropic.torch.gumbel_softmax(x, seed=1, dim=2)


def test_messages_about_tensors_name_only_what_exists():
    """There is no sample_vjp, and no isentropic.torch.Sampler.probs but that of an object."""
    torch = pytest.importorskip("torch")
    half, moving = torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, requires_grad=True)
    draws = {"sample": lambda x: isentropic.sample(x, seed=1), "Sampler.probs": lambda x: isentropic.Sampler([]).probs(x)}
    for name, draw in draws.items():
        advice = "isentropic.torch can" if name == "sample" else r"pass x.float"
        with pytest.raises(
            TypeError, match=rf"^{name}: x is a Tensor of dtype torch.bfloat16 that NumPy cannot read; {advice}"
        ):
            draw(half)
    with pytest.raises(TypeError, match=r"^Sampler.probs: x is a Tensor that requires grad, and the result has no gradient"):
        draws["Sampler.probs"](moving)
    with pytest.raises(TypeError, match=r"isentropic.torch.softmax is differentiable, or pass x.detach\(\)$"):
        isentropic.softmax(moving)
    with pytest.raises(TypeError, match=r"^token_statistics: logits must be a torch.Tensor, got ndarray$"):
        importlib.import_module("isentropic.torch").token_statistics(np.zeros((2, 3)), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("given", ["seed", "stream", "a tensor's seed"])
def test_seeds_of_a_compiled_draw_are_one_graph(given):
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    def draw(x, number):
        return et.gumbel_softmax(x, **{"seed": 1, "seed" if "seed" in given else "stream": number})

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(draw, fullgraph=True, backend=backend)
    for number in (3, 5, 2**40, 7):
        number = torch.tensor(number) if given.startswith("a tensor") else number
        assert torch.equal(compiled(x, number), draw(x, number))
    assert len(graphs) <= 2  # of the first number alone, and of all
