"""How the package's modules depend on each other: without circles, and by public names."""

import ast
import graphlib
import pathlib

import pytest

import isentropic

PACKAGE = pathlib.Path(isentropic.__file__).parent


# The reference of attention calls maps by their operators, which are made of references.
# The loss of a linear layer calls losses by their operators.
# A map, a loss or a measure of a DTensor is one of parts, which leaves rows that are whole to it.
CALLED_BACK = {
    "isentropic.torch._entropy_control": {"isentropic.torch.distributed._dtensor"},
    "isentropic.torch._losses": {"isentropic.torch.distributed._dtensor"},
    "isentropic.torch._maps": {"isentropic.torch.distributed._dtensor"},
    "isentropic.torch._measures": {"isentropic.torch.distributed._dtensor"},
    "isentropic.torch._token_statistics": {"isentropic.torch.distributed._dtensor"},
    "isentropic.torch.backends.reference.maps": {"isentropic.torch._maps"},
    "isentropic.torch.backends.linear_loss": {"isentropic.torch._losses"},
}


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
        graph[module] = found - {module} - CALLED_BACK.get(module, set())
    tuple(graphlib.TopologicalSorter(graph).static_order())


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
