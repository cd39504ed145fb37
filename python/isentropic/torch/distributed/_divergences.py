"""Measures of distributions that are given, and of two distributions: forward and vjp as in _calls."""

import functools
import math
from typing import NamedTuple

import torch

from isentropic.formulas.rows import second_rest
from isentropic.torch._rows import ROWS
from isentropic.torch.distributed._entries import INF, anywhere, relative


def masked(condition, values):
    return torch.where(condition, values, 0.0)


class Given:
    """This rank's part of distributions as given, by probabilities or their logarithms: p, log p, and what tells whether they
    are distributions, which may be summed with other terms in one exchange."""

    def __init__(self, call, argument, values, logs=False):
        self.call, self.argument, self.values, self.logs = call, argument, values, logs
        wide = values.double()
        p = wide.exp() if logs else wide
        self.wrong = ~((p >= 0) & (p < INF))
        self.p = masked(~self.wrong, p)
        self.terms = [self.p, self.wrong.double()]

    @functools.cached_property
    def log_p(self):
        return torch.where(self.wrong, -INF, self.values.double()) if self.logs else self.p.log()

    def refuse_unless_distributions(self, total, wrong):
        """Raises the same error on every rank, from the sums of the terms. Where numbers cannot be read, the rows it names."""
        call = self.call
        bad = ((wrong > 0) | ~((total - 1).abs() <= call.spec["tolerance"])) & (call.n > 0)
        if not call.reads or not bool(bad.any()):
            return bad
        row = int(bad[:, 0].int().argmax())
        what = f"sums to {float(total[row, 0]):.9g}"
        if wrong[row, 0] > 0:
            # Only the rank that has the entry knows it.
            here = self.wrong[row].nonzero()[:1, 0].tolist()
            told = call.group.objects([(call.first + i, float(self.values[row, i])) for i in here])
            entry, value = min((one for several in told for one in several), key=lambda one: one[0])
            what = f"has an entry that is negative, NaN or infinite, got {value} at entry {entry}"
        raise ValueError(f"{call.name}: {self.argument} must have rows that are distributions, row {row} {what}")


def _no_columns(call):
    return call.x[:, :0].clone()


def given_entropy_forward(call):
    """The entropy of a distribution as given, which is not divided by its sum."""
    given = Given(call, "x", call.x, call.spec["input"] == "log_probs")
    # An entry above 2 is refused; its term need not be bounded.
    terms = masked((given.p > 0) & (given.p <= 2), -given.p * masked(given.p > 0, given.log_p))
    *mass, entropy = call.bounded_sums(*given.terms, terms)
    bad = given.refuse_unless_distributions(*mass)
    return _no_columns(call), torch.where(bad | (call.n == 0), math.nan, entropy)


def given_entropy_vjp(call, y, values, gy, gvalues):
    given, g = Given(call, "x", call.x, call.spec["input"] == "log_probs"), gvalues[:, 0:1]
    slope = -(given.log_p + 1)
    if given.logs:
        slope = masked(given.p > 0, given.p * masked(given.p > 0, slope))
    return masked(g != 0, slope * g), None


class Pair(NamedTuple):
    """Two distributions, their logarithms, log(q/p), and the entries of p and q that are not masked."""

    p: torch.Tensor
    q: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    ratio: torch.Tensor
    has_p: torch.Tensor
    has_q: torch.Tensor


def _near(ratio):
    """(where it is at most 1/2 in size, it there, elsewhere 0)."""
    near = ratio.abs() <= 0.5
    return near, masked(near, ratio)


def _apart(x, y, top_x, top_y):
    """(y - x) - (top_y - top_x), with a small relative error if the differences cancel: each is taken with what its rounding
    loses (Knuth 4.2.2)."""
    low = 0.0
    for one, other, sign in ((y, x, 1), (top_y, top_x, -1)):
        high = one - other
        of_other = high - one
        rest = (one - (high - of_other)) - (other + of_other)
        low = low + sign * masked(rest.isfinite(), rest)
    return ((y - x) - (top_y - top_x)) + low


class Scores:
    """Both arrays of scores, by the largest of each row: relative to it, and what that is the exponential of."""

    def __init__(self, call, tops):
        self.x, self.y, self.tops = call.x.double(), call.other.double(), tops
        both = (self.x, self.y)
        # A row with NaN has no result; its masses must be numbers.
        self.heights = [
            torch.where(one.isnan(), -INF, relative(one, top, call.number(1.0))) for one, top in zip(both, tops, strict=True)
        ]
        self.masses = [one.exp() for one in self.heights]
        self.apart = _apart(self.x, self.y, *tops)

    def excess(self):
        """The masses of y minus those of x, with a small relative error if they are near each other."""
        near, apart = _near(self.apart)
        one, other = self.masses
        return torch.where(near, one * apart.expm1(), other - one)

    def pair(self, totals, excess):
        """Both softmax rows. The difference of their logarithms has their rounding error, however near they are to each other.
        For near rows log(q/p) is the difference of scores, minus log(1 + the relative difference of the sums)."""
        (za, zb), (p, q), tops = self.heights, self.masses, self.tops
        log_p_total, log_q_total = (total.log() for total in totals)
        near, share = _near(excess / totals[0])
        near = near & tops[0].isfinite() & tops[1].isfinite()
        scores = zip(tops, self.heights, (self.x, self.y), strict=True)
        has_p, has_q = (torch.where(top == INF, z == 0, x > -INF) for top, z, x in scores)
        ratio = torch.where(near, self.apart - share.log1p(), (zb - za) - (log_q_total - log_p_total))
        ratio = masked(has_p | has_q, ratio)
        return Pair(p / totals[0], q / totals[1], za - log_p_total, zb - log_q_total, ratio, has_p, has_q)


