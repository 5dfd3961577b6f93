"""How likely a whiff is, given where the source is and what the wind has done: a model that is fitted to each scenario.

Filaments leave the source at a rate and follow the wind. After an age their centres are spread about the path of the
air with a standard deviation that grows with age, and faster for the part of it before the episode, whose wind is
unknown. The mean number that an agent meets between two observations is the sum over ages of strength(age) exp(-d^2 /
2 spread(age)^2), where d is the distance from the source to where the air was that long ago, and a whiff has
probability 1 - exp(-mean), or a little more. The parameters have maximum likelihood on walks of agents on tuning
seeds.
"""

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.track import Tracks, follow, is_due, look_back
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.seeds import BLOCK, TUNING
from gpf.plume.kernels import Record, device, kernel, lean_kernel
from gpf.plume.scenario import Scenario
from gpf.plume.world import World

SEEDS = TUNING + 100 * BLOCK
"""First seed of the episodes that models are fitted to."""
LANES, STEPS = 192, 400
"""Walks that a model is fitted to, and the steps of each, at most."""
SAMPLES = 3000
"""Observations that enter a fit, at most, from all parts of all walks."""
MOST_FALSE = 0.3
"""Probability of a whiff far from the plume, at most."""
MODEL = np.dtype(
    [(name, np.float64) for name in ("spread", "growth", "unknown", "strength", "decay", "false", "bearing")]
)
"""A detection model as kernels see it."""


@dataclass(frozen=True)
class DetectionModel:
    """Parameters of the probability of a whiff between two observations."""

    spread: float
    """Standard deviation of filaments about the path of the air when they are new, m."""
    growth: float
    """By how much it grows with age, m/s."""
    unknown: float
    """By how much more it grows with the part of the age before the episode began, m/s."""
    strength: float
    """Mean number of encounters from each age on the path itself, at an age of 1 s."""
    decay: float
    """Exponent with which that falls with age."""
    false: float
    """Probability of a whiff far from the plume."""
    bearing: float
    """Standard deviation of the direction of the source about upwind when an episode begins, rad."""

    def record(self) -> Any:
        """As kernels see it."""
        return np.array(dataclasses.astuple(self), MODEL)[()]


@functools.lru_cache(maxsize=64)
def fitted(scenario: Scenario) -> DetectionModel:
    """The model of a scenario, from tuning seeds; the same on every call."""
    walks = _Walks(scenario)
    walks.run()
    return walks.fit()


class _Walks:
    """Walks through a scenario, half of them by cast-and-surge and half straight ahead with random turns."""

    def __init__(self, scenario: Scenario) -> None:
        self.world = World(LANES, dataclasses.replace(scenario, max_steps=max(scenario.max_steps, 2)), threads=1)
        self.world.seed(range(SEEDS, SEEDS + LANES))
        self.world.begin()
        self.tracks = Tracks(LANES, scenario)
        self.surging = CastAndSurge()
        self.surging.begin(range(SEEDS, SEEDS + LANES), scenario)
        self.sources = scenario.sources
        pace = self.tracks.pace
        observations = math.ceil(STEPS / pace.interval)
        self.paths = np.zeros((observations, LANES, pace.ages, 2), np.float32)
        self.offsets = np.full((observations, LANES, scenario.sources, 2), math.nan)
        self.whiffs = np.zeros((observations, LANES), np.bool_)

    def run(self) -> None:
        """Walk, and record every observation."""
        rng = np.random.default_rng(0)
        actions, everyone = np.zeros(LANES, np.int64), np.arange(LANES)
        tracks, wandering = self.tracks, everyone % 2 == 1
        for step in range(STEPS):
            lanes = np.flatnonzero(self.world.lanes["running"])
            if not len(lanes):
                break
            at = step // tracks.pace.interval
            _observe(
                lanes, tracks.sensing, tracks.row, tracks.walk, tracks.tracks, tracks.knots, self.world.raw,
                self.paths[at], self.whiffs[at],
            )  # fmt: skip
            if step % tracks.pace.interval == 0:
                self.offsets[at, lanes] = self._offsets()[lanes]
            self.surging.act(self.world.raw, lanes, actions)
            turning = rng.random(LANES) < 0.1
            actions[wandering] = np.where(turning, rng.integers(0, 6, LANES), 0)[wandering]
            self.world.step(actions)

    def _offsets(self) -> NDArray[np.float64]:
        """From every agent to every source that counts, m, shape (lanes, sources, 2)."""
        lanes, others = self.world.lanes, self.sources - 1
        x = np.column_stack([lanes["source_x"], lanes["others_x"][:, :others]]) - lanes["x"][:, None]
        y = np.column_stack([lanes["source_y"], lanes["others_y"][:, :others]]) - lanes["y"][:, None]
        return np.stack([x, y], axis=2)

    def fit(self) -> DetectionModel:
        """The parameters of maximum likelihood."""
        from scipy.optimize import minimize

        seen = np.flatnonzero(~np.isnan(self.offsets[:, :, 0, 0]).ravel())
        chosen = seen[np.linspace(0, len(seen) - 1, min(SAMPLES, len(seen))).astype(int)]
        paths = self.paths.reshape(-1, *self.paths.shape[2:])[chosen].astype(np.float64)
        offsets, whiffs = self.offsets.reshape(-1, self.sources, 2)[chosen], self.whiffs.ravel()[chosen]
        pace = self.tracks.pace
        ages = pace.duration * np.arange(1.0, pace.ages + 1)
        known_for = chosen // LANES * (pace.duration / pace.spacing)
        start = np.array([math.log(0.2), math.log(0.1), math.log(0.05), math.log(0.3), 0.5, math.log(0.005)])

        def loss(free: NDArray[np.float64]) -> float:
            penalty = float(((free - start) ** 2).sum()) * 0.02  # for what the walks do not tell
            return float(_loss(_model(free, 0.0).record(), ages, paths, known_for, offsets, whiffs)) + penalty

        best = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 300, "xatol": 1e-2, "fatol": 1e-2})
        return _model(best.x, self._bearing())

    def _bearing(self) -> float:
        """Spread of the direction of the nearest source about upwind at the start, rad."""
        nearest = self.offsets[0, np.arange(LANES), np.argmin(np.hypot(*np.moveaxis(self.offsets[0], 2, 0)), axis=1)]
        upwind = np.arctan2(*-self.paths[0, :, 0, ::-1].astype(np.float64).T)
        off = np.angle(np.exp(1j * (np.arctan2(nearest[:, 1], nearest[:, 0]) - upwind)))
        return float(max(np.sqrt(np.mean(off**2)), 0.1))


