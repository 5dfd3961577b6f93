"""A run in progress: what is added to its folder, as it is written. The training process takes no part in this.

The page says how far it has read, so that it can continue after a lost connection.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from gpf.viewer.curves import UNITS, curves, points_of
from gpf.viewer.networks import moments
from gpf.viewer.runs import LOGS, event_row, key_numbers, state
from gpf.viewer.tail import RestartedError, Tail

INTERVAL = 0.5
"""Seconds between two looks at the folder."""
MOST_LINES = 2000
"""Lines that are sent at once; after more, the page is told to load the run again."""
RESET = {"type": "reset"}


class Follower:
    """What is new in a run's folder since the last look.

    Args:
        folder: The run's.
        query: Of the page: `unit`, and the `Tail.mark` of each log.
    """

    def __init__(self, folder: Path, query: Mapping[str, str]) -> None:
        self.folder = folder
        self.unit: str = query.get("unit", UNITS[0])
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, got {self.unit[:40]!r}")
        self.tails: dict[str, Tail] = {log: Tail(folder / f"{log}.jsonl", query.get(log, "0-0")) for log in LOGS}
        self._state: dict[str, Any] = {"state": query.get("state")}
        self._saved: object = None

    def look(self) -> list[dict[str, Any]]:
        """Messages for the page; after one of type `reset` or `gone` there are no others."""
        if not self.folder.is_dir():
            return [{"type": "gone", "message": "The folder of this run was deleted."}]
        try:
            metrics, events = (tail.read() for tail in self.tails.values())
        except RestartedError:
            return [RESET]
        is_new_visit = any(line.get("visits") for line in metrics)
        if len(metrics) + len(events) > MOST_LINES or is_new_visit:
            return [RESET]
        messages: list[dict[str, Any]] = []
        if metrics or events:
            messages.append(
                {
                    "type": "lines",
                    "curves": curves(points_of(metrics, self.unit)),
                    "events": [event_row(n, line, self.unit) for n, line in enumerate(events)],
                    "numbers": key_numbers(metrics[-1]) if metrics else {},
                    "moments": moments(self.folder) if events else None,
                    "cursor": {log: tail.mark for log, tail in self.tails.items()},
                }
            )
        now = state(self.folder)
        if now["state"] != self._state["state"]:
            if now["state"] == "finished":
                return [RESET]
            messages.append({"type": "state", **now})
        self._state = now
        return [*messages, *self._checkpoint()]

    def _checkpoint(self) -> list[dict[str, Any]]:
        """A message if the last checkpoint is a new one; nothing on the first look."""
        try:
            saved = (self.folder / "checkpoints" / "last" / "manifest.json").stat().st_mtime_ns
        except OSError:
            saved = 0
        before, self._saved = self._saved, saved
        return [{"type": "checkpoint"}] if before not in (None, saved) else []


async def follow(socket: WebSocket, folder: Path) -> None:
    """Send what is new in a run's folder, until the page is closed or the run is to be loaded again."""
    follower = Follower(folder, socket.query_params)
    closed = asyncio.create_task(_until_closed(socket))
    try:
        while not closed.done():
            messages = await run_in_threadpool(follower.look)
            for message in messages:
                await socket.send_json(message)
            if any(message["type"] in ("reset", "gone") for message in messages):
                return
            await asyncio.wait({closed}, timeout=INTERVAL)
    finally:
        closed.cancel()


async def _until_closed(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_text()
    except (WebSocketDisconnect, RuntimeError, KeyError):
        return
