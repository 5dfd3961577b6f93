"""Agents made from a configuration, and read back from a run folder."""

import json

import numpy as np
import pytest
import torch

from gpf.navigation import Config, load
from gpf.navigation.agents import as_bytes, from_bytes, load_network, make_learner, make_model, make_network
from gpf.navigation.config import LEARNERS
from gpf.navigation.rollouts import Episodes
from gpf.network import CheckpointError, surgery
from gpf.plume import Scenario

pytestmark = pytest.mark.usefixtures("one_torch_thread")
WORLD = Scenario.of({"preset": "reference", "max_steps": 20})
SMALL = {"policy-gradient": {"lanes": 4, "horizon": 8}, "parallel": {"lanes": 4, "horizon": 8}, "online": {}}
SMALL["recurrent"] = SMALL["parallel"]


def small(learner, **changes):
    return Config.of(learner=learner, width=8, **{**SMALL[learner], **changes})


@pytest.mark.parametrize(
    ("learner", "observation", "inputs", "outputs"),
    [
        ("policy-gradient", "memory", 16, 7), ("policy-gradient", "onehot", 22, 6), ("parallel", "onehot", 22, 6),
        ("parallel", "memory", 16, 6), ("online", "onehot", 22, 6), ("online", "memory", 16, 6),
    ],
)  # fmt: skip
def test_a_network_has_an_output_for_each_action_and_for_a_value_that_it_judges_itself(
    learner, observation, inputs, outputs
):
    model = make_model(small(learner, observation=observation, depth=2, rules={"max_depth": 4}))
    first = model.layers[0]
    assert (first.linear.in_features, model.head.out_features, len(model.layers)) == (inputs, outputs, 2)
    assert any(isinstance(part, torch.nn.LayerNorm) for part in first.children()) == (learner == "parallel")


def test_a_network_has_the_optimizer_of_its_learner_and_always_the_same_weights():
    for learner in LEARNERS:
        first, second = make_network(small(learner, seed=3)), make_network(small(learner, seed=3))
        for mine, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
            assert torch.equal(mine, theirs)
        (group,) = first.optimizer.param_groups
        rate, eps = {
            "policy-gradient": (2e-3, 1e-5),
            "recurrent": (2e-3, 1e-5),
            "parallel": (1e-3, 1e-5),
            "online": (1e-3, 1e-8),
        }[learner]
        assert (group["lr"], group["eps"]) == (rate, eps)
        assert first.rules == small(learner).network_rules()


@pytest.mark.parametrize("learner", sorted(set(LEARNERS) - {"recurrent"}))  # which has no features to leave out
def test_a_learner_lives_in_the_world_with_its_reward_and_sees_what_it_is_left_with(learner):
    config = small(learner, observation="memory", without=("clock",), discount=0.9, reward="search")
    made = make_learner(config, WORLD, make_network(config), threads=1)
    episodes = made.epoch(0.0)
    world = made.world if learner == "online" else made.rollouts.world
    assert world.rows["reward_success"][0] == 10.0
    assert world.rows["shaping_discount"][0] == 0.9
    keep = made._seen if learner == "online" else made.rollouts.keep
    assert keep.sum() < 16
    assert config.learner.epoch_steps(episodes) == (episodes.steps.sum() if learner == "online" else 32)
    assert isinstance(episodes, Episodes)


def test_pruned_weights_stay_at_zero_from_the_first_step_on():
    config = small("online")
    net = make_network(config)
    layer = net.layers[0]
    weight = layer.weights[0]
    surgery.prune(layer, weight, weight.parameter.abs() < weight.parameter.abs().median())
    make_learner(config, WORLD, net).epoch(0.0)
    assert not weight.parameter.detach()[weight.pruned].any()
    assert weight.parameter.detach()[~weight.pruned].all()


def test_the_learners_of_two_seeds_meet_other_worlds():
    streams = []
    for seed in (0, 1):
        config = small("policy-gradient", seed=seed)
        streams.append(make_learner(config, WORLD, make_network(config)).rollouts.world.streams.copy())
    assert not np.array_equal(*streams)


