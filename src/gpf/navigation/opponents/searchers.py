"""Agents that keep a belief about where the source is, and head where that says: infotaxis and its relatives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.belief import expected_score, learn, rule_out, set_prior, write_logs
from gpf.navigation.opponents.detection import fitted
from gpf.navigation.opponents.odour_map import blank_map, draw_map
from gpf.navigation.opponents.scores import INFOTAXIS, SPACE_AWARE
from gpf.navigation.opponents.track import Tracks, clear_heading, follow, is_due, is_walled_off, look_back
from gpf.plume.kernels import Record, device, lean_kernel
from gpf.plume.physics import wrap
from gpf.plume.rng import seed_streams, uniform
from gpf.plume.scenario import Scenario
from gpf.plume.steering import steer

THOMPSON, GREEDY = 2, 3
MOST_CELLS = 61
"""Cells along each side of a belief, at most."""
HEADINGS = 12
"""Headings that are compared."""

GOAL = np.dtype(
    [(name, np.float64) for name in ("heading", "x", "y", "until")] + [("has", np.int64), ("smelled", np.int64)]
)
"""Where a lane is heading: heading, rad; the place that was drawn, m from the start; the step until which it holds."""


@dataclass
class BeliefPolicy:
    """Heads where a rule and a belief say, one decision per observation.

    The agent knows its strides by dead reckoning, the detection model of the scenario
    (`gpf.navigation.opponents.detection`), from how far away episodes start, and how near the source must be to be
    found.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("_tracks", "_beliefs", "_goals", "_streams")
    RULE: ClassVar[int] = INFOTAXIS

    trust: float = 0.5
    """Power of the likelihood of a whiff; below 1 because successive ones are correlated."""
    blank_trust: float = 0.5
    """The same of a blank."""
    doubt: float = 1e-3
    """Share of the belief that is spread evenly at each observation."""
    look_ahead: float = 1.0
    """How far ahead headings are compared, m."""
    commitment: float = 3.0
    """How long Thompson sampling heads for a place that it has drawn, s."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self._tracks = Tracks(len(seeds), scenario)
        pace = self._tracks.pace
        self._cell = max(scenario.success_radius, 2.0 * pace.radius / (MOST_CELLS - 1))
        reach = math.ceil(pace.radius / self._cell)
        self._model = fitted(scenario).record()
        self._beliefs = np.zeros((len(seeds), 2 * reach + 1, 2 * reach + 1))
        self._goals = np.zeros(len(seeds), GOAL)
        self._streams = seed_streams([(seed, 1) for seed in seeds])  # 1: not the world's own stream
        self._odour = blank_map(reach)
        self._scratch = np.zeros((2 * reach + 1, 2 * reach + 1)), np.zeros(4, np.int64), np.zeros((pace.ages, 2))
        y, x = np.mgrid[-2 * reach : 2 * reach + 1, -2 * reach : 2 * reach + 1]
        self._distances = np.hypot(x, y)
        self._shifts = _shifts(max(1.0, round(self.look_ahead / self._cell)))
        self._search = _search_of(self, scenario, self._cell)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations are those of `gpf.plume.world.RAW`."""
        tracks = self._tracks
        _search(
            lanes, raw, tracks.sensing, tracks.row, tracks.walk, tracks.tracks, tracks.knots, self._model, self._search,
            self._beliefs, self._goals, self._streams, self._odour, *self._scratch, self._distances, self._shifts,
            np.asarray(tracks.row["turns"]), actions,
        )  # fmt: skip


class Infotaxis(BeliefPolicy):
    """Heads where it expects to lose most of its uncertainty (Vergassola et al. 2007)."""


class SpaceAwareInfotaxis(BeliefPolicy):
    """Heads where it expects the minimum remaining effort (Loisy & Eloy 2022)."""

    RULE: ClassVar[int] = SPACE_AWARE


class Thompson(BeliefPolicy):
    """Heads for a place drawn from its belief, for a while or until it is there or smells something."""

    RULE: ClassVar[int] = THOMPSON


class GreedyBelief(BeliefPolicy):
    """Heads for the most likely place."""

    RULE: ClassVar[int] = GREEDY


SEARCH = np.dtype(
    [(name, np.float64) for name in ("trust", "blank_trust", "doubt", "cell", "radius", "nearest", "farthest", "near")]
    + [("rule", np.int64), ("commitment", np.int64)]
)
"""The kernel's parameters of a policy and a scenario."""


def _search_of(policy: BeliefPolicy, scenario: Scenario, cell: float) -> Any:
    search = np.zeros((), SEARCH)
    for name, value in {
        "trust": policy.trust, "blank_trust": policy.blank_trust, "doubt": policy.doubt, "cell": cell,
        "radius": scenario.success_radius, "near": max(scenario.success_radius / cell, 0.75),
        "nearest": scenario.start_distance_min, "farthest": scenario.start_distance_max, "rule": policy.RULE,
        "commitment": max(1, round(policy.commitment / scenario.time_step)),
    }.items():  # fmt: skip
        search[name] = value
    return search[()]


def _shifts(ahead: float) -> NDArray[np.int64]:
    """Rows and columns to the cells that lie ahead in each heading, shape (HEADINGS, 2)."""
    angles = 2.0 * math.pi * np.arange(HEADINGS) / HEADINGS
    return np.column_stack([np.rint(ahead * np.sin(angles)), np.rint(ahead * np.cos(angles))]).astype(np.int64)


