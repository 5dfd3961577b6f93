"""Policies that see only tokens.

A level stands for a reading in the middle of its band, and an octant for its middle; the heading is reckoned from the
agent's own turns, from an unknown one at the start, which no policy of ours needs. So whatever steers by raw
observations can steer by tokens, in the plume world or in an imagined one.
"""

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.policies import Policy
from gpf.plume.kernels import kernel
from gpf.plume.physics import wrap
from gpf.plume.row import row_of
from gpf.plume.scenario import OCTANTS, Scenario
from gpf.plume.tokens import level, octant
from gpf.plume.world import RAW

SMELL = 2
"""The lowest level that noise alone hardly ever reaches: it crosses three standard deviations, where level 1 begins,
several times in an episode. A policy that counts single whiffs does better without those below."""


class Reckoning:
    """The raw observations that tokens stand for.

    Args:
        count: Number of lanes.
        scenario: The world whose tokens they are.
        whiff: The lowest level that is taken for a smell; a lower one stands for no reading.

    Attributes:
        tokens: int64, shape (lanes, 3); write here what is seen.
        raw: float32, shape (lanes, 8), see `gpf.plume.world.RAW`; what that stands for, after `update`.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("tokens", "raw", "headings")

    def __init__(self, count: int, scenario: Scenario, whiff: int = 1) -> None:
        self._row = row_of(scenario)
        self._turns = np.array(self._row["turns"])
        self._readings = level_readings(scenario)
        self._readings[:whiff] = 0.0
        self._angles = wind_angles(scenario)
        self.headings: NDArray[np.float64] = np.zeros(count)
        self.tokens: NDArray[np.int64] = np.zeros((count, 3), np.int64)
        self.raw: NDArray[np.float32] = np.zeros((count, len(RAW)), np.float32)
        self.raw[:, 2] = scenario.wind_speed

    def tokenize(self, raw: NDArray[np.float32], lanes: NDArray[np.int64]) -> None:
        """Write the tokens of other raw observations, in the lanes given by their indices."""
        _tokenize(self._row, raw, lanes, self.tokens)

    def update(self, lanes: NDArray[np.int64]) -> None:
        """Write the raw observations that the tokens stand for."""
        _reckon(self._readings, self._angles, self.headings, self.tokens, lanes, self.raw)

    def turn(self, lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Record actions."""
        self.headings[lanes] += self._turns[actions[lanes]]


class Tokenized:
    """A policy that sees the tokens of a world; see `Reckoning`."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy", "seen")

    def __init__(self, policy: Policy, scenario: Scenario, whiff: int = 1) -> None:
        self.policy = policy
        self._scenario, self._whiff = scenario, whiff

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self.policy.begin(seeds, scenario)
        self.seen: Reckoning = Reckoning(len(seeds), self._scenario, self._whiff)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices."""
        self.seen.tokenize(raw, lanes)
        self.choose(lanes, actions)
        self.seen.turn(lanes, actions)

    def choose(self, lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions by the tokens of `seen`, which is to be told what is then done."""
        self.seen.update(lanes)
        self.policy.act(self.seen.raw, lanes, actions)


def level_readings(scenario: Scenario) -> NDArray[np.float32]:
    """A reading for each level: none, the geometric middle of its band, and for the last one twice where it begins."""
    edges = [*scenario.level_edges, 4.0 * scenario.level_edges[-1]]
    bands = [math.sqrt(max(low, 0.0) * max(high, 0.0)) for low, high in itertools.pairwise(edges)]
    return np.array([0.0, *bands], np.float32)


def wind_angles(scenario: Scenario) -> NDArray[np.float64]:
    """The angles to the left of the heading, rad, that the wind comes from in the middle of each octant."""
    row = row_of(scenario)
    angles: NDArray[np.float64] = row["octant_sign"] * (
        2.0 * math.pi * (np.arange(OCTANTS) + 0.5) / OCTANTS - row["octant_offset"]
    )
    return angles


@kernel
def _tokenize(row, raw, lanes, tokens):
    for n in range(len(lanes)):
        i = lanes[n]
        tokens[i, 0] = level(row, raw[i, 0])
        tokens[i, 1] = level(row, raw[i, 1])
        tokens[i, 2] = octant(row, raw[i, 2], raw[i, 3], raw[i, 4])


@kernel
def _reckon(readings, angles, headings, tokens, lanes, raw):
    for n in range(len(lanes)):
        i = lanes[n]
        raw[i, 0] = readings[tokens[i, 0]]
        raw[i, 1] = readings[tokens[i, 1]]
        raw[i, 3] = wrap(headings[i] + angles[tokens[i, 2]] - math.pi)
        raw[i, 4] = wrap(headings[i])
