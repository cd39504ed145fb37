"""Optimal transport between distributions on torch tensors: exact, of a part, with entropy, and barycenters."""

import functools

import numpy as np
import torch

import isentropic
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.formulas.transport import of_scaled, scaled_by
from isentropic.torch._arguments import misfit, no_gradient, numbers_near, one_device, readable, refuse_nested
from isentropic.torch._builder import Operator
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import CODES, HALVES, OpSpec, Tensor, result_type
from isentropic.torch.backends.reference.transport import MOVING, barycenter_vjp, vjp


def floats(name, **given):
    """Tensors, or None, as numbers: integers become float64, as everywhere."""
    given = {argument: x for argument, x in given.items() if x is not None}
    for argument, x in given.items():
        if not isinstance(x, Tensor):
            other = f"; isentropic.{name} takes other arrays" if hasattr(isentropic, name) else ""
            raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(x).__name__}{other}")
        refuse_nested(name, argument, x)
        if x.is_complex() or (x.is_floating_point() and x.dtype not in CODES):
            raise TypeError(
                f"{name}: {argument} must be of float16, bfloat16, float32, float64 or integers, got dtype {x.dtype}"
            )
    one_device(name, given)
    return {argument: x if x.is_floating_point() else x.to(torch.float64) for argument, x in given.items()}


def wide_floats(name, **given):
    """Like `floats`, with halves as float32, in which their distances and potentials are."""
    return {argument: x.float() if x.dtype in HALVES else x for argument, x in floats(name, **given).items()}


def common_type(*tensors):
    """The type of what is calculated from these: at least float32."""
    return functools.reduce(torch.promote_types, (result_type(x) for x in tensors))


def numbers(name, **given):
    """Floats in their order."""
    for argument, value in given.items():
        no_gradient(name, argument, value)
    return [_checks.number(name, argument, value) for argument, value in given.items()]


def _mass_tolerance(name, value):
    return value if value is None else _checks.number(name, "mass_tolerance", value)


def refuse_as_numpy(function, *tensors, **keywords):
    """Calls the function of arrays, which refuses invalid distributions, distances or lengths."""
    named = {key: x.detach() if isinstance(x, Tensor) else x for key, x in keywords.items()}
    read = [x for x in (*tensors, *keywords.values()) if isinstance(x, Tensor)]
    if readable(*read) and all(x.dtype is not torch.bfloat16 for x in read):
        function(*(x.detach() for x in tensors), **named)


def _operator(name, params, outputs):
    """An operator for problems whose leading axes broadcast; outputs are given by name, with their axes and types."""

    def shapes(a, b, cost, *_):
        lead = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1], cost.shape[:-2])
        dtype = common_type(a, b, cost)
        sizes = {"n": a.shape[-1], "m": b.shape[-1]}
        return tuple(cost.new_empty((*lead, *map(sizes.get, axes)), dtype=own or dtype) for axes, own in outputs.values())

    tensors = "a", "b", "cost"
    return Operator(
        OpSpec(
            name=name,
            tensors=tensors,
            params=params,
            outputs=tuple(f"{one}_out" if one in tensors else one for one in outputs),
            shapes=shapes,
            differentiable=tensors,
            keeps=(*tensors, "plan", "f", "g"),
            derivative=functools.partial(vjp, name),
            moving=MOVING[name],
            # That of a plan with entropy follows from the plan and its potentials. Other potentials have no derivative.
            once=name != "sinkhorn",
        )
    )


