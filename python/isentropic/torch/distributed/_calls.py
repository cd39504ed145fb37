"""The operations on this rank's part, on NumPy arrays.

Each has two functions. Forward gives y, of x's shape or without columns, and numbers of each row; vjp gives a gradient of x.
"""

import json

import array_api_compat.numpy as xp
import numpy as np

import isentropic._core as _core
from isentropic._descriptions import MAPS, STATUSES
from isentropic.formulas import Rows, maps
from isentropic.formulas.rows import carried
from isentropic.torch.distributed._divergences import Given, given_entropy_forward, given_entropy_vjp, two_forward, two_vjp
from isentropic.torch.distributed._entries import by_largest, exponential, logarithm, masked, relative, scaled, terms_of
from isentropic.torch.distributed._group import Group, cost, values_of

# Maps that bring a row to an entropy, and whether they do so only outside of bounds.
SOLVES = {"entropy_normalize": False, "entropy_clip": True}
CONSTANT, INVALID = STATUSES.index("constant"), STATUSES.index("invalid")


def written(part, x):
    y = np.empty_like(x)
    part.write(y)
    return y


class _Parts(Rows):
    """Rows in parts: sums are those over all ranks, and logarithms the library's, of which every machine has the same bits."""

    def __init__(self, call):
        super().__init__(xp)
        self.call, self.exp, self.log = call, exponential, logarithm

    def wide(self, x):
        return x

    def sums(self, *terms):
        return self.call.sums(*terms)


class Call:
    """One call: the operation's parameters, this rank's part, and the group."""

    def __init__(self, spec, x, other, target, first, n, group_name, params=None, streams=None):
        self.spec, self.params = json.loads(spec), params
        self.group = Group(self.spec["name"], group_name, self.spec["name"])
        self.x, self.other, self.streams = x, other, streams
        self.rows, self.in_rows = len(x), _Parts(self)
        self.none = np.zeros((self.rows, 0))
        shared = self._shared(target, params, streams)
        self.first, self.n = self.group.extent(self.rows, x.shape[1], x.dtype.itemsize, first, n, shared)
        self.target = np.zeros(0, np.int64) if target is None else self._classes(target)
        if self.group.differ:
            self.group.raise_first(self.group.error, shared)
        cost[2] = self.rows

    def _shared(self, target, params, streams):
        """The arguments that every rank must give alike, by their names."""
        shared = {"function": self.spec["name"]}
        if target is not None or self.spec.get("soft"):
            shared["target"] = "a distribution" if target is None else target
        shared |= {name: value for name, value in self.spec.items() if name not in ("kind", "name", "soft")}
        if "map" in shared:
            names = [param["name"] for param in MAPS[shared["map"]]["params"]]
            shared.update(zip(names, shared.pop("params"), strict=True))
            if params is not None:
                columns = iter(params.T)
                shared.update((name, next(columns)) for name in names if shared[name] == "rows")
        elif params is not None:
            shared["temperature"] = params
        return shared if streams is None else shared | {"stream": streams}

    def _classes(self, target):
        """The classes, -1 in ignored rows. A wrong one is told to all ranks in the first round."""
        wrong = (target < -1) | (target >= self.n)
        if wrong.any():
            row = int(np.argmax(wrong))
            given = int(target[row]) + (target[row] < 0)
            self.group.error = ValueError(
                f"{self.spec['name']}: target must be a class from 0 to {self.n - 1}, got {given} in row {row}"
            )
        return np.where(wrong, -1, target)

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

    def below(self, x, top, temperature):
        """(x - top) / temperature; beside +inf all others are as -inf."""
        return np.where(np.isinf(top), np.where(x == np.inf, 0.0, -np.inf), relative(x, top, temperature))

    def log_p(self, x, top, total, temperature):
        """log softmax of scores in float64, from a maximum and a sum."""
        log_p = self.below(x, top, temperature) - logarithm(total)
        return np.where(np.isnan(top) | (top == -np.inf), np.nan, log_p)


def _map_forward(call):
    name, params = call.spec["map"], call.spec["params"]
    if call.params is not None:
        return _map_of_rows(call, name, params)
    part = call.map(name, *params)
    values = values_of(part, call.rows) if name in SOLVES else np.zeros((call.rows, 0))
    return written(part, call.x), values


def _map_of_rows(call, name, params):
    def part_of(values, x):
        own = iter(values)
        given = tuple(next(own) if param == "rows" else param for param in params)
        return _core.part_of_map(name, given, x, call.first, call.n)

    return _grouped(call, part_of, True, 5 if name in SOLVES else 0)


