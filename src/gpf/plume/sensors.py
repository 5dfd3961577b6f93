"""What the agent's antennae read."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.kernels import Record
from gpf.plume.physics import concentrations
from gpf.plume.rng import normal


@njit(error_model="numpy")
def sense(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """Read both antennae: concentration times gain, plus noise, clipped to what the sensor can show."""
    ahead_x, ahead_y = math.cos(lane.heading), math.sin(lane.heading)
    x = lane.x + p.antenna_forward * ahead_x
    y = lane.y + p.antenna_forward * ahead_y
    side_x, side_y = -p.antenna_left * ahead_y, p.antenna_left * ahead_x  # from the middle to the left antenna
    left, right = concentrations(p, lane, filaments, x + side_x, y + side_y, x - side_x, y - side_y, scratch)
    lane.left = min(max(p.left_gain * left + p.sensor_noise * normal(stream), 0.0), p.sensor_saturation)
    lane.right = min(max(p.right_gain * right + p.sensor_noise * normal(stream), 0.0), p.sensor_saturation)
