"""What the documents show is what happens: commands and examples run, printed pages are up to date, links lead somewhere."""

import ast
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from entropic import _core

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ["ENTROPIC_CLI"]).resolve()
BUILD = Path(os.environ["ENTROPIC_BUILD"]).resolve()
ENVIRONMENT = {**os.environ, "PATH": f"{CLI.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, check=False, **kwargs)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


def test_operations_page_is_what_the_command_prints():
    assert (ROOT / "docs/operations.md").read_text() == run("entropic", "list", "--markdown"), (
        "entropic list --markdown > docs/operations.md"
    )


def test_examples_agree():
    from_python = run(sys.executable, "examples/first_steps.py")
    from_cpp = run(str(BUILD / "examples/first_steps"))
    assert numbers(from_python) == numbers(from_cpp)
    assert len(numbers(from_cpp)) == 15
    from_shell = run("bash", "examples/first_steps.sh")
    assert [round(number, 4) for number in numbers(from_shell)[:5]] == numbers(from_cpp)[:5]


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_give_what_their_comments_say(document):
    names = {}
    for block in blocks(document, "python"):
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            exec(ast.unparse(statement), names)
            code, _, said = lines[statement.end_lineno - 1].partition("  # ")
            if said.strip().startswith("["):
                shown = eval(code.split(" = ")[-1], names)
                assert [round(float(number), 4) for number in shown] == numbers(said), code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_sessions_print_what_they_say(document):
    session = doctest.DocTestParser().get_doctest("".join(blocks(document, "pycon")), {}, document.name, str(document), 0)
    said = []
    assert doctest.DocTestRunner().run(session, out=said.append).failed == 0, "".join(said)


def headings(document):
    """The anchors that GitHub gives a document's headings."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", prose):
        if "://" not in target:
            there = document.parent / target if target else document
            assert there.exists(), f"{document.name} points to {target}"
            assert not anchor or anchor in headings(there), f"{document.name} points to {target}#{anchor}"


def test_table_of_laws_is_what_the_maps_declare():
    rows = re.findall(r"^\| \[`(\w+)`\]\S* \| (.*?) \|$", (ROOT / "docs/math/maps.md").read_text(), flags=re.MULTILINE)
    said = {name: cells.split(" | ")[:4] for name, cells in rows}
    for operation in _core.operations():
        if operation["name"] in said:
            laws = operation["laws"]
            words = ["yes" if laws[law] else "no" for law in ("shift", "order", "sparse")]
            words.insert(2, "by index" if laws["ties_by_index"] else "equal")
            assert said[operation["name"]] == words, operation["name"]
    assert len(said) > 7


def test_readme_commands_exist():
    for block in blocks(ROOT / "README.md", "sh"):
        for line in block.splitlines():
            if line.startswith("scripts/"):
                assert os.access(ROOT / line.split()[0], os.X_OK), line


def test_version_is_one():
    version = re.search(r'ENTROPIC_VERSION "([^"]+)"', (ROOT / "include/entropic/entropic.h").read_text()).group(1)
    assert f"VERSION {version} " in (ROOT / "CMakeLists.txt").read_text()
    assert run("entropic", "--version").split()[-1] == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
