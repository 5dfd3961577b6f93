"""Episodes as MCAP files, which Foxglove opens: one channel of JSON for each kind of message."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpf.plume.inputs import naming
from gpf.plume.scenario import ACTIONS

_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
"""null stands for NaN and infinity, which JSON does not have."""


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"stamp": _NUMBER, **properties}}


SCHEMAS: dict[str, dict[str, Any]] = {
    "gas": _object(left=_NUMBER, right=_NUMBER, second_left=_NUMBER, second_right=_NUMBER),
    "wind": _object(speed=_NUMBER, direction=_NUMBER, frame={"type": "string"}),
    "odometry": _object(x=_NUMBER, y=_NUMBER, heading=_NUMBER, speed=_NUMBER, bumped={"type": "boolean"}),
    "action": _object(
        action={"type": "integer", "minimum": 0, "maximum": len(ACTIONS) - 1},
        name={"type": "string"},
        observation={"type": "array", "items": {"type": "number"}, "minItems": 8, "maxItems": 8},
    ),
    "command": _object(linear={"type": "number"}, angular={"type": "number"}),
    "status": _object(state={"type": "string"}, reason={"type": "string"}),
}
"""JSON schemas of the channels; units are those of `gpf.edge.robot.messages`."""


@dataclass(frozen=True)
class Entry:
    """One line of a log."""

    channel: str
    time: float
    """On the robot's clock, s."""
    values: dict[str, Any]


class EpisodeLog:
    """Writes an episode to a file that appears when it is complete; give it to `Robot` as `log`.

    >>> with EpisodeLog("episode.mcap") as log:  # doctest: +SKIP
    ...     robot = Robot(navigator, log=log)
    """

    def __init__(self, path: str | Path) -> None:
        from mcap.writer import Writer

        self.path: Path = Path(path)
        self._unfinished = self.path.with_name(f".{self.path.name}.new")
        if self.path.exists():
            raise ValueError(f"path must be a new file, got {self.path}, which exists")
        with naming(self.path):
            self._file = self._unfinished.open("wb")
        self._writer = Writer(self._file)
        self._writer.start(library="gpf")
        self._channels: dict[str, int] = {}
        self._sequence = dict.fromkeys(SCHEMAS, 0)
        for name, schema in SCHEMAS.items():
            number = self._writer.register_schema(f"gpf.{name}", "jsonschema", json.dumps(schema).encode())
            self._channels[name] = self._writer.register_channel(f"/gpf/{name}", "json", number)

    def write(self, channel: str, stamp: float, values: dict[str, Any]) -> None:
        """Append an entry; `stamp` is on the robot's clock, s."""
        data = as_json({"stamp": stamp, **values})
        nanoseconds = max(0, round(stamp * 1e9)) if math.isfinite(stamp) else 0
        self._sequence[channel] += 1
        with naming(self.path):
            self._writer.add_message(
                self._channels[channel], nanoseconds, data.encode(), nanoseconds, self._sequence[channel]
            )

    def finish(self) -> None:
        """Complete the file; until then it is hidden, under a name that begins with a dot."""
        if self._file.closed:
            return
        with naming(self.path), self._file:
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
        self._unfinished.replace(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


def read_log(path: str | Path) -> list[Entry]:
    """The entries of a complete log, in order of time."""
    from mcap.reader import make_reader

    with Path(path).open("rb") as file:
        return [
            Entry(channel.topic.removeprefix("/gpf/"), message.log_time * 1e-9, json.loads(message.data))
            for _, channel, message in make_reader(file).iter_messages()
        ]


def as_json(values: dict[str, Any]) -> str:
    """Plain data as JSON: null for NaN and infinity, text for what JSON does not have."""
    return json.dumps({name: _jsonable(value) for name, value in values.items()}, default=str)


def _jsonable(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
