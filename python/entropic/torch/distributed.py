"""entropic's operations on rows that are split over the processes of ``torch.distributed``.

Every process calls the function with its part of ``dim``; the parts follow the order of the ranks. A rank gets its part of the
result, or the number of the whole row. The ranks exchange a few integers for each row, never the scores. Sums are exact, so
the bits do not depend on the number of ranks or on where the row is split.

``group`` is the process group, by default all ranks. ``first`` is the index of this rank's first entry in the whole row and
``n`` the row's length. If one is missing, an exchange of 32 bytes finds both, and checks that all ranks have equally many
rows. Everything is differentiable where its counterpart in ``entropic.torch`` is. Under ``torch.compile`` a call is one
operator.
"""

import inspect
import json
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

from entropic import _checks, _core
from entropic._entropy_control import GammaResult
from entropic._sampling import STEPS
from entropic.torch import _token_statistics
from entropic.torch._arguments import checked_dim, one_dim
from entropic.torch._descriptions import MAPS, STATUSES
from entropic.torch._maps import call_operator as on_rows

# The word that a failed rank sends instead of a maximum; the key of every score is smaller.
_FAILED = 0x7FFF << 48
_SOLVES = ("entropy_normalize", "entropy_clip")

# torch 2.13 renamed the function.
_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor


class Traffic(NamedTuple):
    """The cost of the last call on this process: its rounds, and the bytes that this rank sent in them for each row."""

    rounds: int
    bytes_per_row: float


_traffic = [0, 0, 1]
# The shapes on which all ranks have agreed: group, rows, n, dtype.
_agreed: set[tuple[object, ...]] = set()


def traffic():
    """Rounds and bytes of the last call of a function of this module, or of its backward, on this process."""
    rounds, told, rows = _traffic
    return Traffic(rounds, told / max(rows, 1))


class _Group:
    """The ranks with one part each, and the extents of the parts."""

    def __init__(self, name, group_name, what):
        self.what, self.name = what, group_name
        self.alone = group_name == ""
        self.group = None if self.alone else dist.distributed_c10d._resolve_process_group(group_name)
        self.size = 1 if self.alone else self.group.size()
        self.rank = 0 if self.alone else self.group.rank()
        self.operation = name
        # NCCL cannot exchange words in the memory of the host.
        self.device = "cpu"
        if not self.alone and "cpu" not in {device.type for device in self.group._device_types}:
            self.device = next(iter(self.group._device_types)).type

    def join(self, words, join, rows):
        """The words of all parts, as one array of int64."""
        _traffic[0] += 1
        _traffic[1] += words.nbytes
        if self.alone:
            return words
        told = torch.from_numpy(words).to(self.device)
        try:
            if join == "gather":
                joined = _gather(told, 0, self.group)
            else:
                joined = functional.all_reduce(told, {"maximum": "max", "sum": "sum"}[join], self.group)
            return functional.wait_tensor(joined).cpu().numpy()
        except RuntimeError as error:
            raise RuntimeError(
                f"entropic.torch.distributed.{self.operation}: rank {self.rank} of {self.size} waited in vain for others in "
                f"round {_traffic[0]} ({self.what}); a rank has died, stalls or calls another function: {error}"
            ) from error

    def objects(self, one):
        if self.alone:
            return [one]
        everyone = [None] * self.size
        dist.all_gather_object(everyone, one, self.group)
        return everyone

    def raise_first(self, error):
        """Raises the exception of the first rank that has one, on every rank."""
        for rank, told in enumerate(self.objects(None if error is None else (type(error), str(error)))):
            if told is not None:
                kind, text = told
                if kind not in (ValueError, TypeError, IndexError, RuntimeError):
                    kind = RuntimeError
                raise kind(text if self.size == 1 else f"{text} (rank {rank})") from error
        raise RuntimeError(f"{self.operation}: a rank has failed without a message")

    def extent(self, rows, cols, dtype, first, n, error=None):
        """(first, n), from all ranks unless they are known to agree."""
        known = (self.name, rows, n, dtype)
        given = first >= 0 and n >= 0
        if error is None and given and known in _agreed:
            return first, n
        mine = np.array([rows, cols, dtype, 0 if error is None else 1], np.int64)
        before = list(_traffic)
        told = self.join(mine, "gather", 1).reshape(-1, 4)
        if given:  # done once for all calls of this kind
            _traffic[:] = before
        if told[:, 3].any():
            self.raise_first(error)
        if (told[:, 0] != told[0, 0]).any():
            counts = ", ".join(str(count) for count in told[:, 0])
            raise ValueError(f"{self.operation}: all ranks must have as many rows, got {counts}")
        if (told[:, 2] != told[0, 2]).any():
            raise TypeError(f"{self.operation}: all ranks must have the same dtype")
        begin, whole = int(told[: self.rank, 1].sum()), int(told[:, 1].sum())
        wrong = (n >= 0 and n != whole) or (first >= 0 and first != begin)
        if self.join(np.array([wrong], np.int64), "maximum", 1)[0] if given else wrong:
            _traffic[:] = before if given else _traffic
            raise ValueError(
                f"{self.operation}: the parts of all ranks must make the row, this one has {cols} entries behind {begin} "
                f"of {whole}, got first = {first}, n = {n}"
            )
        if given:
            _traffic[:] = before
            _agreed.add(known)
        return begin, whole

    def run_together(self, parts, rows):
        """Questions and answers of several parts in the same rounds, for rows with their own parameters."""
        while True:
            asked = [part.question() for part in parts]
            if all(join == "none" for join, _ in asked):
                return parts
            for how in ("maximum", "sum", "gather"):
                told, those = [], [i for i, (join, _) in enumerate(asked) if join == how]
                for i in those:
                    told.append(np.zeros(rows[i] * asked[i][1], np.int64))
                    parts[i].answer(told[-1])
                if not told:
                    continue
                # A round is one exchange for each way of joining.
                joined = np.ascontiguousarray(self.join(np.concatenate(told), how, 1)).reshape(-1, sum(map(len, told)))
                if how != "sum" and (joined >= _FAILED).any():
                    self.raise_first(None)
                at = 0
                for i, words in zip(those, told, strict=True):
                    parts[i].take(np.ascontiguousarray(joined[:, at : at + len(words)]).reshape(-1))
                    at += len(words)

    def run(self, part, rows, error=None):
        """Questions and answers until the part has no further question."""
        asked = part.question()
        begun = False
        while asked[0] != "none":
            join, words = asked
            told = np.zeros(rows * words, np.int64)
            part.answer(told)
            if error is not None and not begun and rows > 0 and words > 0:
                told[:] = _FAILED
            joined = np.ascontiguousarray(self.join(told, join, rows)).reshape(-1)
            if not begun and join != "sum" and joined.size and (joined >= _FAILED).any():
                self.raise_first(error)
            begun = True
            part.take(joined)
            asked = part.question()
        return part

    def sums(self, terms, first, n, bounded=False):
        """The exact sum of each row of each array of terms."""
        stacked = np.ascontiguousarray(np.concatenate(terms), np.float64)
        part = self.run(_core.part_of_sum(bounded, stacked, first, n), len(stacked))
        return _values(part, len(stacked)).reshape(len(terms), -1, 1)


