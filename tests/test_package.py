import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import gpf

ROOT = Path(__file__).parent.parent

PUBLIC = ("continual", "navigation", "network", "plume", "spectra", "tasks", "world_model")


def test_importing_gpf_is_light():
    """Neither torch nor numba nor matplotlib is loaded before it is needed."""
    code = "import sys, gpf; print([name for name in ('torch', 'numba', 'matplotlib', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_plume_world_needs_no_torch():
    code = "import sys, gpf.plume.vector_env, gpf.navigation.evaluate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", PUBLIC)
def test_a_package_has_what_it_says_that_it_exports(name):
    package = importlib.import_module(f"gpf.{name}")
    assert package is getattr(gpf, name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(getattr(package, exported) is not None for exported in package.__all__)
    with pytest.raises(AttributeError):
        package.nothing_of_the_kind  # noqa: B018


def test_gpf_lists_what_users_import_and_nothing_else():
    assert set(dir(gpf)) == {*gpf.__all__, "__version__"}
    assert {name for name in gpf.__all__ if name.islower()} - {"attach", "load", "load_navigator", "train"} == set(
        PUBLIC
    )
    with pytest.raises(AttributeError, match="'gpf' has no attribute 'attatch'"):
        gpf.attatch  # noqa: B018
    code = "import gpf; gpf.network.register_identity, gpf.attach, gpf.plume.Scenario; print('found')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "found\n"


def test_the_version_is_the_same_everywhere():
    assert f"\n## {gpf.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == gpf.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", gpf.__version__)


def test_the_public_interface_in_the_changelog_is_the_one_that_is_imported():
    text = (ROOT / "CHANGELOG.md").read_text()
    (row,) = re.findall(r"^\| names in `__all__` of (.*?), with", text, re.MULTILINE)
    assert set(re.findall(r"`gpf\.(\w+)`", row)) == set(PUBLIC)


def test_hooks_before_a_commit_use_the_version_of_ruff_that_checks_the_project():
    (pinned,) = re.findall(r"^ruff==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["additional_dependencies"] for hook in hooks] == [[pinned]] * 2


def test_every_extra_has_a_user():
    """An extra is named by an error or by a document, or typed in the Makefile; `dev` lists nothing twice."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    documents = [*(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    sources = "\n".join(path.read_text() for path in documents)
    for name in extras.keys() - {"dev", "docs", "release"}:
        assert f"gpf-networks[{name}]" in sources or f"extra {name}" in sources, name
    makefile = (ROOT / "Makefile").read_text()
    assert "docs_site.py" in makefile  # docs
    assert "'.[release]'" in makefile
    names = [re.split(r"[<>=\[]", one)[0] for one in extras["dev"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_workflows_run_what_there_is(path):
    workflow = yaml.safe_load(path.read_text())
    makefile = (ROOT / "Makefile").read_text()
    for job in workflow["jobs"].values():
        for command in (step["run"] for step in job["steps"] if "run" in step):
            for target in re.findall(r"\bmake ([a-z-]+)", command):
                assert f"\n{target}:" in makefile
            for script in re.findall(r"\.ci/\w+", command):
                assert (ROOT / script).exists()


def test_templates_are_read_as_forms():
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert len(forms) >= 2
    for form in forms:
        written = yaml.safe_load(form.read_text())
        assert {"name", "description", "labels", "body"} == set(written)
        assert all(field["type"] in ("textarea", "input", "markdown") for field in written["body"])
