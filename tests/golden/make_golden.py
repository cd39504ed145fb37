"""Writes golden.jsonl: results of every map with 25 digits, straight from the definitions, for rows that are hard.

    python tests/golden/make_golden.py

Needs mpmath alone and gives the same file each time. Two kinds of lines:

    {"row": NAME, "x": [...], "g": [...]}                      scores and the gradient that comes back, exact hex floats
    {"map": NAME, "row": NAME, "params": {...}, "at": [...], "y": [...], "dx": [...]}

y and dx hold the results at the indices `at` of a row (a map with one result for each row: y has one entry, and its
gradient is g[0]). Beside them, where they apply,

    "support"        how many entries of the whole row are not 0, of a sparse map
    "mean_distance"  sum p log(max p / p), on which the error of a map like softmax depends
    "dparam"         the gradient in the parameter that may vary per row

A further map is one entry in MAPS.
"""

import functools
import json
import pathlib
import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import mpmath
from mpmath import mpf

mpmath.mp.dps = 400  # 60 and what 1 + exp(-740) needs, so that the definitions may be written as they are

DIGITS = 25
KEPT = 16  # entries of a long row
INFINITY = float("inf")
EXACT = mpf(10) ** -50  # what is nearer is equal
AMBIGUOUS = 1e-5  # where a cut is nearer to an entry, rounding decides


class Undecided(Exception):
    """Rounding decides this result: nothing to compare with."""


# Definitions. x and g are lists of mpf, -inf stands for an absent entry.


def softmax(x, temperature):
    weights = exponentials(x, temperature)
    total = mpmath.fsum(weights)
    return [w / total for w in weights]


def softmax_vjp(x, g, temperature):
    p = softmax(x, temperature)
    mean = mpmath.fdot(p, g)
    return [pi * (gi - mean) / temperature for pi, gi in zip(p, g, strict=True)]


def sparsemax(x, temperature):
    """max(x/T - tau, 0), tau from the largest k with 1 + k z_(k) > z_(1) + ... + z_(k)."""
    z = [xi / temperature for xi in x]
    descending = sorted((zi for zi in z if zi > -INFINITY), reverse=True)
    total, tau = mpf(0), None
    for k, zk in enumerate(descending, start=1):
        total += zk
        if 1 + k * zk > total:
            tau = (total - 1) / k
    return [max(zi - tau, mpf(0)) for zi in z]


def sparsemax_vjp(x, g, temperature):
    support = [pi > 0 for pi in sparsemax(x, temperature)]
    mean = mpmath.fsum(gi for gi, inside in zip(g, support, strict=True) if inside) / sum(support)
    return [(gi - mean) / temperature if inside else mpf(0) for gi, inside in zip(g, support, strict=True)]


def logsumexp(x, temperature):
    """T log sum exp(x/T)."""
    return [max(x) + temperature * mpmath.log(mpmath.fsum(exponentials(x, temperature)))]


def logsumexp_vjp(x, g, temperature):
    return [g[0] * pi for pi in softmax(x, temperature)]


def log_softmax(x, temperature):
    (total,) = logsumexp(x, temperature)
    return [(xi - total) / temperature for xi in x]


def log_softmax_vjp(x, g, temperature):
    total = mpmath.fsum(gi for gi, xi in zip(g, x, strict=True) if xi > -INFINITY)
    return [
        (gi - pi * total) / temperature if xi > -INFINITY else mpf(0)
        for gi, pi, xi in zip(g, softmax(x, temperature), x, strict=True)
    ]


