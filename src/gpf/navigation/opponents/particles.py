"""A particle filter: places where the source may be, weighted by what was smelled, with a surge after each whiff."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.detection import fitted
from gpf.navigation.opponents.odour_map import blank_map, draw_map
from gpf.navigation.opponents.track import Tracks, clear_heading, follow, is_due, is_walled_off, look_back
from gpf.plume.kernels import Record, device, lean_kernel
from gpf.plume.physics import wrap
from gpf.plume.rng import normal, seed_streams, uniform
from gpf.plume.scenario import Scenario
from gpf.plume.steering import steer

X, Y, WEIGHT = range(3)
"""Columns of a particle: its place from the start, m, and its weight."""
MAP_REACH = 30
"""Cells of the map to each side of the agent."""
_PILOT = np.dtype(
    [(name, np.float64) for name in ("heading", "x", "y", "until", "surge_until")] + [("has", np.int64)], align=True
)
"""Where a lane is heading, the place that it seeks, and the steps until which that holds and until which it surges."""
_FILTER = np.dtype(
    [
        (name, np.float64)
        for name in ("trust", "blank_trust", "jitter", "renewed", "cell", "radius", "nearest", "farthest")
    ]
    + [(name, np.float64) for name in ("surge", "commitment")]
)
"""The kernel's parameters of a policy and a scenario."""


@dataclass
class ParticleFilter:
    """Surges upwind after a whiff; otherwise heads for a particle that is drawn by weight."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("_tracks", "_particles", "_pilots", "_streams")

    particles: int = 400
    """Number of particles."""
    surge: float = 0.5
    """How long to go upwind after a whiff, s."""
    commitment: float = 3.0
    """How long to head for a particle that was drawn, s."""
    trust: float = 0.5
    """Power of the likelihood of a whiff; below 1 because successive ones are correlated."""
    blank_trust: float = 0.5
    """The same of a blank."""
    jitter: float = 0.15
    """Standard deviation by which particles are moved when they are drawn again, per axis, m."""
    renewed: float = 0.02
    """Share of them that is then drawn from the prior, which keeps every place possible."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self._tracks = Tracks(len(seeds), scenario)
        pace = self._tracks.pace
        self._model = fitted(scenario).record()
        self._particles = np.zeros((len(seeds), self.particles, 3))
        self._pilots = np.zeros(len(seeds), _PILOT)
        self._streams = seed_streams([(seed, 1) for seed in seeds])  # 1: not the world's own stream
        self._odour, self._path = blank_map(MAP_REACH), np.zeros((pace.ages, 2))
        self._spare = np.zeros((self.particles, 3))
        filtering = np.zeros((), _FILTER)
        for name, value in {
            "trust": self.trust, "blank_trust": self.blank_trust, "jitter": self.jitter, "renewed": self.renewed,
            "cell": 1.25 * pace.radius / MAP_REACH, "radius": scenario.success_radius,
            "nearest": scenario.start_distance_min, "farthest": scenario.start_distance_max,
            "surge": self.surge / scenario.time_step, "commitment": self.commitment / scenario.time_step,
        }.items():  # fmt: skip
            filtering[name] = value
        self._filtering: Any = filtering[()]

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations are those of `gpf.plume.world.RAW`."""
        tracks = self._tracks
        _filter(
            lanes, raw, tracks.sensing, tracks.row, tracks.walk, tracks.tracks, tracks.knots, self._model,
            self._filtering, self._particles, self._spare, self._pilots, self._streams, self._odour, self._path,
            np.asarray(tracks.row["turns"]), actions,
        )  # fmt: skip


@lean_kernel
def _filter(
    lanes, raw, sensing, row, walk, tracks, knots, model, filtering, particles, spare, pilots, streams, odour, path,
    turns, actions,
):  # fmt: skip
    for n in range(len(lanes)):
        i = lanes[n]
        track, pilot, cloud, stream = tracks[i], pilots[i], particles[i], streams[i]
        follow(sensing, row, walk, track, raw[i])
        if track.step == 1:
            scatter(filtering, model, track, cloud, 0, len(cloud), stream)
        if is_due(walk, track):
            look_back(walk, track, knots[i], path)
            draw_map(odour, model, path, walk.duration, (track.step - 1) * walk.time_step, filtering.cell, 0.0, 0.0)
            weigh(filtering, model, track, cloud, odour)
            if effective(cloud) < 0.5 * len(cloud):
                resample(filtering, model, track, cloud, spare, stream)
            pursue(filtering, track, pilot, cloud, stream)
            track.whiffs = 0
        actions[i] = steer(clear_heading(track, pilot.heading) - raw[i, 4], turns)


@device
def scatter(
    filtering: Record, model: Record, track: Record, cloud: NDArray[np.float64], first: int, last: int,
    stream: NDArray[np.uint64],
) -> None:  # fmt: skip
    """Draw some particles from the prior: at any distance that episodes start from, about upwind of the start."""
    upwind = math.atan2(-track.wind_y, -track.wind_x)
    for k in range(first, last):
        away = filtering.nearest + (filtering.farthest - filtering.nearest) * uniform(stream)
        angle = upwind + model.bearing * normal(stream)
        cloud[k, X], cloud[k, Y], cloud[k, WEIGHT] = away * math.cos(angle), away * math.sin(angle), 1.0 / len(cloud)


@device
def weigh(filtering: Record, model: Record, track: Record, cloud: NDArray[np.float64], odour: Any) -> None:
    """Bayes' rule after a whiff or a blank; particles within the radius of success cannot be the source."""
    reach, box, whiff = len(odour.whiff) // 2, odour.box, track.whiffs > 0
    outside = (model.false if whiff else 1.0 - model.false) ** (filtering.trust if whiff else filtering.blank_trust)
    total = 0.0
    for k in range(len(cloud)):
        x, y = cloud[k, X] - track.x, cloud[k, Y] - track.y
        v, u = round(y / filtering.cell) + reach, round(x / filtering.cell) + reach
        if box[0] <= v < box[1] and box[2] <= u < box[3]:
            log = filtering.trust * odour.whiff_log[v, u] if whiff else filtering.blank_trust * odour.blank_log[v, u]
            cloud[k, WEIGHT] *= 2.0**log
        else:
            cloud[k, WEIGHT] *= outside
        if x * x + y * y < filtering.radius**2 or is_walled_off(track, cloud[k, X], cloud[k, Y]):
            cloud[k, WEIGHT] *= 1e-3
        total += cloud[k, WEIGHT]
    for k in range(len(cloud)):
        cloud[k, WEIGHT] = cloud[k, WEIGHT] / total if total > 0.0 else 1.0 / len(cloud)


