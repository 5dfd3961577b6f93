"""A run is a folder: its configuration, its logs, and its checkpoints.

    config.json  metrics.jsonl  events.jsonl  result.json  checkpoints/{best,last}/  report.html  figures/

A run that has failed also has a failure.json, which says why.

Lines are appended and synced to disk, everything else is replaced by renaming a complete file, and a checkpoint is
written after the lines that lead to it. A process killed at any moment therefore leaves a folder from which training
resumes at the last checkpoint; lines beyond it are dropped, because they will be written again. A run has an identity,
which its checkpoints carry.
"""

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

Log = Literal["metrics", "events"]
LOGS: tuple[Log, ...] = ("metrics", "events")
CheckpointName = Literal["best", "last"]
"""Parts of a run's configuration; a run that fine-tunes another's network also has a `first`."""
COUNTS = ("step", "seconds", "flops", "depth", "density", "parameters")
"""Fields that are numbers in every line that has them."""


class RunError(ValueError):
    """A run folder cannot be used; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """A run, read back: its result (empty if it is not finished), its metrics, and its events."""

    folder: Path
    result: dict[str, Any]
    lines: list[dict[str, Any]]
    events: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "Outcome":
        """From its folder."""
        return cls(folder, read_result(folder) or {}, read_log(folder, "metrics"), read_log(folder, "events"))


class Run:
    """A run folder that this process writes to; no other process can meanwhile."""

    def __init__(self, folder: Path, patience: float = 1.0) -> None:
        self.folder = folder
        self._existed = True
        lock = os.open(folder / ".lock", os.O_WRONLY | os.O_CREAT)
        self.close: Callable[[], object] = weakref.finalize(self, os.close, lock)
        """Let other processes have the folder."""
        if not _locked(lock, patience):
            self.close()
            raise RunError(f"run {folder} is in use by another process")

    @classmethod
    def create(cls, folder: Path, config: dict[str, Any]) -> "Run":
        """A new run; its folder must not exist, or be empty."""
        check_free(folder)
        existed = folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            run = cls(folder)
            run._existed = existed
        except OSError as error:
            raise RunError(
                f"run folder {folder} cannot be written to ({error.strerror}); choose another one with --run"
            ) from None
        write_json(folder / "config.json", {"id": secrets.token_hex(8), **config})
        return run

    @classmethod
    def open(cls, folder: Path, patience: float = 1.0) -> "Run":
        """A run that exists, to resume it; `patience`: seconds to wait for a process that may be leaving it."""
        read_config(folder)
        return cls(folder, patience)

    @cached_property
    def id(self) -> str:
        """Identifies this run among all others, including those with the same settings."""
        return str(read_config(self.folder).get("id"))

    def discard(self) -> None:
        """Delete what a new run that has learned nothing yet has written; one with a round to its name stays."""
        if (self.folder / "metrics.jsonl").exists() or self.checkpoint("last").exists():
            return
        self.close()
        with suppress(OSError):  # the earlier error matters more
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
            for name in ("config.json", "failure.json", ".lock"):
                (self.folder / name).unlink(missing_ok=True)
            if not self._existed:
                self.folder.rmdir()

    def checkpoint(self, name: CheckpointName | Literal["first"]) -> Path:
        """Where a checkpoint is."""
        return self.folder / "checkpoints" / name

    def append(self, log: Log, lines: list[dict[str, Any]]) -> None:
        """Append lines to a log; they are on disk when this returns."""
        if lines:
            with _naming(self.folder / f"{log}.jsonl") as path, path.open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())

    def drop_after(self, last_round: int, events: int) -> None:
        """Drop lines of later rounds, and a last line that a killed process left incomplete.

        Refuses a folder whose remaining lines are not one line of metrics per round, or not the right number of events.
        """
        kept = {
            log: [line for line in read_log(self.folder, log) if line["round"] <= last_round] for log in LOGS
        }  # fmt: skip
        rounds = [line["round"] for line in kept["metrics"]]
        if len(rounds) != last_round or rounds != list(range(1, last_round + 1)):
            raise RunError(
                f"{self.folder / 'metrics.jsonl'} has {len(rounds)} lines for {last_round} rounds, or not in their"
                " order; only an undamaged run can be resumed"
            )
        if len(kept["events"]) != events:
            raise RunError(
                f"{self.folder / 'events.jsonl'} has {len(kept['events'])} lines where the checkpoint counts {events};"
                " only an undamaged run can be resumed"
            )
        for log in LOGS:
            if (self.folder / f"{log}.jsonl").exists():
                replace_text(self.folder / f"{log}.jsonl", "".join(json.dumps(line) + "\n" for line in kept[log]))


def check_free(folder: Path) -> None:
    """Refuse a folder in which there is anything."""
    leftovers = {".lock", ".config.json.new"}  # of a process that was killed before there was a run
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - leftovers):
        raise RunError(f"run {folder} exists; give a new folder, or --resume {folder}")


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
    """The configuration of a run, as it was written."""
    return read_object(folder, folder / "config.json")


def read_result(folder: Path) -> dict[str, Any] | None:
    """The result of a run; None while it is not finished."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result = read_object(folder, path)
    if not result:
        raise RunError(f"{path} is damaged (it is empty)")
    return result


def read_log(folder: Path, log: Log) -> list[dict[str, Any]]:
    """The lines of a log; a last one that a killed process left unfinished is ignored."""
    path = folder / f"{log}.jsonl"
    if not path.exists():
        return []
    try:
        *whole, unfinished = path.read_text().split("\n")
        return [_checked(json.loads(line)) for line in whole]
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({_brief(error)})") from None


def versions() -> dict[str, str]:
    """Of the packages on which the numbers of a run depend."""
    names = {"gpf": "gpf-networks", "torch": "torch", "numpy": "numpy", "numba": "numba"}
    return {name: importlib.metadata.version(package) for name, package in names.items()}


def environment() -> dict[str, str]:
    """Everything on which the numbers of a run depend: packages, how torch was built, and the CPU."""
    return {**versions(), "torch_build": torch_build(), "cpu": cpu_model()}


def torch_build() -> str:
    """The commit that torch was built from, its BLAS, and the instructions that its kernels use on this CPU."""
    import torch

    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{torch.version.git_version}, BLAS {blas[1] if blas else 'unknown'}, {capability}"


def cpu_model(info: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the CPU, or its architecture if it has none."""
    with suppress(OSError):
        if found := re.search(r"^model name\s*:\s*(\S.*?)\s*$", info.read_text(), re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()


@contextmanager
def undamaged(folder: Path) -> Iterator[None]:
    """Turn errors about an edited folder into one line that names the folder."""
    try:
        yield
    except (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise RunError(f"run {folder} is damaged ({type(error).__name__}: {_brief(error)})") from error


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
    with _naming(path):
        try:
            with unfinished.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def _naming(path: Path) -> Iterator[Path]:
    """A full disk does not say which file it was that did not fit."""
    try:
        yield path
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _checked(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict) or type(line.get("round")) is not int:
        raise ValueError("a line without its round")
    for name in COUNTS:
        value = line.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"round {line['round']} has {name} {value!r}")
    return line


def read_object(folder: Path, path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run's folder."""
    try:
        held = json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{folder} has no {path.name}; it is not a run of gpf train") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({_brief(error)})") from None
    if not isinstance(held, dict):
        raise RunError(f"{path} is damaged (it holds no object)")
    return held


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
