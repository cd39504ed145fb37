"""The descriptions in the words of docstrings, and their parameters as arguments."""

import importlib.util
import inspect
import pathlib

from source import Argument


def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


documents = load("_documents", pathlib.Path(__file__).parents[1] / "isentropic/_documents.py")


def document(text, signature, description, base="", door=""):
    """The docstring of a function of a description; `text` is what it does not say, as in isentropic/_documents.py."""
    arguments = [(argument.name, argument.default, False) for argument in signature.arrays]
    arguments += [(keyword.name, keyword.default, True) for keyword in signature.keywords]
    arguments += [(f"**{signature.rest.name}", "", True)] if signature.rest else []
    return inspect.cleandoc(documents.completed(text, arguments, description, base, door))


def argument(param, number="SupportsFloat", row="SupportsFloat | _DLPack | _Lists", integer="SupportsIndex"):
    """The parameter in a signature; `number`, `row` and `integer` are the types of this interface."""
    if param["kind"] == "name":
        kind = f"Literal[{', '.join(map(repr, param['names']))}]"
    elif param["kind"] == "map":
        kind = "str | tuple[str, dict[str, Any]]"
    else:
        one = row if param["per_row"] else number
        kind = {"float": one, "int": integer, "bool": "bool", "optional float": f"{one} | None"}[param["kind"]]
    return Argument(param["name"], "" if param["required"] else repr(param["default"]), kind)


def values(function, description):
    """The tuple of the parameters' values, as source. A number takes the short path."""
    return "(" + "".join(f"{value(function, param)}, " for param in description["params"]) + ")"


def value(function, param):
    name = param["name"]
    return f"{name} if type({name}) is float else _per_row({function!r}, {name!r}, {name})" if param["per_row"] else name


def assignments(description):
    """Every parameter with an allowed value, for the example."""
    values = {p["name"]: p["default"] if p["typical"] is None else p["typical"] for p in description["params"]}
    return "".join(f", {name}={value!r}" for name, value in values.items())


def laws(description):
    """The exact laws, in words."""
    held = description["laws"]
    said = {
        "adding a constant to a row changes nothing": held["shift"],
        "a higher score never gets a lower probability": held["order"],
        "of equal scores at a cut, those with the lower index stay": held["ties_by_index"],
        "finite scores may get exactly 0": held["sparse"],
    }
    return "; ".join(law for law, holds in said.items() if holds) or "none"


def several(description):
    """As in isentropic/_descriptions.py."""
    if description["family"] != "measure":
        return None
    return next((param["name"] for param in description["params"] if param["kind"] == "float" and not param["per_row"]), None)


def per_row(description):
    return [param["name"] for param in description["params"] if param["per_row"]]
