"""Steps that know the text so far, or draw: by their definitions, and beside transformers' own where it has them."""

import math

import numpy as np
import pytest

import isentropic
from cases import torch_or_skip
from isentropic._numpy._chain import Chain

RNG = np.random.default_rng(5)
SCORES = (RNG.standard_normal((40, 30)) * 3).astype(np.float32)
SCORES[::3, 4:9] = -np.inf


def support(logits):
    return logits > -np.inf


def softmax(scores):
    e = np.exp(scores.astype(np.float64) - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def entropies(p):
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1)


@pytest.mark.parametrize("value", [3e-4, 0.01, 0.2, 0.9, 1.0])
def test_epsilon_and_eta_are_transformers(value):
    torch_or_skip()
    import torch

    transformers = pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    if value < 1:
        for name, theirs in (("epsilon", transformers.EpsilonLogitsWarper), ("eta", transformers.EtaLogitsWarper)):
            want = theirs(value)(None, torch.from_numpy(SCORES)).numpy()
            np.testing.assert_array_equal(support(Chain([(name, value)], None, 0)(SCORES, 1)), support(want))
    p = softmax(SCORES)
    kept = (p >= value) | (p == p.max(-1, keepdims=True))
    np.testing.assert_array_equal(support(Chain([("epsilon", value)], None, 0)(SCORES, 1)), kept)
    bound = np.minimum(value, math.sqrt(value) * np.exp(-entropies(p)))[:, None]
    kept = (p >= bound) | (p == p.max(-1, keepdims=True))
    np.testing.assert_array_equal(support(Chain([("eta", value)], None, 0)(SCORES, 1)), kept)


@pytest.mark.parametrize("n", [0.1, 1.0, 2.5])
@pytest.mark.parametrize("temperature", [None, 0.5, 3.0])
def test_top_n_sigma(n, temperature):
    """After any temperature, and after top_k on the scores that it kept."""
    before = [] if temperature is None else [("temperature", temperature)]
    got = Chain([*before, ("top_n_sigma", n)], None, 0)(SCORES, 1)
    for row, scores in zip(got, SCORES, strict=True):
        there = scores[scores > -np.inf].astype(np.float64)
        np.testing.assert_array_equal(support(row), scores >= there.max() - n * there.std())
    cut = np.where(support(Chain([("top_k", 7)], None, 0)(SCORES, 1)), SCORES, np.float32(-np.inf))
    both = Chain([("top_k", 7), ("top_n_sigma", n)], None, 0)(SCORES, 1)
    np.testing.assert_array_equal(support(both), support(Chain([("top_n_sigma", n)], None, 0)(cut, 1)))


def test_steps_stand_in_their_order():
    steps = [("temperature", 0.7), ("epsilon", 0.02), ("top_p", 0.8), ("eta", 0.1), ("entropy_clip", (0.1, 1.0))]
    got = Chain(steps, None, 0)(SCORES, 1)
    p = isentropic.softmax(SCORES, temperature=0.7)
    one = np.log(np.where(p < 0.02, 0, p), where=p >= 0.02, out=np.full_like(p, -np.inf))
    two = Chain([("top_p", 0.8)], None, 0)(one, 1)
    want = Chain([("entropy_clip", (0.1, 1.0))], None, 0)(Chain([("eta", 0.1)], None, 0)(two, 1), 1)
    np.testing.assert_allclose(np.exp(got), np.exp(want), atol=1e-6)


