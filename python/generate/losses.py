"""The losses: one number for each row of scores against a target."""

from source import Argument, Signature, define, stub
from words import TYPE_ERROR, argument, assignments, has_per_row, param_doc, value


def takes_classes(description):
    return description["target"].startswith("class")


def takes_map(description):
    return any(param["kind"] == "map" for param in description["params"])


def keywords(description):
    """The parameters, a map's own last."""
    given = list(map(argument, description["params"]))
    given += [Argument("ignore_index", "None", "SupportsIndex | None")] if takes_classes(description) else []
    return given, Argument("params", type="Any") if takes_map(description) else None


def has_param_grad(description):
    return takes_map(description) or has_per_row(description)


def handed(description, value=value):
    """The arguments of a loss in the inner call; ``value(function, parameter)`` is the source of a parameter's value."""
    name = description["name"]
    params = "".join(
        f"{f'_map_and_params({name!r}, map, params)' if param['kind'] == 'map' else value(name, param)}, "
        for param in description["params"]
    )
    ignored = f"_index_or_none({name!r}, ignore_index)" if takes_classes(description) else "None"
    scores, target = description["arguments"]
    return f"{scores}, {target}, ({params}), {ignored}"


def signature(description):
    scores, target = description["arguments"]
    given, rest = keywords(description)
    given += [Argument("axis", "-1", "SupportsIndex"), Argument("return_grad", "False", "bool")]
    given += [Argument("param_grad", "False", "bool")] if has_param_grad(description) else []
    return Signature([Argument(scores, type="_DLPack | _Lists"), Argument(target, type="Any")], given, rest)


def function(description):
    name = description["name"]
    param_grad = "param_grad" if has_param_grad(description) else "False"
    body = f"return _losses.run(_{name}, {handed(description)}, axis, return_grad, {param_grad})"
    return f"_{name} = _losses.KERNELS[{name!r}]\n\n\n" + define(name, signature(description), body, doc(description))


def stubs(description):
    return stub(description["name"], signature(description), "Any")


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
    """The beginning, up to the parameters, that the docstrings here and in isentropic.torch share. `arrays` names the kind of
    x."""
    scores, target = description["arguments"]
    what = "Cosines of the angles to the classes, from -1 to 1" if scores == "cosines" else "Scores"
    text = f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
{scores} : {arrays}
    {what}, of any shape with at least one axis. -inf: the class counts as absent. Never changed.
{TARGET_DOC[description["target"]].format(scores=scores, target=target)}{param_doc(description)}"""
    if takes_classes(description):
        text += """ignore_index : int or None, default None
    Rows with this target give 0 and have no gradient, whatever their scores are.
"""
    return text


def doc(description):
    name = description["name"]
    per_row = has_param_grad(description)
    scores, target = description["arguments"]
    example = {
        "class or distribution": "[0.0, 1.0, 2.0], 2",
        "class": "[0.1, -0.3, 0.8], 2",
        "labels": "[0.5, -1.0, 2.0], [0, 0, 1]",
        "scores": "[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]",
    }[description["target"]]
    asking = also = ""
    if per_row:
        learned = " and ".join(param["name"] for param in description["params"] if param["per_row"])
        learned = "the parameters of the map" if takes_map(description) else learned
        asking = f"param_grad : bool, default False\n    Return also the gradient in {learned}.\n"
        also = f"\n    With param_grad=True also the gradient in {learned}: one number per row, for several a tuple."
    # Values of losses of a map are minus a probability, or only stand for a gradient.
    nats = "" if takes_map(description) else " in nats"
    nothing = "A row with NaN, or with only -inf, gives NaN."
    if description["target"] == "labels":
        nothing = "A row with NaN gives NaN."
    head = common_doc(description, "NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists")
    return f"""{head}axis : int, default -1
    The axis of the classes; all others count rows.
return_grad : bool, default False
    Return also the gradient in {scores}.
{asking}
Returns
-------
array, or a tuple of arrays
    One number for each row{nats}, of the kind and dtype of {scores} (float32 for float16), in its shape without the axis (a
    NumPy number if no axis is left). With return_grad=True also the gradient in {scores}, of its shape.{also}

Raises
------
ValueError
    A parameter is out of its range, shapes do not fit, {target} is not valid; the message names row and entry.
numpy.exceptions.AxisError
    axis is no axis of {scores}.
TypeError
    {TYPE_ERROR}

Notes
-----
{nothing} If the score of the target is -inf, a loss without a bound is inf.
Gradient: {description["gradient"]}.
Source: {description["source"]}.

Examples
--------
>>> value, grad = isentropic.{name}({example}{assignments(description)}, return_grad=True)
"""
