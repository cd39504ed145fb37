"""linear_loss and linear_token_statistics beside torch: processor time and peak memory of one forward and backward pass.

python bench/python_linear_loss.py [rows features classes]; each case is a process of its own, on one thread.
"""

import resource
import subprocess
import sys
import time


def of_statistics(found):
    return (-found.logprob - 0.01 * found.entropy).mean()


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
        "linear_loss of each row": lambda: et.linear_loss(hidden, weight, target, reduction="none").mean(),
        "linear_token_statistics": lambda: of_statistics(et.linear_token_statistics(hidden, weight, target)),
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
        cases = ["torch", "linear_loss", "linear_loss sparsemax", "linear_loss of each row", "linear_token_statistics"]
        for case in cases:
            subprocess.run([sys.executable, __file__, *sizes, case], check=True)