_FOUND = {"cost": ("", None), "plan": ("nm", None), "f": ("n", None), "g": ("m", None)}
_BOUNDS = {"marginal_error": ("", None), "lower_bound": ("", None), "upper_bound": ("", None)}
_optimal = _operator("optimal_transport", {"mass_tolerance": "float?"}, {**_FOUND, "gap": ("", None)})
_partial = _operator("partial_transport", {"mass": "float"}, {**_FOUND, "multiplier": ("", None), "gap": ("", None)})
_LIMITS = {"epsilon": "float", "tolerance": "float", "max_iterations": "int", "mass_tolerance": "float?"}
minimum = _operator("sinkhorn_minimum", _LIMITS, {"minimum": ("", None), **{k: v for k, v in _FOUND.items() if k != "cost"}})
_isentropic = _operator(
    "sinkhorn",
    _LIMITS,
    {**_FOUND, **_BOUNDS, "iterations": ("", torch.int64), "converged": ("", torch.bool)},
)
unbalanced_minimum = _operator(
    "unbalanced_sinkhorn",
    {"epsilon": "float", "penalty": "float", "tolerance": "float", "max_iterations": "int"},
    {"value": ("", None), **{k: v for k, v in _FOUND.items() if k != "cost"}, "gap": ("", None)}
    | {"iterations": ("", torch.int64), "converged": ("", torch.bool)},
)


def _barycenter_shapes(p, cost, weights, *_):
    lead = torch.broadcast_shapes(p.shape[:-2], cost.shape[:-2], weights.shape[:-1])
    own = (cost.shape[-1:], (p.shape[-2], cost.shape[-1]), (), (), ())
    kinds = (None, None, None, torch.int64, torch.bool)
    return tuple(p.new_empty((*lead, *shape), dtype=kind) for shape, kind in zip(own, kinds, strict=True))


_barycenter = Operator(
    OpSpec(
        name="sinkhorn_barycenter",
        tensors=("p", "cost", "weights"),
        params={"epsilon": "float", "tolerance": "float", "max_iterations": "int"},
        outputs=("barycenter", "g", "marginal_error", "iterations", "converged"),
        shapes=_barycenter_shapes,
        differentiable=("p", "cost", "weights"),
        keeps=("p", "cost", "weights", "barycenter", "g"),
        derivative=barycenter_vjp,
        moving=(0,),
        once=True,  # its derivative reads g, which has none
    )
)


def solve(operator, a, b, cost, *params):
    """The operator, of problems with equally many leading axes."""
    lead = max(a.dim(), b.dim(), cost.dim() - 1) - 1
    a, b, cost = (x.reshape(*[1] * (lead + own - x.dim()), *x.shape) for x, own in ((a, 1), (b, 1), (cost, 2)))
    return operator(a, b, cost, *params)


