"""Every map and its gradient.

``FORWARD[name](x, dim, params)`` is the map, ``VJP[name](x, y, grad, dim, params)`` is J^T grad as a function of x and y, where
y is the map of x, so that y's derivative is the map's. A map without an entry is differentiated itself. ``SLOPES[name,
param](x, y, grad, dx, dim, params)``, dx of VJP, is the gradient in a parameter that may be per row; without an entry the map
is differentiated. ``params`` holds values by name: a number, a string, None, or a float64 tensor of x's shape with 1 for dim.
"""

import functools
import math

import numpy as np
import torch

from isentropic import _descriptions
from isentropic.torch._arguments import numbers_and_rows
from isentropic.torch._spec import OPERATORS, absent
from isentropic.torch.backends.reference.rows import (
    below_most,
    canonical,
    divided,
    dot,
    finite,
    has_none,
    in_float64,
    largest,
    working,
    xlogy,
)

INF = math.inf


# Forward


def softmax(x, dim, params):
    return torch.softmax(divided(below_most(canonical(x, dim), dim), params["temperature"]), dim)


def log_softmax(x, dim, params):
    return torch.log_softmax(divided(below_most(canonical(x, dim), dim), params["temperature"]), dim)


def logsumexp(x, dim, params):
    temperature = params["temperature"]
    return temperature * torch.logsumexp(divided(x, temperature), dim, keepdim=True)


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
    x = canonical(x, dim)
    absent = x == -INF
    z = torch.where(absent, 0.0, x).double()
    # Divided by the largest magnitude to the power `order`, no term overflows.
    scale = z.abs().amax(dim, keepdim=True).clamp(min=1.0)
    y = z / scale
    value = torch.zeros_like(y)
    for m in range(order, -1, -1):
        value = value * y + torch.exp((m - order) * torch.log(scale) - math.lgamma(m + 1))
    value = torch.where(absent, 0.0, value)
    return (value / value.sum(dim, keepdim=True)).to(x.dtype)


def sigsoftmax(x, dim, params):
    x = canonical(x, dim)
    return torch.softmax(x + torch.nn.functional.logsigmoid(x), dim)


def _keep(x, kept, dim, temperature):
    p = torch.softmax(divided(torch.where(kept, x, -INF), temperature), dim)
    return torch.where(x.isnan().any(dim, keepdim=True), math.nan, p)


def _ranks(x, dim):
    """The number of entries before each one: larger ones, and equal ones with a lower index."""
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
    kept = (mass < params["p"]).sum(dim, keepdim=True)  # the entries below p, and the one that reaches it
    return _keep(x, (ranks <= kept) | (x > -INF if params["p"] == 1.0 else False), dim, params["temperature"])


def min_p_softmax(x, dim, params):
    x = canonical(x, dim)
    z = (x - x.amax(dim, keepdim=True)) / params["temperature"]
    return _keep(x, z >= math.log(params["p"]), dim, params["temperature"])


# The noises of perturb_max: log of the distribution function, of the density, their kinks, and the range outside of which
# nothing matters.


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
    z = divided(below_most(x.double(), dim), params["scale"]).movedim(dim, -1).nan_to_num(nan=0.0, posinf=0.0)
    present = z > torch.finfo(torch.float64).min
    z = torch.where(present, z, -1e300)
    most = z.amax(-1, keepdim=True)
    near = torch.maximum(z, most - 1000)  # still out of reach
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
    """softmax(gamma x) with a given entropy, by bisection in log gamma."""
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
    for name, beyond in _BEYOND.items():
        if params[name] is not None:
            p = torch.where(beyond(entropy, params[name]), _with_entropy(x, dim, params[name]), p)
    return p


_BEYOND = {"min_entropy": torch.lt, "max_entropy": torch.gt}


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


# Gradients.


def softmax_vjp(x, y, grad, dim, params):
    grad = finite(grad, y)
    return y * (grad - dot(grad, y, dim)) / params["temperature"]


def log_softmax_vjp(x, y, grad, dim, params):
    absent = (x == -INF) & ~x.isnan().any(dim, keepdim=True)
    grad = torch.where(absent, 0.0, grad)
    return torch.where(absent, 0.0, grad - torch.exp(y) * grad.sum(dim, keepdim=True)) / params["temperature"]


def logsumexp_vjp(x, y, grad, dim, params):
    return grad * softmax(x, dim, params)


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


def _entmax_s(y, alpha):
    return torch.where(y > 0, torch.exp((2.0 - alpha) * torch.log(torch.where(y > 0, y, 1.0))), 0.0)


def entmax_vjp(x, y, grad, dim, params):
    return _threshold_vjp(y, _entmax_s(y, params["alpha"]), grad, dim, params["temperature"])


