"""isentropic.transformers.attention inside models of random weights, beside transformers' own attention."""

import importlib
import os

import pytest

try:
    import torch
    import transformers
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("transformers and torch are not installed: scripts/setup test", allow_module_level=True)

import isentropic.torch as et
import isentropic.transformers

_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60}


def llama(**more):
    return transformers.LlamaConfig(**_SMALL, num_key_value_heads=2, pad_token_id=0, **more), transformers.LlamaForCausalLM


def gpt2(**more):
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60, "n_positions": 40}
    still = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.GPT2Config(**size, **still, **more), transformers.GPT2LMHeadModel


def bert(**more):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertConfig(**_SMALL, **still, **more), transformers.BertForMaskedLM


def gemma2(**more):  # softcap and a sliding window
    size = {**_SMALL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}
    return transformers.Gemma2Config(**size, attn_logit_softcapping=0.7, **more), transformers.Gemma2ForCausalLM


def gpt_oss(**more):  # sinks and a sliding window
    size = {**_SMALL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "num_local_experts": 2}
    return transformers.GptOssConfig(**size, num_experts_per_tok=1, **more), transformers.GptOssForCausalLM


def t5(**more):  # biases of positions, and a second model's keys
    size = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 60, "dropout_rate": 0.0}
    config = transformers.T5Config(**size, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, **more)
    return config, transformers.T5ForConditionalGeneration


FAMILIES = [llama, gpt2, bert, gemma2, gpt_oss, t5]
TOKENS = torch.tensor([[0, 0, 0, 5, 9, 11, 21], [7, 5, 3, 8, 40, 2, 33]])
SEEN = (TOKENS > 0).long()
LABELS = TOKENS.masked_fill(SEEN == 0, -100)
LABELS[0, 3] = -100  # what follows padding: rows that see nothing differ from one implementation to another


def made(family, implementation, **more):
    torch.manual_seed(1)
    config, kind = family(**more)
    model = kind._from_config(config, attn_implementation=implementation)
    if hasattr(model, "generation_config") and model.generation_config is not None:
        model.generation_config.eos_token_id = None  # texts of one length
    for name, weight in model.named_parameters():
        if "sinks" in name or "relative_attention_bias" in name:
            torch.nn.init.normal_(weight)
    return model


