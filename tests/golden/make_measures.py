"""Writes measures.jsonl: measures of rows and pairs of rows, their gradients in orders, and estimators from counts, with 25
digits, straight from the definitions.

    python tests/golden/make_measures.py

Needs mpmath alone and gives the same file each time. Three kinds of lines:

    {"measure": NAME, "p": [...], "params": {...}, "value": "..."}                    of one distribution, exact hex floats
    {"measure": NAME, "p": [...], "q": [...], "params": {...}, "value": "..."}        of two
    {"estimator": NAME, "counts": [...], "params": {...}, "value": "...", "std": "..."}

p and q are divided by their sums, exactly; "dalpha" beside them is the derivative in the order.
"""

import json
import pathlib
import random
from collections import Counter

import mpmath
from mpmath import mpf

mpmath.mp.dps = 60
DIGITS = 25
INFINITY = float("inf")
LOG, SUM = mpmath.log, mpmath.fsum


# Definitions. p and q are lists of mpf that sum to 1.


def varentropy(p):
    entropy = -SUM(x * LOG(x) for x in p if x)
    return SUM(x * (LOG(x) + entropy) ** 2 for x in p if x)


def hill_number(p, order):
    if order == INFINITY:
        return 1 / max(p)
    if order == 1:
        return mpmath.exp(-SUM(x * LOG(x) for x in p if x))
    return SUM(x**order for x in p if x) ** (1 / (1 - mpf(order)))


def kl(p, q):
    return (
        INFINITY
        if any(x and not y for x, y in zip(p, q, strict=True))
        else SUM(x * LOG(x / y) for x, y in zip(p, q, strict=True) if x)
    )


def total_variation(p, q):
    return SUM(abs(x - y) for x, y in zip(p, q, strict=True)) / 2


def hellinger_distance(p, q):
    return mpmath.sqrt(SUM((mpmath.sqrt(x) - mpmath.sqrt(y)) ** 2 for x, y in zip(p, q, strict=True)) / 2)


def chi_squared_divergence(p, q):
    if any(x and not y for x, y in zip(p, q, strict=True)):
        return INFINITY
    return SUM((x - y) ** 2 / y for x, y in zip(p, q, strict=True) if y)


def jeffreys_divergence(p, q):
    return kl(p, q) + kl(q, p)


def affinity(p, q, alpha):
    """sum p^alpha q^(1 - alpha), where 0 to a negative power is infinite."""
    terms = []
    for x, y in zip(p, q, strict=True):
        if (not x and y and alpha < 0) or (x and not y and alpha > 1):
            return INFINITY
        if x and y:
            terms.append(x**alpha * y ** (1 - alpha))
        elif (x and alpha == 1) or (y and alpha == 0):
            terms.append(x or y)
    return SUM(terms)


def renyi_divergence(p, q, alpha):
    if alpha == INFINITY:
        return INFINITY if kl(p, q) == INFINITY else max(LOG(x / y) for x, y in zip(p, q, strict=True) if x)
    if alpha == 0:
        return -LOG(SUM(y for x, y in zip(p, q, strict=True) if x))
    if alpha == 1:
        return kl(p, q)
    total = affinity(p, q, alpha)
    return INFINITY if total in (0, INFINITY) else LOG(total) / (alpha - 1)


def alpha_divergence(p, q, alpha):
    if alpha in (0, 1):
        return kl(p, q) if alpha == 1 else kl(q, p)
    total = affinity(p, q, alpha)
    return INFINITY if total == INFINITY else (1 - total) / (alpha * (1 - alpha))


def slope(measure, p, q, alpha):
    """The derivative in the order by differences, upwards from Renyi's order 0; 0 where the value or the order is infinite."""
    if alpha == INFINITY or mpmath.isinf(measure(p, q, alpha)):
        return mpf(0)
    if alpha == 0 and measure is renyi_divergence:
        return mpmath.diff(lambda a: measure(p, q, a), alpha, direction=1, h=mpf(10) ** -25)
    return mpmath.diff(lambda a: measure(p, q, a), alpha, h=mpf(10) ** -20)


