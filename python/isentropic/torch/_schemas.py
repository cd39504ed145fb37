"""Descriptions of operations as arguments of torch's operators."""

from torch import Tensor

from isentropic._descriptions import MAPS, per_row

# The types of torch's schemas for the kinds of parameters.
_SCHEMA = {"float": "float", "optional float": "float?", "int": "int", "name": "str", "bool": "bool"}


def params(description):
    """The parameters' names with their types in torch's schemas."""
    return {param["name"]: _SCHEMA[param["kind"]] for param in description["params"]}


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
