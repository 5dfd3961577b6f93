"""Policies that need no learning: the baselines that every navigator is compared with.

A policy sees what a robot would: the raw observation (two readings, wind, heading) and its own actions. It steers many
lanes at once, one episode each.
"""

import copy
import dataclasses
import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.inputs import read_json
from gpf.plume.kernels import Record, kernel
from gpf.plume.physics import wrap
from gpf.plume.rng import next_bits, seed_streams
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.steering import steer
from gpf.settings import choose, read

FORWARD, LEFT, RIGHT, AROUND, CAST_LEFT, CAST_RIGHT = range(len(ACTIONS))


class Laned(Protocol):
    """Whatever has a state for each lane."""

    PER_LANE: ClassVar[tuple[str, ...]]
    """Attributes with an entry for each lane: arrays, or others of these."""


L = TypeVar("L", bound=Laned)


def forked(first: L, lanes: NDArray[np.int64]) -> L:
    """A copy of a policy during its episodes: lane n continues as lane `lanes[n]` of the original."""
    twin = copy.copy(first)
    for name in first.PER_LANE:
        held = getattr(first, name)
        if held is not None:
            setattr(twin, name, held[lanes] if isinstance(held, np.ndarray) else forked(held, lanes))
    return twin


class Policy(Laned, Protocol):
    """The interface of a policy to an evaluation."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations of all lanes have shape (n, 5)."""


def above_noise(whiff: float, scenario: Scenario) -> float:
    """A threshold of whiffs that was chosen for the presets' sensor, for one that may be noisier."""
    return whiff * max(1.0, scenario.sensor_noise / Scenario().sensor_noise)


