"""Transport on torch tensors: distances with gradients, and what a critic of distributions is trained with."""

import numpy as np
import torch

import entropic

Tensor = torch.Tensor


def _axis(dim, axis):
    if dim is not None and axis is not None:
        raise TypeError(f"give one of dim and axis, got dim={dim!r} and axis={axis!r}")
    return -1 if dim is None and axis is None else dim if dim is not None else axis


def wasserstein_1d(u, v, *, u_weights=None, v_weights=None, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of samples along dim, differentiable in the samples and, where given, in the weights.

    The other axes broadcast. See ``entropic.wasserstein_1d``; where the distance is 0 the gradient is 0.

    >>> u = torch.tensor([0.0, 2.0], requires_grad=True)
    >>> entropic.torch.wasserstein_1d(u, torch.tensor([1.0, 5.0])).backward()
    >>> u.grad
    tensor([-0.5000, -0.5000])
    """
    if not order >= 1:
        raise ValueError(f"wasserstein_1d: order must be at least 1 and at most inf, got {order}")
    dim = _axis(dim, axis)
    u, v = u.movedim(dim, -1), v.movedim(dim, -1)
    weights = [w if w is None else w.movedim(dim, -1) for w in (u_weights, v_weights)]
    lead = torch.broadcast_shapes(u.shape[:-1], v.shape[:-1])
    u, v = (x.expand(*lead, x.shape[-1]) for x in (u, v))
    return _line_distance(u, v, *(w if w is None else w.expand(x.shape) for w, x in zip(weights, (u, v), strict=True)), order)


def wasserstein_histogram(p, q, *, support=None, order=1.0, dim=None, axis=None):
    """The Wasserstein distance of distributions over one support, differentiable in p, q and the support.

    See ``entropic.wasserstein_histogram``. p and q are divided by their sums and not checked.

    >>> p = torch.tensor([1.0, 0.0, 0.0])
    >>> entropic.torch.wasserstein_histogram(p, p.flip(0))
    tensor(2.)
    """
    if not order >= 1:
        raise ValueError(f"wasserstein_histogram: order must be at least 1 and at most inf, got {order}")
    dim = _axis(dim, axis)
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
    """(sum mass distance^order)^(1/order), with a gradient of 0 where that is 0."""
    if order == 1:
        return (mass * distance).sum(-1)
    largest = torch.where(mass > 0, distance, 0).amax(-1)
    if order == float("inf"):
        return largest
    unit = torch.where(largest > 0, largest, 1).detach()
    total = (mass * (distance / unit[..., None]) ** order).sum(-1)
    return torch.where(total > 0, unit * torch.where(total > 0, total, 1) ** (1 / order), 0 * total)


class _OptimalCost(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, cost):
        result = entropic.optimal_transport(*(x.detach().cpu() for x in (a, b, cost)))
        value, plan, f, g, gap = (torch.as_tensor(x, device=cost.device) for x in result[:5])
        ctx.save_for_backward(plan, f, g)
        ctx.shapes = a.shape, b.shape, cost.shape
        ctx.mark_non_differentiable(plan, f, g, gap)
        return value, plan, f, g, gap

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        plan, f, g = ctx.saved_tensors
        grads = grad[..., None] * f, grad[..., None] * g, grad[..., None, None] * plan
        return tuple(x.sum_to_size(shape) for x, shape in zip(grads, ctx.shapes, strict=True))


def optimal_transport(a, b, cost):
    """The cheapest plan: ``entropic.optimal_transport`` with a cost that is differentiable in a, b and cost.

    The gradient in cost is the plan; those in a and b are the potentials, which count up to a constant: for masses whose sum is
    fixed, as softmax's is. Where several potentials are optimal it is one of them. plan, f and g have no gradient.

    >>> cost = torch.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True)
    >>> entropic.torch.optimal_transport(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.75]), cost).cost.backward()
    >>> cost.grad
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    value, plan, f, g, gap = _OptimalCost.apply(a, b, cost)
    status = np.full(tuple(value.shape), "optimal")[()]  # anything else has raised
    return entropic.TransportResult(value, plan, f, g, gap, status)


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
    x, y = (points[:, None] if points.ndim == 1 else points for points in (x, y))
    a, b = (
        torch.full((len(points),), 1 / len(points), dtype=x.dtype, device=x.device) if w is None else w / w.sum()
        for points, w in ((x, a), (y, b))
    )
    square = _powers(x, y, 2)
    largest = square.detach().max().sqrt()
    if largest == 0:
        return 0 * square.sum()
    cost = _powers(x / largest, y / largest, order)
    total = optimal_transport(a, b, cost).cost
    return largest * torch.where(total > 0, torch.where(total > 0, total, 1) ** (1 / order), 0 * total)


def sinkhorn_divergence(x, y, *, epsilon, a=None, b=None, order=2, tolerance=1e-9, max_iterations=10000):
    """``entropic.sinkhorn_divergence``, differentiable in the points by the envelope theorem: plans count as constant.

    >>> x = torch.zeros(1, 2, requires_grad=True)
    >>> entropic.torch.sinkhorn_divergence(x, torch.tensor([[3.0, 4.0]]), epsilon=0.1).backward()
    >>> x.grad
    tensor([[-6., -8.]])
    """
    x, y = (points[:, None] if points.ndim == 1 else points for points in (x, y))
    a, b = (
        torch.full((len(points),), 1 / len(points), dtype=x.dtype, device=x.device) if w is None else w.detach() / w.sum()
        for points, w in ((x, a), (y, b))
    )
    options = {"epsilon": epsilon, "tolerance": tolerance, "max_iterations": max_iterations}

    def moved(u, v, from_, to):
        cost = _powers(u, v, order)
        plan = entropic.sinkhorn(*(w.detach().cpu() for w in (from_, to, cost)), **options).plan
        return (plan.to(cost.device) * cost).sum()

    slope = moved(x, y, a, b) - 0.5 * (moved(x, x, a, a) + moved(y, y, b, b))
    points = [w.detach().cpu() for w in (x, y)]
    weights = {"a": a.detach().cpu(), "b": b.detach().cpu()}
    value = entropic.sinkhorn_divergence(*points, **weights, order=order, **options)
    return torch.as_tensor(value, device=x.device) + (slope - slope.detach())


def wgan_critic_loss(critic_real, critic_fake):
    """What a critic minimises: its mean over generated samples less that over real ones.

    For a critic of Lipschitz constant L, -loss / L is a lower bound of W_1 of the two batches, and of no more than that:
    ``entropic.wasserstein`` of the batches is the exact value beside it. The generator minimises -mean(critic_fake).
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
    clip_weights,
    gradient_penalty,
    optimal_transport,
    sinkhorn_divergence,
    wasserstein,
    wasserstein_1d,
    wasserstein_histogram,
    wgan_critic_loss,
)
for _one in PUBLIC:
    _one.__module__ = "entropic.torch"
