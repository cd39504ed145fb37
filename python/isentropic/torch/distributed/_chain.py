"""A sampler's chain of steps on rows in parts."""

import math
import sys
import types

import numpy as np

import isentropic._core as _core
from isentropic.torch.distributed._calls import written
from isentropic.torch.distributed._entries import relative, scaled
from isentropic.torch.distributed._group import values_of


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
        if step not in self.STEPS:
            raise NotImplementedError(f"Sampler: there is no step {step!r} for rows over ranks")
        self.STEPS[step](self, step, *values)

    def _heat(self, _, temperature):
        # Like one machine's, a product of temperatures stays a temperature.
        self.temperature = min(max(self.temperature * temperature, math.ulp(0.0)), sys.float_info.max)

    def _typical(self, _, p):
        part = _core.part_of_typical(p, self.temperature, self.x, self.call.first, self.call.n)
        self._cut(self.call.group.run(part, self.call.rows))

    def _map_that_cuts(self, step, value):
        self._cut(self.call.map(f"{step}_softmax", value, self.temperature, x=self.x))

    def _to_entropy(self, _, goal):
        self._normalize(goal, np.arange(self.call.rows))
        self.temperature = 1.0

    def _clip(self, _, *bounds):
        numbers = values_of(self.call.statistics(self.x, self.temperature, True), self.call.rows)
        top, reached = numbers[:, 0:1], numbers[:, 4:5]
        goal = np.clip(reached, *bounds)
        outside = (goal != reached) & ~np.isnan(reached)
        if outside.any():
            those = np.flatnonzero(~outside & np.isfinite(top))
            self._put(those, relative(self.x[those], top[those], self.temperature))
            for one in np.unique(goal[outside]):
                self._normalize(one, np.flatnonzero(outside & (goal == one)))
            self.temperature = 1.0

    STEPS = types.MappingProxyType(
        {
            "temperature": _heat,
            "typical_p": _typical,
            **dict.fromkeys(("top_k", "top_p", "min_p"), _map_that_cuts),
            "entropy": _to_entropy,
            "entropy_clip": _clip,
        }
    )

    def _normalize(self, goal, those):
        """Brings some rows to an entropy, at temperature 1. Neither a temperature nor a factor of the scores has an effect."""
        call = self.call
        x = np.ascontiguousarray(self.x[those])
        part = _core.part_of_gamma(goal, 0.0, math.inf, 100, x, call.first, call.n)
        values = values_of(call.group.run(part, len(x)), len(x))
        gamma, top = values[:, 0:1], values[:, 3:4]
        # The ends: equal scores, or only the largest.
        x = np.where((gamma == 0) & (x > -np.inf), 0.0, np.where(np.isinf(gamma) & (x < top), -np.inf, x))
        self.x[those] = x
        between = np.flatnonzero((gamma > 0) & np.isfinite(gamma) & np.isfinite(top))
        self._put(those[between], scaled(x[between], top[between], gamma[between]))

    def _put(self, those, z):
        """Some rows become z. A score too low for x's type stays a score."""
        x = self.x[those]
        self.x[those] = np.maximum(z, np.where(x > -np.inf, np.finfo(x.dtype).min, -np.inf))

    def probs(self):
        return written(self.call.map("softmax", self.temperature, x=self.x), self.x)

    def draw(self, streams):
        call, spec = self.call, self.call.spec
        part = _core.part_of_sample(
            self.temperature, spec["seed"], streams, spec["position"], spec["size"], self.x, call.first, call.n
        )
        call.group.run(part, call.rows)
        indices = np.zeros(call.rows * spec["size"], np.int64)
        part.indices(indices)
        return indices.reshape(call.rows, spec["size"])
