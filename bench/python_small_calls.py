"""Times small calls of isentropic.torch beside torch doing the same: one thread, medians of interleaved repetitions, of
processor time. What a call costs beyond its arithmetic.

python bench/python_small_calls.py   (needs torch)
"""

import sys
import time

import torch
from timing import median_times

import isentropic
import isentropic.torch as et

F = torch.nn.functional


def both(ours, theirs, x, *others):
    """The calls forward without gradient, with it, and forward and backward."""
    tracked = x.clone().requires_grad_()
    grad = torch.randn_like(theirs(x, *others))

    def backward(function):
        y = function(tracked, *others)
        return lambda: torch.autograd.grad(y, tracked, grad, retain_graph=True)

    return {
        "forward": (lambda: ours(x, *others), lambda: theirs(x, *others)),
        "forward with gradient": (lambda: ours(tracked, *others), lambda: theirs(tracked, *others)),
        "forward and backward": (
            lambda: torch.autograd.grad(ours(tracked, *others), tracked, grad),
            lambda: torch.autograd.grad(theirs(tracked, *others), tracked, grad),
        ),
        "backward": (backward(ours), backward(theirs)),
    }


def kl(x, y):
    return F.kl_div(F.log_softmax(y, -1), F.log_softmax(x, -1), log_target=True, reduction="none").sum(-1)


def entropy(x):
    logs = F.log_softmax(x, -1)
    return -(logs.exp() * logs).sum(-1)


def cases(generator):
    def randn(*shape):
        return torch.randn(shape, generator=generator)

    row, target = randn(1, 16), torch.tensor([3])
    loss, their_loss = et.SoftmaxLoss(), torch.nn.CrossEntropyLoss()
    q, k, v = (randn(1, 1, 4, 8) for _ in range(3))
    rows = torch.full((1, 1), 1.3)
    learned = torch.full((), 1.3, requires_grad=True)
    for what, pair in both(et.softmax, lambda x: torch.softmax(x, -1), row).items():
        yield f"softmax 1 x 16, {what}", *pair
    for what, pair in both(loss, their_loss, row, target).items():
        yield f"SoftmaxLoss 1 x 16, {what}", *pair
    for what, pair in both(et.attention, F.scaled_dot_product_attention, q, k, v).items():
        yield f"attention 1 x 1 x 4 x 8, {what}", *pair
    for what, pair in both(lambda x: et.entropy(x, input="scores"), entropy, row).items():
        yield f"entropy of scores 1 x 16, {what}", *pair
    for shape in ((1024, 512), (15360, 30)):
        pairs = both(et.softmax, lambda x: torch.softmax(x, -1), randn(*shape))
        yield f"softmax {shape[0]} x {shape[1]}, backward", *pairs["backward"]
    x, y = randn(64, 1024), randn(64, 1024)
    yield "entropy of scores 64 x 1024, forward", lambda: et.entropy(x, input="scores"), lambda: entropy(x)
    yield "KL of scores 64 x 1024, forward", lambda: et.kl_divergence(x, y, input="scores"), lambda: kl(x, y)
    for what, pair in both(lambda x: et.entropy(x, input="scores"), entropy, x).items():
        if what == "forward and backward":
            yield f"entropy of scores 64 x 1024, {what}", *pair
    big, other = randn(128, 32000), randn(128, 32000)
    for what, pair in both(lambda x, y: et.kl_divergence(x, y, input="scores"), kl, big, other).items():
        if what == "forward and backward":
            yield f"KL of scores 128 x 32000, {what}", *pair
    # The operation with the number instead of the tensor.
    some = randn(64, 1024)
    tracked = row.clone().requires_grad_()
    yield "entmax 1 x 16, alpha a tensor of the number", lambda: et.entmax(row, alpha=rows), lambda: et.entmax(row, alpha=1.3)
    many = torch.full((64, 1), 1.3)
    yield "entmax 64 x 1024, the same", lambda: et.entmax(some, alpha=many), lambda: et.entmax(some, alpha=1.3)
    yield (
        "entmax 1 x 16, alpha learned, forward and backward, of the number's",
        lambda: torch.autograd.grad(et.entmax(tracked, alpha=learned), (tracked, learned), row),
        lambda: torch.autograd.grad(et.entmax(tracked, alpha=1.3), tracked, row),
    )
    wide, grad = some.clone().requires_grad_(), randn(64, 1024)
    yield (
        "entmax 64 x 1024, the same, learned",
        lambda: torch.autograd.grad(et.entmax(wide, alpha=learned), (wide, learned), grad),
        lambda: torch.autograd.grad(et.entmax(wide, alpha=1.3), wide, grad),
    )


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    only = sys.argv[1:]
    print("| call | theirs, us | ours, us | ratio |\n|---|---|---|---|")
    for name, ours, theirs in cases(torch.Generator().manual_seed(0)):
        if only and not any(word in name for word in only):
            continue
        got, want = (found[0] if isinstance(found, tuple) else found for found in (ours(), theirs()))
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-3)
        times = median_times({"ours": ours, "theirs": theirs}, 15, clock=time.process_time)
        of_theirs, of_ours = times["theirs"] * 1e6, times["ours"] * 1e6
        print(f"| {name} | {of_theirs:.3g} | {of_ours:.3g} | {of_ours / of_theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
