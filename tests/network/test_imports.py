"""Which file of the package imports which: counting imports inside functions and those for type checkers too."""

import ast
import graphlib
from pathlib import Path

import gpf.network

FOLDER = Path(gpf.network.__file__).parent
PACKAGE = "gpf.network"
MODULES = {f"{PACKAGE}.{path.stem}": path for path in FOLDER.glob("*.py") if path.stem != "__init__"}


def imported(tree):
    """The names of all modules, or of things in modules, that a file imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not followed here"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else node.module


def graph(sources):
    return {name: {one for one in imported(ast.parse(text)) if one in MODULES} for name, text in sources.items()}


def sources():
    return {name: path.read_text() for name, path in MODULES.items()}


def test_no_file_of_the_package_imports_itself_by_way_of_others():
    graphlib.TopologicalSorter(graph(sources())).prepare()  # raises CycleError, which names the files


def test_no_file_of_the_package_imports_the_package():
    """That would import every file."""
    for name, text in sources().items():
        assert PACKAGE not in imported(ast.parse(text)), name


def test_hidden_imports_are_found():
    hidden = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from gpf.network.controller import GrowPruneFreeze\n"
        "def late():\n    from gpf.network import checkpoint\n    import gpf.network.mlp\n"
    )
    assert graph({"x": hidden})["x"] == {f"{PACKAGE}.{name}" for name in ("controller", "checkpoint", "mlp")}
