"""The adapters to language models: against the packages themselves where they are installed, on random models."""

import enum
import math
import os
import sys
import types
import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest

import isentropic
import isentropic.llama_cpp
from cases import torch_or_skip

STEPS = [("min_p", 0.02), ("entropy", 1.5)]


def entropies(logits):
    logits = np.asarray(logits, np.float64)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1)


def log_probs(steps, scores):
    with np.errstate(divide="ignore"):
        return np.log(isentropic.Sampler(steps).probs(scores.astype(np.float64))).astype(np.float32)


# Steps, scores, and the log-probabilities: far below the smallest float32 probability, at the end and in between.
FAR = [
    ([("temperature", 1.0)], [0.0, -60.0, -110.0, -120.0, -700.0], [0.0, -60.0, -110.0, -120.0, -700.0]),
    (
        [("temperature", 0.01), ("top_n_sigma", 50.0), ("temperature", 100.0)],
        [0.0, -2.0, -4.0],
        [-0.142931628, -2.142931628, -4.142931628],
    ),
]


# Hugging Face transformers.


@pytest.fixture(scope="module")
def transformers():
    torch_or_skip()
    return pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)


@pytest.fixture(scope="module")
def tiny(transformers):
    import torch

    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


def generate(tiny, prompts, *processors, **options):
    import torch

    return tiny.generate(
        torch.tensor(prompts),
        attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.long),
        logits_processor=list(processors),
        max_new_tokens=8,
        return_dict_in_generate=True,
        output_scores=True,
        **{"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, **options},
    )


def test_every_step_of_generate_has_the_entropy(tiny):
    from isentropic.transformers import EntropyLogitsProcessor

    out = generate(tiny, [[5, 6, 7], [8, 9, 10]], EntropyLogitsProcessor(2.5))
    for scores in out.scores:
        np.testing.assert_allclose(entropies(scores), 2.5, atol=1e-5)
    out = generate(tiny, [[5, 6, 7]], EntropyLogitsProcessor(perplexity=math.exp(1.5)))
    np.testing.assert_allclose(entropies(out.scores[3]), 1.5, atol=1e-5)


@pytest.mark.parametrize("do_sample", [True, False])
def test_a_seed_draws_the_same_in_any_batch(tiny, do_sample):
    from isentropic.transformers import SamplerLogitsProcessor

    prompts = [[5, 6, 7], [8, 9, 10], [5, 6, 7]]
    batch = generate(tiny, prompts, SamplerLogitsProcessor(STEPS, seed=3), do_sample=do_sample).sequences.tolist()
    for r, prompt in enumerate(prompts):
        alone = generate(tiny, [prompt], SamplerLogitsProcessor(STEPS, seed=3), do_sample=do_sample)
        assert alone.sequences.tolist() == [batch[r if r < 2 else 0]]
    assert batch[0] != batch[2]
    numbered = generate(tiny, prompts, SamplerLogitsProcessor(STEPS, seed=3, stream=0), do_sample=do_sample).sequences.tolist()
    for r, prompt in enumerate(prompts):
        alone = generate(tiny, [prompt], SamplerLogitsProcessor(STEPS, seed=3, stream=r), do_sample=do_sample)
        assert alone.sequences.tolist() == [numbered[r]]


FLAT = 1000  # tokens of equal scores, so that texts are those of the noise


def drawn_texts(processor, prompts, length=12):
    """Texts of flat scores, as generate continues them."""
    import torch

    tokens = torch.tensor(prompts)
    for _ in range(length):
        drawn = processor(tokens, torch.zeros(len(tokens), FLAT)).argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, drawn], 1)
    return tokens[:, len(prompts[0]) :].tolist()


def share(texts):
    """How many places two of the texts have in common."""
    return sum(a == b for i, one in enumerate(texts) for other in texts[:i] for a, b in zip(one, other, strict=True))


