"""Speculative decoding: which tokens of a draft are accepted, and the token after them, for arrays of NumPy or torch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Seeds of the noise that accepts, and of the token that follows: neither is the noise that drew the draft.
_ACCEPTS, _FOLLOWS = 0x616363657074, 0x666F6C6C6F77


class Functions(NamedTuple):
    """What the door has for its arrays."""

    xp: Any  # their namespace
    take: Callable[..., Any]  # take(x, indices, axis), of as many axes
    log_softmax: Callable[..., Any]  # in float64
    noise: Callable[..., Any]  # noise(seed, count): Gumbel noise, `count` numbers for each row
    draw: Callable[..., Any]  # draw(scores, seed, offset): an index for each row, at an offset from the position


def check(function, tokens, draft, target):
    """Refuses tokens, as an array of NumPy, and shapes that do not fit."""
    if len(target) < 2 or target[-2] < 1:
        raise ValueError(f"{function}: target must have shape (..., k + 1, n), got {tuple(target)}")
    *lead, count, n = target
    for name, shape, wanted in (("draft", draft, (*lead, count - 1, n)), ("tokens", tokens.shape, (*lead, count - 1))):
        if shape is not None and tuple(shape) != wanted:
            raise ValueError(f"{function}: {name} must have shape {wanted}, for target of {tuple(target)}, got {tuple(shape)}")
    if tokens.dtype.kind not in "iu" and tokens.size:
        raise TypeError(f"{function}: tokens must be of integers, got dtype {tokens.dtype}")
    for place in np.argwhere((tokens < 0) | (tokens >= n))[:1]:
        at = ", ".join(map(str, place))
        raise ValueError(f"{function}: tokens must be at least 0 and below {n}, got {tokens[tuple(place)]} at [{at}]")


def speculative(functions, draft, target, tokens, seed):
    """(accepted, token): how many of the drafted tokens are accepted, and the next one.

    With the draft's scores a token is accepted with the probability min(1, p / q), p the target's and q the draft's; after the
    first that is not, the token is drawn from max(p - q, 0), after all of them from the target (Leviathan, Kalman, Matias, ICML
    2023). So all tokens have the target's distribution. -log u of a uniform u is the exponential number behind Gumbel noise.

    Without them the draft was drawn with the noise of (seed, stream, position), and so are the tokens of the target: tokens
    that are equal are accepted, and the text is that of the target alone.
    """
    xp, take = functions.xp, functions.take
    count = tokens.shape[-1]
    if draft is None:
        drawn = xp.stack([functions.draw(target[..., i, :], seed, i) for i in range(count + 1)], -1)
        accepted = _leading(xp, drawn[..., :count] == tokens)
        return accepted, take(drawn, accepted[..., None], -1)[..., 0]
    log_p = functions.log_softmax(target)
    if count == 0:
        return _leading(xp, tokens == tokens), functions.draw(log_p[..., 0, :], seed ^ _FOLLOWS, 0)
    log_q = functions.log_softmax(draft)
    p, q = (take(x, tokens[..., None], -1)[..., 0] for x in (log_p[..., :count, :], log_q))
    accepted = _leading(xp, xp.exp(-functions.noise(seed ^ _ACCEPTS, count)) >= q - p)
    at = accepted[..., None, None]
    p = xp.exp(_row(functions, log_p, at))
    q = xp.where(at[..., 0] < count, xp.exp(_row(functions, log_q, xp.where(at < count, at, 0))), 0.0)
    rest = p - q
    rest = xp.where(rest < 0, 0.0, rest)
    rest = xp.where(rest.sum(-1)[..., None] == 0, p, rest)  # equal up to rounding
    return accepted, functions.draw(xp.log(rest), seed ^ _FOLLOWS, 0)


def _leading(xp, accepted):
    """The number of entries before the first that is false."""
    return xp.cumprod(accepted * 1, -1).sum(-1)


def _row(functions, x, at):
    """The row of each table that `at` names."""
    shape = (*x.shape[:-2], 1, x.shape[-1])
    return functions.take(x, functions.xp.broadcast_to(at, shape), -2)[..., 0, :]
