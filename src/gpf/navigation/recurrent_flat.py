"""A recurrent network in flat memory: compiled code steps it lane by lane while torch trains the same numbers."""

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.flat import BLOCK, FAST, LAYER, FlatNetwork
from gpf.navigation.recurrent_network import GRUBlock, MinimalGRUBlock, RecurrentNetwork
from gpf.plume.kernels import Record

_INPUT, _X, _RECTIFIED, _FIRST, _SECOND, _OUTPUT, _ROWS = range(7)
"""Rows of the memory for activations: the observation, the residual stream, the same rectified, what the two maps of a
block say, the outputs."""


class FlatRecurrent(FlatNetwork):
    """A `RecurrentNetwork` in a flat array that torch shares from then on.

    Make a new one after every event that changes the network.

    Attributes:
        layers: The encoder and the head.
        blocks: The recurrent blocks between them.
    """

    def __init__(self, model: RecurrentNetwork) -> None:
        self._model = list(model.blocks)
        memory = torch.zeros(sum(p.numel() for p in model.parameters()))
        self.values: NDArray[np.float32] = memory.numpy()
        places: dict[int, int] = {}
        offset = 0
        for parameter in model.parameters():
            places[id(parameter)] = offset
            share = memory[offset : offset + parameter.numel()].view_as(parameter)
            share.copy_(parameter.detach())
            parameter.data = share
            offset += parameter.numel()
        self.layers: NDArray[np.void] = np.zeros(2, LAYER)
        for layer, linear in zip(self.layers, (model.encoder, model.head), strict=True):
            layer["inputs"], layer["outputs"] = linear.in_features, linear.out_features
            layer["weight"], layer["bias"] = places[id(linear.weight)], places[id(linear.bias)]
        self.blocks: NDArray[np.void] = np.zeros(len(model.layers), BLOCK)
        for flat, block in zip(self.blocks, model.blocks, strict=True):
            flat["gru"] = isinstance(block, GRUBlock)
            flat["units"] = block.units
            for name, linear in zip(("first", "second", "out"), _maps(block), strict=True):
                flat[name], flat[f"{name}_bias"] = places[id(linear.weight)], places[id(linear.bias)]
        self.state_size: int = int(self.blocks["units"].sum())
        self.width: int = max(int(self.layers["inputs"].max()), int(self.layers["outputs"].max()))
        self._longest = max(self.width, 3 * int(self.blocks["units"].max()))

    def activations(self, count: int = 1) -> NDArray[np.float32]:
        """Memory for what is computed in a step, row 0 being the input, `count` times."""
        return np.zeros((count, _ROWS, self._longest), np.float32)

    def carried(self, before: "FlatNetwork", states: NDArray[np.float32]) -> NDArray[np.float32]:
        """What lanes remember, in the last axis, where this network takes over from another one.

        New blocks remember nothing. Of a block that has lost units, those that are left keep their memory.
        """
        assert isinstance(before, FlatRecurrent)
        held = dict(zip(map(id, before._model), _split(states, before.blocks["units"]), strict=True))
        old = dict(zip(map(id, before._model), before.blocks, strict=True))
        parts = []
        for block, flat in zip(self._model, self.blocks, strict=True):
            part = held.get(id(block))
            if part is None:
                part = np.zeros((*states.shape[:-1], flat["units"]), np.float32)
            elif part.shape[-1] != flat["units"]:
                part = part[..., _left(before._rows(old[id(block)]), self._rows(flat))]
            parts.append(part)
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def _rows(self, block: Any) -> NDArray[np.float32]:
        """The weights into each unit's gate."""
        width = int(self.layers[-1]["inputs"])
        start = int(block["first"])
        return self.values[start : start + int(block["units"]) * width].reshape(-1, width)


def _maps(block: MinimalGRUBlock | GRUBlock) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    if isinstance(block, GRUBlock):
        return block.input, block.recurrent, block.out
    return block.gate, block.candidate, block.out


