"""Rollouts against a plain loop over the world, with torch for the network."""

import dataclasses

import numpy as np
import pytest
import torch

import gpf
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.rollouts import Rollouts, probe_inputs
from gpf.navigation.seeds import training_seeds
from gpf.plume import Scenario
from gpf.plume.memory import FEATURES, NAMES, Memory
from gpf.plume.tokens import onehot
from gpf.plume.world import World

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SHORT = Scenario.of({"preset": "reference", "max_steps": 25}).rewarded("search", 0.99)
EASY = Scenario.of({"preset": "reference", "max_steps": 40, "start_distance_min": 0.52, "start_distance_max": 0.7})


def model_of(observation, seed=0):
    torch.manual_seed(seed)
    return gpf.MLP(16 if observation == "memory" else 22, 16, 7, 2)


def rollouts(observation="memory", scenario=SHORT, threads=1, lanes=6, horizon=30):
    return Rollouts(lanes, horizon, scenario, observation, 7, seed=3, threads=threads)


@pytest.mark.parametrize("observation", ["memory", "onehot"])
@pytest.mark.parametrize("scenario", [SHORT, EASY], ids=["short", "easy"])
def test_a_rollout_is_what_the_world_and_the_network_say(observation, scenario):
    """The actions that were taken, repeated in a world of our own, lead to everything that was recorded."""
    model, made = model_of(observation), rollouts(observation, scenario)
    world = World(6, scenario, threads=1)
    world.seed(training_seeds(3, 6))
    world.begin()
    memory, vector = Memory(world.rows), np.zeros((6, 22), np.float32)

    def see(indices=None):
        if observation == "memory":
            return memory.update(world.raw, indices).copy()
        onehot(world.tokens, vector)
        return vector.copy()

    seen, starts = see(), world.lanes["distance"].copy()
    ended = found = 0
    for _ in range(3):  # the next rollout begins where this one ends
        episodes = made.collect(FlatNetwork(model))
        expected_outcomes = []
        for t in range(30):
            np.testing.assert_array_equal(made.inputs[t], seen)
            np.testing.assert_allclose(made.outputs[t], model(torch.from_numpy(seen)).detach(), atol=2e-5)
            world.step(made.actions[t])
            np.testing.assert_array_equal(made.rewards[t], world.rewards.astype(np.float32))
            over = world.terminations | world.truncations
            np.testing.assert_array_equal(made.ends[t], over)
            np.testing.assert_array_equal(made.bootstraps[t], over & ~world.terminations)
            last = see()
            finished = np.flatnonzero(over)
            if len(finished):
                outputs = model(torch.from_numpy(last)).detach()
                np.testing.assert_allclose(made.final[t][finished], outputs[finished], atol=2e-5)
                for i in finished:
                    steps, success = int(world.lanes["step"][i]), bool(world.successes[i])
                    shortest = max(1, int(np.ceil((starts[i] - 0.5) / 0.05)))
                    expected_outcomes.append((success, steps, success * min(shortest, steps) / steps))
                world.begin(finished)
                memory.forget(finished)
                last = see(finished)
                starts[finished] = world.lanes["distance"][finished]
            seen = last
        ended += len(expected_outcomes)
        found += made.successes.sum()
        mine = np.stack([episodes.success, episodes.steps, episodes.spl], axis=1)
        np.testing.assert_allclose(mine, np.array(expected_outcomes, float).reshape(-1, 3))
    assert ended > 10
    assert (found > 0) == (scenario is EASY)


def test_beside_the_network_the_features_of_memory_are_kept():
    """What the network sees, and what one of observation `memory` would; also at the end of an episode."""
    made = Rollouts(6, 30, SHORT, "onehot", 6, seed=3, threads=1, privileged=True)
    world = World(6, SHORT, threads=1)
    world.seed(training_seeds(3, 6))
    world.begin()
    memory = Memory(world.rows)
    seen = memory.update(world.raw).copy()
    ended = 0
    for _ in range(2):
        made.collect(FlatNetwork(model_of("onehot")))
        for t in range(30):
            np.testing.assert_array_equal(made.privileged[t], np.hstack([made.inputs[t], seen]))
            world.step(made.actions[t])
            seen = memory.update(world.raw).copy()
            finished = np.flatnonzero(made.ends[t])
            if len(finished):
                world.begin(finished)
                memory.forget(finished)
                seen = memory.update(world.raw, finished).copy()
            ended += len(finished)
    assert ended >= 12


