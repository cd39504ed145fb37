"""A sampler's chain of steps on rows in parts, and its draws."""

import math
import sys
import types

import torch

from isentropic.torch.distributed import _searches
from isentropic.torch.distributed._calls import statistics
from isentropic.torch.distributed._entries import INF, anywhere, key_of, moments, of_key, relative, signed
from isentropic.torch.distributed._maps import softmax


class Chain:
    """A chain of steps: the distribution is softmax(x / temperature), and dropped scores are -inf.

    The parts divide, by what they know of the whole row: here x / temperature could leave the range of x's type.
    """

    def __init__(self, call):
        self.call, self.x, self.temperature = call, call.x, 1.0

    @classmethod
    def check(cls, step):
        """Refuses the steps that do not follow from sums over a row: those of texts, xtc, top_h and mirostat."""
        if step not in cls.STEPS:
            has = ", ".join(cls.STEPS)
            raise NotImplementedError(f"Sampler: there is no step {step!r} for rows over ranks, which have {has}")

    def apply(self, step, values):
        self.check(step)
        self.STEPS[step](self, step, *values)

    def _divisor(self):
        return None if self.temperature == 1 else self.call.number(self.temperature)

    def _heat(self, _, temperature):
        # Like one machine's, a product of temperatures stays a temperature.
        self.temperature = min(max(self.temperature * temperature, math.ulp(0.0)), sys.float_info.max)

    def _cut(self, step, value):
        kept = _searches.CUTS[step](self.call, self.x, value, self._divisor()).kept
        self.x = torch.where(kept | self.x.isnan(), self.x, -INF)

    def _within(self, top, distance):
        """Keeps the scores at most this far below the largest, which is always kept."""
        # Halves, because a sum may leave the range.
        kept = 0.5 * self.x.double() >= 0.5 * top + 0.5 * distance.clamp(max=0)
        kept = torch.where(top == INF, self.x == INF, kept & (self.x > -INF))
        self.x = torch.where(kept | self.x.isnan(), self.x, -INF)

    def _above(self, log_p, numbers):
        """Keeps what has at least this probability."""
        self._within(numbers[:, 0:1], self.temperature * (log_p + numbers[:, 1:2].log()))

    def _epsilon(self, _, epsilon):
        self._above(math.log(epsilon), statistics(self.call, self.x, self._divisor(), False))

    def _eta(self, _, epsilon):
        numbers, log = statistics(self.call, self.x, self._divisor()), math.log(epsilon)
        self._above((0.5 * log - numbers[:, 4:5]).clamp(max=log), numbers)

    def _p_less(self, _):
        numbers = statistics(self.call, self.x, self._divisor(), False)
        words = moments(self.x, numbers[:, 0:1], self.call.number(0.5 * self.temperature), self.call.fixed, 1)[:, 0]
        squares = self.call.fixed.total(self.call.group.join(words, "sum"))
        self._above(squares.log() - 2 * numbers[:, 1:2].log(), numbers)

    def _top_n_sigma(self, _, sigmas):
        top, least = self.call.extent(self.x)
        half = 0.5 * top - 0.5 * least
        unit = torch.where((half > 0) & half.isfinite(), half, 1.0)
        there = (self.x > -INF) & (self.x < INF)
        away = torch.where(there, (0.5 * self.x.double() - 0.5 * torch.where(top.isfinite(), top, 0.0)) / unit, 0.0)
        count, first, second = self.call.sums(there.double(), away, away * away)
        deviation = (second / count - (first / count) ** 2).clamp(min=0).sqrt() * unit * 2
        self._within(top, -sigmas * deviation)

    def _to_entropy(self, _, goal):
        self._normalize(goal, None)

    def _clip(self, _, low, high):
        numbers = statistics(self.call, self.x, self._divisor())
        top, reached = numbers[:, 0:1], numbers[:, 4:5]
        goal = reached.clamp(low, high)
        outside = (goal != reached) & ~reached.isnan()
        if anywhere(outside):
            scores = relative(self.x, top, self.call.number(self.temperature))
            self._normalize(torch.where(outside, goal, 0.0), torch.where(top.isfinite(), scores, self.x), outside)

    STEPS = types.MappingProxyType(
        {
            "temperature": _heat,
            **dict.fromkeys(("top_k", "top_p", "min_p", "typical_p"), _cut),
            "entropy": _to_entropy,
            "entropy_clip": _clip,
            "epsilon": _epsilon,
            "eta": _eta,
            "p_less": _p_less,
            "top_n_sigma": _top_n_sigma,
        }
    )

    def _normalize(self, goal, others, those=True):
        """Brings those rows to an entropy, at temperature 1. Neither a temperature nor a factor of the scores has an effect."""
        x, found = self.x, _searches.gamma(self.call, self.x, goal, goal)
        top, gamma = found.distances.top, found.gamma
        z = 2 * gamma * (0.5 * x.double() - 0.5 * top)
        # The ends: equal scores, or only the largest.
        z = torch.where(gamma == 0, 0.0, torch.where(gamma.isinf(), torch.where(x < top, -INF, 0.0), z))
        z = torch.where(top.isfinite(), torch.where(x > -INF, z, -INF), x.double())
        z = z if others is None else torch.where(those, z, others)
        # A score too low for x's type stays a score.
        least = torch.finfo(x.dtype).min
        self.x = torch.where((z < least) & (x > -INF) & ~(gamma.isinf() & those), least, z).to(x.dtype)
        self.temperature = 1.0

    def run(self):
        for step, values in self.call.spec["steps"]:
            self.apply(step, values)
        return self

    def probs(self):
        return softmax(self.call, self.x, self._divisor())[0]

    def draw(self):
        """Indices in the whole row, by the largest key x / T - log E, of which each part tells its best one; -1 without a
        distribution."""
        call, spec = self.call, self.call.spec
        keys = [_key_of_draw(spec["seed"], call.streams, spec["position"] + i) for i in range(spec["size"])]
        if not keys or not call.rows:
            return torch.full((call.rows, len(keys)), -1, device=self.x.device)
        found, again = self._drawn(keys, call.number(0.0))
        if anywhere(again):  # where x / T swallows the noise
            (top,) = call.largest(self.x)
            second, _ = self._drawn(keys, torch.where(top.isfinite(), top, 0.0))
            found = torch.where(again, second, found)
        return found

    def _drawn(self, keys, top):
        call, x = self.call, self.x
        own = x.amax(1, keepdim=True) if x.shape[1] else x.new_full((call.rows, 1), -INF)
        hot = self.call.number(self.temperature)
        told = []
        for key in keys:
            best, index = _best(x, own == INF, top, hot, call.first, key)
            # Flags beside the index: whether there is a NaN, or a +inf; `lost`: scores of which no key is a number.
            index = torch.where(own == -INF, _NONE, torch.where(best > -INF, index, _LOST))
            index = torch.where(own.isnan(), 2 * _INFINITE + _NONE, index + _INFINITE * (own == INF))
            told.append(torch.cat([key_of(torch.where(own.isnan(), -INF, best)), index], 1))
        joined = call.group.join(torch.stack(told, 1), "gather")
        values, index = joined.unbind(-1)
        flags, index = index // _INFINITE, index % _INFINITE
        first = flags.amax(0) == flags
        values = torch.where(first, values, key_of(call.number(-INF))[0])
        best = values.amax(0)
        index = torch.where(first & (values == best), index, _NONE).amin(0)
        best = of_key(best)
        again = ((index == _LOST) | ((index < _LOST) & ~(best.abs() < 2.0**29))).any(1, keepdim=True)
        return torch.where(index >= _LOST, -1, index), again


