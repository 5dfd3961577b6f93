"""A run, or a single checkpoint, as plain data: everything that the page shows of it, read from its folder only."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpf.runs.folder import RunError, read_config, read_object, read_result
from gpf.runs.listing import is_running
from gpf.viewer.curves import curves, number, read_curves, unit_of
from gpf.viewer.networks import moments, read_manifest
from gpf.viewer.tail import Tail

LOGS = ("metrics", "events")
KINDS = {"config.json": "run", "manifest.json": "checkpoint", "events.jsonl": "events"}
"""What a folder is, by the first of these files that it has."""
MOST_EVENTS = 20_000
"""Events that the page is sent; of more, the latest."""
SETTINGS = {"config": "Learner", "rules": "Rules", "world": "World", "stream": "Stream", "versions": "Versions"}
"""Parts of a run's configuration, with their titles."""


def describe(folder: Path) -> dict[str, Any]:
    """Everything of a run that the page shows; what cannot be read is a sentence in `problems`."""
    if not folder.is_dir():
        raise RunError(f"run {folder.name} was deleted")
    problems: list[str] = []

    def attempt(read: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return read()
        except (ValueError, OSError) as error:
            problems.append(str(error).replace(f"{folder}/", ""))
            return otherwise

    kind = kind_of(folder)
    config = attempt(lambda: read_config(folder) if kind == "run" else {}, {})
    result = attempt(lambda: read_result(folder), None)
    tails = {log: Tail(folder / f"{log}.jsonl") for log in LOGS}
    metrics, events = (attempt(tail.read, []) for tail in tails.values())
    for log, tail in tails.items():
        if tail.broken:
            problems.append(f"{log}.jsonl has {tail.broken} lines that are not JSON objects; they are left out")
    if not (folder / "events.jsonl").exists():  # a checkpoint has the network's events, too
        events = attempt(lambda: _saved_events(folder), [])
    unit, points, visits = read_curves(metrics)
    if not metrics:
        unit = unit_of(events)
    rows = [event_row(n, line, unit) for n, line in enumerate(events)]
    settings = config.get("config")
    return {
        "name": folder.name,
        "kind": kind,
        "task": _text(config.get("task")),
        "seed": number(settings.get("seed")) if isinstance(settings, dict) else None,
        **state(folder),
        "settings": _settings(config),
        "numbers": key_numbers(result or (metrics[-1] if metrics else {})),
        "unit": unit,
        "lines": len(metrics),
        "curves": curves(points),
        "visits": visits,
        "events": rows[-MOST_EVENTS:],
        "events_left_out": max(0, len(rows) - MOST_EVENTS),
        "moments": moments(folder),
        "problems": problems,
        "cursor": {log: tail.mark for log, tail in tails.items()},
    }


def kind_of(folder: Path) -> str:
    """Whether a folder is that of a run or of a checkpoint, or has only a log of events."""
    for file, kind in KINDS.items():
        if (folder / file).exists():
            return kind
    raise RunError(f"{folder.name} has none of {', '.join(KINDS)}; it is no run and no checkpoint")


def other_row(folder: Path) -> dict[str, Any]:
    """A checkpoint or a log of events, in the list of runs."""
    kind = kind_of(folder)
    written = max(path.stat().st_mtime for file in KINDS if (path := folder / file).exists())
    return {"written": written, "task": kind, "seed": None, "steps": 0, "score": None, "finished": True}


def state(folder: Path) -> dict[str, Any]:
    """Whether a run is finished, running, failed or interrupted, and the sentence of a failure."""
    if (folder / "result.json").exists():
        return {"state": "finished", "failure": None}
    if is_running(folder):
        return {"state": "running", "failure": None}
    failure = None
    if (folder / "failure.json").exists():
        try:
            failure = _text(read_object(folder, folder / "failure.json").get("error"))
        except ValueError:
            failure = "failure.json is damaged"
    return {"state": "failed" if failure is not None else "interrupted", "failure": failure}


def _saved_events(folder: Path) -> list[dict[str, Any]]:
    """The events in the manifest of a checkpoint, or of a run's last one; none if there is none."""
    places = folder, folder / "checkpoints" / "last"
    found = next((place for place in places if (place / "manifest.json").exists()), None)
    events: list[dict[str, Any]] = [] if found is None else read_manifest(found)["events"]
    return events


def event_row(n: int, line: dict[str, Any], unit: str) -> dict[str, Any]:
    """An event as the page has it; entries that are missing or of another kind are None."""
    layers = line.get("layers")
    after = _shape(line.get("after"))
    if after is None and number(line.get("depth")) is not None:  # a decision about whole networks
        after = {"depth": number(line["depth"]), "density": None, "parameters": number(line.get("parameters")),
                 "frozen": []}  # fmt: skip
    return {
        "n": n,
        "kind": _text(line.get("kind")) or "event",
        "x": number(line.get(unit)),
        "round": number(line.get("round", line.get("epoch"))),
        "layers": [int(one) for one in map(number, layers) if one is not None] if isinstance(layers, list) else [],
        "reason": _text(line.get("reason")) or "",
        "before": _shape(line.get("before")),
        "after": after,
    }


def _shape(held: Any) -> dict[str, Any] | None:
    """A stack around an event; parameters are those that are not pruned."""
    if not isinstance(held, dict):
        return None
    depth, parameters = number(held.get("depth")), number(held.get("parameters"))
    weights, pruned = number(held.get("weights")), number(held.get("pruned"))
    frozen = held.get("frozen")
    return {
        "depth": depth,
        "density": None if weights is None or pruned is None else 1.0 - pruned / weights if weights else 1.0,
        "parameters": None if parameters is None or pruned is None else parameters - pruned,
        "frozen": [int(one) for one in map(number, frozen) if one is not None] if isinstance(frozen, list) else [],
    }


def _settings(config: dict[str, Any]) -> dict[str, dict[str, str]]:
    parts = {title: config.get(key) for key, title in SETTINGS.items()}
    return {
        title: {str(name): "-" if value is None else _text(value) or "" for name, value in part.items()}
        for title, part in parts.items()
        if isinstance(part, dict)
    }


def key_numbers(line: dict[str, Any]) -> dict[str, float]:
    """The numbers of a result, or of the last round, by name."""
    flat = {**line, **{f"{a}.{b}": v for a, part in line.items() if isinstance(part, dict) for b, v in part.items()}}
    return {str(name): value for name, held in flat.items() if (value := number(held)) is not None}


def _text(value: Any, most: int = 2000) -> str | None:
    return None if value is None else str(value)[:most]
