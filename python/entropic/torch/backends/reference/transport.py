"""Gradients of plans and costs, from the plans and potentials that were found."""

import torch


def vjp(name, call, grads):
    """In masses and costs, of the output that has a derivative."""
    results = PULLBACKS[name](*call.tensors, *call.outputs[1:4], call.params, grads[MOVING[name]])
    return [x.to(one.dtype).sum_to_size(one.shape) for x, one in zip(results, call.tensors, strict=True)]


def _optimal_transport(a, b, cost, plan, f, g, params, grad):
    return grad[..., None] * f, grad[..., None] * g, grad[..., None, None] * plan


def _sinkhorn(a, b, cost, plan, f, g, params, grad):
    """Through P_ij = exp((F_i + G_j - C_ij) / epsilon), whose F and G keep the sums of rows and columns: with M = P grad,
    diag(rows) u + P v = rows of M, P^T u + diag(columns) v = columns of M, by the complement of the columns. That is a
    Laplacian with weights S_ik = sum_j P_ij P_kj / columns_j, and right of it sum_k sum_j P_ij P_kj (grad_ij - grad_kj) /
    columns_j: nothing of size 1 cancels where the plan hardly connects its rows."""
    epsilon = params[0]
    p, grad = plan.to(torch.float64), grad.to(torch.float64)
    m = torch.where(p > 0, p * grad, 0)
    rows, columns = p.sum(-1), p.sum(-2)
    columns = torch.where(columns > 0, columns, 1)
    by_column = p / columns[..., None, :]
    between = (by_column @ p.mT).tril(-1)
    between = between + between.mT
    apart = (m / columns[..., None, :]) @ p.mT - by_column @ m.mT
    right = (apart.tril(-1) + apart.triu(1)).sum(-1)
    # u and v are defined up to a constant: first the one with u = 0 at the largest row.
    free = (torch.arange(rows.shape[-1], device=rows.device) != rows.argmax(-1, keepdim=True)).to(rows.dtype)
    # Where the plan falls apart they are free in each part: a rounding error more in the diagonal chooses one, and what it adds
    # to a whole part cancels below.
    degree = torch.where(rows > 0, between.sum(-1), 1) * (1 + 16 * torch.finfo(rows.dtype).eps)
    degree = torch.where(degree > 0, degree, 1)
    system = torch.diag_embed(degree * free + (1 - free)) - between * free[..., None] * free[..., None, :]
    u = torch.linalg.solve(system, (right * free)[..., None])[..., 0]
    u = u - (rows * u).sum(-1, keepdim=True) / rows.sum(-1, keepdim=True)
    v = (m.sum(-2) - (p * u[..., None]).sum(-2)) / columns
    return u, v, (p * (u[..., None] + v[..., None, :]) - m) / epsilon


def _sinkhorn_minimum(a, b, cost, plan, f, g, params, grad):
    """By the envelope theorem. A mass of 0 counts nothing at whatever its potential is."""
    f, g = (torch.where((mass == 0) & ~potential.isfinite(), 0, potential) for mass, potential in ((a, f), (b, g)))
    return _optimal_transport(a, b, cost, plan, f, g, params, grad)


PULLBACKS = {
    "optimal_transport": _optimal_transport,
    "partial_transport": _optimal_transport,
    "sinkhorn": _sinkhorn,
    "sinkhorn_minimum": _sinkhorn_minimum,
}
MOVING = {"optimal_transport": 0, "partial_transport": 0, "sinkhorn": 1, "sinkhorn_minimum": 0}  # cost, plan, minimum
