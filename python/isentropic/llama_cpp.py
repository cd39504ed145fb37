"""Chains of steps for llama-cpp-python, ``Llama.create_completion(logits_processor=...)``. Needs only NumPy.

llama.cpp's own samplers run after it; switch them off by ``temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0,
repeat_penalty=1.0``, or give a seed here and ``temperature=0.0``.
"""

import numbers

import numpy as np

from isentropic._numpy._chain import Chain, streams_of_texts
from isentropic._numpy._sampling import natural

__all__ = ["logits_processor"]


class logits_processor:
    """A chain of steps as a function of (input_ids, scores).

    Parameters
    ----------
    steps : list of (name, value)
        As isentropic.Sampler has them, in the order applied, or with llama.cpp's values: temperature 0 or less, top_p 0 or less
        and min_p above 1 keep only the largest score (the first of equal ones); top_k 0 or less, top_p above 1 and min_p 0 or
        less do nothing.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and llama.cpp draws. They are computed in float64: a
        token gets -inf if its probability is below 2e-308 (log -708), here or before a step such as top_n_sigma. A seed: the
        token is drawn here, and the others get -inf, so that llama.cpp has no choice. Its noise is of (seed, stream, length of
        the text so far, token).
    stream : int in [0, 2**64) or None, default None
        Texts of different streams draw independently. None: from the tokens of the text so far; so a prompt has the same text
        each time, and different prompts have independent ones.

    Examples
    --------
    >>> processor = isentropic.llama_cpp.logits_processor([("entropy", 2.0)])
    >>> p = np.exp(processor(np.array([1, 5]), np.array([0.0, 1.0, 2.0, 3.0] * 10, np.float32)))
    >>> round(float(-(p * np.log(p)).sum()), 5)
    2.0
    """

    def __init__(self, steps, *, seed=None, stream=None):
        stream = stream if stream is None else natural("logits_processor", "stream", stream)
        self._chain = Chain(_own_steps(steps), seed, stream)

    def __call__(self, input_ids, scores):
        row = np.ascontiguousarray(scores, np.float32).reshape(1, -1)
        texts = np.asarray(input_ids, np.int64)[None]
        streams = streams_of_texts(texts) if self._chain.draws and self._chain.stream is None else None
        logits = self._chain(row.astype(np.float64) if self._chain.wide else row, texts.shape[1], texts, streams)
        return logits.astype(np.float32, copy=False).reshape(np.shape(scores))


_GREEDY = {"temperature": lambda t: t <= 0, "top_p": lambda p: p <= 0, "min_p": lambda p: p > 1}
_OFF = {"top_k": lambda k: k <= 0, "top_p": lambda p: p > 1, "min_p": lambda p: p <= 0}


def _own_steps(steps):
    """Steps with llama.cpp's values, converted for Sampler. Anything but a list of pairs is returned unchanged, so that Sampler
    reports it."""
    if not isinstance(steps, (list, tuple)):
        return steps
    found = []
    for step in steps:
        name, value = step if isinstance(step, (list, tuple)) and len(step) == 2 else (None, None)
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            found.append(step)
        elif name in _GREEDY and _GREEDY[name](value):
            found.append(("top_k", 1))
        elif name not in _OFF or not _OFF[name](value):
            found.append(step)
    return found
