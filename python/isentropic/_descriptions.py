"""The library's operations as _core describes them: by name, and what doors ask of a description."""

import inspect

import isentropic._core as _core
from isentropic import _documents

# Descriptions by name. MAPS also has log_softmax, logsumexp and soft_top_k, whose results are not distributions.
MAPS = {one["name"]: one for one in _core.operations()}
LOSSES = {one["name"]: one for one in _core.losses()}
SPARSE_LOSSES = {one["name"]: one for one in _core.sparse_losses()}
MEASURES = {one["name"]: one for one in _core.measure_operations()}
CONTROL = {one["name"]: one for one in _core.control_operations()}

# Those that are functions written by hand.
WRITTEN = {
    one["name"]: one
    for operations in (
        _core.count_operations(),
        _core.sparse_losses(),
        _core.sampling_operations(),
        _core.transport_operations(),
        _core.table_maps(),
        _core.calibration_operations(),
        _core.attention_operations(),
    )
    for one in operations
} | CONTROL

# Measures of a table that are a measure of its entries as one row.
OF_ONE_ROW = {"joint_entropy": "entropy"}
# Measures that are asked for with classes in place of a distribution, and the loss that takes classes.
OF_CLASSES = {"cross_entropy": "softmax_loss"}

# The names of the statuses of the search for gamma, by number.
STATUSES = list(_core.gamma_status_names)


def names_per_row(description):
    """For each parameter its name, or None if all rows have the same value."""
    return tuple(param["name"] if param["per_row"] else None for param in description["params"])


def per_row(description):
    """The names of the parameters that may have a number for each row."""
    return [param["name"] for param in description["params"] if param["per_row"]]


def several(description):
    """The name of the number of a measure of rows for which an array gives several results, in one more last axis.
    None if there is no such number, or it is one for each row."""
    if description["family"] != "measure":
        return None
    return next((param["name"] for param in description["params"] if param["kind"] == "float" and not param["per_row"]), None)


def inputs_of_two(description, given):
    """(the kind of input in which p and q are compared, their kinds if these differ, otherwise None)."""
    if description["family"] != "divergence" or not isinstance(given, (tuple, list)):
        return given, None
    kinds = next(param["names"] for param in description["params"] if param["name"] == "input")
    if len(given) != 2 or any(one not in kinds for one in given):
        name = description["name"]
        raise ValueError(f"{name}: input must be one of {', '.join(kinds)}, or a pair of them, for p and q, got {given!r}")
    return (given[0], None) if given[0] == given[1] else ("log_probs", tuple(given))


def no_distribution(name, argument, got):
    """The error of classes in place of a distribution."""
    return TypeError(f"{name}: {argument} must be a distribution, got {got}; that of classes is {OF_CLASSES[name]}")


def said_of_pair(pair, error):
    """The error of a call by logarithms in words for these kinds."""
    text = str(error)
    for argument, holds in zip("pq", pair, strict=True):
        text = text.replace(f"exp of {argument} ", f"{argument} ") if holds == "probs" else text
    return ValueError(text)


def rows(description):
    """The parameters per row as tensor arguments of an operator: each is a float64 tensor of x's shape with 1 for dim, or
    None."""
    return [f"{name}_rows?" for name in per_row(description)]


def named(description, rows, values):
    """The parameters' values by name: rows if given, otherwise numbers."""
    found = dict(zip((param["name"] for param in description["params"]), values, strict=False))
    found.update({name: row for name, row in zip(per_row(description), rows, strict=True) if row is not None})
    return found


def still(description, values):
    """The parameters without a gradient at these values, in their order: a margin of kind sphere is a whole number."""
    choices = {value for value in values if isinstance(value, str)}
    return [param["name"] for param in description["params"] if param["still_with"] in choices]


def takes_map(description):
    """Whether a parameter is itself a map."""
    return any(param["kind"] == "map" for param in description["params"])


def takes_classes(description):
    """Whether the target of a loss may be classes."""
    return description.get("target", "").startswith("class")


def map_params(name, names, values, row_names, rows):
    """The parameters of a map by name, from the numbers that are given with their names and from the columns of an array of one
    row of numbers for each row of scores; those have size 1 for the last axis."""
    numbers, params = dict(zip(names, values, strict=True)), {}
    for param in MAPS[name]["params"]:
        number, kind = numbers.get(param["name"]), param["kind"]
        if number is not None and kind not in ("float", "optional float"):
            number = param["names"][int(number)] if kind == "name" else {"int": int, "bool": bool}[kind](number)
        params[param["name"]] = number
    for k, param in enumerate(row_names):
        params[param] = rows[..., k : k + 1]
    return params


_TEXTS: dict[str, str] = {}  # docstrings as in the source, of functions of arrays


def documented(one=None, *, module=None):
    """Makes a function or class public: it is found in `module`, and a function's docstring is completed."""
    if one is None:
        return lambda one: documented(one, module=module)
    door = one.__module__.split(".")[1].replace("compat", "torch")
    of_arrays = door.startswith("_")
    one.__module__ = module or ("isentropic" if of_arrays else f"isentropic.{door}")
    if inspect.isfunction(one):
        name, text = one.__qualname__, one.__doc__
        base = "" if of_arrays else _TEXTS.get(name, "")
        if of_arrays:
            _TEXTS[name] = text
        taken = _documents.parameters(inspect.signature(one).parameters.values())
        one.__doc__ = _documents.completed(text, taken, WRITTEN.get(name), base, door)
    return one
