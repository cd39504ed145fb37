"""Every map and its gradient composed of torch's own operations: for tensors that are not on the CPU, and for second
derivatives, since what is composed can be differentiated again.

``forward(name, x, dim, params)`` is the map. ``vjp(name, x, y, grad, dim, params)`` is J^T grad, and where parameters are per
row also the gradient in those: a pair, the second of shape (how many are given, x's with 1 for dim). ``params`` holds values
by name: a number, a string, None, or a float64 tensor of x's shape with 1 for dim.
"""

import math

import numpy as np
import torch

INF = math.inf


def forward(name, x, dim, params):
    return FORWARD[name](working(x), dim, params)


def vjp(name, x, y, grad, dim, params):
    return VJP[name](working(x), working(y), working(grad), dim, params)


def canonical(x, dim):
    """Where a row has +inf, these entries alone count, equally."""
    infinite = x == INF
    return torch.where(infinite.any(dim, keepdim=True), torch.where(infinite, 0.0, -INF).to(x.dtype), x)


def has_none(x, dim):
    """Whether a row has no distribution."""
    return x.isnan().any(dim, keepdim=True) | (x == -INF).all(dim, keepdim=True)


def or_nan(value, valid, *inputs):
    """value, and NaN with derivatives NaN in the inputs where not valid."""
    wrong = torch.where(valid, 1.0, math.nan)
    return torch.where(valid, value, sum(x * wrong for x in inputs if x is not None))


