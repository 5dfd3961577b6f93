"""Where an agent has been and what the wind has done since: dead reckoning, and the path that its air has taken.

Air that is at the agent now was, an age ago, where the wind since then has carried it from. If the wind is the same
everywhere, odour at the agent comes from a source on that path (Farrell et al. 2002, Pang & Farrell 2006).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

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

_DETOUR = 1.5
"""How long an agent turns aside after it has bumped into an obstacle, s."""
_ASIDE = math.radians(75.0)
"""How far it turns aside."""
_SAME_SIDE = 8.0
"""Time since the last bump within which it turns to the same side, s."""
_TILT, _PUSHES = math.radians(15.0), 8
"""To find out which wall it has met, an agent turns so much away from one of them, and tries for so many steps."""
_AWAY = 4
"""Steps for which it turns away from a wall that it knows."""
_FAR = 1e9
"""Where a wall is that has not been met, m."""

TRACK = np.dtype(
    [(name, np.float64) for name in ("x", "y", "low_x", "high_x", "low_y", "high_y")]
    + [(name, np.float64) for name in ("carried_x", "carried_y", "wind_x", "wind_y")]
    + [(name, np.float64) for name in ("aside", "side", "push_x", "push_y")]
    + [(name, np.int64) for name in ("step", "whiffs", "observations", "aside_until", "bumped")]
    + [("nose", NOSE)],
    align=True,
)
"""Memory of a lane's walk: the place from the start, and the walls of the domain that have been met, m;
how far the wind has carried air, m; the smoothed wind, m/s; the heading to get around something, its side, and the step
until which it holds; the direction of a wall that may be one of two; steps since the start; steps with a whiff since
the last observation; observations; and the step of the last bump."""


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
    + [(name, np.int64) for name in ("interval", "ages", "spacing", "obstacles")]
)
"""The kernels' parameters of a pace and a scenario."""
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

    PER_LANE: ClassVar[tuple[str, ...]] = ("tracks", "knots")

    def __init__(self, lanes: int, scenario: Scenario) -> None:
        self.pace: Pace = Pace.of(scenario)
        walk = np.zeros((), WALK)
        walk["stride"], walk["time_step"] = scenario.speed * scenario.time_step, scenario.time_step
        walk["smoothing"] = 1.0 - math.exp(-scenario.time_step / _SMOOTHING)
        for name in ("interval", "ages", "spacing", "duration"):
            walk[name] = getattr(self.pace, name)
        walk["obstacles"] = bool(scenario.obstacles or scenario.occupancy)
        self.walk: Any = walk[()]
        self.sensing: Any
        self.row: Any
        self.sensing, self.row = sensing_of(scenario)
        self.tracks: NDArray[np.void] = np.zeros(lanes, TRACK)
        self.knots: NDArray[np.float64] = np.zeros((lanes, self.pace.ages * self.pace.spacing + 1, 2))


@device
def follow(q: Record, p: Record, walk: Record, track: Record, raw: NDArray[np.float32]) -> tuple[float, float]:
    """Record an observation; returns the concentrations at the left and the right antenna."""
    wind_x, wind_y = raw[2] * math.cos(raw[3]), raw[2] * math.sin(raw[3])
    if track.step == 0:
        track.wind_x, track.wind_y = wind_x, wind_y
        track.low_x = track.low_y = -_FAR
        track.high_x = track.high_y = _FAR
    else:
        _move(walk, track, raw[4], raw[5] != 0.0)
        track.carried_x += walk.time_step * wind_x
        track.carried_y += walk.time_step * wind_y
    track.wind_x += walk.smoothing * (wind_x - track.wind_x)
    track.wind_y += walk.smoothing * (wind_y - track.wind_y)
    left, right = sniff(q, p, track.nose, raw)
    if max(left, right) > q.whiff:
        track.whiffs += 1
    track.step += 1
    return left, right


