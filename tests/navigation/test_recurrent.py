"""Learned memory: the compiled step against torch, sequences with resets, and a network that changes."""

import copy

import numpy as np
import pytest
import torch

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import make_learner, make_network
from gpf.navigation.config import Config
from gpf.navigation.evaluate import evaluate
from gpf.navigation.recurrent import RecurrentLearner
from gpf.navigation.recurrent_flat import FlatRecurrent, advance
from gpf.navigation.recurrent_network import RecurrentNetwork
from gpf.plume import Scenario

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SHORT = Scenario.of({"preset": "reference", "max_steps": 25})
CELLS = ("mingru", "gru")


def network(cell="mingru", depth=2, width=8, inputs=22, seed=0):
    torch.manual_seed(seed)
    model = RecurrentNetwork(inputs, width, 7, depth, cell)
    for parameter in model.parameters():  # no zeros that could hide a term
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def config(**changes):
    small = {
        "lanes": 8,
        "horizon": 16,
        "minibatch": 48,
        "width": 8,
        "depth": 1,
        "steps": 2048,
        "seed": 901,
        "critic": "shared",
    }
    return Config.of(learner="recurrent", **{**small, "gpf": False, **changes})


def learner(**changes):
    chosen = config(**changes)
    made = make_network(chosen)
    for parameter in made.model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    one = make_learner(chosen, SHORT, made, threads=1)
    assert isinstance(one, RecurrentLearner)
    return one, made


def compiled(flat, inputs, starts, state):
    """The outputs for sequences, one lane and step after the other."""
    outputs = np.zeros((*inputs.shape[:2], 7), np.float32)
    activations, state = flat.activations()[0], state.copy()
    for t in range(len(inputs)):
        state[starts[t]] = 0.0
        for i in range(inputs.shape[1]):
            activations[0, : inputs.shape[2]] = inputs[t, i]
            advance(flat.layers, flat.blocks, flat.values, activations, state[i], outputs[t, i])
    return outputs


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("depth", [1, 3])
def test_the_compiled_step_says_what_torch_says_over_a_sequence_with_resets(cell, depth):
    model = network(cell, depth)
    inputs, starts, state = torch.randn(12, 5, 22), torch.rand(12, 5) < 0.2, torch.randn(5, sum(model.units))
    with torch.no_grad():
        wanted = model(inputs, starts, state)
    made = compiled(FlatRecurrent(model), inputs.numpy(), starts.numpy(), state.numpy())
    np.testing.assert_allclose(made, wanted, atol=2e-5)


def test_torch_and_the_compiled_step_share_their_numbers():
    model = network()
    flat, inputs = FlatRecurrent(model), np.ones((1, 1, 22), np.float32)
    blank = np.zeros((1, flat.state_size), np.float32), np.zeros((1, 1), bool)
    before = compiled(flat, inputs, blank[1], blank[0])
    with torch.no_grad():
        model.layers[1].candidate.weight[3] += 1.0
    after = compiled(flat, inputs, blank[1], blank[0])
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, model(torch.ones(1, 1, 22)).detach(), atol=2e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_single_observations_are_first_steps(cell):
    model = network(cell)
    inputs = torch.randn(6, 22)
    torch.testing.assert_close(model(inputs), model(inputs[None])[0])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("observation", ["onehot", "raw"])
def test_what_acted_is_what_torch_makes_of_the_stored_states(cell, observation):
    """Rollout after rollout, with episodes that end in them: outputs from the state before the first step on."""
    one, _ = learner(cell=cell, observation=observation)
    ended = 0
    for _ in range(4):
        one.rollouts.collect(one.network)
        made = one._sequences().outputs(one.model, torch.arange(8)).detach()
        np.testing.assert_allclose(made.view(16, 8, 7), one.rollouts.outputs[:-1], atol=2e-5)
        one._keep_last_steps()
        ended += one.rollouts.ends.sum()
    assert ended >= 16


