"""Functions that all rows of scores share."""

import math

import torch

from isentropic import _descriptions
from isentropic.torch._spec import absent, result_type

INF = math.inf


def canonical(x, dim):
    """If a row has +inf, and no NaN, only these entries count, equally."""
    infinite = x == INF
    rows = infinite.any(dim, keepdim=True) & (x == x).all(dim, keepdim=True)
    return torch.where(rows, torch.where(infinite, 0.0, -INF).to(x.dtype), x)


def below_most(x, dim):
    """x minus the largest of its row, for what does not change if all scores move together; far scores count as -inf."""
    return x - largest(x, dim)


def largest(x, dim):
    """The largest of each row, as a constant; 0 if rows are empty."""
    x = x.detach()
    return x.amax(dim, keepdim=True) if x.shape[dim] else x.sum(dim, keepdim=True)


def divided(x, divisor):
    """x / divisor. Infinite quotients, and those nearly so, have no part in the derivatives: their own would be infinite, and 0
    times them NaN."""
    quotient = (x / divisor).detach()
    there = quotient.abs() < 1e-8 * torch.finfo(quotient.dtype).max
    return torch.where(there, torch.where(there, x, 0.0) / divisor, quotient)


def has_none(x, dim):
    """Whether a row has no distribution."""
    return x.isnan().any(dim, keepdim=True) | (x == -INF).all(dim, keepdim=True)


def or_nan(value, valid, *inputs):
    """value; if not valid, NaN with NaN derivatives in the inputs."""
    wrong = torch.where(valid, 1.0, math.nan)
    return torch.where(valid, value, sum(x * wrong for x in inputs if x is not None))


def in_float64(value, x):
    """A number or a tensor in float64, made so that torch.export can decompose it."""
    return value.double() if isinstance(value, torch.Tensor) else x.new_full((), value, dtype=torch.float64)


def working(x):
    """x in the type of the computation."""
    return x.to(result_type(x))


def dot(a, b, dim):
    return (a * b).sum(dim, keepdim=True)


def xlogy(p):
    """p log p, 0 where p is 0."""
    return torch.special.xlogy(p, p)


def mean_exp(y):
    """(e^y - 1) / y, the mean of e^(uy) over u from 0 to 1."""
    near, inner, safe = _near_0(y)
    return torch.where(near, _series(inner, lambda k: math.factorial(k + 1)), torch.expm1(safe) / safe)


def mean_exp_slope(y):
    """Its derivative, (y e^y - e^y + 1) / y^2."""
    near, inner, safe = _near_0(y)
    far = (safe * torch.exp(safe) - torch.expm1(safe)) / (safe * safe)
    return torch.where(near, _series(inner, lambda k: math.factorial(k) * (k + 2)), far)


def _near_0(y):
    near = y.abs() < 1
    return near, torch.where(near, y, 0.0), torch.where(near, 1.0, y)


def _series(y, divisor):
    total = torch.zeros_like(y)
    for k in range(19, -1, -1):
        total = total * y + 1 / divisor(k)
    return total


def finite(x, y):
    """x where y has mass, otherwise 0; where y is NaN, NaN with derivatives that are NaN."""
    return torch.where(y == 0, 0.0, x * torch.where(y.isnan(), math.nan, 1.0).to(x.dtype))


def reduction(composed, tensors, description, further=()):
    """The operator of a row's number and its gradients.

    ``composed(tensors, params, dim) -> (value, gradients in tensors, {parameter given as a tensor: gradient})``. `tensors`:
    their number; `further`: names of parameters that are not in the description.
    """
    names = [*(param["name"] for param in description["params"]), *further]
    per_row = _descriptions.per_row(description)

    def run(*arguments):
        given, rows, values = (
            arguments[:tensors],
            arguments[tensors : tensors + len(per_row)],
            arguments[tensors + len(per_row) :],
        )
        *values, dim, wanted = values
        params = dict(zip(names, values, strict=True))
        moving = {name: row for name, row in zip(per_row, rows, strict=True) if row is not None}
        value, gradients, slopes = composed(given, {**params, **moving}, dim)
        outputs = [value.to(result_type(given[0])).contiguous()]
        outputs += [one.to(given[0].dtype).contiguous() if wanted else absent(given[0]) for one in gradients]
        for name in per_row:
            asked = name in moving and wanted
            outputs.append(slopes[name].to(torch.float64).contiguous() if asked else absent(given[0]))
        return tuple(outputs)

    return run
