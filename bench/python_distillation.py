"""sparse_distillation_loss of scores of bfloat16 beside the same in float32 of torch: time and peak memory, with the gradient.

python bench/python_distillation.py [rows classes k]; each case is a process of its own, on one thread. The peak is above the
inputs, and has the gradient, which both make, in the scores' type.
"""

import resource
import subprocess
import sys
import time

CASES = "torch in float32", "sparse_distillation_loss"


def by_hand(scores, indices, log_probs):
    """KL of k + 1 bins, as one writes it."""
    import torch

    log_p = torch.log_softmax(scores.float(), -1)
    listed = log_p.gather(-1, indices)
    rest = torch.logsumexp(log_p.scatter(-1, indices, -torch.inf), -1, keepdim=True)
    student = torch.cat([listed, rest], -1)
    left = torch.log1p(-log_probs.exp().sum(-1, keepdim=True).clamp(max=1 - 1e-7))
    teacher = torch.cat([log_probs, left], -1)
    return (teacher.exp() * (teacher - student)).sum(-1)


def run(case, rows, classes, k):
    import torch

    import isentropic
    import isentropic.torch as et

    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    torch.manual_seed(0)
    scores = torch.randn(rows, classes).mul_(2).bfloat16().requires_grad_()
    best = torch.cat([torch.randn(64, classes).mul_(2).log_softmax(-1).topk(k).values for _ in range(0, rows, 64)])[:rows]
    indices = torch.stack([torch.randperm(classes)[:k] for _ in range(rows)])
    loss = by_hand if case == CASES[0] else et.sparse_distillation_loss
    loss(scores[:2], indices[:2], best[:2]).sum().backward()
    times, value = [], None
    scores.grad = None
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        scores.grad = value = None
        begin = time.process_time()
        value = loss(scores, indices, best).mean()
        value.backward()
        times.append(time.process_time() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{case:26} {sorted(times)[1]:7.2f} s {(peak - base) / 1024:7.0f} MiB above the inputs, loss {value.item():.6f}")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        run(sys.argv[4], *map(int, sys.argv[1:4]))
    else:
        sizes = sys.argv[1:] or ["4096", "32000", "64"]
        print(" x ".join(sizes))
        for case in CASES:
            subprocess.run([sys.executable, __file__, *sizes, case], check=True)
