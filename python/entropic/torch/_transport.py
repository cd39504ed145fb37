"""Transport on torch tensors: distances with gradients, and helpers for training a critic of distributions."""

import functools

import numpy as np
import torch

import entropic
from entropic import _checks, _further_transport
from entropic.torch._arguments import checked_dim, no_gradient, one_device, one_dim, readable
from entropic.torch._builder import Operator, wants_gradient
from entropic.torch._spec import OpSpec, Tensor
from entropic.torch.backends.cpu import CODES
from entropic.torch.backends.reference.transport import MOVING, barycenter_vjp, vjp


def _floats(name, **given):
    """Tensors, or None, as numbers: integers become float64, as everywhere."""
    given = {argument: x for argument, x in given.items() if x is not None}
    for argument, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}: {argument} must be a torch.Tensor, got {type(x).__name__}; entropic.{name} takes other arrays"
            )
        if x.is_complex() or (x.is_floating_point() and x.dtype not in CODES):
            raise TypeError(
                f"{name}: {argument} must be of float16, bfloat16, float32, float64 or integers, got dtype {x.dtype}"
            )
    one_device(name, given)
    return {argument: x if x.is_floating_point() else x.to(torch.float64) for argument, x in given.items()}


def _numbers(name, **given):
    """Floats in their order."""
    for argument, value in given.items():
        no_gradient(name, argument, value)
    return [_checks.number(name, argument, value) for argument, value in given.items()]


def _learned(name, argument, value):
    """A tensor of one number that may require a gradient; None for anything else."""
    if not isinstance(value, Tensor) or not wants_gradient(value):
        return None
    if value.numel() != 1:
        raise ValueError(f"{name}: {argument} must be a number or a tensor of one, got shape {tuple(value.shape)}")
    return value


def _mass_tolerance(name, value):
    return value if value is None else _checks.number(name, "mass_tolerance", value)


def _refuse_as_numpy(function, *tensors, **keywords):
    """Calls the function of arrays, which refuses invalid distributions, distances or lengths."""
    named = {key: x.detach() if isinstance(x, Tensor) else x for key, x in keywords.items()}
    read = [x for x in (*tensors, *keywords.values()) if isinstance(x, Tensor)]
    if readable(*read) and all(x.dtype is not torch.bfloat16 for x in read):
        function(*(x.detach() for x in tensors), **named)


def _refuse_unless(fits, function, *tensors, **keywords):
    """Calls the function of arrays unless fits(), which takes less time, shows that there is nothing to refuse."""
    if readable(*(x for x in (*tensors, *keywords.values()) if isinstance(x, Tensor))):
        try:
            fit = fits()
        except (IndexError, RuntimeError, TypeError):  # shapes that do not fit, or an order that is not a number
            fit = False
        if not fit:
            _refuse_as_numpy(function, *tensors, **keywords)


def _are_masses(x, dim):
    sums = x.sum(dim)
    return bool((x >= 0).all()) and bool(((sums > 0) & (sums < float("inf"))).all())


def _broadcast_beside(x, y, dim):
    """The shape to which the axes of two tensors other than dim broadcast."""
    return torch.broadcast_shapes(*(one.movedim(dim, -1).shape[:-1] for one in (x, y)))


