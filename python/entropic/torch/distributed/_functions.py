"""The functions that users call."""

import functools
import math

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from entropic import _checks, _core
from entropic._entropy_control import GammaResult
from entropic.torch import _token_statistics
from entropic.torch._arguments import as_text, checked_dim, one_dim
from entropic.torch._descriptions import MAPS, STATUSES
from entropic.torch.distributed._entries import logarithm
from entropic.torch.distributed._group import Group, begun, start_counting
from entropic.torch.distributed._operators import operate, top_indices

__all__ = [
    "entmax",
    "entmax_loss",
    "entropy",
    "entropy_clip",
    "entropy_normalize",
    "gamma_for_entropy",
    "js_divergence",
    "kl_divergence",
    "log_softmax",
    "logsumexp",
    "min_p_softmax",
    "softmax",
    "softmax_loss",
    "sparsemax",
    "sparsemax_loss",
    "token_statistics",
    "top_k_softmax",
    "top_p_softmax",
]


class Part:
    """This rank's part as rows of contiguous numbers, and back."""

    def __init__(self, name, x, dim, axis, group, first, n):
        self.group = _name_of(group)
        self.given = (-1 if first is None else int(first), -1 if n is None else int(n))
        self.dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
        self.dtype, self.x = x.dtype, x
        self.rows = self.laid(x)
        self.lead = (*x.shape[: self.dim], *x.shape[self.dim + 1 :])

    def laid(self, x):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        moved = wide.movedim(self.dim, -1)
        return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1]).contiguous()

    def back(self, y):
        moved = (*self.lead, self.x.shape[self.dim])
        return y.reshape(moved).movedim(-1, self.dim).to(self.dtype)

    def numbers(self, values):
        return values.reshape(self.lead).to(torch.float64 if self.dtype == torch.float64 else torch.float32)

    def reduced(self, values, keepdim):
        """A number for each row in x's type."""
        result = values.reshape(self.lead).to(self.dtype)
        return result.unsqueeze(self.dim) if keepdim else result

    def run(self, kind, name, other=None, target=None, rows=None, **spec):
        spec = as_text({"kind": kind, "name": name, **spec})
        return operate(self.rows, other, target, rows, spec, *self.given, self.group)

    def temperature(self, name, value):
        """What run takes: one number, or one of each row."""
        return (
            {"rows": self.of_rows(name, "temperature", value)[:, None]} if isinstance(value, Tensor) else {"temperature": value}
        )

    def of_rows(self, name, argument, value):
        """A parameter that is a tensor, with one value for each row; it may be one number, or have x's shape with 1 for dim or
        without dim."""
        value = value.to(torch.float64)
        if value.dim() == len(self.x.shape):
            value = value.movedim(self.dim, -1)
            value = value.squeeze(-1) if value.shape[-1] == 1 else value
        try:
            return value.expand(self.lead).reshape(-1)
        except RuntimeError:
            raise ValueError(
                f"{name}: {argument} must broadcast to {self.lead}, one for each row, got {tuple(value.shape)}"
            ) from None


def _name_of(group):
    if group is None:
        if not (dist.is_available() and dist.is_initialized()):
            return ""
        group = dist.group.WORLD
    return group if isinstance(group, str) else group.group_name


def together(function):
    """The function; an exception before its first exchange, as of a wrong argument, is raised on all ranks.

    The other ranks wait in the exchange of extents. With first and n there may be none, and the exception is this rank's alone.
    """

    @functools.wraps(function)
    def run(*arguments, group=None, first=None, n=None, **keywords):
        if torch.compiler.is_compiling():
            return function(*arguments, group=group, first=first, n=n, **keywords)
        begun[0] = False
        try:
            return function(*arguments, group=group, first=first, n=n, **keywords)
        except Exception as error:
            everyone = _name_of(group)
            if begun[0] or everyone == "" or (first is not None and n is not None):
                raise
            name = function.__qualname__.split(".")[0]
            start_counting()
            Group(name, everyone, name).extent(0, 0, 0, -1, -1, {}, error)
            raise

    return run


