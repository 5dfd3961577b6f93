"""Helpers that several commands share: where runs are trained, how a command was typed, and how pages are shown."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from gpf.runs.executors import Executor

PIPE = 120
"""Columns of what is printed where there is no terminal, unless COLUMNS says otherwise."""
WIDEST_CELL = 36
"""Characters of a cell in a line, at most; longer ones are wrapped."""
BETWEEN = 3
"""Spaces between two columns of a table."""


@dataclass(frozen=True)
class Where:
    """Where many runs are trained."""

    jobs: int = 2
    """Runs at the same time, each on one core of this machine."""
    cluster: str | None = None
    """Train on a Ray cluster instead: auto, or its HOST:PORT. Needs the extra fleet."""

    def executor(self) -> "Executor":
        """Who trains them."""
        if self.cluster is not None:
            from gpf.runs.fleet import Fleet

            return Fleet(self.cluster)
        from gpf.runs.executors import Local

        return Local(self.jobs)


def typed_command() -> str:
    """The command as it was typed."""
    return shlex.join(["gpf", *sys.argv[1:]])


def changed(command: Any, *names: str) -> list[str]:
    """Those of some options that were given another value than their default."""
    return [name for name in names if getattr(command, name) != getattr(type(command), name)]


def check_writable(path: Path, option: str) -> None:
    """Make the folder of a file, and refuse one that could not be written, before the work whose result it is to hold.

    Args:
        path: The file.
        option: With which another one can be chosen.
    """
    check_folder(path.parent, option)
    if path.is_dir():
        raise ValueError(f"cannot write {str(path)!r}, which is a folder; choose a file with {option}")


def check_folder(folder: Path, option: str) -> None:
    """Make a folder, and refuse one that cannot be written to; `option` is how another one is chosen."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable, why = os.access(folder, os.W_OK | os.X_OK), "no permission"
    except OSError as error:
        writable, why = False, error.strerror or str(error)
    if not writable:
        raise ValueError(f"cannot write to {str(folder)!r} ({why}); choose another folder with {option}")


def console() -> "Console":
    """The terminal, or a console as wide as a page without one."""
    from rich.console import Console

    terminal = Console(highlight=False, soft_wrap=False)
    if not terminal.is_terminal and "COLUMNS" not in os.environ:
        terminal = Console(highlight=False, width=PIPE)
    return terminal


def show_markdown(text: str) -> None:
    """Print a Markdown page as text for people: tables with aligned columns, no link targets, no images."""
    from rich.text import Text

    out = console()
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line for line in block.splitlines() if not re.fullmatch(r"\s*(!\[[^\]]*\]\([^)]*\)\s*)+", line)]
        if not lines:
            continue
        if lines[0].startswith("|"):
            header, _, *rows = [[_plain(cell) for cell in line.strip().strip("|").split("|")] for line in lines]
            for table in _tables(header, rows, out.width):
                out.print(table)
                out.print()
        elif lines[0].startswith("#"):
            out.print(Text(_plain(lines[0].lstrip("# ")), "bold"))
            out.print()
        else:
            out.print(Text("\n".join(_plain(line) for line in lines)))
            out.print()


def _plain(text: str) -> str:
    """Markdown inside a line, without its marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*([^*]+)\*\*|`([^`]+)`", lambda match: match[1] or match[2], text).strip()


def _tables(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator["Table"]:
    """A table. One that is too wide is split into several, which repeat the first column."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for columns in _parts(header, rows, width):
        table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, BETWEEN - 1, 0, 0))
        for n, wide in columns.items():
            numbers = n > 0 and all(re.match(r"[-+]?[\d.]|-?$", row[n]) for row in rows)
            justify: Literal["right", "left"] = "right" if numbers else "left"
            table.add_column(Text(header[n]), justify=justify, overflow="fold", width=wide)
        for row in rows:
            table.add_row(*(Text(row[n]) for n in columns))
        yield table


def _parts(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[dict[int, int]]:
    """Which columns are shown side by side, and how wide each is."""
    wide = [_width(title, column) for title, *column in zip(header, *rows, strict=True)]
    rest = list(range(1, len(header)))
    while True:
        part = {0: wide[0]}
        while rest and (len(part) == 1 or sum(part.values()) + wide[rest[0]] + BETWEEN * len(part) <= width):
            n = rest.pop(0)
            part[n] = wide[n]
        spare = width - sum(part.values()) - BETWEEN * (len(part) - 1)
        for n in part:  # room that is left keeps titles on one line
            more = max(0, min(spare, len(header[n]) - part[n]))
            part[n], spare = part[n] + more, spare - more
        yield part
        if not rest:
            return


def _width(title: str, cells: Sequence[str]) -> int:
    """Columns that a column needs: titles and long cells are wrapped at spaces."""
    words = max(map(len, title.split()), default=0)
    return max([words, *(min(len(cell), WIDEST_CELL) for cell in cells)])
