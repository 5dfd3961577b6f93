"""How a network acts."""

import dataclasses

import numpy as np
import pytest
import torch

import gpf
from gpf.navigation.acting import NetworkPolicy, expected, explore, greedy, sample
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import kept_inputs
from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.memory import NAMES
from gpf.plume.rng import seed_streams
from gpf.plume.world import World

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SHORT = Scenario.of({"preset": "reference", "max_steps": 60})


def network(inputs, outputs=7, seed=0):
    torch.manual_seed(seed)
    return gpf.MLP(inputs, 16, outputs, 2)


def test_readings_count_as_whiffs_where_they_did_in_training_whatever_world_the_policy_acts_in():
    """A network that goes ahead after a whiff and turns otherwise tells by its actions which readings are whiffs."""
    model = gpf.MLP(16, 1, 6, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.layers[0].linear.weight[0, NAMES.index("whiff")] = model.head.weight[0, 0] = 1.0
        model.head.bias[1] = 0.5
    noisy = dataclasses.replace(SHORT, sensor_noise=2e-3)
    raw = np.array([[3e-3, 0, 1, 0, 0], [6e-3, 0, 1, 0, 0], [9e-3, 0, 1, 0, 0]], np.float32)
    for trained_in, wanted in ((SHORT, [1, 0, 0]), (noisy, [1, 1, 0])):
        for acts_in in (SHORT, noisy):
            policy, actions = NetworkPolicy(FlatNetwork(model), "memory", "greedy", trained_in), np.zeros(3, np.int64)
            policy.begin(range(3), acts_in)
            policy.act(raw, np.arange(3), actions)
            np.testing.assert_array_equal(actions, wanted)
            policy.forget(np.ones(3, np.bool_))  # what was observed, not what a whiff is
            policy.act(raw, np.arange(3), actions)
            np.testing.assert_array_equal(actions, wanted)


def test_sampled_actions_follow_the_softmax():
    outputs = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -30.0, 99.0], np.float32)  # the last is the value, no action's
    stream = seed_streams([5])[0]
    counts = np.bincount([sample(outputs, stream) for _ in range(20_000)], minlength=6)
    wanted = torch.from_numpy(outputs[:6]).softmax(0).numpy()
    np.testing.assert_allclose(counts / counts.sum(), wanted, atol=0.012)
    assert counts[5] == 0


def test_large_outputs_do_not_overflow():
    outputs = np.array([3e38, -3e38, 0.0, 0.0, 0.0, 0.0], np.float32)
    assert {sample(outputs, seed_streams([seed])[0]) for seed in range(20)} == {0}


def test_a_share_of_the_actions_is_random():
    outputs = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 9.0], np.float32)
    stream = seed_streams([6])[0]
    counts = np.bincount([explore(outputs, 0.3, stream) for _ in range(20_000)], minlength=6) / 20_000
    np.testing.assert_allclose(counts, [0.05, 0.75, 0.05, 0.05, 0.05, 0.05], atol=0.012)


def test_values_of_policies_by_hand():
    values = np.array([1.0, 5.0, 5.0, 0.0, -2.0, 3.0], np.float32)
    assert greedy(values) == 1
    assert expected(values, 0.0) == 5.0
    assert expected(values, 0.3) == pytest.approx(0.7 * 5.0 + 0.3 * 12.0 / 6)


@pytest.mark.parametrize(("observation", "inputs"), [("memory", 16), ("onehot", 22)])
def test_a_greedy_policy_takes_the_networks_best_action_for_what_the_environment_shows(observation, inputs):
    model = network(inputs)
    policy = NetworkPolicy(FlatNetwork(model), observation, "greedy", SHORT)
    env, raw = PlumeEnv(SHORT, observation), PlumeEnv(SHORT, "raw")
    for seed in range(3):
        policy.begin([seed], SHORT)
        seen, (sensed, _) = env.reset(seed=seed)[0], raw.reset(seed=seed)
        action, over = np.zeros(1, np.int64), False
        while not over:
            policy.act(sensed[None], np.arange(1), action)
            outputs = model(torch.from_numpy(seen[None]))[0, :6].detach()
            assert outputs[action[0]] >= outputs.max() - 1e-5
            seen, _, terminated, truncated, _ = env.step(action[0])
            sensed, *_ = raw.step(action[0])
            over = terminated or truncated