def test_an_episode_that_ran_out_of_time_is_worth_what_its_last_state_says():
    """The value of the last observation is of the memory of the whole episode, not of an empty one."""
    one, _ = learner(horizon=40)
    r = one.rollouts
    r.collect(one.network)
    t = int(np.flatnonzero(r.bootstraps[:, 0])[0])
    with torch.no_grad():  # the last observation was overwritten by the first of the next episode
        episode = one.model(torch.from_numpy(r.inputs[: t + 1, :1]))
        fresh = one.model(torch.from_numpy(r.inputs[t + 1, :1]))
    assert t == 24
    np.testing.assert_allclose(episode[t, 0], r.outputs[t, 0], atol=2e-5)
    np.testing.assert_allclose(fresh[0], r.outputs[t + 1, 0], atol=2e-5)
    assert not r.states[t + 1, 0].any()
    assert r.states[t, 0].all()
    again = r.states[t, :1].copy()
    compiled_state = again.copy()
    out = np.zeros(7, np.float32)
    activations = one.network.activations()[0]
    activations[0, :22] = r.inputs[t, 0]
    args = one.network.layers, one.network.blocks, one.network.values, activations
    advance(*args, compiled_state[0], out)  # the step at t
    seen = [
        np.eye(22, dtype=np.float32)[[i, 7 + j, 14 + k]].sum(0) for i in range(7) for j in range(7) for k in range(8)
    ]
    possible = []
    for last in seen:
        state = compiled_state.copy()
        activations[0, :22] = last
        advance(*args, state[0], out)
        possible.append(out.copy())
    assert min(np.abs(r.final[t, 0] - row).max() for row in possible) < 1e-5


def test_gradients_through_a_whole_episode_are_those_of_truncated_ones_that_need_no_more():
    """Where every sequence begins with an episode, truncation loses nothing: the gradient is that of whole episodes."""
    one, _ = learner(horizon=26)
    for _ in range(2):
        one.rollouts.collect(one.network)
        one._keep_last_steps()
    model, plain = one.model, copy.deepcopy(one.model)
    inputs = torch.from_numpy(one.rollouts.inputs[:-1])
    starts = torch.zeros(26, 8, dtype=torch.bool)
    starts[0] = starts[13] = True
    model(inputs, starts).square().sum().backward()
    for part in (inputs[:13], inputs[13:]):
        plain(part).square().sum().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_the_burn_in_is_the_end_of_the_rollout_before():
    """With weights that have not changed, it leads to the states that were stored, and so to the same outputs."""
    for steps in (5, 16):
        one, _ = learner(burn_in=steps)
        last = None
        for _ in range(4):
            one.rollouts.collect(one.network)
            sequences = one._sequences()
            assert sequences.inputs.shape == (16 + steps, 8, 22)
            made = sequences.outputs(one.model, torch.arange(8)).detach()
            np.testing.assert_allclose(made.view(16, 8, 7), one.rollouts.outputs[:-1], atol=2e-5)
            if last is not None:
                np.testing.assert_array_equal(sequences.inputs[:steps], last[16 - steps : 16])
            last = one.rollouts.inputs.copy()
            one._keep_last_steps()


def test_after_a_burn_in_states_are_nearer_to_those_of_the_weights_that_learn():
    """Weights have moved since states were stored; what they would have remembered is that of whole episodes."""
    off = {}
    for steps in (0, 12):
        one, _ = learner(burn_in=steps)
        one.rollouts.collect(one.network)
        inputs, starts = one.rollouts.inputs[:-1].copy(), one.rollouts.ends.copy()
        one._keep_last_steps()
        one.rollouts.collect(one.network)
        torch.manual_seed(5)
        with torch.no_grad():
            for parameter in one.model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
            inputs = torch.from_numpy(np.concatenate([inputs, one.rollouts.inputs[:-1]]))
            starts = torch.from_numpy(np.concatenate([one.starts[:1] & False, starts, one.rollouts.ends[:-1]]))
            wanted = one.model(inputs, starts)[16:]
            made = one._sequences().outputs(one.model, torch.arange(8)).view(16, 8, 7)
        off[steps] = float((made - wanted)[0].abs().mean())
    assert off[12] < 0.7 * off[0]


def test_the_same_seed_gives_the_same_run_and_a_run_goes_on_where_it_was():
    runs = [learner(burn_in=4, critic="privileged")[0] for _ in range(2)]
    for one in runs:
        torch.manual_seed(9)
        for k in range(3):
            one.epoch(k / 6)
    saved = {name: array.copy() for name, array in runs[0].state().items()}
    third, net = learner(burn_in=4, critic="privileged")
    third.model.load_state_dict(runs[0].model.state_dict())
    net.optimizer.load_state_dict(copy.deepcopy(runs[0].optimizer.state_dict()))
    third.restore(saved)
    random = torch.get_rng_state()
    for one in (*runs, third):
        torch.set_rng_state(random)
        for k in range(3, 6):
            one.epoch(k / 6)
    values = [one.network.values for one in (*runs, third)]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])


