"""How realistic a plume is: its statistics next to those of field plumes, on one page."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpf.plume.figures import plume_figure
from gpf.plume.probes import Progress
from gpf.plume.realism import SECONDS, SEEDS, realism
from gpf.plume.scenario import Scenario
from gpf.plume.survey import survey
from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.tables import MISSING, markdown_table

Row = tuple[str, str, Callable[[dict[str, Any]], float | None]]
"""A quantity: its name, how it is written, and what it is of the statistics at a point."""
ROWS: Sequence[Row] = (
    ("mean concentration", ".3g", lambda point: point["mean"]),
    ("intermittency", ".3f", lambda point: point["intermittency"]),
    ("peak-to-mean ratio", ".1f", lambda point: point["peak_to_mean"]),
    ("99.9th percentile / mean", ".1f", lambda point: point["percentile_to_mean"]),
    ("whiffs", ",d", lambda point: point["whiffs"]["count"]),
    ("mean whiff, s", ".2f", lambda point: point["whiffs"]["mean"]),
    ("whiff duration CV", ".2f", lambda point: point["whiffs"]["cv"]),
    ("whiff PDF slope", ".2f", lambda point: point["whiffs"]["slope"]),
    ("... by least squares", ".2f", lambda point: point["whiffs"]["slope_least_squares"]),
    ("blanks", ",d", lambda point: point["blanks"]["count"]),
    ("mean blank, s", ".2f", lambda point: point["blanks"]["mean"]),
    ("blank duration CV", ".2f", lambda point: point["blanks"]["cv"]),
    ("blank PDF slope", ".2f", lambda point: point["blanks"]["slope"]),
    ("... by least squares", ".2f", lambda point: point["blanks"]["slope_least_squares"]),
    ("tail scale c0 within whiffs", ".3g", lambda point: point["tail_scale"]),
    ("integral time scale, s", ".2f", lambda point: point["integral_time"]),
    ("correlation of the antennae", ".3f", lambda point: point["antenna_correlation"]),
)


def measure_plume(
    scenario: Scenario,
    about: dict[str, Any],
    seconds: float,
    seeds: range,
    threshold: float | None,
    folder: Path,
    name: str,
    command: str,
    progress: Progress,
) -> Path:
    """Measure a scenario's plume and write a page about it; returns the path of the page.

    Args:
        scenario: The world.
        about: Its name (`scenario`), and the changes to it (`set`).
        seconds: Duration of the series of each seed, s.
        seeds: Seeds of the worlds.
        threshold: Concentration above which a sample belongs to a whiff; None for the scenario's `whiff_threshold`.
        folder: Folder of the page.
        name: Name of the page.
        command: The command as typed.
        progress: Called with the number of steps done since the last call.
    """
    found = survey(scenario, seconds, seeds, threshold, progress=progress)
    checks = realism(found.statistics)
    numbers: Numbers = {
        "kind": "plume",
        "command": command,
        **about,
        "world": dataclasses.asdict(scenario),
        "seeds": list(seeds),
        "statistics": found.statistics.plain(),
        "realism": [check.plain() for check in checks],
        "passed": all(check.passed for check in checks),
    }
    figure = plume_figure(found, seeds[0], f"{_title(numbers)}: {_length(numbers)}")
    return write_page(folder, name, numbers, page(numbers, name), {f"{name}.png": figure})


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    statistics = numbers["statistics"]
    profile = statistics["profile"]
    return join(
        [
            f"# {_title(numbers)}",
            f"{_length(numbers)}, a sample every {statistics['time_step']:g} s, with the source at a fixed place. A"
            f" whiff is a run of samples with a concentration above {statistics['threshold']:g}.",
            "## Realism: medians over the probes on the axis, and ranges of field plumes",
            _checks(numbers["realism"]),
            _verdict(numbers),
            "## Statistics on the axis",
            _table(statistics["axis"]),
            f"Across the wind, {profile['distance']:.1f} m downwind: the mean concentration has a width (Gaussian"
            f" standard deviation) of {_cell(profile['width'], '.2f')} m, intermittency one of"
            f" {_cell(profile['intermittency_width'], '.2f')} m. Along the axis the mean falls as"
            f" distance^{_cell(statistics['decay'], '.2f')}. The antennae are {statistics['separation']:g} m apart.",
            f"![plume]({name}.png)",
            f"Made by `{numbers['command']}`. All numbers: [{name}.json]({name}.json).",
        ]
    )


def _title(numbers: Numbers) -> str:
    return " ".join(["Plume statistics of", numbers["scenario"], *numbers.get("set", ())])


def _length(numbers: Numbers) -> str:
    count = len(numbers["seeds"])
    return f"{count} seed{'s' if count > 1 else ''} of {numbers['statistics']['seconds']:,g} s"


def _checks(checks: Sequence[dict[str, Any]]) -> str:
    rows = [
        [one["name"], _cell(one["value"], ".2f"), _range(one), "passed" if one["passed"] else "**failed**"]
        for one in checks
    ]
    return markdown_table(["quantity", "measured", "field plumes", "result"], rows)


def _range(check: dict[str, Any]) -> str:
    return f"above {check['low']:g}" if check["high"] is None else f"{check['low']:g} to {check['high']:g}"


def _verdict(numbers: Numbers) -> str:
    """Summary of the checks, with a warning if there was not enough data for them."""
    failed = sum(not one["passed"] for one in numbers["realism"])
    total = len(numbers["realism"])
    said = "The plume passes all checks." if failed == 0 else f"The plume fails {failed} of {total} checks."
    statistics = numbers["statistics"]
    if statistics["seconds"] < SECONDS or statistics["records"] < SEEDS:
        said += f" The checks are designed for {SEEDS} seeds of {SECONDS:,.0f} s; with less data they are less certain."
    return said


def _table(points: Sequence[dict[str, Any]]) -> str:
    header = ["distance from the source", *(f"{point['distance']:.1f} m" for point in points)]
    return markdown_table(header, [[name, *(_cell(of(point), form) for point in points)] for name, form, of in ROWS])


def _cell(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)
