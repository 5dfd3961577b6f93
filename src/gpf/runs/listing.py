"""Lists runs: each in a few numbers, read from the last lines of its files."""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpf.runs.folder import RunError, read_config, read_result

SCORES = ("success", "accuracy", "reward", "loss", "test", "mean")
"""Names of the main number of a result; the first one that a result has is shown."""
_FILES = ("config.json", "metrics.jsonl", "result.json")


def run_folders(parent: Path) -> Iterator[Path]:
    """Folders that hold a run's config.json; a run contains no other."""
    for folder, below, files in os.walk(parent):
        if "config.json" in files:
            below.clear()
            yield Path(folder)


def summary(folder: Path) -> dict[str, Any]:
    """A run in a few numbers; one that cannot be read says why under `damaged`."""
    written = max((path.stat().st_mtime for name in _FILES if (path := folder / name).exists()), default=0.0)
    row: dict[str, Any] = {"run": str(folder), "written": written}
    try:
        config, result = read_config(folder), read_result(folder)
        if not isinstance(config.get("task"), str) or not isinstance(config.get("config"), dict):
            raise RunError("config.json names no task, or no settings")
        line = result or _last_line(folder / "metrics.jsonl")
        row |= {
            "task": config["task"],
            "seed": config["config"].get("seed"),
            "steps": line.get("step", 0),
            "score": _score(result or {}),
            "finished": result is not None,
            "running": result is None and is_running(folder),
            "failed": result is None and (folder / "failure.json").exists(),
        }
    except ValueError as error:
        row["damaged"] = str(error).removeprefix(f"{folder}/")
    return row


def _score(result: dict[str, Any]) -> dict[str, float] | None:
    """The main number of a result, with its name; of a navigator that was not evaluated, its last validation."""
    for name in SCORES:
        if isinstance(result.get(name), int | float):
            return {name: result[name]}
    validation = result.get("validation")
    return {"validation": validation["last"]} if isinstance(validation, dict) and "last" in validation else None


def is_running(folder: Path) -> bool:
    """Whether a process holds the lock of a run."""
    try:
        lock = os.open(folder / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _last_line(path: Path) -> dict[str, Any]:
    """The last whole line of metrics, without reading those before it."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 65_536))
        whole = file.read().split(b"\n")[:-1]
    try:
        line = json.loads(whole[-1]) if whole else {}
    except ValueError:
        line = None
    if not isinstance(line, dict) or not isinstance(line.get("step", 0), int | float):
        raise RunError(f"{path.name} is damaged")
    return line
