"""The operations on this rank's part, in torch's operations, wherever its tensors are.

Each has two functions. Forward gives y, of x's shape or without columns, and numbers of each row; vjp gives a gradient of x,
and of parameters of rows or of a second array.
"""

import json
import math

import array_api_compat.torch as xp
import torch

from isentropic.formulas import Rows
from isentropic.torch._compat import can_be_read
from isentropic.torch.distributed import _searches
from isentropic.torch.distributed._divergences import Given, given_entropy_forward, given_entropy_vjp, two_forward, two_vjp
from isentropic.torch.distributed._entries import (
    INF,
    Fixed,
    anywhere,
    blocks,
    key_of,
    moments,
    of_key,
    relative,
    scratch,
    times_power,
    weighted,
    without_distribution,
)
from isentropic.torch.distributed._group import Group, cost
from isentropic.torch.distributed._maps import SOLVES, gamma_forward, gamma_vjp, map_forward, map_vjp


class _Parts(Rows):
    """Rows in parts: sums are those over all ranks."""

    def __init__(self, call):
        super().__init__(xp)
        self.call = call

    def wide(self, x):
        return x

    def sums(self, *terms):
        return self.call.sums(*terms)


class Call:
    """One call: the operation's parameters, this rank's part, and the group."""

    def __init__(self, spec, x, other, target, params, first, n, group_name, streams=None):
        self.spec = json.loads(spec)
        self.name, self.params = self.spec["name"], dict(self.spec.get("params", {}))
        self.own = [name for name, value in self.params.items() if value == "rows"]  # those with a value for each row
        self.params.update((name, params[:, i : i + 1]) for i, name in enumerate(self.own))
        self.group, self.in_rows = Group(self.name, group_name), _Parts(self)
        self.x, self.other, self.streams, self.rows = x, other, streams, len(x)
        self.reads = can_be_read(x)
        shared = {"function": self.name}
        if target is not None or self.spec.get("soft"):
            shared["target"] = "a distribution" if target is None else target
        shared |= {name: one for name, one in self.spec.items() if name not in ("kind", "name", "soft", "params")} | self.params
        shared |= {} if streams is None else {"stream": streams}
        self.first, self.n = self.group.extent(self.rows, x.shape[1], x.dtype.itemsize, first, n, shared)
        self.wrong = None if target is None else (target < -1) | (target >= self.n)
        self.target = None if target is None else torch.where(self.wrong, -1, target)[:, None]
        if target is not None and self.reads and bool(self.wrong.any()):
            row = int(self.wrong.int().argmax())
            given = int(target[row]) + int(target[row] < 0)
            self.group.error = ValueError(
                f"{self.name}: target must be a class from 0 to {self.n - 1}, got {given} in row {row}"
            )
        if self.group.differ:
            self.group.raise_first(self.group.error, shared)
        cost[2] = self.rows
        self.fixed = Fixed(self.n, 1 if x.dtype is torch.float32 else 2)

    def temperature(self):
        """One for each row, or None where all are 1."""
        given = self.params.get("temperature", 1.0)
        return given if isinstance(given, torch.Tensor) else None if given == 1 else self.number(given)

    def number(self, value):
        return self.x.new_full((self.rows, 1), value, dtype=torch.float64)

    def join_first(self, words, how):
        return self.group.join_first(words, how, self.target is not None and self.reads)

    def largest(self, *tensors):
        """The largest number of each row of each tensor, NaN if there is one, of all parts."""
        columns = [x.amax(-1, keepdim=True).double() if x.shape[1] else self.number(-INF) for x in tensors]
        return of_key(self.join_first(key_of(torch.cat(columns, 1)), "max")).split(1, 1)

    def extent(self, x):
        """The largest score of each row, and the least above -inf."""
        least, memory = self.number(INF), scratch(x, x.dtype)
        for some in blocks(x) if x.shape[1] else ():
            own = torch.nan_to_num(x[some], nan=0.0, posinf=INF, neginf=INF, out=memory[: len(x[some])])
            least[some] = own.amin(1, keepdim=True).double()
        top, least = self.largest(x, -least)
        return top, -least

    def sums(self, *terms):
        """The sum of each row of each tensor, of terms of any size: in units of the largest, which takes a round more."""
        return self.sums_of(lambda some: [one[some] for one in terms], len(terms))

    def sums_of(self, terms, count):
        """As sums, of tensors that terms gives for a block of rows."""
        most = self.x.new_zeros((self.rows, count), dtype=torch.float64)
        for some in blocks(self.x) if self.x.shape[1] else ():
            for k, one in enumerate(terms(some)):
                most[some, k] = one.abs().amax(-1).double()
        return self.in_units(self.join_first(key_of(most), "max"), terms)

    def in_units(self, most, terms, free=0, x=None, at=None):
        """The sums of terms that are below the number with this key, for each column; the last `free` of them are below 2. With
        `at`, terms are of rows of x that belong to these rows."""
        x = self.x if x is None else x
        most = of_key(most)
        exponents = torch.frexp(torch.where(most < INF, most, 1.0)).exponent.clamp_(min=-900)
        units = times_power(torch.ones_like(most), -exponents)
        exponents, units, most = (
            torch.nn.functional.pad(one, (0, free), value=fill) for one, fill in ((exponents, 0), (units, 1), (most, 1))
        )
        units_of = units if at is None else units[at]
        words = units_of.new_zeros((*units_of.shape, self.fixed.words), dtype=torch.int64)
        wide = scratch(x)
        for some in blocks(x) if x.shape[1] else ():
            for k, one in enumerate(terms(some)):
                words[some, k] = self.fixed.of(wide[: len(one)].copy_(one), units_of[some, k, None])
        if at is not None:
            words = torch.zeros((*units.shape, self.fixed.words), dtype=torch.int64).index_add_(0, at, words)
        joined = self.fixed.total(self.group.join(words, "sum"))[..., 0]
        return torch.where(most < INF, times_power(joined, exponents), math.nan).split(1, 1)

    def bounded_sums(self, *terms):
        """As sums, in one round, for terms of at most 2^40 with an allowed error of 2^-100: one word has the integers, three
        the fractions, and one counts larger terms, among them NaN as +inf. If there are larger terms, it takes two more
        rounds."""
        stacked = torch.stack([one.double() for one in terms])
        most = min(2.0**40, math.ldexp(0.5, 63 - self.n.bit_length()))
        small = stacked < most
        inside = torch.where(small, stacked, 0.0)
        rest = inside - inside.round()
        words = [inside.round().to(torch.int64).sum(-1)]
        for _ in range(3):
            scaled = rest * self.fixed.scale
            rest = scaled - scaled.round()
            words.append(scaled.round().to(torch.int64).sum(-1))
        joined = self.group.join(torch.stack([*words, (~small).sum(-1)], -1), "sum")
        total, inverse = torch.zeros_like(joined[..., :1], dtype=torch.float64), 1 / self.fixed.scale
        for word in (3, 2, 1):
            total = (total + joined[..., word : word + 1].double()) * inverse
        total = joined[..., :1].double() + total
        beyond = joined[..., 4:] > 0
        if anywhere(beyond):
            more = torch.stack(self.sums(*stacked))
            total = torch.where(beyond, torch.where(more.isnan(), INF, more), total)
        return list(total)

    def column(self):
        """(the class's column in this part or any, whether it is in it)."""
        at = self.target - self.first
        inside = (at >= 0) & (at < self.x.shape[1]) & (self.target >= 0)
        return torch.where(inside, at, 0), inside

    def chosen(self):
        """1 at the class of each row that is in this part."""
        hot = torch.zeros_like(self.x, dtype=torch.float64)
        at, inside = self.column()
        return hot.scatter_(1, at, inside.double()) if self.x.shape[1] else hot

    def log_p(self, x, top, total):
        """log softmax of scores in float64, from a maximum and a sum."""
        return torch.where(top > -INF, relative(x, top, self.number(1.0)) - total.log(), math.nan)


