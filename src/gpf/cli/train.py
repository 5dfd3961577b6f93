"""`gpf train [TASK]`: one run, or several seeds of it."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gpf.cli import parse
from gpf.cli.options import Arg
from gpf.cli.shared import Where
from gpf.runs.folder import Run, read_result
from gpf.tasks.registry import REGISTRY

if TYPE_CHECKING:
    from gpf.tasks.task import Task


@dataclass
class Options:
    """What every task's runs have in common."""

    run: Path | None = None
    """Folder of the run, which must be new; None for runs/TASK-1, runs/TASK-2 and so on. With --seeds, of all."""
    resume: Path | None = None
    """Resume the run in this folder, which was interrupted or killed; it ends as if it had not been."""
    extend: int | None = None
    """With --resume, of a finished run: go on for so much longer, in steps (or episodes, epochs, tasks: what the run's
    length is given in). Learning rates that fall over a run start again from where they then are."""
    first: Annotated[Path | None, Arg(name="from")] = None
    """Fine-tune the network of this run in a new one; its settings are the defaults. Depth and pruned weights stay,
    frozen layers learn again."""
    seeds: int | None = None
    """How many runs, of the seeds from --seed on; run again to resume. None for one."""
    where: Where = dataclasses.field(default_factory=Where)
    threads: int | None = None
    """Threads to step worlds with; None for one per core. The result is the same."""
    report: bool = True
    """Write the run's report.html, with its figures. `gpf report RUN` does so later."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, to the run's folder."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""


def train(arguments: Sequence[str]) -> None:
    """Train on the task that the first argument names, or a navigator."""
    resumed = _value(arguments, "resume")
    if resumed and "--extend" not in " ".join(arguments) and (result := read_result(Path(resumed))) is not None:
        _say_finished(Path(resumed), result, "--json" in arguments)
        return
    from gpf.tasks import find_task, task_of

    named = bool(arguments) and not arguments[0].startswith("-")
    rest, first = arguments[named:], _value(arguments, "from")
    task = task_of(Path(first)) if first and not named else find_task(arguments[0] if named else "plume")
    default = task.options(rest, Path(first) if first else None)
    asked: Any = parse(_command(task, default), rest, "gpf train" + (f" {arguments[0]}" if named else ""))
    _train(task, asked.config, default, asked)


def _value(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option, before everything else is known."""
    for place, text in enumerate(arguments):
        if text.startswith(f"--{option}="):
            return text.partition("=")[2]
        if text == f"--{option}" and place + 1 < len(arguments):
            return arguments[place + 1]
    return None


def _say_finished(folder: Path, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"run": str(folder), **result}))
    else:
        print(f"run {folder} is finished, after {result['step']:,} steps; train it for longer with --extend STEPS")


def _command(task: "Task[Any]", default: Any) -> type:
    """The options of a task: what every run has, and its settings."""
    fields: list[tuple[str, Any, Any]] = [
        (name, Annotated[Literal[names], Arg(help=words)], dataclasses.field(default=names[0]))
        for name, (names, words) in task.choices.items()
    ]
    fields.append(("config", type(default), dataclasses.field(default_factory=lambda: default)))
    command = dataclasses.make_dataclass("Train", fields, bases=(Options,))
    command.__doc__ = (
        f"{task.title}; everything about a run goes into one folder.\n\n"
        f"Tasks, each with --help of its own: gpf train {', '.join(REGISTRY)}, or module:name of a task of yours."
    )
    return command


def commands_of(task: "Task[Any]") -> list[type]:
    """The command of a task, with each of the choices that its options depend on."""
    chosen = [[f"--{name}", value] for name, (values, _) in task.choices.items() for value in values]
    return [_command(task, task.options(arguments)) for arguments in chosen or [[]]]


def _train(task: "Task[Any]", config: Any, default: Any, asked: Options) -> None:
    from gpf.runs.progress import check_tensorboard
    from gpf.runs.training import check_threads

    check_threads(asked.threads)
    if asked.tensorboard:
        check_tensorboard()
    if asked.extend is not None and asked.resume is None:
        raise ValueError("--extend needs --resume and the folder of a finished run")
    if asked.resume is not None and (asked.run or asked.first or asked.seeds is not None or config != default):
        raise ValueError("--resume cannot be combined with settings; those of the run are in its folder")
    if asked.seeds is not None and asked.first is not None:
        raise ValueError("--from cannot be combined with --seeds; fine-tune one run at a time")
    config.check()
    results = _train_one(task, config, asked) if asked.seeds is None else _train_seeds(task, config, asked)
    told = [{"run": str(folder), **result} for folder, result in results.items()]
    for result in told:
        if (report := Path(result["run"], "report.html")).exists():
            result["report"] = str(report)
    if asked.json:
        print(json.dumps(told if asked.seeds is not None else told[0]))
        return
    for result in told:
        task.show_result(result)
        if "report" in result:
            print(f"report: {result['report']}")


def _train_one(task: "Task[Any]", config: Any, asked: Options) -> dict[Path, dict[str, Any]]:
    from gpf.runs.folder import next_folder
    from gpf.tasks import task_of
    from gpf.tasks.report import write_report
    from gpf.tasks.task import train_shown

    if asked.resume is not None:
        task, run = task_of(asked.resume), Run.open(asked.resume)
        if asked.extend is not None:
            task.extend(run, asked.extend)
    else:
        run = task.create(asked.run or next_folder(Path("runs"), task.name), config, asked.first)

    def report(phase: Any) -> None:
        if asked.report:
            write_report(run.folder, lambda name: phase(name, 0))

    return {run.folder: train_shown(task, run, asked.threads, asked.tensorboard, report, new=asked.resume is None)}


def _train_seeds(task: "Task[Any]", config: Any, asked: Options) -> dict[Path, dict[str, Any]]:
    from gpf.runs.executors import train_all
    from gpf.runs.progress import phase_progress, runs_progress
    from gpf.tasks.report import write_report

    if asked.seeds is None or asked.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {asked.seeds}")
    parent = asked.run or Path("runs", task.name)
    seeds = range(config.seed, config.seed + asked.seeds)
    wanted = {parent / str(seed): dataclasses.replace(config, seed=seed) for seed in seeds}
    with runs_progress(str(parent), len(wanted), task.describe, task.describe_result) as tell:
        results = train_all(task, wanted, asked.where.executor(), tell)
    if asked.report:
        for folder in results:
            with phase_progress(str(folder)) as phase:
                write_report(folder, phase)
    return results
