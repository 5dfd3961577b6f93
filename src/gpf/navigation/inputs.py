"""What a network sees of an observation: features of memory, or the paper's one-hot tokens."""

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
INPUTS = {"onehot": ONEHOT_SIZE, "memory": MEMORY_SIZE}
"""Number of network inputs of each kind of observation."""


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
    remembers: bool,
    keep: NDArray[np.float32],
    p: Record,
    tokens: NDArray[np.int64],
    raw: NDArray[np.float32],
    memory: Record,
    out: NDArray[np.float32],
) -> None:
    """Write a lane's observation as the network sees it."""
    if remembers:
        remember(memory, p.stride, p.max_steps, raw, out)
    else:
        for i in range(ONEHOT_SIZE):
            out[i] = np.float32(0.0)
        out[tokens[0]] = out[LEVELS + tokens[1]] = out[2 * LEVELS + tokens[2]] = np.float32(1.0)
    for i in range(len(keep)):
        out[i] *= keep[i]
