"""The part that adapters to language models share: a chain's distribution, or the drawn token, as logits."""

import itertools
from types import SimpleNamespace

import numpy as np

from isentropic._numpy import _sampling, _text_steps
from isentropic._numpy._sampling import Sampler, natural


class Chain:
    """Steps as a function of a batch of logits with one row for each sequence: steps of Sampler mixed with those of
    _text_steps."""

    def __init__(self, steps, seed, stream):
        """A stream of None: it comes with each call, or is set before the first."""
        self.draws = seed is not None
        self.stream = None if stream is None else _checked(stream)
        seed = 0 if seed is None else natural("Sampler", "seed", seed)
        self.parts = []
        for of_text, group in itertools.groupby(_listed(steps), _text_steps.is_one):
            some = list(group)
            if of_text:
                self.parts += [_text_steps.make(step, seed, self.draws) for step in some]
            else:
                self.parts.append(Sampler(some, seed=seed))
        if any(isinstance(part, _text_steps.Mirostat) for part in self.parts[:-1]):
            raise ValueError("steps: mirostat must be the last step")
        self.reads_text = any(isinstance(part, _text_steps.Dry) for part in self.parts)
        if not self.parts or not isinstance(self.parts[-1], Sampler):
            self.parts.append(Sampler([], seed=seed))
        # Whether logits become log p on the way: that ends at -87 in float32, at -708 in float64. A draw from one Sampler needs
        # no log: it reads float32, and is the draw of Sampler.sample.
        self.wide = not self.draws or any(isinstance(part, Sampler) for part in self.parts[:-1])

    def __call__(self, scores, position, tokens=None, streams=None):
        """Logits of the type of the scores: log p of the chain or, if it draws, 0 for the drawn token and -inf elsewhere.

        The scores are rows of float64 if the chain is `wide`, else of float32. position is the number of tokens of each row's
        text, one number or one for each row; tokens are these tokens, a sequence for each row; streams are int64, one for each
        row, if the chain has none. A row without a distribution does not change.
        """
        *before, last = self.parts
        positions = np.broadcast_to(np.asarray(position, np.int64), len(scores))
        streams = self._streams(len(scores)) if streams is None else streams.view(np.uint64)
        found = scores
        for part in before:
            found = _log_probs(part, found) if isinstance(part, Sampler) else part(found, positions, streams, tokens)
        if self.draws:
            return self._drawn(scores, found, last, positions, streams)
        logits = _log_probs(last, found)
        invalid = np.isnan(logits).any(axis=-1)
        logits[invalid] = scores[invalid]
        return logits

    def _streams(self, rows):
        """Those of the chain's stream; a chain that draws nothing needs none."""
        return _sampling.streams_of_rows(
            "Sampler", SimpleNamespace(lead=(rows,), axis=1), 0 if self.stream is None else self.stream
        )

    def _drawn(self, scores, found, last, positions, streams):
        index = np.empty(len(scores), np.int64)
        for position in np.unique(positions):
            rows = np.flatnonzero(positions == position)
            index[rows] = last.sample(found[rows], stream=streams[rows], position=int(position))
        for part in self.parts:
            if isinstance(part, _text_steps.Mirostat):
                part.learn(found, index)
        logits = np.full_like(scores, -np.inf)
        rows = np.flatnonzero(index >= 0)
        logits[rows, index[rows]] = 0
        logits[index < 0] = scores[index < 0]
        return logits


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
    wide = tokens.astype(np.int64) if isinstance(tokens, np.ndarray) else tokens.long()
    places = (wide * 0 + 1 if seen is None else wide * 0 + seen).cumsum(1)
    terms = _mixed(wide + places * -7046029254386353131)  # 2**64 / the golden ratio, as splitmix64 has it
    return _mixed((terms if seen is None else terms * seen).sum(1))


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


def _listed(steps):
    """The steps, if they are a list; Sampler reports other errors."""
    return list(steps) if isinstance(steps, (list, tuple)) else Sampler(steps).steps


def _log_probs(sampler, scores):
    p = sampler.probs(scores)
    with np.errstate(divide="ignore"):
        return np.log(p)
