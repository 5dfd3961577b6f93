"""Progress of long work: a bar on a terminal, nothing in its way elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from gpf.runs.executors import Tell, What

Describe = Callable[[dict[str, Any]], str]
"""Says in a few words what metrics, or a result, amount to."""


@contextmanager
def episode_progress(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar of finished episodes with the success rate so far; on stderr, and only on a terminal."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("success {task.fields[success]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not Console(stderr=True).is_terminal,
    )
    with bar:
        task = bar.add_task(title, total=total, success="-")

        def advance(finished: int, found: int) -> None:
            bar.update(task, completed=finished, success=f"{found / finished:.1%}" if finished else "-")

        yield advance


@contextmanager
def steps_progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar of steps; on stderr, and only on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda steps: bar.update(task, completed=steps)


@contextmanager
def training_progress(
    folder: Path,
    total: int,
    tensorboard: bool = False,
    count: str = "epoch",
    describe: Describe | None = None,
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Metrics of each round as they come: a live line on a terminal, plain lines now and then elsewhere, on stderr.

    A round has come as far as its metric `count` says.
    """
    writer = _tensorboard_writer(folder) if tensorboard else None
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TextColumn("{task.fields[line]}", markup=False),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    said = 0.0
    with bar:
        task = bar.add_task(str(folder), total=total, line="")

        def report(metrics: dict[str, Any]) -> None:
            nonlocal said
            line = (describe or _training_line)(metrics)
            bar.update(task, completed=metrics[count], line=line)
            if not console.is_terminal and (time.monotonic() - said > 5.0 or metrics[count] == total):
                said = time.monotonic()
                share = metrics[count] / total
                left = f", {metrics['seconds'] * (1.0 / share - 1.0):.0f} s left" if share else ""
                print(f"{folder}: {share:.0%}, {line}{left}", file=sys.stderr, flush=True)
            if writer is not None:
                _write_scalars(writer, metrics)

        yield report
    if writer is not None:
        writer.close()


@contextmanager
def runs_progress(
    title: str, total: int, describe: Describe | None = None, finished: Describe | None = None
) -> Iterator[Tell]:
    """Runs that are going on and that are done: a live table on a terminal, a line for each finished one elsewhere.

    What it yields may be called by several threads at once.

    Args:
        title: What they are.
        total: How many there are.
        describe: Says how far a run is, by the metrics of a round.
        finished: Says what a run amounts to, by its result.
    """
    one_at_a_time = Lock()
    console = Console(stderr=True)
    going: dict[Path, tuple[float, str]] = {}
    done = 0

    def view() -> Table:
        table = Table(
            title=f"{title}: {done} of {total} runs done, {total - done} left", box=None, title_justify="left"
        )
        for folder, (since, line) in list(going.items()):
            table.add_row(Text(str(folder)), f"for {time.monotonic() - since:.0f} s", Text(line))
        return table

    with Live(get_renderable=view, console=console, refresh_per_second=1, transient=True) as live:
        if not console.is_terminal:
            live.stop()

        def tell(folder: Path, what: What, told: dict[str, Any]) -> None:
            nonlocal done
            with one_at_a_time:
                if what == "begun":
                    going[folder] = time.monotonic(), ""
                elif what == "round" and folder in going:
                    going[folder] = going[folder][0], (describe or _training_line)(told)
                elif what in ("finished", "failed"):
                    going.pop(folder, None)
                    done += 1
                    said = f"failed: {told['error']}" if what == "failed" else (finished or result_line)(told)
                    line = f"{folder}: {said}"
                    if console.is_terminal:
                        live.console.print(Text(line))
                    else:
                        print(f"{line} ({done} of {total})", file=sys.stderr, flush=True)

        yield tell


def _shape(of: dict[str, Any]) -> str:
    return f"{of['depth']} layers, density {of['density']:.3f}, {of['parameters']:,} parameters"


def _training_line(metrics: dict[str, Any]) -> str:
    return f"round {metrics['round']}, {_shape(metrics)}"


def result_line(result: dict[str, Any]) -> str:
    """What a result amounts to: its numbers, and the network."""
    numbers = [f"{key.replace('_', ' ')} {value:.4g}" for key, value in result.items() if isinstance(value, float)]
    shown = [text for text in numbers if not text.startswith(("density", "seconds", "flops"))]
    return ", ".join([*shown, _shape(result)])


def _tensorboard_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("--tensorboard needs the extra tensorboard: pip install 'gpf-networks[tensorboard]'") from None
    return SummaryWriter(folder / "tensorboard")


def _write_scalars(writer: Any, metrics: dict[str, Any]) -> None:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    if isinstance(metrics.get("validation"), dict):
        numbers |= {f"validation/{name}": value for name, value in metrics["validation"].items() if value is not None}
    for name, value in numbers.items():
        if name not in ("round", "step", "seconds"):
            writer.add_scalar(name, value, metrics["step"])
    writer.flush()
