"""Chains of steps for llama-cpp-python, ``Llama.create_completion(logits_processor=...)``. Needs nothing but NumPy.

llama.cpp's own samplers run after it; switch them off by ``temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0,
repeat_penalty=1.0``, or give a seed here and ``temperature=0.0``.
"""

import numpy as np

from entropic._chain import Chain

__all__ = ["logits_processor"]


class logits_processor:
    """A chain of steps as a function of (input_ids, scores).

    Parameters
    ----------
    steps : list of (name, value)
        As entropic.Sampler has them, in the order applied.
    seed : int in [0, 2**64) or None, default None
        None: logits become the log-probabilities that the chain leaves, and llama.cpp draws. A seed: the token is drawn here,
        and the others get -inf, so that llama.cpp has no choice. Its noise is of (seed, stream, length of the text so far,
        token).
    stream : int, default 0
        Texts of different streams draw independently.

    Examples
    --------
    >>> processor = entropic.llama_cpp.logits_processor([("entropy", 2.0)])
    >>> p = np.exp(processor(np.array([1, 5]), np.array([0.0, 1.0, 2.0, 3.0] * 10, np.float32)))
    >>> round(float(-(p * np.log(p)).sum()), 5)
    2.0
    """

    def __init__(self, steps, *, seed=None, stream=0):
        self._chain = Chain(steps, seed, stream)

    def __call__(self, input_ids, scores):
        row = np.ascontiguousarray(scores, np.float32).reshape(1, -1)
        return self._chain(row, len(input_ids), [input_ids]).reshape(np.shape(scores))
