"""The reference of the site has every public name with its description, and nothing that is not for users."""

import os
import re
import subprocess
import sys
from pathlib import Path

import isentropic
import isentropic.torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import _reference  # noqa: E402

HEADERS = ROOT / "include/isentropic"


def described(page):
    return re.findall(r"^::::\{py:\w+\} (\w+)\(", page, flags=re.MULTILINE)


def test_every_name_of_the_packages_once():
    for page, package in ((_reference.python(), isentropic), (_reference.torch(), isentropic.torch)):
        names = described(page.split("\n## scikit-learn")[0])
        assert sorted(names) == sorted(name for name in package.__all__ if not name.startswith("__"))


def test_docstrings_become_lists_and_code():
    page = _reference.python()
    entry = page[page.index("{py:function} entmax(x, *, alpha=1.5, temperature=1.0, axis=-1, out=None)") :].split("\n::::\n")[0]
    assert "\n- `alpha` (float or array, above 0 and finite, default 1.5): order of the entropy" in entry
    assert "```text\np = argmax_p <p, x/T>" in entry
    assert "```pycon\n>>> y = isentropic.entmax(" in entry


def test_sections_that_occur_twice_are_kept():
    page = _reference.python()
    fit = page[page.index("{py:function} fit_temperature(") :].split("\n::::\n")[0]
    assert re.search(r"- `TemperatureClampedWarning`: .* is returned\.\n- `UserWarning`: Each row of scores sums to 1", fit)
    draw = page[page.index("{py:function} reliability_diagram(") :].split("\n::::\n")[0]
    assert "\n- `ValueError, TypeError`: As expected\\_calibration\\_error.\n- `ImportError`: There is no matplotlib." in draw


def test_every_declaration_of_the_headers():
    page = _reference.cpp(HEADERS)
    headings = set(re.findall(r"^### (.*)$", page.replace("\\_", "_"), flags=re.MULTILINE))
    blocks = re.findall(r"```cpp\n(.*?)```", page, flags=re.DOTALL)
    code = re.sub("//.*", "", "".join(block for block in blocks if "isentropic::" not in block))  # without the examples
    for header in HEADERS.glob("*.h"):
        text = _reference.without_macros(header.read_text())
        for name in re.findall(r"^(?:struct|class|enum class) (\w+)", text, flags=re.MULTILINE):
            assert {name, f"step::{name}", f"cuda::{name}"} & headings, f"{header.name}: {name}"
        for name in re.findall(r"^(?:void|double|float|bool|std::\S+) (\w+)\(", text, flags=re.MULTILINE):
            assert re.search(rf"\b{name}\(", code), f"{header.name}: {name}"
    assert len(headings) > 100
    assert not re.search(r"\breturn\b|kDescription|private:|NOLINT|ISENTROPIC_A", code)
    assert code.count("{") == code.count("}") and code.count("(") == code.count(")")


def test_comments_of_headers_are_kept():
    page = _reference.cpp(HEADERS)
    apply = "".join(part for part in page.split("\n### ") if part.startswith("apply\n"))  # of matrices, and of arrays
    assert "p = map(x), row by row" in apply
    assert "**Throws:** std::invalid\\_argument naming the argument" in apply
    assert "void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p" in apply
    entmax = page[page.index("\n### Entmax\n") :].split("\n### ")[1]
    assert "[entmax](../operations.md#entmax)" in entmax
    assert "```text\np = argmax_p <p, x/T> + " in entmax
    assert "struct Entmax {\n  double alpha = 1.5;      // order of the entropy: 1 is softmax" in entmax
    assert "- *-inf score*: probability exactly 0" in page


def struct_of(name, text):
    """The comment above a struct of a header, and its body."""
    space, _, name = name.rpartition("::")
    if space:
        text = text[text.index(f"\nnamespace {space} {{") :]
    found = re.search(rf"((?:^//[^\n]*\n)*)^struct {name} \{{(.*?)^\}};", text, flags=re.MULTILINE | re.DOTALL)
    return found[1], found[2]


def words(*parts):
    return " ".join(" ".join(parts).split())


def test_structs_say_in_comments_what_their_descriptions_say():
    """The formula above the struct, and the meaning beside each parameter; base, input and such are explained in the header."""
    checked = 0
    for header in HEADERS.glob("*.h"):
        declarations, _, descriptions = header.read_text().partition("// Descriptions of the operations above")
        for name, description in re.findall(
            r"^struct Described<([\w:]+)> \{\n(.*?)\n\};", descriptions, re.MULTILINE | re.DOTALL
        ):
            comment, body = struct_of(name, declarations)
            literal = r"((?:\"[^\"]*\"\s*)+)"
            formula = "".join(re.findall(r'"([^"]*)"', re.search(r"\.formula =\s*" + literal, description)[1]))
            assert words(*re.findall(r"^//   (.*)", comment, re.MULTILINE)) == words(formula), f"{header.name}: {name}"
            for param, text in re.findall(r"\.name = \"(\w+)\",\s*\.meaning =\s*" + literal, description):
                if param not in ("base", "input", "normalize", "smoothing"):
                    line = re.search(rf"((?:^  //.*\n)*)^  [\w:<>]+ {param}(?: = [^;]*)?;(?: +// (.*))?$", body, re.MULTILINE)
                    said = words(line[2] or line[1].replace("  // ", " "))
                    assert said == words("".join(re.findall(r'"([^"]*)"', text))), f"{header.name}: {name}::{param}"
                    checked += 1
    assert checked > 60