def test_prompts_have_their_own_noise_call_by_call(transformers):
    """One processor and prompts one by one: independent texts, and the same for the same prompt."""
    from isentropic.transformers import SamplerLogitsProcessor

    processor = SamplerLogitsProcessor([("temperature", 1.0)], seed=1)
    prompts = [
        [1, 2, 3],
        [1, 2, 4],
        [2, 1, 3],
        [5],
        [1, 2, 3, 0],
        [0, 1, 2, 3],
        [1, 2, 3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
    ]
    texts = [drawn_texts(processor, [prompt])[0] for prompt in prompts]
    assert share(texts) <= 2
    assert [drawn_texts(processor, [prompt])[0] for prompt in prompts[::-1]][::-1] == texts
    assert [drawn_texts(SamplerLogitsProcessor([("temperature", 1.0)], seed=1), [prompt])[0] for prompt in prompts] == texts
    batch = drawn_texts(processor, [prompts[1], prompts[0], prompts[0], prompts[1], prompts[0]])
    assert batch[0] == texts[1] and batch[1] == texts[0] and share(batch) <= 1
    # A prompt that is one token longer than the last text.
    one = SamplerLogitsProcessor([("temperature", 1.0)], seed=1)
    alone = [drawn_texts(SamplerLogitsProcessor([("temperature", 1.0)], seed=1), [p], 1) for p in ([7, 8], [7, 9, 8])]
    assert [drawn_texts(one, [p], 1) for p in ([7, 8], [7, 9, 8])] == alone
    # Drafts that were not taken: shorter texts of the same prompt.
    import torch

    text = torch.tensor([[1, 2, 3, *texts[0]]])
    found = [int(one(text[:, :length], torch.zeros(1, FLAT)).argmax()) for length in (3, 4, 5, 6, 4, 5, 6, 7)]
    assert found == [texts[0][length - 3] for length in (3, 4, 5, 6, 4, 5, 6, 7)]


def test_generate_with_nothing_but_the_steps(tiny):
    """Whatever the model's own configuration says: the draws are those of Sampler, position by position."""
    import torch

    from isentropic.transformers import sampling

    steps, prompts = [("min_p", 0.02), ("top_h", 0.8)], torch.tensor([[5, 6, 7], [8, 9, 10]])
    seen = torch.ones_like(prompts)
    given = {"attention_mask": seen, "max_new_tokens": 6}
    plain = tiny.generate(prompts, **given, **sampling(steps, seed=4, stream=2))
    tiny.generation_config.update(temperature=0.1, top_k=3, repetition_penalty=5.0, do_sample=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            out = tiny.generate(prompts, **given, **sampling(steps, seed=4, stream=2, attention_mask=seen))
            torch.manual_seed(5)
            free = tiny.generate(prompts, **given, **sampling(steps))
            torch.manual_seed(5)
            assert torch.equal(free, tiny.generate(prompts, **given, **sampling(steps)))
            assert not torch.equal(free, tiny.generate(prompts, **given, **sampling(steps)))
    finally:
        tiny.generation_config.update(temperature=1.0, top_k=50, repetition_penalty=1.0, do_sample=False)
    assert torch.equal(out, plain)
    chain = isentropic.Sampler(steps, seed=4)
    for length in range(3, 9):
        logits = tiny(out[:, :length]).logits[:, -1].detach().numpy()
        assert out[:, length].tolist() == chain.sample(logits, stream=2, position=length).tolist()


def test_unseeded_draws_have_the_law(transformers):
    import torch

    from isentropic.transformers import sampling

    scores = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1])).repeat(20000, 1)
    (processor,) = sampling([("temperature", 1.0)])["logits_processor"]
    drawn = processor(torch.zeros(20000, 3, dtype=torch.long), scores).argmax(-1)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20000, [0.5, 0.25, 0.15, 0.1], atol=0.015)
    again = processor(torch.zeros(20000, 3, dtype=torch.long), scores).argmax(-1)
    assert abs((drawn == again).float().mean() - 0.345) < 0.02
    with pytest.raises(ValueError, match=r"^SamplerLogitsProcessor: give a generator, or a seed"):
        transformers_processor(steps=[], seed=1, generator=torch.default_generator)
    with pytest.raises(TypeError, match=r"^SamplerLogitsProcessor: generator must be a torch.Generator, got int"):
        transformers_processor(steps=[], generator=1)


def transformers_processor(**options):
    from isentropic.transformers import SamplerLogitsProcessor

    return SamplerLogitsProcessor(**options)


def test_a_mask_is_for_its_prompts(tiny):
    """The second generate with the mask of the first would draw other tokens without a word."""
    import torch

    from isentropic.transformers import sampling

    first, second = torch.tensor([[0, 5, 6]]), torch.tensor([[7, 8, 9]])
    options = sampling(STEPS, seed=1, attention_mask=[[0, 1, 1]])
    for _ in range(2):
        tiny.generate(first, attention_mask=torch.tensor([[0, 1, 1]]), max_new_tokens=4, **options)
    for other in (second, torch.tensor([[0, 5, 8]])):
        with pytest.raises(ValueError, match=r"^SamplerLogitsProcessor: attention_mask is that of other prompts"):
            tiny.generate(other, attention_mask=(other != 0).long(), max_new_tokens=4, **options)


def test_padding_by_its_number(tiny):
    import torch

    from isentropic.transformers import sampling

    padded, alone = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 4]]), torch.tensor([[5, 6]])
    given = {"max_new_tokens": 5}
    both = tiny.generate(padded, attention_mask=(padded != 0).long(), **given, **sampling(STEPS, seed=3, pad_token_id=0))
    one = tiny.generate(alone, attention_mask=torch.ones_like(alone), **given, **sampling(STEPS, seed=3))
    assert both[0, 2:].tolist() == one[0].tolist()
    with pytest.warns(UserWarning, match="padding on the left counts as text") as found:
        tiny.generate(padded, attention_mask=(padded != 0).long(), **given, **sampling(STEPS, seed=3))
    assert len([one for one in found if "padding on the left" in str(one.message)]) == 1
    with pytest.raises(TypeError, match=r"^SamplerLogitsProcessor: attention_mask must be a tensor or an array of numbers"):
        sampling(STEPS, seed=3, attention_mask="left")
    with pytest.raises(ValueError, match=r"^SamplerLogitsProcessor: attention_mask must hold 1 for tokens and 0 for padding"):
        sampling(STEPS, seed=3, attention_mask=torch.tensor([[-math.inf, 0.0]]))
    with pytest.raises(ValueError, match="give one of attention_mask and pad_token_id"):
        sampling(STEPS, seed=3, pad_token_id=0, attention_mask=[[1]])


def test_beams_are_refused_with_a_seed(tiny):
    """Beams would go on with scores of -1e8."""
    import torch

    prompts = torch.tensor([[5, 6, 7]])
    options = {"attention_mask": torch.ones_like(prompts), "max_new_tokens": 4, "num_beams": 3, "do_sample": False}
    for given in ({"seed": 1}, {"generator": torch.default_generator}):
        processor = transformers_processor(steps=[("top_k", 20)], **given)
        with pytest.raises(ValueError, match=r"^SamplerLogitsProcessor: beam search needs the probabilities of all tokens"):
            tiny.generate(prompts, logits_processor=[processor], **options)
    out = tiny.generate(prompts, logits_processor=[transformers_processor(steps=[("temperature", 1.0)])], **options)
    assert torch.equal(out, tiny.generate(prompts, **options))


