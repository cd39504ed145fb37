"""Gradients of plans and costs, from known plans and potentials."""

import torch


def vjp(name, call, grads):
    """The gradients in masses and costs, of the output that has a derivative."""
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
    # u and v are only defined up to a constant; first u is 0 at the largest row.
    free = torch.ones_like(rows).scatter(-1, rows.argmax(-1, keepdim=True), 0)
    # If the plan has separate components, they are free in each. A rounding error added to the diagonal chooses one; what this
    # adds to a whole component cancels below.
    degree = torch.where(rows > 0, between.sum(-1), 1) * (1 + 16 * torch.finfo(rows.dtype).eps)
    degree = torch.where(degree > 0, degree, 1)
    system = torch.diag_embed(degree * free + (1 - free)) - between * free[..., None] * free[..., None, :]
    u, _ = torch.linalg.solve_ex(system, (right * free)[..., None])  # solve would wait for a device
    u = u[..., 0]
    u = u - (rows * u).sum(-1, keepdim=True) / rows.sum(-1, keepdim=True)
    v = (m.sum(-2) - (p * u[..., None]).sum(-2)) / columns
    return u, v, (p * (u[..., None] + v[..., None, :]) - m) / epsilon


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
    p, cost, weights = call.tensors
    epsilon, grad = call.params[0], grads[0]
    q, g = call.outputs[:2]
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
# The index of the output with a derivative: cost, plan, minimum.
MOVING = {"optimal_transport": 0, "partial_transport": 0, "sinkhorn": 1, "sinkhorn_minimum": 0, "unbalanced_sinkhorn": 0}