@functools.lru_cache(maxsize=1)
def shares(x, k, temperature):
    """(p, 1 - p) of each score: p = s((x - tau)/T), s the logistic function, with sum p = k."""
    with mpmath.workdps(60):  # no difference of nearly equal numbers is taken
        z = [xi / temperature for xi in x]
        count = Counter(zi for zi in z if zi > -INFINITY)

        def excess(tau):
            """sum p - k, where p above tau is 1 - (1 - p)."""
            above = sum(times for zi, times in count.items() if zi > tau)
            rests = (times * (-1 if zi > tau else 1) / (1 + mpmath.exp(abs(zi - tau))) for zi, times in count.items())
            return (above - k) + mpmath.fsum(rests)

        if k >= sum(count.values()):
            return [(mpf(zi > -INFINITY), mpf(zi == -INFINITY)) for zi in z]
        low, high = min(count) - 2 * mpmath.log(len(z) / k) - 50, max(count) + 2 * mpmath.log(len(z) / k) + 50
        for _ in range(260):
            tau = (low + high) / 2
            low, high = (tau, high) if excess(tau) > 0 else (low, tau)
        found = [(1 / (1 + mpmath.exp(tau - zi)), 1 / (1 + mpmath.exp(zi - tau))) for zi in z if zi > -INFINITY]
        return [found.pop(0) if zi > -INFINITY else (mpf(0), mpf(1)) for zi in z]


def soft_top_k(x, k, temperature):
    return [pi for pi, _ in shares(x, k, temperature)]


def soft_top_k_dk(x, g, k, temperature):
    """<g, dp/dk>: the mean of g with the weights p (1 - p)."""
    w = [pi * rest for pi, rest in shares(x, k, temperature)]
    total = mpmath.fsum(w)
    return mpmath.fdot(w, g) / total if total else mpf(0)


def soft_top_k_vjp(x, g, k, temperature):
    mean = soft_top_k_dk(x, g, k, temperature)
    return [pi * rest * (gi - mean) / temperature for (pi, rest), gi in zip(shares(x, k, temperature), g, strict=True)]


def taylor(x, order):
    """sum_{m <= order} x^m / m!."""
    return mpmath.fsum(x**m / mpmath.factorial(m) for m in range(order + 1))


def taylor_softmax(x, order):
    return normalized([taylor(xi, order) if xi > -INFINITY else mpf(0) for xi in x])


def taylor_softmax_vjp(x, g, order):
    ratios = [taylor(xi, order - 1) / taylor(xi, order) if xi > -INFINITY else mpf(0) for xi in x]
    return weighted_vjp(taylor_softmax(x, order), g, ratios)


def sigsoftmax(x):
    """exp(x) s(x) / sum, s the logistic function."""
    return normalized([mpmath.exp(xi) / (1 + mpmath.exp(-xi)) if xi > -INFINITY else mpf(0) for xi in x])


def sigsoftmax_vjp(x, g):
    return weighted_vjp(sigsoftmax(x), g, [2 - 1 / (1 + mpmath.exp(-xi)) if xi > -INFINITY else mpf(0) for xi in x])


def softmax_over(chosen):
    """The map and the vjp of softmax over the indices chosen(x, ..., temperature), 0 elsewhere."""

    def cut(x, temperature, **params):
        kept = set(chosen(x, temperature=temperature, **params))
        return softmax([xi if i in kept else -INFINITY for i, xi in enumerate(x)], temperature)

    def vjp(x, g, temperature, **params):
        return weighted_vjp(cut(x, temperature, **params), g, [1 / temperature] * len(x))

    return cut, vjp


def falling(x):
    """Indices by falling score, of equal ones the lower first."""
    return sorted((i for i, xi in enumerate(x) if xi > -INFINITY), key=lambda i: -x[i])


def top_k(x, k, temperature):
    return falling(x)[:k]


def top_p(x, p, temperature):
    """The fewest largest whose mass reaches p."""
    mass, total, kept = softmax(x, temperature), mpf(0), []
    for i in falling(x):
        if total >= p:
            break
        if abs(total - p) < AMBIGUOUS:
            raise Undecided
        total += mass[i]
        kept.append(i)
    if p < 1 and abs(total - p) < AMBIGUOUS:
        raise Undecided
    return kept


def min_p(x, p, temperature):
    cut = max(x) + temperature * mpmath.log(p)
    if any(0 < abs(xi - cut) < AMBIGUOUS * (temperature + max(x) - xi) for xi in x if xi > -INFINITY):
        raise Undecided
    return [i for i, xi in enumerate(x) if xi >= cut]


