"""Network inputs: memory features, or the paper's one-hot tokens."""

import math
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.kernels import Record
from gpf.plume.memory import FEATURES, MEMORY_SIZE, NAMES, remember
from gpf.plume.scenario import LEVELS
from gpf.plume.tokens import ONEHOT_SIZE

Observation = Literal["memory", "onehot"]
"""`memory` is 16 features of the recent past, `onehot` the paper's 22 zeros and ones."""
RecurrentObservation = Literal["onehot", "raw"]
"""Inputs of a network that has a memory of its own: `onehot`, or `raw`, the readings, wind and heading."""
RAW_SIZE = 7
INPUTS = {"onehot": ONEHOT_SIZE, "memory": MEMORY_SIZE, "raw": RAW_SIZE}
"""Number of network inputs of each kind of observation."""
SEES_ONEHOT, SEES_MEMORY, SEES_RAW = range(3)
SEES = {"onehot": SEES_ONEHOT, "memory": SEES_MEMORY, "raw": SEES_RAW}
"""The same kinds as compiled code knows them."""
FAINT = 1e-2
"""Reading around which the logarithmic scale of raw readings begins."""


def kept_inputs(observation: str, without: tuple[str, ...] = ()) -> NDArray[np.float32]:
    """1 for the inputs that a network sees, 0 for those of the groups of features that it must do `without`."""
    keep = np.ones(INPUTS[observation], np.float32)
    for group in without:
        if observation != "memory":
            raise ValueError(f"without needs observation memory, got {group!r} with {observation}")
        if group not in FEATURES:
            raise ValueError(f"without must be groups of features ({', '.join(FEATURES)}), got {group!r}")
        keep[[NAMES.index(name) for name in FEATURES[group]]] = 0.0
    return keep


@njit(error_model="numpy")
def write_inputs(
    sees: int,
    keep: NDArray[np.float32],
    p: Record,
    tokens: NDArray[np.int64],
    raw: NDArray[np.float32],
    memory: Record,
    out: NDArray[np.float32],
) -> None:
    """Write a lane's observation as the network sees it."""
    if sees == SEES_MEMORY:
        remember(memory, p.stride, p.max_steps, raw, out)
    elif sees == SEES_RAW:
        _write_raw(raw, out)
    else:
        for i in range(ONEHOT_SIZE):
            out[i] = np.float32(0.0)
        out[tokens[0]] = out[LEVELS + tokens[1]] = out[2 * LEVELS + tokens[2]] = np.float32(1.0)
    for i in range(len(keep)):
        out[i] *= keep[i]


@njit(error_model="numpy")
def _write_raw(raw: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Readings on a logarithmic scale; wind speed, m/s; where the wind comes from, as the heading sees it; heading."""
    out[0] = math.log1p(max(raw[0], np.float32(0.0)) / FAINT)
    out[1] = math.log1p(max(raw[1], np.float32(0.0)) / FAINT)
    out[2] = raw[2]
    out[3] = -math.cos(raw[3] - raw[4])
    out[4] = -math.sin(raw[3] - raw[4])
    out[5] = math.cos(raw[4])
    out[6] = math.sin(raw[4])
