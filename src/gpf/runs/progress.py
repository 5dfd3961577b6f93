"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from gpf.runs.executors import Tell, What

if TYPE_CHECKING:
    from gpf.runs.training import Advance

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
def phase_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Progress of work in phases: a spinner on a terminal, a line per phase elsewhere, on stderr."""
    console = Console(stderr=True)
    with console.status(Text(title)) as status:
        if not console.is_terminal:
            status.stop()

        def tell(phase: str) -> None:
            if console.is_terminal:
                status.update(Text(f"{title}: {phase}"))
            else:
                print(f"{title}: {phase}", file=sys.stderr, flush=True)

        yield tell


class TrainingDisplay:
    """A run from its first round to its report: a bar for each phase on a terminal, lines elsewhere, on stderr."""

    def __init__(self, folder: Path, total: int, count: str, describe: Describe | None, writer: Any) -> None:
        self._folder, self._total, self._count = folder, total, count
        self._describe, self._writer = describe or _training_line, writer
        self._console = Console(stderr=True)
        self._terminal = self._console.is_terminal
        self._said = 0.0
        self.bars: Progress = Progress(
            TextColumn("{task.description:<10}", markup=False),
            BarColumn(bar_width=10, table_column=Column(min_width=10)),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True, table_column=Column(min_width=5)),
            TextColumn("{task.fields[line]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=self._console,
            disable=not self._terminal,
        )
        if self._terminal:
            self._console.print(Text(str(folder)))
        self._task = self.bars.add_task("training", total=total, line="")

    def round(self, metrics: dict[str, Any]) -> None:
        """Show the metrics of a round of training."""
        done, line = metrics[self._count], self._describe(metrics)
        self.bars.update(self._task, completed=done, line=line)
        if done == self._total or self._is_due():
            share = done / self._total
            left = f", {metrics['seconds'] * (1.0 / share - 1.0):.0f} s left" if share else ""
            self._say(f"training {share:.0%}, {line}{left}")
        if self._writer is not None:
            _write_scalars(self._writer, metrics)

    def phase(self, name: str, total: int = 0) -> "Advance":
        """Start the next phase with `total` parts (0 if unknown); returns a function to call with the number done."""
        self.finish()
        self._task = self.bars.add_task(name, total=total or None, line="")
        self._say(name)

        def advance(done: int) -> None:
            self.bars.update(self._task, completed=done)
            if done < total and self._is_due():
                self._say(f"{name} {done / total:.0%}")

        return advance

    def finish(self) -> None:
        """Fill the bar of the current phase."""
        total = self.bars.tasks[-1].total or 1
        self.bars.update(self._task, total=total, completed=total)

    def _is_due(self) -> bool:
        return time.monotonic() - self._said > 5.0

    def _say(self, line: str) -> None:
        """A plain line, where there is no terminal to draw bars on."""
        self._said = time.monotonic()
        if not self._terminal:
            print(f"{self._folder}: {line}", file=sys.stderr, flush=True)


@contextmanager
def training_progress(
    folder: Path, total: int, tensorboard: bool = False, count: str = "epoch", describe: Describe | None = None
) -> Iterator[TrainingDisplay]:
    """Show a run as it is trained; a round has come as far as its metric `count` says, of `total`."""
    writer = _tensorboard_writer(folder) if tensorboard else None
    display = TrainingDisplay(folder, total, count, describe, writer)
    try:
        with display.bars:
            yield display
            display.finish()
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def runs_progress(
    title: str, total: int, describe: Describe | None = None, finished: Describe | None = None
) -> Iterator[Tell]:
    """Progress of many runs: a live table on a terminal, a line for each finished run elsewhere.

    Several threads may call the yielded functions at once.

    Args:
        title: Heading of the table.
        total: Number of runs.
        describe: Formats the progress of a run from the metrics of a round.
        finished: Formats the result of a run.
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
    """The numbers of a result, and its network."""
    numbers = [f"{key.replace('_', ' ')} {value:.4g}" for key, value in result.items() if isinstance(value, float)]
    shown = [text for text in numbers if not text.startswith(("density", "seconds", "flops"))]
    return ", ".join([*shown, _shape(result)])


def check_tensorboard() -> None:
    """Refuse to begin where TensorBoard's metrics are asked for and cannot be written."""
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError("--tensorboard needs the extra tensorboard: pip install 'gpf-networks[tensorboard]'")


def _tensorboard_writer(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(folder / "tensorboard")


def _write_scalars(writer: Any, metrics: dict[str, Any]) -> None:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    if isinstance(metrics.get("validation"), dict):
        numbers |= {f"validation/{name}": value for name, value in metrics["validation"].items() if value is not None}
    for name, value in numbers.items():
        if name not in ("round", "step", "seconds"):
            writer.add_scalar(name, value, metrics["step"])
    writer.flush()