def _values(part, rows):
    values = np.zeros((rows, part.value_count()))
    part.values(values)
    return values


def _written(part, x):
    y = np.empty_like(x)
    part.write(y)
    return y


def _exp(a):
    y = np.empty_like(a)
    _core.exponentials(a.reshape(-1), y.reshape(-1))
    return y


def _log(a):
    y = np.empty_like(a)
    _core.logarithms(np.ascontiguousarray(a).reshape(-1), y.reshape(-1))
    return y


def _terms(function, *arrays):
    y = np.empty_like(arrays[0])
    function(*(np.ascontiguousarray(a).reshape(-1) for a in arrays), y.reshape(-1))
    return y


def _masked(condition, values):
    return np.where(condition, values, 0.0)


# Operations: forward gives y, of x's shape or without columns, and numbers of each row; vjp gives a gradient of x.


class _Call:
    """One call: the operation's parameters, this rank's part, and the group."""

    def __init__(self, spec, x, other, target, first, n, group_name, params=None):
        self.spec, self.params = json.loads(spec), params
        self.group = _Group(self.spec["name"], group_name, self.spec["name"])
        self.x, self.other = x, other
        self.rows = len(x)
        self.none = np.zeros((self.rows, 0))
        self.target = np.zeros(0, np.int64) if target is None else target
        self.first, self.n = self.group.extent(self.rows, x.shape[1], x.dtype.itemsize, first, n)
        _traffic[2] = self.rows

    def map(self, name, *values, x=None):
        x = self.x if x is None else x
        return self.group.run(_core.part_of_map(name, values, x, self.first, self.n), self.rows)

    def statistics(self, x, temperature, entropy):
        part = _core.part_of_statistics(temperature, entropy, self.target, x, self.first, self.n)
        return self.group.run(part, self.rows)

    def sums(self, *terms, bounded=False):
        return self.group.sums(terms, self.first, self.n, bounded)

    def chosen(self):
        """1 at the class of each row that is in this part."""
        at = self.target - self.first
        hot = np.zeros(self.x.shape)
        rows = np.flatnonzero((at >= 0) & (at < self.x.shape[1]) & (self.target >= 0))
        hot[rows, at[rows]] = 1
        return hot

    def log_p(self, x, top, total, temperature):
        """log softmax of scores in float64, from a maximum and a sum."""
        wide = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            z = np.where(np.isinf(top), np.where(wide == np.inf, 0.0, -np.inf), (wide - top) / temperature)
        return np.where(np.isnan(top) | (top == -np.inf), np.nan, z - _log(total))


def _map_forward(call):
    name, params = call.spec["map"], call.spec["params"]
    if call.params is not None:
        return _map_of_rows(call, name, params)
    part = call.map(name, *params)
    values = _values(part, call.rows) if name in _SOLVES else np.zeros((call.rows, 0))
    return _written(part, call.x), values


def _map_of_rows(call, name, params):
    """Groups the rows: those with equal parameters form one part."""
    different, which = np.unique(call.params, axis=0, return_inverse=True)
    rows = [np.flatnonzero(which.reshape(-1) == i) for i in range(len(different))]
    parts = []
    for values, those in zip(different.tolist(), rows, strict=True):
        own = iter(values)
        given = [next(own) if param == "rows" else param for param in params]
        parts.append(_core.part_of_map(name, tuple(given), np.ascontiguousarray(call.x[those]), call.first, call.n))
    call.group.run_together(parts, [len(those) for those in rows])
    y, numbers = np.empty_like(call.x), np.zeros((call.rows, 5 if name in _SOLVES else 0))
    for part, those in zip(parts, rows, strict=True):
        y[those] = _written(part, call.x[those])
        if name in _SOLVES:
            numbers[those] = _values(part, len(those))
    return y, numbers


def _softmax_vjp(call, p, g, temperature):
    p, g = p.astype(np.float64), g.astype(np.float64)
    weighted = _masked(p != 0, p * np.where(p != 0, g, 0.0))
    (dot,) = call.sums(weighted)
    return _masked(p != 0, p * (np.where(p != 0, g, 0.0) - dot)) / temperature + np.where(np.isnan(p), np.nan, 0.0)


def _gamma_vjp(call, y, values, gy, ggamma):
    p, x = y.astype(np.float64), call.x.astype(np.float64)
    gamma, status, top = values[:, 0:1], values[:, 2:3], values[:, 3:4]
    live = (p > 0) & np.isfinite(top)
    p, z, g = np.where(live, p, 0.0), np.where(live, x - np.where(np.isfinite(top), top, 0), 0.0), np.where(live, gy, 0.0)
    total, pz, pzz, pg, pzg = call.sums(p, p * z, p * z * z, p * g, p * z * g)
    with np.errstate(all="ignore"):
        mean, mean_g = pz / total, pg / total
        variance = pzz / total - mean * mean
        u = p * (z - mean)
        du = (pzg / total - mean * mean_g) / variance
        dx = gamma * (p * (g - mean_g) - u * du) - ggamma * gamma * u / variance
    dx = np.where((status == 0) & np.isfinite(gamma) & (gamma > 0), dx, 0.0)
    if call.spec["name"] == "entropy_clip":
        dx = np.where((gamma == 1) & (status == 0), p * (g - pg / total), dx)
    return dx


def _param_slopes(call, given, y, values, g, dx):
    """The gradient in each parameter per row, from the gradient in x."""
    name, slopes = call.spec["map"], []
    names = [param["name"] for param in MAPS[name]["params"]]
    for param, of, value in zip(names, call.spec["params"], given, strict=True):
        if of != "rows":
            continue
        if param == "temperature":
            # y is a function of x / T.
            (slope,) = call.sums(_masked(dx != 0, -dx * np.where(dx != 0, call.x, 0.0) / value))
        elif param == "alpha":
            slope = _alpha_slope(call, y.astype(np.float64), g, value)
        else:
            slope = _entropy_slope(call, y, values, g)
            if name == "entropy_clip":
                # p changes with the bound that is met.
                gamma, status, reached = values[:, 0:1], values[:, 2:3], values[:, 1:2]
                met = (gamma != 1) & (status == 0) & (np.abs(reached - value) <= 1e-3 * np.maximum(value, 1e-3))
                slope = np.where(met, slope, 0.0)
        slopes.append(slope)
    return np.concatenate(slopes, 1) if slopes else np.zeros((call.rows, 0))


def _second_rest(y):
    """2 (e^y - 1 - y) / y^2, by its series near 0."""
    near = np.abs(y) < 1
    far, inner, series = np.where(near, 1.0, y), np.where(near, y, 0.0), np.zeros_like(y)
    for m in range(18, -1, -1):
        series = series * inner + 2 / math.factorial(m + 2)
    return np.where(near, series, 2 * (_exp(far) - 1 - far) / (far * far))


