"""Searches of a row in parts: what a cut keeps, the threshold of sparse maps, gamma for an entropy. Each takes a few rounds."""

import math
from typing import Any, NamedTuple

import torch

from isentropic._descriptions import STATUSES
from isentropic.torch.distributed._entries import (
    INF,
    MAGIC,
    MAGIC_BITS,
    anywhere,
    blocks,
    key_of,
    leading,
    moments,
    of_key,
    relative,
    scratch,
    times_power,
)

OK, LOW, HIGH, CONSTANT, INVALID = map(STATUSES.index, ("ok", "clamped_low", "clamped_high", "constant", "invalid"))


class Cut(NamedTuple):
    """The row's largest score, sum exp((x - top) / T) of what is kept, and which of this part's entries are."""

    top: Any
    total: Any
    kept: Any


def top_k(call, x, k):
    """(the k largest scores of the whole row, their columns as this part counts them, the largest)."""
    k = max(min(k, call.n), 1)
    values, at = leading(x, k)
    lacks = (0, k - values.shape[1])  # a missing score comes after all others, even those of -inf
    key = key_of(torch.nn.functional.pad(values, lacks, value=-INF))
    at = torch.nn.functional.pad(at + call.first, lacks, value=0xFFFFFFFF)
    # Of float32, one word has a score and its index.
    narrow = x.dtype is torch.float32
    words = (key << 32) + (0xFFFFFFFF - at) if narrow else torch.stack([key, at], -1).flatten(1)
    joined = call.join_first(words, "gather").transpose(0, 1).flatten(1)
    key, at = (joined >> 32, 0xFFFFFFFF - (joined & 0xFFFFFFFF)) if narrow else joined.unflatten(1, (-1, 2)).unbind(-1)
    at, order = at.sort(dim=-1)
    values, order = of_key(key.gather(1, order), x.dtype).sort(dim=-1, descending=True, stable=True)
    return values[:, :k], at.gather(1, order)[:, :k] - call.first, values[:, :1].double()


def _top_k(call, x, k, temperature):
    _, at, top = top_k(call, x, k)
    inside = (at >= 0) & (at < x.shape[1])
    kept = torch.zeros_like(x, dtype=torch.int8)
    if x.shape[1]:
        kept.scatter_add_(1, torch.where(inside, at, 0), inside.to(torch.int8))
    return Cut(top, None, (kept > 0) & (x > -INF))


def _min_p(call, x, p, temperature):
    (top,) = call.largest(x)
    hot = call.number(1.0) if temperature is None else temperature
    kept = (x > -INF) & (x.double() >= 2 * (0.5 * top + 0.5 * hot * math.log(p)))
    words = moments(torch.where(kept, x, -INF), top, temperature, call.fixed, 1)[:, 0]
    return Cut(top, call.fixed.total(call.group.join(words, "sum")), kept)


def _top_p(call, x, p, temperature):
    (top,) = call.largest(x)
    return _by_mass(call, x, p, temperature, top, x)


def _typical_p(call, x, p, temperature):
    """Those nearest to the mean score."""
    top, least = call.extent(x)
    hot = call.number(1.0) if temperature is None else temperature
    unit = torch.where((top > least) & top.isfinite(), torch.minimum(hot, top - least), hot)
    e, z = relative(x, top, hot).exp_(), relative(x, top, unit)
    words = torch.cat([call.fixed.of(e * 1.0), call.fixed.of(torch.where(e == 0, 0.0, e * z))], 1)
    total, of_z = (call.fixed.total(one) for one in call.group.join(words, "sum").split(call.fixed.words, 1))
    away = (x.double() - (top + unit * of_z / total)).abs()
    away = torch.where(top == INF, torch.where(x == INF, 0.0, INF), away)
    return _by_mass(call, x, p, temperature, top, -away.to(x.dtype))


