"""The fused update against torch's autograd and Adam, and the learner against a plain one in torch."""

import copy

import numpy as np
import pytest
import torch
from numba import njit

import gpf
from gpf.navigation.online import (
    FlatNetwork,
    OnlineLearner,
    Update,
    adam,
    backward,
    expected,
    forward,
    greedy,
)
from gpf.network import surgery
from gpf.plume.rng import next_bits, seed_streams, uniform
from gpf.plume.tokens import onehot
from gpf.plume.world import World

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@njit
def fused_step(layers, values, first, second, keep, gradient, activations, deltas, tokens, action, target, rate, clip):
    forward(layers, values, tokens, activations)
    error = np.float32(activations[len(layers), action] - target)
    backward(layers, values, activations, deltas, action, np.float32(2.0) * error)
    adam(layers, values, first, second, keep, tokens, activations, deltas, gradient, rate, 0.9, 0.999, 1e-8, clip)


def attached(depth, masked, frozen):
    """A network, the same twice over, with a third of the weights pruned and a layer frozen if asked for."""
    model = gpf.MLP(22, 16, 6, depth)
    nets = []
    for copied in (model, copy.deepcopy(model)):
        net = gpf.attach(copied, torch.optim.Adam(copied.parameters(), lr=1e-3))
        if masked:
            for layer in net.layers:
                weight = layer.weights[0]
                surgery.prune(layer, weight, weight.parameter.abs() < weight.parameter.abs().quantile(0.33), {})
        if frozen:
            net.freeze(depth - 1)
        nets.append(net)
    return nets


def flat(net):
    network = FlatNetwork(net.model, net.optimizer)
    network.mask(
        {i: ly.weights[0].pruned.numpy() for i, ly in enumerate(net.layers) if ly.weights[0].pruned is not None}
    )
    return network


def torch_step(net, tokens, action, target, clip):
    vector = np.zeros((1, 22), np.float32)
    onehot(tokens[None], vector)
    loss = (net.model(torch.from_numpy(vector))[0, action] - target) ** 2
    net.optimizer.zero_grad()
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(net.model.parameters(), clip)
    net.optimizer.step()


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize(("masked", "frozen", "clip"), [(False, False, 0.0), (True, False, 1.0), (True, True, 1.0)])
def test_two_hundred_updates_equal_torchs_autograd_and_adam(depth, masked, frozen, clip):
    fused, plain = attached(depth, masked, frozen)
    network = flat(fused)
    rng = np.random.default_rng(0)
    for _ in range(200):
        tokens = rng.integers(0, (7, 7, 8))
        action, target = int(rng.integers(6)), float(rng.normal(0, 10))
        fused_step(
            network.layers, network.values, network.first, network.second, network.keep, network.gradient,
            network.scratch[0], network.scratch[1], tokens, action, target, 1e-3, clip,
        )  # fmt: skip
        torch_step(plain, tokens, action, target, clip)
    network.write_steps()
    for (name, mine), theirs in zip(fused.model.named_parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-5, msg=name)
        for key, value in plain.optimizer.state.get(theirs, {}).items():
            torch.testing.assert_close(fused.optimizer.state[mine][key], value, rtol=1e-4, atol=1e-5)
    if masked:
        for layer in fused.layers:
            assert not layer.weights[0].parameter.detach()[layer.weights[0].pruned].any()
    if frozen:
        assert fused.frozen == (depth - 1,)


def test_torch_and_numba_share_memory_and_take_turns():
    """Updates by torch after fused ones go on from where those left off, moments and step counts included."""
    fused, plain = attached(2, True, False)
    network = flat(fused)
    rng = np.random.default_rng(1)
    for turn in range(40):
        tokens, action, target = rng.integers(0, (7, 7, 8)), int(rng.integers(6)), float(rng.normal())
        if turn % 10 < 5:
            fused_step(
                network.layers, network.values, network.first, network.second, network.keep, network.gradient,
                network.scratch[0], network.scratch[1], tokens, action, target, 1e-3, 1.0,
            )  # fmt: skip
            network.write_steps()
        else:
            torch_step(fused, tokens, action, target, 1.0)
            network = flat(fused)
        torch_step(plain, tokens, action, target, 1.0)
    for mine, theirs in zip(fused.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def test_values_of_policies_by_hand():
    values = np.array([1.0, 5.0, 5.0, 0.0, -2.0, 3.0], np.float32)
    assert greedy(values) == 1
    assert expected(values, 0.0) == 5.0
    assert expected(values, 0.3) == pytest.approx(0.7 * 5.0 + 0.3 * 12.0 / 6)


def torch_episode(net, world, chance, exploration, update):
    """The same protocol with torch and the world's public interface."""
    world.begin()
    total = 0.0
    while world.lanes[0]["running"]:
        now = world.tokens[0].copy()
        vectors = np.zeros((1, 22), np.float32)
        onehot(now[None], vectors)
        if uniform(chance) < exploration:
            action = int(next_bits(chance) >> np.uint64(33)) % 6
        else:
            action = int(net.model(torch.from_numpy(vectors))[0].argmax())
        world.step(np.array([action]))
        onehot(world.tokens, vectors)
        with torch.no_grad():
            following = net.model(torch.from_numpy(vectors))[0]
        best = float(following.max())
        mean = best if update.q_learning else (1 - exploration) * best + exploration * float(following.mean())
        target = world.rewards[0] + (0.0 if world.terminations[0] else update.discount * mean)
        torch_step(net, now, action, float(target), update.clip)
        total += world.rewards[0]
    return total


@pytest.mark.parametrize("q_learning", [False, True])
@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_an_episode_equals_the_same_protocol_in_torch(q_learning, preset):
    fused, plain = attached(2, False, False)
    update = Update(q_learning=q_learning)
    scenario = {"preset": preset, "max_steps": 150}
    learner = OnlineLearner(fused.model, fused.optimizer, World(1, scenario), update, seed=5)
    world, chance = World(1, scenario), seed_streams([(5, 2)])[0]
    world.seed([5])
    for exploration in (1.0, 0.9):
        total, success, steps = learner.episode(exploration)
        assert torch_episode(plain, world, chance, exploration, update) == pytest.approx(total, abs=1e-6)
        assert (steps, success) == (world.lanes[0]["step"], world.successes[0])
    for mine, theirs in zip(fused.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-3, atol=1e-4)


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    def run():
        torch.manual_seed(3)
        model = gpf.MLP(22, 16, 6)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        learner = OnlineLearner(model, optimizer, World(1, "reference"), Update(), seed=7)
        totals = [learner.episode(0.5) for _ in range(5)]
        return totals, [p.detach().clone() for p in model.parameters()]

    (first, mine), (second, theirs) = run(), run()
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_other_networks_and_optimizers_are_refused_in_one_line():
    model = gpf.MLP(22, 16, 6, layer_norm=True)
    with pytest.raises(ValueError, match="^learner: 'online' trains plain layers"):
        FlatNetwork(model, torch.optim.Adam(model.parameters()))
    model = gpf.MLP(22, 16, 6)
    for optimizer in (torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters(), amsgrad=True)):
        with pytest.raises(ValueError, match="^optimizer: "):
            FlatNetwork(model, optimizer)
    with pytest.raises(ValueError, match="^world: 2 lanes; accepted by the online learner: 1$"):
        OnlineLearner(model, torch.optim.Adam(model.parameters()), World(2), Update(), seed=0)
