"""The public functions, made from the registry as dataclasses make __init__: signature and docstring are its words."""

import math
import textwrap
from typing import NamedTuple

from entropic import _arrays


class Kernels(NamedTuple):
    """An operation's functions in _core, its name for errors, and what has a value for each row."""

    name: str
    forward: object
    vjp: object
    param_vjp: object
    per_row: tuple  # for each parameter its name, or None where all rows have the same value


def build(operations):
    """The public functions by name: NAME and NAME_vjp for each operation that _core.operations() lists."""
    functions = {}
    for description in operations:
        name = description["name"]
        per_row = tuple(param["name"] if param["per_row"] else None for param in description["params"])
        operation = Kernels(name, description["forward"], description["vjp"], description["param_vjp"], per_row)
        params = [declare(param) for param in description["params"]]
        run_vjp, keywords = "_run_vjp", [*params, "axis=-1"]
        if has_per_row(description):
            run_vjp = "(_run_param_vjp if param_grad else _run_vjp)"
            keywords.append("param_grad=False")
        run, last = ("run_reduction", "keepdims") if description["reduces"] else ("run_map", "out")
        default = {"keepdims": "False", "out": "None"}[last]
        for function in (
            define(
                name,
                f"(x, *, {', '.join([*params, 'axis=-1', f'{last}={default}'])})",
                f"_{run}(_operation, x, axis, {last}, {values(name, description)})",
                operation,
                forward_doc(description),
            ),
            define(
                f"{name}_vjp",
                f"(x, y, grad, /, *, {', '.join(keywords)})",
                f"{run_vjp}(_operation, x, y, grad, axis, {values(name + '_vjp', description)})",
                operation,
                vjp_doc(description),
            ),
        ):
            functions[function.__name__] = function
    return functions


def define(name, signature, result, operation, doc, **names):
    """The function `name` of the package, made from source so that its signature is as real as a written one.

    `names` are what the source may use besides.
    """
    namespace = {
        **names,
        "__name__": "entropic",
        "inf": math.inf,
        "_operation": operation,
        "_per_row": _arrays.per_row,
        "_run_map": _arrays.run_map,
        "_run_param_vjp": _arrays.run_param_vjp,
        "_run_reduction": _arrays.run_reduction,
        "_run_vjp": _arrays.run_vjp,
    }
    exec(f"def {name}{signature}:\n    return {result}\n", namespace)
    function = namespace[name]
    function.__doc__ = doc
    return function


def values(function, description):
    """The tuple of the parameters' values, as source. A number goes the short way."""
    return "(" + "".join(f"{value(function, param)}, " for param in description["params"]) + ")"


def value(function, param):
    name = param["name"]
    return f"{name} if type({name}) is float else _per_row({function!r}, {name!r}, {name})" if param["per_row"] else name


def declare(param):
    """The parameter as it stands in a signature."""
    return param["name"] if param["required"] else f"{param['name']}={param['default']!r}"


def kind(param):
    """What a parameter may be, in words."""
    if param["kind"] == "name":
        words = "one of " + ", ".join(f'"{name}"' for name in param["names"])
    elif param["kind"] == "bool":
        words = "bool"
    else:
        words = {"float": "float", "int": "int", "optional float": "float or None"}[param["kind"]]
        if param["per_row"]:
            words = words.replace("float", "float or array")
        words += f", {param['allowed']}"
    return words + (", required" if param["required"] else f", default {param['default']!r}")


def assignments(description):
    """Every parameter with an allowed value, for the example."""
    values = {p["name"]: p["default"] if p["typical"] is None else p["typical"] for p in description["params"]}
    return "".join(f", {name}={value!r}" for name, value in values.items())


def laws(description):
    """What holds exactly, in words."""
    held = description["laws"]
    said = {
        "adding a constant to a row changes nothing": held["shift"],
        "a higher score never gets less": held["order"],
        "of equal scores at a cut the lower index stays": held["ties_by_index"],
        "finite scores may get exactly 0": held["sparse"],
    }
    return "; ".join(law for law, holds in said.items() if holds)


