"""The functions that draw."""

from isentropic import _checks
from isentropic._numpy import _sampling
from isentropic.torch._arguments import as_text
from isentropic.torch._sampling import streams_of
from isentropic.torch.distributed._chain import Chain
from isentropic.torch.distributed._functions import Part, number, together
from isentropic.torch.distributed._operators import chain_probs, draw

__all__ = ["Sampler", "sample"]


def _drawn(name, steps, seed, x, size, stream, position, where):
    part = Part(name, x, where)
    draws = 1 if size is None else _sampling.natural(name, "size", size, 1 << 62)
    position = _sampling.position_of(name, position, draws)
    streams = streams_of(name, stream, x, part.dim).reshape(-1).contiguous()
    spec = as_text({"name": name, "steps": steps, "seed": seed, "position": position, "size": draws})
    found = draw(part.rows.detach(), streams, spec, *part.given, part.group)
    return found.reshape(part.lead if size is None else (*part.lead, draws))


def _numbers(step):
    """A step's name and numbers, as text has them."""
    kinds = {"int": _checks.integer, "float": _checks.number}
    name, *values = step.values()
    params = _sampling.STEPS[name]["params"]
    given = zip(params, values, strict=True)
    return name, [kinds[param["kind"]](name, param["name"], value) for param, value in given]


class Sampler:
    """isentropic.Sampler for rows that are split over ranks: every rank gets the same indices, counted in the whole row.

    The steps are those of isentropic.Sampler that follow from sums over a row: not penalties, dry, xtc, top_h and mirostat,
    which are refused. Each step takes a few rounds, and a draw takes one round of 16 bytes. The draws are those of one machine,
    except if rounding decides a truncation.
    """

    def __init__(self, steps, *, seed=0):
        local = _sampling.Sampler(steps, seed=seed)  # which checks them
        self.steps, self.seed = local.steps, local.seed
        for step in self.steps:
            Chain.check(step[0])
        self._given = [_numbers(step) for step in local._named()]

    @together
    def probs(self, x, *, where):
        """This rank's part of the distribution that the steps leave."""
        name = "Sampler.probs"
        part = Part(name, x, where)
        spec = as_text({"name": name, "steps": self._given})
        return part.back(chain_probs(part.rows.detach(), spec, *part.given, part.group))

    @together
    def sample(self, x, *, size=None, stream=0, position=0, where):
        """Indices of the whole row, on every rank."""
        return _drawn("Sampler.sample", self._given, self.seed, x, size, stream, position, where)


@together
def sample(x, *, size=None, temperature=1.0, seed, stream=0, position=0, where):
    """As isentropic.sample, of this rank's part: indices of the whole row, on every rank. One round of 16 bytes a draw; where
    the largest score over the temperature is above 5e8 in size, two more."""
    name = "sample"
    steps = [("temperature", [number(name, "temperature", temperature)])]
    return _drawn(name, steps, _sampling.natural(name, "seed", seed), x, size, stream, position, where)
