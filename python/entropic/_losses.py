"""Losses: one number for each row of scores against a target, and its gradient."""

import numpy as np

from entropic import _arrays, _core, _dask, _functions
from entropic._maps import MAPS


def run(description, x, target, params, named_map, ignore_index, axis, return_grad, param_grad):
    name = description["name"]
    scores, against = description["arguments"]
    if _dask.is_lazy(x):
        if param_grad or any(np.ndim(value) > 0 for value in params.values()):
            raise TypeError(f"{name}: a Dask array takes one value of each parameter and gives no gradient in it")

        def of_blocks(x, target, _):
            return run(description, x, target, params, named_map, ignore_index, -1, return_grad, False)

        arrays = [(x, True), (target, np.ndim(target) == x.ndim)]
        return _dask.along(of_blocks, arrays, [False, True] if return_grad else [False], axis)
    rows = _arrays.Rows(name, scores, x, axis, halves=True)
    prepared = _prepared_target(name, against, description["target"], target, rows)
    learned = {param["name"]: params[param["name"]] for param in description["params"] if param["per_row"]}
    if named_map is not None:
        learned = {param["name"]: named_map[1][param["name"]] for param in MAPS[named_map[0]]["params"] if param["per_row"]}
        named_map = named_map[0], tuple(rows.per_row(param, value) for param, value in named_map[1].items())
    value = np.empty(len(rows.values))
    dx = np.empty_like(rows.values) if return_grad else None
    asked = [(param, np.empty(len(rows.values))) for param, given in learned.items() if param_grad and given is not None]
    values = tuple(
        rows.per_row(param["name"], params[param["name"]]) if param["per_row"] else params[param["name"]]
        for param in description["params"]
    )
    _core.loss(
        name,
        rows.values,
        prepared,
        value,
        dx,
        values,
        named_map,
        ignore_index,
        asked,
    )
    results = [rows.numbers(value)]
    results += [rows.back(dx)] if return_grad else []
    if param_grad:
        slopes = tuple(rows.numbers(slope) for _, slope in asked)
        results.append(slopes[0] if len(slopes) == 1 else slopes)
    return results[0] if len(results) == 1 else tuple(results)


def _prepared_target(name, argument, kind, target, rows):
    """One int64 for each row, or rows of x's dtype."""
    array = _arrays._to_numpy(name, argument, target)
    if kind in ("labels", "scores"):
        return rows.alike(argument, array)
    if array.dtype.kind in "iu":
        if array.shape != rows.lead:
            also = "; a distribution is of floating-point numbers" if array.shape == rows.shape else ""
            raise ValueError(
                f"{name}: {argument} must have one class for each row, of shape {rows.lead}, got integers of shape "
                f"{array.shape}{also}"
            )
        if array.dtype == np.uint64:
            array = np.minimum(array, np.uint64(2**63 - 1))
        return np.ascontiguousarray(array, np.int64).reshape(-1)
    if kind == "class" or array.dtype.kind != "f":
        wanted = "integers, one class for each row" + ("" if kind == "class" else ", or floating-point numbers, a distribution")
        raise TypeError(f"{name}: {argument} must be {wanted}, got dtype {array.dtype}")
    if array.shape == rows.lead:
        raise ValueError(
            f"{name}: {argument} must have one probability for each entry, of shape {rows.shape}, got shape {array.shape}; "
            f"classes are integers: pass {argument}.astype(int)"
        )
    return rows.alike(argument, array)


def index_or_none(name, ignore_index):
    if ignore_index is None:
        return None
    return min(max(_arrays.integer(name, "ignore_index", ignore_index, "an integer or None"), -(2**63)), 2**63 - 1)


def takes_classes(description):
    return description["target"].startswith("class")