def _alpha_slope(call, p, g, alpha):
    """d entmax / d alpha of Correia, Niculae and Martins, 2019, without differences that cancel near 1."""
    on, b = p > 0, alpha - 1
    log = np.where(on, _log(np.where(on, p, 1.0)), 0.0)
    # Where p^-b is larger, alpha no longer has an effect.
    y = np.minimum(-b * log, 600.0)
    g, h, r = np.where(on, g, 0.0), -p * log, p * log * log * _second_rest(y)
    total, entropy, rest = call.sums(np.where(on, p * _exp(y), 0.0), h, r)
    with np.errstate(all="ignore"):
        slope = (p * rest - r + b * (h * rest - r * entropy)) / (2 * total)
    (result,) = call.sums(_masked(on, g * slope))
    return result


def _entropy_slope(call, y, values, g):
    """dp / dH = -p (x - mean) / (gamma variance), if p has the entropy."""
    p, x = y.astype(np.float64), call.x.astype(np.float64)
    gamma, status, top = values[:, 0:1], values[:, 2:3], values[:, 3:4]
    live = (p > 0) & np.isfinite(top)
    p, z, g = np.where(live, p, 0.0), np.where(live, x - np.where(np.isfinite(top), top, 0), 0.0), np.where(live, g, 0.0)
    total, pz, pzz, pg, pzg = call.sums(p, p * z, p * z * z, p * g, p * z * g)
    with np.errstate(all="ignore"):
        mean = pz / total
        slope = -(pzg / total - mean * pg / total) / (gamma * (pzz / total - mean * mean))
    return np.where((status == 0) & np.isfinite(gamma) & (gamma > 0) & np.isfinite(slope), slope, 0.0)


def _map_vjp(call, y, values, gy, gvalues):
    name, params = call.spec["map"], call.spec["params"]
    g = gy.astype(np.float64)
    if call.params is not None:
        columns = iter(np.split(call.params, call.params.shape[1], 1))
        params = [next(columns) if param == "rows" else param for param in params]
        dx = _map_dx(call, name, params, y, values, g)
        return dx, _param_slopes(call, params, y, values, g, dx)
    return _map_dx(call, name, params, y, values, g)


def _map_dx(call, name, params, y, values, g):
    if name in _SOLVES:
        return _gamma_vjp(call, y, values, g, 0.0)
    temperature = params[-1]
    of_rows = isinstance(params[0], np.ndarray)
    if name == "sparsemax" or (name == "entmax" and not of_rows and params[0] == 2):
        on = y > 0
        g = np.where(on, g, 0.0)
        total, count = call.sums(g, on.astype(np.float64))
        return np.where(on, g - total / np.maximum(count, 1), 0.0) / temperature
    if name == "entmax" and (of_rows or params[0] != 1):
        p = y.astype(np.float64)
        on = p > 0
        s = np.where(on, _exp((2 - params[0]) * _log(np.where(on, p, 1.0))), 0.0)
        g = np.where(on, g, 0.0)
        weighted, total = call.sums(s * g, s)
        with np.errstate(all="ignore"):
            return np.where(on, s * (g - weighted / total), 0.0) / temperature
    return _softmax_vjp(call, y, g, temperature)


def _refuse_unless_distributions(call, **logs):
    """Checks rows of probabilities, given as logarithms: every rank finds the same invalid row and raises the same error."""
    terms = []
    for log_p in logs.values():
        p = _exp(log_p.astype(np.float64))
        wrong = np.isnan(log_p) | ~np.isfinite(p)
        terms += [np.where(wrong, 0.0, p), wrong.astype(np.float64)]
    sums = call.sums(*terms, bounded=True)
    for argument, total, wrong in zip(logs, sums[::2], sums[1::2], strict=True):
        bad = ((wrong > 0) | (np.abs(total - 1) > call.spec["tolerance"]))[:, 0]
        if bad.any():
            row = int(np.argmax(bad))
            what = "has an entry that is negative, NaN or infinite" if wrong[row, 0] > 0 else f"sums to {total[row, 0]:.9g}"
            raise ValueError(f"{call.spec['name']}: {argument} must have rows that are distributions, row {row} {what}")


def _statistics_forward(call):
    if "tolerance" in call.spec:
        _refuse_unless_distributions(call, x=call.x)
    part = call.statistics(call.x, call.spec["temperature"], call.spec["entropy"])
    y = _written(part, call.x) if call.spec["writes"] else call.none.astype(call.x.dtype)
    return y, _values(part, call.rows)


def _statistics_vjp(call, y, values, gy, gvalues):
    temperature = call.spec["temperature"]
    log_p = call.log_p(call.x, values[:, 0:1], values[:, 1:2], temperature)
    p = _exp(log_p)
    dx = p * gvalues[:, 2:3] * temperature
    if call.spec["entropy"]:
        dx += (call.chosen() - p) * np.where(call.target >= 0, gvalues[:, 3], 0.0)[:, None] if len(call.target) else 0.0
        # Probabilities are independent entries; for scores softmax subtracts the mean.
        mean = 1.0 if "tolerance" in call.spec else values[:, 4:5]
        dx -= _masked(p > 0, p * (np.where(p > 0, log_p, 0.0) + mean)) * gvalues[:, 4:5]
    if call.spec["writes"]:
        live = p > 0
        g = np.where(np.isfinite(y), gy, 0.0).astype(np.float64)
        (total,) = call.sums(g)
        dx += np.where(live | (p == 0), g - p * total, 0.0)
    return np.where(call.x == -np.inf, 0.0, dx / temperature)


def _gamma_forward(call):
    low, high, iterations = call.spec["low"], call.spec["high"], call.spec["iterations"]
    part = _core.part_of_gamma(call.spec["entropy"], low, high, iterations, call.x, call.first, call.n)
    call.group.run(part, call.rows)
    return _written(part, call.x), _values(part, call.rows)


def _loss_forward(call):
    """entmax's loss (and sparsemax's): sum p z + H(p) against a class or a distribution."""
    alpha, soft = call.spec["alpha"], call.spec["soft"]
    x = call.x.astype(np.float64)
    if alpha == 1:
        part = call.map("softmax", 1.0, x=x)
        p = _written(part, x)
        top = _values(part, call.rows)[:, 0:1]
    else:
        part = call.map("entmax", alpha, 1.0, x=x)
        p = _written(part, x)
        top = _values(part, call.rows)[:, 0:1]
    q = call.other.astype(np.float64) if soft else call.chosen()
    live = np.isfinite(x)
    z = np.where(live, x - np.where(np.isfinite(top), top, 0.0), 0.0)

    def omega(d):
        if alpha == 1:
            return -_terms(_core.entropy_terms, _log(d))
        power = d * d if alpha == 2 else np.where(d > 0, _exp(alpha * _log(np.where(d > 0, d, 1.0))), 0.0)
        return (power - d) / (alpha * (alpha - 1))

    # Both terms are small if the sum is: (p - q) z and Omega's difference.
    terms = [(p - q) * z, omega(q) - omega(p)]
    first, second = call.sums(*[np.where(np.isnan(t), 0.0, t) for t in terms])
    (lost,) = call.sums(_masked(~live & (q > 0), q), bounded=True)
    loss = np.where(lost > 0, np.inf, np.maximum(first + second, 0.0))
    loss = np.where(np.isnan(top) | (top == -np.inf), np.nan, loss)
    ignored = call.target < 0 if len(call.target) else np.zeros(call.rows, bool)
    return p.astype(call.x.dtype), np.where(ignored[:, None], 0.0, loss)