@device
def effective(cloud: NDArray[np.float64]) -> float:
    """Effective number of particles, 1 / sum of squared weights."""
    squares = 0.0
    for k in range(len(cloud)):
        squares += cloud[k, WEIGHT] ** 2
    return 1.0 / squares


@device
def resample(
    filtering: Record, model: Record, track: Record, cloud: NDArray[np.float64], spare: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:  # fmt: skip
    """Systematic resampling by weight with some jitter; a share is drawn from the prior."""
    count = len(cloud)
    kept = count - int(filtering.renewed * count)
    offset, cumulative, source = uniform(stream), cloud[0, WEIGHT], 0
    for k in range(kept):
        while cumulative * kept < k + offset and source < count - 1:
            source += 1
            cumulative += cloud[source, WEIGHT]
        spare[k, X] = cloud[source, X] + filtering.jitter * normal(stream)
        spare[k, Y] = cloud[source, Y] + filtering.jitter * normal(stream)
    for k in range(kept):
        cloud[k, X], cloud[k, Y], cloud[k, WEIGHT] = spare[k, X], spare[k, Y], 1.0 / count
    scatter(filtering, model, track, cloud, kept, count, stream)


@device
def pursue(
    filtering: Record, track: Record, pilot: Record, cloud: NDArray[np.float64], stream: NDArray[np.uint64]
) -> None:
    """Choose where to head: upwind after a whiff, and otherwise for a particle."""
    if track.whiffs > 0:
        pilot.surge_until, pilot.has = track.step + filtering.surge, 0
    if track.step < pilot.surge_until:
        pilot.heading = math.atan2(-track.wind_y, -track.wind_x)
        return
    there = math.hypot(pilot.x - track.x, pilot.y - track.y) < filtering.radius
    if pilot.has == 0 or there or track.step >= pilot.until:
        left = uniform(stream)
        for k in range(len(cloud)):
            pilot.x, pilot.y = cloud[k, X], cloud[k, Y]
            left -= cloud[k, WEIGHT]
            if left < 0.0:
                break
        pilot.has, pilot.until = 1, track.step + filtering.commitment
    pilot.heading = wrap(math.atan2(pilot.y - track.y, pilot.x - track.x))