def wasserstein_1d(u, v, *, u_weights=None, v_weights=None, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of samples along dim, differentiable in the samples and, where given, in the weights.

    The other axes broadcast. See ``entropic.wasserstein_1d``; where the distance is 0 the gradient is 0.

    >>> u = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> entropic.torch.wasserstein_1d(u, torch.tensor([1.0, 5.0])).backward()
    >>> u.grad
    tensor([-0.5000, -0.5000])
    """
    name = "wasserstein_1d"
    dim = one_dim(name, dim, axis)
    given = _floats(name, u=u, v=v, u_weights=u_weights, v_weights=v_weights)
    u, v, u_weights, v_weights = map(given.get, ("u", "v", "u_weights", "v_weights"))
    checked_dim(name, "u", u, dim)
    checked_dim(name, "v", v, dim)

    def fits():
        _broadcast_beside(u, v, dim)
        some = order >= 1 and u.shape[dim] > 0 and v.shape[dim] > 0
        return some and all(w is None or _are_masses(w.expand(x.shape), dim) for w, x in ((u_weights, u), (v_weights, v)))

    _refuse_unless(fits, entropic.wasserstein_1d, u, v, u_weights=u_weights, v_weights=v_weights, order=order, axis=dim)
    lead = _broadcast_beside(u, v, dim)
    rows = (u, v, *(w if w is None else w.expand(x.shape) for w, x in ((u_weights, u), (v_weights, v))))
    rows = (x if x is None else x.movedim(dim, -1) for x in rows)
    return _line_distance(*(x if x is None else x.expand(*lead, x.shape[-1]) for x in rows), order)


def wasserstein_histogram(p, q, *, support=None, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of distributions over one support, differentiable in p, q and the support.

    See ``entropic.wasserstein_histogram``. p and q are divided by their sums.

    >>> p = torch.tensor([1.0, 0.0, 0.0])
    >>> entropic.torch.wasserstein_histogram(p, p.flip(0))
    tensor(2.)
    """
    name = "wasserstein_histogram"
    dim = one_dim(name, dim, axis)
    given = _floats(name, p=p, q=q, support=support)
    p, q, support = map(given.get, ("p", "q", "support"))
    checked_dim(name, "p", p, dim)
    checked_dim(name, "q", q, dim)

    def fits():
        _broadcast_beside(p, q, dim)
        placed = support is None or (support.shape == (p.shape[dim],) and bool(support.isfinite().all()))
        return order >= 1 and p.shape[dim] == q.shape[dim] and placed and all(_are_masses(x, dim) for x in (p, q))

    divided = (x / x.sum(dim, keepdim=True) for x in (p, q))
    _refuse_unless(fits, entropic.wasserstein_histogram, *divided, support=support, order=order, axis=dim)
    p, q = torch.broadcast_tensors(p.movedim(dim, -1), q.movedim(dim, -1))
    x = torch.arange(p.shape[-1], dtype=p.dtype, device=p.device) if support is None else support.to(p.dtype)
    if order == 1:
        x, index = x.sort()
        apart = (p / p.sum(-1, keepdim=True) - q / q.sum(-1, keepdim=True))[..., index].cumsum(-1)[..., :-1]
        return (apart.abs() * x.diff()).sum(-1)
    return _line_distance(x.expand(p.shape), x.expand(q.shape), p, q, order)


def _line_distance(u, v, u_weights, v_weights, order):
    u, u_order = u.sort(dim=-1)
    v, v_order = v.sort(dim=-1)
    if u_weights is None and v_weights is None and u.shape == v.shape:
        return _norm((u - v).abs(), u.new_tensor(1 / u.shape[-1]), order)
    levels = []
    for x, index, weights in ((u, u_order, u_weights), (v, v_order, v_weights)):
        mass = torch.ones_like(x) if weights is None else weights.gather(-1, index)
        level = mass.to(torch.float64).cumsum(-1)
        levels.append(level / level[..., -1:])
    ends = torch.cat(levels, -1).sort(dim=-1).values
    mass = ends.diff(dim=-1, prepend=torch.zeros_like(ends[..., :1]))
    ends = ends.detach()
    at = [
        torch.searchsorted(level.detach().contiguous(), ends).clamp(max=x.shape[-1] - 1)
        for level, x in zip(levels, (u, v), strict=True)
    ]
    return _norm((u.gather(-1, at[0]) - v.gather(-1, at[1])).abs(), mass.to(u.dtype), order)


def _norm(distance, mass, order):
    """(sum mass distance^order)^(1/order), with a gradient of 0 if it is 0."""
    if order == 1:
        return (mass * distance).sum(-1)
    largest = torch.where(mass > 0, distance, 0).amax(-1)
    if order == float("inf"):
        return largest
    unit = torch.where(largest > 0, largest, 1).detach()
    total = (mass * (distance / unit[..., None]) ** order).sum(-1)
    return torch.where(total > 0, unit * torch.where(total > 0, total, 1) ** (1 / order), 0 * total)


def _operator(name, params, outputs):
    """An operator for problems whose leading axes broadcast; outputs are given by name, with their axes and types."""

    def shapes(a, b, cost, *_):
        lead = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1], cost.shape[:-2])
        dtype = functools.reduce(torch.promote_types, (a.dtype, b.dtype, cost.dtype))
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
            moving=(MOVING[name],),
            # The potentials have no derivative here; the derivative of a plan follows from the plan itself.
            once=name not in ("sinkhorn", "unbalanced_sinkhorn"),
        )
    )


