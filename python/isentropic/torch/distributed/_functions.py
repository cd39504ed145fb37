"""The functions that users call."""

import functools
import math

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import MAPS, STATUSES
from isentropic._numpy._entropy_control import GammaResult
from isentropic.torch._arguments import as_text, checked_dim, checked_target, one_dim
from isentropic.torch._spec import TokenStatistics
from isentropic.torch.distributed._group import Group, begun, start_counting
from isentropic.torch.distributed._operators import operate, top_indices

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

    def __init__(self, name, x, dim, axis, group, first, n, argument="x"):
        self.group = _name_of(name, group)
        self.given = _place(name, "first", first), _place(name, "n", n)
        self.dim = checked_dim(name, argument, x, one_dim(name, dim, axis))
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

    def checked_target(self, name, scores, target, kind):
        """target as isentropic.torch takes it, but on any device."""
        target = target.to(self.x.device) if isinstance(target, Tensor) else target
        return checked_target(name, {"arguments": (scores, "target"), "target": kind}, self.x, target, self.dim)

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


def _name_of(name, group):
    if group is None:
        if not (dist.is_available() and dist.is_initialized()):
            return ""
        group = dist.group.WORLD
    if isinstance(group, str):
        return group
    if not hasattr(group, "group_name"):  # torch gives GroupMember.NON_GROUP_MEMBER to a rank that is not in the new group
        raise ValueError(f"{name}: group must be a process group that this rank is in, got {group!r}")
    return group.group_name


