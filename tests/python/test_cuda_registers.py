"""scripts/cuda-registers reads what ptxas reports, without nvcc."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/cuda-registers"
REPORT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3foov' for 'sm_90'
ptxas info    : Function properties for _Z3foov
    240 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 115 registers, used 1 barriers, 260 bytes cumulative stack size
ptxas info    : Compile time = 31562.486 ms
ptxas info    : Function properties for _Z3barv
    0 bytes stack frame, 2 bytes spill stores, 3 bytes spill loads
"""


def script():
    loader = importlib.machinery.SourceFileLoader("cuda_registers", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("cuda_registers", loader))
    loader.exec_module(module)
    return module


def test_a_report_becomes_a_table_that_is_read_back():
    module = script()
    rows = list(module.kernels(REPORT))
    assert rows == [("foo", 115, 260, 17)]
    assert module.parse(module.table(rows)) == {"foo": (115, 260, 17)}


def test_more_registers_more_spills_and_unknown_kernels_are_told():
    module = script()
    rows = [("foo", 115, 260, 17)]
    assert list(module.compare(rows, {"foo": (115, 0, 17)})) == []
    assert "115 registers and 17 bytes spilled, the table has 114 and 17" in next(module.compare(rows, {"foo": (114, 260, 17)}))
    assert "the table has 115 and 8" in next(module.compare(rows, {"foo": (115, 260, 8)}))
    assert list(module.compare(rows, {})) == ["foo is not in the table"]


def test_the_command_line_reads_reports_and_refuses_other_families(tmp_path):
    report = tmp_path / "report"
    report.write_text(REPORT)
    done = subprocess.run([sys.executable, SCRIPT, "--report", report], text=True, capture_output=True)
    assert done.returncode == 0 and done.stdout.splitlines()[1].split() == ["foo", "115", "260", "17"]
    done = subprocess.run([sys.executable, SCRIPT, "quantum"], text=True, capture_output=True)
    assert done.returncode == 2 and "FAMILY must be one of calibration" in done.stderr


def test_the_table_in_the_repository_is_one():
    module = script()
    known = module.parse((SCRIPT.parents[1] / "src/cuda/registers.txt").read_text())
    assert all(registers <= 255 for registers, _stack, _spilled in known.values())
    assert any(name.startswith("MapKernel<Softmax, float") for name in known)