_FOUND = {"cost": ("", None), "plan": ("nm", None), "f": ("n", None), "g": ("m", None)}
_BOUNDS = {"marginal_error": ("", None), "lower_bound": ("", None), "upper_bound": ("", None)}
_optimal = _operator("optimal_transport", {"mass_tolerance": "float?"}, {**_FOUND, "gap": ("", None)})
_partial = _operator("partial_transport", {"mass": "float"}, {**_FOUND, "multiplier": ("", None), "gap": ("", None)})
_LIMITS = {"epsilon": "float", "tolerance": "float", "max_iterations": "int", "mass_tolerance": "float?"}
_minimum = _operator("sinkhorn_minimum", _LIMITS, {"minimum": ("", None), **{k: v for k, v in _FOUND.items() if k != "cost"}})
_entropic = _operator(
    "sinkhorn",
    _LIMITS,
    {**_FOUND, **_BOUNDS, "iterations": ("", torch.int64), "converged": ("", torch.bool)},
)
_unbalanced = _operator(
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
    )
)


def _solve(operator, a, b, cost, *params):
    """The operator, of problems with equally many leading axes."""
    lead = max(a.dim(), b.dim(), cost.dim() - 1) - 1
    a, b, cost = (x.reshape(*[1] * (lead + own - x.dim()), *x.shape) for x, own in ((a, 1), (b, 1), (cost, 2)))
    return operator(a, b, cost, *params)


