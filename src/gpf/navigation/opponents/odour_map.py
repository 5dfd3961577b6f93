"""The probability of a whiff for every place where the source may be, on a grid around the agent."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.opponents.detection import blur
from gpf.plume.kernels import Record, device

_REACH = 3.0
"""Spreads beyond which filaments of an age are left out."""
_LEAST, _MOST = 1e-3, 0.999
"""Mean number of encounters below which there is none; greatest probability of a whiff."""


class OdourMap(NamedTuple):
    """Probabilities by the displacement of the source from the agent, in cells; the middle is the agent's cell.

    Shapes are (n, n). All except `box` hold only inside the box; elsewhere a whiff is as likely as far from the plume.
    """

    mean: NDArray[np.float64]
    whiff: NDArray[np.float64]
    """Probability of a whiff."""
    whiff_log: NDArray[np.float64]
    """Its log2."""
    blank_log: NDArray[np.float64]
    """Log2 of the probability of none."""
    box: NDArray[np.int64]
    """First and last row, and first and last column, of the box; the last ones are excluded."""
    columns: NDArray[np.float64]
    """Working space, shape (n,)."""


def blank_map(reach: int) -> OdourMap:
    """A map with this many cells to each side."""
    n = 2 * reach + 1
    mean, whiff, whiff_log, blank_log = np.zeros((4, n, n))
    return OdourMap(mean, whiff, whiff_log, blank_log, np.zeros(4, np.int64), np.zeros(n))


@device
def draw_map(
    odour: Any, model: Record, path: NDArray[np.float64], duration: float, known: float, cell: float, x: float, y: float
) -> None:
    """Write the map of an agent whose air has come along a path.

    Args:
        odour: An `OdourMap`.
        model: Of detection.
        path: Where air of each age has come from, m.
        duration: Time between two ages, s.
        known: How long the wind has been observed, s.
        cell: Side of a cell, m.
        x: How far the agent is from the middle of its cell, m.
        y: Likewise.
    """
    _clear(odour)
    reach = len(odour.mean) // 2
    box = odour.box
    for k in range(len(path)):
        spread, strength = blur(model, duration * (k + 1), known)
        if strength < _LEAST:
            continue
        at_x, at_y, around = (x - path[k, 0]) / cell, (y - path[k, 1]) / cell, _REACH * spread / cell
        left, right = max(math.ceil(at_x - around), -reach), min(math.floor(at_x + around), reach)
        low, high = max(math.ceil(at_y - around), -reach), min(math.floor(at_y + around), reach)
        if left > right or low > high:
            continue
        box[0], box[1] = min(box[0], low + reach), max(box[1], high + reach + 1)
        box[2], box[3] = min(box[2], left + reach), max(box[3], right + reach + 1)
        narrow = 0.5 * (cell / spread) ** 2
        for u in range(left, right + 1):
            odour.columns[u + reach] = math.exp(-narrow * (u - at_x) ** 2)
        for v in range(low, high + 1):
            there = strength * math.exp(-narrow * (v - at_y) ** 2)
            row = odour.mean[v + reach]
            for u in range(left + reach, right + reach + 1):
                row[u] += there * odour.columns[u]
    for v in range(box[0], box[1]):
        for u in range(box[2], box[3]):
            whiff = min(1.0 - (1.0 - model.false) * math.exp(-odour.mean[v, u]), _MOST)
            odour.whiff[v, u] = whiff
            odour.whiff_log[v, u] = math.log2(whiff)
            odour.blank_log[v, u] = math.log2(1.0 - whiff)


@device
def _clear(odour: Any) -> None:
    """An empty map."""
    box = odour.box
    for v in range(box[0], box[1]):
        for u in range(box[2], box[3]):
            odour.mean[v, u] = 0.0
    box[0] = box[2] = len(odour.mean)
    box[1] = box[3] = 0
