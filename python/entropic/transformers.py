"""Hugging Face transformers: attention with any map inside a model, and chains of steps as logits processors.

Importing this module registers ``attention`` and its masks, so that ``attn_implementation="entropic"`` finds them:

    import entropic.transformers
    config = LlamaConfig(entropic={"map": "entmax", "alpha": 1.5, "scale": "entropy_invariant"})
    model = LlamaForCausalLM._from_config(config, attn_implementation="entropic")

Logits processors are for ``model.generate(logits_processor=[...])``. ``generate`` applies its own temperature, top_k, top_p and
the like after processors that it is given. They would change the distribution again: switch them off by
``do_sample=True, temperature=1.0, top_k=0, top_p=1.0`` (top_k is 50 unless said).
"""

try:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, LogitsProcessor
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
except ImportError as error:
    raise ImportError("entropic.transformers needs transformers and PyTorch: pip install transformers torch") from error

from entropic._chain import Chain
from entropic.torch import scaled_dot_product_attention

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor", "attention"]


def attention(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    position_bias=None,
    softcap=None,
    s_aux=None,
    **further,
):
    """Attention with any map in place of softmax, for ``AttentionInterface.register("entropic", attention)``.

    The module's ``config.entropic``, a dict, holds the map, its parameters, and if wanted ``scale``, ``train_length`` and
    ``kappa``, as entropic.torch.attention has them; softmax without it. The model decides about the rest: its scale where none
    is given, masks, dropout, a bias of positions, softcap, sinks, and a sliding window, which is in the mask.

    Returns
    -------
    tuple
        (out of shape (batch, queries, heads, dv), None): there are no weights to return.

    Notes
    -----
    transformers makes masks only for names that it knows: a name other than "entropic" needs
    ``AttentionMaskInterface.register(name, transformers.masking_utils.sdpa_mask)`` too.
    """
    config = module.config
    name = config._attn_implementation
    if name not in ALL_MASK_ATTENTION_FUNCTIONS._global_mapping:  # itself no compiler looks into
        raise ValueError(
            f"entropic.transformers.attention: there are no masks for {name!r}: "
            f"transformers.AttentionMaskInterface.register({name!r}, transformers.masking_utils.sdpa_mask)"
        )
    if further.get("cache") is not None:
        raise ValueError("entropic.transformers.attention: paged caches, of continuous batching, are not supported")
    if further.get("output_attentions"):
        raise ValueError("entropic.transformers.attention: output_attentions must be False: there are no weights to return")
    params = dict(getattr(config, "entropic", None) or {})
    params.setdefault("scale", "sqrt" if scaling is None else scaling)
    queries = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # Without a mask a single query is the last, and sees all.
    is_causal = queries > 1 and attention_mask is None and is_causal
    if position_bias is not None:
        if is_causal:
            attention_mask, is_causal = torch.ones(queries, key.shape[2], dtype=torch.bool, device=key.device).tril(), False
        if attention_mask is None:
            attention_mask = position_bias
        elif attention_mask.dtype is torch.bool:
            attention_mask = torch.where(attention_mask, position_bias, -torch.inf)
        else:
            attention_mask = attention_mask + position_bias
    out = scaled_dot_product_attention(
        query,
        key,
        value,
        attention_mask,
        dropout,
        is_causal,
        enable_gqa=True,
        softcap=softcap,
        sinks=s_aux,
        **params,
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register("entropic", attention)
AttentionMaskInterface.register("entropic", sdpa_mask)


class SamplerLogitsProcessor(LogitsProcessor):
    """A chain of steps.

    Parameters
    ----------
    steps : list of (name, value)
        As entropic.Sampler has them, in the order applied.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and generate draws. A seed: the token is drawn here,
        and the others get -inf, so that generate has no choice, also with do_sample=False. Its noise is of (seed, stream,
        length of the text so far, token): a text is continued the same way in any batch of its length.
    stream : int or array of integers, default 0
        Row r of the batch draws from stream + r; an array gives each row its own.
    """

    supports_continuous_batching = True

    def __init__(self, steps, *, seed=None, stream=0):
        self._chain = Chain(steps, seed, stream)

    def __call__(self, input_ids, scores):
        rows = scores.detach().to(device="cpu", dtype=torch.float32).contiguous()
        logits = torch.from_numpy(self._chain(rows.numpy(), input_ids.shape[-1]))
        return logits.to(device=scores.device, dtype=scores.dtype)


class EntropyLogitsProcessor(SamplerLogitsProcessor):
    """The temperature, for each step of each text its own, that gives the next token's distribution an entropy.

    Parameters
    ----------
    entropy : float or None
        In nats; where it is out of reach, the nearest. Exactly one of entropy and perplexity is given.
    perplexity : float or None
        exp(entropy).
    seed, stream
        As in SamplerLogitsProcessor.
    """

    def __init__(self, entropy=None, *, perplexity=None, seed=None, stream=0):
        super().__init__([("entropy", _target_entropy(entropy, perplexity))], seed=seed, stream=stream)


def _target_entropy(entropy, perplexity):
    if (entropy is None) == (perplexity is None):
        raise ValueError("EntropyLogitsProcessor: exactly one of entropy and perplexity must be given")
    if entropy is not None:
        return entropy
    if not perplexity >= 1:
        raise ValueError(f"EntropyLogitsProcessor: perplexity must be at least 1, got {perplexity}")
    return float(torch.log(torch.tensor(perplexity, dtype=torch.float64)))
