"""The losses on tensors: their functions, and modules with a function's parameters and the options of all modules."""

import losses
from losses import takes_classes, takes_map
from source import Argument, Signature, define, stub
from tensors import DIM, DTYPE, DTYPE_DOC, argument, class_name, learned, module, module_stub
from words import assignments, document, per_row

REDUCTION = [Argument("reduction", "'mean'", "str"), Argument("dim", "-1", "int"), DTYPE]
WEIGHT = Argument("weight", "None", "Tensor | None")
IGNORE = Argument("ignore_index", "-100", "int")
Z_LOSS = Argument("z_loss", "0.0", "float")


def has_module(description):
    return not takes_map(description) and description["target"] != "class"


def signature(description):
    scores, target = description["arguments"]
    given = list(map(argument, description["params"]))
    given += [Argument("ignore_index", "-100", "int | None")] if takes_classes(description) else []
    rest = Argument("params", type="Any") if takes_map(description) else None
    return Signature([Argument(scores, type="Tensor"), Argument(target, type="Tensor")], [*given, *DIM, DTYPE], rest)


def init_signature(description):
    params = list(map(argument, description["params"]))
    if takes_classes(description):
        return Signature([WEIGHT], [*params, IGNORE, *REDUCTION, Z_LOSS])
    return Signature([], [*params, *([IGNORE] if description["target"] == "scores" else []), *REDUCTION])


def base(description):
    return "_TeacherLoss" if description["target"] == "scores" else "_Loss"


def function(description):
    name = description["name"]
    body = f"return _call_loss({name!r}, {losses.handed(description, lambda _, param: param['name'])}, dim, axis, dtype)"
    text = document(doc(description), signature(description), description, losses.doc(description), door="torch")
    return define(name, signature(description), body, text)


def of_module(description):
    name = description["name"]
    values = ", ".join(f"{param['name']!r}: {param['name']}" for param in description["params"])
    scores = description["target"] == "scores"
    common = "weight, ignore_index" if takes_classes(description) else "None, ignore_index" if scores else "None, None"
    body = f"super().__init__({{{values}}}, {common}, reduction, dim, dtype{', z_loss' * takes_classes(description)})"
    members = ["_takes_classes = False", "_usual_index = None"] if description["target"] == "labels" else []
    init = init_signature(description)
    text = document(module_doc(description), init, description, door="torch")
    return module(class_name(name), base(description), text, init, body, name, members)


def stubs(description):
    text = stub(description["name"], signature(description), "Tensor")
    if has_module(description):
        attributes = list(map(argument, description["params"]))
        text += "\n" + module_stub(class_name(description["name"]), base(description), attributes, init_signature(description))
    return text


EXAMPLE = {
    "class or distribution": "torch.randn(4, 6), torch.tensor([0, 5, 2, 2])",
    "class": "torch.rand(4, 6), torch.tensor([0, 5, 2, 2])",
    "labels": "torch.randn(2, 3), torch.tensor([[0, 1, 1], [1, 0, 0]])",
    "scores": "torch.randn(4, 6), torch.randn(4, 6)",
}


def doc(description):
    name, (scores, target) = description["name"], description["arguments"]
    moving = "".join(f", {param}" for param in per_row(description))
    return f"""
{DTYPE_DOC}Returns: One number for each row, in {scores}'s shape without dim. Differentiable, twice, in {scores}{moving}.
Raises: {target} must not require grad.
Notes: See isentropic.{name} for the rules on NaN and infinities.

    Gradient: {description["gradient"]}.
>>> value = isentropic.torch.{name}({EXAMPLE[description["target"]]}{assignments(description)})
"""


COMMON = f"""\
reduction (str): "mean" over the rows, "sum" or "none".
dim: The axis of the classes.
{DTYPE_DOC}"""
OF_CLASSES = """\
weight (torch.Tensor or None): One factor for each class, which multiplies the loss of the rows with this class; the mean
    divides by the sum of these factors. Targets must be classes; SoftmaxLoss also takes distributions, and multiplies each
    term, including those of smoothing, by the factor of its class, as torch does.
ignore_index: Rows with this target give 0 and no gradient, and do not count in the mean.
z_loss (float, at least 0): Adds z_loss times the square of the logsumexp of a row's scores, which keeps the scores from
    growing.
"""


OF_TEACHER = """\
ignore_index: The module also takes labels, of shape x.shape without dim: rows whose label is this give 0 and no gradient, and
    do not count in the mean.
"""


def module_doc(description):
    return f"""
The module of isentropic.torch.{description["name"]}. Call it with (x, target) or (x, target, sample_weight). sample_weight is a
factor for the loss of each row, and the mean divides by the sum of these factors.
{learned(description)}
{OF_CLASSES if takes_classes(description) else ""}{OF_TEACHER if description["target"] == "scores" else ""}{COMMON}"""
