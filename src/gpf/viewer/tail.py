"""Lines of a log that may still be written: every whole line is read once, from any position on."""

import json
import os
from pathlib import Path
from typing import Any


class RestartedError(Exception):
    """The log is another file than before, or shorter: a resumed run has rewritten it, or it was deleted."""


class Tail:
    """Reads a JSON-lines file, and remembers how far.

    Attributes:
        mark: How far it has read, as `FILE-BYTES`; 0-0 before the first line.
        broken: Number of whole lines that are not JSON objects; they are left out.
    """

    def __init__(self, path: Path, mark: str = "0-0") -> None:
        file, _, offset = mark.partition("-")
        if not (file.isdecimal() and offset.isdecimal() and len(mark) <= 40):
            raise ValueError(f"mark must be a position in a log such as 0-0, got {mark[:40]!r}")
        self.path = path
        self.broken: int = 0
        self._file, self._offset = int(file), int(offset)

    @property
    def mark(self) -> str:
        """From where another `Tail` goes on."""
        return f"{self._file}-{self._offset}"

    def read(self) -> list[dict[str, Any]]:
        """The whole lines that were added since the last call."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            if self._offset:
                raise RestartedError from None
            return []
        with file:
            status = os.fstat(file.fileno())
            if self._offset and (status.st_ino != self._file or status.st_size < self._offset):
                raise RestartedError
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._file, self._offset = status.st_ino, self._offset + len(whole)
        return [
            line
            for text in whole.decode(errors="replace").split("\n")
            if text.strip() and (line := self._parsed(text)) is not None
        ]

    def _parsed(self, text: str) -> dict[str, Any] | None:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if isinstance(line, dict):
            return line
        self.broken += 1
        return None
