"""Times attention beside torch's scaled_dot_product_attention: one thread each, medians of interleaved repetitions, results
compared first; peak memory of each in a process of its own; and where linear attention overtakes.

python bench/python_attention.py            the tables (needs torch)
python bench/python_attention.py masks      masks that hide many keys, and sinks
python bench/python_attention.py crossover  times over lengths; scripts/figures draws them from bench/RESULTS.md
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from timing import median_times

import isentropic

HEADS, WIDTH = 8, 64
sdpa = torch.nn.functional.scaled_dot_product_attention


def problem(n, heads=HEADS):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, heads, n, WIDTH, generator=generator) for _ in range(3)]


def calls_for(n, causal):
    q, k, v = problem(n)
    arrays = [x.numpy() for x in (q, k, v)]
    return {
        "torch": lambda: sdpa(q, k, v, is_causal=causal),
        "softmax": lambda: isentropic.attention(*arrays, causal=causal),
        "entmax 1.5": lambda: isentropic.attention(*arrays, causal=causal, map="entmax"),
        "sparsemax": lambda: isentropic.attention(*arrays, causal=causal, map="sparsemax"),
        "entropy_normalize": lambda: isentropic.attention(*arrays, causal=causal, map="entropy_normalize", entropy=3.0),
        "linear": lambda: isentropic.linear_attention(*arrays, causal=causal),
    }


def backward_calls(n, causal):
    q, k, v = (x.requires_grad_() for x in problem(n))
    grad = torch.ones(1, HEADS, n, WIDTH)
    out = sdpa(q, k, v, is_causal=causal)
    arrays = [x.detach().numpy() for x in (q, k, v, grad)]
    return {
        "torch": lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True),
        "softmax": lambda: isentropic.attention_vjp(*arrays, causal=causal),
        "entmax 1.5": lambda: isentropic.attention_vjp(*arrays, causal=causal, map="entmax"),
        "linear": lambda: isentropic.linear_attention_vjp(*arrays, causal=causal),
    }


def check(n, causal):
    calls = calls_for(n, causal)
    np.testing.assert_allclose(calls["softmax"](), calls["torch"]().numpy(), atol=5e-6)
    q, k, v = (x.double().numpy()[:, :1] for x in problem(n))
    want = isentropic.attention(q, k, v, map="taylor_softmax", causal=causal)
    np.testing.assert_allclose(calls["linear"]()[:, :1], want, atol=2e-5)
    want = isentropic.attention(q, k, v, map="entmax", causal=causal)
    np.testing.assert_allclose(calls["entmax 1.5"]()[:, :1], want, atol=1e-5)
    for ours, theirs in zip(backward_calls(n, causal)["softmax"](), backward_calls(n, causal)["torch"](), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-4)


def table(title, make, repeats):
    names = list(make(64, False))
    print(f"\n| {title} | torch, ms | " + " | ".join(names[1:]) + " |")
    print("|---|---|" + "---|" * (len(names) - 1))
    for n in (1024, 4096):
        for causal in (False, True):
            times = median_times(make(n, causal), repeats)
            ratios = " | ".join(f"{times[name] / times['torch']:.2f}" for name in names[1:])
            print(f"| {n}{', causal' if causal else ''} | {times['torch'] * 1e3:.1f} | {ratios} |", flush=True)


def peak(which, n):
    """MiB that one call adds to the largest size of a fresh process."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import python_attention as bench
bench.torch.set_num_threads(1); bench.isentropic.set_num_threads(1)
bench.calls_for(64, False)[{which!r}]()
call = bench.calls_for({n}, False)[{which!r}]
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = peak()
out = call()
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def memory():
    print("\n| peak above the inputs, MiB | torch | softmax | entmax 1.5 | linear | the result | all scores |")
    print("|---|---|---|---|---|---|---|")
    for n in (4096, 16384):
        values = [f"{peak(which, n):.1f}" for which in ("torch", "softmax", "entmax 1.5", "linear")]
        result, scores = HEADS * n * WIDTH * 4 / 2**20, HEADS * n * n * 4 / 2**20
        print(f"| {n} keys | {' | '.join(values)} | {result:.1f} | {scores:.0f} |", flush=True)


