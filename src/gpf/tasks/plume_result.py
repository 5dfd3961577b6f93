"""The result of a trained navigator, on the terminal."""

import shlex
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

CHECKPOINT_COLUMNS = ("checkpoint", "success [95 % CI]", "mean steps", "SPL")


def show_result(result: dict[str, Any]) -> None:
    """A trained navigator as a table: the last checkpoint, which the run stands behind, and what there is to know."""
    console = Console()
    if result["episodes"]:
        table = Table(box=box.SIMPLE, title=escape(f"{result['run']}: {result['episodes']:,} held-out episodes"))
        for column in CHECKPOINT_COLUMNS:
            table.add_column(column)
        for row in checkpoint_rows(result):
            table.add_row(*row)
        console.print(table)
    else:
        print(f"{result['run']}: {result['validation']['last']:.2%} success in the last validation; not evaluated")
    frozen = ", ".join(map(str, result["frozen"])) or "none"
    print(f"network: depth {result['depth']}, density {result['density']:.3f}, {result['parameters']:,} parameters,"
          f" frozen layers: {frozen}")  # fmt: skip
    print(f"trained: {result['step']:,} steps in {result['seconds']:.1f} s")
    if result["regressed"]:
        print(regression(result))


def regression(result: dict[str, Any]) -> str:
    """The warning about a run whose last checkpoint is far below its best one."""
    last, best = result["validation"]["last"], result["validation"]["best"]
    run = shlex.quote(str(result["run"]))
    return (
        f"Training regressed: the last checkpoint found the source in {last:.1%} of the validation episodes, the best"
        f" one in {best:.1%}. Use the best one (gpf evaluate {run} --checkpoint best), or train for longer (gpf train"
        f" --resume {run} --extend N)."
    )


def checkpoint_rows(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Of the last checkpoint, and of the best one if it was evaluated: success with its interval, steps, SPL."""
    evaluated = {"last": result, "best": result.get("best")}
    return [
        (
            name,
            f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]",
            "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}",
            f"{s['spl']:.3f}",
        )
        for name, s in evaluated.items()
        if s is not None and s["success"] is not None
    ]
