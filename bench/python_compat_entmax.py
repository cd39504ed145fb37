"""Times entropic.compat.entmax beside the entmax package: forward and backward together, one thread, least of 7 runs.

python bench/python_compat_entmax.py   (needs torch and the entmax package; prints the table of docs/coming_from_entmax.md)
"""

import time

import entmax
import torch

import entropic
from entropic.compat import entmax as ours

ROWS, CLASSES = 128, 8000
MAPS = ("sparsemax", "entmax15", "entmax_bisect", "normmax_bisect", "budget_bisect")
LOSSES = ("SparsemaxLoss", "Entmax15Loss", "EntmaxBisectLoss", "NormmaxBisectLoss")


def least_time(function, x):
    times = []
    for _ in range(8):
        leaf = x.clone().requires_grad_()
        start = time.perf_counter()
        y = function(leaf)
        y.backward(torch.ones_like(y))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def main():
    torch.set_num_threads(1)
    entropic.set_num_threads(1)
    x = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    target = torch.randint(CLASSES, (ROWS,), generator=torch.Generator().manual_seed(1))
    print("| | entmax 1.3 | here |\n|---|---|---|")
    for name in MAPS:
        print(f"| `{name}` | " + " | ".join(f"{least_time(getattr(m, name), x):.2g}" for m in (entmax, ours)) + " |")
    for name in LOSSES:
        losses = (getattr(m, name)() for m in (entmax, ours))
        print(f"| `{name}` | " + " | ".join(f"{least_time(lambda x, f=f: f(x, target), x):.2g}" for f in losses) + " |")


if __name__ == "__main__":
    main()