def masks():
    """Forward and gradient, with masks of bools, a window, sinks and caps."""
    print("| ms, forward and gradient | torch | softmax | entmax 1.5 | sparsemax, peaked |\n|---|---|---|---|---|")
    for n in (1024, 4096):
        (q, k, v), i = problem(n), np.arange(n)
        before = i <= i[:, None]
        cases = {
            "all keys": {},
            "all keys, sinks and a cap": {"sinks": np.zeros(HEADS), "softcap": 30.0},
            "causal, by a mask": {"mask": before},
            "window of 256, by a mask": {"mask": before & (i > i[:, None] - 256)},
        }
        for case, given in cases.items():
            calls, grad = {}, torch.ones(1, HEADS, n, WIDTH)
            if "sinks" not in given:
                mask = torch.from_numpy(given["mask"]) if given else None
                moving = [x.clone().requires_grad_() for x in (q, k, v)]
                out = sdpa(*moving, attn_mask=mask)
                calls["torch"] = lambda mask=mask, q=q, k=k, v=v: sdpa(q, k, v, attn_mask=mask)
                calls["torch, gradient"] = lambda out=out, moving=moving, grad=grad: torch.autograd.grad(
                    out, moving, grad, retain_graph=True
                )
            for name, map, factor in (("softmax", "softmax", 1), ("entmax 1.5", "entmax", 1), ("peaked", "sparsemax", 8)):
                arrays = [(factor * q).numpy(), k.numpy(), v.numpy()]
                calls[name] = lambda arrays=arrays, map=map, given=given: isentropic.attention(*arrays, map=map, **given)
                calls[f"{name}, gradient"] = lambda arrays=arrays, map=map, given=given, grad=grad: isentropic.attention_vjp(
                    *arrays, grad.numpy(), map=map, **given
                )
            times = median_times(calls, 5)
            cells = [
                f"{times[name] * 1e3:.0f}, {times[name + ', gradient'] * 1e3:.0f}" if name in times else ""
                for name in ("torch", "softmax", "entmax 1.5", "peaked")
            ]
            print(f"| {n}, {case} | " + " | ".join(cells) + " |", flush=True)


def crossover():
    lengths = [512, 1024, 1448, 2048, 2896, 4096, 5792, 8192, 11585]
    print("| us a query | " + " | ".join(map(str, lengths)) + " |\n|---|" + "---|" * len(lengths))
    for causal in (False, True):
        curves = {}
        for n in lengths:
            q, k, v = problem(n, 1)
            arrays = [x.numpy() for x in (q, k, v)]
            calls = {
                "torch, softmax": lambda q=q, k=k, v=v, causal=causal: sdpa(q, k, v, is_causal=causal),
                "softmax": lambda arrays=arrays, causal=causal: isentropic.attention(*arrays, causal=causal),
                "linear": lambda arrays=arrays, causal=causal: isentropic.linear_attention(*arrays, causal=causal),
            }
            for name, seconds in median_times(calls, 5).items():
                curves.setdefault(name, []).append(seconds / n * 1e6)
        for name, values in curves.items():
            print(f"| {name}{', causal' if causal else ''} | " + " | ".join(f"{x:.2f}" for x in values) + " |", flush=True)


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    if sys.argv[1:] in (["crossover"], ["masks"]):
        return crossover() if sys.argv[1] == "crossover" else masks()
    print(f"torch {torch.__version__}, {HEADS} heads of {WIDTH}, {isentropic.simd_target()}")
    for causal in (False, True):
        check(1024, causal)
    table("forward, keys", calls_for, 7)
    table("gradient, keys", backward_calls, 5)
    memory()


if __name__ == "__main__":
    main()
