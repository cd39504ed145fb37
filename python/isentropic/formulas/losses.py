"""Losses: value and gradient in x, both differentiable.

``LOSSES[name](rows, x, q, params, of_map)`` gives them, the value of size 1 for the last axis: q is the target as a matrix, of
classes with a 1 for each; x has no +inf. ``of_map(name, x, params)`` is a map, of which losses need p. `graded` adds the rules
that all have for special rows.
"""

import functools
import math

from isentropic.formulas.rows import INF, below_most, canonical, has_none, log_or_0, mean_exp, mean_exp_slope


def _below(rows, x, q):
    """sum q (max - x) over q above 0. From halves, whose differences do not overflow."""
    return 2 * rows.total(rows.xp.where(q > 0, -q * below_most(rows, x / 2), 0.0))


def _log_sum(rows, x):
    """log sum exp(x - max), as log(1 + the others): a small one keeps its digits."""
    xp, z = rows.xp, below_most(rows, x)
    top = z == 0
    others = rows.total(xp.where(top, xp.expm1(z), rows.exp(z))) + (rows.total(xp.astype(top, z.dtype)) - 1)
    return xp.log1p(others)


def _even(rows, x):
    present = rows.xp.astype(x > -INF, x.dtype)
    return present / rows.total(present)


def _softmax_loss(rows, x, q, params, of_map):
    smoothing = params["label_smoothing"]
    q = (1 - smoothing) * q + smoothing * _even(rows, x)
    return _log_sum(rows, x) + _below(rows, x, q), rows.softmax(x) - q


def _softmax_loss_smoothing(rows, x, q, params, of_map):
    return _below(rows, x, _even(rows, x)) - _below(rows, x, q)


def _log_b(rows, b, t):
    """(t^b - 1) / b."""
    log_t = rows.log(t)
    return log_t * mean_exp(rows, b * log_t)


def _entmax_loss(rows, x, q, params, of_map, log_b=_log_b):
    xp, alpha = rows.xp, params["alpha"]
    p = of_map("entmax", x, {"alpha": alpha, "temperature": 1.0})
    half, mass, target = below_most(rows, rows.wide(x) / 2), rows.wide(p), rows.wide(q)
    z = 2 * half  # as halves, which do not overflow
    b = rows.number(alpha, x) - 1.0
    b = xp.where(xp.abs(b) < 1e-12, 1e-12, b)
    lead = -log_b(rows, b, xp.max(mass, axis=-1, keepdims=True))
    above = (1 - b * lead) + b * z
    some = target > 0
    log_q = log_b(rows, b, xp.where(some, target, 1.0))
    inside = above > 0
    difference = xp.where(inside, log_q + lead - z, log_q + 1 / b)
    term = (target * difference - xp.where(above > 0, above, 0.0) * (target - mass)) / (b + 1)
    term = xp.where(inside, term, term - target * (1 - b * lead) / b - 2 * (target * half))
    term = xp.where(term > 0, term, 0.0 * term)
    power = xp.where(mass > 0, rows.exp((b + 1) * log_or_0(rows, mass)), 0.0)
    infinite = (half == -INF) | ((z == -INF) & (b < 0))
    return rows.total(xp.where(some, xp.where(infinite, INF, term), power / (b + 1))), p - q


def _entmax_loss_alpha(rows, x, q, params, of_map):
    p = of_map("entmax", x, {"alpha": params["alpha"], "temperature": 1.0})
    return _entropy_slope(rows, params["alpha"], rows.wide(p)) - _entropy_slope(rows, params["alpha"], rows.wide(q))


def _entropy_slope(rows, alpha, p):
    """d H(p) / d alpha of Tsallis' entropy at a fixed p, as in the kernel."""
    log_p = log_or_0(rows, p)
    y = (alpha - 1.0) * log_p
    return rows.total(p * log_p * mean_exp(rows, y) / alpha**2 - p * log_p**2 * mean_exp_slope(rows, y) / alpha)