# log_softmax, logsumexp, and the numbers of a row: its maximum, sum exp((x - max)/T), T log sum exp(x/T), log p of the class,
# the entropy, max p.


def statistics(call, x, temperature, entropy=True):
    (top,) = call.largest(x)
    found = moments(x, top, temperature, call.fixed, 2 if entropy else 1).flatten(1)
    if call.target is not None:
        at, inside = call.column()
        score = torch.where(inside, x.gather(1, at) if x.shape[1] else 0.0, 0.0).double()
        found = torch.cat([found, score.view(torch.int64)], 1)
    found, of_sum = call.group.join(found, "sum"), call.fixed.words
    total, hot = call.fixed.total(found[:, :of_sum]), call.number(1.0) if temperature is None else temperature
    log_sum, nan = total.log(), call.number(math.nan)
    # At temperatures near the largest number, halves do not leave the range before the sum does.
    whole = torch.where(top.isinf(), top, 2 * (0.5 * top + 0.5 * hot * log_sum))
    log_p, spread = nan, nan
    if call.target is not None:
        log_p = relative(found[:, -1:].view(torch.float64), top, hot) - log_sum
        log_p = torch.where(call.wrong[:, None], math.nan, log_p)
    if entropy:
        spread = (log_sum - call.fixed.total(found[:, of_sum : 2 * of_sum]) / total).clamp(min=0)
    total, log_p, spread, most = (
        torch.where(without_distribution(top), math.nan, one) for one in (total, log_p, spread, 1 / total)
    )
    return torch.cat([top, total, whole, log_p, spread, most], 1)


