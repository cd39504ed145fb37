"""What adapters to language models share: a chain's distribution, or the drawn token, as logits."""

import math
import numbers
from types import SimpleNamespace

import numpy as np

from isentropic._numpy import _sampling
from isentropic._numpy._sampling import STEPS, Sampler, natural


class Chain:
    """Steps as a function of a batch of logits with one row for each sequence."""

    def __init__(self, steps, seed, stream):
        """A stream of None: it comes with each call, or is set before the first."""
        self.draws = seed is not None
        self.stream = None if stream is None else _checked(stream)
        self.sampler = Sampler(_of_servers(steps), seed=0 if seed is None else seed)
        for name, _ in self.sampler.steps:
            if STEPS[name]["drawn"] and not self.draws:
                raise ValueError(f"steps: {name} draws: give a seed")
        self.reads_text = self.sampler.reads_text
        self.adjusts = self.sampler.adjusts
        self._bounds = {}  # mirostat's, by the key of the text that a draw continued

    def __call__(self, scores, position, tokens=None, streams=None):
        """Logits of the type of the scores: log p of the chain or, if it draws, 0 for the drawn token and -inf elsewhere.

        The scores are rows of float32 or float64. position is the number of tokens of each row's text, one number or one for
        each row; tokens are these tokens, a row of an array for each row, below 0 padding; streams are int64, one for each row,
        if the chain has none. A row without a distribution does not change. Tokens without a score count for nothing.
        """
        self.check_tokens(tokens)
        texts = np.ascontiguousarray(tokens, np.int64) if self.reads_text else None
        if texts is not None and (more := places_beyond(scores, texts)) > 0:
            wide = np.pad(scores, ((0, 0), (0, more)), constant_values=-np.inf)
            return self(wide, position, tokens, streams)[:, : scores.shape[1]]
        logits = np.empty_like(scores)
        if not self.draws:
            self.sampler._core.log_probs(scores, logits, texts, 1)
            invalid = np.isnan(logits).any(axis=-1)
            logits[invalid] = scores[invalid]
            return logits
        positions = np.broadcast_to(np.asarray(position, np.int64), len(scores))
        streams = self._streams(len(scores)) if streams is None else streams.view(np.uint64)
        keys = self.keys_of(positions, tokens, streams)
        bounds = self.bounds_of(keys) if self.adjusts else None
        index = np.empty((len(scores), 1), np.int64)
        for position in np.unique(positions):
            rows = np.flatnonzero(positions == position)
            some = index[rows], None if bounds is None else bounds[rows]
            own = None if texts is None else texts[rows]
            self.sampler._core.sample(scores[rows], some[0], own, some[1], None, 1, streams[rows], int(position))
            index[rows] = some[0]
            if bounds is not None:
                bounds[rows] = some[1]
        if self.adjusts:
            self.keep(keys, index[:, 0], bounds)
        logits.fill(-np.inf)
        rows = np.flatnonzero(index[:, 0] >= 0)
        logits[rows, index[rows, 0]] = 0
        logits[index[:, 0] < 0] = scores[index[:, 0] < 0]
        return logits

    def _streams(self, rows):
        """Those of the chain's stream; a chain that draws nothing needs none."""
        return _sampling.streams_of_rows(
            "Sampler", SimpleNamespace(lead=(rows,), axis=1), 0 if self.stream is None else self.stream
        )

    def check_tokens(self, tokens):
        if tokens is None and self.reads_text:
            names = [name for name, _ in self.sampler.steps if STEPS[name]["reads_text"]]
            raise ValueError(f"steps: {names[0]} needs the tokens so far")

    # mirostat's bounds belong to texts: each has its own, also where drafts of it were not taken, in any batch. Where texts
    # are not known, a stream is one.

    def keys_of(self, positions, tokens, streams):
        """What tells each row's text: the sum of its terms, or its stream; which it is; and the place of the next token."""
        if not self.adjusts:
            return []
        if tokens is None:
            return [(int(one), False, int(position) + 1) for one, position in zip(streams, positions, strict=True)]
        sums, counts = _sums_of_tokens(np.asarray(tokens), np.asarray(tokens) >= 0)
        return [(int(one), True, int(count) + 1) for one, count in zip(sums, counts, strict=True)]

    def bounds_of(self, keys):
        return np.array([self._bounds.get(key, math.nan) for key in keys])

    def keep(self, keys, drawn, bounds):
        """Keeps the bounds after these draws for the texts with the drawn tokens."""
        for (text, is_sum, place), token, bound in zip(keys, drawn.tolist(), bounds.tolist(), strict=True):
            if token < 0:
                continue
            if is_sum:
                text = int((np.array([text]) + _term(np.array([token]), np.array([place])))[0])
            key = text, is_sum, place + 1
            self._bounds.pop(key, None)  # the last ones are kept
            self._bounds[key] = bound
        for key in list(self._bounds)[: max(len(self._bounds) - (1 << 12), 0)]:
            del self._bounds[key]