@functools.lru_cache(maxsize=1)
def entmax(x, alpha, temperature):
    """(b x/T - tau)^(1/b), b = alpha - 1, where the base is positive; tau such that the sum is 1."""
    b = alpha - 1
    if b == 0:
        return softmax(x, temperature)
    with mpmath.workdps(60):  # as nothing is to be told apart from 1
        z = [(xi - max(x)) / temperature for xi in x]
        count = Counter(z)

        def mass(zi, c):  # c = (max p)^b; a score on the edge is not inside by rounding
            return (c + b * zi) ** (1 / b) if zi > -INFINITY and c + b * zi > EXACT else mpf(0)

        def excess(log_top):
            c = mpmath.exp(b * log_top)
            return mpmath.fsum(times * mass(zi, c) for zi, times in count.items()) - 1

        # The largest p is between 1/n and 1, and the sum rises with it.
        bracket = (-mpmath.log(len(x)) - 1, mpf(1))
        c = mpmath.exp(b * mpmath.findroot(excess, bracket, solver="anderson", tol=EXACT, maxsteps=1000))
        each = {zi: mass(zi, c) for zi in count}
        return [each[zi] for zi in z]


def entmax_vjp(x, g, alpha, temperature):
    p = entmax(x, alpha, temperature)
    s = [pi ** (2 - alpha) if pi > 0 else mpf(0) for pi in p]
    mean = mpmath.fdot(s, g) / mpmath.fsum(s)
    return [si * (gi - mean) / temperature for si, gi in zip(s, g, strict=True)]


def entmax_dalpha(x, g, alpha, temperature):
    """<g, dp/d alpha>: with h = -p log p, q = s / sum s it is (p - q) / b^2 + (h - q sum h) / b, and its limit at b = 0."""
    p, b = entmax(x, alpha, temperature), alpha - 1
    support = [(pi, gi) for pi, gi in zip(p, g, strict=True) if pi > 0]
    if b == 0:
        squares = [pi * mpmath.log(pi) ** 2 for pi, _ in support]
        total = mpmath.fsum(squares)
        return mpmath.fsum(gi * (pi * total - square) for (pi, gi), square in zip(support, squares, strict=True)) / 2
    h = [-pi * mpmath.log(pi) for pi, _ in support]
    q = normalized([pi ** (2 - alpha) for pi, _ in support])
    total = mpmath.fsum(h)
    return mpmath.fsum(gi * ((pi - qi) / b**2 + (hi - qi * total) / b) for (pi, gi), qi, hi in zip(support, q, h, strict=True))


def weighted_vjp(p, g, factors):
    """factor p (g - <g, p>)."""
    mean = mpmath.fdot(p, g)
    return [factor * pi * (gi - mean) for factor, pi, gi in zip(factors, p, g, strict=True)]


def normalized(weights):
    total = mpmath.fsum(weights)
    return [w / total for w in weights]


def exponentials(x, temperature):
    top = max(x)
    return [mpmath.exp((xi - top) / temperature) if xi > -INFINITY else mpf(0) for xi in x]


class Definition(NamedTuple):
    map: Callable
    vjp: Callable
    params: Callable  # of a row's length: the parameter values to try
    sparse: bool = False
    relative: bool = False  # the error is relative to p, as softmax's
    dparam: Callable | None = None


def temperatures(n):
    return [{"temperature": t} for t in ((0.05, 0.7, 1.0, 50.0) if n <= 3 else (0.05, 1.0, 50.0) if n <= 10 else (0.3, 1.0))]


def orders(n):
    return [{"order": order} for order in (2, 6)]


def cuts(parameter, values):
    return lambda n: [{parameter: value, "temperature": t} for value, t in zip(values, (1.0, 0.3, 1.0), strict=True)]


