"""Losses: value and gradient in x, both differentiable.

``LOSSES[name](x, q, params, dim)`` gives them: `q` is the target as a matrix, of classes with a 1 for each; x has no +inf.
"""

import functools
import math

import torch

from isentropic import _descriptions
from isentropic.torch._compat import primals, pushing_further
from isentropic.torch.backends.reference.maps import call_map
from isentropic.torch.backends.reference.rows import (
    below_most,
    canonical,
    has_none,
    in_float64,
    mean_exp,
    mean_exp_slope,
    reduction,
    working,
)

INF = math.inf


def _below(x, q, dim):
    """sum q (max - x) over q above 0. From halves, whose differences do not overflow."""
    return 2 * torch.where(q > 0, -q * below_most(x / 2, dim), 0.0).sum(dim)


def _log_sum(x, dim):
    """log sum exp(x - max), as log(1 + the others): a small one keeps its digits."""
    z = below_most(x, dim)
    top = z == 0
    others = torch.where(top, torch.expm1(z), torch.exp(z)).sum(dim) + (top.sum(dim) - 1)
    return torch.log1p(others)


def _softmax_loss(x, q, params, dim):
    smoothing, even = params["label_smoothing"], _even(x, dim)
    q = (1 - smoothing) * q + smoothing * even
    return _log_sum(x, dim) + _below(x, q, dim), torch.softmax(x, dim) - q


def _softmax_loss_smoothing(x, q, params, dim):
    return (_below(x, _even(x, dim), dim) - _below(x, q, dim)).unsqueeze(dim)


def _even(x, dim):
    present = (x > -INF).to(x.dtype)
    return present / present.sum(dim, keepdim=True)


def _log_b(b, t):
    """(t^b - 1) / b."""
    log_t = torch.log(t)
    y = b * log_t
    near = y.abs() < 1e-5
    far = torch.expm1(y) / torch.where(near, 1.0, y)
    return log_t * torch.where(near, 1 + y / 2 + y * y / 6, far)


def _entmax_loss(x, q, params, dim):
    alpha = params["alpha"]
    p = call_map("entmax", x, {"alpha": alpha, "temperature": 1.0}, dim)
    half, mass, target = below_most(x.double() / 2, dim), p.double(), q.double()  # z as halves, which do not overflow
    z = 2 * half
    b = in_float64(alpha, x) - 1.0
    b = torch.where(b.abs() < 1e-12, 1e-12, b)
    lead = -_log_b(b, mass.amax(dim, keepdim=True))
    above = (1 - b * lead) + b * z
    some = target > 0
    log_q = _log_b(b, torch.where(some, target, 1.0))
    inside = above > 0
    difference = torch.where(inside, log_q + lead - z, log_q + 1 / b)
    term = (target * difference - above.clamp(min=0) * (target - mass)) / (b + 1)
    term = torch.where(inside, term, term - target * (1 - b * lead) / b - 2 * (target * half)).clamp(min=0)
    power = torch.where(mass > 0, torch.where(mass > 0, mass, 1.0) ** (b + 1), 0.0)
    infinite = (half == -INF) | ((z == -INF) & (b < 0))
    term = torch.where(some, torch.where(infinite, INF, term), power / (b + 1))
    return term.sum(dim), p - q


def _entmax_loss_alpha(x, q, params, dim):
    alpha = params["alpha"]
    p = call_map("entmax", x, {"alpha": alpha, "temperature": 1.0}, dim)
    return _entropy_slope(alpha, p.double(), dim) - _entropy_slope(alpha, q.double(), dim)


def _entropy_slope(alpha, p, dim):
    """d H(p) / d alpha of Tsallis' entropy at a fixed p, as in the kernel."""
    log_p = torch.log(torch.where(p > 0, p, 1.0))
    y = (alpha - 1.0) * log_p
    return (p * log_p * mean_exp(y) / alpha**2 - p * log_p**2 * mean_exp_slope(y) / alpha).sum(dim, keepdim=True)


def _sparsemax_loss(x, q, params, dim):
    return _entmax_loss(x, q, {"alpha": 2.0}, dim)


def _cut_loss(name, x, q, params, dim):
    p = call_map(name, x, {**params, "temperature": 1.0}, dim)
    return _log_sum(torch.where(p > 0, x, -INF), dim) + _below(x, q, dim), p - q


