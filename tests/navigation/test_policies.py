import cmath
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
from gpf.plume.row import row_of

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


def test_reactive_smells_with_both_antennae_and_is_patient_again_after_a_whiff():
    blank, whiff = observe(BLANK, BLANK), observe(BLANK, WHIFF, heading=math.pi - 0.5)
    chosen = choices(Reactive(patience=3), [blank, blank, whiff, blank, blank, blank])
    assert chosen == [FORWARD, FORWARD, LEFT, FORWARD, FORWARD, 5]


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
    turns = row_of(SCENARIO)["turns"]
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


class PlainCastAndSurge:
    """The same for one lane, in plain Python, with complex numbers for the plane."""

    def __init__(self, parameters, stride, turns):
        self.p, self.stride, self.turns = parameters, stride, turns
        self.wind, self.place, self.since, self.sweep, self.side, self.met = None, 0j, math.inf, 0, 1, False

    def act(self, left, right, wind, heading):
        p, comes_from = self.p, -cmath.exp(1j * wind)
        if self.wind is None:
            self.wind = comes_from
        else:
            self.place += self.stride * cmath.exp(1j * heading)
        self.wind = (1 - p.wind_smoothing) * self.wind + p.wind_smoothing * comes_from
        self.since += 1
        if max(left, right) > p.whiff:
            self.place, self.since, self.sweep, self.met = 0j, 0, 0, True
            if left != right:
                self.side = 1 if left > right else -1
        return self.closest(self.goal(cmath.phase(self.wind), left != right) - heading)

    def goal(self, upwind, one_sided):
        p = self.p
        if self.since <= p.surge:
            return upwind + (self.side * math.radians(p.lean) if self.since == 0 and one_sided else 0.0)
        reach = p.first_sweep + self.sweep * p.growth if self.met else p.search_sweep + self.sweep * p.search_growth
        if self.side * (self.place * cmath.exp(-1j * upwind)).imag > reach:
            self.side, self.sweep = -self.side, self.sweep + 1
        climb = p.climb - self.sweep * p.descent if self.met else p.search_climb
        return upwind + self.side * math.radians(90 - climb)

    def closest(self, turn):
        return min(range(6), key=lambda action: abs(math.remainder(turn - self.turns[action], math.tau)))


def test_cast_and_surge_equals_a_plain_reference():
    """Walks of 16 agents in a wind that wanders, with few whiffs, or many, or none, and sweeps of all kinds."""
    policy = CastAndSurge(surge=3.0, first_sweep=0.2, growth=0.1, descent=7.0, search_sweep=0.3, search_growth=0.2)
    lanes, rng, turns = np.arange(16), np.random.default_rng(0), row_of(SCENARIO)["turns"]
    policy.begin(range(16), SCENARIO)
    plain = [PlainCastAndSurge(policy, 0.05, turns) for _ in lanes]
    raw = np.zeros((16, 5), np.float32)
    raw[:, 3:] = rng.uniform(-math.pi, math.pi, (16, 2))
    often = np.repeat([0.0, 0.01, 0.05, 0.3], 4)[:, None]
    actions, seen = np.zeros(16, np.int64), set()
    for _ in range(400):
        raw[:, :2] = np.where(rng.random((16, 2)) < often, rng.choice([0.01, 0.02], (16, 2)), 0.001)
        raw[:, 3] += rng.normal(0.0, 0.1, 16)
        policy.act(raw, lanes, actions)
        wanted = [one.act(*map(float, (row[0], row[1], row[3], row[4]))) for one, row in zip(plain, raw, strict=True)]
        assert actions.tolist() == wanted
        raw[:, 4] += turns[actions]
        seen |= set(actions.tolist())
    assert seen == set(range(6))
    assert max(one.sweep for one in plain) > 5


def test_all_policies_choose_actions_from_raw_observations_alone():
    for name in POLICIES:
        policy = make_policy(name)
        policy.begin([0, 1], SCENARIO)
        actions = np.zeros(2, np.int64)
        policy.act(np.zeros((2, 8), np.float32), np.arange(2), actions)
        assert ((actions >= 0) & (actions < 6)).all()


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="^unknown policy 'dog'; accepted: random, reactive, cast-and-surge, "):
        make_policy("dog")


@pytest.mark.parametrize("policy", [CastAndSurge, Reactive])
def test_a_noisier_sensor_needs_a_stronger_whiff(policy):
    """With noise twice as strong, the threshold that was tuned in the presets would let noise through."""
    usual, noisy = Scenario(), Scenario(sensor_noise=2 * Scenario().sensor_noise)
    quiet = Scenario(sensor_noise=0.0)

    def first_action(world, reading):
        chosen, actions = policy(), np.zeros(1, np.int64)
        chosen.begin([0], world)
        chosen.act(np.array([[reading, 0.0, 1.0, 0.0, 0.0]], np.float32), np.zeros(1, np.int64), actions)
        return int(actions[0])

    threshold = policy().whiff
    nothing = first_action(usual, 0.0)
    assert first_action(usual, 1.1 * threshold) == first_action(quiet, 1.1 * threshold) != nothing
    assert first_action(noisy, 1.9 * threshold) == nothing
    assert first_action(noisy, 2.1 * threshold) != nothing
