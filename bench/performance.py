"""Every row of the tables of targets in one sitting, as bench/RESULTS.md begins with it:

python bench/performance.py BUILD [TARGET] [GROUP...] [--large]

BUILD is a build with the benchmarks and the command line (build/release), TARGET a SIMD target in place of the best (AVX2), and
GROUP the name of a function below, to run only that. With AVX2, oneDNN and torch are held to AVX2 too. --large adds optimal
transport of 20,000 points, which takes 7 GB. Needs torch, SciPy, scikit-learn, POT, JAX, onnx, onnxruntime and entmax.
One thread but where it says two; both times of a ratio come from one run, in turn. Two to five minutes. A ratio that misses its
must is bold.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if sys.argv[2:3] == ["AVX2"]:  # limits the peers too; torch reads these when it is imported
    os.environ.update(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # its cached code for AVX-512 gives wrong numbers with AVX2

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import entmax
import jax
import numpy as np
import onnx
import onnxruntime
import ot
import python_attention
import python_maps
import python_transport
import report
import scipy.spatial.distance
import scipy.special
import scipy.stats
import torch
from sklearn.manifold import _utils as sklearn_manifold
from timing import least_times, median_times

import isentropic
import isentropic.torch

KINDS = ("normal", "flat", "language")
SHAPES = ((1024, 64), (64, 1024), (4, 32768), (1, 131072))


def show(operation, against, measured, must, aim, faster=False):
    """measured, one number or a list: our time over theirs, or how many times as fast we are."""
    cells = []
    for value in measured if isinstance(measured, list) else [measured]:
        if isinstance(value, str):
            cells.append(value)
            continue
        limit = must[len(cells)] if isinstance(must, list) else must
        missed = limit is not None and (value < limit if faster else value > limit)
        text = f"{value:.3g}" + " x" * faster
        cells.append(f"**{text}**" if missed else text)
    if isinstance(must, list):
        must = must[0] if len(set(must)) == 1 else " / ".join(f"{one:g}" for one in must)
    unit = " x" if faster else ""
    limits = [f"{value}{unit}" if value is not None else "" for value in (must, aim)]
    print(f"| {operation} | {against} | {' / '.join(cells)} | {' | '.join(limits)} |", flush=True)


def times_as_fast(operation, against, ours, theirs, must, aim=None, rounds=7):
    times = least_times({"ours": ours, "theirs": theirs}, rounds, seconds=0)
    show(operation, against, times["theirs"] / times["ours"], must, aim, faster=True)


def scores(kind, rows, n):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, n), dtype=np.float32)
    if kind == "flat":
        x *= 0.01
    if kind == "language":
        x = 0.5 * x - 1.2 * np.log(rng.permuted(np.broadcast_to(np.arange(1, n + 1), (rows, n)), axis=1))
    return x.astype(np.float32)


def in_cpp(build, target):
    """Rows that need oneDNN or no Python around the call."""
    names = {name for target in report.TARGETS if target[5] is not None for name in (target[0], target[3])}
    wanted = [
        t for t in report.TARGETS if t[5] is not None and t[0] in names and t[0].split("_")[0] in ("softmax", "sparsemax")
    ]
    names = {f"{name}/{kind}/{shape}" for name, kind, shape, against, *_ in wanted for name in (name, against)}
    medians = report.medians(f"{build}/bench/bench_maps", names, target)
    for operation, kind, shape, against, factor, must, aim in wanted:
        measured = medians[f"{operation}/{kind}/{shape}"] / (factor * medians[f"{against}/{kind}/{shape}"])
        show(f"{operation}, {kind}, {shape}", f"{factor} x {against}" if factor != 1 else against, measured, must, aim)
    chain = "temperature,top_k50,top_p.95/language"
    medians = report.medians(f"{build}/bench/bench_sampling", {chain, "softmax/language"}, target)
    show("one token, top-k + top-p, n = 131072", "softmax", medians[chain] / medians["softmax/language"], 2, 1)


ALPHAS = (0.8, 1.2, 1.3, 1.5, 1.7, 3)


def times_of_maps(x):
    """Seconds of each map of these rows, and whether the supports of entmax are small."""
    out, top = np.empty_like(x), np.log(x.shape[1])
    calls = {
        "softmax": lambda: isentropic.softmax(x, out=out),
        "sparsemax": lambda: isentropic.sparsemax(x, out=out),
        "top_k_softmax, k = 50": lambda: isentropic.top_k_softmax(x, k=50, out=out),
        "top_p_softmax, p = 0.9": lambda: isentropic.top_p_softmax(x, p=0.9, out=out),
        "entropy_normalize, 0.3 log n": lambda: isentropic.entropy_normalize(x, entropy=0.3 * top, out=out),
        "entropy_normalize, 0.9 log n": lambda: isentropic.entropy_normalize(x, entropy=0.9 * top, out=out),
        **{f"entmax {a}": lambda a=a: isentropic.entmax(x, alpha=a, out=out) for a in ALPHAS},
    }
    return least_times(calls, 8, seconds=0.005), {a: (isentropic.entmax(x, alpha=a) > 0).mean() < 0.1 for a in ALPHAS}


def maps(_build, _target):
    """Of our softmax of the same rows: normal, flat and language scores."""
    for rows, n in SHAPES:
        limits = {
            "top_k_softmax, k = 50": {64: (1.5, 1), 1024: (1.5, 1), 32768: (0.7, 0.4), 131072: (0.6, 0.3)}[n],
            "top_p_softmax, p = 0.9": {64: (3, 1.5), 1024: (2, 1.5), 32768: (1.4, 1.1), 131072: (1.3, 1.1)}[n],
            "sparsemax": (2.5, 1.2) if n == 64 else (1, 0.6),
        }
        for share in (0.3, 0.9):
            limit = {64: (5, 3), 1024: (3.2, 2.5), 131072: (2.2, 2)}.get(n, (None, None))
            limits[f"entropy_normalize, {share} log n"] = limit
        found = [times_of_maps(scores(kind, rows, n)) for kind in KINDS]
        for name, (must, aim) in limits.items():
            show(f"{name}, {rows} x {n}", "softmax", [times[name] / times["softmax"] for times, _ in found], must, aim)
        for alpha in ALPHAS:
            name = f"entmax {alpha}"
            full = (2.5 if n == 64 else 12) if alpha == 1.5 else 5 if n <= 1024 else 6
            must = [(1 if alpha == 1.5 else 1.5) if small[alpha] and n > 64 else full for _, small in found]
            ratios = [times[name] / times["softmax"] for times, _ in found]
            show(f"{name}, {rows} x {n}", "softmax", ratios, must, 3 if n != 1024 else 2.5)


def gradient_of_entmax(x, g, alpha):
    p, out = isentropic.entmax(x, alpha=alpha), np.empty_like(x)
    calls = {
        "map": lambda: isentropic.entmax(x, alpha=alpha, out=out),
        "vjp": lambda: isentropic.entmax_vjp(x, p, g, alpha=alpha),
    }
    times = least_times(calls, 8, seconds=0.005)
    return times["vjp"] / times["map"]


def gradient_of_softmax(x, g):
    p = isentropic.softmax(x)
    torch_p, torch_g = torch.from_numpy(p), torch.from_numpy(g)
    calls = {
        "torch": lambda: torch.ops.aten._softmax_backward_data(torch_g, torch_p, -1, torch.float32),
        "ours": lambda: isentropic.softmax_vjp(x, p, g),
    }
    times = least_times(calls, 12, seconds=0.005)
    return times["ours"] / times["torch"]


def gradients(_build, _target):
    for rows, n in SHAPES[:2]:
        x, g = scores("normal", rows, n), scores("normal", rows, n)[::-1].copy()
        for alpha in (0.8, 1.2, 1.3, 1.7, 3):
            show(f"entmax {alpha}: gradient, {rows} x {n}", "the forward", gradient_of_entmax(x, g, alpha), 1.2, 0.8)
        show(f"softmax_vjp, {rows} x {n}", "torch's backward kernel", gradient_of_softmax(x, g), 0.9, 0.7)


def others(_build, _target):
    x = np.random.default_rng(0).standard_normal((64, 1024), dtype=np.float32)
    t, out = torch.from_numpy(x), np.empty_like(x)
    np.testing.assert_allclose(isentropic.softmax(x), torch.softmax(t, -1).numpy(), atol=1e-6)
    torch_out = torch.empty_like(t)
    calls = {"ours": lambda: isentropic.softmax(x, out=out), "torch": lambda: torch.softmax(t, -1, out=torch_out)}
    times = least_times(calls, 20, seconds=0.005)
    show("softmax, 64 x 1024, from Python", "torch.softmax", times["ours"] / times["torch"], 0.5, 0.4)

    y = np.random.default_rng(0).standard_normal((128, 32000), dtype=np.float32)
    s, wide = torch.from_numpy(y), np.empty_like(y)
    for name, ours, theirs, must in (
        ("1.5", lambda: isentropic.entmax(y, out=wide), lambda: entmax.entmax15(s), 100),
        ("1.3", lambda: isentropic.entmax(y, alpha=1.3, out=wide), lambda: entmax.entmax_bisect(s, alpha=1.3), 300),
    ):
        np.testing.assert_allclose(ours(), theirs().numpy(), atol=1e-5)
        times_as_fast(f"entmax {name}, 128 x 32000", "the entmax package", ours, theirs, must, rounds=3)

    z = np.random.default_rng(3).standard_normal((256, 1024), dtype=np.float32)
    into, distance = np.empty_like(z), -z + z.max(1, keepdims=True)
    times_as_fast(
        "entropy_normalize, 256 x 1024, 4 nats",
        "scikit-learn's _binary_search_perplexity",
        lambda: isentropic.entropy_normalize(z, entropy=4, out=into),
        lambda: sklearn_manifold._binary_search_perplexity(distance, np.exp(4), 0),
        30,
        100,
    )

    row, rng = np.random.default_rng(1).standard_normal(1000, dtype=np.float32), np.random.default_rng(2)
    calls = {
        "ours": lambda: isentropic.perturb_max(row, noise="normal"),
        "drawn": lambda: python_maps.monte_carlo(row, 10000, rng),
    }
    times = least_times(calls, 5)
    show("perturb_max, normal, n = 1000", "microseconds a row", times["ours"] * 1e6, 60, 30)
    show("perturb_max, normal, n = 1000", "10^6 draws in NumPy", 100 * times["drawn"] / times["ours"], 100, None, faster=True)


def measures(_build, _target):
    rng = np.random.default_rng(0)
    for rows, n, must, aim in ((1000, 1000, 6, 10), (100000, 10, 4, 6)):
        p, q = (x / x.sum(axis=1, keepdims=True) for x in rng.random((2, rows, n)))
        for name, ours, theirs, arrays in (
            ("entropy", isentropic.entropy, scipy.stats.entropy, (p,)),
            ("kl_divergence", isentropic.kl_divergence, scipy.stats.entropy, (p, q)),
            ("js_distance", isentropic.js_distance, scipy.spatial.distance.jensenshannon, (p, q)),
        ):
            np.testing.assert_allclose(ours(*arrays), theirs(*arrays, axis=1), rtol=1e-9)
            times_as_fast(
                f"{name}, {rows} x {n}, float64",
                "SciPy",
                lambda ours=ours, arrays=arrays: ours(*arrays),
                lambda theirs=theirs, arrays=arrays: theirs(*arrays, axis=1),
                must,
                aim,
            )


def threads(_build, _target):
    for rows, n, must, aim in ((256, 1024, 0.56, 0.52), (1, 10**6, 0.6, 0.52), (1, 10**8, 0.6, 0.52)):
        x = np.random.default_rng(0).standard_normal((rows, n), dtype=np.float32)
        out = np.empty_like(x)

        def run(count, x=x, out=out):
            isentropic.set_num_threads(count)
            isentropic.softmax(x, out=out)

        calls = {count: lambda count=count: run(count) for count in (1, 2)}
        times = least_times(calls, 40 if n < 10**8 else 4, clock=time.perf_counter, seconds=0.002)
        isentropic.set_num_threads(1)
        show(f"softmax, {rows} x {n}, on two threads", "on one", times[2] / times[1], must, aim)


LARGE = """
import resource, numpy as np, isentropic
rng, n = np.random.default_rng(0), 20000
x, y = rng.random((2, n, 2))
cost = np.subtract.outer(x[:, 0], y[:, 0]) ** 2
cost += np.subtract.outer(x[:, 1], y[:, 1]) ** 2
a = np.full(n, 1 / n)
found = isentropic.optimal_transport(a, a, cost)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / (n * n * 8))
"""


def transport(_build, _target):
    u, v = np.random.default_rng(0).normal(size=(2, 10**6))
    times_as_fast(
        "wasserstein_1d, 10^6 samples, float64",
        "SciPy",
        lambda: isentropic.wasserstein_1d(u, v),
        lambda: scipy.stats.wasserstein_distance(u, v),
        4,
        rounds=3,
    )
    for kind, n, m, must, aim in (
        ("uniform", 1000, 1000, 0.3, 0.2),
        ("uniform", 2000, 2000, 0.3, 0.2),
        ("uniform", 5000, 5000, 0.3, 0.2),
        ("uniform", 5000, 3, 0.8, 0.3),
        ("uniform", 1, 5000, 0.8, 0.3),
        ("(i + j)^2", 1000, 1000, 1, 0.5),
        ("i j", 2000, 2000, 1, 0.5),
    ):
        a, b, cost = python_transport.problem(kind, kind == "uniform", n, m)
        rounds = 1 if n == m == 5000 else 3 if n == m else 15
        own, other, ours, (_, log) = python_transport.interleaved(
            rounds,
            lambda a=a, b=b, cost=cost: isentropic.optimal_transport(a, b, cost),
            lambda a=a, b=b, cost=cost: ot.emd(a, b, cost, numItermax=10**9, log=True),
        )
        assert abs(ours.cost - log["cost"]) <= 1e-9 * log["cost"]
        show(
            f"optimal_transport, {n} x {m}{'' if kind == 'uniform' else ', costs ' + kind}",
            "POT's ot.emd",
            own / other,
            must,
            aim,
        )
    x, y = np.random.default_rng(0).random((2, 5000, 2))
    own, other, *_ = python_transport.interleaved(
        1,
        lambda: isentropic.wasserstein(x, y),
        lambda: ot.emd2_lazy(x, y, metric="euclidean", return_matrix=False, numItermax=10**9),
    )
    show("wasserstein, 5000 points, no matrix", "POT's ot.emd2_lazy", own / other, 1, None)
    if "--large" in sys.argv:
        done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
        show("optimal_transport, 20000 x 20000: memory", "8 n^2 bytes", float(done.stdout), 3, None)


def attention(_build, _target):
    for n, must, aim in ((1024, 0.85, 0.7), (4096, 0.65, 0.5)):
        calls = python_attention.calls_for(n, False)
        names = ("torch", "softmax", "entmax 1.5") if n == 1024 else ("torch", "softmax")
        times = median_times({name: calls[name] for name in names}, 5 if n == 1024 else 2)
        show(f"attention, softmax, 1 x 8 x {n} x 64", "torch's SDPA", times["softmax"] / times["torch"], must, aim)
        if n == 1024:
            show("attention, entmax 1.5", "our softmax attention", times["entmax 1.5"] / times["softmax"], 1.3, 1.0)


def command_line(build, target):
    """On two threads, elapsed time, the least of three."""
    program = f"{build}/cli/isentropic"
    with tempfile.TemporaryDirectory() as folder:
        table, big, out = (Path(folder) / name for name in ("big.csv", "big.npy", "out"))
        x = np.random.default_rng(0).standard_normal((1000, 32000), dtype=np.float32)
        np.savetxt(table, x[:, :2000], fmt="%.7g", delimiter=",")
        np.save(big, x)

        def run(*arguments):
            simd = ("--simd", target) if target else ()
            subprocess.run([program, *map(str, arguments), *simd], check=True, capture_output=True)

        calls = {
            "read": lambda: run("entropy", table, "--input", "scores", "-o", f"{out}.csv"),
            "softmax": lambda: run("softmax", table, "-o", f"{out}.csv"),
            "compare": lambda: run("compare", big, "-o", f"{out}.html"),
        }
        times = least_times(calls, 3, clock=time.perf_counter, seconds=0)
        show("softmax big.csv -o out.csv", "reading it: its entropies", times["softmax"] / times["read"], 1.5, 1.2)
        show("compare of 1000 x 32000 to HTML", "seconds", times["compare"], 3, 1)


MEMORY = """
import numpy as np, isentropic
x = np.random.default_rng(0).standard_normal((256, 131072), dtype=np.float32)
out = np.zeros_like(x)
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
isentropic.set_num_threads(1)
isentropic.softmax(x[:1], out=out[:1])
before = peak()
isentropic.entmax(x, alpha=1.3, out=out), isentropic.entropy_normalize(x, entropy=2, out=out)
print(f"{peak() - before:.1f} MiB")
"""


def memory(_build, _target):
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    show("peak memory, 256 x 131072 (128 MiB)", "beyond inputs and outputs", done.stdout.strip(), "O(threads n)", None)


def softmax_in_onnxruntime(shape):
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"], axis=-1)], "softmax", [x], [y])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda x: session.run(None, {"x": x})[0]


def entropy_by_chunks(logits, rows=128):
    """As trainers of language models compute it, without the softmax of all rows in memory."""
    parts = []
    for chunk in logits.split(rows):
        log_p = torch.log_softmax(chunk, -1)
        parts.append(-(log_p.exp() * log_p).sum(-1))
    return torch.cat(parts)


def peers(_build, target):
    """What people run today: oneDNN inside torch, compilers, engines. JAX and ONNX Runtime cannot be held to AVX2."""
    for rows, n in SHAPES:
        x = scores("normal", rows, n)
        out, t, array = np.empty_like(x), torch.from_numpy(x), jax.numpy.asarray(x)
        into, blocked = torch.empty_like(t), t.to_mkldnn()
        compiled, jitted = torch.compile(lambda t: torch.softmax(t, -1)), jax.jit(lambda x: jax.nn.softmax(x, -1))
        engine = softmax_in_onnxruntime(x.shape)
        calls = {
            "ours": lambda x=x, out=out: isentropic.softmax(x, out=out),
            "oneDNN 3.12 in torch": lambda t=blocked: t.softmax(-1),
            "torch.softmax": lambda t=t, into=into: torch.softmax(t, -1, out=into),
            "torch.compile": lambda t=t, compiled=compiled: compiled(t),
            "ONNX Runtime": lambda x=x, engine=engine: engine(x),
            "jax.jit": lambda x=array, jitted=jitted: jitted(x).block_until_ready(),
        }
        for name, call in calls.items():
            found = call()
            found = found.to_dense() if name.startswith("oneDNN") else found
            np.testing.assert_allclose(np.asarray(found), scipy.special.softmax(x, -1), atol=1e-6, err_msg=name)
        times = least_times(calls, 20, seconds=0.01)
        for name, must, aim in (
            ("oneDNN 3.12 in torch", 0.7, 0.55),
            ("torch.softmax", 0.55, 0.4),
            ("torch.compile", None, None),
            ("ONNX Runtime", None, None),
            ("jax.jit", None, None),
        ):
            if target is None or name not in ("ONNX Runtime", "jax.jit"):
                show(f"softmax, {rows} x {n}, from Python", name, times["ours"] / times[name], must, aim)

    x = scores("language", 128, 32000)
    t, classes = torch.from_numpy(x).requires_grad_(), torch.arange(128)
    loss = torch.compile(lambda t: torch.nn.functional.cross_entropy(t, classes))
    calls = {
        "ours": lambda: torch.autograd.grad(isentropic.torch.softmax_loss(t, classes).mean(), t),
        "theirs": lambda: torch.autograd.grad(loss(t), t),
    }
    np.testing.assert_allclose(*(call()[0] for call in calls.values()), atol=1e-7)
    times = least_times(calls, 8)
    show("softmax_loss, forward and backward, 128 x 32000", "torch.compile", times["ours"] / times["theirs"], None, None)
    plain, h = t.detach(), torch.compile(lambda t: -(torch.softmax(t, -1) * torch.log_softmax(t, -1)).sum(-1))
    calls = {"ours": lambda: isentropic.torch.entropy(plain, input="scores"), "theirs": lambda: h(plain)}
    np.testing.assert_allclose(*(call() for call in calls.values()), rtol=1e-4)
    times = least_times(calls, 8)
    show("entropy of scores, 128 x 32000", "torch.compile", times["ours"] / times["theirs"], None, None)

    t = torch.from_numpy(scores("language", 256, 151936))
    calls = {"ours": lambda: isentropic.torch.entropy(t, input="scores"), "theirs": lambda: entropy_by_chunks(t)}
    np.testing.assert_allclose(*(call() for call in calls.values()), rtol=1e-4)
    times = least_times(calls, 2, seconds=0)
    show("entropy of scores, 256 x 151936", "torch, 128 rows at a time", times["ours"] / times["theirs"], None, None)

    a, b, cost = python_transport.problem("uniform", True, 1000, 1000)
    near = cost * (1 + 1e-3 * np.random.default_rng(5).standard_normal(cost.shape))
    _, log = ot.emd(a, b, cost, numItermax=10**9, log=True)
    duals = (log["u"], log["v"])
    calls = {
        "ours": lambda: isentropic.optimal_transport(a, b, near),
        "theirs": lambda: ot.emd(a, b, near, numItermax=10**9, potentials_init=duals),
    }
    times = least_times(calls, 3)
    show(
        "optimal_transport, 1000 x 1000", "POT from the duals of costs 0.1 % away", times["ours"] / times["theirs"], None, None
    )


GROUPS = {
    f.__name__: f
    for f in (in_cpp, maps, gradients, others, measures, threads, transport, attention, peers, command_line, memory)
}


def main(build, *rest):
    names = [name for name in rest if name in GROUPS]
    target = next((name for name in rest if name not in GROUPS and name != "--large"), None)
    if target:
        isentropic.force_simd_target(target)
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    print("| operation | against | measured | must | aim |\n|---|---|---|---|---|")
    for name in names or GROUPS:
        GROUPS[name](build, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
