"""Several runs next to each other: curves of each variant, as the mean over its seeds with a 95 % interval."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpf.reports.statistics import mean_interval
from gpf.runs.folder import RunError, read_config
from gpf.viewer.curves import Points, group_of, label_of, number, read_curves
from gpf.viewer.tail import Tail

MOST_RUNS = 64
GRID = 80
"""Places of a band; between the points of a run, values are interpolated."""


def compare(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Runs by variant, which are runs with the same task and settings but for the seed, and bands of their curves."""
    if not 1 <= len(folders) <= MOST_RUNS:
        raise RunError(f"runs must be from 1 to {MOST_RUNS} names, got {len(folders)}")
    groups: dict[str, list[str]] = {}
    settings: dict[str, dict[str, Any]] = {}
    points: dict[str, dict[str, Points]] = {}
    problems: list[str] = []
    units: set[str] = set()
    for name, folder in folders.items():
        try:
            config = read_config(folder)
            lines = Tail(folder / "metrics.jsonl").read()
        except (ValueError, OSError) as error:
            problems.append(f"{name} is left out: {error}".replace(f"{folder}/", ""))
            continue
        unit, points[name], _ = read_curves(lines)
        units.add(unit)
        settings[name] = _flat({"task": config.get("task"), **_object(config.get("config"))})
        key = json.dumps({**settings[name], "seed": None}, sort_keys=True)
        groups.setdefault(key, []).append(name)
    if len(units) > 1:
        raise RunError(f"runs must be logged over the same unit to be compared, got {' and '.join(sorted(units))}")
    variants = dict(zip(_names(list(groups.values()), settings), groups.values(), strict=True))
    return {
        "unit": next(iter(units), "step"),
        "variants": [
            {"label": label, "runs": names, "seeds": [number(settings[name].get("seed")) for name in names]}
            for label, names in variants.items()
        ],
        "curves": _bands(variants, points),
        "problems": problems,
    }


def _bands(variants: Mapping[str, Sequence[str]], points: Mapping[str, dict[str, Points]]) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for one in points.values() for key in one if group_of(key) in ("measures", "structure"))
    found = []
    for key in keys:
        bands = []
        for label, names in variants.items():
            having = [points[name][key] for name in names if key in points[name]]
            if having:
                bands.append({"variant": label, "runs": len(having), **_band(having, group_of(key) == "structure")})
        found.append({"key": key, "label": label_of(key), "group": group_of(key), "bands": bands})
    return found


def _band(runs: Sequence[Points], steps: bool) -> dict[str, list[float]]:
    """Mean and Student's t interval over runs, where all of them have values; `steps`: a value stays until the next."""
    start, end = max(xs[0] for xs, _ in runs), min(xs[-1] for xs, _ in runs)
    x = np.linspace(start, max(start, end), GRID)
    if steps:
        values = np.array([np.asarray(ys)[np.searchsorted(xs, x, side="right") - 1] for xs, ys in runs])
    else:
        values = np.array([np.interp(x, xs, ys) for xs, ys in runs])
    mean, low, high = np.array([mean_interval(column) for column in values.T]).T
    return {"x": x.tolist(), "mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()}


def _names(groups: Sequence[Sequence[str]], settings: Mapping[str, dict[str, Any]]) -> list[str]:
    """Names of variants: one or two settings that differ, or else the name of the first run without its number."""
    firsts = [settings[names[0]] for names in groups]
    keys = dict.fromkeys(key for one in firsts for key in one if key != "seed")
    different = [key for key in keys if len({json.dumps(one.get(key), sort_keys=True) for one in firsts}) > 1]
    if 1 <= len(different) <= 2:
        labels = [", ".join(f"{key} {one.get(key)}" for key in different) for one in firsts]
    else:
        labels = [re.sub(r"[-_ ]*(seed)?[-_ ]*\d*$", "", names[0]) for names in groups]
    return [
        label if label and labels.count(label) == 1 else f"{label or 'variant'} ({n + 1})"
        for n, label in enumerate(labels)
    ]


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