def _loss_vjp(call, y, values, gy, gvalues):
    q = call.other.astype(np.float64) if call.spec["soft"] else call.chosen()
    dx = (y.astype(np.float64) - q) * gvalues[:, 0:1]
    ignored = call.target < 0 if len(call.target) else np.zeros(call.rows, bool)
    return np.where((call.x == -np.inf) | ignored[:, None], 0.0, dx)


def _soft_forward(call):
    """softmax's loss against a distribution: sum q (log sum e - z)."""
    part = call.statistics(call.x, 1.0, True)
    values = _values(part, call.rows)
    q = call.other.astype(np.float64)
    log_p = call.log_p(call.x, values[:, 0:1], values[:, 1:2], 1.0)
    (loss,) = call.sums(_masked(q > 0, q * np.where(q > 0, -log_p, 0.0)), bounded=True)
    return call.none.astype(call.x.dtype), np.concatenate([loss, values[:, :2]], 1)


def _soft_vjp(call, y, values, gy, gvalues):
    p = _exp(call.log_p(call.x, values[:, 1:2], values[:, 2:3], 1.0))
    return np.where(call.x == -np.inf, 0.0, (p - call.other) * gvalues[:, 0:1])


def _pair(call):
    """log p of both arrays, of scores: maxima, then sums, in one round each."""
    both = np.ascontiguousarray(np.concatenate([call.x, call.other]))
    rows = len(both)
    part = call.group.run(
        _core.part_of_statistics(1.0, True, np.zeros(0, np.int64), both.astype(np.float64), call.first, call.n), rows
    )
    values = _values(part, rows)
    log_p = call.log_p(both, values[:, 0:1], values[:, 1:2], 1.0)
    return log_p[: call.rows], log_p[call.rows :], values


def _two_forward(call):
    if "tolerance" in call.spec:
        _refuse_unless_distributions(call, p=call.x, q=call.other)
    a, b, values = _pair(call)
    nan = np.isnan(values[: call.rows, 0]) | np.isnan(values[call.rows :, 0])
    nan |= np.isneginf(values[: call.rows, 0]) | np.isneginf(values[call.rows :, 0])
    clean = [np.where(np.isnan(v), 0.0, v) for v in (a, b)]
    if call.spec["name"] == "kl_divergence":
        (result,) = call.sums(_terms(_core.divergence_terms, *clean), bounded=True)
        results = [np.maximum(result, 0.0)]
    else:
        middle = _middle(*clean)
        first, second = call.sums(*(_terms(_core.divergence_terms, one, middle) for one in clean), bounded=True)
        results = [np.minimum(0.5 * (first + second), math.log(2)), first, second]
    state = np.concatenate([values[: call.rows, :2], values[call.rows :, :2]], 1)
    results = [np.where(nan[:, None], np.nan, one) for one in results]
    return call.none.astype(call.x.dtype), np.concatenate([*results, state], 1)


def _middle(a, b):
    return _log(0.5 * (_exp(a) + _exp(b)))


def _two_vjp(call, y, values, gy, gvalues):
    top_a, total_a, top_b, total_b = (values[:, i : i + 1] for i in range(values.shape[1] - 4, values.shape[1]))
    a, b = call.log_p(call.x, top_a, total_a, 1.0), call.log_p(call.other, top_b, total_b, 1.0)
    p, q, g = _exp(a), _exp(b), gvalues[:, 0:1]
    means = np.zeros_like(values) if "tolerance" in call.spec else values  # as in _statistics_vjp
    with np.errstate(invalid="ignore"):
        if call.spec["name"] == "kl_divergence":
            return _masked(p > 0, p * (a - b - means[:, 0:1])) * g, (q - p) * g
        middle = _middle(np.where(np.isnan(a), 0.0, a), np.where(np.isnan(b), 0.0, b))
        da = _masked(p > 0, 0.5 * p * (a - middle - means[:, 1:2]))
        return da * g, _masked(q > 0, 0.5 * q * (b - middle - means[:, 2:3])) * g


# forward, vjp, whether y has x's columns, how many numbers a row has
_OPERATIONS = {
    "map": (_map_forward, _map_vjp),
    "statistics": (_statistics_forward, _statistics_vjp),
    "gamma": (_gamma_forward, lambda call, y, v, gy, gv: _gamma_vjp(call, y, v, np.zeros(y.shape), gv[:, 0:1])),
    "loss": (_loss_forward, _loss_vjp),
    "soft": (_soft_forward, _soft_vjp),
    "two": (_two_forward, _two_vjp),
}


def _shapes(spec, rows, cols):
    spec = json.loads(spec)
    kind = spec["kind"]
    if kind == "map":
        return cols, 5 if spec["map"] in _SOLVES else 0
    if kind == "statistics":
        return cols if spec["writes"] else 0, 6
    if kind == "two":
        return 0, 5 if spec["name"] == "kl_divergence" else 7
    return {"gamma": (cols, 5), "loss": (cols, 1), "soft": (0, 3)}[kind]


def _array(tensor):
    return None if tensor is None else np.ascontiguousarray(tensor.detach().cpu().numpy())


def _start():
    _traffic[:] = [0, 0, 1]


@torch.library.custom_op("entropic::parts", mutates_args=())
def _rows(
    x: Tensor, other: Tensor | None, target: Tensor | None, params: Tensor | None, spec: str, first: int, n: int, group: str
) -> tuple[Tensor, Tensor]:
    _start()
    call = _Call(spec, _array(x), _array(other), _array(target), first, n, group, _array(params))
    y, values = _OPERATIONS[call.spec["kind"]][0](call)
    return torch.from_numpy(np.ascontiguousarray(y)).to(x.device), torch.from_numpy(np.ascontiguousarray(values)).to(x.device)


@_rows.register_fake
def _(x, other, target, params, spec, first, n, group):
    cols, count = _shapes(spec, *x.shape)
    return x.new_empty(x.shape[0], cols), x.new_empty(x.shape[0], count, dtype=torch.float64)


@torch.library.custom_op("entropic::parts_vjp", mutates_args=())
def _rows_vjp(
    x: Tensor,
    other: Tensor | None,
    target: Tensor | None,
    params: Tensor | None,
    y: Tensor,
    values: Tensor,
    gy: Tensor,
    gvalues: Tensor,
    spec: str,
    first: int,
    n: int,
    group: str,
) -> tuple[Tensor, Tensor]:
    _start()
    call = _Call(spec, _array(x), _array(other), _array(target), first, n, group, _array(params))
    saved = [_array(one) for one in (y, values, gy, gvalues)]
    found = _OPERATIONS[call.spec["kind"]][1](call, *saved)
    dx, more = found if isinstance(found, tuple) else (found, np.zeros((0, 0)))
    dx, more = (torch.from_numpy(np.ascontiguousarray(d)).to(x.device) for d in (dx, more))
    return dx.to(x.dtype), more.to(torch.float64 if params is not None else x.dtype)


