"""The recipes of docs/howto/training_recipes.md beside the usual way in torch: a step forward and backward on one thread, its
processor time and its peak memory above the inputs.

python bench/python_recipes.py [rows features classes]; each case is a process of its own.
"""

import resource
import statistics
import subprocess
import sys
import time

RECIPES = "distillation", "GRPO", "router", "smoothing"


def steps(recipe, rows, features, classes):
    """(ours, the usual way): functions that give a loss, and what they are differentiated in."""
    import torch

    import isentropic.torch as et

    functional = torch.nn.functional
    hidden, weight = (torch.randn(n, features).div_(features**0.5).requires_grad_() for n in (rows, classes))
    target = torch.randint(0, classes, (rows,))
    moving = hidden, weight

    if recipe == "distillation":
        step = classes // 32
        indices = torch.arange(32) * step + torch.randint(0, step, (rows, 32))
        log_probs = (3 * torch.randn(rows, 33)).log_softmax(-1)[:, :32]
        stored = indices, log_probs

        def ours():
            return et.linear_loss(hidden, weight, stored, loss="sparse_distillation_loss")

        def usual():
            log_q = functional.linear(hidden, weight).log_softmax(-1)
            listed, p = log_q.gather(-1, indices), log_probs.exp()
            tail_p, tail_q = 1 - p.sum(-1), 1 - listed.exp().sum(-1)
            return ((p * (log_probs - listed)).sum(-1) + tail_p * (tail_p.log() - tail_q.log())).mean()

    elif recipe == "GRPO":
        old, advantage = -9 + torch.randn(rows), torch.randn(rows)

        def gain(logprob, entropy):
            ratio = (logprob - old).exp()
            return -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean() - 0.01 * entropy.mean()

        def ours():
            found = et.linear_token_statistics(hidden, weight, target)
            return gain(found.logprob, found.entropy)

        def usual():
            log_p = functional.linear(hidden, weight).log_softmax(-1)
            return gain(log_p.gather(-1, target[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1))

    elif recipe == "router":
        scores = torch.randn(rows, 64, requires_grad=True)
        g, moving = torch.randn(rows, 64), (scores,)

        def ours():
            return (et.top_k_softmax(scores, k=8) * g).sum() + 1e-3 * et.logsumexp(scores).square().mean()

        def usual():
            best = scores.topk(8)
            weights = torch.zeros_like(scores).scatter(-1, best.indices, best.values.softmax(-1))
            return (weights * g).sum() + 1e-3 * scores.logsumexp(-1).square().mean()

    else:

        def ours():
            return et.linear_loss(hidden, weight, target, label_smoothing=0.1, z_loss=1e-4)

        def usual():
            logits = functional.linear(hidden, weight)
            z_loss = 1e-4 * logits.logsumexp(-1).square().mean()
            return functional.cross_entropy(logits, target, label_smoothing=0.1) + z_loss

    return (ours, usual), moving


def run(recipe, which, rows, features, classes):
    import torch

    import isentropic

    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    torch.manual_seed(0)
    functions, moving = steps(recipe, rows, features, classes)
    values = [float(function().detach()) for function in functions] if which == "check" else []
    if values:
        assert abs(values[0] - values[1]) < 1e-4 * (1 + abs(values[1])), values
        return
    step = functions[which == "usual"]
    base, spent = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(5):
        begin = time.process_time()
        torch.autograd.grad(step(), moving)
        spent.append(time.process_time() - begin)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024
    print(f"{recipe:14}{which:8}{1e3 * statistics.median(spent):9.1f} ms {max(peak, 0):7.0f} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 4:
        run(*sys.argv[4:6], *map(int, sys.argv[1:4]))
    else:
        sizes = sys.argv[1:] or ["1024", "512", "32000"]
        print(" x ".join(sizes))
        for recipe in RECIPES:
            for which in ("check", "ours", "usual"):
                subprocess.run([sys.executable, __file__, *sizes, recipe, which], check=True)