@pytest.mark.parametrize("acting", ["greedy", "sampled"])
def test_what_happens_in_an_episode_does_not_depend_on_the_others(acting):
    policy = NetworkPolicy(FlatNetwork(network(16)), "memory", acting, SHORT)
    together = evaluate(policy, SHORT, 30, 100, paths=30)
    for k in (0, 7, 29):
        alone = evaluate(policy, SHORT, 1, 100 + k, paths=1)
        assert alone.steps[0] == together.steps[k]
        np.testing.assert_array_equal(next(iter(alone.paths.values())), together.paths[k])


def test_features_can_be_left_out():
    keep = kept_inputs("memory", ("side", "place of whiff"))
    assert {NAMES[i] for i in np.flatnonzero(keep == 0.0)} == {"side", "whiff_across", "whiff_upwind"}
    model = network(16)
    with torch.no_grad():
        blind = network(16)
        blind.layers[0].linear.weight[:, keep == 0.0] = 0.0
    one = evaluate(
        NetworkPolicy(FlatNetwork(model), "memory", "greedy", SHORT, ("side", "place of whiff")), SHORT, 20, paths=20
    )
    other = evaluate(NetworkPolicy(FlatNetwork(blind), "memory", "greedy", SHORT), SHORT, 20, paths=20)
    for k in range(20):
        np.testing.assert_array_equal(one.paths[k], other.paths[k])


@pytest.mark.parametrize(
    ("observation", "group", "message"),
    [
        ("memory", "colour", "without must be groups of features .difference, whiff.*, got 'colour'$"),
        ("onehot", "side", "without needs observation memory, got 'side' with onehot$"),
    ],
)
def test_unknown_features_are_refused(observation, group, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        kept_inputs(observation, (group,))


def test_tokens_are_those_of_the_world_that_it_was_trained_in():
    """`paper` and `reference` count octants in opposite directions; a network knows only those that it has learnt."""
    policy = NetworkPolicy(FlatNetwork(network(22)), "onehot", "greedy", SHORT)
    raw = np.random.default_rng(0).uniform(-3, 3, (200, 5)).astype(np.float32)
    raw[:, :3] = np.abs(raw[:, :3]) * 0.01 + [0, 0, 1]
    actions = []
    for world in (SHORT, Scenario.of({"preset": "paper", "max_steps": 60})):
        policy.begin(range(200), world)
        actions.append(np.zeros(200, np.int64))
        policy.act(raw, np.arange(200), actions[-1])
    assert len(set(actions[0].tolist())) > 1
    np.testing.assert_array_equal(*actions)


def test_streams_are_drawn_again_in_turn_and_are_not_the_worlds():
    policy, world = NetworkPolicy(FlatNetwork(network(16)), "memory", "sampled", SHORT), World(4, SHORT)
    policy.begin(range(4), SHORT)
    world.seed(range(4))
    assert not (policy._streams == world.streams).all(axis=1).any()
    np.testing.assert_array_equal(policy._streams, seed_streams([(seed, 1) for seed in range(4)]))
    policy.redraw([(7, 0), (7, 1)])
    np.testing.assert_array_equal(policy._streams, seed_streams([(7, 0), (7, 1), (7, 0), (7, 1)]))


def test_only_the_lanes_that_are_asked_for_act():
    policy = NetworkPolicy(FlatNetwork(network(16)), "memory", "sampled", SHORT)
    policy.begin(range(6), SHORT)
    actions = np.full(6, -1)
    policy.act(np.zeros((6, 5), np.float32), np.array([1, 4]), actions)
    assert ((actions >= 0) == [False, True, False, False, True, False]).all()
