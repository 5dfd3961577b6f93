"""`gpf train [TASK]`: one run, or several seeds of it."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from gpf.cli import options, parse
from gpf.cli.options import Arg, typed_values
from gpf.cli.shared import Where
from gpf.runs.folder import Run, next_folder, read_config, read_result, undamaged
from gpf.tasks.registry import REGISTRY

if TYPE_CHECKING:
    from gpf.tasks.task import Task


@dataclass
class Common:
    """Options of new runs, and of those that are resumed."""

    resume: Path | None = None
    """Resume the run in this folder, which was interrupted or killed. The result is the same as without the
    interruption."""
    extend: int | None = None
    """Train a finished run (--resume) for N more steps, or episodes, epochs or tasks, whichever sets its length. A
    learning-rate schedule is stretched to the new length."""
    threads: int | None = None
    """Threads to step worlds with; the result does not depend on it. Default: one per core."""
    report: bool = True
    """Write the run's report.html, with its figures. `gpf report RUN` does so later."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard, to the run's folder."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def check(self) -> None:
        """Refuse what cannot be, before anything is written."""
        from gpf.runs.progress import check_tensorboard
        from gpf.runs.training import check_threads

        check_threads(self.threads)
        if self.tensorboard:
            check_tensorboard()


@dataclass
class Options(Common):
    """Options that the runs of every task have."""

    run: Path | None = None
    """Folder of the run, which must be new. With --seeds, the parent folder of all runs. Default: runs/TASK-1,
    runs/TASK-2 and so on."""
    source: Annotated[Path | None, Arg(name="from")] = None
    """Fine-tune the network of this run in a new one. The settings of that run are the defaults. Depth and pruned
    weights stay; frozen layers learn again."""
    seeds: int | None = None
    """Train N runs, with consecutive seeds from --seed. The same command resumes."""
    where: Where = dataclasses.field(default_factory=Where)

    def check(self) -> None:
        """Refuse what cannot be, before anything is written."""
        super().check()
        if self.extend is not None:
            raise ValueError("--extend needs --resume and the folder of a finished run")
        if self.seeds is None:
            if self.where != Where():
                raise ValueError("--jobs and --cluster need --seeds, the number of runs")
            return
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        for name, given in (("from", self.source), ("threads", self.threads), ("tensorboard", self.tensorboard)):
            if given:
                raise ValueError(f"--{name} cannot be combined with --seeds")


def train(arguments: Sequence[str]) -> None:
    """Train on the task that the first argument names, or a navigator."""
    named = bool(arguments) and not arguments[0].startswith("-")
    rest = arguments[named:]
    if typed_values(rest, "--resume"):
        _resume(options.parse(Common, rest, "gpf train", _not_with_resume))
        return
    from gpf.tasks import find_task, task_of

    sources = typed_values(rest, "--from")
    source = Path(sources[-1]) if sources else None
    task = task_of(source) if source and not named else find_task(arguments[0] if named else "plume")
    typed = {name: values[-1] for name in task.decisive if (values := typed_values(rest, f"--{name}"))}
    command = _command(task, task.options(typed, source))
    asked: Any = parse(command, rest, "gpf train" + (f" {arguments[0]}" if named else ""))
    asked.check()
    asked.config.check()
    _show(task, (_train_one if asked.seeds is None else _train_seeds)(task, asked), asked)


def _not_with_resume(flag: str) -> str:
    return f"--resume cannot be combined with {flag}; the settings of the run are in its folder"


def _resume(asked: Common) -> None:
    assert asked.resume is not None
    folder = asked.resume
    read_config(folder)
    with undamaged(folder):
        result = read_result(folder)
        if result is not None and asked.extend is None:
            done = f"run {folder} is finished, after {result['step']:,} steps; --extend N trains it for longer"
            if asked.report and not (folder / "report.html").exists():
                _write_report(folder)
            print(json.dumps({"run": str(folder), **result}) if asked.json else done)
            return
    asked.check()
    from gpf.tasks import task_of
    from gpf.tasks.task import train_shown

    task, run = task_of(folder), Run.open(folder)
    if asked.extend is not None:
        task.extend(run, asked.extend)
    result = train_shown(task, run, asked.threads, asked.tensorboard, _report(run, asked), new=False)
    _show(task, {folder: result}, asked)


def _command(task: "Task[Any]", default: Any) -> type:
    """The options of a task: common ones, and its settings."""
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
    chosen = [{name: value} for name, (values, _) in task.choices.items() for value in values]
    return [_command(task, task.options(typed)) for typed in chosen or [{}]]


def _train_one(task: "Task[Any]", asked: Any) -> dict[Path, dict[str, Any]]:
    from gpf.tasks.task import train_shown

    run = task.create(asked.run or next_folder(Path("runs"), task.name), asked.config, asked.source)
    return {run.folder: train_shown(task, run, asked.threads, asked.tensorboard, _report(run, asked))}


def _train_seeds(task: "Task[Any]", asked: Any) -> dict[Path, dict[str, Any]]:
    from gpf.runs.executors import train_all
    from gpf.runs.progress import runs_progress

    parent, first = asked.run or Path("runs", task.name), asked.config.seed
    if (parent / "config.json").exists():
        raise ValueError(f"{parent} is a run; choose another folder for several with --run")
    seeds = range(first, first + asked.seeds)
    wanted = {parent / str(seed): dataclasses.replace(asked.config, seed=seed) for seed in seeds}
    with runs_progress(str(parent), len(wanted), task.describe, task.describe_result) as tell:
        results = train_all(task, wanted, asked.where.executor(), tell)
    if asked.report:
        for folder in results:
            _write_report(folder)
    return results


def _report(run: Run, asked: Common) -> Callable[[Any], None]:
    """The function that writes the report of a finished run and shows its phases, if wanted."""

    def write(phase: Any) -> None:
        if asked.report:
            from gpf.tasks.report import write_report

            write_report(run.folder, lambda name: phase(name, 0))

    return write


def _write_report(folder: Path) -> None:
    from gpf.runs.progress import phase_progress
    from gpf.tasks.report import write_report

    with phase_progress(str(folder)) as tell:
        write_report(folder, tell)


def _show(task: "Task[Any]", results: dict[Path, dict[str, Any]], asked: Common) -> None:
    shown = [{"run": str(folder), **result} for folder, result in results.items()]
    for result in shown:
        if asked.report and (report := Path(result["run"], "report.html")).exists():
            result["report"] = str(report)
    if asked.json:
        print(json.dumps(shown if getattr(asked, "seeds", None) else shown[0]))
        return
    for result in shown:
        task.show_result(result)
        if "report" in result:
            print(f"report: {result['report']}")
