"""Measures of distributions: value and gradients, which can be differentiated again."""

import functools
import math

import torch

from isentropic import _descriptions
from isentropic.torch.backends.reference.rows import (
    INF,
    canonical,
    has_none,
    in_float64,
    mean_exp,
    mean_exp_slope,
    or_nan,
    reduction,
    working,
)


def _where(condition, x, otherwise):
    return torch.where(condition, x, torch.full_like(x, otherwise))


class _Distribution:
    """The distribution in a tensor: p, and log p where p > 0."""

    def __init__(self, x, values, dim):
        self.dim, self.divisor = dim, None
        if values["input"] == "probs":
            if values["normalize"]:
                self.divisor = x.sum(dim, keepdim=True)
                x = x / self.divisor
            self.p = x
            self.present = x > 0
            self.log = torch.log(_where(self.present, x, 1.0))
            self.through = "division" if values["normalize"] else "probs"
            return
        softmax = values["input"] == "scores" or values["normalize"]
        self.still = (x == INF).any(dim, keepdim=True) & ~x.isnan().any(dim, keepdim=True)
        # A row without a distribution is NaN. This is said here, since other runtimes' log_softmax may not make it so.
        log = or_nan(torch.log_softmax(canonical(x, dim), dim), ~has_none(x, dim), x) if softmax else x
        self.p = log.exp()
        self.present = log != -math.inf
        self.log = _where(self.present, log, 0.0)
        self.through = "softmax" if softmax else "logs"

    def gradient(self, g, weighted=None):
        """The gradient of a function whose partial derivatives in p are g, where p > 0. `weighted` is p g, if that is known for
        p that are rounded to 0 too."""
        if self.through == "probs":
            return g
        if weighted is None:
            weighted = _times_p(self, g)
        weighted = _where(self.present, weighted, 0.0)
        if self.through == "logs":
            return weighted
        mean = weighted.sum(self.dim, keepdim=True)
        if self.through == "softmax":
            return torch.where(self.still, 0.0, weighted - self.p * mean)
        return (g - mean) / self.divisor


def _times_p(p, g):
    return p.p * torch.where(p.p == 0, 0.0, g)  # where g may be infinite


def _entropy(p, values, dim):
    return -(p.p * p.log).sum(dim), (_where(p.present, -p.log - 1, math.inf),)


def _perplexity(p, values, dim):
    value = _entropy(p, values, dim)[0].exp()
    return value, (_where(p.present, (-p.log - 1) * value.unsqueeze(dim), math.inf),)


class _Order:
    """alpha, one number or one for each row, and the formulas to use for it. `usual` is alpha, or 2 instead of inf."""

    def __init__(self, values, p):
        self.alpha = in_float64(values["alpha"], p.p)
        self.infinite, self.none = self.alpha == math.inf, self.alpha == 0
        self.near_1 = (self.alpha - 1).abs() < 2**-10
        self.usual = torch.where(self.infinite, 2.0, self.alpha)
        self.minus_1 = torch.where(self.infinite, 1.0, self.alpha - 1)
        self.little = torch.where(self.near_1, self.minus_1, 0.0)  # elsewhere its powers may overflow
        self.apart = torch.where(self.infinite | self.near_1, 1.0, self.alpha - 1)  # entries by which one may divide


def _excess(p, minus_1, dim):
    """sum p (p^(alpha - 1) - 1) / (alpha - 1): minus the entropy at 1."""
    return (p.p * p.log * mean_exp(minus_1 * p.log)).sum(dim, keepdim=True)


def _near(p, order, divisor=1.0):
    z, rising = order.little * p.log, order.minus_1 > 0
    # At p = 0 the limit, 1 / (alpha - 1), or infinite.
    at_0 = torch.where(rising, 1 / torch.where(rising, order.minus_1, 1.0).to(z.dtype) / divisor, math.inf)
    return torch.where(p.present, (-z.exp() - p.log * mean_exp(z)) / divisor, at_0)