def places_beyond(scores, tokens):
    """How many scores of -inf the rows need so that each token of the texts has one: a prompt may have tokens of which the
    model gives no scores. They stay in the texts, for dry's sequences."""
    return int(tokens.max()) + 1 - scores.shape[-1] if math.prod(tokens.shape) else 0


_GREEDY = {"temperature": lambda t: t <= 0, "top_p": lambda p: p <= 0, "min_p": lambda p: p > 1}
_OFF = {
    **dict.fromkeys(("top_k", "min_p", "top_n_sigma", "epsilon", "eta"), lambda value: value <= 0),
    **dict.fromkeys(("top_p", "typical_p"), lambda p: p > 1),
    "dry": lambda multiplier: multiplier == 0,
    "xtc": lambda probability: probability <= 0,
}


def _of_servers(steps):
    """Steps for Sampler, of steps with the values by which llama.cpp and servers switch them off or draw greedily. Anything but
    a list of pairs is returned unchanged, so that Sampler reports it."""
    if not isinstance(steps, (list, tuple)):
        return steps
    found = []
    for step in steps:
        name, value = step if isinstance(step, (list, tuple)) and len(step) == 2 else (None, None)
        number = _first_number(name, value)
        if number is not None and name in _GREEDY and _GREEDY[name](number):
            found.append(("top_k", 1))
        elif number is None or name not in _OFF or not _OFF[name](number):
            found.append(step)
    return found


def _first_number(name, value):
    """The number of a step's first parameter, in any form of the step's value; None if Sampler will refuse it."""
    params = STEPS[name]["params"] if isinstance(name, str) and name in STEPS else ()
    names = [param["name"] for param in params]
    if isinstance(value, dict) and set(value) <= set(names) and names:
        value = value.get(names[0], params[0]["default"])
    elif isinstance(value, (list, tuple)) and len(value) == len(names) > 1:
        value = value[0]
    return value if isinstance(value, numbers.Real) and not isinstance(value, bool) else None


def streams_of_texts(texts, seen=None):
    """Streams of the next tokens of texts, rows of tokens, for doors whose callers know nothing of streams; int64.

    A stream comes from the whole text and from the number of equal texts before it in the batch. So a text is continued in the
    same way whenever it comes and in any batch, also after drafts that were not taken, and nothing is kept between calls.
    Different texts, and several of one prompt, have independent noise.
    """
    own = streams_of_tokens(texts, seen)
    return own + (own[:, None] == own).cumsum(1).diagonal() - 1


def streams_of_tokens(tokens, seen=None):
    """A number of 64 bits for each row of tokens, as int64, whatever its padding, which is not `seen`.

    The sum over the tokens of the mixed (token, place) is mixed again: modulo 2**64, by operations that NumPy and torch have
    and that wait for no device.
    """
    return _mixed(_sums_of_tokens(tokens, seen)[0])


def _sums_of_tokens(tokens, seen=None):
    """For each row the sum of its tokens' terms, and the number of tokens."""
    wide = tokens.astype(np.int64) if isinstance(tokens, np.ndarray) else tokens.long()
    places = (wide * 0 + 1 if seen is None else wide * 0 + seen).cumsum(1)
    terms = _term(wide, places)
    return (terms if seen is None else terms * seen).sum(1), (wide * 0 + 1 if seen is None else wide * 0 + seen).sum(1)


def _term(token, place):
    return _mixed(token + place * -7046029254386353131)  # 2**64 / the golden ratio, as splitmix64 has it


def _mixed(x):
    """The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014) of int64, modulo 2**64."""
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _checked(stream):
    """An integer, or an array of integers for the rows; whether there are as many shows only with the rows."""
    if not isinstance(stream, (np.ndarray, list, tuple)) and not hasattr(stream, "__dlpack__"):
        return natural("Sampler", "stream", stream)
    given = np.asarray(stream)
    own = SimpleNamespace(lead=given.shape, axis=given.ndim)
    checked = _sampling.streams_of_rows("Sampler", own, given).reshape(given.shape)
    return checked if given.ndim else int(checked)
