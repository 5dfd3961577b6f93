"""The paper's protocol: one environment, one update a step, in one compiled function.

For the paper's tiny network a torch update takes many times longer than its arithmetic. This learner therefore steps
the world, acts, backpropagates and applies Adam in one numba function that works in place on the memory of the torch
parameters and of the torch optimizer's state. Everything else (growing, pruning, freezing, checkpoints) sees an
ordinary torch model. `tests/navigation/test_online.py` holds the update to torch's autograd and Adam.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from gpf.network import MLP
from gpf.plume.kernels import kernel
from gpf.plume.rng import next_bits, seed_streams, uniform
from gpf.plume.scenario import ACTIONS, LEVELS
from gpf.plume.world import World, begin, observe, step

LAYER = np.dtype(
    [(name, np.uint64) for name in ("inputs", "weight", "bias")]  # unsigned: no wrap-around test in the loops
    + [(name, np.int64) for name in ("outputs", "trainable", "masked", "steps")]
)
"""One linear map in flat memory: its sizes, where weights and biases begin, and its number of updates."""

_FAST = {"reassoc", "contract", "nsz"}
_FADED = np.float32(1e-30)
"""Adam moments below this are taken as zero; at a rate of 1e-3 they would move a weight by less than 1e-24."""


@dataclass(frozen=True)
class Update:
    """How the values learn."""

    learning_rate: float = 1e-3
    discount: float = 0.99
    clip: float = 1.0
    """Greatest norm of the gradient; 0 for no clipping."""
    q_learning: bool = False
    """Whether the target takes the best next action (Q-learning) or the policy's mean (Expected SARSA)."""


class FlatNetwork:
    """An MLP and its Adam state in flat arrays, which the torch model and optimizer share from then on.

    Make a new one after every event that changes the network.
    """

    def __init__(self, model: MLP, optimizer: torch.optim.Adam) -> None:
        linears = [_linear(block) for block in model.layers] + [model.head]
        members = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        size = sum(linear.weight.numel() + linear.bias.numel() for linear in linears)
        memory = torch.zeros(4, size)
        self.values, self.first, self.second, self.keep = memory.numpy()
        self.layers = np.zeros(len(linears), LAYER)
        self._steps: list[list[torch.Tensor]] = []
        offset = 0
        for layer, linear in zip(self.layers, linears, strict=True):
            layer["inputs"], layer["outputs"] = linear.in_features, linear.out_features
            layer["trainable"] = id(linear.weight) in members
            self._steps.append([])
            for name, parameter in (("weight", linear.weight), ("bias", linear.bias)):
                layer[name] = offset
                share = slice(offset, offset + parameter.numel())
                offset = share.stop
                self._adopt(parameter, memory[:, share], optimizer, layer)
        self.betas, self.epsilon = _settings(optimizer)
        widest = int(self.layers["outputs"].max())
        self.scratch = np.zeros((2, len(linears) + 1, max(widest, int(self.layers["inputs"].max()))), np.float32)
        self.gradient = np.zeros(max(linears[0].weight.numel(), widest), np.float32)

    def _adopt(
        self, parameter: torch.Tensor, memory: torch.Tensor, optimizer: torch.optim.Adam, layer: np.void
    ) -> None:
        """Move a parameter and its moments into flat memory."""
        values, first, second, keep = (row.view_as(parameter) for row in memory)
        values.copy_(parameter.detach())
        parameter.data = values
        keep.fill_(1.0)
        if not layer["trainable"]:
            return
        state = optimizer.state[parameter]
        if not state:
            state.update(step=torch.tensor(0.0), exp_avg=first, exp_avg_sq=second)
        else:
            first.copy_(state["exp_avg"])
            second.copy_(state["exp_avg_sq"])
            state.update(exp_avg=first, exp_avg_sq=second)
        layer["steps"] = int(state["step"])
        self._steps[-1].append(state["step"])

    def mask(self, pruned: dict[int, NDArray[np.bool_]]) -> None:
        """Keep these weights, by layer, at zero."""
        for index, mask in pruned.items():
            layer = self.layers[index]
            self.keep[int(layer["weight"]) : int(layer["weight"]) + mask.size] = ~mask.ravel()
            layer["masked"] = 1

    def write_steps(self) -> None:
        """Tell the torch optimizer how many updates there were."""
        for layer, steps in zip(self.layers, self._steps, strict=True):
            for tensor in steps:
                tensor.fill_(float(layer["steps"]))


