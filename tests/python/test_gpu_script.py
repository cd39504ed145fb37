"""scripts/gpu as far as it goes without a GPU: a bundle of the emulated library is made, unpacked and run on the host."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic

ROOT = Path(__file__).resolve().parents[2]
BUILT = sorted(ROOT.glob("build/*/tests/libisentropic_cuda_emulated.so"), key=os.path.getmtime)

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the emulated library is not built: cmake --build ... isentropic_cuda_emulated"),
    pytest.mark.skipif(isentropic.simd_target() in ("SSE4", "SSE2", "EMU128", "SCALAR"), reason="bits are those of FMA"),
]


def run(*command, check=True):
    return subprocess.run([sys.executable, *map(str, command)], text=True, capture_output=True, check=check)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    wheel = folder / "peer-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    target = folder / "bundle.tar.gz"
    done = run(ROOT / "scripts/gpu", "bundle", target, "--small", "--library", BUILT[-1], "--wheel", wheel)
    assert "python3 isentropic-gpu/gpu run" in done.stderr
    with tarfile.open(target) as archive:
        archive.extractall(folder)
    return folder / "isentropic-gpu"


def test_a_bundle_has_what_a_run_needs(bundle):
    names = {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    wheel = "wheels/peer-1.0-py3-none-any.whl"
    assert names == {"gpu", "libisentropic_cuda.so", "expected.json", "expected.bin", wheel}
    cases = json.loads((bundle / "expected.json").read_text())
    assert {"softmax", "entmax", "softmax_loss", "kl_divergence", "sampler_sample"} <= {case["operation"] for case in cases}


def test_a_run_compares_every_number(bundle, tmp_path):
    report = tmp_path / "report.json"
    done = run(bundle / "gpu", "run", "--host", "--out", report)
    found = json.loads(report.read_text())
    assert json.loads(done.stdout) == found
    checks = found["checks"]
    assert checks["calls"] > 300 and checks["numbers"] > 50_000
    assert checks["differ"] == 0 and checks["failures"] == [] and checks["left out"] == 0
    assert [sum(column) for column in zip(*checks["operations"].values(), strict=True)] == [
        checks["calls"],
        checks["numbers"],
        0,
    ]
    assert f"calls: {checks['calls']}, numbers: {checks['numbers']}, differ: 0" in done.stderr


def test_many_rows_are_compared_with_few():
    import torch

    loader = SourceFileLoader("gpu_script", str(ROOT / "scripts/gpu"))
    script = module_from_spec(spec_from_loader("gpu_script", loader))
    loader.exec_module(script)
    library, x = script.Library(BUILT[-1], torch.device("cpu")), torch.randn(130, 70)
    indices, value = torch.empty(130, 1, dtype=torch.int64), torch.empty(130, dtype=torch.float64)
    loss = {"target": torch.zeros(130, dtype=torch.int64), "value": value, "dx": torch.empty(130, 70)}
    for operation, parameters, more, result in (
        ("entmax", {}, {"y": torch.empty(130, 70)}, "y"),
        ("sample", {"seed": 1}, {"indices": indices}, "indices"),
        ("softmax_loss", {}, loss, "dx"),
    ):
        tensors = {"x": x} | more
        library.prepared(operation, parameters, tensors)()
        assert script.differ_from_few(library, operation, parameters, tensors, result) == 0
        tensors[result][1 if operation == "sample" else -1, 0] += 1
        assert script.differ_from_few(library, operation, parameters, tensors, result) == 1


def test_a_bit_that_differs_is_found(bundle):
    data = bundle / "expected.bin"
    cases = [case for case in json.loads((bundle / "expected.json").read_text()) if case["operation"] == "taylor_softmax"]
    array = next(array for array in cases[1]["arrays"] if array["output"])
    before = data.read_bytes()
    changed = bytearray(before)
    changed[array["at"]] ^= 1
    data.write_bytes(changed)
    done = run(bundle / "gpu", "run", "--host", "--only", "taylor_softmax", check=False)
    data.write_bytes(before)
    assert done.returncode == 1
    assert "1 of" in json.loads(done.stdout)["checks"]["failures"][0]


# A library whose sparsemax does not return, or ends the process; all else is the real one's.
FAULTY = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void* real(const char* name) { return dlsym(dlopen(REAL, RTLD_NOW), name); }
size_t isentropic_cuda_memory(const char* name, const char* parameters, size_t rows, size_t cols, int32_t type) {
  return ((size_t(*)(const char*, const char*, size_t, size_t, int32_t))real(__func__))(name, parameters, rows, cols, type);
}
typedef int32_t Run(const char*, const char*, void*, size_t, void*, size_t, void*);
#define RUN(function) \\
  int32_t function(const char* name, const char* text, void* arrays, size_t count, void* at, size_t size, void* stream) { \\
    if (strcmp(name, "sparsemax") == 0) FAULT; \\
    return ((Run*)real(#function))(name, text, arrays, count, at, size, stream); \\
  }
RUN(isentropic_cuda_run)
RUN(isentropic_cuda_vjp)
const char* isentropic_cuda_last_error(void) { return ((const char* (*)(void))real(__func__))(); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    "fault, said",
    [
        ("sleep(1000)", "did not end within 4 s"),
        ('fputs("first\\nthe end\\n", stderr), abort()', "ended the process with signal 6: the end"),
        ("_exit(7)", "ended the process with code 7: nothing on standard error"),
    ],
)
def test_a_call_that_does_not_return_ends_no_other(bundle, tmp_path, fault, said):
    folder = shutil.copytree(bundle, tmp_path / "bundle")
    (folder / "libisentropic_cuda.so").rename(folder / "real.so")
    source = tmp_path / "faulty.c"
    source.write_text(FAULTY)
    defined = [f'-DREAL="{folder / "real.so"}"', f"-DFAULT={fault}"]
    subprocess.run(["gcc", "-shared", "-fPIC", *defined, source, "-o", folder / "libisentropic_cuda.so", "-ldl"], check=True)
    done = run(folder / "gpu", "run", "--host", "--only", "softmax,sparsemax", "--patience", "0.2", check=False)
    checks = json.loads(done.stdout)["checks"]
    cases = [case["operation"] for case in json.loads((folder / "expected.json").read_text())]
    expected = {name: cases.count(name) // 2 for name in ("softmax", "sparsemax")}
    assert done.returncode == 1
    assert len(checks["failures"]) == 4 and all(said in failure for failure in checks["failures"]), checks["failures"]
    assert sorted(failure.split()[0] for failure in checks["failures"]) == 2 * ["sparsemax"] + 2 * ["sparsemax_vjp"]
    assert checks["left out"] == 2 * expected["sparsemax"] - 4
    for name in ("softmax", "softmax_vjp"):
        calls, numbers, differ = checks["operations"][name]
        assert calls == expected[name.removesuffix("_vjp")] and numbers > 0 and differ == 0
    assert checks["operations"]["sparsemax"] == [2, 0, 0]
    assert said in done.stderr


def test_checks_can_be_left_out(bundle):
    checks = json.loads(run(bundle / "gpu", "run", "--host", "--no-checks").stdout)["checks"]
    assert checks["calls"] == 0 and checks["left out"] == 0


def test_without_a_gpu_it_says_so(bundle):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = run(bundle / "gpu", "run", check=False)
    assert done.returncode == 3 and "there is no GPU" in done.stderr and done.stdout == ""


def test_what_is_missing_is_named(tmp_path):
    done = run(ROOT / "scripts/gpu", "run", tmp_path, check=False)
    assert done.returncode == 1 and "must be an unpacked bundle, it has no libisentropic_cuda.so" in done.stderr
