"""torch's own samples of softmax, log_softmax, logsumexp, cross_entropy and scaled_dot_product_attention (the OpInfos that its
tests are made of), given to the library's functions: values, gradients, second gradients and forward mode.
"""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import isentropic.torch as et

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def softmax(x, dim, dtype=None):
    return et.softmax(x if dtype is None else x.to(dtype), dim=dim)


def log_softmax(x, dim, dtype=None):
    return et.log_softmax(x if dtype is None else x.to(dtype), dim=dim)


def logsumexp(x, dim, keepdim=False):
    return et.logsumexp(x, dim=dim, keepdim=keepdim)


def cross_entropy(x, target, *, reduction="mean", ignore_index=-100, label_smoothing=0.0, weight=None):
    dim = 0 if x.dim() == 1 else 1
    module = et.SoftmaxLoss(weight, reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing, dim=dim)
    return module(x, target)


OPERATIONS = {
    "softmax": softmax,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "nn.functional.cross_entropy": cross_entropy,
    "nn.functional.scaled_dot_product_attention": et.scaled_dot_product_attention,
}


def there(name, sample):
    """Whether the library has it: one axis, targets that are classes, and no weights of these beside smoothing."""
    x, dim = sample.input, sample.kwargs.get("dim", sample.args[0] if sample.args else None)
    if name in ("softmax", "log_softmax", "logsumexp"):
        return isinstance(dim, int) and x.dim() > 0 and sample.kwargs.get("dtype") in (None, *DTYPES)
    if name == "nn.functional.cross_entropy":
        weight, target = sample.kwargs.get("weight"), sample.args[0]
        return not target.is_floating_point() and (weight is None or not sample.kwargs.get("label_smoothing"))
    return True


def samples(name, dtype, gradient=False):
    for info in op_db:
        if info.name == name and dtype in info.supported_dtypes("cpu"):
            yield from (
                (info, sample) for sample in info.sample_inputs("cpu", dtype, requires_grad=gradient) if there(name, sample)
            )


CASES = [
    pytest.param(name, dtype, k, id=f"{name}-{str(dtype).removeprefix('torch.')}-{k}")
    for name in OPERATIONS
    for dtype in DTYPES
    for k, _ in enumerate(samples(name, dtype))
]
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 6e-2}


def run(function, sample):
    torch.manual_seed(42)  # of dropout, as torch has it
    return function(sample.input, *sample.args, **sample.kwargs)


def test_there_are_some():
    assert len(CASES) > 200, len(CASES)


@pytest.mark.parametrize(("name", "dtype", "k"), CASES)
def test_values(name, dtype, k):
    info, sample = list(samples(name, dtype))[k]
    got, want = run(OPERATIONS[name], sample), run(info.op, sample)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(got.to(want.dtype), want, atol=tolerance, rtol=tolerance, equal_nan=True)


@pytest.fixture(autouse=True)
def twice_differentiable():
    """Of torch's ways to attend the one that has second derivatives."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield


@pytest.mark.parametrize(("name", "dtype", "k"), [case for case in CASES if case.values[1] is torch.float64])
def test_derivatives(name, dtype, k):
    info, sample = list(samples(name, dtype, gradient=True))[k]
    given = [sample.input, *sample.args]
    moving = [i for i, x in enumerate(given) if isinstance(x, torch.Tensor) and x.requires_grad and x.is_floating_point()]

    def of(function):
        def moved(*some):
            now = list(given)
            for i, x in zip(moving, some, strict=True):
                now[i] = x
            torch.manual_seed(42)
            return function(*now, **sample.kwargs)

        return moved

    ours, inputs = of(OPERATIONS[name]), [given[i].detach().requires_grad_() for i in moving]
    out = of(info.op)(*inputs)
    if out.numel() == 0 or not out.isfinite().all():
        return
    g = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    firsts = [torch.autograd.grad(function(*inputs), inputs, g, create_graph=True) for function in (ours, of(info.op))]
    for a, b in zip(*firsts, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)
    squares = [sum((d * d).sum() for d in first) for first in firsts]
    seconds = [torch.autograd.grad(one, inputs, allow_unused=True, materialize_grads=True) for one in squares]
    for a, b in zip(*seconds, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-7)
    if not sample.kwargs.get("dropout_p"):
        tangents = tuple(torch.ones_like(x) for x in inputs)
        got = torch.func.jvp(ours, tuple(x.detach() for x in inputs), tangents)[1]
        want = torch.func.vjp(lambda g: torch.func.vjp(of(info.op), *inputs)[1](g), torch.zeros_like(out))[1](tangents)[0]
        torch.testing.assert_close(got, want, atol=1e-8, rtol=1e-8)