class Random:
    """Uniformly random actions."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("_streams",)

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        self._streams = seed_streams([(seed, 1) for seed in seeds])  # 1: not the world's own stream

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        _act_randomly(lanes, self._streams, actions)


@dataclass
class Reactive:
    """Turn upwind on a whiff; otherwise go straight, with a cast to alternating sides now and then. No other memory."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("_blanks", "_sides")

    whiff: float = 3e-3
    """Reading above which there is a whiff, concentration; of sensors noisier than the presets', in proportion more."""
    patience: int = 10
    """Steps of blank between two casts."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        self._blanks = np.zeros(len(seeds), np.int64)
        self._sides = np.ones(len(seeds), np.int64)
        self._whiff = above_noise(self.whiff, scenario)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        _act_reactively(lanes, raw, self._blanks, self._sides, self._whiff, self.patience, actions)


@dataclass
class CastAndSurge:
    """Surge upwind for a while after each whiff, then cast across the wind in growing sweeps about where it was.

    It remembers, by dead reckoning, where it met the plume last, and it follows a smoothed wind. Its parameters were
    tuned for `reference` and `paper` on seeds that no evaluation uses; `gpf tune` finds others for another world.
    """

    whiff: float = 3.64e-3
    """Reading above which there is a whiff, which noise alone must hardly ever reach, concentration; of sensors noisier
    than the presets', in proportion more."""
    wind_smoothing: float = 0.0229
    """Weight of the newest wind in the smoothed one."""
    surge: float = 3.55
    """How long to continue upwind after a whiff, steps."""
    lean: float = 15.3
    """How far to lean to the side of the stronger antenna while surging, deg."""
    first_sweep: float = 0.404
    """How far the first sweep goes to the side of the last whiff, m."""
    growth: float = 1.18
    """How much farther each next sweep goes, m."""
    climb: float = 5.21
    """How far upwind of straight across the first sweep points, deg."""
    descent: float = 5.14
    """By how much each next sweep points farther downwind, deg."""
    search_sweep: float = 2.44
    """As `first_sweep`, before the first whiff, m."""
    search_growth: float = 1.36
    """As `growth`, before the first whiff, m."""
    search_climb: float = 9.12
    """As `climb`, before the first whiff, where the sweeps do not descend, deg."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("_memory",)
    reckons: ClassVar[bool] = True
    _MEMORY: ClassVar[np.dtype[Any]] = np.dtype(
        [(name, np.float64) for name in ("x", "y", "wind_x", "wind_y", "since_whiff", "sweep", "side", "met")]
    )

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        self._memory = np.zeros(len(seeds), self._MEMORY)
        self._memory["side"] = 1.0
        self._memory["since_whiff"] = math.inf
        self._parameters = np.zeros((), [(spec.name, np.float64) for spec in dataclasses.fields(self)])
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            angle = spec.name in ("lean", "climb", "descent", "search_climb")
            self._parameters[spec.name] = math.radians(value) if angle else value
        self._parameters["whiff"] = above_noise(self.whiff, scenario)
        self._stride = scenario.speed * scenario.time_step
        self._turns = np.array(row_of(scenario)["turns"])

    @property
    def places(self) -> NDArray[Any]:
        """Where it is by dead reckoning from its last whiff: structured array with fields x and y, m."""
        return self._memory

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        _cast_and_surge(lanes, raw, self._memory, self._parameters[()], self._stride, self._turns, actions)


_OPPONENTS = "gpf.navigation.opponents"
POLICIES: dict[str, str] = {
    "random": "gpf.navigation.policies:Random",
    "reactive": "gpf.navigation.policies:Reactive",
    "cast-and-surge": "gpf.navigation.policies:CastAndSurge",
    "cast-and-surge-tuned": f"{_OPPONENTS}.tuned:TunedCastAndSurge",
    "bilateral": f"{_OPPONENTS}.bilateral:Bilateral",
    "infotaxis": f"{_OPPONENTS}.searchers:Infotaxis",
    "space-aware-infotaxis": f"{_OPPONENTS}.searchers:SpaceAwareInfotaxis",
    "thompson": f"{_OPPONENTS}.searchers:Thompson",
    "greedy-belief": f"{_OPPONENTS}.searchers:GreedyBelief",
    "particle-filter": f"{_OPPONENTS}.particles:ParticleFilter",
}
"""By name, where a policy is; it is imported when it is asked for."""


def make_policy(name: str) -> Policy:
    """The policy of that name with its default parameters, or, of `NAME:FILE.json`, with those of a file."""
    name, _, file = name.partition(":")
    module, _, attribute = POLICIES[choose("policy", name, POLICIES)].partition(":")
    kind: Any = getattr(importlib.import_module(module), attribute)
    made: Policy = read(kind, read_json(Path(file), "parameters"), file) if file else kind()
    return made


@kernel
def _act_randomly(lanes, streams, actions):
    for n in range(len(lanes)):
        i = lanes[n]
        actions[i] = (next_bits(streams[i]) >> np.uint64(33)) % np.uint64(len(ACTIONS))


@kernel
def _act_reactively(lanes, raw, blanks, sides, whiff, patience, actions):
    for n in range(len(lanes)):
        i = lanes[n]
        if max(raw[i, 0], raw[i, 1]) > whiff:
            blanks[i] = 0
            upwind = wrap(raw[i, 3] + math.pi - raw[i, 4])
            actions[i] = LEFT if upwind > 0.0 else RIGHT
            continue
        blanks[i] += 1
        actions[i] = FORWARD
        if blanks[i] >= patience:
            blanks[i] = 0
            sides[i] = -sides[i]
            actions[i] = CAST_LEFT if sides[i] > 0 else CAST_RIGHT


@kernel
def _cast_and_surge(lanes, raw, memories, q, stride, turns, actions):
    for n in range(len(lanes)):
        i = lanes[n]
        left, right, heading = raw[i, 0], raw[i, 1], raw[i, 4]
        m = memories[i]
        from_x, from_y = -math.cos(raw[i, 3]), -math.sin(raw[i, 3])
        if m.wind_x == 0.0 and m.wind_y == 0.0:  # the first observation
            m.wind_x, m.wind_y = from_x, from_y
        else:
            m.x += stride * math.cos(heading)
            m.y += stride * math.sin(heading)
        m.wind_x += q.wind_smoothing * (from_x - m.wind_x)
        m.wind_y += q.wind_smoothing * (from_y - m.wind_y)
        upwind = math.atan2(m.wind_y, m.wind_x)
        m.since_whiff += 1.0
        if max(left, right) > q.whiff:
            m.since_whiff = m.sweep = m.x = m.y = 0.0
            m.met = 1.0
            if left != right:
                m.side = 1.0 if left > right else -1.0
        if m.since_whiff <= q.surge:
            goal = upwind
            if m.since_whiff == 0.0 and left != right:
                goal += q.lean * m.side
        else:
            goal = _sweep(m, q, upwind)
        actions[i] = steer(goal - heading, turns)


@njit(error_model="numpy")
def _sweep(m: Record, q: Record, upwind: float) -> float:
    """The heading of the current sweep; turns to the next one where this one has gone far enough."""
    across = m.side * (m.y * math.cos(upwind) - m.x * math.sin(upwind))  # to the left of upwind is positive
    reach = q.first_sweep + m.sweep * q.growth if m.met else q.search_sweep + m.sweep * q.search_growth
    if across > reach:
        m.side = -m.side
        m.sweep += 1.0
    climb = q.climb - m.sweep * q.descent if m.met else q.search_climb
    return upwind + m.side * (0.5 * math.pi - climb)
