"""The measures on tensors."""

from measures import ARGUMENTS, has_axis
from source import Argument, Signature, define, stub
from tensors import DIM, DTYPE, DTYPE_DOC, argument, param_doc, values


def signature(description):
    arrays = [Argument(name, type="Tensor") for name in ARGUMENTS[description["family"]]]
    return Signature(arrays, [*map(argument, description["params"]), *(DIM if has_axis(description) else []), DTYPE])


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
    return define(name, signature(description), body, doc(description))


def stubs(description):
    return stub(description["name"], signature(description), "Tensor")


def doc(description):
    arrays = ", ".join(ARGUMENTS[description["family"]])
    dim = "dim : int, default -1\n    The dimension along which they are distributions; axis is another name for it.\n"
    dim = dim if has_axis(description) else ""
    return f"""{description["summary"]}

    {description["formula"]}

As isentropic.{description["name"]}, of torch tensors, and differentiable in {arrays}: {description["gradient"]}.

Parameters
----------
{arrays} : torch.Tensor
    What input says, of float32, float64, float16 or bfloat16.
{param_doc(description)}{dim}{DTYPE_DOC}
Returns
-------
torch.Tensor
    One number for each {"entry" if description["family"] == "entry" else "distribution"}.
"""