_INFINITE = 1 << 40
_NONE = _INFINITE - 1
_LOST = _NONE - 1


# The noise of a draw, as src/sampling/noise-inl.h has it: Philox4x32-10 of the index, and of its block of 64. The smallest
# number of each block is known without the others, so that few blocks need be looked at.


def _philox(counter, key):
    """The generator; counters and keys are 32 bits each, in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # modulo 2^64
        c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, p1 & _LOW, _high(p0) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


_LOW = 0xFFFF_FFFF


def _high(x):
    return (x >> 32) & _LOW


def _key_of_draw(seed, streams, position):
    """(key, upper half of the counters) of a draw of each row."""
    stream = streams[:, None]
    position = torch.full_like(stream, signed(position))
    bits = _philox((position & _LOW, _high(position), stream & _LOW, _high(stream)), (seed & _LOW, seed >> 32))
    return bits[:2], bits[2:]


def _exponential(low, high):
    """-log(1 - w), w = (bits + 1/2) 2^-64."""
    w = high.double() * 2.0**-32 + (low.double() + 0.5) * 2.0**-64
    return -torch.log1p(-w.clamp(max=1 - 2.0**-53))


def _of_blocks(block, key):
    """(the smallest number of each block, its place)."""
    low, high, _, place = _philox((block & _LOW, _high(block) | 1 << 31, *key[1]), key[0])
    return _exponential(low, high) / 64, place >> 26


def _of_indices(index, smallest, place, key):
    """The numbers of indices, of whose blocks the smallest is known."""
    a, b, c, d = _philox(((index >> 1) & _LOW, index >> 33, *key[1]), key[0])
    odd = (index & 1) == 1
    rest = _exponential(torch.where(odd, c, a), torch.where(odd, d, b))
    return torch.where(place == (index & 63), smallest, smallest + rest)


def _best(x, flat, top, temperature, first, key):
    """(the best key of each row, its index in the whole row). In `flat` rows only scores of +inf count, equally."""
    rows, cols = x.shape
    best, index = torch.full_like(top, -INF), torch.full_like(top, _NONE, dtype=torch.int64)
    if cols == 0:
        return best, index
    offset = first % 64
    padded = torch.nn.functional.pad(x, (offset, -(offset + cols) % 64), value=-INF).view(rows, -1, 64)
    block = first // 64 + torch.arange(padded.shape[1], device=x.device)
    # Rounded: a bound that is a little too low must not decide.
    of_blocks = _of_blocks(block, key)
    bounds = _scaled(padded.amax(-1), flat, top, temperature) - of_blocks[0].log()
    order = bounds.sort(dim=-1, descending=True)
    for begin in range(0, padded.shape[1], 8):
        # The rows in which one of the next blocks may win.
        some = (order.values[:, begin] >= (best - 1e-12 * (1 + best.abs()))[:, 0]).nonzero()[:, 0]
        if not len(some):
            break
        those = order.indices[some, begin : begin + 8]
        at = ((first // 64 + those)[:, :, None] * 64 + torch.arange(64, device=x.device)).flatten(1)
        smallest, place = (one[some].gather(1, those).repeat_interleave(64, 1) for one in of_blocks)
        own, own_key = padded[some[:, None], those].flatten(1), [tuple(one[some] for one in words) for words in key]
        keys = _scaled(own, flat[some], top[some], temperature[some]) - _of_indices(at, smallest, place, own_key).log()
        keys = torch.where(keys.isnan(), -INF, keys)
        most = torch.maximum(keys.amax(1, keepdim=True), best[some])
        again = torch.where((keys == most) & (own > -INF), at, _NONE).amin(1, keepdim=True)
        index[some] = torch.where(most > best[some], again, torch.minimum(index[some], again))
        best[some] = most
    return best, index


def _scaled(x, flat, top, temperature):
    """(x - top) / T, 0 at the top for any T."""
    below = torch.where(flat, torch.where(x == INF, 0.0, -INF), x.double()) - top
    return torch.where(below == 0, 0.0, below * (1 / temperature))
