"""gumbel_softmax on tensors: the library's noise, and a gradient through the softmax of it."""

import math

import numpy as np
import torch

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy._sampling import integers, natural, signed
from isentropic.torch._arguments import checked_dim, one_dim, readable, spread
from isentropic.torch._builder import Operator
from isentropic.torch._generated import softmax
from isentropic.torch._spec import OpSpec, Tensor


def _operator(name, result):
    def shapes(x, *_):
        return x.new_empty(x.shape, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)

    params = {"seed": "SymInt", "position": "SymInt", "dim": "int"}
    return Operator(OpSpec(name=name, tensors=("x", "streams"), params=params, outputs=(result,), shapes=shapes))


_noise = _operator("gumbel_noise", "noise")  # of x's shape and type, float64 or float32
_one_hot = _operator("gumbel_hard", "hard")  # of x's shape, 1 at the drawn index


def noise_of(x, streams, seed, dim, position=0):
    """Gumbel noise of the shape and type of x, float64 or float32."""
    return _noise(x, streams, seed, position, dim)


class _StraightThrough(torch.autograd.Function):
    """The value of one tensor with the gradient of another."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, differentiated):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return None, grad


def with_gradient_of(value, differentiated):
    """value, whose derivatives are taken to be those of another tensor of its shape."""
    return _StraightThrough.apply(value, differentiated.to(value.dtype))


@documented
def gumbel_softmax(x, *, temperature=1.0, hard=False, seed, stream=0, dim=None, axis=None):
    """
    temperature (float or tensor, above 0 and finite): T, divides the noisy scores. A tensor broadcasts with x's shape with 1
        for dim, and gets a gradient.
    hard: Give 1 at the index that isentropic.sample(x, seed=seed, stream=stream) draws and 0 elsewhere, with the gradient of
        the relaxed draw (straight through).
    stream (int, or tensor, array or list of integers): With an int, row r, counted with dim last, has stream + r. Other values
        have one integer for each row, or broadcast to x's shape without dim.
    Returns: Of x's shape and dtype. Differentiable, twice. On CUDA the library isentropic_cuda
        makes the noise if it is found, otherwise the CPU.
    >>> y = isentropic.torch.gumbel_softmax(torch.tensor([0.0, 1.0, 2.0]), hard=True, seed=1)
    """
    name = "gumbel_softmax"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    key = streams_of(name, stream, x, dim), signed(natural(name, "seed", seed)), 0, dim
    hard = _checks.flag(name, "hard", hard)
    if isinstance(temperature, Tensor):
        temperature = spread(name, "temperature", temperature, "x", x, dim)
        if readable(temperature):
            for wrong in temperature[~((temperature > 0) & (temperature < math.inf))][:1].tolist():
                raise ValueError(f"{name}: temperature must be above 0 and finite, got {wrong}")
    elif not 0 < _checks.number(name, "temperature", temperature, "a number or a tensor") < math.inf:
        raise ValueError(f"{name}: temperature must be above 0 and finite, got {temperature}")

    # +inf scores are equally likely, and the others impossible, but NaN stays NaN.
    infinite = x == math.inf
    among = torch.where(infinite, 0.0, torch.where(x.isnan(), x, -math.inf))
    scores = torch.where(infinite.any(dim, keepdim=True), among, x).double()
    if x.shape[dim] > 0:
        scores = scores - scores.amax(dim, keepdim=True).detach()
    # As the library does it: in float64, rounded once before softmax. In float32, each of the three roundings would show in p.
    noisy = (scores + _noise(scores, *key)).to(torch.float64 if x.dtype is torch.float64 else torch.float32)
    p = softmax(noisy, temperature=temperature, dim=dim).to(x.dtype)
    return with_gradient_of(_one_hot(x, *key).to(x.dtype), p) if hard else p


def streams_of(name, stream, x, dim):
    """One stream for each row, in x's shape without dim."""
    lead = (*x.shape[:dim], *x.shape[dim + 1 :])
    count = math.prod(lead)
    if isinstance(stream, (np.ndarray, list, tuple)):
        given = integers(name, "stream", stream)
        stream = torch.from_numpy(np.array(given, np.int64 if np.issubdtype(given.dtype, np.signedinteger) else np.uint64)).to(
            x.device
        )
    if not isinstance(stream, Tensor):
        first = signed(natural(name, "stream", stream))
        return (first + torch.arange(count, device=x.device)).reshape(lead)  # modulo 2**64
    if stream.is_floating_point() or stream.is_complex() or stream.dtype is torch.bool:
        raise TypeError(f"{name}: stream must be of integers, got dtype {stream.dtype}")
    if readable(stream) and stream.dtype.is_signed and bool((stream < 0).any()):
        raise ValueError(f"{name}: stream must be at least 0, got {stream.min()}")
    if stream.dim() == 0:
        return (stream.long() + torch.arange(count, device=stream.device)).reshape(lead)
    try:
        return stream.long().reshape(lead) if stream.shape == (count,) else stream.long().expand(lead)
    except RuntimeError:
        which = f"x's shape without dim {dim}"
        raise _checks.misfit(name, "stream", lead, which, stream, "an integer or a tensor") from None
