"""Losses with their gradients beside torch's CrossEntropyLoss, the entmax package, and divergences composed in torch: python
bench/python_losses.py

Needs torch and `pip install --no-deps entmax==1.3`. float32, one thread and its processor time; all times of a table come
from one run, each round in turn, medians. Results are compared first.
"""

import math
import time

import entmax
import torch
from timing import median_times

import isentropic
import isentropic.torch as et


def forward_and_backward(loss, x):
    x = x.clone().requires_grad_()
    return lambda: torch.autograd.grad(loss(x), x)[0]


def calls_of(x, target):
    """By name, each of theirs before ours, whose gradient is the same. All are means over the rows."""
    modules = {
        "torch CrossEntropyLoss": torch.nn.CrossEntropyLoss(),
        "SoftmaxLoss": et.SoftmaxLoss(),
        "entmax SparsemaxLoss": entmax.SparsemaxLoss(),
        "SparsemaxLoss": et.SparsemaxLoss(),
        "entmax SparsemaxLoss, k=100": entmax.SparsemaxLoss(k=100),
        "SparsemaxLoss again": et.SparsemaxLoss(),
        "entmax Entmax15Loss, k=None": entmax.Entmax15Loss(k=None),
        "EntmaxLoss, 1.5": et.EntmaxLoss(alpha=1.5),
        "entmax Entmax15Loss": entmax.Entmax15Loss(),
        "EntmaxLoss, 1.5 again": et.EntmaxLoss(alpha=1.5),
        "entmax EntmaxBisectLoss, 1.3": entmax.EntmaxBisectLoss(1.3),
        "EntmaxLoss, 1.3": et.EntmaxLoss(alpha=1.3),
    }
    if x.shape[1] < 100:
        modules = {name: module for name, module in modules.items() if "k=100" not in name and "again" not in name}
        modules.pop("entmax Entmax15Loss")
    calls = {name: forward_and_backward(lambda x, loss=module: loss(x, target), x) for name, module in modules.items()}
    names = list(calls)
    for theirs, ours in zip(names[::2], names[1::2], strict=True):
        torch.testing.assert_close(calls[ours](), calls[theirs](), atol=2e-4, rtol=1e-3)
    scores, classes = x.numpy(), target.numpy()
    calls["softmax_loss of isentropic, return_grad"] = lambda: isentropic.softmax_loss(scores, classes, return_grad=True)
    calls["softmax of isentropic"] = lambda: isentropic.softmax(scores)
    return calls


def divergences(x, teacher):
    """By name, each composed of torch's operations before ours. All are means over the rows."""

    def kl(p, log_q):
        return torch.nn.functional.kl_div(log_q, p, reduction="none", log_target=True).sum(-1).mean()

    def distillation(x):
        return 4 * kl((teacher / 2).log_softmax(-1), (x / 2).log_softmax(-1))

    def jsd(x):
        s, t = x.log_softmax(-1), teacher.log_softmax(-1)
        m = torch.logaddexp(s, t) - math.log(2)
        return (kl(t, m) + kl(s, m)) / 2

    ours, ours_jsd = et.DistillationLoss(temperature=2.0), et.JSDLoss()
    for pair in (
        {"torch's distillation": distillation, "DistillationLoss, T = 2": lambda x: ours(x, teacher)},
        {"torch's Jensen-Shannon": jsd, "JSDLoss": lambda x: ours_jsd(x, teacher)},
    ):
        calls = {name: forward_and_backward(loss, x) for name, loss in pair.items()}
        theirs, own = (call() for call in calls.values())
        torch.testing.assert_close(own, theirs, atol=1e-6, rtol=1e-3)
        yield calls


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print(f"kernels: {isentropic.simd_target()}, torch {torch.__version__}: {torch.backends.cpu.get_cpu_capability()}\n")
    print("| rows x n | call, forward and backward | ms | of torch's CrossEntropyLoss |")
    print("|---|---|---|---|")
    for shape, rounds in (((65536, 10), 9), ((1024, 512), 9), ((128, 32000), 7), ((32, 131072), 7), ((4, 131072), 15)):
        x, target = torch.randn(shape, generator=generator), torch.randint(0, shape[1], shape[:1], generator=generator)
        times = median_times(calls_of(x, target), rounds, clock=time.thread_time, least=0)
        for name, seconds in times.items():
            ratio = seconds / times["torch CrossEntropyLoss"]
            print(f"| {shape[0]} x {shape[1]} | {name} | {seconds * 1e3:.4g} | {ratio:.3f} |", flush=True)
    print("\n| rows x n | divergence, forward and backward | ms | of torch's |\n|---|---|---|---|")
    for shape in ((1024, 512), (128, 32000)):
        x, teacher = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
        for calls in divergences(x, teacher):
            times = median_times(calls, 9, clock=time.thread_time, least=0)
            theirs = next(iter(times.values()))
            for name, seconds in times.items():
                print(f"| {shape[0]} x {shape[1]} | {name} | {seconds * 1e3:.4g} | {seconds / theirs:.3f} |", flush=True)


if __name__ == "__main__":
    main()