@pytest.mark.parametrize("steps", [[("min_p", 0.02)], [("penalties", {"presence": 2.0}), ("mirostat", (1.5, 0.3))]])
def test_assisted_texts_are_the_plain_ones(transformers, tiny, steps):
    """Drafts may be taken or not: the texts are those without them, also where a step knows the draws before."""
    import copy

    import torch

    from isentropic.transformers import sampling

    draft = copy.deepcopy(tiny)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)))
    for seed in range(3):
        prompts = torch.tensor([[5, 6, 7 + seed]])
        given = {"attention_mask": torch.ones_like(prompts), "max_new_tokens": 14}
        plain = tiny.generate(prompts, **given, **sampling(steps, seed=seed))
        options = sampling(steps, seed=seed)
        assisted = tiny.generate(prompts, **given, assistant_model=draft, **options)
        assert torch.equal(assisted, plain)


def test_entropies_of_prompts_and_steps(tiny):
    import torch

    from isentropic.transformers import EntropyLogitsProcessor

    prompts = [[5, 6, 7], [8, 9, 10]]
    for given in ([2.5, 1.0], np.array([2.5, 1.0]), torch.tensor([2.5, 1.0])):
        out = generate(tiny, prompts, EntropyLogitsProcessor(given))
        for scores in out.scores:
            np.testing.assert_allclose(entropies(scores), [2.5, 1.0], atol=1e-5)
    processor = EntropyLogitsProcessor(lambda step: 1.0 + 0.25 * step)
    for _ in range(2):  # a new text begins at 0
        out = generate(tiny, prompts, processor)
        for step, scores in enumerate(out.scores):
            np.testing.assert_allclose(entropies(scores), 1.0 + 0.25 * step, atol=1e-5)
    out = generate(tiny, prompts, EntropyLogitsProcessor(lambda step: torch.tensor([1.0, 2.0 + step])))
    np.testing.assert_allclose(entropies(out.scores[1]), [1.0, 3.0], atol=1e-5)
    rows = generate(tiny, prompts, EntropyLogitsProcessor([2.5, 1.0], seed=3, attention_mask=torch.ones(2, 3))).sequences
    for r, value in enumerate((2.5, 1.0)):
        alone = generate(tiny, prompts[r : r + 1], EntropyLogitsProcessor(value, seed=3)).sequences
        assert torch.equal(rows[r], alone[0])
    with pytest.raises(ValueError, match="entropy must have one number for each prompt, got 3 for 2 rows"):
        generate(tiny, prompts, EntropyLogitsProcessor([1.0, 2.0, 3.0]))
    with pytest.raises(TypeError, match=r"^EntropyLogitsProcessor: entropy must be a number, an array or a function, got str"):
        EntropyLogitsProcessor("2")


def test_processors_are_compiled(transformers):
    import torch

    scores = torch.randn(3, 300, generator=torch.Generator().manual_seed(1)) * 2
    ids = torch.arange(12).reshape(3, 4)
    for options in ({"seed": 3}, {"seed": None}, {"seed": 3, "pad_token_id": 0}, {"seed": 3, "stream": 5}):
        processor = transformers_processor(steps=[("temperature", 0.7), ("min_p", 0.05)], **options)
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda ids, scores, processor=processor: processor(ids, scores), fullgraph=True, backend="eager"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(compiled(ids, scores), processor(ids, scores))


def test_llama_cpp_prompts_have_their_own_noise():
    processor = isentropic.llama_cpp.logits_processor([("temperature", 1.0)], seed=1)
    texts = []
    for prompt in ([1, 2, 3], [1, 2, 4], [1, 2, 3], [4]):
        tokens = list(prompt)
        for _ in range(12):
            tokens.append(int(np.argmax(processor(np.array(tokens, np.intc), np.zeros(FLAT, np.float32)))))
        texts.append(tokens[len(prompt) :])
    assert texts[0] == texts[2] and share([texts[0], texts[1], texts[3]]) <= 1
    for ids, shape in (([[1, 2]], (9,)), ([1.5], (9,)), ([1], (2, 9)), ([1], (0, 9))):  # all would be one text
        with pytest.raises(ValueError, match=r"^logits_processor: (input_ids|scores) must be (a|one) row"):
            processor(ids, np.zeros(shape))


def test_steps_are_those_of_transformers(transformers):
    import torch
    from transformers.generation import logits_process as theirs

    from isentropic.transformers import SamplerLogitsProcessor

    scores = torch.randn(50, 300, generator=torch.Generator().manual_seed(2)) * 2
    for step, warper in [
        (("temperature", 0.7), theirs.TemperatureLogitsWarper(0.7)),
        (("top_k", 12), theirs.TopKLogitsWarper(12)),
        (("top_p", 0.83), theirs.TopPLogitsWarper(0.83)),
        (("min_p", 0.04), theirs.MinPLogitsWarper(0.04)),
        (("typical_p", 0.6), theirs.TypicalLogitsWarper(0.6)),
    ]:
        want = torch.log_softmax(warper(None, scores.clone()), dim=-1)
        got = SamplerLogitsProcessor([step])(torch.zeros(50, 3), scores)
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want), err_msg=step[0])
        kept = ~np.isinf(want.numpy())
        np.testing.assert_allclose(got.numpy()[kept], want.numpy()[kept], atol=1e-5, err_msg=step[0])


