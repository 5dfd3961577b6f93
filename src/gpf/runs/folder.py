"""A run is a folder: what was asked for, what happened, and the networks that came of it.

    config.json  metrics.jsonl  events.jsonl  result.json  checkpoints/{best,last}/  figures/

Lines are appended and flushed, everything else is replaced by renaming a complete file, and a checkpoint is written
after the lines that lead to it. A process killed at any moment therefore leaves a folder from which training goes on
at the last checkpoint; lines beyond it are dropped, because they will be written again.
"""

import fcntl
import json
import os
import time
import weakref
from pathlib import Path
from typing import Any, Literal

Log = Literal["metrics", "events"]
LOGS: tuple[Log, ...] = ("metrics", "events")


class RunError(ValueError):
    """A run folder cannot be used; the message says why."""


class Run:
    """A run folder that this process writes to; nobody else can meanwhile."""

    def __init__(self, folder: Path, patience: float = 1.0) -> None:
        self.folder = folder
        lock = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT)
        self.close = weakref.finalize(self, os.close, lock)
        """Let other processes have the folder."""
        if not _locked(lock, patience):
            self.close()
            raise RunError(f"run: {folder} is in use by another process; accepted: one that is not")

    @classmethod
    def create(cls, folder: Path, config: dict[str, Any]) -> "Run":
        """A new run; its folder must not exist, or be empty."""
        check_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder)
        write_json(folder / "config.json", config)
        return run

    @classmethod
    def open(cls, folder: Path, patience: float = 1.0) -> "Run":
        """A run that exists, to go on with it; `patience`: seconds to wait for a process that may be leaving it."""
        read_config(folder)
        return cls(folder, patience)

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for."""
        return read_config(self.folder)

    def checkpoint(self, name: Literal["best", "last"]) -> Path:
        """Where a checkpoint is."""
        return self.folder / "checkpoints" / name

    def append(self, log: Log, lines: list[dict[str, Any]]) -> None:
        """Append lines to a log; they are with the operating system when this returns."""
        if lines:
            with (self.folder / f"{log}.jsonl").open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))

    def drop_after(self, last_round: int) -> None:
        """Forget lines of rounds later than this, and one that a killed process left unfinished."""
        for log in LOGS:
            path = self.folder / f"{log}.jsonl"
            if path.exists():
                kept = [line for line in read_log(self.folder, log) if line["round"] <= last_round]
                replace_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def check_free(folder: Path) -> None:
    """Refuse a folder in which there is anything."""
    leftovers = {".lock", ".config.json.new"}  # of a process that was killed before there was a run
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - leftovers):
        raise RunError(f"run: {folder} exists; accepted: a new folder, or --resume {folder}")


def _locked(file: int, patience: float) -> bool:
    """Lock an open file; for a moment, a process that was just killed may still be letting go of it."""
    started = time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() - started > patience:
                return False
            time.sleep(0.02)
        else:
            return True


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a run."""
    config = _read_json(folder, folder / "config.json")
    if not isinstance(config, dict):
        raise RunError(f"run: {folder / 'config.json'} is damaged (no object); accepted: a run that gpf train wrote")
    return config


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a run; None while it is not finished."""
    return _read_json(folder, folder / "result.json") if (folder / "result.json").exists() else None


def read_log(folder: Path, log: Log) -> list[dict[str, Any]]:
    """The lines of a log; a last one that a killed process left unfinished is ignored."""
    path = folder / f"{log}.jsonl"
    if not path.exists():
        return []
    try:
        *whole, unfinished = path.read_text().split("\n")
        return [_checked(json.loads(line)) for line in whole]
    except (OSError, ValueError) as error:
        raise RunError(f"run: {path} is damaged ({error}); accepted: lines that gpf train wrote") from None


def next_folder(parent: Path, name: str) -> Path:
    """The first of name-1, name-2, ... that does not exist."""
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, or leave the one that is there."""
    replace_text(path, json.dumps(value, indent=2) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Write a text file, or leave the one that is there."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        with unfinished.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _checked(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict) or not isinstance(line.get("round"), int):
        raise ValueError("a line without its round")
    return line


def _read_json(folder: Path, path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"run: no {path.name} in {folder}; accepted: a folder that gpf train wrote") from None
    except (OSError, ValueError) as error:
        raise RunError(f"run: {path} is damaged ({error}); accepted: a run that gpf train wrote") from None