def _grouped(call, part_of, writes, count):
    """Groups the rows: those with equal parameters form one part, part_of(parameters, x). `count`: the numbers of a row."""
    different, which = np.unique(call.params, axis=0, return_inverse=True)
    rows = [np.flatnonzero(which.reshape(-1) == i) for i in range(len(different))]
    groups = zip(different.tolist(), rows, strict=True)
    parts = [part_of(values, np.ascontiguousarray(call.x[those])) for values, those in groups]
    call.group.run_together(parts, [len(those) for those in rows])
    y = np.empty_like(call.x) if writes else call.none.astype(call.x.dtype)
    numbers = np.zeros((call.rows, count))
    for part, those in zip(parts, rows, strict=True):
        if writes:
            y[those] = written(part, call.x[those])
        if count:
            numbers[those] = values_of(part, len(those))
    return y, numbers


def _at_entropy(call, y, values, g):
    """What derivatives of softmax(gamma x) at an entropy are made of: where gamma is above 0 and finite, p, g, the means of z
    and g under p, z being gamma times scores below the maximum, and the variance and the covariance of z with g."""
    p = y.astype(np.float64)
    gamma, status, top = values[:, 0:1], values[:, 2:3], values[:, 3:4]
    exists = (status != INVALID) & (status != CONSTANT) & np.isfinite(gamma) & (gamma > 0)
    live = (p > 0) & np.isfinite(top)
    with np.errstate(all="ignore"):
        z = scaled(call.x, top, np.where(exists, gamma, 1.0))
        p, z, g = np.where(live, p, 0.0), np.where(live, z, 0.0), np.where(live, g, 0.0)
        total, pz, pzz, pg, pzg = call.sums(p, p * z, p * z * z, p * g, p * z * g)
        mean, mean_g = pz / total, pg / total
        variance, covariance = pzz / total - mean * mean, pzg / total - mean * mean_g
    return exists, p, g, z - mean, mean_g, variance, covariance


def _gamma_vjp(call, y, values, gy, ggamma=0.0, gentropy=0.0, bounds=None):
    exists, p, g, z, mean_g, variance, covariance = _at_entropy(call, y, values, gy)
    gamma, status = values[:, 0:1], values[:, 2:3]
    with np.errstate(all="ignore"):
        u = p * z
        # Where gamma is at an end of its range, the entropy is that of softmax(gamma x).
        of_entropy = np.where(exists & (status != 0), -gamma * u * gentropy, 0.0)
        exists = exists & (status == 0)
        dx = gamma * (p * (g - mean_g) - u * (covariance / variance)) - ggamma * gamma * gamma * u / variance
    dx = np.where(exists, dx, 0.0)
    if bounds is not None:
        # Softmax itself, if its entropy is inside. That of equal scores may be held at an end, and does not change there.
        low, high = bounds
        reached, tolerance = values[:, 1:2], 1e-6 if call.x.dtype == np.float32 else 1e-12
        inside = (reached > low + tolerance * np.maximum(low, 1)) & (reached < high - tolerance * np.maximum(high, 1))
        equal = (status == CONSTANT) & np.isfinite(values[:, 3:4]) & inside
        dx = np.where(((gamma == 1) & (status == 0)) | equal, p * (g - mean_g), dx)
    return np.where(status == INVALID, np.nan, dx + of_entropy)


def _param_slopes(call, given, y, values, g, dx):
    """The gradient in each parameter per row, from the gradient in x."""
    name, slopes = call.spec["map"], []
    names = [param["name"] for param in MAPS[name]["params"]]
    for param, of, value in zip(names, call.spec["params"], given, strict=True):
        if of != "rows":
            continue
        if param == "temperature":
            # y is a function of x / T.
            (slope,) = call.sums(masked(dx != 0, -dx * np.where(dx != 0, call.x, 0.0) / value))
        elif param == "alpha":
            p = y.astype(np.float64)
            by_alpha = maps.entmax_by_alpha(call.in_rows, p, value)
            slope = call.in_rows.dot(carried(call.in_rows, p, g), by_alpha)
        elif name not in SOLVES:
            raise NotImplementedError(f"{name}: there is no gradient in {param} for rows over ranks")
        else:
            slope = _entropy_slope(call, y, values, g)
            if SOLVES[name]:
                # p changes with the bound that is met.
                gamma, status, reached = values[:, 0:1], values[:, 2:3], values[:, 1:2]
                met = (gamma != 1) & (status == 0) & (np.abs(reached - value) <= 1e-3 * np.maximum(value, 1e-3))
                slope = np.where(met, slope, 0.0)
        slopes.append(slope)
    return np.concatenate(slopes, 1) if slopes else np.zeros((call.rows, 0))