def _margin(kind, m, c):
    """(psi, its slope, that of -psi in m), all differentiable."""
    if kind == "am":
        return c - m, torch.ones_like(c), torch.ones_like(c)
    least = 2.0**-24 if c.dtype is torch.float64 else 2.0**-10
    inner = c.clamp(-1.0, 1.0)
    square = (1 - inner) * (1 + inner)
    sine = torch.where(square > 0, torch.sqrt(torch.where(square > 0, square, 1.0)), 0.0)
    if kind == "arc":
        m = in_float64(m, c)
        cosine, of_sum = inner * m.cos() - sine * m.sin(), sine * m.cos() + inner * m.sin()
        sign = torch.where(inner < -m.cos(), -1.0, 1.0)
        return torch.where(sign < 0, -2 - cosine, cosine), sign * of_sum / sine.clamp(min=least), sign * of_sum
    # cos(m theta) and sin(m theta) / sin(theta) by Chebyshev's recurrences, exact at the ends.
    steps = int(m.max() if isinstance(m, torch.Tensor) else m)
    m = in_float64(m, c)
    previous, cosine, before, ratio = torch.ones_like(c), inner, torch.zeros_like(c), torch.ones_like(c)
    for step in range(1, steps):
        more = step < m
        previous, cosine = cosine, torch.where(more, 2 * inner * cosine - previous, cosine)
        before, ratio = ratio, torch.where(more, 2 * inner * ratio - before, ratio)
    k = torch.minimum(torch.floor(m * torch.acos(inner.detach().double()) / math.pi), m - 1).to(c.dtype)
    sign = 1 - 2 * (k % 2)
    return sign * cosine - 2 * k, m * sign * ratio, torch.zeros_like(c)


def _with_margin(x, q, params):
    """(the cosines with the target's lowered, a mask of the targets, the results of _margin for them)."""
    kind = params["kind"]
    margin = {"am": 0.35, "arc": 0.5, "sphere": 4.0}[kind] if params["margin"] is None else params["margin"]
    own = q > 0
    found = psi, *_ = _margin(kind, margin, torch.where(own & (x > -INF), x, 0.0))
    return torch.where(own & (x > -INF), psi, x), own, found


def _scaled(x, scale):
    """scale x, with a derivative in the scale that absent x have no part in: theirs would be infinite, and 0 times it NaN."""
    present = x > -INF
    return torch.where(present, scale * torch.where(present, x, 0.0), x)


def _margin_softmax_loss(x, q, params, dim):
    scale = params["scale"]
    lowered, own, (_, slope, _) = _with_margin(x, q, params)
    y = _scaled(lowered, scale)
    p = torch.softmax(y, dim)
    return _log_sum(y, dim) + _below(y, q, dim), scale * torch.where(own, slope * (p - 1), p)


def _margin_softmax_loss_margin(x, q, params, dim):
    lowered, own, (_, _, of_margin) = _with_margin(x, q, params)
    each = torch.where(own, of_margin * (1 - torch.softmax(_scaled(lowered, params["scale"]), dim)), 0.0)
    return (params["scale"] * each).sum(dim, keepdim=True)


def _margin_softmax_loss_scale(x, q, params, dim):
    lowered, own, _ = _with_margin(x, q, params)
    p = torch.softmax(_scaled(lowered, params["scale"]), dim)
    some = torch.where(lowered > -INF, lowered, 0.0)
    return (p * some).sum(dim, keepdim=True) - torch.where(own, some, 0.0).sum(dim, keepdim=True)


def _multilabel_softmax_loss(x, q, params, dim):
    label = q > 0
    y = torch.where(label, -x, x)
    y = torch.where(x == -INF, -INF, y)
    zero = torch.zeros_like(y.narrow(dim, 0, 1)) if y.shape[dim] else y.new_zeros([*y.shape[:dim], 1, *y.shape[dim + 1 :]])
    value, dx = 0.0, torch.zeros_like(x)
    for chosen, sign in ((~label, 1.0), (label, -1.0)):
        some = torch.where(chosen, y, -INF)
        total = torch.logsumexp(torch.cat((some, zero), dim), dim, keepdim=True)
        value = value + total.squeeze(dim)
        dx = dx + sign * torch.where(chosen & (y > -INF), torch.exp(torch.where(chosen, some, 0.0) - total), 0.0)
    return torch.where((label & (x == -INF)).any(dim), INF, value), dx