def _by_mass(call, x, p, temperature, top, order):
    """The fewest entries, of the largest order, that reach a mass. A round finds one digit of the last one's order, from the
    masses of all 256; the last round asks how many entries of this order each part has."""
    fixed, there, bits = call.fixed, x > -INF, 32 if x.dtype is torch.float32 else 64
    masses, rest = [], relative(x, top, temperature).exp_().double()
    for _ in range(fixed.words):
        masses.append(rest.mul_(fixed.scale).round().long())
        rest = rest - masses[-1]
    if p == 1:  # also those without mass
        words = torch.stack([one.sum(-1) for one in masses], 1)
        return Cut(top, fixed.total(call.group.join(words, "sum")), there)
    code = ((1 << 31) - 1 if bits == 32 else (1 << 63) - 1) - key_of(order)  # modulo 2^64, as an unsigned number
    alive, ahead = torch.ones_like(there), torch.zeros_like(there)
    need = None
    sums = [torch.zeros_like(top, dtype=torch.int64) for _ in masses]
    for shift in range(bits - 8, -8, -8):
        digit = (code >> shift) & 255
        told = [torch.zeros((call.rows, 256), dtype=torch.int64, device=x.device) for _ in masses]
        for one, mass in zip(told, masses, strict=True):
            one.scatter_add_(1, digit, torch.where(alive, mass, 0))
        joined = call.group.join(torch.cat(told, 1), "sum").split(256, 1)
        reached = sums[0] + joined[0].cumsum(1)
        if need is None:
            need = (reached[:, -1:].double() * p).ceil().long()
        # Only a rounding error may be missing at the last one with mass.
        last = 255 - (joined[0] > 0).flip(1).int().argmax(1, keepdim=True)
        chosen = torch.minimum((reached < need).sum(1, keepdim=True), last)
        of_chosen = [one.gather(1, chosen) for one in joined]
        sums = [s + one.cumsum(1).gather(1, chosen) - own for s, one, own in zip(sums, joined, of_chosen, strict=True)]
        ahead |= alive & (digit < chosen)
        alive &= digit == chosen
    alive &= there
    counts = call.group.join(alive.sum(1, keepdim=True), "gather")
    count = counts.sum(0)
    each = [one // count.clamp(min=1) for one in of_chosen]  # equal scores have equal masses
    stay = torch.minimum(((need - sums[0] + each[0] - 1) // each[0].clamp(min=1)).clamp(min=1), count)
    stay = torch.where(each[0] > 0, stay, count)
    total = fixed.total(torch.cat([s + stay * one for s, one in zip(sums, each, strict=True)], 1))
    kept = (ahead & there) | (alive & (alive.cumsum(1) <= stay - counts[: call.group.rank].sum(0)))
    return Cut(top, total, kept)


CUTS = {"top_k": _top_k, "top_p": _top_p, "min_p": _min_p, "typical_p": _typical_p}

# Sparse maps: p = exp_b(z + threshold), z = (x - top) / T, with b = alpha - 1 and exp_b(v) = (1 + b v)^(1/b), where that is
# above 0, which is e^v at b = 0. The threshold is the root of sum p = 1, at most 0.

_FEW = 64  # scores that every part sends; if no more may have mass, all the rest is done without a further exchange


def _exp_b(b, v):
    """(exp_b(v), its slope exp_b(v)^(1 - b))."""
    if not isinstance(b, torch.Tensor) and b in (1.0, 0.5):
        base = (1 + b * v).clamp_(min=0)
        return (base, base.sign()) if b == 1 else (base * base, base)
    b = b if isinstance(b, torch.Tensor) else v.new_tensor(b)
    base = (b * v).clamp(min=-1)
    p = torch.exp(torch.where(b.abs() < 1e-9, v, base.log1p() / torch.where(b.abs() < 1e-9, 1.0, b)))
    return p, torch.where(p > 0, p / (1 + base), 0.0)


def _log_b(b, log):
    """log_b(exp(log))."""
    return torch.where(b.abs() < 1e-9, log, (b * log).expm1() / torch.where(b.abs() < 1e-9, 1.0, b))


def _newton(b, start, sums, most, goes_on):
    """Newton's method for log_b(sum p) = 0, for b at most 1: straight where all have mass. From a start at or above the root it
    falls to it. What has converged does not move."""
    low, high, at = torch.full_like(start, -INF), start, start
    done = torch.zeros_like(start, dtype=torch.bool)
    for _ in range(most):
        total, slope = sums(at)
        log = total.log()
        step = _log_b(b, log) / (((b - 1) * log).exp() * slope)
        high, low = torch.where(total >= 1, at, high), torch.where(total < 1, at, low)
        moved = at - step
        middle = torch.where(low > -INF, 0.5 * (low + high), 2 * high - 1)
        moved = torch.where((moved >= low) & (moved <= high), moved, middle)
        at = torch.where(done, at, moved)
        done = done | (step.abs() <= 2.0**-30 * at.abs().clamp(min=1))
        if goes_on and not anywhere(~(done | at.isnan())):
            break
    return at


def _section(b, start, sums, rounds):
    """For b above 1: each round tells the sums at 16 points of an interval that has the root."""
    low, high = -1 / b.clamp(min=1), start
    grid = torch.arange(1, 17, device=start.device, dtype=torch.float64) / 17
    for _ in range(rounds):
        points = low + (high - low) * grid
        below = (sums(points)[0] < 1).sum(-1, keepdim=True)
        ends = torch.cat([low, points, high], 1)
        low, high = ends.gather(1, below), ends.gather(1, below + 1)
    return high


class Threshold(NamedTuple):
    top: Any
    b: Any
    at: Any
    temperature: Any
    few: Any = None  # the scores that may have mass, and their columns, if they are known

    def written(self, x):
        """This part of the map."""
        if self.few is None:
            return self.of(x)
        y = torch.where(self.top > -INF, 0.0, math.nan).to(x.dtype).expand(x.shape).contiguous()
        return y.scatter_(1, self.few[1], self.of(self.few[0]))

    def of(self, x):
        y, b = torch.empty_like(x), self.b
        nan = self.top.isnan() | (self.top == -INF)
        at = torch.where(nan, math.nan, self.at)
        exact = isinstance(b, float) and b in (1.0, 0.5) and self.temperature is None
        for some in blocks(x):
            if exact:  # (1 + b (z + at))^(1/b)
                base = relative(x[some], self.top[some], out=y[some]).mul_(b).add_((1 + b * at[some]).to(x.dtype)).clamp_(min=0)
                if b == 0.5:
                    base.mul_(base)
                continue
            z = relative(x[some], self.top[some], None if self.temperature is None else self.temperature[some]).double()
            y[some] = _exp_b(b[some] if isinstance(b, torch.Tensor) else b, z.add_(at[some]))[0]
        return y


def threshold(call, x, alpha, temperature):
    b = alpha - 1.0
    rows_b = b if isinstance(b, torch.Tensor) else call.number(b)
    values, _ = few = leading(x, _FEW, ordered=False)
    values = torch.nn.functional.pad(values, (0, _FEW - values.shape[1]), value=-INF)
    values = torch.where(values.isnan(), math.nan, values).contiguous()
    joined = call.join_first(values.view(torch.int64), "gather").view(x.dtype)
    # The largest of all, from the largest down: the same numbers however the row is split.
    merged = joined.transpose(0, 1).flatten(1).sort(dim=-1, descending=True).values
    top, hot = merged[:, :1].double(), call.number(1.0) if temperature is None else temperature
    z = relative(merged, top, hot)

    def of_few(z):
        def sums(at):
            p, slope = _exp_b(b[..., None] if isinstance(b, torch.Tensor) else b, at[..., None] + z[:, None])
            words = call.fixed.of(p.double()), call.fixed.of(slope.double())
            return [call.fixed.total(one)[..., 0] for one in words]

        return sums

    def of_all(at):
        words = torch.zeros((call.rows, 2, at.shape[1], call.fixed.words), dtype=torch.int64, device=x.device)
        for some in blocks(x):
            own = relative(x[some], top[some], None if temperature is None else temperature[some]).double()
            for k in range(at.shape[1]):
                both = _exp_b(b[some] if isinstance(b, torch.Tensor) else b, own + at[some, k : k + 1])
                for i in range(1 if at.shape[1] > 1 else 2):
                    words[some, i, k] = call.fixed.of(both[i].clone())
        words = words if at.shape[1] == 1 else words[:, :1]
        return [call.fixed.total(one)[..., 0] for one in call.group.join(words, "sum").unbind(1)]

    sparse, above = rows_b.clamp(max=1), rows_b > 1
    some_above = anywhere(above) if isinstance(b, torch.Tensor) else b > 1
    some_below = anywhere(~above) if isinstance(b, torch.Tensor) else b <= 1

    def search(start, sums, most, goes_on):
        at = _newton(sparse, start, sums, most, goes_on) if some_below else start
        return torch.where(above, _section(rows_b, start, sums, 14), at) if some_above else at

    # The threshold of the 64 largest alone is at or above that of all.
    start = search(torch.zeros_like(top), of_few(z[:, :_FEW]), 12, False)
    least = relative(joined[..., -1].T.contiguous(), top, hot)
    # Whether a score that was not sent may have mass.
    more = _exp_b(rows_b, start + least)[0] > 0
    if anywhere(more):
        return Threshold(top, b, search(start, of_all, 100, True), temperature)
    return Threshold(top, b, search(start, of_few(z), 24, False), temperature, few)


# gamma for an entropy. The first round joins the range of the scores, the second a sketch of them: the number and the mean of
# those in each of 96 intervals, 8 for each halving of the distance to the maximum. The search on the sketch usually ends so
# near to gamma that one round for exact moments is enough. Distances d are from 0 to 1, and p = exp(-rate d) / sum.

_BINS, _OCTAVES = 96, 12
_FIRST = (1023 - _OCTAVES) << 3  # the bits of 2^-12, without the last 49
_EDGES = [0.0, *(2.0 ** -(_OCTAVES - k // 8) * (1 + k % 8 / 8) for k in range(1, _BINS + 1))]
_MOST = 1e300  # a rate for which only the maxima have mass; for its inverse all have the same
# Errors of the entropy that count as met, and steps in log gamma after which the next one would be.
_MET = {torch.float32: 2e-7, torch.float64: 1e-13}
_NEAR = {torch.float32: 3e-3, torch.float64: 1e-6}


class _Distances:
    """(top - x) times a power of 2 for each row, in float64, for blocks of rows."""

    def __init__(self, x, top, least):
        self.x, self.top = x, top
        half = torch.where(top.isfinite(), 0.5 * top - 0.5 * least, 0.0)
        self.scale = times_power(torch.ones_like(top), -torch.frexp(half).exponent.clamp(min=-1000))
        self.scale = torch.where(half > 0, self.scale, 1.0)

    def blocks(self):
        memory = scratch(self.x)
        for some in blocks(self.x):
            d, x, top, scale = memory[: len(self.x[some])], self.x[some], self.top[some], -self.scale[some]
            if x.dtype is torch.float64:  # halves, because a difference may leave the range
                torch.mul(x, 0.5, out=d).sub_(0.5 * top).mul_(scale)
            else:
                d.copy_(x).sub_(top).mul_(0.5 * scale)
            yield some, torch.nan_to_num(d, nan=0.0, posinf=INF, neginf=INF, out=d)


def _moments(call, distances, rate):
    """The words of sum e a^k, a = -rate d, e = exp(a), k from 0 to 2."""
    found = call.x.new_zeros((call.rows, 3, call.fixed.words), dtype=torch.int64)
    two = scratch(call.x), scratch(call.x)
    for some, a in distances.blocks():
        e, terms = (one[: len(a)] for one in two)
        torch.exp(a.mul_(-rate[some]), out=e)
        a.clamp_(min=-1e4)
        for k in range(3):
            found[some, k] = call.fixed.of(terms.copy_(e) if k < 2 else e)
            if k < 2:
                e.mul_(a)
    return found.flatten(1)


def _cumulants(call, words):
    """(log sum e, the entropy, and the mean and variance of a)."""
    total, *powers = (call.fixed.total(one) for one in words.split(call.fixed.words, 1))
    mean, square = (one / total for one in powers)
    return total.log(), total.log() - mean, mean, square - mean * mean


class Gamma(NamedTuple):
    distances: Any
    rate: Any
    gamma: Any
    reached: Any
    status: Any
    log_sum: Any

    def values(self):
        return torch.cat([self.gamma, self.reached, self.status.double(), self.distances.top, self.log_sum], 1)

    def written(self):
        y = torch.empty_like(self.distances.x)
        factor = torch.where(self.status == INVALID, math.nan, (-self.log_sum).exp())
        for some, d in self.distances.blocks():
            y[some] = d.mul_(-self.rate[some]).exp_().mul_(factor[some])
        return y


def gamma(call, x, low, high, limits=(0.0, INF), iterations=100):
    """gamma with an entropy in [low, high]: 1 if low < high and that has such an entropy, otherwise at the nearer end."""
    clips = low is not high
    low, high = (one if isinstance(one, torch.Tensor) else call.number(one) for one in (low, high))
    top, least = call.extent(x)
    invalid, flat = top.isnan() | (top == -INF), top == INF
    distances = _Distances(x, top, least)
    unit = 0.5 * distances.scale  # rate * unit is gamma

    # The sketch: a word has the number of scores of an interval in its upper bits, and the sum of their distances below.
    width = call.n.bit_length()
    upper, lower = 62 - width, min(62 - 2 * width, 50)
    words = torch.zeros((call.rows, _BINS + 1), dtype=torch.int64, device=x.device)
    ties = torch.zeros((call.rows, 1), dtype=torch.int64, device=x.device)
    for some, d in distances.blocks():
        at = (d.view(torch.int64) >> 49).sub_(_FIRST).clamp_(0, _BINS)
        ties[some] = d.shape[1] - torch.count_nonzero(d, dim=1)[:, None]
        words[some] = words[some].scatter_add(
            1, at, d.mul_(2.0**lower).add_(MAGIC).view(torch.int64).add_((1 << upper) - MAGIC_BITS)
        )
    words[:, _BINS:] = ties
    one = (1 / unit).clamp(max=_MOST)
    if clips:
        words = torch.cat([words, _moments(call, distances, one)], 1)
    words = call.group.join(words, "sum")
    counts = (words[:, :_BINS] >> upper).double()
    ties, n = words[:, _BINS : _BINS + 1].double(), counts.sum(1, keepdim=True)
    log_n, log_ties = n.log(), ties.log()

    gammas, reached, status = torch.ones_like(top), log_n, torch.full_like(top, CONSTANT)
    log_sum, rate = log_n.clone(), torch.full_like(top, 1 / _MOST)
    goal, constant = low, flat | (ties == n)
    inside = torch.zeros_like(flat)
    if clips:
        log_one, entropy, *_ = _cumulants(call, words[:, _BINS + 1 :])
        inside = (low < high) & (entropy >= low) & (entropy <= high) & ~constant
        goal = torch.where((low < high) & (entropy > high), high, low)
    above, below = (goal >= log_n) & ~inside & ~constant, (goal <= log_ties) & ~inside & ~constant

    def tell(where, own_gamma, own_reached, own_status, own_rate, own_log_sum):
        nonlocal gammas, reached, status, rate, log_sum
        gammas, reached = torch.where(where, own_gamma, gammas), torch.where(where, own_reached, reached)
        status, rate = torch.where(where, own_status, status), torch.where(where, own_rate, rate)
        log_sum = torch.where(where, own_log_sum, log_sum)

    tell(flat, 1.0, log_ties, CONSTANT, _MOST, log_ties)
    if clips:
        tell(inside, 1.0, entropy, OK, one, log_one)
    tell(above, 0.0, log_n, torch.where(goal > log_n + 1e-14, HIGH, OK), 1 / _MOST, log_n)
    tell(below, INF, log_ties, torch.where(goal < log_ties - 1e-14, LOW, OK), _MOST, log_ties)
    tell(invalid, math.nan, math.nan, INVALID, 1.0, math.nan)
    least, most = (limit * one for limit in limits)
    forced = ((above & (limits[0] > 0)) | (below & (limits[1] < INF))) & ~invalid
    done = (above | below | inside | constant | invalid) & ~forced

    # The search on the sketch, by halving in log rate; an interval is two masses, a deviation of even ones around the mean.
    means = (words[:, :_BINS] & ((1 << upper) - 1)).double() / 2.0**lower / counts.clamp(min=1)
    edges = torch.tensor(_EDGES, dtype=torch.float64, device=x.device)
    spread = (edges[1:] - edges[:-1]) * ((counts - 1) / counts.clamp(min=1) / 12).clamp(min=0).sqrt()
    spread[:, 0] = torch.minimum(spread[:, 0], means[:, 0])
    d = torch.cat([means - spread, means + spread], 1).clamp(min=0)
    share = torch.where(counts > 0, 0.5 * counts, 0.0)
    share = torch.cat([share, share], 1)
    left, right = torch.full_like(top, -45.0), torch.full_like(top, 45.0)
    for _ in range(40):
        middle = 0.5 * (left + right)
        a = -middle.exp() * d
        e = share * a.exp()
        total = e.sum(1, keepdim=True)
        higher = total.log() - (e * a).sum(1, keepdim=True) / total > goal
        left, right = torch.where(higher, middle, left), torch.where(higher, right, middle)
    away = a - (e * a).sum(1, keepdim=True) / total
    third = (e * away**3).sum(1, keepdim=True) / total  # of a sketch, it is exact enough for Halley's step
    at = torch.where(forced, torch.where(above, least, most), (0.5 * (left + right)).exp().clamp(least, most))
    at = torch.where(done, 1.0, at)
    left, right = torch.zeros_like(top), torch.full_like(top, INF)
    for evaluation in range(1, min(iterations, 100) + 1):
        if not anywhere(~done):
            break
        log_e, entropy, mean, variance = _cumulants(call, call.group.join(_moments(call, distances, at), "sum"))
        error, high_ = entropy - goal, entropy > goal
        # Halley's step in log gamma, in which the entropy has the derivatives -variance and -(2 variance + third).
        step = error / variance / (1 + error * (2 * variance + third) / (2 * variance * variance)).clamp(0.3, 3)
        left, right = torch.where(high_, at, left), torch.where(high_, right, at)
        moved = at * step.clamp(-2, 2).exp()
        halved = torch.where((left > 0) & (right < INF), left.sqrt() * right.sqrt(), torch.where(high_, at * 8, at / 8))
        moved = torch.where((moved > left) & (moved < right), moved, halved)
        bounded = torch.minimum(torch.maximum(moved, least), most)
        ended = (at >= most) & high_ | (at <= least) & ~high_ & (least > 0)
        met = forced | ended | (error.abs() <= _MET[x.dtype] * goal.clamp(min=1)) | (bounded == at)
        met |= evaluation == min(iterations, 100)
        near = ~met & (step.abs() < _NEAR[x.dtype]) & (bounded == moved)
        clamped = torch.where(forced, torch.where(high_, LOW, HIGH), torch.where(ended, torch.where(high_, LOW, HIGH), OK))
        tell(met & ~done, at * unit, entropy, clamped, at, log_e)
        more = step.expm1()
        moved_log = log_e + ((third / 3 * more + variance) * 0.5 * more + mean) * more
        tell(near & ~done, moved * unit, goal, OK, moved, moved_log)
        done = done | met | near
        at = torch.where(done, at, bounded)
    return Gamma(distances, rate, gammas, reached, status, log_sum)
