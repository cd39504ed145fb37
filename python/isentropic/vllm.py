"""Chains of steps in vLLM, for each request its own. vLLM takes the class by its name:

    LLM(model, logits_processors=["isentropic.vllm:SamplerLogitsProcessor"])

and the steps of a request from its SamplingParams:

    SamplingParams(temperature=1.0, extra_args={"isentropic": {"steps": [["entropy", 2.0]], "seed": 1}})

The seed may be left out: then vLLM draws from the distribution of the chain. With a seed the token is drawn here, by the noise
of (seed, stream, position). The stream comes from the prompt's tokens and, for several completions, from SamplingParams' own
seed, which vLLM counts up: the same request has the same text, and other requests and completions have independent noise.
"stream": an integer in [0, 2**64) stands in its place, for a single completion.

Requests without "isentropic" do not change. vLLM applies its temperature, min_p, top_k and top_p afterwards: keep them off for
these requests. SamplerLogitsProcessorV2 is the same for vLLM's second model runner, which has another interface.
"""

import itertools
import warnings

import numpy as np

from isentropic._numpy._chain import streams_of_tokens
from isentropic._numpy._sampling import natural
from isentropic.torch._chain import TensorChain


def _chain(sampling_params):
    """The chain of a request, or None. Raises ValueError, which vLLM expects."""
    given = (getattr(sampling_params, "extra_args", None) or {}).get("isentropic")
    if given is None:
        return None
    if not isinstance(given, dict) or not set(given) <= {"steps", "seed", "stream"} or "steps" not in given:
        must = "must be a dict of steps and, if wanted, seed and stream"
        raise ValueError(f"isentropic: extra_args['isentropic'] {must}, got {given!r}")
    steps = given["steps"]
    stream = given.get("stream")
    try:
        chain = TensorChain(steps, given.get("seed"), None if stream is None else natural("isentropic", "stream", stream))
    except TypeError as error:
        raise ValueError(str(error)) from None
    if stream is not None and not chain.draws:
        raise ValueError(f"isentropic: stream must not be given without a seed: vLLM draws, got {stream}")
    texts = getattr(sampling_params, "n", None) or 1
    if chain.draws and texts > 1 and stream is not None:
        raise ValueError(f"isentropic: n is {texts}, and with a stream all completions are equal: leave it out, or let n be 1")
    if chain.draws and texts > 1 and getattr(sampling_params, "seed", None) is None:
        raise ValueError(
            f"isentropic: n is {texts}, and the completions can only be told apart by vLLM's own seed: SamplingParams(seed=...)"
        )
    return chain


_unknown = itertools.count()


def _set_stream(chain, sampling_params, prompt):
    """The stream of a request that gives none: from its prompt, and from vLLM's seed, which differs between completions."""
    if chain.draws and chain.stream is None:
        if prompt is None or len(prompt) == 0:  # embeddings: nothing tells two of them apart
            warnings.warn("isentropic: a prompt without tokens has another noise each time; give a stream", stacklevel=2)
            prompt = [-1, next(_unknown)]
        own = getattr(sampling_params, "seed", None) or 0
        chain.stream = (int(streams_of_tokens(np.array([prompt]))[0]) + own) % 2**64


def _replace(logits, row, chain, position, tokens=None):
    logits[row] = chain(logits[row : row + 1], position, tokens)[0]


def _make(base):
    class SamplerLogitsProcessor(base):
        """The processor for vLLM's first interface, vllm.v1.sample.logits_processor."""

        @classmethod
        def validate_params(cls, sampling_params):
            _chain(sampling_params)

        def __init__(self, vllm_config, device, is_pin_memory):
            self._requests = {}  # row: (chain, the prompt, the tokens since, a list that grows)

        def is_argmax_invariant(self):
            return False  # a step may drop the likeliest token, and a seed may draw another

        def update_state(self, batch_update):
            if batch_update is None:
                return
            for row in batch_update.removed:
                self._requests.pop(row, None)
            for row, params, prompt, output in batch_update.added:
                chain = _chain(params)
                self._requests.pop(row, None)
                if chain is not None:
                    _set_stream(chain, params, prompt)
                    self._requests[row] = chain, prompt or [], output
            for one, other, direction in batch_update.moved:
                first, second = self._requests.pop(one, None), self._requests.pop(other, None)
                if first is not None:
                    self._requests[other] = first
                if direction.name == "SWAP" and second is not None:
                    self._requests[one] = second

        def apply(self, logits):
            for row, (chain, prompt, output) in self._requests.items():
                text = [[*prompt, *output]] if chain.reads_text or chain.adjusts else None
                _replace(logits, row, chain, len(prompt) + len(output), text)
            return logits

    return SamplerLogitsProcessor


def _make_v2(base):
    class SamplerLogitsProcessorV2(base):
        """The processor for vLLM's second model runner, vllm.v1.worker.gpu.sample.logits_processor."""

        @classmethod
        def validate_params(cls, sampling_params):
            chain = _chain(sampling_params)
            if chain is not None and chain.reads_text:
                raise ValueError("isentropic: vLLM's second model runner does not show texts, which penalties and dry read")

        def __init__(self, vllm_config, req_states):
            super().__init__(vllm_config, req_states)
            self._states = req_states
            self._requests = {}  # slot: (chain, its SamplingParams)

        def add_request(self, req_idx, sampling_params):
            self._requests.pop(req_idx, None)
            chain = _chain(sampling_params)
            if chain is not None:
                self._requests[req_idx] = chain, sampling_params
            return chain is not None

        def apply(self, logits, ctx):
            if not self._requests:
                return logits
            slots = ctx.idx_mapping_np
            if len(slots) < len(logits):  # drafts: only the device knows whose they are
                slots = ctx.expanded_idx_mapping.cpu().numpy()
            for row, slot in enumerate(slots.tolist()):
                if slot in self._requests:
                    chain, params = self._requests[slot]
                    if chain.draws and chain.stream is None:  # once for a request; at add_request its tokens are not there yet
                        length = int(self._states.prompt_len.np[slot])
                        _set_stream(chain, params, self._states.all_token_ids.gpu[slot, :length].tolist())
                    _replace(logits, row, chain, ctx.pos[row : row + 1].long() + 1)
            return logits

    return SamplerLogitsProcessorV2


def __getattr__(name):
    """Makes each class on first use: a version of vLLM may have only one of the interfaces."""
    if name == "SamplerLogitsProcessor":
        from vllm.v1.sample.logits_processor import LogitsProcessor

        made = _make(LogitsProcessor)
    elif name == "SamplerLogitsProcessorV2":
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

        made = _make_v2(LogitsProcessor)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made.__module__, made.__qualname__ = __name__, name
    globals()[name] = made
    return made