def _linear(block: nn.Module) -> nn.Linear:
    parts = list(block.children())
    if len(parts) != 2 or not isinstance(parts[0], nn.Linear) or not isinstance(parts[1], nn.ReLU):
        raise ValueError(
            "learner: 'online' trains plain layers, Linear and ReLU, and this network has others;"
            " accepted: an MLP without layer normalisation"
        )
    return parts[0]


def _settings(optimizer: torch.optim.Adam) -> tuple[tuple[float, float], float]:
    if type(optimizer) is not torch.optim.Adam:
        raise ValueError(f"optimizer: {type(optimizer).__name__}; accepted by the online learner: torch.optim.Adam")
    group = optimizer.param_groups[0]
    if group["amsgrad"] or group["weight_decay"] or group["maximize"]:
        raise ValueError("optimizer: amsgrad, weight_decay or maximize; accepted by the online learner: plain Adam")
    return group["betas"], group["eps"]


@njit(error_model="numpy", fastmath=_FAST)
def forward(layers, values, tokens, activations):
    """Write every layer's output for one observation; the last row's first entries are the action values."""
    last = len(layers) - 1
    for n in range(last + 1):
        layer, out, previous = layers[n], activations[n + 1], activations[n]
        for j in range(layer.outputs):
            row = layer.weight + np.uint64(j) * layer.inputs
            total = values[layer.bias + np.uint64(j)]
            if n == 0:  # a one-hot input picks three columns
                total += values[row + np.uint64(tokens[0])] + values[row + np.uint64(LEVELS + tokens[1])]
                total += values[row + np.uint64(2 * LEVELS + tokens[2])]
            else:
                for i in range(layer.inputs):
                    total += values[row + i] * previous[i]
            out[j] = total if n == last else max(total, np.float32(0.0))


@njit(error_model="numpy", fastmath=_FAST)
def backward(layers, values, activations, deltas, action, slope):
    """Write what `slope` at one action's value sends to the output of every layer."""
    last = len(layers) - 1
    deltas[last + 1, : layers[last].outputs] = np.float32(0.0)
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


@njit(error_model="numpy", fastmath=_FAST)
def adam(layers, values, first, second, keep, tokens, activations, deltas, gradient, rate, beta1, beta2, epsilon, clip):
    """One step of Adam on the trainable layers, with the gradient's norm clipped and pruned weights left at zero.

    The gradient of a weight matrix is an outer product, of which one row at a time is written to `gradient`. That of
    the first layer, whose input is one-hot, has three columns; it is written whole, so that its short rows run as one.
    """
    scale = np.float32(1.0)
    if clip > 0.0:
        total = np.float32(0.0)
        for n in range(len(layers)):
            if layers[n].trainable:
                total += _square_norm(layers[n], n == 0, keep, tokens, activations[n], deltas[n + 1])
        scale = np.float32(min(1.0, clip / (math.sqrt(total) + 1e-6)))
    for n in range(len(layers)):
        layer, delta, previous = layers[n], deltas[n + 1], activations[n]
        if not layer.trainable:
            continue
        layer.steps += 1
        step_size = np.float32(rate / (1.0 - beta1**layer.steps))
        root = np.float32(1.0 / math.sqrt(1.0 - beta2**layer.steps))
        settings = (scale, step_size, root, np.float32(epsilon), np.float32(1.0 - beta1), np.float32(1.0 - beta2))
        if n == 0:
            _write_first_gradient(layer, keep, tokens, delta, gradient)
            _descend(values, first, second, layer.weight, layer.inputs * np.uint64(layer.outputs), gradient, settings)
        else:
            for j in range(layer.outputs):
                row, d = layer.weight + np.uint64(j) * layer.inputs, delta[j]
                for i in range(layer.inputs):
                    gradient[i] = d * previous[i]
                if layer.masked:
                    for i in range(layer.inputs):
                        gradient[i] *= keep[row + i]
                _descend(values, first, second, row, layer.inputs, gradient, settings)
        _descend(values, first, second, layer.bias, np.uint64(layer.outputs), delta, settings)


@njit(error_model="numpy", fastmath=_FAST)
def _descend(values, first, second, start, count, gradient, settings):
    """Adam on `count` parameters from `start` on."""
    scale, step_size, root, epsilon, one, two = settings
    decay = np.float32(1.0) - two
    for k in range(count):
        g = gradient[k] * scale
        f = first[start + k] + one * (g - first[start + k])
        s = decay * second[start + k] + two * g * g
        # Moments that fade away end at zero, not among the denormal numbers, where arithmetic is many times slower.
        f = f if abs(f) > _FADED else np.float32(0.0)
        s = s if s > _FADED else np.float32(0.0)
        first[start + k] = f
        second[start + k] = s
        values[start + k] -= step_size * f / (np.sqrt(s) * root + epsilon)


