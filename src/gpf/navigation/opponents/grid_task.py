"""The search on a grid of Loisy & Eloy (2022), as OTTO runs it, to compare our agents with published numbers.

An agent in the middle of a grid has just smelled something. Each step takes it to a neighbouring cell, where it finds
the source or counts hits, a Poisson number whose mean falls with the distance d from the source: R K0(d / lambda) /
ln(2 lambda) in two dimensions, R exp(-d / lambda) / (1 - 1 / (2 lambda)) in one. No source is placed: hits are drawn
from what the agent believes, and a step finds the source with the probability that the belief gives its cell. That
has the same mean arrival time as placing a source at random, with less variance.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.scores import INFOTAXIS, NOTHING, SPACE_AWARE, outcome_score
from gpf.plume.kernels import device, lean_kernel
from gpf.plume.rng import seed_streams, uniform
from gpf.settings import choose

THOMPSON, GREEDY = 2, 3
POLICIES = {"infotaxis": INFOTAXIS, "space-aware-infotaxis": SPACE_AWARE, "thompson": THOMPSON, "greedy": GREEDY}
"""Agents: two that score moves, one that walks to a place drawn from its belief until it is there or smells
something, and one that walks to the most likely place."""
FOUND = 1e-6
"""Probability of not having found the source below which a run ends."""
MOST_RETURNS = 8
"""A run ends if the agent goes back and forth more often than this in a row."""
TIE = 1e-10
"""Scores that differ by less are equal; the first of equal moves is taken."""
_FAR = 1000
"""Distances from which the first hit may come, lambda."""


@dataclass(frozen=True)
class GridTask:
    """The task: its size, and how fast hits fall off with distance."""

    dimensions: int
    """1 or 2."""
    dispersion: float
    """Length scale lambda of the hits, cells; at least 1."""
    intensity: float
    """Mean number R of hits that the source emits in a step."""
    size: int
    """Cells along each side, an odd number."""

    def __post_init__(self) -> None:
        if self.dimensions not in (1, 2):
            raise ValueError(f"dimensions must be 1 or 2, got {self.dimensions}")
        if not 1.0 <= self.dispersion < math.inf:
            raise ValueError(f"dispersion must be at least 1, got {self.dispersion}")
        if not 0.0 < self.intensity < math.inf:
            raise ValueError(f"intensity must be positive, got {self.intensity}")
        if self.size < 3 or self.size % 2 == 0:
            raise ValueError(f"size must be odd and at least 3, got {self.size}")

    def mean_hits(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean number of hits in a step at distances from the source, cells."""
        from scipy.special import k0

        reach = distance / self.dispersion
        if self.dimensions == 1:
            return self.intensity * np.exp(-reach) / (1.0 - 0.5 / self.dispersion)
        return np.asarray(self.intensity * k0(reach) / math.log(2.0 * self.dispersion))

    @property
    def outcomes(self) -> int:
        """Numbers of hits that are distinguished: 0, 1, ... and the last one for this many or more."""
        nearest = float(self.mean_hits(np.ones(1))[0])
        return math.ceil(nearest + math.sqrt(nearest)) + 1

    @property
    def most_steps(self) -> int:
        """Steps after which a run ends, as OTTO sets it."""
        if self.dimensions == 1:
            return 4 * self.size
        at_dispersion = float(self.mean_hits(np.full(1, self.dispersion))[0])
        steps = 500.0 * self.dispersion
        return round(steps / math.sqrt(at_dispersion) if at_dispersion < 1.0 else steps)

    def likelihoods(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of each outcome at distances, shape (outcomes, *distance.shape); 0 at distance 0."""
        mean = self.mean_hits(np.where(distance > 0.0, distance, 1.0))
        some = [np.exp(-mean) * mean**hits / math.factorial(hits) for hits in range(self.outcomes - 1)]
        return np.where(distance > 0.0, np.stack([*some, 1.0 - np.sum(some, axis=0)]), 0.0)

    def first_hits(self) -> NDArray[np.float64]:
        """Probability of each number of hits at the start, given at least one, in an unbounded domain."""
        radius = np.arange(1.0, int(_FAR * self.dispersion))
        places = np.full(len(radius), 2.0) if self.dimensions == 1 else 2.0 * math.pi * radius
        weights = self.likelihoods(radius) @ places
        weights[0] = 0.0
        return np.asarray(weights / weights.sum())

    def tables(self) -> "Tables":
        """Tables of the kernels."""
        rows = 1 if self.dimensions == 1 else self.size
        y, x = np.mgrid[1 - rows : rows, 1 - self.size : self.size]
        likelihood = np.ascontiguousarray(self.likelihoods(np.hypot(x, y)))
        with np.errstate(divide="ignore"):
            logs = np.where(likelihood > 0.0, np.log2(likelihood), 0.0)
        return Tables(likelihood, likelihood * logs, np.cumsum(self.first_hits()), rows, self.size)


class Tables(NamedTuple):
    """A task as kernels see it."""

    likelihood: NDArray[np.float64]
    """Of each outcome by the displacement of the source, shape (outcomes, 2 rows - 1, 2 columns - 1)."""
    information: NDArray[np.float64]
    """Likelihood times its log2, same shape."""
    first_hits: NDArray[np.float64]
    """Cumulative distribution of the hits at the start."""
    rows: int
    columns: int


@dataclass(frozen=True)
class Arrivals:
    """Arrival times of many runs."""

    mean: float
    """Mean number of steps to the source, given that it is found."""
    error: float
    """Half-width of its 95 % interval, steps."""
    found: float
    """Share of runs that find the source."""
    decisions: int
    """Number of decisions that were made."""


def search(task: GridTask, policy: str, runs: int, seed: int = 0) -> Arrivals:
    """Mean arrival time of an agent of `POLICIES` over a number of runs, each with a random stream of its own."""
    rule = POLICIES[choose("policy", policy, POLICIES)]
    results = np.zeros((runs, 3))  # expected steps while searching, steps to the source, probability of finding it
    streams = seed_streams([(seed, run) for run in range(runs)])
    decisions = _run_all(task.tables(), rule, task.most_steps, streams, _scratch(task), results)
    waiting, arriving, found = results.T
    error = 1.96 * float(waiting.std(ddof=1)) / math.sqrt(runs) if runs > 1 else math.nan
    return Arrivals(float(arriving.sum() / found.sum()), error, float(found.mean()), int(decisions))


def _scratch(task: GridTask) -> NDArray[np.float64]:
    """Room for a belief and its logarithm."""
    return np.zeros((2, 1 if task.dimensions == 1 else task.size, task.size))


@lean_kernel
def _run_all(tables, rule, most_steps, streams, scratch, results):
    """Run an episode for each random stream; returns the number of decisions."""
    decisions = 0
    for run in range(len(streams)):
        decisions += _run(tables, rule, most_steps, streams[run], scratch[0], scratch[1], results[run])
    return decisions


@device
def _run(tables: Any, rule: int, most_steps: int, stream: Any, belief: Any, logs: Any, result: Any) -> int:
    """One run; returns its steps."""
    row, column = tables.rows // 2, tables.columns // 2
    for i in range(tables.rows):
        for j in range(tables.columns):
            belief[i, j] = 1.0
    update(tables, belief, row, column, _draw(tables.first_hits, stream))
    before_row = before_column = ago_row = ago_column = target_row = target_column = -1
    returns, missing, waiting, arriving, steps = 0, 1.0, 0.0, 0.0, 0
    while missing >= FOUND and steps < most_steps and returns <= MOST_RETURNS:
        if rule == THOMPSON and target_row < 0:
            target_row, target_column = _draw_place(belief, stream)
        elif rule == GREEDY:
            target_row, target_column = _most_likely(belief)
        if rule >= THOMPSON:
            move = _towards(row, column, target_row, target_column)
        else:
            move = best_move(tables, rule, belief, logs, row, column)
        ago_row, ago_column, before_row, before_column = before_row, before_column, row, column
        row, column = row + (0, 0, -1, 1)[move], column + (-1, 1, 0, 0)[move]
        returns = returns + 1 if (row == ago_row and column == ago_column) else 0
        steps += 1
        waiting += missing
        here = belief[row, column]
        arriving += steps * missing * here
        missing *= 1.0 - here
        if here > 1.0 - NOTHING:
            break
        hits = _draw_hits(tables, belief, row, column, stream)
        update(tables, belief, row, column, hits)
        if hits > 0 or (row == target_row and column == target_column):
            target_row = -1
    result[0], result[1], result[2] = waiting, arriving, 1.0 - missing
    return steps


@device
def update(tables: Any, belief: NDArray[np.float64], row: int, column: int, hits: int) -> None:
    """Bayes' rule after this many hits in a cell that does not hold the source."""
    total = 0.0
    for i in range(tables.rows):
        for j in range(tables.columns):
            belief[i, j] *= tables.likelihood[hits, i - row + tables.rows - 1, j - column + tables.columns - 1]
            total += belief[i, j]
    for i in range(tables.rows):
        for j in range(tables.columns):
            belief[i, j] /= total


@device
def best_move(
    tables: Any, rule: int, belief: NDArray[np.float64], logs: NDArray[np.float64], row: int, column: int
) -> int:
    """The move of lowest expected score: 0 and 1 along the columns, 2 and 3 along the rows, each down and up."""
    for i in range(tables.rows):
        for j in range(tables.columns):
            logs[i, j] = math.log2(belief[i, j]) if belief[i, j] > 0.0 else 0.0
    best, lowest = 0, math.inf
    for move in range(2 if tables.rows == 1 else 4):
        to_row, to_column = row + (0, 0, -1, 1)[move], column + (-1, 1, 0, 0)[move]
        if 0 <= to_row < tables.rows and 0 <= to_column < tables.columns:
            score = move_score(tables, rule, belief, logs, to_row, to_column)
            if score < lowest - TIE:
                best, lowest = move, score
    return best


@device
def move_score(
    tables: Any, rule: int, belief: NDArray[np.float64], logs: NDArray[np.float64], row: int, column: int
) -> float:
    """The expected score of being in a cell next; finding the source there scores 0, and less if that is certain."""
    if belief[row, column] > 1.0 - NOTHING:
        return -2.0 * TIE
    score = 0.0
    first = np.uint64(tables.columns - 1 - column)  # unsigned: nothing is counted from the end
    for hits in range(len(tables.likelihood)):
        mass = weighted_log = information = weighted_distance = 0.0
        for i in range(tables.rows):
            likelihood = tables.likelihood[hits, i - row + tables.rows - 1]
            informed = tables.information[hits, i - row + tables.rows - 1]
            beliefs, log, away = belief[i], logs[i], abs(i - row)
            for j in range(np.uint64(tables.columns)):
                weight = beliefs[j] * likelihood[first + j]
                mass += weight
                weighted_log += weight * log[j]
                information += beliefs[j] * informed[first + j]
                weighted_distance += weight * (away + abs(np.int64(j) - column))
        score += outcome_score(rule, mass, weighted_log + information, weighted_distance)
    return score


@device
def _draw(cumulative: NDArray[np.float64], stream: NDArray[np.uint64]) -> int:
    """An index drawn from a cumulative distribution."""
    at = uniform(stream)
    for index in range(len(cumulative) - 1):
        if at < cumulative[index]:
            return index
    return len(cumulative) - 1


@device
def _draw_hits(tables: Any, belief: NDArray[np.float64], row: int, column: int, stream: NDArray[np.uint64]) -> int:
    """Hits in a cell, drawn from what the belief predicts if the source is not there."""
    left = uniform(stream) * (1.0 - belief[row, column])
    last = len(tables.likelihood) - 1
    for hits in range(last):
        for i in range(tables.rows):
            for j in range(tables.columns):
                there = tables.likelihood[hits, i - row + tables.rows - 1, j - column + tables.columns - 1]
                left -= belief[i, j] * there
        if left < 0.0:
            return hits
    return last


@device
def _draw_place(belief: NDArray[np.float64], stream: NDArray[np.uint64]) -> tuple[int, int]:
    """A cell drawn from the belief."""
    left = uniform(stream)
    place = (0, 0)
    for i in range(belief.shape[0]):
        for j in range(belief.shape[1]):
            if belief[i, j] > 0.0:
                place = (i, j)
                left -= belief[i, j]
                if left < 0.0:
                    return place
    return place


@device
def _most_likely(belief: NDArray[np.float64]) -> tuple[int, int]:
    """The cell of greatest probability; the first, of several."""
    place, highest = (0, 0), -1.0
    for i in range(belief.shape[0]):
        for j in range(belief.shape[1]):
            if belief[i, j] > highest + TIE:
                place, highest = (i, j), belief[i, j]
    return place


@device
def _towards(row: int, column: int, to_row: int, to_column: int) -> int:
    """The move along the axis on which the target is farther away."""
    down, right = to_row - row, to_column - column
    if abs(down) > abs(right):
        return 2 if down < 0 else 3
    return 0 if right < 0 else 1