def _sparsemax_loss(rows, x, q, params, of_map):
    def sparsemax(_, x, params):  # which has no search
        return of_map("sparsemax", x, {"temperature": params["temperature"]})

    return _entmax_loss(rows, x, q, {"alpha": 2.0}, sparsemax, lambda _, b, t: t - 1)


def _cut_loss(name, rows, x, q, params, of_map):
    own = {key: value for key, value in params.items() if key in ("k", "p")}
    p = of_map(name, x, {**own, "temperature": 1.0})
    return _log_sum(rows, rows.xp.where(p > 0, x, -INF)) + _below(rows, x, q), p - q


def _margin(rows, kind, m, c):
    """(psi, its slope, that of -psi in m), all differentiable."""
    xp = rows.xp
    if kind == "am":
        return c - m, xp.ones_like(c), xp.ones_like(c)
    least = 2.0**-24 if c.dtype == xp.float64 else 2.0**-10
    inner = xp.clip(c, -1.0, 1.0)
    square = (1 - inner) * (1 + inner)
    sine = xp.where(square > 0, xp.sqrt(xp.where(square > 0, square, 1.0)), 0.0)
    if kind == "arc":
        m = rows.number(m, c)
        cosine, of_sum = inner * xp.cos(m) - sine * xp.sin(m), sine * xp.cos(m) + inner * xp.sin(m)
        sign = xp.where(inner < -xp.cos(m), -1.0, 1.0)
        return xp.where(sign < 0, -2 - cosine, cosine), sign * of_sum / xp.clip(sine, min=least), sign * of_sum
    # cos(m theta) and sin(m theta) / sin(theta) by Chebyshev's recurrences, exact at the ends.
    steps = int(xp.max(m) if hasattr(m, "dtype") else m)
    m = rows.number(m, c)
    previous, cosine, before, ratio = xp.ones_like(c), inner, xp.zeros_like(c), xp.ones_like(c)
    k, sign = xp.zeros_like(c), xp.ones_like(c)
    for step in range(1, steps):
        more = step < m
        previous, cosine = cosine, xp.where(more, 2 * inner * cosine - previous, cosine)
        before, ratio = ratio, xp.where(more, 2 * inner * ratio - before, ratio)
        # m theta is above step pi. psi and its slope are continuous there, so that rounding does not matter.
        beyond = more & (inner < xp.cos(step * math.pi / m))
        k, sign = xp.where(beyond, k + 1, k), xp.where(beyond, -sign, sign)
    return sign * cosine - 2 * k, m * sign * ratio, xp.zeros_like(c)


def _with_margin(rows, x, q, params):
    """(the cosines with the target's lowered, a mask of the targets, the results of _margin for them)."""
    where, kind = rows.xp.where, params["kind"]
    margin = {"am": 0.35, "arc": 0.5, "sphere": 4.0}[kind] if params["margin"] is None else params["margin"]
    own = q > 0
    found = psi, *_ = _margin(rows, kind, margin, where(own & (x > -INF), x, 0.0))
    return where(own & (x > -INF), psi, x), own, found


def _scaled(rows, x, scale):
    """scale x. Absent x have no part in the derivative in the scale: theirs would be infinite, and 0 times infinity is NaN."""
    present = x > -INF
    return rows.xp.where(present, scale * rows.xp.where(present, x, 0.0), x)


def _margin_softmax_loss(rows, x, q, params, of_map):
    scale = params["scale"]
    lowered, own, (_, slope, _) = _with_margin(rows, x, q, params)
    y = _scaled(rows, lowered, scale)
    p = rows.softmax(y)
    return _log_sum(rows, y) + _below(rows, y, q), scale * rows.xp.where(own, slope * (p - 1), p)


def _margin_softmax_loss_margin(rows, x, q, params, of_map):
    lowered, own, (_, _, of_margin) = _with_margin(rows, x, q, params)
    each = rows.xp.where(own, of_margin * (1 - rows.softmax(_scaled(rows, lowered, params["scale"]))), 0.0)
    return rows.total(params["scale"] * each)


