"""The descriptions in the words of docstrings, and their parameters as arguments."""

from source import Argument


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


def kind(param):
    """The allowed values of a parameter, in words."""
    if param["kind"] == "name":
        words = "one of " + ", ".join(f'"{name}"' for name in param["names"])
    elif param["kind"] == "bool":
        words = "bool"
    elif param["kind"] == "map":
        words = "str, or (str, dict)"
    else:
        words = {"float": "float", "int": "int", "optional float": "float or None"}[param["kind"]]
        if param["per_row"]:
            words = words.replace("float", "float or array")
        words += f", {param['allowed']}"
    return words + (", required" if param["required"] else f", default {param['default']!r}")


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


def param_doc(description):
    return "".join(f"{param['name']} : {kind(param)}\n{meaning(param)}" for param in description["params"])


def meaning(param):
    if param["kind"] == "map":
        return "    The map by its name, its parameters as further keywords or in the dict.\n"
    text = f"    {param['meaning']}.\n"
    if param["per_row"]:
        text += "    An array gives each row a value of its own. It broadcasts with x and has size 1 along axis.\n"
    return text


def has_per_row(description):
    return any(param["per_row"] for param in description["params"])


TYPE_ERROR = """\
An array is masked, complex or not numeric, is on another device, or requires grad; a parameter is
    of the wrong type.\
"""
