"""Completes the docstrings of functions that are written by hand, from the description and from what it cannot say.

The docstring in the source has only the latter: ``name: text`` or ``name (kind): text`` for an argument, ``Returns:``,
``Raises:``, ``TypeError:``, ``Notes:``, ``Source:``, and examples. Summary, formula, parameters and source come from the
description, what many functions say from WORDS, and what a function of tensors does not say itself from that of arrays.
"""

import inspect
import re
import textwrap

SECTIONS = ("Returns", "Raises", "Warns", "TypeError", "Notes", "Source", "Examples")
ARRAY = "NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists"
TYPES = "float16, bfloat16, float32 or float64"
TYPE_ERROR = (
    "An array is masked, complex or not numeric, is on another device, or requires grad; a parameter is of the wrong type."
)
SCORES = "Scores, of any shape with at least one axis; -inf counts as absent. Never changed."

# Arguments that are the same wherever they are: (kind, meaning). A kind without "default" gets that of the signature.
WORDS = {
    "x": ("", SCORES),
    "axis": ("int", "The axis along which scores compete; all others count rows."),
    "dim": ("int, default -1", "The axis along which scores compete; axis is another name for it."),
    "seed": ("int in [0, 2**64)", "The same seed, stream and position give the same draw in any batch."),
    "stream": (
        "int or array of integers",
        "Row r, counted as in x.reshape(-1, n) with axis last, has stream + r. An array gives each row its own: one for each "
        "row, or any that broadcasts to x's shape without axis.",
    ),
    "position": ("int", "Counts successive draws from a stream, such as the tokens of a text."),
    "size": (
        "int or None",
        "The number of draws from each row, at position, position + 1, and so on, along a new last axis. None: one draw, "
        "without this axis.",
    ),
    "labels": ("array of integers", "The class of each row, in [0, n), of shape x.shape[:-1]."),
    "sample_weight": (
        "array of shape x.shape[:-1]",
        "The weight of each row, at least 0; None: all rows have the same. A row of weight 0 is not read.",
    ),
    "ignore_index": ("int", "Rows with this label are left out, as with -100 in torch."),
}


def kind(param, default=True):
    """The allowed values of a parameter, in words, with its default."""
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
    if not default:
        return words
    return words + (", required" if param["required"] else f", default {param['default']!r}")


def meaning(param, x="x"):
    if param["kind"] == "map":
        return "The map by its name, its parameters as further keywords or in the dict."
    text = f"{param['meaning']}."
    if param["per_row"]:
        text += f" An array gives each row a value of its own. It broadcasts with {x} and has size 1 along axis."
    return text


def of_tensors(text):
    """A docstring about arrays as one about tensors."""
    text = text.replace("An array", "A tensor").replace("an array", "a tensor").replace("array", "tensor")
    return text.replace("along axis", "along dim").replace("without axis", "without dim").replace("axis last", "dim last")


def parameters(signature):
    """(name, default as source or "", whether it is only a keyword) of each parameter."""
    for one in signature:
        name = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
        default = "" if one.default is one.empty else repr(one.default).replace("'", '"').replace("e-0", "e-")
        yield name, default, one.kind is one.KEYWORD_ONLY


def parsed(text, names=None):
    """{argument or section: (kind, text)} of a docstring as in the source, for arguments of these names, or any; "" is what
    stands before them. A section that occurs again has its kind in the key: "Warns (UserWarning)"."""
    found, key = {"": ["", []]}, ""
    for line in inspect.cleandoc(text).split("\n"):
        head = re.match(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \((.*?)\))?:(?: (.*))?$", line)
        if head and (head[1] in SECTIONS or names is None or set(head[1].replace("*", "").split(", ")) <= {*names}):
            key = head[1] if head[1] not in found else f"{head[1]} ({head[2]})"
            found[key] = [head[2] or "", [head[3] or ""]]
        else:
            if line.startswith(">>>") and key != "Examples":
                key = "Examples"
                found.setdefault(key, ["", []])
            found[key][1].append(line)
    return {key: (kind, _dedent(lines, key)) for key, (kind, lines) in found.items()}


def _dedent(lines, key):
    first, rest = (lines[0], lines[1:]) if key and key != "Examples" else ("", lines)
    return f"{first}\n{textwrap.dedent(chr(10).join(rest))}".strip("\n").rstrip()


def filled(text, indent):
    """Paragraphs, wrapped; formulas and tables, which are indented, and examples stay as they are."""
    parts = []
    for part in text.split("\n\n"):
        stays = part.startswith((" ", ">>>")) or re.search(r"\n |\S {3,}\S", part)
        parts.append(part if stays else textwrap.fill(part, 120 - len(indent), break_long_words=False, break_on_hyphens=False))
    return textwrap.indent("\n\n".join(parts), indent)