def optimal_transport(a, b, cost, *, mass_tolerance=None):
    """``entropic.optimal_transport``, the cheapest plan, with a cost that is differentiable in a, b and cost.

    The gradient in cost is the plan. Those in a and b are the potentials, up to a constant: they are for masses with a fixed
    sum, such as the result of softmax. If several potentials are optimal, it is one of them. plan, f and g have no gradient.

    >>> cost = torch.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True)
    >>> entropic.torch.optimal_transport(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]), cost).cost.backward()
    >>> cost.grad
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    given = _floats("optimal_transport", a=a, b=b, cost=cost)
    value, plan, f, g, gap = _solve(_optimal, *given.values(), _mass_tolerance("optimal_transport", mass_tolerance))
    # Every other status has raised an error. There is one word for each problem, as in NumPy, but a compiler takes no arrays of
    # words.
    one = value.dim() == 0 or torch.compiler.is_compiling()
    status = "optimal" if one else np.full(tuple(value.shape), "optimal")
    return entropic.TransportResult(value, *(x.detach() for x in (plan, f, g, gap)), status)


def sinkhorn(a, b, cost, *, epsilon, tolerance=1e-6, max_iterations=10000, mass_tolerance=None):
    """``entropic.sinkhorn`` with a cost <P, C> and a plan that are differentiable in a, b and cost.

    The gradient is that of the exact plan, by the implicit function theorem: a linear system of n equations, so tolerance
    should be small. Those in a and b count up to a constant: for masses whose sum is fixed. f, g and the bounds have none.
    Where costs some 740 epsilon apart leave entries of 0 that alone join two parts of the plan, it is the gradient for changes
    that leave each part its mass.

    >>> cost = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    >>> half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> entropic.torch.sinkhorn(half, half, cost, epsilon=1.0, tolerance=1e-12).plan[0, 1].backward()
    >>> cost.grad.round(decimals=4)
    tensor([[ 0.0373, -0.0373],
            [-0.0373,  0.0373]], dtype=torch.float64)
    """
    a, b, cost = _floats("sinkhorn", a=a, b=b, cost=cost).values()
    epsilon, tolerance = _numbers("sinkhorn", epsilon=epsilon, tolerance=tolerance)
    max_iterations = _checks.integer("sinkhorn", "max_iterations", max_iterations)
    mass_tolerance = _mass_tolerance("sinkhorn", mass_tolerance)
    found = entropic.SinkhornResult(*_solve(_entropic, a, b, cost, epsilon, tolerance, max_iterations, mass_tolerance))
    plan = found.plan
    carried = torch.where(plan > 0, plan * torch.where(plan > 0, cost, 0), 0)
    value = carried.sum((-2, -1), dtype=torch.float64).to(plan.dtype)
    return entropic.SinkhornResult(value, plan, *(x.detach() for x in found[2:]))


def _points(name, x, y, a, b):
    """Points as matrices, and their weights, scaled to sum 1."""
    given = _floats(name, x=x, y=y, a=a, b=b)
    found = []
    for argument, weights in (("x", "a"), ("y", "b")):
        points, w = given[argument], given.get(weights)
        if points.ndim not in (1, 2) or len(points) == 0:
            raise ValueError(
                f"{name}: {argument} must have shape (points, coordinates) or (points,), got {tuple(points.shape)}"
            )
        points = points[:, None] if points.ndim == 1 else points
        if found and points.shape[1] != found[0][0].shape[1]:
            raise ValueError(f"{name}: y must have as many coordinates as x, {found[0][0].shape[1]}, got {points.shape[1]}")
        if w is None:
            w = torch.ones_like(points[:, 0])
        elif w.shape != points.shape[:1]:
            raise ValueError(
                f"{name}: {weights} must have shape ({len(points)},), one weight for each point, got {tuple(w.shape)}"
            )
        elif readable(w) and not (bool((w >= 0).all()) and 0 < w.sum() < float("inf")):
            raise ValueError(f"{name}: {weights} must be finite, at least 0 and not all 0")
        found.append((points, w / w.sum()))
    (x, a), (y, b) = found
    return x, y, a, b


def _of_problems(name, x, y, a, b, function):
    """The function applied to each of several problems, whose points have leading axes; None for a single problem."""
    given = _floats(name, x=x, y=y, a=a, b=b)
    if max(given["x"].dim(), given["y"].dim()) <= 2:
        return None
    own = {"x": 2, "y": 2, "a": 1, "b": 1}
    for argument, one in given.items():
        if one.dim() < own[argument]:
            raise ValueError(f"{name}: {argument} must have at least {own[argument]} axes, got shape {tuple(one.shape)}")
    shapes = {argument: one.shape[: one.dim() - own[argument]] for argument, one in given.items()}
    try:
        lead = torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        got = ", ".join(str(tuple(one.shape)) for one in given.values())
        raise ValueError(f"{name}: the leading axes of {', '.join(given)} must broadcast, got shapes {got}") from None
    each = {argument: one.expand(*lead, *one.shape[one.dim() - own[argument] :]) for argument, one in given.items()}
    values = [function(*(each[argument][at] if argument in each else None for argument in "xyab")) for at in np.ndindex(*lead)]
    return torch.stack(values).reshape(lead) if values else given["x"].new_zeros(lead)


def sliced_wasserstein(x, y, *, order=2.0, a=None, b=None, projections=100, seed=0):
    """``entropic.sliced_wasserstein``, its distance differentiable in the points.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> found = entropic.torch.sliced_wasserstein(x, torch.tensor([[3.0, 4.0]]), projections=[[1.0, 0.0]])
    >>> found.distance
    tensor(3., grad_fn=<PowBackward0>)
    """
    name = "sliced_wasserstein"
    (order,) = _numbers(name, order=order)
    if not 1 <= order < float("inf"):
        raise ValueError(f"{name}: order must be at least 1 and finite, got {order:g}")
    x, y, a, b = _points(name, x, y, a, b)
    dtype = x.dtype
    x, y, a, b = (one.float() if one.dtype in (torch.float16, torch.bfloat16) else one for one in (x, y, a, b))
    projections = projections.detach().cpu().numpy() if isinstance(projections, Tensor) else projections
    theta = torch.as_tensor(_further_transport.directions(name, x.shape[1], projections, seed)).to(x)
    u, v = theta @ x.T, theta @ y.T
    distances = wasserstein_1d(u, v, u_weights=a.expand_as(u), v_weights=b.expand_as(v), order=order)
    # Powers of unscaled distances could overflow or vanish.
    largest = distances.detach().amax()
    largest = torch.where(largest > 0, largest, 1)
    distances = distances / largest
    mean = (distances**order).mean()
    distance = torch.where(mean > 0, torch.where(mean > 0, mean, 1) ** (1 / order), 0 * mean)
    with torch.no_grad():
        spread = (distances**order).std() / len(theta) ** 0.5 if len(theta) > 1 else torch.full_like(mean, float("nan"))
        error = torch.where(mean > 0, spread * distance / (order * mean), 0 * spread)
        error = torch.zeros_like(error) if x.shape[1] == 1 else error
    return entropic.SlicedResult((distance * largest).to(dtype), (error * largest).to(dtype))


def partial_transport(a, b, cost, *, mass):
    """``entropic.partial_transport``, whose cost is differentiable in a, b and cost.

    The gradient in cost is the plan; those in a and b are the potentials, at most 0: more to choose from costs no more.

    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 9.0]], requires_grad=True)
    >>> entropic.torch.partial_transport(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), cost, mass=0.5).cost.backward()
    >>> cost.grad
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    name = "partial_transport"
    (mass,) = _numbers(name, mass=mass)
    cost, *others = _solve(_partial, *_floats(name, a=a, b=b, cost=cost).values(), mass)
    return entropic.PartialResult(cost, *(x.detach() for x in others))