def test_transformers_types_and_rows_without_a_distribution(transformers):
    import torch

    from isentropic.transformers import EntropyLogitsProcessor, SamplerLogitsProcessor

    scores = torch.randn(2, 40, generator=torch.Generator().manual_seed(3)).to(torch.float16)
    before = scores.clone()
    got = SamplerLogitsProcessor(STEPS)(torch.zeros(2, 3), scores)
    assert got.dtype == torch.float16 and torch.equal(scores, before)
    scores[1, 3] = float("nan")
    assert torch.equal(SamplerLogitsProcessor(STEPS)(torch.zeros(2, 3), scores)[1], scores[1]) is False  # NaN is not NaN
    assert SamplerLogitsProcessor(STEPS, seed=1)(torch.zeros(2, 3), scores)[1].isnan().sum() == 1
    # Log-probabilities are no integers, in whose type they would be returned.
    for ids, wrong in (((2, 3), torch.zeros(2, 9, dtype=torch.long)), ((2, 3), torch.zeros(9)), ((3,), torch.zeros(1, 9))):
        with pytest.raises(ValueError, match=r"^SamplerLogitsProcessor: input_ids must be of shape \(texts, length\)"):
            SamplerLogitsProcessor(STEPS)(torch.zeros(ids), wrong)
    for wrong in ({}, {"entropy": 1.0, "perplexity": 2.0}):
        with pytest.raises(ValueError, match="exactly one of entropy and perplexity"):
            EntropyLogitsProcessor(**wrong)
    for value, error, text in (
        (0.5, ValueError, r"at least 1 and finite, got 0\.5"),
        (math.inf, ValueError, "at least 1 and finite, got inf"),
        ("a", TypeError, "a number, got str"),
    ):
        with pytest.raises(error, match=f"^EntropyLogitsProcessor: perplexity must be {text}"):
            EntropyLogitsProcessor(perplexity=value)


@pytest.mark.parametrize(("steps", "scores", "want"), FAR)
def test_transformers_log_probs_of_unlikely_tokens(transformers, steps, scores, want):
    import torch

    from isentropic.transformers import SamplerLogitsProcessor

    for dtype, rtol in ((torch.float32, 1e-6), (torch.bfloat16, 0.01)):
        got = SamplerLogitsProcessor(steps)(torch.zeros(2, 3), torch.tensor([scores] * 2, dtype=dtype))
        assert got.dtype == dtype
        np.testing.assert_allclose(got.double().numpy(), [want] * 2, rtol=rtol)


WRONG_STREAMS = [
    (1.5, TypeError, "an integer, got float"),
    ("a", TypeError, "an integer, got str"),
    (-1, ValueError, r"at least 0 and below 2\*\*64, got -1"),
    (2**64, ValueError, r"at least 0 and below 2\*\*64, got 18446744073709551616"),
]


@pytest.mark.parametrize(
    ("stream", "error", "text"),
    [
        *WRONG_STREAMS,
        ([0, -1], ValueError, "at least 0, got -1"),
        ([0.0, 1.0], TypeError, "of integers, got dtype float64"),
        ([], TypeError, "of integers, got dtype float64"),
    ],
)
@pytest.mark.parametrize("steps", [[("top_k", 3)], [("xtc", (0.5, 0.1))]], ids=["top_k", "xtc"])
def test_transformers_streams_are_checked_at_once(transformers, steps, stream, error, text):
    from isentropic.transformers import SamplerLogitsProcessor

    for seed in (None, 1):
        if seed is not None or steps[0][0] != "xtc":
            with pytest.raises(error, match=f"^Sampler: stream must be {text}"):
                SamplerLogitsProcessor(steps, seed=seed, stream=stream)
    with pytest.raises(TypeError, match=r"^Sampler: seed must be an integer, got str"):
        SamplerLogitsProcessor(steps, seed="a")


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("steps", [[("top_k", 3)], [("xtc", (0.5, 0.1))]], ids=["top_k", "xtc"])
def test_transformers_streams_of_rows(transformers, steps, mask):
    """One for each row, or one for all: with a mask, where rows have texts of different lengths, and without."""
    import torch

    from isentropic.transformers import SamplerLogitsProcessor

    seen = torch.tensor([[0, 1, 1], [1, 1, 1]]) if mask else None
    ids, scores = torch.zeros(2, 4, dtype=torch.long), torch.randn(2, 9, generator=torch.Generator().manual_seed(4))

    def tokens(stream, rows=slice(None)):
        own = None if seen is None else seen[rows]
        return SamplerLogitsProcessor(steps, seed=2, stream=stream, attention_mask=own)(ids[rows], scores[rows]).argmax(-1)

    alone = [int(tokens(7, slice(r, r + 1))) for r in range(2)]
    for one in ([7], [7, 7], np.array([7, 7], np.int8), torch.tensor([7])):
        assert tokens(one).tolist() == alone
    for first in (7, np.uint64(7), np.array(7), [7, 8]):
        assert tokens(first).tolist() == tokens(7).tolist()
    assert tokens(2**64 - 1).tolist() == tokens(np.array([2**64 - 1, 0], np.uint64)).tolist()  # counted modulo 2**64
    text = r"^Sampler: stream must be an integer or an array that broadcasts to \(2,\), .*, got shape \(3,\)"
    with pytest.raises(ValueError, match=text):
        tokens([1, 2, 3])


# llama-cpp-python.