def _statistics_forward(call):
    values = statistics(call, call.x, call.temperature(), call.spec["entropy"])
    if not call.spec["writes"]:
        return call.x[:, :0].clone(), values
    top, log_sum = values[:, 0:1], values[:, 1:2].log()
    z = relative(call.x, top, call.temperature())
    return z.sub_(torch.where(without_distribution(top), math.nan, log_sum)).to(call.x.dtype), values


def _statistics_vjp(call, y, values, gy, gvalues):
    top, total, _, _, entropy, _ = values.split(1, 1)
    temperature, still, none = call.temperature(), top == INF, without_distribution(top)
    hot = 1.0 if temperature is None else temperature
    if call.spec["writes"]:
        there = call.x > -INF
        g = torch.where(there, gy, 0.0)
        (of_all,) = call.sums(g)
        there = (there & ~still) | call.x.isnan()
        dx = torch.where(there, (g - y.double().exp() * of_all) / hot, 0.0)
    else:
        of_sum, of_log_p, of_entropy = (gvalues[:, i : i + 1] for i in (2, 3, 4))
        if call.target is not None:
            of_log_p = torch.where(call.target >= 0, of_log_p, 0.0)
        constant, slope = of_sum * hot - of_log_p, None
        if call.spec["entropy"] and call.name != "logsumexp":
            constant = constant - (entropy - total.log()) * of_entropy
            slope = torch.where(still | none, 0.0, -of_entropy / total / hot)
        ignored = call.target < 0 if call.name == "softmax_loss" else torch.zeros_like(none)
        empty = top.isnan() if call.name == "logsumexp" else none  # logsumexp of no mass is -inf, a constant
        constant = torch.where(empty, math.nan, torch.where(still | none, 0.0, constant / total / hot))
        dx = weighted(call.x, top, temperature, torch.where(ignored, 0.0, constant), slope)
        if call.target is not None and call.x.shape[1]:
            at, inside = call.column()
            inside &= ~still & (call.x.gather(1, at) > -INF)
            dx.scatter_add_(1, at, torch.where(inside, of_log_p / hot, -0.0).to(dx.dtype))  # -0 keeps a -0
        if call.spec.get("zero_if_unasked"):  # rows of which no gradient is asked may have NaN
            dx = torch.where((of_log_p == 0) & (of_entropy == 0), 0.0, dx)
    if not call.own:
        return dx, None
    if call.name == "logsumexp":  # d T log sum exp(x/T) / dT is the entropy; an infinite value does not depend on T
        return dx, torch.where(top.isinf(), 0.0, gvalues[:, 2:3] * entropy)
    return dx, call.sums(-dx.double() * torch.where(dx == 0, 0.0, relative(call.x, top, temperature)))[0]


# Losses. sparsemax's and entmax's: sum p z + H(p) against a class or a distribution.


