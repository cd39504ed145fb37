"""The public functions, made from the registry as dataclasses make __init__: signature and docstring are its words."""

import math
from typing import NamedTuple

from entropic import _arrays

ARRAY = "NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists"


class Operation(NamedTuple):
    """What _arrays needs of an operation: its name, for errors, and _core's two functions."""

    name: str
    forward: object
    vjp: object


def build(operations):
    """The public functions by name: NAME and NAME_vjp for each operation that _core.operations() lists."""
    functions = {}
    for description in operations:
        name = description["name"]
        params = description["params"]
        values = "(" + "".join(param["name"] + ", " for param in params) + ")"
        if description["reduces"]:
            tail, run = ["axis=-1", "keepdims=False"], f"_run_reduction(_operation, x, axis, keepdims, {values})"
        else:
            tail, run = ["axis=-1", "out=None"], f"_run_map(_operation, x, axis, out, {values})"
        keywords = [declare(param) for param in params]
        heads = {
            name: (f"(x, *, {', '.join(keywords + tail)})", run, forward_doc(description)),
            f"{name}_vjp": (
                f"(x, y, grad, /, *, {', '.join([*keywords, 'axis=-1'])})",
                f"_run_vjp(_operation, x, y, grad, axis, {values})",
                vjp_doc(description),
            ),
        }
        for function, (signature, body, doc) in heads.items():
            namespace = {
                "__name__": "entropic",
                "inf": math.inf,
                "_operation": Operation(name, description["forward"], description["vjp"]),
                "_run_map": _arrays.run_map,
                "_run_reduction": _arrays.run_reduction,
                "_run_vjp": _arrays.run_vjp,
            }
            exec(f"def {function}{signature}:\n    return {body}\n", namespace)
            namespace[function].__doc__ = doc
            functions[function] = namespace[function]
    return functions


def declare(param):
    """The parameter as it stands in a signature."""
    return param["name"] if param["required"] else f"{param['name']}={param['default']!r}"


def kind(param):
    """What a parameter may be, in words."""
    if param["kind"] == "name":
        words = "one of " + ", ".join(f'"{name}"' for name in param["names"])
    else:
        words = {"float": "float", "int": "int", "optional float": "float or None"}[param["kind"]]
        if param["above"] is not None:
            words += f", above {param['above']}"
        if param["up_to"] is not None:
            words += f", at most {param['up_to']}"
        elif param["kind"] != "int":
            words += ", finite"
    return words + (", required" if param["required"] else f", default {param['default']!r}")


def param_lines(description):
    return [f"{param['name']} : {kind(param)}\n    {param['meaning']}." for param in description["params"]]


def example_value(param):
    """Some allowed value, for the example."""
    if not param["required"]:
        return param["default"]
    low = 0 if param["above"] is None else param["above"]
    middle = low + 1 if param["up_to"] is None else (low + param["up_to"]) / 2
    return int(middle) + 1 if param["kind"] == "int" else float(middle)


def example(description, arguments):
    return ", ".join([arguments, *(f"{param['name']}={example_value(param)!r}" for param in description["params"])])


def laws(description):
    """What holds exactly, in words."""
    held = description["laws"]
    said = [
        "adding a constant to a row changes nothing" if held["shift"] else "",
        "a higher score never gets less" if held["order"] else "",
        "of equal scores at a cut the lower index stays" if held["ties_by_index"] else "",
        "finite scores may get exactly 0" if held["sparse"] else "",
    ]
    return "; ".join(law for law in said if law)


def sections(description, lead, parameters, returns, raises, notes, line):
    blocks = [
        f"{lead}\n\n    {description['formula']}",
        "Parameters\n----------\n" + "\n".join(parameters),
        "Returns\n-------\n" + returns,
        "Raises\n------\n" + "\n".join(raises),
        "Notes\n-----\n" + "\n\n".join(note for note in notes if note),
        "Examples\n--------\n" + line,
    ]
    return "\n\n".join(blocks) + "\n"


RAISES_TYPE = ("TypeError\n    A masked array, a tensor that requires grad or is not in host memory, a dtype that is no real number, "
               "a parameter of the wrong type.")


def forward_doc(description):
    name = description["name"]
    reduces = description["reduces"]
    parameters = [
        f"x : {ARRAY}\n    Scores, of any shape with at least one axis. Integers, bools and lists are read as float64; float16 is\n"
        "    computed in float32. Never changed.",
        *param_lines(description),
        "axis : int, default -1\n    The axis along which scores compete; every other axis counts rows.",
    ]
    if reduces:
        parameters.append("keepdims : bool, default False\n    Keep the axis, with size 1.")
        returns = "array\n    Of the kind and dtype of x, in its shape without the axis; a NumPy number where no axis is left."
    else:
        parameters.append("out : array, default None\n    Where to write: x's shape, the result's dtype, any strides; may be x itself. Returned.")
        returns = "array\n    Of the kind, shape and dtype of x (float64 where x is of integers or a list)."
    notes = [
        "A row with NaN gives NaN; -inf scores count as absent; cols = 0 or rows = 0 gives an empty result."
        if not reduces
        else "A row with NaN gives NaN; -inf scores count as absent; a row without finite scores gives -inf.",
        f"Laws: {laws(description)}." if description["family"] == "map" else "",
        f"Gradient, J^T g: {description['gradient']}; see {name}_vjp.",
        f"Source: {description['source']}.",
    ]
    raises = [
        "ValueError\n    A parameter out of its range, x without an axis"
        + ("." if reduces else ", out of another shape or dtype or overlapping x in part."),
        "numpy.exceptions.AxisError\n    axis is not an axis of x.",
        RAISES_TYPE,
    ]
    line = f">>> y = entropic.{name}({example(description, '[0.0, 1.0, 2.0]')})"
    return sections(description, description["summary"], parameters, returns, raises, notes, line)


def vjp_doc(description):
    name = description["name"]
    shape = "x's shape without the axis, or with size 1 for it" if description["reduces"] else "x's shape"
    parameters = [
        f"x : {ARRAY}\n    The scores given to {name}.",
        f"y : array\n    {name}(x) with the same parameters; {shape}.",
        f"grad : array\n    The gradient with respect to y; {shape}. y and grad are read in x's dtype.",
        *param_lines(description),
        f"axis : int, default -1\n    As given to {name}.",
    ]
    notes = [f"J^T g = {description['gradient']}", "The gradient at a -inf score is 0.", f"Source: {description['source']}."]
    raises = [
        "ValueError\n    A parameter out of its range, y or grad of another shape.",
        "numpy.exceptions.AxisError\n    axis is not an axis of x.",
        RAISES_TYPE,
    ]
    arguments = "x, y, grad"
    line = (f">>> x, grad = [0.0, 1.0, 2.0], {'1.0' if description['reduces'] else '[1.0, 0.0, 0.0]'}\n"
            f">>> y = entropic.{name}({example(description, 'x')})\n"
            f">>> dx = entropic.{name}_vjp({example(description, arguments)})")
    lead = f"The gradient of <grad, {name}(x)> with respect to x: J^T grad."
    return sections(description, lead, parameters, "array\n    Of the kind, shape and dtype of x.", raises, notes, line)
