"""Distances of samples on the line and of points in space, differentiable in both."""

import torch

import isentropic
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _further_transport
from isentropic._numpy._transport import with_nan_alone
from isentropic.formulas.transport import METRICS
from isentropic.torch._arguments import checked_dim, has_numbers, one_dim, readable
from isentropic.torch._builder import Operator
from isentropic.torch._compat import constants, is_differentiated
from isentropic.torch._spec import OpSpec, Tensor
from isentropic.torch._transport import (
    common_type,
    minimum,
    numbers,
    refuse_as_numpy,
    solve,
    unbalanced_minimum,
    wide_floats,
)


def _learned(name, argument, value):
    """A tensor of one number that may require a gradient, or that cannot be read; None for anything else."""
    if not isinstance(value, Tensor) or (has_numbers(value) and not is_differentiated(value)):
        return None
    if value.numel() != 1:
        raise ValueError(f"{name}: {argument} must be a number or a tensor of one, got shape {tuple(value.shape)}")
    if has_numbers(value) and not 0 < value.item() < float("inf"):
        raise ValueError(f"{name}: {argument} must be above 0 and finite, got {value.item():g}")
    return value


def _refuse_unless(fits, function, *tensors, **keywords):
    """Calls the function of arrays unless fits(), which takes less time, shows that there is nothing to refuse."""
    if readable(*(x for x in (*tensors, *keywords.values()) if isinstance(x, Tensor))):
        try:
            fit = fits()
        except (IndexError, RuntimeError, TypeError):  # shapes that do not fit, or an order that is not a number
            fit = False
        if not fit:
            refuse_as_numpy(function, *tensors, **keywords)


def _are_masses(x, dim):
    """Whether each row is one; a row with NaN among several has a distance of NaN, alone."""
    sums = x.sum(dim)
    fit = (x >= 0).all(dim) & (sums > 0) & (sums < float("inf"))
    return bool((fit | sums.isnan()).all()) if x.dim() > 1 else bool(fit)


def _broadcast_beside(x, y, dim):
    """The shape to which the axes of two tensors other than dim broadcast."""
    return torch.broadcast_shapes(*(one.movedim(dim, -1).shape[:-1] for one in (x, y)))


