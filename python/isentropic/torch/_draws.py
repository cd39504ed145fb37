"""Draws from tensors, and chains of steps: the operators, and what checks the arguments."""

import json
import math
from typing import Any

import torch

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _sampling as _arrays
from isentropic._numpy._sampling import natural, signed
from isentropic.formulas import sampling as formulas
from isentropic.torch._arguments import checked_dim, one_dim, readable
from isentropic.torch._builder import Operator
from isentropic.torch._generated import log_softmax
from isentropic.torch._sampling import noise_of, streams_of
from isentropic.torch._spec import OpSpec, Tensor


def _shapes_of_draw(x, streams, positions, tokens, bounds, steps, seed, size, replace, probs):
    lead = x.shape[:-1]
    p = torch.empty_like(x, memory_format=torch.contiguous_format) if probs else x.new_empty(0)
    return x.new_empty((*lead, size), dtype=torch.int64), torch.empty_like(bounds), p


# Rows along the last axis; steps as JSON, a list of (name, value). Texts are the last axis of tokens, which has no entries
# where no step reads them, and bounds, one for each row or none, are mirostat's, before and after the draw.
probs_operator = Operator(
    OpSpec(
        name="sampler_probs",
        tensors=("x", "tokens"),
        params={"steps": "str", "logarithm": "bool"},
        outputs=("p",),
        shapes=lambda x, *_: torch.empty_like(x, memory_format=torch.contiguous_format),
    )
)
draw_operator = Operator(
    OpSpec(
        name="sampler_sample",
        tensors=("x", "streams", "positions", "tokens", "bounds"),
        params={"steps": "str", "seed": "SymInt", "size": "int", "replace": "bool", "probs": "bool"},
        outputs=("index", "after", "p"),
        shapes=_shapes_of_draw,
    )
)


def as_json(steps):
    return json.dumps(steps, default=lambda value: value.item() if hasattr(value, "item") else list(value))


def no_tokens(x):
    return x.new_empty((*x.shape[:-1], 0), dtype=torch.int64)


def _positions_of(name, position, x, count):
    """A position for each row, in x's shape without its last axis."""
    lead = x.shape[:-1]
    if isinstance(position, Tensor):
        if position.is_floating_point() or position.is_complex() or position.dtype is torch.bool:
            raise TypeError(f"{name}: position must be of integers, got dtype {position.dtype}")
        if readable(position) and position.numel() and bool((position < 0).any()):
            raise ValueError(f"{name}: position must be at least 0, got {position.min()}")
        try:
            return position.to(x.device, torch.int64).expand(lead)
        except RuntimeError:
            which = "x's shape without dim"
            raise _checks.misfit(name, "position", lead, which, position, "an integer or a tensor") from None
    first = signed(_arrays.position_of(name, position, count))
    return torch.full(lead, first, dtype=torch.int64, device=x.device)


def _tokens_of(name, tokens, x, reads):
    """The texts of the rows of x, whose last axis is that of its scores."""
    if tokens is None:
        if reads:
            raise ValueError(f"{name}: tokens must be given: a step reads the text so far")
        return no_tokens(x)
    if not reads:
        raise ValueError(f"{name}: tokens must not be given: no step reads them")
    if not isinstance(tokens, Tensor):
        rows = type("Rows", (), {"lead": tuple(x.shape[:-1]), "axis": x.dim() - 1})
        tokens = torch.tensor(_arrays.texts_of_rows(name, rows, tokens))
        return tokens.to(x.device).reshape(*x.shape[:-1], tokens.shape[-1])
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype is torch.bool:
        raise TypeError(f"{name}: tokens must be of integers, got dtype {tokens.dtype}")
    shape = (*x.shape[:-1], *tokens.shape[-1:])
    try:
        return tokens.to(x.device, torch.int64).expand(shape)
    except RuntimeError:
        raise _checks.misfit(name, "tokens", shape, "x's shape without dim, and then tokens", tokens, "a tensor") from None


def _drawn(name, x, dim, steps, seed, stream, position, size, *, tokens=None, bounds=None, replace=True, probs=False):
    """(indices, mirostat's bounds after them, the distribution), with dim's place in x as before."""
    count = 1 if size is None else natural(name, "size", size, 1 << 62)
    moved = x.movedim(dim, -1)
    streams = streams_of(name, stream, x, dim)
    positions = _positions_of(name, position, moved, count if replace else 1)
    tokens = no_tokens(moved) if tokens is None else tokens
    bounds = moved.new_empty(0, dtype=torch.float64) if bounds is None else bounds
    number = signed(natural(name, "seed", seed))
    index, after, p = draw_operator(moved, streams, positions, tokens, bounds, steps, number, count, replace, probs)
    return index[..., 0] if size is None else index, after, p.movedim(-1, dim) if probs else None


@documented
def sample(x, *, size=None, replace=True, temperature=1.0, seed, stream=0, position=0, dim=None, axis=None):
    """
    seed (int or tensor of one integer): In [0, 2**64). A tensor is for compiled functions; elsewhere it is read.
    stream (int, or tensor, array or list of integers): With an int, row r, counted with dim last, has stream + r. Other values
        have one integer for each row, or broadcast to x's shape without dim.
    position (int or tensor of integers): A tensor broadcasts to x's shape without dim.
    Returns: int64 indices along dim, on the device of x, in its shape without dim, and with size as last axis where given; -1
        for a row without a distribution. They are those of isentropic.sample, for any device and type of x.
    >>> isentropic.torch.sample(torch.zeros(2, 5), seed=1, size=3).shape
    torch.Size([2, 3])
    """
    name = "sample"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    replace = _checks.flag(name, "replace", replace)
    if isinstance(temperature, Tensor) or not 0 < _checks.number(name, "temperature", temperature) < math.inf:
        raise ValueError(f"{name}: temperature must be one number, above 0 and finite, got {temperature}; divide x by it")
    steps = f'[["temperature", {float(temperature)!r}]]'  # a compiler does not know json
    return _drawn(name, x, dim, steps, seed, stream, position, size, replace=replace)[0]


