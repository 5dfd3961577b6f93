"""The tasks: one file each, which declares a `Task`, and a line in `registry` that lists it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpf.runs.executors import find
from gpf.runs.folder import RunError, read_config
from gpf.settings import unknown
from gpf.tasks.registry import REGISTRY
from gpf.zoo import run_folder

if TYPE_CHECKING:
    from gpf.tasks.task import Task

__all__ = ["REGISTRY", "find_task", "is_task", "task_of"]


def is_task(name: str) -> bool:
    """Whether this is what a task is called."""
    return name in REGISTRY or ":" in name


def find_task(name: str) -> "Task[Any]":
    """A task by its name, or by its reference."""
    from gpf.tasks.task import Task

    if not is_task(name):
        raise ValueError(unknown("task", name, REGISTRY))
    task = find(REGISTRY.get(name, name))
    if not isinstance(task, Task):
        raise ValueError(f"{name!r} must be a gpf.tasks.task.Task, got {type(task).__name__}")
    return task


def task_of(folder: "str | Path") -> "Task[Any]":
    """The task of a run."""
    name = read_config(run_folder(folder)).get("task")
    try:
        return find_task(str(name))
    except ValueError as error:
        raise RunError(f"run {folder}: {error}") from None
