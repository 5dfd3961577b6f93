"""Options are the fields of a dataclass: what is typed becomes their values, and every mistake is one sentence."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf.cli.options import Arg, Positional, UsageError, options_of, parse


@dataclass(frozen=True)
class Inner:
    """What is inside."""

    rate: float = 0.5
    """How fast."""
    on: bool = True


@dataclass(frozen=True)
class Other:
    depth: int = 3


@dataclass
class Command:
    """Do something.

    With a second paragraph.
    """

    what: Positional[tuple[str, ...]] = ("a", "b")
    """What to do `it` to,
    over two lines."""
    count: int = 20_000
    """How many."""
    limit: int | None = None
    """At most. Default: no limit."""
    kind: Literal["last", "best"] = "last"
    words: tuple[str, ...] = ()
    pairs: dict[str, str] = field(default_factory=dict)
    place: Path = Path("here")
    inner: Inner | Other = field(default_factory=Inner)
    json: bool = False
    noted: Annotated[str, Arg(name="note", help="A note: 5 %.")] = " x"


@dataclass
class Filled:
    words: tuple[str, ...] = ("p",)
    count: int = 2


@dataclass
class Needs:
    """Needs a path."""

    run: Positional[Path]
    """Folder of a run."""
    rest: Positional[tuple[int, ...]] = ()


def typed(line, command=Command):
    return parse(command, line.split(), "gpf it")


def refused(line, command=Command, **more):
    with pytest.raises(UsageError) as error:
        parse(command, line.split(), "gpf it", **more)
    return str(error.value)


def test_nothing_typed_is_the_default():
    assert typed("") == Command()


def test_what_is_typed_becomes_the_values_of_the_fields():
    made = typed(
        "x --count=5 y --limit 7 --kind best --words p q --pairs a 1 b 2 --place a/b --json --rate -.5 --no-on"
    )
    assert made == Command(
        ("x", "y"), 5, 7, "best", ("p", "q"), {"a": "1", "b": "2"}, Path("a/b"), Inner(-0.5, False), True
    )


def test_a_list_may_be_given_in_parts_and_the_last_of_other_options_counts():
    assert typed("--words a --count 1 --words b c --count 2") == Command(words=("a", "b", "c"), count=2)


def test_a_list_without_values_is_empty():
    assert typed("--words", Filled) == Filled(())
    assert typed("--words --count 3", Filled) == Filled((), 3)
    assert typed("", Filled) == Filled()


@pytest.mark.parametrize("text", ["-1", "-.5", "-1e-3", "-1_0.5E+3"])
def test_negative_numbers_are_values(text):
    assert typed(f"--rate {text}", Inner) == typed(f"--rate={text}", Inner) == Inner(float(text))


def test_values_that_look_like_options_follow_an_equals_sign():
    assert typed("--note=--a_b=c --words=-x --place=") == Command(noted="--a_b=c", words=("-x",), place=Path())


def test_a_field_may_be_typed_by_another_name():
    assert typed("--note y") == Command(noted="y")
    assert refused("--noted y") == "gpf it: unknown option --noted; did you mean --note?"


def test_options_that_are_off_can_be_turned_off_too():
    assert typed("--json --no-json") == Command()


def test_underscores_and_none_are_understood():
    @dataclass
    class Long:
        two_words: int | None = 3

    assert typed("--two_words 4", Long) == Long(4)
    assert typed("--two-words None", Long) == Long(None)


@given(st.integers(-(10**15), 10**15))
def test_whole_numbers_may_be_written_in_several_ways(number):
    for text in (str(number), f"{number:_}", f"{number}.0", f"{number:.20e}"):
        assert typed(f"--count {text}").count == number


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--cuont 3", "unknown option --cuont; did you mean --count?"),
        ("--zzz", "unknown option --zzz; --help lists the options"),
        ("-x", "unknown option -x; --help lists the options"),
        ("--count", "--count needs a value: a whole number"),
        ("--count --json", "--count needs a value: a whole number"),
        ("--count many", "--count must be a whole number, got 'many'"),
        ("--count 1.5", "--count must be a whole number, got '1.5'"),
        ("--count inf", "--count must be a whole number, got 'inf'"),
        ("--count none", "--count must be a whole number, got 'none'"),
        ("--limit x", "--limit must be a whole number or none, got 'x'"),
        ("--rate fast", "--rate must be a number, got 'fast'"),
        ("--kind bst", "--kind must be last or best, got 'bst'; did you mean 'best'?"),
        ("--kind zzz", "--kind must be last or best, got 'zzz'"),
        ("--pairs a", "--pairs takes pairs of NAME VALUE, got 'a'"),
        ("--count -x", "--count needs a value: a whole number"),
        ("--coun 3", "unknown option --coun; did you mean --count?"),
        ("--kind zzz --zzz", "--kind must be last or best, got 'zzz'"),
        ("--no-jsn", "unknown option --no-jsn; did you mean --no-json?"),
        ("--no-json=1", "--no-json takes no value"),
        ("--on=1", "--on takes no value"),
        ("--json=yes", "--json takes no value"),
    ],
)
def test_a_mistake_is_one_sentence_that_begins_with_the_command(line, said):
    assert refused(line) == f"gpf it: {said}"


def test_what_is_missing_or_too_much_is_named():
    assert refused("", Needs) == "gpf it: RUN is missing: folder of a run"
    assert refused("--zzz", Needs) == "gpf it: unknown option --zzz; --help lists the options"
    assert refused("a x", Needs) == "gpf it: REST must be a whole number, got 'x'"
    assert refused("a --on false", Inner) == "gpf it: unexpected argument 'a'"
    assert refused("--on false", Inner).endswith("argument 'false' after --on; --on and --no-on take no value")
    assert refused("--no-on false", Inner).endswith("argument 'false' after --no-on; --on and --no-on take no value")
    assert typed("a 1 2", Needs) == Needs(Path("a"), (1, 2))


def test_an_option_of_something_else_can_say_so():
    assert refused("--lanes 3", elsewhere=lambda flag: f"{flag} belongs there") == "gpf it: --lanes belongs there"


def test_help_says_what_each_option_is_and_its_default(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        typed("--zzz x --help")
    assert ended.value.code == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "usage: gpf it [WHAT ...] [OPTIONS]",
        "With a second paragraph.",
        "WHAT What to do it to, over two lines. (default: a b)",
        "--count N How many. (default: 20_000)",
        "--limit N At most. Default: no limit.",
        "--kind {last,best} (default: last)",
        "--words [TEXT ...]",
        "--pairs [NAME VALUE ...]",
        "--place PATH (default: here)",
        "--json",
        "--note TEXT A note: 5 %. (default: ' x')",
        "-h, --help Show this help and exit.",
        "What is inside:",
        "--rate X How fast. (default: 0.5)",
        "--on, --no-on (default: on)",
    ):
        assert line in lines


def test_help_keeps_to_the_width_of_the_terminal(capsys, monkeypatch):
    for width in (60, 80, 300):
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit):
            typed("--help")
        assert max(map(len, capsys.readouterr().out.splitlines())) <= min(width, 110)


def test_the_options_of_a_choice_between_dataclasses_are_those_of_the_default():
    flags = {option.name for option in options_of(Command)}
    assert {"--rate", "--on"} <= flags
    assert "--depth" not in flags
    assert all(re.fullmatch(r"--[a-z-]+|[A-Z]+", flag) for flag in flags)
