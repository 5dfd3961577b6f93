"""stable-baselines3 with policies that grow, prune and freeze."""

import copy
import csv
import dataclasses
import sys

import gymnasium
import numpy as np
import pytest
import torch
from helpers import assert_consistent, assert_same, snapshot
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.logger import configure
from torch import nn

import gpf
from gpf.network.integrations.sb3 import GrowPruneFreezeCallback, growing_policy, put_in_blocks

BUSY = gpf.Rules(
    grow_patience=1, grow_threshold=1e6, max_depth=3, mode="max", prune_patience=1, belief_threshold=2.0,
    saliency_threshold=0.02, freeze_patience=4, freeze_delta=9.0,
)  # fmt: skip
"""It grows, prunes and freezes within a few epochs."""
OPTIONS = {
    PPO: {"n_steps": 64, "batch_size": 32, "n_epochs": 2},
    A2C: {"n_steps": 64},
    DQN: {"learning_starts": 50, "batch_size": 16, "target_update_interval": 40, "train_freq": 4, "tau": 0.5},
}
EVERY = {PPO: 0, A2C: 0, DQN: 60}
KINDS = pytest.mark.parametrize("kind", [PPO, A2C, DQN], ids=lambda kind: kind.__name__)


def model_of(kind, policy_kwargs=None, **options):
    policy_kwargs = growing_policy(16) if policy_kwargs is None else policy_kwargs
    options = {**OPTIONS.get(kind, {}), **options}
    return kind(
        "MlpPolicy", gymnasium.make("CartPole-v1"), policy_kwargs=policy_kwargs, seed=1, device="cpu", **options
    )


def learned(kind, rules=BUSY, steps=700, **options):
    model, callback = model_of(kind), GrowPruneFreezeCallback(rules=rules, every_steps=EVERY[kind], **options)
    return model.learn(steps, callback=callback), callback


def observations(count=50):
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def outputs(model, seen=None):
    """Q-values, or action probabilities and values."""
    seen = torch.as_tensor(observations() if seen is None else seen)
    with torch.no_grad():
        if isinstance(model, DQN):
            return model.q_net(seen), model.q_net_target(seen)
        return model.policy.get_distribution(seen).distribution.logits, model.policy.predict_values(seen)


def same_outputs(one, other, **tolerance):
    return all(torch.allclose(a, b, **tolerance) for a, b in zip(outputs(one), outputs(other), strict=True))


@KINDS
def test_a_policy_grows_prunes_and_freezes(kind):
    model, callback = learned(kind)
    assert {event.kind for event in callback.net.events} == {"grown", "pruned", "frozen"}
    assert callback.net.depth == 3
    stack = model.policy.q_net.q_net.hidden if kind is DQN else model.policy.mlp_extractor.policy_net
    assert len(stack) == 3
    assert_consistent(callback.net)


def test_the_value_network_can_grow_as_well():
    model, callback = learned(PPO, stack="mlp_extractor.value_net")
    assert len(model.policy.mlp_extractor.value_net) == 3
    assert len(model.policy.mlp_extractor.policy_net) == 1
    assert_consistent(callback.net)


@KINDS
def test_rules_that_do_nothing_change_nothing(kind):
    watched, _ = learned(
        kind, gpf.Rules(mode="max", grow_patience=None, prune_patience=None, freeze_patience=None), 300
    )
    alone = model_of(kind).learn(300)
    parameters = [list(model.policy.parameters()) for model in (watched, alone)]
    assert all(torch.equal(a, b) for a, b in zip(*parameters, strict=True))


@pytest.mark.parametrize("depth", [1, 2])
@KINDS
def test_layers_become_blocks_and_nothing_else_changes(kind, depth):
    model = model_of(kind, growing_policy(16, depth))
    before, parameters = outputs(model), list(model.policy.parameters())
    put_in_blocks(model.policy)
    assert all(a is b for a, b in zip(model.policy.parameters(), parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, outputs(model), strict=True))
    state = model.policy.state_dict()
    put_in_blocks(model.policy)  # twice is as good as once
    assert model.policy.state_dict().keys() == state.keys()