def entmax_alpha(x, y, grad, dx, dim, params):
    b = params["alpha"] - 1.0
    p = torch.where(y > 0, y, 0.0).double()
    log_p = torch.log(torch.where(y > 0, y, 1.0)).double()
    h = -p * log_p
    r = p * log_p**2 * _psi(-b * log_p)
    sum_h, sum_r = h.sum(dim, keepdim=True), r.sum(dim, keepdim=True)
    dp = (p * sum_r - r + b * (h * sum_r - r * sum_h)) / (2 * (p.sum(dim, keepdim=True) + b * sum_h + b * b * sum_r / 2))
    return dot(finite(grad, y).double(), dp, dim)


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
    return ratio * y * (grad - dot(grad, y, dim))


def sigsoftmax_vjp(x, y, grad, dim, params):
    grad = finite(grad, y)
    return (1 + torch.sigmoid(-x)) * y * (grad - dot(grad, y, dim))


def perturb_max_vjp(x, y, grad, dim, params):
    if params["noise"] == "gumbel":
        return softmax_vjp(x, y, grad, dim, {"temperature": params["scale"]})
    ratio, product = _integrand(x, dim, params)
    grad = finite(grad, y).movedim(dim, -1).double().unsqueeze(-1)
    pairs = ratio * (grad * ratio.sum(-2, keepdim=True) - (grad * ratio).sum(-2, keepdim=True))
    dx = (pairs @ product.unsqueeze(-1)).squeeze(-1).movedim(-1, dim) / params["scale"]
    return torch.where(x.isinf(), y * 0, dx).to(x.dtype)


def _entropy_parts(x, y, grad, dim):
    """(gradient in x, gradient in the entropy), zero if the row cannot change."""
    present = (y > 0) & x.isfinite()
    p = torch.where(y > 0, y, 0.0).double()
    log_p = torch.log(torch.where(y > 0, y, 1.0)).double()
    grad = finite(grad, y).double()
    # Scores of any size: halves, so that no difference overflows, in units of their reach, so that no square does.
    z = below_most(torch.where(present, x.double() / 2, -INF), dim)
    z = torch.where(present, z, 0.0)
    reach = largest(-z, dim)
    reach = torch.where(reach > 0, reach, 1.0)
    z = z / reach
    u = p * (z - dot(p, z, dim))
    variance = dot(u, z, dim)
    # Uniform rows do not change, though rounding may leave a little of <u, log p>.
    uniform = largest(y, dim) <= -largest(torch.where(y > 0, -y, -INF), dim)
    fixed = uniform | (variance <= 1e-300) | (dot(u, log_p, dim) <= 0)
    variance = torch.where(fixed, 1.0, variance)
    gamma = torch.where(fixed, 1.0, dot(u, log_p, dim) / variance)
    slope = dot(u, grad, dim) / variance
    dx = gamma * (p * (grad - dot(p, grad, dim)) - u * slope) / (2 * reach)
    return torch.where(fixed, y.double() * 0, dx), torch.where(fixed, 0.0, -slope / gamma)


def entropy_normalize_vjp(x, y, grad, dim, params):
    return _in_input(_entropy_parts(_scores(x, params), y, grad, dim)[0], x, params)


def entropy_normalize_entropy(x, y, grad, dx, dim, params):
    return _entropy_parts(_scores(x, params), y, grad, dim)[1]


def entropy_normalize_perplexity(x, y, grad, dx, dim, params):
    return entropy_normalize_entropy(x, y, grad, dx, dim, params) / params["perplexity"]


def _held(scores, dim, params):
    """The rows at each bound, by its name: their entropy is the bound's, within the kernels' tolerance. No row is at both."""
    p = softmax(scores.double(), dim, {"temperature": 1.0})
    entropy, tolerance = -xlogy(p).sum(dim, keepdim=True), 1e-12 if scores.dtype == torch.float64 else 1e-6
    low, high = (None if params[name] is None else in_float64(params[name], scores) for name in _BEYOND)
    found = {}
    if high is not None:
        entropy = torch.minimum(entropy, high)
        found["max_entropy"] = entropy >= high - tolerance * high.clamp(min=1.0)
    if low is not None:
        found["min_entropy"] = entropy <= low + tolerance * low.clamp(min=1.0)
        if high is not None:
            found["max_entropy"] = found["max_entropy"] & ~found["min_entropy"]
    return found


def entropy_clip_vjp(x, y, grad, dim, params):
    scores = _scores(x, params)
    dx = softmax_vjp(scores, y, grad, dim, {"temperature": 1.0}).double()
    at_bound, _ = _entropy_parts(scores, y, grad, dim)
    for rows in _held(scores, dim, params).values():
        dx = torch.where(rows, at_bound, dx)
    return _in_input(dx, x, params)


def _entropy_clip_end(name, x, y, grad, dx, dim, params):
    scores = _scores(x, params)
    held = _held(scores, dim, params)[name]
    grad = torch.where(held, grad, 0.0)  # other rows have no derivative, those that are NaN neither
    return torch.where(held, _entropy_parts(scores, y, grad, dim)[1], 0.0)