def param_doc(description):
    return "".join(f"{param['name']} : {kind(param)}\n{meaning(param)}" for param in description["params"])


def meaning(param):
    text = f"    {param['meaning']}.\n"
    if param["per_row"]:
        text += "    An array gives each row its own: it broadcasts with x and has size 1 along axis.\n"
    return text


def has_per_row(description):
    return any(param["per_row"] for param in description["params"])


def forward_doc(description):
    name = description["name"]
    if description["reduces"]:
        last = "keepdims : bool, default False\n    Keep the axis, with size 1."
        returns = "Of the kind and dtype of x, in its shape without the axis; a NumPy number where no axis is left."
        value_error = "A parameter is out of its range, or x has no axis."
        special = "A row with NaN gives NaN; -inf scores count as absent; a row without other scores gives -inf."
    else:
        last = (
            "out : array, default None\n"
            "    Where to write: of x's shape and the result's dtype, any strides; may be x itself. It is returned."
        )
        returns = "Of the kind, shape and dtype of x; float64 where x is of integers or bools or a list."
        value_error = "A parameter is out of its range, x has no axis, out is unfit or overlaps x in part."
        special = "A row with NaN gives NaN; -inf scores count as absent; a row without other scores gives NaN."
    if description["family"] == "map":
        special += "\n" + textwrap.fill(f"Laws: {laws(description)}.", 100)
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
    Scores, of any shape with at least one axis; never changed. Integers, bools and lists are read as
    float64; float16 is computed in float32.
{param_doc(description)}axis : int, default -1
    The axis along which scores compete; all others count rows.
{last}

Returns
-------
array
    {returns}

Raises
------
ValueError
    {value_error}
numpy.exceptions.AxisError
    axis is no axis of x.
TypeError
    {TYPE_ERROR}

Notes
-----
{special}
Gradient, J^T g: {description["gradient"]}; computed by {name}_vjp.
Source: {description["source"]}.

Examples
--------
>>> y = entropic.{name}([0.0, 1.0, 2.0]{assignments(description)})
"""


def vjp_doc(description):
    name = description["name"]
    shape = "x's shape without the axis, or with size 1 for it" if description["reduces"] else "x's shape"
    grad = "1.0" if description["reduces"] else "[1.0, 0.0, 0.0]"
    asking = also = ""
    if has_per_row(description):
        names = " and ".join(param["name"] for param in description["params"] if param["per_row"])
        asking = f"param_grad : bool, default False\n    Return also the gradient with respect to {names}.\n"
        also = f"""
array, or a tuple of arrays where several of these parameters are given
    With param_grad=True: the gradient with respect to {names}, of the kind and dtype of dx.
    It is one number per row, in x's shape without the axis (a NumPy number where no axis is left), also where
    rows share a value: the gradient in that is the sum of theirs."""
    return f"""The gradient of <grad, {name}(x)> with respect to x: J^T grad.

    {description["formula"]}
    J^T g = {description["gradient"]}

Parameters
----------
x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
    The scores given to {name}.
y : array
    {name}(x) with the same parameters, in {shape}.
grad : array
    The gradient with respect to y, in {shape}.
    Like y it is read in x's dtype.
{param_doc(description)}axis : int, default -1
    As given to {name}.
{asking}
Returns
-------
array
    Of the kind, shape and dtype of x; float64 where x is of integers or bools or a list.{also}

Raises
------
ValueError
    A parameter is out of its range, x has no axis, y or grad is of another shape.
numpy.exceptions.AxisError
    axis is no axis of x.
TypeError
    {TYPE_ERROR}

Notes
-----
The gradient at a -inf score is 0, and what grad holds there is not read.
Source: {description["source"]}.

Examples
--------
>>> x, grad = [0.0, 1.0, 2.0], {grad}
>>> y = entropic.{name}(x{assignments(description)})
>>> dx = entropic.{name}_vjp(x, y, grad{assignments(description)})
"""


TYPE_ERROR = """\
An array is masked, of complex numbers or no numbers at all, on another device or requires grad; a
    parameter is of the wrong type.\
"""