@KINDS
def test_growth_changes_neither_policy_nor_target(kind):
    model, callback = learned(kind, gpf.Rules(mode="max", grow_patience=None, freeze_patience=None), 200)
    before = outputs(model)
    callback.net.grow()
    assert all(torch.equal(a, b) for a, b in zip(before, outputs(model), strict=True))


def test_the_target_network_follows_growth_and_undoing():
    rules = gpf.Rules(mode="max", grow_patience=None, freeze_patience=None, grow_undoable=True)
    model, callback = learned(DQN, rules, 200)
    shapes = [p.shape for p in model.q_net_target.parameters()]
    callback.net.grow()
    online, target = list(model.q_net.parameters()), list(model.q_net_target.parameters())
    assert len(online) == len(target) == len(shapes) + 2
    assert not {id(p) for p in online} & {id(p) for p in target}
    assert not {id(p) for p in target} & {
        id(p) for group in model.policy.optimizer.param_groups for p in group["params"]
    }
    model.learn(200, callback=callback, reset_num_timesteps=False)
    model._n_calls, model.tau = model.target_update_interval - 1, 1.0
    model._on_step()  # a hard update: the target is the network, layer for layer
    assert all(torch.equal(a, b) for a, b in zip(online, target, strict=True))
    callback.net.undo()
    assert [p.shape for p in model.q_net_target.parameters()] == shapes


@KINDS
def test_a_saved_model_is_loaded_with_the_same_outputs(kind, tmp_path):
    model, callback = learned(kind)
    assert callback.net.frozen
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model", device="cpu")
    assert same_outputs(loaded, model, atol=0.0, rtol=0.0)
    actions = [one.predict(observations(), deterministic=True)[0] for one in (model, loaded)]
    assert np.array_equal(*actions)


@KINDS
def test_learning_continues_from_a_saved_model(kind, tmp_path):
    """Masks, frozen layers, beliefs, counters and moments are what they were."""
    model, callback = learned(kind)
    model.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"), device="cpu")
    again = GrowPruneFreezeCallback(rules=BUSY, every_steps=10**6)
    again.init_callback(loaded)
    again.on_training_start({}, {})
    assert_same(snapshot(again.net), snapshot(callback.net))
    assert again.net.events == callback.net.events
    assert again.net.epoch == callback.net.epoch
    loaded.learn(200, callback=again, reset_num_timesteps=False)
    assert_consistent(again.net)


def test_moments_of_frozen_layers_are_saved_for_whoever_loads_without_a_callback(tmp_path):
    model, callback = learned(PPO)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", device="cpu")
    frozen = callback.net.frozen[0]
    kept = callback.net.stored[frozen]["0.weight"][1]["exp_avg"]
    weight = loaded.policy.mlp_extractor.policy_net[frozen][0].weight
    assert torch.equal(loaded.policy.optimizer.state[weight]["exp_avg"], kept)


def test_parameters_of_a_grown_model_can_be_set_in_place():
    """Moments find their parameters, though new ones joined the optimizer last."""
    model, callback = learned(PPO, dataclasses.replace(BUSY, prune_patience=None, freeze_patience=None))
    before = snapshot(callback.net)
    model.set_parameters(copy.deepcopy(model.get_parameters()))
    assert callback.net.depth == 3
    assert_same(snapshot(callback.net), before)


def test_a_model_that_was_loaded_can_be_saved_again(tmp_path):
    model, callback = learned(PPO)
    model.save(tmp_path / "one")
    PPO.load(tmp_path / "one", device="cpu").save(tmp_path / "two")
    loaded = PPO.load(tmp_path / "two", device="cpu")
    assert same_outputs(loaded, model, atol=0.0, rtol=0.0)
    assert len(loaded.gpf.saved["manifest"]["layers"]) == callback.net.depth


def test_weights_that_changed_after_loading_stay_changed(tmp_path):
    model, _ = learned(PPO)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=gymnasium.make("CartPole-v1"), device="cpu")
    with torch.no_grad():
        loaded.policy.action_net.bias.fill_(3.0)
    again = GrowPruneFreezeCallback(rules=BUSY)
    again.init_callback(loaded)
    again.on_training_start({}, {})
    assert (loaded.policy.action_net.bias == 3.0).all()


