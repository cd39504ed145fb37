"""optimal_transport beside POT, in one interleaved run: bench/python_transport.py [SIZES]. Costs are compared first."""

import statistics
import sys
import time

import numpy as np
import ot

import entropic

KINDS = ("normal", "uniform", "random")


def problem(kind, weights, n):
    rng = np.random.default_rng(0)
    if kind == "random":
        cost = rng.random((n, n))
    else:
        x, y = rng.standard_normal((2, n, 2)) if kind == "normal" else rng.random((2, n, 2))
        cost = ((x[:, None] - y[None]) ** 2).sum(-1)
    a, b = rng.random((2, n)) if weights else np.ones((2, n))
    return a / a.sum(), b / b.sum(), cost


def timed(function, *arguments, **keywords):
    start = time.perf_counter()
    result = function(*arguments, **keywords)
    return time.perf_counter() - start, result


def main(sizes):
    entropic.set_num_threads(1)
    print("| n | cost | masses | entropic ms | POT ms | ratio |\n|---|---|---|---|---|---|")
    for n in sizes:
        for kind in KINDS:
            for weights in (False, True):
                a, b, cost = problem(kind, weights, n)
                times = [[], []]
                for _ in range(5 if n < 2000 else 3 if n < 5000 else 1):
                    t, ours = timed(entropic.optimal_transport, a, b, cost)
                    times[0].append(t)
                    t, (_, log) = timed(ot.emd, a, b, cost, numItermax=10**9, log=True)
                    times[1].append(t)
                assert abs(ours.cost - log["cost"]) <= 1e-9 * log["cost"] and ours.gap <= 1e-12, (
                    ours.cost,
                    log["cost"],
                    ours.gap,
                )
                own, other = (1e3 * statistics.median(t) for t in times)
                print(
                    f"| {n} | {kind} | {'random' if weights else 'equal'} | {own:.1f} | {other:.1f} | {own / other:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [1000, 2000, 5000])
