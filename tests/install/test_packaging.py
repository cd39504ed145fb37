"""The files for packagers agree with the sources."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "include/isentropic/version.h").read_text()
NUMBERS = re.findall(r"#define ISENTROPIC_VERSION_\w+ (\d+)", HEADER)
VERSION = ".".join(NUMBERS) + re.search(r'VERSION_SUFFIX "(.*)"', HEADER)[1]
ABI = ".".join(NUMBERS[:2])
FETCHED = dict(re.findall(r"isentropic_fetch\(\w+ (\S+) ([0-9a-f]{64})\)", (ROOT / "cmake/dependencies.cmake").read_text()))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("CITATION.cff", "version: {version}\n"),
        ("packaging/conda/meta.yaml", 'version = "{version}"'),
        ("packaging/vcpkg/vcpkg.json", '"version-string": "{version}"'),
        ("packaging/debian/changelog", "isentropic ({debian}-1)"),
        ("packaging/debian/control", "Package: libisentropic{abi}\n"),
        ("packaging/sbom.cdx.json", '"version": "{version}"'),
        ("packaging/cuda/pyproject.toml", '"isentropic>={abi}.'),
    ],
)
def test_versions(file, words):
    assert words.format(version=VERSION, debian=VERSION.replace(".dev", "~dev"), abi=ABI) in (ROOT / file).read_text()


def test_bill_of_materials_lists_what_is_fetched():
    listed = json.loads((ROOT / "packaging/sbom.cdx.json").read_text())
    where = "https://deb.debian.org/debian/pool/main/"
    found = {
        one["externalReferences"][0]["url"].removeprefix(where): one["hashes"][0]["content"]
        for one in listed["components"]
        if "hashes" in one
    }
    assert found == FETCHED and len(FETCHED) == 7
    for one in listed["components"]:
        if "hashes" in one:
            assert f"_{one['version']}" in one["externalReferences"][0]["url"]
            assert one["licenses"]


def test_what_is_fetched_brings_its_license():
    names = set(re.findall(r"isentropic_fetch\((\w+) \S+ [0-9a-f]{64}\)", (ROOT / "cmake/dependencies.cmake").read_text()))
    listed = re.search(r"foreach\(archive ([^)]*)\)", (ROOT / "python/CMakeLists.txt").read_text())[1]
    assert set(listed.split()) == names


def test_a_wrong_archive_is_refused(tmp_path):
    """Archives in ISENTROPIC_ARCHIVES are checked like downloaded ones."""
    for path in FETCHED:
        (tmp_path / path.rpartition("/")[2]).write_bytes(b"something else")
    options = ["-DISENTROPIC_FETCH=ALL", f"-DISENTROPIC_ARCHIVES={tmp_path}", "-DISENTROPIC_TESTS=OFF", "-DISENTROPIC_CLI=OFF"]
    command = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "hash" in done.stderr.lower(), done.stderr


def test_all_scripts_can_be_run():
    for file in (ROOT / "scripts").iterdir():
        assert file.suffix or file.stat().st_mode & 0o111, file
