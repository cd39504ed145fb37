"""Writes the package's functions and their stubs from the registry of the built module: python generate MODULE PACKAGE.

PACKAGE/_generated.py has the functions, which editors show, and PACKAGE/__init__.pyi their types. Needs neither NumPy nor
torch: the package is built where there are none.
"""

import importlib.util
import pathlib
import sys

import entropy_control
import losses
import maps
import measures

HEAD = '''"""Every function that the registry describes. Written by python/generate when the package is built."""

from math import inf  # noqa: F401  a default

from entropic import _arrays, _entropy_control, _losses, _measures
from entropic._maps import KERNELS as _KERNELS
from entropic._maps import map_and_params as _map_and_params

_per_row = _arrays.per_row
_run_map = _arrays.run_map
_run_param_vjp = _arrays.run_param_vjp
_run_reduction = _arrays.run_reduction
_run_vjp = _arrays.run_vjp
_index_or_none = _losses.index_or_none
'''


def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(module_file, package):
    core = load("_core", module_file)
    operations, measured, lost = core.operations(), core.measure_operations(), core.losses()
    gamma = next(one for one in core.control_operations() if one["name"] == "gamma_for_entropy")
    functions = [
        *map(maps.functions, operations),
        entropy_control.function(gamma),
        *map(measures.function, measured),
        *map(losses.function, lost),
    ]
    stubs = [
        *map(maps.stubs, operations),
        entropy_control.stubs(gamma),
        *map(measures.stubs, measured),
        *map(losses.stubs, lost),
    ]
    names = [name for one in operations for name in (one["name"], one["name"] + "_vjp")]
    names += ["gamma_for_entropy", *(one["name"] for one in [*measured, *lost])]
    listed = "".join(f"    {name!r},\n" for name in names)
    package = pathlib.Path(package)
    (package / "_generated.py").write_text("\n\n".join([HEAD, *functions, f"__all__ = [\n{listed}]\n"]))
    written = pathlib.Path(__file__).with_name("written.pyi").read_text()
    (package / "__init__.pyi").write_text("\n".join([written, *stubs]))


main(*sys.argv[1:])
