"""The functions that draw."""

import torch
from torch import Tensor

from entropic._sampling import STEPS
from entropic.torch._arguments import as_text
from entropic.torch.distributed._functions import Part, number, together
from entropic.torch.distributed._operators import chain_probs, draw

__all__ = ["Sampler", "sample"]


def _streams(name, part, stream):
    rows = part.rows.shape[0]
    if isinstance(stream, Tensor):
        return stream.expand(part.lead).reshape(-1).to(torch.int64).contiguous()
    return torch.arange(rows, dtype=torch.int64) + stream


class Sampler:
    """entropic.Sampler for rows that are split over ranks: every rank gets the same indices, counted in the whole row.

    The steps are those of entropic.Sampler. Each takes a few rounds; a draw takes one of 16 bytes. The draws are those of one
    machine, except if rounding decides a truncation.
    """

    def __init__(self, steps, *, seed=0):
        self.steps, self.seed = [], int(seed)
        for step, value in steps:
            if step not in STEPS:
                raise ValueError(f"Sampler: a step must be one of {', '.join(STEPS)}, got {step!r}")
            values = list(value) if isinstance(value, (tuple, list)) else [value]
            self.steps.append((step, values))

    def _spec(self, draws=1, position=0):
        return as_text({"name": "Sampler", "steps": self.steps, "seed": self.seed, "position": int(position), "draws": draws})

    @together
    def probs(self, x, *, dim=None, axis=None, group=None, first=None, n=None):
        """This rank's part of the distribution that the steps leave."""
        part = Part("Sampler", x, dim, axis, group, first, n)
        return part.back(chain_probs(part.rows.detach(), self._spec(), *part.given, part.group))

    @together
    def sample(self, x, *, size=None, stream=0, position=0, dim=None, axis=None, group=None, first=None, n=None):
        """Indices of the whole row, on every rank."""
        part = Part("Sampler", x, dim, axis, group, first, n)
        draws = 1 if size is None else int(size)
        spec = self._spec(draws, position)
        found = draw(part.rows.detach(), _streams("Sampler", part, stream), spec, *part.given, part.group)
        return found.reshape(part.lead if size is None else (*part.lead, draws))


@together
def sample(
    x,
    *,
    size=None,
    temperature=1.0,
    seed,
    stream=0,
    position=0,
    dim=None,
    axis=None,
    group=None,
    first=None,
    n=None,
):
    """As entropic.sample, of this rank's part: indices of the whole row, on every rank. One round of 16 bytes a draw; where the
    largest score over the temperature is above 5e8 in size, two more."""
    steps = [("temperature", number("sample", "temperature", temperature))]
    where = {"dim": dim, "axis": axis, "group": group, "first": first, "n": n}
    return Sampler(steps, seed=seed).sample(x, size=size, stream=stream, position=position, **where)