def alphas(n):
    plain = [{"alpha": a, "temperature": 1.0} for a in (0.5, 1.0, 1 + 1e-7, 1.05, 1.25, 1.5, 1.9, 2.0, 3.0)]
    return plain + (
        [{"alpha": a, "temperature": t} for a, t in ((0.5, 0.05), (1.05, 50.0), (1.5, 0.05), (1.9, 50.0))] if n <= 10 else []
    )


def choices(n):
    return [{"k": k, "temperature": t} for k, t in ((0.25, 1.0), (1.0, 0.05), (2.5, 0.3), (n - 0.5, 50.0))]


MAPS = {
    "softmax": Definition(softmax, softmax_vjp, temperatures),
    "sparsemax": Definition(sparsemax, sparsemax_vjp, temperatures, sparse=True),
    "entmax": Definition(entmax, entmax_vjp, alphas, sparse=True, dparam=entmax_dalpha),
    "taylor_softmax": Definition(taylor_softmax, taylor_softmax_vjp, orders, relative=True),
    "sigsoftmax": Definition(sigsoftmax, sigsoftmax_vjp, lambda n: [{}], relative=True),
    "top_k_softmax": Definition(*softmax_over(top_k), cuts("k", (1, 3, 20)), sparse=True, relative=True),
    "top_p_softmax": Definition(*softmax_over(top_p), cuts("p", (0.3337, 0.8503, 1.0)), sparse=True, relative=True),
    "min_p_softmax": Definition(*softmax_over(min_p), cuts("p", (0.05, 0.3, 1.0)), sparse=True, relative=True),
    "log_softmax": Definition(log_softmax, log_softmax_vjp, temperatures),
    "logsumexp": Definition(logsumexp, logsumexp_vjp, temperatures),
    "soft_top_k": Definition(soft_top_k, soft_top_k_vjp, choices, dparam=soft_top_k_dk),
}


# Rows. All are exact in float32 unless their name says float64.


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def normal(n, scale, seed, offset=0.0):
    generator = random.Random(seed)
    return [float32(offset + scale * generator.gauss(0, 1)) for _ in range(n)]


def masked(x, keep):
    return [xi if keep(i) else -INFINITY for i, xi in enumerate(x)]


def rows():
    tiny = 2.0**-20
    return {
        "one score": [3.25],
        "one score, far away": [-1e6],
        "two equal": [2.0, 2.0],
        "[2, 0]": [2.0, 0.0],
        "the edge of the support": [1.0, 0.0],
        "inside the edge by 2^-15": [1.0, 2.0**-15],
        "inside the edge by 2^-24": [1.0, 2.0**-24],
        "outside the edge by 2^-24": [1.0, -(2.0**-24)],
        "[4, 2, 0]": [4.0, 2.0, 0.0],
        "two equal and the threshold": [0.5, 0.5, 0.0],
        "subnormal float32 results": [0.0, -87.5, -100.0],
        "subnormal float64 results": [0.0, -708.75, -740.0],
        "two tie above a third": [1e6 + 0.25, 1e6, 1e6 + 0.25],
        # tau = -3/8 at T = 1, with four scores on it.
        "ties on the threshold": [0.0, -0.375, -0.125, -0.25, -0.5, -0.375, -0.375, -0.125, -1.0, -0.375],
        "ten equal": [-7.5] * 10,
        "near equal": [1 + k * 2.0**-23 for k in (0, 3, 1, 1, 7, 2, 0, 5, 4, 6)],
        "near equal float64": [1 + k * 2.0**-52 for k in (0, 3, 1, 1, 7, 2, 0, 5, 4, 6)],
        "offset 1e6": [1e6 + k / 16 for k in (0, 3, 16, -9, 7, 16, 0, 40, -40, 15)],
        "offset -1e6": [-1e6 + k / 16 for k in (0, 3, 16, -9, 7, 16, 0, 40, 39, 15)],
        "offset 1e12 float64": [1e12 + k / 1024 for k in (0, 3, 16, -900, 7, 16, 0, 1000, -40, 15)],
        "spread 1e4": normal(10, 1e4, 1),
        "spread 1e4, two close": [*normal(8, 1e4, 2), 30000.0, 30000.001953125],
        "masked at both ends": masked(normal(10, 1, 3), lambda i: i % 3 == 1),
        "edge within rounding": [0.0, -0.5, -0.75 + tiny, -0.75, -0.75 - tiny, -3.0, -0.9, -1.0, -2.0, -0.75],
        "normal 64": normal(64, 1, 4),
        "normal 64 float64": [random.Random(5 + i).gauss(0, 2) for i in range(64)],
        "normal 64, scale 30": normal(64, 30, 6),
        "all but one masked": masked(normal(64, 1, 7), lambda i: i == 40),
        "masked 64": masked(normal(64, 2, 8), lambda i: i % 2 == 0),
        "offset 1e6, 100": normal(100, 3, 9, offset=1e6),
        "zipf 100": [float32(-float(mpmath.log1p(i))) for i in range(100)],
        "spike": [-20.0] * 57 + [40.0] + [-20.0] * 42,
        "steps of 1/16": [-(i * 37 % 100) / 16 for i in range(100)],
        "flat 1000": [2.5] * 1000,
        "near equal 1000": [float32(1 + (i * 7919 % 1009) * 2.0**-20) for i in range(1000)],
        "rounded to halves 1000": [round(2 * v) / 2 for v in normal(1000, 3, 10)],
    }


