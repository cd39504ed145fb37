"""The reference of a map or a loss that has no composition of torch's operations here: its kernel, and second derivatives by
differences.

<g, p(z)> of a map p, or a loss, is a number s(z) of a row, z = (x, parameters), whose gradient G(z) the kernel gives. Second
derivatives are symmetric, so J_G^T w = J_G w is the derivative of G along w, (G(z + hw) - G(z - hw)) / 2h, in float64, accurate
to about 9 digits except near a kink. Likewise J_p w is the part that depends on g. There are no third derivatives.
"""

import functools

import torch

from isentropic import _descriptions
from isentropic.torch._spec import absent
from isentropic.torch.backends import cpu

_STEP = 6e-6  # for float64: the difference loses a third of its digits, the third derivative another third


class _Gradients(torch.autograd.Function):
    """``apply(evaluate, dim, count, weighted, *tensors) -> gradients`` in the first `count` tensors.

    ``evaluate(dim, *tensors)`` gives these; where weighted, the last tensor is the weights g of a map p, and it gives p too.
    """

    @staticmethod
    def forward(evaluate, dim, count, weighted, *tensors):
        return evaluate(dim, *tensors)[:count]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.given, tensors = inputs[:4], inputs[4:]
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, *w):
        tensors, (_, _, count, weighted) = ctx.saved_tensors, ctx.given
        w = [torch.zeros_like(x) if one is None else one for x, one in zip(tensors, w, strict=False)]
        found = list(_Along.apply(*ctx.given, *tensors, *w))
        if weighted:
            found[count:count] = [None] * (len(tensors) - count - 1)
        else:
            found += [None] * (len(tensors) - count)
        return None, None, None, None, *found

    @staticmethod
    def vmap(info, in_dims, evaluate, dim, count, weighted, *tensors):
        found = _Gradients.apply(evaluate, dim + 1, count, weighted, *_leading(info, in_dims[4:], tensors))
        return found, (0,) * len(found)


class _Along(torch.autograd.Function):
    """``apply(evaluate, dim, count, weighted, *tensors, *w)``: the derivatives of the gradients, and of p, along w."""

    @staticmethod
    def forward(evaluate, dim, count, weighted, *arguments):
        tensors, w = arguments[:-count], arguments[-count:]
        largest = functools.reduce(torch.maximum, (one.abs().amax(dim, keepdim=True) for one in w))
        step = torch.where(largest > 0, _STEP / largest, 0.0)
        there, back = (
            evaluate(dim, *(x + sign * step * one for x, one in zip(tensors, w, strict=False)), *tensors[count:])
            for sign in (1, -1)
        )
        return tuple(torch.where(step > 0, (a - b) / (2 * step), 0.0) for a, b in zip(there, back, strict=True))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.given, arguments = inputs[:4], inputs[4:]
        ctx.save_for_backward(*arguments[: -inputs[2]])

    @staticmethod
    def backward(ctx, *v):
        """The gradient in w, in which all is linear: the same second derivatives and, for p, the gradients with v instead of
        g."""
        tensors, (_, _, count, weighted) = ctx.saved_tensors, ctx.given
        if any(ctx.needs_input_grad[4 : 4 + len(tensors)]):
            raise RuntimeError("an operation without a reference has no third derivatives")
        like = (*tensors[:count], tensors[-1])
        v = [torch.zeros_like(x) if one is None else one for x, one in zip(like, v, strict=False)]
        found = _Along.apply(*ctx.given, *tensors, *v[:count])[:count]
        if weighted:
            more = _Gradients.apply(*ctx.given, *tensors[:-1], v[count])
            found = [a + b for a, b in zip(found, more, strict=True)]
        return (None,) * (4 + len(tensors)) + tuple(found)

    @staticmethod
    def vmap(info, in_dims, evaluate, dim, count, weighted, *arguments):
        found = _Along.apply(evaluate, dim + 1, count, weighted, *_leading(info, in_dims[4:], arguments))
        return found, (0,) * len(found)


def _leading(info, in_dims, tensors):
    pairs = zip(tensors, in_dims, strict=True)
    return [x.expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0) for x, at in pairs]


def _kernel(name, *arguments):
    """A kernel of the CPU, on any device."""
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    here = (x.detach().cpu().contiguous() if isinstance(x, torch.Tensor) else x for x in arguments)
    results = cpu.IMPLEMENTATIONS[name](*here)
    return tuple(x.to(device) for x in (results if isinstance(results, tuple) else (results,)))


def map_vjp(description, x, *arguments):
    """The operator NAME_vjp."""
    name, per_row = description["name"], _descriptions.per_row(description)
    rows, (_, grad, *values, _), dim = arguments[: len(per_row)], arguments[len(per_row) :], arguments[-1]
    given = [k for k, row in enumerate(rows) if row is not None]

    def evaluate(dim, x, *moving):
        *some, g = moving
        now = _put(len(rows), given, some)
        (p,) = _kernel(name, x, *now, *values, dim)
        dx, *slopes = _kernel(f"{name}_vjp", x, *now, p, g, *values, dim)
        return dx, *(slopes[k] for k in given), p

    tensors = (one.double() for one in (x, *(rows[k] for k in given), grad))
    dx, *slopes = _Gradients.apply(evaluate, dim, 1 + len(given), True, *tensors)
    slopes = [absent(x) if slope is None else slope for slope in _put(len(rows), given, slopes)]
    dx = dx.to(x.dtype)
    return (dx, *slopes) if rows else dx


def loss(description, x, target, *arguments):
    """The operator NAME, whose value is not needed, only its gradients."""
    name, per_row = description["name"], _descriptions.per_row(description)
    rows, (*values, _, _), dim = arguments[: len(per_row)], arguments[len(per_row) :], arguments[-2]
    given = [k for k, row in enumerate(rows) if row is not None]

    def evaluate(dim, x, *moving):
        *some, still = moving
        _, dx, *slopes = _kernel(name, x, still, *_put(len(rows), given, some), *values, dim, True)
        return dx, *(slopes[k] for k in given)

    moving = (one.double() for one in (x, *(rows[k] for k in given)))
    still = target.double() if target.is_floating_point() else target
    dx, *slopes = _Gradients.apply(evaluate, dim, 1 + len(given), False, *moving, still)
    slopes = [absent(x) if slope is None else slope for slope in _put(len(rows), given, slopes)]
    return None, dx.to(x.dtype), *slopes


def of_maps(but):
    """The derivatives of maps, without those of some names."""
    missing = {name: one for name, one in _descriptions.MAPS.items() if name not in but}
    return {f"{name}_vjp": functools.partial(map_vjp, one) for name, one in missing.items()}


def of_losses(but):
    missing = {name: one for name, one in _descriptions.LOSSES.items() if name not in but and not _descriptions.takes_map(one)}
    return {name: functools.partial(loss, one) for name, one in missing.items()}


def _put(count, places, values):
    """A list of length `count` with values at places, otherwise None."""
    found = [None] * count
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return found
