"""A sampler's chain of steps on rows in parts."""

import math
import sys

import numpy as np

from entropic import _core
from entropic.torch.distributed._calls import relative, written
from entropic.torch.distributed._group import values_of


class Chain:
    """A chain of steps: the distribution is softmax(x / temperature), and dropped scores are -inf.

    The parts divide, by what they know of the whole row: here x / temperature could leave the range of x's type.
    """

    def __init__(self, call):
        self.call = call
        self.x = call.x.copy()
        self.temperature = 1.0

    def _cut(self, part):
        kept = np.zeros(self.x.size, np.uint8)
        part.keeps(kept)
        self.x = np.where(kept.reshape(self.x.shape).astype(bool) | np.isnan(self.x), self.x, -np.inf).astype(self.x.dtype)

    def apply(self, step, values):
        call = self.call
        if step == "temperature":
            # Like one machine's, a product of temperatures stays a temperature.
            self.temperature = min(max(self.temperature * values[0], math.ulp(0.0)), sys.float_info.max)
        elif step == "typical_p":
            part = _core.part_of_typical(values[0], self.temperature, self.x, call.first, call.n)
            self._cut(call.group.run(part, call.rows))
        elif step in ("top_k", "top_p", "min_p"):
            self._cut(call.map(f"{step}_softmax", values[0], self.temperature, x=self.x))
        elif step == "entropy":
            # Of softmax(x / temperature) as of softmax(x): the step replaces the temperature.
            part = _core.part_of_gamma(values[0], 0.0, math.inf, 100, self.x, call.first, call.n)
            self._tempered(values_of(call.group.run(part, call.rows), call.rows))
        else:
            if self.temperature != 1:
                top = values_of(call.statistics(self.x, 1.0, False), call.rows)[:, 0:1]
                self._scale(np.isfinite(top), relative(self.x, top, self.temperature))
            part = call.map("entropy_clip", *values, "scores", x=self.x)
            self._tempered(values_of(part, call.rows))

    def _tempered(self, values):
        """The distribution softmax(gamma x)."""
        gamma, top = values[:, 0:1], values[:, 3:4]
        # The ends: equal scores, or only the largest.
        self.x = np.where((gamma == 0) & (self.x > -np.inf), 0.0, self.x).astype(self.x.dtype)
        self.x = np.where(np.isinf(gamma) & (self.x < top), -np.inf, self.x).astype(self.x.dtype)
        between = (gamma > 0) & np.isfinite(gamma) & np.isfinite(top)
        with np.errstate(all="ignore"):
            self._scale(between, relative(self.x, top, 1 / np.where(between, gamma, 1.0)))

    def _scale(self, rows, z):
        """Some rows become z, with temperature 1. A score too low for x's type stays a score."""
        lowest = np.where(self.x > -np.inf, np.finfo(self.x.dtype).min, -np.inf)
        self.x = np.where(rows, np.maximum(z, lowest), self.x).astype(self.x.dtype)
        self.temperature = 1.0

    def probs(self):
        return written(self.call.map("softmax", self.temperature, x=self.x), self.x)

    def draw(self, streams):
        call, spec = self.call, self.call.spec
        part = _core.part_of_sample(
            self.temperature, spec["seed"], streams, spec["position"], spec["draws"], self.x, call.first, call.n
        )
        call.group.run(part, call.rows)
        indices = np.zeros(call.rows * spec["draws"], np.int64)
        part.indices(indices)
        return indices.reshape(call.rows, spec["draws"])
