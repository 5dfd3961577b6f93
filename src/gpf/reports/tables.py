"""Tables: measures of a run, values over seeds, and Markdown."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpf.reports.statistics import Paired, Scores, over_seeds, paired_difference
from gpf.reports.verdicts import Family
from gpf.runs.folder import Outcome

Values = Sequence[float | None] | Scores
"""One for each seed; None where a run has none."""
MISSING = "-"


@dataclass(frozen=True)
class Measure:
    """A column of a table."""

    title: str
    better: int
    """1 if higher is better, -1 if lower is better, 0 if neither."""
    form: str
    of: Callable[[Outcome], float | None]
    """Computes the value for a run."""


Measures = Mapping[str, Measure]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def summary(values: Values, form: str, scale: float = 1.0) -> str:
    """The number over seeds with its 95 % interval, if it has one; in units of 1 / scale."""
    known = present(values)
    if known is None:
        return MISSING
    middle, low, high = (format(scale * value, form) for value in over_seeds(known))
    return middle if low == high else f"{middle} [{low}, {high}]"


def difference(ours: Values, theirs: Values, form: str, scale: float = 1.0) -> str:
    """The mean of ours less theirs, seed by seed, with its interval if there are several; in units of 1 / scale."""
    mine, others = present(ours), present(theirs)
    return MISSING if mine is None or others is None else show_paired(paired_difference(mine, others), form, scale)


def show_paired(d: Paired, form: str, scale: float = 1.0) -> str:
    """A paired difference with its interval, if there are several seeds; in units of 1 / scale."""
    mean, low, high = (format(scale * value, f"+{form}") for value in (d.mean, d.low, d.high))
    return mean if d.seeds == 1 else f"{mean} [{low}, {high}]"


def verdict(ours: Values, theirs: Values, measure: Measure, family: Family) -> str:
    """A difference, and whether it says that ours is better or worse."""
    mine, others = present(ours), present(theirs)
    if mine is None or others is None:
        return MISSING
    d = family.compare(mine, others)
    return f"{family.judge(d, measure.better)}: {show_paired(d, measure.form)}"


def measure_all(outcomes: Sequence[Outcome], measures: Measures) -> dict[str, list[float | None]]:
    """Every measure of the runs of several seeds; None where it is missing, or not finite."""

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {name: [finite(measure.of(outcome)) for outcome in outcomes] for name, measure in measures.items()}


def scores_table(scores: Mapping[str, Mapping[str, Values]], measures: Measures, header: str = "") -> str:
    """A row for each of some agents or variants, a column for each measure, which has values of all seeds."""
    rows = [
        [name, *(summary(of[key], measure.form) for key, measure in measures.items())] for name, of in scores.items()
    ]
    return markdown_table([header, *(measure.title for measure in measures.values())], rows)


def present(values: Values) -> list[float] | None:
    """The values, or None if any is missing."""
    known = [float(value) for value in values if value is not None]
    return known if known and len(known) == len(values) else None
