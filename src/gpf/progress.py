"""Progress of long work: a bar on a terminal, nothing in its way elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
