"""A belief about where the source is, on a grid around the start of an episode: prior, Bayes' rule, expected scores.

The grid does not move or turn with the agent, and knows no walls. Rows go along y, columns along x.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.scores import outcome_score
from gpf.navigation.opponents.track import is_walled_off
from gpf.plume.kernels import Record, device
from gpf.plume.physics import wrap

_ANYWHERE = 0.05
"""Share of the prior that does not depend on the wind."""
_NEGLIGIBLE = 1e-9
"""Probability of a cell that does not count."""


@device
def set_prior(
    belief: NDArray[np.float64], cell: float, nearest: float, farthest: float, upwind: float, bearing: float
) -> None:
    """Believe what is known at the start: distances from nearest to farthest, m, about upwind, rad.

    All distances are equally likely, as are all directions within the spread `bearing`, except for a share that may
    be anywhere. Beyond the greatest distance the belief falls off over a metre or two.
    """
    reach = len(belief) // 2
    total = 0.0
    for i in range(len(belief)):
        for j in range(len(belief)):
            x, y = cell * (j - reach), cell * (i - reach)
            away = math.hypot(x, y)
            off = wrap(math.atan2(y, x) - upwind) / bearing
            inside = math.exp(-0.5 * (max(away - farthest, nearest - away, 0.0) / 0.7) ** 2)
            belief[i, j] = inside / max(away, cell) * (_ANYWHERE + math.exp(-0.5 * off**2))
            total += belief[i, j]
    for i in range(len(belief)):
        for j in range(len(belief)):
            belief[i, j] /= total


@device
def learn(
    belief: NDArray[np.float64],
    odour: Any,
    model: Record,
    row: int,
    column: int,
    whiff: bool,
    trust: float,
    doubt: float,
) -> None:
    """Bayes' rule after a whiff or a blank of an agent in a cell.

    Args:
        belief: Of each cell.
        odour: The map around the agent.
        model: Of detection.
        row: Of the agent's cell.
        column: Of the agent's cell.
        whiff: The observation.
        trust: Power of the likelihood, below 1 because successive observations are correlated.
        doubt: Share of the belief that is spread evenly, which keeps every cell possible.
    """
    log = odour.whiff_log if whiff else odour.blank_log
    outside = (model.false if whiff else 1.0 - model.false) ** trust
    reach, n, box = len(odour.whiff) // 2, len(belief), odour.box
    total = 0.0
    for i in range(n):
        v = i - row + reach
        for j in range(n):
            u = j - column + reach
            if box[0] <= v < box[1] and box[2] <= u < box[3]:
                belief[i, j] *= 2.0 ** (trust * log[v, u])
            else:
                belief[i, j] *= outside
            total += belief[i, j]
    even = doubt / (n * n)
    scale = (1.0 - doubt) / total if total > 0.0 else 0.0
    for i in range(n):
        for j in range(n):
            belief[i, j] = scale * belief[i, j] + even


@device
def rule_out(belief: NDArray[np.float64], cell: float, track: Record, radius: float) -> None:
    """The source is neither beyond a wall nor within a radius of the agent, m.

    Cells near the agent are lowered by the share that the radius covers. The sum is 1 afterwards.
    """
    reach = len(belief) // 2
    total = 0.0
    for i in range(len(belief)):
        for j in range(len(belief)):
            x, y = cell * (j - reach), cell * (i - reach)
            if is_walled_off(track, x, y):
                belief[i, j] = 0.0
            elif abs(x - track.x) < radius + cell and abs(y - track.y) < radius + cell:
                away = math.hypot(x - track.x, y - track.y)
                belief[i, j] *= min(max((away - radius) / cell + 0.5, 1e-3), 1.0)
            total += belief[i, j]
    for i in range(len(belief)):
        for j in range(len(belief)):
            belief[i, j] = belief[i, j] / total if total > 0.0 else 1.0 / len(belief) ** 2


@device
def write_logs(belief: NDArray[np.float64], logs: NDArray[np.float64], alive: NDArray[np.int64]) -> None:
    """Write p log2 p of each cell, and the rows and columns between which there is any belief worth counting."""
    n = len(belief)
    alive[0] = alive[2] = n
    alive[1] = alive[3] = 0
    for i in range(n):
        for j in range(n):
            p = belief[i, j]
            if p > _NEGLIGIBLE:
                logs[i, j] = math.log2(p)
                alive[0], alive[1] = min(alive[0], i), i + 1
                alive[2], alive[3] = min(alive[2], j), max(alive[3], j + 1)
            else:
                logs[i, j] = 0.0


@device
def expected_score(
    rule: int, belief: NDArray[np.float64], logs: NDArray[np.float64], alive: NDArray[np.int64], odour: Any,
    distances: NDArray[np.float64], near: float, model: Record, row: int, column: int,
) -> float:  # fmt: skip
    """The expected score of smelling next in a cell, where a whiff or a blank follows; finding the source scores 0.

    Args:
        rule: INFOTAXIS or SPACE_AWARE.
        belief: Of each cell.
        logs: Their log2.
        alive: Rows and columns that count.
        odour: The map around the agent, which is the same around that cell.
        distances: By displacement, cells.
        near: Distance within which the source is found, cells.
        model: Of detection.
        row: Of the cell.
        column: Of the agent's cell.
    """
    reach, box, middle = len(odour.whiff) // 2, odour.box, len(distances) // 2
    whiff = whiff_log = whiff_distance = 0.0  # over joint weights of a whiff inside the box
    blank = blank_log = blank_distance = 0.0  # likewise of a blank
    out = out_log = out_distance = 0.0  # over cells outside the box
    for i in range(alive[0], alive[1]):
        v, a = i - row + reach, i - row + middle
        within = box[0] <= v < box[1]
        for j in range(alive[2], alive[3]):
            p = belief[i, j]
            d = distances[a, j - column + middle]
            if d <= near:
                continue
            u = j - column + reach
            if within and box[2] <= u < box[3]:
                w = p * odour.whiff[v, u]
                b = p - w
                whiff += w
                whiff_log += w * (logs[i, j] + odour.whiff_log[v, u])
                whiff_distance += w * d
                blank += b
                blank_log += b * (logs[i, j] + odour.blank_log[v, u])
                blank_distance += b * d
            else:
                out += p
                out_log += p * logs[i, j]
                out_distance += p * d
    false = max(model.false, 1e-6)
    whiff_log += false * (out_log + out * math.log2(false))
    blank_log += (1.0 - false) * (out_log + out * math.log2(1.0 - false))
    score = outcome_score(rule, whiff + false * out, whiff_log, whiff_distance + false * out_distance)
    return score + outcome_score(
        rule, blank + (1.0 - false) * out, blank_log, blank_distance + (1.0 - false) * out_distance
    )
