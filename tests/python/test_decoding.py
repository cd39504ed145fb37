"""What decoding needs beside the steps of distributions: texts, draws that steps depend on, draws without replacement, and
speculative decoding; in NumPy, torch and JAX."""

import itertools
import json
import math

import numpy as np
import pytest

import isentropic

RNG = np.random.default_rng


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fits(counts, p):
    """Pearson's statistic is not too large."""
    expected, counts = counts.sum() * np.ravel(p), np.ravel(counts)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    chi, freedom = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum(), kept.sum() - 1
    return chi < freedom + 4.5 * math.sqrt(2 * max(freedom, 1)) + 8


# Steps that read the text.


def penalized(x, text, repetition=1.0, presence=0.0, frequency=0.0, last=64):
    x, text = x.copy(), [token for token in text if token >= 0]
    text = text if last < 0 else text[len(text) - min(last, len(text)) :]
    for token in set(text):
        if token < len(x):
            x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
            x[token] -= presence + frequency * text.count(token)
    return x


def dry(x, text, multiplier=0.8, base=1.75, allowed_length=2, breakers=(), last=-1):
    """From llama.cpp's description, in the slowest way."""
    x, text = x.copy(), [token for token in text if token >= 0]
    text = text if last < 0 else text[len(text) - min(last, len(text)) :]
    longest = {}
    for at in range(len(text) - 1):
        length = 0
        while length <= at and text[at - length] == text[len(text) - 1 - length] and text[at - length] not in breakers:
            length += 1
        if text[at + 1] not in breakers:
            longest[text[at + 1]] = max(longest.get(text[at + 1], 0), length)
    for token, length in longest.items():
        if length >= allowed_length and token < len(x):
            x[token] -= multiplier * base ** (length - allowed_length)
    return x


TEXT_STEPS = [
    ("penalties", {"repetition": 1.3}),
    ("penalties", {"repetition": 0.7, "presence": 0.5, "frequency": -0.25, "last": 3}),
    ("penalties", {"presence": 1.0, "last": -1}),
    ("penalties", {"presence": 1.0, "last": 0}),
    ("dry", {}),
    ("dry", {"multiplier": 1.5, "base": 1.2, "allowed_length": 1, "last": 7}),
    ("dry", {"allowed_length": 1, "breakers": [2]}),
]
DEFINITIONS = {"penalties": penalized, "dry": dry}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [12, 700])
@pytest.mark.parametrize("step", TEXT_STEPS, ids=lambda step: f"{step[0]}-{len(step[1])}")
def test_steps_of_texts_are_their_definition(step, n, dtype):
    random = RNG(3)
    name, values = step
    for _ in range(40):
        rows = [random.integers(-1, 5, size=random.integers(0, 14)).tolist() for _ in range(3)]
        x = random.normal(size=(3, n)).astype(dtype) * 2
        x[1, 3] = -np.inf
        want = softmax(
            np.stack([DEFINITIONS[name](one.astype(np.float64), text, **values) for one, text in zip(x, rows, strict=True)])
        )
        got = isentropic.Sampler([step]).probs(x, tokens=rows)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, atol=1e-6 if dtype == np.float32 else 1e-13)
        # After other steps it acts on the scores that these left: x / T, and what was dropped stays dropped.
        heated = softmax(
            np.stack(
                [DEFINITIONS[name](one.astype(np.float64) / 0.5, text, **values) for one, text in zip(x, rows, strict=True)]
            )
        )
        got = isentropic.Sampler([("temperature", 0.5), step]).probs(x, tokens=rows)
        np.testing.assert_allclose(got, heated, atol=2e-6 if dtype == np.float32 else 1e-12)
        kept = isentropic.Sampler([("top_k", 4)]).probs(x) > 0
        got = isentropic.Sampler([("top_k", 4), step]).probs(x, tokens=rows)
        np.testing.assert_array_equal(got > 0, kept)
        where = np.where(kept, want, 0)
        np.testing.assert_allclose(got, where / where.sum(-1, keepdims=True), atol=1e-6 if dtype == np.float32 else 1e-12)