def _or_at_0(p, order, g):
    """g, and where p is 0 the limit of a multiple of p^(alpha - 1)."""
    return torch.where(p.present, g, torch.where(order.alpha > 1, 0.0, math.inf).to(g.dtype))


def _renyi_entropy(p, values, dim):
    order = _Order(values, p)
    largest = p.p.amax(dim, keepdim=True)
    alpha = torch.where(order.infinite | order.near_1, 2.0, order.alpha)
    powers = torch.where(p.present, (alpha * (p.log - largest.log())).exp(), 0.0)
    log_sum = powers.sum(dim, keepdim=True).log() + alpha * largest.log()
    excess = _excess(p, order.little, dim)
    more = order.little * excess
    near = -excess * _log1p_over(more)
    value = torch.where(order.near_1, near, torch.where(order.infinite, -largest.log(), log_sum / -order.apart))
    g = _or_at_0(p, order, -alpha / order.apart * ((alpha - 1) * p.log - log_sum).exp())
    top = (p.p == largest).to(p.p.dtype)
    g = torch.where(order.infinite, -top / (largest * top.sum(dim, keepdim=True)), g)
    near = _near(p, order, 1 + more)
    g = torch.where(order.none, 0.0, torch.where(order.near_1, near, g))
    # p^(alpha - 1) may overflow, and p times it does not.
    weighted = -alpha / order.apart * (alpha * p.log - log_sum).exp()
    weighted = torch.where(order.infinite, -top / top.sum(dim, keepdim=True), weighted)
    return value.squeeze(dim), ((g, torch.where(order.near_1, _times_p(p, near), weighted)),)


def _log1p_over(x):
    """log(1 + x) / x."""
    near = x.abs() < 2**-6
    inner, total = torch.where(near, x, 0.0), torch.zeros_like(x)
    for k in range(10, 0, -1):
        total = 1 / k - total * inner
    safe = torch.where(near, 1.0, x)
    return torch.where(near, total, torch.log1p(safe) / safe)


def _renyi_entropy_alpha(p, values, dim):
    """-KL(q, p) / (alpha - 1)^2, q = p^alpha / sum p^alpha, plus the terms for a sum that is not 1."""
    order = _Order(values, p)
    w = p.log + _renyi_entropy(p, {"alpha": order.usual}, dim)[0].unsqueeze(dim)
    y = (order.usual - 1) * w
    slope = -torch.where(p.present, p.p * w * w * mean_exp_slope(y), 0.0).sum(dim, keepdim=True)
    slope = slope + torch.where(order.near_1, 0.0, (p.p.sum(dim, keepdim=True) - 1) / order.apart**2)
    return torch.where(order.infinite, 0.0, slope)


def _tsallis_entropy(p, values, dim):
    order = _Order(values, p)
    total = p.p.sum(dim, keepdim=True)
    missing = torch.where(order.near_1, 0.0, (1 - total) / order.apart)
    value = torch.where(order.infinite, 0.0 * total, missing - _excess(p, order.minus_1, dim))
    g = _or_at_0(p, order, -order.usual / order.apart * (order.minus_1 * p.log).exp())
    near = _near(p, order)
    g = torch.where(order.near_1, near, g)
    weighted = -order.usual / order.apart * (order.usual * p.log).exp()  # as for Renyi
    weighted = torch.where(order.near_1, _times_p(p, near), weighted)
    return value.squeeze(dim), ((torch.where(order.infinite | order.none, 0.0, g), torch.where(order.infinite, 0.0, weighted)),)


def _tsallis_entropy_alpha(p, values, dim):
    order = _Order(values, p)
    y = order.minus_1 * p.log
    slope = -(p.p * p.log * p.log * mean_exp_slope(y)).sum(dim, keepdim=True)
    slope = slope - torch.where(order.near_1, 0.0, (1 - p.p.sum(dim, keepdim=True)) / order.apart**2)
    return torch.where(order.infinite, 0.0, slope)