@pytest.mark.parametrize("cell", CELLS)
def test_a_grown_block_changes_no_output_and_remembers_nothing_yet(cell):
    one, net = learner(cell=cell, gpf=True)
    for _ in range(2):
        one.rollouts.collect(one.network)
        one._keep_last_steps()
    old, kept = copy.deepcopy(one.model), one.rollouts.states.copy()
    net.grow("test")
    one.rebind(net)
    assert one.network.state_size == 16
    np.testing.assert_array_equal(one.rollouts.states[..., :8], kept)
    assert not one.rollouts.states[..., 8:].any()
    inputs, starts = torch.randn(9, 4, 22), torch.rand(9, 4) < 0.2
    with torch.no_grad():
        torch.testing.assert_close(one.model(inputs, starts), old(inputs, starts))
    before = one.model.layers[1].out.weight.clone()
    one.epoch(0.5)
    assert not torch.equal(one.model.layers[1].out.weight, before)  # and it learns
    assert one.rollouts.states[-2, :, 8:].any()


def test_units_that_are_removed_take_their_memory_with_them_and_no_other():
    """Three units that nothing listens to: with what is left of the states, the network says what it would have."""
    rules = {"granularity": "unit", "remove_units": "true", "prune_to": "0.5", "prune_patience": "none"}
    one, net = learner(gpf=True, rules={**rules, "grow_patience": "none", "max_depth": 3}, depth=2)
    one.rollouts.collect(one.network)
    with torch.no_grad():
        net.model.layers[0].out.weight[:, [1, 4, 6]] = 0.0
    old, states = copy.deepcopy(one.model), torch.from_numpy(one.rollouts.states[5].copy())
    net.prune("test", 5 / 8)
    one.rebind(net)
    assert one.network.blocks["units"].tolist() == [5, 8]
    inputs = torch.randn(9, 8, 22)
    with torch.no_grad():
        wanted, made = old(inputs, None, states), one.model(inputs, None, torch.from_numpy(one.rollouts.states[5]))
    torch.testing.assert_close(made, wanted)
    one.epoch(0.5)
    assert one.rollouts.states.shape[2] == 13


def test_pruned_and_frozen_blocks_stay_as_they_are():
    one, net = learner(gpf=True, depth=1)
    net.grow("test")
    one.rebind(net)
    net.prune("test", 0.5)
    net.freeze(0)
    net.thaw(0)
    one.rebind(net)
    one.epoch(0.1)
    masks = [(weight.parameter, weight.pruned) for weight in net.layers[0].weights if weight.pruned is not None]
    assert sum(int(pruned.sum()) for _, pruned in masks) == 96
    assert not any(bool(parameter[pruned].any()) for parameter, pruned in masks)
    net.freeze(0)
    one.rebind(net)
    frozen, learning = ([p.clone() for p in block.parameters()] for block in net.model.layers)
    for k in range(3):
        one.epoch(k / 3)
    blocks = net.model.layers
    assert all(torch.equal(p, was) for p, was in zip(blocks[0].parameters(), frozen, strict=True))
    assert not any(torch.equal(p, was) for p, was in zip(blocks[1].parameters(), learning, strict=True))


@pytest.mark.parametrize("cell", CELLS)
def test_an_episode_goes_as_it_would_alone(cell):
    policy = NetworkPolicy(FlatRecurrent(network(cell)), "onehot", "sampled", SHORT)
    together = evaluate(policy, SHORT, 12, 500, threads=1, paths=12)
    for seed in (500, 507, 511):
        alone = evaluate(policy, SHORT, 1, seed, threads=1, paths=1)
        np.testing.assert_array_equal(alone.paths[0], together.paths[seed - 500])


def test_forgotten_lanes_remember_nothing():
    policy = NetworkPolicy(FlatRecurrent(network()), "onehot", "greedy", SHORT)
    policy.begin([1, 2, 3], SHORT)
    raw, actions = np.zeros((3, 8), np.float32), np.zeros(3, np.int64)
    policy.act(raw, np.arange(3), actions)
    first = policy.outputs.copy()
    policy.forget(np.array([False, True, False]))
    policy.act(raw, np.arange(3), actions)
    np.testing.assert_array_equal(policy.outputs[1], first[1])
    assert not np.allclose(policy.outputs[0], first[0])


def test_burn_in_beyond_the_horizon_is_refused():
    with pytest.raises(ValueError, match="burn_in must be at most horizon, 16, got 17"):
        config(burn_in=17)
