"""Hugging Face transformers: attention with any map inside a model, and chains of steps as logits processors.

Importing this module registers ``attention`` and its masks, so that ``attn_implementation="isentropic"`` finds them:

    import isentropic.transformers
    config = LlamaConfig(isentropic={"map": "entmax", "alpha": 1.5, "scale": "entropy_invariant"})
    model = LlamaForCausalLM._from_config(config, attn_implementation="isentropic")

To decode, ``model.generate(**inputs, **isentropic.transformers.sampling(steps, seed=1))``. The logits processors are for
``model.generate(logits_processor=[...])``. ``generate`` applies its own temperature, top_k, top_p and the like after processors
that it is given. They would change the distribution again: ``sampling`` switches them off, or
``do_sample=True, temperature=1.0, top_k=0, top_p=1.0`` (top_k is 50 unless said).
"""

import math
import sys
import warnings

try:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, LogitsProcessor, LogitsProcessorList
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
except ImportError as error:
    raise ImportError("isentropic.transformers needs transformers and PyTorch: pip install transformers torch") from error

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # before transformers 5
    _active_collector = None

from isentropic import _checks
from isentropic._attention import BY_N
from isentropic._descriptions import MAPS, per_row
from isentropic._maps import map_and_params
from isentropic._numpy._chain import streams_of_texts
from isentropic.torch import scaled_dot_product_attention
from isentropic.torch._chain import TensorChain
from isentropic.torch._modules import Configured

__all__ = ["EntropyLogitsProcessor", "SamplerLogitsProcessor", "attention", "learn", "sampling"]


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
        (out of shape (batch, queries, heads, dv), None); with output_attentions=True, in place of None, the weights of shape
        (batch, heads, queries, keys), after dropout: then all scores are in memory.

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
    weights = _wants_weights(config, further)
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
    found = scaled_dot_product_attention(
        query,
        key,
        value,
        attention_mask,
        dropout,
        is_causal,
        enable_gqa=True,
        softcap=softcap,
        sinks=s_aux,
        return_weights=weights,
        **params,
    )
    out, weights = found if weights else (found, None)
    return out.transpose(1, 2).contiguous(), weights


def _wants_weights(config, further):
    """Whether the model is asked for weights. Some models do not pass this on: then only what transformers collects says so."""
    if further.get("output_attentions", getattr(config, "output_attentions", False)):
        return True
    if _active_collector is None or torch.compiler.is_compiling():
        return False
    return any("attentions" in key for key in _active_collector.get() or ())