def _in_input(dx, x, params):
    """A gradient in scores, converted to one in the given input."""
    if params["input"] == "probs":
        dx = torch.where(x > 0, dx / torch.where(x > 0, x, 1.0), 0.0)
    return dx.to(x.dtype)


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
VJP |= dict.fromkeys(("top_k_softmax", "top_p_softmax", "min_p_softmax"), softmax_vjp)


def _divisor(name, x, y, grad, dx, dim, params):
    """The gradient in T of f(x/T): -<J^T g, x> / T, and J 1 = 0. Scores without mass have no part, however far."""
    x = torch.where(x.isinf() | (y == 0), 0.0, below_most(x.double(), dim))
    return -dot(dx.double(), x, dim) / params[name]


def log_softmax_temperature(x, y, grad, dx, dim, params):
    """y is log p: every finite score has a part."""
    return _divisor("temperature", x, torch.ones_like(y), grad, dx, dim, params)


def logsumexp_temperature(x, y, grad, dx, dim, params):
    """The gradient in T of T f(x/T), which is the same if x and y move together."""
    value = y.double() - largest(x.double(), dim)
    p = softmax(x, dim, params)
    return _divisor("temperature", x, p, grad, dx, dim, params) + grad.double() * value / params["temperature"]


SLOPES = {
    ("log_softmax", "temperature"): log_softmax_temperature,
    ("logsumexp", "temperature"): logsumexp_temperature,
    ("entmax", "alpha"): entmax_alpha,
    ("entropy_normalize", "entropy"): entropy_normalize_entropy,
    ("entropy_normalize", "perplexity"): entropy_normalize_perplexity,
    ("entropy_clip", "min_entropy"): functools.partial(_entropy_clip_end, "min_entropy"),
    ("entropy_clip", "max_entropy"): functools.partial(_entropy_clip_end, "max_entropy"),
    ("perturb_max", "scale"): functools.partial(_divisor, "scale"),
}


def symmetric(description, *arguments):
    """Whether the Jacobian is symmetric with these parameters of the operator."""
    return description["symmetric"] and "probs" not in arguments


# As operators.


def call_map(name, x, params, dim):
    """A map by its operator, which uses a kernel if there is one; differentiable in x and in parameters that are tensors."""
    description = _descriptions.MAPS[name]
    numbers, rows = numbers_and_rows(description, (params[param["name"]] for param in description["params"]), "x", x, dim)
    return OPERATORS[name](x, *rows, *numbers, dim)


def _map(description, x, *arguments):
    count = len(_descriptions.rows(description))
    params = _descriptions.named(description, arguments[:count], arguments[count:-1])
    return FORWARD[description["name"]](working(x), arguments[-1], params).to(x.dtype).contiguous()


def _moving(description, x, y, grad, dim):
    """(x, y, grad) with harmless numbers, and no gradient, in rows that do not change: all their derivatives are 0."""
    still = (x == INF).any(dim, keepdim=True) & ~(x.isnan() | y.isnan()).any(dim, keepdim=True)
    if "laws" not in description:  # of a logarithm; maps are NaN if every score is -inf
        still = still | (x == -INF).all(dim, keepdim=True)
    return torch.where(still, 1.0, x), torch.where(still, 1.0, y), torch.where(still, 0.0, grad)


def _vjp(description, x, *arguments):
    name, per_row = description["name"], _descriptions.per_row(description)
    rows, (y, grad, *values, dim) = arguments[: len(per_row)], arguments[len(per_row) :]
    params = _descriptions.named(description, rows, values)
    wide, y, grad = _moving(description, working(x), working(y), working(grad), dim)
    if name in VJP:
        dx = VJP[name](wide, y, grad, dim, params)
    else:
        dx = torch.func.vjp(lambda x: FORWARD[name](x, dim, params), wide)[1](grad)[0]

    def slope(param, row):
        of = SLOPES.get((name, param)) or (functools.partial(_divisor, param) if param == "temperature" else None)
        if of is not None:
            return of(wide, y, grad, dx, dim, params).to(torch.float64).contiguous()
        return torch.func.vjp(lambda row: FORWARD[name](wide, dim, {**params, param: row}), row)[1](grad)[0]

    slopes = [absent(x) if row is None else slope(param, row) for param, row in zip(per_row, rows, strict=True)]
    dx = dx.to(x.dtype).contiguous()
    return (dx, *slopes) if slopes else dx


_COMPOSED = {name: _descriptions.MAPS[name] for name in FORWARD}
IMPLEMENTATIONS = {name: functools.partial(_map, one) for name, one in _COMPOSED.items()}
IMPLEMENTATIONS |= {f"{name}_vjp": functools.partial(_vjp, one) for name, one in _COMPOSED.items()}