# Estimators. counts is a list of integers; m classes were seen.


def plugin(counts):
    total = mpf(sum(counts))
    return -SUM(n / total * LOG(n / total) for n in counts if n)


def miller_madow(counts):
    return plugin(counts) + mpf(sum(n > 0 for n in counts) - 1) / (2 * sum(counts))


def jackknife(counts):
    total, rest = sum(counts), []
    for k, n in enumerate(counts):
        if n:
            rest.append(n * plugin([m - (i == k) for i, m in enumerate(counts)]))
    return total * plugin(counts) - mpf(total - 1) / total * SUM(rest)


def grassberger(counts):
    total = mpf(sum(counts))

    def g(n):
        return mpmath.psi(0, n) + (-1) ** n * (mpmath.psi(0, mpf(n + 1) / 2) - mpmath.psi(0, mpf(n) / 2)) / 2

    return LOG(total) - SUM(n * g(n) for n in counts if n) / total


def chao_shen(counts):
    total, once = sum(counts), sum(n == 1 for n in counts)
    coverage = 1 - mpf(total - 1 if once == total else once) / total
    shares = [coverage * n / total for n in counts if n]
    return -SUM(x * LOG(x) / (1 - (1 - x) ** total) for x in shares)


def james_stein(counts, classes=None):
    classes = len(counts) if classes is None else classes
    total, target = mpf(sum(counts)), mpf(1) / classes
    shares = [n / total for n in counts] + [mpf(0)] * (classes - len(counts))
    apart = SUM((x - target) ** 2 for x in shares)
    weight = mpf(1) if not apart or total == 1 else (1 - SUM(x * x for x in shares)) / ((total - 1) * apart)
    weight = min(max(weight, mpf(0)), mpf(1))
    return -SUM(y * LOG(y) for y in (weight * target + (1 - weight) * x for x in shares) if y)


def nsb(counts, classes=None):
    """(the posterior mean, its standard deviation): integrals over the concentration beta of a symmetric Dirichlet prior, with
    the prior expectation of the entropy psi(K beta + 1) - psi(beta + 1) as its measure."""
    classes = len(counts) if classes is None else classes
    total, seen = sum(counts), [n for n in counts if n]
    times = Counter([*seen, *[0] * (classes - len(seen))])  # how many classes have a count

    def psi(x, k=0):
        return mpmath.psi(k, x)

    def log_weight(beta):
        """log of the evidence and of d xi / d beta."""
        evidence = mpmath.loggamma(classes * beta) - mpmath.loggamma(total + classes * beta)
        evidence += SUM(mpmath.loggamma(n + beta) - mpmath.loggamma(beta) for n in seen)
        return evidence + LOG(classes * psi(classes * beta + 1, 1) - psi(beta + 1, 1))

    def moments(beta):
        a, whole = [(n + beta, m) for n, m in times.items()], total + classes * beta
        mean = psi(whole + 1) - SUM(m * x / whole * psi(x + 1) for x, m in a)
        # Pairs of different classes, as all pairs without those of a class with itself; then these.
        level, bend = psi(whole + 2), psi(whole + 2, 1)
        logs = [psi(x + 1) - level for x, _ in a]
        first = SUM(m * x * log for (x, m), log in zip(a, logs, strict=True))
        square = first**2 - SUM(m * (x * log) ** 2 for (x, m), log in zip(a, logs, strict=True))
        square -= bend * (whole**2 - SUM(m * x * x for x, m in a))
        square += SUM(m * x * (x + 1) * ((psi(x + 2) - level) ** 2 + psi(x + 2, 1) - bend) for x, m in a)
        return mean, square / (whole * (whole + 1))

    # In u = log beta, by panels around the largest weight.
    with mpmath.workdps(30):
        grid = [mpf(u) / 2 for u in range(-60, 61)]
        peak = max(grid, key=lambda u: log_weight(mpmath.exp(u)) + u)
        top = log_weight(mpmath.exp(peak)) + peak

        def integral(of):
            def integrand(u):
                beta = mpmath.exp(u)
                return mpmath.exp(log_weight(beta) + u - top) * of(beta)

            return mpmath.quad(integrand, [peak + d for d in (-40, -20, -10, -6, -3, 0, 3, 6, 10, 20, 40)], maxdegree=5)

        norm = integral(lambda _: mpf(1))
        mean = integral(lambda beta: moments(beta)[0]) / norm
        square = integral(lambda beta: moments(beta)[1]) / norm
        return mean, mpmath.sqrt(square - mean**2)


