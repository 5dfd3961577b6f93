"""The imagined plume as an environment."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policy_gradient import generalized_advantages
from gpf.network import MLP
from gpf.plume.memory import NAMES
from gpf.plume.scenario import Scenario
from gpf.world_model.dreaming import ImaginedRollouts, learn_in_imagination
from gpf.world_model.env import ImaginedPlumeVectorEnv
from gpf.world_model.trained import TrainedWorld, found_chances


@pytest.fixture
def world(model):
    found = np.zeros(392, np.float32)
    found[100:120] = 0.5
    return TrainedWorld(model, Scenario.of("reference"), found, 0.3)


@pytest.mark.parametrize("observation", ["tokens", "onehot", "memory"])
def test_it_is_a_gymnasium_environment(world, observation):
    env = gymnasium.make("gpf/ImaginedPlume-v0", world=world, observation=observation, max_steps=20)
    check_env(env.unwrapped, skip_render_check=True)


def test_the_same_seed_imagines_the_same(world):
    def walk(seed):
        env = ImaginedPlumeVectorEnv(3, world, max_steps=15)
        seen = [env.reset(seed=seed)[0].copy()]
        random = np.random.default_rng(0)
        return seen + [env.step(random.integers(6, size=3))[0].copy() for _ in range(40)]

    assert np.array_equal(walk(1), walk(1))
    assert not np.array_equal(walk(1), walk(2))


def test_one_hot_observations_are_those_of_the_tokens(world):
    tokens, onehot = (ImaginedPlumeVectorEnv(4, world, observation=kind, max_steps=9) for kind in ("tokens", "onehot"))
    random = np.random.default_rng(0)
    seen = [(tokens.reset(seed=3)[0].copy(), onehot.reset(seed=3)[0].copy())]
    for _ in range(20):
        actions = random.integers(6, size=4)
        seen.append((tokens.step(actions)[0].copy(), onehot.step(actions)[0].copy()))
    for codes, inputs in seen:
        assert np.array_equal(inputs, np.hstack([np.eye(size)[codes[:, n]] for n, size in enumerate((7, 7, 8))]))


def test_rewards_and_ends_worked_from_the_tokens(world):
    env = gymnasium.make_vec(
        "gpf/ImaginedPlume-v0", 16, vectorization_mode="vector_entry_point", world=world, max_steps=9
    )
    env.reset(seed=0)
    ages, over = np.zeros(16, int), np.zeros(16, bool)
    found_at, met_at, seen_both = 0, 0, set()
    for _ in range(200):
        tokens, rewards, found, late, info = env.step(np.zeros(16, np.int64))
        ages = np.where(over, 0, ages + 1)
        codes = (tokens[:, 0] * 7 + tokens[:, 1]) * 8 + tokens[:, 2]
        smells = tokens[:, :2].max(axis=1) >= 2
        ahead = np.where(smells, 0.05 * np.cos((tokens[:, 2] + 0.5) * np.pi / 4), 0.0)
        seen_both |= {bool(smell) for smell in smells}
        assert rewards == pytest.approx(np.where(over, 0.0, -0.02 + ahead + 10.0 * found))
        assert (late == ((ages == 9) & ~found)).all()
        assert not found[world.found[codes] == 0].any()
        met = ~over & (world.found[codes] > 0)
        met_at, found_at = met_at + met.sum(), found_at + found.sum()
        assert (info["success"] == found).all()
        over = found | late
    assert seen_both == {False, True}
    assert met_at > 20
    assert abs(found_at / met_at - 0.5) < 4 * 0.5 / np.sqrt(met_at)


def test_what_a_lane_remembers_is_worked_from_its_tokens_and_turns(world):
    """The clock, and the mean of the winds in the direction in which the lane is turned, with complex numbers."""
    options = {"max_steps": 30, "upwind": 0.0}
    env, shown = (ImaginedPlumeVectorEnv(6, world, kind, **options) for kind in ("memory", "tokens"))
    turns = np.radians([0, 15, -15, 180, 30, -30])
    headings, ages, mean = np.zeros(6), np.full(6, -1), np.zeros(6, complex)
    random = np.random.default_rng(0)
    features, tokens = env.reset(seed=3)[0], shown.reset(seed=3)[0]
    begun, over, restarts = np.zeros(6, bool), np.zeros(6, bool), 0
    for _ in range(70):
        wind = np.exp(1j * (headings + (tokens[:, 2] + 0.5) * np.pi / 4))  # where it comes from
        ages = np.where(begun, 0, ages + 1)
        mean = np.where(ages == 0, wind, mean + 0.03 * (wind - mean))
        ahead = mean / np.abs(mean) * np.exp(-1j * headings)
        by_name = dict(zip(NAMES, features.T, strict=True))
        np.testing.assert_allclose(by_name["mean_wind_ahead"], ahead.real, atol=1e-4)
        np.testing.assert_allclose(by_name["mean_wind_left"], ahead.imag, atol=1e-4)
        np.testing.assert_allclose(by_name["clock"] * world.scenario.max_steps, ages, atol=1e-3)
        actions = random.integers(6, size=6)
        features, _, found, late, _ = env.step(actions)
        tokens = shown.step(actions)[0]
        begun, over, headings = over, found | late, headings + turns[actions]
        restarts += begun.sum()
    assert restarts > 6


def test_sources_are_as_frequent_as_they_were(dataset):
    chances = found_chances(dataset)
    seen, last = np.zeros(392), np.zeros(392)
    for (episode,), found in zip(dataset, dataset.found, strict=True):
        codes = (episode.observations[:, 0] * 7 + episode.observations[:, 1]) * 8 + episode.observations[:, 2]
        np.add.at(seen, codes[1:], 1)
        last[codes[-1]] += found
    assert last.sum() == dataset.found.sum() > 0
    assert chances == pytest.approx(np.divide(last, seen, out=np.zeros(392), where=seen > 0))


class Scripted:
    """Two imagined lanes: the first finds the source in its second step, the second runs out of time in its third."""

    num_envs = 2

    def __init__(self):
        self.age, self.ended = 0, np.zeros(2, np.bool_)

    def reset(self, seed):
        return np.zeros((2, 16), np.float32), {}

    def step(self, actions):
        begun, self.age = self.ended, self.age + 1
        found, late = np.array([self.age == 2, False]), np.array([False, self.age == 3])
        self.ended = found | late
        rewards = np.where(begun, 0.0, [self.age, 10.0 * self.age])
        return np.full((2, 16), self.age, np.float32), rewards, found, late, {}


def test_what_a_learner_is_told_of_imagined_steps():
    """Worked by hand: where a lane begins anew, the reward is what was expected, so that nothing is learnt there."""
    torch.manual_seed(0)
    network = MLP(16, 8, 7)
    rollouts = ImaginedRollouts(Scripted(), network, 5, 0)
    episodes = rollouts.collect(FlatNetwork(network))
    values = rollouts.outputs[:, :, -1]
    assert rollouts.ends.T.tolist() == [[False, True, True, False, False], [False, False, True, True, False]]
    assert rollouts.rewards[:, 0].tolist() == pytest.approx([1, 2, values[2, 0], 4, 5])
    assert rollouts.rewards[:, 1].tolist() == pytest.approx([10, 20, 30, values[3, 1], 50])
    assert episodes.success.tolist() == [True, False]
    assert episodes.steps.tolist() == [2, 3]
    assert episodes.returns.tolist() == [3, 60]
    advantages = np.zeros((5, 2), np.float32)
    generalized_advantages(rollouts.rewards, values, rollouts.ends, 0.9, 0.8, advantages)
    assert advantages[2, 0] == advantages[3, 1] == 0
    assert advantages[1, 0] == pytest.approx(2 - values[1, 0])
    assert advantages[2, 1] == pytest.approx(30 - values[2, 1])


def test_a_navigator_can_learn_in_imagination(world):
    model, curve = learn_in_imagination(world, epochs=3, lanes=8, horizon=16, max_steps=10)
    other, again = learn_in_imagination(world, epochs=3, lanes=8, horizon=16, max_steps=10)
    assert curve == again
    assert len(curve) == 3
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert np.array_equal(one.detach().numpy(), two.detach().numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs must be a whole number of at least 1, got 0"),
        ({"observation": "raw"}, "observation must be one of tokens, onehot, memory, got 'raw'"),
        ({"world": "nowhere"}, "nowhere has no config.json"),
        ({"max_steps": 0}, "max_steps must be at least 1 or None, got 0"),
    ],
)
def test_impossible_worlds_are_refused(world, options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ImaginedPlumeVectorEnv(**{"world": world, **options})


def test_wrong_actions_are_refused(world):
    env = ImaginedPlumeVectorEnv(2, world)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.int64))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"^actions must be 2 whole numbers from 0 to 5, got "):
        env.step(np.array([0, 6]))