def working(x):
    """x in the type to compute in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def dot(a, b, dim):
    return (a * b).sum(dim, keepdim=True)


def xlogy(p):
    """p log p, 0 where p is."""
    return torch.special.xlogy(p, p)


def finite(x, y):
    """x where y has mass, 0 elsewhere; NaN where y is."""
    return torch.where(y > 0, x, y * 0)


# Forward


def softmax(x, dim, params):
    return torch.softmax(canonical(x, dim) / params["temperature"], dim)


def log_softmax(x, dim, params):
    return torch.log_softmax(canonical(x, dim) / params["temperature"], dim)


def logsumexp(x, dim, params):
    temperature = params["temperature"]
    return temperature * torch.logsumexp(x / temperature, dim, keepdim=True)


def sparsemax(x, dim, params):
    return entmax(x, dim, {"alpha": 2.0, "temperature": params["temperature"]})


def entmax(x, dim, params):
    """p_i = m (1 + b z_i m^-b)^(1/b), z = (x - max)/T, by bisection in log m, m the largest p_i."""
    x = canonical(x, dim)
    nan = has_none(x, dim)
    z = ((x - x.amax(dim, keepdim=True)) / params["temperature"]).double()
    b = torch.as_tensor(params["alpha"], dtype=torch.float64, device=x.device) - 1.0
    small = b.abs() < 1e-9
    safe = torch.where(small, torch.ones_like(b), b)

    def masses(log_most):
        w = z * torch.exp(-b * log_most)
        grown = torch.where(small, w, torch.log1p((safe * w).clamp(min=-1.0)) / safe)
        return torch.exp(log_most + grown)

    low = torch.full_like(z.amax(dim, keepdim=True), -math.log(x.shape[dim]))
    high = torch.zeros_like(low)
    for _ in range(60):
        middle = (low + high) / 2
        below = masses(middle).sum(dim, keepdim=True) < 1
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    p = masses((low + high) / 2)
    p = torch.where(z == -INF, 0.0, p)
    p = p / p.sum(dim, keepdim=True)
    return torch.where(nan, math.nan, p).to(x.dtype)


def taylor_softmax(x, dim, params):
    order = params["order"]
    absent = x == -INF
    infinite = x == INF
    z = torch.where(absent | infinite, 0.0, x).double()
    # Of the largest magnitude all terms are one sign or follow the highest: divided by it to the order, none overflows.
    scale = z.abs().amax(dim, keepdim=True).clamp(min=1.0)
    y = z / scale
    value = torch.zeros_like(y)
    for m in range(order, -1, -1):
        value = value * y + torch.exp((m - order) * torch.log(scale) - math.lgamma(m + 1))
    value = torch.where(absent, 0.0, value)
    value = torch.where(infinite.any(dim, keepdim=True), infinite.double(), value)
    return (value / value.sum(dim, keepdim=True)).to(x.dtype)


def sigsoftmax(x, dim, params):
    x = canonical(x, dim)
    return torch.softmax(x + torch.nn.functional.logsigmoid(x), dim)


def _keep(x, kept, dim, temperature):
    p = torch.softmax(torch.where(kept, x, -INF) / temperature, dim)
    return torch.where(x.isnan().any(dim, keepdim=True), math.nan, p)


def _ranks(x, dim):
    """How many come before each entry: larger ones, and equal ones of lower index."""
    order = torch.sort(x, dim=dim, descending=True, stable=True).indices
    count = torch.arange(x.shape[dim], device=x.device)
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.empty_like(order).scatter_(dim, order, count.reshape(shape).expand_as(order)), order


def top_k_softmax(x, dim, params):
    x = canonical(x, dim)
    return _keep(x, _ranks(x, dim)[0] < params["k"], dim, params["temperature"])


def top_p_softmax(x, dim, params):
    x = canonical(x, dim)
    ranks, order = _ranks(x, dim)
    mass = torch.softmax(x.double() / params["temperature"], dim).gather(dim, order).cumsum(dim)
    kept = (mass < params["p"]).sum(dim, keepdim=True)  # and the one that reaches it
    return _keep(x, (ranks <= kept) | (x > -INF if params["p"] == 1.0 else False), dim, params["temperature"])


def min_p_softmax(x, dim, params):
    x = canonical(x, dim)
    z = (x - x.amax(dim, keepdim=True)) / params["temperature"]
    return _keep(x, z >= math.log(params["p"]), dim, params["temperature"])


# The noises of perturb_max: log of the distribution function, of the density, where both have kinks, and the range outside
# which nothing counts.


def _normal_log_density(t):
    return -t * t / 2 - 0.5 * math.log(2 * math.pi)


def _laplace_log_cdf(t):
    return torch.where(t < 0, t - math.log(2), torch.log1p(-torch.exp(-t.abs()) / 2))


NOISES = {
    "normal": (torch.special.log_ndtr, _normal_log_density, (), -38.0, 9.5),
    "logistic": (
        torch.nn.functional.logsigmoid,
        lambda t: torch.nn.functional.logsigmoid(t) + torch.nn.functional.logsigmoid(-t),
        (),
        -60.0,
        50.0,
    ),
    "laplace": (_laplace_log_cdf, lambda t: -t.abs() - math.log(2), (0.0,), -60.0, 50.0),
    "exponential": (lambda t: torch.log(-torch.expm1(-t)), lambda t: -t, (0.0,), 0.0, 50.0),
    "uniform": (torch.log, lambda t: torch.zeros_like(t), (0.0, 1.0), 0.0, 1.0),
}
PANELS, NODES = 24, 24


def _integrand(x, dim, params):
    """At Gauss-Legendre points u between the kinks, in float64 with dim last: h = f/F at u - x, and the product of all F times
    the point's weight. O(n^2) points with kinks."""
    log_cdf, log_density, kinks, low, high = NOISES[params["noise"]]
    z = (x.movedim(dim, -1).double() / params["scale"]).nan_to_num(nan=0.0, posinf=0.0)
    present = z > torch.finfo(torch.float64).min
    z = torch.where(present, z, -1e300)
    most = z.amax(-1, keepdim=True)
    near = torch.maximum(z, most - 1000)  # out of reach all the same
    top = most + high + (math.log(z.shape[-1]) if high > 10 else 0.0)
    bottom = most + low
    ends = [bottom + (top - bottom) * k / PANELS for k in range(PANELS + 1)]
    ends += [torch.maximum(torch.minimum(near + kink, top), bottom) for kink in kinks]
    ends = torch.cat(ends, -1).sort(-1).values
    nodes, weights = (torch.as_tensor(a, device=x.device) for a in np.polynomial.legendre.leggauss(NODES))
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    u = ((left + right) / 2 + (right - left) / 2 * nodes).flatten(-2)
    weight = ((right - left) / 2 * weights).flatten(-2)
    t = u[..., None, :] - near[..., :, None]
    inside = t > low
    if params["noise"] == "uniform":
        log_f = torch.where(inside, torch.log(torch.where(inside, t.clamp(max=1.0), 1.0)), -1e4)
        ratio = torch.where(inside & (t < 1), torch.exp(-log_f), 0.0)
    else:
        safe = torch.where(inside, t, 1.0)
        log_f = torch.where(inside, log_cdf(safe), -1e4)
        ratio = torch.where(inside, torch.exp(log_density(safe) - log_f), 0.0)
    present = present[..., None]
    return torch.where(present, ratio, 0.0), torch.exp(torch.where(present, log_f, 0.0).sum(-2)) * weight


