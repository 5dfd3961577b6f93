"""What the documents say can be run, runs."""

import pkgutil
import re
from pathlib import Path

import pytest
import yaml

from gpf.cli import COMMANDS
from gpf.studies.sweep import read_search
from gpf.tasks import REGISTRY

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
OURS = [path for path in DOCUMENTS if path.parent.name != "results"]
"""Pages of results say what was typed when they were made."""
EXAMPLES = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    if path.name != "tutorial.md"  # its blocks need each other; tests/test_tutorial.py runs them in order
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_examples_in_docstrings_run():
    import doctest
    import importlib

    import gpf.network

    attempted = 0
    for module in pkgutil.walk_packages(gpf.network.__path__, "gpf.network."):
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted > 5


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_measured_table_has_been_written(path):
    text = path.read_text()
    assert text.count("<!-- ") % 2 == 0  # every marker has its end
    for name, body in re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end \1 -->", text, re.DOTALL):
        assert body.strip(), name


def test_commands_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_commands_exist(path):
    """What is typed: `gpf COMMAND` in code, and `gpf train TASK`."""
    code = re.findall(r"`([^`]+)`|^    (.*)$", path.read_text(), re.MULTILINE)
    for line in (one or other for one, other in code):
        for command in re.findall(r"(?:^|[;(] ?)gpf ([a-z]+)", line):
            assert command in COMMANDS, line
        for task in re.findall(r"(?:^|[;(] ?)gpf (?:train|compare) ([a-z][\w-]*)(?![\w./:])", line):
            assert task in REGISTRY or task == "sine", line  # the task that the documents add


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path):
    for name in re.findall(r"(?:benchmarks|examples|tests)/[\w/]+\.py", path.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_modules_that_are_named_exist(path):
    for name in re.findall(r"`(gpf(?:\.\w+)+)", path.read_text()):
        pkgutil.resolve_name(name)


def test_the_example_of_a_search_can_be_read(tmp_path):
    text = (ROOT / "docs" / "architecture.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "search.toml").write_text(example)
    search = read_search(tmp_path / "search.toml")
    assert {"learning_rate", "rules.grow_patience", "width"} == set(search.ranges())


def test_the_navigation_has_every_page():
    def pages(entry):
        if isinstance(entry, str):
            yield entry
        for one in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from pages(one)

    nav = list(pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    found = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(nav) == found, "put new pages into nav of mkdocs.yml"
    assert len(nav) == len(set(nav))
