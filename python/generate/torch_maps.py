"""The maps and softmax's logarithms on tensors: the function and the module of each."""

from source import Argument, Signature, define, stub
from tensors import DIM, argument, class_name, learned, module, module_stub, param_doc, values
from words import assignments


def signature(description):
    """dim may come second, as in torch."""
    dim, axis = DIM
    keywords = [*map(argument, description["params"]), axis]
    keywords += [Argument("keepdim", "False", "bool"), Argument("keepdims", "False", "bool")] if description["reduces"] else []
    return Signature([Argument("x", type="Tensor"), dim], keywords)


def init_signature(description):
    """A constructor like torch's: Softmax(-1), Entmax(1.5, -1)."""
    params = list(map(argument, description["params"]))
    first = 0 if not params or params[0].name == "temperature" else 1
    keywords = params[first:] + ([Argument("keepdim", "False", "bool")] if description["reduces"] else [])
    return Signature([*params[:first], Argument("dim", "-1", "int")], keywords)


def function(description):
    name = description["name"]
    if description["reduces"]:
        body = f"return _call_reduction({name!r}, x, {values(description)}, dim, axis, keepdim or keepdims)"
    else:
        tensors = [f"isinstance({one['name']}, Tensor)" for one in description["params"] if one["kind"].endswith("float")]
        numbers = f", not ({' or '.join(tensors)})" if tensors else ""
        body = f"return _call_map({name!r}, x, {values(description)}, dim, axis{numbers})"
    return define(name, signature(description), body, doc(description))


def of_module(description):
    name, init = description["name"], init_signature(description)
    kept = ", ".join(
        f"{one.name}={one.name}" for one in [*map(argument, description["params"]), Argument("dim"), *last(description)]
    )
    return module(class_name(name), "_Map", module_doc(description), init, f"super().__init__({kept})", name)


def last(description):
    return [Argument("keepdim", type="bool")] if description["reduces"] else []


def stubs(description):
    attributes = [*map(argument, description["params"]), Argument("dim", type="int"), *last(description)]
    made = module_stub(class_name(description["name"]), "_Map", attributes, init_signature(description))
    return stub(description["name"], signature(description), "Tensor") + "\n" + made


def doc(description):
    name = description["name"]
    result = "keepdim : bool, default False\n    Keep dim, with size 1; keepdims is another name for it.\n"
    result = result if description["reduces"] else ""
    shape = "One number per row" if description["reduces"] else "Of x's shape and dtype, contiguous"
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
x : torch.Tensor
    Scores of float32, float64, float16 or bfloat16, of any shape with at least one axis and any strides. Halves are
    computed in float32.
{param_doc(description)}dim : int, default -1
    The axis along which scores compete; axis is another name for it.
{result}
Returns
-------
torch.Tensor
    {shape}. Differentiable, twice.

Raises
------
ValueError, TypeError, IndexError
    The message names the argument.

Notes
-----
Gradient in x, where g is the gradient in the result: {description["gradient"]}.
See isentropic.{name} for the rules on NaN and infinities.
Source: {description["source"]}.

Examples
--------
>>> y = isentropic.torch.{name}(torch.tensor([0.0, 1.0, 2.0]){assignments(description)})
"""


def module_doc(description):
    name = description["name"]
    size = "keepdim : bool, default False\n    Keep dim, with size 1.\n" * description["reduces"]
    shape = "x's shape without dim" if description["reduces"] else "x's shape"
    return f"""{description["summary"]}

    {description["formula"]}

The module of isentropic.torch.{name}: calls it with x of any shape, and gives {shape}.

Parameters
----------
{param_doc(description)}dim : int, default -1
    The axis along which scores compete.
{size}
{learned(description)}Examples
--------
>>> module = isentropic.torch.{class_name(name)}({assignments(description).removeprefix(", ")})
>>> y = module(torch.tensor([0.0, 1.0, 2.0]))
"""
