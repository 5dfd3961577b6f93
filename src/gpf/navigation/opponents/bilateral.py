"""A reactive tracker that steers by the difference between its antennae and by the wind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.nose import NOSE, sensing_of, sniff
from gpf.plume.kernels import lean_kernel
from gpf.plume.row import row_of
from gpf.plume.scenario import Scenario
from gpf.plume.steering import steer

_STATE = np.dtype(
    [(name, np.float64) for name in ("wind_x", "wind_y", "blank", "side", "leg", "since_turn")] + [("nose", NOSE)],
    align=True,
)
"""Smoothed wind, m/s; steps since the last whiff; side that the agent casts to; casts so far, and steps in this one."""


@dataclass
class Bilateral:
    """Walks upwind towards the stronger antenna in the plume, and crosswind in ever longer casts outside.

    It keeps no place: a cast ends after a time, not at a distance from where odour was.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("_states",)

    gain: float = 60.0
    """Turn from upwind towards the stronger antenna, per unit of (left - right) / (left + right), deg."""
    surge: float = 0.5
    """How long to continue upwind after a whiff, s."""
    cast: float = 3.0
    """Duration of the first cast, s."""
    growth: float = 3.0
    """By how much longer each next cast takes, s."""
    climb: float = 8.0
    """How far upwind of straight across casts point, deg."""
    smoothing: float = 1.0
    """Time constant of the smoothed wind, s."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self._states = np.zeros(len(seeds), _STATE)
        self._states["side"], self._states["blank"] = 1.0, math.inf
        step = scenario.time_step
        self._parameters = np.array(
            [math.radians(self.gain), self.surge / step, self.cast / step, self.growth / step, math.radians(self.climb),
             1.0 - math.exp(-step / self.smoothing)]
        )  # fmt: skip
        self._sensing: tuple[Any, Any] = sensing_of(scenario)
        self._turns = np.array(row_of(scenario)["turns"])

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations are those of `gpf.plume.world.RAW`."""
        _track(lanes, raw, *self._sensing, self._states, self._parameters, self._turns, actions)


@lean_kernel
def _track(lanes, raw, sensing, row, states, parameters, turns, actions):
    gain, surge, cast, growth, climb, smoothing = (
        parameters[0], parameters[1], parameters[2], parameters[3], parameters[4], parameters[5]
    )  # fmt: skip
    for n in range(len(lanes)):
        i = lanes[n]
        m = states[i]
        wind_x, wind_y = raw[i, 2] * math.cos(raw[i, 3]), raw[i, 2] * math.sin(raw[i, 3])
        if m.nose.sniffed == 0:
            m.wind_x, m.wind_y = wind_x, wind_y
        left, right = sniff(sensing, row, m.nose, raw[i])
        m.wind_x += smoothing * (wind_x - m.wind_x)
        m.wind_y += smoothing * (wind_y - m.wind_y)
        upwind = math.atan2(-m.wind_y, -m.wind_x)
        m.blank += 1.0
        if max(left, right) > sensing.whiff:
            m.blank = m.leg = m.since_turn = 0.0
            difference = (left - right) / (abs(left) + abs(right))
            if difference != 0.0:
                m.side = 1.0 if difference > 0.0 else -1.0
            goal = upwind + gain * difference
        elif m.blank <= surge:
            goal = upwind
        else:
            m.since_turn += 1.0
            if m.since_turn > cast + growth * m.leg or raw[i, 5] != 0.0:
                m.side, m.leg, m.since_turn = -m.side, m.leg + 1.0, 0.0
            goal = upwind + m.side * (0.5 * math.pi - climb)
        actions[i] = steer(goal - raw[i, 4], turns)