def _model(free: NDArray[np.float64], bearing: float) -> DetectionModel:
    """A model from parameters without bounds."""
    spread, growth, unknown, strength, false = np.exp(np.clip(free[[0, 1, 2, 3, 5]], -7.0, 3.0)).tolist()
    return DetectionModel(
        spread, growth, unknown, strength, float(np.clip(free[4], -1.0, 4.0)), min(false, MOST_FALSE), bearing
    )


@device
def blur(model: Record, age: float, known: float) -> tuple[float, float]:
    """Spread of filaments of an age about the path of the air, m, and mean number of encounters on the path itself.

    Args:
        model: Of the scenario.
        age: Age of the filaments, s.
        known: How much of it the wind has been observed for, s.
    """
    narrow = model.spread + model.growth * age
    wide = narrow + model.unknown * max(age - known, 0.0)
    return wide, model.strength * age ** (-model.decay) * (narrow / wide) ** 2


@lean_kernel
def _loss(model, ages, paths, known, offsets, whiffs):
    """Negative log-likelihood of the whiffs that were and were not smelled."""
    loss = 0.0
    for n in range(len(paths)):
        mean = 0.0
        for k in range(len(ages)):
            wide, strength = blur(model, ages[k], known[n])
            narrow = 0.5 / wide**2
            for s in range(offsets.shape[1]):
                away = (offsets[n, s, 0] + paths[n, k, 0]) ** 2 + (offsets[n, s, 1] + paths[n, k, 1]) ** 2
                if narrow * away < 12.0:
                    mean += strength * math.exp(-narrow * away)
        blank = max((1.0 - model.false) * math.exp(-mean), 1e-3)
        loss -= math.log(1.0 - blank + 1e-9) if whiffs[n] else math.log(blank)
    return loss


@kernel
def _observe(lanes, sensing, row, walk, tracks, knots, raw, paths, whiffs):
    """Follow the walks; where an observation is due, write the path of the air, and whether there was a whiff."""
    path = np.zeros((walk.ages, 2))
    for n in range(len(lanes)):
        i = lanes[n]
        follow(sensing, row, walk, tracks[i], raw[i])
        if is_due(walk, tracks[i]):
            look_back(walk, tracks[i], knots[i], path)
            for k in range(walk.ages):
                paths[i, k, 0], paths[i, k, 1] = path[k, 0], path[k, 1]
            whiffs[i] = tracks[i].whiffs > 0
            tracks[i].whiffs = 0
