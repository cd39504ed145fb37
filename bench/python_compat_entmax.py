"""Times isentropic.compat.entmax beside the entmax package: forward and backward together, one thread, least of 8 runs.

python bench/python_compat_entmax.py   (needs torch and the entmax package; prints the table of docs/coming_from_entmax.md)
"""

import time

import entmax
import torch
from timing import least_times

import isentropic
from isentropic.compat import entmax as ours

ROWS, CLASSES = 128, 8000
MAPS = ("sparsemax", "entmax15", "entmax_bisect", "normmax_bisect", "budget_bisect")
LOSSES = ("SparsemaxLoss", "Entmax15Loss", "EntmaxBisectLoss", "NormmaxBisectLoss")


def forward_and_backward(function, x):
    leaf = x.clone().requires_grad_()

    def call():
        y = function(leaf)
        return torch.autograd.grad(y, leaf, torch.ones_like(y))

    return call


def milliseconds(theirs, here):
    """The least of 8 rounds, as cells of the table."""
    times = least_times({"theirs": theirs, "here": here}, 8, clock=time.perf_counter, seconds=0)
    return " | ".join(f"{1e3 * seconds:.2g}" for seconds in times.values())


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    x = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    target = torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(1))
    print("| | entmax 1.3 | here |\n|---|---|---|")
    for name in MAPS:
        calls = (forward_and_backward(getattr(package, name), x) for package in (entmax, ours))
        print(f"| `{name}` | {milliseconds(*calls)} |")
    for name in LOSSES:
        losses = (getattr(package, name)() for package in (entmax, ours))
        calls = (forward_and_backward(lambda x, f=f: f(x, target), x) for f in losses)
        print(f"| `{name}` | {milliseconds(*calls)} |")


if __name__ == "__main__":
    main()