def _pair_of_given(call, one, other):
    p, q, a, b = one.p, other.p, one.log_p, other.log_p
    ratio = b - a
    if call.spec["input"] == "probs":
        near, away = _near((q - p) / p)
        ratio = torch.where(near, away.log1p(), ratio)
    has_p, has_q = a > -INF, b > -INF
    return Pair(p, q, a, b, masked(has_p | has_q, ratio), has_p, has_q)


def _given_pair(call):
    return [Given(call, name, x, call.spec["input"] == "log_probs") for name, x in (("p", call.x), ("q", call.other))]


def _terms(p, q, ratio, infinite=None):
    """p log(p/q) - p + q = p (e^r - 1 - r), r = log(q/p): never negative, and with a small relative error."""
    near, inner = _near(ratio)
    terms = torch.where(near, p * (0.5 * inner * inner * second_rest(ROWS, inner)), (q - p) - p * ratio)
    terms = torch.where(p == 0, q, terms)
    return terms if infinite is None else torch.where(infinite, INF, terms)


def _ratios_of_middle(pair):
    """(m, log(m/p), log(m/q)) with m = (p + q)/2."""
    middle = 0.5 * (pair.p + pair.q)
    log_middle = middle.log()
    near, ratio = _near(pair.ratio)
    of_p = (0.5 * ratio.expm1()).log1p()
    return middle, torch.where(near, of_p, log_middle - pair.a), torch.where(near, of_p - ratio, log_middle - pair.b)


def _terms_of_pair(call, pair):
    if call.spec["name"] == "kl_divergence":
        return [_terms(pair.p, pair.q, pair.ratio, pair.has_p & ~pair.has_q)]
    if call.spec["name"] != "js_divergence":
        raise NotImplementedError(f"{call.spec['name']}: there is no such divergence for rows over ranks")
    middle, of_p, of_q = _ratios_of_middle(pair)
    return [_terms(pair.p, middle, of_p), _terms(pair.q, middle, of_q)]


def two_forward(call):
    if "tolerance" in call.spec:
        given = _given_pair(call)
        masses = [term for one in given for term in one.terms]
        sums = call.bounded_sums(*masses, *_terms_of_pair(call, _pair_of_given(call, *given)))
        nan = call.number(0.0) > 0 if call.n else call.number(1.0) > 0
        for k, one in enumerate(given):
            nan = nan | one.refuse_unless_distributions(*sums[2 * k : 2 * k + 2])
        sums, state = sums[4:], [call.number(0.0)] * 5
    else:
        tops = call.largest(call.x, call.other)
        scores = Scores(call, tops)
        *totals, excess = call.bounded_sums(*scores.masses, scores.excess())
        nan = ~((tops[0] > -INF) & (tops[1] > -INF))
        terms = _terms_of_pair(call, scores.pair(totals, excess))
        sums, state = call.bounded_sums(*(masked(~nan, one) for one in terms)), [*tops, *totals, excess]
    results = sums if len(sums) == 1 else [(0.5 * (sums[0] + sums[1])).clamp(max=math.log(2)), *sums]
    return _no_columns(call), torch.cat([*(torch.where(nan, math.nan, one) for one in results), *state], 1)


def two_vjp(call, y, values, gy, gvalues):
    *tops, one_total, other_total, excess = values[:, -5:].split(1, 1)
    g, given, kl = gvalues[:, 0:1], "tolerance" in call.spec, call.spec["name"] == "kl_divergence"
    totals = one_total, other_total
    pair = _pair_of_given(call, *_given_pair(call)) if given else Scores(call, tops).pair(totals, excess)
    p, q, ratio = pair.p, pair.q, pair.ratio
    if kl:
        near, inner = _near(ratio)
        of_p, of_q = -ratio, torch.where(near, p * inner.expm1(), q - p)
    else:
        of_p, of_q = (-0.5 * one for one in _ratios_of_middle(pair)[1:])
    # The derivatives in p and q themselves; an entry that is 0 in both has none.
    if given and call.spec["input"] == "probs":
        both = (p > 0) | (q > 0)
        of_q = of_q / q if kl else of_q
        return tuple(masked(g != 0, masked(both, one) * g) for one in (of_p, of_q))
    # Logarithms of probabilities are independent entries; for scores softmax subtracts the mean.
    means = [torch.zeros_like(g) if given else values[:, i : i + 1] for i in range(3)]
    if kl and not given and anywhere(means[0].isinf()):
        # An entry whose mass is too small for a number makes the divergence infinite, but not the mean.
        (mean,) = call.sums(masked(p > 0, p * of_p))
        means[0] = torch.where(means[0].isinf(), torch.where(mean.isnan(), INF, mean), means[0])
    of_p = masked(p > 0, p * (of_p - means[0] if kl else of_p - 0.5 * means[1]))
    of_q = of_q if kl else masked(q > 0, q * (of_q - 0.5 * means[2]))
    slopes = of_p * g, of_q * g
    if given:
        return masked(pair.has_p, slopes[0]), masked(pair.has_q, slopes[1])
    # Without one of the distributions there is no number, and no gradient in either.
    nan = values[:, 0:1].isnan()
    return tuple(
        torch.where(nan, math.nan, masked((top < INF) & (x > -INF), d))
        for top, x, d in zip(tops, (call.x, call.other), slopes, strict=True)
    )
