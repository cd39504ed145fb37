"""Hugging Face transformers: attention with any map inside a model, and chains of steps as logits processors.

Importing this module registers ``attention`` and its masks, so that ``attn_implementation="isentropic"`` finds them:

    import isentropic.transformers
    config = LlamaConfig(isentropic={"map": "entmax", "alpha": 1.5, "scale": "entropy_invariant"})
    model = LlamaForCausalLM._from_config(config, attn_implementation="isentropic")

Logits processors are for ``model.generate(logits_processor=[...])``. ``generate`` applies its own temperature, top_k, top_p and
the like after processors that it is given. They would change the distribution again: switch them off by
``do_sample=True, temperature=1.0, top_k=0, top_p=1.0`` (top_k is 50 unless said).
"""

import math

try:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, LogitsProcessor
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
except ImportError as error:
    raise ImportError("isentropic.transformers needs transformers and PyTorch: pip install transformers torch") from error

from isentropic import _checks
from isentropic._descriptions import MAPS, per_row
from isentropic._maps import map_and_params
from isentropic._numpy._chain import streams_of_texts
from isentropic.torch import scaled_dot_product_attention
from isentropic.torch._chain import TensorChain
from isentropic.torch._modules import Configured

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor", "attention", "learn"]


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
    """Attention with any map in place of softmax, for ``AttentionInterface.register("isentropic", attention)``.

    The module's ``config.isentropic`` is a dict with the map, its parameters and, optionally, ``scale``, ``train_length`` and
    ``kappa``, as in isentropic.torch.attention. Without it the map is softmax. The model sets the rest: its scale if none is
    given, masks, dropout, a bias of positions, softcap, sinks, and a sliding window, which is in the mask.

    Returns
    -------
    tuple
        (out of shape (batch, queries, heads, dv), None): there are no weights to return.

    Notes
    -----
    transformers makes masks only for names that it knows: a name other than "isentropic" needs
    ``AttentionMaskInterface.register(name, transformers.masking_utils.sdpa_mask)`` too.
    """
    config = module.config
    name = config._attn_implementation
    if name not in ALL_MASK_ATTENTION_FUNCTIONS._global_mapping:  # the function itself is opaque to a compiler
        raise ValueError(
            f"isentropic.transformers.attention: there are no masks for {name!r}: "
            f"transformers.AttentionMaskInterface.register({name!r}, transformers.masking_utils.sdpa_mask)"
        )
    if further.get("cache") is not None:
        raise ValueError("isentropic.transformers.attention: paged caches, of continuous batching, are not supported")
    if further.get("output_attentions"):
        raise ValueError(
            "isentropic.transformers.attention: output_attentions must be False: no weights are kept; "
            "isentropic.torch.attention(..., return_weights=True) has those of one layer"
        )
    params = _settings(module)
    params.setdefault("scale", "sqrt" if scaling is None else scaling)
    queries = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # Without a mask, a single query is the last one and sees all keys.
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


def _settings(module):
    """What a layer learns, or otherwise what the configuration says."""
    learned = getattr(module, "isentropic", None)
    if learned is not None:
        return learned._values()
    params = dict(getattr(module.config, "isentropic", None) or {})
    of_map = params.get("map")
    given = {**params, **(of_map[1] if isinstance(of_map, (tuple, list)) else {})}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            raise TypeError(
                f"isentropic.transformers.attention: {name} of config.isentropic must be a number, got a tensor, which no "
                f"optimiser would train and no file keep; isentropic.transformers.learn(model, {name}=...) learns it"
            )
    return params


def learn(model, *, map="softmax", scale=None, kappa=None, train_length=None, layers=None, **params):
    """Gives the attention of a model a map whose parameters are learned: one number for each head of each layer.

    They are parameters of the model, for its state_dict and for an optimiser that is made afterwards. The numbers given here
    are their first values. A saved model has them in its file: after from_pretrained call learn again, and then
    load_state_dict with the weights of that file.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Its attention becomes "isentropic".
    map : str
        The map, by its name.
    scale : str or float or None
        None: the model's own. A number is learned. A name, such as "entropy_invariant", is one of isentropic.torch.attention's.
    kappa, train_length : float, int or None
        Those of a scale that is a name; they stay as they are.
    layers : sequence of int or None
        The numbers of the layers; None: all. Others have what the configuration says.
    **params
        The map's parameters. Those that may differ for each row, such as alpha and temperature, are learned; others, such as k,
        stay.

    Returns
    -------
    list of torch.nn.Parameter
        The new parameters, for a learning rate of their own.
    """
    name = "isentropic.transformers.learn"
    given = {*params, *(map[1] if isinstance(map, (tuple, list)) else ())}
    map, values = map_and_params(name, map, params)
    learned = {key: values[key] for key in per_row(MAPS[map]) if key in given}
    fixed = {key: value for key, value in values.items() if key in given and key not in learned}
    if isinstance(scale, str):
        further = {"scale": scale, "kappa": kappa, "train_length": train_length}
        fixed |= {key: value for key, value in further.items() if value is not None}
    elif kappa is not None or train_length is not None:
        which = "kappa" if kappa is not None else "train_length"
        raise TypeError(f"{name}: {which} is for a scale that is a name, got scale {scale!r}")
    elif scale is not None:
        learned["scale"] = scale
    if not learned:
        raise ValueError(f"{name}: no parameter of {map} is given, so that nothing would be learned")
    found = [one for one in model.modules() if _attends(one)]
    known = {one.layer_idx for one in found}
    if layers is not None:
        unknown = sorted(set(layers) - known)
        if unknown:
            raise ValueError(f"{name}: layers must be among {sorted(known)}, got {unknown[0]}")
        found = [one for one in found if one.layer_idx in set(layers)]
    if not found:
        raise ValueError(f"{name}: {type(model).__name__} has no attention that is known")
    model.set_attn_implementation("isentropic")
    parameters = []
    for one in found:
        first = next(one.parameters())
        own = {}
        for key, value in learned.items():
            start = torch.as_tensor(value, dtype=torch.float32, device=first.device)
            own[key] = torch.nn.Parameter(start.expand(one.config.num_attention_heads, 1, 1).clone())
        one.isentropic = Configured({"map": map, **fixed, **own})
        parameters += own.values()
    return parameters