def _settings(module):
    """What a layer learns, or otherwise what the configuration says."""
    learned = getattr(module, "isentropic", None)
    if learned is not None:
        return learned._values()
    params = getattr(module.config, "isentropic", None)
    if not isinstance(params, (dict, type(None))):
        raise TypeError(
            "isentropic.transformers.attention: config.isentropic must be a dict, such as {'map': 'entmax', 'alpha': 1.5}, got "
            f"{params!r}"
        )
    params = dict(params or {})
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
    """Gives the attention of a model a map and a scale whose parameters are learned: one number for each head of each layer.

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
        None: the model's own. A number is learned. "log_n" and "entropy_invariant" learn kappa, their factor of log n.
    kappa : float or None
        The first value of kappa. None: the scale is 1/sqrt(d) at train_length.
    train_length : int or None
        The number of keys at which a scale by their number is 1/sqrt(d) in the beginning, if kappa is not given; None: 512.
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
    if scale in BY_N:
        if kappa is not None and train_length is not None:
            raise TypeError(f"{name}: train_length is for a kappa that is not given")
        fixed["scale"], learned["kappa"] = scale, kappa
    elif kappa is not None or train_length is not None:
        which = "kappa" if kappa is not None else "train_length"
        raise TypeError(f"{name}: {which} is for scale 'log_n' and 'entropy_invariant', got scale {scale!r}")
    elif isinstance(scale, str):
        fixed["scale"] = scale
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
            if key == "kappa" and value is None:
                value = 1 / math.log(512 if train_length is None else train_length)
                if scale == "entropy_invariant":
                    value *= math.sqrt(_columns_of_head(name, one))
            start = torch.as_tensor(value, dtype=torch.float32, device=first.device)
            own[key] = torch.nn.Parameter(start.expand(one.config.num_attention_heads, 1, 1).clone())
        one.isentropic = Configured({"map": map, **fixed, **own})
        parameters += own.values()
    return parameters


def _columns_of_head(name, module):
    """The d of 1/sqrt(d)."""
    config = module.config
    d = getattr(module, "head_dim", None) or getattr(config, "head_dim", None)
    if d is None and getattr(config, "hidden_size", None) is not None:
        d = config.hidden_size // config.num_attention_heads
    if d is None:
        raise ValueError(f"{name}: kappa must be given, because {type(module).__name__} does not say how long its keys are")
    return d


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
        In the order applied, those of isentropic.Sampler. penalties and dry read the texts. xtc and mirostat need a seed or a
        generator.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and generate draws. A seed: the token is drawn here,
        and the others get -inf, so that generate has no choice, also with do_sample=False. Its noise depends on (seed, stream,
        length of the text so far, token). On a GPU it is drawn there, without waiting for it; with penalties, dry, xtc and
        mirostat, which have no kernels, on the CPU. Not for beam search, which needs the probabilities of all tokens.
    stream : int in [0, 2**64) or array of such integers or None, default None
        None: from the tokens of the row's text so far, and the number of equal texts before it in the batch. So a prompt has
        the same text in any batch, and other prompts, or several texts of one, have independent ones. An integer: row r of the
        batch draws from stream + r. An array gives each row its own.
    attention_mask : tensor or array of (prompts, length), optional
        The mask of the prompts, as in generate: 0 for padding, which then does not count as text. The processor is then for
        these prompts alone.
    pad_token_id : int or None, optional
        In place of the mask: tokens of this number before the first other one are padding. With neither, everything counts.
    generator : torch.Generator or None, optional
        In place of a seed: the token is drawn here with noise from this generator, such as torch.default_generator, which
        torch.manual_seed seeds.
    """

    supports_continuous_batching = True

    def __init__(self, steps, *, seed=None, stream=None, attention_mask=None, pad_token_id=None, generator=None):
        name = type(self).__name__
        if generator is not None and (seed is not None or stream is not None):
            raise ValueError(f"{name}: give a generator, or a seed and, if wanted, a stream")
        if not isinstance(generator, (torch.Generator, type(None))):
            raise TypeError(f"{name}: generator must be a torch.Generator, got {type(generator).__name__}")
        self._generator = generator
        self._chain = TensorChain(steps, seed, stream) if generator is None else TensorChain(steps, 0, 0)
        self._seen = None
        if attention_mask is not None:
            try:
                mask = torch.as_tensor(attention_mask)
            except (TypeError, ValueError, RuntimeError):
                kind = type(attention_mask).__name__
                raise TypeError(f"{name}: attention_mask must be a tensor or an array of numbers, got {kind}") from None
            if mask.dim() != 2:
                raise ValueError(f"{name}: attention_mask must be of shape (prompts, length), got {tuple(mask.shape)}")
            self._seen = mask != 0
            # Masks that are added to scores have 0 where tokens are seen. On a device nothing waits to see whether it is one.
            if mask.is_cpu and bool((self._seen & (mask != 1)).any()):
                raise ValueError(f"{name}: attention_mask must hold 1 for tokens and 0 for padding")
        if pad_token_id is not None and self._seen is not None:
            raise ValueError(f"{name}: give one of attention_mask and pad_token_id")
        self._pad = pad_token_id if pad_token_id is None else _checks.integer(name, "pad_token_id", pad_token_id)
        self._prompts = None  # the tokens that the mask is for
        self._warned = False

    def __call__(self, input_ids, scores):
        if not scores.is_floating_point() or scores.dim() != 2 or input_ids.dim() != 2:
            raise ValueError(
                f"{type(self).__name__}: input_ids must be of shape (texts, length) and scores floating-point numbers of shape "
                f"(texts, tokens), got shapes {tuple(input_ids.shape)} and {tuple(scores.shape)} of {scores.dtype}"
            )
        if not torch.compiler.is_compiling():
            self._check(input_ids)
        seen = self._seen_of(input_ids)
        chain, streams = self._chain, None
        lengths = input_ids.shape[1] if seen is None else seen.sum(1)
        if self._generator is not None:
            lengths = int(torch.randint(1 << 62, (), generator=self._generator, device=self._generator.device))
        elif chain.draws and chain.stream is None:
            streams = streams_of_texts(input_ids, seen)
        texts = None
        if chain.reads_text or chain.adjusts:
            texts = input_ids if seen is None else torch.where(seen, input_ids, -1)
        wide = scores.double() if scores.dtype not in _TYPES else scores
        return chain(wide, lengths, texts, streams).to(scores.dtype)

    def _check(self, input_ids):
        """Refuses what would draw other tokens than those of the text, and warns of what cannot be seen."""
        if not self._chain.draws:
            return
        name = type(self).__name__
        caller = sys._getframe(1)
        for _ in range(6):  # generate's loop is a few calls above
            caller = caller and caller.f_back
            if caller is not None and caller.f_code.co_name == "_beam_search":
                raise ValueError(f"{name}: beam search needs the probabilities of all tokens: give no seed and no generator")
        if self._generator is None and len(input_ids) > 1 and self._seen is None and self._pad is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{name}: padding on the left counts as text, and changes what is drawn: give attention_mask or pad_token_id",
                stacklevel=4,
            )
        if self._seen is None:
            return
        prompts = torch.where(self._seen_of(input_ids)[:, : self._seen.shape[1]], input_ids[:, : self._seen.shape[1]], -1)
        if self._prompts is None:
            self._prompts = prompts
        elif self._prompts.shape != prompts.shape or not torch.equal(self._prompts, prompts):
            raise ValueError(f"{name}: attention_mask is that of other prompts: make a processor for each call of generate")

    def _seen_of(self, input_ids):
        """Which tokens count, or None for all."""
        if self._pad is not None:
            return (input_ids != self._pad).cumsum(1) > 0
        if self._seen is None:
            return None
        count, length = input_ids.shape
        prompts, prompt = self._seen.shape
        if prompts == 0 or count % prompts or length < prompt:
            raise ValueError(
                f"{type(self).__name__}: attention_mask must be that of the prompts, got shape {(prompts, prompt)} for texts "
                f"of shape {(count, length)}"
            )
        self._seen = self._seen.to(input_ids.device)
        seen = self._seen.repeat_interleave(count // prompts, 0)  # several texts of one prompt
        return torch.cat([seen, seen.new_ones(count, length - prompt)], 1)


_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class EntropyLogitsProcessor(SamplerLogitsProcessor):
    """Gives the distribution of every next token the same entropy, by a temperature for each step of each text.

    Parameters
    ----------
    entropy : float, array of one for each prompt, function or None
        In nats; if it cannot be reached, the nearest is taken. A function of the number of tokens since the first call of this
        text, 0 at first, gives such a number or array. Give exactly one of entropy and perplexity.
    perplexity : float or None
        exp(entropy).
    seed, stream, attention_mask, pad_token_id, generator
        As in SamplerLogitsProcessor.
    """

    def __init__(self, entropy=None, *, perplexity=None, **options):
        entropy = _target_entropy(entropy, perplexity)
        super().__init__([], **options)
        self._options = options
        self._entropy = entropy if callable(entropy) else _entropies(entropy)
        self._of_values = {}  # processors of one entropy
        self._first = self._last = None

    def __call__(self, input_ids, scores):
        target = self._entropy
        if callable(target):
            length = input_ids.shape[1]
            if self._first is None or length < self._first or length > self._last + 1:
                self._first = length
            self._last = length
            target = _entropies(target(length - self._first))
        if isinstance(target, float):
            return self._processor(target)(input_ids, scores)
        if len(target) == 0 or len(scores) % len(target):
            raise ValueError(
                f"{type(self).__name__}: entropy must have one number for each prompt, got {len(target)} for {len(scores)} rows"
            )
        each, result = len(scores) // len(target), None
        for value in dict.fromkeys(target):
            # Each sees the whole batch, so that the streams of equal texts are those of the batch.
            rows = torch.tensor([one == value for one in target], device=scores.device).repeat_interleave(each)[:, None]
            found = self._processor(value)(input_ids, scores)
            result = found if result is None else torch.where(rows, found, result)
        return result

    def _processor(self, entropy):
        if entropy not in self._of_values:
            if len(self._of_values) > 256:  # a function that never repeats itself
                self._of_values.clear()
            self._of_values[entropy] = SamplerLogitsProcessor([("entropy", entropy)], **self._options)
        return self._of_values[entropy]


def sampling(steps, *, seed=None, stream=None, attention_mask=None, pad_token_id=None):
    """Arguments for ``model.generate(**inputs, **sampling(steps, seed=1))``: a chain of steps, and none of generate's own.

    Parameters
    ----------
    steps : list of (name, value)
        Those of isentropic.Sampler, in the order applied.
    seed : int in [0, 2**64) or None, default None
        None: the noise is from torch's default generator, which torch.manual_seed seeds.
    stream, attention_mask, pad_token_id
        As in SamplerLogitsProcessor.

    Returns
    -------
    dict
        The tokens are drawn by the processor, once; so generate takes the largest score, and its temperature, top_k, top_p and
        the like are off, whatever the model's generation_config says.
    """
    generator = torch.default_generator if seed is None else None
    processor = SamplerLogitsProcessor(
        steps, seed=seed, stream=stream, attention_mask=attention_mask, pad_token_id=pad_token_id, generator=generator
    )
    return {"logits_processor": LogitsProcessorList([processor]), **_OWN_STEPS_OFF}


# generate's own steps, off: the defaults of GenerationConfig for greedy decoding, of which generate does not warn.
_OWN_STEPS_OFF = {
    "do_sample": False,
    "num_beams": 1,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
}


def _entropies(value):
    """A number, or a tuple of numbers."""
    given = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(given, (list, tuple)):
        return tuple(_checks.number("EntropyLogitsProcessor", "each entropy", one) for one in given)
    return float(_checks.number("EntropyLogitsProcessor", "entropy", given, "a number, an array or a function"))


def _target_entropy(entropy, perplexity):
    if (entropy is None) == (perplexity is None):
        raise ValueError("EntropyLogitsProcessor: exactly one of entropy and perplexity must be given")
    if entropy is not None:
        return entropy
    perplexity = _checks.number("EntropyLogitsProcessor", "perplexity", perplexity)
    if not 1 <= perplexity < math.inf:
        raise ValueError(f"EntropyLogitsProcessor: perplexity must be at least 1 and finite, got {perplexity:g}")
    return math.log(perplexity)
