"""Dependencies point one way: between packages as the table says, and between files in no circle."""

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import packages  # noqa: E402 - it lies in benchmarks/, which is no package

MAY_IMPORT = {
    # Leaves
    "settings": "",
    "zoo": "settings",
    "network": "",
    "plume": "",
    # Runs and what is said of them; no task is known here
    "runs": "network",
    "reports": "runs.folder",
    "data": "runs.progress",
    # What can be done with a network, and in a plume
    "spectra": "network",
    "continual": "network",
    "navigation": "plume network settings zoo runs.folder reports.statistics",
    "world_model": "navigation plume network settings runs.folder",
    "federated": "navigation plume network settings runs.folder",
    # What leaves a run folder for a robot
    "edge": "navigation plume network settings runs.folder",
    # What is trained, what is compared, what is typed
    "tasks": "federated world_model navigation continual spectra plume network runs reports settings data zoo",
    "studies": "tasks world_model navigation continual spectra plume network runs reports settings",
    # The web page
    "viewer": "tasks world_model navigation continual spectra plume network runs reports settings zoo",
    "cli": "viewer edge studies tasks world_model navigation continual spectra plume network runs reports settings zoo",
    "__main__": "cli",
    # The facade that users import, and nobody else
    "gpf": "network plume navigation continual spectra world_model tasks",
}
"""By package, the packages or files of ours that it may import; a table that is not followed is to be changed here."""

DOCUMENT = ROOT / "docs" / "architecture.md"
WRITE = "write it again with: python benchmarks/packages.py --write"
IMPORTS = packages.read_imports(packages.SOURCE)


def is_allowed(module, imported):
    package = packages.package_of(module)
    if package == packages.package_of(imported) != "gpf":
        return True
    name = imported.removeprefix("gpf.")
    return any(name == one or name.startswith(f"{one}.") for one in MAY_IMPORT[package].split())


def test_every_package_is_in_the_table():
    assert {packages.package_of(module) for module in IMPORTS} == set(MAY_IMPORT)


def test_the_table_has_a_direction():
    table = {package: {one.split(".")[0] for one in some.split()} for package, some in MAY_IMPORT.items()}
    TopologicalSorter(table).prepare()  # raises CycleError, which names the packages


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_the_way_that_the_table_says(package):
    wrong = [
        f"{module} imports {one}"
        for module, imported in sorted(IMPORTS.items())
        for one in sorted(imported)
        if packages.package_of(module) == package and not is_allowed(module, one)
    ]
    assert not wrong


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_the_files_of_a_package_import_each_other_in_no_circle(package):
    files = {module for module in IMPORTS if packages.package_of(module) == package}
    TopologicalSorter({module: IMPORTS[module] & files for module in files}).prepare()  # CycleError names the files


def test_lazy_imports_and_those_for_types_are_seen():
    code = """
    import gpf.plume.world as w
    from gpf.runs import folder
    if TYPE_CHECKING:
        from gpf.network import Rules
    def later():
        from gpf.tasks.plume import TASK
        import torch
    """
    tree = ast.parse("if True:\n" + code)
    found = {"gpf.plume.world", "gpf.runs.folder", "gpf.network", "gpf.tasks.plume"}
    assert set(packages.imported_modules(tree, IMPORTS)) == found


def test_an_import_that_points_the_other_way_is_seen():
    assert not is_allowed("gpf.network.rules", "gpf.settings")
    assert not is_allowed("gpf.reports.tables", "gpf.runs.executors")
    assert not is_allowed("gpf.tasks.plume", "gpf")
    assert is_allowed("gpf.reports.tables", "gpf.runs.folder")
    assert is_allowed("gpf.tasks.plume", "gpf.tasks.task")


def test_the_facades_that_are_left_out_are_there():
    for module, imported in packages.FACADES:
        source = (ROOT / "src" / module.replace(".", "/") / "__init__.py").read_text()
        assert f"from {imported} import" in source.partition("if TYPE_CHECKING:")[2].partition("\n\n")[0]


def test_the_diagram_in_the_documents_is_that_of_the_imports():
    assert packages.diagram(IMPORTS) in DOCUMENT.read_text(), WRITE


def test_the_list_in_the_documents_is_that_of_the_files():
    files = packages.file_list(packages.SOURCE)
    assert all(line.partition("`: ")[2] for line in files.splitlines())  # every file says what it is
    assert files in DOCUMENT.read_text(), WRITE
