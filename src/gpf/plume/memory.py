"""Memory features: a robot's knowledge of its recent past, as numbers for a network.

A single reading says little: the right move depends on how long ago the last whiff was, where, and what the wind has
been doing since. These features are made of the raw observation alone (two readings, wind, heading) and of the agent's
own stride; the true position, the source and the filaments do not enter. Positions are dead reckoning.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device, kernel

WHIFF = 4e-3
"""Lowest reading that memory counts as a whiff: four standard deviations of the presets' noise."""
NOISE_MARGIN = 4.0
"""Standard deviations of a louder noise that a whiff must exceed. Three, where the tokens draw their first line, are
crossed by noise alone several times in an episode; two, every 20 steps, and each time memory forgets where and when the
plume was last met."""
WIND_SMOOTHING = 0.03
"""Share of the instantaneous wind in the smoothed one, per step."""
LONG_AGO = 1000.0
"""Steps since the last whiff where there has been none."""
SIDE_SMOOTHING = 0.2
"""Share of the current whiff in the side from which whiffs come."""

FEATURES: dict[str, tuple[str, ...]] = {
    "difference": ("difference",),
    "whiff": ("whiff",),
    "time since whiff": ("since_10", "since_50", "since_200"),
    "side": ("side",),
    "place of whiff": ("whiff_across", "whiff_upwind"),
    "wind": ("wind_ahead", "wind_left"),
    "smoothed wind": ("mean_wind_ahead", "mean_wind_left"),
    "ever met": ("met",),
    "clock": ("clock",),
    "searched": ("searched_left", "searched_right"),
}
"""The features by group, in the order in which they are written."""
NAMES: tuple[str, ...] = tuple(name for group in FEATURES.values() for name in group)
MEMORY_SIZE = len(NAMES)

MEMORY = np.dtype(
    [(name, np.float64) for name in ("whiff", "x", "y", "wind_x", "wind_y", "since", "side", "met", "left", "right")]
    + [("age", np.int64)]
)
"""Memory of a lane: the reading above which there is a whiff, the place by dead reckoning from the last
whiff (or the start), the smoothed direction that the wind comes from, steps since the last whiff, the side from which
whiffs come, whether there was one, how far to the left and to the right of it the agent has been, across the wind, in
metres, and steps since the start. A negative age marks an empty memory; only the threshold is set."""


def whiff_threshold(noise: float | NDArray[np.float64]) -> Any:
    """The reading above which there is a whiff, for sensors whose noise has this standard deviation."""
    return np.maximum(WHIFF, NOISE_MARGIN * noise)


def blank_memories(count: int, noise: float | NDArray[np.float64]) -> NDArray[Any]:
    """Memories of lanes before their first step, for sensors whose noise has this standard deviation.

    A robot is calibrated once: a noise that changes later, as in a stream of regimes, leaves the threshold unchanged.
    """
    memories = np.zeros(count, MEMORY)
    memories["whiff"] = whiff_threshold(noise)
    memories["age"] = -1
    return memories


@device
def remember(m: Record, stride: float, max_steps: float, raw: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Record an observation, and write the features."""
    left, right, direction, heading = raw[0], raw[1], raw[3], raw[4]
    from_x, from_y = -math.cos(direction), -math.sin(direction)
    m.age += 1
    if m.age == 0:
        m.x = m.y = m.side = m.met = m.left = m.right = 0.0
        m.since = LONG_AGO
        m.wind_x, m.wind_y = from_x, from_y
    else:
        m.x += stride * math.cos(heading)
        m.y += stride * math.sin(heading)
    m.wind_x += WIND_SMOOTHING * (from_x - m.wind_x)
    m.wind_y += WIND_SMOOTHING * (from_y - m.wind_y)
    m.since += 1.0
    whiff = max(left, right) > m.whiff
    if whiff:
        m.since = m.x = m.y = m.left = m.right = 0.0
        m.met = 1.0
        m.side += SIDE_SMOOTHING * ((1.0 if left > right else -1.0) - m.side)
    length = math.hypot(m.wind_x, m.wind_y)
    c, s = (m.wind_x / length, m.wind_y / length) if length > 0.0 else (1.0, 0.0)
    ch, sh = math.cos(heading), math.sin(heading)
    out[0] = (left - right) / (left + right + 3e-3)
    out[1] = 1.0 if whiff else 0.0
    out[2] = math.exp(-m.since / 10.0)
    out[3] = math.exp(-m.since / 50.0)
    out[4] = math.exp(-m.since / 200.0)
    out[5] = m.side
    across = m.y * c - m.x * s
    m.left, m.right = max(m.left, across), max(m.right, -across)
    out[6] = across / 3.0
    out[7] = (m.x * c + m.y * s) / 3.0
    out[8] = from_x * ch + from_y * sh
    out[9] = from_y * ch - from_x * sh
    out[10] = c * ch + s * sh
    out[11] = s * ch - c * sh
    out[12] = m.met
    out[13] = m.age / max_steps
    out[14] = m.left / 3.0
    out[15] = m.right / 3.0


@kernel
def _remember_lanes(indices, memories, strides, max_steps, raw, features):
    for n in range(len(indices)):
        i = indices[n]
        remember(memories[i], strides[i], max_steps[i], raw[i], features[i])


def memory_bounds(rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The minimum and maximum of each feature, in worlds of these scenarios."""
    low, high = np.full(MEMORY_SIZE, -1.0, np.float32), np.full(MEMORY_SIZE, 1.0, np.float32)
    walk = float(max(rows["stride"] * rows["max_steps"])) / 3.0
    for name in (*FEATURES["place of whiff"], *FEATURES["searched"]):
        low[NAMES.index(name)], high[NAMES.index(name)] = -walk, walk
    for group in ("whiff", "time since whiff", "ever met", "clock", "searched"):
        for name in FEATURES[group]:
            low[NAMES.index(name)] = 0.0
    slack = np.float32(1e-5)  # sines and cosines round
    return low - slack, high + slack


class Memory:
    """The memories of many lanes; what counts as a whiff depends on the noise that their scenarios have at first.

    Attributes:
        features: float32, shape (lanes, 16), as of the last update; written in place.
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows
        self.memories: NDArray[np.void] = blank_memories(len(rows), rows["sensor_noise"])
        self.features: NDArray[np.float32] = np.zeros((len(rows), MEMORY_SIZE), np.float32)
        self._everyone = np.arange(len(rows))

    def forget(self, indices: NDArray[np.int64] | None = None) -> None:
        """Restart in all lanes, or in those of `indices`."""
        self.memories["age"][self._everyone if indices is None else indices] = -1

    def update(self, raw: NDArray[np.float32], indices: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Record new observations, in all lanes or in those of `indices`; returns all lanes' features."""
        lanes = self._everyone if indices is None else indices
        _remember_lanes(lanes, self.memories, self.rows["stride"], self.rows["max_steps"], raw, self.features)
        return self.features
