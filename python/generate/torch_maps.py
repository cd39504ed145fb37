"""The maps and softmax's logarithms on tensors: the function and the module of each."""

from source import Argument, Signature, define, stub
from tensors import DIM, argument, class_name, learned, module, module_stub, values
from words import assignments, document


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
        keepdim = "keepdim if keepdims is False else keepdims"
        body = f"return _call_reduction({name!r}, x, {values(description)}, dim, axis, {keepdim})"
    else:
        tensors = [f"isinstance({one['name']}, Tensor)" for one in description["params"] if one["kind"].endswith("float")]
        numbers = f", not ({' or '.join(tensors)})" if tensors else ""
        body = f"return _call_map({name!r}, x, {values(description)}, dim, axis{numbers})"
    return define(
        name, signature(description), body, document(doc(description), signature(description), description, door="torch")
    )


def of_module(description):
    name, init = description["name"], init_signature(description)
    kept = ", ".join(
        f"{one.name}={one.name}" for one in [*map(argument, description["params"]), Argument("dim"), *last(description)]
    )
    text = document(module_doc(description), init, description, door="torch")
    return module(class_name(name), "_Map", text, init, f"super().__init__({kept})", name)


def last(description):
    return [Argument("keepdim", type="bool")] if description["reduces"] else []


def stubs(description):
    attributes = [*map(argument, description["params"]), Argument("dim", type="int"), *last(description)]
    made = module_stub(class_name(description["name"]), "_Map", attributes, init_signature(description))
    return stub(description["name"], signature(description), "Tensor") + "\n" + made


def doc(description):
    name, reduces = description["name"], description["reduces"]
    keep = "keepdim, keepdims (bool): Keep dim, with size 1.\n" if reduces else ""
    return f"""
x: Scores, of any shape with at least one axis and any strides. Halves are computed in float32.
{keep}Returns: {"One number per row" if reduces else "Of x's shape and dtype, contiguous"}. Differentiable, twice.
Notes: See isentropic.{name} for the rules on NaN and infinities.

    Gradient in x, where g is the gradient in the result:

        {description["gradient"]}
>>> y = isentropic.torch.{name}(torch.tensor([0.0, 1.0, 2.0]){assignments(description)})
"""


def module_doc(description):
    name, reduces = description["name"], description["reduces"]
    keep = "keepdim (bool): Keep dim, with size 1.\n" if reduces else ""
    return f"""
The module of isentropic.torch.{name}. It takes x of any shape, and its result has x's shape{" without dim" if reduces else ""}.
{learned(description)}
dim: The axis along which scores compete.
{keep}>>> module = isentropic.torch.{class_name(name)}({assignments(description).removeprefix(", ")})
>>> y = module(torch.tensor([0.0, 1.0, 2.0]))
"""