def test_llama_cpp_processor():
    scores = np.random.default_rng(1).normal(size=500).astype(np.float32) * 2
    before = scores.copy()
    ids = np.array([1, 2, 3], np.intc)
    got = isentropic.llama_cpp.logits_processor(STEPS)(ids, scores)
    np.testing.assert_allclose(got, log_probs(STEPS, scores), rtol=3e-7)
    np.testing.assert_array_equal(scores, before)
    assert got.dtype == np.float32 and got.shape == scores.shape
    drawn = isentropic.llama_cpp.logits_processor(STEPS, seed=4, stream=2)(ids, scores)
    assert np.isfinite(drawn).sum() == 1
    assert drawn.argmax() == isentropic.Sampler(STEPS, seed=4).sample(scores, stream=2, position=3)


@pytest.mark.parametrize(("steps", "scores", "want"), FAR)
def test_llama_cpp_log_probs_of_unlikely_tokens(steps, scores, want):
    got = isentropic.llama_cpp.logits_processor(steps)([1], np.float32(scores))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_draws_between_steps_have_the_law_of_the_chain():
    """A step of text between steps of Sampler passes on tokens of the smallest probabilities."""
    steps, scores, want = FAR[1]
    processor = isentropic.llama_cpp.logits_processor(steps, seed=5)
    tokens = [int(processor([1] * length, np.float32(scores)).argmax()) for length in range(4000)]
    np.testing.assert_allclose(np.bincount(tokens, minlength=3) / 4000, np.exp(want), atol=4 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize(("stream", "error", "text"), [*WRONG_STREAMS, ([0], TypeError, "an integer, got list")])
def test_llama_cpp_stream_is_checked_at_once(stream, error, text):
    for seed in (None, 1):
        with pytest.raises(error, match=f"^logits_processor: stream must be {text}"):
            isentropic.llama_cpp.logits_processor([("top_k", 3)], seed=seed, stream=stream)
    with pytest.raises(ValueError, match=r"^logits_processor: stream must not be given without a seed: llama.cpp draws, got 3"):
        isentropic.llama_cpp.logits_processor([("top_k", 3)], stream=3)


def test_llama_cpp_processor_reads_llama_cpps_values():
    scores = np.random.default_rng(1).normal(size=500).astype(np.float32)
    scores[[7, 30]] = scores.max()  # the first of equal ones

    def log_p(*steps):
        return isentropic.llama_cpp.logits_processor(list(steps))([1], scores)

    greedy = (("temperature", 0), ("temperature", -1.0), ("top_p", 0.0), ("top_p", np.float32(-0.5)), ("min_p", 1.5))
    for step in (*greedy, ("temperature", {"temperature": 0}), ("min_p", {"p": 2})):
        for steps in ([step], [("top_k", 40), step, ("temperature", 0.5)]):
            found = log_p(*steps)
            assert np.flatnonzero(np.isfinite(found)).tolist() == [7]
            assert found[7] == 0
    off = (("top_k", 0), ("top_k", -1), ("top_p", 1.5), ("min_p", 0), ("min_p", -1.0), ("top_k", {"k": 0}))
    for step in (*off, ("min_p", {"p": 0}), ("xtc", (0.0, 0.1)), ("xtc", {"probability": 0, "threshold": 0.2})):
        np.testing.assert_array_equal(log_p(("temperature", 0.8), step), log_p(("temperature", 0.8)))
    np.testing.assert_array_equal(log_p(("top_p", 1.0)), log_p())
    assert np.isfinite(log_p(("min_p", 1.0))).sum() == 3  # equal ones and the largest that they are equal to
    drawn = isentropic.llama_cpp.logits_processor([("temperature", 0.0)], seed=3)([1], scores)
    assert np.flatnonzero(np.isfinite(drawn)).tolist() == [7]
    for wrong, text in (
        (("temperature", float("nan")), "temperature"),
        (("top_k", "0"), "k"),
        (("typical_p", 0.0), "typical_p"),
        (("top_k", {"k": 0, "n": 1}), "top_k has no parameter 'n'"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            log_p(wrong)


# A text with tokens that have no score, and one in which no token has.
BEYOND = [([("penalties", {"presence": 2.0, "last": -1})], [9, 1, 7], [1]), ([("dry", {"allowed_length": 1})], [9, 1, 9], [1])]


@pytest.mark.parametrize(("steps", "text", "lowered"), BEYOND)
@pytest.mark.parametrize("seed", [None, 3])
def test_llama_cpp_tokens_without_a_score_count_for_nothing(steps, text, lowered, seed):
    scores = np.zeros(4, np.float32)
    found = isentropic.llama_cpp.logits_processor(steps, seed=seed)(text, scores)
    assert found.shape == (4,)
    if seed is None:
        assert np.flatnonzero(found < found[0]).tolist() == lowered
    else:
        assert sorted(np.isfinite(found)) == [False, False, False, True]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A random model of one layer, of llama.cpp's own kind."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    width, vocabulary, random = 32, 300, np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("llama")
    pieces = [f"<0x{i - 3:02X}>" if 3 <= i < 259 else f"t{i}" for i in range(vocabulary)]
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(piece.encode() for piece in pieces[3:])])
    writer.add_token_scores([0.0] * vocabulary)
    writer.add_token_types([2, 3, 3, *(6 if 3 <= i < 259 else 1 for i in range(3, vocabulary))])
    shapes = {"token_embd": (vocabulary, width), "output": (vocabulary, width)}
    shapes |= {f"blk.0.attn_{name}": (width, width) for name in ("q", "k", "v", "output")}
    shapes |= {f"blk.0.ffn_{name}": (width, width) for name in ("gate", "up", "down")}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, verbose=False, logits_all=False)


