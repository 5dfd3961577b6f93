"""Motion and sight among obstacles: a point moves cell by cell along its segment and cannot jump over a wall.

The cells that a segment crosses are visited in order (Amanatides & Woo 1987), from the cell of its start to the cell of
its end. All kernels read one flat array of the cells of packed terrains (see `gpf.plume.obstacles.pack_terrains`),
where a terrain of `nx` columns and `ny` rows begins at `offset`. Lengths are in m. Outside the domain, the nearest cell
counts.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import device

_GAP = 1e-9
"""How far from the face of a solid cell a point stops, in cells: more than rounding can undo."""


@device
def cell_index(position: float, cell: float, count: int) -> int:
    """The column of x, or the row of y, of `count` cells."""
    return min(max(int(position / cell), 0), count - 1)


@device
def is_solid(
    solid: NDArray[np.uint8], offset: int, nx: int, ny: int, cell_x: float, cell_y: float, x: float, y: float
) -> bool:
    """Whether a point lies in an obstacle."""
    return solid[offset + cell_index(y, cell_y, ny) * nx + cell_index(x, cell_x, nx)] != 0


@device
def is_free_and_reachable(
    labels: NDArray[np.int32],
    offset: int,
    nx: int,
    ny: int,
    cell_x: float,
    cell_y: float,
    x: float,
    y: float,
    from_x: float,
    from_y: float,
) -> bool:
    """Whether a point lies in no obstacle, and there is a way to it from another one (such as the source)."""
    label = labels[offset + cell_index(y, cell_y, ny) * nx + cell_index(x, cell_x, nx)]
    return label != 0 and label == labels[offset + cell_index(from_y, cell_y, ny) * nx + cell_index(from_x, cell_x, nx)]


@device
def _time_to_face(position: float, move: float, index: int, cell: float) -> float:
    """The share of a move after which a point leaves its column (or row); infinite if it moves along it."""
    if move == 0.0:
        return math.inf
    return ((index + (move > 0.0)) * cell - position) / move


@device
def _before_face(move: float, index: int, cell: float) -> float:
    """The position just before the face through which a move would leave a column (or row)."""
    return (index + 1.0 - _GAP) * cell if move > 0.0 else (index + _GAP) * cell


@device
def _kept_in(position: float, index: int, cell: float, count: int) -> float:
    """The position, moved into its column (or row) if rounding has put it into the next one."""
    if cell_index(position, cell, count) == index:
        return position
    return min(max(position, (index + _GAP) * cell), (index + 1.0 - _GAP) * cell)


@device
def _share_inside(position: float, move: float, extent: float, gap: float) -> float:
    """The share of a move that stays within [0, extent]; all of it if it ends within a gap of that, by rounding."""
    if position + move < -gap:
        return max(-position / move, 0.0)
    if position + move > extent + gap:
        return max((extent - position) / move, 0.0)
    return 1.0


@device
def blocked_move(
    solid: NDArray[np.uint8],
    offset: int,
    nx: int,
    ny: int,
    cell_x: float,
    cell_y: float,
    width: float,
    height: float,
    x: float,
    y: float,
    dx: float,
    dy: float,
    slide: bool,
) -> tuple[float, float, bool]:
    """Move a point by (dx, dy) as far as obstacles let it; returns its position and whether it was stopped.

    Without `slide` it stops where it bumps into an obstacle or an edge of the domain: that is how an agent moves. With
    `slide` it loses only the component of its motion that points into the obstacle, and the edges of the domain are
    open: that is how a filament moves. A point that begins in a solid cell may leave it for a free one.
    """
    bumped = False
    if not slide:
        share = min(_share_inside(x, dx, width, _GAP * cell_x), _share_inside(y, dy, height, _GAP * cell_y))
        bumped = share < 1.0
        dx, dy = share * dx, share * dy
    end_x, end_y = x + dx, y + dy
    i, j = cell_index(x, cell_x, nx), cell_index(y, cell_y, ny)
    last_i, last_j = cell_index(end_x, cell_x, nx), cell_index(end_y, cell_y, ny)
    time_x, time_y = _time_to_face(x, dx, i, cell_x), _time_to_face(y, dy, j, cell_y)
    while i != last_i or j != last_j:
        if j == last_j or (i != last_i and time_x <= time_y):
            beyond = i + 1 if last_i > i else i - 1
            if solid[offset + j * nx + beyond] == 0:
                i = beyond
                time_x = _time_to_face(x, dx, i, cell_x)
                continue
            bumped = True
            end_x, last_i = _before_face(dx, i, cell_x), i
            if not slide:
                end_y, last_j = _kept_in(y + time_x * dy, j, cell_y, ny), j
        else:
            beyond = j + 1 if last_j > j else j - 1
            if solid[offset + beyond * nx + i] == 0:
                j = beyond
                time_y = _time_to_face(y, dy, j, cell_y)
                continue
            bumped = True
            end_y, last_j = _before_face(dy, j, cell_y), j
            if not slide:
                end_x, last_i = _kept_in(x + time_y * dx, i, cell_x, nx), i
    if not slide:  # rounding must not put it outside
        end_x, end_y = min(max(end_x, 0.0), width), min(max(end_y, 0.0), height)
    return end_x, end_y, bumped


@device
def line_of_sight(
    solid: NDArray[np.uint8],
    offset: int,
    nx: int,
    ny: int,
    cell_x: float,
    cell_y: float,
    x0: float,
    y0: float,
    x1: float,
    y1: float,
) -> bool:
    """Whether no obstacle lies between two points, nor at one of them."""
    i, j = cell_index(x0, cell_x, nx), cell_index(y0, cell_y, ny)
    last_i, last_j = cell_index(x1, cell_x, nx), cell_index(y1, cell_y, ny)
    dx, dy = x1 - x0, y1 - y0
    time_x, time_y = _time_to_face(x0, dx, i, cell_x), _time_to_face(y0, dy, j, cell_y)
    if solid[offset + j * nx + i] != 0:
        return False
    while i != last_i or j != last_j:
        if j == last_j or (i != last_i and time_x <= time_y):
            i += 1 if last_i > i else -1
            time_x = _time_to_face(x0, dx, i, cell_x)
        else:
            j += 1 if last_j > j else -1
            time_y = _time_to_face(y0, dy, j, cell_y)
        if solid[offset + j * nx + i] != 0:
            return False
    return True
