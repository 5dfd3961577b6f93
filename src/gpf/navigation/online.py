"""The paper's protocol: one environment and one update per step, in one compiled function.

For the paper's tiny network a torch update takes many times longer than its arithmetic. This learner therefore steps
the world, acts, backpropagates and applies Adam in one numba function that works in place on the memory of the torch
parameters and of the torch optimizer's state. Everything else (growing, pruning, freezing, checkpoints) sees an
ordinary torch model. `tests/navigation/test_online.py` holds the update to torch's autograd and Adam.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import expected, explore
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.flat import FAST, FlatNetwork, adam_settings, descend, forward
from gpf.navigation.inputs import INPUTS, SEES_MEMORY, kept_inputs, write_inputs
from gpf.navigation.learner import LearnerSettings
from gpf.navigation.rollouts import Episodes, Reward, path_length_score
from gpf.navigation.seeds import BLOCK, training_seeds
from gpf.network import MLP, GrowPruneFreeze
from gpf.plume.kernels import copy, lean_kernel
from gpf.plume.memory import blank_memories
from gpf.plume.rng import seed_streams
from gpf.plume.scenario import ACTIONS, LEVELS, Scenario
from gpf.plume.world import World, begin, observe, step, terminal
from gpf.settings import number


@dataclass(frozen=True, kw_only=True)
class Settings(LearnerSettings):
    """How the values learn, and what they see, are paid and do."""

    NAME: ClassVar[str] = "online"

    reward: Reward = "reference"
    episodes: int = number(4500, 1, 10**9)
    """Episodes to learn from."""
    q_learning: bool = False
    """Whether the target takes the best next action (Q-learning) or the policy's mean (Expected SARSA)."""
    exploration_end: float = number(0.05, 0.0, 1.0)
    """Smallest share of random actions."""
    exploration_decay: float = number(0.9995, 0.0, 1.0)
    """By what the share of random actions, 1 at first, is multiplied after each episode."""
    round_epochs: int = number(100, 1)
    validate_every: int = number(5, 1)
    validation_episodes: int = number(200, 1, BLOCK)

    @property
    def epochs(self) -> int:
        """Epochs of the whole training: episodes."""
        return self.episodes

    def epoch_steps(self, episodes: Episodes) -> int:
        """Steps of an epoch: of its one episode."""
        return int(episodes.steps.sum())

    def make_model(self, width: int, depth: int) -> MLP:
        """The network before it learns: an output for each action."""
        return MLP(INPUTS[self.observation], width, len(ACTIONS), depth)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Adam:
        """The optimizer of a network before it learns."""
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate)

    def make_learner(
        self,
        net: GrowPruneFreeze,
        scenario: Scenario,
        seed: int,
        without: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> "OnlineLearner":
        """The learner of a network, in a world that has this learner's reward; always one thread."""
        model: Any = net.model
        optimizer: Any = net.optimizer
        learner = OnlineLearner(model, optimizer, scenario, self, seed, without)
        learner.rebind(net)
        return learner


@njit(error_model="numpy", fastmath=FAST)
def forward_tokens(
    layers: NDArray[np.void],
    values: NDArray[np.float32],
    one_hot: bool,
    tokens: NDArray[np.int64],
    activations: NDArray[np.float32],
) -> None:
    """As `forward`; a one-hot input is not in row 0 but given as tokens."""
    if not one_hot:
        forward(layers, values, activations)
        return
    layer, out = layers[0], activations[1]
    for j in range(layer.outputs):  # a one-hot input picks three columns
        row = layer.weight + np.uint64(j) * layer.inputs
        total = values[layer.bias + np.uint64(j)] + values[row + np.uint64(tokens[0])]
        total += values[row + np.uint64(LEVELS + tokens[1])] + values[row + np.uint64(2 * LEVELS + tokens[2])]
        out[j] = max(total, np.float32(0.0))
    forward(layers[1:], values, activations[1:])


@njit(error_model="numpy", fastmath=FAST)
def backward(
    layers: NDArray[np.void],
    values: NDArray[np.float32],
    activations: NDArray[np.float32],
    deltas: NDArray[np.float32],
    action: int,
    slope: np.float32,
) -> None:
    """Write what `slope` at one action's value sends to the output of every layer."""
    last = len(layers) - 1
    for j in range(layers[last].outputs):
        deltas[last + 1, j] = np.float32(0.0)
    deltas[last + 1, action] = slope
    for n in range(last, 0, -1):
        layer, below, previous = layers[n], deltas[n], activations[n]
        for i in range(layer.inputs):
            below[i] = np.float32(0.0)
        for j in range(layer.outputs):
            d, row = deltas[n + 1, j], layer.weight + np.uint64(j) * layer.inputs
            if d != np.float32(0.0):
                for i in range(layer.inputs):
                    below[i] += d * values[row + i]
        for i in range(layer.inputs):
            below[i] = below[i] if previous[i] > np.float32(0.0) else np.float32(0.0)


@njit(error_model="numpy", fastmath=FAST)
def adam(
    layers: NDArray[np.void], values: NDArray[np.float32], first: NDArray[np.float32], second: NDArray[np.float32],
    keep: NDArray[np.float32], one_hot: bool, tokens: NDArray[np.int64], activations: NDArray[np.float32],
    deltas: NDArray[np.float32], gradient: NDArray[np.float32],
    rate: float, beta1: float, beta2: float, epsilon: float, clip: float,
) -> None:  # fmt: skip
    """One step of Adam on the trainable layers, with the gradient's norm clipped and pruned weights left at zero.

    The gradient of a weight matrix is an outer product; one row at a time is written to `gradient`. That of
    the first layer, whose input is one-hot, has three columns; it is written whole, because its rows are short.
    """
    scale = np.float32(1.0)
    if clip > 0.0:
        total = np.float32(0.0)
        for n in range(len(layers)):
            if layers[n].trainable:
                total += _square_norm(layers[n], one_hot and n == 0, keep, tokens, activations[n], deltas[n + 1])
        scale = np.float32(min(1.0, clip / (math.sqrt(total) + 1e-6)))
    for n in range(len(layers)):
        layer, delta, previous = layers[n], deltas[n + 1], activations[n]
        if not layer.trainable:
            continue
        layer.steps += 1
        settings = adam_settings(layer.steps, scale, rate, beta1, beta2, epsilon)
        if one_hot and n == 0:
            _write_first_gradient(layer, keep, tokens, delta, gradient)
            descend(values, first, second, layer.weight, layer.inputs * np.uint64(layer.outputs), gradient, settings)
        else:
            for j in range(layer.outputs):
                row, d = layer.weight + np.uint64(j) * layer.inputs, delta[j]
                for i in range(layer.inputs):
                    gradient[i] = d * previous[i]
                if layer.masked:
                    for i in range(layer.inputs):
                        gradient[i] *= keep[row + i]
                descend(values, first, second, row, layer.inputs, gradient, settings)
        descend(values, first, second, layer.bias, np.uint64(layer.outputs), delta, settings)


@njit(error_model="numpy", fastmath=FAST)
def _square_norm(layer, one_hot, keep, tokens, previous, delta):
    """The squared norm of a layer's gradient: of delta times input, and of delta for the biases."""
    whole = np.float32(1.0)  # of the input, and 1 for the bias
    if one_hot:
        whole += np.float32(3.0)
    else:
        for i in range(layer.inputs):
            whole += previous[i] * previous[i]
    total = np.float32(0.0)
    for j in range(layer.outputs):
        d, heard = delta[j], whole
        if layer.masked and d != np.float32(0.0):
            row, heard = layer.weight + np.uint64(j) * layer.inputs, np.float32(1.0)
            if one_hot:
                heard += keep[row + np.uint64(tokens[0])] + keep[row + np.uint64(LEVELS + tokens[1])]
                heard += keep[row + np.uint64(2 * LEVELS + tokens[2])]
            else:
                for i in range(layer.inputs):
                    heard += keep[row + i] * previous[i] * previous[i]
        total += d * d * heard
    return total


@njit(error_model="numpy", fastmath=FAST)
def _write_first_gradient(layer, keep, tokens, delta, gradient):
    """The gradient of the first layer's weights: zero except in the columns that the one-hot input picks."""
    for k in range(layer.inputs * np.uint64(layer.outputs)):
        gradient[k] = np.float32(0.0)
    for j in range(layer.outputs):
        row = np.uint64(j) * layer.inputs
        for column in (tokens[0], LEVELS + tokens[1], 2 * LEVELS + tokens[2]):
            place = row + np.uint64(column)
            gradient[place] = delta[j] * keep[layer.weight + place]


@lean_kernel
def _episode(
    world, tokens, chance, memory, one_hot, seen, inputs,
    layers, values, first, second, keep, gradient, activations, deltas,
    exploration, target_exploration, rate, discount, clip, beta1, beta2, epsilon, outcome,
):  # fmt: skip
    """One episode: at every step act, step the world, and update. Writes success, steps, SPL and the sum of rewards."""
    p, lane, raw, then = world.rows[0], world.lanes[0], world.raw[0], world.tokens[0]
    now = tokens
    outputs = len(layers)
    begin(world, 0)
    observe(world, 0)
    copy(then, now)
    memory.age = -1
    if not one_hot:
        write_inputs(SEES_MEMORY, seen, p, now, raw, memory, inputs[0])
    total, distance, success = 0.0, lane.distance, False
    while lane.running:
        if not one_hot:
            copy(inputs[0], activations[0])
        forward_tokens(layers, values, one_hot, now, activations)
        action = explore(activations[outputs], exploration, chance)
        value = activations[outputs, action]
        reward, success, failure = step(world, 0, action)
        observe(world, 0)
        if not one_hot:
            write_inputs(SEES_MEMORY, seen, p, then, raw, memory, inputs[1])
        target = float(reward)
        if not terminal(p, lane, success, failure):
            if not one_hot:
                copy(inputs[1], deltas[0])
            forward_tokens(layers, values, one_hot, then, deltas)  # its rows are free until the way back
            target += discount * expected(deltas[outputs], target_exploration)
        error = np.float32(value - target)
        backward(layers, values, activations, deltas, action, np.float32(2.0) * error)
        adam(
            layers, values, first, second, keep, one_hot, now, activations, deltas, gradient,
            rate, beta1, beta2, epsilon, clip,
        )  # fmt: skip
        for k in range(3):
            now[k] = then[k]
        if not one_hot:
            copy(inputs[1], inputs[0])
        total += reward
    outcome[0] = 1.0 if success else 0.0
    outcome[1] = lane.step
    outcome[2] = path_length_score(p, lane, distance) if success else 0.0
    outcome[3] = total


class OnlineLearner:
    """Expected SARSA or Q-learning, one step at a time, in one plume world; an epoch is an episode.

    The learning rate is that of the optimizer's first group.
    """

    betas: tuple[float, float]
    epsilon: float

    def __init__(
        self,
        model: MLP,
        optimizer: torch.optim.Adam,
        scenario: Scenario,
        settings: Settings,
        seed: int,
        without: tuple[str, ...] = (),
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.settings = settings
        self.average: WeightAverage | None = None  # the paper's protocol has none
        self.betas, self.epsilon = _adam_settings(optimizer)
        self.world: World = World(1, scenario, threads=1)
        seeds = training_seeds(seed, 1)
        self.world.seed(seeds)
        # For exploration; 2: neither the world's stream nor a policy's.
        self.chance: NDArray[np.uint64] = seed_streams([(seeds[0], 2)])[0]
        self.episodes: int = 0
        self._seen = kept_inputs(settings.observation, without)
        self._inputs = np.zeros((2, len(self._seen)), np.float32)
        self._memory = blank_memories(1, scenario.sensor_noise)
        self._tokens = np.zeros(3, np.int64)
        self.rebind()

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the current network; needed after every event."""
        self.network: FlatNetwork = FlatNetwork(self.model, self.optimizer)
        if self.network.layers["normalised"].any():
            raise ValueError("layer_norm must be off with learner online")
        self.network.mask({} if net is None else pruned_weights(net))
        self._gradient = np.zeros(self.network.values.size, np.float32)
        self._activations, self._deltas = self.network.activations(2)

    def epoch(self, progress: float) -> Episodes:
        """Live through one episode, learning at each step."""
        settings = self.settings
        exploration = max(settings.exploration_end, settings.exploration_decay**self.episodes)
        self.episodes += 1
        return self.episode(exploration)

    def episode(self, exploration: float) -> Episodes:
        """Live through one episode with this share of random actions."""
        world, network, settings = self.world, self.network, self.settings
        outcome = np.zeros(4)
        _episode(
            world.arrays(), self._tokens, self.chance, self._memory[0], settings.observation == "onehot", self._seen,
            self._inputs,
            network.layers, network.values, network.first, network.second, network.keep, self._gradient,
            self._activations, self._deltas,
            exploration, 0.0 if settings.q_learning else exploration, self.optimizer.param_groups[0]["lr"],
            settings.discount, settings.gradient_clip, self.betas[0], self.betas[1], self.epsilon, outcome,
        )  # fmt: skip
        network.write_steps()
        success, steps, spl, total = outcome[:, None]
        return Episodes(success > 0.0, steps.astype(np.int64), spl, total)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the network on which the next episode depends."""
        return {"streams": self.world.streams, "chance": self.chance, "episodes": np.array(self.episodes)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""
        self.world.streams[...], self.chance[...] = state["streams"], state["chance"]
        self.episodes = int(state["episodes"])


def pruned_weights(net: GrowPruneFreeze) -> dict[int, NDArray[np.bool_]]:
    """Which weights are pruned, by layer, of a network whose layers are linear maps."""
    weights = [layer.weights[0] for layer in net.layers]
    return {i: weight.pruned.numpy() for i, weight in enumerate(weights) if weight.pruned is not None}


def _adam_settings(optimizer: torch.optim.Adam) -> tuple[tuple[float, float], float]:
    if type(optimizer) is not torch.optim.Adam:
        raise ValueError(f"optimizer must be torch.optim.Adam with learner online, got {type(optimizer).__name__}")
    group = optimizer.param_groups[0]
    if group["amsgrad"] or group["weight_decay"] or group["maximize"]:
        raise ValueError("optimizer must be plain Adam with learner online, got amsgrad, weight_decay or maximize")
    return group["betas"], group["eps"]