def test_checkpoints_of_stable_baselines_work_too(tmp_path):
    model = model_of(PPO)
    saving = CheckpointCallback(150, str(tmp_path))
    model.learn(320, callback=[GrowPruneFreezeCallback(rules=BUSY), saving])
    depths = [
        len(PPO.load(tmp_path / f"rl_model_{steps}_steps", device="cpu").policy.mlp_extractor.policy_net)
        for steps in (150, 300)
    ]
    assert depths == [2, 3]


def test_the_metric_is_the_mean_return():
    model, callback = learned(PPO, gpf.Rules(mode="max", grow_patience=20, prune_patience=None, freeze_patience=None))
    returns = [episode["r"] for episode in model.ep_info_buffer]
    values = [*callback.net.plateau.window, callback.net.plateau.before]
    assert all(min(returns) <= value <= max(returns) for value in values if value is not None)
    assert callback.net.epoch == 10  # 11 rollouts, and the network changes between two of them
    model.ep_info_buffer.clear()
    model.ep_info_buffer.extend([{"r": 2.0}, {"r": 5.0}])
    callback._epoch_began -= 1
    callback.on_rollout_start()
    assert callback.net.plateau.window[-1] == 3.5


def test_an_epoch_lasts_as_many_steps_as_asked_for():
    _, callback = learned(DQN, gpf.Rules(mode="max", grow_patience=None), 601)
    assert callback.net.epoch == 10


def test_depth_is_recorded_and_events_are_printed(capsys, tmp_path):
    model, callback = model_of(PPO), GrowPruneFreezeCallback(rules=BUSY, verbose=1)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(320, callback=callback)
    model.logger.close()
    assert capsys.readouterr().out.splitlines() == list(map(str, callback.net.events))
    with (tmp_path / "progress.csv").open() as file:
        assert [row["gpf/depth"] for row in csv.DictReader(file)] == ["", "1", "2", "3", "3"]


def test_a_callback_is_used_for_several_calls_of_learn():
    model, callback = learned(PPO, steps=200)
    net = callback.net
    model.learn(200, callback=callback, reset_num_timesteps=False)
    assert callback.net is net


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="rules.mode must be 'max', because the metric is a mean return, got 'min'"):
        GrowPruneFreezeCallback(rules=gpf.Rules())
    with pytest.raises(ValueError, match="stack must be q_net.q_net in DQN, got 'mlp_extractor.policy_net'"):
        learned(DQN, stack="mlp_extractor.policy_net")
    with pytest.raises(ValueError, match="stack must be mlp_extractor.policy_net or .* in PPO, got 'q_net.q_net'"):
        learned(PPO, stack="q_net.q_net")
    with pytest.raises(ValueError, match="activation_fn must be torch.nn.ReLU for grow_init='identity', got Tanh"):
        model_of(PPO, {}).learn(64, callback=GrowPruneFreezeCallback())
    with pytest.raises(ValueError, match="Sequential of 0 modules"):
        model_of(PPO, {"net_arch": []}).learn(64, callback=GrowPruneFreezeCallback())
    with pytest.raises(ValueError, match="model must be PPO, A2C or DQN, with a policy of theirs, got SAC"):
        SAC("MlpPolicy", "Pendulum-v1", device="cpu").learn(64, callback=GrowPruneFreezeCallback())


def test_another_activation_grows_with_another_start():
    model = model_of(PPO, {"net_arch": [16]})
    callback = GrowPruneFreezeCallback(
        rules=gpf.Rules(mode="max", grow_patience=1, grow_threshold=1e6, grow_init="built")
    )
    model.learn(400, callback=callback)
    assert callback.net.depth > 1
    assert all(isinstance(block[-1], nn.Tanh) for block in model.policy.mlp_extractor.policy_net)


def test_without_stable_baselines_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "gpf.network.integrations.sb3")
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.base_class", None)
    with pytest.raises(ImportError, match="pip install stable-baselines3"):
        import gpf.network.integrations.sb3  # noqa: F401
