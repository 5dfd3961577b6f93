import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.scenario import PRESETS, ROW


def test_presets_differ_where_text_and_code_of_the_paper_do():
    paper, reference = Scenario.preset("paper"), Scenario.preset("reference")
    differing = {
        spec.name for spec in dataclasses.fields(Scenario) if getattr(paper, spec.name) != getattr(reference, spec.name)
    }
    assert differing == {
        "start_distance_max", "octant_offset", "octant_clockwise", "timeout_terminates", "shaping_discount",
        "success_replaces",
    }  # fmt: skip
    assert paper.start_distance_max == 10.0
    assert reference.start_distance_max == pytest.approx(min(10.0, 20.0 / 3.0))


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip_is_lossless(name, tmp_path):
    scenario = Scenario.preset(name)
    assert Scenario.from_json(scenario.to_json()) == scenario
    path = tmp_path / "scenario.json"
    path.write_text(scenario.to_json())
    assert Scenario.of(str(path)) == scenario


@given(st.floats(0.0, 100.0), st.integers(1, 10**6), st.booleans())
def test_json_round_trip_of_changed_fields(rate, steps, flag):
    scenario = Scenario(emission_rate=rate, max_steps=steps, success_replaces=flag)
    assert Scenario.of(json.loads(scenario.to_json())) == scenario


def test_a_dictionary_changes_fields_of_a_preset():
    scenario = Scenario.of({"preset": "reference", "wind_speed": 2})
    assert scenario == dataclasses.replace(Scenario.preset("reference"), wind_speed=2.0)
    assert isinstance(scenario.wind_speed, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"emission_rate": -1.0}, "emission_rate: -1.0; accepted: at least 0"),
        ({"emission_rate": math.nan}, "emission_rate: nan; accepted: a finite number"),
        ({"emission_rate": 1e6}, "emission_rate: 1000000.0 is 100000 filaments a step; accepted: at most 20 a step"),
        ({"emission_rate": "5"}, "emission_rate: '5'; accepted: a finite number"),
        ({"time_step": 0}, "time_step: 0; accepted: at least 0.0001, at most 100"),
        ({"success_radius": 0}, "success_radius: 0; accepted: above 0"),
        ({"level_edges": "123456"}, "level_edges: '123456'; accepted: 6 increasing numbers"),
        ({"preset": ["paper"]}, "scenario: unknown preset ['paper']; accepted: paper, reference"),
        (
            {"filament_lifetime": 1e12, "max_steps": 10**7},
            "filament_lifetime: 1000000000000.0 at 5.0 filaments a second is 5,017,954 at once;"
            " accepted: at most 100,000",
        ),
        ({"max_steps": 1.5}, "max_steps: 1.5; accepted: a whole number"),
        ({"max_steps": 0}, "max_steps: 0; accepted: at least 1, at most 1e+07"),
        ({"shaping_discount": 1.1}, "shaping_discount: 1.1; accepted: at least 0, at most 1"),
        ({"success_replaces": 1}, "success_replaces: 1; accepted: true or false"),
        ({"level_edges": (3, 2, 1)}, "level_edges: (3, 2, 1); accepted: 6 increasing numbers"),
        ({"level_edges": 3}, "level_edges: 3; accepted: 6 increasing numbers"),
        ({"wind_correlation_time": 0.01}, "wind_correlation_time: 0.01; accepted: at least time_step (0.1)"),
        ({"start_distance_max": 1}, "start_distance_max: 1.0; accepted: at least start_distance_min (3.0)"),
        ({"wind_sped": 1}, "scenario: unknown field 'wind_sped'; did you mean 'wind_speed'?"),
        ({"preset": "papr"}, "scenario: unknown preset 'papr'; accepted: paper, reference"),
    ],
)
def test_errors_name_field_value_and_what_is_accepted(values, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared whole
        Scenario.of(values)
    assert str(error.value) == message


def test_a_number_too_large_for_a_float_is_refused():
    with pytest.raises(ValueError, match="^wind_speed: 1000.*; accepted: a finite number$"):
        Scenario(wind_speed=10**400)


def test_a_path_may_be_a_path(tmp_path):
    (tmp_path / "MINE.JSON").write_text(Scenario.preset("reference").to_json())
    assert (
        Scenario.of(tmp_path / "MINE.JSON") == Scenario.of(str(tmp_path / "MINE.JSON")) == Scenario.preset("reference")
    )


@pytest.mark.parametrize("given", ["nowhere", "missing.json", 3, None])
def test_a_scenario_that_is_none_is_refused_in_one_line(given):
    with pytest.raises(ValueError, match="^scenario: ") as error:
        Scenario.of(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "3"])
def test_json_that_is_no_scenario_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="^scenario: ") as error:
        Scenario.from_json(text)
    assert "\n" not in str(error.value)


def test_every_field_is_documented_with_a_docstring():
    import inspect

    source = inspect.getsource(Scenario)
    for spec in dataclasses.fields(Scenario):
        line = source[source.index(f"    {spec.name}: ") :].split("\n")[1]
        assert line.strip().startswith('"""'), spec.name


@pytest.mark.parametrize("spec", dataclasses.fields(Scenario), ids=lambda spec: spec.name)
def test_every_field_reaches_the_kernels(spec):
    """No option that does nothing: changing a field changes the row that the kernels read."""
    base = Scenario(start_distance_max=12.0, drift_speed=0.1, emission_period=10.0, emission_duty=0.5)
    value = getattr(base, spec.name)
    if spec.type is bool:
        changed = not value
    elif spec.name == "level_edges":
        changed = tuple(2 * edge for edge in value)
    else:
        changed = value * 1.25 if value else 1.0
    if spec.name == "max_steps":
        changed = int(changed)
    elif spec.name in ("shaping_discount", "around_angle"):
        changed = 0.9 * value
    before, after = base.row(), dataclasses.replace(base, **{spec.name: changed}).row()
    assert any((before[name] != after[name]).any() for name in ROW.names)