def _entropy_slope(call, y, values, g):
    """dp / dH = -p (z - mean) / variance, z = gamma x, if p has the entropy."""
    exists, *_, variance, covariance = _at_entropy(call, y, values, g)
    with np.errstate(all="ignore"):
        slope = -covariance / variance
    slope = np.where(exists & (values[:, 2:3] == 0) & np.isfinite(slope), slope, 0.0)
    return np.where(values[:, 2:3] == INVALID, np.nan, slope)


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
    if name in SOLVES:
        return _gamma_vjp(call, y, values, g, bounds=params[:2] if SOLVES[name] else None)
    dx = _map_slopes(call, name, params, y, g)
    # Beside a score of +inf all others have no mass, and so already 0.
    return np.where(np.isnan(y), np.nan, np.where(call.x == np.inf, 0.0, dx))


def _map_slopes(call, name, params, y, g):
    if name not in _OF_PARTS:
        raise NotImplementedError(f"{name}: there is no gradient for rows over ranks")
    at = maps.Point(call.x, y.astype(np.float64), {"alpha": params[0]})
    return maps.CORES[name](call.in_rows, at, g) / params[-1]


# The maps of one part whose gradients need sums of the whole row alone.
_OF_PARTS = ("softmax", "top_k_softmax", "top_p_softmax", "min_p_softmax", "sparsemax", "entmax")


def _statistics_forward(call):
    if call.params is not None:

        def part_of(values, x):
            return _core.part_of_statistics(*values, call.spec["entropy"], call.target, x, call.first, call.n)

        return _grouped(call, part_of, call.spec["writes"], 6)
    part = call.statistics(call.x, call.spec["temperature"], call.spec["entropy"])
    y = written(part, call.x) if call.spec["writes"] else call.none.astype(call.x.dtype)
    return y, values_of(part, call.rows)


def _statistics_vjp(call, y, values, gy, gvalues):
    if call.params is None:
        return _statistics_dx(call, y, values, gy, gvalues, call.spec["temperature"])
    dx, top = _statistics_dx(call, y, values, gy, gvalues, call.params), values[:, 0:1]
    if call.spec["name"] == "logsumexp":  # d T log sum exp(x/T) / dT is the entropy; an infinite value does not depend on T
        return dx, np.where(np.isinf(top), 0.0, gvalues[:, 2:3] * values[:, 4:5])
    # y is a function of x / T, and dx sums to 0.
    below = np.where(dx != 0, relative(call.x, top, call.params), 0.0)
    (slope,) = call.sums(-dx * below)
    return dx, slope


def _statistics_dx(call, y, values, gy, gvalues, temperature):
    log_p = call.log_p(call.x, values[:, 0:1], values[:, 1:2], temperature)
    p = exponential(log_p)
    dx = p * gvalues[:, 2:3] * temperature
    if call.spec["entropy"]:
        dx += (call.chosen() - p) * np.where(call.target >= 0, gvalues[:, 3], 0.0)[:, None] if len(call.target) else 0.0
        dx -= masked(p > 0, p * (np.where(p > 0, log_p, 0.0) + values[:, 4:5])) * gvalues[:, 4:5]
    if call.spec["writes"]:
        live = p > 0
        g = np.where(call.x == -np.inf, 0.0, gy).astype(np.float64)  # y may be -inf for a finite score
        (total,) = call.sums(g)
        dx += np.where(live | (p == 0), g - p * total, 0.0)
    top = values[:, 0:1]
    dx = np.where(call.x == -np.inf, 0.0, np.where(top == np.inf, 0.0, dx / temperature))
    if call.spec["writes"]:  # NaN is there already, and log_softmax has 0 at -inf in every row
        return dx
    if call.spec["name"] == "logsumexp":  # of nothing it is -inf, a constant
        return np.where(np.isnan(top), np.nan, dx)
    dx = by_largest(top, dx)
    # A loss's row without a class is ignored.
    return np.where(call.target[:, None] < 0, 0.0, dx) if call.spec["name"] == "softmax_loss" else dx


def _gamma_forward(call):
    low, high, iterations = call.spec["low"], call.spec["high"], call.spec["iterations"]
    part = _core.part_of_gamma(call.spec["entropy"], low, high, iterations, call.x, call.first, call.n)
    call.group.run(part, call.rows)
    return written(part, call.x), values_of(part, call.rows)


