"""How the package's modules depend on each other: without circles, and by public names."""

import ast
import graphlib
import pathlib

import pytest

import isentropic

PACKAGE = pathlib.Path(isentropic.__file__).parent


# The doors: none imports another's. What imitates or serves other packages stands on torch's.
DOORS = ("torch", "jax")


def _name(file):
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}
MODULES = {*FILES, "isentropic._core"}


def _imports(tree):
    """(module, name in it or None, name here) of everything that comes from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                found = (whole, None) if whole in MODULES else (node.module, one.name)
                yield *found, one.asname or one.name
        elif isinstance(node, ast.Import):
            for one in node.names:
                yield one.name, None, one.asname or one.name


def test_no_circle():
    """Wherever in a module an import stands: one inside a function hides a circle, and does not undo it."""
    graph = {}
    for module, file in FILES.items():
        found = {name for name, *_ in _imports(ast.parse(file.read_text())) if name in FILES}
        graph[module] = found - {module}
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("module", FILES)
def test_no_door_imports_another(module):
    found = {name for name, *_ in _imports(ast.parse(FILES[module].read_text()))}
    door = module.split(".")[1:2]
    others = [f"isentropic.{one}" for one in DOORS if [one] != door]
    if door == [] or door[0] in (*DOORS, "_numpy") or door[0].startswith("_"):
        assert not [name for name in found if name.startswith(tuple(others))]


@pytest.mark.parametrize("module", FILES)
def test_modules_use_public_names_of_each_other(module):
    tree = ast.parse(FILES[module].read_text())
    modules = {}
    for source, name, local in _imports(tree):
        if source in MODULES and name is None:
            modules[local] = source
        # What imitates another package has that package's names, private ones too.
        if source in MODULES and name is not None and ".compat." not in source:
            assert not name.startswith("_") or name.startswith("__"), f"{module} takes {name} from {source}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            whole = f"{modules[node.value.id]}.{node.attr}"
            public = not node.attr.startswith("_") or node.attr.startswith("__") or whole in MODULES
            assert public, f"{module} uses {whole} in line {node.lineno}"