def _log_pair(x, teacher, temperature, dim):
    """log softmax of both."""

    def log_softmax(z):
        z = canonical(z, dim).double()
        there = z > -INF  # a temperature does not change the others, and has no slope there
        return torch.log_softmax(torch.where(there, torch.where(there, z, 0.0) / temperature, z), dim)

    return log_softmax(x), log_softmax(teacher)


def _kl(ls, lt, dim):
    """KL(t, s), one number for each row."""
    s, t = ls.exp(), lt.exp()
    none, missing = t == 0, (ls == -INF) & (lt > -INF)
    ratio = torch.where(none, 0.0, lt) - torch.where(none | missing, 0.0, ls)
    return torch.where(missing, INF, torch.where(none, s, t * ratio - t + s)).sum(dim, keepdim=True)


def _distillation_loss(x, teacher, params, dim):
    temperature = params["temperature"]
    ls, lt = _log_pair(x, teacher, temperature, dim)
    return (temperature**2 * _kl(ls, lt, dim)).squeeze(dim), temperature * (ls.exp() - lt.exp())


def _distillation_loss_temperature(x, teacher, params, dim):
    """T (2 KL - sum t (lt - <t, lt>) (lt - ls) + sum (t - s) ls): d lt / dT is -(lt - <t, lt>) / T, and so is ls's."""
    ls, lt = _log_pair(x, teacher, params["temperature"], dim)
    s, t = ls.exp(), lt.exp()
    some_s, some_t = torch.where(s > 0, ls, 0.0), torch.where(t > 0, lt, 0.0)
    centred = some_t - (t * some_t).sum(dim, keepdim=True)
    moved = ((t - s) * some_s - t * centred * (some_t - some_s)).sum(dim, keepdim=True)
    return params["temperature"] * (2 * _kl(ls, lt, dim) + moved)


def _jsd_halves(x, teacher, beta, dim):
    """(s, log s/m, and the terms of KL(t, m) and KL(s, m))."""
    ls, lt = _log_pair(x, teacher, 1.0, dim)
    s, t = ls.exp(), lt.exp()
    m = beta * t + (1 - beta) * s

    def log_ratio(p):
        return torch.log(torch.where(p > 0, p, 1.0)) - torch.log(torch.where(p > 0, m, 1.0))

    rs, rt = log_ratio(s), log_ratio(t)
    return s, rs, t * rt - t + m, s * rs - s + m


def _jsd_loss(x, teacher, params, dim):
    beta = params["beta"]
    s, rs, of_t, of_s = _jsd_halves(x, teacher, beta, dim)
    value = beta * of_t + (1 - beta) * of_s
    return value.sum(dim), (1 - beta) * s * (rs - (s * rs).sum(dim, keepdim=True))


def _jsd_loss_beta(x, teacher, params, dim):
    _, _, of_t, of_s = _jsd_halves(
        x, teacher, params["beta"], dim
    )  # m also depends on beta, but to first order this has no effect
    return (of_t - of_s).sum(dim, keepdim=True)


LOSSES = {
    "softmax_loss": _softmax_loss,
    "sparsemax_loss": _sparsemax_loss,
    "entmax_loss": _entmax_loss,
    "top_k_softmax_loss": functools.partial(_cut_loss, "top_k_softmax"),
    "top_p_softmax_loss": functools.partial(_cut_loss, "top_p_softmax"),
    "margin_softmax_loss": _margin_softmax_loss,
    "multilabel_softmax_loss": _multilabel_softmax_loss,
    "distillation_loss": _distillation_loss,
    "jsd_loss": _jsd_loss,
}


# Gradients in the parameters that may be per row.
SLOPES = {
    ("softmax_loss", "label_smoothing"): _softmax_loss_smoothing,
    ("entmax_loss", "alpha"): _entmax_loss_alpha,
    ("margin_softmax_loss", "margin"): _margin_softmax_loss_margin,
    ("margin_softmax_loss", "scale"): _margin_softmax_loss_scale,
    ("distillation_loss", "temperature"): _distillation_loss_temperature,
    ("jsd_loss", "beta"): _jsd_loss_beta,
}


