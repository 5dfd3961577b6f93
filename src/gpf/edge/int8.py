"""Weights and activations in 8 bits, with ranges measured on flown episodes; the network's inputs have 12 bits."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpf.edge.policy import Layer, Policy

LEVELS = 255
"""Highest level of an activation; the lowest is 0."""
INPUT_LEVELS = 4095
"""Highest level of an input of the network. Inputs are few, and their rounding changes actions more than all else."""
SWEEPS = 3
"""Over a layer's inputs, to round its weights."""


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer whose sums of products are whole numbers."""

    weight: NDArray[np.int8]
    """Shape (outputs, inputs)."""
    worth: NDArray[np.float32]
    """Of 1 in the sum of each output."""
    bias: NDArray[np.float32]
    per_unit: NDArray[np.float32]
    """Levels of an input per unit of its value: one for each input of the first layer, else one for all."""
    zeros: NDArray[np.float32]
    """Level that stands for 0, of inputs and activations."""
    scale: NDArray[np.float32] | None
    shift: NDArray[np.float32] | None
    levels: int = LEVELS
    """Highest level of an input."""

    def quantised(self, values: NDArray[np.float32]) -> NDArray[np.int32]:
        """The levels of inputs; shape (n, inputs)."""
        return np.clip(np.floor(values * self.per_unit + self.zeros + np.float32(0.5)), 0, self.levels).astype(np.int32)

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Its outputs before the ReLU; shape (n, outputs)."""
        sums = self.quantised(values) @ self.weight.T.astype(np.int32)
        return normalised(self, sums.astype(np.float32) * self.worth + self.bias)


def quantise(policy: Policy, inputs: NDArray[np.float32]) -> tuple[QuantisedLayer, ...]:
    """The layers of a policy in 8 bits, for inputs of the network like these; shape (n, inputs)."""
    if not len(inputs):
        raise ValueError("int8 needs at least one episode to calibrate on, got 0")
    layers = []
    values = inputs
    for n, layer in enumerate(policy.layers):
        low, high = (np.zeros(1), np.full(1, float(values.max()))) if n else _input_ranges(policy, inputs)
        layers.append(_fitted(layer, _quantised(layer, low, high, LEVELS if n else INPUT_LEVELS), values))
        values = np.maximum(normalised(layer, values @ layer.weight.T + layer.bias), 0.0)
    return tuple(layers)


def _input_ranges(policy: Policy, inputs: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The range of each input, with 0 in it; -1 to 1 for a feature that never changed."""
    if not policy.remembers:
        return np.zeros(inputs.shape[1]), np.ones(inputs.shape[1])
    low, high = np.minimum(inputs.min(0), 0.0), np.maximum(inputs.max(0), 0.0)
    constant = low == high
    return np.where(constant, -1.0, low).astype(np.float64), np.where(constant, 1.0, high).astype(np.float64)


def _quantised(layer: Layer, low: NDArray[np.float64], high: NDArray[np.float64], levels: int) -> QuantisedLayer:
    """A layer whose weights are rounded to the nearest level."""
    step = np.where(high > low, (high - low) / levels, 1.0)  # value of a level
    zeros = np.round(-low / step)
    scaled = layer.weight * step  # the weight of a level
    worth = np.abs(scaled).max(1) / 127.0
    worth[worth == 0.0] = 1.0
    weight = np.round(scaled / worth[:, None])
    bias = layer.bias - worth * (weight * zeros).sum(1)
    return QuantisedLayer(
        weight.astype(np.int8), worth.astype(np.float32), bias.astype(np.float32), (1.0 / step).astype(np.float32),
        zeros.astype(np.float32), layer.scale, layer.shift, levels,
    )  # fmt: skip


def _fitted(layer: Layer, rounded: QuantisedLayer, values: NDArray[np.float32]) -> QuantisedLayer:
    """The same with weights rounded, one input after the other, so that errors of outputs are small together."""
    levels = rounded.quantised(values) - rounded.zeros.astype(np.float64)
    products = levels.T @ levels
    exact = layer.weight / (rounded.per_unit * rounded.worth[:, None].astype(np.float64))
    weight = rounded.weight.astype(np.float64)
    for _ in range(SWEEPS):
        for i in np.flatnonzero(products.diagonal() > 0.0):
            others = (exact - weight) @ products[i] - (exact[:, i] - weight[:, i]) * products[i, i]
            best = np.clip(np.round(exact[:, i] + others / products[i, i]), -127, 127)
            weight[:, i] = np.where(exact[:, i] == 0.0, 0.0, best)
    bias = layer.bias - rounded.worth.astype(np.float64) * (weight * rounded.zeros).sum(1)
    return dataclasses.replace(rounded, weight=weight.astype(np.int8), bias=bias.astype(np.float32))


def normalised(layer: Layer | QuantisedLayer, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values after the layer's normalisation, if it has one; shape (n, outputs)."""
    if layer.scale is None or layer.shift is None:
        return values
    centred = values - values.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * layer.scale + layer.shift


def outputs(layers: Sequence[QuantisedLayer], inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Outputs of the quantised network; shape (n, outputs)."""
    *hidden, last = layers
    for layer in hidden:
        inputs = np.maximum(layer(inputs), np.float32(0.0))
    return last(inputs)
