"""Files of a package depend on each other in one direction only, lazy imports and those for types included."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gpf

SOURCE = Path(gpf.__file__).parent


def imported(tree, package, files):
    """The files of a package that a module imports, wherever in it."""
    prefix = f"gpf.{package}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (
            name.split(".")[2] for name in names if name.startswith(f"{prefix}.") and name.split(".")[2] in files
        )
        if prefix in names and not any(name.removeprefix(f"{prefix}.") in files for name in names):
            yield "__init__"


def graph(package):
    files = {path.stem: ast.parse(path.read_text()) for path in (SOURCE / package).glob("*.py")}
    return {name: set(imported(tree, package, files)) for name, tree in files.items()}


@pytest.mark.parametrize("package", ["navigation", "continual"])
def test_the_files_of_a_package_import_each_other_in_no_circle(package):
    imports = graph(package)
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
    assert sum(map(len, imports.values())) > 0


def test_a_circle_through_a_lazy_import_would_be_seen():
    lazy = ast.parse("def later():\n    from gpf.navigation import agents\n    from gpf.navigation import Config")
    assert set(imported(lazy, "navigation", {"agents", "config"})) == {"agents", "__init__"}