def _margin_softmax_loss_scale(rows, x, q, params, of_map):
    lowered, own, _ = _with_margin(rows, x, q, params)
    p = rows.softmax(_scaled(rows, lowered, params["scale"]))
    some = rows.xp.where(lowered > -INF, lowered, 0.0)
    return rows.dot(p, some) - rows.total(rows.xp.where(own, some, 0.0))


def _multilabel_softmax_loss(rows, x, q, params, of_map):
    xp, label = rows.xp, q > 0
    y = xp.where(x == -INF, -INF, xp.where(label, -x, x))
    value, dx = 0.0, xp.zeros_like(x)
    for chosen, sign in ((~label, 1.0), (label, -1.0)):
        some = xp.where(chosen, y, -INF)
        top = rows.most(xp.where(some > 0, some, 0.0))
        top = xp.where(top < INF, top, 0.0)
        mass = rows.exp(some - top)
        total = rows.total(mass) + rows.exp(-top)
        value = value + top + rows.log(total)
        dx = dx + sign * xp.where(chosen & (y > -INF), mass / total, 0.0)
    return xp.where(rows.any(label & (x == -INF)), INF, value), dx


def _log_pair(rows, x, teacher, temperature):
    """log softmax of both."""

    def log_softmax(z):
        z = rows.wide(canonical(rows, z))
        there = z > -INF  # a temperature does not change the others, and has no slope there
        return rows.log_softmax(rows.xp.where(there, rows.xp.where(there, z, 0.0) / temperature, z))

    return log_softmax(x), log_softmax(teacher)


def _kl(rows, ls, lt):
    """KL(t, s), one number for each row."""
    where, s, t = rows.xp.where, rows.exp(ls), rows.exp(lt)
    none, missing = t == 0, (ls == -INF) & (lt > -INF)
    ratio = where(none, 0.0, lt) - where(none | missing, 0.0, ls)
    return rows.total(where(missing, INF, where(none, s, t * ratio - t + s)))


# Divergences of a teacher t from a student s, from log s and log t: (the value, its gradient in the student's scores).


def _forward_kl(rows, ls, lt, beta):
    return _kl(rows, ls, lt), rows.exp(ls) - rows.exp(lt)


def _reverse_kl(rows, ls, lt, beta):
    value, s = _kl(rows, lt, ls), rows.exp(ls)
    none = (s == 0) | (lt == -INF)
    ratio = rows.xp.where(none, 0.0, ls) - rows.xp.where(none, 0.0, lt)
    return value, rows.xp.where(value == INF, 0.0, s * (ratio - rows.dot(s, ratio)))


def _halves(rows, ls, lt, beta):
    """(s, log s/m, and the terms of KL(t, m) and KL(s, m)), m = beta t + (1 - beta) s."""
    s, t = rows.exp(ls), rows.exp(lt)
    m = beta * t + (1 - beta) * s

    def log_ratio(p):
        return log_or_0(rows, p) - rows.log(rows.xp.where(p > 0, m, 1.0))

    rs, rt = log_ratio(s), log_ratio(t)
    return s, rs, t * rt - t + m, s * rs - s + m


def _jsd(rows, ls, lt, beta):
    s, rs, of_t, of_s = _halves(rows, ls, lt, beta)
    return rows.total(beta * of_t + (1 - beta) * of_s), (1 - beta) * s * (rs - rows.dot(s, rs))


def _jsd_beta(rows, ls, lt, beta):
    # m also depends on beta, but to first order this has no effect.
    _, _, of_t, of_s = _halves(rows, ls, lt, beta)
    return rows.total(of_t - of_s)


