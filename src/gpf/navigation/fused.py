"""PPO's gradient steps in one compiled function: all epochs over a rollout, on the memory of torch's tensors.

For networks this small, torch spends most of a gradient step between its operations. Here a minibatch goes through the
network in tiles that stay in the cache, forward, through the loss, and back; then the gradient's norm is clipped and
Adam takes a step, in place on the parameters and on the optimizer's state. `tests/navigation/test_fused.py` compares
every part with torch's autograd and Adam. `gpf.network.compiled` says when torch has to do it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from gpf.navigation.flat import FAST, FlatNetwork, adam_settings, descend
from gpf.navigation.matrices import COLUMNS, keep_where_positive, multiply, padded
from gpf.network.compiled import HookReplacements
from gpf.plume.kernels import lean_kernel
from gpf.plume.scenario import ACTIONS

TILE = 64
"""Samples that go through the network together."""
_ZEROS, _ONE = COLUMNS, 0
"""Where a row of zeros, and a one, are in `Workspace.memory`."""
PLACE = np.dtype(
    [(name, np.int64) for name in ("inputs", "outputs", "rows", "columns", "bias", "gradient", "bias_gradient")]
    + [(name, np.int64) for name in ("activations", "deltas")]
)
"""Where things of a layer are in `Workspace.memory`, and its sizes, padded: weights by output (`rows`) and by input
(`columns`), biases, gradients, and a tile of its inputs and of the gradients at its outputs."""


class Workspace:
    """The memory of the gradient steps of one network: weights in padded rows, gradients, and a tile of samples."""

    def __init__(self, network: FlatNetwork) -> None:
        self.places: NDArray[np.void] = np.zeros(len(network.layers), PLACE)
        size = COLUMNS + max(padded(int(layer["inputs"])) for layer in network.layers)  # a one, and zeros

        def take(count: int) -> int:
            nonlocal size
            size += count
            return size - count

        for place, layer in zip(self.places, network.layers, strict=True):
            inputs, outputs = padded(int(layer["inputs"])), padded(int(layer["outputs"]))
            place["inputs"], place["outputs"] = inputs, outputs
            place["rows"], place["columns"] = take(outputs * inputs), take(inputs * outputs)
            place["bias"], place["bias_gradient"] = take(outputs), take(outputs)
            place["gradient"] = take(outputs * inputs)
            place["activations"], place["deltas"] = take(TILE * inputs), take(TILE * outputs)
        self.top: int = take(TILE * int(self.places[-1]["outputs"]))
        """Where the network's outputs for a tile are."""
        self.memory: NDArray[np.float32] = np.zeros(size, np.float32)
        self.memory[_ONE] = 1.0
        self.gradient: NDArray[np.float32] = np.zeros_like(network.values)


fast: Any = njit(error_model="numpy", fastmath=FAST, _nrt=False)
"""Compile a function of these steps: its sums may be reordered, and it allocates nothing."""


@fast
def load_weights(
    layers: NDArray[np.void], values: NDArray[np.float32], places: NDArray[np.void], memory: NDArray[np.float32]
) -> None:
    """Copy all weights and biases into padded memory, weights in both orders."""
    for n in range(len(layers)):
        layer, place = layers[n], places[n]  # their fields are read before the loops, which else do not vectorise
        inputs, outputs, start, bias = np.int64(layer.inputs), layer.outputs, np.int64(layer.weight), place.bias
        rows, columns, row_size, column_size = place.rows, place.columns, place.inputs, place.outputs
        source = np.int64(layer.bias)
        for j in range(outputs):
            memory[bias + j] = values[source + j]
        for j in range(outputs):
            for i in range(inputs):
                value = values[start + j * inputs + i]
                memory[rows + j * row_size + i] = value
                memory[columns + i * column_size + j] = value