@documented
def wasserstein_1d(u, v, *, u_weights=None, v_weights=None, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of samples along dim, differentiable in the samples and, where given, in the weights.

    The other axes broadcast. See ``isentropic.wasserstein_1d``; where the distance is 0 the gradient is 0. The gradient in
    weights is a Kantorovich potential, also for samples of weight 0: it says what a small weight there would change.

    >>> u = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> isentropic.torch.wasserstein_1d(u, torch.tensor([1.0, 5.0])).backward()
    >>> u.grad
    tensor([-0.5000, -0.5000])
    """
    name = "wasserstein_1d"
    dim = one_dim(name, dim, axis)
    (order,) = numbers(name, order=order)
    given = wide_floats(name, u=u, v=v, u_weights=u_weights, v_weights=v_weights)
    u, v, u_weights, v_weights = map(given.get, ("u", "v", "u_weights", "v_weights"))
    checked_dim(name, "u", u, dim)
    checked_dim(name, "v", v, dim)
    weights = [w if w is None else _checks.along_axis(w, x, dim) for w, x in ((u_weights, u), (v_weights, v))]

    def fits():
        _broadcast_beside(u, v, dim)
        some = order >= 1 and u.shape[dim] > 0 and v.shape[dim] > 0
        return some and all(w is None or _are_masses(w.expand(x.shape), dim) for w, x in zip(weights, (u, v), strict=True))

    _refuse_unless(fits, isentropic.wasserstein_1d, u, v, u_weights=u_weights, v_weights=v_weights, order=order, axis=dim)
    lead = _broadcast_beside(u, v, dim)
    rows = (u, v, *(w if w is None else w.expand(x.shape) for w, x in zip(weights, (u, v), strict=True)))
    rows = (x if x is None else x.movedim(dim, -1) for x in rows)
    rows = [x if x is None else x.expand(*lead, x.shape[-1]) for x in rows]
    return _nan_beside(_line_distance(*rows, order), *(w for w in rows[2:] if w is not None))


def _nan_beside(distance, *masses):
    """The distances, NaN beside masses with NaN."""
    for x in masses:
        distance = torch.where(x.isnan().any(-1), torch.nan, distance)
    return distance


@documented
def wasserstein_histogram(p, q, *, support=None, period=None, normalize=False, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of distributions over one support, differentiable in p, q and the support.

    See ``isentropic.wasserstein_histogram``. p and q are divided by their sums, with and without normalize, because learned
    distributions sum to 1 only nearly. The gradients in them are Kantorovich potentials, also where there is no mass. With a
    period there is a gradient if order is 1.

    >>> p = torch.tensor([1.0, 0.0, 0.0])
    >>> isentropic.torch.wasserstein_histogram(p, p.flip(0))
    tensor(2.)
    """
    name = "wasserstein_histogram"
    dim = one_dim(name, dim, axis)
    (order,) = numbers(name, order=order)
    given = wide_floats(name, p=p, q=q, support=support)
    p, q, support = map(given.get, ("p", "q", "support"))
    checked_dim(name, "p", p, dim)
    checked_dim(name, "q", q, dim)

    def fits():
        _broadcast_beside(p, q, dim)
        placed = support is None or (support.shape == (p.shape[dim],) and bool(support.isfinite().all()))
        return order >= 1 and p.shape[dim] == q.shape[dim] and placed and all(_are_masses(x, dim) for x in (p, q))

    _checks.flag(name, "normalize", normalize)
    divided = [x / x.sum(dim, keepdim=True) for x in (p, q)]
    keywords = {"support": support, "order": order, "axis": dim}
    if period is not None:
        (period,) = numbers(name, period=period)
        if not 0 < period < float("inf"):
            raise ValueError(f"{name}: period must be above 0 and finite, got {period:g}")
        learned = any(is_differentiated(x) for x in given.values())
        if not 1 <= order < float("inf") or (learned and order != 1):
            raise ValueError(f"{name}: with a period order must be finite, and 1 where there is a gradient, got {order:g}")
        keywords |= {"period": period, "order": order}
    _refuse_unless(fits, isentropic.wasserstein_histogram, p, q, normalize=True, **keywords)
    if period is not None and order != 1:
        on_host = [x.movedim(dim, -1).double().cpu().numpy() for x in divided]
        keywords |= {"axis": -1, "support": None if support is None else support.double().cpu().numpy()}

        def run(p, q):
            return (isentropic.wasserstein_histogram(p, q, **keywords),)

        (found,) = with_nan_alone(run, *on_host, own=(1, 1))
        return torch.as_tensor(found).to(p.device, common_type(p, q))
    p, q = torch.broadcast_tensors(p.movedim(dim, -1), q.movedim(dim, -1))
    # Points in float64: those of a support far from 0 differ by little.
    x = torch.arange(p.shape[-1], dtype=torch.float64, device=p.device) if support is None else support.to(torch.float64)
    if period is not None:
        distance = _around(p, q, x, period)
    elif order == 1:
        x, index = x.sort()
        apart = (_levels(p[..., index]) - _levels(q[..., index]))[..., :-1]
        distance = (apart.abs() * x.diff()).sum(-1)
    else:
        distance = _line_distance(x.expand(p.shape), x.expand(q.shape), p, q, order)
    return _nan_beside(distance, p, q).to(common_type(p, q))


def _around(p, q, x, period):
    """The distance of order 1 on a circle: the mass that passes each point, minus what goes round, which is the median."""
    x, index = torch.remainder(x, period).sort()
    passing = _levels(p[..., index]) - _levels(q[..., index])
    gaps = torch.cat([x, x[..., :1] + period]).diff()
    ranks = passing.argsort(-1)
    reached = gaps.detach().expand(passing.shape).gather(-1, ranks).cumsum(-1) >= period / 2
    middle = ranks.gather(-1, reached.to(torch.uint8).argmax(-1, keepdim=True))
    return ((passing - passing.gather(-1, middle)).abs() * gaps).sum(-1)


def _levels(masses):
    """The sums of masses up to each, in float64, as parts of the whole: exactly 1 from the last that is not 0."""
    sums = masses.to(torch.float64).cumsum(-1)
    return sums / sums[..., -1:]


def _line_distance(u, v, u_weights, v_weights, order):
    u, u_order = u.sort(dim=-1)
    v, v_order = v.sort(dim=-1)
    if u_weights is None and v_weights is None and u.shape == v.shape:
        return _norm(_size(u - v, order), u.new_tensor(1 / u.shape[-1]), order)
    levels = [
        _levels(torch.ones_like(x) if weights is None else weights.gather(-1, index))
        for x, index, weights in ((u, u_order, u_weights), (v, v_order, v_weights))
    ]
    fixed = [level.detach().contiguous() for level in levels]
    ends = torch.cat(fixed, -1).sort(dim=-1).values
    mass = ends.diff(dim=-1, prepend=torch.zeros_like(ends[..., :1]))
    at = [torch.searchsorted(level, ends).clamp(max=x.shape[-1] - 1) for level, x in zip(fixed, (u, v), strict=True)]
    moves = []
    for x, y, level, own, others in ((u, v, levels[0], *fixed), (v, u, levels[1], *reversed(fixed))):
        if is_differentiated(level):
            moves += _moves(x, y, level, own, others)
    return _norm(_size(u.gather(-1, at[0]) - v.gather(-1, at[1]), order), mass.to(u.dtype), order, moves)


def _moves(x, y, level, own, others):
    """How the distance changes with the levels of masses at sorted samples x: (rise, distances before, distances after).

    If the level of x_i rises, mass moves from x_i+1 to x_i, opposite the y_j whose mass is at this level. So the derivatives in
    masses are potentials, defined at every sample, also at those without mass. Where levels of x and y are equal, the plan
    leaves both samples at once, one pair after the other, as in src/transport/line.h: the mean of y_j and y_j+1.
    """
    rise = (level - own)[..., :-1] / 2  # 0, with a derivative
    first = torch.searchsorted(others, own) + torch.arange(x.shape[-1], device=x.device) - torch.searchsorted(own, own)
    last = torch.searchsorted(others, own, right=True)
    x, y = x.to(torch.float64), y.to(torch.float64)
    for j in (first, first + 1):
        opposite = y.gather(-1, torch.minimum(j, last).clamp(max=y.shape[-1] - 1)[..., :-1])
        yield rise, (x[..., 1:] - opposite).abs(), (x[..., :-1] - opposite).abs()


def _size(apart, order):
    """|apart|. Its powers above 1 have second derivatives at 0, which torch's derivative of abs, 0 there, would lose."""
    return apart.abs() if order == 1 else torch.where(apart < 0, -apart, apart)


def _norm(distance, mass, order, moves=()):
    """(sum mass distance^order)^(1/order), with a gradient of 0 if it is 0; moves give its derivative in masses."""
    largest = torch.where(mass > 0, distance, 0).amax(-1)
    if order == float("inf"):
        return largest
    unit = torch.ones_like(largest) if order == 1 else torch.where(largest > 0, largest, 1).detach()
    total = (mass * (distance / unit[..., None]) ** order).sum(-1)
    # A power beyond this would not be finite. Such a sample, which is without mass, adds nothing.
    limit = torch.finfo(torch.float64).max ** (1 / order) / 2
    for rise, *ways in moves:
        before, after = (way / unit[..., None] for way in ways)
        near = (before < limit) & (after < limit)
        before, after = (torch.where(near, way, 0) ** order for way in (before, after))
        total = total + (rise * (after - before)).sum(-1).to(total.dtype)
    if order == 1:
        return total
    return torch.where(total > 0, unit * torch.where(total > 0, total, 1) ** (1 / order), 0 * total)


def _arguments(name, order, x, y, a, b, several=True):
    """The power of distances, points as matrices, and their weights. If several problems are allowed, their axes come first and
    are those of all four."""
    (order,) = numbers(name, order=order)
    if not 1 <= order < float("inf"):
        raise ValueError(f"{name}: order must be at least 1 and finite, got {order:g}")
    given = wide_floats(name, x=x, y=y, a=a, b=b)
    named = list(given)
    several = several and max(given["x"].dim(), given["y"].dim()) > 2
    own = {"x": 2, "y": 2, "a": 1, "b": 1}
    for argument in ("x", "y"):
        points = given[argument]
        if several and points.dim() < 2:
            raise ValueError(f"{name}: {argument} must have at least 2 axes, got shape {tuple(points.shape)}")
        _checks.points(name, argument, points.shape[-2:] if several else points.shape)
        given[argument] = points[:, None] if points.dim() == 1 else points
    if given["x"].shape[-1] != given["y"].shape[-1]:
        raise ValueError(f"{name}: y must have as many coordinates as x, {given['x'].shape[-1]}, got {given['y'].shape[-1]}")
    for argument, points in (("a", given["x"]), ("b", given["y"])):
        count, w = points.shape[-2], given.setdefault(argument, points.new_ones(points.shape[-2]))
        if w.shape[-1:] != (count,) or (not several and w.dim() != 1):
            shape = f"(..., {count})" if several else f"({count},)"
            raise ValueError(f"{name}: {argument} must have shape {shape}, one weight for each point, got {tuple(w.shape)}")
    try:
        lead = torch.broadcast_shapes(*(given[one].shape[:-count] for one, count in own.items()))
    except RuntimeError:
        got = ", ".join(str(tuple(given[one].shape)) for one in named)
        raise ValueError(f"{name}: the leading axes of {', '.join(named)} must broadcast, got shapes {got}") from None
    _refuse_numbers(name, given, own)
    return order, *(given[one].expand(*lead, *given[one].shape[-count:]) for one, count in own.items())


def _refuse_numbers(name, given, own):
    """Refuses points that are not finite and weights that are none. A problem with NaN among several is NaN, alone."""
    for argument, count in own.items():
        x = given[argument]
        if not readable(x):
            continue
        wrong = ~x.isfinite() if count == 2 else ~((x >= 0) & x.isfinite())
        wrong = wrong if x.dim() == count else wrong & ~x.isnan()
        if bool(wrong.any()):
            *at, last = wrong.nonzero()[0].tolist()
            must = "finite" if count == 2 else "finite, at least 0 and not all 0"
            where = f"point {at.pop()}, coordinate {last}" if count == 2 else f"entry {last}"
            got = x[wrong][0].item()
            raise ValueError(f"{name}: {argument} must be {must}, got {got:g} at {where}{_checks.place('in problem', at)}")
        if count == 1 and bool((wrong := (x.sum(-1) == 0) | x.sum(-1).isinf()).any()):
            where = _checks.place("in problem", wrong.nonzero()[0].tolist())
            raise ValueError(f"{name}: {argument} must be finite, at least 0 and not all 0{where}")


def _directions(name, dimension, projections, seed):
    """Unit vectors in rows."""
    if isinstance(projections, Tensor):
        if not has_numbers(projections):  # so there is nothing to refuse
            theta = projections.detach().to(torch.float64)
            theta = theta / theta.abs().amax(1, keepdim=True)
            return theta / theta.norm(dim=1, keepdim=True)
        projections = projections.detach().cpu().numpy()
    given = [dimension, projections, seed]
    return _constant_directions(name, *(constants(given) if torch.compiler.is_compiling() else given))


@torch.compiler.assume_constant_result
def _constant_directions(*given):
    return torch.from_numpy(_further_transport.directions(*given))


@documented
def sliced_wasserstein(x, y, *, order=2.0, a=None, b=None, projections=100, seed=0):
    """``isentropic.sliced_wasserstein``, its distance differentiable in the points.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> found = isentropic.torch.sliced_wasserstein(x, torch.tensor([[3.0, 4.0]]), projections=[[1.0, 0.0]])
    >>> found.distance
    tensor(3., grad_fn=<PowBackward0>)
    """
    name = "sliced_wasserstein"
    order, x, y, a, b = _arguments(name, order, x, y, a, b, several=False)
    dtype = common_type(x, y, a, b)
    # In float64, as the kernels: points that are far from each other have no digits to spare either. MPS has no float64.
    x, y, a, b = (one.to(dtype if one.device.type == "mps" else torch.float64) for one in (x, y, a, b))
    # Centred, so that what is common to all points does not round away what they differ by.
    with torch.no_grad():
        centre = torch.minimum(x.amin(0), y.amin(0)) / 2 + torch.maximum(x.amax(0), y.amax(0)) / 2
    x, y = x - centre, y - centre
    theta = _directions(name, x.shape[1], projections, seed).to(x)
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
    return isentropic.SlicedResult((distance * largest).to(dtype), (error * largest).to(dtype))


def _powers(x, y, order):
    """|x_i - y_j|^order, with a gradient of 0 where points coincide."""
    square = ((x[..., None, :] - y[..., None, :, :]) ** 2).sum(-1)
    if order == 2:
        return square
    return torch.where(square > 0, torch.where(square > 0, square, 1) ** (order / 2), 0 * square)


def _slopes_times(call, grads):
    slopes = call.outputs[1:]
    return [grads[0].reshape(*grads[0].shape, *[1] * own) * one for own, one in zip((2, 2, 1, 1), slopes, strict=True)]


def _shapes(x, y, a, b, *_):
    lead = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2], a.shape[:-1], b.shape[:-1])
    return tuple(x.new_empty((*lead, *own)) for own in ((), x.shape[-2:], y.shape[-2:], a.shape[-1:], b.shape[-1:]))


