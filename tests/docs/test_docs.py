"""What the documents show is what happens: commands and examples run, printed pages are up to date, links lead somewhere."""

import ast
import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isentropic import _core

ROOT = Path(__file__).resolve().parents[2]
CLI = Path(os.environ["ISENTROPIC_CLI"]).resolve()
BUILD = Path(os.environ["ISENTROPIC_BUILD"]).resolve()
ENVIRONMENT = {**os.environ, "PATH": f"{CLI.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])


def run(*command, cwd=ROOT):
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A directory with only the examples, where sessions may write."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with np.printoptions():  # a session may set them
        yield tmp_path


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


def test_operations_page_is_what_the_command_prints():
    assert (ROOT / "docs/operations.md").read_text() == run("isentropic", "list", "--markdown"), (
        "isentropic list --markdown > docs/operations.md"
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


def run_commands(document, directory):
    for block in blocks(document, "sh"):
        for line in block.splitlines():
            if line.startswith("isentropic "):
                run("bash", "-c", line, cwd=directory)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_blocks_give_what_their_comments_say(document, clone):
    if any("_csv(" in block for block in blocks(document, "python")):  # of a file that the page's commands write
        run_commands(document, clone)
    names = {}
    for block in blocks(document, "python"):
        lines = block.splitlines()
        for statement in ast.parse(block).body:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(ast.unparse(statement), names)
            code, _, said = lines[statement.end_lineno - 1].partition("  # ")
            if code.startswith("print("):
                assert printed.getvalue() == said + "\n", code
            elif said.strip().startswith("["):
                shown = eval(code.split(" = ")[-1], names)
                assert [round(float(number), 4) for number in shown] == numbers(said), code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_sessions_print_what_they_say(document, clone):
    session = doctest.DocTestParser().get_doctest("".join(blocks(document, "pycon")), {}, document.name, str(document), 0)
    said = []
    assert doctest.DocTestRunner().run(session, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_print_what_they_say(document, clone):
    """Three dots on their own line stand for any lines. Blocks without output are run too."""
    for session in blocks(document, "console"):
        for command, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, flags=re.MULTILINE):
            printed = run("bash", "-c", command, cwd=clone)
            pattern = r"(?:.*\n)*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", said, flags=re.MULTILINE))
            if not re.fullmatch(pattern, printed):
                pytest.fail(f"{command} prints\n{printed}")
    run_commands(document, clone)


CPP = {path: path.read_text() for path in [*ROOT.glob("examples/*.cc"), ROOT / "tests/llama_sampler.cc"]}


def without_indent(text):
    return re.sub(r"^ +", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_cpp_blocks_are_part_of_a_program_that_is_run(document):
    for block in blocks(document, "cpp"):
        parts = without_indent(block).strip().split("\n\n")
        assert any(all(part in without_indent(program) for part in parts) for program in CPP.values()), block


@pytest.mark.parametrize(("program", "block"), [("one_of_each", 0), ("without_exceptions", 1)])
def test_the_programs_of_the_cpp_page_print_what_it_says(program, block):
    assert run(str(BUILD / "examples" / program)) == blocks(ROOT / "docs/howto/cpp.md", "text")[block]


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


def test_every_figure_has_its_script_and_its_page():
    figures = {path.stem for path in ROOT.glob("docs/figures/*.svg")}
    assert figures == {path.stem for path in ROOT.glob("docs/figures/[!_]*.py")}
    pages = "".join(document.read_text() for document in DOCUMENTS)
    assert [name for name in figures if f"figures/{name}.svg)" not in pages] == []
    data = {path.stem for path in ROOT.glob("docs/figures/data/*")}
    assert data == {name for name in figures if f'kept("{name}")' in (ROOT / f"docs/figures/{name}.py").read_text()}
    assert [name for name in data if not any(f'keep("{name}"' in p.read_text() for p in ROOT.glob("docs/evidence/*.py"))] == []


def test_speeds_in_the_readme_are_results():
    """Each number of its tables stands in bench/RESULTS.md, perhaps with more digits."""
    measured = {float(number) for number in re.findall(r"\d+\.\d+", (ROOT / "bench/RESULTS.md").read_text())}
    section = (ROOT / "README.md").read_text().split("## How fast")[1].split("## ")[0]
    said = [number for row in re.findall(r"^\| .*", section, flags=re.MULTILINE) for number in re.findall(r"\b\d+\.\d+\b", row)]
    assert len(said) > 20
    for number in said:
        digits = len(number.partition(".")[2])
        assert any(round(result, digits) == float(number) for result in measured), number


def test_version_is_one():
    header = (ROOT / "include/isentropic/version.h").read_text()
    version = ".".join(re.findall(r"#define ISENTROPIC_VERSION_\w+ (\d+)", header))
    suffix = re.search(r'VERSION_SUFFIX "(.*)"', header)[1]
    assert run("isentropic", "--version").split()[-1] == _core.__version__ == version + suffix
    assert f"## {version}{' (in development)' if suffix else ''}\n" in (ROOT / "CHANGELOG.md").read_text()