@fast
def forward_tile(
    layers: NDArray[np.void], places: NDArray[np.void], memory: NDArray[np.float32], top: int, count: int
) -> None:
    """Write the outputs of all layers for a tile of samples, whose inputs are in place; the network's at `top`."""
    last = len(layers) - 1
    for n in range(last + 1):
        place = places[n]
        out = top if n == last else places[n + 1].activations
        multiply(
            count, place.outputs, np.int64(layers[n].inputs),
            memory, place.activations, place.inputs, 1, memory, place.columns, place.outputs,
            memory, place.bias, 0, memory, out, place.outputs,
        )  # fmt: skip
        if n < last:
            keep_where_positive(memory, out, memory, out, count * place.outputs // COLUMNS)


@fast
def backward_tile(
    layers: NDArray[np.void], places: NDArray[np.void], memory: NDArray[np.float32], count: int, lowest: int
) -> None:
    """Add a tile's gradients at weights and biases, given those at the network's outputs, down to layer `lowest`."""
    for n in range(len(layers) - 1, lowest - 1, -1):
        layer, place = layers[n], places[n]
        inputs, outputs, deltas = place.inputs, place.outputs, place.deltas
        if layer.trainable:
            multiply(
                layer.outputs, inputs, count,
                memory, deltas, 1, outputs, memory, place.activations, inputs,
                memory, place.gradient, inputs, memory, place.gradient, inputs,
            )  # fmt: skip
            multiply(
                1, outputs, count, memory, _ONE, 0, 0, memory, deltas, outputs,
                memory, place.bias_gradient, 0, memory, place.bias_gradient, 0,
            )  # fmt: skip
        if n > lowest:
            below = places[n - 1].deltas
            multiply(
                count, inputs, layer.outputs,
                memory, deltas, outputs, 1, memory, place.rows, inputs,
                memory, _ZEROS, 0, memory, below, inputs,
            )  # fmt: skip
            keep_where_positive(memory, place.activations, memory, below, count * inputs // COLUMNS)


@fast
def _normal(advantages, order, first, last):
    """The mean of a minibatch's advantages, and one over their standard deviation."""
    mean = square = 0.0
    for s in range(first, last):
        mean += advantages[order[s]]
    mean /= last - first
    for s in range(first, last):
        square += (advantages[order[s]] - mean) ** 2
    return np.float32(mean), np.float32(1.0 / (math.sqrt(square / (last - first)) + 1e-8))


@fast
def log_policy(outputs: NDArray[np.float32], start: int, logs: NDArray[np.float32]) -> None:
    """Write the logarithms of the probabilities of all actions, whose outputs begin at `start`."""
    top = outputs[start]
    for k in range(1, len(ACTIONS)):
        top = max(top, outputs[start + k])
    total = np.float32(0.0)
    for k in range(len(ACTIONS)):
        total += np.exp(outputs[start + k] - top)
    total = top + np.log(total)
    for k in range(len(ACTIONS)):
        logs[k] = outputs[start + k] - total


@fast
def loss_gradient(
    memory: NDArray[np.float32],
    at: int,
    to: int,
    logs: NDArray[np.float32],
    action: int,
    before: float,
    advantage: float,
    ret: float,
    weight: float,
    clip: float,
    entropy: float,
    value_weight: float,
) -> None:
    """Write the gradient of PPO's loss at the network's outputs for one sample, which counts with `weight`.

    Outputs are in `memory` from `at` on, and gradients go there from `to` on; `logs` is room for the logarithms of the
    policy. Of the sample, `before` is the logarithm of the action's probability when it was taken, the advantage is
    normalised, and the target of the value is `ret`. The ratio of probabilities may move from 1 by `clip`; `entropy`
    and `value_weight` are the weights of the entropy and of the value's squared error, 0 if there is no value.
    """
    log_policy(memory, at, logs)
    ratio = np.exp(logs[action] - before)
    held = ratio > np.float32(1.0) + clip if advantage > np.float32(0.0) else ratio < np.float32(1.0) - clip
    gain = np.float32(0.0) if held else ratio * advantage
    spread = np.float32(0.0)
    for k in range(len(ACTIONS)):
        share = np.exp(logs[k])
        memory[to + k] = share
        spread -= share * logs[k]
    for k in range(len(ACTIONS)):
        memory[to + k] *= weight * (gain + entropy * (logs[k] + spread))
    memory[to + action] -= weight * gain
    if value_weight > np.float32(0.0):
        last = len(ACTIONS)
        memory[to + last] = np.float32(2.0) * weight * value_weight * (memory[at + last] - ret)


@fast
def clear_gradients(places: NDArray[np.void], memory: NDArray[np.float32]) -> None:
    """Begin sums of gradients."""
    for n in range(len(places)):
        place = places[n]
        for k in range(place.gradient, place.gradient + place.inputs * place.outputs):
            memory[k] = np.float32(0.0)
        for k in range(place.bias_gradient, place.bias_gradient + place.outputs):
            memory[k] = np.float32(0.0)


@fast
def collect_gradient(
    layers: NDArray[np.void],
    places: NDArray[np.void],
    memory: NDArray[np.float32],
    keep: NDArray[np.float32],
    gradient: NDArray[np.float32],
) -> float:
    """Write the gradient of the layers that learn as values lie in flat memory, without pruned weights; its norm."""
    square = 0.0
    for n in range(len(layers)):
        layer, place = layers[n], places[n]
        if not layer.trainable:
            continue
        inputs, weight, bias = np.int64(layer.inputs), np.int64(layer.weight), np.int64(layer.bias)
        outputs, row_size, sums, bias_sums = layer.outputs, place.inputs, place.gradient, place.bias_gradient
        for j in range(outputs):
            slope = memory[bias_sums + j]
            gradient[bias + j] = slope
            square += float(slope) * float(slope)
        for j in range(outputs):
            for i in range(inputs):
                slope = memory[sums + j * row_size + i] * keep[weight + j * inputs + i]
                gradient[weight + j * inputs + i] = slope
                square += float(slope) * float(slope)
    return math.sqrt(square)


@lean_kernel
def taken_log_policy(outputs, actions, logs, out):
    """Write the logarithm of the probability of every action that was taken."""
    for s in range(len(outputs)):
        log_policy(outputs[s], 0, logs)
        out[s] = logs[actions[s]]


@lean_kernel
def fused_steps(
    layers, values, first, second, keep, places, memory, top, gradient, logs,
    inputs, actions, before, advantages, returns, order, minibatch,
    clip, entropy, value_weight, gradient_clip, rate, beta1, beta2, epsilon,
):  # fmt: skip
    """Take a gradient step for each minibatch of each pass; `order`, of shape (passes, samples), says which samples."""
    lowest = 0
    while lowest < len(layers) and not layers[lowest].trainable:
        lowest += 1
    place, outputs = places[0], places[len(places) - 1].outputs
    deltas = places[len(places) - 1].deltas
    for k in range(len(values)):  # whatever was written to pruned weights
        values[k] *= keep[k]
    for n in range(order.shape[0]):
        for start in range(0, order.shape[1], minibatch):
            stop = min(start + minibatch, order.shape[1])
            load_weights(layers, values, places, memory)
            clear_gradients(places, memory)
            mean, scale = _normal(advantages, order[n], start, stop)
            weight = np.float32(1.0 / (stop - start))
            for begin in range(start, stop, TILE):
                count = min(TILE, stop - begin)
                for m in range(count):
                    s = order[n, begin + m]
                    for i in range(inputs.shape[1]):
                        memory[place.activations + m * place.inputs + i] = inputs[s, i]
                forward_tile(layers, places, memory, top, count)
                for m in range(count):
                    s = order[n, begin + m]
                    loss_gradient(
                        memory, top + m * outputs, deltas + m * outputs, logs, actions[s], before[s],
                        (advantages[s] - mean) * scale, returns[s], weight, clip, entropy, value_weight,
                    )  # fmt: skip
                backward_tile(layers, places, memory, count, lowest)
            norm = collect_gradient(layers, places, memory, keep, gradient)
            share = min(1.0, gradient_clip / (norm + 1e-6)) if gradient_clip > 0.0 else 1.0
            for k in range(len(layers)):
                layer = layers[k]
                if layer.trainable:
                    layer.steps += 1
                    settings = adam_settings(layer.steps, share, rate, beta1, beta2, epsilon)
                    count = layer.inputs * np.uint64(layer.outputs)
                    descend(values, first, second, layer.weight, count, gradient[layer.weight :], settings)
                    count = np.uint64(layer.outputs)
                    descend(values, first, second, layer.bias, count, gradient[layer.bias :], settings)


@dataclass(frozen=True)
class Lesson:
    """Steps of a rollout, N of them, to learn from.

    Attributes:
        inputs: float32 (N, F). outputs: float32 (N, K), the network's outputs at the time of the rollout.
        actions: int64 (N,). advantages, returns: float32 (N,).
    """

    inputs: NDArray[np.float32]
    outputs: NDArray[np.float32]
    actions: NDArray[np.int64]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]


class FusedSteps:
    """Takes the gradient steps of a network whose memory torch and its Adam share."""

    def __init__(self, network: FlatNetwork) -> None:
        self.network = network
        self._work = Workspace(network)
        self._logs = np.zeros(len(ACTIONS), np.float32)

    def take(
        self,
        lesson: Lesson,
        order: NDArray[np.int64],
        optimizer: torch.optim.Adam,
        replacements: HookReplacements,
        *,
        minibatch: int,
        clip: float,
        entropy: float,
        value_weight: float,
        gradient_clip: float,
    ) -> None:
        """A gradient step for each minibatch of each row of `order`, which says which samples come when."""
        network, work, group = self.network, self._work, optimizer.param_groups[0]
        network.read_steps()
        network.mask_parameters(replacements.masks)
        before = np.zeros(len(lesson.inputs), np.float32)
        taken_log_policy(lesson.outputs, lesson.actions, self._logs, before)
        fused_steps(
            network.layers, network.values, network.first, network.second, network.keep, work.places, work.memory,
            work.top, work.gradient, self._logs,
            lesson.inputs, lesson.actions, before, lesson.advantages, lesson.returns, order, minibatch,
            np.float32(clip), np.float32(entropy), np.float32(value_weight), gradient_clip,
            float(group["lr"]), *group["betas"], group["eps"],
        )  # fmt: skip
        network.write_steps()
        for _ in range(len(order) * -(-order.shape[1] // minibatch)):
            for count in replacements.counters:
                count()