ONE = {"varentropy": (varentropy, [{}]), "hill_number": (hill_number, [{"order": o} for o in (0, 0.5, 1, 2, INFINITY)])}
TWO = {
    "total_variation": (total_variation, [{}]),
    "hellinger_distance": (hellinger_distance, [{}]),
    "chi_squared_divergence": (chi_squared_divergence, [{}]),
    "jeffreys_divergence": (jeffreys_divergence, [{}]),
    "renyi_divergence": (renyi_divergence, [{"alpha": a} for a in (0, 0.3, 1, 2, INFINITY)]),
    "alpha_divergence": (alpha_divergence, [{"alpha": a} for a in (-1.5, 0, 0.5, 1, 3)]),
}
ESTIMATORS = {
    "plugin": (plugin, [{}]),
    "miller_madow": (miller_madow, [{}]),
    "jackknife": (jackknife, [{}]),
    "grassberger": (grassberger, [{}]),
    "chao_shen": (chao_shen, [{}]),
    "james_stein": (james_stein, [{}, {"classes": 12}]),
    "nsb": (nsb, [{}, {"classes": 12}]),
}
COUNTS = [[4, 2, 3, 1], [1, 1, 1], [10, 0, 0, 0, 1], [1, 2, 3, 4, 5, 6, 7, 8], [500, 300, 200]]


def pairs():
    generator = random.Random(67)
    rows = [[generator.random() ** 3 for _ in range(6)] for _ in range(2)]
    near = [x * (1 + 1e-6 * generator.gauss(0, 1)) for x in rows[0]]
    p, q = ([*row[:4], 0.0, 0.0] for row in rows)
    return [rows, [rows[0], near], [p, rows[1]], [rows[0], q], [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], [[1e-300, 1.0], [1.0, 1e-5]]]


def normalized(x):
    total = SUM(mpf(v) for v in x)
    return [mpf(v) / total for v in x]


def digits(value):
    return str(float(value)) if mpmath.isinf(value) or value == 0 else mpmath.nstr(mpf(value), DIGITS)


def main():
    with open(pathlib.Path(__file__).with_name("measures.jsonl"), "w", encoding="ascii") as out:

        def write(**record):
            out.write(json.dumps(record, separators=(",", ":")) + "\n")

        for p, q in pairs():
            given = {"p": [v.hex() for v in p]}
            for name, (measure, variants) in ONE.items():
                for params in variants:
                    write(measure=name, **given, params=params, value=digits(measure(normalized(p), **params)))
            given["q"] = [v.hex() for v in q]
            for name, (measure, variants) in TWO.items():
                for params in variants:
                    exact = normalized(p), normalized(q)
                    more = {}
                    if params:
                        params = {"alpha": params["alpha"]}
                        alpha = params["alpha"] if params["alpha"] == INFINITY else mpf(params["alpha"])
                        more["dalpha"] = digits(slope(measure, *exact, alpha))
                    else:
                        alpha = None
                    value = measure(*exact) if alpha is None else measure(*exact, alpha)
                    write(measure=name, **given, params=params, value=digits(value), **more)
        for counts in COUNTS:
            for name, (estimator, variants) in ESTIMATORS.items():
                for params in variants if len(counts) < 8 and max(counts) < 500 else variants[: name != "nsb"]:  # it takes long
                    value = estimator(counts, **params)
                    value, *std = value if isinstance(value, tuple) else (value,)
                    more = {"std": digits(std[0])} if std else {}
                    write(estimator=name, counts=counts, params=params, value=digits(value), **more)


if __name__ == "__main__":
    main()