def _map(name, x, params, dim, axis, group, first, n):
    part = Part(name, x, dim, axis, group, first, n)
    names = [param["name"] for param in MAPS[name]["params"]]
    rows = [part.of_rows(name, *one) for one in zip(names, params, strict=True) if isinstance(one[1], Tensor)]
    plain = ["rows" if isinstance(value, Tensor) else value for value in params]
    y, _ = part.run("map", name, rows=torch.stack(rows, 1) if rows else None, map=name, params=plain)
    return part.back(y)


def _tensor_number(name, argument, value, low, high, least):
    if not value.is_floating_point():
        raise TypeError(f"{name}: {argument} must be a number or a tensor of floating point, got {value.dtype}")
    if not torch.compiler.is_compiling():
        good = (value >= low) & (value <= high) if least else (value > low) & (value <= high)
        if not bool((good & value.isfinite()).all()):
            wrong = value[~(good & value.isfinite())].reshape(-1)[0].item()
            raise ValueError(f"{name}: {argument} must be {_range(low, high, least)}, got {wrong!r}")
    return value


def _range(low, high, least):
    return f"{'at least' if least else 'above'} {low:g} and {'finite' if high == math.inf else f'at most {high:g}'}"


def number(name, argument, value, low=0.0, high=math.inf, *, least=False, rows=False):
    """A parameter; where `rows`, also a tensor of one for each row."""
    if rows and isinstance(value, Tensor):
        return _tensor_number(name, argument, value, low, high, least)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: {argument} must be a number, got {type(value).__name__}")
    good = low <= value <= high if least else low < value <= high
    if not good or value == math.inf:
        raise ValueError(f"{name}: {argument} must be {_range(low, high, least)}, got {value!r}")
    return float(value)


