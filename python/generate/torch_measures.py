"""The measures on tensors."""

from measures import ARGUMENTS, has_axis, of_pairs
from measures import doc as doc_of_arrays
from source import Argument, Signature, define, stub
from tensors import DIM, DTYPE, DTYPE_DOC, argument, values
from words import document, several


def signature(description):
    arrays = [Argument(name, type="Tensor") for name in ARGUMENTS[description["family"]]]
    params = [
        one._replace(type="float | Sequence[float] | Tensor") if one.name == several(description) else one
        for one in map(argument, description["params"])
    ]
    return Signature(arrays, [*of_pairs(description, params), *(DIM if has_axis(description) else []), DTYPE])


def function(description):
    name, family = description["name"], description["family"]
    tensors = "(" + "".join(f"{one}, " for one in ARGUMENTS[family]) + ")"
    axis = "dim, axis" if has_axis(description) else "-1, None"
    if family == "table":
        body = f"return _call_table({name!r}, pxy, {values(description)}, dtype)"
    elif family == "entry":
        body = f"return _call_entries({name!r}, p, {values(description)}, {axis}, dtype)"
    else:
        body = f"return _call_measure({name!r}, {tensors}, {values(description)}, {axis}, dtype)"
    text = document(doc(description), signature(description), description, doc_of_arrays(description), door="torch")
    return define(name, signature(description), body, text)


def stubs(description):
    return stub(description["name"], signature(description), "Tensor")


def doc(description):
    arrays = ", ".join(ARGUMENTS[description["family"]])
    return f"""
As isentropic.{description["name"]}, for torch tensors, and differentiable in {arrays}. Gradient: {description["gradient"]}.

{DTYPE_DOC}Returns: One number for each {"entry" if description["family"] == "entry" else "distribution"}.
"""
