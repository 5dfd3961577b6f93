"""Command-line options from dataclasses: builds an argparse parser from the fields of a command.

A field is an option, `learning_rate` is `--learning-rate`; its type says what is accepted, the docstring below it what
it is; {presets} in it stands for the names of all worlds. Fields that are dataclasses themselves contribute their own
options. A mistake is one sentence.
"""

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import shutil
import textwrap
import types
import typing
from argparse import SUPPRESS, ArgumentError, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, HelpFormatter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from gpf.plume.presets import PRESETS
from gpf.settings import shown

T = TypeVar("T")
WIDEST = 110
"""Columns of the help, at most."""
NEGATIVE = re.compile(r"-\.?\d")
"""How a negative number begins, which is a value and not an option."""
NOUNS: dict[type, tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    str: ("TEXT", "a text"),
    Path: ("PATH", "a path"),
}
"""Names of values in help and errors, by type."""


class UsageError(ValueError):
    """A command line that cannot be understood; the message begins with the command."""


@dataclass(frozen=True)
class Arg:
    """How a field is typed if not as its own name, its help if it has no docstring, and whether it is positional."""

    name: str = ""
    help: str = ""
    positional: bool = False


Positional = Annotated[T, Arg(positional=True)]
"""The type of a field that is given without its name."""


@dataclass(frozen=True)
class Option:
    """One field of a command, or of a dataclass inside it."""

    path: str
    """Names of the fields that lead to it, with dots between them."""
    name: str
    """As it is typed, with dashes; a positional one is in capitals."""
    kind: Any
    default: Any
    """`MISSING` where it must be given."""
    help: str
    positional: bool
    group: str
    """Title of its group in the help; empty for the command itself."""

    @property
    def flags(self) -> list[str]:
        """Its flags: including the opposite if it takes no value."""
        return [self.name, f"--no-{self.name[2:]}"] if self.kind is bool else [self.name]

    @property
    def is_list(self) -> bool:
        """Whether it takes any number of values."""
        return typing.get_origin(self.kind) in (tuple, dict)

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of one value: several if it may be None."""
        kind = typing.get_args(self.kind)[0] if self.is_list else self.kind
        return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)

    @property
    def choices(self) -> list[str]:
        """The words that it accepts, if it is a choice."""
        return [word for kind in self.kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]

    @property
    def metavar(self) -> str:
        """The placeholder of a value in the help."""
        names = [f"{{{','.join(self.choices)}}}"] if self.choices else [NOUNS[k][0] for k in self.kinds if k in NOUNS]
        return "NAME VALUE" if typing.get_origin(self.kind) is dict else names[0]

    @property
    def accepted(self) -> str:
        """A description of valid values."""
        nouns = [NOUNS[kind][1] for kind in self.kinds if kind in NOUNS]
        *others, last = [*self.choices, *nouns, *(["none"] if type(None) in self.kinds else [])]
        return f"{', '.join(others)} or {last}" if others else last

    def read(self, text: str) -> Any:
        """A value from what was typed."""
        if text in self.choices:
            return text
        if type(None) in self.kinds and text.lower() == "none":
            return None
        for kind in NOUNS.keys() & self.kinds:
            with contextlib.suppress(ValueError):
                return _whole(text) if kind is int else kind(text)
        close = difflib.get_close_matches(text, self.choices, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ArgumentTypeError(f"must be {self.accepted}, got {shown(text)}{hint}")


def _whole(text: str) -> int:
    """A whole number, which may be written as 1_000_000 or 1e6 too."""
    with contextlib.suppress(ValueError):
        return int(text)
    if not (value := float(text)).is_integer():
        raise ValueError
    return int(value)


def typed_values(arguments: Sequence[str], flag: str) -> list[str]:
    """The values typed for an option, before all options are known."""
    values: list[str] = []
    taking = False
    for text in arguments:
        if text.startswith("--"):
            name, equals, value = text.partition("=")
            taking = name == flag
            values += [value] if taking and equals else []
        elif taking:
            values.append(text)
    return values


def options_of(command: Any, values: Any = MISSING, path: str = "", group: str = "") -> Iterator[Option]:
    """All options of a command; or of a dataclass inside it, with its values."""
    kinds, docs = typing.get_type_hints(command), _field_docs(command)
    hints = typing.get_type_hints(command, include_extras=True)
    for spec in dataclasses.fields(command):
        default = _default(spec, values)
        if dataclasses.is_dataclass(type(default)):
            yield from options_of(type(default), default, f"{path}{spec.name}.", _title(type(default)))
            continue
        arg = next((note for note in getattr(hints[spec.name], "__metadata__", ()) if isinstance(note, Arg)), Arg())
        name, about = (arg.name or spec.name).replace("_", "-"), arg.help or docs.get(spec.name, "")
        about = about.replace("{presets}", ", ".join(PRESETS))
        name = name.upper() if arg.positional else f"--{name}"
        yield Option(path + spec.name, name, kinds[spec.name], default, about, arg.positional, group)


def _default(spec: "dataclasses.Field[Any]", values: Any) -> Any:
    default = spec.default_factory() if spec.default_factory is not MISSING else spec.default
    return default if values is MISSING else getattr(values, spec.name)


def _title(kind: type) -> str:
    """The first sentence that a dataclass says of itself, if it does not only list its fields."""
    said = kind.__doc__ or ""
    return "" if said.startswith(f"{kind.__name__}(") else re.split(r"[.;\n]", said)[0]


@functools.cache
def _field_docs(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a dataclass, and of those that it extends."""
    docs: dict[str, str] = {}
    for one in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        with contextlib.suppress(OSError, TypeError):  # a class that was made by a program has no source
            tree: Any = ast.parse(textwrap.dedent(inspect.getsource(one)))
            for pair in itertools.pairwise(tree.body[0].body):
                match pair:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                        docs[name] = " ".join(said.split())
    return docs


