"""The options of a command, which are the fields of its dataclass: read from the command line, and shown by --help.

A field is an option, `learning_rate` is `--learning-rate`; its type says what is accepted, the docstring below it what
it is. Fields that are dataclasses themselves contribute their own options. A mistake is one sentence.
"""

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from gpf.settings import shown

T = TypeVar("T")
Positional = Annotated[T, "positional"]
"""The type of a field that is given without its name."""
WIDEST = 110
"""Columns of the help, at most."""


class UsageError(ValueError):
    """A command line that cannot be understood; the message begins with the command."""


@dataclass(frozen=True, eq=False)
class Option:
    """One field of a command, or of a dataclass inside it."""

    path: tuple[str, ...]
    """Names of the fields that lead to it."""
    kind: Any
    default: Any
    """`MISSING` where it must be given."""
    help: str
    positional: bool
    group: str
    """What it belongs to, as the help calls it; empty for the command itself."""

    @property
    def flag(self) -> str:
        """As it is typed; a positional one has a name in capitals."""
        name = self.path[-1]
        return name.upper() if self.positional else "--" + name.replace("_", "-")

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.kind is bool

    @property
    def is_list(self) -> bool:
        """Whether it takes any number of values."""
        return typing.get_origin(self.kind) in (tuple, dict)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it accepts, if these are words."""
        kinds = _members(self.kind)
        return tuple(str(one) for kind in kinds if typing.get_origin(kind) is Literal for one in typing.get_args(kind))


def options_of(command: Any) -> list[Option]:
    """All options of a command."""
    return list(_fields(command, (), MISSING, ""))


def _fields(kind: Any, path: tuple[str, ...], values: Any, group: str) -> Iterator[Option]:
    hints, words = typing.get_type_hints(kind, include_extras=True), field_docs(kind)
    for spec in dataclasses.fields(kind):
        hint = hints[spec.name]
        notes: list[Any] = []
        if typing.get_origin(hint) is Annotated:
            hint, *notes = typing.get_args(hint)
        default = getattr(values, spec.name, MISSING) if values is not MISSING else _default(spec)
        about = next((note.help for note in notes if isinstance(getattr(note, "help", None), str)), None)
        about = words.get(spec.name, "") if about is None else about
        where = (*path, spec.name)
        if dataclasses.is_dataclass(type(default)):
            yield from _fields(type(default), where, default, _title(type(default)) or about)
        else:
            yield Option(where, hint, default, about, "positional" in notes, group)


def _default(spec: "dataclasses.Field[Any]") -> Any:
    return spec.default_factory() if spec.default_factory is not MISSING else spec.default


def _title(kind: type) -> str:
    """The first sentence that a dataclass says of itself."""
    for one in kind.__mro__:
        said = one.__doc__ or ""
        if dataclasses.is_dataclass(one) and not said.startswith(f"{one.__name__}("):  # what @dataclass makes up
            return re.split(r"[.;\n]", said)[0]
    return ""


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass, and of those that it extends."""
    words: dict[str, str] = {}
    for one in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        try:
            tree = ast.parse(inspect.getsource(sys.modules[one.__module__]))
        except (OSError, TypeError, KeyError):  # made by the program: it has no source
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == one.__name__:
                words |= _docs_below(node.body)
    return words