def unbalanced_sinkhorn(a, b, cost, *, epsilon, penalty, tolerance=1e-9, max_iterations=10000):
    """``entropic.unbalanced_sinkhorn``, whose value is differentiable in a, b and cost.

    By the envelope theorem: the gradient in cost is the plan. To differentiate plan, f or g raises.

    >>> a = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> found = entropic.torch.unbalanced_sinkhorn(a, torch.tensor([1.0, 1.0]), cost, epsilon=0.1, penalty=1.0)
    >>> found.value.backward()
    >>> a.grad.round(decimals=3)
    tensor([0.176, 0.550])
    """
    name = "unbalanced_sinkhorn"
    a, b, cost = _floats(name, a=a, b=b, cost=cost).values()
    params = _numbers(name, epsilon=epsilon, penalty=penalty, tolerance=tolerance)
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    return entropic.UnbalancedResult(*_solve(_unbalanced, a, b, cost, *params, max_iterations))


def sinkhorn_barycenter(p, cost, *, epsilon, weights=None, tolerance=1e-9, max_iterations=10000):
    """``entropic.sinkhorn_barycenter``, differentiable in p, cost and weights.

    The gradient is that of the exact barycenter, by the implicit function theorem: 2 + k eigenvalue problems of m numbers for k
    distributions, so tolerance should be small. There are no second derivatives.

    >>> p = torch.tensor([[0.9, 0.1, 0.0], [0.1, 0.1, 0.8]])
    >>> cost = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
    >>> weights = torch.tensor([0.5, 0.5], requires_grad=True)
    >>> found = entropic.torch.sinkhorn_barycenter(p, cost, epsilon=0.5, weights=weights)
    >>> (found.barycenter @ torch.arange(3.0)).backward()
    >>> bool(weights.grad[1] > weights.grad[0])
    True
    """
    name = "sinkhorn_barycenter"
    given = _floats(name, p=p, cost=cost, weights=weights)
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in given.values()))
    p, cost, weights = (x if x is None else x.to(torch.float64) for x in map(given.get, ("p", "cost", "weights")))
    if p.dim() < 2 or cost.dim() < 2 or p.shape[-1] != cost.shape[-2]:
        raise ValueError(
            f"{name}: p and cost must have shapes (..., k, n) and (..., n, m), got {tuple(p.shape)} and {tuple(cost.shape)}"
        )
    if weights is not None and weights.shape[-1:] != p.shape[-2:-1]:
        raise ValueError(
            f"{name}: weights must have shape (..., {p.shape[-2]}), one for each distribution, got {tuple(weights.shape)}"
        )
    epsilon, tolerance = _numbers(name, epsilon=epsilon, tolerance=tolerance)
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    if weights is None:
        weights = torch.ones_like(p[..., 0])
    for argument, x in (("p", p), ("weights", weights)):
        sums = x.sum(-1)
        if readable(x) and not ((x >= 0).all() and ((sums > 0) & (sums < float("inf"))).all()):
            raise ValueError(f"{name}: {argument} must be finite, at least 0 and not all 0")
    p, weights = (x / x.sum(-1, keepdim=True) for x in (p, weights))
    lead = max(p.dim(), cost.dim(), weights.dim() + 1)
    p, cost, weights = (x.reshape(*[1] * (lead - own - x.dim()), *x.shape) for x, own in ((p, 0), (cost, 0), (weights, 1)))
    q, _, error, iterations, converged = _barycenter(p, cost, weights, epsilon, tolerance, max_iterations)
    return entropic.BarycenterResult(q.to(dtype), error.detach().to(dtype), iterations, converged)