def test_what_counts_as_a_whiff_is_calibrated_to_the_noise_of_the_first_world_and_stays_so():
    """Where there is no plume: none where the lanes were made for the noise, many where it grew without notice."""
    blank = dataclasses.replace(SHORT, emission_rate=0.0, max_steps=300)
    noisy = dataclasses.replace(blank, sensor_noise=5e-3)
    shares = []
    for first in (noisy, blank):
        made = rollouts(scenario=first, lanes=32, horizon=200)
        made.world.set_scenario(noisy)
        made.collect(FlatNetwork(model_of("memory")))
        shares.append(made.inputs[:, :, NAMES.index("whiff")].mean())
    assert shares[0] < 1e-3 < 0.3 < shares[1]


def test_threads_change_nothing():
    model = model_of("memory")
    results = []
    for threads in (1, 2, 5):
        made = rollouts(threads=threads)
        for _ in range(3):
            made.collect(FlatNetwork(model))
        results.append((made.inputs.copy(), made.outputs.copy(), made.actions.copy(), made.rewards.copy()))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_a_restored_state_goes_on_bit_for_bit(observation):
    model = model_of(observation)
    made, again = rollouts(observation), rollouts(observation)
    made.collect(FlatNetwork(model))
    state = {name: array.copy() for name, array in made.state().items()}
    first = made.collect(FlatNetwork(model))
    again.restore(state)
    second = again.collect(FlatNetwork(model))
    for name in ("inputs", "outputs", "actions", "rewards", "ends"):
        np.testing.assert_array_equal(getattr(made, name), getattr(again, name))
    np.testing.assert_array_equal(first.returns, second.returns)


def test_a_state_from_before_the_first_step_begins_at_the_first_step():
    model = model_of("memory")
    made, again = rollouts(), rollouts()
    state = {name: array.copy() for name, array in made.state().items()}
    made.collect(FlatNetwork(model))
    again.collect(FlatNetwork(model))
    again.restore(state)
    again.collect(FlatNetwork(model))
    np.testing.assert_array_equal(made.inputs, again.inputs)


def test_returns_are_sums_of_rewards():
    made = rollouts(horizon=60)
    episodes = made.collect(FlatNetwork(model_of("memory")))
    sums, wanted = np.zeros(6), []
    for ends, rewards in zip(made.ends, made.rewards, strict=True):  # in the order of time, then of lanes
        sums += rewards
        wanted += sums[ends].tolist()
        sums[ends] = 0.0
    assert len(wanted) > 6
    assert episodes.returns == pytest.approx(wanted, abs=1e-4)


def test_probes_are_all_observations_or_some_of_walks_that_no_network_steers():
    seen = probe_inputs(SHORT, "onehot")
    assert (len(np.unique(seen, axis=0)), set(np.unique(seen)), set(seen.sum(1))) == (392, {0.0, 1.0}, {3.0})
    scenario = Scenario.preset("reference")
    walks = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        walks.append(probe_inputs(scenario, "memory", ("wind",)))
        assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(*walks)
    assert walks[0].shape == (256, 16)
    assert not walks[0][:, [NAMES.index(name) for name in FEATURES["wind"]]].any()
    clock = walks[0][:, NAMES.index("clock")]
    assert clock[0] < clock[-1]
    assert len(np.unique(clock)) > 100  # from the first step to the last


def test_runs_of_different_seeds_share_no_episode():
    assert not set(training_seeds(0, 1 << 16)) & set(training_seeds(1, 1 << 16))


@pytest.mark.parametrize("threads", [1, 2])
def test_networks_share_the_lanes_and_each_acts_in_its_own(threads):
    models = [model_of("memory", seed) for seed in range(3)]
    shared = rollouts(lanes=8, threads=threads)
    shared.collect([FlatNetwork(model) for model in models])
    assert shared.shares(3).tolist() == [0, 2, 5, 8]
    for n, model in enumerate(models):
        alone = rollouts(lanes=8)
        alone.collect(FlatNetwork(model))
        mine = slice(*shared.shares(3)[n : n + 2])
        np.testing.assert_array_equal(shared.actions[:, mine], alone.actions[:, mine])
        np.testing.assert_array_equal(shared.outputs[:, mine], alone.outputs[:, mine])
        np.testing.assert_array_equal(shared.rewards[:, mine], alone.rewards[:, mine])
