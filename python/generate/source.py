"""Python source of functions and classes: a signature is written once, and becomes a definition or a stub."""

import textwrap
from typing import NamedTuple

WIDTH = 110


class Argument(NamedTuple):
    """An argument in a signature: its name, its default as source or "" for none, its type as source."""

    name: str
    default: str = ""
    type: str = ""

    def text(self, typed):
        if not typed:
            return f"{self.name}={self.default}" if self.default else self.name
        return f"{self.name}: {self.type}" + (f" = {self.default}" if self.default else "")


class Signature(NamedTuple):
    """Arrays first, then keywords; `rest` is the name of the parameter that takes all other keywords."""

    arrays: list
    keywords: tuple = ()
    rest: Argument | None = None
    positional_only: bool = False

    def text(self, typed, first=()):
        parts = [*first, *(array.text(typed) for array in self.arrays)]
        parts += ["/"] if self.positional_only else []
        parts += ["*", *(keyword.text(typed) for keyword in self.keywords)] if self.keywords else []
        parts += [f"**{self.rest.text(typed)}"] if self.rest else []
        return parts

    def with_types(self, **types):
        """The signature with other types of arguments."""
        arrays, keywords = (
            [argument._replace(type=types.get(argument.name, argument.type)) for argument in arguments]
            for arguments in (self.arrays, self.keywords)
        )
        return self._replace(arrays=arrays, keywords=keywords)


def define(name, signature, body, doc):
    """def name(...), with its docstring."""
    return f"{head(name, signature.text(False))}:\n{docstring(doc)}\n{textwrap.indent(body, '    ')}\n"


def stub(name, signature, returns, first=()):
    return f"{head(name, signature.text(True, first))} -> {returns}: ...\n"


def docstring(doc, indent="    "):
    lines = textwrap.indent(doc.strip() + "\n", indent)
    return f'{indent}{"r" * (chr(92) in doc)}"""{lines.strip()}\n{indent}"""'


def head(name, parts):
    """def name(...), with one argument on each line if the line would be long."""
    line = f"def {name}({', '.join(parts)})"
    if len(line) <= WIDTH:
        return line
    return f"def {name}(\n" + "".join(f"    {part},\n" for part in parts) + ")"
