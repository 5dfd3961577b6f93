"""`gpf train [TASK]`: one run, or several seeds of it."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from gpf.cli import parse
from gpf.cli.shared import Where
from gpf.runs.executors import train_all
from gpf.runs.folder import Run, next_folder
from gpf.runs.progress import runs_progress, training_progress
from gpf.runs.training import check_threads
from gpf.tasks import REGISTRY, find_task, task_of
from gpf.tasks.report import write_report
from gpf.tasks.task import Task


@dataclass
class Options:
    """What every task's runs have in common."""

    run: Path | None = None
    """Folder of the run, which must be new; None for runs/TASK-1, runs/TASK-2 and so on. With --seeds, of all."""
    resume: Path | None = None
    """Resume the run in this folder, which was interrupted or killed; it ends as if it had not been."""
    seeds: int | None = None
    """How many runs, of the seeds from --seed on; run again to resume. None for one."""
    where: tyro.conf.OmitArgPrefixes[Where] = dataclasses.field(default_factory=Where)
    threads: int | None = None
    """Threads to step worlds with; None for one per core. The result is the same."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, to the run's folder."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""


def train(arguments: Sequence[str]) -> None:
    """Train on the task that the first argument names, or a navigator."""
    named = bool(arguments) and not arguments[0].startswith("-")
    task = find_task(arguments[0] if named else "plume")
    rest = arguments[1:] if named else arguments
    default = task.options(rest)
    asked: Any = parse(_command(task, default), rest, "gpf train" + (f" {arguments[0]}" if named else ""))
    _train(task, _widened(asked.config, type(default)), default, asked)


def _command(task: Task[Any], default: Any) -> type:
    """The options of a task: what every run has, and its settings."""
    choice = [
        (name, Annotated[Literal[names], tyro.conf.arg(help=words)], dataclasses.field(default=names[0]))
        for name, (names, words) in task.choices.items()
    ]
    narrow, value = _narrowed(default)
    kind: Any = Annotated[narrow, tyro.conf.OmitArgPrefixes]
    settings = ("config", kind, dataclasses.field(default=value))
    command = dataclasses.make_dataclass("Train", [*choice, settings], bases=(Options,))
    command.__doc__ = (
        f"{task.title}; everything about a run goes into one folder.\n\n"
        f"Tasks, each with --help of its own: gpf train {', '.join(REGISTRY)}, or module:name of a task of yours."
    )
    return command


def _narrowed(default: Any) -> tuple[Any, Any]:
    """A class of settings in which a choice between dataclasses has been made, as options need it; and the default."""
    values = {spec.name: getattr(default, spec.name) for spec in dataclasses.fields(default)}
    made = {name: type(value) for name, value in values.items() if dataclasses.is_dataclass(value)}
    fields = [(name, kind, dataclasses.field(default=values[name])) for name, kind in made.items()]
    narrow = dataclasses.make_dataclass(
        type(default).__name__, fields, bases=(type(default),), frozen=True, kw_only=True
    )
    return narrow, narrow(**values)


def _widened(config: Any, kind: type) -> Any:
    """Settings in their own class again."""
    return kind(**{spec.name: getattr(config, spec.name) for spec in dataclasses.fields(config)})


def _train(task: Task[Any], config: Any, default: Any, asked: Options) -> None:
    check_threads(asked.threads)
    if asked.resume is not None:
        if asked.run is not None or asked.seeds is not None or config != default:
            raise ValueError("--resume cannot be combined with settings; those of the run are in its folder")
        task = task_of(asked.resume)
    config.check()
    if asked.seeds is not None:
        results = _train_seeds(task, config, asked)
    else:
        run = Run.open(asked.resume) if asked.resume else None
        run = run or task.create(asked.run or next_folder(Path("runs"), task.name), config)
        total, count = task.length(task.read(run.folder))
        try:
            with training_progress(run.folder, total, asked.tensorboard, count, task.describe) as report:
                results = {run.folder: task.train(run, asked.threads, report)}
        finally:
            run.close()
    told = [
        {"run": str(folder), **result, "report": str(write_report(folder))} for folder, result in results.items()
    ]  # fmt: skip
    if asked.json:
        print(json.dumps(told if asked.seeds is not None else told[0]))
        return
    for result in told:
        task.show_result(result)
        print(f"report: {result['report']}")


def _train_seeds(task: Task[Any], config: Any, asked: Options) -> dict[Path, dict[str, Any]]:
    if asked.seeds is None or asked.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {asked.seeds}")
    parent = asked.run or Path("runs", task.name)
    seeds = range(config.seed, config.seed + asked.seeds)
    wanted = {parent / str(seed): dataclasses.replace(config, seed=seed) for seed in seeds}
    with runs_progress(str(parent), len(wanted), task.describe, task.describe_result) as tell:
        return train_all(task, wanted, asked.where.executor(), tell)
