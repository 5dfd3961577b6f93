"""The fused update against torch's autograd and Adam, and the learner against a plain one in torch."""

import copy

import numpy as np
import pytest
import torch
from numba import njit

import gpf
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.online import OnlineLearner, Settings, adam, backward, forward_tokens, pruned_weights
from gpf.navigation.seeds import training_seeds
from gpf.network import surgery
from gpf.plume import Scenario
from gpf.plume.memory import Memory
from gpf.plume.rng import next_bits, seed_streams, uniform
from gpf.plume.tokens import onehot
from gpf.plume.world import World

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@njit
def _fused_step(
    layers, values, first, second, keep, gradient, activations, deltas, one_hot, tokens, inputs, action, target, clip
):
    activations[0, : len(inputs)] = inputs
    forward_tokens(layers, values, one_hot, tokens, activations)
    error = np.float32(activations[len(layers), action] - target)
    backward(layers, values, activations, deltas, action, np.float32(2.0) * error)
    adam(
        layers, values, first, second, keep, one_hot, tokens, activations, deltas, gradient,
        1e-3, 0.9, 0.999, 1e-8, clip,
    )  # fmt: skip


def fused_step(network, tokens, action, target, clip, inputs=None):
    """One update; of one-hot tokens or, if given, of other inputs."""
    n = network
    gradient, (activations, deltas) = np.zeros_like(n.values), n.activations(2)
    dense = np.zeros(0, np.float32) if inputs is None else inputs
    _fused_step(
        n.layers, n.values, n.first, n.second, n.keep, gradient, activations, deltas, inputs is None, tokens, dense,
        action, target, clip,
    )  # fmt: skip


def attached(depth, masked, frozen, inputs=22):
    """A network, the same twice over, with a third of the weights pruned and a layer frozen if asked for."""
    model = gpf.MLP(inputs, 16, 6, depth)
    nets = []
    for copied in (model, copy.deepcopy(model)):
        net = gpf.attach(copied, torch.optim.Adam(copied.parameters(), lr=1e-3))
        if masked:
            for layer in net.layers:
                weight = layer.weights[0]
                surgery.prune(layer, weight, weight.parameter.abs() < weight.parameter.abs().quantile(0.33))
        if frozen:
            net.freeze(depth - 1)
        nets.append(net)
    return nets


def flat(net):
    network = FlatNetwork(net.model, net.optimizer)
    network.mask(pruned_weights(net))
    return network


def torch_step(net, tokens, action, target, clip, inputs=None):
    vector = np.zeros((1, 22), np.float32)
    onehot(tokens[None], vector)
    vector = vector if inputs is None else inputs[None]
    loss = (net.model(torch.from_numpy(vector))[0, action] - target) ** 2
    net.optimizer.zero_grad()
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(net.model.parameters(), clip)
    net.optimizer.step()


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(("masked", "frozen", "clip"), [(False, False, 0.0), (True, False, 1.0), (True, True, 1.0)])
@pytest.mark.parametrize("dense", [False, True], ids=["onehot", "dense"])
def test_two_hundred_updates_equal_torchs_autograd_and_adam(depth, masked, frozen, clip, dense):
    fused, plain = attached(depth, masked, frozen)
    network = flat(fused)
    rng = np.random.default_rng(0)
    for _ in range(200):
        tokens = rng.integers(0, (7, 7, 8))
        action, target = int(rng.integers(6)), float(rng.normal(0, 10))
        inputs = rng.normal(size=22).astype(np.float32) if dense else None
        fused_step(network, tokens, action, target, clip, inputs)
        torch_step(plain, tokens, action, target, clip, inputs)
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
            fused_step(network, tokens, action, target, 1.0)
            network.write_steps()
        else:
            torch_step(fused, tokens, action, target, 1.0)
            network = flat(fused)
        torch_step(plain, tokens, action, target, 1.0)
    for mine, theirs in zip(fused.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-5, atol=1e-6)


