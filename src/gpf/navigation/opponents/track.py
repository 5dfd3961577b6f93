"""Where an agent has been and what the wind has done since: dead reckoning, and the path that its air has taken.

Air that is at the agent now was, an age ago, where the wind since then has carried it from. If the wind is the same
everywhere, odour at the agent comes from a source on that path (Farrell et al. 2002, Pang & Farrell 2006).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.nose import NOSE, sensing_of, sniff
from gpf.plume.kernels import Record, device
from gpf.plume.scenario import Scenario

AGES = 48
"""Number of ages for which the path of the air is kept, at most."""
BEYOND = 2.0
"""How much farther from its start than the greatest start distance an agent looks for the source, m."""
_HORIZON = 1.3
"""How long air may have been on its way, in times of the mean wind over the whole range."""
_STRIDE = 0.25
"""How far the agent goes between two observations of its belief, m."""

TRACK = np.dtype(
    [(name, np.float64) for name in ("x", "y", "carried_x", "carried_y", "wind_x", "wind_y", "bumped", "blocked")]
    + [(name, np.int64) for name in ("step", "whiffs", "observations")]
    + [("nose", NOSE)],
    align=True,
)
"""What is remembered of a lane's walk: the place from the start, m; how far the wind has carried air, m; the smoothed
wind, m/s; the heading in which a wall stopped the agent, and for how many steps that is avoided; steps since the start;
steps with a whiff since the last observation; and observations so far."""


@dataclass(frozen=True)
class Pace:
    """How often an agent observes and decides, and how far back it looks."""

    interval: int
    """Steps between two observations."""
    ages: int
    """Number of ages for which the path of the air is known."""
    spacing: int
    """Observations between two ages."""
    duration: float
    """Time between two ages, s."""
    radius: float
    """How far from its start an agent looks for the source, m."""

    @classmethod
    def of(cls, scenario: Scenario) -> "Pace":
        """The pace of a scenario: an observation every quarter of a metre."""
        stride = max(scenario.speed * scenario.time_step, 1e-9)
        interval = int(min(max(round(_STRIDE / stride), 1), 50))
        radius = scenario.start_distance_max + BEYOND
        crossing = _HORIZON * radius / max(scenario.wind_speed, scenario.wind_speed_floor, 0.05)
        horizon = min(crossing, scenario.filament_lifetime)
        count = max(1, math.ceil(horizon / (interval * scenario.time_step)))
        spacing = math.ceil(count / AGES)
        return cls(interval, math.ceil(count / spacing), spacing, spacing * interval * scenario.time_step, radius)


WALK = np.dtype(
    [(name, np.float64) for name in ("stride", "time_step", "duration", "smoothing")]
    + [(name, np.int64) for name in ("interval", "ages", "spacing")]
)
"""What kernels need of a pace and a scenario."""
_SMOOTHING = 2.0
"""Time constant of the smoothed wind, s."""


class Tracks:
    """The tracks of many lanes.

    Attributes:
        pace: How often they observe.
        walk, sensing, row: Records that kernels read.
        tracks: Structured array of `TRACK`, shape (lanes,).
        knots: How far the wind had carried air at the last observations, m, a ring of shape (lanes, ..., 2).
    """

    PER_LANE = ("tracks", "knots")

    def __init__(self, lanes: int, scenario: Scenario) -> None:
        self.pace: Pace = Pace.of(scenario)
        walk = np.zeros((), WALK)
        walk["stride"], walk["time_step"] = scenario.speed * scenario.time_step, scenario.time_step
        walk["smoothing"] = 1.0 - math.exp(-scenario.time_step / _SMOOTHING)
        for name in ("interval", "ages", "spacing", "duration"):
            walk[name] = getattr(self.pace, name)
        self.walk: Any = walk[()]
        self.sensing: Any
        self.row: Any
        self.sensing, self.row = sensing_of(scenario)
        self.tracks: NDArray[np.void] = np.zeros(lanes, TRACK)
        self.knots: NDArray[np.float64] = np.zeros((lanes, self.pace.ages * self.pace.spacing + 1, 2))


@device
def follow(q: Record, p: Record, walk: Record, track: Record, raw: NDArray[np.float32]) -> tuple[float, float]:
    """Take note of an observation; returns the concentrations at the left and the right antenna."""
    wind_x, wind_y = raw[2] * math.cos(raw[3]), raw[2] * math.sin(raw[3])
    if track.step == 0:
        track.wind_x, track.wind_y = wind_x, wind_y
    else:
        if raw[5] == 0.0:
            track.x += walk.stride * math.cos(raw[4])
            track.y += walk.stride * math.sin(raw[4])
        track.carried_x += walk.time_step * wind_x
        track.carried_y += walk.time_step * wind_y
    track.wind_x += walk.smoothing * (wind_x - track.wind_x)
    track.wind_y += walk.smoothing * (wind_y - track.wind_y)
    track.blocked = max(track.blocked - 1.0, 0.0)
    left, right = sniff(q, p, track.nose, raw)
    if max(left, right) > q.whiff:
        track.whiffs += 1
    track.step += 1
    return left, right


@device
def is_due(walk: Record, track: Record) -> bool:
    """Whether it is time for an observation."""
    return (track.step - 1) % walk.interval == 0


@device
def look_back(walk: Record, track: Record, knots: NDArray[np.float64], path: NDArray[np.float64]) -> None:
    """Keep how far air has been carried, and write from where it has come: for each age a displacement, m.

    What the wind did before the start is taken to be its mean since then.
    """
    now, ring = track.observations, len(knots)
    knots[now % ring, 0], knots[now % ring, 1] = track.carried_x, track.carried_y
    mean_x, mean_y = track.wind_x, track.wind_y
    if track.step > 1:
        passed = (track.step - 1) * walk.time_step
        mean_x, mean_y = track.carried_x / passed, track.carried_y / passed
    for k in range(walk.ages):
        ago = now - (k + 1) * walk.spacing
        if ago >= 0:
            path[k, 0] = track.carried_x - knots[ago % ring, 0]
            path[k, 1] = track.carried_y - knots[ago % ring, 1]
        else:
            before = -ago * walk.interval * walk.time_step
            path[k, 0] = track.carried_x + before * mean_x
            path[k, 1] = track.carried_y + before * mean_y
    track.observations += 1