def test_penalties_and_steps_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.generation.logits_process", reason="transformers is not installed")
    from isentropic.transformers import SamplerLogitsProcessor

    scores = torch.randn(50, 300, generator=torch.Generator().manual_seed(2)) * 2
    ids = torch.randint(0, 300, (50, 20), generator=torch.Generator().manual_seed(3))
    for step, warper in [
        (("epsilon", 0.01), theirs.EpsilonLogitsWarper(0.01)),
        (("epsilon", 0.9), theirs.EpsilonLogitsWarper(0.9)),
        (("eta", 0.02), theirs.EtaLogitsWarper(0.02)),
        (("eta", 0.9), theirs.EtaLogitsWarper(0.9)),
        (("penalties", {"repetition": 1.4, "last": -1}), theirs.RepetitionPenaltyLogitsProcessor(1.4)),
        (("penalties", {"repetition": 0.6, "last": -1}), theirs.RepetitionPenaltyLogitsProcessor(0.6)),
    ]:
        want = torch.log_softmax(warper(ids, scores.clone()), dim=-1)
        for dtype, atol in ((torch.float32, 1e-5), (torch.float64, 1e-5)):
            got = SamplerLogitsProcessor([step])(ids, scores.to(dtype))
            assert got.dtype == dtype
            np.testing.assert_array_equal(np.isinf(got), np.isinf(want), err_msg=str(step))
            kept = ~np.isinf(want.numpy())
            np.testing.assert_allclose(got.numpy()[kept], want.numpy()[kept], atol=atol, err_msg=str(step))


def test_top_h_renormalises():
    """transformers sums -p log p over the top 100 without renormalising."""
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    total = isentropic.entropy(p)
    for share in (0.3, 0.5, 0.7, 0.9, 1.0):
        kept = isentropic.Sampler([("top_h", share)]).probs(np.log(p)) > 0
        count = kept.sum()
        assert kept[:count].all()
        assert isentropic.entropy(p[:count], normalize=True) <= share * total + 1e-12
        if count < 5:
            assert isentropic.entropy(p[: count + 1], normalize=True) > share * total


# Steps that draw.


def test_xtc():
    p = np.array([0.3, 0.05, 0.2, 0.2, 0.25])
    x = np.log(p)
    always = isentropic.Sampler([("xtc", (1.0, 0.1))])
    # The last of the two equal ones counts as less probable.
    np.testing.assert_allclose(always.probs(x), [0, 0.2, 0, 0.8, 0])
    np.testing.assert_allclose(isentropic.Sampler([("xtc", (0.0, 0.1))]).probs(x), p)
    np.testing.assert_allclose(isentropic.Sampler([("xtc", (1.0, 0.28))]).probs(x), p)  # one alone is no choice
    half = isentropic.Sampler([("xtc", (0.5, 0.1))], seed=4)
    with pytest.raises(ValueError, match=r"^Sampler.probs: what xtc leaves depends on the draw"):
        half.probs(x)
    index, left = half.sample(np.tile(x, (20000, 1)), return_probs=True)
    acts = left[:, 0] == 0
    assert abs(acts.mean() - 0.5) < 4 * 0.5 / math.sqrt(20000)
    np.testing.assert_allclose(left[acts], np.broadcast_to(always.probs(x), (acts.sum(), 5)))
    np.testing.assert_allclose(left[~acts], np.broadcast_to(p, ((~acts).sum(), 5)))
    for rows, law in ((acts, always.probs(x)), (~acts, p)):  # the token is independent of whether the step acts
        assert fits(np.bincount(index[rows], minlength=5), law)
    many = half.sample(x, size=20000)
    assert fits(np.bincount(many, minlength=5), (p + always.probs(x)) / 2)
    with pytest.raises(ValueError, match=r"^Sampler.sample: p must be of one draw: that of xtc depends on the draw"):
        half.sample(x, size=2, return_probs=True)


