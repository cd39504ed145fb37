"""What the adapters to language models share: a chain's distribution as logits, or one that leaves a single token."""

import numpy as np

from entropic._sampling import Sampler


class Chain:
    """Steps as a function of a batch of logits, one row a sequence."""

    def __init__(self, steps, seed, stream):
        self.draws = seed is not None
        self.sampler = Sampler(steps, seed=0 if seed is None else seed)
        self.stream = stream

    def __call__(self, scores, position):
        """float32 logits for rows of float32: log p of the chain or, where it draws, 0 for the token and -inf elsewhere.

        A row without a distribution stays as it is.
        """
        if self.draws:
            index = self.sampler.sample(scores, stream=self.stream, position=position)
            logits = np.full_like(scores, -np.inf)
            rows = np.flatnonzero(index >= 0)
            logits[rows, index[rows]] = 0
            logits[index < 0] = scores[index < 0]
            return logits
        p = self.sampler.probs(scores)
        with np.errstate(divide="ignore"):
            logits = np.log(p)
        invalid = np.isnan(p).any(axis=-1)
        logits[invalid] = scores[invalid]
        return logits
