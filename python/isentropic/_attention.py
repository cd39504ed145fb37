"""Arguments of attention: the shapes of arrays of any kind, the scale and the cap."""

import math
from typing import NamedTuple

from isentropic import _checks

BY_N = ("entropy_invariant", "log_n")  # scales by the number of keys that a query sees
_WORDS = "'sqrt', 'entropy_invariant', 'log_n'"


def scale_values(function, scale, train_length, kappa):
    """(scale, number, train_length, kappa) as _core takes them."""
    if isinstance(scale, str) and scale not in ("sqrt", *BY_N):
        raise ValueError(f"{function}: scale must be {_WORDS} or a number, got {scale!r}")
    if not isinstance(scale, str):
        number, scale = _number(function, scale, _WORDS), "number"
    else:
        number = 1.0
    check_kappa(function, scale, kappa)
    return scale, number, train_length, kappa


def check_kappa(function, scale, kappa):
    """Refuses kappa where it has no effect."""
    if kappa is not None and scale not in BY_N:
        got = repr(scale) if isinstance(scale, str) and scale != "number" else "a number"
        raise ValueError(f"{function}: kappa must be None unless scale is 'entropy_invariant' or 'log_n', got scale {got}")


def checked_softcap(function, softcap):
    if softcap is None:
        return None
    softcap = _checks.number(function, "softcap", softcap)
    if not 0 < softcap < math.inf:
        raise ValueError(f"{function}: softcap must be above 0 and finite, got {softcap}")
    return softcap


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
            f"{function}: the axes before the last two of q, k and v must broadcast, except the heads, got shapes {tuple(q)}, "
            f"{tuple(k)} and {tuple(v)}"
        ) from None
    if heads == 1:
        heads = kv_heads
    if heads != kv_heads and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(f"{function}: q must have a multiple of the heads of k, {kv_heads}, got shape {tuple(q)}")
    lead = (*batch, heads) if max(map(len, (q, k, v))) > 2 else ()
    return Shape(batch, heads, kv_heads, q[-2], k[-2], lead)


def _fits(shape, wanted):
    try:
        return _broadcast(shape, wanted) == wanted
    except ValueError:
        return False


def check_mask_type(function, mask, fits, argument="mask"):
    """`fits` says whether it is of bools or of floats."""
    if not fits:
        raise TypeError(
            f"{function}: {argument} must be of bools (True: the key is seen) or of floats (added to the scores), "
            f"got dtype {mask.dtype}"
        )


def mask_shape(function, mask, fits, shape, argument="mask"):
    """The shape (..., m, n) to which a mask broadcasts."""
    check_mask_type(function, mask, fits, argument)
    wanted = (*shape.lead, shape.queries, shape.keys)
    if not _fits(mask.shape, wanted):
        given = tuple(mask.shape)
        of_keys = len(wanted) > 2 and given == (wanted[0], shape.keys)
        where = f"; one of each batch's keys is {argument}[:, {'None, ' * (len(wanted) - 2)}:]" if of_keys else ""
        raise ValueError(f"{function}: {argument} must broadcast to {wanted}, got shape {given}{where}")
    return wanted


def sinks_shape(function, sinks, shape):
    """The shape that sinks get, to broadcast to (..., m, 1): a single axis is that of the heads."""
    own, wanted = tuple(sinks.shape), (*shape.lead, shape.queries, 1)
    if len(own) == 1 and shape.lead:
        if own[0] not in (1, shape.heads):
            raise ValueError(f"{function}: sinks must be one for each of {shape.heads} heads, got shape {own}")
        return (own[0], 1, 1)
    if not _fits(own, wanted):
        raise _checks.misfit(function, "sinks", wanted, "(..., m, 1)", sinks, "one for each head, or a number or an array")
    return own


def counted(function, m, n, causal, mask, fits):
    """(m, n, causal) of keys_seen, once they and the mask, if there is one, are checked."""
    m, n = (_checks.integer(function, name, count) for name, count in (("m", m), ("n", n)))
    for name, count in (("m", m), ("n", n)):
        if count < 0:
            raise ValueError(f"{function}: {name} must be at least 0, got {count}")
    if mask is not None:
        check_mask_type(function, mask, fits)
        lead = tuple(mask.shape[:-2])
        if not _fits(mask.shape, (*lead, m, n)):
            raise ValueError(f"{function}: mask must broadcast to (..., {m}, {n}), got shape {tuple(mask.shape)}")
    return m, n, _checks.flag(function, "causal", causal)
