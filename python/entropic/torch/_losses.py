"""Losses on tensors: their operators, the functions and the modules."""

import functools
import math

import torch

import entropic
from entropic import _core, _functions
from entropic import _losses as numpy_losses
from entropic._losses import _index_or_none  # noqa: F401  functions made below use it
from entropic._maps import map_and_params  # noqa: F401  and this
from entropic.torch import _compositions
from entropic.torch._ops import OPERATORS, SCHEMA, Tensor, checked_dim, numbers_and_rows, one_device, one_dim, place, readable
from entropic.torch._reductions import RowReduction

INF = math.inf
DESCRIPTIONS = {description["name"]: description for description in _core.losses()}


# The losses of torch's own operations: (value, gradient in x), to be differentiated again. `q` is the target as a matrix, of
# classes with a 1 for each; x has no +inf.


def _below(x, q, dim):
    """sum q (max - x) over q above 0."""
    return torch.where(q > 0, q * (x.amax(dim, keepdim=True) - x), 0.0).sum(dim)


def _log_sum(x, dim):
    return torch.logsumexp(x, dim) - x.amax(dim)


def _softmax_loss(x, q, params, dim):
    present = (x > -INF).to(x.dtype)
    even = present / present.sum(dim, keepdim=True)
    smoothing = params["label_smoothing"]
    q = (1 - smoothing) * q + smoothing * even
    return _log_sum(x, dim) + _below(x, q, dim), torch.softmax(x, dim) - q


def _call_map(name, x, params, dim):
    """A map that is differentiable in x and in parameters that are tensors."""
    operator = OPERATORS[name]
    numbers, rows = numbers_and_rows(operator.description, (params[p] for p in operator.params), "x", x, dim)
    return operator.call(x, *numbers, *rows, dim)


def _log_b(b, t):
    """(t^b - 1) / b."""
    log_t = torch.log(t)
    y = b * log_t
    near = y.abs() < 1e-5
    far = torch.expm1(y) / torch.where(near, 1.0, y)
    return log_t * torch.where(near, 1 + y / 2 + y * y / 6, far)


def _entmax_loss(x, q, params, dim):
    alpha = params["alpha"] if params.get("alpha_rows") is None else params["alpha_rows"]
    p = _call_map("entmax", x, {"alpha": alpha, "temperature": 1.0}, dim)
    z, mass, target = (x - x.amax(dim, keepdim=True)).double(), p.double(), q.double()
    b = torch.as_tensor(alpha, dtype=torch.float64, device=x.device) - 1.0
    b = torch.where(b.abs() < 1e-12, 1e-12, b)
    lead = -_log_b(b, mass.amax(dim, keepdim=True))
    above = (1 - b * lead) + b * z
    some = target > 0
    log_q = _log_b(b, torch.where(some, target, 1.0))
    inside = above > 0
    difference = torch.where(inside, log_q + lead - z, log_q + 1 / b)
    term = (target * difference - above.clamp(min=0) * (target - mass)) / (b + 1)
    term = torch.where(inside, term, term - target * above / b).clamp(min=0)
    power = torch.where(mass > 0, torch.where(mass > 0, mass, 1.0) ** (b + 1), 0.0)
    term = torch.where(some, torch.where(z == -INF, INF, term), power / (b + 1))
    slope = None
    if params.get("alpha_rows") is not None:
        slope = _entropy_slope(alpha, mass, dim) - _entropy_slope(alpha, target, dim)
    return term.sum(dim), p - q, slope


def _entropy_slope(alpha, p, dim):
    """d H(p) / d alpha of Tsallis' entropy at a p that is held, as the kernel has it."""
    b = alpha - 1.0
    log_p = torch.log(torch.where(p > 0, p, 1.0))
    y = b * log_p
    near = y.abs() < 1
    safe, inner = torch.where(near, 1.0, y), torch.where(near, y, 0.0)
    first, second = torch.zeros_like(y), torch.zeros_like(y)
    for k in range(19, -1, -1):
        first = first * inner + 1 / math.factorial(k + 1)
        second = second * inner + 1 / (math.factorial(k) * (k + 2))
    first = torch.where(near, first, torch.expm1(safe) / safe)
    second = torch.where(near, second, (safe * torch.exp(safe) - torch.expm1(safe)) / (safe * safe))
    return (p * log_p * first / alpha**2 - p * log_p**2 * second / alpha).sum(dim, keepdim=True)


def _sparsemax_loss(x, q, params, dim):
    return _entmax_loss(x, q, {"alpha": 2.0}, dim)[:2]


