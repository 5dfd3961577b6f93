"""The raw observation that the newest messages make, as navigators see it in `gpf.plume`."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.edge.robot.messages import Gas, Odometry, Wind

_PI = float(np.float32(math.pi))
"""A little more than pi; angles that environments give have been rounded to float32."""


def observation(gas: Gas, wind: Wind, odometry: Odometry) -> NDArray[np.float32]:
    """The columns of `gpf.plume.world.RAW`, shape (8,)."""
    direction = wind.direction + (odometry.heading if wind.frame == "robot" else 0.0)
    return np.array(
        [
            gas.left,
            gas.right,
            wind.speed,
            wrapped(direction),
            wrapped(odometry.heading),
            odometry.bumped,
            gas.second_left or 0.0,
            gas.second_right or 0.0,
        ],
        np.float32,
    )


def wrapped(angle: float) -> float:
    """The angle in [-pi, pi); one that is there already keeps its bits."""
    return angle if abs(angle) <= _PI else angle - 2.0 * math.pi * math.floor(angle / (2.0 * math.pi) + 0.5)