def _powers(x, y, order):
    """|x_i - y_j|^order, with a gradient of 0 where points coincide."""
    square = ((x[:, None] - y) ** 2).sum(-1)
    if order == 2:
        return square
    return torch.where(square > 0, torch.where(square > 0, square, 1) ** (order / 2), 0 * square)


def wasserstein(x, y, *, order=1.0, a=None, b=None):
    """The Wasserstein distance of weighted points, differentiable in the points: see ``entropic.wasserstein``.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> entropic.torch.wasserstein(x, torch.tensor([[3.0, 4.0]])).backward()
    >>> x.grad
    tensor([[-0.6000, -0.8000]])
    """
    many = _of_problems("wasserstein", x, y, a, b, lambda *one: wasserstein(*one[:2], order=order, a=one[2], b=one[3]))
    if many is not None:
        return many
    (order,) = _numbers("wasserstein", order=order)
    if not 1 <= order < float("inf"):
        raise ValueError(f"wasserstein: order must be at least 1 and finite, got {order}")
    x, y, a, b = _points("wasserstein", x, y, a, b)
    largest = (x.detach()[:, None] - y.detach()).abs().amax()
    largest = torch.where(largest > 0, largest, 1)
    cost = _powers(x / largest, y / largest, order)
    total = optimal_transport(a, b, cost).cost
    return largest * torch.where(total > 0, torch.where(total > 0, total, 1) ** (1 / order), 0 * total)


