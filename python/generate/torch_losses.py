"""The losses on tensors: their functions, and modules with a function's parameters and the options of all modules."""

import losses
from losses import takes_classes, takes_map
from source import Argument, Signature, define, stub
from tensors import DIM, DTYPE, DTYPE_DOC, argument, class_name, learned, module, module_stub, of_tensors, param_doc
from words import assignments

REDUCTION = [Argument("reduction", "'mean'", "str"), Argument("dim", "-1", "int"), DTYPE]
WEIGHT = Argument("weight", "None", "Tensor | None")
IGNORE = Argument("ignore_index", "-100", "int")
Z_LOSS = Argument("z_loss", "0.0", "float")


def has_module(description):
    return not takes_map(description) and description["target"] != "class"


def signature(description):
    scores, target = description["arguments"]
    given = list(map(argument, description["params"]))
    given += [Argument("ignore_index", "None", "int | None")] if takes_classes(description) else []
    rest = Argument("params", type="Any") if takes_map(description) else None
    return Signature([Argument(scores, type="Tensor"), Argument(target, type="Tensor")], [*given, *DIM, DTYPE], rest)


def init_signature(description):
    params = list(map(argument, description["params"]))
    if takes_classes(description):
        return Signature([WEIGHT], [*params, IGNORE, *REDUCTION, Z_LOSS])
    return Signature([], [*params, *REDUCTION])


def function(description):
    name = description["name"]
    body = f"return _call_loss({name!r}, {losses.handed(description, lambda _, param: param['name'])}, dim, axis, dtype)"
    return define(name, signature(description), body, doc(description))


def of_module(description):
    name = description["name"]
    values = ", ".join(f"{param['name']!r}: {param['name']}" for param in description["params"])
    common = "weight, ignore_index" if takes_classes(description) else "None, None"
    body = f"super().__init__({{{values}}}, {common}, reduction, dim, dtype{', z_loss' * takes_classes(description)})"
    members = [] if takes_classes(description) else ["_takes_classes = False"]
    return module(class_name(name), "_Loss", module_doc(description), init_signature(description), body, name, members)


def stubs(description):
    text = stub(description["name"], signature(description), "Tensor")
    if has_module(description):
        attributes = list(map(argument, description["params"]))
        text += "\n" + module_stub(class_name(description["name"]), "_Loss", attributes, init_signature(description))
    return text


def doc(description):
    scores, target = description["arguments"]
    text = of_tensors(losses.common_doc(description, "torch.Tensor"))
    example = {
        "class or distribution": "torch.randn(4, 6), torch.tensor([0, 5, 2, 2])",
        "class": "torch.rand(4, 6), torch.tensor([0, 5, 2, 2])",
        "labels": "torch.randn(2, 3), torch.tensor([[0, 1, 1], [1, 0, 0]])",
        "scores": "torch.randn(4, 6), torch.randn(4, 6)",
    }[description["target"]]
    parameters = "".join(f", {param['name']}" for param in description["params"] if param["per_row"])
    return f"""{text}dim : int, default -1
    The axis of the classes; axis is another name for it.
{DTYPE_DOC}
Returns
-------
torch.Tensor
    One number for each row, in {scores}'s shape without dim. Differentiable, twice, in {scores}{parameters}.

Raises
------
ValueError, TypeError, IndexError
    The message names the argument. {target} must not require grad.

Notes
-----
Gradient: {description["gradient"]}. See isentropic.{description["name"]} for the rules on NaN and infinities.
Source: {description["source"]}.

Examples
--------
>>> value = isentropic.torch.{description["name"]}({example}{assignments(description)})
"""


COMMON = """\
reduction : str, default "mean"
    "mean" over the rows, "sum" or "none".
dim : int, default -1
    The axis of the classes.
"""
OF_CLASSES = """\
weight : torch.Tensor, optional
    One factor for each class, on the loss of the rows that have it; the mean divides by these. For targets that are classes.
    SoftmaxLoss also takes distributions, and gives each term, those of smoothing too, its class's factor, as torch does.
"""
Z_LOSS_DOC = """\
z_loss : float, at least 0, default 0.0
    Adds z_loss times the square of the logsumexp of a row's scores, which keeps the scores from growing.
"""
IGNORED = """\
ignore_index : int, default -100
    Rows with this target give 0 and no gradient, and do not count in the mean.
"""


def module_doc(description):
    first, last, further = (OF_CLASSES, IGNORED, Z_LOSS_DOC) if takes_classes(description) else ("", "", "")
    return f"""{description["summary"]}

    {description["formula"]}

The module of isentropic.torch.{description["name"]}.

Parameters
----------
{first}{param_doc(description)}{last}{COMMON}{DTYPE_DOC}{further}
Call it with (x, target) or (x, target, sample_weight). sample_weight is a factor for the loss of each row, and the mean
divides by the sum of these factors.
{learned(description)}"""
