"""The library's operations, as _core describes them. Only this file asks _core."""

from torch import Tensor

from isentropic import _core

# Descriptions by name. MAPS also has log_softmax and logsumexp, which are not distributions.
MAPS = {one["name"]: one for one in _core.operations()}
LOSSES = {one["name"]: one for one in _core.losses()}
MEASURES = {one["name"]: one for one in _core.measure_operations()}
CONTROL = {one["name"]: one for one in _core.control_operations()}

# The names of the statuses of the search for gamma, by number.
STATUSES = list(_core.gamma_status_names)

# The types of torch's schemas for the kinds of parameters.
_SCHEMA = {"float": "float", "optional float": "float?", "int": "int", "name": "str", "bool": "bool"}


def params(description):
    """The parameters' names with their types in torch's schemas."""
    return {param["name"]: _SCHEMA[param["kind"]] for param in description["params"]}


def per_row(description):
    """The names of the parameters that may have a number for each row."""
    return [param["name"] for param in description["params"] if param["per_row"]]


def rows(description):
    """The parameters per row as tensor arguments of an operator: each is a float64 tensor of x's shape with 1 for dim, or
    None."""
    return [f"{name}_rows?" for name in per_row(description)]


def named(description, rows, values):
    """The parameters' values by name: rows if given, otherwise numbers."""
    found = dict(zip((param["name"] for param in description["params"]), values, strict=False))
    found.update({name: row for name, row in zip(per_row(description), rows, strict=True) if row is not None})
    return found


def takes_map(description):
    """Whether a parameter is itself a map."""
    return any(param["kind"] == "map" for param in description["params"])


# A map as an argument of an operator: its name, the numbers that are given with their names, and the names of those given per
# row, whose values are the columns of one tensor.
MAP_SCHEMA = {"map": "str", "names": "str[]", "values": "float[]", "row_names": "str[]"}


def map_arguments(name, params):
    """The arguments of MAP_SCHEMA for these parameters; tensors are per row."""
    numbers = {}
    for param in MAPS[name]["params"]:
        value = params[param["name"]]
        if value is not None and not isinstance(value, Tensor):
            numbers[param["name"]] = float(param["names"].index(value) if param["kind"] == "name" else value)
    rows = [param for param in per_row(MAPS[name]) if isinstance(params[param], Tensor)]
    return name, list(numbers), list(numbers.values()), rows


def map_params(name, names, values, row_names, rows):
    """The parameters by name again, those per row with size 1 for the last axis."""
    numbers, params = dict(zip(names, values, strict=True)), {}
    for param in MAPS[name]["params"]:
        number, kind = numbers.get(param["name"]), param["kind"]
        if number is not None and kind not in ("float", "optional float"):
            number = param["names"][int(number)] if kind == "name" else {"int": int, "bool": bool}[kind](number)
        params[param["name"]] = number
    for k, param in enumerate(row_names):
        params[param] = rows[..., k : k + 1]
    return params
