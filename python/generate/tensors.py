"""The part that functions and modules on tensors share: their arguments, and what a module's docstring adds."""

import words
from source import Argument, docstring, head, stub

OTHER_NAMES = {"jsd_loss": "JSDLoss", "logsumexp": "LogSumExp", "sigsoftmax": "SigSoftmax"}
DIM = [Argument("dim", "None", "int | None"), Argument("axis", "None", "int | None")]
DTYPE = Argument("dtype", "None", "torch.dtype | None")
DTYPE_DOC = "dtype (torch.dtype): The type of the result: by default that of the input, or float32 for float16 and bfloat16.\n"


def class_name(function):
    """The torch.nn module of a function: "top_k_softmax" has TopKSoftmax."""
    return OTHER_NAMES.get(function, function.title().replace("_", ""))


def argument(param):
    return words.argument(param, number="float", row="float | Tensor", integer="int")


def values(description):
    """The tuple of the parameters' values, as source."""
    return "(" + "".join(f"{param['name']}, " for param in description["params"]) + ")"


def learned(description):
    names = words.per_row(description)
    if not names:
        return ""
    if len(names) > 1:
        listed = " and ".join(names)
        return f"{listed} may be nn.Parameters that broadcast with the scores and have size 1 along dim: they are then learned."
    return f"{names[0]} may be an nn.Parameter that broadcasts with the scores and has size 1 along dim: it is then learned."


def module(name, base, doc, init, body, function, members=()):
    """The source of a module; `init` is the signature of its constructor."""
    lines = [f"_function = staticmethod({function})", *members]
    listed = "".join(f"    {line}\n" for line in lines)
    constructor = head("__init__", ["self", *init.text(False)])
    constructor = "".join(f"    {line}\n" for line in f"{constructor}:\n    {body}".split("\n"))
    return f"class {name}({base}):\n{docstring(doc)}\n\n{listed}\n{constructor}"


def module_stub(name, base, attributes, init):
    lines = [f"{attribute.name}: {attribute.type}" for attribute in attributes]
    lines += stub("__init__", init, "None", first=["self"]).rstrip("\n").split("\n")
    return f"class {name}({base}):\n" + "".join(f"    {line}\n" for line in lines)