def _split(states: NDArray[np.float32], units: NDArray[np.int64]) -> list[NDArray[np.float32]]:
    return np.split(states, np.cumsum(units)[:-1], axis=-1)


def _left(before: NDArray[np.float32], after: NDArray[np.float32]) -> list[int]:
    """Which rows are left; their order is kept."""
    places, place = [], 0
    for row in after:
        while not np.array_equal(before[place], row):
            place += 1
        places.append(place)
        place += 1
    return places


@njit(error_model="numpy")
def advance(
    layers: NDArray[np.void],
    blocks: NDArray[np.void],
    values: NDArray[np.float32],
    activations: NDArray[np.float32],
    state: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Take a step: the input is in row 0; writes what is remembered after it, and the network's outputs."""
    encoder, head = layers[0], layers[1]
    width = encoder.outputs
    x, rectified, said = activations[_X], activations[_RECTIFIED], activations[_OUTPUT]
    _affine(values, encoder.weight, encoder.bias, width, encoder.inputs, activations[_INPUT], x)
    start = 0
    for n in range(len(blocks)):
        block = blocks[n]
        memory = state[start : start + block.units]
        start += block.units
        _rectify(width, x, rectified)
        if block.gru:
            _remember_gated(block, values, width, rectified, activations[_FIRST], activations[_SECOND], memory)
        else:
            _remember(block, values, width, rectified, activations[_FIRST], activations[_SECOND], memory)
        _affine(values, block.out, block.out_bias, width, np.uint64(block.units), memory, said)
        for j in range(width):
            x[j] += said[j]
    _rectify(width, x, rectified)
    _affine(values, head.weight, head.bias, head.outputs, head.inputs, rectified, out)


@njit(error_model="numpy")
def _remember(
    block: Record,
    values: NDArray[np.float32],
    width: int,
    inputs: NDArray[np.float32],
    gates: NDArray[np.float32],
    candidates: NDArray[np.float32],
    memory: NDArray[np.float32],
) -> None:
    """A minimal GRU."""
    _affine(values, block.first, block.first_bias, block.units, np.uint64(width), inputs, gates)
    _affine(values, block.second, block.second_bias, block.units, np.uint64(width), inputs, candidates)
    for k in range(block.units):
        memory[k] += (candidates[k] - memory[k]) / (np.float32(1.0) + np.exp(-gates[k]))


@njit(error_model="numpy")
def _remember_gated(
    block: Record,
    values: NDArray[np.float32],
    width: int,
    inputs: NDArray[np.float32],
    given: NDArray[np.float32],
    spoken: NDArray[np.float32],
    memory: NDArray[np.float32],
) -> None:
    """A GRU."""
    one, units = np.float32(1.0), block.units
    _affine(values, block.first, block.first_bias, 3 * units, np.uint64(width), inputs, given)
    _affine(values, block.second, block.second_bias, 3 * units, np.uint64(units), memory, spoken)
    for k in range(units):
        reset = one / (one + np.exp(-(given[k] + spoken[k])))
        update = one / (one + np.exp(-(given[units + k] + spoken[units + k])))
        candidate = np.tanh(given[2 * units + k] + reset * spoken[2 * units + k])
        memory[k] = candidate + update * (memory[k] - candidate)


@njit(error_model="numpy")
def _rectify(width: int, source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    for j in range(width):
        target[j] = max(source[j], np.float32(0.0))


@njit(error_model="numpy", fastmath=FAST)
def _affine(
    values: NDArray[np.float32],
    weight: np.uint64,
    bias: np.uint64,
    outputs: int,
    inputs: np.uint64,
    source: NDArray[np.float32],
    target: NDArray[np.float32],
) -> None:
    for j in range(outputs):
        row = weight + np.uint64(j) * inputs
        total = values[bias + np.uint64(j)]
        for i in range(inputs):
            total += values[row + i] * source[i]
        target[j] = total
