"""Transport beside POT and SciPy, interleaved, one thread; results are compared first.

bench/python_transport.py [SIZES]          optimal_transport beside ot.emd
bench/python_transport.py sinkhorn         sinkhorn beside ot.bregman.sinkhorn_log
bench/python_transport.py tails            sinkhorn of Gaussians, whose tails are masses down to 1e-200: passes and time
bench/python_transport.py line             wasserstein_1d beside scipy.stats.wasserstein_distance
bench/python_transport.py further          partial, unbalanced and sliced transport and barycenters beside POT's
bench/python_transport.py shapes           optimal_transport of wide and tall matrices
bench/python_transport.py tables           doubly_stochastic, forward and backward, beside loops in torch
bench/python_transport.py top_k            soft_top_k beside top-k by sinkhorn, ours and POT's
bench/python_transport.py memory N WHOSE   the most memory that one problem of N x N takes; WHOSE is isentropic or ot
"""

import itertools
import sys
import time

import numpy as np
import ot
import scipy.special
import scipy.stats
from timing import median_times

import isentropic

POTS_LIMITS = {"reg_type": "kl", "numItermax": 10**5, "stopThr": 1e-9}
KINDS = ("normal", "uniform", "random", "(i + j)^2", "i j")


def problem(kind, weights, n, m=None):
    m = m or n
    rng = np.random.default_rng(0)
    if kind == "random":
        cost = rng.random((n, m))
    elif "i" in kind and "j" in kind:
        i, j = np.arange(n)[:, None] / n, np.arange(m) / m
        cost = (i + j) ** 2 if "+" in kind else i * j
    else:
        draw = rng.standard_normal if kind == "normal" else rng.random
        x, y = draw((n, 2)), draw((m, 2))
        cost = np.subtract.outer(x[:, 0], y[:, 0]) ** 2
        cost += np.subtract.outer(x[:, 1], y[:, 1]) ** 2
    a, b = (rng.random(n), rng.random(m)) if weights else (np.ones(n), np.ones(m))
    return a / a.sum(), b / b.sum(), cost


def interleaved(repetitions, ours, theirs):
    """Median milliseconds of both, and their results."""
    results = {}
    calls = {"ours": lambda: results.update(ours=ours()), "theirs": lambda: results.update(theirs=theirs())}
    times = median_times(calls, repetitions, least=0)
    return *(1e3 * times[name] for name in calls), *(results[name] for name in calls)


def table(*header):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)


def row(*cells):
    print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells) + " |", flush=True)


def exact(sizes):
    table("n", "cost", "masses", "isentropic ms", "POT ms", "ratio")
    for n in sizes:
        for kind in KINDS:
            for weights in (False, True):
                a, b, cost = problem(kind, weights, n)
                own, other, ours, (_, log) = interleaved(
                    5 if n < 2000 else 3 if n < 5000 else 1,
                    lambda a=a, b=b, cost=cost: isentropic.optimal_transport(a, b, cost),
                    lambda a=a, b=b, cost=cost: ot.emd(a, b, cost, numItermax=10**9, log=True),
                )
                assert abs(ours.cost - log["cost"]) <= 1e-9 * log["cost"] and ours.gap <= 1e-12, (ours.cost, log["cost"])
                row(n, kind, "random" if weights else "equal", own, other, own / other)


def sinkhorn(n=1000):
    table("n", "cost", "epsilon / largest", "isentropic ms", "POT ms", "times as fast", "errors of the sums: ours", "POT")
    for kind in KINDS:
        a, b, cost = problem(kind, True, n)
        epsilon = 0.01 * cost.max()

        def theirs(a=a, b=b, cost=cost, epsilon=epsilon):
            return ot.bregman.sinkhorn_log(a, b, cost, epsilon, numItermax=10**5, stopThr=1e-7, warn=False)

        own, other, ours, plan = interleaved(
            3,
            lambda a=a, b=b, cost=cost, epsilon=epsilon: isentropic.sinkhorn(a, b, cost, epsilon=epsilon, tolerance=1e-6),
            theirs,
        )
        assert abs(ours.cost - (plan * cost).sum()) <= 1e-4 * ours.cost
        errors = [abs(p.sum(0) - b).sum() + abs(p.sum(1) - a).sum() for p in (ours.plan, plan)]
        row(n, kind, "0.01", own, other, other / own, *map(float, errors))


