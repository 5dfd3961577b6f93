"""From a desired heading to the action that turns there."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import device
from gpf.plume.physics import wrap


@device
def steer(turn: float, turns: NDArray[np.float64]) -> int:
    """The action whose turn comes closest to the one that is wanted, rad."""
    best, error = 0, math.inf
    for action in range(len(turns)):
        off = abs(wrap(turn - turns[action]))
        if off < error:
            best, error = action, off
    return best