def _total_variation(rows, ls, lt, beta):
    xp, s, t = rows.xp, rows.exp(ls), rows.exp(lt)
    apart = rows.constant(xp.where(s > 0, ls, 0.0) - xp.where(t > 0, lt, 0.0))
    # A difference of a few roundings has no known sign.
    ahead, behind = (t == 0) | (apart > 2.0**-50), (s == 0) | (apart < -(2.0**-50))
    sign = xp.where((s == 0) & (t == 0), 0.0, xp.where(ahead & (s > 0), 1.0, xp.where(behind & (t > 0), -1.0, 0.0)))
    sign = rows.like(sign, s)
    return rows.total(xp.abs(s - t)) / 2, s * (sign - rows.dot(s, sign)) / 2


_DIVERGENCES = {
    "forward_kl": _forward_kl,
    "reverse_kl": _reverse_kl,
    "jsd": _jsd,
    "total_variation": _total_variation,
}
# Each with the one in which teacher and student have changed places; the weight of jsd becomes 1 - beta.
_SWAPPED = {"forward_kl": "reverse_kl", "reverse_kl": "forward_kl", "jsd": "jsd", "total_variation": "total_variation"}


def _beta(params):
    return 0.5 if params["beta"] is None else params["beta"]


def _distillation_loss(rows, x, teacher, params, of_map):
    temperature = params["temperature"]
    value, dx = _DIVERGENCES[params["divergence"]](rows, *_log_pair(rows, x, teacher, temperature), _beta(params))
    return temperature**2 * value, temperature * dx


def _distillation_loss_temperature(rows, x, teacher, params, of_map):
    """T (2 D - <dD/ds, log s> - <dD/dt, log t>): log s falls by (log s - its mean) / T, and the gradients sum to 0."""
    where, name, beta = rows.xp.where, params["divergence"], _beta(params)
    ls, lt = _log_pair(rows, x, teacher, params["temperature"])
    value, of_s = _DIVERGENCES[name](rows, ls, lt, beta)
    _, of_t = _DIVERGENCES[_SWAPPED[name]](rows, lt, ls, 1 - beta)
    moved = where(of_s == 0, 0.0, of_s * where(ls > -INF, ls, 0.0)) + where(of_t == 0, 0.0, of_t * where(lt > -INF, lt, 0.0))
    return params["temperature"] * (2 * value - rows.total(moved))


def _distillation_loss_beta(rows, x, teacher, params, of_map):
    temperature = params["temperature"]
    return temperature**2 * _jsd_beta(rows, *_log_pair(rows, x, teacher, temperature), params["beta"])


def _jsd_loss(rows, x, teacher, params, of_map):
    return _jsd(rows, *_log_pair(rows, x, teacher, 1.0), params["beta"])


def _jsd_loss_beta(rows, x, teacher, params, of_map):
    return _jsd_beta(rows, *_log_pair(rows, x, teacher, 1.0), params["beta"])


# Sparse teachers: the listed classes, and perhaps all others as one more, are the classes of distillation_loss.


def _bins(rows, x, indices, log_probs, tail):
    """(the student's bins, the teacher's, the scores of the classes that are in the last one)."""
    xp, none = rows.xp, indices < 0
    student = rows.wide(xp.where(none, -INF, rows.picked(x, xp.where(none, 0, indices))))
    teacher = xp.where(none, -INF, rows.wide(rows.like(log_probs, x)))
    if tail == "renormalize":
        return student, teacher, None
    rest = rows.placed(x, indices, rows.like(xp.zeros_like(student) - INF, x))
    there = rows.any(rest > -INF)
    top = xp.where(there, rows.most(rest), 0.0)
    score = xp.where(there, top + rows.log(xp.where(there, rows.total(rows.exp(rest - top)), 1.0)), -INF)
    mass = rows.total(rows.exp(teacher))
    left = xp.where(mass < 1, xp.log1p(-xp.where(mass < 1, mass, 0.0)), -INF)
    every = rows.total(xp.astype(~none, x.dtype)) == x.shape[-1]  # no class is left
    left = xp.where(every, -INF, left)
    return xp.concat([student, rows.wide(score)], axis=-1), xp.concat([teacher, left], axis=-1), rest


