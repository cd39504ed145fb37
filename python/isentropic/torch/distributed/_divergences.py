"""Measures of distributions that are given, and of two distributions: forward and vjp as in _calls."""

import functools
import math
from typing import NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic.torch.distributed._entries import (
    above_one,
    exponential,
    logarithm,
    logarithm_above_one,
    masked,
    rest_of_exponential,
    terms_of,
)


class Given:
    """This rank's part of distributions as given, by probabilities or their logarithms: p, log p, and what tells whether they
    are distributions, which may be summed with other terms in one exchange."""

    def __init__(self, call, argument, values, logs=False):
        self.call, self.argument, self.values = call, argument, values
        wide = values.astype(np.float64)
        p = exponential(wide) if logs else wide
        self.wrong = ~((p >= 0) & (p < np.inf))
        self.p = masked(~self.wrong, p)
        self.logs = logs
        self.terms = [self.p, self.wrong.astype(np.float64)]

    @functools.cached_property
    def log_p(self):
        return np.where(self.wrong, -np.inf, self.values.astype(np.float64)) if self.logs else logarithm(self.p)

    def refuse_unless_distributions(self, total, wrong):
        """Raises the same error on every rank, from the sums of the terms."""
        call = self.call
        bad = ((wrong > 0) | ~(np.abs(total - 1) <= call.spec["tolerance"]))[:, 0]
        if call.n == 0 or not bad.any():
            return
        row = int(np.argmax(bad))
        what = f"sums to {total[row, 0]:.9g}"
        if wrong[row, 0] > 0:
            # Only the rank that has the entry knows it.
            here = np.flatnonzero(self.wrong[row])[:1]
            told = call.group.objects([(call.first + int(i), float(self.values[row, i])) for i in here])
            entry, value = min((one for several in told for one in several), key=lambda one: one[0])
            what = f"has an entry that is negative, NaN or infinite, got {value} at entry {entry}"
        raise ValueError(f"{call.spec['name']}: {self.argument} must have rows that are distributions, row {row} {what}")


def given_entropy_forward(call):
    """The entropy of a distribution as given, which is not divided by its sum."""
    given = Given(call, "x", call.x, call.spec["input"] == "log_probs")
    # An entry above 2 is refused; its term need not be bounded.
    terms = terms_of(_core.entropy_terms, np.where(given.p > 2, -np.inf, given.log_p))
    *mass, entropy = call.sums(*given.terms, terms, bounded=True)
    given.refuse_unless_distributions(*mass)
    return call.none.astype(call.x.dtype), np.where(call.n == 0, np.nan, entropy)


def given_entropy_vjp(call, y, values, gy, gvalues):
    given, g = Given(call, "x", call.x, call.spec["input"] == "log_probs"), gvalues[:, 0:1]
    slope = -(given.log_p + 1)
    if call.spec["input"] == "log_probs":
        slope = masked(given.p > 0, given.p * np.where(given.p > 0, slope, 0.0))
    with np.errstate(invalid="ignore"):
        return masked(g != 0, slope * g)


class Pair(NamedTuple):
    """Two distributions, their logarithms, log(q/p), and the entries of p and q that are not masked."""

    p: np.ndarray
    q: np.ndarray
    a: np.ndarray
    b: np.ndarray
    ratio: np.ndarray
    has_p: np.ndarray
    has_q: np.ndarray


def _apart(x, y, top_x, top_y):
    """(y - x) - (top_y - top_x), with a small relative error if the differences cancel: each is taken with what its rounding
    loses (Knuth 4.2.2)."""
    low = 0.0
    for one, other, sign in ((y, x, 1), (top_y, top_x, -1)):
        high = one - other
        of_other = high - one
        rest = (one - (high - of_other)) - (other + of_other)
        low = low + sign * np.where(np.isfinite(rest), rest, 0.0)
    return ((y - x) - (top_y - top_x)) + low


class Scores:
    """Both arrays of scores, by the largest of each row: relative to it, and what that is the exponential of."""

    def __init__(self, call, tops):
        self.x, self.y, self.tops = call.x.astype(np.float64), call.other.astype(np.float64), tops
        self.heights = [call.below(one, top, 1.0) for one, top in zip((self.x, self.y), tops, strict=True)]
        # A row with NaN has no result; its masses must be numbers.
        self.masses = [exponential(np.where(np.isnan(one), -np.inf, one)) for one in self.heights]
        self.apart = _apart(self.x, self.y, *tops)

    def excess(self):
        """The masses of y minus those of x, with a small relative error if they are near each other."""
        near = np.abs(self.apart) <= 0.5
        one, other = self.masses
        return np.where(near, one * above_one(np.where(near, self.apart, 0.0)), other - one)

    def pair(self, totals, excess):
        """Both softmax rows. The difference of their logarithms has their rounding error, however near they are to each other.
        For near rows log(q/p) is the difference of scores, minus log(1 + the relative difference of the sums)."""
        (za, zb), (p, q), tops = self.heights, self.masses, self.tops
        log_p_total, log_q_total = (logarithm(total) for total in totals)
        share = excess / totals[0]
        near = np.isfinite(tops[0]) & np.isfinite(tops[1]) & (np.abs(share) <= 0.5)
        level = logarithm_above_one(np.where(near, share, 0.0))
        scores = zip(tops, self.heights, (self.x, self.y), strict=True)
        has_p, has_q = (np.where(top == np.inf, z == 0, x > -np.inf) for top, z, x in scores)
        ratio = np.where(near, self.apart - level, (zb - za) - (log_q_total - log_p_total))
        ratio = masked(has_p | has_q, ratio)
        return Pair(p / totals[0], q / totals[1], za - log_p_total, zb - log_q_total, ratio, has_p, has_q)


