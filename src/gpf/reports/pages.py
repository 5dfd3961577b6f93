"""Result pages: Markdown, its figures, and the numbers behind both."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gpf.reports.figures import save_figure
from gpf.reports.tables import markdown_table
from gpf.reports.verdicts import Claim
from gpf.runs.folder import replace_text

Numbers = dict[str, Any]
"""Everything that a page is made from, as plain data: its `kind`, the `command` that made it, and what was measured."""


def write_page(folder: Path, name: str, numbers: Numbers, text: str, figures: Mapping[str, Figure]) -> Path:
    """Write a page's figures, NAME.json and NAME.md; returns where the page is."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, figure in figures.items():
        save_figure(figure, folder / file)
    replace_text(folder / f"{name}.json", json.dumps(numbers) + "\n")
    replace_text(folder / f"{name}.md", text)
    return folder / f"{name}.md"


def read_numbers(path: Path) -> Numbers:
    """The numbers of a page."""
    try:
        numbers = json.loads(path.read_text())
        if not isinstance(numbers, dict) or not isinstance(numbers.get("kind"), str):
            raise ValueError("they have no kind")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} does not hold the numbers of a page ({error})") from None
    return numbers


def join(sections: Sequence[str]) -> str:
    """Sections, of which empty ones are left out, as one Markdown text."""
    return "\n\n".join(section for section in sections if section) + "\n"


def claims_table(claims: Mapping[str, Sequence[Claim]]) -> str:
    """The paper's words against our numbers; with a column for the page that has them, if there are several."""
    several = len(claims) > 1
    rows = [
        [*([f"[{name}]({name}.md)"] if several else []), claim.paper, claim.measured, claim.verdict]
        for name, some in claims.items()
        for claim in some
    ]
    return markdown_table([*(["task"] if several else []), "the paper says", "measured", "verdict"], rows)
