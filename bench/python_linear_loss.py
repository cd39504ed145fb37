"""linear_loss beside torch's linear and cross_entropy: processor time and peak memory of one forward and backward pass.

python bench/python_linear_loss.py [rows features classes]; each case is a process of its own, on one thread.
"""

import resource
import subprocess
import sys
import time


def run(case, rows, features, classes):
    import torch

    import isentropic
    import isentropic.torch as et

    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    hidden, weight = (torch.randn(n, features).div_(features**0.5).requires_grad_() for n in (rows, classes))
    target = torch.randint(0, classes, (rows,))
    losses = {
        "torch": lambda: torch.nn.functional.cross_entropy(torch.nn.functional.linear(hidden, weight), target),
        "linear_loss": lambda: et.linear_loss(hidden, weight, target),
        "linear_loss sparsemax": lambda: et.linear_loss(hidden, weight, target, loss="sparsemax_loss"),
    }
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    value = losses[case]()
    value.backward()
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{case:24} {seconds:8.2f} s {(peak - base) / 1024:8.0f} MiB above the inputs, loss {value.item():.6f}")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        run(sys.argv[4], *map(int, sys.argv[1:4]))
    else:
        sizes = sys.argv[1:] or ["4096", "1024", "32000"]
        print(" x ".join(sizes))
        for case in ("torch", "linear_loss", "linear_loss sparsemax"):
            subprocess.run([sys.executable, __file__, *sizes, case], check=True)
