"""Everything of a run that the page shows, as plain data."""

from pathlib import Path
from typing import Any

from gpf.runs.folder import read_config


def describe(folder: Path) -> dict[str, Any]:
    """A run as plain data."""
    config = read_config(folder)
    return {"name": folder.name, "task": config.get("task"), "config": config}