def _missing(p, q):
    return p.present & ~q.present


def _cross_entropy(p, q, values, dim):
    value = _where(~_missing(p, q), -p.p * q.log, math.inf).sum(dim)
    neither = ~p.present & ~q.present
    dq = torch.where(p.present, -p.p / torch.where(q.present, q.p, torch.zeros_like(q.p)), torch.zeros_like(p.p))
    return value, (torch.where(q.present | neither, -q.log, torch.full_like(q.log, math.inf)), (dq, -p.p))


def _kl_divergence(p, q, values, dim):
    difference = p.log - q.log
    terms = torch.where(p.present, p.p * difference - p.p + q.p, q.p)
    value = torch.where(_missing(p, q), torch.full_like(terms, math.inf), terms).sum(dim)
    nothing = torch.zeros_like(terms)
    dp = torch.where(p.present & q.present, difference, nothing)
    dp = torch.where(_missing(p, q), torch.full_like(dp, math.inf), dp)
    dp = torch.where(_missing(q, p), torch.full_like(dp, -math.inf), dp)
    dq = torch.where(q.present, (q.p - p.p) / _where(q.present, q.p, 1.0), nothing)
    return value, (dp, (torch.where(_missing(p, q), torch.full_like(dq, -math.inf), dq), q.p - p.p))


def _js_divergence(p, q, values, dim):
    middle = (p.p + q.p) / 2
    log = torch.log(_where(middle > 0, middle, 1.0))
    value = (p.p * (p.log - log) + q.p * (q.log - log)).sum(dim) / 2
    g = [torch.where(one.present, (one.log - log) / 2, torch.where(middle > 0, -math.inf, 0.0)) for one in (p, q)]
    most = math.log(2)
    return torch.where(value < 0, 0.0, torch.where(value > most, most, value)), tuple(g)


def _safe_log(x):
    return torch.log(_where(x > 0, x, 1.0))


def _table(p, values, dim):
    """(table, log p, the dimensions of x and of y) of a flattened one."""
    x, y = dim - p.p.dim() - 1, dim - p.p.dim()
    table, log = (part.unflatten(dim, (-1, values["cols"])) for part in (p.p, p.log))
    return table, log, x, y


def _conditional_entropy(p, values, dim):
    table, log, x, y = _table(p, values, dim)
    given = table.sum(y if values["given"] == "x" else x, keepdim=True)
    g = (_safe_log(given) - log).flatten(x, y)
    return (p.p * g).sum(dim), (torch.where(p.present, g, _infinite_where(given, table, x, y)),)


def _infinite_where(marginal, table, x, y):
    """-log p at p = 0; it is 0 if its marginal is 0 too."""
    return torch.where(marginal.expand_as(table) > 0, math.inf, 0.0).to(table.dtype).flatten(x, y)


def _mutual_information(p, values, dim):
    table, log, x, y = _table(p, values, dim)
    rows, cols = table.sum(y, keepdim=True), table.sum(x, keepdim=True)
    both = _safe_log(rows) + _safe_log(cols) - _safe_log(rows.sum(x, keepdim=True))
    g = (log - both).flatten(x, y)
    return (p.p * g).sum(dim).clamp(min=0), (torch.where(p.present, g, -_infinite_where(rows * cols, table, x, y)),)


MEASURES = {
    "entropy": _entropy,
    "perplexity": _perplexity,
    "renyi_entropy": _renyi_entropy,
    "tsallis_entropy": _tsallis_entropy,
    "cross_entropy": _cross_entropy,
    "kl_divergence": _kl_divergence,
    "js_divergence": _js_divergence,
    "js_distance": _js_divergence,
    "conditional_entropy": _conditional_entropy,
    "mutual_information": _mutual_information,
}

# Gradients in the parameters that may be per row.
SLOPES = {("renyi_entropy", "alpha"): _renyi_entropy_alpha, ("tsallis_entropy", "alpha"): _tsallis_entropy_alpha}