def perturb_max(x, dim, params):
    if params["noise"] == "gumbel":
        return softmax(x, dim, {"temperature": params["scale"]})
    x = canonical(x, dim)
    nan = has_none(x, dim)
    ratio, product = _integrand(x, dim, params)
    p = (ratio @ product.unsqueeze(-1)).squeeze(-1)
    p = (p / p.sum(-1, keepdim=True)).movedim(-1, dim)
    return torch.where(nan, math.nan, p).to(x.dtype)


def _with_entropy(x, dim, target):
    """softmax(gamma x) of an entropy, by bisection in log gamma."""
    x = canonical(x, dim)
    z = (x - x.amax(dim, keepdim=True)).double()
    present = z > -INF
    reach = torch.where(present, -z, 0.0).amax(dim, keepdim=True)
    z = z / torch.where(reach > 0, reach, torch.ones_like(reach))
    target = torch.as_tensor(target, dtype=torch.float64, device=x.device).expand(reach.shape)

    def masses(log_gamma):
        return torch.softmax(torch.where(present, z * torch.exp(log_gamma), -INF), dim)

    low, high = torch.full_like(reach, -60.0), torch.full_like(reach, 60.0)
    for _ in range(80):
        middle = (low + high) / 2
        above = -xlogy(masses(middle)).sum(dim, keepdim=True) > target
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    p = masses((low + high) / 2)
    ties, count = (z == 0).sum(dim, keepdim=True), present.sum(dim, keepdim=True)
    p = torch.where(target <= torch.log(ties.double()), (z == 0) / ties, p)
    p = torch.where(target >= torch.log(count.double()), present / count, p)
    nan = has_none(x, dim)
    return torch.where(nan, math.nan, p).to(x.dtype)


def _target_entropy(params):
    if params["entropy"] is not None:
        return params["entropy"]
    perplexity = params["perplexity"]
    return perplexity.log() if isinstance(perplexity, torch.Tensor) else math.log(perplexity)


def _scores(x, params):
    return torch.log(torch.where(x == INF, math.nan, x)) if params["input"] == "probs" else x


def entropy_normalize(x, dim, params):
    return _with_entropy(_scores(x, params), dim, _target_entropy(params))


def entropy_clip(x, dim, params):
    x = _scores(x, params)
    p = softmax(x, dim, {"temperature": 1.0})
    entropy = -xlogy(p.double()).sum(dim, keepdim=True)
    for name, outside in (("min_entropy", entropy.__lt__), ("max_entropy", entropy.__gt__)):
        end = params[name]
        if end is not None:
            p = torch.where(outside(end), _with_entropy(x, dim, end), p)
    return p


