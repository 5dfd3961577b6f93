"""What a trained navigator amounts to, on the terminal."""

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show_result(result: dict[str, Any]) -> None:
    """A trained navigator as a table: the last checkpoint, which the run stands behind, and what there is to know."""
    console = Console()
    if result["episodes"]:
        table = Table(box=box.SIMPLE, title=escape(f"{result['run']}: {result['episodes']:,} held-out episodes"))
        for column in ("checkpoint", "success [95 % CI]", "mean steps", "SPL"):
            table.add_column(column)
        for checkpoint, s in (("last", result), ("best", result.get("best"))):
            if s is not None:
                steps = "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}"
                rate = f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]"
                table.add_row(checkpoint, rate, steps, f"{s['spl']:.3f}")
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
    """What to say of a run whose last checkpoint is far below its best one."""
    last, best = result["validation"]["last"], result["validation"]["best"]
    return (
        f"Training regressed: the last checkpoint found the source in {last:.1%} of the validation episodes, the best"
        f" one in {best:.1%}. Use the best one (gpf evaluate {result['run']} --checkpoint best), train for longer"
        " (--steps), or average the weights (--averaging 0.98)."
    )