def _loss(description, tensors, params, dim):
    """(value, gradient in x, gradients in parameters) with the common rules: infinities, ignored rows, classes as a matrix."""
    name, kind = description["name"], description["target"]
    x, target = tensors
    x = working(x)
    if not target.is_floating_point():
        ignored = target == (-(2**63) if params.get("ignore_index") is None else params["ignore_index"])
        x = torch.where(ignored.unsqueeze(dim), 0.0, x)
        index = torch.where(ignored, 0, target).unsqueeze(dim)
        q = torch.zeros_like(x).scatter(dim, index, torch.ones_like(index, dtype=x.dtype))
    else:
        ignored, q = None, working(target)
    infinite = (x == INF).any(dim, keepdim=True)
    given = x
    if kind.startswith("class"):
        x = canonical(x, dim)
    value, dx = LOSSES[name](x, q, params, dim)
    if name == "softmax_loss":  # beside +inf a finite score has no mass, but a share of the smoothing
        share = infinite & given.isfinite().any(dim, keepdim=True) & (params["label_smoothing"] > 0)
        value = torch.where(share.squeeze(dim), INF, value)
    if kind == "labels":
        infinite = (infinite & (q == 0)) & ((x == INF) & (q == 0)).any(dim, keepdim=True)
    dx = torch.where((given == -INF) | infinite, 0.0, dx)
    nan = given.isnan().any(dim, keepdim=True)
    if kind != "labels":
        nan = nan | has_none(given, dim)
    dx, value = torch.where(nan, math.nan, dx), torch.where(nan.squeeze(dim), math.nan, value)
    if ignored is not None:
        dx, value = torch.where(ignored.unsqueeze(dim), 0.0, dx), torch.where(ignored, 0.0, value)
    slopes = {}
    for param in _descriptions.per_row(description):
        if isinstance(params[param], torch.Tensor):
            slope = SLOPES[name, param](x, q, params, dim)
            none = (value == INF) if ignored is None else (value == INF) | ignored
            if param == "alpha":
                none = none | infinite.squeeze(dim)
            slope = torch.where(none.unsqueeze(dim), 0.0, slope)
            slopes[param] = torch.where(value.isnan().unsqueeze(dim), math.nan, slope)
    return value, (dx,), slopes


IMPLEMENTATIONS = {
    name: reduction(functools.partial(_loss, one), 2, one, ["ignore_index"] if one["target"].startswith("class") else [])
    for name, one in ((name, _descriptions.LOSSES[name]) for name in LOSSES)
}


# Losses of any map. They use the maps' own operators, which decide where they run, and are not operators themselves.


def _matrix(x, target, ignore_index, dim):
    """(x with 0 in ignored rows, target as a matrix, mask of ignored rows)."""
    if target.is_floating_point():
        return x, target, None
    ignored = None
    if ignore_index is not None:
        ignored = target == ignore_index
        x, target = torch.where(ignored.unsqueeze(dim), 0.0, x), torch.where(ignored, 0, target)
    index = target.unsqueeze(dim)
    return x, torch.zeros_like(x).scatter(dim, index, torch.ones_like(index, dtype=x.dtype)), ignored


def _of_map(named_map, x, dim):
    return call_map(named_map[0], x, named_map[1], dim)


def _smooth_accuracy_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    value = -torch.where(q > 0, q * _of_map(named_map, x, dim), 0.0).sum(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


class _Surrogate(torch.autograd.Function):
    """value, of size 1 along dim, with slope as its gradient in x; slope has its own gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, x, slope, dim):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[3]
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return None, grad * slope, None, None


class _SurrogateForward(_Surrogate):
    """Also with forward mode, which torch.compile takes in no Function."""

    @staticmethod
    def jvp(ctx, of_value, of_x, *others):
        with pushing_further():
            (slope,) = primals(ctx.saved_tensors)
            return torch.where(slope == 0, 0.0, slope * of_x).sum(ctx.dim, keepdim=True)


def _surrogate_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    p = _of_map(named_map, x, dim)
    still = (x == -INF) | (x == INF).any(dim, keepdim=True)
    scores = canonical(x.detach(), dim)
    slope = torch.where(still, 0.0, p - q)
    each = torch.where(q == p.detach(), 0.0, (q - p.detach()) * (scores.amax(dim, keepdim=True) - scores))
    value = torch.where(p.isnan().any(dim), math.nan, each.sum(dim))
    function = _Surrogate if torch.compiler.is_compiling() else _SurrogateForward
    value = function.apply(value.unsqueeze(dim), x, slope, dim).squeeze(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


MAPPED = {"smooth_accuracy_loss": _smooth_accuracy_loss, "surrogate_loss": _surrogate_loss}


def mapped(name, x, target, named_map, ignore_index):
    """A loss of a map, of rows of scores along the last axis."""
    target = working(target) if target.is_floating_point() else target
    return MAPPED[name](working(x), target, tuple(named_map), ignore_index, x.dim() - 1)