FORWARD = {
    function.__name__: function
    for function in (
        softmax,
        log_softmax,
        logsumexp,
        sparsemax,
        entmax,
        taylor_softmax,
        sigsoftmax,
        top_k_softmax,
        top_p_softmax,
        min_p_softmax,
        perturb_max,
        entropy_normalize,
        entropy_clip,
    )
}


# Gradients: as functions of x and y that hold where y is the map of x, so that y's own derivative is the map's.


def softmax_vjp(x, y, grad, dim, params):
    grad = finite(grad, y)
    return y * (grad - dot(grad, y, dim)) / params["temperature"]


def log_softmax_vjp(x, y, grad, dim, params):
    present = x > -INF
    grad = torch.where(present, grad, torch.zeros_like(grad))
    return torch.where(present, grad - torch.exp(y) * grad.sum(dim, keepdim=True), 0.0) / params["temperature"]


def logsumexp_vjp(x, y, grad, dim, params):
    return torch.where(y == -INF, 0.0, grad * softmax(x, dim, params))


def _threshold_vjp(y, s, grad, dim, temperature):
    grad = finite(grad, y)
    return s * (grad - dot(s, grad, dim) / s.sum(dim, keepdim=True)) / temperature


def sparsemax_vjp(x, y, grad, dim, params):
    return _threshold_vjp(y, (y > 0).to(y.dtype), grad, dim, params["temperature"])


def _psi(t):
    """2 (e^t - 1 - t) / t^2, by its series near 0."""
    near = t.abs() < 1
    safe = torch.where(near, 1.0, t)
    far = 2 * (torch.expm1(safe) - safe) / (safe * safe)
    inner = torch.where(near, t, 0.0)
    series = torch.zeros_like(t)
    for m in range(18, -1, -1):
        series = series * inner + 2 / math.factorial(m + 2)
    return torch.where(near, series, far)


def entmax_vjp(x, y, grad, dim, params):
    alpha = params["alpha"]
    p = torch.where(y > 0, y, 1.0)
    log_p = torch.log(p)
    s = torch.where(y > 0, torch.exp((2.0 - alpha) * log_p), 0.0)
    dx = _threshold_vjp(y, s, grad, dim, params["temperature"])
    if not isinstance(alpha, torch.Tensor):
        return dx, dx.new_empty((0, *y.sum(dim, keepdim=True).shape), dtype=torch.float64)
    b = alpha - 1.0
    p = torch.where(y > 0, y, 0.0).double()
    log_p = log_p.double()
    h = -p * log_p
    r = p * log_p**2 * _psi(-b * log_p)
    sum_h, sum_r = h.sum(dim, keepdim=True), r.sum(dim, keepdim=True)
    dp = (p * sum_r - r + b * (h * sum_r - r * sum_h)) / (2 * (p.sum(dim, keepdim=True) + b * sum_h + b * b * sum_r / 2))
    return dx, dot(finite(grad, y).double(), dp, dim).unsqueeze(0)


def taylor_softmax_vjp(x, y, grad, dim, params):
    order = params["order"]
    z = torch.where(x.isinf(), 0.0, x).double()
    # f'/f of (x/s)^m s^m / m!, s = max(|x|, 1).
    scale = z.detach().abs().clamp(min=1.0)
    t = z / scale
    value, slope = torch.zeros_like(t), torch.zeros_like(t)
    for m in range(order, -1, -1):
        term = torch.exp((m - order) * torch.log(scale) - math.lgamma(m + 1))
        value = value * t + term
        slope = slope * t + (term if m < order else 0.0)
    ratio = (slope / value).to(x.dtype)
    grad = finite(grad, y)
    return torch.where(x == INF, 0.0, ratio * y * (grad - dot(grad, y, dim)))


def sigsoftmax_vjp(x, y, grad, dim, params):
    grad = finite(grad, y)
    return torch.where(x == INF, 0.0, (1 + torch.sigmoid(-x)) * y * (grad - dot(grad, y, dim)))


