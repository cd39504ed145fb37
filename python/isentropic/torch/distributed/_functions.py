"""The functions that users call."""

import functools
import inspect
import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import STATUSES
from isentropic._numpy._entropy_control import GammaResult
from isentropic.torch._arguments import as_text, checked_dim, checked_target, one_dim
from isentropic.torch._compat import can_be_read
from isentropic.torch._spec import TokenStatistics, working
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


class Where(NamedTuple):
    """The axis that is split, and the place of this rank's part."""

    dim: Any = None
    axis: Any = None
    group: Any = None
    first: Any = None
    n: Any = None


class Part:
    """This rank's part as rows of contiguous numbers, and back."""

    def __init__(self, name, x, where, argument="x"):
        self.name, self.group = name, _name_of(name, where.group)
        self.given = _place(name, "first", where.first), _place(name, "n", where.n)
        self.dim = checked_dim(name, argument, x, one_dim(name, where.dim, where.axis))
        self.dtype, self.x = x.dtype, x
        self.rows = self.laid(x)
        self.lead = (*x.shape[: self.dim], *x.shape[self.dim + 1 :])

    def laid(self, x):
        moved = working(x).movedim(self.dim, -1)
        return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1]).contiguous()

    def back(self, y):
        return y.reshape(*self.lead, self.x.shape[self.dim]).movedim(-1, self.dim).to(self.dtype)

    def numbers(self, values):
        return values.reshape(self.lead).to(torch.float64 if self.dtype == torch.float64 else torch.float32)

    def checked_target(self, scores, target, kind):
        """target as isentropic.torch takes it, but on any device."""
        target = target.to(self.x.device) if isinstance(target, Tensor) else target
        return checked_target(self.name, {"arguments": (scores, "target"), "target": kind}, self.x, target, self.dim)

    def run(self, kind, params=None, other=None, target=None, **spec):
        """The operator; params are numbers, or tensors of one for each row."""
        params = params or {}
        rows = [self.of_rows(*one) for one in params.items() if isinstance(one[1], Tensor)]
        plain = {key: "rows" if isinstance(value, Tensor) else value for key, value in params.items()}
        spec = as_text({"kind": kind, "name": self.name, "params": plain, **spec})
        return operate(self.rows, other, target, torch.stack(rows, 1) if rows else None, spec, *self.given, self.group)

    def statistics(self, params=None, target=None, entropy=True, writes=False, **more):
        """log_softmax, and numbers of each row."""
        return self.run("statistics", params, target=target, entropy=entropy, writes=writes, **more)

    def of_rows(self, argument, value):
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
                f"{self.name}: {argument} must broadcast to {self.lead}, one for each row, got {tuple(value.shape)}"
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
    """The function, which has the arguments of Where too; an exception before its first exchange, as of a wrong argument, is
    raised on all ranks.

    The other ranks wait in the exchange of extents. With first and n there may be none, and the exception is this rank's alone.
    """

    @functools.wraps(function)
    def run(*arguments, dim=None, axis=None, group=None, first=None, n=None, **keywords):
        where = Where(dim, axis, group, first, n)
        if torch.compiler.is_compiling():
            return function(*arguments, where=where, **keywords)
        begun[0] = False
        try:
            return function(*arguments, where=where, **keywords)
        except Exception as error:
            name = function.__qualname__.split(".")[0]
            everyone = _name_of(name, group)
            if begun[0] or everyone == "" or (first is not None and n is not None):
                raise
            start_counting()
            Group(name, everyone).extent(0, 0, 0, -1, -1, {}, error)
            raise

    own = [one for one in inspect.signature(function).parameters.values() if one.name != "where"]
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in Where._fields]
    run.__signature__ = inspect.Signature(own + more)
    return run


def _tensor_number(name, argument, value, low, high, least):
    if not value.is_floating_point():
        raise TypeError(f"{name}: {argument} must be a number or a tensor of floating point, got {value.dtype}")
    if can_be_read(value):
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


def _heat(name, temperature):
    return {"temperature": number(name, "temperature", temperature, rows=True)}


def _map(name, x, params, where):
    part = Part(name, x, where)
    return part.back(part.run("map", params, map=name)[0])


@together
def softmax(x, *, temperature=1.0, where):
    """As isentropic.torch.softmax, of this rank's part of dim. Two rounds."""
    return _map("softmax", x, _heat("softmax", temperature), where)


@together
def sparsemax(x, *, temperature=1.0, where):
    """As isentropic.torch.sparsemax, of this rank's part of dim. One round where no part has more than 64 candidates."""
    return _map("sparsemax", x, _heat("sparsemax", temperature), where)


@together
def entmax(x, *, alpha=1.5, temperature=1.0, where):
    """As isentropic.torch.entmax, of this rank's part of dim."""
    return _map("entmax", x, {"alpha": number("entmax", "alpha", alpha, rows=True), **_heat("entmax", temperature)}, where)


