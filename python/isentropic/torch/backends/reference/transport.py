"""Gradients of plans and costs, from known plans and potentials."""

import math

import torch


def vjp(name, call, grads):
    """The gradients in masses and costs, of the outputs that have derivatives."""
    results = PULLBACKS[name](*call.tensors, *call.outputs[1:4], call.params, *(grads[k] for k in MOVING[name]))
    return [x.to(one.dtype).sum_to_size(one.shape) for x, one in zip(results, call.tensors, strict=True)]


def _optimal_transport(a, b, cost, plan, f, g, params, grad):
    return grad[..., None] * f, grad[..., None] * g, grad[..., None, None] * plan


def _sinkhorn(a, b, cost, plan, f, g, params, *grads):
    """Through P_ij = exp((F_i + G_j - C_ij) / epsilon), whose F and G keep the sums of rows and columns: with M = P grad,
    diag(rows) u + P v = rows of M, P^T u + diag(columns) v = columns of M, by the complement of the columns. That is a
    Laplacian with weights S_ik = sum_j P_ij P_kj / columns_j, and right of it sum_k sum_j P_ij P_kj (grad_ij - grad_kj) /
    columns_j: nothing of size 1 cancels where the plan hardly connects its rows.

    The equation of an empty row is divided by its sum: P_ij / rows_i, where its mass would go, is defined by g, and for an
    empty column by f. So second derivatives ask for those of f = F - epsilon log a and g = G - epsilon log b.

    The system is of the rows; a plan with more rows than columns is turned."""
    if plan.shape[-2] > plan.shape[-1]:
        grad, grad_f, grad_g = grads
        grad = None if grad is None else grad.mT
        of_b, of_a, of_cost = _sinkhorn(b, a, cost.mT, plan.mT, g, f, params, grad, grad_g, grad_f)
        return of_a, of_b, of_cost.mT
    epsilon = params[0]
    a, b, cost, p, f, g = (x.to(torch.float64) for x in (a, b, cost, plan, f, g))
    grad, grad_f, grad_g = (
        torch.zeros_like(x) if one is None else one.to(torch.float64) for x, one in zip((p, f, g), grads, strict=True)
    )
    grad = torch.where((p > 0) | grad.isfinite(), grad, 0)
    rows, columns = p.sum(-1), p.sum(-2)
    empty_row, empty = (rows == 0)[..., None], columns == 0
    columns = torch.where(empty, 1, columns)
    of_row = torch.where(empty_row, _conditional(b, g, cost, epsilon), p)
    of_column = torch.where(empty[..., None, :], _conditional(a, f, cost.mT, epsilon).mT, p / columns[..., None, :])
    product = of_row @ of_column.mT
    # Exactly symmetric, except for rows that are divided by their sum.
    lower = product.tril(-1)
    between = lower + torch.where(empty_row | empty_row.mT, product.triu(1), lower.mT)
    apart = (of_row * grad) @ of_column.mT - of_row @ (of_column * grad).mT
    by_g = epsilon * grad_g / columns
    right = (apart.tril(-1) + apart.triu(1)).sum(-1) + epsilon * grad_f - (of_row * by_g[..., None, :]).sum(-1)
    # u and v are only defined up to a constant; first u is 0 at the largest row.
    free = torch.ones_like(rows).scatter(-1, rows.argmax(-1, keepdim=True), 0)
    # If the plan has separate components, they are free in each. A rounding error added to the diagonal chooses one; what this
    # adds to a whole component cancels below.
    degree = between.sum(-1) * (1 + 16 * torch.finfo(rows.dtype).eps)
    degree = torch.where(degree > 0, degree, 1)
    system = torch.diag_embed(degree * free + (1 - free)) - between * free[..., None] * free[..., None, :]
    u, _ = torch.linalg.solve_ex(system, (right * free)[..., None])  # solve would wait for a device
    u = u[..., 0]
    u = u - (rows * u).sum(-1, keepdim=True) / rows.sum(-1, keepdim=True)
    v = (of_column * (grad - u[..., None])).sum(-2) + by_g
    of_a, of_b = (
        x - torch.where(mass > 0, epsilon * one / torch.where(mass > 0, mass, 1), 0)
        for x, mass, one in ((u, a, grad_f), (v, b, grad_g))
    )
    return of_a, of_b, p * (u[..., None] + v[..., None, :] - grad) / epsilon