def _loss_forward(call):
    """entmax's loss (and sparsemax's): sum p z + H(p) against a class or a distribution."""
    alpha, soft = call.spec["alpha"], call.spec["soft"]
    x = call.x.astype(np.float64)
    part = call.map("softmax", 1.0, x=x) if alpha == 1 else call.map("entmax", alpha, 1.0, x=x)
    p, top = written(part, x), values_of(part, call.rows)[:, 0:1]
    if soft:
        given = Given(call, "target", call.other)
    q = given.p if soft else call.chosen()
    # Beside +inf all finite scores are as -inf.
    x = np.where(top == np.inf, np.where(x == np.inf, 0.0, -np.inf), x)
    # Halves of differences, which stay in the range, until they are weighted.
    z = relative(x, np.where(np.isfinite(top), top, 0.0), 2.0)
    live = np.isfinite(z)
    z = np.where(live, z, 0.0)

    def omega(d):
        if alpha == 1:
            return -terms_of(_core.entropy_terms, logarithm(d))
        power = d * d if alpha == 2 else np.where(d > 0, exponential(alpha * logarithm(np.where(d > 0, d, 1.0))), 0.0)
        return (power - d) / (alpha * (alpha - 1))

    # Both terms are small if the sum is: (p - q) z and Omega's difference.
    of_p = omega(p)
    terms = [(p - q) * z, omega(q) - of_p]
    # Half of what the loss grows by if q sums to more than 1, plus 1 / alpha: the mean under p of z + (1 - p^b) / b.
    terms += [p * z - 0.5 * alpha * of_p] if soft else []
    first, second, *growth = call.sums(*[np.where(np.isnan(t), 0.0, t) for t in terms])
    lost, *mass = call.sums(masked(~live & (q > 0), q), *(given.terms if soft else ()), bounded=True)
    if soft:
        given.refuse_unless_distributions(*mass)
        second = second + (mass[0] - 1) * (2 * growth[0] - 1 / alpha)
    with np.errstate(over="ignore"):
        loss = np.where(lost > 0, np.inf, np.maximum(2 * first + second, 0.0))
    loss = np.where(np.isnan(top) | (top == -np.inf), np.nan, loss)
    ignored = call.target < 0 if len(call.target) else np.zeros(call.rows, bool)
    return p.astype(call.x.dtype), np.concatenate([np.where(ignored[:, None], 0.0, loss), top], 1)


def _loss_vjp(call, y, values, gy, gvalues):
    q = call.other.astype(np.float64) if call.spec["soft"] else call.chosen()
    dx = (y.astype(np.float64) - q) * gvalues[:, 0:1]
    ignored = call.target < 0 if len(call.target) else np.zeros(call.rows, bool)
    dx = by_largest(values[:, 1:2], np.where(call.x == -np.inf, 0.0, dx))
    return np.where(ignored[:, None], 0.0, dx)


def _soft_forward(call):
    """softmax's loss against a distribution: log sum e - sum q z."""
    part = call.statistics(call.x, 1.0, True)
    values = values_of(part, call.rows)
    given = Given(call, "target", call.other)
    top, on = values[:, 0:1], given.p > 0
    half = np.where(on, call.below(call.x, top, 2.0), 0.0)  # a difference of scores may leave the range, before it is weighted
    with np.errstate(over="ignore", invalid="ignore"):
        terms = -2 * (given.p * half)
    loss, *mass = call.sums(masked(on, terms), *given.terms, bounded=True)
    given.refuse_unless_distributions(*mass)
    loss = logarithm(values[:, 1:2]) + loss
    loss = np.where(np.isnan(top) | (top == -np.inf), np.nan, loss)
    return call.none.astype(call.x.dtype), np.concatenate([loss, values[:, :2]], 1)


def _soft_vjp(call, y, values, gy, gvalues):
    p = exponential(call.log_p(call.x, values[:, 1:2], values[:, 2:3], 1.0))
    return by_largest(values[:, 1:2], np.where(call.x == -np.inf, 0.0, (p - call.other) * gvalues[:, 0:1]))


# forward, vjp, whether y has x's columns, how many numbers a row has
OPERATIONS = {
    "map": (_map_forward, _map_vjp),
    "statistics": (_statistics_forward, _statistics_vjp),
    "gamma": (_gamma_forward, lambda call, y, v, gy, gv: _gamma_vjp(call, y, v, np.zeros(y.shape), gv[:, 0:1], gv[:, 1:2])),
    "given": (given_entropy_forward, given_entropy_vjp),
    "loss": (_loss_forward, _loss_vjp),
    "soft": (_soft_forward, _soft_vjp),
    "two": (two_forward, two_vjp),
}


def shapes(spec, rows, cols):
    spec = json.loads(spec)
    kind = spec["kind"]
    of_kind = {
        "map": lambda: (cols, 5 if spec["map"] in SOLVES else 0),
        "statistics": lambda: (cols if spec["writes"] else 0, 6),
        "two": lambda: (0, 6 if spec["name"] == "kl_divergence" else 8),
        "gamma": lambda: (cols, 5),
        "given": lambda: (0, 1),
        "loss": lambda: (cols, 2),
        "soft": lambda: (0, 3),
    }
    return of_kind[kind]()