def gradients(model):
    model.train()
    model(input_ids=TOKENS, attention_mask=SEEN, labels=LABELS).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_softmax_is_what_the_model_had(family):
    """Scores, gradients and text, of texts padded on the left."""
    theirs, ours = (made(family, implementation) for implementation in ("eager", "isentropic"))
    given = {"input_ids": TOKENS, "attention_mask": SEEN} | ({"decoder_input_ids": TOKENS} if family is t5 else {})
    a, b = (model.eval()(**given).logits for model in (theirs, ours))
    torch.testing.assert_close(b[SEEN.bool()], a[SEEN.bool()], atol=2e-5, rtol=2e-5)
    wanted, found = gradients(theirs), gradients(ours)
    assert wanted.keys() == found.keys()
    for name in wanted:
        torch.testing.assert_close(
            found[name], wanted[name], atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    if family is not bert:
        a, b = (
            model.eval().generate(TOKENS, attention_mask=SEEN, max_new_tokens=8, do_sample=False) for model in (theirs, ours)
        )
        assert torch.equal(a, b)


@pytest.mark.parametrize("family", [llama, gpt2, bert])
@pytest.mark.parametrize(
    "chosen",
    [
        {"map": "entmax", "alpha": 1.5, "scale": "entropy_invariant", "train_length": 8},
        {"map": ["top_k_softmax", {"k": 2}], "scale": 0.2},
    ],
    ids=["entmax", "top_k"],
)
def test_the_map_of_the_configuration(family, chosen, tmp_path):
    """A model trains and generates with it, loads it again after saving, and masked tokens have no effect."""
    model = made(family, "isentropic", isentropic=chosen)
    plain = made(family, "sdpa")
    assert not torch.allclose(model.eval()(TOKENS).logits, plain.eval()(TOKENS).logits)
    scores = model(TOKENS, attention_mask=SEEN).logits[0, 3:]
    others = torch.where(SEEN > 0, TOKENS, 17)
    torch.testing.assert_close(scores, model(others, attention_mask=SEEN).logits[0, 3:])
    if family is llama:  # whose positions count from any token
        torch.testing.assert_close(scores, model(TOKENS[:1, 3:]).logits[0], atol=1e-5, rtol=1e-5)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, attn_implementation="isentropic")
    assert torch.equal(again.eval()(TOKENS).logits, model(TOKENS).logits)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(15):
        loss = model(input_ids=TOKENS, attention_mask=SEEN, labels=LABELS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    if family is not bert:
        text = model.eval().generate(TOKENS, attention_mask=SEEN, max_new_tokens=6, do_sample=False)
        assert text.shape == (2, 13)
        step = model(text[1:, :-1]).logits[0, 6:].argmax(-1)  # without a cache
        assert torch.equal(text[1, 7:], step)


def test_it_is_the_function_of_torch():
    """What the first layer does is scaled_dot_product_attention of its queries, keys and values."""
    chosen = {"map": "entmax", "alpha": 1.3, "scale": 0.9}
    model = made(gpt2, "isentropic", isentropic=chosen).eval()
    block = model.transformer.h[0]
    hidden = block.ln_1(model.transformer.wte(TOKENS) + model.transformer.wpe(torch.arange(7)))
    q, k, v = (x.view(2, 7, 4, 8).transpose(1, 2) for x in block.attn.c_attn(hidden).split(32, -1))
    want = et.scaled_dot_product_attention(q, k, v, is_causal=True, **chosen).transpose(1, 2).reshape(2, 7, 32)
    torch.testing.assert_close(block.attn(hidden)[0], block.attn.c_proj(want))


@pytest.mark.parametrize("chosen", [{"map": "entmax"}, {"scale": "entropy_invariant"}], ids=["entmax", "entropy-invariant"])
@pytest.mark.parametrize("mask", [None, "numbers"])
def test_a_single_query_is_the_last(chosen, mask):
    """Decoding with a cache, without a mask or with one: any one query sees all keys, as the last of several does."""
    model = made(llama, "isentropic", isentropic=chosen).eval()
    module = model.model.layers[0].self_attn
    q, k, v = (torch.randn(2, heads, 6, 8, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    bias = None if mask is None else torch.zeros(2, 1, 6, 6).masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf)
    every, _ = isentropic.transformers.attention(module, q, k, v, bias)
    last, _ = isentropic.transformers.attention(module, q[:, :, -1:], k, v, None if bias is None else bias[:, :, -1:])
    torch.testing.assert_close(last, every[:, -1:])


def test_dropout():
    config, kind = gpt2(isentropic={"map": "sparsemax"})
    config.attn_pdrop = 0.5
    model = kind._from_config(config, attn_implementation="isentropic")
    model.train()
    assert not torch.equal(model(TOKENS).logits, model(TOKENS).logits)
    model.eval()
    assert torch.equal(model(TOKENS).logits, model(TOKENS).logits)


def test_another_name_needs_masks():
    transformers.AttentionInterface.register("mine", isentropic.transformers.attention)
    with pytest.raises(ValueError, match=r"no masks for 'mine'.*AttentionMaskInterface.register\('mine'"):
        made(llama, "mine")(TOKENS)


@pytest.mark.parametrize(
    ("chosen", "error", "text"),
    [
        ({"map": "entmaxx"}, ValueError, "map must be one of"),
        ({"map": "entmax", "beta": 1.0}, TypeError, "has no parameter 'beta'"),
        ({"scale": "half"}, ValueError, "scale must be"),
        ("entmax", TypeError, "config.isentropic must be a dict"),
    ],
)
def test_refused(chosen, error, text):
    with pytest.raises(error, match=text):
        made(llama, "isentropic", isentropic=chosen)(TOKENS)


def test_parameters_are_learned_and_kept(tmp_path):
    model = made(llama, "sdpa")
    before = dict(model.named_parameters())
    parameters = isentropic.transformers.learn(model, map="entmax", alpha=1.5, scale=0.3)
    named = {name: one for name, one in model.named_parameters() if name not in before}
    assert sorted(named) == sorted(
        f"model.layers.{i}.self_attn.isentropic.{key}" for i in range(2) for key in ("alpha", "scale")
    )
    assert {id(one) for one in parameters} == {id(one) for one in named.values()}
    assert all(one.shape == (4, 1, 1) for one in parameters)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model(input_ids=TOKENS, attention_mask=SEEN, labels=LABELS).loss.backward()
    assert all(one.grad.isfinite().all() and one.grad.any() for one in parameters)
    optimizer.step()
    model.save_pretrained(tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    isentropic.transformers.learn(again, map="entmax", alpha=1.5, scale=0.3)
    again.load_state_dict(model.state_dict())
    want = model(input_ids=TOKENS, attention_mask=SEEN).logits
    torch.testing.assert_close(again(input_ids=TOKENS, attention_mask=SEEN).logits, want)


@pytest.mark.parametrize("family", [llama, gpt2, bert])
def test_what_is_learned_is_what_the_configuration_says(family):
    """Before a step, in all layers or in one."""
    want = made(family, "isentropic", isentropic={"map": "entmax", "alpha": 1.3})(input_ids=TOKENS, attention_mask=SEEN).logits
    model = made(family, "eager", isentropic={"map": "entmax", "alpha": 1.3})
    assert len(isentropic.transformers.learn(model, map=("entmax", {"alpha": 1.3}), layers=[1])) == 1
    torch.testing.assert_close(model(input_ids=TOKENS, attention_mask=SEEN).logits, want)


def test_learned_attention_has_one_graph():
    model = made(llama, "sdpa")
    isentropic.transformers.learn(model, map="entmax", alpha=1.5, scale="entropy_invariant", train_length=7)
    torch._dynamo.reset()
    counter = importlib.import_module("torch._dynamo.testing").CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counter)
    counts = []
    for length in (7, 5):
        tokens = TOKENS[:, :length].clone()  # a view of other numbers has guards of its own
        want = model(input_ids=tokens).logits
        torch.testing.assert_close(compiled(input_ids=tokens).logits, want)
        counts.append(counter.frame_count)
    assert counts[0] == counts[1] > 0  # the other length has the same graph


def test_tensors_in_the_configuration_are_refused():
    alpha = torch.nn.Parameter(torch.tensor(1.5))
    for given in ({"map": "entmax", "alpha": alpha}, {"map": ("entmax", {"alpha": alpha})}):
        config, kind = llama()
        config.isentropic = given
        model = kind._from_config(config, attn_implementation="isentropic")
        with pytest.raises(TypeError, match=r"alpha of config.isentropic must be a number, got a tensor.*learn\(model, alpha="):
            model(input_ids=TOKENS)


def test_what_cannot_be_learned_is_refused():
    model = made(llama, "sdpa")
    learn = isentropic.transformers.learn
    for error, text, call in (
        (ValueError, "nothing would be learned", lambda: learn(model, map="entmax")),
        (ValueError, "nothing would be learned", lambda: learn(model, map="top_k_softmax", k=2)),
        (ValueError, r"layers must be among \[0, 1\], got 5", lambda: learn(model, map="entmax", alpha=1.5, layers=[0, 5])),
        (TypeError, "kappa is for scale 'log_n'", lambda: learn(model, map="entmax", alpha=1.5, kappa=1.0)),
        (TypeError, "train_length is for a kappa", lambda: learn(model, scale="log_n", kappa=1.0, train_length=9)),
        (ValueError, "has no attention that is known", lambda: learn(torch.nn.Linear(2, 2), map="entmax", alpha=1.5)),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("scale", ["log_n", "entropy_invariant"])
@pytest.mark.parametrize("family", [llama, gpt2, gpt_oss])
def test_kappa_is_learned(scale, family, tmp_path):
    want = made(family, "isentropic", isentropic={"scale": scale, "train_length": 9})(TOKENS, attention_mask=SEEN).logits
    model = made(family, "sdpa" if family is not gpt_oss else "eager")
    parameters = isentropic.transformers.learn(model, scale=scale, train_length=9)
    assert len(parameters) == 2 and all(one.shape == (4, 1, 1) for one in parameters)
    torch.testing.assert_close(model(input_ids=TOKENS, attention_mask=SEEN).logits, want, atol=1e-5, rtol=1e-5)
    model(input_ids=TOKENS, attention_mask=SEEN, labels=LABELS).loss.backward()
    assert all(one.grad.isfinite().all() and one.grad.any() for one in parameters)
    text = model.eval().generate(TOKENS, attention_mask=SEEN, max_new_tokens=6, do_sample=False)  # with a cache
    step = model(text[1:, :-1]).logits[0, 6:].argmax(-1)
    assert torch.equal(text[1, 7:], step)
    if family is llama:
        model.save_pretrained(tmp_path)
        again = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
        isentropic.transformers.learn(again, scale=scale, kappa=0.4)
        again.load_state_dict(model.state_dict())
        assert torch.equal(again(TOKENS).logits, model(TOKENS).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_attention(family):
    """Those that the model's own attention gives."""
    given = {"input_ids": TOKENS, "attention_mask": SEEN, "output_attentions": True}
    given |= {"decoder_input_ids": TOKENS} if family is t5 else {}
    theirs, ours = (made(family, implementation).eval()(**given) for implementation in ("eager", "isentropic"))
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions") if family is t5 else ("attentions",)
    for name in names:
        assert len(ours[name]) == len(theirs[name]) == 2
        for a, b in zip(ours[name], theirs[name], strict=True):
            assert a.shape == b.shape
            seen = SEEN.bool() if name not in ("decoder_attentions", "cross_attentions") else torch.ones_like(SEEN).bool()
            torch.testing.assert_close(a.transpose(1, 2)[seen], b.transpose(1, 2)[seen], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.logits[SEEN.bool()], theirs.logits[SEEN.bool()], atol=2e-5, rtol=2e-5)
    without = made(family, "isentropic").eval()(**given | {"output_attentions": False})
    torch.testing.assert_close(ours.logits, without.logits, atol=2e-5, rtol=2e-5)