def torch_episode(net, world, chance, exploration, settings, observation):
    """The same protocol with torch and the world's public interface."""
    world.begin()
    memory, vectors = Memory(world.rows), np.zeros((1, 22), np.float32)

    def see():
        onehot(world.tokens, vectors)
        return memory.update(world.raw).copy() if observation == "memory" else vectors.copy()

    total, seen = 0.0, see()
    while world.lanes[0]["running"]:
        if uniform(chance) < exploration:
            action = int(next_bits(chance) >> np.uint64(33)) % 6
        else:
            action = int(net.model(torch.from_numpy(seen))[0].argmax())
        world.step(np.array([action]))
        then = see()
        with torch.no_grad():
            following = net.model(torch.from_numpy(then))[0]
        best = float(following.max())
        mean = best if settings.q_learning else (1 - exploration) * best + exploration * float(following.mean())
        target = world.rewards[0] + (0.0 if world.terminations[0] else settings.discount * mean)
        torch_step(net, world.tokens[0], action, float(target), settings.gradient_clip, seen[0])
        seen = then
        total += world.rewards[0]
    return total


@pytest.mark.parametrize("q_learning", [False, True])
@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("observation", ["onehot", "memory"])
def test_an_episode_equals_the_same_protocol_in_torch(q_learning, preset, observation):
    fused, plain = attached(2, False, False, 22 if observation == "onehot" else 16)
    settings = Settings(observation=observation, q_learning=q_learning)
    scenario = Scenario.of({"preset": preset, "max_steps": 150, "sensor_noise": 2e-3})
    learner = OnlineLearner(fused.model, fused.optimizer, scenario, settings, 5)
    (seed,) = training_seeds(5, 1)
    world, chance = World(1, scenario), seed_streams([(seed, 2)])[0]
    world.seed([seed])
    for exploration in (1.0, 0.9):
        episode = learner.episode(exploration)
        total = torch_episode(plain, world, chance, exploration, settings, observation)
        assert episode.returns[0] == pytest.approx(total, abs=1e-6)
        assert (episode.steps[0], episode.success[0]) == (world.lanes[0]["step"], world.successes[0])
        assert (episode.spl[0] > 0.0) == episode.success[0]
    for mine, theirs in zip(fused.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-3, atol=1e-4)


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    def run():
        torch.manual_seed(3)
        model = gpf.MLP(22, 16, 6)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        learner = OnlineLearner(model, optimizer, Scenario.preset("reference"), Settings(), seed=7)
        totals = [float(learner.episode(0.5).returns[0]) for _ in range(5)]
        return totals, [p.detach().clone() for p in model.parameters()]

    (first, mine), (second, theirs) = run(), run()
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_exploration_falls_from_episode_to_episode():
    model = gpf.MLP(22, 16, 6)
    scenario = Scenario.of({"preset": "reference", "max_steps": 3})
    settings = Settings(exploration_decay=0.5, exploration_end=0.2)
    learner = OnlineLearner(model, torch.optim.Adam(model.parameters()), scenario, settings, 0)
    seen, episode = [], learner.episode
    learner.episode = lambda exploration: seen.append(exploration) or episode(exploration)
    for _ in range(4):
        learner.epoch(0.0)
    assert seen == [1.0, 0.5, 0.25, 0.2]


def test_other_networks_and_optimizers_are_refused_in_one_line():
    reference = Scenario.preset("reference")
    model = gpf.MLP(22, 16, 6, layer_norm=True)
    with pytest.raises(ValueError, match="^layer_norm must be off with learner online$"):
        OnlineLearner(model, torch.optim.Adam(model.parameters()), reference, Settings(), 0)
    model = gpf.MLP(22, 16, 6)
    parameters = list(model.parameters())
    changed = [torch.optim.Adam(parameters, **{name: 1}) for name in ("amsgrad", "weight_decay", "maximize")]
    for optimizer in (torch.optim.SGD(parameters, lr=0.1), *changed):
        with pytest.raises(ValueError, match="^optimizer must be .* with learner online, got (SGD|amsgrad)"):
            OnlineLearner(model, optimizer, reference, Settings(), 0)