@device
def _move(walk: Record, track: Record, heading: float, bumped: bool) -> None:
    """Dead reckoning of a step. Walls of the domain are taken to be parallel to the axes; agents slide along them."""
    dx, dy = walk.stride * math.cos(heading), walk.stride * math.sin(heading)
    x, y = track.x + dx, track.y + dy
    inside = track.low_x <= x <= track.high_x and track.low_y <= y <= track.high_y
    if bumped and inside and walk.obstacles != 0:
        _turn_aside(walk, track, heading)
        return
    if track.push_x != 0.0 or track.push_y != 0.0:
        _tell_walls_apart(track, dx, dy, bumped)
        inside = track.low_x <= x <= track.high_x and track.low_y <= y <= track.high_y
    if not bumped:
        track.x, track.y = x, y
        track.low_x, track.high_x = min(track.low_x, x), max(track.high_x, x)
        track.low_y, track.high_y = min(track.low_y, y), max(track.high_y, y)
    elif not inside:
        track.x, track.y = min(max(x, track.low_x), track.high_x), min(max(y, track.low_y), track.high_y)
        _leave_wall(track, dx, dy, x != track.x, y != track.y)
    elif track.push_x == 0.0 and track.push_y == 0.0:
        _push(track, dx, dy)


@device
def _leave_wall(track: Record, dx: float, dy: float, at_x: bool, at_y: bool) -> None:
    """Turn away from a wall that is known: who slides along it does not notice the next corner."""
    if at_x and not at_y and abs(dy) > 0.1 * abs(dx):
        dx = -math.copysign(math.tan(_TILT) * dy, dx)
    elif at_y and not at_x and abs(dx) > 0.1 * abs(dy):
        dy = -math.copysign(math.tan(_TILT) * dx, dy)
    else:
        dx, dy = -dx, -dy
    track.aside = math.atan2(dy, dx)
    track.aside_until = track.step + _AWAY


@device
def _push(track: Record, dx: float, dy: float) -> None:
    """Against a wall that may be one of two, push in the main direction and a little away from the other one."""
    track.push_x, track.push_y = dx, dy
    away = 1.0 if dx * dy < 0.0 else -1.0
    if abs(dx) >= abs(dy):
        track.aside = (0.0 if dx > 0.0 else math.pi) + away * _TILT
    else:
        track.aside = math.copysign(0.5 * math.pi, dy) - away * _TILT
    track.aside_until = track.step + _PUSHES


@device
def _tell_walls_apart(track: Record, dx: float, dy: float, bumped: bool) -> None:
    """Remember the wall, once a step goes away from one of the two that it may be."""
    along_x = abs(track.push_x) >= abs(track.push_y)
    main = dx * track.push_x if along_x else dy * track.push_y
    other = dy * track.push_y if along_x else dx * track.push_x
    if main > 0.0 and other <= 0.0:
        if along_x == bumped:
            if track.push_x > 0.0:
                track.high_x = track.x
            else:
                track.low_x = track.x
        elif track.push_y > 0.0:
            track.high_y = track.y
        else:
            track.low_y = track.y
    elif track.step <= track.aside_until:
        return
    track.push_x = track.push_y = 0.0
    track.aside_until = track.step


@device
def _turn_aside(walk: Record, track: Record, heading: float) -> None:
    """Get around an obstacle: turn to one side for a while, and to the same one if it is met again soon."""
    if track.side == 0.0 or (track.step - track.bumped) * walk.time_step > _SAME_SIDE:
        track.side = 1.0 if track.step % 2 == 0 else -1.0
    track.bumped = track.step
    track.aside = heading + track.side * _ASIDE
    track.aside_until = track.step + int(_DETOUR / walk.time_step)


@device
def clear_heading(track: Record, heading: float) -> float:
    """The heading that an agent wants, or the one that it takes to get around something."""
    return track.aside if track.step < track.aside_until else heading


@device
def is_walled_off(track: Record, x: float, y: float) -> bool:
    """Whether a place lies beyond a wall that the agent has met, m from the start."""
    return x < track.low_x or x > track.high_x or y < track.low_y or y > track.high_y


@device
def is_due(walk: Record, track: Record) -> bool:
    """Whether it is time for an observation."""
    return (track.step - 1) % walk.interval == 0


@device
def look_back(walk: Record, track: Record, knots: NDArray[np.float64], path: NDArray[np.float64]) -> None:
    """Keep how far air has been carried, and write from where it has come: for each age a displacement, m.

    The wind before the start is assumed to be its mean since then.
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
