"""Parameters of operations: those that are numbers, and those that are arrays with one value for each row."""

import jax
import jax.numpy as jnp
import numpy as np

from isentropic import _checks
from isentropic._descriptions import MAPS
from isentropic._maps import map_and_params
from isentropic.jax._call import array, wide


def split(info, given, x, axis):
    """Parameters that are numbers, and those that are arrays, with one value for each row of x, whose `axis` was moved to the
    end."""
    operation, static, rows = info["name"], [], {}
    known = {param["name"]: param for param in info["params"]}
    for name, value in given.items():
        if name not in known:
            has = ", ".join(known)
            raise TypeError(f"{operation}: there is no parameter '{name}'" + (f"; it has {has}" if has else ""))
        traced, of_rows = isinstance(value, jax.core.Tracer), known[name]["per_row"]
        if isinstance(value, np.generic) or not (of_rows or traced or getattr(value, "ndim", 1)):
            value = value.item()
        if not (hasattr(value, "ndim") or traced):
            static.append((name, _value_of(operation, known[name], value)))
            continue
        if not of_rows:
            got = " known outside of jit and grad" if traced else f", got an array of shape {value.shape}"
            raise TypeError(f"{operation}: {name} must be one value{got}")
        value = array(operation, name, value, least=0).astype(wide(x).dtype)
        rows[name] = along_rows(operation, name, value, x, axis)
    names = {name for name, _ in static} | set(rows)
    for name, param in known.items():
        if param["default"] is None and "optional" not in param["kind"] and name not in names:
            raise TypeError(f"{operation}: {name} is required")
    if not rows:
        # Ranges are checked at once, by a call that only checks, and not when the program runs.
        _check(info, static)
    return tuple(sorted(static)), rows


def along_rows(operation, argument, value, x, axis):
    """An array with one value for each row of x, whose `axis` was moved to the end: it broadcasts with size 1 along axis, which
    is moved in it too."""
    lead = x.shape[:-1]
    shape = (*lead[:axis], 1, *lead[axis:])
    try:
        return jnp.moveaxis(jnp.broadcast_to(value, shape), axis, -1)
    except ValueError:
        raise ValueError(f"{operation}: {argument} must broadcast to {shape}, got shape {value.shape}") from None


def _string(operation, argument, value):
    if isinstance(value, str):
        return value
    raise TypeError(f"{operation}: {argument} must be a string, got {type(value).__name__}")


# Parameters that are not numbers, by their kind.
_OF_KIND = {
    "map": lambda operation, argument, value: Frozen(value),
    "bool": _checks.flag,
    "int": lambda *given: min(max(_checks.integer(*given), -(2**63)), 2**63 - 1),
    "name": _string,
}


def _value_of(operation, param, value):
    """A parameter that is not an array, as its kind says. None stands for a default only if that is None."""
    if value is None and param["kind"].startswith("optional"):
        return None
    expected = "a number or an array of numbers" if param["per_row"] else "a number"
    check = _OF_KIND.get(param["kind"], lambda *given: _checks.number(*given, expected))
    return check(operation, param["name"], value)


def with_map(info, given):
    """The parameters, those of a map, given in it or beside it, as part of it."""
    if all(param["kind"] != "map" for param in info["params"]):
        return given
    operation, given = info["name"], dict(given)
    name, values = map_and_params(operation, given.pop("map", "softmax"), given)
    for key, value in values.items():
        if getattr(value, "ndim", 0) or isinstance(value, jax.core.Tracer):
            raise TypeError(f"{operation}: {key} of the map must be one number known outside of jit and grad")
    numbers = {key: value.item() if hasattr(value, "item") else value for key, value in values.items()}
    return {"map": {"name": name, **{key: value for key, value in numbers.items() if value is not None}}}


def known(function, argument, value, more=""):
    """Refuses a number that is traced."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{function}: {argument} must be a number known outside of jit and grad{more}")


class Frozen(dict):
    """A map with its parameters, as part of a key."""

    def __hash__(self):
        return hash(tuple(self.items()))


def _check(info, static):
    if info["name"] in MAPS and "forward" in info:
        values = dict(static)
        ordered = tuple(values.get(param["name"], param["default"]) for param in info["params"])
        empty = np.empty((0, 1), np.float32)
        info["forward"](empty, empty.copy(), -1, ordered)
