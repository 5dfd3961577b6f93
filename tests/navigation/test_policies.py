import math

import numpy as np
import pytest

from gpf.navigation.policies import (
    AROUND,
    CAST_LEFT,
    FORWARD,
    LEFT,
    POLICIES,
    RIGHT,
    CastAndSurge,
    Random,
    Reactive,
    make_policy,
)
from gpf.plume import Scenario

SCENARIO = Scenario.preset("reference")
BLANK, WHIFF = 0.0, 0.1


def observe(left, right, wind_direction=0.0, heading=math.pi):
    """One raw observation; by default the wind blows to +x and the agent faces it."""
    return np.array([[left, right, 1.0, wind_direction, heading]], np.float32)


def choices(policy, observations):
    policy.begin([0], SCENARIO)
    action = np.zeros(1, np.int64)
    chosen = []
    for observation in observations:
        policy.act(observation, np.arange(1), action)
        chosen.append(int(action[0]))
    return chosen


def test_random_actions_are_uniform_and_belong_to_the_episode():
    policy = Random()
    policy.begin(range(2000), SCENARIO)
    actions = np.zeros(2000, np.int64)
    history = []
    for _ in range(30):
        policy.act(np.zeros((2000, 5), np.float32), np.arange(2000), actions)
        history.append(actions.copy())
    counts = np.bincount(np.concatenate(history), minlength=6)
    assert len(counts) == 6
    assert np.abs(counts / counts.sum() - 1 / 6).max() < 0.01
    policy.begin([1999], SCENARIO)
    alone = np.zeros(1, np.int64)
    for step in history:
        policy.act(np.zeros((1, 5), np.float32), np.arange(1), alone)
        assert alone[0] == step[1999]


@pytest.mark.parametrize(("heading", "action"), [(math.pi - 0.5, LEFT), (-math.pi + 0.5, RIGHT)])
def test_reactive_turns_upwind_on_a_whiff(heading, action):
    """The wind comes from -x: seen from a heading of 150 degrees, that is to the left."""
    assert choices(Reactive(), [observe(WHIFF, BLANK, heading=heading)]) == [action]


def test_reactive_casts_to_alternating_sides_in_a_blank():
    chosen = choices(Reactive(patience=3), [observe(BLANK, BLANK)] * 12)
    assert chosen == [FORWARD, FORWARD, 5, FORWARD, FORWARD, 4] * 2


@pytest.mark.parametrize(
    ("heading", "action"), [(math.pi, FORWARD), (0.0, AROUND), (math.pi - 0.27, LEFT), (math.pi - 0.5, CAST_LEFT)]
)
def test_cast_and_surge_heads_upwind_after_a_whiff(heading, action):
    policy = CastAndSurge(lean=0.0, surge=5.0)
    assert choices(policy, [observe(WHIFF, WHIFF, heading=heading)]) == [action]


def test_cast_and_surge_leans_to_the_stronger_antenna():
    policy = CastAndSurge(lean=15.0)
    assert choices(policy, [observe(WHIFF, BLANK)]) == [LEFT]
    assert choices(policy, [observe(BLANK, WHIFF)]) == [RIGHT]


def test_cast_and_surge_sweeps_across_the_wind_in_growing_legs():
    """A bystander that obeys its actions, by dead reckoning: blanks after one whiff, straight wind."""
    policy = CastAndSurge(surge=2.0, first_sweep=0.5, growth=0.5, climb=0.0, descent=0.0)
    policy.begin([0], SCENARIO)
    action = np.zeros(1, np.int64)
    turns = SCENARIO.row()["turns"]
    x = y = 0.0
    heading = math.pi
    across = []
    for step in range(400):
        policy.act(observe(*((WHIFF, WHIFF) if step == 0 else (BLANK, BLANK)), heading=heading), np.arange(1), action)
        heading = math.remainder(heading + turns[action[0]], 2 * math.pi)
        x, y = x + 0.05 * math.cos(heading), y + 0.05 * math.sin(heading)
        across.append(y)
    across = np.array(across)
    turning = np.flatnonzero(np.diff(np.sign(np.diff(across))))
    reach = np.abs(across[turning + 1])
    assert len(reach) >= 4
    assert (np.diff(np.sign(across[turning + 1])) != 0).all()  # sides alternate
    np.testing.assert_allclose(np.diff(reach)[:3], 0.5, atol=0.12)
    assert abs(x) < 1.0  # straight across: it stays where it met the plume


def test_all_policies_choose_actions_from_raw_observations_alone():
    for name in POLICIES:
        policy = make_policy(name)
        policy.begin([0, 1], SCENARIO)
        actions = np.zeros(2, np.int64)
        policy.act(np.zeros((2, 5), np.float32), np.arange(2), actions)
        assert ((actions >= 0) & (actions < 6)).all()


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="^unknown policy 'dog'; accepted: random, reactive, cast-and-surge$"):
        make_policy("dog")
