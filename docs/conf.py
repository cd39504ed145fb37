"""The site of the documents: the files that are read on GitHub, and a reference from the code. Built by scripts/docs."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))
import _reference  # noqa: E402

project = "isentropic"
release = _reference.version(ROOT / "include/isentropic")
smartquotes = False  # options begin with two hyphens
html_title = f"isentropic {release}"

# The root of the sources is that of the repository, so that links between pages are those of the files.
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/**.md"]
exclude_patterns = ["build", ".venv", ".cache", "**/__pycache__"]

extensions = ["myst_parser", "sphinx-mathjax-offline"]  # formulas without a network
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
nitpicky = True  # a link that leads nowhere is a warning, and scripts/docs makes warnings errors
suppress_warnings = ["myst.header"]  # in the reference, docstrings have no headings of their own

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
pygments_dark_style = "github-dark"


def contents(index):
    """The index with the tables of contents that its lists of links are."""
    made = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n")
        pages = [f"{name} <{page}>" for name, page in re.findall(r"^- \[([^]]*)\]\(([^)#]+)\.md\)", rest, flags=re.MULTILINE)]
        if pages:
            made.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""]))
    return index + "\n" + "\n".join(made)


def command(*arguments):
    wide = {**os.environ, "COLUMNS": "1000"}  # help is not folded
    return subprocess.run(
        [os.environ["ISENTROPIC_CLI"], *arguments], check=True, capture_output=True, text=True, env=wide
    ).stdout


def complete(app, page, source):
    """Pages of the reference are introductions in the repository; the site has the rest."""
    made = {
        "docs/index": contents,
        "docs/reference/python": lambda text: text + _reference.python(),
        "docs/reference/torch": lambda text: text + _reference.torch(),
        "docs/reference/cpp": lambda text: text + _reference.cpp(ROOT / "include/isentropic"),
        "docs/reference/command_line": lambda text: text + _reference.command_line(command),
    }.get(page)
    if made is not None:
        source[0] = made(source[0])


def setup(app):
    app.connect("source-read", complete)