def test_xtc():
    """With its probability, all that reach the threshold go, but the least likely; independent of the token drawn."""
    row = np.log(np.array([[0.05, 0.4, 0.3, 0.15, 0.1]], np.float32))
    chain = Chain([("xtc", (0.3, 0.12))], 7, 0)
    tokens = np.array([np.flatnonzero(support(chain(row, position)[0]))[0] for position in range(4000)])
    law = 0.7 * np.array([0.05, 0.4, 0.3, 0.15, 0.1]) + 0.3 * np.array([0.05, 0, 0, 0.15, 0.1]) / 0.3
    np.testing.assert_allclose(np.bincount(tokens, minlength=5) / 4000, law, atol=4 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize("surprise", [1.0, 2.0])
@pytest.mark.parametrize("known", [False, True])
def test_mirostat_nears_its_surprise(surprise, known):
    """The mean surprise of a text; each of a batch by itself, and anew for a new text."""
    rng = np.random.default_rng(3)
    chain, spent, taken = Chain([("mirostat", (surprise, 0.1))], 4, 0), [], []
    logits = (rng.standard_normal((400, 2, 200)) * 2).astype(np.float32)
    bounds = np.full(2, 2 * surprise)
    texts = np.zeros((2, 5), np.int64)
    for position, scores in enumerate(logits, 5):
        token = np.argmax(chain(scores, position, texts if known else None), -1)
        p = softmax(scores)
        q = np.where(p >= np.minimum(np.exp(-bounds), p.max(-1))[:, None], p, 0)
        surprises = -np.log((q / q.sum(-1, keepdims=True))[[0, 1], token])
        bounds -= 0.1 * (surprises - surprise)
        assert np.isfinite(surprises).all()
        taken.append(token)
        spent.append(surprises)
        texts = np.concatenate([texts, token[:, None]], 1)
    np.testing.assert_allclose(np.mean(spent[50:], axis=0), surprise, atol=0.1)

    def of(chain, row, length=20):
        found, text = [], np.zeros((1, 5), np.int64)
        for position, scores in enumerate(logits[:length], 5):
            found.append(int(np.argmax(chain(scores[row : row + 1], position, text if known else None))))
            text = np.concatenate([text, [found[-1:]]], 1)
        return found

    assert of(chain, 0) == np.array(taken)[:20, 0].tolist()
    assert of(Chain([("mirostat", (surprise, 0.1))], 4, 1), 1) == np.array(taken)[:20, 1].tolist()


EACH = [("epsilon", 0.1), ("eta", 0.1), ("top_n_sigma", 1.0), ("xtc", (1.0, 0.01)), ("dry", {}), ("mirostat", (1.0, 0.1))]


@pytest.mark.parametrize("step", EACH, ids=lambda step: step[0])
def test_a_row_without_a_distribution_stays(step):
    scores = SCORES[:4].copy()
    scores[1], scores[2, 3] = -np.inf, np.nan
    texts = np.tile([1, 2, 1], (4, 1))
    got = Chain([step], 3, 0)(scores, 3, texts)
    np.testing.assert_array_equal(got[1:3], scores[1:3])
    np.testing.assert_array_equal(support(got[[0, 3]]).sum(-1), 1)


def test_positions_of_each_row():
    """A row's draw only depends on its own position, in any batch."""
    for steps in ([("top_k", 8)], [("eta", 0.01)], [("xtc", (0.5, 0.05)), ("top_p", 0.9)]):
        chain = Chain(steps, 3, np.arange(40) * 5)
        got = chain(SCORES, np.arange(40) // 7)
        for row in range(40):
            np.testing.assert_array_equal(Chain(steps, 3, [row * 5])(SCORES[row : row + 1], row // 7)[0], got[row])


def test_refused():
    for step in (("xtc", (0.5, 0.1)), ("mirostat", (1.0, 0.1))):
        with pytest.raises(ValueError, match=f"steps: {step[0]} draws: give a seed"):
            Chain([step], None, 0)
    for name in ("dry", "penalties"):
        with pytest.raises(ValueError, match=f"steps: {name} needs the tokens so far"):
            Chain([("top_k", 3), (name, {})], None, 0)(SCORES, 4)


@pytest.mark.parametrize("draws", [False, True])
def test_values_that_switch_a_step_off_or_are_greedy(draws):
    """In every adapter, as in llama.cpp and in servers."""
    seed = 3 if draws else None
    for step in (("temperature", 0), ("top_p", 0), ("min_p", 1.5)):
        got = Chain([step], seed, 0)(SCORES, 1)
        np.testing.assert_array_equal(got.argmax(-1), SCORES.argmax(-1))
        assert (support(got).sum(-1) == 1).all()
    none = Chain([], seed, 0)(SCORES, 1)
    off = [(name, 0) for name in ("top_k", "min_p", "top_n_sigma", "epsilon", "eta")]
    off += [("top_p", 1.5), ("typical_p", 1.5), ("dry", {"multiplier": 0})]
    for step in off:
        np.testing.assert_array_equal(Chain([step], seed, 0)(SCORES, 1), none)


def test_a_growing_text_at_the_same_position():
    chain = isentropic.Sampler([("penalties", {"presence": 1.0})], seed=3)
    x = np.zeros((2, 5))
    chain.sample(x, tokens=[[1, 2], [3, -1]])
    chain.sample(x, tokens=[[1, 2], [3, -1]])  # the same again
    with pytest.raises(ValueError, match=r"Sampler.sample: position must grow with the text: stream 0 .* pass position=1$"):
        chain.sample(x, tokens=[[1, 2, 4], [3, 0, -1]])
    chain.sample(x, tokens=[[1, 2, 4], [3, 0, -1]], position=1)
    chain.sample(x, tokens=[[4, 2, 4, 1], [3, 0, -1, -1]], position=1)  # another text
    chain.sample(x, tokens=[[4, 2, 4, 1, 1], [3, 0, -1, -1, -1]], position=1, stream=9)