@together
def softmax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.softmax, of this rank's part of dim. Two rounds."""
    return _map("softmax", x, [number("softmax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


@together
def sparsemax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.sparsemax, of this rank's part of dim. Two rounds where no part has more than 64 candidates."""
    return _map("sparsemax", x, [number("sparsemax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


@together
def entmax(x, *, alpha=1.5, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entmax, of this rank's part of dim; alpha is one number."""
    params = [number("entmax", one, value, rows=True) for one, value in (("alpha", alpha), ("temperature", temperature))]
    return _map("entmax", x, params, dim, axis, group, first, n)


@together
def top_k_softmax(x, *, k, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.top_k_softmax, of this rank's part of dim. One round."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"top_k_softmax: k must be an integer, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"top_k_softmax: k must be above 0, got {k}")
    params = [k, number("top_k_softmax", "temperature", temperature, rows=True)]
    return _map("top_k_softmax", x, params, dim, axis, group, first, n)


@together
def top_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.top_p_softmax, of this rank's part of dim. At most seven rounds, for any scores."""
    params = [
        number("top_p_softmax", "p", p, 0, 1),
        number("top_p_softmax", "temperature", temperature, rows=True),
    ]
    return _map("top_p_softmax", x, params, dim, axis, group, first, n)


@together
def min_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.min_p_softmax, of this rank's part of dim. Two rounds."""
    params = [
        number("min_p_softmax", "p", p, 0, 1),
        number("min_p_softmax", "temperature", temperature, rows=True),
    ]
    return _map("min_p_softmax", x, params, dim, axis, group, first, n)


def _target_entropy(name, entropy, perplexity, rows=False):
    if (entropy is None) == (perplexity is None):
        raise ValueError(f"{name}: give exactly one of entropy and perplexity")
    if entropy is not None:
        return number(name, "entropy", entropy, least=True, rows=rows)
    perplexity = number(name, "perplexity", perplexity, 1, least=True, rows=rows)
    return perplexity.double().log() if isinstance(perplexity, Tensor) else math.log(perplexity)


@together
def entropy_normalize(x, *, entropy=None, perplexity=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy_normalize, of this rank's part of dim. Usually three rounds."""
    goal = _target_entropy("entropy_normalize", entropy, perplexity, rows=True)
    return _map("entropy_normalize", x, [goal, None, "scores"], dim, axis, group, first, n)


@together
def entropy_clip(x, *, min_entropy=None, max_entropy=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy_clip, of this rank's part of dim."""
    low = 0.0 if min_entropy is None else number("entropy_clip", "min_entropy", min_entropy, least=True, rows=True)
    high = 1e300 if max_entropy is None else number("entropy_clip", "max_entropy", max_entropy, least=True, rows=True)
    if not (isinstance(low, Tensor) or isinstance(high, Tensor)) and low > high:
        raise ValueError(f"entropy_clip: min_entropy must be at most max_entropy, got {low} and {high}")
    return _map("entropy_clip", x, [low, high, "scores"], dim, axis, group, first, n)


@together
def gamma_for_entropy(
    x,
    *,
    entropy=None,
    perplexity=None,
    gamma_range=(0.0, math.inf),
    max_iterations=100,
    dim=None,
    axis=None,
    group=None,
    first=None,
    n=None,
):
    """As entropic.torch.gamma_for_entropy: gamma, the entropy and the status of each row, on every rank."""
    name = "gamma_for_entropy"
    goal = _target_entropy(name, entropy, perplexity)
    low, high = map(float, gamma_range)
    if not 0 <= low <= high:
        raise ValueError(f"{name}: gamma_range must be two numbers with 0 <= min_gamma <= max_gamma, got {low} and {high}")
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    if max_iterations < 1:
        raise ValueError(f"{name}: max_iterations must be at least 1, got {max_iterations}")
    part = Part(name, x, dim, axis, group, first, n)
    _, values = part.run("gamma", name, entropy=goal, low=low, high=high, iterations=max_iterations)
    status = np.array(STATUSES)[values.detach()[:, 2].to(torch.int64).cpu().numpy()].reshape(part.lead)
    gamma, reached = (part.numbers(values[:, i]) for i in (0, 1))
    return GammaResult(gamma, reached, status)


@together
def log_softmax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.log_softmax, of this rank's part of dim. Two rounds."""
    temperature = number("log_softmax", "temperature", temperature, rows=True)
    part = Part("log_softmax", x, dim, axis, group, first, n)
    given = part.temperature("log_softmax", temperature)
    y, _ = part.run("statistics", "log_softmax", **given, entropy=False, writes=True)
    return part.back(y)


def _classes(target):
    """Classes of rows. -1 stands for a row that is ignored, so a negative one, which is wrong, is told as one below."""
    classes = target.reshape(-1).to(torch.int64)
    return torch.where(classes < 0, classes - 1, classes)


def _statistics(name, x, target, temperature, dim, axis, group, first, n, **more):
    temperature = number(name, "temperature", temperature)
    part = Part(name, x, dim, axis, group, first, n)
    classes = None if target is None else _classes(target)
    _, values = part.run("statistics", name, target=classes, temperature=temperature, entropy=True, writes=False, **more)
    return part, values


@together
def logsumexp(x, *, temperature=1.0, keepdim=False, keepdims=False, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.logsumexp: the whole row's number, on every rank. Two rounds."""
    temperature = number("logsumexp", "temperature", temperature, rows=True)
    part = Part("logsumexp", x, dim, axis, group, first, n)
    given = part.temperature("logsumexp", temperature)
    # The entropy is the derivative in a temperature.
    _, values = part.run("statistics", "logsumexp", **given, entropy=isinstance(temperature, Tensor), writes=False)
    return part.reduced(values[:, 2], keepdim or keepdims)


def _checked_target(name, x, target):
    """Classes as integers, or a distribution's part of x's shape."""
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: target must be a torch.Tensor, got {type(target).__name__}")
    return target.is_floating_point()


def _class_loss(name, x, target, alpha, ignore_index, dim, axis, group, first, n):
    soft = _checked_target(name, x, target)
    part = Part(name, x, dim, axis, group, first, n)
    classes = other = None
    if soft:
        if target.shape != x.shape:
            raise ValueError(f"{name}: target must have the shape of x, {tuple(x.shape)}, got {tuple(target.shape)}")
        other = part.laid(target.detach().to(part.rows.dtype))
    else:
        if tuple(target.shape) != part.lead:
            raise ValueError(
                f"{name}: target must have one class for each row, of shape {part.lead}, got {tuple(target.shape)}"
            )
        classes = _classes(target)
        if ignore_index is not None:
            classes = torch.where(target.reshape(-1) == ignore_index, -1, classes)
    if alpha is not None:
        _, values = part.run("loss", name, other=other, target=classes, alpha=alpha, soft=soft)
        loss = values[:, 0]
    elif soft:
        _, values = part.run("soft", name, other=other)
        loss = values[:, 0]
    else:
        _, values = part.run("statistics", name, target=classes, temperature=1.0, entropy=True, writes=False)
        loss = torch.where(classes < 0, 0.0, -values[:, 3])
    return part.numbers(loss)


@together
def softmax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.softmax_loss: of a class, counted in the whole row, or of this rank's part of a distribution."""
    return _class_loss("softmax_loss", x, target, None, ignore_index, dim, axis, group, first, n)


@together
def sparsemax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.sparsemax_loss, of parts."""
    return _class_loss("sparsemax_loss", x, target, 2.0, ignore_index, dim, axis, group, first, n)


@together
def entmax_loss(x, target, *, alpha=1.5, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entmax_loss, of parts; alpha is one number."""
    alpha = number("entmax_loss", "alpha", alpha)
    return _class_loss("entmax_loss", x, target, alpha, ignore_index, dim, axis, group, first, n)


class _Logarithm(torch.autograd.Function):
    """log of probabilities in float64; the bits do not depend on an entry's place. The operators that take it give the
    derivative in the probabilities, which may be infinite where one is 0, so that backward has nothing to do."""

    @staticmethod
    def forward(ctx, p):
        ctx.dtype = p.dtype
        return torch.from_numpy(logarithm(np.ascontiguousarray(p.detach().cpu().double().numpy()))).to(p.device)

    @staticmethod
    def backward(ctx, grad):
        return grad.to(ctx.dtype)


def _scores_of(name, x, given):
    """The scores for softmax, and the tolerance of sums."""
    if given == "scores":
        return x, {}
    if given not in ("probs", "log_probs"):
        raise ValueError(f"{name}: input must be scores, log_probs or probs, got {given!r}")
    more = {"input": given, "tolerance": _core.sum_tolerance[2 if x.dtype == torch.bfloat16 else x.element_size()]}
    return (_Logarithm.apply(x) if given == "probs" else x), more


@together
def entropy(x, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.entropy: the whole row's number, on every rank. Two rounds; input is scores unless said otherwise."""
    scores, more = _scores_of("entropy", x, input)
    part, values = _statistics("entropy", scores, None, 1.0, dim, axis, group, first, n, **more)
    part.dtype = x.dtype
    return part.numbers(values[:, 4])


def _divergence(name, p, q, given, dim, axis, group, first, n):
    dtype = p.dtype
    (p, more), (q, _) = _scores_of(name, p, given), _scores_of(name, q, given)
    part = Part(name, p, dim, axis, group, first, n)
    part.dtype = dtype
    if q.shape != p.shape:
        raise ValueError(f"{name}: q must have the shape of p, {tuple(p.shape)}, got {tuple(q.shape)}")
    _, values = part.run("two", name, other=part.laid(q.to(part.rows.dtype)), **more)
    return part.numbers(values[:, 0])


@together
def kl_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.kl_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("kl_divergence", p, q, input, dim, axis, group, first, n)


@together
def js_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.js_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("js_divergence", p, q, input, dim, axis, group, first, n)


@together
def token_statistics(logits, target, *, temperature=1.0, top=0, dim=None, axis=None, group=None, first=None, n=None):
    """As entropic.torch.token_statistics; tokens and indices are of the whole row. Two rounds, and one for top."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"token_statistics: top must be an integer from 0, got {top!r}")
    part, values = _statistics("token_statistics", logits, target, temperature, dim, axis, group, first, n)
    numbers = [part.numbers(values[:, i]) for i in (3, 4, 5)]
    indices = None
    if top:
        found = top_indices(part.rows.detach(), top, *part.given, part.group)
        indices = found.reshape(*part.lead, top).movedim(-1, part.dim)
    return _token_statistics.TokenStatistics(numbers[0], numbers[1], numbers[2].detach(), indices)
