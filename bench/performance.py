"""Every row of the table of targets in one sitting, as bench/RESULTS.md begins with it: python bench/performance.py BUILD

BUILD holds bench_maps and bench_sampling (build/release/bench). Needs torch, SciPy, scikit-learn, POT and the entmax package.
One thread but where it says two; both times of a ratio come from one run, in turn. About ten minutes.
"""

import subprocess
import sys

import entmax
import numpy as np
import ot
import python_attention
import python_maps
import python_transport
import report
import scipy.spatial.distance
import scipy.stats
import torch
from sklearn.manifold import _utils as sklearn_manifold
from timing import least_times, median_times

import entropic


def show(operation, against, measured, must, aim):
    """measured, must and aim are our time over theirs, or, where larger is better, strings."""
    cells = [f"{value:.3g}" if isinstance(value, float) else str(value or "") for value in (measured, must, aim)]
    print(f"| {operation} | {against} | {' | '.join(cells)} |", flush=True)


def ratio(ours, theirs, repetitions=7):
    times = median_times({"ours": ours, "theirs": theirs}, repetitions)
    return times["ours"] / times["theirs"]


def times_as_fast(operation, against, ours, theirs, must, aim=None, repetitions=7):
    show(operation, against, f"{1 / ratio(ours, theirs, repetitions):.3g} x", f"{must} x", aim and f"{aim} x")


def in_cpp(build):
    targets = [target for target in report.TARGETS if target[5] is not None]  # with a must
    names = {f"{name}/{scores}/{shape}" for name, scores, shape, against, *_ in targets for name in (name, against)}
    medians = report.medians(f"{build}/bench_maps", names)
    for operation, scores, shape, against, factor, must, aim in targets:
        measured = medians[f"{operation}/{scores}/{shape}"] / (factor * medians[f"{against}/{scores}/{shape}"])
        show(f"{operation}, {scores}, {shape}", f"{factor} x {against}" if factor != 1 else against, measured, must, aim)
    chain = "temperature,top_k50,top_p.95/language"
    medians = report.medians(f"{build}/bench_sampling", {chain, "softmax/language"})
    show("one token, top-k + top-p, n = 131072", "softmax", medians[chain] / medians["softmax/language"], 2, 1)


def maps():
    x = np.random.default_rng(0).standard_normal((64, 1024), dtype=np.float32)
    t, out = torch.from_numpy(x), np.empty_like(x)
    np.testing.assert_allclose(entropic.softmax(x), torch.softmax(t, -1).numpy(), atol=1e-6)
    torch_out = torch.empty_like(t)
    measured = ratio(lambda: entropic.softmax(x, out=out), lambda: torch.softmax(t, -1, out=torch_out), 21)
    show("softmax, 64 x 1024, from Python", "torch.softmax", measured, 0.5, None)

    x = np.random.default_rng(0).standard_normal((128, 32000), dtype=np.float32)
    t, out = torch.from_numpy(x), np.empty_like(x)
    for name, ours, theirs, must in (
        ("entmax 1.5, 128 x 32000", lambda: entropic.entmax(x, out=out), lambda: entmax.entmax15(t), 100),
        (
            "entmax 1.3, 128 x 32000",
            lambda: entropic.entmax(x, alpha=1.3, out=out),
            lambda: entmax.entmax_bisect(t, alpha=1.3),
            300,
        ),
    ):
        np.testing.assert_allclose(ours(), theirs().numpy(), atol=1e-5)
        times_as_fast(name, "the entmax package", ours, theirs, must, repetitions=5)

    x = np.random.default_rng(3).standard_normal((256, 1024), dtype=np.float32)
    out, distance = np.empty_like(x), -x + x.max(1, keepdims=True)
    times_as_fast(
        "entropy_normalize, 256 x 1024, 4 nats",
        "scikit-learn's _binary_search_perplexity",
        lambda: entropic.entropy_normalize(x, entropy=4, out=out),
        lambda: sklearn_manifold._binary_search_perplexity(distance, np.exp(4), 0),
        30,
        100,
    )

    x, rng = np.random.default_rng(1).standard_normal(1000, dtype=np.float32), np.random.default_rng(2)
    hundredth = ratio(lambda: entropic.perturb_max(x, noise="normal"), lambda: python_maps.monte_carlo(x, 10000, rng))
    show("perturb_max, normal, n = 1000", "10^6 draws in NumPy", f"{100 / hundredth:.3g} x", "100 x", None)


def measures():
    rng = np.random.default_rng(0)
    p, q = (x / x.sum(axis=1, keepdims=True) for x in rng.random((2, 1000, 1000)))
    for name, ours, theirs, arrays in (
        ("entropy", entropic.entropy, scipy.stats.entropy, (p,)),
        ("kl_divergence", entropic.kl_divergence, scipy.stats.entropy, (p, q)),
        ("js_distance", entropic.js_distance, scipy.spatial.distance.jensenshannon, (p, q)),
    ):
        np.testing.assert_allclose(ours(*arrays), theirs(*arrays, axis=1), rtol=1e-9)
        times = least_times(
            {
                "ours": lambda ours=ours, arrays=arrays: ours(*arrays),
                "theirs": lambda theirs=theirs, arrays=arrays: theirs(*arrays, axis=1),
            }
        )
        show(f"{name}, 1000 x 1000, float64", "SciPy", f"{times['theirs'] / times['ours']:.3g} x", "6 x", "10 x")


def transport():
    u, v = np.random.default_rng(0).normal(size=(2, 10**6))
    times_as_fast(
        "wasserstein_1d, 10^6 samples, float64",
        "SciPy",
        lambda: entropic.wasserstein_1d(u, v),
        lambda: scipy.stats.wasserstein_distance(u, v),
        4,
        repetitions=5,
    )
    for n in (1000, 2000, 5000):
        a, b, cost = python_transport.problem("uniform", True, n)
        own, other, ours, (_, log) = python_transport.interleaved(
            5 if n < 5000 else 1,
            lambda a=a, b=b, cost=cost: entropic.optimal_transport(a, b, cost),
            lambda a=a, b=b, cost=cost: ot.emd(a, b, cost, numItermax=10**9, log=True),
        )
        assert abs(ours.cost - log["cost"]) <= 1e-9 * log["cost"]
        show(f"optimal_transport, n = {n}", "POT's ot.emd", own / other, 1.0, 0.5)


def attention():
    times = median_times(python_attention.calls_for(1024, False), 9)
    show("attention, softmax, 1 x 8 x 1024 x 64", "torch's SDPA", times["softmax"] / times["torch"], 1.5, 1.0)
    show("attention, entmax 1.5", "our softmax attention", times["entmax 1.5"] / times["softmax"], 1.3, 1.0)


MEMORY = """
import numpy as np, entropic
x = np.random.default_rng(0).standard_normal((256, 131072), dtype=np.float32)
out = np.zeros_like(x)
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
entropic.set_num_threads(1)
entropic.softmax(x[:1], out=out[:1])
before = peak()
entropic.entmax(x, alpha=1.3, out=out), entropic.entropy_normalize(x, entropy=2, out=out)
print(f"{peak() - before:.1f} MiB")
"""


def memory():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    show("peak memory, 256 x 131072 (128 MiB)", "beyond inputs and outputs", done.stdout.strip(), "O(threads n)", None)


def main(build):
    torch.set_num_threads(1)
    entropic.set_num_threads(1)
    print("| operation | against | measured | must | aim |\n|---|---|---|---|---|")
    in_cpp(build)
    maps()
    measures()
    transport()
    attention()
    memory()


if __name__ == "__main__":
    main(*sys.argv[1:])