_of_points = Operator(
    OpSpec(
        name="wasserstein",
        tensors=("x", "y", "a", "b"),
        params={"order": "float", "metric": "str", "of_weights": "bool"},
        outputs=("distance", "dx", "dy", "da", "db"),
        shapes=_shapes,
        differentiable=("x", "y", "a", "b"),
        keeps=("x", "y", "a", "b", "dx", "dy", "da", "db"),
        derivative=_slopes_times,
        moving=(0,),
        once=True,
    )
)


@documented
def wasserstein(x, y, *, order=1.0, metric="euclidean", a=None, b=None):
    """The Wasserstein distance of weighted points, differentiable in the points: see ``isentropic.wasserstein``.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> isentropic.torch.wasserstein(x, torch.tensor([[3.0, 4.0]])).backward()
    >>> x.grad
    tensor([[-0.6000, -0.8000]])
    """
    if metric not in METRICS:
        raise ValueError(f"wasserstein: metric must be one of {', '.join(METRICS)}, got {metric!r}")
    order, *given = _arguments("wasserstein", order, x, y, a, b)
    of_weights = any(weights is not None and is_differentiated(weights) for weights in (a, b))
    dtype = common_type(*given)
    if 0 in given[2].shape[:-1]:
        return given[2].new_zeros(given[2].shape[:-1], dtype=dtype)
    return _of_points(*(one.to(torch.float64) for one in given), order, metric, of_weights)[0].to(dtype)