@lean_kernel
def _search(
    lanes, raw, sensing, row, walk, tracks, knots, model, search, beliefs, goals, streams, odour, logs, alive, path,
    distances, shifts, turns, actions,
):  # fmt: skip
    for n in range(len(lanes)):
        i = lanes[n]
        track, goal, belief = tracks[i], goals[i], beliefs[i]
        follow(sensing, row, walk, track, raw[i])
        if track.step == 1:
            upwind = math.atan2(-track.wind_y, -track.wind_x)
            set_prior(belief, search.cell, search.nearest, search.farthest, upwind, model.bearing)
            goal.heading = upwind
        if is_due(walk, track):
            observe(walk, track, knots[i], path, model, search, belief, odour)
            decide(walk, track, model, search, belief, goal, streams[i], odour, logs, alive, distances, shifts)
            track.whiffs = 0
        actions[i] = steer(clear_heading(track, goal.heading) - raw[i, 4], turns)


@device
def observe(
    walk: Record, track: Record, knots: NDArray[np.float64], path: NDArray[np.float64], model: Record, search: Record,
    belief: NDArray[np.float64], odour: Any,
) -> None:  # fmt: skip
    """Update the belief with what has been smelled since the last observation."""
    look_back(walk, track, knots, path)
    reach = len(belief) // 2
    row, column = round(track.y / search.cell), round(track.x / search.cell)
    draw_map(
        odour, model, path, walk.duration, (track.step - 1) * walk.time_step, search.cell,
        track.x - search.cell * column, track.y - search.cell * row,
    )  # fmt: skip
    whiff = track.whiffs > 0
    learn(
        belief, odour, model, row + reach, column + reach, whiff, search.trust if whiff else search.blank_trust,
        search.doubt,
    )  # fmt: skip
    rule_out(belief, search.cell, track, search.radius)


@device
def decide(
    walk: Record, track: Record, model: Record, search: Record, belief: NDArray[np.float64], goal: Record,
    stream: NDArray[np.uint64], odour: Any, logs: NDArray[np.float64], alive: NDArray[np.int64],
    distances: NDArray[np.float64], shifts: NDArray[np.int64],
) -> None:  # fmt: skip
    """Choose where to head next."""
    if search.rule >= THOMPSON:
        if search.rule == GREEDY:
            goal.x, goal.y = most_likely(belief, search.cell, track)
        elif (
            goal.has == 0
            or track.whiffs > 0
            or track.step >= goal.until
            or math.hypot(goal.x - track.x, goal.y - track.y) < search.radius
        ):
            goal.x, goal.y = draw_place(belief, search.cell, stream)
            goal.has, goal.until = 1, track.step + search.commitment
        goal.heading = math.atan2(goal.y - track.y, goal.x - track.x)
        return
    smelled = track.whiffs > 0
    there = math.hypot(goal.x - track.x, goal.y - track.y) < 0.5 * walk.interval * walk.stride
    if goal.has == 0 or there or track.step >= goal.until or smelled != (goal.smelled != 0):
        write_logs(belief, logs, alive)
        compare_headings(track, model, search, belief, goal, odour, logs, alive, distances, shifts)
        goal.has, goal.smelled = 1, smelled
        goal.until = track.step + 1.5 * math.hypot(goal.x - track.x, goal.y - track.y) / walk.stride
    goal.heading = math.atan2(goal.y - track.y, goal.x - track.x)


@device
def compare_headings(
    track: Record, model: Record, search: Record, belief: NDArray[np.float64], goal: Record, odour: Any,
    logs: NDArray[np.float64], alive: NDArray[np.int64], distances: NDArray[np.float64], shifts: NDArray[np.int64],
) -> None:  # fmt: skip
    """Choose the place ahead that scores lowest; of equal ones, the one for which the agent turns least."""
    n, reach, lowest = len(belief), len(belief) // 2, math.inf
    row, column = round(track.y / search.cell) + reach, round(track.x / search.cell) + reach
    for h in range(len(shifts)):
        to_row, to_column = row + shifts[h, 0], column + shifts[h, 1]
        x, y = search.cell * (to_column - reach), search.cell * (to_row - reach)
        if not (0 <= to_row < n and 0 <= to_column < n) or is_walled_off(track, x, y):
            continue
        score = expected_score(
            search.rule, belief, logs, alive, odour, distances, search.near, model, to_row, to_column
        )
        score += 1e-6 * abs(wrap(math.atan2(y - track.y, x - track.x) - goal.heading))
        if score < lowest:
            lowest, goal.x, goal.y = score, x, y


@device
def most_likely(belief: NDArray[np.float64], cell: float, track: Record) -> tuple[float, float]:
    """The most likely place, m from the start; of equal ones, the nearest to the agent."""
    reach = len(belief) // 2
    x = y = highest = 0.0
    nearest = math.inf
    for i in range(len(belief)):
        for j in range(len(belief)):
            if belief[i, j] >= highest:
                at_x, at_y = cell * (j - reach), cell * (i - reach)
                away = math.hypot(at_x - track.x, at_y - track.y)
                if belief[i, j] > highest or away < nearest:
                    x, y, highest, nearest = at_x, at_y, belief[i, j], away
    return x, y


@device
def draw_place(belief: NDArray[np.float64], cell: float, stream: NDArray[np.uint64]) -> tuple[float, float]:
    """A place drawn from the belief, m from the start."""
    reach, left = len(belief) // 2, uniform(stream)
    for i in range(len(belief)):
        for j in range(len(belief)):
            left -= belief[i, j]
            if left < 0.0:
                return cell * (j - reach), cell * (i - reach)
    return 0.0, 0.0