def _docs_below(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for field, below in itertools.pairwise(body):
        said = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(said, str):
            found[field.target.id] = " ".join(said.split())
    return found


def parse(
    command: Callable[..., T], arguments: Sequence[str], name: str, elsewhere: Callable[[str], str] = lambda flag: ""
) -> T:
    """A command with the options that were given; --help is answered here.

    Args:
        command: A dataclass.
        arguments: What was typed after its name.
        name: The command as it is typed, such as `gpf train`.
        elsewhere: Says of an option that this command does not have where it belongs; empty where nowhere.
    """
    options = options_of(command)
    if "-h" in arguments or "--help" in arguments:
        print(help_text(command, options, name))
        sys.exit(0)
    try:
        given = _given(options, list(arguments), elsewhere)
        return _built(command, options, given)
    except _RefusedError as refused:
        raise UsageError(f"{name}: {refused}") from None


class _RefusedError(Exception):
    """Something that was typed is refused; the message says why."""


def _given(options: list[Option], rest: list[str], elsewhere: Callable[[str], str]) -> dict[Option, list[str] | bool]:
    """The texts that were typed for each option, True or False for those without a value."""
    flags: dict[str, tuple[Option, bool]] = {}
    for option in options:
        if not option.positional:
            flags[option.flag] = option, True
            if option.is_flag:
                flags["--no-" + option.flag[2:]] = option, False
    given: dict[Option, list[str] | bool] = {}
    loose: list[str] = []
    before = ""
    while rest:
        text = rest.pop(0)
        if not _is_option(text):
            loose.append(text)
            if not any(option.positional for option in options):
                raise _RefusedError(_unexpected(text, before))
            continue
        flag, equals, value = text.partition("=")
        if flag.replace("_", "-") not in flags:
            raise _RefusedError(_unknown_option(flag, list(flags), elsewhere))
        option, on = flags[flag.replace("_", "-")]
        before = flag if option.is_flag else ""
        if option.is_flag:
            if equals:
                raise _RefusedError(f"{flag} takes no value, got {shown(value)}")
            given[option] = on
            continue
        values = [value] if equals else _values(rest, option.is_list)
        if not values and not option.is_list:
            raise _RefusedError(f"{flag} needs a value: {_accepted(option.kind)}")
        previous = given.get(option, []) if option.is_list else []
        given[option] = [*(previous if isinstance(previous, list) else []), *values]
    return given | _placed([option for option in options if option.positional], loose)


def _values(rest: list[str], many: bool) -> list[str]:
    """Take the values of an option off what is left."""
    values: list[str] = []
    while rest and not _is_option(rest[0]) and (many or not values):
        values.append(rest.pop(0))
    return values


def _is_option(text: str) -> bool:
    return text.startswith("-") and len(text) > 1 and not re.match(r"-\.?\d", text)  # but -1 is a number


def _placed(positional: list[Option], loose: list[str]) -> dict[Option, list[str] | bool]:
    """What was typed without a name, to the options that take it, in their order."""
    placed: dict[Option, list[str] | bool] = {}
    for option in positional:
        taken = loose if option.is_list else loose[:1]
        loose = loose[len(taken) :]
        if taken:
            placed[option] = taken
    if loose:
        raise _RefusedError(_unexpected(loose[0], ""))
    return placed


def _unexpected(text: str, flag: str) -> str:
    if flag.startswith("--no-"):
        return f"unexpected {shown(text)} after {flag}, which takes no value"
    if flag:
        return f"unexpected {shown(text)} after {flag}, which takes no value; its opposite is --no-{flag[2:]}"
    return f"unexpected argument {shown(text)}"


def _unknown_option(flag: str, known: list[str], elsewhere: Callable[[str], str]) -> str:
    if said := elsewhere(flag):
        return said
    close = difflib.get_close_matches(flag, known, n=1)
    return f"unknown option {flag}; " + (f"did you mean {close[0]}?" if close else "--help lists the options")


def _built(command: Any, options: list[Option], given: dict[Option, list[str] | bool]) -> Any:
    """The command with the values that were typed, and the defaults of the others."""
    values: dict[tuple[str, ...], Any] = {}
    for option in options:
        texts = given.get(option)
        if texts is None and option.default is MISSING:
            if not option.is_list:
                raise _RefusedError(f"{option.flag} is missing: {option.help[:1].lower()}{option.help[1:].rstrip('.')}")
            texts = []
        if texts is not None:
            values[option.path] = texts if isinstance(texts, bool) else _value(option, texts)
    return _replaced(command, (), MISSING, values)


def _replaced(kind: Any, path: tuple[str, ...], default: Any, values: dict[tuple[str, ...], Any]) -> Any:
    """A dataclass with some values below a path, and for the rest its default."""
    changes = {}
    for spec in dataclasses.fields(kind):
        where = (*path, spec.name)
        own = getattr(default, spec.name) if default is not MISSING else _default(spec)
        if where in values:
            changes[spec.name] = values[where]
        elif dataclasses.is_dataclass(type(own)):
            changes[spec.name] = _replaced(type(own), where, own, values)
    return kind(**changes) if default is MISSING else dataclasses.replace(default, **changes)


def _value(option: Option, texts: list[str]) -> Any:
    """What was typed, in the type of the field."""
    origin, kinds = typing.get_origin(option.kind), typing.get_args(option.kind)
    if origin is tuple:
        return tuple(_converted(option.flag, kinds[0], text) for text in texts)
    if origin is dict:
        if len(texts) % 2:
            raise _RefusedError(f"{option.flag} takes pairs of NAME VALUE, got {shown(' '.join(texts))}")
        return {key: _converted(option.flag, kinds[1], text) for key, text in zip(*2 * [iter(texts)], strict=True)}
    return _converted(option.flag, option.kind, texts[0])


def _converted(flag: str, kind: Any, text: str) -> Any:
    kinds = _members(kind)
    if type(None) in kinds and text.lower() == "none":
        return None
    for one in kinds:
        if typing.get_origin(one) is Literal:
            chosen = [choice for choice in typing.get_args(one) if str(choice) == text]
            if chosen:
                return chosen[0]
            close = difflib.get_close_matches(text, list(map(str, typing.get_args(one))), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise _RefusedError(f"{flag} must be {_accepted(kind)}, got {shown(text)}{hint}")
        if one is not type(None):
            try:
                return whole(text) if one is int else one(text)
            except ValueError:
                raise _RefusedError(f"{flag} must be {_accepted(kind)}, got {shown(text)}") from None
    raise TypeError(f"{flag} has a type that cannot be typed: {kind}")


def whole(text: str) -> int:
    """A whole number, which may be written as 1_000_000 or 1e6 too."""
    try:
        return int(text)
    except ValueError:
        if not (value := float(text)).is_integer():
            raise
        return int(value)


def _members(kind: Any) -> tuple[Any, ...]:
    """The types of a value, of which there are several where it may be None."""
    if typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)[0]
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


_NOUNS = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}