@pytest.mark.parametrize(
    ("learner", "observation"),
    [
        *((name, seen) for name in LEARNERS for seen in ("memory", "onehot") if name != "recurrent"),
        ("recurrent", "onehot"),
        ("recurrent", "raw"),
    ],
)
def test_a_learner_goes_on_from_a_checkpoint_bit_for_bit(learner, observation, tmp_path):
    """With a critic and averages where there are some, and with the random numbers that are still to come."""
    config = small(learner, observation=observation, **({"exploration_decay": 0.7} if learner == "online" else {}))
    net = make_network(config)
    one = make_learner(config, WORLD, net, threads=1)
    for k in range(3):
        one.epoch(k / 6)
    about = {"learner": learner, "observation": observation}
    net.save(tmp_path / "checkpoint", extra={**about, **as_bytes(one.state())})

    def go_on(learner, net):
        learner.rebind(net)  # as after freezing a layer: weights are what they were, and so is their average
        returns = [learner.epoch(k / 6).returns for k in range(3, 6)]
        return np.concatenate(returns), learner.network.values.copy(), learner.state()

    returns, values, state = go_on(one, net)
    assert ("average" in state) == (one.average is not None)
    loaded = load_network(tmp_path / "checkpoint", config, restore_random=True)
    other = make_learner(config, WORLD, loaded, threads=1)
    before = other.state()
    other.restore(from_bytes({name: loaded.extra[name] for name in before}, before))
    its_returns, its_values, its_state = go_on(other, loaded)
    np.testing.assert_array_equal(its_returns, returns)
    np.testing.assert_array_equal(its_values, values)
    assert its_state.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(its_state[name], array)


def written(folder, config, about, average=None):
    """A run folder of a network that has not learned."""
    net = make_network(config)
    folder.mkdir()
    world = json.loads(WORLD.to_json())
    (folder / "config.json").write_text(json.dumps({"config": config.plain(), "world": world}))
    extra = dict(about) if average is None else {**about, "average": average}
    net.save(folder / "checkpoints" / "last", extra=extra)
    return net


def test_a_navigator_is_loaded_with_its_weights_or_their_average(tmp_path):
    config = small("policy-gradient")
    about = {"learner": "policy-gradient", "observation": "memory"}
    net = written(tmp_path / "plain", config, about)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    navigator = load(tmp_path / "plain")
    assert torch.equal(torch.get_rng_state(), before)  # nobody who loads one draws other numbers for it
    flat = np.concatenate([p.detach().numpy().ravel() for p in net.model.parameters()])
    np.testing.assert_array_equal(np.sort(navigator.policy.network.values), np.sort(flat))
    assert (navigator.config, navigator.scenario, navigator.policy.acting) == (config, WORLD, "sampled")
    assert load(tmp_path / "plain", acting="greedy").policy.acting == "greedy"
    average = torch.arange(len(flat), dtype=torch.float32)
    written(tmp_path / "averaged", config, about, average)
    np.testing.assert_array_equal(load(tmp_path / "averaged").policy.network.values, average)


def test_a_checkpoint_of_another_run_and_values_as_logits_are_refused(tmp_path):
    config = small("parallel")
    for name, about, message in [
        ("observation", {"learner": "parallel", "observation": "memory"}, "must have observation 'onehot', got 'mem"),
        ("learner", {"learner": "online", "observation": "onehot"}, "must have learner 'parallel', got 'online'"),
        ("nothing", {}, "must have observation 'onehot', got None"),
    ]:
        written(tmp_path / name, config, about)
        with pytest.raises(CheckpointError, match=f"^checkpoint .*last {message}"):
            load(tmp_path / name)
    with pytest.raises(ValueError, match="^acting must be greedy with learner parallel, got 'sampled'$"):
        load(tmp_path / "learner", acting="sampled")


def test_arrays_of_any_type_come_back_from_bytes():
    arrays = {
        "scalars": np.array([(1, 2.5)], [("a", np.int64), ("b", np.float32)]),
        "flag": np.array(True),
        "matrix": np.arange(6.0).reshape(2, 3).T,
    }
    back = from_bytes(as_bytes(arrays), {name: np.zeros_like(array) for name, array in arrays.items()})
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