@documented
def sinkhorn_divergence(x, y, *, epsilon, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """``isentropic.sinkhorn_divergence``, differentiable in the points and, where given, the weights and an epsilon
    that is a tensor of one number.

    By the envelope theorem, plans and potentials are treated as constant. In epsilon the derivative of each of the three costs
    is the divergence KL(plan | product of the masses). There are no second derivatives.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> isentropic.torch.sinkhorn_divergence(x, torch.tensor([[3.0, 4.0]]), epsilon=0.1).backward()
    >>> x.grad
    tensor([[-6., -8.]])
    """
    name = "sinkhorn_divergence"
    learned = _learned(name, "epsilon", epsilon)
    (tolerance,) = numbers(name, tolerance=tolerance)
    # With an epsilon that is a tensor the costs are divided by it, and their minimum with an epsilon of 1 is multiplied.
    epsilon = numbers(name, epsilon=epsilon)[0] if learned is None else 1.0
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    order, x, y, a, b = _arguments(name, order, x, y, a, b)
    dtype = common_type(x, y, a, b)
    x, y, a, b = (one.to(torch.float64) for one in (x, y, a, b))
    a, b = (weights / weights.sum(-1, keepdim=True) for weights in (a, b))
    unit = 1.0 if learned is None else learned.to(x.device, torch.float64).reshape(())

    def isentropic_cost(u, v, from_, to):
        """The minimum, with its gradient."""
        return unit * solve(minimum, from_, to, _powers(u, v, order) / unit, epsilon, tolerance, max_iterations, None)[0]

    between, within_x, within_y = (isentropic_cost(*pair) for pair in ((x, y, a, b), (x, x, a, a), (y, y, b, b)))
    value = between - 0.5 * (within_x + within_y)
    if order <= 2:  # only rounding can make it negative
        value = value + (value.clamp(min=0) - value).detach()
    return value.to(dtype)


@documented
def unbalanced_sinkhorn_divergence(x, y, *, epsilon, penalty, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """``isentropic.unbalanced_sinkhorn_divergence``, differentiable in the points and, where given, the masses.

    By the envelope theorem, plans and potentials are treated as constant; there are no second derivatives.

    >>> x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    >>> y = torch.tensor([[0.3, 0.4]], dtype=torch.float64)
    >>> isentropic.torch.unbalanced_sinkhorn_divergence(x, y, epsilon=0.1, penalty=1.0).backward()
    >>> x.grad.round(decimals=4)
    tensor([[-0.5327, -0.7102]], dtype=torch.float64)
    """
    name = "unbalanced_sinkhorn_divergence"
    epsilon, penalty, tolerance = numbers(name, epsilon=epsilon, penalty=penalty, tolerance=tolerance)
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    # Without weights a point has the mass 1/n.
    order, x, y, of_x, of_y = _arguments(name, order, x, y, a, b)
    dtype = common_type(x, y, of_x, of_y)
    x, y, of_x, of_y = (one.to(torch.float64) for one in (x, y, of_x, of_y))
    of_x, of_y = (w / w.shape[-1] if given is None else w for w, given in ((of_x, a), (of_y, b)))

    def least(u, v, from_, to):
        return solve(unbalanced_minimum, from_, to, _powers(u, v, order), epsilon, penalty, tolerance, max_iterations)[0]

    value = least(x, y, of_x, of_y) - 0.5 * (least(x, x, of_x, of_x) + least(y, y, of_y, of_y))
    value = value + 0.5 * epsilon * (of_x.sum(-1) - of_y.sum(-1)) ** 2
    if order <= 2:  # only rounding can make it negative
        value = value + (value.clamp(min=0) - value).detach()
    return value.to(dtype)