@njit(error_model="numpy", fastmath=_FAST)
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


@njit(error_model="numpy", fastmath=_FAST)
def _write_first_gradient(layer, keep, tokens, delta, gradient):
    """The gradient of the first layer's weights: zero but for the columns that the one-hot input picks."""
    for k in range(layer.inputs * np.uint64(layer.outputs)):
        gradient[k] = np.float32(0.0)
    for j in range(layer.outputs):
        row = np.uint64(j) * layer.inputs
        for column in (tokens[0], LEVELS + tokens[1], 2 * LEVELS + tokens[2]):
            place = row + np.uint64(column)
            gradient[place] = delta[j] * keep[layer.weight + place]


@njit(error_model="numpy")
def greedy(action_values):
    """The action of greatest value; the first, of several."""
    best = 0
    for action in range(1, len(ACTIONS)):
        if action_values[action] > action_values[best]:
            best = action
    return best


@njit(error_model="numpy")
def expected(action_values, exploration):
    """The mean value of an epsilon-greedy policy; with no exploration, the greatest value."""
    mean = 0.0
    for action in range(len(ACTIONS)):
        mean += action_values[action]
    return (1.0 - exploration) * action_values[greedy(action_values)] + exploration * mean / len(ACTIONS)


@kernel
def _episode(
    p, lane, stream, filaments, world_scratch, terms, raw, tokens, chance,
    layers, values, first, second, keep, gradient, activations, deltas,
    exploration, target_exploration, rate, discount, clip, beta1, beta2, epsilon,
):  # fmt: skip
    """One episode: at every step act, step the world, and update. Returns the sum of rewards."""
    now, then = tokens[0], tokens[1]
    outputs = len(layers)
    begin(p, lane, stream, filaments, world_scratch)
    observe(p, lane, now, raw)
    total = 0.0
    while lane.running:
        forward(layers, values, now, activations)
        if uniform(chance) < exploration:
            action = np.int64((next_bits(chance) >> np.uint64(33)) % np.uint64(len(ACTIONS)))
        else:
            action = greedy(activations[outputs])
        value = activations[outputs, action]
        reward, success, timeout = step(p, lane, stream, filaments, world_scratch, action, terms)
        observe(p, lane, then, raw)
        target = float(reward)
        if not (success or (timeout and p.timeout_terminates != 0.0)):
            forward(layers, values, then, deltas)  # its rows are free until the way back
            target += discount * expected(deltas[outputs], target_exploration)
        error = np.float32(value - target)
        backward(layers, values, activations, deltas, action, np.float32(2.0) * error)
        adam(layers, values, first, second, keep, now, activations, deltas, gradient, rate, beta1, beta2, epsilon, clip)
        for k in range(3):
            now[k] = then[k]
        total += reward
    return total


class OnlineLearner:
    """Expected SARSA or Q-learning, one step at a time, in one plume world."""

    def __init__(self, model: MLP, optimizer: torch.optim.Adam, world: World, update: Update, seed: int) -> None:
        if world.count != 1:
            raise ValueError(f"world: {world.count} lanes; accepted by the online learner: 1")
        self.model, self.optimizer, self.world, self.update = model, optimizer, world, update
        world.seed([seed])
        self.chance = seed_streams([(seed, 2)])[0]  # for exploration; 2: neither the world's stream nor a policy's
        self._tokens = np.zeros((2, 3), np.int64)
        self.rebind({})

    def rebind(self, pruned: dict[int, NDArray[np.bool_]]) -> None:
        """Take over the network as it is now; needed after every event. `pruned` has masks by layer."""
        self.network = FlatNetwork(self.model, self.optimizer)
        self.network.mask(pruned)

    def episode(self, exploration: float) -> tuple[float, bool, int]:
        """Live through one episode, learning at each step; returns the sum of rewards, success, and steps."""
        world, network, update = self.world, self.network, self.update
        total = _episode(
            world.rows[0], world.lanes[0], world.streams[0], world.filaments[0], world.scratch[0], world.terms[0],
            world.raw[0], self._tokens, self.chance,
            network.layers, network.values, network.first, network.second, network.keep, network.gradient,
            network.scratch[0], network.scratch[1],
            exploration, 0.0 if update.q_learning else exploration, update.learning_rate, update.discount, update.clip,
            network.betas[0], network.betas[1], network.epsilon,
        )  # fmt: skip
        network.write_steps()
        lane = world.lanes[0]
        return total, bool(lane["distance"] < world.rows[0]["success_radius"]), int(lane["step"])
