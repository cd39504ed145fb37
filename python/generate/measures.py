"""The measures: of a distribution, of two, of a table, of entries."""

from source import Argument, Signature, define, stub
from words import argument, document, per_row, several, values

ARGUMENTS = {"measure": ("p",), "divergence": ("p", "q"), "table": ("pxy",), "entry": ("p",)}
RUN = {"measure": "of_one", "divergence": "of_two", "table": "of_table", "entry": "of_entries"}


def has_axis(description):
    return description["family"] != "table" and description["name"] != "binary_entropy"


def of_pairs(description, keywords):
    """The keywords; of a measure of two, input may be a pair."""
    if description["family"] != "divergence":
        return keywords
    return [one._replace(type=f"{one.type} | tuple[str, str]") if one.name == "input" else one for one in keywords]


def signature(description):
    kind = "_DLPack | _Lists" + (" | _Number" if description["family"] == "entry" else "")
    listed = several(description)
    many = "SupportsFloat | _DLPack | _Lists"
    keywords = [argument(one, many if one["name"] == listed else "SupportsFloat") for one in description["params"]]
    keywords = of_pairs(description, keywords)
    keywords += [Argument("axis", "-1", "SupportsIndex")] if has_axis(description) else []
    arrays = [Argument(name, type=kind) for name in ARGUMENTS[description["family"]]]
    keywords += [Argument("param_grad", "False", "bool")] if per_row(description) else []
    return Signature(arrays, [*keywords, Argument("return_grad", "False", "bool")])


def function(description):
    name, family = description["name"], description["family"]
    arrays = ", ".join(ARGUMENTS[family])
    axis = "axis, " if has_axis(description) else "" if family == "table" else "-1, "
    last = ", param_grad" if per_row(description) else ""
    body = f"return _measures.{RUN[family]}(_{name}, {arrays}, {axis}return_grad, {values(name, description)}{last})"
    text = document(doc(description), signature(description), description)
    return f"_{name} = _measures.KERNELS[{name!r}]\n\n\n" + define(name, signature(description), body, text)


def stubs(description):
    """Stubs of results with one number for each row: an array of p's kind, or a number."""
    one = signature(description)
    gradients = ", ".join(["Any"] * (3 if description["family"] == "divergence" else 2))
    gradients = "Any, ..." if per_row(description) else gradients
    lines = []
    for default, kind, returns in (("False", "Literal[False]", "Any"), ("", "Literal[True]", f"tuple[{gradients}]")):
        keywords = [*one.keywords[:-1], Argument("return_grad", default, kind)]
        lines.append("@overload\n" + stub(description["name"], one._replace(keywords=keywords), returns))
    return "".join(lines)


KIND = "Distributions along axis, or scores or log-probabilities if input says so."
ARRAY_DOC = {
    "measure": f"p: {KIND} Never changed.",
    "divergence": f"p, q: {KIND} The shapes broadcast: one q is compared with every p. Never changed.",
    "table": """\
pxy: Tables p(x, y), x along the last axis but one and y along the last; further axes in front count tables. All entries of a
    table together are one distribution, of the kind that input says. Never changed.""",
    "entry": "p: Probabilities, or scores or log-probabilities if input says so. A single number is allowed. Never changed.",
}
OTHERS = "float16 gives float32, integers and lists float64"
RETURNS = {
    "measure": f"One number for each row, of the kind and dtype of p; {OTHERS}.",
    "divergence": f"One number for each row, of the kind of p and the wider dtype; {OTHERS}.",
    "table": f"One number for each table, of the kind and dtype of pxy; {OTHERS}.",
    "entry": f"Of the kind, shape and dtype of p; {OTHERS}.",
}
GRADIENT_DOC = {
    "measure": "Return (value, dp): the gradient as well, in the shape of p.",
    "divergence": "Return (value, dp, dq): the gradients as well, in the shape that p and q broadcast to.",
    "table": "Return (value, dp): the gradient as well, in the shape of pxy.",
    "entry": "Return (value, dp): the derivative of each entry as well.",
}
EXAMPLE = {"measure": "[0.5, 0.25, 0.25]", "divergence": "[0.5, 0.5], [0.9, 0.1]", "table": "[[0.4, 0.1], [0.1, 0.4]]",
           "entry": "[0.5, 0.25]"}  # fmt: skip
REFUSED = """An entry is negative, NaN or infinite, or a sum is further from 1 than 1e-6 (float64), 1e-4 (float32) or 1e-2
    (float16) and normalize is False; the message names the row and entry."""
OF_ENTRIES = "An entry is not in [0, 1] (log_probs: above 0); the message names its row and entry."


def doc(description):
    name, family = description["name"], description["family"]
    required = "".join(f", {p['name']}={p['typical']!r}" for p in description["params"] if p["required"])
    learned = " and ".join(per_row(description))
    asking = f"param_grad (bool): Return also the gradient in {learned}, as the last result: one number for each row.\n"
    axis = "axis: The axis along which p is a distribution; all others count rows.\n"
    held = {"divergence": ", of both arrays", "table": ", of the whole table"}.get(family, "")
    scores = "x of p = 1 / (1 + exp(-x))" if name == "binary_entropy" else "x of p = softmax(x)"
    pairs = ""
    if family == "divergence":
        pairs = (
            ' A pair such as ("probs", "scores") is for p and for q; both are then compared by their logarithms, and a '
            "probability of 0 has the gradient 0."
        )
    listed = (
        f" A list for {several(description)} gives a result for each number, along a new last axis."
        if several(description)
        else ""
    )
    divides = "normalize" in [p["name"] for p in description["params"]]
    given = "to p, to log p or to the scores" + (". With normalize it includes the division" if divides else "")
    if divides and family == "entry":
        given = "to p or to log p. With scores or normalize there is none, because a value depends on the whole row"
    return f"""
{ARRAY_DOC[family]}
{axis if has_axis(description) else ""}{asking if learned else ""}return_grad (bool): {GRADIENT_DOC[family]}
Returns: {RETURNS[family]}
Raises: {OF_ENTRIES if family == "entry" else REFUSED} A parameter is out of its range, shapes do not fit.
Notes: input says what the numbers are{held}: "probs" are probabilities, "log_probs" their logarithms, "scores" the
    {scores}.{pairs} In scores, NaN gives NaN and -inf is an absent entry. 0 log 0 counts as 0. Sums are in
    float64. The gradient is with respect to the numbers given: {given}.{listed}

    Gradient: {description["gradient"]}.
>>> value = isentropic.{name}({EXAMPLE[family]}{required})
"""
