"""Times isentropic.torch, forward and backward, beside torch and the entmax package: one thread each, medians of interleaved
repetitions. Every result and gradient is compared before it is timed.

python bench/python_torch.py   (needs torch and the entmax package)
"""

import entmax
import torch
from timing import median_times

import isentropic
import isentropic.torch

SHAPES = [(1024, 512), (15360, 30), (128, 32000)]
PAIRS = {
    "softmax": (isentropic.torch.softmax, lambda x: torch.softmax(x, -1)),
    "sparsemax": (isentropic.torch.sparsemax, lambda x: entmax.sparsemax(x, -1)),
    "entmax 1.5": (isentropic.torch.entmax, lambda x: entmax.entmax15(x, -1)),
    "entmax 1.3": (lambda x: isentropic.torch.entmax(x, alpha=1.3), lambda x: entmax.entmax_bisect(x, alpha=1.3, dim=-1)),
}


def forward(function, x):
    return lambda: function(x)


def backward(function, x, grad):
    """The gradient alone, by a graph that is kept."""
    x = x.clone().requires_grad_()
    y = function(x)
    return lambda: torch.autograd.grad(y, x, grad, retain_graph=True)[0]


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print("| rows x n | operation | forward: theirs | ours | ratio | backward: theirs | ours | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        x, grad = (torch.randn(shape, generator=generator) for _ in range(2))
        for name, functions in PAIRS.items():
            calls = {}
            for who, function in zip(("ours", "theirs"), functions, strict=True):
                calls[who + " forward"], calls[who + " backward"] = forward(function, x), backward(function, x, grad)
            for what in ("forward", "backward"):
                torch.testing.assert_close(calls["ours " + what](), calls["theirs " + what](), atol=2e-4, rtol=1e-3)
            times = median_times(calls, 5)
            cells = []
            for what in ("forward", "backward"):
                ours, theirs = times["ours " + what], times["theirs " + what]
                cells += [f"{theirs * 1e3:.4g} ms", f"{ours * 1e3:.4g} ms", f"{ours / theirs:.3f}"]
            print(f"| {shape[0]} x {shape[1]} | {name} | {' | '.join(cells)} |", flush=True)

    print("\n| one row of 16 | us | of torch.softmax doing the same |\n|---|---|---|")
    x = torch.randn(1, 16, generator=generator)
    tracked, grad = x.clone().requires_grad_(), torch.randn(1, 16, generator=generator)
    rows = torch.full((1, 1), 1.5)
    array = x.numpy()
    operator = torch.ops.isentropic.softmax.default
    calls = {
        "torch.softmax": lambda: torch.softmax(x, -1),
        "softmax, straight to the kernel": lambda: isentropic.torch.softmax(x),
        "entmax, straight to the kernel": lambda: isentropic.torch.entmax(x),
        "torch.ops.isentropic.softmax": lambda: operator(x, 1.0, 1),
        "softmax of isentropic, given NumPy": lambda: isentropic.softmax(array),
        "entmax, alpha a tensor": lambda: isentropic.torch.entmax(x, alpha=rows),
        "torch.softmax, forward with gradient": lambda: torch.softmax(tracked, -1),
        "softmax, forward with gradient": lambda: isentropic.torch.softmax(tracked),
        "torch.softmax, forward and backward": lambda: torch.autograd.grad(torch.softmax(tracked, -1), tracked, grad),
        "softmax, forward and backward": lambda: torch.autograd.grad(isentropic.torch.softmax(tracked), tracked, grad),
    }
    times = median_times(calls, 15)
    for name, seconds in times.items():
        kind = name.partition(", ")[2] if "gradient" in name or "backward" in name else ""
        base = times["torch.softmax" + (", " + kind if kind else "")]
        print(f"| {name} | {seconds * 1e6:.3g} | {seconds / base:.2f} |")


if __name__ == "__main__":
    main()