@together
def top_k_softmax(x, *, k, temperature=1.0, where):
    """As isentropic.torch.top_k_softmax, of this rank's part of dim. One round."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"top_k_softmax: k must be an integer, got {type(k).__name__}")
    if k < 1:
        raise ValueError(f"top_k_softmax: k must be above 0, got {k}")
    return _map("top_k_softmax", x, {"k": k, **_heat("top_k_softmax", temperature)}, where)


@together
def top_p_softmax(x, *, p, temperature=1.0, where):
    """As isentropic.torch.top_p_softmax, of this rank's part of dim. Six rounds for any scores, ten for float64."""
    return _map("top_p_softmax", x, {"p": number("top_p_softmax", "p", p, 0, 1), **_heat("top_p_softmax", temperature)}, where)


@together
def min_p_softmax(x, *, p, temperature=1.0, where):
    """As isentropic.torch.min_p_softmax, of this rank's part of dim. Two rounds."""
    return _map("min_p_softmax", x, {"p": number("min_p_softmax", "p", p, 0, 1), **_heat("min_p_softmax", temperature)}, where)


def _target_entropy(name, entropy, perplexity, rows=False):
    if (entropy is None) == (perplexity is None):
        got = "neither" if entropy is None else f"entropy {entropy}, perplexity {perplexity}"
        raise ValueError(f"{name}: exactly one of entropy and perplexity must be given, got {got}")
    if entropy is not None:
        return number(name, "entropy", entropy, least=True, rows=rows)
    perplexity = number(name, "perplexity", perplexity, 1, least=True, rows=rows)
    return perplexity.double().log() if isinstance(perplexity, Tensor) else math.log(perplexity)


@together
def entropy_normalize(x, *, entropy=None, perplexity=None, where):
    """As isentropic.torch.entropy_normalize, of this rank's part of dim. Usually three rounds."""
    goal = _target_entropy("entropy_normalize", entropy, perplexity, rows=True)
    return _map("entropy_normalize", x, {"entropy": goal}, where)


@together
def entropy_clip(x, *, min_entropy=None, max_entropy=None, where):
    """As isentropic.torch.entropy_clip, of this rank's part of dim."""
    low = 0.0 if min_entropy is None else number("entropy_clip", "min_entropy", min_entropy, least=True, rows=True)
    high = 1e300 if max_entropy is None else number("entropy_clip", "max_entropy", max_entropy, least=True, rows=True)
    if not (isinstance(low, Tensor) or isinstance(high, Tensor)) and low > high:
        raise ValueError(f"entropy_clip: min_entropy must be at most max_entropy, got {low} and {high}")
    return _map("entropy_clip", x, {"min_entropy": low, "max_entropy": high}, where)


@together
def gamma_for_entropy(x, *, entropy=None, perplexity=None, gamma_range=(0.0, math.inf), max_iterations=100, where):
    """As isentropic.torch.gamma_for_entropy: gamma, the entropy and the status of each row, on every rank."""
    name = "gamma_for_entropy"
    goal = _target_entropy(name, entropy, perplexity)
    low, high = map(float, gamma_range)
    if not 0 <= low <= high:
        raise ValueError(f"{name}: gamma_range must be two numbers with 0 <= min_gamma <= max_gamma, got {low} and {high}")
    max_iterations = _checks.integer(name, "max_iterations", max_iterations)
    if max_iterations < 1:
        raise ValueError(f"{name}: max_iterations must be at least 1, got {max_iterations}")
    part = Part(name, x, where)
    _, values = part.run("gamma", entropy=goal, low=low, high=high, iterations=max_iterations)
    status = values.detach()[:, 2].to(torch.int64).reshape(part.lead)
    status = np.array(STATUSES)[status.numpy()] if can_be_read(status) else status  # words would wait for the device
    return GammaResult(part.numbers(values[:, 0]), part.numbers(values[:, 1]), status)


@together
def log_softmax(x, *, temperature=1.0, where):
    """As isentropic.torch.log_softmax, of this rank's part of dim. Two rounds."""
    part = Part("log_softmax", x, where)
    return part.back(part.statistics(_heat("log_softmax", temperature), entropy=False, writes=True)[0])


@together
def logsumexp(x, *, temperature=1.0, keepdim=False, keepdims=False, where):
    """As isentropic.torch.logsumexp: the whole row's number, on every rank. Two rounds."""
    keepdim = _checks.flag("logsumexp", "keepdims", keepdim if keepdims is False else keepdims)
    part = Part("logsumexp", x, where)
    # The entropy is the derivative in a temperature.
    _, values = part.statistics(_heat("logsumexp", temperature), entropy=isinstance(temperature, Tensor))
    result = values[:, 2].reshape(part.lead).to(part.dtype)
    return result.unsqueeze(part.dim) if keepdim else result