def tails():
    table("epsilon", "problems", "not converged", "passes: median", "most", "ms in all")
    for epsilon in (1e-4, 3e-4, 1e-3, 1e-2, 1e-1):
        found, took = [], 0.0
        for n, mean, widths in itertools.product(
            (20, 30, 50, 100, 200), (0, 0.3, 0.7, 1), ((0.15, 0.195), (0.1, 0.3), (0.4, 0.2), (0.05, 0.08), (1, 0.5))
        ):
            x = np.linspace(-1.5, 1.5, n)
            a, b = (np.exp(-((x - centre) ** 2) / (2 * width**2)) for centre, width in zip((0, mean), widths, strict=True))
            a, b, cost = a / a.sum(), b / b.sum(), (x[:, None] - x) ** 2
            started = time.perf_counter()
            found.append(isentropic.sinkhorn(a, b, cost, epsilon=epsilon, tolerance=1e-9))
            took += time.perf_counter() - started
        passes = [int(one.iterations) for one in found]
        failed = sum(not one.converged for one in found)
        row(f"{epsilon:g}", len(found), failed, float(np.median(passes)), max(passes), 1000 * took)


def line(n=10**6):
    table("samples", "type", "weights", "isentropic ms", "SciPy ms", "times as fast")
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        u, v, a, b = (x.astype(dtype) for x in (*rng.normal(size=(2, n)), *rng.random((2, n))))
        for weights in (None, (a, b)):
            ours, theirs = ({}, ()) if weights is None else ({"u_weights": a, "v_weights": b}, (a, b))
            own, other, mine, wanted = interleaved(
                5,
                lambda u=u, v=v, ours=ours: isentropic.wasserstein_1d(u, v, **ours),
                lambda u=u, v=v, theirs=theirs: scipy.stats.wasserstein_distance(u, v, *theirs),
            )
            assert abs(mine - wanted) <= (1e-9 if dtype == np.float64 else 1e-4) * wanted
            row(n, np.dtype(dtype).name, "none" if weights is None else "random", own, other, other / own)


def further():
    """Each to an accuracy that both reach: how far POT's number is from ours, relative, and what ours proves of itself."""
    table("function", "problem", "isentropic ms", "POT ms", "times as fast", "POT - ours", "ours proves")

    def compare(name, what, ours, theirs, number, theirs_number, proof):
        own, other, mine, wanted = interleaved(5, ours, theirs)
        mine_number, their_number = number(mine), theirs_number(wanted)
        row(name, what, own, other, other / own, float((their_number - mine_number) / abs(mine_number)), float(proof(mine)))

    for n in (100, 500):
        a, b, cost = problem("normal", True, n)
        compare(
            "`partial_transport`",
            f"n = {n}, half of the mass",
            lambda a=a, b=b, cost=cost: isentropic.partial_transport(a, b, cost, mass=0.5),
            lambda a=a, b=b, cost=cost: ot.partial.partial_wasserstein(a, b, cost, m=0.5),
            lambda found: found.cost,
            lambda plan, cost=cost: (plan * cost).sum(),
            lambda found: found.gap / found.cost,
        )
    for epsilon, penalty in ((0.5, 1.0), (0.05, 1.0), (0.05, 10.0)):
        a, b, cost = problem("normal", True, 200)
        b = 1.5 * b

        def value(plan, a=a, b=b, cost=cost, epsilon=epsilon, penalty=penalty):
            def divergence(p, q):
                return scipy.special.xlogy(p, p / q).sum() - p.sum() + q.sum()

            marginals = divergence(plan.sum(1), a) + divergence(plan.sum(0), b)
            return (plan * cost).sum() + epsilon * divergence(plan, np.outer(a, b)) + penalty * marginals

        compare(
            "`unbalanced_sinkhorn`",
            f"n = 200, epsilon {epsilon}, penalty {penalty:g}",
            lambda a=a, b=b, cost=cost, e=epsilon, p=penalty: isentropic.unbalanced_sinkhorn(a, b, cost, epsilon=e, penalty=p),
            lambda a=a, b=b, cost=cost, e=epsilon, p=penalty: ot.unbalanced.sinkhorn_unbalanced(
                a, b, cost, e, p, **POTS_LIMITS
            ),
            lambda found: found.value,
            value,
            lambda found: found.gap / found.value,
        )
    points = np.linspace(0, 1, 100)
    cost = (points[:, None] - points) ** 2
    p = np.random.default_rng(1).dirichlet(np.ones(100), 4)
    for epsilon in (0.1, 0.01):
        compare(
            "`sinkhorn_barycenter`",
            f"4 of 100 points, epsilon {epsilon}",
            lambda e=epsilon: isentropic.sinkhorn_barycenter(p, cost, epsilon=e, tolerance=1e-9),
            lambda e=epsilon: ot.bregman.barycenter(p.T, cost, e, numItermax=10**5, stopThr=1e-10),
            lambda found: (found.barycenter * points).sum(),
            lambda q: (q * points).sum(),
            lambda found: found.marginal_error,
        )
    rng = np.random.default_rng(2)
    x, y, theta = rng.standard_normal((2000, 3)), rng.standard_normal((2000, 3)) + 1, rng.standard_normal((200, 3))
    unit = (theta / np.linalg.norm(theta, axis=1, keepdims=True)).T
    compare(
        "`sliced_wasserstein`",
        "2000 points in 3 dimensions, 200 directions",
        lambda: isentropic.sliced_wasserstein(x, y, projections=theta),
        lambda: ot.sliced_wasserstein_distance(x, y, projections=unit),
        lambda found: found.distance,
        float,
        lambda found: found.error / found.distance,
    )