@documented
class Sampler:
    """A chain of steps, isentropic.Sampler, on tensors of any device and type; it has the same steps, and the same draws.

    Parameters
    ----------
    steps : list of (name, value)
        As in isentropic.Sampler.
    seed : int in [0, 2**64), or tensor of one integer, default 0
        A tensor is for compiled functions; elsewhere it is read.
    """

    seed: int | Tensor

    def __init__(self, steps, *, seed=0):
        self._chain = _arrays.Sampler(steps)
        self.seed = seed if isinstance(seed, Tensor) else natural("Sampler", "seed", seed)
        self._steps = as_json(self._chain.steps)
        self._kept = None  # of mirostat: streams, the next position, bounds

    @property
    def steps(self) -> Any:
        """The steps, a tuple of pairs (name, value)."""
        return self._chain.steps

    def __repr__(self):
        return f"Sampler({list(self.steps)!r}, seed={self.seed})"

    def probs(self, x, *, tokens=None, dim=None, axis=None):
        """The distribution that sample draws from, of x's shape and type; see isentropic.Sampler.probs. It has no derivative.

        tokens, the text so far of each row, is a tensor or array of integers: x's shape without dim, and then an axis of
        tokens; numbers below 0 are padding.
        """
        name = "Sampler.probs"
        dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
        moved = x.movedim(dim, -1)
        tokens = _tokens_of(name, tokens, moved, self._chain.reads_text)
        return probs_operator(moved, tokens, self._steps, False).movedim(-1, dim)

    def sample(self, x, *, size=None, stream=0, position=0, tokens=None, return_probs=False, dim=None, axis=None) -> Any:
        """Indices drawn from probs(x), as the function sample draws them; with return_probs (indices, distribution).

        For the next token of a growing text give the next position. size, stream and position are as in sample; mirostat's
        bounds are kept for the rows of the last call, if their streams are the same and the position is the next one.
        """
        name = "Sampler.sample"
        dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
        return_probs = _checks.flag(name, "return_probs", return_probs)
        tokens = _tokens_of(name, tokens, x.movedim(dim, -1), self._chain.reads_text)
        bounds = self._bounds_at(name, x, dim, stream, position) if self._chain.adjusts else None
        given = {"tokens": tokens, "bounds": bounds, "probs": return_probs}
        drawn, after, p = _drawn(name, x, dim, self._steps, self.seed, stream, position, size, **given)
        if self._chain.adjusts:
            streams, following, _ = self._kept
            self._kept = streams, following + (1 if size is None else size), after
        return (drawn, p) if return_probs else drawn

    def _bounds_at(self, name, x, dim, stream, position):
        streams = streams_of(name, stream, x, dim)
        positions = _positions_of(name, position, x.movedim(dim, -1), 1)
        anew = torch.full(streams.shape, math.nan, dtype=torch.float64, device=x.device)
        bounds = anew
        if self._kept is not None and self._kept[0].shape == streams.shape and self._kept[0].device == x.device:
            bounds = torch.where((self._kept[0] == streams) & (self._kept[1] == positions), self._kept[2], anew)
        self._kept = streams, positions, bounds
        return bounds


@documented
def gumbel_noise(shape, *, seed, stream=0, position=0, dtype=torch.float64, device=None):
    """
    dtype (torch.float64 or torch.float32): Of the result.
    device (torch.device or str or None): Of the result.
    """
    name = "gumbel_noise"
    if dtype not in (torch.float64, torch.float32):
        raise TypeError(f"{name}: dtype must be torch.float64 or torch.float32, got {dtype}")
    x = torch.empty(_arrays.shape_of(name, shape), dtype=dtype, device=device)
    streams = streams_of(name, stream, x, x.dim() - 1)
    first = signed(_arrays.position_of(name, position, 1))
    return noise_of(x, streams, signed(natural(name, "seed", seed)), x.dim() - 1, first)


@documented
def speculative_sample(draft, target, tokens, *, seed, stream=0, position=0):
    """
    Returns: (accepted, token), int64 tensors in target's shape without its last two axes.
    """
    name = "speculative_sample"
    checked_dim(name, "target", target, -1)
    if draft is not None:
        checked_dim(name, "draft", draft, -1)
    tokens = torch.as_tensor(tokens, device=target.device)
    if readable(tokens):
        formulas.check(name, tokens.cpu().numpy(), None if draft is None else draft.shape, target.shape)
    rows = target.select(-2, 0)
    number, streams = natural(name, "seed", seed), streams_of(name, stream, rows, rows.dim() - 1)
    if not isinstance(position, Tensor):
        _arrays.position_of(name, position, target.shape[-2] if draft is None else 1)

    def noise(seed, count):
        like = target.new_empty((*target.shape[:-2], count), dtype=torch.float64)
        return noise_of(like, streams, signed(seed), like.dim() - 1, signed(_arrays.position_of(name, position, count)))

    def draw(scores, seed, offset):
        return sample(scores, seed=seed, stream=streams, position=position + offset)

    functions = formulas.Functions(torch, torch.take_along_dim, lambda x: log_softmax(x.double()), noise, draw)
    return formulas.speculative(functions, draft, target, tokens.long(), number)