def test_examples_of_headers(tmp_path):
    """Each header begins with a call, which compiles and gives the numbers that its comment says."""
    build = Path(os.environ["ISENTROPIC_BUILD"]).resolve()
    program = """#include <isentropic/isentropic.h>
#include <cmath>
#include <cstdio>
int wrong = 0;
void check(const char* name, double got, double want) {
  if (!(std::fabs(got - want) <= 0.0051)) ++wrong, std::printf("%s is %.4f\\n", name, got);
}
void check(const char* name, const auto& got, std::initializer_list<double> want) {
  if (got.size() != want.size()) ++wrong, std::printf("%s has %zu numbers\\n", name, got.size());
  for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) check(name, got[i], want.begin()[i]);
}
"""
    main = ""
    with_example = set()
    for header in sorted(HEADERS.glob("*.h")):
        text = header.read_text()
        example = re.search(r"((?:^//   .*\n)+)", text.partition("#pragma once")[0], re.MULTILINE)
        if "struct Described<" in text and header.name not in ("describe.h", "cuda.h"):
            assert "isentropic::" in example[1], f"{header.name} does not begin with a call"
        if (
            example is None
            or "isentropic::" not in example[1]
            or header.name in ("c.h", "cuda.h", "prepared.h", "llama_sampler.h")
        ):
            continue
        with_example.add(header.name)
        name = header.stem
        code = re.sub(r"^//", "", example[1], flags=re.MULTILINE)
        code = re.sub(
            r"// ([\w.\[\]]+) = (-?[\d.]+(?:, -?[\d.]+)*)$",
            lambda m: f'\n  check("{m[1]}", {m[1]}, ' + ("{" + m[2] + "}" if "," in m[2] else m[2]) + ");",
            code,
            flags=re.MULTILINE,
        )
        program += f"void {name}() {{\n{code}}}\n"
        main += f"  {name}();\n"
    assert {"maps.h", "losses.h", "measures.h", "sampling.h", "transport.h", "matrix_view.h"} <= with_example
    source = tmp_path / "examples.cc"
    source.write_text(program + "int main() {\n" + main + "  return wrong;\n}\n")
    library = build / "tests/libisentropic_shared.so"
    flags = ["-std=c++20", f"-I{ROOT / 'include'}", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["g++", *flags, source, library, "-o", tmp_path / "examples"], check=True)
    done = subprocess.run([tmp_path / "examples"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_command():
    def run(*arguments):
        command = [os.environ["ISENTROPIC_CLI"], *arguments]
        wide = {**os.environ, "COLUMNS": "1000"}  # as docs/conf.py
        return subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout

    page = _reference.command_line(run)
    for operation in ("list", "compare", "softmax", "gamma", "entropy", "sample", "transport"):
        assert f"\n### isentropic {operation}\n" in page
    assert page.count("\n### ") == len(
        re.findall(r"^  \w[\w, ]*(?:  +[A-Z]|\n {20})", run("--help").split("Subcommands:")[1], flags=re.MULTILINE)
    )
    assert "- `--temperature NUMBER`: T, divides the scores" in page
    assert "```sh\nisentropic softmax scores.csv" in page and "Example" not in page


def test_page_of_the_command_line_without_the_site():
    """On GitHub there is no help below: its tables have every command, by group, and every option that all share."""

    def printed(*arguments):
        return subprocess.run([os.environ["ISENTROPIC_CLI"], *arguments], capture_output=True, text=True, check=True).stdout

    _, commands, options = (ROOT / "docs/reference/command_line.md").read_text().split("\n|---|---|\n")[0:3]
    said = {}
    for group, names in re.findall(r"^\| ([a-z ]+) \| (`.*) \|$", commands, flags=re.MULTILINE):
        said[group] = re.findall(r"`(\w+)`", names)
    known, group = {}, ""
    for kind, title in re.findall(r"^\.(S[SH]) (.*)$", printed("man"), flags=re.MULTILINE):
        if kind == "SH":
            group = title.lower()
        else:
            known.setdefault(group, []).append(title.removeprefix("isentropic "))
    differ = {one: (names, known.get(one)) for one, names in said.items() if names != known.get(one)}
    assert said == known, f"docs/reference/command_line.md has other commands than isentropic --help: {differ}"
    cells = re.findall(r"^\| (`-.*?) \|", options, flags=re.MULTILINE)
    # An operation without parameters.
    help_text = printed("sigsoftmax", "--help")
    assert set(re.findall(r"`(--[\w-]+)`", " ".join(cells))) == set(
        re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_text, flags=re.MULTILINE)
    )