def signature(description, further=""):
    """(as it stands in def, how params, map and ignore_index are handed on), `further` behind the parameters."""
    name = description["name"]
    keywords = [_functions.declare(param) for param in description["params"]]
    keywords += ['map="softmax"'] if description["has_map"] else []
    keywords += ["ignore_index=None"] if takes_classes(description) else []
    keywords += [part for part in [further] if part]
    keywords += ["**params"] if description["has_map"] else []
    params = ", ".join(f"{param['name']!r}: {param['name']}" for param in description["params"])
    named_map = f"map_and_params({name!r}, map, params)" if description["has_map"] else "None"
    ignored = f"_index_or_none({name!r}, ignore_index)" if takes_classes(description) else "None"
    scores, target = description["arguments"]
    return f"({scores}, {target}, *, {', '.join(keywords)})", (f"{scores}, {target}, {{{params}}}, {named_map}, {ignored}")


TARGET_DOC = {
    "class or distribution": """\
{target} : array of integers or of floating-point numbers
    Integers: the right class of each row, in {scores}'s shape without axis. Floating-point numbers: a distribution over the
    classes, in {scores}'s shape.
""",
    "class": "{target} : array of integers\n    The right class of each row, in {scores}'s shape without axis.\n",
    "labels": "{target} : array of bools, or of 0 and 1\n    Which classes are labels of the row, in {scores}'s shape.\n",
    "scores": "{target} : array\n    The teacher's scores, in {scores}'s shape; no gradient is taken in them.\n",
}


def common_doc(description, arrays):
    """What the docstrings here and in entropic.torch share: up to the parameters. `arrays` names the kind of x."""
    scores, target = description["arguments"]
    what = "Cosines of the angles to the classes, from -1 to 1" if scores == "cosines" else "Scores"
    text = f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
{scores} : {arrays}
    {what}, of any shape with at least one axis; a class of -inf counts as absent. Never changed.
{TARGET_DOC[description["target"]].format(scores=scores, target=target)}{_functions.param_doc(description)}"""
    if description["has_map"]:
        text += """map : str, or (str, dict), default "softmax"
    The map by its name, its parameters as further keywords or in the dict.
"""
    if takes_classes(description):
        text += """ignore_index : int or None, default None
    Rows of this class give 0 and have no gradient, whatever they hold.
"""
    return text


def _doc(description):
    name = description["name"]
    per_row = _functions.has_per_row(description)
    scores, target = description["arguments"]
    example = {
        "class or distribution": "[0.0, 1.0, 2.0], 2",
        "class": "[0.1, -0.3, 0.8], 2",
        "labels": "[0.5, -1.0, 2.0], [0, 0, 1]",
        "scores": "[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]",
    }[description["target"]]
    asking = also = ""
    if per_row:
        param = description["params"][0]["name"]
        asking = f"param_grad : bool, default False\n    Return also the gradient in {param}.\n"
        also = f" and, with param_grad=True, that in {param}"
    # Those of a map are minus a probability, or stand for a gradient alone.
    nats = "" if description["has_map"] else " in nats"
    head = common_doc(description, "NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists")
    return f"""{head}axis : int, default -1
    The axis of the classes; all others count rows.
return_grad : bool, default False
    Return also the gradient in {scores}.
{asking}
Returns
-------
array, or a tuple of arrays
    One number for each row{nats}, of the kind and dtype of {scores}, in its shape without the axis (a NumPy number where no
    axis is left). With return_grad=True also the gradient, in {scores}'s shape{also}.

Raises
------
ValueError
    A parameter is out of its range, shapes do not fit, {target} is not valid; the message names row and entry.
numpy.exceptions.AxisError
    axis is no axis of {scores}.
TypeError
    {_functions.TYPE_ERROR}

Notes
-----
A row with NaN, or of -inf alone, gives NaN; a target of -inf gives inf where the loss is not bounded.
Gradient: {description["gradient"]}.
Source: {description["source"]}.

Examples
--------
>>> value, grad = entropic.{name}({example}{_functions.assignments(description)}, return_grad=True)
"""


_index_or_none = index_or_none
DESCRIPTIONS = {description["name"]: description for description in _core.losses()}
