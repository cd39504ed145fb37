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
    always, never = (Chain([("xtc", (probability, 0.12))], 7, 0).parts[0] for probability in (1, 0))
    for part, left in ((always, [True, False, False, True, True]), (never, [True] * 5)):
        assert support(part(row, np.array([3]), np.array([0]), None))[0].tolist() == left
    single = np.log(np.array([[0.1, 0.8, 0.1]], np.float32))
    assert support(always(single, np.array([3]), np.array([0]), None)).all()  # one alone reaches it: nothing to choose
    with pytest.raises(ValueError, match="steps: xtc draws whether it acts: give a seed"):
        Chain([("xtc", (0.5, 0.1))], None, 0)


def dry_by_definition(text, multiplier, base, allowed, breakers, size):
    """As the processor that introduced it, place by place."""
    lengths = {}
    for at in range(len(text) - 1):
        if text[at] != text[-1] or text[-1] in breakers or text[at + 1] in breakers:
            continue
        length = 1
        while at - length >= 0 and text[at - length] == text[-1 - length] and text[-1 - length] not in breakers:
            length += 1
        lengths[text[at + 1]] = max(lengths.get(text[at + 1], 0), length)
    penalty = np.zeros(size)
    for token, length in lengths.items():
        if length >= allowed:
            penalty[token] = multiplier * base ** (length - allowed)
    return penalty


@pytest.mark.parametrize("breakers", [[], [0], [1, 2]])
@pytest.mark.parametrize("allowed", [1, 2, 4])
def test_dry(breakers, allowed):
    rng = np.random.default_rng(allowed)
    for length in (*range(0, 6), 40, 41):
        texts = rng.integers(0, 3, (6, length))
        scores = rng.standard_normal((6, 5)).astype(np.float32)
        params = {"multiplier": 0.8, "base": 1.2, "allowed_length": allowed, "breakers": breakers}
        got = Chain([("dry", params)], None, 0)(scores, length, texts)
        penalties = np.array([dry_by_definition(text.tolist(), 0.8, 1.2, allowed, breakers, 5) for text in texts])
        np.testing.assert_allclose(np.exp(got), softmax(scores - penalties), atol=1e-5)
    text = np.array([[1, 2, 3, 1, 2, 3, 1, 2]])
    near = Chain([("dry", {"last": 3, "allowed_length": 1})], None, 0)(np.zeros((1, 5), np.float32), 8, text)
    np.testing.assert_allclose(near, math.log(0.2), atol=1e-6)  # 3, 1, 2: nothing returns
    with pytest.raises(ValueError, match="steps: dry needs the tokens so far"):
        Chain([("dry", {})], None, 0)(SCORES, 4)


@pytest.mark.parametrize("surprise", [1.0, 2.0])
def test_mirostat_nears_its_surprise(surprise):
    """The mean surprise of a text; each of a batch by itself, and anew for a new text."""
    rng = np.random.default_rng(3)
    chain, spent = Chain([("mirostat", (surprise, 0.1))], 4, 0), []
    logits = (rng.standard_normal((400, 2, 200)) * 2).astype(np.float32)
    taken = []
    for position, scores in enumerate(logits, 5):
        cut = chain.parts[0](scores.copy(), np.array([position] * 2), np.arange(2), None)
        chain.parts[0].next[:] = position  # the look does not count
        token = np.argmax(chain(scores, position), -1)
        taken.append(token)
        spent.append(-np.log(softmax(cut)[[0, 1], token]))
    np.testing.assert_allclose(np.mean(spent[50:], axis=0), surprise, atol=0.1)
    again = [np.argmax(chain(scores, position), -1) for position, scores in enumerate(logits[:20], 5)]
    np.testing.assert_array_equal(again, taken[:20])
    alone = Chain([("mirostat", (surprise, 0.1))], 4, 1)
    one = [np.argmax(alone(scores[1:], position), -1)[0] for position, scores in enumerate(logits[:20], 5)]
    np.testing.assert_array_equal(one, np.array(taken[:20])[:, 1])


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


@pytest.mark.parametrize(
    ("step", "error", "text"),
    [
        (("epsilon", 0.0), ValueError, "epsilon must be above 0 and at most 1, got 0"),
        (("eta", 2), ValueError, "eta must be above 0 and at most 1, got 2"),
        (("top_n_sigma", -1), ValueError, "top_n_sigma must be above 0, got -1"),
        (("xtc", 0.5), TypeError, r"xtc must have a pair \(probability, threshold\), got 0.5"),
        (("xtc", (1.5, 0.1)), ValueError, r"xtc's probability must be in \[0, 1\], got 1.5"),
        (("dry", {"power": 2}), TypeError, "dry must have a dict of multiplier, base"),
        (("dry", {"allowed_length": 0}), ValueError, "allowed_length must be at least 1, got 0"),
        (("dry", {"breakers": "a"}), TypeError, "dry's breakers must be a list of tokens, got 'a'"),
        (("dry", {"breakers": 5}), TypeError, "dry's breakers must be a list of tokens, got 5"),
        (("dry", {"breakers": [3, 1.5]}), TypeError, "each of dry's breakers must be an integer, got float"),
        (("dry", {"breakers": [2**63]}), ValueError, r"each of dry's breakers must be below 2\*\*63 .* 9223372036854775808"),
        (("dry", {"last": True}), TypeError, "dry's last must be None or an integer, got True"),
        (("dry", {"last": 2.0}), TypeError, "dry's last must be None or an integer, got float"),
        (("dry", {"last": 0}), ValueError, "dry's last must be None or at least 1, got 0"),
        (("mirostat", (0.0, 0.1)), ValueError, "mirostat's surprise must be above 0, got 0"),
    ],
)
def test_refused(step, error, text):
    with pytest.raises(error, match=f"^steps: .*{text}"):
        Chain([step], 1, 0)


def test_mirostat_is_the_last():
    with pytest.raises(ValueError, match="steps: mirostat must be the last step"):
        Chain([("mirostat", (1.0, 0.1)), ("top_k", 5)], 1, 0)
    with pytest.raises(ValueError, match="steps: mirostat draws: give a seed"):
        Chain([("mirostat", (1.0, 0.1))], None, 0)
