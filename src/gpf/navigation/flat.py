"""A torch MLP in flat memory, which compiled code reads and writes while torch trains the same numbers.

One network, two executors: the torch parameters become views of the flat arrays, so nothing is ever copied between
the two.
"""

import copy
import math
from typing import Any, cast

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from gpf.network import MLP
from gpf.plume.kernels import Record

LAYER = np.dtype(
    [(name, np.uint64) for name in ("inputs", "weight", "bias", "scale", "shift")]  # unsigned: no wrap-around tests
    + [(name, np.int64) for name in ("outputs", "normalised", "trainable", "masked", "steps")]
)
"""One layer in flat memory: its sizes, where its weights and biases begin (and scale and shift, if it is normalised),
and its number of updates."""

BLOCK = np.dtype(
    [(name, np.uint64) for name in ("first", "first_bias", "second", "second_bias", "out", "out_bias")]
    + [(name, np.int64) for name in ("units", "gru")]
)
"""One recurrent block in flat memory: where its maps begin, its units, and whether it is a GRU or a minimal one. The
first two maps are those to gates and candidates or, of a GRU, that of the input to both and that of the state."""

FAST = {"reassoc", "contract", "nsz"}
"""Freedoms that let sums vectorise."""

_FADED = np.float32(1e-30)
"""Adam moments below this are taken as zero; at a rate of 1e-3 they would move a weight by less than 1e-24."""


class FlatNetwork:
    """An MLP, and its Adam state if its optimizer is given, in flat arrays that torch shares from then on.

    Make a new one after every event that changes the network.

    Attributes:
        blocks: Recurrent blocks between the first layer and the last; an MLP has none.
        state_size: How many numbers it remembers from one step to the next.
    """

    blocks: NDArray[np.void] = np.zeros(0, BLOCK)
    state_size: int = 0
    first: NDArray[np.float32]
    second: NDArray[np.float32]
    keep: NDArray[np.float32]

    def __init__(self, model: MLP, optimizer: torch.optim.Adam | None = None) -> None:
        blocks = [_parts(block) for block in model.layers] + [(model.head, None)]
        members = set() if optimizer is None else {id(p) for group in optimizer.param_groups for p in group["params"]}
        size = sum(p.numel() for p in model.parameters())
        memory = torch.zeros(1 if optimizer is None else 4, size)
        self.values: NDArray[np.float32] = memory[0].numpy()
        if optimizer is not None:
            self.first, self.second, self.keep = memory[1:].numpy()
        self.layers: NDArray[np.void] = np.zeros(len(blocks), LAYER)
        self._steps: list[list[torch.Tensor]] = []
        self._adopted: list[tuple[nn.Parameter, torch.Tensor]] = []
        offset = 0
        for layer, (linear, norm) in zip(self.layers, blocks, strict=True):
            layer["inputs"], layer["outputs"] = linear.in_features, linear.out_features
            layer["trainable"] = id(linear.weight) in members
            layer["normalised"] = norm is not None
            self._steps.append([])
            named = [("weight", linear.weight), ("bias", linear.bias)]
            if norm is not None:
                named += [("scale", norm.weight), ("shift", norm.bias)]
            for name, parameter in named:
                layer[name] = offset
                share = slice(offset, offset + parameter.numel())
                offset = share.stop
                self._adopt(parameter, memory[:, share], optimizer, layer)
        self.width: int = max(int(self.layers["outputs"].max()), int(self.layers["inputs"].max()))

    def _adopt(
        self, parameter: torch.Tensor, memory: torch.Tensor, optimizer: torch.optim.Adam | None, layer: Any
    ) -> None:
        """Move a parameter and its moments into flat memory."""
        values = memory[0].view_as(parameter)
        values.copy_(parameter.detach())
        parameter.data = values
        self._adopted.append((cast(nn.Parameter, parameter), memory))
        if optimizer is None:
            return
        first, second, keep = (row.view_as(parameter) for row in memory[1:])
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

    def with_values(self, values: NDArray[np.float32]) -> "FlatNetwork":
        """The same network with other values, which torch does not see."""
        other = copy.copy(self)
        other.values = values
        return other

    def activations(self, count: int = 1) -> NDArray[np.float32]:
        """Memory for the outputs of all layers, row 0 being the input, `count` times."""
        return np.zeros((count, len(self.layers) + 1, self.width), np.float32)

    def mask(self, pruned: dict[int, NDArray[np.bool_]]) -> None:
        """Keep these weights, by layer, at zero."""
        for index, mask in pruned.items():
            layer = self.layers[index]
            self.keep[int(layer["weight"]) : int(layer["weight"]) + mask.size] = ~mask.ravel()
            layer["masked"] = 1

    def mask_parameters(self, masks: dict[nn.Parameter, torch.Tensor]) -> None:
        """Keep at zero, from now on, what has 0 in the mask of its parameter, and nothing else."""
        for parameter, memory in self._adopted:
            mask = masks.get(parameter)
            memory[3] = 1.0 if mask is None else mask.flatten()

    def is_shared(self, optimizer: torch.optim.Adam) -> bool:
        """Whether torch's parameters and the optimizer's state still are this memory, and the same layers learn."""
        members = {p for group in optimizer.param_groups for p in group["params"]}
        steps = iter([step for layer in self._steps for step in layer])
        for parameter, memory in self._adopted:
            if parameter.data_ptr() != memory[0].data_ptr():
                return False
            if parameter not in members:
                continue
            state = optimizer.state.get(parameter, {})
            parts = [state[name].data_ptr() for name in ("exp_avg", "exp_avg_sq") if name in state]
            if parts != [memory[1].data_ptr(), memory[2].data_ptr()] or state["step"] is not next(steps, None):
                return False
        return next(steps, None) is None

    def read_steps(self) -> None:
        """Take over the torch optimizer's numbers of updates."""
        for layer, steps in zip(self.layers, self._steps, strict=True):
            if steps:
                layer["steps"] = int(steps[0])

    def write_steps(self) -> None:
        """Tell the torch optimizer how many updates there were."""
        for layer, steps in zip(self.layers, self._steps, strict=True):
            for tensor in steps:
                tensor.fill_(float(layer["steps"]))


