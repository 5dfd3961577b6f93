import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.observations import observation_space
from gpf.plume.obstacles import terrain_of
from gpf.plume.pixels import concentration_field
from gpf.plume.regimes import Stream
from gpf.plume.row import ROW, row_of
from gpf.plume.scenario import MOST_PLACES, MOST_UPDATES, PRESETS
from gpf.plume.tokens import OBSERVATION_SIZES
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import LANE


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
        ({"emission_rate": -1.0}, "emission_rate must be at least 0, got -1.0"),
        ({"emission_rate": math.nan}, "emission_rate must be a number, got nan"),
        ({"emission_rate": math.inf}, "emission_rate must be at most 1,000,000, got inf"),
        ({"emission_rate": 1e6}, "emission_rate must be at most 20 filaments a step, 200 a second, got 1e+06"),
        ({"emission_rate": "5"}, "emission_rate must be a number, got '5'"),
        ({"emission_rate": True}, "emission_rate must be a number, got True"),
        ({"time_step": 0}, "time_step must be at least 0.0001, got 0"),
        ({"success_radius": 0}, "success_radius must be above 0, got 0"),
        ({"speed": 1e100}, "speed must be at most 100, got 1e+100"),
        ({"filament_radius": 1e200}, "filament_radius must be at most 100,000, got 1e+200"),
        ({"filament_radius": 1e-200}, "filament_radius must be at least 1e-06, got 1e-200"),
        ({"level_edges": "123456"}, "level_edges must be 6 increasing numbers, got '123456'"),
        ({"preset": ["paper"]}, "unknown scenario ['paper']; did you mean 'paper'?"),
        (
            {"filament_lifetime": 1e9, "max_steps": 10**7},
            "filament_lifetime must allow at most 100,000 filaments at once, got 1e+09 s with 5 filaments a second,"
            " which is 5,017,954",
        ),
        ({"max_steps": 1.5}, "max_steps must be a whole number, got 1.5"),
        ({"max_steps": math.inf}, "max_steps must be a whole number, got inf"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"max_steps": 10**8}, "max_steps must be at most 10,000,000, got 100000000"),
        ({"shaping_discount": 1.1}, "shaping_discount must be at most 1, got 1.1"),
        ({"success_replaces": 1}, "success_replaces must be true or false, got 1"),
        ({"level_edges": (3, 2, 1)}, "level_edges must be 6 increasing numbers, got (3, 2, 1)"),
        ({"level_edges": 3}, "level_edges must be 6 increasing numbers, got 3"),
        ({"level_edges": (1, 2, 3, 4, 4, 5)}, "level_edges must be 6 increasing numbers, got (1, 2, 3, 4, 4, 5)"),
        ({"wind_correlation_time": 0.01}, "wind_correlation_time must be at least time_step, 0.1, got 0.01"),
        ({"start_distance_max": 1}, "start_distance_max must be at least start_distance_min, 3, got 1"),
        ({"sensor_kind": "metal"}, "sensor_kind must be one of ideal, linear, metal-oxide, got 'metal'"),
        ({"sensor_kind": 2}, "sensor_kind must be one of ideal, linear, metal-oxide, got 2"),
        (
            {"sensor_curve_exponent": 0},
            "sensor_curve_exponent must be at most -0.01 or at least 0.01, got 0",
        ),
        ({"wind_sped": 1}, "unknown scenario field 'wind_sped'; did you mean 'wind_speed'?"),
        ({"preset": "papr"}, "unknown scenario 'papr'; did you mean 'paper'?"),
    ],
)
def test_errors_name_field_value_and_what_is_accepted(values, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared whole
        Scenario.of(values)
    assert str(error.value) == message


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_too_large_for_a_float_is_refused(digits):
    with pytest.raises(ValueError, match="^wind_speed must be at most 100, got ") as error:
        Scenario(wind_speed=10**digits)
    assert len(str(error.value)) < 150


NUMBERS = {spec.name: spec for spec in dataclasses.fields(Scenario) if spec.type in (float, int)}


def bounds(spec):
    """The lowest and the greatest value that a field accepts, and the nearest ones that it does not."""
    low, high, above = (spec.metadata[key] for key in ("low", "high", "above"))
    if spec.type is int:
        return low, high, low - 1, high + 1
    lowest = math.nextafter(low, math.inf) if above else low
    return lowest, high, math.nextafter(lowest, -math.inf), math.nextafter(high, math.inf)


@pytest.mark.parametrize("spec", NUMBERS.values(), ids=NUMBERS)
def test_every_number_has_bounds_and_nothing_beyond_them_is_accepted(spec):
    lowest, greatest, below, beyond = bounds(spec)
    assert math.isfinite(lowest)
    assert math.isfinite(greatest)
    for wrong in (below, beyond, 1e100, -1e100, math.nan):
        with pytest.raises(ValueError, match=f"^{spec.name} must be "):
            Scenario(**{spec.name: wrong})


def accepted(values):
    """A scenario of these values, made consistent where two fields contradict each other."""
    values = {**dataclasses.asdict(Scenario()), **values}
    step = values["time_step"]
    values["emission_rate"] = min(values["emission_rate"], 20.0 / step)
    values["wind_correlation_time"] = max(values["wind_correlation_time"], step)
    values["start_distance_max"] = max(values["start_distance_max"], values["start_distance_min"])
    values["head_start"] = min(values["head_start"], 500 * step / values["substeps"])
    values["decoys"] = min(values["decoys"], MOST_PLACES - values["sources"])
    values["wind_grid"] = max(values["wind_grid"], 3) if values["wind_grid"] else 0
    life = min(values["filament_lifetime"], values["head_start"] + values["max_steps"] * step) + step
    strength = values["sources"] + values["decoys"] * values["decoy_strength"]
    values["emission_rate"] = min(values["emission_rate"], 20_000.0 / life / strength)
    if values["wind_grid"] and (_parts(values) + 1.0) * values["wind_grid"] ** 2 > MOST_UPDATES:
        values["wind_grid"] = 0
    return Scenario(**values)


def _parts(values):
    """Steps of the wind's grid in a physical step, by the criteria of von Neumann."""
    cells = [values[extent] / (values["wind_grid"] - 1) for extent in ("width", "height")]
    viscosity = 0.5 * values["wind_diffusivity"]
    fastest = values["wind_speed"] + 3.0 * values["wind_speed_sigma"] + 4.0 * values["wind_noise_sigma"]
    stable = min(0.5 / viscosity / sum(1.0 / cell**2 for cell in cells), viscosity / max(fastest, 1e-9) ** 2)
    return values["time_step"] / values["substeps"] / (0.8 * stable)


def walked(scenario, steps=25):
    """Walk a few lanes through a scenario, to its last step; everything that can be seen must be a number."""
    env = PlumeVectorEnv(3, scenario, "memory", autoreset_mode="SameStep", threads=1)
    raw_space = observation_space("raw", env.world)
    env.reset(seed=0)
    for n in range(steps):
        if n == steps // 2:  # late in an episode
            env.world.lanes["step"] = np.maximum(env.world.lanes["step"], scenario.max_steps - 5)
        features, rewards, *_ = env.step(np.arange(n, n + 3) % 6)
        seen = env.world.raw, env.world.terms, rewards, features
        assert all(np.isfinite(array).all() for array in seen)
        assert all(np.isfinite(env.world.lanes[name]).all() for name in LANE.names)
        assert (env.world.lanes["x"] >= 0).all()
        assert (env.world.lanes["x"] <= scenario.width).all()
        assert all(raw_space.contains(one) for one in env.world.raw)
        assert all(env.single_observation_space.contains(one) for one in features)
        assert (env.world.tokens >= 0).all()
        assert (env.world.tokens < OBSERVATION_SIZES).all()
    assert np.isfinite(concentration_field(env.world, 0, 8, 8)).all()


@pytest.mark.parametrize("spec", NUMBERS.values(), ids=NUMBERS)
def test_the_bounds_of_a_field_give_a_world_of_finite_numbers(spec):
    for value in bounds(spec)[:2]:
        walked(accepted({spec.name: value}))


@settings(max_examples=150)
@given(
    st.fixed_dictionaries({}, optional={name: st.sampled_from(bounds(spec)[:2]) for name, spec in NUMBERS.items()}),
    st.fixed_dictionaries({}, optional={s.name: st.booleans() for s in dataclasses.fields(Scenario) if s.type is bool}),
)
def test_any_bounds_together_give_a_world_of_finite_numbers(numbers, flags):
    walked(accepted({**numbers, **flags}))


def test_a_path_may_be_a_path(tmp_path):
    (tmp_path / "MINE.JSON").write_text(Scenario.preset("reference").to_json())
    assert (
        Scenario.of(tmp_path / "MINE.JSON") == Scenario.of(str(tmp_path / "MINE.JSON")) == Scenario.preset("reference")
    )


@pytest.mark.parametrize("given", ["nowhere", "missing.json", 3, None, [1] * 1000])
def test_a_scenario_that_is_none_is_refused_in_one_line(given):
    with pytest.raises(ValueError, match="^(unknown )?scenario") as error:
        Scenario.of(given)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


NOT_JSON = {
    b"{": r"is not JSON \(Expecting property name",
    b"": r"is not JSON \(Expecting value",
    b"\x89PNG\r\n\x1a\n\xff\xfe": "is not a text file in UTF-8",
    b"[" * 100_000: "is nested too deeply",
    b'{"speed": ' + b"9" * 5000 + b"}": r"is not JSON \(Exceeds the limit",
}


@pytest.mark.parametrize("content", NOT_JSON, ids=range(len(NOT_JSON)))
@pytest.mark.parametrize(("kind", "name"), [(Scenario, "scenario"), (Stream, "stream")])
def test_a_file_that_is_not_json_is_named(content, kind, name, tmp_path):
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{name}: {re.escape(str(path))} {NOT_JSON[content]}") as error:
        kind.of(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("kind", "name"), [(Scenario, "scenario"), (Stream, "stream")])
def test_a_file_that_cannot_be_read_is_named(kind, name, tmp_path, monkeypatch):
    refused = PermissionError(13, "Permission denied")
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "none.json", "No such file or directory")):
        with pytest.raises(ValueError, match=rf"^{name}: {re.escape(str(path))} cannot be read \({reason}\)"):
            kind.of(path)
    with pytest.raises(ValueError, match=rf"^{name}: .*cannot be read \(embedded null byte\)"):
        kind.of(tmp_path / "a\0b.json")
    monkeypatch.setattr(Path, "read_bytes", lambda self: (_ for _ in ()).throw(refused))  # root may read everything
    with pytest.raises(ValueError, match=rf"^{name}: .*mine.json cannot be read \(Permission denied\)"):
        kind.of(tmp_path / "mine.json")


