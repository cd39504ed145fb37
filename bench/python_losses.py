"""Losses with their gradients beside torch's cross_entropy and the entmax package: python bench/python_losses.py

Needs torch and `pip install --no-deps entmax==1.3`. float32, one thread and its processor time; all times of a table come
from one run, each round in turn, medians. Results are compared first.
"""

import statistics
import time

import entmax
import torch

import entropic
import entropic.torch as et


def median_times(calls, rounds):
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.thread_time()
            call()
            times[name].append(time.thread_time() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def forward_and_backward(loss, x):
    x = x.clone().requires_grad_()
    return lambda: torch.autograd.grad(loss(x).sum(), x)[0]


def calls_of(x, target):
    """By name, each of theirs before ours, whose gradient is the same."""
    of_package = {
        "SparsemaxLoss": entmax.SparsemaxLoss(reduction="none"),
        "Entmax15Loss": entmax.Entmax15Loss(k=None, reduction="none"),
        "Entmax15Loss, k=100": entmax.Entmax15Loss(reduction="none"),
        "EntmaxBisectLoss, 1.3": entmax.EntmaxBisectLoss(1.3, reduction="none"),
    }
    losses = {
        "torch cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, target, reduction="none"),
        "softmax_loss": lambda x: et.softmax_loss(x, target),
        "entmax SparsemaxLoss": lambda x: of_package["SparsemaxLoss"](x, target),
        "sparsemax_loss": lambda x: et.sparsemax_loss(x, target),
        "entmax Entmax15Loss": lambda x: of_package["Entmax15Loss"](x, target),
        "entmax_loss, 1.5": lambda x: et.entmax_loss(x, target),
        "entmax Entmax15Loss, k=100": lambda x: of_package["Entmax15Loss, k=100"](x, target),
        "entmax_loss, 1.5 again": lambda x: et.entmax_loss(x, target),
        "entmax EntmaxBisectLoss, 1.3": lambda x: of_package["EntmaxBisectLoss, 1.3"](x, target),
        "entmax_loss, 1.3": lambda x: et.entmax_loss(x, target, alpha=1.3),
    }
    calls = {name: forward_and_backward(loss, x) for name, loss in losses.items()}
    names = list(calls)
    for theirs, ours in zip(names[::2], names[1::2], strict=True):
        torch.testing.assert_close(calls[ours](), calls[theirs](), atol=2e-4, rtol=1e-3)
    scores, classes = x.numpy(), target.numpy()
    calls["softmax_loss of entropic, return_grad"] = lambda: entropic.softmax_loss(scores, classes, return_grad=True)
    calls["softmax of entropic"] = lambda: entropic.softmax(scores)
    return calls


def main():
    torch.set_num_threads(1)
    entropic.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print("| rows x n | call, forward and backward | ms | of torch's cross_entropy |")
    print("|---|---|---|---|")
    for shape, rounds in (((1024, 512), 9), ((128, 32000), 5), ((4, 131072), 9)):
        x, target = torch.randn(shape, generator=generator), torch.randint(0, shape[1], shape[:1], generator=generator)
        times = median_times(calls_of(x, target), rounds)
        for name, seconds in times.items():
            ratio = seconds / times["torch cross_entropy"]
            print(f"| {shape[0]} x {shape[1]} | {name} | {seconds * 1e3:.4g} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
