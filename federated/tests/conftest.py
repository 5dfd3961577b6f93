"""Federations on loopback, and the app with the clients of tests/faulty.py."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "app"), str(HERE)]


@pytest.fixture(scope="session")
def faulty_app(tmp_path_factory):
    """The app, with clients that can be faulty."""
    app = tmp_path_factory.mktemp("apps") / "faulty"
    shutil.copytree(HERE.parent / "app", app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "faulty.py", app / "gpf_flower" / "faulty.py")
    file = app / "pyproject.toml"
    text = file.read_text()
    assert "gpf_flower.client:app" in text
    file.write_text(text.replace("gpf_flower.client:app", "gpf_flower.faulty:app"))
    return app
