"""The losses: one number for each row of scores against a target."""

from source import Argument, Signature, define, stub
from words import argument, assignments, document, per_row, value


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
    return takes_map(description) or bool(per_row(description))


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
    text = document(doc(description), signature(description), description)
    return f"_{name} = _losses.KERNELS[{name!r}]\n\n\n" + define(name, signature(description), body, text)


def stubs(description):
    return stub(description["name"], signature(description), "Any")


TARGET_DOC = {
    "class or distribution": """\
{target} (array of integers or of floating-point numbers): Integers: the right class of each row, in {scores}'s shape without
    axis. Floating-point numbers: a distribution over the classes, in {scores}'s shape.
""",
    "class": "{target} (array of integers): The right class of each row, in {scores}'s shape without axis.\n",
    "labels": "{target} (array of bools, or of 0 and 1): Which classes are labels of the row, in {scores}'s shape.\n",
    "scores": "{target}: The teacher's scores, in {scores}'s shape; no gradient is taken in them.\n",
}
EXAMPLE = {
    "class or distribution": "[0.0, 1.0, 2.0], 2",
    "class": "[0.1, -0.3, 0.8], 2",
    "labels": "[0.5, -1.0, 2.0], [0, 0, 1]",
    "scores": "[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]",
}
IGNORED = "ignore_index (int or None): Rows with this target give 0 and have no gradient, whatever their scores are.\n"


def doc(description):
    name, (scores, target) = description["name"], description["arguments"]
    what = "Cosines of the angles to the classes, from -1 to 1" if scores == "cosines" else "Scores"
    learned = "the parameters of the map" if takes_map(description) else " and ".join(per_row(description))
    params = "params: Parameters of the map.\n" if takes_map(description) else ""
    asking = f"param_grad (bool): Return also the gradient in {learned}.\n" if learned else ""
    also = (
        f" With param_grad=True also the gradient in {learned}: one number per row, or a tuple for several." if learned else ""
    )
    # Values of losses of a map are minus a probability, or only stand for a gradient.
    nats = "" if takes_map(description) else " in nats"
    outside = ", a cosine is above 1.01 in size" if scores == "cosines" else ""
    nothing = (
        "A row with NaN gives NaN." if description["target"] == "labels" else "A row with NaN, or with only -inf, gives NaN."
    )
    return f"""
{scores}: {what}, of any shape with at least one axis. -inf: the class counts as absent. Never changed.
{TARGET_DOC[description["target"]].format(scores=scores, target=target)}{IGNORED if takes_classes(description) else ""}{params}\
axis: The axis of the classes; all others count rows.
return_grad (bool): Return also the gradient in {scores}.
{asking}Returns (array, or a tuple of arrays): One number for each row{nats}, of the kind and dtype of {scores} (float32 for
    float16), in its shape without the axis (a NumPy number if no axis is left). With return_grad=True also the gradient in
    {scores}, of its shape.{also}
Raises: A parameter is out of its range, shapes do not fit, {target} is not valid{outside}; the message names row and entry.
Notes: {nothing} If the score of the target is -inf, a loss without a bound is inf.

    Gradient: {description["gradient"]}.
>>> value, grad = isentropic.{name}({EXAMPLE[description["target"]]}{assignments(description)}, return_grad=True)
"""
