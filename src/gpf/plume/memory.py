"""Observation with memory: what a robot can know of its recent past, as numbers for a network.

A single reading says little: the right move depends on how long ago the last whiff was, where, and what the wind has
been doing since. These features are made of the raw observation alone (two readings, wind, heading) and of the agent's
own stride; the true position, the source and the filaments do not enter. Positions are dead reckoning.
"""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.kernels import kernel

WHIFF = 4e-3
"""Reading above which memory takes note of a whiff: four standard deviations of the noise. Three, where the tokens
draw their first line, is crossed by noise alone several times in an episode."""
WIND_SMOOTHING = 0.03
"""Share of the instantaneous wind in the smoothed one, per step."""
RATE_SMOOTHING = 0.1
"""Share of the current step in the rate of whiffs."""
SIDE_SMOOTHING = 0.2
"""Share of the current whiff in the side from which whiffs come."""

FEATURES = {
    "readings": ("left", "right"),
    "difference": ("difference",),
    "whiff": ("whiff",),
    "whiff rate": ("whiff_rate",),
    "time since whiff": ("since_10", "since_50", "since_200"),
    "ever met": ("met",),
    "side": ("side",),
    "place of whiff": ("whiff_across", "whiff_upwind"),
    "place of start": ("start_across", "start_upwind"),
    "smoothed wind": ("mean_wind_ahead", "mean_wind_left"),
    "wind": ("wind_ahead", "wind_left"),
    "wind speed": ("wind_speed",),
    "clock": ("clock",),
}
"""The features by group, in the order in which they are written."""
NAMES = tuple(name for group in FEATURES.values() for name in group)
MEMORY_SIZE = len(NAMES)

MEMORY = np.dtype(
    [
        (name, np.float64)
        for name in ("x", "y", "whiff_x", "whiff_y", "wind_x", "wind_y", "since", "met", "side", "rate")
    ]
    + [("age", np.int64)]
)
"""What is remembered in a lane: positions by dead reckoning from the start, the smoothed direction that the wind comes
from, steps since the last whiff, and averages. An age below 0 means that nothing is."""


@njit(error_model="numpy")
def remember(m, stride, max_steps, raw, out):
    """Take note of an observation, and write the features."""
    left, right, speed, direction, heading = raw[0], raw[1], raw[2], raw[3], raw[4]
    from_x, from_y = -math.cos(direction), -math.sin(direction)
    m.age += 1
    if m.age == 0:
        m.x = m.y = m.whiff_x = m.whiff_y = m.met = m.side = m.rate = 0.0
        m.since = 1e3
        m.wind_x, m.wind_y = from_x, from_y
    else:
        m.x += stride * math.cos(heading)
        m.y += stride * math.sin(heading)
    m.wind_x += WIND_SMOOTHING * (from_x - m.wind_x)
    m.wind_y += WIND_SMOOTHING * (from_y - m.wind_y)
    m.since += 1.0
    whiff = max(left, right) > WHIFF
    if whiff:
        m.since, m.met = 0.0, 1.0
        m.whiff_x, m.whiff_y = m.x, m.y
        m.side += SIDE_SMOOTHING * ((1.0 if left > right else -1.0) - m.side)
    m.rate += RATE_SMOOTHING * ((1.0 if whiff else 0.0) - m.rate)
    length = math.hypot(m.wind_x, m.wind_y)
    c, s = (m.wind_x / length, m.wind_y / length) if length > 0.0 else (1.0, 0.0)
    ch, sh = math.cos(heading), math.sin(heading)
    out[0] = math.log1p(left / 3e-3) / 4.0
    out[1] = math.log1p(right / 3e-3) / 4.0
    out[2] = (left - right) / (left + right + 3e-3)
    out[3] = 1.0 if whiff else 0.0
    out[4] = m.rate
    out[5] = math.exp(-m.since / 10.0)
    out[6] = math.exp(-m.since / 50.0)
    out[7] = math.exp(-m.since / 200.0)
    out[8] = m.met
    out[9] = m.side
    x, y = m.x - m.whiff_x, m.y - m.whiff_y
    out[10] = (y * c - x * s) / 3.0
    out[11] = (x * c + y * s) / 3.0
    out[12] = (m.y * c - m.x * s) / 5.0
    out[13] = (m.x * c + m.y * s) / 5.0
    out[14] = c * ch + s * sh
    out[15] = s * ch - c * sh
    out[16] = from_x * ch + from_y * sh
    out[17] = from_y * ch - from_x * sh
    out[18] = speed
    out[19] = m.age / max_steps


@kernel
def _remember_lanes(indices, memories, strides, max_steps, raw, features):
    for n in range(len(indices)):
        i = indices[n]
        remember(memories[i], strides[i], max_steps[i], raw[i], features[i])


def memory_bounds(rows: NDArray[Any], fastest_wind: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The least and the greatest value of each feature, in worlds of these scenarios."""
    low, high = np.full(MEMORY_SIZE, -1.0, np.float32), np.full(MEMORY_SIZE, 1.0, np.float32)
    reading = math.log1p(float(max(rows["sensor_saturation"])) / 3e-3) / 4.0
    walk = float(max(rows["stride"] * rows["max_steps"]))
    extents = {"left": reading, "right": reading, "wind_speed": fastest_wind}
    extents |= dict.fromkeys(FEATURES["place of whiff"], walk / 3.0)
    extents |= dict.fromkeys(FEATURES["place of start"], walk / 5.0)
    for name, extent in extents.items():
        high[NAMES.index(name)] = extent
        low[NAMES.index(name)] = -extent
    for name in (
        "left",
        "right",
        "whiff",
        "whiff_rate",
        "since_10",
        "since_50",
        "since_200",
        "met",
        "wind_speed",
        "clock",
    ):
        low[NAMES.index(name)] = 0.0
    slack = np.float32(1e-5)  # sines and cosines round
    return low - slack, high + slack


class Memory:
    """The memories of many lanes.

    Attributes:
        features: float32, shape (lanes, 20), as of the last update; written in place.
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows
        self.memories = np.zeros(len(rows), MEMORY)
        self.memories["age"] = -1
        self.features = np.zeros((len(rows), MEMORY_SIZE), np.float32)
        self._everyone = np.arange(len(rows))

    def forget(self, indices: NDArray[np.int64] | None = None) -> None:
        """Begin anew in all lanes, or in those of `indices`."""
        self.memories["age"][self._everyone if indices is None else indices] = -1

    def update(self, raw: NDArray[np.float32], indices: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Take note of new observations, in all lanes or in those of `indices`; returns all lanes' features."""
        lanes = self._everyone if indices is None else indices
        _remember_lanes(lanes, self.memories, self.rows["stride"], self.rows["max_steps"], raw, self.features)
        return self.features