@_rows_vjp.register_fake
def _(x, other, target, params, y, values, gy, gvalues, spec, first, n, group):
    if params is not None:
        return torch.empty_like(x), torch.empty_like(params)
    two = json.loads(spec)["kind"] == "two"
    return torch.empty_like(x), torch.empty_like(x) if two else x.new_empty(0, 0)


def _setup(ctx, inputs, output):
    x, other, target, params, *ctx.rest = inputs
    ctx.save_for_backward(x, other, target, params, *output)


def _backward(ctx, gy, gvalues):
    x, other, target, params, y, values = ctx.saved_tensors
    gy = torch.zeros_like(y) if gy is None else gy
    gvalues = torch.zeros_like(values) if gvalues is None else gvalues
    dx, more = _rows_vjp(x, other, target, params, y, values, gy.contiguous(), gvalues.contiguous(), *ctx.rest)
    two = json.loads(ctx.rest[0])["kind"] == "two"
    return dx, more if two else None, None, None if params is None else more, None, None, None, None


_rows.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("entropic::parts_draw", mutates_args=())
def _draw(x: Tensor, streams: Tensor, spec: str, first: int, n: int, group: str) -> Tensor:
    _start()
    call = _Call(spec, _array(x), None, None, first, n, group)
    chain = _Chain(call)
    for step, values in call.spec["steps"]:
        chain.apply(step, values)
    return torch.from_numpy(chain.draw(_array(streams).view(np.uint64))).to(x.device)


@_draw.register_fake
def _(x, streams, spec, first, n, group):
    return x.new_empty(x.shape[0], json.loads(spec)["draws"], dtype=torch.int64)


@torch.library.custom_op("entropic::parts_chain", mutates_args=())
def _chain_probs(x: Tensor, spec: str, first: int, n: int, group: str) -> Tensor:
    _start()
    call = _Call(spec, _array(x), None, None, first, n, group)
    chain = _Chain(call)
    for step, values in call.spec["steps"]:
        chain.apply(step, values)
    return torch.from_numpy(chain.probs()).to(x.device)


@_chain_probs.register_fake
def _(x, spec, first, n, group):
    return torch.empty_like(x)


@torch.library.custom_op("entropic::parts_top", mutates_args=())
def _top_indices(x: Tensor, k: int, first: int, n: int, group: str) -> Tensor:
    call = _Call(json.dumps({"name": "token_statistics"}), _array(x), None, None, first, n, group)
    wide = call.x.astype(np.float64)
    order = np.argsort(-np.where(np.isnan(wide), np.inf, wide), axis=1, kind="stable")[:, :k]
    told = np.full((call.rows, k, 2), -np.inf)
    told[:, : order.shape[1], 0] = np.take_along_axis(wide, order, 1)
    told[:, : order.shape[1], 1] = order + call.first
    joined = call.group.join(told.view(np.int64).reshape(-1), "gather", call.rows).view(np.float64)
    joined = joined.reshape(-1, call.rows, k, 2).transpose(1, 0, 2, 3).reshape(call.rows, -1, 2)
    best = np.argsort(-joined[:, :, 0], axis=1, kind="stable")[:, :k]
    return torch.from_numpy(np.take_along_axis(joined[:, :, 1], best, 1).astype(np.int64)).to(x.device)


@_top_indices.register_fake
def _(x, k, first, n, group):
    return x.new_empty(x.shape[0], k, dtype=torch.int64)


class _Chain:
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
            self._tempered(_values(part, call.rows), scaled)

    def _tempered(self, values, scaled):
        gamma, top = values[:, 0], values[:, 3]
        # The ends: equal scores, or only the largest.
        flat, sharp = gamma == 0, np.isinf(gamma)
        self.x = np.where(flat[:, None] & (self.x > -np.inf), 0.0, self.x).astype(self.x.dtype)
        self.x = np.where(sharp[:, None] & (scaled < top[:, None]), -np.inf, self.x).astype(self.x.dtype)
        with np.errstate(all="ignore"):
            self.temperature = np.where(flat | sharp | np.isnan(gamma), 1.0, self.temperature / gamma)

    def probs(self):
        return _written(self.call.map("softmax", 1.0, x=self._scaled()), self.x)

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


# The functions.


@torch.compiler.assume_constant_result
def _spec_of(values):
    return json.dumps(values)


class _Part:
    """This rank's part as rows of contiguous numbers, and back."""

    def __init__(self, name, x, dim, axis, group, first, n):
        self.group = _name_of(group)
        self.given = (-1 if first is None else int(first), -1 if n is None else int(n))
        self.dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
        self.dtype, self.x = x.dtype, x
        self.rows = self.laid(x)
        self.lead = (*x.shape[: self.dim], *x.shape[self.dim + 1 :])

    def laid(self, x):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        moved = wide.movedim(self.dim, -1)
        return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1]).contiguous()

    def back(self, y):
        moved = (*self.lead, self.x.shape[self.dim])
        return y.reshape(moved).movedim(-1, self.dim).to(self.dtype)

    def numbers(self, values):
        return values.reshape(self.lead).to(torch.float64 if self.dtype == torch.float64 else torch.float32)

    def run(self, kind, name, other=None, target=None, rows=None, **spec):
        spec = _spec_of({"kind": kind, "name": name, **spec})
        return _rows(self.rows, other, target, rows, spec, *self.given, self.group)

    def of_rows(self, name, argument, value):
        """A parameter that is a tensor, with one value for each row; it may be one number, or have x's shape with 1 for dim or
        without dim."""
        value = value.to(torch.float64)
        if value.dim() == len(self.x.shape):
            value = value.movedim(self.dim, -1)
            value = value.squeeze(-1) if value.shape[-1] == 1 else value
        try:
            return value.expand(self.lead).reshape(-1)
        except RuntimeError:
            raise ValueError(
                f"{name}: {argument} must broadcast to {self.lead}, one for each row, got {tuple(value.shape)}"
            ) from None


def _name_of(group):
    if group is None:
        if not (dist.is_available() and dist.is_initialized()):
            return ""
        group = dist.group.WORLD
    return group if isinstance(group, str) else group.group_name


def _part(name, x, dim, axis, group, first, n):
    """The part; an invalid argument on one rank is an error on all."""
    try:
        return _Part(name, x, dim, axis, group, first, n)
    except Exception as error:
        if torch.compiler.is_compiling() or (first is not None and n is not None):
            raise
        _start()
        _Group(name, _name_of(group), name).extent(0, 0, 0, -1, -1, error)
        raise


