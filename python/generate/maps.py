"""The maps and softmax's logarithms: NAME and NAME_vjp of each."""

import textwrap

from source import Argument, Signature, define, stub
from words import TYPE_ERROR, argument, assignments, has_per_row, laws, param_doc, values

AXIS = Argument("axis", "-1", "SupportsIndex")
# The kind of the result for each kind of x.
KINDS = (("_Integers", "NDArray[np.float64]"), ("_Array", "_Array"), ("_Lists", "NDArray[np.float64]"))


def forward_signature(description):
    keywords = [*map(argument, description["params"]), AXIS]
    last = Argument("keepdims", "False", "bool") if description["reduces"] else Argument("out", "None", "_Array | None")
    return Signature([Argument("x")], [*keywords, last])


def vjp_signature(description):
    keywords = [*map(argument, description["params"]), AXIS]
    if has_per_row(description):
        keywords.append(Argument("param_grad", "False", "bool | str | list[str] | tuple[str, ...]"))
    arrays = [Argument("x"), Argument("y", type="Any"), Argument("grad", type="Any")]
    return Signature(arrays, keywords, positional_only=True)


def functions(description):
    """The source of both functions."""
    name = description["name"]
    run, last = ("run_reduction", "keepdims") if description["reduces"] else ("run_map", "out")
    forward = f"return _{run}(_{name}, x, axis, {last}, {values(name, description)})"
    vjp = f"return _run_vjp(_{name}, x, y, grad, axis, {values(name + '_vjp', description)})"
    if has_per_row(description):
        asked = f"return _run_param_vjp(_{name}, x, y, grad, axis, {values(name + '_vjp', description)}, param_grad)"
        vjp = f"if param_grad:\n    {asked}\n{vjp}"
    return (
        f"_{name} = _KERNELS[{name!r}]\n\n\n"
        + define(name, forward_signature(description), forward, forward_doc(description))
        + "\n\n"
        + define(f"{name}_vjp", vjp_signature(description), vjp, vjp_doc(description))
    )


def stubs(description):
    name, signature = description["name"], forward_signature(description)
    lines = []
    for x, result in KINDS:
        y = ("Any" if x != "_Array" else "_Array") if description["reduces"] else result
        out = f"{'_Array' if x == '_Array' else result} | None"
        lines.append("@overload\n" + stub(name, signature.with_types(x=x, out=out), y))
    signature = vjp_signature(description)
    per_row = [param["name"] for param in description["params"] if param["per_row"]]
    counted = len([name for name in per_row if name != "temperature"] or per_row)
    for x, result in KINDS:
        if not per_row:
            lines.append("@overload\n" + stub(f"{name}_vjp", signature.with_types(x=x), result))
            continue
        asked = signature.keywords[-1]
        # The number of optional parameters with a gradient is only known at run time.
        dparam = "_Array" if counted == 1 and result == "_Array" else "Any"
        for default, kind, returned in (
            ("False", "Literal[False]", result),
            ("", "Literal[True] | str", f"tuple[{result}, {dparam}]"),
            ("", "list[str] | tuple[str, ...]", f"tuple[{result}, Any]"),
        ):
            keywords = [*signature.keywords[:-1], asked._replace(default=default, type=kind)]
            one = signature.with_types(x=x)._replace(keywords=keywords)
            lines.append("@overload\n" + stub(f"{name}_vjp", one, returned))
    return "".join(lines)


def forward_doc(description):
    name = description["name"]
    if description["reduces"]:
        last = "keepdims : bool, default False\n    Keep the axis, with size 1."
        returns = "Of the kind and dtype of x, in its shape without the axis; a NumPy number where no axis is left."
        value_error = "A parameter is out of its range, or x has no axis."
        special = "A row with NaN gives NaN. A score of -inf counts as absent. A row with only -inf gives -inf."
    else:
        last = (
            "out : array, default None\n"
            "    The array to write to, which is also returned. It has the shape of x, the dtype of the result and\n"
            "    any strides. It may be x itself."
        )
        returns = "Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools."
        value_error = "A parameter is out of its range, x has no axis, or out does not fit or overlaps x in part."
        special = "A row with NaN gives NaN. A score of -inf counts as absent. A row with only -inf gives NaN."
    if description["family"] == "map":
        special += "\n" + textwrap.fill(f"Laws: {laws(description)}.", 100)
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
    Scores, of any shape with at least one axis; never changed. Integers, bools and lists are read as
    float64; float16 is computed in float32.
{param_doc(description)}axis : int, default -1
    The axis along which scores compete; all others count rows.
{last}

Returns
-------
array
    {returns}

Raises
------
ValueError
    {value_error}
numpy.exceptions.AxisError
    x has no such axis.
TypeError
    {TYPE_ERROR}

Notes
-----
{special}
Gradient in x, where g is the gradient in the result:
    {description["gradient"]}
{name}_vjp computes it.
Source: {description["source"]}.

Examples
--------
>>> y = isentropic.{name}([0.0, 1.0, 2.0]{assignments(description)})
"""


def vjp_doc(description):
    name = description["name"]
    shape = "x's shape without the axis, or with size 1 for it" if description["reduces"] else "x's shape"
    grad = "1.0" if description["reduces"] else "[1.0, 0.0, 0.0]"
    asking = also = ""
    if has_per_row(description):
        names = " and ".join(param["name"] for param in description["params"] if param["per_row"])
        others = [param["name"] for param in description["params"] if param["per_row"] and param["name"] != "temperature"]
        true = f"\n    True stands for {' and '.join(others)}." if others and "temperature" in names else ""
        asking = (
            f"param_grad : bool, str or list of str, default False\n"
            f"    Return also the gradient with respect to {names}: a name, a list of names, or True.{true}\n"
        )
        also = """
array, or a tuple of arrays for several parameters
    With param_grad: the gradient with respect to them, of the kind and dtype of dx.
    It is one number per row, in x's shape without the axis (a NumPy number if no axis is left). If rows share a
    value of the parameter, the gradient in that value is the sum of their numbers."""
    return f"""The gradient in x, from grad, the gradient in y = {name}(x): a vector-Jacobian product.

    {description["formula"]}
    dx = {description["gradient"]}

Parameters
----------
x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
    The scores given to {name}.
y : array
    {name}(x) with the same parameters, in {shape}.
grad : array
    The gradient with respect to y, g in the formula, in {shape}.
    y and grad are converted to the dtype of x.
{param_doc(description)}axis : int, default -1
    As given to {name}.
{asking}
Returns
-------
array
    Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools.{also}

Raises
------
ValueError
    A parameter is out of its range, x has no axis, y or grad is of another shape.
numpy.exceptions.AxisError
    x has no such axis.
TypeError
    {TYPE_ERROR}

Notes
-----
At a score of -inf the gradient is 0, and grad is not read.
Source: {description["source"]}.

Examples
--------
>>> x, grad = [0.0, 1.0, 2.0], {grad}
>>> y = isentropic.{name}(x{assignments(description)})
>>> dx = isentropic.{name}_vjp(x, y, grad{assignments(description)})
"""