def _classes(target):
    """Classes of rows. -1 stands for a row that is ignored, so a negative one, which is wrong, is told as one below."""
    classes = target.reshape(-1).to(torch.int64)
    return torch.where(classes < 0, classes - 1, classes)


def _class_loss(name, x, target, alpha, ignore_index, where):
    part = Part(name, x, where)
    target = part.checked_target("x", target, "class_or_distribution")
    if target.is_floating_point():
        more = {} if alpha is None else {"alpha": alpha}
        _, values = part.run(
            "soft" if alpha is None else "loss", other=part.laid(target), soft=True, **more, **_as_given(x.dtype)
        )
        return part.numbers(values[:, 0])
    classes = _classes(target)
    if ignore_index is not None:
        classes = torch.where(target.reshape(-1) == ignore_index, -1, classes)
    if alpha is not None:
        return part.numbers(part.run("loss", target=classes, alpha=alpha, soft=False)[1][:, 0])
    _, values = part.statistics(target=classes, entropy=False)
    return part.numbers(torch.where(classes == -1, 0.0, -values[:, 3]))


@together
def softmax_loss(x, target, *, ignore_index=-100, where):
    """As isentropic.torch.softmax_loss: of a class, counted in the whole row, or of this rank's part of a distribution."""
    return _class_loss("softmax_loss", x, target, None, ignore_index, where)


@together
def sparsemax_loss(x, target, *, ignore_index=-100, where):
    """As isentropic.torch.sparsemax_loss, of parts."""
    return _class_loss("sparsemax_loss", x, target, 2.0, ignore_index, where)


@together
def entmax_loss(x, target, *, alpha=1.5, ignore_index=-100, where):
    """As isentropic.torch.entmax_loss, of parts; alpha is one number."""
    return _class_loss("entmax_loss", x, target, number("entmax_loss", "alpha", alpha), ignore_index, where)


def _as_given(dtype):
    """The arguments of a call that takes distributions in x's type as given."""
    return {"dtype": str(dtype), "tolerance": _core.sum_tolerance[dtype.itemsize]}


def _input(name, given, dtype):
    if given not in ("scores", "probs", "log_probs"):
        raise ValueError(f"{name}: input must be scores, log_probs or probs, got {given!r}")
    return {"input": given} if given == "scores" else {"input": given, **_as_given(dtype)}


@together
def entropy(x, *, input="scores", where):
    """As isentropic.torch.entropy: the whole row's number, on every rank. Two rounds; input is scores unless said otherwise."""
    part = Part("entropy", x, where)
    more = _input("entropy", input, x.dtype)
    if input == "scores":
        return part.numbers(part.statistics(**more)[1][:, 4])
    return part.numbers(part.run("given", **more)[1][:, 0])


def _divergence(name, p, q, given, where):
    part = Part(name, p, where, "p")
    checked_dim(name, "q", q, part.dim)
    if q.shape != p.shape:
        raise ValueError(f"{name}: q must have the shape of p, {tuple(p.shape)}, got {tuple(q.shape)}")
    if q.dtype != p.dtype:
        dtype = torch.promote_types(p.dtype, q.dtype)
        part, q = Part(name, p.to(dtype), where), q.to(dtype)
    return part.numbers(part.run("two", other=part.laid(q), **_input(name, given, q.dtype))[1][:, 0])


@together
def kl_divergence(p, q, *, input="scores", where):
    """As isentropic.torch.kl_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("kl_divergence", p, q, input, where)


@together
def js_divergence(p, q, *, input="scores", where):
    """As isentropic.torch.js_divergence, of parts of both; input is scores unless said otherwise. Three rounds."""
    return _divergence("js_divergence", p, q, input, where)


@together
def token_statistics(logits, target, *, temperature=1.0, top=0, ignore_index=-100, where):
    """As isentropic.torch.token_statistics; tokens and indices are of the whole row, without top_logprobs. Two rounds, and one
    for top."""
    name = "token_statistics"
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise ValueError(f"{name}: top must be an integer from 0, got {top!r}")
    temperature = number(name, "temperature", temperature)
    part = Part(name, logits, where, "logits")
    classes = _classes(part.checked_target("logits", target, "class"))
    if ignore_index is not None:
        classes = torch.where(target.reshape(-1) == ignore_index, -1, classes)
    _, values = part.statistics({"temperature": temperature}, classes, zero_if_unasked=True)
    logprob, entropy, most = (part.numbers(values[:, i]) for i in (3, 4, 5))
    logprob = torch.where(part.numbers(classes) == -1, 0.0, logprob)
    indices = None
    if top:
        found = top_indices(part.rows.detach(), top, *part.given, part.group)
        indices = found.reshape(*part.lead, top).movedim(-1, part.dim)
    return TokenStatistics(logprob, entropy, most.detach(), indices)
