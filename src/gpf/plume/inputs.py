"""Checks of user input: files, whole numbers, and one-line errors."""

import difflib
import errno
import json
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def shown(value: Any) -> str:
    """A value as part of a sentence: on one line, and short."""
    try:
        text = " ".join(repr(value).split())
    except (RecursionError, ValueError):  # nested too deeply, or thousands of digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 80 else f"{text[:77]}..."


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """The value as a plain whole number of at least `low`, and at most `high`; anything else is refused."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < low or (high is not None and number > high):
        accepted = f"of at least {low:,}" if high is None else f"from {low:,} to {high:,}"
        raise ValueError(f"{name} must be a whole number {accepted}, got {shown(value)}")
    return number


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """An error about an unknown name, with the likely one."""
    accepted = list(known)
    close = difflib.get_close_matches(str(name), accepted, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"accepted: {', '.join(accepted)}"
    return f"unknown {what} {shown(name)}; {hint}"


def parse_json(text: str | bytes, name: str) -> Any:
    """The value of a JSON text; `name` says in errors what it is."""
    try:
        return json.loads(text)
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not a text file in UTF-8") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name} is not JSON ({error})") from None


def read_json(path: Path, name: str) -> Any:
    """The value of a JSON file; `name` says in errors what it is."""
    try:
        text = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name}: {path} cannot be read ({reason})") from None
    return parse_json(text, f"{name}: {path}")


@contextmanager
def naming(target: str | Path) -> Iterator[None]:
    """While it lasts, an error of the disk names what was being written, and not a temporary file or nothing."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or next(iter(str(error).splitlines()), "cannot be written")
        raise OSError(error.errno or errno.EIO, reason, str(target)) from error