def _attends(module):
    """Whether a module calls attention: it knows its configuration and its layer, and has no part that does."""
    if "Attention" not in type(module).__name__ or not hasattr(module, "config"):
        return False
    return getattr(module, "layer_idx", None) is not None


AttentionInterface.register("isentropic", attention)
AttentionMaskInterface.register("isentropic", sdpa_mask)


class SamplerLogitsProcessor(LogitsProcessor):
    """A chain of steps.

    Parameters
    ----------
    steps : list of (name, value)
        In the order applied: those of isentropic.Sampler, and ("epsilon", e), ("eta", e), ("top_n_sigma", n), ("xtc",
        (probability, threshold)), ("dry", {"multiplier": 0.8, "base": 1.75, "allowed_length": 2, "breakers": [tokens], "last":
        None}) and, last, ("mirostat", (surprise in nats, rate)). xtc and mirostat need a seed.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and generate draws. They are computed in float64: a
        token gets -inf if its probability is below 2e-308 (log -708), here or before a step such as top_n_sigma. A seed: the
        token is drawn here, and the others get -inf, so that generate has no choice, also with do_sample=False. Its noise is of
        (seed, stream, length of the text so far, token). On a GPU it is drawn there, without waiting for it; dry alone reads
        the texts on the host.
    stream : int in [0, 2**64) or array of such integers or None, default None
        None: from the tokens of the row's text so far, and the number of equal texts before it in the batch. So a prompt has
        the same text in any batch, and other prompts, or several texts of one, have independent ones. An integer: row r of the
        batch draws from stream + r. An array gives each row its own.
    attention_mask : tensor or array of (prompts, length), optional
        The mask of the prompts, as in generate: 0 for padding, which then does not count as text. Without it, everything
        counts.
    """

    supports_continuous_batching = True

    def __init__(self, steps, *, seed=None, stream=None, attention_mask=None):
        self._chain = TensorChain(steps, seed, stream)
        self._seen = None if attention_mask is None else torch.as_tensor(attention_mask) != 0
        if self._seen is not None and self._seen.dim() != 2:
            raise ValueError(
                f"{type(self).__name__}: attention_mask must be of shape (prompts, length), got {tuple(self._seen.shape)}"
            )

    def __call__(self, input_ids, scores):
        lengths, seen = self._seen_of(input_ids)
        wide = self._chain.wide and scores.device.type != "mps"  # which has no float64
        rows = scores.detach().double() if wide else scores.detach().float()
        texts = self._texts(input_ids, seen) if self._chain.reads_text else None
        streams = streams_of_texts(input_ids, seen) if self._chain.draws and self._chain.stream is None else None
        logits = self._chain(rows, lengths, texts, streams)
        return logits.to(scores.dtype)

    def _seen_of(self, input_ids):
        """(the texts' lengths, which tokens count or None)."""
        count, length = input_ids.shape
        if self._seen is None:
            return length, None
        prompts, prompt = self._seen.shape
        if prompts == 0 or count % prompts or length < prompt:
            raise ValueError(
                f"{type(self).__name__}: attention_mask must be that of the prompts, got shape {(prompts, prompt)} for texts "
                f"of shape {(count, length)}"
            )
        self._seen = self._seen.to(input_ids.device)
        seen = self._seen.repeat_interleave(count // prompts, 0)  # several texts of one prompt
        seen = torch.cat([seen, seen.new_ones(count, length - prompt)], 1)
        return seen.sum(1), seen

    @staticmethod
    def _texts(input_ids, seen):
        """The texts on the host: dry compares them there."""
        tokens = input_ids.detach().cpu().numpy()
        return tokens if seen is None else [row[keep] for row, keep in zip(tokens, seen.cpu().numpy(), strict=True)]


class EntropyLogitsProcessor(SamplerLogitsProcessor):
    """Gives the distribution of every next token the same entropy, by a temperature for each step of each text.

    Parameters
    ----------
    entropy : float or None
        In nats; if it cannot be reached, the nearest is taken. Give exactly one of entropy and perplexity.
    perplexity : float or None
        exp(entropy).
    seed, stream, attention_mask
        As in SamplerLogitsProcessor.
    """

    def __init__(self, entropy=None, *, perplexity=None, seed=None, stream=None, attention_mask=None):
        steps = [("entropy", _target_entropy(entropy, perplexity))]
        super().__init__(steps, seed=seed, stream=stream, attention_mask=attention_mask)


def _target_entropy(entropy, perplexity):
    if (entropy is None) == (perplexity is None):
        raise ValueError("EntropyLogitsProcessor: exactly one of entropy and perplexity must be given")
    if entropy is not None:
        return entropy
    perplexity = _checks.number("EntropyLogitsProcessor", "perplexity", perplexity)
    if not 1 <= perplexity < math.inf:
        raise ValueError(f"EntropyLogitsProcessor: perplexity must be at least 1 and finite, got {perplexity:g}")
    return math.log(perplexity)