def mirostat(x, surprise, rate, draw, steps):
    """Definition: (indices, bounds)."""
    bound, found = 2 * surprise, []
    for position in range(steps):
        p = softmax(x[position])
        kept = p >= min(math.exp(-bound), p.max())
        q = np.where(kept, p, 0) / p[kept].sum()
        index = draw(position)
        assert q[index] > 0
        bound -= rate * (-math.log(q[index]) - surprise)
        found.append((index, q))
    return found


def test_mirostat():
    x = RNG(5).normal(size=(60, 50)) * 2
    chain = isentropic.Sampler([("temperature", 1.0), ("mirostat", (1.2, 0.3))], seed=6)
    drawn = [chain.sample(x[t], stream=3, position=t, return_probs=True) for t in range(60)]
    for (index, got), (_, want) in zip(drawn, mirostat(x, 1.2, 0.3, lambda t: int(drawn[t][0]), 60), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-9)
        assert got[index] > 0
    again = isentropic.Sampler(chain.steps, seed=6)
    assert [int(again.sample(x[t], stream=3, position=t)) for t in range(60)] == [int(index) for index, _ in drawn]
    # Positions at once, rows with streams of their own between each other, and a text that starts anew.
    same = np.tile(x[0], (2, 1))
    for size in (1, 7):
        turns = [again.sample(same, stream=[3, 9], position=t, size=size).tolist() for t in range(0, 28, size)]
        alone = [[again.sample(x[0], stream=s, position=t) for t in range(28)] for s in (3, 9)]
        assert [[one for turn in turns for one in turn[r]] for r in range(2)] == alone
    with pytest.raises(ValueError, match=r"^Sampler: mirostat must be the last step"):
        isentropic.Sampler([("mirostat", (1.0, 0.1)), ("top_k", 3)])
    with pytest.raises(ValueError, match=r"^Sampler.probs: what mirostat leaves depends on the draw"):
        chain.probs(x)
    surprises = []
    for t in range(2000):
        index, q = again.sample(x[t % 60], stream=8, position=t, return_probs=True)
        surprises.append(-math.log(q[index]))
    assert abs(np.mean(surprises[100:]) - 1.2) < 0.05


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda s: s([("penalties", {})]).probs([0.0]),
            ValueError,
            "Sampler.probs: tokens must be given: penalties reads the text",
        ),
        (
            lambda s: s([("dry", {})]).sample([0.0]),
            ValueError,
            "Sampler.sample: tokens must be given: dry reads the text so far",
        ),
        (lambda s: s([]).probs([0.0], tokens=[1]), ValueError, "Sampler.probs: tokens must not be given: no step reads them"),
        (
            lambda s: s([("penalties", {})]).probs(np.zeros((2, 4)), tokens=[[1, -1], [3, 4]]),
            ValueError,
            "Sampler.probs: tokens must be below 4, the number of scores of a row, got 4 at entry 1 in row 1",
        ),
        (
            lambda s: s([("dry", {})]).probs([0.0], tokens=[0.5]),
            TypeError,
            "Sampler.probs: tokens must be of integers, got dtype",
        ),
        (
            lambda s: s([("dry", {})]).probs([[0.0]] * 2, tokens=[[1]] * 3),
            ValueError,
            r"Sampler.probs: tokens must be .* \(2, 1\)",
        ),
        (lambda s: s([("dry", {"factor": 1})]), TypeError, "Sampler: dry has no parameter 'factor'; it has multiplier, base"),
        (lambda s: s([("dry", {"multiplier": 0})]), ValueError, "Sampler: dry: multiplier must be above 0 and finite, got 0"),
        (lambda s: s([("dry", {"breakers": 3})]), TypeError, "Sampler: dry: breakers must be a list of integers, got int"),
        (
            lambda s: s([("dry", {"breakers": [0.5]})]),
            TypeError,
            "Sampler: dry: breakers must be a list of integers, got float",
        ),
        (
            lambda s: s([("penalties", {"repetition": 0})]),
            ValueError,
            "Sampler: penalties: repetition must be above 0 and finite, got 0",
        ),
        (lambda s: s([("penalties", {"last": -2})]), ValueError, "Sampler: penalties: last must be at least -1, got -2"),
        (
            lambda s: s([("penalties", 1.1)]),
            TypeError,
            r"Sampler: penalties must have a dict, or a tuple \(repetition, presence",
        ),
        (lambda s: s([("p_less", 0.5)]), TypeError, "Sampler: p_less has no parameters: its value must be None, got 0.5"),
        (lambda s: s([("xtc", (1.5, 0.1))]), ValueError, "Sampler: xtc: probability must be at least 0 and at most 1, got 1.5"),
        (lambda s: s([("xtc", 0.5)]), TypeError, r"Sampler: xtc must have a pair \(probability, threshold\), got 0.5"),
        (lambda s: s([("xtc", (None, 0.5))]), TypeError, "Sampler: xtc must have a value for probability"),
        (lambda s: s([("mirostat", (0, 0.1))]), ValueError, "Sampler: mirostat: surprise must be above 0 and finite, got 0"),
        (lambda s: s([("top_h", 0)]), ValueError, "Sampler: top_h: share must be above 0 and at most 1, got 0"),
        (lambda s: s([("top_n_sigma", 0)]), ValueError, "Sampler: top_n_sigma: n must be above 0 and finite, got 0"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=rf"^{text}"):
        call(isentropic.Sampler)


