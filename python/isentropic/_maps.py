"""The maps for other functions: their kernels, and a map as an argument: its name, (name, {parameter: value}), or its name with
further parameters."""

from dataclasses import dataclass

from isentropic import _descriptions
from isentropic._descriptions import names_per_row


@dataclass(frozen=True, slots=True)  # faster to read than a named tuple
class Kernels:
    """The functions in _core of a map or a logarithm, its name for errors, and its parameters per row."""

    name: str
    forward: object
    vjp: object
    param_vjp: object
    per_row: tuple  # for each parameter its name, or None if all rows have the same value


def _kernels(description):
    return Kernels(*(description[key] for key in ("name", "forward", "vjp", "param_vjp")), names_per_row(description))


KERNELS = {name: _kernels(one) for name, one in _descriptions.MAPS.items()}

MAPS = {name: one for name, one in _descriptions.MAPS.items() if one["family"] == "map"}


def map_and_params(function, given, params):
    """(name, its parameters by name in their order): the given value, otherwise the default."""
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[1], dict):
        given, within = given
        twice = [param for param in within if param in params]
        if twice:
            raise TypeError(f"{function}: parameter {twice[0]!r} of the map is given twice, in map and beside it")
        params = {**params, **within}
    if not isinstance(given, str):
        raise TypeError(f"{function}: map must be a name or (name, {{parameter: value}}), got {type(given).__name__}")
    if given not in MAPS:
        raise ValueError(f"{function}: map must be one of {', '.join(MAPS)}, got {given!r}")
    values = {}
    for param in MAPS[given]["params"]:
        name = param["name"]
        if param["required"] and name not in params:
            raise TypeError(f"{function}: map {given!r} needs the parameter {name!r}: map=({given!r}, {{{name!r}: ...}})")
        values[name] = params.get(name, param["default"])
    unknown = [param for param in params if param not in values]
    if unknown:
        raise TypeError(f"{function}: map {given!r} has no parameter {unknown[0]!r}, nor has {function}")
    return given, values
