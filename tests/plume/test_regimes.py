"""Regimes change what they say and nothing else; streams come in a seeded order and refuse what cannot be."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from gpf.plume.physics import BORN
from gpf.plume.regimes import REGIMES, Stream, Visit, between, drawn, preset, roomiest
from gpf.plume.row import row_of
from gpf.plume.scenario import Scenario
from gpf.plume.world import World


def flown(steps=60, seed=5, lanes=8, **fields):
    """Readings, shown winds, places and true winds of a walk; noiseless unless asked for."""
    world = World(lanes, Scenario(**{"sensor_noise": 0.0, "start_distance_max": 4.0, **fields}))
    world.seed(range(seed, seed + lanes))
    world.begin()
    random = np.random.default_rng(seed)
    seen = {"raw": [], "tokens": [], "x": [], "y": [], "wind": []}
    for _ in range(steps):
        world.step(random.integers(0, 6, lanes), restart=False)
        seen["raw"].append(world.raw.copy())
        seen["tokens"].append(world.tokens.copy())
        for name, field in (("x", "x"), ("y", "y"), ("wind", "wind_direction")):
            seen[name].append(world.lanes[field].copy())
    return {name: np.array(values) for name, values in seen.items()}, world


def test_gain_multiplies_a_reading_and_a_dead_antenna_reads_nothing():
    home, _ = flown()
    weak, _ = flown(left_gain=0.25)
    np.testing.assert_allclose(weak["raw"][..., 0], 0.25 * home["raw"][..., 0], rtol=1e-6)
    np.testing.assert_array_equal(weak["raw"][..., 1:], home["raw"][..., 1:])
    assert home["raw"][..., 0].max() > 0.0
    dead, _ = flown(right_gain=0.0)
    assert not dead["raw"][..., 1].any()
    noisy, _ = flown(left_gain=0.0, sensor_noise=1e-3)
    assert noisy["raw"][..., 0].max() > 1e-3  # the noise is the sensor's own


def test_swapped_antennae_read_each_others_places():
    home, _ = flown()
    swapped, _ = flown(antennae_swapped=True)
    np.testing.assert_array_equal(swapped["raw"][..., [1, 0]], home["raw"][..., [0, 1]])
    np.testing.assert_array_equal(swapped["tokens"][..., [1, 0, 2]], home["tokens"])


@pytest.mark.parametrize("offset", [90.0, -90.0, 180.0])
def test_a_turned_vane_shows_another_wind_and_the_wind_stays(offset):
    home, _ = flown()
    turned, _ = flown(vane_offset=offset)
    np.testing.assert_array_equal(turned["wind"], home["wind"])
    shown = turned["raw"][..., 3] - home["raw"][..., 3] - math.radians(offset)
    np.testing.assert_allclose(np.cos(shown), 1.0, atol=1e-6)
    octants = (home["tokens"][..., 2] - turned["tokens"][..., 2]) % 8  # clockwise in `paper`
    assert (octants == offset / 45 % 8).mean() > 0.999
    np.testing.assert_array_equal(turned["raw"][..., :2], home["raw"][..., :2])


def test_a_current_carries_the_agent_and_the_agent_alone():
    home, _ = flown(steps=20)
    carried, _ = flown(steps=20, drift_speed=0.2, drift_direction=30.0)
    steps = np.arange(1, 21)[:, None]
    np.testing.assert_allclose(
        carried["x"] - home["x"], 0.02 * math.cos(math.radians(30.0)) * steps + 0 * home["x"], atol=1e-9
    )
    np.testing.assert_allclose(
        carried["y"] - home["y"], 0.02 * math.sin(math.radians(30.0)) * steps + 0 * home["y"], atol=1e-9
    )
    np.testing.assert_array_equal(carried["wind"], home["wind"])


def test_a_pulsed_source_is_off_when_it_is_off():
    _, world = flown(steps=200, emission_period=5.0, emission_duty=0.4, emission_rate=20.0, speed=0.0)
    for i in range(world.count):
        lane = world.lanes[i]
        born = world.filaments[i][BORN, lane["first"] : lane["last"]]
        assert len(born) > 50
        assert (born % 50 < 20).all()


def test_a_wind_that_turns_turns_by_so_much():
    still, _ = flown(steps=300, wind_direction_sigma=0.0)
    turning, _ = flown(steps=300, wind_direction_sigma=0.0, wind_turn=3.0)
    late = np.degrees(turning["wind"][-1] - turning["wind"][-101])
    np.testing.assert_allclose(late, 30.0, atol=1e-3)  # 3 deg/s for 10 s; the wind follows with a lag that dies out
    assert not still["wind"].any()


def test_regimes_differ_from_home_and_from_each_other():
    home = Scenario.preset("reference")
    rows = {name: row_of(dataclasses.replace(home, **fields)).tobytes() for name, fields in REGIMES.items()}
    assert len(set(rows.values())) == len(REGIMES) >= 15


def test_what_lies_between_two_worlds():
    before, after = Scenario(speed=0.5), Scenario(speed=0.25, antennae_swapped=True, max_steps=600)
    assert between(before, after, 0.0) == before
    assert between(before, after, 1.0) == after
    assert between(before, after, 0.4) == Scenario(speed=0.4)
    assert between(before, after, 0.5) == dataclasses.replace(after, speed=0.375)


@pytest.mark.parametrize("change", [{"emission_rate": 50.0}, {"filament_lifetime": 60.0}, {"time_step": 0.2}])
def test_the_roomiest_world_has_room_for_all(change):
    worlds = [Scenario(max_steps=400), Scenario(max_steps=600, **change)]
    for order in (worlds, worlds[::-1]):
        assert roomiest(order).filament_capacity == max(world.filament_capacity for world in worlds)


def test_streams_are_seeded_and_nothing_comes_twice_in_a_row():
    for name in ("gentle", "harsh", "returning"):
        stream = preset(name, seed=3)
        assert stream == preset(name, seed=3)
        assert stream.visits != preset(name, seed=4).visits
        names = [visit.regime for visit in stream.visits]
        assert names[0] == "home"
        assert len(names) >= 13  # at least 12 changes
        assert all(a != b for a, b in itertools.pairwise(names))
        assert Stream.of(json.loads(json.dumps(stream.to_json()))).visits == stream.visits
    assert len({visit.regime for visit in preset("returning").visits}) == 4
    assert len({visit.regime for visit in preset("harsh").visits}) == 13


def of(*names, episodes=3, gradual=False, **others):
    visits = [{"regime": name, "episodes": episodes, "gradual": gradual} for name in names]
    return Stream.of({"visits": visits, **others})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: preset("rough"),
            "stream must be one of gentle, harsh, returning, or a path to a .json file, got 'rough'",
        ),
        (lambda: preset("harsh", count=2**31), "visits must be a whole number from 2 to 10,000, got 2147483648$"),
        (lambda: preset("harsh", count=0), "visits must be a whole number from 2 to 10,000, got 0$"),
        (lambda: preset("harsh", count=True), "visits must be a whole number from 2 to 10,000, got True$"),
        (lambda: preset("harsh", episodes=2**31), "episodes must be a whole number from 1 to 100,000,000, got 2147"),
        (lambda: preset("harsh", episodes=10**8), "episodes of all visits must be at most 100,000,000, got 1,400,0"),
        (lambda: drawn(0, ("home",), 3), "regimes must be at least two, or nothing would change, got home"),
        (lambda: Stream((), Scenario()), "number of visits must be a whole number from 2 to 10,000, got 0$"),
        (lambda: Stream((Visit("home", 3),), Scenario()), "number of visits must be .*, got 1$"),
        (lambda: of(*("home", "wide") * 5001), "number of visits must be a whole number from 2 to 10,000, got 10002$"),
        (lambda: of("home", "home"), "regime of visit 1 must differ from that of the visit before, got 'home'$"),
        (lambda: of("moon", "home"), "regime of visit 0 must be one of home, gusts, .*, got 'moon'$"),
        (lambda: of("home", ["home"]), r"regime of visit 1 must be one of home, gusts, .*, got \['home'\]$"),
        (lambda: of("home", "wide", episodes=0), "episodes of visit 0 must be .* from 1 to 100,000,000, got 0$"),
        (lambda: of("home", "wide", episodes=10**30), "episodes of visit 0 must be .*, got 10000"),
        (lambda: of("home", "wide", episodes=True), "episodes of visit 0 must be .*, got True$"),
        (lambda: of("home", "wide", episodes=1.5), "episodes of visit 0 must be .*, got 1.5$"),
        (lambda: of("home", "wide", episodes="3"), "episodes of visit 0 must be .*, got '3'$"),
        (lambda: of("home", "wide", episodes=10**8), "episodes of all visits must be at most .*, got 200,000,000$"),
        (lambda: of("home", "wide", gradual=True), "gradual of visit 0 must be false, for there is no world before"),
        (lambda: of("home", "wide", gradual="no"), "gradual of visit 0 must be true or false, got 'no'$"),
        (lambda: of("home", "x", regimes={"x": {"spede": 1}}), "regime 'x' has 'spede', which is not a field of"),
        (lambda: of("home", "x", regimes={"x": {1: 1}}), "regime 'x' has 1, which is not a field of"),
        (lambda: of("home", "x", regimes={"x": {"speed": -1.0}}), "regime 'x': speed must be at least 0, got -1.0$"),
        (lambda: of("home", "x", regimes={"x": {"speed": []}}), r"regime 'x': speed must be a number, got \[\]$"),
        (lambda: of("home", "x", regimes={"x": 5}), "regimes must be an object with an object of fields for each"),
        (lambda: of("home", "x", regimes=[1]), r"regimes must be an object .*, got \[1\]$"),
        (lambda: of("home", "wide", home=5), "home: scenario must be a Scenario, .*, got 5$"),
        (lambda: of("home", "wide", home="moon"), "home: unknown scenario 'moon'"),
        (lambda: of("home", "wide", home={"speed": 1e100}), r"home: speed must be at most 100, got 1e\+100$"),
        (lambda: Stream.of({"visits": [{"regime": "home", "days": 3}] * 2}), "visit 0 must be an object of .*days"),
        (lambda: Stream.of({"visits": [1, 2]}), "visit 0 must be an object of regime, episodes .*, got 1$"),
        (lambda: Stream.of({"visits": ["home", "wide"]}), "visit 0 must be an object of .*, got 'home'$"),
        (lambda: Stream.of({"visits": 5}), "visits must be a list, got 5$"),
        (lambda: Stream.of({"visits": {"home": 3}}), "visits must be a list, got {'home': 3}$"),
        (lambda: Stream.of({"visit": []}), r"stream must be an object of visits, .*, got {'visit': \[\]}$"),
        (lambda: Stream.of([]), r"stream must be an object of visits, .*, got \[\]$"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_in_every_regime_an_agent_can_go_against_the_current_and_smell_something():
    stream = preset("returning", episodes=1, count=3)
    for name in REGIMES:
        world = stream.scenario(name)
        assert world.drift_speed < world.speed, name
        assert world.emission_rate * world.filament_mass > 0, name
        assert max(world.left_gain, world.right_gain) > 0, name
        assert world.wind_speed > world.wind_speed_floor, name


def test_two_worlds_are_enough_for_a_stream():
    assert drawn(0, ("gale",), 2) == ["home", "gale"]
    assert drawn(0, ("gale", "home"), 5) == ["home", "gale", "home", "gale", "home"]
