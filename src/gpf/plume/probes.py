"""Fixed probes in a plume: the concentration over time, without an agent."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpf.plume.antennae import smell
from gpf.plume.arrays import Arrays
from gpf.plume.inputs import shown
from gpf.plume.kernels import announcing_compilation, device, lean_kernel
from gpf.plume.scenario import Scenario
from gpf.plume.world import START, World, blow, machine_memory

AXIS = (0.15, 0.3, 0.45, 0.6)
"""Distances of the probes on the axis from the source, as shares of the domain's length along the wind."""
SOURCE = 0.2
"""Distance of the source from the upwind edge, as a share of the same length."""
PROFILE = 0.3
"""Distance of the crosswind line from the source, as a share of the same length."""
LINE = 25
"""Probes on the crosswind line; an odd number, which puts one on the axis."""
MOST_STEPS = 10_000_000
"""Steps of a measurement, at most, with the warm-up."""
_CHUNK = 2000
"""Steps between two reports of progress."""

Progress = Callable[[int], None]
"""Called with the number of steps done since the last call."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the source and the probes stand. Points are rows (x, y), m; distances are in m."""

    source: NDArray[np.float64]
    """The source, shape (2,)."""
    distances: NDArray[np.float64]
    """Downwind distances of the probes on the axis, shape (axis,)."""
    profile_distance: float
    """Downwind distance of the crosswind line."""
    offsets: NDArray[np.float64]
    """Offsets of the probes on that line from the axis, positive to the left of the wind, shape (line,)."""
    separation: float
    """Distance between the two antennae of a pair; a pair stands at each point of the axis, across the wind."""
    direction: float
    """Mean direction that the wind blows to, rad."""

    @property
    def points(self) -> NDArray[np.float64]:
        """All probes: axis, crosswind line, left antennae, right antennae; shape (3 axis + line, 2)."""
        half, ones = 0.5 * self.separation, np.ones_like(self.distances)
        line = np.full_like(self.offsets, self.profile_distance)
        return np.concatenate(
            [
                self.at(self.distances, 0.0 * ones),
                self.at(line, self.offsets),
                self.at(self.distances, half * ones),
                self.at(self.distances, -half * ones),
            ]
        )

    def at(self, downwind: NDArray[np.float64], left: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points that lie so far downwind of the source, and so far to the left of the axis, shape (n, 2)."""
        ahead = np.array([math.cos(self.direction), math.sin(self.direction)])
        aside = np.array([-ahead[1], ahead[0]])
        return self.source + downwind[:, None] * ahead + left[:, None] * aside


def layout(scenario: Scenario) -> Layout:
    """The standard layout: the source on the line through the centre along the mean wind, near the upwind edge.

    Lengths are shares of the domain's extent along that line. The crosswind line reaches almost to the nearer of the
    two edges next to it. If the mean wind turns, its initial direction is used.
    """
    direction = math.radians(scenario.wind_direction)
    ahead = np.array([math.cos(direction), math.sin(direction)])
    aside = np.array([-ahead[1], ahead[0]])
    length = _length(scenario)
    source = 0.5 * np.array([scenario.width, scenario.height]) + (SOURCE - 0.5) * length * ahead
    middle = source + PROFILE * length * ahead
    half = min(_reach(scenario, middle, aside), _reach(scenario, middle, -aside))
    return Layout(
        source=source,
        distances=length * np.array(AXIS),
        profile_distance=PROFILE * length,
        offsets=0.95 * half * np.linspace(-1.0, 1.0, LINE),
        separation=scenario.antenna_separation,
        direction=direction,
    )


def _length(scenario: Scenario) -> float:
    """Extent of the domain along the mean wind, through its centre, m."""
    direction = math.radians(scenario.wind_direction)
    centre = 0.5 * np.array([scenario.width, scenario.height])
    return 2.0 * _reach(scenario, centre, np.array([math.cos(direction), math.sin(direction)]))


def _reach(scenario: Scenario, point: NDArray[np.float64], towards: NDArray[np.float64]) -> float:
    """How far the domain reaches from a point in a direction, m."""
    edges = np.where(towards > 0.0, (scenario.width, scenario.height), 0.0) - point
    steep = np.abs(towards) > 1e-9  # an edge that is parallel to the direction is never met
    return float((edges[steep] / towards[steep]).min())


def filling_time(scenario: Scenario) -> float:
    """How long to wait until the plume is in its steady state, s.

    Filaments of every age are there after a lifetime, or once the slowest have crossed the domain (three times as long
    as in the mean wind); the wind forgets its start within five correlation times.
    """
    crossing = 3.0 * _length(scenario) / max(scenario.wind_speed, scenario.wind_speed_floor, 1e-9)
    return max(min(scenario.filament_lifetime, crossing), 5.0 * scenario.wind_correlation_time)


@lean_kernel
def _probe(world, i, points, first, last, series):
    """Step a lane, and write the concentration at every point to columns first to last of `series`, (points, steps).

    The number of points is even, because `smell` takes two at a time; with none the plume is only stepped.
    """
    substeps = int(world.rows[i].substeps)
    for column in range(first, last):
        for _ in range(substeps):
            blow(world, i)
        for n in range(0, len(points), 2):
            if world.rows[i].terrain >= 0.0:
                series[n, column] = _smell_there(world, i, points[n, 0], points[n, 1])
                series[n + 1, column] = _smell_there(world, i, points[n + 1, 0], points[n + 1, 1])
            else:
                series[n, column], series[n + 1, column] = smell(
                    world, i, points[n, 0], points[n, 1], points[n + 1, 0], points[n + 1, 1]
                )


@device
def _smell_there(world: Arrays, i: int, x: float, y: float) -> float:
    """The concentration at a point among obstacles, with the agent there: it smells what it sees."""
    lane = world.lanes[i]
    lane.x, lane.y = x, y
    return smell(world, i, x, y, x, y)[0]


def steady_plume(
    scenario: Scenario,
    source: ArrayLike,
    seeds: Sequence[int],
    warmup: float,
    steps: int = 0,
    progress: Progress = lambda steps: None,
) -> World:
    """Worlds, one for each seed, with the source at a point (x, y), m, after `warmup` seconds.

    `steps` is the number of steps that are to follow.
    """
    ahead = math.ceil(warmup / scenario.time_step)
    world = World(len(seeds), dataclasses.replace(scenario, max_steps=max(1, ahead + steps)), threads=1)
    world.seed(seeds)
    starts = np.full((len(seeds), len(START)), math.nan)
    starts[:, :2] = source
    world.begin(starts=starts)
    for lane in range(len(seeds)):
        _run(world, lane, np.empty((0, 2)), ahead, np.empty((0, 0)), progress)
    return world


def _run(
    world: World, lane: int, points: NDArray[np.float64], steps: int, series: NDArray[np.float64], progress: Progress
) -> None:
    """Step a lane, and write the concentration at all points to `series`, a few steps at a time."""
    with announcing_compilation():
        for first in range(0, steps, _CHUNK):
            last = min(first + _CHUNK, steps)
            _probe(world.arrays(), lane, points, first, last, series)
            progress(last - first)


def measure(
    scenario: Scenario,
    points: ArrayLike,
    seconds: float,
    seeds: Sequence[int],
    warmup: float | None = None,
    source: ArrayLike | None = None,
    progress: Progress = lambda steps: None,
) -> NDArray[np.float64]:
    """Concentrations at fixed points, one sample a step, shape (seeds, points, steps).

    These are true concentrations, without the sensor's noise, gain and saturation.

    Args:
        scenario: The world.
        points: Where the probes stand, rows (x, y), m.
        seconds: Duration of the series, s.
        seeds: Of the worlds; each has its own wind and emission.
        warmup: How long the plume is stepped before, s. Default: `filling_time`.
        source: Where the source is, (x, y), m. Default: as `layout` places it.
        progress: Called now and then with the steps done since the last call; each seed takes `total_steps`.
    """
    where = _checked_points(points)
    warmup = filling_time(scenario) if warmup is None else warmup
    total_steps(scenario, seconds, warmup)
    steps = max(1, round(seconds / scenario.time_step))
    _check_room(len(seeds), len(where), steps)
    source = layout(scenario).source if source is None else source
    world = steady_plume(scenario, source, seeds, warmup, steps, progress)
    even = np.concatenate([where, where[-1:]]) if len(where) % 2 else where
    series = np.empty((len(seeds), len(even), steps))
    for lane in range(len(seeds)):
        _run(world, lane, even, steps, series[lane], progress)
    return series[:, : len(where)]


def total_steps(scenario: Scenario, seconds: float, warmup: float | None = None) -> int:
    """Steps that `measure` takes for each seed, with the warm-up."""
    warmup = filling_time(scenario) if warmup is None else warmup
    if not 0.0 < seconds < math.inf:
        raise ValueError(f"seconds must be positive, got {shown(seconds)}")
    if not 0.0 <= warmup < math.inf:
        raise ValueError(f"warmup must be at least 0, got {shown(warmup)}")
    if (seconds + warmup) / scenario.time_step > MOST_STEPS - 2:
        most = (MOST_STEPS - 2) * scenario.time_step
        raise ValueError(f"seconds and warmup must be at most {most:,.0f} together, got {seconds + warmup:,.0f}")
    return math.ceil(warmup / scenario.time_step) + max(1, round(seconds / scenario.time_step))


def _checked_points(points: ArrayLike) -> NDArray[np.float64]:
    where = np.array(points, np.float64)
    if where.ndim != 2 or where.shape[1] != 2 or len(where) == 0 or not np.isfinite(where).all():
        raise ValueError(f"points must be rows of finite x and y, got {shown(points)}")
    return where


def _check_room(seeds: int, points: int, steps: int) -> None:
    if seeds < 1:
        raise ValueError("seeds must be at least one, got none")
    needed, half = 8 * seeds * (points + 1) * steps, machine_memory() // 2
    if needed > half:
        raise ValueError(
            f"seconds must be fewer here: {seeds} series of {steps:,} steps at {points} points take"
            f" {needed / 1e9:,.0f} GB, and half of the machine's memory is {half / 1e9:,.0f} GB"
        )