def _entmax_loss_forward(call):
    alpha, soft, x = call.spec["alpha"], call.spec["soft"], call.x.double()
    if alpha == 1:
        values = statistics(call, x, None, False)
        top, p = values[:, 0:1], call.log_p(x, values[:, 0:1], values[:, 1:2]).exp()
    else:
        found = _searches.threshold(call, x, alpha, None)
        top, p = found.top, found.written(x)
    given = Given(call, "target", call.other) if soft else None
    q = given.p if soft else call.chosen()
    z = relative(x, top, call.number(2.0))  # halves of differences, which stay in the range, until they are weighted
    live = z.isfinite()
    z = torch.where(live, z, 0.0)

    def omega(d):
        log = torch.where(d > 0, d, 1.0).log()
        return d * log if alpha == 1 else torch.where(d > 0, (d * ((alpha - 1) * log).expm1()) / (alpha * (alpha - 1)), 0.0)

    # Both terms are small if the sum is: (p - q) z and Omega's difference.
    of_p = omega(p)
    terms = [(p - q) * z, omega(q) - of_p]
    # Half of what the loss grows by if q sums to more than 1, plus 1 / alpha: the mean under p of z + (1 - p^b) / b.
    terms += [p * z - 0.5 * alpha * of_p] if soft else []
    first, second, *growth = call.sums(*[torch.where(one.isnan(), 0.0, one) for one in terms])
    lost, *mass = call.bounded_sums(torch.where(~live & (q > 0), q, 0.0), *(given.terms if soft else ()))
    nan = without_distribution(top)
    if soft:
        nan = nan | given.refuse_unless_distributions(*mass)
        second = second + (mass[0] - 1) * (2 * growth[0] - 1 / alpha)
    else:
        nan = nan | call.wrong[:, None]
    loss = torch.where(lost > 0, INF, (2 * first + second).clamp(min=0))
    loss = torch.where(nan, math.nan, loss)
    if not soft:
        loss = torch.where((call.target < 0) & ~call.wrong[:, None], 0.0, loss)
    return p.to(call.x.dtype), torch.cat([loss, top], 1)


def _loss_gradient(call, top, p, g):
    q = call.other if call.spec["soft"] else call.chosen()
    dx = torch.where((call.x == -INF) | (top == INF), 0.0, (p - q) * g)
    dx = torch.where(without_distribution(top), math.nan, dx)
    return dx if call.target is None else torch.where(call.target < 0, 0.0, dx)


def _entmax_loss_vjp(call, y, values, gy, gvalues):
    return _loss_gradient(call, values[:, 1:2], y.double(), gvalues[:, 0:1]), None


def _soft_forward(call):
    """softmax's loss against a distribution: log sum e - sum q z."""
    top, total = statistics(call, call.x, None, False)[:, :2].split(1, 1)
    given = Given(call, "target", call.other)
    # A difference of scores may leave the range, before it is weighted.
    terms = torch.where(given.p > 0, -2 * (given.p * relative(call.x, top, call.number(2.0))), 0.0)
    loss, *mass = call.bounded_sums(terms, *given.terms)
    nan = without_distribution(top) | given.refuse_unless_distributions(*mass)
    return call.x[:, :0].clone(), torch.cat([torch.where(nan, math.nan, total.log() + loss), top, total], 1)


def _soft_vjp(call, y, values, gy, gvalues):
    top, total = values[:, 1:2], values[:, 2:3]
    return _loss_gradient(call, top, call.log_p(call.x, top, total).exp(), gvalues[:, 0:1]), None


# forward, vjp
OPERATIONS = {
    "map": (map_forward, map_vjp),
    "statistics": (_statistics_forward, _statistics_vjp),
    "gamma": (gamma_forward, gamma_vjp),
    "given": (given_entropy_forward, given_entropy_vjp),
    "loss": (_entmax_loss_forward, _entmax_loss_vjp),
    "soft": (_soft_forward, _soft_vjp),
    "two": (two_forward, two_vjp),
}


def shapes(spec, rows, cols):
    """How many columns y has, and how many numbers a row has."""
    spec = json.loads(spec)
    of_kind = {
        "map": lambda: (cols, 5 if spec["map"] in SOLVES else 1),
        "statistics": lambda: (cols if spec["writes"] else 0, 6),
        "two": lambda: (0, 6 if spec["name"] == "kl_divergence" else 8),
        "gamma": lambda: (cols, 5),
        "given": lambda: (0, 1),
        "loss": lambda: (cols, 2),
        "soft": lambda: (0, 3),
    }
    return of_kind[spec["kind"]]()
