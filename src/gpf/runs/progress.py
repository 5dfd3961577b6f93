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
    describe: Callable[[dict[str, Any]], str] | None = None,
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
                left = metrics["seconds"] * (total / metrics[count] - 1.0)
                share = metrics[count] / total
                print(f"{folder}: {share:.0%}, {line}, {left:.0f} s left", file=sys.stderr, flush=True)
            if writer is not None:
                _write_scalars(writer, metrics)

        yield report
    if writer is not None:
        writer.close()


@contextmanager
def runs_progress(
    title: str, total: int, describe: Callable[[dict[str, Any]], str] | None = None
) -> Iterator[Callable[[Path, dict[str, Any] | None], None]]:
    """Runs that are going on and that are done: a live table on a terminal, a line for each finished one elsewhere.

    What it yields may be called by several threads at once.
    """
    one_at_a_time = Lock()
    console = Console(stderr=True)
    going: dict[Path, float] = {}
    done = 0

    def view() -> Table:
        table = Table(
            title=f"{title}: {done} of {total} runs done, {total - done} left", box=None, title_justify="left"
        )
        for folder, since in list(going.items()):
            table.add_row(Text(str(folder)), f"for {time.monotonic() - since:.0f} s")
        return table

    with Live(get_renderable=view, console=console, refresh_per_second=1, transient=True) as live:
        if not console.is_terminal:
            live.stop()

        def tell(folder: Path, result: dict[str, Any] | None) -> None:
            nonlocal done
            if result is None:
                going[folder] = time.monotonic()
                return
            line = f"{folder}: {(describe or _result_line)(result)}"
            with one_at_a_time:
                going.pop(folder, None)
                done += 1
                if console.is_terminal:
                    live.console.print(Text(line))
                else:
                    print(f"{line} ({done} of {total})", file=sys.stderr, flush=True)

        yield tell


def _result_line(result: dict[str, Any]) -> str:
    density = f", density {result['density']:.3f}" if "density" in result else ""
    return f"success {result['success']:.2%}, depth {result['depth']}{density}"


def _training_line(metrics: dict[str, Any]) -> str:
    success = "-" if metrics["success"] is None else f"{metrics['success']:.1%}"
    return (
        f"success {success}, depth {metrics['depth']}, density {metrics['density']:.2f},"
        f" {metrics['steps_per_second']:,.0f} steps/s"
    )


def _tensorboard_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("tensorboard: it is not installed; accepted: after pip install tensorboard") from None
    return SummaryWriter(folder / "tensorboard")


def _write_scalars(writer: Any, metrics: dict[str, Any]) -> None:
    for name in ("success", "spl", "return", "depth", "density", "parameters", "steps_per_second"):
        if metrics[name] is not None:
            writer.add_scalar(name, metrics[name], metrics["steps"])
    for name, value in (metrics["validation"] or {}).items():
        if value is not None:
            writer.add_scalar(f"validation/{name}", value, metrics["steps"])
    writer.flush()