def _measure(description, tensors, params, dim):
    name = description["name"]
    rows = [_Distribution(working(x), params, dim) for x in tensors]
    value, partials = MEASURES[name](*rows, params, dim)
    gradients = [row.gradient(*(g if isinstance(g, tuple) else (g,))) for row, g in zip(rows, partials, strict=True)]
    unit = 1.0 if name == "perplexity" else _unit(params)
    value, gradients = value / unit, [g / unit for g in gradients]
    if name == "js_distance":
        value = value.sqrt()
        factor = torch.where(value > 0, 0.5 / _where(value > 0, value, 1.0), torch.zeros_like(value)).unsqueeze(dim)
        gradients = [g * factor for g in gradients]
    slopes = {param: of(*rows, params, dim) / unit for (measure, param), of in SLOPES.items() if measure == name}
    return value, gradients, slopes


def _unit(params):
    return 1.0 if params["base"] is None else math.log(params["base"])


def _self_information(p, values, dim):
    return _where(p.present, -p.log, math.inf)


def _self_information_pullback(x, grad, values, dim):
    if values["input"] == "scores" or (values.get("normalize") and values["input"] == "log_probs"):
        return torch.softmax(x, dim) * grad.sum(dim, keepdim=True) - grad
    if values["input"] == "log_probs":
        return -grad
    through_sum = grad.sum(dim, keepdim=True) / x.sum(dim, keepdim=True) if values["normalize"] else 0
    return through_sum - _times(grad, 1 / x)


def _times(grad, slope):
    """Their product, 0 if the factor of an infinite slope is 0."""
    return grad * torch.where((grad == 0) & slope.isinf(), 0, slope)


def _binary_entropy(x, values, dim):
    if values["input"] == "scores":
        logs = torch.nn.functional.logsigmoid(torch.stack([x, -x]))
    elif values["input"] == "probs":
        logs = torch.stack([torch.log(x), torch.log1p(-x)])
    else:
        logs = torch.stack([x, torch.log(-torch.expm1(x))])
    return -torch.where(logs > -math.inf, logs.exp() * logs, 0).sum(0)


def _binary_entropy_pullback(x, grad, values, dim):
    if values["input"] == "scores":
        steep = torch.sigmoid(x) * torch.sigmoid(-x)
        return grad * -torch.where(steep > 0, x, 0) * steep
    if values["input"] == "probs":
        return _times(grad, torch.log1p(-x) - torch.log(x))
    p = x.exp()
    return _times(grad, torch.where(p > 0, p * (torch.log(-torch.expm1(x)) - torch.where(p > 0, x, 0)), 0))


PULLBACKS = {"self_information": _self_information_pullback, "binary_entropy": _binary_entropy_pullback}


# Measures of each entry, with a derivative that torch differentiates.


def _entries(description, p, *arguments):
    *values, dim = arguments
    params = {"normalize": False, **_descriptions.named(description, (), values)}
    wide = working(p)
    if description["name"] == "binary_entropy":
        value = _binary_entropy(wide, params, dim)
    else:
        value = _self_information(_Distribution(wide, params, dim), params, dim)
    return (value / _unit(params)).to(wide.dtype).contiguous()


def entries_vjp(description, call, grads):
    (x,), (*values, dim) = call.tensors, call.params
    params = _descriptions.named(description, (), values)
    wide = torch.promote_types(x.dtype, torch.float32)
    dx = PULLBACKS[description["name"]](x.to(wide), grads[0].to(wide), params, dim) / _unit(params)
    return (dx.to(x.dtype),)


def _implementation(one):
    if one["family"] == "entry":
        return functools.partial(_entries, one)
    return reduction(
        functools.partial(_measure, one), 1 + (one["family"] == "divergence"), one, ["cols"] * (one["family"] == "table")
    )


IMPLEMENTATIONS = {name: _implementation(one) for name, one in _descriptions.MEASURES.items() if name != "joint_entropy"}
