"""Chains of steps for llama-cpp-python, ``Llama.create_completion(logits_processor=...)``. Needs only NumPy.

llama.cpp's own samplers run after it; switch them off by ``temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0,
repeat_penalty=1.0``, or give a seed here and ``temperature=0.0``.
"""

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
        and min_p above 1 keep only the largest score (the first of equal ones); top_k, min_p, top_n_sigma, epsilon and eta 0 or
        less, top_p and typical_p above 1, dry's multiplier 0, and xtc's probability 0 or less, do nothing.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and llama.cpp draws. A seed: the token is drawn here,
        and the others get -inf, so that llama.cpp has no choice. Its noise depends on (seed, stream, length of the text so
        far, token).
    stream : int in [0, 2**64) or None, default None
        Texts of different streams draw independently. None: from the tokens of the text so far; so a prompt has the same text
        each time, and different prompts have independent ones. Only with a seed.

    Examples
    --------
    >>> processor = isentropic.llama_cpp.logits_processor([("entropy", 2.0)])
    >>> p = np.exp(processor(np.array([1, 5]), np.array([0.0, 1.0, 2.0, 3.0] * 10, np.float32)))
    >>> round(float(-(p * np.log(p)).sum()), 5)
    2.0
    """

    def __init__(self, steps, *, seed=None, stream=None):
        stream = stream if stream is None else natural("logits_processor", "stream", stream)
        if seed is None and stream is not None:
            raise ValueError(f"logits_processor: stream must not be given without a seed: llama.cpp draws, got {stream}")
        self._chain = Chain(steps, seed, stream)

    def __call__(self, input_ids, scores):
        texts = np.asarray(input_ids)
        if texts.ndim != 1 or (texts.dtype.kind not in "iu" and texts.size):
            raise ValueError(f"logits_processor: input_ids must be a row of integers, got shape {texts.shape} of {texts.dtype}")
        row = np.ascontiguousarray(scores, np.float32)
        if row.size != row.shape[-1]:
            raise ValueError(f"logits_processor: scores must be one row, got shape {np.shape(scores)}")
        row, texts = row.reshape(1, -1), texts.astype(np.int64)[None]
        streams = streams_of_texts(texts) if self._chain.draws and self._chain.stream is None else None
        return self._chain(row, texts.shape[1], texts, streams).reshape(np.shape(scores))