def _pair_of_given(call, one, other):
    p, q, a, b = one.p, other.p, one.log_p, other.log_p
    ratio = b - a
    if call.spec["input"] == "probs":
        away = (q - p) / p
        near = np.abs(away) <= 0.5
        ratio = np.where(near, logarithm_above_one(np.where(near, away, 0.0)), ratio)
    has_p, has_q = a > -np.inf, b > -np.inf
    return Pair(p, q, a, b, masked(has_p | has_q, ratio), has_p, has_q)


def _given_pair(call):
    return [Given(call, name, x, call.spec["input"] == "log_probs") for name, x in (("p", call.x), ("q", call.other))]


def _terms(p, q, ratio, infinite=False):
    """p log(p/q) - p + q = p (e^r - 1 - r), r = log(q/p): never negative, and with a small relative error."""
    near = np.abs(ratio) <= 0.5
    terms = np.where(near, p * rest_of_exponential(np.where(near, ratio, 0.0)), (q - p) - p * ratio)
    return np.where(infinite, np.inf, np.where(p == 0, q, terms))


def _ratios_of_middle(pair):
    """(m, log(m/p), log(m/q)) with m = (p + q)/2."""
    middle = 0.5 * (pair.p + pair.q)
    log_middle = logarithm(middle)
    near = np.abs(pair.ratio) <= 0.5
    ratio = np.where(near, pair.ratio, 0.0)
    of_p = logarithm_above_one(0.5 * above_one(ratio))
    return middle, np.where(near, of_p, log_middle - pair.a), np.where(near, of_p - ratio, log_middle - pair.b)


def _terms_of_pair(call, pair):
    if call.spec["name"] == "kl_divergence":
        return [_terms(pair.p, pair.q, pair.ratio, pair.has_p & ~pair.has_q)]
    if call.spec["name"] != "js_divergence":
        raise NotImplementedError(f"{call.spec['name']}: there is no such divergence for rows over ranks")
    middle, of_p, of_q = _ratios_of_middle(pair)
    return [_terms(pair.p, middle, of_p), _terms(pair.q, middle, of_q)]


def two_forward(call):
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if "tolerance" in call.spec:
            given = _given_pair(call)
            masses = [term for one in given for term in one.terms]
            sums = call.sums(*masses, *_terms_of_pair(call, _pair_of_given(call, *given)), bounded=True)
            for k, one in enumerate(given):
                one.refuse_unless_distributions(*sums[2 * k : 2 * k + 2])
            sums, state = sums[4:], np.zeros((call.rows, 5))
            nan = np.full((call.rows, 1), call.n == 0)
        else:
            tops = np.split(call.group.largest(np.concatenate([call.x, call.other])), 2)
            scores = Scores(call, tops)
            *totals, excess = call.sums(*scores.masses, scores.excess(), bounded=True)
            nan = ~((tops[0] > -np.inf) & (tops[1] > -np.inf))
            terms = _terms_of_pair(call, scores.pair(totals, excess))
            sums = call.sums(*(masked(~nan, one) for one in terms), bounded=True)
            state = np.concatenate([*tops, *totals, excess], 1)
    results = sums if len(sums) == 1 else [np.minimum(0.5 * (sums[0] + sums[1]), math.log(2)), *sums]
    return call.none.astype(call.x.dtype), np.concatenate([*(np.where(nan, np.nan, one) for one in results), state], 1)


def two_vjp(call, y, values, gy, gvalues):
    tops, totals, excess = values[:, -5:-3], values[:, -3:-1], values[:, -1:]
    tops, totals = np.split(tops, 2, 1), np.split(totals, 2, 1)
    g, given, kl = gvalues[:, 0:1], "tolerance" in call.spec, call.spec["name"] == "kl_divergence"
    with np.errstate(all="ignore"):
        pair = _pair_of_given(call, *_given_pair(call)) if given else Scores(call, tops).pair(totals, excess)
        p, q, ratio = pair.p, pair.q, pair.ratio
        if kl:
            near = np.abs(ratio) <= 0.5
            of_p, of_q = -ratio, np.where(near, p * above_one(np.where(near, ratio, 0.0)), q - p)
        else:
            _, of_p, of_q = _ratios_of_middle(pair)
            of_p, of_q = -0.5 * of_p, -0.5 * of_q
        # The derivatives in p and q themselves; an entry that is 0 in both has none.
        if given and call.spec["input"] == "probs":
            both = (p > 0) | (q > 0)
            of_q = of_q / q if kl else of_q
            return tuple(masked(g != 0, masked(both, one) * g) for one in (of_p, of_q))
        # Logarithms of probabilities are independent entries; for scores softmax subtracts the mean.
        means = np.zeros((3, call.rows, 1)) if given else values[:, :3].T[:, :, None].copy()
        if kl and not given and np.isinf(means[0]).any():
            # An entry whose mass is too small for a number makes the divergence infinite, but not the mean.
            (mean,) = call.sums(masked(p > 0, p * of_p))
            means[0] = np.where(np.isinf(means[0]), np.where(np.isnan(mean), np.inf, mean), means[0])
        of_p = masked(p > 0, p * (of_p - means[0] if kl else of_p - 0.5 * means[1]))
        of_q = of_q if kl else masked(q > 0, q * (of_q - 0.5 * means[2]))
        slopes = of_p * g, of_q * g
    if given:
        return masked(pair.has_p, slopes[0]), masked(pair.has_q, slopes[1])
    # Without one of the distributions there is no number, and no gradient in either.
    nan = np.isnan(values[:, 0:1])
    return tuple(
        np.where(nan, np.nan, np.where((top == np.inf) | (x == -np.inf), 0.0, d))
        for top, x, d in zip(tops, (call.x, call.other), slopes, strict=True)
    )
