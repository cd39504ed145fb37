"""A sampler's chain of steps on rows in parts."""

import math

import numpy as np

from entropic import _core
from entropic.torch.distributed._calls import written
from entropic.torch.distributed._group import values_of


class Chain:
    """A chain of steps: the distribution is softmax(x / temperature), and dropped scores are -inf. Each row has its own
    temperature."""

    def __init__(self, call):
        self.call = call
        self.x = call.x.copy()
        self.temperature = np.ones(call.rows)

    def _scaled(self):
        """Scores at temperature 1."""
        if (self.temperature == 1).all():
            return self.x
        with np.errstate(over="ignore"):
            return np.ascontiguousarray((self.x.astype(np.float64) / self.temperature[:, None]).astype(self.x.dtype))

    def _cut(self, part):
        kept = np.zeros(self.x.size, np.uint8)
        part.keeps(kept)
        self.x = np.where(kept.reshape(self.x.shape).astype(bool) | np.isnan(self.x), self.x, -np.inf).astype(self.x.dtype)

    def apply(self, step, values):
        call = self.call
        if step == "temperature":
            self.temperature = self.temperature * values[0]
        elif step == "typical_p":
            part = _core.part_of_typical(values[0], 1.0, self._scaled(), call.first, call.n)
            self._cut(call.group.run(part, call.rows))
        elif step in ("top_k", "top_p", "min_p"):
            self._cut(call.map(f"{step}_softmax", values[0], 1.0, x=self._scaled()))
        else:
            scaled = self._scaled() if step == "entropy_clip" else self.x
            low, high = (values[0], values[0]) if step == "entropy" else values
            if step == "entropy":
                part = _core.part_of_gamma(low, 0.0, math.inf, 100, scaled, call.first, call.n)
                self.temperature = np.ones(call.rows)
                call.group.run(part, call.rows)
            else:
                part = call.map("entropy_clip", low, high, "scores", x=scaled)
            self._tempered(values_of(part, call.rows), scaled)

    def _tempered(self, values, scaled):
        gamma, top = values[:, 0], values[:, 3]
        # The ends: equal scores, or only the largest.
        flat, sharp = gamma == 0, np.isinf(gamma)
        self.x = np.where(flat[:, None] & (self.x > -np.inf), 0.0, self.x).astype(self.x.dtype)
        self.x = np.where(sharp[:, None] & (scaled < top[:, None]), -np.inf, self.x).astype(self.x.dtype)
        with np.errstate(all="ignore"):
            self.temperature = np.where(flat | sharp | np.isnan(gamma), 1.0, self.temperature / gamma)

    def probs(self):
        return written(self.call.map("softmax", 1.0, x=self._scaled()), self.x)

    def draw(self, streams):
        call, spec = self.call, self.call.spec
        scores, temperature = self.x, 1.0
        if len(set(self.temperature.tolist())) == 1:
            temperature = float(self.temperature[0])
        else:
            scores = self._scaled()
        part = _core.part_of_sample(
            temperature, spec["seed"], streams, spec["position"], spec["draws"], scores, call.first, call.n
        )
        call.group.run(part, call.rows)
        indices = np.zeros(call.rows * spec["draws"], np.int64)
        part.indices(indices)
        return indices.reshape(call.rows, spec["draws"])