class _Help(HelpFormatter):
    """Help that keeps paragraphs, and does not break words at hyphens."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns, WIDEST))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join("\n".join(self._split_lines(part, width)) for part in text.split("\n\n"))


def _parser(command: Any, options: list[Option], name: str) -> ArgumentParser:
    """A parser of the options, which leaves out those that were not given."""
    places = [(one.name + " ..." * one.is_list, one.default is MISSING) for one in options if one.positional]
    usage = " ".join(["%(prog)s", *(place if needed else f"[{place}]" for place, needed in places), "[OPTIONS]"])
    parser = ArgumentParser(
        name, usage, inspect.cleandoc(command.__doc__ or ""),
        formatter_class=_Help, argument_default=SUPPRESS, allow_abbrev=False, exit_on_error=False, add_help=False,
    )  # fmt: skip
    parser._negative_number_matcher = NEGATIVE  # before Python 3.14, -1e-3 is taken for an option
    titles = dict.fromkeys(option.group for option in sorted(options, key=lambda option: option.path.count(".")))
    groups = {title: parser.add_argument_group(title) if title else parser for title in titles}
    for option in options:
        _add(groups[option.group], option)
    parser.add_argument("-h", "--help", action="help", help="Show this help and exit.")
    return parser


def _add(group: Any, option: Option) -> None:
    add = functools.partial(group.add_argument, dest=option.path, help=_words(option))
    if option.positional:  # required ones too are reported by us, after unknown options
        add(nargs="*" if option.is_list else "?", default=option.default, metavar=option.name, type=option.read)
    elif option.kind is bool and option.default:
        add(option.name, action=BooleanOptionalAction)
    elif option.kind is bool:
        add(option.name, action="store_true")
        add(option.flags[1], action="store_false", help=SUPPRESS)
    else:
        many = {"nargs": "*", "action": "extend"} if option.is_list else {}
        add(option.name, type=option.read, metavar=option.metavar, **many)


def _words(option: Option) -> str:
    """The help of an option, with its default if that is informative."""
    default, words = option.default, option.help.replace("`", "")
    if isinstance(default, tuple):
        default = " ".join(map(str, default))
    elif isinstance(default, bool):
        default = "on" if default else ""
    elif isinstance(default, int | float):
        default = f"{default:_}" if isinstance(default, int) and default >= 10_000 else f"{default:g}"
    elif isinstance(default, str) and default != default.strip():
        default = repr(default)
    says = default is not MISSING and default not in (None, "", {})
    return (f"{words} (default: {default})" if says else words).strip().replace("%", "%%")


def parse(
    command: Callable[..., T], arguments: Sequence[str], name: str, elsewhere: Callable[[str], str] = lambda flag: ""
) -> T:
    """A command, called `name`, with the options that were given; `elsewhere` says where an unknown one belongs."""
    options = list(options_of(command))
    typed = [re.sub(r"^--[^=]+", lambda flag: flag[0].replace("_", "-"), text) for text in arguments]
    try:
        found, rest = _parser(command, options, name).parse_known_intermixed_args(typed)
        if rest:
            raise ArgumentError(None, _leftover(rest, typed, options, elsewhere))
        given = {option.path: _value(option, getattr(found, option.path)) for option in options if option.path in found}
    except ArgumentError as error:
        raise UsageError(f"{name}: {_sentence(error, options)}") from None
    return typing.cast(T, _made(command, MISSING, "", given))


def _leftover(rest: list[str], typed: list[str], options: list[Option], elsewhere: Callable[[str], str]) -> str:
    """The error for leftover arguments: an unknown option first, because its values are left over with it."""
    for text in rest:
        if text.startswith("-") and len(text) > 1 and not NEGATIVE.match(text):
            flag = text.partition("=")[0]
            close = difflib.get_close_matches(flag, [known for option in options for known in option.flags], n=1)
            hint = f"did you mean {close[0]}?" if close else "--help lists the options"
            return elsewhere(flag) or f"unknown option {flag}; {hint}"
    before = ["", *typed][typed.index(rest[0])]
    flags = next((" and ".join(option.flags) for option in options if before in option.flags), "")
    return f"unexpected argument {shown(rest[0])}" + (f" after {before}; {flags} take no value" if flags else "")


def _sentence(error: ArgumentError, options: list[Option]) -> str:
    """The error in our own words instead of argparse's."""
    if error.argument_name is None or isinstance(error.__context__, ArgumentTypeError):
        return f"{error.argument_name or ''} {error.message}".strip()
    flag = error.argument_name.partition("/")[0]
    takes = next((option.accepted for option in options if option.name == flag and option.kind is not bool), None)
    return f"{flag} needs a value: {takes}" if takes else f"{flag} takes no value"


def _value(option: Option, value: Any) -> Any:
    """The value from argparse, converted to the type of the field."""
    if value is MISSING and not option.is_list:
        raise ArgumentError(None, f"{option.name} is missing: {option.help[:1].lower()}{option.help[1:].rstrip('.')}")
    if typing.get_origin(option.kind) is tuple:
        return () if value is MISSING else tuple(value)
    if typing.get_origin(option.kind) is dict:
        if len(value) % 2:
            raise ArgumentError(None, f"{option.name} takes pairs of NAME VALUE, got {shown(' '.join(value))}")
        return dict(zip(value[::2], value[1::2], strict=True))
    return value


def _made(kind: Any, values: Any, path: str, given: dict[str, Any]) -> Any:
    """A dataclass with what was given for the fields below a path, and for the rest its values."""
    changes = {}
    for spec in dataclasses.fields(kind):
        where, default = path + spec.name, _default(spec, values)
        if where in given:
            changes[spec.name] = given[where]
        elif dataclasses.is_dataclass(type(default)):
            changes[spec.name] = _made(type(default), default, f"{where}.", given)
    return kind(**changes) if values is MISSING else dataclasses.replace(values, **changes)