def _map(name, x, params, dim, axis, group, first, n):
    part = _part(name, x, dim, axis, group, first, n)
    names = [param["name"] for param in MAPS[name]["params"]]
    rows = [part.of_rows(name, *one) for one in zip(names, params, strict=True) if isinstance(one[1], Tensor)]
    plain = ["rows" if isinstance(value, Tensor) else value for value in params]
    y, _ = part.run("map", name, rows=torch.stack(rows, 1) if rows else None, map=name, params=plain)
    return part.back(y)


def _tensor_number(name, argument, value, low, high, least):
    if not value.is_floating_point():
        raise TypeError(f"{name}: {argument} must be a number or a tensor of floating point, got {value.dtype}")
    if not torch.compiler.is_compiling():
        good = (value >= low) & (value <= high) if least else (value > low) & (value <= high)
        if not bool((good & value.isfinite()).all()):
            wrong = value[~(good & value.isfinite())].reshape(-1)[0].item()
            raise ValueError(
                f"{name}: {argument} must be {'at least' if least else 'above'} {low} and at most {high}, got {wrong!r}"
            )
    return value


def _number(name, argument, value, low=0.0, high=math.inf, *, least=False, rows=False):
    """A parameter; where `rows`, also a tensor of one for each row."""
    if rows and isinstance(value, Tensor):
        return _tensor_number(name, argument, value, low, high, least)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name}: {argument} must be a number, got {type(value).__name__}")
    good = low <= value <= high if least else low < value <= high
    if not good or value == math.inf:
        raise ValueError(
            f"{name}: {argument} must be {'at least' if least else 'above'} {low} and at most {high}, got {value!r}"
        )
    return float(value)


