"""Policies that see tokens: what is reckoned from tokens has the same tokens, and forks go on as the first would."""

import itertools

import numpy as np
import pytest

from gpf.navigation.policies import CastAndSurge, forked, make_policy
from gpf.navigation.tokenized import Reckoning, Tokenized, level_readings
from gpf.plume.row import row_of
from gpf.plume.scenario import Scenario
from gpf.plume.world import World

WORLDS = {"paper": Scenario.of("paper"), "reference": Scenario.of("reference")}


@pytest.mark.parametrize("preset", WORLDS)
def test_what_tokens_stand_for_has_these_tokens(preset):
    states = np.arange(392)
    tokens = np.stack([states // 56, states // 8 % 7, states % 8], axis=1)
    seen, again = Reckoning(392, WORLDS[preset]), Reckoning(392, WORLDS[preset])
    everyone = np.arange(392)
    seen.tokens[:] = tokens
    seen.headings[:] = np.linspace(-10.0, 10.0, 392)
    seen.update(everyone)
    again.tokenize(seen.raw, everyone)
    assert (again.tokens == tokens).all()


def test_the_heading_is_the_worlds_up_to_where_it_began():
    world, scenario = World(3, WORLDS["reference"]), WORLDS["reference"]
    world.seed([1, 2, 3])
    world.begin()
    seen, lanes = Reckoning(3, scenario), np.arange(3)
    first = world.raw[:, 4].copy()
    random = np.random.default_rng(0)
    for _ in range(50):
        actions = random.integers(6, size=3)
        seen.turn(lanes, actions)
        world.step(actions)
        seen.tokenize(world.raw, lanes)
        seen.update(lanes)
        off = np.angle(np.exp(1j * (world.raw[:, 4] - first - seen.raw[:, 4])))
        assert np.abs(off).max() < 1e-5
        assert (seen.tokens == world.tokens).all()


def test_a_policy_that_sees_tokens_reckons_with_its_own_turns():
    scenario, lanes, actions = WORLDS["reference"], np.arange(2), np.zeros(2, np.int64)
    policy, heading = Tokenized(make_policy("random"), scenario), np.zeros(2)
    policy.begin([1, 2], scenario)
    for _ in range(20):
        policy.act(np.zeros((2, 5), np.float32), lanes, actions)
        heading += row_of(scenario)["turns"][actions]
        np.testing.assert_allclose(policy.seen.headings, heading)
    assert len(np.unique(heading)) == 2


def test_a_level_below_the_lowest_smell_is_no_reading():
    scenario = WORLDS["reference"]
    readings = level_readings(scenario)
    assert readings[0] == 0
    edges = scenario.level_edges
    middles = [(low * high) ** 0.5 for low, high in itertools.pairwise(edges)]  # of a band, on a logarithmic scale
    np.testing.assert_allclose(readings, [0.0, *middles, 2 * edges[-1]], rtol=1e-6)
    seen = Reckoning(2, scenario, whiff=2)
    assert (seen.raw[:, 2] == np.float32(scenario.wind_speed)).all()
    seen.tokens[:] = [[1, 0, 0], [2, 1, 0]]
    seen.update(np.arange(2))
    assert seen.raw[:, :2].tolist() == [[0.0, 0.0], [readings[2], 0.0]]


@pytest.mark.parametrize("make", [lambda: make_policy("random"), lambda: make_policy("reactive"), CastAndSurge,
                                  lambda: Tokenized(CastAndSurge(), WORLDS["reference"], 2)])  # fmt: skip
def test_a_fork_goes_on_as_the_first_would_and_leaves_it_alone(make):
    scenario = WORLDS["reference"]
    world, policy = World(4, scenario), make()
    world.seed(range(4))
    world.begin()
    policy.begin(range(4), scenario)
    actions, lanes = np.zeros(4, np.int64), np.arange(4)
    for _ in range(60):
        policy.act(world.raw, lanes, actions)
        world.step(actions)
    fork = forked(policy, np.array([2, 2, 0]))
    twice = forked(policy, np.array([2, 2, 0]))
    seen = world.raw[[2, 2, 0]]
    done = np.zeros((2, 30, 3), np.int64)
    for n, one in enumerate((fork, twice)):
        for t in range(30):
            one.act(seen, np.arange(3), done[n, t])
    assert (done[0] == done[1]).all()  # what the first fork did changed nothing for the second
    assert (done[:, :, 0] == done[:, :, 1]).all()
    for t in range(30):
        policy.act(world.raw, lanes, actions)
        assert (actions[[2, 0]] == done[0, t, 1:]).all()


def test_cast_and_surge_reckons_with_what_is_done_and_not_with_what_it_chose():
    """It is carried along a straight line whatever it chooses: it must know how far across the wind that is."""
    scenario, policy = WORLDS["reference"], CastAndSurge()
    policy.begin([0], scenario)
    raw = np.array([[0.01, 0.0, 1.0, np.pi, np.pi / 2]], np.float32)  # a whiff; wind from +x, heading +y
    actions = np.zeros(1, np.int64)
    policy.act(raw, np.zeros(1, np.int64), actions)
    raw[0, 0] = 0.0
    for _ in range(10):
        policy.act(raw, np.zeros(1, np.int64), actions)
    stride = scenario.speed * scenario.time_step
    assert policy._memory["y"][0] == pytest.approx(10 * stride, rel=1e-5)
    assert policy._memory["x"][0] == pytest.approx(0.0, abs=1e-6)
