"""The tasks: one file each, which declares a `Task`, and a line here by which commands find it."""

from typing import TYPE_CHECKING, Any

from gpf.runs.executors import find
from gpf.runs.folder import RunError, read_config
from gpf.settings import unknown

if TYPE_CHECKING:
    from pathlib import Path

    from gpf.tasks.task import Task

REGISTRY: dict[str, str] = {
    "plume": "gpf.tasks.plume:TASK",
    "shifting": "gpf.tasks.shifting:TASK",
    "world": "gpf.tasks.world:TASK",
    "cifar10": "gpf.tasks.cifar10:TASK",
    "mspacman": "gpf.tasks.mspacman:TASK",
    "mspacman-longer": "gpf.tasks.mspacman:LONGER",
    "shakespeare": "gpf.tasks.shakespeare:TASK",
    "permuted-mnist": "gpf.tasks.drifting:PERMUTED_MNIST",
    "regression": "gpf.tasks.drifting:REGRESSION",
}
"""Where each task is declared; a task of your own is named by its reference, `module:name`, wherever these are."""


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


def task_of(folder: "Path") -> "Task[Any]":
    """The task of a run."""
    written = read_config(folder)
    name = str(written.get("task"))
    try:
        return find_task(name if name in REGISTRY else str(written.get("reference", name)))
    except ValueError as error:
        raise RunError(f"run {folder}: {error}") from None