def completed(text, parameters, description=None, base="", door=""):
    """The docstring of a function with these parameters, (name, default as source or "", whether it is a keyword) each; `base`
    is the docstring in the source of the function of arrays, for one of another door, "torch" or "jax"."""
    parameters = list(parameters)
    names = [name.replace("*", "") for name, *_ in parameters]
    own = parsed(text, names)
    array = parsed(base) if base else {}
    tensors = door == "torch"
    reworded = of_tensors if tensors else str
    described = {param["name"]: param for param in description["params"]} if description else {}
    parts = [f"{description['summary']}\n\n    {description['formula']}"] if description and description["summary"] else []
    parts += [filled(own[""][1], "")] if own[""][1] else []

    entries, done = [], set()
    for name, (_, default, keyword) in zip(names, parameters, strict=True):
        if name in done or (name == "axis" and "dim" in names):
            continue
        group = next((key for key in (*own, *array) if name in key.replace("*", "").split(", ")), name)
        done.update(group.replace("*", "").split(", "))
        param, usual = described.get(name), WORDS.get(name, ("", ""))
        words, about = own.get(group, ("", ""))
        words = words or reworded(array.get(group, ("",))[0] or (kind(param, False) if param else usual[0]))
        if not words and not keyword:
            words = ARRAY if not entries else "array"
        if group.startswith("**") or ", **" in group:
            words = ""
        elif keyword and not re.search("default|required", words):
            words += f", default {default}" if default else ", required"
        if ", " in group:
            words = re.sub(r"^(NumPy array|array)\b", r"\1s", words).replace("a torch CPU tensor", "torch CPU tensors")
        if tensors:
            words = re.sub("^(array|tensor)s?$", "torch.Tensor", re.sub("^NumPy .*", f"torch.Tensor of {TYPES}", words))
        elif door == "jax":
            words = re.sub("^(NumPy .*|arrays?)$", "jax.Array", words)
        if name == "dim" and "axis" in array:
            usual = usual[0], array["axis"][1].replace("all others count rows", "axis is another name for it")
        more = (
            array.get(group, ("", ""))[1]
            or usual[1]
            or (meaning(param, "the scores" if parameters[0][1] else names[0]) if param else "")
        )
        about = about or reworded(more)
        entries.append((f"{group} : {words}" if words else group) + (f"\n{filled(about, '    ')}" if about else ""))
    parts.append(_section("Parameters", "\n".join(entries)))

    words, result = own.get("Returns") or map(reworded, array.get("Returns", ("", "")))
    if result or words:
        words = words or ("torch.Tensor" if tensors else "array")
        parts.append(_section("Returns", f"{words}\n{filled(result, '    ')}"))
    raised = own.get("Raises", ("", ""))[1]
    if tensors:
        errors = "ValueError, TypeError, IndexError" if "dim" in names else "ValueError, TypeError"
        raised = f"{errors}\n{filled(f'The message names the argument. {raised}'.rstrip(), '    ')}"
    elif raised:
        refused = own.get("TypeError", ("", TYPE_ERROR))[1]
        errors = "ValueError, TypeError" if raised.startswith("As ") and "TypeError" not in own else "ValueError"
        raised = f"{errors}\n{filled(raised, '    ')}"
        raised += f"\nnumpy.exceptions.AxisError\n    {names[0]} has no such axis." if "axis" in names else ""
        raised += f"\nTypeError\n{filled(refused, '    ')}" if errors == "ValueError" else ""
    raised += "".join(f"\n{kind}\n{filled(why, '    ')}" for key, (kind, why) in own.items() if key.startswith("Raises ("))
    parts += [_section("Raises", raised)] if raised else []
    warned = [f"{kind}\n{filled(why, '    ')}" for key, (kind, why) in own.items() if re.match(r"Warns( \(|$)", key)]
    parts += [_section("Warns", "\n".join(warned))] if warned else []
    notes = [filled(own["Notes"][1], "")] if "Notes" in own else []
    source = (
        own["Source"][1] if "Source" in own else f"{description['source']}." if description and description["source"] else ""
    )
    notes += [filled(f"Source: {source}", "")] if source else []
    parts += [_section("Notes", "\n".join(notes))] if notes else []
    if "Examples" in own:
        parts.append(_section("Examples", own["Examples"][1]))
    return textwrap.indent("\n\n".join(parts), "    ").strip() + "\n    "


def _section(title, text):
    return f"{title}\n{'-' * len(title)}\n{text}"
