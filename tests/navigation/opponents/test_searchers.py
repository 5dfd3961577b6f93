"""All agents of the continuous world: episodes do not depend on each other, and the source is found."""

import math

import numpy as np
import pytest

from gpf.navigation.evaluate import evaluate
from gpf.navigation.opponents.bilateral import Bilateral
from gpf.navigation.opponents.particles import ParticleFilter
from gpf.navigation.opponents.searchers import GreedyBelief, Infotaxis, SpaceAwareInfotaxis, Thompson
from gpf.navigation.policies import LEFT, RIGHT, forked, make_policy
from gpf.navigation.seeds import BLOCK, TUNING
from gpf.plume import Scenario
from gpf.plume.world import World

WORLD = Scenario.preset("reference")
SEARCHERS = {
    "infotaxis": Infotaxis, "space-aware-infotaxis": SpaceAwareInfotaxis, "thompson": Thompson,
    "greedy-belief": GreedyBelief, "particle-filter": ParticleFilter, "bilateral": Bilateral,
}  # fmt: skip
SEEDS = TUNING + 400 * BLOCK


def walked(policy, seeds, steps, world=WORLD, lanes=None):
    """The actions of episodes, shape (steps, lanes), with act called for some lanes only."""
    plume = World(len(seeds), world, threads=1)
    plume.seed(seeds)
    plume.begin()
    policy.begin(seeds, world)
    everyone, actions, history = np.arange(len(seeds)), np.zeros(len(seeds), np.int64), []
    for _ in range(steps):
        for some in [everyone] if lanes is None else lanes:
            policy.act(plume.raw, some, actions)
        history.append(actions.copy())
        plume.step(actions)
    return np.array(history)


@pytest.mark.parametrize("name", SEARCHERS)
def test_names_are_those_of_the_registry(name):
    assert type(make_policy(name)) is SEARCHERS[name]


@pytest.mark.parametrize("name", SEARCHERS)
def test_an_episode_does_not_depend_on_the_others(name):
    seeds = [SEEDS + n for n in range(4)]
    together = walked(make_policy(name), seeds, 60)
    alone = walked(make_policy(name), [seeds[2]], 60)
    apart = walked(make_policy(name), seeds, 60, lanes=[np.array([3, 1]), np.array([0, 2])])
    np.testing.assert_array_equal(together[:, 2], alone[:, 0])
    np.testing.assert_array_equal(together, apart)
    assert len(np.unique(together)) > 2


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_policy_can_be_forked_in_the_midst_of_its_episodes(name):
    policy, seeds = make_policy(name), [SEEDS, SEEDS + 1]
    walked(policy, seeds, 23)
    twin = forked(policy, np.array([1, 0, 1]))
    raw = np.zeros((3, 8), np.float32)
    raw[:, 2] = 1.0
    first, second = np.zeros(2, np.int64), np.zeros(3, np.int64)
    for _ in range(12):
        policy.act(raw[:2], np.arange(2), first)
        twin.act(raw, np.arange(3), second)
        assert second.tolist() == [first[1], first[0], first[1]] or name in ("thompson", "particle-filter")
    assert (second >= 0).all()


LEAST = {
    "space-aware-infotaxis": 0.9, "infotaxis": 0.75, "thompson": 0.75, "particle-filter": 0.75, "greedy-belief": 0.5,
    "bilateral": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "least"), LEAST.items())
def test_agents_find_the_source(name, least):
    result = evaluate(make_policy(name), WORLD, 60, SEEDS, threads=1)
    assert result.success.mean() >= least


def test_space_aware_infotaxis_is_faster_than_cast_and_surge():
    ours = evaluate(SpaceAwareInfotaxis(), WORLD, 60, SEEDS, threads=1)
    assert ours.spl > evaluate(make_policy("cast-and-surge"), WORLD, 60, SEEDS, threads=1).spl


@pytest.mark.parametrize("name", ["infotaxis", "space-aware-infotaxis", "greedy-belief", "bilateral"])
def test_a_world_turned_by_a_right_angle_has_the_same_actions(name):
    """Readings are the same, and all directions are turned: no agent knows where north is."""
    policies, rng = [make_policy(name) for _ in range(2)], np.random.default_rng(0)
    for policy in policies:
        policy.begin([SEEDS], WORLD)
    raw = np.zeros((1, 8), np.float32)
    heading, direction, agreed = 0.3, 0.1, 0
    for _ in range(40):
        raw[0, :2] = rng.choice([0.0, 0.05], 2, p=[0.7, 0.3])
        direction += rng.normal(0.0, 0.05)
        actions = np.zeros((2, 1), np.int64)
        for policy, turn, action in zip(policies, (0.0, math.pi / 2), actions, strict=True):
            raw[0, 2:5] = 1.0, math.remainder(direction + turn, math.tau), math.remainder(heading + turn, math.tau)
            policy.act(raw, np.zeros(1, np.int64), action)
        agreed += int(actions[0, 0] == actions[1, 0])
        heading += float(np.asarray([0.0, 0.2618, -0.2618, math.pi, 0.5236, -0.5236])[actions[0, 0]])
    assert agreed >= (38 if name == "bilateral" else 30)


@pytest.mark.parametrize("name", SEARCHERS)
def test_readings_that_are_not_numbers_still_give_an_action(name):
    policy, actions = make_policy(name), np.full(1, -1)
    policy.begin([SEEDS], WORLD)
    for column in (*range(8), slice(None)):
        raw = np.zeros((1, 8), np.float32)
        raw[:, column] = np.nan
        for _ in range(6):
            policy.act(raw, np.zeros(1, np.int64), actions)
            assert 0 <= actions[0] < 6


@pytest.mark.parametrize(("left", "right", "action"), [(0.1, 0.02, LEFT), (0.02, 0.1, RIGHT)])
def test_the_bilateral_tracker_turns_to_the_stronger_antenna(left, right, action):
    policy, actions = Bilateral(gain=30.0), np.zeros(1, np.int64)
    policy.begin([0], WORLD)
    policy.act(np.array([[left, right, 1.0, 0.0, math.pi, 0, 0, 0]], np.float32), np.zeros(1, np.int64), actions)
    assert actions[0] == action


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["turbulent", "slow-sensor", "decoy", "office", "fly-once"])
@pytest.mark.parametrize("name", SEARCHERS)
def test_agents_work_in_all_kinds_of_worlds(name, preset):
    result = evaluate(make_policy(name), Scenario.preset(preset), 20, SEEDS, threads=1)
    assert result.success.mean() > 0.1
