"""Schema of a checkpoint's manifest; reports the first mismatch in one sentence."""

import dataclasses
import re
import reprlib
import sys
from collections.abc import Callable
from typing import Any

from gpf.network.events import KINDS
from gpf.network.rules import Rules

FORMAT = "gpf-checkpoint"
VERSION = 3
Check = Callable[[str, Any], None]
"""Given the name of a value and the value, raises a ValueError if it is not what is accepted there."""


def check_manifest(manifest: Any) -> None:
    """Raise a ValueError that names the first entry that is missing or wrong."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"its manifest must have the format {FORMAT!r}, that of a gpf checkpoint")
    _whole(VERSION, VERSION, str(VERSION))("version", manifest.get("version"))
    for name, check in _MANIFEST.items():
        if name not in manifest:
            raise ValueError(f"{name} is missing")
        check(name, manifest[name])
    if "undo" in manifest:
        _UNDO("undo", manifest["undo"])


def _value(accepted: str, test: Callable[[Any], bool]) -> Check:
    def check(where: str, value: Any) -> None:
        if not test(value):
            raise ValueError(f"{where} must be {accepted}, got {reprlib.repr(value)}")

    return check


def _fields(**checks: Check) -> Check:
    """An object with these entries and no others."""

    def check(where: str, value: Any) -> None:
        _OBJECT(where, value)
        for name, check_one in checks.items():
            if name not in value:
                raise ValueError(f"{where}.{name} is missing")
            check_one(f"{where}.{name}", value[name])
        for name in value:
            if name not in checks:
                raise ValueError(f"{where} has an unknown entry {reprlib.repr(name)}")

    return check


def _each(check_one: Check) -> Check:
    """A list, or an object of any names, of such values."""

    def check(where: str, value: Any) -> None:
        for name, one in value.items() if isinstance(value, dict) else enumerate(value):
            check_one(f"{where}[{reprlib.repr(name)}]", one)

    return check


def _all(*checks: Check) -> Check:
    def check(where: str, value: Any) -> None:
        for one in checks:
            one(where, value)

    return check


def _or_none(check_one: Check) -> Check:
    def check(where: str, value: Any) -> None:
        if value is not None:
            check_one(where, value)

    return check


def _row(*checks: Check) -> Check:
    """A list with one such value at each place."""

    def check(where: str, value: Any) -> None:
        _value(f"a list of {len(checks)}", lambda v: type(v) is list and len(v) == len(checks))(where, value)
        for place, check_one in enumerate(checks):
            check_one(f"{where}[{place}]", value[place])

    return check


def _list_of(check_one: Check) -> Check:
    return _all(_LIST, _each(check_one))


def _whole(low: int, high: int, accepted: str) -> Check:
    return _value(accepted, lambda v: type(v) is int and low <= v <= high)


def _words(count: int) -> Check:
    """Numbers of 32 bits; a random state has many, which are not worth a check and a name each."""
    return _value(
        f"a list of {count} whole numbers of 32 bits",
        lambda v: type(v) is list and len(v) == count and all(type(word) is int and 0 <= word < 2**32 for word in v),
    )


_OBJECT = _value("an object", lambda v: isinstance(v, dict))
_LIST = _value("a list", lambda v: isinstance(v, list))
_TEXT = _value("text", lambda v: isinstance(v, str))
_TRUTH = _value("true or false", lambda v: isinstance(v, bool))
_COUNT = _whole(0, 2**63 - 1, "a whole number of at least 0")
_NUMBER = _value("a finite number", lambda v: type(v) in (int, float) and abs(v) <= sys.float_info.max)
_SETTING = _value(
    "a finite number, text, true, false or null",
    lambda v: v is None or isinstance(v, str) or (isinstance(v, int | float) and abs(v) <= sys.float_info.max),
)
_NAMES = _list_of(_TEXT)
_PLAIN_FILE = _value(
    "a plain file name in this folder", lambda v: isinstance(v, str) and re.fullmatch(r"\w[\w.-]*", v) is not None
)

_SHAPE = _fields(
    depth=_COUNT, parameters=_COUNT, weights=_COUNT, pruned=_COUNT, pruned_units=_COUNT, frozen=_list_of(_COUNT)
)
_EVENT = _fields(
    kind=_value(f"one of {', '.join(KINDS)}", lambda v: isinstance(v, str) and v in KINDS),
    epoch=_COUNT, layers=_list_of(_COUNT), reason=_TEXT, before=_SHAPE, after=_SHAPE,
)  # fmt: skip
_PLATEAU = _fields(
    before=_or_none(_NUMBER), window=_list_of(_NUMBER), cooldown=_COUNT, hold=_COUNT, since=_or_none(_NUMBER),
    at_growth=_or_none(_NUMBER), trial=_COUNT, recent=_list_of(_NUMBER), peak=_or_none(_NUMBER),
    early=_list_of(_NUMBER), late=_list_of(_NUMBER),
)  # fmt: skip
_RULES = _fields(
    **{spec.name: _SETTING for spec in dataclasses.fields(Rules)} | {"grow_at": _list_of(_NUMBER)},
)
_MEMBERS = {
    "members": _list_of(_NAMES),
    "stored": _all(_OBJECT, _each(_COUNT)),
    "scalars": _all(_OBJECT, _each(_OBJECT)),
}
_STATE = {
    "plateau": _PLATEAU,
    "trainable": _NAMES,
    "prunes_due": _list_of(_COUNT),
    "layers": _all(
        _value("a list of at least one", lambda v: isinstance(v, list) and len(v) > 0),
        _each(
            _fields(
                frozen=_TRUTH,
                still=_COUNT,
                gradients=_COUNT,
                activations=_COUNT,
                removed_units=_COUNT,
                removed_weights=_COUNT,
            )
        ),
    ),
}
_UNDO = _fields(**_STATE, optimizer=_fields(**_MEMBERS))
_MANIFEST = {
    "tensors": _fields(file=_PLAIN_FILE, bytes=_COUNT, sha256=_TEXT),
    "stack": _TEXT,
    "epoch": _COUNT,
    "schedule": _fields(step=_COUNT, steps=_or_none(_COUNT), passed=_COUNT, kept=_NUMBER),
    "rules": _RULES,
    **_STATE,
    "optimizer": _or_none(
        _fields(
            **_MEMBERS,
            each=_list_of(_fields(**{"class": _TEXT}, of_torch=_TRUTH, groups=_list_of(_OBJECT), named=_TRUTH)),
        )
    ),
    "schedulers": _list_of(_OBJECT),
    "events": _list_of(_EVENT),
    "random": _fields(
        torch=_TEXT,
        cuda=_NAMES,
        numpy=_row(
            _value("'MT19937'", lambda v: v == "MT19937"), _words(624), _whole(0, 624, "a place from 0 to 624"),
            _whole(0, 1, "0 or 1"), _NUMBER,
        ),
        python=_row(_whole(3, 3, "3"), _words(625), _or_none(_NUMBER)),
    ),
    "extra": _OBJECT,
}  # fmt: skip