@documented
def optimal_transport(a, b, cost, *, mass_tolerance=None):
    """``isentropic.optimal_transport``, the cheapest plan, with a cost that is differentiable in a, b and cost.

    The gradient in cost is the plan. Those in a and b are the potentials, up to a constant: they are for masses with a fixed
    sum, such as the result of softmax. If several potentials are optimal, it is one of them. plan, f and g have no gradient.

    >>> cost = torch.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True)
    >>> isentropic.torch.optimal_transport(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]), cost).cost.backward()
    >>> cost.grad
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    given = floats("optimal_transport", a=a, b=b, cost=cost)
    value, plan, f, g, gap = solve(_optimal, *given.values(), _mass_tolerance("optimal_transport", mass_tolerance))
    # Every other status has raised an error. There is one word for each problem, as in NumPy, but a compiler takes no arrays of
    # words.
    one = value.dim() == 0 or torch.compiler.is_compiling()
    status = "optimal" if one else np.full(tuple(value.shape), "optimal")
    return isentropic.TransportResult(value, *(x.detach() for x in (plan, f, g, gap)), status)


@documented
def sinkhorn(a, b, cost, *, epsilon, tolerance=1e-6, max_iterations=10000, mass_tolerance=None):
    """``isentropic.sinkhorn`` with a cost <P, C> and a plan that are differentiable in a, b and cost.

    The gradient is that of the exact plan, so tolerance should be small. It comes from the implicit function theorem, a linear
    system of n equations. The gradients in a and b are defined up to a constant, for masses whose sum is fixed. A mass of 0 has
    the gradient of a small one. f, g and the bounds have none. marginal_error is relative to the sum of a, as tolerance is. If
    two parts of the plan are joined only by entries that underflow to 0 (costs some 740 epsilon apart), the gradient is that
    for changes that keep the mass of each part.

    epsilon may be a tensor, one for each problem, which broadcasts with the leading axes; cost and plan are differentiable in
    it.

    >>> cost = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> isentropic.torch.sinkhorn(half, half, cost, epsilon=1.0, tolerance=1e-12).plan[0, 1].backward()
    >>> cost.grad.round(decimals=4)
    tensor([[ 0.0373, -0.0373],
            [-0.0373,  0.0373]], dtype=torch.float64)
    """
    a, b, cost = floats("sinkhorn", a=a, b=b, cost=cost).values()
    if isinstance(epsilon, Tensor):
        return _of_epsilons(a, b, cost, epsilon, tolerance, max_iterations, mass_tolerance)
    epsilon, tolerance = numbers("sinkhorn", epsilon=epsilon, tolerance=tolerance)
    max_iterations = _checks.integer("sinkhorn", "max_iterations", max_iterations)
    mass_tolerance = _mass_tolerance("sinkhorn", mass_tolerance)
    found = isentropic.SinkhornResult(*solve(_isentropic, a, b, cost, epsilon, tolerance, max_iterations, mass_tolerance))
    plan = found.plan
    value = (plan * torch.where(cost < float("inf"), cost, 0)).sum((-2, -1), dtype=torch.float64).to(plan.dtype)
    return isentropic.SinkhornResult(
        value, plan, *(x.detach() for x in found[2:9]), torch.where(value.isnan(), value, epsilon).detach()
    )


def _of_epsilons(a, b, cost, epsilon, tolerance, max_iterations, mass_tolerance):
    """The plan is that of costs divided by epsilon with an epsilon of 1, in float64, through which its gradient goes."""
    name = "sinkhorn"
    dtype, epsilon = common_type(a, b, cost), numbers_near(name, "epsilon", epsilon, "cost", cost)
    lead = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1], cost.shape[:-2])
    try:
        torch.broadcast_shapes(lead, epsilon.shape)
    except RuntimeError:
        raise misfit(name, "epsilon", lead, "the leading axes", epsilon) from None
    if readable(epsilon):
        _checks.positive(name, "epsilon", epsilon.detach().cpu().numpy())
    if mass_tolerance is None and not {a.dtype, b.dtype, cost.dtype}.isdisjoint(HALVES):
        mass_tolerance = isentropic._core.sum_tolerance[2]
    a, b, cost = a.double(), b.double(), cost.double()
    scaled, costs = scaled_by(ROWS.xp, cost, epsilon)
    given = {"tolerance": tolerance, "max_iterations": max_iterations, "mass_tolerance": mass_tolerance}
    found, still = sinkhorn(a, b, scaled, epsilon=1.0, **given), epsilon.detach()
    value = (found.plan * costs).sum((-2, -1))
    rounding = 2.0**-50 if dtype is torch.float64 else 2.0**-22
    f, g, *bounds = of_scaled(ROWS.xp, found, costs.detach(), a.detach(), still, rounding)
    numbers_of = (value, found.plan, f, g, found.marginal_error, *bounds)
    shown = torch.where(value.isnan(), value, still).detach()
    return isentropic.SinkhornResult(*(x.to(dtype) for x in numbers_of), found.iterations, found.converged, shown.to(dtype))


@documented
def partial_transport(a, b, cost, *, mass):
    """``isentropic.partial_transport``, whose cost is differentiable in a, b and cost.

    The gradient in cost is the plan; those in a and b are the potentials, at most 0: more mass to choose from never costs more.

    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 9.0]], requires_grad=True)
    >>> isentropic.torch.partial_transport(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), cost, mass=0.5).cost.backward()
    >>> cost.grad
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    name = "partial_transport"
    (mass,) = numbers(name, mass=mass)
    cost, *others = solve(_partial, *floats(name, a=a, b=b, cost=cost).values(), mass)
    return isentropic.PartialResult(cost, *(x.detach() for x in others))