def test_return_probs_is_the_distribution_of_the_draws():
    x = RNG(1).normal(size=(4, 6, 3))
    chain = isentropic.Sampler([("temperature", 0.7), ("min_p", 0.1)], seed=2)
    for axis in (0, 1, 2):
        index, p = chain.sample(x, return_probs=True, axis=axis)
        np.testing.assert_array_equal(index, chain.sample(x, axis=axis))
        np.testing.assert_array_equal(p, chain.probs(x, axis=axis))
    index, p = chain.sample(x.astype(np.float16), size=3, return_probs=True)
    assert index.shape == (4, 6, 3) and p.dtype == np.float16 and p.shape == x.shape
    index, p = chain.sample([[1.0, math.nan], [2.0, 1.0]], return_probs=True)
    assert index[0] == -1 and np.isnan(p[0]).all() and p[1, 0] > 0


# Draws without replacement.


def test_draws_without_putting_back_have_the_law_of_successive_draws():
    p = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    got = isentropic.sample(np.tile(np.log(p), (60000, 1)), size=3, replace=False, seed=3)
    orders = list(itertools.permutations(range(5), 3))
    law, counts = [], []
    for order in orders:
        left, chance = 1.0, 1.0
        for index in order:
            chance *= p[index] / left
            left -= p[index]
        law.append(chance)
        counts.append((got == order).all(-1).sum())
    assert sum(counts) == 60000 and fits(np.array(counts), np.array(law))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("n", [1, 5, 64, 300, 5000])
def test_draws_without_putting_back_are_the_largest_with_noise(n, dtype):
    x = (RNG(n).normal(size=(3, n)) * 3).astype(dtype)
    x[1, 1:] = -np.inf
    noise = isentropic.gumbel_noise((3, n), seed=5, stream=7, position=2)
    for size, temperature in itertools.product((0, 1, 4, n, n + 3), (1.0, 0.3)):
        want = np.full((3, size), -1)
        keys = x.astype(np.float64) / temperature + noise
        for r in range(3):
            order = np.argsort(-keys[r], kind="stable")
            order = order[keys[r][order] > -np.inf][:size]
            want[r, : len(order)] = order
        got = isentropic.sample(x, size=size, replace=False, temperature=temperature, seed=5, stream=7, position=2)
        np.testing.assert_array_equal(got, want)
    one = isentropic.sample(x, replace=False, seed=5)
    np.testing.assert_array_equal(one, isentropic.sample(x, seed=5))
    assert isentropic.sample([math.nan, 1.0], size=2, replace=False, seed=1).tolist() == [-1, -1]
    with pytest.raises(TypeError, match=r"^sample: replace must be a bool"):
        isentropic.sample(x, replace=0, seed=1)