def perturb_max_vjp(x, y, grad, dim, params):
    if params["noise"] == "gumbel":
        return softmax_vjp(x, y, grad, dim, {"temperature": params["scale"]})
    ratio, product = _integrand(x, dim, params)
    grad = finite(grad, y).movedim(dim, -1).double().unsqueeze(-1)
    pairs = ratio * (grad * ratio.sum(-2, keepdim=True) - (grad * ratio).sum(-2, keepdim=True))
    dx = (pairs @ product.unsqueeze(-1)).squeeze(-1).movedim(-1, dim) / params["scale"]
    return torch.where(x.isinf(), y * 0, dx).to(x.dtype)


def _entropy_parts(x, y, grad, dim):
    """(gradient in x, gradient in the entropy), zero where the row cannot move."""
    present = y > 0
    p = torch.where(present, y, 0.0).double()
    log_p = torch.log(torch.where(present, y, 1.0)).double()
    grad = finite(grad, y).double()
    z = torch.where(present & ~x.isinf(), x, 0.0).double()
    u = p * (z - dot(p, z, dim))
    variance = dot(u, z, dim)
    # Uniform rows: nothing moves.
    fixed = (variance <= 1e-300) | (dot(u, log_p, dim) <= 0)
    variance = torch.where(fixed, 1.0, variance)
    gamma = torch.where(fixed, 1.0, dot(u, log_p, dim) / variance)
    slope = dot(u, grad, dim) / variance
    dx = gamma * (p * (grad - dot(p, grad, dim)) - u * slope)
    return torch.where(fixed, y.double() * 0, dx), torch.where(fixed, 0.0, -slope / gamma)


def entropy_normalize_vjp(x, y, grad, dim, params):
    dx, dentropy = _entropy_parts(_scores(x, params), y, grad, dim)
    rows = []
    if isinstance(params["entropy"], torch.Tensor):
        rows.append(dentropy)
    if isinstance(params["perplexity"], torch.Tensor):
        rows.append(dentropy / params["perplexity"])
    return _in_input(dx, x, params), _stack(rows, dentropy)


def entropy_clip_vjp(x, y, grad, dim, params):
    scores = _scores(x, params)
    p = softmax(scores, dim, {"temperature": 1.0})
    entropy = -xlogy(p.double()).sum(dim, keepdim=True)
    dx = softmax_vjp(scores, y, grad, dim, {"temperature": 1.0}).double()
    held, dentropy = _entropy_parts(scores, y, grad, dim)
    rows = []
    for name, outside in (("min_entropy", entropy.__lt__), ("max_entropy", entropy.__gt__)):
        end = params[name]
        if end is None:
            continue
        beyond = outside(end)
        dx = torch.where(beyond, held, dx)
        if isinstance(end, torch.Tensor):
            rows.append(torch.where(beyond, dentropy, 0.0))
    return _in_input(dx, x, params), _stack(rows, dentropy)


def _in_input(dx, x, params):
    """A gradient in scores as one in what was given."""
    if params["input"] == "probs":
        dx = torch.where(x > 0, dx / torch.where(x > 0, x, 1.0), 0.0)
    return dx.to(x.dtype)


def _stack(rows, like):
    return torch.stack(rows) if rows else like.new_empty((0, *like.shape))


VJP = {
    function.__name__.removesuffix("_vjp"): function
    for function in (
        softmax_vjp,
        log_softmax_vjp,
        logsumexp_vjp,
        sparsemax_vjp,
        entmax_vjp,
        taylor_softmax_vjp,
        sigsoftmax_vjp,
        perturb_max_vjp,
        entropy_normalize_vjp,
        entropy_clip_vjp,
    )
}
for _name in ("top_k_softmax", "top_p_softmax", "min_p_softmax"):
    VJP[_name] = softmax_vjp