def sinkhorn_divergence(x, y, *, epsilon, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """``entropic.sinkhorn_divergence``, differentiable in the points and, where given, the weights and an epsilon
    that is a tensor of one number.

    By the envelope theorem, plans and potentials are treated as constant. In epsilon the derivative of each of the three costs
    is the divergence KL(plan | product of the masses). There are no second derivatives.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> entropic.torch.sinkhorn_divergence(x, torch.tensor([[3.0, 4.0]]), epsilon=0.1).backward()
    >>> x.grad
    tensor([[-6., -8.]])
    """
    options = {"epsilon": epsilon, "order": order, "tolerance": tolerance, "max_iterations": max_iterations}
    many = _of_problems(
        "sinkhorn_divergence", x, y, a, b, lambda *one: sinkhorn_divergence(*one[:2], a=one[2], b=one[3], **options)
    )
    if many is not None:
        return many
    learned = _learned("sinkhorn_divergence", "epsilon", epsilon)
    epsilon = epsilon if learned is None else learned.detach()
    order, epsilon, tolerance = _numbers("sinkhorn_divergence", order=order, epsilon=epsilon, tolerance=tolerance)
    max_iterations = _checks.integer("sinkhorn_divergence", "max_iterations", max_iterations)
    if not order >= 1:
        raise ValueError(f"sinkhorn_divergence: order must be at least 1, got {order}")
    x, y, a, b = _points("sinkhorn_divergence", x, y, a, b)
    dtype = x.dtype
    x, y, a, b = (one.to(torch.float64) for one in (x, y, a, b))
    a, b = (weights / weights.sum() for weights in (a, b))

    def entropic_cost(u, v, from_, to):
        """The minimum, with its gradient."""
        cost = _powers(u, v, order)
        value, plan, *_ = _solve(_minimum, from_, to, cost, epsilon, tolerance, max_iterations, None)
        if learned is not None:
            divergence = (value - (plan * cost).sum()).detach() / epsilon
            change = learned.to(x.device, torch.float64).reshape(()) - epsilon
            value = value + change * divergence  # this only adds a derivative
        return value

    between, within_x, within_y = (entropic_cost(*pair) for pair in ((x, y, a, b), (x, x, a, a), (y, y, b, b)))
    value = between - 0.5 * (within_x + within_y)
    if order <= 2:  # only rounding can make it negative
        value = value + (value.clamp(min=0) - value).detach()
    return value.to(dtype)


def c_transform(f, cost):
    """min_i (C_ij - f_i), the largest g with f_i + g_j <= C_ij: ``entropic.c_transform``, differentiable in both.

    >>> entropic.torch.c_transform(torch.tensor([0.0, 0.5]), torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    tensor([ 0.0000, -0.5000])
    """
    f, cost = _floats("c_transform", f=f, cost=cost).values()
    if f.shape[-1:] != cost.shape[-2:-1]:
        raise ValueError(f"c_transform: f must have shape (..., n) for cost (..., n, m), got {f.shape} and {cost.shape}")
    return (cost - f[..., None]).amin(-2)


def dual_value(f, g, a, b):
    """<a, f> + <b, g>: ``entropic.dual_value``, differentiable in all four.

    >>> f, g = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.0])
    >>> entropic.torch.dual_value(f, g, torch.tensor([0.25, 0.75]), torch.tensor([1.0, 0.0]))
    tensor(1.2500)
    """
    f, g, a, b = _floats("dual_value", f=f, g=g, a=a, b=b).values()
    _refuse_as_numpy(entropic.dual_value, f, g, a, b)
    return _dual_value(f, g, a, b)


def _dual_value(f, g, a, b):
    def mean(potential, mass):
        potential = torch.where((mass == 0) & ~potential.isfinite(), 0, potential)
        return (potential.to(torch.float64) * mass.to(torch.float64)).sum(-1)

    dtype = functools.reduce(torch.promote_types, (x.dtype for x in (f, g, a, b)))
    return (mean(f, a) + mean(g, b)).to(dtype)


def lipschitz_constant(f, distance):
    """max |f_i - f_j| / D_ij over i != j: ``entropic.lipschitz_constant``, differentiable in both.

    >>> distance = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    >>> entropic.torch.lipschitz_constant(torch.tensor([0.0, 1.0, 4.0]), distance)
    tensor(3.)
    """
    f, distance = _floats("lipschitz_constant", f=f, distance=distance).values()
    _refuse_as_numpy(entropic.lipschitz_constant, f, distance)
    if f.ndim != 1 or tuple(distance.shape) != (len(f), len(f)):
        raise ValueError(
            f"lipschitz_constant: f must have shape (n,) and distance (n, n), got {tuple(f.shape)} and {tuple(distance.shape)}"
        )
    if len(f) == 0:
        return f.new_zeros(())
    rise = (f[:, None] - f).abs()
    apart = distance > 0
    fast = torch.where(rise > 0, torch.full_like(rise, float("inf")), 0 * rise)
    slope = torch.where(apart, rise / torch.where(apart, distance, 1), fast)
    return torch.where(torch.eye(len(f), dtype=torch.bool, device=f.device), 0, slope).amax()


def wgan_critic_loss(critic_real, critic_fake):
    """The loss of a critic: its mean over generated samples minus its mean over real ones.

    For a critic with Lipschitz constant L, -loss / L is a lower bound of W_1 of the two batches. ``entropic.wasserstein``
    computes the exact value. The generator minimises -mean(critic_fake).
    Source: Arjovsky, Chintala, Bottou, ICML 2017.

    >>> entropic.torch.wgan_critic_loss(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5]))
    tensor(-1.5000)
    """
    return critic_fake.mean() - critic_real.mean()


@torch.no_grad()
def clip_weights(parameters, bound=0.01):
    """Clamps parameters, or those of a module, to [-bound, bound] in place, which bounds its Lipschitz constant.

    Source: Arjovsky, Chintala, Bottou, ICML 2017.

    >>> layer = torch.nn.Linear(2, 1)
    >>> entropic.torch.clip_weights(layer, 0.01)
    >>> bool(layer.weight.abs().max() <= 0.01)
    True
    """
    if not bound > 0:
        raise ValueError(f"clip_weights: bound must be above 0, got {bound}")
    if isinstance(parameters, torch.nn.Module):
        parameters = parameters.parameters()
    for parameter in [parameters] if isinstance(parameters, Tensor) else parameters:
        parameter.clamp_(-bound, bound)


def gradient_penalty(critic, real, fake, *, target=1.0, one_sided=False, generator=None):
    """The mean of (|d critic / d z| - target)^2 at z = t real + (1 - t) fake, t uniform on [0, 1] for each sample.

    The norm is each sample's own, over all axes but the first; its gradient at 0 is 0, not NaN. one_sided penalises only norms
    above target. Differentiable in the critic's parameters.
    Sources: Gulrajani et al., NeurIPS 2017; one-sided: Petzka, Fischer, Lukovnikov, ICLR 2018.

    >>> critic = lambda z: 3 * z.sum(dim=(1, 2))
    >>> entropic.torch.gradient_penalty(critic, torch.zeros(5, 2, 2), torch.ones(5, 2, 2))
    tensor(25.)
    """
    if real.shape != fake.shape:
        raise ValueError(f"gradient_penalty: fake must have the shape of real, {tuple(real.shape)}, got {tuple(fake.shape)}")
    shape = (len(real), *[1] * (real.ndim - 1))
    t = torch.rand(shape, dtype=real.dtype, device=real.device, generator=generator)
    z = (fake + t * (real - fake)).detach().requires_grad_()
    with torch.enable_grad():
        values = critic(z)
        (slope,) = torch.autograd.grad(values.sum(), z, create_graph=True)
    square = slope.flatten(1).square().sum(1)
    norm = torch.where(square > 0, torch.where(square > 0, square, 1).sqrt(), 0 * square)
    excess = norm - target
    return (excess.clamp(min=0) if one_sided else excess).square().mean()


PUBLIC = (
    c_transform,
    clip_weights,
    dual_value,
    gradient_penalty,
    lipschitz_constant,
    optimal_transport,
    sinkhorn,
    partial_transport,
    sinkhorn_barycenter,
    sinkhorn_divergence,
    unbalanced_sinkhorn,
    sliced_wasserstein,
    wasserstein,
    wasserstein_1d,
    wasserstein_histogram,
    wgan_critic_loss,
)
for _one in PUBLIC:
    _one.__module__ = "entropic.torch"