def test_gumbel_noise():
    noise = isentropic.gumbel_noise((20, 3, 500), seed=2, stream=4, position=9)
    assert noise.dtype == np.float64
    x = RNG(1).normal(size=noise.shape)
    np.testing.assert_array_equal((x + noise).argmax(-1), isentropic.sample(x, seed=2, stream=4, position=9))
    own = isentropic.gumbel_noise((20, 3, 500), seed=2, stream=4 + np.arange(60), position=9)
    np.testing.assert_array_equal(noise, own)
    np.testing.assert_array_equal(isentropic.gumbel_noise(500, seed=2, stream=5, position=9), noise[0, 1])
    narrow = isentropic.gumbel_noise((20, 3, 500), seed=2, stream=4, position=9, dtype=np.float32)
    np.testing.assert_array_equal(narrow, noise.astype(np.float32))
    assert isentropic.gumbel_noise((0, 3), seed=1).shape == (0, 3)
    assert abs(noise.mean() - np.euler_gamma) < 4 * math.pi / math.sqrt(6 * noise.size)
    for shape, error in (((), ValueError), ((-1,), ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=r"^gumbel_noise: shape"):
            isentropic.gumbel_noise(shape, seed=1)
    with pytest.raises(TypeError, match=r"^gumbel_noise: dtype"):
        isentropic.gumbel_noise(3, seed=1, dtype=np.int32)


# Speculative decoding.


def texts_of_models(seed, k, n):
    """Scores of a draft and of a target after each beginning of a text of at most k tokens."""
    random = RNG(seed)
    return {
        name: {text: random.normal(size=n) for j in range(k + 1) for text in itertools.product(range(n), repeat=j)}
        for name in "qp"
    }


@pytest.mark.parametrize("shared", [False, True])
def test_speculative_draws_have_the_law_of_the_target(shared):
    k, n, count = 2, 3, 40000
    models = texts_of_models(1, k, n)
    # Drafts, with noise of sample.
    tokens = np.zeros((count, 0), np.int64)
    for j in range(k):
        draft = np.stack([models["q"][tuple(text)] for text in tokens])
        drawn = isentropic.sample(draft, seed=7 if shared else 8, position=j)
        tokens = np.concatenate([tokens, drawn[:, None]], 1)
    draft = np.stack([[models["q"][tuple(text[:j])] for j in range(k)] for text in tokens])
    target = np.stack([[models["p"][tuple(text[:j])] for j in range(k + 1)] for text in tokens])
    accepted, token = isentropic.speculative_sample(None if shared else draft, target, tokens, seed=7)
    assert accepted.min() == 0 and accepted.max() == k
    # The first two tokens, where they are known: accepted ones and the next.
    first = np.where(accepted > 0, tokens[:, 0], token)
    assert fits(np.bincount(first, minlength=n), softmax(models["p"][()]))
    for start in range(n):
        rows = (tokens[:, 0] == start) & (accepted > 0)
        second = np.where(accepted[rows] > 1, tokens[rows, 1], token[rows])
        assert fits(np.bincount(second, minlength=n), softmax(models["p"][(start,)]))
        for then in range(n):
            rows = (tokens == [start, then]).all(1) & (accepted == 2)
            assert fits(np.bincount(token[rows], minlength=n), softmax(models["p"][(start, then)]))
    # As many are accepted as can be: sum min(p, q), which shared noise does not reach.
    most = np.minimum(softmax(models["p"][()]), softmax(models["q"][()])).sum()
    if not shared:
        assert abs((accepted > 0).mean() - most) < 4 * 0.5 / math.sqrt(count)
        # Row by row, and streams of their own, as in the batch.
        for r in (0, 5, 11):
            alone = isentropic.speculative_sample(draft[r], target[r], tokens[r], seed=7, stream=r)
            assert alone == (accepted[r], token[r])
    else:
        own = isentropic.sample(target[:, 0], seed=7)
        np.testing.assert_array_equal(first, own)


def test_speculative_draws_out_of_the_ordinary():
    inf = math.inf
    same = RNG(2).normal(size=(50, 4, 9))
    tokens = isentropic.sample(same[:, :3].reshape(-1, 9), seed=1).reshape(50, 3)
    accepted, _ = isentropic.speculative_sample(same[:, :3], same, tokens, seed=3)
    assert (accepted == 3).all()
    # What the target cannot draw is not accepted, and not drawn.
    target = np.array([[0.0, -inf, 0.0], [0.0, 0.0, 0.0]])
    accepted, token = isentropic.speculative_sample(np.zeros((1, 3)), target, [1], seed=3)
    assert accepted == 0 and token in (0, 2)
    accepted, token = isentropic.speculative_sample(np.zeros((1, 3)), np.full((2, 3), math.nan), [1], seed=3)
    assert accepted == 0 and token == -1
    accepted, token = isentropic.speculative_sample(np.zeros((5, 0, 3)), np.zeros((5, 1, 3)), np.zeros((5, 0)), seed=3)
    assert accepted.tolist() == [0] * 5 and set(token.tolist()) <= {0, 1, 2}
    for given, text in (
        ((np.zeros((2, 3)), np.zeros((2, 3)), [1]), r"draft must have shape \(1, 3\)"),
        ((np.zeros((1, 3)), np.zeros((2, 3)), [1, 2]), r"tokens must have shape \(1,\)"),
        ((np.zeros((1, 3)), np.zeros((2, 3)), [3]), r"tokens must be at least 0 and below 3, got 3 at \[0\]"),
        ((np.zeros((1, 3)), np.zeros((2, 3)), [-1]), r"tokens must be at least 0 and below 3, got -1"),
    ):
        with pytest.raises(ValueError, match=rf"^speculative_sample: {text}"):
            isentropic.speculative_sample(*given, seed=1)
    given = np.zeros((5, 2, 3)), np.zeros((5, 3, 3)), np.zeros((5, 2), int)
    for wrong, text in (
        ({"stream": [1, 2]}, r"stream must be .* that broadcasts to \(5,\), target's shape without its last two axes, got"),
        ({"stream": -1}, "stream must be at least 0"),
        ({"position": -1}, "position must be at least 0"),
        ({"seed": -1}, "seed must be at least 0"),
    ):
        for draft in (given[0], None):
            with pytest.raises(ValueError, match=rf"^speculative_sample: {text}"):
                isentropic.speculative_sample(draft, *given[1:], **{"seed": 1, **wrong})
    # Of three positions, the last of which is the last that there is.
    assert isentropic.speculative_sample(None, *given[1:], seed=1, position=2**64 - 3)[0].shape == (5,)
    with pytest.raises(ValueError, match=r"^speculative_sample: position must be at least 0 and below"):
        isentropic.speculative_sample(None, *given[1:], seed=1, position=2**64 - 2)


# torch.


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def it(torch):
    import isentropic.torch

    return isentropic.torch


def test_torch_draws_are_those_of_numpy(torch, it):
    x = torch.randn(4, 5, 30, generator=torch.Generator().manual_seed(1)) * 3
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        scores = x.to(dtype)
        wide = scores.to(torch.float32 if dtype == torch.bfloat16 else dtype).numpy()
        for dim in (0, 1, 2, -1):
            options = {"seed": 2**64 - 3, "stream": 5, "position": 9}
            got = it.sample(scores, temperature=0.8, dim=dim, **options)
            assert got.dtype == torch.int64
            np.testing.assert_array_equal(got, isentropic.sample(wide, temperature=0.8, axis=dim, **options))
            got = it.sample(scores, size=3, replace=False, dim=dim, **options)
            np.testing.assert_array_equal(got, isentropic.sample(wide, size=3, replace=False, axis=dim, **options))
            chain = [("top_k", 12), ("xtc", (0.5, 0.05))]
            index, p = it.Sampler(chain, seed=3).sample(scores, dim=dim, position=4, return_probs=True)
            want, q = isentropic.Sampler(chain, seed=3).sample(wide, axis=dim, position=4, return_probs=True)
            np.testing.assert_array_equal(index, want)
            assert p.dtype == dtype and p.shape == x.shape
            np.testing.assert_allclose(p.float(), q, atol=1e-2 if dtype == torch.bfloat16 else 1e-6)
    positions = torch.arange(20).reshape(4, 5) % 3
    got = it.sample(x, seed=torch.tensor(7), stream=torch.arange(20).reshape(4, 5), position=positions)
    want = [
        [isentropic.sample(x[i, j].numpy(), seed=7, stream=5 * i + j, position=int(positions[i, j])) for j in range(5)]
        for i in range(4)
    ]
    assert got.tolist() == want
    np.testing.assert_array_equal(
        it.gumbel_noise((3, 70), seed=4, stream=2, position=6), isentropic.gumbel_noise((3, 70), seed=4, stream=2, position=6)
    )
    assert it.gumbel_noise((2, 3), seed=4, dtype=torch.float32).dtype == torch.float32
    draft, target = x.double()[:, :4], x.double()
    tokens = it.sample(draft, seed=1)
    want = isentropic.speculative_sample(draft.numpy(), target.numpy(), tokens.numpy(), seed=2, position=3)
    got = it.speculative_sample(draft, target, tokens, seed=2, position=3)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    want = isentropic.speculative_sample(None, target.numpy(), tokens.numpy(), seed=1)
    with pytest.raises(ValueError, match=r"^speculative_sample: position must be at least 0 and below"):
        it.speculative_sample(None, target, tokens, seed=1, position=2**64 - 1)
    for a, b in zip(it.speculative_sample(None, target, tokens, seed=1), want, strict=True):
        np.testing.assert_array_equal(a, b)
    text = torch.randint(-1, 9, (4, 5, 12), generator=torch.Generator().manual_seed(2))
    chain = [("penalties", {"repetition": 1.2}), ("dry", {"allowed_length": 1}), ("top_h", 0.5)]
    want = isentropic.Sampler(chain, seed=3).sample(x.numpy(), tokens=text.numpy(), return_probs=True)
    for a, b in zip(it.Sampler(chain, seed=3).sample(x, tokens=text, return_probs=True), want, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(it.Sampler(chain).probs(x, tokens=text.tolist()), want[1])


def test_torch_mirostat_is_numpys(torch, it):
    x = torch.randn(20, 3, 40, generator=torch.Generator().manual_seed(1)) * 2
    host, there = (one([("mirostat", (1.5, 0.2))], seed=2) for one in (isentropic.Sampler, it.Sampler))
    for position in range(20):
        want = host.sample(x[position].numpy(), stream=[4, 1, 7], position=position)
        np.testing.assert_array_equal(there.sample(x[position], stream=[4, 1, 7], position=position), want)


@pytest.mark.parametrize("given", ["seed", "a tensor's seed", "stream", "position"])
def test_torch_compiled_draws_are_one_graph(torch, it, given):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    name = given.split()[-1]

    def draw(x, number):
        return it.sample(x, size=2, **{"seed": 1, name: number})

    x = torch.randn(3, 400, generator=torch.Generator().manual_seed(0))
    torch._dynamo.reset()
    compiled = torch.compile(draw, fullgraph=True, backend=backend)
    for number in (3, 5, 2**40, 7, 8, 9, 10, 11, 12, 13):
        number = torch.tensor(number) if given.startswith("a tensor") or given == "position" else number
        assert torch.equal(compiled(x, number), draw(x, number))
    assert len(graphs) <= 2  # of the first number alone, and of all
    chain = it.Sampler([("temperature", 0.7), ("min_p", 0.1)], seed=3)
    torch._dynamo.reset()
    steps = torch.compile(
        lambda x, position: chain.sample(x, position=position, return_probs=True), fullgraph=True, backend="eager"
    )
    for position in range(4):
        at = torch.tensor(position)
        for a, b in zip(steps(x, at), chain.sample(x, position=at, return_probs=True), strict=True):
            assert torch.equal(a, b)


def test_torch_refusals(torch, it):
    x = torch.zeros(2, 3)
    for call, error, text in (
        (lambda: it.sample(x, seed=1, temperature=0), ValueError, "sample: temperature must be one number, above 0"),
        (lambda: it.sample(x, seed=1, position=-1), ValueError, "sample: position must be at least 0"),
        (
            lambda: it.sample(x, seed=1, position=torch.tensor([-1, 2])),
            ValueError,
            "sample: position must be at least 0, got -1",
        ),
        (lambda: it.sample(x, seed=1, position=torch.zeros(2)), TypeError, "sample: position must be of integers"),
        (lambda: it.sample(x.int(), seed=1), TypeError, "sample: x must be of float16"),
        (lambda: it.Sampler([("top_nsigma", 1)]), ValueError, "Sampler: a step must be .* did you mean top_n_sigma"),
        (lambda: it.Sampler([("dry", {})]).probs(x), ValueError, "Sampler.probs: tokens must be given"),
        (lambda: it.Sampler([]).probs(x, tokens=[[1], [2]]), ValueError, "Sampler.probs: tokens must not be given"),
        (lambda: it.gumbel_noise(3, seed=1, dtype=torch.float16), TypeError, "gumbel_noise: dtype must be"),
    ):
        with pytest.raises(error, match=rf"^{text}"):
            call()


# JAX.


def test_jax_steps():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import isentropic.jax as ij

    x = RNG(1).normal(size=(4, 60)).astype(np.float32) * 2
    chain = [("epsilon", 0.01), ("top_h", 0.7), ("xtc", (0.5, 0.1))]
    got = jax.jit(lambda x: ij.Sampler(chain, seed=2).sample(x, size=3))(x)
    np.testing.assert_array_equal(got, isentropic.Sampler(chain, seed=2).sample(x, size=3))
    got = jax.jit(lambda x: ij.Sampler(chain[:2]).probs(x))(x)
    np.testing.assert_array_equal(got, isentropic.Sampler(chain[:2]).probs(x))
    got = jax.jit(lambda x: ij.sample(x, size=5, replace=False, seed=3))(x)
    np.testing.assert_array_equal(got, isentropic.sample(x, size=5, replace=False, seed=3))
    for step in (("dry", {}), ("penalties", {}), ("mirostat", (1.0, 0.1))):
        with pytest.raises(NotImplementedError, match=r"isentropic.jax.Sampler has no penalties, dry and mirostat"):
            ij.Sampler([step])


def test_named_steps_are_json():
    chain = isentropic.Sampler([("dry", {"breakers": (1, 2)}), ("p_less", None), ("entropy_clip", (None, 2))])
    assert json.loads(json.dumps(chain._named()))[0]["breakers"] == [1, 2]


@pytest.mark.filterwarnings("error")
def test_torch_takes_texts_that_are_read_only(torch):
    import isentropic.torch as it

    tokens = np.broadcast_to(np.array([1, 2]), (3, 2))
    chain = it.Sampler([("penalties", {"presence": 1.0})], seed=1)
    x = torch.zeros(3, 5)
    np.testing.assert_array_equal(chain.probs(x, tokens=tokens), chain.probs(x, tokens=torch.tensor([1, 2])))
