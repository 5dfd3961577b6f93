"""Commands that look at runs: list, report, spectra and sample."""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpf.cli.options import Positional

SCORES = ("success", "accuracy", "reward", "loss", "test", "mean")
"""Names of the main number of a result; the first one that a result has is shown."""


@dataclass
class List:
    """List the runs below a folder: task, seed, steps, score, and whether they are finished.

    A run that a process is training now is running; a failed one has diverged, or met an error, which its failure.json
    says. Any other that is not finished was interrupted, and gpf train --resume RUN resumes it.
    """

    folder: Positional[Path] = Path("runs")
    """Where to look; folders of any depth are found."""
    sort: Literal["newest", "name"] = "newest"
    """The order: the run that was written to last comes first, or by name."""
    json: bool = False
    """Print one JSON object on the last line in place of the table."""

    def __call__(self) -> None:
        """Print the table."""
        if self.folder == Path("runs") and not self.folder.exists():
            print("no runs yet; gpf train makes the first")
            return
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is not a folder; gpf list FOLDER looks elsewhere")
        rows = [_row(folder) for folder in _run_folders(self.folder)]
        rows.sort(key=lambda row: row["run"] if self.sort == "name" else -row["written"])
        if self.json:
            print(json.dumps({"runs": rows}))
        elif not rows:
            print(f"no runs in {self.folder}")
        else:
            _print_runs(rows)


def _run_folders(parent: Path) -> Iterator[Path]:
    """Folders that hold a run's config.json; a run contains no other."""
    for folder, below, files in os.walk(parent):
        if "config.json" in files:
            below.clear()
            yield Path(folder)


def _row(folder: Path) -> dict[str, Any]:
    """A row of the table, read from the last lines of a run's files."""
    from gpf.runs.folder import RunError, read_config, read_result

    written = max(path.stat().st_mtime for name in _FILES if (path := folder / name).exists())
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
            "running": result is None and _is_running(folder),
            "failed": result is None and (folder / "failure.json").exists(),
        }
    except ValueError as error:
        row["damaged"] = str(error).removeprefix(f"{folder}/")
    return row


_FILES = ("config.json", "metrics.jsonl", "result.json")


def _score(result: dict[str, Any]) -> dict[str, float] | None:
    """The main number of a result, with its name; of a navigator that was not evaluated, its last validation."""
    for name in SCORES:
        if isinstance(result.get(name), int | float):
            return {name: result[name]}
    validation = result.get("validation")
    return {"validation": validation["last"]} if isinstance(validation, dict) and "last" in validation else None


def _is_running(folder: Path) -> bool:
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
    from gpf.runs.folder import RunError

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


def _print_runs(rows: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from gpf.cli.shared import console

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for title, justify in (("run", "left"), ("task", "left"), ("seed", "right"), ("steps", "right"),
                           ("score", "left"), ("finished", "left")):  # fmt: skip
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, (row["run"], *_cells(row))))
    console().print(table)


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    if "damaged" in row:
        return "-", "-", "-", f"damaged: {row['damaged']}", "-"
    (name, value), *_ = (row["score"] or {"": 0.0}).items()
    score = f"{name} {value:.1%}" if name in ("success", "accuracy", "validation") else f"{name} {value:.4g}"
    state = "yes" if row["finished"] else "running" if row["running"] else "failed" if row["failed"] else "no"
    return row["task"], str(row["seed"]), f"{row['steps']:,.0f}", score if name else "-", state


@dataclass
class Spectra:
    """Show what growing, pruning and freezing did to the network of a run, by its spectra."""

    run: Positional[Path]
    """Folder of a run that gpf train made."""
    json: bool = False
    """Print one JSON object on the last line in place of the tables."""

    def __call__(self) -> None:
        """Analyse the run's snapshots, print a table for each, and write the figures."""
        from gpf.runs.progress import phase_progress
        from gpf.tasks.spectra import analyse_run, as_json, draw_run

        with phase_progress(str(self.run)) as tell:
            moments = analyse_run(self.run, tell=tell)
            tell("figures")
            paths = draw_run(self.run, moments)
        if self.json:
            print(json.dumps({"run": str(self.run), "moments": as_json(moments)}))
            return
        for moment in moments:
            print(f"{moment.label}\n{moment.inspection}")
            if moment.folds:
                regions = ", ".join(f"{count:.1f}" for count in moment.folds)
                print(f"linear regions on a path between two observations, up to each layer: {regions}")
            print()
        print("written: " + ", ".join(str(path) for path in paths))


@dataclass
class Report:
    """Write a run's report.html: curves, events, results and settings, in one file."""

    run: Positional[Path]
    """Folder of a run that gpf train made; it need not be finished."""

    def __call__(self) -> None:
        """Write the report."""
        from gpf.runs.progress import phase_progress
        from gpf.tasks.report import write_report

        with phase_progress(str(self.run)) as tell:
            path = write_report(self.run, tell)
        print(f"written: {path}")


@dataclass
class Sample:
    """Let a language model that gpf train shakespeare made continue a text."""

    run: Positional[Path]
    """Folder of the run."""
    prompt: str = "\n"
    """The text to continue."""
    tokens: int = 100
    """How many tokens to add."""
    temperature: float = 0.8
    """1 for the model's own probabilities; below 1, likely tokens become more likely; 0 always takes the likeliest."""
    seed: int = 0
    """Seed of the random numbers."""

    def __call__(self) -> None:
        """Print the text."""
        from gpf.tasks.shakespeare import sample

        print(sample(self.run, self.prompt, self.tokens, self.temperature, self.seed))