def test_llama_cpp_generates_with_the_entropy(llama):
    from llama_cpp import LogitsProcessorList

    found, processor = [], isentropic.llama_cpp.logits_processor([("entropy", 2.0)])

    def watched(ids, scores):
        logits = processor(ids, scores)
        found.append(entropies(logits))
        return logits

    options = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temp": 1.0, "repeat_penalty": 1.0}
    llama.reset()
    tokens = llama.generate([1, 5, 9], logits_processor=LogitsProcessorList([watched]), **options)
    assert len([token for token, _ in zip(tokens, range(6))]) == 6  # noqa: B905  an endless generator
    np.testing.assert_allclose(found, 2.0, atol=1e-5)

    texts = []
    for _ in range(2):
        llama.reset()
        seeded = LogitsProcessorList([isentropic.llama_cpp.logits_processor(STEPS, seed=6)])
        tokens = llama.generate([1, 5, 9], logits_processor=seeded, **{**options, "temp": 0.0})
        texts.append([token for token, _ in zip(tokens, range(8))])  # noqa: B905
    assert texts[0] == texts[1]


# vLLM, by modules of the same interface: the package itself is too large for a test.


class Move(enum.Enum):
    UNIDIRECTIONAL = enum.auto()
    SWAP = enum.auto()


@dataclass
class Update:
    batch_size: int
    removed: list = field(default_factory=list)
    added: list = field(default_factory=list)
    moved: list = field(default_factory=list)


@dataclass
class Params:
    extra_args: dict | None = None
    n: int = 1
    seed: int | None = None


@pytest.fixture
def vllm(monkeypatch):
    torch_or_skip()

    class First:
        pass

    class Second:
        def __init__(self, vllm_config, req_states):
            pass

    for name, base in ("vllm.v1.sample.logits_processor", First), ("vllm.v1.worker.gpu.sample.logits_processor", Second):
        module = types.ModuleType(name)
        module.LogitsProcessor = base
        parts = name.split(".")
        for i in range(1, len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "isentropic.vllm", raising=False)
    import isentropic.vllm

    yield isentropic.vllm
    sys.modules.pop("isentropic.vllm", None)


def asks(steps=STEPS, **more):
    return Params({"isentropic": {"steps": [list(step) for step in steps], **more}})


def test_vllm_first_interface(vllm):
    import torch

    processor = vllm.SamplerLogitsProcessor(None, torch.device("cpu"), False)
    assert not processor.is_argmax_invariant()
    logits = torch.randn(4, 100, generator=torch.Generator().manual_seed(1))
    output = [7]
    processor.update_state(None)
    processor.update_state(
        Update(3, added=[(0, asks(), [1, 2], []), (1, Params(), [3], []), (2, asks(seed=5, stream=0), [4], output)])
    )
    got = processor.apply(logits.clone())
    np.testing.assert_allclose(got[0], log_probs(STEPS, logits[0].numpy()), rtol=3e-7)
    assert torch.equal(got[1], logits[1]) and torch.equal(got[3], logits[3])
    drawn = isentropic.Sampler(STEPS, seed=5)
    assert int(got[2].argmax()) == drawn.sample(logits[2].numpy(), position=2) and got[2].isfinite().sum() == 1
    output.append(8)  # vLLM appends in place
    assert int(processor.apply(logits.clone())[2].argmax()) == drawn.sample(logits[2].numpy(), position=3)
    # Rows move, swap and end.
    processor.update_state(Update(3, removed=[0], moved=[(2, 0, Move.UNIDIRECTIONAL)]))
    got = processor.apply(logits.clone())
    assert got[0].isfinite().sum() == 1 and torch.equal(got[2], logits[2])
    processor.update_state(Update(3, moved=[(0, 1, Move.SWAP)]))
    got = processor.apply(logits.clone())
    assert got[1].isfinite().sum() == 1 and torch.equal(got[0], logits[0])
    processor.update_state(Update(1, added=[(1, Params(), None, [])]))
    assert torch.equal(processor.apply(logits.clone()), logits)


@pytest.mark.parametrize(("steps", "text", "lowered"), BEYOND)
def test_vllm_and_transformers_tokens_without_a_score_count_for_nothing(vllm, steps, text, lowered):
    import torch

    processor = vllm.SamplerLogitsProcessor(None, torch.device("cpu"), False)
    processor.update_state(Update(2, added=[(0, asks(steps), text, []), (1, asks(steps, seed=1), text, [])]))
    logits = torch.zeros(2, 4, dtype=torch.bfloat16)
    found = processor.apply(logits.clone())
    assert (found[0] < found[0, 0]).nonzero().flatten().tolist() == lowered
    assert found[1].isfinite().sum() == 1
    pytest.importorskip("transformers", reason="transformers is not installed", exc_type=ImportError)
    from isentropic.transformers import SamplerLogitsProcessor

    assert torch.equal(SamplerLogitsProcessor(steps)(torch.tensor([text]), logits[:1]), found[:1])