def _accepted(kind: Any) -> str:
    kinds = _members(kind)
    choices = [str(one) for one in kinds if typing.get_origin(one) is Literal for one in typing.get_args(one)]
    nouns = [_NOUNS[one] for one in kinds if one in _NOUNS]
    accepted = [*choices, *nouns, *(["none"] if type(None) in kinds else [])]
    return accepted[0] if len(accepted) == 1 else f"{', '.join(accepted[:-1])} or {accepted[-1]}"


def help_text(command: Any, options: list[Option], name: str) -> str:
    """What --help says of a command."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    positional = [option for option in options if option.positional]
    usage = " ".join(["usage:", name, *map(_placeholder, positional), "[OPTIONS]"])
    parts = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    about = [textwrap.fill(" ".join(part.split()), width, break_on_hyphens=False) for part in parts]
    sections = [usage, *about]
    if positional:
        sections.append(_section("arguments", positional, width))
    by_depth = sorted((option for option in options if not option.positional), key=lambda option: len(option.path))
    groups = dict.fromkeys(option.group for option in by_depth)
    for group in groups:  # those of the command itself come first
        some = [option for option in options if option.group == group and not option.positional]
        sections.append(_section(group or "options", some, width, with_help=not group))
    if "" not in groups:
        sections.append(_section("options", [], width, with_help=True))
    return "\n\n".join(sections)


def _section(title: str, options: list[Option], width: int, with_help: bool = False) -> str:
    rows = [(_typed(option), _words(option)) for option in options]
    rows += [("-h, --help", "Show this help and exit.")] if with_help else []
    margin, lines = 26, [f"{title}:"]
    for typed, words in rows:
        wrapped = textwrap.wrap(words, width - margin, break_on_hyphens=False) or [""]
        if len(typed) + 4 <= margin:
            lines.append(f"  {typed:<{margin - 2}}{wrapped.pop(0)}".rstrip())
        else:
            lines.append(f"  {typed}")
        lines += [" " * margin + line for line in wrapped if line]
    return "\n".join(lines)


def _typed(option: Option) -> str:
    if option.positional:
        return _placeholder(option)
    if option.is_flag:
        return f"{option.flag}, --no-{option.flag[2:]}" if option.default else option.flag
    return f"{option.flag} {_metavar(option)}"


def _placeholder(option: Option) -> str:
    text = f"{option.flag} ..." if option.is_list else option.flag
    return text if option.default is MISSING else f"[{text}]"


def _metavar(option: Option) -> str:
    if typing.get_origin(option.kind) is dict:
        return "NAME VALUE ..."
    if option.choices:
        name = "{" + ",".join(option.choices) + "}"
    else:
        kinds = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
        name = next(kinds[one] for one in _members(option.kind) if one in kinds)
    return f"{name} ..." if option.is_list else name


def _words(option: Option) -> str:
    """What an option is, and its default, if that says something."""
    default, words = option.default, option.help.replace("`", "")
    if default is MISSING or default is None or default is False or default in ((), {}, ""):
        return words
    if isinstance(default, bool):
        shown_default = "on"
    elif isinstance(default, tuple):
        shown_default = " ".join(map(str, default))
    elif isinstance(default, str) and default != default.strip():
        shown_default = repr(default)
    elif isinstance(default, int) and abs(default) >= 10_000:
        shown_default = f"{default:_}"
    elif isinstance(default, float) and math.isfinite(default):
        shown_default = f"{default:g}"
    else:
        shown_default = str(default)
    return f"{words} (default: {shown_default})".strip()
