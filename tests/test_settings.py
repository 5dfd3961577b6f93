"""Settings are read by their types and ranges; every mistake names the setting, its value and what is accepted."""

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf import Rules
from gpf.settings import Settings, check, choose, number, plain, read, rule_changes, shown


@dataclass(frozen=True, kw_only=True)
class Some(Settings):
    count: int = 3
    share: float = number(0.5, 0.0, 1.0, below=True)
    word: str = "a"
    kind: Literal["a", "b"] = "a"
    on: bool = True
    names: tuple[str, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    maybe: int | None = number(None, 2)
    anything: Any = None


SETTINGS = st.builds(
    Some,
    count=st.integers(),
    share=st.floats(0, 1, exclude_max=True),
    word=st.text(),
    kind=st.sampled_from("ab"),
    on=st.booleans(),
    names=st.lists(st.text()).map(tuple),
    table=st.dictionaries(st.text(), st.floats(allow_nan=False)),
    maybe=st.none() | st.integers(),
)


@given(SETTINGS)
def test_settings_survive_json(settings):
    assert Some.of(json.loads(json.dumps(plain(settings)))) == settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 1.5}, "count must be a whole number, got 1.5"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"count": "3"}, "count must be a whole number, got '3'"),
        ({"share": "x"}, "share must be a number, got 'x'"),
        ({"share": False}, "share must be a number, got False"),
        ({"word": 1}, "word must be text, got 1"),
        ({"kind": "c"}, "kind must be one of a, b, got 'c'"),
        ({"kind": []}, "kind must be one of a, b, got []"),
        ({"on": "false"}, "on must be true or false, got 'false'"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"names": "ab"}, "names must be a list, got 'ab'"),
        ({"names": [1]}, "names must be text, got 1"),
        ({"table": []}, "table must be a table, got []"),
        ({"table": {"x": "y"}}, "table.x must be a number, got 'y'"),
        ({"maybe": "x"}, "maybe must be a whole number, got 'x'"),
        ({"coun": 1}, "unknown setting 'coun'; did you mean 'count'?"),
        ({"zzz": 1}, "unknown setting 'zzz'; accepted: count, share"),
        (3, "Some must be a table of settings, got 3"),
    ],
)
def test_a_wrong_type_is_one_sentence(values, said):
    with pytest.raises(ValueError, match=f"^here: {re.escape(said)}"):
        read(Some, values, "here")


def test_whole_numbers_may_stand_for_others_and_lists_for_tuples():
    made = Some.of({"share": 0, "names": ["a", "b"], "table": {"x": 1}})
    assert made == Some(share=0.0, names=("a", "b"), table={"x": 1.0})
    assert type(made.share) is float


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"share": 1.0}, "share must be at least 0 and below 1, got 1.0"),
        ({"share": -0.1}, "share must be at least 0 and below 1, got -0.1"),
        ({"share": math.nan}, "share must be at least 0 and below 1, got nan"),
        ({"maybe": 1}, "maybe must be at least 2, got 1"),
    ],
)
def test_numbers_keep_to_their_ranges(values, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Some(**values).check()


def test_a_number_without_a_range_must_still_be_finite():
    @dataclass
    class Free:
        value: float = math.inf

    with pytest.raises(ValueError, match="value must be a finite number, got inf"):
        check(Free())
    check(Free(-3.0))


def test_names_that_nobody_knows_are_refused_with_what_was_meant():
    assert choose("task", "plume", ["plume", "world"]) == "plume"
    with pytest.raises(ValueError, match=r"^unknown task 'plum'; did you mean 'plume'\? Accepted: plume, world$"):
        choose("task", "plum", ["plume", "world"])
    with pytest.raises(ValueError, match="unknown task 5; accepted: plume, world"):
        choose("task", 5, ["plume", "world"])


def test_long_values_are_cut():
    assert len(shown("x" * 1000)) == 80


def test_rules_may_be_typed_or_given():
    typed = {"max_depth": "4", "grow_trial": "None", "grow_threshold": ".5", "saliency": "obd", "drop": 0.25}
    assert rule_changes(Rules, typed) == {
        "max_depth": 4, "grow_trial": None, "grow_threshold": 0.5, "saliency": "obd", "drop": 0.25,
    }  # fmt: skip
    Rules(**rule_changes(Rules, typed))
    with pytest.raises(ValueError, match="unknown rule 'max_dept'; did you mean 'max_depth'"):
        rule_changes(Rules, {"max_dept": 1})
