"""What a release is checked for."""

import re
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import release  # noqa: E402 - it lies in benchmarks/, which is no package


def test_a_wheel_that_lacks_a_file_is_noticed(tmp_path, monkeypatch):
    tracked = ["src/gpf/py.typed", "src/gpf/zoo/reference/CARD.md"]
    found = type("Done", (), {"stdout": "\n".join(tracked)})
    monkeypatch.setattr(release.subprocess, "run", lambda *arguments, **options: found)
    with zipfile.ZipFile(tmp_path / "gpf.whl", "w") as wheel:
        wheel.writestr("gpf/py.typed", "")
    assert release.lacking(tmp_path / "gpf.whl") == ["src/gpf/zoo/reference/CARD.md"]


def test_what_examples_need_is_read_from_their_docstrings():
    needed = {path.stem: release.needs(path) for path in (ROOT / "examples").glob("*.py")}
    assert needed["huggingface_trainer"] == ["transformers", "accelerate"]
    assert needed["prune_and_compact"] == ["scikit-learn"]
    assert needed["attach_mlp"] == []
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert {package for packages in needed.values() for package in packages} <= pinned


@pytest.mark.parametrize(
    ("stated", "classifiers", "said"),
    [
        ("MIT", [], "MIT"),
        ("", ["License :: OSI Approved :: MIT License"], "MIT License"),
        ("BSD 3-Clause License\n\nCopyright (c) 2008", [], "BSD 3-Clause License"),
        ("Copyright (c) 2015, somebody", ["License :: OSI Approved :: BSD License"], "BSD License"),
        ("x" * 200, ["License :: OSI Approved :: BSD License"], "BSD License"),
        ("", [], "not stated"),
    ],
)
def test_a_licence_is_said_in_a_few_words(stated, classifiers, said):
    assert release.licence(stated, classifiers) == said


def test_a_program_that_fails_ends_the_release(tmp_path, monkeypatch):
    monkeypatch.setattr(release.venv, "create", lambda *arguments, **options: None)
    environment = release.Environment(tmp_path)
    environment.bin = Path(sys.executable).parent
    assert environment.run(Path(sys.executable).name, "-c", "print('done')") == "done\n"
    with pytest.raises(SystemExit, match=re.escape("import nothing_of_the_kind")):
        environment.run(Path(sys.executable).name, "-c", "import nothing_of_the_kind")