def softmax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.softmax, of this rank's part of dim. Two rounds."""
    return _map("softmax", x, [_number("softmax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


def sparsemax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.sparsemax, of this rank's part of dim. Two rounds where no part has more than 64 candidates."""
    return _map("sparsemax", x, [_number("sparsemax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


def entmax(x, *, alpha=1.5, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entmax, of this rank's part of dim; alpha is one number."""
    params = [_number("entmax", one, value, rows=True) for one, value in (("alpha", alpha), ("temperature", temperature))]
    return _map("entmax", x, params, dim, axis, group, first, n)


def top_k_softmax(x, *, k, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.top_k_softmax, of this rank's part of dim. One round."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"top_k_softmax: k must be an integer, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"top_k_softmax: k must be above 0, got {k}")
    params = [k, _number("top_k_softmax", "temperature", temperature, rows=True)]
    return _map("top_k_softmax", x, params, dim, axis, group, first, n)


def top_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.top_p_softmax, of this rank's part of dim. At most seven rounds, for any scores."""
    params = [
        _number("top_p_softmax", "p", p, 0, 1),
        _number("top_p_softmax", "temperature", temperature, rows=True),
    ]
    return _map("top_p_softmax", x, params, dim, axis, group, first, n)


def min_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.min_p_softmax, of this rank's part of dim. Two rounds."""
    params = [
        _number("min_p_softmax", "p", p, 0, 1),
        _number("min_p_softmax", "temperature", temperature, rows=True),
    ]
    return _map("min_p_softmax", x, params, dim, axis, group, first, n)


def _target_entropy(name, entropy, perplexity, rows=False):
    if (entropy is None) == (perplexity is None):
        raise ValueError(f"{name}: give exactly one of entropy and perplexity")
    if entropy is not None:
        return _number(name, "entropy", entropy, least=True, rows=rows)
    perplexity = _number(name, "perplexity", perplexity, 1, least=True, rows=rows)
    return perplexity.double().log() if isinstance(perplexity, Tensor) else math.log(perplexity)


def entropy_normalize(x, *, entropy=None, perplexity=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy_normalize, of this rank's part of dim. Usually three rounds."""
    goal = _target_entropy("entropy_normalize", entropy, perplexity, rows=True)
    return _map("entropy_normalize", x, [goal, None, "scores"], dim, axis, group, first, n)


def entropy_clip(x, *, min_entropy=None, max_entropy=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy_clip, of this rank's part of dim."""
    low = 0.0 if min_entropy is None else _number("entropy_clip", "min_entropy", min_entropy, least=True, rows=True)
    high = 1e300 if max_entropy is None else _number("entropy_clip", "max_entropy", max_entropy, least=True, rows=True)
    if not (isinstance(low, Tensor) or isinstance(high, Tensor)) and low > high:
        raise ValueError(f"entropy_clip: min_entropy must be at most max_entropy, got {low} and {high}")
    return _map("entropy_clip", x, [low, high, "scores"], dim, axis, group, first, n)


def gamma_for_entropy(
    x,
    *,
    entropy=None,
    perplexity=None,
    gamma_range=(0.0, math.inf),
    max_iterations=100,
    dim=None,
    axis=None,
    group=None,
    first=None,
    n=None,
):
    """As entropic.torch.gamma_for_entropy: gamma, the entropy and the status of each row, on every rank."""
    name = "gamma_for_entropy"
    goal = _target_entropy(name, entropy, perplexity)
    part = _part(name, x, dim, axis, group, first, n)
    low, high = map(float, gamma_range)
    _, values = part.run("gamma", name, entropy=goal, low=low, high=high, iterations=int(max_iterations))
    status = np.array(STATUSES)[values.detach()[:, 2].to(torch.int64).cpu().numpy()].reshape(part.lead)
    gamma = values[:, 0].reshape(part.lead)
    return GammaResult(gamma, values.detach()[:, 1].reshape(part.lead), status)


class _Divided(torch.autograd.Function):
    """Rows of x / T, with the gradient of T summed exactly over all parts."""

    @staticmethod
    def forward(ctx, x, temperature, name, given, group):
        ctx.group = _Group(name, group, name)
        ctx.extent = ctx.group.extent(len(x), x.shape[1], x.element_size(), *given)
        ctx.save_for_backward(x, temperature)
        return torch.where(x.isinf(), x, x / temperature[:, None]).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, temperature = ctx.saved_tensors
        wide, t = grad.double(), temperature.double()[:, None]
        terms = torch.where(x.isinf(), 0, -wide * torch.where(x.isinf(), 0, x) / t**2)
        (total,) = ctx.group.sums([terms.cpu().numpy()], *ctx.extent)
        return (wide / t).to(x.dtype), torch.from_numpy(total[:, 0]).to(temperature), None, None, None


def _divided(name, x, temperature, dim, axis, group, first, n):
    """The part, its rows of x / T, and T of each row if it is a tensor."""
    part = _part(name, x, dim, axis, group, first, n)
    rows = part.of_rows(name, "temperature", temperature)
    return part, _Divided.apply(part.rows, rows, name, part.given, part.group), rows


def log_softmax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.log_softmax, of this rank's part of dim. Two rounds."""
    temperature = _number("log_softmax", "temperature", temperature, rows=True)
    if isinstance(temperature, Tensor):
        part, scaled, _ = _divided("log_softmax", x, temperature, dim, axis, group, first, n)
        return part.back(log_softmax(scaled, group=group, first=first, n=n))
    part = _part("log_softmax", x, dim, axis, group, first, n)
    y, _ = part.run("statistics", "log_softmax", temperature=temperature, entropy=False, writes=True)
    return part.back(y)


def _statistics(name, x, target, temperature, dim, axis, group, first, n, **more):
    temperature = _number(name, "temperature", temperature)
    part = _part(name, x, dim, axis, group, first, n)
    classes = None if target is None else target.reshape(-1).to(torch.int64).contiguous()
    _, values = part.run("statistics", name, target=classes, temperature=temperature, entropy=True, writes=False, **more)
    return part, values


def logsumexp(x, *, temperature=1.0, keepdim=False, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.logsumexp: the whole row's number, on every rank. Two rounds."""
    temperature = _number("logsumexp", "temperature", temperature, rows=True)
    if isinstance(temperature, Tensor):
        part, scaled, rows = _divided("logsumexp", x, temperature, dim, axis, group, first, n)
        result = part.numbers(logsumexp(scaled, group=group, first=first, n=n) * rows)
        return result.unsqueeze(part.dim) if keepdim else result
    part = _part("logsumexp", x, dim, axis, group, first, n)
    _, values = part.run("statistics", "logsumexp", temperature=temperature, entropy=False, writes=False)
    result = part.numbers(values[:, 2])
    return result.unsqueeze(part.dim) if keepdim else result


def _checked_target(name, x, target):
    """Classes as integers, or a distribution's part of x's shape."""
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: target must be a torch.Tensor, got {type(target).__name__}")
    return target.is_floating_point()


def _class_loss(name, x, target, alpha, ignore_index, dim, axis, group, first, n):
    soft = _checked_target(name, x, target)
    part = _part(name, x, dim, axis, group, first, n)
    classes = other = None
    if soft:
        if target.shape != x.shape:
            raise ValueError(f"{name}: target must have the shape of x, {tuple(x.shape)}, got {tuple(target.shape)}")
        other = part.laid(target.detach().to(part.rows.dtype))
    else:
        if tuple(target.shape) != part.lead:
            raise ValueError(
                f"{name}: target must have one class for each row, of shape {part.lead}, got {tuple(target.shape)}"
            )
        classes = target.reshape(-1).to(torch.int64)
        if ignore_index is not None:
            classes = torch.where(classes == ignore_index, -1, classes).contiguous()
    if alpha is not None:
        _, values = part.run("loss", name, other=other, target=classes, alpha=alpha, soft=soft)
        loss = values[:, 0]
    elif soft:
        _, values = part.run("soft", name, other=other)
        loss = values[:, 0]
    else:
        _, values = part.run("statistics", name, target=classes, temperature=1.0, entropy=True, writes=False)
        loss = torch.where(classes < 0, 0.0, -values[:, 3])
    return part.numbers(loss)


def softmax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.softmax_loss: of a class, counted in the whole row, or of this rank's part of a distribution."""
    return _class_loss("softmax_loss", x, target, None, ignore_index, dim, axis, group, first, n)


def sparsemax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.sparsemax_loss, of parts."""
    return _class_loss("sparsemax_loss", x, target, 2.0, ignore_index, dim, axis, group, first, n)


def entmax_loss(x, target, *, alpha=1.5, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entmax_loss, of parts; alpha is one number."""
    alpha = _number("entmax_loss", "alpha", alpha)
    return _class_loss("entmax_loss", x, target, alpha, ignore_index, dim, axis, group, first, n)


class _Logarithm(torch.autograd.Function):
    """log of probabilities in float64; the bits do not depend on an entry's place."""

    @staticmethod
    def forward(ctx, p):
        ctx.save_for_backward(p)
        return torch.from_numpy(_log(np.ascontiguousarray(p.detach().cpu().double().numpy()))).to(p.device)

    @staticmethod
    def backward(ctx, grad):
        (p,) = ctx.saved_tensors
        return torch.where(p > 0, grad / p, 0.0).to(p.dtype)


def _scores_of(name, x, given):
    """The scores for softmax, and the tolerance of sums."""
    if given == "scores":
        return x, {}
    if given not in ("probs", "log_probs"):
        raise ValueError(f"{name}: input must be scores, log_probs or probs, got {given!r}")
    more = {"tolerance": _core.sum_tolerance[2 if x.dtype == torch.bfloat16 else x.element_size()]}
    return (_Logarithm.apply(x) if given == "probs" else x), more


def entropy(x, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy: the whole row's number, on every rank. Two rounds; input is scores unless said otherwise."""
    x, more = _scores_of("entropy", x, input)
    part, values = _statistics("entropy", x, None, 1.0, dim, axis, group, first, n, **more)
    return part.numbers(values[:, 4])


def _divergence(name, p, q, given, dim, axis, group, first, n):
    (p, more), (q, _) = _scores_of(name, p, given), _scores_of(name, q, given)
    part = _part(name, p, dim, axis, group, first, n)
    if q.shape != p.shape:
        raise ValueError(f"{name}: q must have the shape of p, {tuple(p.shape)}, got {tuple(q.shape)}")
    _, values = part.run("two", name, other=part.laid(q.to(part.rows.dtype)), **more)
    return part.numbers(values[:, 0])


def kl_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.kl_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("kl_divergence", p, q, input, dim, axis, group, first, n)


def js_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.js_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("js_divergence", p, q, input, dim, axis, group, first, n)


def token_statistics(logits, target, *, temperature=1.0, top=0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.token_statistics; tokens and indices are of the whole row. Two rounds, and one for top."""
    part, values = _statistics("token_statistics", logits, target, temperature, dim, axis, group, first, n)
    numbers = [part.numbers(values[:, i]) for i in (3, 4, 5)]
    indices = None
    if top:
        found = _top_indices(part.rows.detach(), top, *part.given, part.group)
        indices = found.reshape(*part.lead, top).movedim(-1, part.dim)
    return _token_statistics.TokenStatistics(numbers[0], numbers[1], numbers[2].detach(), indices)


def _streams(name, part, stream):
    rows = part.rows.shape[0]
    if isinstance(stream, Tensor):
        return stream.expand(part.lead).reshape(-1).to(torch.int64).contiguous()
    return torch.arange(rows, dtype=torch.int64) + stream


def _natural(name, argument, value):
    return _checks.natural(name, argument, value) if hasattr(_checks, "natural") else int(value)


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
        return _spec_of({"name": "Sampler", "steps": self.steps, "seed": self.seed, "position": int(position), "draws": draws})

    def probs(self, x, *, dim=None, axis=None, group=None, first=None, n=None):
        """This rank's part of the distribution that the steps leave."""
        part = _part("Sampler", x, dim, axis, group, first, n)
        return part.back(_chain_probs(part.rows.detach(), self._spec(), *part.given, part.group))

    def sample(self, x, *, size=None, stream=0, position=0, dim=None, axis=None, group=None, first=None, n=None):
        """Indices of the whole row, on every rank."""
        part = _part("Sampler", x, dim, axis, group, first, n)
        draws = 1 if size is None else int(size)
        spec = self._spec(draws, position)
        found = _draw(part.rows.detach(), _streams("Sampler", part, stream), spec, *part.given, part.group)
        return found.reshape(part.lead if size is None else (*part.lead, draws))


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
    """As entropic.sample, of this rank's part: indices of the whole row, on every rank. One round of 16 bytes a draw."""
    steps = [("temperature", _number("sample", "temperature", temperature))]
    where = {"dim": dim, "axis": axis, "group": group, "first": first, "n": n}
    return Sampler(steps, seed=seed).sample(x, size=size, stream=stream, position=position, **where)


def _laid_out(name, x, dim):
    """(x without pending sums, its placements, the dimension of the mesh that shards dim or None)."""
    from torch.distributed.tensor import Replicate

    placements = tuple(Replicate() if one.is_partial() else one for one in x.placements)
    if placements != tuple(x.placements):
        x = x.redistribute(x.device_mesh, placements)
    meshes = [i for i, one in enumerate(placements) if one.is_shard(dim)]
    if len(meshes) > 1:
        raise ValueError(f"{name}: dim {dim} must be sharded by one dimension of the mesh, got placements {placements}")
    return x, placements, meshes[0] if meshes else None


def _operation_of_parts(name, placements, dim):
    here = {one.__name__: one for one in PUBLIC}
    if name not in here:
        raise ValueError(
            f"{name}: dim {dim} must not be sharded, because there is no such operation on parts, got placements {placements}"
        )
    return here[name]


def _as_dtensor(y, mesh, placements, shape):
    from torch.distributed.tensor import DTensor

    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return DTensor.from_local(y, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)


def of_dtensor(name, x, values, dim):
    """A map of a DTensor: by parts if its mesh shards dim, otherwise of each rank's own rows."""
    from torch.distributed.tensor import Replicate

    dim = dim % x.dim()
    x, placements, sharded = _laid_out(name, x, dim)
    if sharded is None:
        y = on_rows(name, x.to_local(), values, dim)
    else:
        of_parts = _operation_of_parts(name, placements, dim)
        given = {one["name"]: value for one, value in zip(MAPS[name]["params"], values, strict=True)}
        if given.pop("input", "scores") != "scores":
            raise ValueError(f"{name}: input must be scores if dim is sharded")
        keep = {"keepdim": True} if name == "logsumexp" else {}
        y = of_parts(x.to_local(), dim=dim, group=x.device_mesh.get_group(sharded), **given, **keep)
        if name == "logsumexp":
            placements = tuple(Replicate() if i == sharded else one for i, one in enumerate(placements))
    shape = list(x.shape)
    if name == "logsumexp":
        shape[dim] = 1
    return _as_dtensor(y, x.device_mesh, placements, shape)


def entries_of_dtensor(name, x, dim, on_local):
    """A result of x's shape from each rank's rows; refused if the mesh shards dim."""
    x, placements, sharded = _laid_out(name, x, dim)
    if sharded is not None:
        _operation_of_parts(name, placements, dim)
    return _as_dtensor(on_local(x.to_local()), x.device_mesh, placements, x.shape)


def attention_of_dtensors(name, q, k, v, mask, on_local):
    """Attention of each rank's batches and heads: q, k and v are sharded alike, and in no other axis."""
    from torch.distributed.tensor import DTensor

    if not all(isinstance(one, DTensor) for one in (q, k, v)) or isinstance(mask, DTensor):
        raise TypeError(f"{name}: q, k and v must all be DTensors, and mask none")
    if len({one.dim() for one in (q, k, v)}) > 1 or (mask is not None and mask.dim() > 2):
        raise ValueError(f"{name}: DTensors q, k and v must have equally many axes, and mask at most two")
    rows = q.dim() - 2
    (q, placements, _), *others = (_laid_out(name, one, rows) for one in (q, k, v))
    if any(one.is_shard() and one.dim >= rows for one in placements):
        raise ValueError(f"{name}: queries and their entries must not be sharded, got placements {placements}")
    for argument, (_, other, _) in zip("kv", others, strict=True):
        if other != placements:
            raise ValueError(f"{name}: {argument} must have the placements of q, {placements}, got {other}")
    k, v = (other[0] for other in others)
    out = on_local(q.to_local(), k.to_local(), v.to_local())
    return _as_dtensor(out, q.device_mesh, placements, (*q.shape[:-1], v.shape[-1]))


def rows_of_dtensors(name, tensors, dim, given, defaults, on_local):
    """Numbers for each row of DTensors: by parts if their mesh shards dim, otherwise of each rank's rows.

    Other tensors get the placements of the first DTensor. on_local(*tensors) is the operation on whole rows.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    like = next(one for one in tensors if isinstance(one, DTensor))
    dim = checked_dim(name, "x", like, dim)
    like, placements, sharded = _laid_out(name, like, dim)
    mesh = like.device_mesh
    of_rows = tuple(
        Shard(one.dim - (one.dim > dim)) if one.is_shard() and i != sharded else Replicate() for i, one in enumerate(placements)
    )

    def local(tensor):
        if not isinstance(tensor, DTensor):
            tensor = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return tensor.redistribute(mesh, placements if tensor.dim() == like.dim() else of_rows).to_local()

    parts = [local(one) for one in tensors]
    if sharded is None:
        value = on_local(*parts)
    else:
        of_parts = _operation_of_parts(name, placements, dim)
        known = inspect.signature(of_parts).parameters
        scale = 1.0
        for param, value in list(given.items()):
            if param in known:
                continue
            del given[param]
            if param == "base" and value is not None:
                scale /= math.log(value)
            elif value != defaults[param] and param != "base":
                raise ValueError(f"{name}: {param} must be {defaults[param]} if dim is sharded, got {value!r}")
        value = of_parts(*parts, dim=dim, group=mesh.get_group(sharded), **given)
        value = value * scale if scale != 1 else value

    def whole(value):
        if not isinstance(value, Tensor):
            return value
        if sharded is not None and value.is_floating_point():
            value = value.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
        shape = [*like.shape[:dim], *like.shape[dim + 1 :]]
        if value.dim() == len(shape):
            return _as_dtensor(value, mesh, of_rows, shape)
        shape.insert(dim, value.shape[dim])  # several for each row
        return _as_dtensor(value, mesh, [Replicate() if i == sharded else one for i, one in enumerate(placements)], shape)

    return whole(value) if isinstance(value, Tensor) else type(value)(*map(whole, value))


PUBLIC = (
    Sampler,
    entmax,
    entmax_loss,
    entropy,
    entropy_clip,
    entropy_normalize,
    gamma_for_entropy,
    js_divergence,
    kl_divergence,
    log_softmax,
    logsumexp,
    min_p_softmax,
    sample,
    softmax,
    softmax_loss,
    sparsemax,
    sparsemax_loss,
    token_statistics,
    top_k_softmax,
    top_p_softmax,
)
__all__ = [one.__name__ for one in PUBLIC] + ["Traffic", "traffic"]
