"""Regimes change what they say and nothing else; streams come in a seeded order and refuse what cannot be."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest

from gpf.plume.physics import BORN
from gpf.plume.regimes import REGIMES, Stream, Visit, between, drawn, preset
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
    rows = {name: dataclasses.replace(home, **fields).row().tobytes() for name, fields in REGIMES.items()}
    assert len(set(rows.values())) == len(REGIMES) >= 15


def test_what_lies_between_two_worlds():
    before, after = Scenario(speed=0.5), Scenario(speed=0.25, antennae_swapped=True, max_steps=600)
    assert between(before, after, 0.0) == before
    assert between(before, after, 1.0) == after
    assert between(before, after, 0.4) == Scenario(speed=0.4)


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
        (lambda: preset("rough"), "stream: 'rough'; accepted: gentle, harsh, returning"),
        (lambda: drawn(0, ("home",), 3), "regimes: home; accepted: at least two"),
        (lambda: Stream((), Scenario()), "visits: 0; accepted: at least two"),
        (lambda: Stream((Visit("home", 3),), Scenario()), "visits: 1; accepted: at least two"),
        (lambda: of("home", "home"), "regime: 'home' of visit 1 after itself; accepted: another"),
        (lambda: of("moon", "home"), "regime: 'moon'; accepted: home, gusts"),
        (lambda: of(["home"], "home"), r"regime: \['home'\]; accepted: home, gusts"),
        (lambda: of("home", "wide", episodes=0), "episodes: 0 of visit 0 to 'home'; accepted: at least 1"),
        (lambda: of("home", "wide", gradual=True), "gradual: the first visit"),
        (lambda: of("home", "wide", gradual="no"), "gradual: 'no' of visit 0; accepted: true or false"),
        (lambda: of("home", "x", regimes={"x": {"spede": 1.0}}), "regime 'x': spede; accepted: fields"),
        (lambda: of("home", "x", regimes={"x": {"speed": -1.0}}), "regime 'x': speed: -1.0; accepted"),
        (lambda: of("home", "x", regimes={"x": 5}), "regimes: .*; accepted: an object of fields"),
        (lambda: of("home", "x", regimes=[1]), "regimes: .*; accepted: an object of fields"),
        (lambda: Stream.of({"visits": [{"regime": "home", "days": 3}]}), "visits: .*days"),
        (lambda: Stream.of({"visit": []}), "stream: .*; accepted: an object of visits"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        make()
    assert "\n" not in str(caught.value)