@documented
def unbalanced_sinkhorn(a, b, cost, *, epsilon, penalty, tolerance=1e-9, max_iterations=10000):
    """``isentropic.unbalanced_sinkhorn``, whose value is differentiable in a, b and cost.

    By the envelope theorem the gradient in cost is the plan. Differentiating plan, f or g raises an error, and so do second
    derivatives.

    >>> a = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> found = isentropic.torch.unbalanced_sinkhorn(a, torch.tensor([1.0, 1.0]), cost, epsilon=0.1, penalty=1.0)
    >>> found.value.backward()
    >>> a.grad.round(decimals=3)
    tensor([0.176, 0.550])
    """
    name = "unbalanced_sinkhorn"
    a, b, cost = floats(name, a=a, b=b, cost=cost).values()
    params = numbers(name, epsilon=epsilon, penalty=penalty, tolerance=tolerance)
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    return isentropic.UnbalancedResult(*solve(unbalanced_minimum, a, b, cost, *params, max_iterations))


@documented
def sinkhorn_barycenter(p, cost, *, epsilon, weights=None, tolerance=1e-9, max_iterations=10000):
    """``isentropic.sinkhorn_barycenter``, differentiable in p, cost and weights.

    The gradient is that of the exact barycenter, so tolerance should be small. It comes from the implicit function theorem, by
    2 + k eigenvalue problems of size m for k distributions. There are no second derivatives.

    >>> p = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.1, 0.8]])
    >>> cost = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
    >>> weights = torch.tensor([0.5, 0.5], requires_grad=True)
    >>> found = isentropic.torch.sinkhorn_barycenter(p, cost, epsilon=0.5, weights=weights)
    >>> (found.barycenter @ torch.arange(3.0)).backward()
    >>> bool(weights.grad[1] > weights.grad[0])
    True
    """
    name = "sinkhorn_barycenter"
    given = floats(name, p=p, cost=cost, weights=weights)
    dtype = common_type(*given.values())
    p, cost, weights = (x if x is None else x.to(torch.float64) for x in map(given.get, ("p", "cost", "weights")))
    if p.dim() < 2 or cost.dim() < 2 or p.shape[-1] != cost.shape[-2]:
        raise ValueError(
            f"{name}: p and cost must have shapes (..., k, n) and (..., n, m), got {tuple(p.shape)} and {tuple(cost.shape)}"
        )
    if weights is not None and weights.shape[-1:] != p.shape[-2:-1]:
        raise ValueError(
            f"{name}: weights must have shape (..., {p.shape[-2]}), one for each distribution, got {tuple(weights.shape)}"
        )
    epsilon, tolerance = numbers(name, epsilon=epsilon, tolerance=tolerance)
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    if weights is None:
        weights = torch.ones_like(p[..., 0])
    several = max(p.dim(), cost.dim(), weights.dim() + 1) > 2
    for argument, x in (("p", p), ("weights", weights)):
        sums = x.sum(-1)
        fit = (x >= 0).all(-1) & (sums > 0) & (sums < float("inf"))
        # A problem with NaN among several is NaN.
        if readable(x) and not bool(((fit | sums.isnan()) if several else fit).all()):
            raise ValueError(f"{name}: {argument} must be finite, at least 0 and not all 0")
    p, weights = (x / x.sum(-1, keepdim=True) for x in (p, weights))
    lead = max(p.dim(), cost.dim(), weights.dim() + 1)
    p, cost, weights = (x.reshape(*[1] * (lead - own - x.dim()), *x.shape) for x, own in ((p, 0), (cost, 0), (weights, 1)))
    q, _, error, iterations, converged = _barycenter(p, cost, weights, epsilon, tolerance, max_iterations)
    return isentropic.BarycenterResult(q.to(dtype), error.detach().to(dtype), iterations, converged)