def test_vllm_requests_go_where_vllm_moves_them(vllm):
    """Random additions, ends, moves and swaps, beside a list of what each row of the batch has."""
    import torch

    random = np.random.default_rng(3)
    for _ in range(30):
        processor = vllm.SamplerLogitsProcessor(None, torch.device("cpu"), False)
        batch = [None] * 6  # the token that a row's chain leaves; None: the row is as it was
        for _ in range(40):
            one, other = (int(row) for row in random.choice(len(batch), 2, replace=False))
            update = Update(len(batch))
            match random.integers(4):
                case 0:
                    token = int(random.integers(20)) if random.integers(3) else None
                    update.added.append((one, Params() if token is None else asks([("top_k", 1 + token)]), [1], []))
                    batch[one] = token
                case 1:
                    update.removed.append(one)
                    batch[one] = None
                case 2:
                    update.moved.append((one, other, Move.UNIDIRECTIONAL))
                    batch[other], batch[one] = batch[one], None
                case 3:
                    update.moved.append((one, other, Move.SWAP))
                    batch[one], batch[other] = batch[other], batch[one]
            processor.update_state(update)
            got = processor.apply(torch.arange(20.0).expand(len(batch), 20).clone())
            want = [20 if token is None else 1 + token for token in batch]
            assert got.isfinite().sum(1).tolist() == want


def test_vllm_second_interface(vllm):
    import torch

    processor = vllm.SamplerLogitsProcessorV2(None, None)
    logits = torch.randn(3, 100, generator=torch.Generator().manual_seed(1))
    # Two rows of one request: the second is for a draft.
    slots = {"expanded_idx_mapping": torch.tensor([4, 4, 1]), "idx_mapping_np": np.array([4, 1])}
    context = types.SimpleNamespace(**slots, pos=torch.tensor([10, 11, 5]))
    assert torch.equal(processor.apply(logits.clone(), context), logits)
    assert processor.add_request(4, asks(seed=2, stream=0)) and not processor.add_request(1, Params())
    got = processor.apply(logits.clone(), context)
    drawn = isentropic.Sampler(STEPS, seed=2)
    assert [int(row.argmax()) for row in got[:2]] == [drawn.sample(logits[r].numpy(), position=11 + r) for r in range(2)]
    assert torch.equal(got[2], logits[2])
    assert not processor.add_request(4, Params({}))  # the slot of another request now
    assert torch.equal(processor.apply(logits.clone(), context), logits)


def vllm_texts(vllm, second, requests, length=12):
    """Texts of flat scores of requests (SamplingParams, prompt), all in one batch."""
    import torch

    texts = [list(prompt) for _, prompt in requests]
    slots = [3 + i for i in range(len(requests))]
    if second:
        tokens = torch.zeros(10, 100, dtype=torch.int32)
        states = types.SimpleNamespace(
            all_token_ids=types.SimpleNamespace(gpu=tokens), prompt_len=types.SimpleNamespace(np=np.zeros(10, np.int32))
        )
        processor = vllm.SamplerLogitsProcessorV2(None, states)
        for slot, (params, _) in zip(slots, requests, strict=True):
            assert processor.add_request(slot, params)
        for slot, (_, prompt) in zip(slots, requests, strict=True):  # vLLM writes them before the forward pass
            tokens[slot, : len(prompt)] = torch.tensor(prompt)
            states.prompt_len.np[slot] = len(prompt)
    else:
        processor = vllm.SamplerLogitsProcessor(None, torch.device("cpu"), False)
        outputs = [[] for _ in requests]
        added = [(row, params, prompt, outputs[row]) for row, (params, prompt) in enumerate(requests)]
        processor.update_state(Update(len(requests), added=added))
    for _ in range(length):
        logits = torch.zeros(len(requests), FLAT)
        if second:
            context = types.SimpleNamespace(idx_mapping_np=np.array(slots), pos=torch.tensor([len(text) - 1 for text in texts]))
            found = processor.apply(logits, context)
        else:
            found = processor.apply(logits)
        for row, token in enumerate(found.argmax(-1).tolist()):
            texts[row].append(token)
            if second:
                tokens[slots[row], len(texts[row]) - 1] = token
            else:
                outputs[row].append(token)
    return [text[len(prompt) :] for text, (_, prompt) in zip(texts, requests, strict=True)]


@pytest.mark.parametrize("second", [False, True])
def test_vllm_requests_have_their_own_noise(vllm, second):
    """Requests that give no stream: independent texts, and the same request has the same text in any batch."""
    one = asks([("temperature", 1.0)], seed=1)
    prompts = [[1, 2, 3], [1, 2, 4], [3, 2, 1], [9, 9, 9]]
    texts = vllm_texts(vllm, second, [(one, prompt) for prompt in prompts])
    assert share(texts) <= 1
    assert vllm_texts(vllm, second, [(one, prompts[2]), (one, prompts[0])]) == [texts[2], texts[0]]
    # Four completions, as vLLM makes requests of them: each has the next seed.
    children = [Params(one.extra_args, seed=40 + i) for i in range(4)]
    several = vllm_texts(vllm, second, [(child, prompts[0]) for child in children])
    assert share(several) <= 1 and several == vllm_texts(vllm, second, [(child, prompts[0]) for child in children])
    numbered = [asks([("temperature", 1.0)], seed=1, stream=7)] * 2
    same = vllm_texts(vllm, second, [(params, prompt) for params, prompt in zip(numbered, prompts, strict=False)])
    assert same[0] == same[1]  # of a stream that was given


def test_vllm_prompts_without_tokens_have_their_own_noise(vllm):
    with pytest.warns(UserWarning, match="a prompt without tokens has another noise each time; give a stream"):
        texts = vllm_texts(vllm, False, [(asks([("temperature", 1.0)], seed=1), [])] * 3)
    assert share(texts) <= 1


