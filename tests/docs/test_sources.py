"""The sources as one thing: what includes what, which files are long, and the changes of tests/mutations."""

import graphlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACKED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\0")
pytestmark = pytest.mark.skipif(TRACKED == [""], reason="this is no git checkout")
SOURCES = [name for name in TRACKED if re.search(r"\.(h|cc|cu|inc)$", name)]


def included(name):
    """The files of this tree that a file includes by name in quotes or as <isentropic/...>."""
    file = ROOT / name
    found = set()
    for words in re.findall(r'^[ \t]*#[ \t]*include [<"]([^">]+)[">]', file.read_text(), flags=re.MULTILINE):
        places = (file.parent / words, ROOT / words, ROOT / "include" / words)
        for place in places:
            if place.is_file():
                found.add(str(place.resolve().relative_to(ROOT)))
                break
    return found


INCLUDES = {name: included(name) for name in SOURCES}
assert not SOURCES or sum(map(len, INCLUDES.values())) > 500


def family(name):
    """The folder of a file of the library, by which src/rows and src/search, which use each other, are one."""
    parts = name.split("/")
    if parts[0] != "src" or len(parts) == 2:
        return parts[0]
    return "rows" if parts[1] == "search" else parts[1]


def test_no_circle_of_includes():
    # A file of kernels includes itself, once for each SIMD target.
    tuple(graphlib.TopologicalSorter({name: found - {name} for name, found in INCLUDES.items()}).static_order())


def test_no_circle_of_families():
    graph = {}
    for name, found in INCLUDES.items():
        if name.startswith("src/"):
            graph.setdefault(family(name), set()).update(map(family, found))
    tuple(graphlib.TopologicalSorter({one: others - {one} for one, others in graph.items()}).static_order())


def test_module_uses_the_stable_abi():
    """From Python 3.12 on, the module is built for Python's stable ABI, which has no macros such as PyList_GET_SIZE."""
    macros = re.compile(r"\bPy[A-Za-z]+_(?:[A-Za-z]+_)?[A-Z]{2,}[A-Z_]*\(")
    sources = [name for name in SOURCES if name.startswith("python/")]
    assert len(sources) > 5 and macros.search("PySequence_Fast_GET_SIZE(x)") and macros.search("PyList_GET_ITEM(x, 0)")
    assert not {name: found for name in sources if (found := macros.findall((ROOT / name).read_text()))}


def test_doors_include_what_is_public():
    """cli, files and python include the library's public headers, files, and from_chars.h, which a C++ library may lack."""
    for name, found in INCLUDES.items():
        door = name.split("/")[0]
        if door in ("cli", "files", "python"):
            allowed = ("include/", "files/", f"{door}/", "src/from_chars.h")
            assert all(one.startswith(allowed) for one in found), f"{name}: {sorted(found)}"
        if name.startswith("include/"):
            assert all(one.startswith("include/") for one in found), f"{name}: {sorted(found)}"


def test_families_of_rows_have_one_layout():
    """docs/internals.md has it. What is compiled for every SIMD target is in -inl.h, and the .cc files include all of it."""
    families = {name.split("/")[1] for name in SOURCES if re.fullmatch(r"src/\w+/rows-inl\.h", name)} - {"cuda"}
    assert families == {"attention", "entropy_control", "losses", "maps", "measures", "sampling"}
    for one in families:
        folder = f"src/{one}/"
        assert {folder + name for name in (f"{one}.cc", "kernels.h", "all-inl.h")} <= set(SOURCES)
        reached, wanted = set(), {name for name in SOURCES if re.fullmatch(rf"{folder}\w+\.cc", name)}
        while wanted:
            reached |= wanted
            wanted = {name for of in wanted for name in INCLUDES[of] if name.startswith(folder)} - reached
        assert reached >= {name for name in SOURCES if name.startswith(folder) and name.endswith("-inl.h")}
        for name in SOURCES:
            if name.startswith(folder) and name.endswith(".cc"):
                target = re.search("HWY_NAMESPACE {\n(.*?)}  // namespace HWY_NAMESPACE", (ROOT / name).read_text(), re.DOTALL)
                lines = r"(\s*(//.*|(ISENTROPIC_(KERNELS|COMPILE_\w+)\(.*\)|(extern )?template struct .*);))*\s*"
                assert target is None or re.fullmatch(lines, target[1]), name


def test_long_files_are_listed_with_their_reason():
    page = (ROOT / "docs/internals.md").read_text()
    table = page[page.index("These files have more than 500 lines") :].split("\n## ")[0]
    listed = set(re.findall(r"^\| `([^`]+)`", table, flags=re.MULTILINE))
    others = ("tests/", "bench/", "docs/", "include/")
    kinds = re.compile(r"\.(h|cc|cu|inc|py|js)$|^scripts/[\w-]+$")
    long = {
        name
        for name in TRACKED
        if kinds.search(name) and not name.startswith(others) and len((ROOT / name).read_text().splitlines()) > 500
    }
    assert listed == long


def mutations():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    return tomllib.loads((ROOT / "tests/mutations/mutations.toml").read_text())["mutation"]


def test_every_change_of_the_mutations_can_be_made():
    all_of_them = mutations()
    assert len({one["name"] for one in all_of_them}) == len(all_of_them) >= 40
    for one in all_of_them:
        assert set(one) == {"name", "what", "file", "original", "changed", "tests"}, one["name"]
        assert one["file"] in TRACKED, one["name"]
        count = (ROOT / one["file"]).read_text().count(one["original"])
        assert count == 1, f"{one['name']}: what it changes is {count} times in {one['file']}"
        assert one["changed"] != one["original"], one["name"]
        program, *words = one["tests"].split()
        if program == "pytest":
            files = [word for word in words if word.startswith("tests/")]
            assert files and all((ROOT / name).is_file() for name in files), one["name"]
        else:
            assert (ROOT / f"tests/{program}.cc").is_file(), one["name"]


def test_nothing_has_another_projects_notice():
    """What others wrote is linked or installed, never copied; their interfaces are declared (tests/python/test_layouts.py)."""
    notice = re.compile("Copy" + r"right\b|Licensed" + " under|SPDX" + "-License|All rights" + " reserved|[Cc]opied" + " from")
    ours = {"LICENSE", "packaging/debian/copyright"}
    found = [name for name in filter(None, TRACKED) if notice.search((ROOT / name).read_text(errors="replace"))]
    assert set(found) == ours


def test_the_old_name_is_gone():
    """The project had a name that another package on PyPI has. One line of the changelog says so."""
    old = re.compile("(?<!is)" + "en" + "tropic", flags=re.IGNORECASE)
    found = [name for name in TRACKED if old.search(name)]
    for name in filter(None, TRACKED):
        for line in (ROOT / name).read_text(errors="replace").split("\n"):
            if old.search(line):
                found.append(f"{name}: {line}")
    assert len(found) == 1 and found[0].startswith("CHANGELOG.md: - **The name** is isentropic;"), found
