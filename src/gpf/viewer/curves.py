"""Curves from lines of metrics: every number that a task logs, thinned such that no extreme is lost."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Points = tuple[list[float], list[float]]
"""x and y."""
Group = Literal["measures", "structure", "cost", "plasticity"]
UNITS = ("step", "round", "epoch")
"""What curves are drawn over: the first of these that the lines count."""
STRUCTURE = ("depth", "density", "parameters", "frozen")
COST = ("steps_per_second", "seconds", "flops", "episodes")
MOST_POINTS = 1000
"""Points of a curve; of more, each stretch is shown by its least and its greatest value."""
MOST_CURVES = 300
MOST_BINS = 20
"""Points of the success rate within one visit to a world."""
LABELS = {
    "spl": "SPL", "flops": "FLOPs", "frozen": "frozen layers", "depth": "depth (layers)",
    "parameters": "parameters that are not pruned", "steps_per_second": "steps per second",
    "visits.success": "success rate within visits",
}  # fmt: skip
"""Names of curves where the log's own would not do."""


def number(value: Any) -> float | None:
    """A finite number as a float; None for anything else."""
    if type(value) is not float and type(value) is not int:
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def unit_of(lines: Sequence[Mapping[str, Any]]) -> str:
    """What the curves and events of these lines are drawn over."""
    held = [{name for name in UNITS if number(line.get(name))} for line in lines]
    counted = set().union(*held) or {name for line in lines for name in UNITS if name in line}
    return next((name for name in UNITS if name in counted), UNITS[0])


def points_of(lines: Iterable[Mapping[str, Any]], unit: str) -> dict[str, Points]:
    """By key, every number of some lines of metrics, over a count."""
    found: dict[str, Points] = {}
    for line in lines:
        x = number(line.get(unit))
        if x is None:
            continue
        for key, y in _numbers(line):
            held = found.get(key)
            if held is None:
                if len(found) >= MOST_CURVES:
                    continue
                held = found[key] = ([], [])
            held[0].append(x)
            held[1].append(y)
    return found


def read_curves(lines: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, Points], list[dict[str, Any]]]:
    """The unit of some lines of metrics, their numbers over it, and the visits of a stream of worlds, if it is one."""
    unit = unit_of(lines)
    points, visits = points_of(lines, unit), visits_of(lines)
    if unit != "step":
        return unit, points, []  # visits are counted in steps
    within = [visit.pop("bins") for visit in visits]
    if any(xs for xs, _ in within):
        points["visits.success"] = [x for xs, _ in within for x in xs], [y for _, ys in within for y in ys]
    return unit, points, visits


def _numbers(line: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    """The numbers of a line by key, those of objects in it included."""
    for name, value in line.items():
        if isinstance(value, dict):
            yield from _inside(value, f"{name}.")
        elif isinstance(value, list):
            if name == "frozen":
                yield name, float(len(value))
            elif name == "plasticity":
                for layer in value:
                    if isinstance(layer, dict):
                        yield from _inside(layer, f"plasticity:{layer.get('name')}:", ("units",))
        elif name not in UNITS and (y := number(value)) is not None:
            yield name, y


def _inside(
    values: Mapping[str, Any], before: str, without: Container[str] = (), depth: int = 3
) -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if (y := number(value)) is not None:
            if name not in without:
                yield before + name, y
        elif isinstance(value, dict) and depth > 1:
            yield from _inside(value, f"{before}{name}.", without, depth - 1)


def group_of(key: str) -> Group:
    """The part of the page in which a curve stands."""
    if key.startswith("plasticity:"):
        return "plasticity"
    return "structure" if key in STRUCTURE else "cost" if key in COST else "measures"


def label_of(key: str) -> str:
    """A curve's name for the page."""
    if key.startswith("plasticity:"):
        return key.split(":", 2)[1]
    return LABELS.get(key, key.replace("_", " ").replace(".", ", "))


def curves(points: Mapping[str, Points], most: int = MOST_POINTS) -> list[dict[str, Any]]:
    """Curves as plain data: key, label, group, x and y, and of how many points those are."""
    found = []
    for key, (xs, ys) in points.items():
        x, y = thin(xs, ys, most)
        found.append(
            {"key": key, "label": label_of(key), "group": group_of(key), "x": x.tolist(), "y": y.tolist(),
             "of": len(xs)}
        )  # fmt: skip
    return found


def thin(x: ArrayLike, y: ArrayLike, most: int = MOST_POINTS) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Not many more than `most` points of a curve: first, last, and the extremes of each of equal stretches."""
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if len(xs) <= most:
        return xs, ys
    size = math.ceil(len(xs) / max(1, most // 2))
    starts = np.arange(0, len(ys), size)
    padded = np.pad(ys, (0, len(starts) * size - len(ys)), mode="edge").reshape(-1, size)
    extremes = np.concatenate([starts + padded.argmin(axis=1), starts + padded.argmax(axis=1)])
    kept = np.unique(np.concatenate([[0, len(xs) - 1], np.minimum(extremes, len(xs) - 1)]))
    return xs[kept], ys[kept]


def visits_of(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The visits of a stream of worlds that have ended: regime, first and last step, and success rate."""
    visits: list[dict[str, Any]] = []
    for line in lines:
        ended = line.get("visits")
        for visit in ended if isinstance(ended, list) else []:
            end = number(visit.get("step")) if isinstance(visit, dict) else None
            if end is None:
                continue
            episodes, found = (_counts(visit.get(name)) for name in ("ended", "found"))
            success = sum(found) / sum(episodes) if sum(episodes) else None
            start = visits[-1]["end"] if visits else 0.0
            bins = _bins(episodes, found, start, end)
            visits.append(
                {"regime": str(visit.get("regime")), "start": start, "end": end, "success": success, "bins": bins}
            )
    return visits


def _counts(values: Any) -> list[float]:
    return [number(value) or 0.0 for value in values] if isinstance(values, list) else []


def _bins(ended: list[float], found: list[float], start: float, end: float) -> Points:
    """The success rate within a visit, over stretches of its epochs; x is the middle of each."""
    if not ended or len(ended) != len(found):
        return [], []
    edges = np.linspace(0, len(ended), min(MOST_BINS, len(ended)) + 1).astype(int)
    episodes, successes = (np.add.reduceat(np.asarray(part), edges[:-1]) for part in (ended, found))
    middles = start + (edges[:-1] + edges[1:]) / 2.0 / len(ended) * (end - start)
    some = episodes > 0
    return middles[some].tolist(), (successes[some] / episodes[some]).tolist()