def _conditional(mass, potential, cost, epsilon):
    """Where the mass of each row goes: as mass_j exp((potential_j - cost_ij) / epsilon); 0 if every arc is forbidden."""
    allowed = (cost < math.inf) & potential.isfinite()[..., None, :]
    mass, scores = mass[..., None, :], torch.where(allowed, potential[..., None, :] - cost, -math.inf)
    largest = torch.where(mass > 0, scores, -math.inf).amax(-1, keepdim=True).detach()
    largest = torch.where(largest > -math.inf, largest, 0)
    # An entry without mass may have a score above the largest: 0 times its exponential is 0 if that is finite.
    going = mass * ((scores - largest) / epsilon).clamp(max=700).exp()
    total = going.sum(-1, keepdim=True)
    return going / torch.where(total > 0, total, 1)


def _sinkhorn_minimum(a, b, cost, plan, f, g, params, grad):
    """The gradients by the envelope theorem. A mass of 0 adds nothing for any potential."""
    f, g = (torch.where((mass == 0) & ~potential.isfinite(), 0, potential) for mass, potential in ((a, f), (b, g)))
    return _optimal_transport(a, b, cost, plan, f, g, params, grad)


def _unbalanced_sinkhorn(a, b, cost, plan, f, g, params, grad):
    """The gradients by the envelope theorem: P counts as constant. A mass that stays has a potential of inf."""
    epsilon, penalty = params[:2]

    def slope(potential, others):
        kept = torch.exp(-potential / penalty)
        return grad[..., None] * (penalty * (1 - kept) + epsilon * (others.sum(-1, keepdim=True) - kept))

    return slope(f, b), slope(g, a), grad[..., None, None] * plan


def barycenter_vjp(call, grads):
    """In distributions that sum to 1, costs and weights that sum to 1, all in float64.

    With L_k = diag(q) - P_k^T diag(1 / p_k) P_k, of whose columns each sums to 0, what keeps all plans' columns q and
    sum_k w_k G_k = 0 is L_k dG_k = epsilon dq - h_k and sum_k w_k dG_k = -sum_k dw_k G_k, h_k = epsilon P_k^T (dp_k / p_k) and
    what C changes. So with mu of (sum_k w_k L_k^+) mu = grad / epsilon and l_k = -w_k L_k^+ mu the derivative is -<l_k, h_k> -
    <mu, sum_k dw_k G_k>. L_k = diag(s) (1 - Q_k) diag(s), s = sqrt(q), and eigenvalues of 1 - Q_k are in [0, 1]."""
    epsilon, grad = call.params[0], grads[0]
    lost = call.outputs[0].isnan().any(-1)  # problems with NaN, which have no eigenvalues
    grad = torch.where(lost[..., None] & (grad != 0), torch.nan, grad)
    p, cost, weights, q, g = (
        torch.where(lost[(..., *[None] * own)], 1 / x.shape[-1], x)
        for x, own in zip((*call.tensors, *call.outputs[:2]), (2, 2, 1, 1, 2), strict=True)
    )
    going = ((g[..., None, :] - cost[..., None, :, :]) / epsilon).softmax(-1)  # rows of the plans, each of sum 1
    plans = p[..., None] * going
    root = torch.where(q > 0, q.sqrt(), 0)
    inverse = torch.where(q > 0, 1 / torch.where(q > 0, root, 1), 0)
    half = p.sqrt()[..., None] * going * inverse[..., None, None, :]
    eye = torch.ones_like(q[..., None, :]).diag_embed()
    inverses = torch.linalg.pinv(eye - half.mT @ half, rtol=1e-13, hermitian=True)
    both = (weights[..., None, None] * inverses).sum(-3)
    grad = root * (grad - (q * grad).sum(-1, keepdim=True))
    mu = torch.linalg.pinv(both, rtol=1e-13, hermitian=True) @ grad[..., None] / epsilon
    moved = -weights[..., None] * inverse[..., None, :] * (inverses @ mu[..., None, :, :])[..., 0]
    through = (going @ moved[..., None])[..., 0]  # the mean of l_k over the columns that a row goes to
    of_cost = -(plans * (through[..., None] - moved[..., None, :])).sum(-3)
    of_weights = -((root[..., None, :] * mu[..., None, :, 0]) * g).sum(-1)
    results = -epsilon * through, of_cost, of_weights
    return [x.sum_to_size(one.shape) for x, one in zip(results, call.tensors, strict=True)]


PULLBACKS = {
    "unbalanced_sinkhorn": _unbalanced_sinkhorn,
    "optimal_transport": _optimal_transport,
    "partial_transport": _optimal_transport,
    "sinkhorn": _sinkhorn,
    "sinkhorn_minimum": _sinkhorn_minimum,
}
# The indices of outputs with derivatives: cost or minimum; of sinkhorn plan, f and g.
MOVING = dict.fromkeys(PULLBACKS, (0,)) | {"sinkhorn": (1, 2, 3)}