def _cut_loss(name, x, q, params, dim):
    p = _call_map(name, x, {**params, "temperature": 1.0}, dim)
    return _log_sum(torch.where(p > 0, x, -INF), dim) + _below(x, q, dim), p - q


def _margin(kind, m, c):
    """(psi, its slope), both differentiable."""
    if kind == "am":
        return c - m, torch.ones_like(c)
    least = 2.0**-24 if c.dtype is torch.float64 else 2.0**-10
    inner = c.clamp(-1.0, 1.0)
    square = (1 - inner) * (1 + inner)
    sine = torch.where(square > 0, torch.sqrt(torch.where(square > 0, square, 1.0)), 0.0)
    if kind == "arc":
        cosine, of_sum = inner * math.cos(m) - sine * math.sin(m), sine * math.cos(m) + inner * math.sin(m)
        beyond = inner < -math.cos(m)
        slope = of_sum / sine.clamp(min=least)
        return torch.where(beyond, -2 - cosine, cosine), torch.where(beyond, -slope, slope)
    # cos(m theta) and sin(m theta) / sin(theta) by Chebyshev's recurrences, exact at the ends.
    m = int(m)
    previous, cosine, before, ratio = torch.ones_like(c), inner, torch.zeros_like(c), torch.ones_like(c)
    for _ in range(m - 1):
        previous, cosine = cosine, 2 * inner * cosine - previous
        before, ratio = ratio, 2 * inner * ratio - before
    k = torch.floor(m * torch.acos(inner.detach().double()) / math.pi).clamp(max=m - 1.0).to(c.dtype)
    sign = 1 - 2 * (k % 2)
    return sign * cosine - 2 * k, m * sign * ratio


def _margin_softmax_loss(x, q, params, dim):
    scale, kind = params["scale"], params["kind"]
    margin = {"am": 0.35, "arc": 0.5, "sphere": 4.0}[kind] if params["margin"] is None else params["margin"]
    own = q > 0
    psi, slope = _margin(kind, margin, torch.where(own & (x > -INF), x, 0.0))
    y = scale * torch.where(own & (x > -INF), psi, x)
    p = torch.softmax(y, dim)
    return _log_sum(y, dim) + _below(y, q, dim), scale * torch.where(own, slope * (p - 1), p)


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
    """log softmax of both, and 0 for the logarithms of 0."""
    ls, lt = (torch.log_softmax(_compositions.canonical(z, dim).double() / temperature, dim) for z in (x, teacher))
    return ls, lt


def _distillation_loss(x, teacher, params, dim):
    temperature = params["temperature"]
    ls, lt = _log_pair(x, teacher, temperature, dim)
    s, t = ls.exp(), lt.exp()
    none = t == 0
    each = torch.where(none, s, t * (torch.where(none, 0.0, lt) - torch.where(none, 0.0, ls)) - t + s)
    each = torch.where((ls == -INF) & (lt > -INF), INF, each)
    return temperature**2 * each.sum(dim), temperature * (s - t)


def _jsd_loss(x, teacher, params, dim):
    beta = params["beta"]
    ls, lt = _log_pair(x, teacher, 1.0, dim)
    s, t = ls.exp(), lt.exp()
    m = beta * t + (1 - beta) * s

    def log_ratio(p):
        return torch.log(torch.where(p > 0, p, 1.0)) - torch.log(torch.where(p > 0, m, 1.0))

    rs, rt = log_ratio(s), log_ratio(t)
    value = beta * (t * rt - t + m) + (1 - beta) * (s * rs - s + m)
    return value.sum(dim), (1 - beta) * s * (rs - (s * rs).sum(dim, keepdim=True))


