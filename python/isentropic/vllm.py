"""Chains of steps in vLLM, for each request its own. vLLM takes the class by its name:

    LLM(model, logits_processors=["isentropic.vllm:SamplerLogitsProcessor"])

and the steps of a request from its SamplingParams:

    SamplingParams(temperature=1.0, extra_args={"isentropic": {"steps": [["entropy", 2.0]], "seed": 1, "stream": 0}})

seed and stream may be left out: then vLLM draws from the distribution of the chain. Requests without "isentropic" do not
change. vLLM applies its temperature, min_p, top_k and top_p afterwards: keep them off for these requests.
SamplerLogitsProcessorV2 is the same for vLLM's second model runner, whose interface is another.
"""

from isentropic._sampling import natural
from isentropic.torch._chain import TensorChain


def _chain(sampling_params):
    """The chain of a request, or None. Raises ValueError, which vLLM expects."""
    given = (getattr(sampling_params, "extra_args", None) or {}).get("isentropic")
    if given is None:
        return None
    if not isinstance(given, dict) or not set(given) <= {"steps", "seed", "stream"} or "steps" not in given:
        raise ValueError(f"isentropic: must be a dict of steps and, if wanted, seed and stream, got {given!r}")
    steps = given["steps"]
    try:
        return TensorChain(steps, given.get("seed"), natural("isentropic", "stream", given.get("stream", 0)))
    except TypeError as error:
        raise ValueError(str(error)) from None


def _replace(logits, row, chain, position, tokens=None):
    scores = logits[row : row + 1].detach()
    logits[row] = chain(scores.double() if chain.wide else scores.float(), position, tokens)[0].to(logits.dtype)


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
                    self._requests[row] = chain, prompt or [], output
            for one, other, direction in batch_update.moved:
                first, second = self._requests.pop(one, None), self._requests.pop(other, None)
                if first is not None:
                    self._requests[other] = first
                if direction.name == "SWAP" and second is not None:
                    self._requests[one] = second

        def apply(self, logits):
            for row, (chain, prompt, output) in self._requests.items():
                text = [[*prompt, *output]] if chain.reads_text else None
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
                raise ValueError("isentropic: vLLM's second model runner does not show texts, and dry reads them")

        def __init__(self, vllm_config, req_states):
            super().__init__(vllm_config, req_states)
            self._requests = {}  # slot: chain

        def add_request(self, req_idx, sampling_params):
            self._requests.pop(req_idx, None)
            chain = _chain(sampling_params)
            if chain is not None:
                self._requests[req_idx] = chain
            return chain is not None

        def apply(self, logits, ctx):
            if not self._requests:
                return logits
            slots = ctx.idx_mapping_np
            if len(slots) < len(logits):  # drafts: only the device knows whose they are
                slots = ctx.expanded_idx_mapping.cpu().numpy()
            for row, slot in enumerate(slots.tolist()):
                if slot in self._requests:
                    _replace(logits, row, self._requests[slot], ctx.pos[row : row + 1].long() + 1)
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