def _parts(block: nn.Module) -> tuple[nn.Linear, nn.LayerNorm | None]:
    """The linear map of a hidden layer and its normalisation, if any."""
    match list(block.children()):
        case [nn.Linear() as linear, nn.ReLU()]:
            return linear, None
        case [nn.Linear() as linear, nn.LayerNorm() as norm, nn.ReLU()]:
            return linear, norm
    raise ValueError("the model's hidden layers must be those of gpf.MLP: Linear, perhaps LayerNorm, ReLU")


@njit(error_model="numpy", fastmath=FAST)
def forward(layers: NDArray[np.void], values: NDArray[np.float32], activations: NDArray[np.float32]) -> None:
    """Write every layer's output for the input in row 0; the last row's first entries are the network's outputs."""
    last = len(layers) - 1
    for n in range(last + 1):
        layer, out, previous = layers[n], activations[n + 1], activations[n]
        for j in range(layer.outputs):
            row = layer.weight + np.uint64(j) * layer.inputs
            total = values[layer.bias + np.uint64(j)]
            for i in range(layer.inputs):
                total += values[row + i] * previous[i]
            out[j] = total
        if layer.normalised:
            _normalise(layer, values, out)
        if n < last:
            for j in range(layer.outputs):
                out[j] = max(out[j], np.float32(0.0))


@njit(error_model="numpy", fastmath=FAST)
def _normalise(layer: Record, values: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    mean = square = np.float32(0.0)
    for j in range(layer.outputs):
        mean += out[j]
    mean /= np.float32(layer.outputs)
    for j in range(layer.outputs):
        square += (out[j] - mean) * (out[j] - mean)
    root = np.float32(1.0) / np.sqrt(square / np.float32(layer.outputs) + np.float32(1e-5))
    for j in range(layer.outputs):
        k = np.uint64(j)
        out[j] = (out[j] - mean) * root * values[layer.scale + k] + values[layer.shift + k]


@njit(error_model="numpy")
def adam_settings(
    steps: int, scale: float, rate: float, beta1: float, beta2: float, epsilon: float
) -> tuple[np.float32, ...]:
    """The arguments of `descend` for the step of this number: the factor of the gradient, the step size, and so on."""
    return (
        np.float32(scale), np.float32(rate / (1.0 - beta1**steps)), np.float32(1.0 / math.sqrt(1.0 - beta2**steps)),
        np.float32(epsilon), np.float32(1.0 - beta1), np.float32(1.0 - beta2),
    )  # fmt: skip


compiled: Any = njit(error_model="numpy", fastmath=FAST)
"""Compile a function whose sums may be reordered."""


@compiled
def descend(values, first, second, start, count, gradient, settings):
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
