"""The library as other projects take it: installed, as part of theirs, shared. ISENTROPIC_BUILD is a build of it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ["ISENTROPIC_BUILD"]).resolve()
VERSION = re.findall(r"#define ISENTROPIC_VERSION_\w+ (\d+)", (ROOT / "include/isentropic/version.h").read_text())
# llama_sampler.h includes llama.cpp's; c.h is C.
HEADERS = sorted(
    file.name for file in (ROOT / "include/isentropic").glob("*.h") if file.name not in {"llama_sampler.h", "c.h", "cuda_c.h"}
)
ABI = "v{}_{}".format(*VERSION)


def run(*command, check=True, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout if check else done


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """Installed, and then moved."""
    first = tmp_path_factory.mktemp("prefix") / "first"
    run("cmake", "--install", BUILD, "--prefix", first)
    return first.rename(first.with_name("moved"))


def test_found_by_cmake(prefix, tmp_path):
    run("cmake", "-S", HERE, "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    run(tmp_path / "consumer")


def test_found_by_pkg_config(prefix, tmp_path):
    where = {**os.environ, "PKG_CONFIG_PATH": str(next(prefix.rglob("isentropic.pc")).parent)}
    flags = run("pkg-config", "--cflags", "--libs", "isentropic", env=where).split()
    assert run("pkg-config", "--modversion", "isentropic", env=where).strip() == ".".join(VERSION)
    run("g++", "-std=c++20", HERE / "consumer.cc", *flags, "-o", tmp_path / "consumer")
    run(tmp_path / "consumer")


def test_what_is_installed(prefix):
    files = files_of(prefix)
    assert {f"include/isentropic/{header.name}" for header in (ROOT / "include/isentropic").glob("*.h")} <= files
    assert (prefix / "share/doc/isentropic/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert not [name for name in files if "src/" in name or "-inl.h" in name]
    shells = {
        "bash-completion/completions/isentropic",
        "fish/vendor_completions.d/isentropic.fish",
        "zsh/site-functions/_isentropic",
    }
    assert {f"share/{name}" for name in {*shells, "man/man1/isentropic.1"}} <= files


@pytest.mark.parametrize(("minor", "fits"), [(0, True), (-1, False), (1, False)])
@pytest.mark.parametrize("patch", ["", "." + VERSION[2]])
def test_versions_that_fit(prefix, tmp_path, minor, patch, fits):
    """A minor version is an ABI as long as the major one is 0."""
    assert VERSION[0] == "0"
    wanted = f"0.{int(VERSION[1]) + minor}{patch}"
    project = f"cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\nfind_package(isentropic {wanted} REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(project)
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", check=False)
    assert (done.returncode == 0) == fits, done.stderr


@pytest.mark.parametrize(
    ("components", "found"), [("library", True), ("library program", True), ("program", True), ("server", False)]
)
def test_components(prefix, tmp_path, components, found):
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(p LANGUAGES CXX)"]
    lines.append(f"find_package(isentropic REQUIRED COMPONENTS {components})")
    if found and "program" in components:
        lines += [
            "get_target_property(file isentropic::program IMPORTED_LOCATION)",
            'execute_process(COMMAND "${file}" --version)',
        ]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    done = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", check=False)
    assert (done.returncode == 0) == found, done.stderr
    assert ("program" not in components) or ".".join(VERSION) in done.stdout


@pytest.mark.parametrize("fetched", ["OFF", "ON"])
def test_part_of_another_project_installs_nothing(tmp_path, fetched):
    project, options = HERE / "part_of_another", [f"-DISENTROPIC_SOURCE={ROOT}", f"-DFETCHED={fetched}"]
    run("cmake", "-S", project, "-B", tmp_path / "build", "-G", "Ninja", *options)
    targets = run("ninja", "-C", tmp_path / "build", "-t", "targets", "all")
    assert "libisentropic.a" in targets and "isentropic_cli" not in targets and "maps_test" not in targets
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "prefix")
    assert files_of(tmp_path / "prefix") == {"parent/consumer.cc"}


def test_shared_library_asks_for_nothing_else(tmp_path):
    options = ["-DBUILD_SHARED_LIBS=ON", "-DISENTROPIC_TESTS=OFF", "-DISENTROPIC_CLI=OFF"]
    run("cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *options)
    libs = re.search(r"^Libs: (.*)", (tmp_path / "isentropic.pc").read_text(), flags=re.MULTILINE)[1]
    assert libs.split() == ["-L${libdir}", "-lisentropic"]
    assert 'if(NOT "ON")\n  if(NOT "OFF")\n    find_dependency(' in (tmp_path / "isentropic-config.cmake").read_text()
    assert f"SONAME = libisentropic.so.{'.'.join(VERSION[:2])}\n" in (tmp_path / "build.ninja").read_text()


# What a shared library exports.


def public_names():
    """(functions, classes) that the headers mark with ISENTROPIC_API, and those of c.h. cuda*.h are of another library."""
    others = ("export.h", "cuda.h", "cuda_c.h")
    text = "".join(header.read_text() for header in (ROOT / "include/isentropic").glob("*.h") if header.name not in others)
    functions = re.findall(r"^ISENTROPIC_API [^(]*?\b(\w+)\(", text, flags=re.MULTILINE)
    functions += re.findall(r"^ISENTROPIC_C_API [^(]*?\b(\w+)\(", text, flags=re.MULTILINE)
    return set(functions), set(re.findall(r"^(?:class|struct) ISENTROPIC_API (\w+)", text, flags=re.MULTILINE))


def exported(library):
    """(name, what it is in C or in isentropic's namespace, or None) of each symbol. Mangled, as types are no part of that."""
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        name = line.split()[-1]
        match = re.match(rf"_Z(?:T[ISV])?NK?10isentropic{len(ABI)}{ABI}(\d+)", name)
        of_c = name if name.startswith("isentropic_") else None
        yield name, name[match.end() : match.end() + int(match[1])] if match else of_c


def test_exports_what_is_public_and_nothing_else():
    functions, classes = public_names()
    assert len(functions) > 30 and {"Sampler", "Counts", "RowError"} <= classes
    found = dict(exported(BUILD / "tests/libisentropic_shared.so"))
    assert [name for name, what in found.items() if what not in functions | classes] == []
    assert functions - set(found.values()) == set()


def test_shared_library_is_enough(tmp_path):
    """Every function that a program of each family calls is there, and its exceptions are caught."""
    library = BUILD / "tests/libisentropic_shared.so"
    program = tmp_path / "one_of_each"
    flags = ["-std=c++20", "-fvisibility=hidden", f"-I{ROOT / 'include'}", f"-Wl,-rpath,{library.parent}"]
    run("g++", *flags, ROOT / "examples/one_of_each.cc", library, "-o", program)
    assert run(program) == run(BUILD / "examples/one_of_each")


@pytest.mark.parametrize("header", HEADERS)
def test_an_older_standard_is_refused_in_one_line(header, tmp_path):
    source = tmp_path / "old.cc"
    source.write_text(f"#include <isentropic/{header}>\n")
    done = run("g++", "-std=c++17", "-fsyntax-only", f"-I{ROOT / 'include'}", source, check=False)
    said = 'error: #error "isentropic needs C++20: compile with -std=c++20 or later"'
    assert re.findall(r"error: .*", done.stderr) == [said]


def test_headers_stand_alone():
    """Each can be the only one that a program includes."""
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", f"-I{ROOT / 'include'}", "-x", "c++"]
    for header in HEADERS:
        run("g++", *flags, "-include", ROOT / "include/isentropic" / header, "/dev/null")


@pytest.mark.parametrize(("flags", "said"), [((), "warning: "), (("-DISENTROPIC_NO_DEPRECATED",), "error: ")])
def test_deprecated_names_warn_where_they_are_used(tmp_path, flags, said):
    source = tmp_path / "old.cc"
    source.write_text(
        '#include <isentropic/deprecation.h>\nISENTROPIC_DEPRECATED("0.3", "use f()") void g();\nint main() { g(); }\n'
    )
    done = run("g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", *flags, source, check=False)
    found = [line for line in done.stderr.splitlines() if said in line]
    assert found, done.stderr
    for line in found:
        assert "old.cc:3" in line and "deprecated since isentropic 0.3: use f()" in line
