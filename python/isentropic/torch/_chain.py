"""Chains of steps on tensors of any device, for samplers of language models: what isentropic._numpy._chain is for arrays.

On the CPU they are those arrays, with the same results. On another device the steps of Sampler are the library's kernels, the
others torch's operations; nothing is read from the device.
"""

import json
import math

import numpy as np
import torch

from isentropic._numpy import _chain, _text_steps
from isentropic._numpy._sampling import Sampler, signed
from isentropic.torch._builder import Operator
from isentropic.torch._spec import OpSpec, Tensor


def _operator(name, tensors, params, result, shapes):
    return Operator(OpSpec(name=name, tensors=tensors, params={"steps": "str", **params}, outputs=(result,), shapes=shapes))


# Rows along the last axis; steps as JSON, a list of (name, value).
_probs = _operator("sampler_probs", ("x",), {}, "p", lambda x, *_: x.new_empty(x.shape))
_draw = _operator(
    "sampler_sample",
    ("x", "streams", "positions"),
    {"seed": "int"},
    "index",
    lambda x, *_: x.new_empty(x.shape[:-1], dtype=torch.int64),
)


class TensorChain(_chain.Chain):
    """Steps as a function of logits in a tensor of rows."""

    def __init__(self, steps, seed, stream):
        super().__init__(steps, seed, stream)
        self._kept = {}  # what was brought to a device, and what steps keep there

    def __call__(self, scores, position, tokens=None, streams=None):
        """As of Chain; scores are float32 or float64, position is a number or a tensor of one for each row."""
        if scores.is_cpu:
            position = position.numpy() if isinstance(position, Tensor) else position
            streams = streams if streams is None else streams.numpy()
            return torch.from_numpy(super().__call__(scores.contiguous().numpy(), position, tokens, streams))
        count = len(scores)
        if not isinstance(position, Tensor):
            position = torch.full((count,), position, dtype=torch.int64, device=scores.device)
        streams = self._streams_on(scores.device, count) if streams is None else streams
        row = _Rows(streams, position, tokens, self._kept)
        *before, last = self.parts
        found = scores
        for part in before:
            found = _log_probs(part, found) if isinstance(part, Sampler) else _STEPS[type(part)](part, found, row)
        if not self.draws:
            logits = _log_probs(last, found)
            return torch.where(logits.isnan().any(-1, keepdim=True), scores, logits)
        index = _draw(found, row.streams, position, _named(last), signed(last.seed))
        for part in self.parts:
            if isinstance(part, _text_steps.Mirostat):
                _learn(part, found, index, row)
        there = index[:, None]
        drawn = torch.full_like(scores, -math.inf).scatter_(1, there.clamp(min=0), 0.0)
        return torch.where(there < 0, scores, drawn)

    def _streams_on(self, device, count):
        if np.ndim(self.stream) == 0:
            return signed(int(self.stream or 0)) + torch.arange(count, device=device)  # modulo 2**64
        if ("streams", device, count) not in self._kept:
            own = np.ascontiguousarray(self._streams(count)).view(np.int64)
            self._kept["streams", device, count] = torch.from_numpy(own).to(device)
        return self._kept["streams", device, count]


class _Rows:
    """What a step may know of the rows beside their scores."""

    def __init__(self, streams, positions, tokens, kept):
        self.streams, self.positions, self.tokens, self.kept = streams, positions, tokens, kept


def _named(sampler):
    return json.dumps(sampler.steps, default=float)


def _log_probs(sampler, scores):
    return _probs(scores, _named(sampler)).log()


def _log_softmax(scores):
    return torch.log_softmax(scores.double(), -1)


def _kept(scores, log_p, bound):
    """Scores whose log_p reaches a bound, a number or one for each row; the most likely one is always kept."""
    most = log_p.amax(-1, keepdim=True)
    bound = torch.minimum(most, bound) if isinstance(bound, Tensor) else most.clamp(max=bound)
    return torch.where(log_p < bound, -math.inf, scores)


def _epsilon(step, scores, row):
    return _kept(scores, _log_softmax(scores), step.bound)


def _eta(step, scores, row):
    log_p = _log_softmax(scores)
    entropy = -(log_p.exp() * torch.where(log_p > -math.inf, log_p, 0.0)).sum(-1, keepdim=True)
    return _kept(scores, log_p, (step.bound / 2 - entropy).clamp(max=step.bound))


def _top_n_sigma(step, scores, row):
    there, x = scores > -math.inf, scores.double()
    count = there.sum(-1, keepdim=True)
    mean = torch.where(there, x, 0.0).sum(-1, keepdim=True) / count
    sigma = (torch.where(there, x - mean, 0.0).square().sum(-1, keepdim=True) / count).sqrt()
    return _kept(scores, x, x.amax(-1, keepdim=True) - step.n * sigma)


def _xtc(step, scores, row):
    log_p = _log_softmax(scores)
    top = log_p >= step.bound
    least = torch.where(top, log_p, math.inf).amin(-1, keepdim=True)
    first = (top & (log_p == least)).to(torch.uint8).argmax(-1, keepdim=True)  # of equal ones, the one with the lower index
    kept = (~top).scatter(1, first, True)
    sides = [math.log(p) if p > 0 else -math.inf for p in (step.probability, 1 - step.probability)]
    pair = torch.stack([torch.full_like(row.positions, side, dtype=torch.float64) for side in sides], -1)
    acts = _draw(pair, row.streams, row.positions, "[]", signed(step.seed)) == 0
    return torch.where(kept | ~(acts & (top.sum(-1) > 1))[:, None], scores, -math.inf)


def _dry(step, scores, row):
    if row.tokens is None:
        raise ValueError("steps: dry needs the tokens so far")
    at = [(r, token, amount) for r, text in enumerate(row.tokens) for token, amount in step.penalties(text, scores.shape[1])]
    if not at:
        return scores
    rows, tokens, amounts = zip(*at, strict=True)
    places = tuple(torch.tensor(x, device=scores.device) for x in (rows, tokens))
    amounts = torch.tensor(amounts, dtype=scores.dtype, device=scores.device)
    return scores.index_put(places, -amounts, accumulate=True)


def _mirostat(step, scores, row):
    anew = torch.full_like(row.positions, 2 * step.surprise, dtype=torch.float64)
    bounds, following = row.kept.get("mirostat", (anew, row.positions))
    if len(bounds) != len(scores):
        bounds, following = anew, row.positions
    bounds = torch.where(following == row.positions, bounds, anew)
    row.kept["mirostat"] = bounds, row.positions + 1
    return _kept(scores, _log_softmax(scores), -bounds[:, None])


def _learn(step, scores, index, row):
    surprise = -_log_softmax(scores).gather(1, index.clamp(min=0)[:, None])[:, 0]
    bounds, following = row.kept["mirostat"]
    row.kept["mirostat"] = torch.where(index < 0, bounds, bounds - step.rate * (surprise - step.surprise)), following


_STEPS = {
    _text_steps.Epsilon: _epsilon,
    _text_steps.Eta: _eta,
    _text_steps.TopNSigma: _top_n_sigma,
    _text_steps.Xtc: _xtc,
    _text_steps.Dry: _dry,
    _text_steps.Mirostat: _mirostat,
}