def _place(name, argument, value):
    if value is None:
        return -1
    if isinstance(value, bool) or not isinstance(value, (int, np.integer, torch.SymInt)):
        raise TypeError(f"{name}: {argument} must be an integer, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name}: {argument} must be at least 0, got {value}")
    return int(value)


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
            name = function.__qualname__.split(".")[0]
            everyone = _name_of(name, group)
            if begun[0] or everyone == "" or (first is not None and n is not None):
                raise
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
    """As isentropic.torch.softmax, of this rank's part of dim. Two rounds."""
    return _map("softmax", x, [number("softmax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


@together
def sparsemax(x, *, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.sparsemax, of this rank's part of dim. Two rounds where no part has more than 64 candidates."""
    return _map("sparsemax", x, [number("sparsemax", "temperature", temperature, rows=True)], dim, axis, group, first, n)


@together
def entmax(x, *, alpha=1.5, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.entmax, of this rank's part of dim; alpha is one number."""
    params = [number("entmax", one, value, rows=True) for one, value in (("alpha", alpha), ("temperature", temperature))]
    return _map("entmax", x, params, dim, axis, group, first, n)


@together
def top_k_softmax(x, *, k, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.top_k_softmax, of this rank's part of dim. One round."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"top_k_softmax: k must be an integer, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"top_k_softmax: k must be above 0, got {k}")
    params = [k, number("top_k_softmax", "temperature", temperature, rows=True)]
    return _map("top_k_softmax", x, params, dim, axis, group, first, n)


@together
def top_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.top_p_softmax, of this rank's part of dim. At most seven rounds, for any scores."""
    params = [
        number("top_p_softmax", "p", p, 0, 1),
        number("top_p_softmax", "temperature", temperature, rows=True),
    ]
    return _map("top_p_softmax", x, params, dim, axis, group, first, n)


@together
def min_p_softmax(x, *, p, temperature=1.0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.min_p_softmax, of this rank's part of dim. Two rounds."""
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
    """As isentropic.torch.entropy_normalize, of this rank's part of dim. Usually three rounds."""
    goal = _target_entropy("entropy_normalize", entropy, perplexity, rows=True)
    return _map("entropy_normalize", x, [goal, None, "scores"], dim, axis, group, first, n)


@together
def entropy_clip(x, *, min_entropy=None, max_entropy=None, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.entropy_clip, of this rank's part of dim."""
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
    """As isentropic.torch.gamma_for_entropy: gamma, the entropy and the status of each row, on every rank."""
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
    """As isentropic.torch.log_softmax, of this rank's part of dim. Two rounds."""
    temperature = number("log_softmax", "temperature", temperature, rows=True)
    part = Part("log_softmax", x, dim, axis, group, first, n)
    given = part.temperature("log_softmax", temperature)
    y, _ = part.run("statistics", "log_softmax", **given, entropy=False, writes=True)
    return part.back(y)


def _classes(target):
    """Classes of rows. -1 stands for a row that is ignored, so a negative one, which is wrong, is told as one below."""
    classes = target.reshape(-1).to(torch.int64)
    return torch.where(classes < 0, classes - 1, classes)


@together
def logsumexp(x, *, temperature=1.0, keepdim=False, keepdims=False, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.logsumexp: the whole row's number, on every rank. Two rounds."""
    temperature = number("logsumexp", "temperature", temperature, rows=True)
    part = Part("logsumexp", x, dim, axis, group, first, n)
    given = part.temperature("logsumexp", temperature)
    # The entropy is the derivative in a temperature.
    _, values = part.run("statistics", "logsumexp", **given, entropy=isinstance(temperature, Tensor), writes=False)
    return part.reduced(values[:, 2], keepdim or keepdims)


def _class_loss(name, x, target, alpha, ignore_index, dim, axis, group, first, n):
    part = Part(name, x, dim, axis, group, first, n)
    target = part.checked_target(name, "x", target, "class_or_distribution")
    soft, classes, other, more = target.is_floating_point(), None, None, {}
    if soft:
        other, more = part.laid(target), _as_given(x.dtype)
    else:
        classes = _classes(target)
        if ignore_index is not None:
            classes = torch.where(target.reshape(-1) == ignore_index, -1, classes)
    if alpha is not None:
        _, values = part.run("loss", name, other=other, target=classes, alpha=alpha, soft=soft, **more)
        loss = values[:, 0]
    elif soft:
        _, values = part.run("soft", name, other=other, soft=soft, **more)
        loss = values[:, 0]
    else:
        _, values = part.run("statistics", name, target=classes, temperature=1.0, entropy=True, writes=False)
        loss = torch.where(classes < 0, 0.0, -values[:, 3])
    return part.numbers(loss)


@together
def softmax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.softmax_loss: of a class, counted in the whole row, or of this rank's part of a distribution."""
    return _class_loss("softmax_loss", x, target, None, ignore_index, dim, axis, group, first, n)


@together
def sparsemax_loss(x, target, *, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.sparsemax_loss, of parts."""
    return _class_loss("sparsemax_loss", x, target, 2.0, ignore_index, dim, axis, group, first, n)


@together
def entmax_loss(x, target, *, alpha=1.5, ignore_index=None, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.entmax_loss, of parts; alpha is one number."""
    alpha = number("entmax_loss", "alpha", alpha)
    return _class_loss("entmax_loss", x, target, alpha, ignore_index, dim, axis, group, first, n)


def _as_given(dtype):
    """The arguments of a call that takes distributions in x's type as given."""
    return {"dtype": str(dtype), "tolerance": _core.sum_tolerance[dtype.itemsize]}


def _input(name, given, dtype):
    if given not in ("scores", "probs", "log_probs"):
        raise ValueError(f"{name}: input must be scores, log_probs or probs, got {given!r}")
    return {"input": given} if given == "scores" else {"input": given, **_as_given(dtype)}


@together
def entropy(x, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.entropy: the whole row's number, on every rank. Two rounds; input is scores unless said otherwise."""
    part = Part("entropy", x, dim, axis, group, first, n)
    more = _input("entropy", input, x.dtype)
    if input == "scores":
        _, values = part.run("statistics", "entropy", temperature=1.0, entropy=True, writes=False, **more)
        return part.numbers(values[:, 4])
    _, values = part.run("given", "entropy", **more)
    return part.numbers(values[:, 0])


def _divergence(name, p, q, given, dim, axis, group, first, n):
    part = Part(name, p, dim, axis, group, first, n, "p")
    checked_dim(name, "q", q, part.dim)
    if q.shape != p.shape:
        raise ValueError(f"{name}: q must have the shape of p, {tuple(p.shape)}, got {tuple(q.shape)}")
    if q.dtype != p.dtype:
        dtype = torch.promote_types(p.dtype, q.dtype)
        part, q = Part(name, p.to(dtype), dim, axis, group, first, n), q.to(dtype)
    _, values = part.run("two", name, other=part.laid(q), **_input(name, given, q.dtype))
    return part.numbers(values[:, 0])


@together
def kl_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.kl_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("kl_divergence", p, q, input, dim, axis, group, first, n)


@together
def js_divergence(p, q, *, input="scores", dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.js_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("js_divergence", p, q, input, dim, axis, group, first, n)


@together
def token_statistics(logits, target, *, temperature=1.0, top=0, dim=None, axis=None, group=None, first=None, n=None):
    """As isentropic.torch.token_statistics; tokens and indices are of the whole row. Two rounds, and one for top."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"token_statistics: top must be an integer from 0, got {top!r}")
    temperature = number("token_statistics", "temperature", temperature)
    part = Part("token_statistics", logits, dim, axis, group, first, n, "logits")
    classes = _classes(part.checked_target("token_statistics", "logits", target, "class"))
    spec = {"temperature": temperature, "entropy": True, "writes": False}
    _, values = part.run("statistics", "token_statistics", target=classes, **spec)
    numbers = [part.numbers(values[:, i]) for i in (3, 4, 5)]
    indices = None
    if top:
        found = top_indices(part.rows.detach(), top, *part.given, part.group)
        indices = found.reshape(*part.lead, top).movedim(-1, part.dim)
    return TokenStatistics(numbers[0], numbers[1], numbers[2].detach(), indices)