def shapes():
    table("shape", "cost", "isentropic ms", "POT ms", "ratio")
    for n, m in ((1, 5000), (3, 5000), (5000, 3), (50, 5000), (5000, 50), (500, 5000), (5000, 500)):
        for kind in ("normal", "random"):
            a, b, cost = problem(kind, True, n, m)
            own, other, ours, (_, log) = interleaved(
                3,
                lambda a=a, b=b, cost=cost: isentropic.optimal_transport(a, b, cost),
                lambda a=a, b=b, cost=cost: ot.emd(a, b, cost, numItermax=10**9, log=True),
            )
            assert abs(ours.cost - log["cost"]) <= 1e-9 * abs(log["cost"])
            row(f"{n} x {m}", kind, own, other, own / other)


def tables():
    """20 sweeps of float32 tables, forward and backward."""
    import torch

    import isentropic.torch

    torch.set_num_threads(1)

    def loop(x):
        y = x.exp()
        for _ in range(20):
            y = y / y.sum(-1, keepdim=True)
            y = y / y.sum(-2, keepdim=True)
        return y

    table("tables", "isentropic ms", "torch ms", "ratio")
    for shape in ((65536, 4, 4), (4096, 16, 16), (64, 64, 64), (1, 512, 512)):
        start, grad = torch.randn(2, *shape)

        def slope(run, x=start, grad=grad):
            x = x.clone().requires_grad_()
            run(x).backward(grad)
            return x.grad

        own, other, ours, theirs = interleaved(
            5,
            lambda slope=slope: slope(lambda x: isentropic.torch.doubly_stochastic(x, iterations=20)),
            lambda slope=slope: slope(loop),
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        row(" x ".join(map(str, shape)), own, other, own / other)


def top_k():
    """float64 rows from the normal distribution, at the temperature 0.1; sinkhorn to a tolerance of 1e-9."""
    table("scores", "k", "soft_top_k us", "sinkhorn us", "POT us", "largest difference")
    for n, k in ((64, 8), (1000, 10), (10000, 100)):
        x = np.random.default_rng(0).standard_normal(n)
        a, b, cost = np.full(n, 1 / n), np.array([k / n, 1 - k / n]), np.stack([-x, 0 * x], 1)
        calls = {
            "soft": lambda x=x, k=k: isentropic.soft_top_k(x, k=k, temperature=0.1),
            "ours": lambda a=a, b=b, cost=cost: isentropic.sinkhorn(a, b, cost, epsilon=0.1, tolerance=1e-9).plan,
            "pot": lambda a=a, b=b, cost=cost: ot.bregman.sinkhorn_log(a, b, cost, 0.1, stopThr=1e-9, numItermax=10**5),
        }
        times = median_times(calls, 11)
        apart = max(abs(n * calls[name]()[:, 0] - calls["soft"]()).max() for name in ("ours", "pot"))
        row(n, k, *(1e6 * times[name] for name in calls), float(apart))


def status(name):
    """A number of MiB that Linux has of this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def memory(n, whose):
    a, b, cost = problem("uniform", True, int(n))
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # from here on
    before = status("VmRSS")
    if whose == "isentropic":
        isentropic.optimal_transport(a, b, cost)
    else:
        ot.emd(a, b, cost, numItermax=10**9)
    print(f"{whose}, n = {n}: {status('VmHWM') - before:.0f} MiB, the plan included, beside {cost.nbytes / 2**20:.0f} of costs")


def main(what="1000", *more):
    isentropic.set_num_threads(1)
    named = {
        "sinkhorn": sinkhorn,
        "tails": tails,
        "line": line,
        "further": further,
        "shapes": shapes,
        "memory": memory,
        "tables": tables,
        "top_k": top_k,
    }
    if what in named:
        named[what](*more)
    else:
        exact([int(n) for n in (what, *more)])


if __name__ == "__main__":
    main(*sys.argv[1:])
