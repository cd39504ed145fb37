"""The maps, softmax's logarithms and selections: NAME and NAME_vjp of each."""

from source import Argument, Signature, define, stub
from words import argument, assignments, document, laws, per_row, values

AXIS = Argument("axis", "-1", "SupportsIndex")
# The kind of the result for each kind of x.
KINDS = (("_Integers", "NDArray[np.float64]"), ("_Array", "_Array"), ("_Lists", "NDArray[np.float64]"))


def forward_signature(description):
    keywords = [*map(argument, description["params"]), AXIS]
    last = Argument("keepdims", "False", "bool") if description["reduces"] else Argument("out", "None", "_Array | None")
    return Signature([Argument("x")], [*keywords, last])


def vjp_signature(description):
    keywords = [*map(argument, description["params"]), AXIS]
    if per_row(description):
        keywords.append(Argument("param_grad", "False", "bool | str | list[str] | tuple[str, ...]"))
    arrays = [Argument("x"), Argument("y", type="Any"), Argument("grad", type="Any")]
    return Signature(arrays, keywords, positional_only=True)


def functions(description):
    """The source of both functions."""
    name, signature, of_vjp = description["name"], forward_signature(description), vjp_signature(description)
    run, last = ("run_reduction", "keepdims") if description["reduces"] else ("run_map", "out")
    forward = f"return _{run}(_{name}, x, axis, {last}, {values(name, description)})"
    vjp = f"return _run_vjp(_{name}, x, y, grad, axis, {values(name + '_vjp', description)})"
    if per_row(description):
        asked = f"return _run_param_vjp(_{name}, x, y, grad, axis, {values(name + '_vjp', description)}, param_grad)"
        vjp = f"if param_grad:\n    {asked}\n{vjp}"
    return (
        f"_{name} = _KERNELS[{name!r}]\n\n\n"
        + define(name, signature, forward, document(forward_doc(description), signature, description))
        + "\n\n"
        + define(f"{name}_vjp", of_vjp, vjp, document(vjp_doc(description), of_vjp, {**description, "summary": ""}))
    )


def stubs(description):
    name, signature = description["name"], forward_signature(description)
    lines = []
    for x, result in KINDS:
        y = ("Any" if x != "_Array" else "_Array") if description["reduces"] else result
        out = f"{'_Array' if x == '_Array' else result} | None"
        lines.append("@overload\n" + stub(name, signature.with_types(x=x, out=out), y))
    signature = vjp_signature(description)
    learned = per_row(description)
    counted = len([name for name in learned if name != "temperature"] or learned)
    for x, result in KINDS:
        if not learned:
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


LAST = {
    True: "keepdims (bool): Keep the axis, with size 1.",
    False: """\
out (array): The array to write to, which is also returned. It has the shape of x, the dtype of the result and any strides. It
    may be x itself.""",
}
RETURNS = {
    True: "Of the kind and dtype of x, in its shape without the axis; a NumPy number where no axis is left.",
    False: "Of the kind, shape and dtype of x; float64 if x is a list or has integers or bools.",
}
REFUSED = {True: "or x has no axis", False: "x has no axis, or out does not fit or overlaps x in part"}


SPECIAL = {
    "map": "A row with only -inf gives NaN.",
    "logarithm": "A row with only -inf gives {none}.",
    "selection": """Where k is at least the number of
    finite scores, these get 1. Scores of +inf get 1, or equal shares of k if there are more than k of them.""",
}


def forward_doc(description):
    name, reduces = description["name"], description["reduces"]
    special = SPECIAL[description["family"]].format(none="-inf" if reduces else "NaN")
    held = f" Laws: {laws(description)}." if description["family"] == "map" else ""
    return f"""
x: Scores, of any shape with at least one axis; never changed. Integers, bools and lists are read as float64; float16 is
    computed in float32.
{LAST[reduces]}
Returns: {RETURNS[reduces]}
Raises: A parameter is out of its range, {REFUSED[reduces]}.
Notes: A row with NaN gives NaN. A score of -inf counts as absent. {special}{held}

    Gradient in x, where g is the gradient in the result, which {name}_vjp computes:

        {description["gradient"]}
>>> y = isentropic.{name}([0.0, 1.0, 2.0]{assignments(description)})
"""


def vjp_doc(description):
    name, learned = description["name"], per_row(description)
    shape = "x's shape without the axis, or with size 1 for it" if description["reduces"] else "x's shape"
    others = [param for param in learned if param != "temperature"]
    true = f" True stands for {' and '.join(others)}." if others and "temperature" in learned else ""
    asking = f"""\
param_grad (bool, str or list of str): Return also the gradient with respect to {" and ".join(learned)}: a name, a list of
    names, or True.{true}
"""
    also = """ With param_grad then an array, or for several parameters a tuple: the gradient in them, of the kind and dtype of
    dx, one number per row, in x's shape without the axis (a NumPy number if no axis is left). If rows share a value of the
    parameter, the gradient in that value is the sum of their numbers."""
    return f"""
The gradient in x, from grad, the gradient in y = {name}(x): a vector-Jacobian product.

    {description["formula"]}
    dx = {description["gradient"]}

x: The scores given to {name}.
y: {name}(x) with the same parameters, in {shape}.
grad: The gradient with respect to y, g in the formula, in {shape}. y and grad are converted to the dtype of x.
axis: As given to {name}.
{asking if learned else ""}Returns: {RETURNS[False]}{also if learned else ""}
Raises: A parameter is out of its range, x has no axis, y or grad is of another shape.
Notes: At a score of -inf the gradient is 0, and grad is not read.
>>> x, grad = [0.0, 1.0, 2.0], {"1.0" if description["reduces"] else "[1.0, 0.0, 0.0]"}
>>> y = isentropic.{name}(x{assignments(description)})
>>> dx = isentropic.{name}_vjp(x, y, grad{assignments(description)})
"""
