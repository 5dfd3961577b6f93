"""Declares and checks the fields of a scenario, and reads them from typed text."""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from gpf.plume.inputs import shown
from gpf.plume.layout import Rectangle, checked_occupancy, checked_rectangles

Range = tuple[str, float, float]
"""A field whose value is drawn, its lowest and its highest value."""
CONCENTRATION_LEVELS = 7
"""Concentration levels of a token: blank, then six bands."""

# Far beyond any real use, and small enough that nothing computed of them overflows.
LENGTH = 1e5  # m
SPEED = 100.0  # m/s: a hurricane, and as much as a vane shows
DURATION = 1e9  # s: the longest episode
MOST_NODES = 51
"""Nodes along a side of the wind's grid."""
MOST_PLACES = 4
"""Sources and decoys of a world."""
AMOUNT = 1e6  # concentrations, masses, gains and rewards
RATIO = 1e6  # resistances in units of another


def number(default: float, low: float, high: float, *, above: bool = False) -> Any:
    """A number with its accepted range: [low, high], or (low, high] with `above`."""
    return field(default=default, metadata={"low": low, "high": high, "above": above})


def positive(default: float, high: float) -> Any:
    """A number above 0."""
    return number(default, 0.0, high, above=True)


def not_negative(default: float, high: float) -> Any:
    """A number of at least 0."""
    return number(default, 0.0, high)


def choice(default: str, choices: tuple[str, ...]) -> Any:
    """One of some words; the kernels see its number."""
    return field(default=default, metadata={"choices": choices})


def checked(spec: "dataclasses.Field[Any]", value: Any) -> Any:
    """The value in its field's type, or an error that names field, value and what is accepted."""
    if spec.name in _CHECKS:
        return _CHECKS[spec.name](value)
    if spec.type is bool:
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{spec.name} must be true or false, got {shown(value)}")
        return bool(value)
    if spec.type is str:
        choices = spec.metadata.get("choices", ())
        if not choices and not isinstance(value, str):
            raise ValueError(f"{spec.name} must be a text, got {shown(value)}")
        if choices and value not in choices:
            raise ValueError(f"{spec.name} must be one of {', '.join(choices)}, got {shown(value)}")
        return str(value)
    whole = spec.type is int
    low, high, above = (spec.metadata[key] for key in ("low", "high", "above"))
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or value != value or (whole and value % 1 != 0):
        raise ValueError(f"{spec.name} must be a {'whole ' if whole else ''}number, got {shown(value)}")
    if value < low or (above and value == low):
        raise ValueError(f"{spec.name} must be {'above' if above else 'at least'} {low:,.12g}, got {shown(value)}")
    if value > high:
        raise ValueError(f"{spec.name} must be at most {high:,.12g}, got {shown(value)}")
    return int(value) if whole else float(value)


def _checked_edges(value: Any) -> tuple[float, ...]:
    try:
        edges = () if isinstance(value, str) else tuple(float(edge) for edge in value)
    except (TypeError, ValueError, OverflowError):
        edges = ()
    ordered = all(a < b for a, b in zip((-math.inf, *edges), (*edges, math.inf), strict=True))
    if len(edges) != CONCENTRATION_LEVELS - 1 or not ordered:
        raise ValueError(f"level_edges must be {CONCENTRATION_LEVELS - 1} increasing numbers, got {shown(value)}")
    return edges


def _checked_numbers(
    name: str, value: Any, lengths: tuple[int, ...], accepted: str, low: float = 0.0
) -> tuple[float, ...]:
    """Several finite numbers, each of at least `low` and at most 1e6."""
    try:
        numbers = tuple(float(one) for one in value) if not isinstance(value, str) else None
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or len(numbers) not in lengths or not all(low <= one <= AMOUNT for one in numbers):
        raise ValueError(f"{name} must be {accepted}, got {shown(value)}")
    return numbers


_CHECKS = {
    "level_edges": _checked_edges,
    "obstacles": checked_rectangles,
    "occupancy": checked_occupancy,
    "source_at": lambda value: _checked_numbers("source_at", value, (0, 2), "two numbers, x and y in m, or empty"),
    "sensitivity": lambda value: _checked_numbers(
        "sensitivity", value, (4,), "four numbers, two channels times two substances"
    ),
    "recording_wind": lambda value: _checked_numbers(
        "recording_wind", value, (0, 2), "two numbers, u and v in m/s, or empty", -SPEED
    ),
}
"""How fields that are not one number are checked."""


def typed(kind: Any, text: str) -> Any:
    """A value from what was typed, where it can be one of that type; otherwise the text, which is refused later."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind is str:
        return text
    if kind in (int, float) and ".." in text:
        return list(_ends(text))
    parts = text.split(";") if text else []
    if kind == tuple[str, ...]:
        return parts
    try:
        if kind == tuple[Rectangle, ...]:
            return [_numbers(part) for part in parts]
        return float(text) if kind in (int, float) else _numbers(text)
    except ValueError:
        return text


def _numbers(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [float(number) for number in text.split(",")]


def _ends(text: str) -> tuple[float | str, float | str]:
    """The two ends of LOW..HIGH, as numbers where they are."""
    low, _, high = text.partition("..")
    try:
        return float(low), float(high)
    except ValueError:
        return low, high


def checked_ranges(value: Any, kinds: Mapping[str, Any]) -> tuple[Range, ...]:
    """Ranges as (field, low, high), each of a field that is a number, and not inverted."""
    ranges = []
    for one in value if isinstance(value, list | tuple) else (value,):
        if not isinstance(one, list | tuple) or len(one) != 3 or not isinstance(one[0], str):
            raise ValueError(f"ranges must be a list of field, lowest and highest value, got {shown(value)}")
        name, low, high = one
        if kinds.get(name) not in (int, float):
            raise ValueError(unknown("field of a range", name, [key for key in kinds if kinds[key] in (int, float)]))
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
        if not numbers or not low < high:
            raise ValueError(f"{name} must be a range from a lower to a higher number, got {shown([low, high])}")
        ranges.append((name, float(low), float(high)))
    if len({name for name, _, _ in ranges}) < len(ranges):
        raise ValueError(f"ranges must name each field once, got {shown(value)}")
    return tuple(ranges)


def with_ranges(values: dict[str, Any], before: tuple[Range, ...], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Changes of fields, in which two numbers in place of one become a range about their middle.

    Args:
        values: Changes.
        before: Existing ranges; one of a field that is set to a number goes.
        kinds: The types of all fields.
    """
    given = {one[0]: one for one in checked_ranges(values["ranges"], kinds)} if "ranges" in values else None
    ranges = {one[0]: one for one in before if one[0] not in values} if given is None else given
    plain = dict(values)
    for name, value in values.items():
        if kinds.get(name) in (int, float) and isinstance(value, list | tuple) and len(value) == 2:
            ((_, low, high),) = checked_ranges([(name, *value)], kinds)
            ranges[name] = (name, low, high)
            plain[name] = round(0.5 * (low + high)) if kinds[name] is int else 0.5 * (low + high)
    return {**plain, "ranges": tuple(sorted(ranges.values()))}


def unknown(what: str, name: Any, known: list[str]) -> str:
    """An error about an unknown name: the likely name, and the accepted ones if they are few."""
    close = difflib.get_close_matches(str(name), known, n=1)
    some = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    hint = f"did you mean {close[0]!r}?" if close else f"accepted: {some}"
    return f"unknown {what} {shown(name)}; {hint}" + (f" Accepted: {some}" if close and len(known) <= 12 else "")