def gradient(n):
    generator = random.Random(1000 + n)
    return [generator.randrange(-32, 33) / 8 for _ in range(n)]


def indices(x, y):
    """All of a short row; of a long one its ends, its largest scores, the smallest positive results and some others."""
    n = len(x)
    if n <= KEPT:
        return list(range(n))
    by_score = sorted(range(n), key=lambda i: -x[i])
    positive = sorted((i for i in range(n) if y[i] > 0), key=lambda i: y[i]) if len(y) == n else []
    chosen = dict.fromkeys([0, n - 1, *by_score[:4], *positive[:4]])
    generator = random.Random(n)
    while len(chosen) < KEPT:
        chosen.setdefault(generator.randrange(n))
    return sorted(chosen)


def digits(value):
    if value == 0 or mpmath.isinf(value):
        return "0" if value == 0 else str(float(value))
    return mpmath.nstr(value, DIGITS, min_fixed=0, max_fixed=0, strip_zeros=True)


def short_hex(value):
    """float.hex without the zeros at its end."""
    mantissa, p, exponent = value.hex().partition("p")
    return mantissa.rstrip("0").rstrip(".") + p + exponent if p and "." in mantissa else value.hex()


def line(record):
    return json.dumps(record, separators=(",", ":")) + "\n"


def main():
    lines = []
    for row, x in rows().items():
        g = gradient(len(x))
        lines.append(line({"row": row, "x": [short_hex(v) for v in x], "g": [short_hex(v) for v in g]}))
        exact_x, exact_g = tuple(mpf(v) for v in x), [mpf(v) for v in g]
        for name, definition in MAPS.items():
            for params in definition.params(len(x)):
                exact_params = {key: value if isinstance(value, int) else mpf(value) for key, value in params.items()}
                try:
                    y = definition.map(exact_x, **exact_params)
                except Undecided:
                    continue
                dx = definition.vjp(exact_x, exact_g, **exact_params)
                at = indices(x, y)
                record = {"map": name, "row": row, "params": params, "at": at}
                record["y"] = [digits(y[i]) for i in at] if len(y) == len(x) else [digits(v) for v in y]
                record["dx"] = [digits(dx[i]) for i in at]
                if definition.sparse:
                    record["support"] = sum(v > 0 for v in y)
                if definition.relative:
                    mean = mpmath.fsum(v * mpmath.log(max(y) / v) for v in y if v > 0)
                    record["mean_distance"] = float(f"{float(mean):.4g}")
                if definition.dparam:
                    record["dparam"] = digits(definition.dparam(exact_x, exact_g, **exact_params))
                lines.append(line(record))
    # Written at the end: a run that is stopped leaves the file whole.
    pathlib.Path(__file__).with_name("golden.jsonl").write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