COMPOSED = {
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


def _composed(name, tensors, values, dim):
    """(value, gradient...) with the rules that all share: infinities, ignored rows, classes as a matrix."""
    x, target = tensors
    x = _compositions.working(x)
    if not target.is_floating_point():
        ignored = target == (-(2**63) if values.get("ignore_index") is None else values["ignore_index"])
        x = torch.where(ignored.unsqueeze(dim), 0.0, x)
        index = torch.where(ignored, 0, target).unsqueeze(dim)
        q = torch.zeros_like(x).scatter(dim, index, torch.ones_like(index, dtype=x.dtype))
    else:
        ignored, q = None, _compositions.working(target)
    infinite = (x == INF).any(dim, keepdim=True)
    given = x
    kind = DESCRIPTIONS[name]["target"]
    if kind.startswith("class"):
        x = _compositions.canonical(x, dim)
    value, dx, *slope = COMPOSED[name](x, q, values, dim)
    if kind == "labels":
        infinite = (infinite & (q == 0)) & ((x == INF) & (q == 0)).any(dim, keepdim=True)
    dx = torch.where((given == -INF) | infinite, 0.0, dx)
    nan = given.isnan().any(dim, keepdim=True)
    if kind != "labels":
        nan = nan | _compositions.has_none(given, dim)
    dx, value = torch.where(nan, math.nan, dx), torch.where(nan.squeeze(dim), math.nan, value)
    if ignored is not None:
        dx, value = torch.where(ignored.unsqueeze(dim), 0.0, dx), torch.where(ignored, 0.0, value)
        slope = [None if one is None else torch.where(ignored.unsqueeze(dim), 0.0, one) for one in slope]
    return value, dx, *slope


def _kernel(name, tensors, value, gradients, values):
    x, target = tensors
    params = [values[param["name"]] for param in DESCRIPTIONS[name]["params"]]
    dx, slopes = gradients[0], None
    if len(gradients) == 2 and values["alpha_rows"] is not None:
        params = [values["alpha_rows"]]
        slopes = None if gradients[1] is None else ("alpha", gradients[1].numpy())
    _core.loss(
        name,
        place(x),
        place(target) if target.is_floating_point() else target.numpy(),
        value.numpy(),
        None if dx is None else place(dx),
        tuple(params),
        None,
        values.get("ignore_index"),
        slopes,
    )


def _reduction(description):
    name = description["name"]
    params = {param["name"]: SCHEMA[param["kind"]] for param in description["params"]}
    if numpy_losses.takes_classes(description):
        params["ignore_index"] = "int?"
    return RowReduction(
        name,
        ["x", "target"],
        ["x"],
        params,
        functools.partial(_kernel, name),
        functools.partial(_composed, name),
        rows=["alpha_rows" for param in description["params"] if param["per_row"]],
    )


REDUCTIONS = {name: _reduction(description) for name, description in DESCRIPTIONS.items() if not description["has_map"]}


# Functions.


def _checked_target(name, description, x, target, dim):
    """target as the operators take it, of x's device."""
    scores, argument = description["arguments"]
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: {argument} must be a torch.Tensor, got {type(target).__name__}")
    if target.requires_grad:
        raise TypeError(f"{name}: {argument} requires grad, and there is no gradient in it; pass {argument}.detach()")
    one_device(name, {scores: x, argument: target})
    kind = description["target"]
    if kind.startswith("class") and not target.is_floating_point():
        if target.dtype is torch.bool or target.is_complex():
            raise TypeError(f"{name}: {argument} must be integers, one class for each row, got dtype {target.dtype}")
        lead = (*x.shape[:dim], *x.shape[dim + 1 :])
        if target.shape != lead:
            raise ValueError(
                f"{name}: {argument} must have one class for each row, of shape {tuple(lead)}, got integers of shape "
                f"{tuple(target.shape)}"
            )
        return target.long()
    if kind == "class":
        raise TypeError(f"{name}: {argument} must be integers, one class for each row, got dtype {target.dtype}")
    if kind.startswith("class") and target.shape == (*x.shape[:dim], *x.shape[dim + 1 :]):
        raise ValueError(
            f"{name}: {argument} must have one probability for each entry, of shape {tuple(x.shape)}, got shape "
            f"{tuple(target.shape)}; classes are integers: pass {argument}.long()"
        )
    if target.shape != x.shape:
        raise ValueError(f"{name}: {argument} must have the shape of {scores}, {tuple(x.shape)}, got {tuple(target.shape)}")
    return target.to(x.dtype)


def _call(description, x, target, params, named_map, ignore_index, dim, axis):
    name = description["name"]
    scores = description["arguments"][0]
    dim = checked_dim(name, scores, x, one_dim(name, dim, axis))
    target = _checked_target(name, description, x, target, dim)
    if named_map is not None:
        if readable(target) and not _is_target(target, x, dim, ignore_index):
            # The library says what is wrong, whatever the scores are; torch's operations would make something of it.
            dtype = torch.float16 if x.dtype is torch.bfloat16 else x.dtype
            given = target.to(dtype) if target.is_floating_point() else target
            getattr(entropic, name)(torch.zeros(x.shape, dtype=dtype), given, axis=dim, ignore_index=ignore_index)
        # Halves only at the end: p - q of a p that is rounded has no digits left where they are near each other.
        wide = _compositions.working(x)
        if target.is_floating_point():
            target = _compositions.working(target)
        if x.shape[dim] == 0:  # no distribution; and of classes all are ignored
            return wide.sum(dim).to(x.dtype) + (math.nan if target.is_floating_point() else 0.0)
        return _MAPPED[name](wide, target, named_map, ignore_index, dim).to(x.dtype)
    values, rows = numbers_and_rows(description, params.values(), scores, x, dim)
    if numpy_losses.takes_classes(description):
        values = (*values, ignore_index)
    return REDUCTIONS[name]((x, target), values, rows, dim)


# Losses of any map: of the maps' own operators.


def _is_target(target, x, dim, ignore_index):
    """Whether each row has a class, or a distribution within half of what is allowed of its sum."""
    if not target.is_floating_point():
        known = (target >= 0) & (target < x.shape[dim])
        return bool((known if ignore_index is None else known | (target == ignore_index)).all())
    sums = target.sum(dim, dtype=torch.float64)
    allowed = _core.sum_tolerance[target.dtype.itemsize]
    return bool((target >= 0).all()) and bool(((sums - 1).abs() <= allowed / 2).all())


def _matrix(x, target, ignore_index, dim):
    """(x with 0 in ignored rows, target as a matrix, which rows are ignored)."""
    if target.is_floating_point():
        return x, target, None
    ignored = None
    if ignore_index is not None:
        ignored = target == ignore_index
        x, target = torch.where(ignored.unsqueeze(dim), 0.0, x), torch.where(ignored, 0, target)
    index = target.unsqueeze(dim)
    return x, torch.zeros_like(x).scatter(dim, index, torch.ones_like(index, dtype=x.dtype)), ignored


def _of_map(named_map, x, dim):
    return _call_map(named_map[0], x, named_map[1], dim)


def _smooth_accuracy_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    value = -torch.where(q > 0, q * _of_map(named_map, x, dim), 0.0).sum(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


class _Surrogate(torch.autograd.Function):
    """value, whose gradient in x is taken to be slope, which has its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, x, slope):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return None, grad * slope, None


def _surrogate_loss(x, target, named_map, ignore_index, dim):
    x, q, ignored = _matrix(x, target, ignore_index, dim)
    p = _of_map(named_map, x, dim)
    still = (x == -INF) | (x == INF).any(dim, keepdim=True)
    scores = _compositions.canonical(x.detach(), dim)
    slope = torch.where(still, 0.0, p - q)
    each = torch.where(q == p.detach(), 0.0, (q - p.detach()) * (scores.amax(dim, keepdim=True) - scores))
    value = torch.where(p.isnan().any(dim), math.nan, each.sum(dim))
    value = _Surrogate.apply(value.unsqueeze(dim), x, slope).squeeze(dim)
    return value if ignored is None else torch.where(ignored, 0.0, value)


_MAPPED = {"smooth_accuracy_loss": _smooth_accuracy_loss, "surrogate_loss": _surrogate_loss}


def _doc(description):
    scores, target = description["arguments"]
    text = numpy_losses.common_doc(description, "torch.Tensor").replace("array", "tensor").replace("along axis", "along dim")
    example = {
        "class or distribution": "torch.randn(4, 6), torch.tensor([0, 5, 2, 2])",
        "class": "torch.rand(4, 6), torch.tensor([0, 5, 2, 2])",
        "labels": "torch.randn(2, 3), torch.tensor([[0, 1, 1], [1, 0, 0]])",
        "scores": "torch.randn(4, 6), torch.randn(4, 6)",
    }[description["target"]]
    return f"""{text.replace("without axis", "without dim")}dim : int, default -1
    The axis of the classes; axis is another name for it.

Returns
-------
torch.Tensor
    One number for each row, in {scores}'s shape without dim and its dtype. Differentiable, twice, in {scores}.

Raises
------
ValueError, TypeError, IndexError
    Naming the argument; {target} must not require grad.

Notes
-----
Gradient: {description["gradient"]}. See entropic.{description["name"]} for the rules on NaN and infinities.
Source: {description["source"]}.

Examples
--------
>>> value = entropic.torch.{description["name"]}({example}{_functions.assignments(description)})
"""


def _build():
    """The public functions by name."""
    made = {}
    for name, description in DESCRIPTIONS.items():
        keywords, handed = numpy_losses.signature(description, "dim=None, axis=None")
        namespace = {}
        # In this module's globals, where a compiler's guards look for what a function uses.
        exec(
            f"def {name}{keywords}:\n    return _call(DESCRIPTIONS[{name!r}], {handed}, dim, axis)\n",
            globals(),
            namespace,
        )
        function = namespace[name]
        function.__module__ = "entropic.torch"
        function.__doc__ = _doc(description)
        made[name] = function
    return made


FUNCTIONS = _build()
