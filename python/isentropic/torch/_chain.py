"""Chains of steps on tensors of any device, for samplers of language models: what isentropic._numpy._chain is for arrays.

The operators of Sampler run where the tensors are; nothing is read from a device but by steps that have no kernels there.
"""

import math

import numpy as np
import torch

from isentropic._numpy import _chain
from isentropic._numpy._sampling import signed
from isentropic.torch._draws import as_json, draw_operator, no_tokens, probs_operator
from isentropic.torch._spec import Tensor


class TensorChain(_chain.Chain):
    """Steps as a function of logits in a tensor of rows, of any type."""

    def __init__(self, steps, seed, stream):
        super().__init__(steps, seed, stream)
        self._named = as_json(self.sampler.steps)
        self._kept = {}  # what was brought to a device

    def __call__(self, scores, position, tokens=None, streams=None):
        """As of Chain, also with tokens as a tensor; position is a number or a tensor of one for each row."""
        scores = scores.detach()
        self.check_tokens(tokens)
        tokens = None if tokens is None else torch.as_tensor(tokens, device=scores.device).long()
        texts = tokens if self.reads_text else no_tokens(scores)
        # A compiler cannot know, and a device would have to be waited for; there such a token is an error.
        known = self.reads_text and scores.is_cpu and not torch.compiler.is_compiling()
        if known and (more := _chain.places_beyond(scores, tokens)) > 0:
            wide = torch.nn.functional.pad(scores, (0, more), value=-math.inf)
            return self(wide, position, tokens, streams)[:, : scores.shape[1]]
        if not self.draws:
            logits = probs_operator(scores, texts, self._named, True)
            return self._unless(logits[:, :1].isnan(), logits, scores)
        count = len(scores)
        if not isinstance(position, Tensor):
            position = torch.full((count,), position, dtype=torch.int64, device=scores.device)
        streams = self._streams_on(scores.device, count) if streams is None else streams
        bounds = scores.new_empty(0, dtype=torch.float64)
        if self.adjusts:
            known = None if tokens is None else tokens.cpu().numpy()
            keys = self.keys_of(position.tolist(), known, streams.tolist())
            bounds = torch.from_numpy(self.bounds_of(keys)).to(scores.device)
        seed = signed(self.sampler.seed)
        index, after, _ = draw_operator(scores, streams, position, texts, bounds, self._named, seed, 1, True, False)
        if self.adjusts:
            self.keep(keys, index[:, 0].cpu().numpy(), after.cpu().numpy())
        drawn = torch.full_like(scores, -math.inf).scatter_(1, index.clamp(min=0), 0.0)
        return self._unless(index < 0, drawn, scores)

    @staticmethod
    def _unless(invalid, logits, scores):
        """The logits, but the scores of rows without a distribution. On a device nothing waits to see whether there are any."""
        if logits.is_cpu and not torch.compiler.is_compiling() and not bool(invalid.any()):
            return logits
        return torch.where(invalid, scores, logits)

    def _streams_on(self, device, count):
        if self.stream is None or isinstance(self.stream, int):
            return signed(self.stream or 0) + torch.arange(count, device=device)  # modulo 2**64
        if ("streams", device, count) not in self._kept:
            own = np.ascontiguousarray(self._streams(count)).view(np.int64)
            self._kept["streams", device, count] = torch.from_numpy(own).to(device)
        return self._kept["streams", device, count]
