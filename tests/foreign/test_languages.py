"""isentropic/c.h from languages whose compilers are large, each where it is installed. ISENTROPIC_BUILD is a build."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/other_languages"
LIBRARY = Path(os.environ.get("ISENTROPIC_BUILD", ROOT / "build/release")).resolve() / "tests/libisentropic_shared.so"
SAID = """0.7635 0.2057 0.0309 0.0000 entropy 0.6387
softmax: temperature must be above 0 and finite, got -1
"""
LINK = ["-L", LIBRARY.parent, "-lisentropic_shared", f"-Wl,-rpath,{LIBRARY.parent}"]


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_node(tmp_path):
    header = Path("/usr/include/node/node_api.h")
    if not (shutil.which("node") and header.exists()):
        pytest.skip("Node and its headers are not installed: apt-get install nodejs libnode-dev")
    addon = tmp_path / "first_steps.node"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT / 'include'}", f"-I{header.parent}"]
    run("gcc", *flags, EXAMPLES / "first_steps_node.c", *LINK, "-o", addon)
    assert run("node", EXAMPLES / "first_steps.js", env={**os.environ, "ISENTROPIC_NODE": str(addon)}) == SAID


def test_go(tmp_path):
    if not shutil.which("go"):
        pytest.skip("Go is not installed: apt-get install golang-go")
    env = {
        **os.environ,
        "CGO_CFLAGS": f"-I{ROOT / 'include'}",
        "CGO_LDFLAGS": " ".join(map(str, LINK)),
        "CGO_LDFLAGS_ALLOW": ".*",
        "GOCACHE": str(tmp_path / "cache"),
        "GO111MODULE": "off",
    }
    run("go", "vet", EXAMPLES / "first_steps.go", env=env)
    assert run("go", "run", EXAMPLES / "first_steps.go", env=env) == SAID
