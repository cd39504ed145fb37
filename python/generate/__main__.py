"""Writes the package's functions and their stubs from the registry of the built module: python generate MODULE PACKAGE.

PACKAGE/_generated.py has the functions, which editors show, and PACKAGE/__init__.pyi their types; in PACKAGE/torch are the same
on tensors, with the modules. Needs neither NumPy nor torch: the package is built where there are none.
"""

import pathlib
import sys

import losses
import maps
import measures
import stubs
import torch_losses
import torch_maps
import torch_measures
from tensors import class_name
from words import load

HEAD = '''"""Every function that the registry describes. Written by python/generate when the package is built."""

from math import inf  # noqa: F401  a default

from isentropic._numpy import _calls, _convert, _losses, _measures
from isentropic._checks import index_or_none as _index_or_none
from isentropic._maps import KERNELS as _KERNELS
from isentropic._maps import map_and_params as _map_and_params

_per_row = _convert.per_row
_run_map = _calls.run_map
_run_param_vjp = _calls.run_param_vjp
_run_reduction = _calls.run_reduction
_run_vjp = _calls.run_vjp
'''

TORCH_HEAD = '''"""Functions and modules that the registry describes. Written by python/generate when the package is built."""

from math import inf  # noqa: F401  a default

from torch import Tensor

from isentropic._checks import index_or_none as _index_or_none
from isentropic._maps import map_and_params as _map_and_params
from isentropic.torch._losses import call as _call_loss
from isentropic.torch._maps import call as _call_map
from isentropic.torch._maps import call_reduction as _call_reduction
from isentropic.torch._measures import call as _call_measure
from isentropic.torch._measures import call_entries as _call_entries
from isentropic.torch._measures import call_table as _call_table
from isentropic.torch._modules import Loss as _Loss
from isentropic.torch._modules import Map as _Map
from isentropic.torch._modules import TeacherLoss as _TeacherLoss
'''


def main(module_file, package):
    core = load("_core", module_file)
    operations, measured, lost = core.operations(), core.measure_operations(), core.losses()
    functions = [
        *map(maps.functions, operations),
        *map(measures.function, measured),
        *map(losses.function, lost),
    ]
    typed = [
        *map(maps.stubs, operations),
        *map(measures.stubs, measured),
        *map(losses.stubs, lost),
    ]
    names = [name for one in operations for name in (one["name"], one["name"] + "_vjp")]
    names += [one["name"] for one in [*measured, *lost]]
    package = pathlib.Path(package)
    of_calibration = sorted(SOURCES.glob("_numpy/_calibration*.py"))
    of_calibration += [SOURCES / "_numpy/_vector_scaling.py", SOURCES / "_numpy/_estimators.py"]
    of_arrays = [file for file in sorted(SOURCES.glob("_numpy/_*.py")) if file not in of_calibration]
    write(package, HEAD, functions, names)
    write_stubs(package / "__init__.pyi", "written.pyi", of_arrays, typed)
    write_stubs(package / "calibration.pyi", "calibration.pyi", of_calibration)

    modules = [one for one in lost if torch_losses.has_module(one)]
    functions = [
        *map(torch_maps.function, operations),
        *map(torch_losses.function, lost),
        *map(torch_measures.function, measured),
        *map(torch_maps.of_module, operations),
        *map(torch_losses.of_module, modules),
    ]
    typed = [
        *map(torch_maps.stubs, operations),
        *map(torch_losses.stubs, lost),
        *map(torch_measures.stubs, measured),
    ]
    names = [one["name"] for one in [*operations, *lost, *measured]]
    names += [class_name(one["name"]) for one in [*operations, *modules]]
    write(package / "torch", TORCH_HEAD, functions, names)
    write_stubs(package / "torch/__init__.pyi", "torch_written.pyi", sorted(SOURCES.glob("torch/_*.py")), typed, True)


SOURCES = pathlib.Path(__file__).parents[1] / "isentropic"


def write(package, head, functions, names):
    listed = "".join(f"    {name!r},\n" for name in names)
    (package / "_generated.py").write_text("\n\n".join([head, *functions, f"__all__ = [\n{listed}]\n"]))


def write_stubs(file, beginning, sources, typed=(), tensors=False):
    written = (one for source in sources for one in stubs.of_file(source, tensors))
    file.write_text("\n".join([pathlib.Path(__file__).with_name(beginning).read_text(), *written, *typed]))


main(*sys.argv[1:])
