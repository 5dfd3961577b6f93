"""A run as one self-contained HTML file."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpf.runs.folder import RunError
from gpf.viewer.networks import network
from gpf.viewer.record import LIMIT, write_page
from gpf.viewer.runs import describe

ROOM = 0.75 * LIMIT
"""Bytes for data; the rest is for scripts and style."""
MOST_MOMENTS = 300
"""Networks that are recorded."""


def record_run(folder: Path, path: Path) -> int:
    """Write a run to an HTML file, with as many of its networks as there is room for; returns the size in bytes.

    The last checkpoint comes first, then networks after growths, after other events, and before events.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        raise RunError(f"{folder} is not a folder; --record takes that of a run or of a checkpoint")
    run = describe(folder)
    name = quote(run["name"], safe="!'()*~")
    grown = {event["n"] for event in run["events"] if event["kind"] == "grown"}

    def rank(moment: dict[str, Any]) -> tuple[int, int]:
        if moment["event"] is None:
            return (0 if moment["id"] == "last" else 1), 0
        return (2 if moment["event"] in grown else 3) + 2 * (moment["when"] == "before"), moment["event"]

    used, kept, answers = _size(run), [], {}
    for moment in sorted(run["moments"], key=rank)[:MOST_MOMENTS]:
        try:
            held = network(folder, moment["id"])
        except RunError as error:
            run["problems"].append(str(error))
            continue
        used += _size(held)
        if used > ROOM:
            break
        kept.append(moment["id"])
        answers[f"/api/network/{name}?moment={moment['id']}"] = held
    run["moments"] = [moment for moment in run["moments"] if moment["id"] in kept]
    return write_page(path, f"#/run/{name}", {f"/api/run/{name}": run, **answers})


def _size(answer: dict[str, Any]) -> int:
    """Bytes that an answer takes in a recording, roughly: all are compressed together there."""
    return len(base64.b64encode(gzip.compress(json.dumps(answer).encode())))
