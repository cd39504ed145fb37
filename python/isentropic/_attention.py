"""Arguments of attention: the shapes of arrays of any kind, and the scale."""

import math
from typing import NamedTuple

from isentropic import _checks


def scale_values(function, scale, train_length, kappa):
    """(scale, number, train_length, kappa) as _core takes them."""
    if isinstance(scale, str):
        if scale not in ("sqrt", "entropy_invariant"):
            raise ValueError(f"{function}: scale must be 'sqrt', 'entropy_invariant' or a number, got {scale!r}")
        return scale, 1.0, train_length, kappa
    return "number", _number(function, scale, "'sqrt', 'entropy_invariant'"), train_length, kappa


def _number(function, scale, words):
    number = _checks.number(function, "scale", scale, f"{words} or a number")
    if not -math.inf < number < math.inf:  # which torch.compile takes of a symbol too
        raise ValueError(f"{function}: scale must be {words} or a finite number, got {number}")
    return number


def linear_values(name, scale):
    if not isinstance(scale, str):
        return (_number(name, scale, "'sqrt'"),)
    if scale != "sqrt":
        raise ValueError(f"{name}: scale must be 'sqrt' or a number, got {scale!r}")
    return (None,)


class Shape(NamedTuple):
    """The common shape of q, k and v."""

    batch: tuple  # the axes before the heads
    heads: int
    kv_heads: int
    queries: int
    keys: int
    lead: tuple  # the axes of the result before the last two


def _broadcast(*shapes):
    """The common shape; sizes may be torch's symbols."""
    sizes = [1] * max(map(len, shapes))
    for shape in shapes:
        for at, size in enumerate(shape, len(sizes) - len(shape)):
            if sizes[at] == 1:
                sizes[at] = size
            elif size not in (1, sizes[at]):
                raise ValueError
    return tuple(sizes)


def shape_of(function, q, k, v):
    """The common shape of shapes (..., m, d), (..., n, d), (..., n, dv)."""
    for argument, shape in (("q", q), ("k", k), ("v", v)):
        if len(shape) < 2:
            raise ValueError(f"{function}: {argument} must have at least two axes, got shape {tuple(shape)}")
    if k[-1] != q[-1]:
        raise ValueError(f"{function}: k must have the last axis of q, {q[-1]}, got shape {tuple(k)}")
    if v[-2] != k[-2]:
        raise ValueError(f"{function}: v must have as many rows as k, {k[-2]}, got shape {tuple(v)}")
    heads, k_heads, v_heads = ((1, *shape)[-3] for shape in (q, k, v)) if max(map(len, (q, k, v))) > 2 else (1, 1, 1)
    try:
        batch = _broadcast(q[:-3], k[:-3], v[:-3])
        (kv_heads,) = _broadcast((k_heads,), (v_heads,))
    except ValueError:
        raise ValueError(
            f"{function}: the axes before the last two of q, k and v must broadcast, heads apart, got shapes {tuple(q)}, "
            f"{tuple(k)} and {tuple(v)}"
        ) from None
    if heads == 1:
        heads = kv_heads
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(f"{function}: q must have a multiple of the heads of k, {kv_heads}, got shape {tuple(q)}")
    lead = (*batch, heads) if max(map(len, (q, k, v))) > 2 else ()
    return Shape(batch, heads, kv_heads, q[-2], k[-2], lead)


def mask_shape(function, mask, fits, shape):
    """The shape (..., m, n) to which a mask broadcasts; `fits` says whether it is of bools or of floats."""
    if not fits:
        raise TypeError(
            f"{function}: mask must be of bools (True: the key is seen) or of floats (added to the scores), "
            f"got dtype {mask.dtype}"
        )
    wanted = (*shape.lead, shape.queries, shape.keys)
    try:
        fits = _broadcast(mask.shape, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{function}: mask must broadcast to {wanted}, got shape {tuple(mask.shape)}")
    return wanted
