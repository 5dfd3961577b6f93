"""Settings as dataclasses: read from plain data (JSON, TOML), checked by type and range, and written back.

A field says its range where it is declared, with `number`. `read` checks types, `check` ranges; a mistake is one
sentence that names the setting, its value and what is accepted.
"""

import dataclasses
import difflib
import functools
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypeVar

AnySettings = TypeVar("AnySettings")
MANY = 12
"""Names that an error lists, at most."""


def number(default: float | None, low: float = -math.inf, high: float = math.inf, *, below: bool = False) -> Any:
    """A number with its accepted range: [low, high], or [low, high) with `below`."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high, "below": below})


def check(settings: Any, whole: float = -math.inf, real: float = -math.inf) -> None:
    """Refuse numbers that are not finite, or outside the range that their field declares.

    Where a field declares none, whole numbers must be at least `whole`, and others at least `real`.
    """
    for spec in dataclasses.fields(settings):
        value = getattr(settings, spec.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low = spec.metadata.get("low", whole if isinstance(value, int) else real)
        high = spec.metadata.get("high", math.inf)
        below = spec.metadata.get("below", False)
        if not math.isfinite(value) or not low <= value <= high or (below and value == high):
            raise ValueError(f"{spec.name} must be {_range(low, high, below)}, got {value}")


def _range(low: float, high: float, below: bool) -> str:
    bounds = [f"at least {_digits(low)}"] if math.isfinite(low) else []
    bounds += [f"{'below' if below else 'at most'} {_digits(high)}"] if math.isfinite(high) else []
    return " and ".join(bounds) or "a finite number"


def _digits(bound: float) -> str:
    return f"{int(bound):,}" if bound == int(bound) else f"{bound:g}"


def read(kind: type[AnySettings], values: Any, where: str = "") -> AnySettings:
    """Create a dataclass from plain data: a mapping of its fields; tuples may be lists, and floats may be integers.

    Args:
        kind: The dataclass.
        values: The plain data.
        where: The owner of the data, for error messages.
    """
    prefix = f"{where}: " if where else ""
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix}{kind.__name__} must be a table of settings, got {shown(values)}")
    hints = field_types(typing.cast(Any, kind))
    for name in values:
        if name not in hints:
            raise ValueError(f"{prefix}{unknown('setting', name, hints)}")
    try:
        return kind(**{name: _converted(name, hints[name], value) for name, value in values.items()})
    except TypeError as error:
        raise ValueError(f"{prefix}settings are incomplete ({error})") from None
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from None


class Settings:
    """A base of dataclasses of settings: from plain data and back. Numbers have the ranges that their fields declare.

    Where a field declares none, whole numbers are at least 1, and others at least 0.
    """

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Settings from plain data."""
        return read(cls, values)

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return plain(self)

    def check(self) -> None:
        """Refuse what cannot be."""
        check(self, whole=1, real=0)


@functools.cache
def field_types(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass that its constructor takes, with their types."""
    hints = typing.get_type_hints(kind)
    return {spec.name: hints[spec.name] for spec in dataclasses.fields(kind) if spec.init}


def choose(what: str, name: Any, among: Iterable[str]) -> str:
    """A name that must be one of some; the error suggests the likely one."""
    known = list(among)
    if not isinstance(name, str) or name not in known:
        raise ValueError(unknown(what, name, known))
    return name


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """An error about an unknown name, with the closest match and, if the list is short, the accepted names."""
    accepted = list(known)
    some = ", ".join(accepted[:MANY]) or "none"
    close = difflib.get_close_matches(str(name), accepted, n=1)
    if not close:
        more = f" and {len(accepted) - MANY} more" if len(accepted) > MANY else ""
        return f"unknown {what} {shown(name)}; accepted: {some}{more}"
    meant = f"unknown {what} {shown(name)}; did you mean {close[0]!r}?"
    return meant if len(accepted) > MANY else f"{meant} Accepted: {some}"


def shown(value: Any) -> str:
    """A value in an error message: never longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def plain(settings: Any) -> dict[str, Any]:
    """A dataclass as plain data that JSON can hold, from which `read` makes it again."""
    return {spec.name: getattr(settings, spec.name) for spec in dataclasses.fields(settings)}


def rule_changes(rules: Any, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `rules` (`gpf.Rules`) with their values, which may have been typed as text: `none`, numbers, words."""
    known = [spec.name for spec in dataclasses.fields(rules)]
    return {choose("rule", name, known): _parsed(value) for name, value in typed.items()}


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() == "none":
        return None
    try:
        return json.loads(f"0{value}" if value.startswith(".") else value)
    except json.JSONDecodeError:
        return value  # a word


def _converted(name: str, kind: Any, value: Any) -> Any:
    """A value in the type of its field."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _converted_to_one_of(name, arguments, value)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise ValueError(f"{name} must be one of {', '.join(map(str, arguments))}, got {shown(value)}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_converted(name, arguments[0], one) for one in value)
    if origin is dict and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _converted(f"{name}.{' '.join(key.split())}", arguments[1], one) for key, one in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    raise ValueError(f"{name} must be {_NAMES.get(origin or kind, kind)}, got {shown(value)}")


def _converted_to_one_of(name: str, kinds: tuple[Any, ...], value: Any) -> Any:
    if type(value) in kinds:
        return value
    problems = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _converted(name, kind, value)
            except ValueError as error:
                problems.append(str(error))
    raise ValueError(problems[-1])


_NAMES = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", tuple: "a list", dict: "a table",
}  # fmt: skip