@pytest.mark.parametrize("text", ["{", "[1, 2]", "3", "[" * 100_000, '{"speed": ' + "[" * 900 + "]" * 900 + "}"])
def test_json_that_is_no_scenario_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match="^(scenario|speed) ") as error:
        Scenario.from_json(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 150


def test_steps_and_filaments_worked_by_hand():
    """0.3 s are three steps of 0.1 s, though 0.3 / 0.1 is less than 3; 5 filaments a second for 30.1 s are 150.5."""
    row = row_of(Scenario(filament_lifetime=0.3, blank_duration=0.3))
    assert (row["lifetime_steps"], row["blank_steps"]) == (3, 3)
    assert Scenario().filament_capacity == 64 + math.ceil(150.5 + 8 * math.sqrt(150.5)) == 313
    assert Scenario(max_steps=10).filament_capacity == 64 + math.ceil(5.5 + 8 * math.sqrt(5.5)) == 89  # 1.1 s


def test_every_field_is_documented_with_a_docstring():
    import inspect

    source = inspect.getsource(Scenario)
    for spec in dataclasses.fields(Scenario):
        line = source[source.index(f"    {spec.name}: ") :].split("\n")[1]
        assert line.strip().startswith('"""'), spec.name


CHANGED = {
    "substeps": 2, "wind_grid": 7, "wind_noise_sigma": 0.5, "sources": 2, "decoys": 1, "source_at": (3.0, 4.0),
    "sensitivity": (1.0, 0.5, 0.5, 1.0),
}  # fmt: skip
ELSEWHERE = {spec.name for spec in dataclasses.fields(Scenario) if spec.name.startswith("recording")} | {"ranges"}
"""Fields that other tests see to: test_recorded_worlds.py and test_ranges.py."""


@pytest.mark.parametrize(
    "spec", [spec for spec in dataclasses.fields(Scenario) if spec.name not in ELSEWHERE], ids=lambda spec: spec.name
)
def test_every_field_reaches_the_kernels(spec):
    """No option that does nothing: changing a field changes the row that the kernels read, or the obstacles."""
    base = Scenario(
        start_distance_max=12.0, drift_speed=0.1, emission_period=10.0, emission_duty=0.5, wind_grid=5,
        sensor_temperature=10.0, sensor_temperature_drift=0.01, sensor_humidity=60.0, sensor_humidity_drift=0.01,
    )  # fmt: skip
    if spec.name in ("obstacles", "occupancy", "obstacle_cell"):
        block = {} if spec.name == "occupancy" else {"obstacles": ((4.0, 4.0, 3.0, 2.0),)}
        before = terrain_of(dataclasses.replace(base, **block))
        changed = {"obstacles": ((4.0, 5.0, 3.0, 2.0),), "occupancy": ("#.", ".."), "obstacle_cell": 0.5}[spec.name]
        after = terrain_of(dataclasses.replace(base, **{**block, spec.name: changed}))
        assert before is None or before.u.shape != after.u.shape or (before.u != after.u).any()
        return
    value = getattr(base, spec.name)
    if spec.name in CHANGED:
        changed = CHANGED[spec.name]
    elif spec.type is bool:
        changed = not value
    elif spec.name == "level_edges":
        changed = tuple(2 * edge for edge in value)
    elif spec.type is str:
        changed = next(choice for choice in spec.metadata["choices"] if choice != value)
    else:
        changed = value * 1.25 if value else 1.0
    if spec.name == "max_steps":
        changed = int(changed)
    elif spec.name in ("shaping_discount", "around_angle"):
        changed = 0.9 * value
    before, after = row_of(base), row_of(dataclasses.replace(base, **{spec.name: changed}))
    assert any((before[name] != after[name]).any() for name in ROW.names)