def sparse_graded(rows, x, indices, log_probs, params):
    """As `graded`, of sparse_distillation_loss."""
    xp, tail = rows.xp, params["tail"]
    nan, infinite = rows.any(xp.isnan(x)), rows.any(rows.picked(x == INF, xp.where(indices < 0, 0, indices)) & (indices >= 0))
    if tail == "bin":
        infinite = rows.any(x == INF)
        x = canonical(rows, x)
    student, teacher, rest = _bins(rows, x, indices, log_probs, tail)
    value, of_bins = _distillation_loss(rows, student, teacher, params, None)
    of_bins = rows.like(xp.where(student == -INF, 0.0, of_bins), x)
    dx = xp.zeros_like(x)
    if rest is not None:
        dx = xp.where(rest > -INF, of_bins[..., -1:] * rows.softmax(xp.where(rows.any(rest > -INF), rest, 0.0)), 0.0)
        of_bins = of_bins[..., :-1]
    dx = xp.where(infinite, 0.0, rows.placed(dx, indices, of_bins))
    ignored = rows.all(indices < 0)
    undefined = nan | rows.all(student == -INF)
    value, dx = xp.where(undefined, math.nan, value), xp.where(undefined, math.nan, dx)
    slopes = {}
    for param, by in (("temperature", _distillation_loss_temperature), ("beta", _distillation_loss_beta)):
        if hasattr(params[param], "dtype"):
            slope = xp.where(ignored | (value == INF), 0.0, by(rows, student, teacher, params, None))
            slopes[param] = xp.where(xp.isnan(value) & ~ignored, math.nan, slope)
    return xp.where(ignored, 0.0, value), xp.where(ignored, 0.0, dx), slopes


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
BY_PARAM = {
    ("softmax_loss", "label_smoothing"): _softmax_loss_smoothing,
    ("entmax_loss", "alpha"): _entmax_loss_alpha,
    ("margin_softmax_loss", "margin"): _margin_softmax_loss_margin,
    ("margin_softmax_loss", "scale"): _margin_softmax_loss_scale,
    ("distillation_loss", "temperature"): _distillation_loss_temperature,
    ("distillation_loss", "beta"): _distillation_loss_beta,
    ("jsd_loss", "beta"): _jsd_loss_beta,
}


def graded(rows, description, x, q, ignored, params, of_map):
    """(the value of each row, the gradient in x, {parameter that is an array: its gradient}) with the rules for special rows.

    ignored: which rows are, or None; these have harmless numbers in x and q.
    """
    xp, name, kind = rows.xp, description["name"], description["target"]
    infinite, given = rows.any(x == INF), x
    if kind.startswith("class"):
        x = canonical(rows, x)
    value, dx = LOSSES[name](rows, x, q, params, of_map)
    if name == "softmax_loss":  # beside +inf a finite score has no mass, but a share of the smoothing
        value = xp.where(infinite & rows.any(xp.isfinite(given)) & (params["label_smoothing"] > 0), INF, value)
    if kind == "labels":
        infinite = infinite & (q == 0) & rows.any((x == INF) & (q == 0))
    dx = xp.where((given == -INF) | infinite, 0.0, dx)
    nan = rows.any(xp.isnan(given))
    if kind != "labels":
        nan = nan | has_none(rows, given)
    dx, value = xp.where(nan, math.nan, dx), xp.where(nan, math.nan, value)
    if ignored is not None:
        dx, value = xp.where(ignored, 0.0, dx), xp.where(ignored, 0.0, value)
    slopes = {}
    for (loss, param), by in BY_PARAM.items():
        if loss == name and hasattr(params[param], "dtype"):
            none = (value == INF) if ignored is None else (value == INF) | ignored
            none = none | infinite if param == "alpha" else none
            slope = xp.where(none, 0.0, by(rows, x, q, params, of_map))
            slopes[param] = xp.where(xp.isnan(value), math.nan, slope)
    return value, dx, slopes
