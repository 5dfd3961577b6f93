"""What the documents say can be run, runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
EXAMPLES = [
    pytest.param(block, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
]


def test_examples_in_docstrings_run():
    import doctest
    import importlib
    import pkgutil

    import gpf.network

    attempted = 0
    for module in pkgutil.iter_modules(gpf.network.__path__, "gpf.network."):
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
