"""Numbers that take long to compute, kept beside the figures that are drawn from them: docs/figures/data/NAME.json."""

import json
import math
from pathlib import Path

DATA = Path(__file__).parent / "data"


def rounded(value):
    """The same with five significant digits."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if hasattr(value, "tolist"):
        return rounded(value.tolist())
    return float(f"{value:.5g}") if isinstance(value, float) and math.isfinite(value) else value


def keep(name, numbers):
    """Writes NAME.json, a line for each curve: docs/figures/NAME.py draws it."""
    (DATA / f"{name}.json").write_text(lines(rounded(numbers)) + "\n")


def lines(value, indent=""):
    """JSON with a list in one line."""
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = indent + "  "
    parts = (f"{inner}{json.dumps(key)}: {lines(part, inner)}" for key, part in value.items())
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def kept(name):
    return json.loads((DATA / f"{name}.json").read_text())