def test_vllm_refuses_completions_that_would_be_equal(vllm):
    for processor in (vllm.SamplerLogitsProcessor, vllm.SamplerLogitsProcessorV2):
        validate = processor.validate_params
        validate(Params(asks(seed=1).extra_args, n=4, seed=3))
        validate(Params(asks().extra_args, n=4))  # vLLM draws
        with pytest.raises(ValueError, match=r"n is 4, and the completions can only be told .*: SamplingParams\(seed=\.\.\.\)"):
            validate(Params(asks(seed=1).extra_args, n=4))
        with pytest.raises(ValueError, match="n is 2, and with a stream all completions are equal"):
            validate(Params(asks(seed=1, stream=3).extra_args, n=2, seed=3))


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("SamplerLogitsProcessor", "vllm.v1.worker.gpu.sample.logits_processor"),
        ("SamplerLogitsProcessorV2", "vllm.v1.sample.logits_processor"),
    ],
)
def test_vllm_may_have_one_interface(vllm, monkeypatch, name, lacks):
    monkeypatch.setitem(sys.modules, lacks, None)
    assert getattr(vllm, name).__name__ == name


def test_vllm_refuses_at_admission(vllm):
    validate = vllm.SamplerLogitsProcessor.validate_params
    validate(Params())
    validate(asks())
    for given, message in [
        ({"steps": [["typical_p", 0]]}, "typical_p: p must be above 0 and at most 1, got 0"),
        ({"steps": "top_k"}, "steps must be a list"),
        ({"seed": 1}, "must be a dict of steps"),
        ({"steps": [], "sead": 1}, "must be a dict of steps"),
        ({"steps": [["top_k", "5"]]}, "k must be an integer, got str"),
        ({"steps": [], "stream": -1}, r"stream must be at least 0 and below 2\*\*64, got -1"),
        ({"steps": [], "stream": [1, 2]}, "stream must be an integer, got list"),
        ({"steps": [], "stream": 2}, "stream must not be given without a seed: vLLM draws, got 2"),
        ({"steps": [], "seed": 1.5}, "seed must be an integer, got float"),
    ]:
        with pytest.raises(ValueError, match=message):
            validate(Params({"isentropic": given}))
    with pytest.raises(AttributeError):
        vllm.Sampler  # noqa: B018


# llama.cpp itself, from C++.


def test_llama_sampler_header(tmp_path):
    """Compiles tests/llama_sampler.cc against llama.cpp's headers, which LLAMA_CPP_INCLUDE names, and runs it with the library
    of llama-cpp-python."""
    import subprocess
    from pathlib import Path

    include, build = os.environ.get("LLAMA_CPP_INCLUDE"), os.environ.get("ISENTROPIC_BUILD")
    if not include or not build:
        pytest.skip("LLAMA_CPP_INCLUDE (llama.cpp's headers) and ISENTROPIC_BUILD are not both given")
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    lib = Path(llama_cpp.__file__).parent / "lib"
    root = Path(__file__).parents[2]
    program = tmp_path / "llama_sampler"
    flags = ["-std=c++20", "-O1", f"-I{root / 'include'}", *(f"-I{path}" for path in include.split(":"))]
    libraries = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lllama", "-lggml", "-lggml-base", "-lhwy", "-ltbb", "-lfmt"]
    source = str(root / "tests/llama_sampler.cc")
    subprocess.run(
        ["g++", *flags, "-o", str(program), source, str(Path(build) / "libisentropic.a"), *libraries],
        check=True,
        timeout=300,
    )
    ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "steps",
    [
        STEPS,
        [("eta", 0.001), ("xtc", (0.5, 0.05))],
        [("dry", {"allowed_length": 1}), ("mirostat", (2.0, 0.1))],
    ],
    ids=["sampler", "xtc", "dry and mirostat"],
)
def test_padding_on_the_left_changes_no_text(tiny, steps):
    """A seed gives the same text alone, padded among others, and among several of one prompt."""
    import torch

    from isentropic.transformers import SamplerLogitsProcessor

    prompts = torch.tensor([[0, 0, 0, 5, 6], [7, 8, 9, 10, 11], [0, 3, 3, 4, 3]])
    seen = (prompts > 0).long()

    def texts(rows, mask, stream, **more):
        processor = SamplerLogitsProcessor(steps, seed=9, stream=stream, attention_mask=mask)
        off = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 8, **more}
        return tiny.generate(rows, attention_mask=mask, logits_processor=[processor], **off)[:, rows.shape[1] :]

    batch = texts(prompts, seen, 0)
    unnumbered = texts(prompts, seen, None)
    for row in range(3):
        own = prompts[row : row + 1, seen[row].bool()]
        assert torch.equal(texts(own, torch.ones_like(own), row)[0], batch[row])
        assert torch.equal(texts(own, torch.ones_like(own), None)[0], unnumbered[row])
        plain = generate(tiny, own.tolist(), SamplerLogitsProcessor(steps, seed=9, stream=row))
        assert torch.equal(plain.sequences[0, own.shape[1] :], batch[row])
    several = texts(prompts, seen, torch.arange(3).repeat_interleave(2).numpy(), num_return_sequences=2)
    assert torch.equal(several[::2], batch) and torch.equal(several[1::2], batch)
    processor = SamplerLogitsProcessor(steps, seed=9, attention_mask=seen)
    text = r"attention_mask must be that of the prompts, got shape \(3, 5\) for texts of shape \(2, 5\)"
    with pytest.raises(ValueError, match=text):
        processor(prompts[:2], torch.zeros(2, 200))
