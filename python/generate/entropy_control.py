"""gamma_for_entropy, whose parameters are in the registry; the other functions of entropy control are written by hand."""

from source import Argument, Signature, define, stub
from words import TYPE_ERROR, argument, param_doc


def signature(description):
    keywords = []
    for param in description["params"]:
        if param["name"] == "min_gamma":
            keywords.append(Argument("gamma_range", "(0.0, inf)", "tuple[SupportsFloat, SupportsFloat]"))
        elif param["name"] != "max_gamma":
            keywords.append(argument(param))
    return Signature([Argument("x", type="_DLPack | _Lists")], [*keywords, Argument("axis", "-1", "SupportsIndex")])


def function(description):
    handed = ", ".join(
        f"{param['name']!r}: {'None' if param['name'].endswith('_gamma') else param['name']}" for param in description["params"]
    )
    body = f"return _entropy_control.gamma_of(x, axis, gamma_range, {{{handed}}})"
    return define("gamma_for_entropy", signature(description), body, doc(description))


def stubs(description):
    one = signature(description)
    keywords = [word._replace(default="...") if word.name == "gamma_range" else word for word in one.keywords]
    return stub("gamma_for_entropy", one._replace(keywords=keywords), "GammaResult")


def doc(description):
    params = ""
    for param in description["params"]:
        if param["name"] == "min_gamma":
            params += "gamma_range : pair of floats, default (0.0, inf)\n    The least and the largest gamma allowed.\n"
        elif param["name"] != "max_gamma":
            params += param_doc({"params": [param]})
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
    Scores, of any shape with at least one axis; -inf counts as absent. Never changed.
{params}axis : int, default -1
    The axis along which scores compete; all others count rows.

Returns
-------
GammaResult
    A named tuple (gamma, entropy, status) of arrays in x's shape without the axis, or of single values if no axis
    is left. entropy is that of softmax(gamma x), in nats. gamma and entropy are of the kind and dtype of x, but
    float32 for float16, whose range gamma may exceed.
    status is a NumPy array of strings:

    "ok"             the target was met, or max_iterations ended the search
    "clamped_low"    the target is below every entropy that can be reached; gamma is inf, or the end of gamma_range
    "clamped_high"   the target is above every entropy that can be reached; gamma is 0, or the end of gamma_range
    "constant"       all scores are equal, or one is +inf, so that gamma changes nothing; gamma is 1
    "invalid"        the row has a NaN or no score above -inf; gamma is NaN

Raises
------
ValueError
    A parameter is out of its range, not exactly one target is given, x has no axis.
numpy.exceptions.AxisError
    x has no such axis.
TypeError
    {TYPE_ERROR}

Notes
-----
The entropy that was found differs from the target by at most 1e-12 max(1, target), before it is rounded to x's dtype.
Gradients: {description["gradient"]}.
Source: {description["source"]}.

Examples
--------
>>> gamma, reached, status = isentropic.gamma_for_entropy([0.0, 1.0, 2.0], entropy=1.0)
>>> str(status), round(float(gamma), 9), round(float(reached), 9)
('ok', 0.565276381, 1.0)
"""
