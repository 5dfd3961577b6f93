"""Obstacles of a world: rectangles or an occupancy grid, checked and placed on a grid of cells."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown

Rectangle = tuple[float, float, float, float]
"""x and y of the lower left corner, width and height, m."""

MOST_CELLS = 40_000
"""Cells that a grid may have: 200 x 200, for which the wind is solved in about a second."""

_FUZZ = 1e-9
"""Share of a cell by which an edge may miss a face through rounding."""

OFFICE: tuple[Rectangle, ...] = (
    # Outer walls, 0.25 m thick: two windows of 2.5 m each in west and east, an entrance of 1.5 m in the south
    (1.0, 1.0, 0.25, 2.75), (1.0, 6.25, 0.25, 5.5), (1.0, 14.25, 0.25, 4.75),
    (18.75, 1.0, 0.25, 3.25), (18.75, 6.75, 0.25, 5.5), (18.75, 14.75, 0.25, 4.25),
    (1.0, 18.75, 18.0, 0.25), (1.0, 1.0, 10.0, 0.25), (12.5, 1.0, 6.5, 0.25),
    # Inner walls: two doors of 2 m lead from the west room to the other two, between which there is a third
    (8.0, 1.0, 0.25, 2.75), (8.0, 5.75, 0.25, 7.25), (8.0, 15.0, 0.25, 4.0),
    (8.0, 9.75, 5.0, 0.25), (15.0, 9.75, 4.0, 0.25),
    # Desks, 1.5 x 0.75 m
    (3.0, 3.0, 1.5, 0.75), (5.5, 7.0, 0.75, 1.5), (3.0, 11.0, 1.5, 0.75), (5.0, 16.5, 1.5, 0.75),
    (10.5, 6.5, 1.5, 0.75), (15.0, 3.0, 0.75, 1.5), (10.5, 16.0, 1.5, 0.75), (15.0, 12.5, 0.75, 1.5),
)  # fmt: skip
"""Obstacles of an office of three rooms with windows, doors and desks, for a domain of 20 x 20 m."""


def checked_rectangles(value: Any) -> tuple[Rectangle, ...]:
    """Rectangles as plain numbers, or an error that names the first wrong one."""
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise ValueError(f"obstacles must be a list of rectangles, got {shown(value)}")
    return tuple(_rectangle(one) for one in value)


def _rectangle(value: Any) -> Rectangle:
    numbers = tuple(value) if isinstance(value, list | tuple | np.ndarray) else ()
    try:
        rectangle = tuple(math.nan if isinstance(one, str | bool | np.bool_) else float(one) for one in numbers)
    except (TypeError, ValueError, OverflowError):
        rectangle = ()
    if len(rectangle) != 4 or not all(math.isfinite(one) for one in rectangle):
        raise ValueError(f"obstacles must be rectangles of four numbers, x, y, width and height, got {shown(value)}")
    if rectangle[2] <= 0.0 or rectangle[3] <= 0.0:
        raise ValueError(f"obstacles must have positive width and height, got {shown(rectangle)}")
    return rectangle


def checked_occupancy(value: Any) -> tuple[str, ...]:
    """The rows of an occupancy grid, or an error."""
    rows = tuple(value) if isinstance(value, list | tuple) else (None,)
    texts = all(isinstance(row, str) and row and not row.strip("#.") for row in rows)
    if not texts or len({len(row) for row in rows}) > 1:
        raise ValueError(f"occupancy must be rows of # and . of equal length, got {shown(value)}")
    return rows


def check_layout(
    width: float, height: float, cell: float, rectangles: tuple[Rectangle, ...], occupancy: tuple[str, ...]
) -> None:
    """Refuse obstacles that contradict the domain (its width and height in m) or each other."""
    if not rectangles and not occupancy:
        return
    if rectangles and occupancy:
        raise ValueError("obstacles and occupancy must not both be given")
    for one in rectangles:
        x, y, wide, high = one
        if not (x < width and y < height and x + wide > 0.0 and y + high > 0.0):
            raise ValueError(
                f"obstacles must overlap the domain, x from 0 to {width:g} m and y from 0 to {height:g} m,"
                f" got {shown(one)}"
            )
    rows, columns = grid_shape(width, height, cell, occupancy)
    if rows * columns > MOST_CELLS:
        raise ValueError(f"obstacle_cell must give at most {MOST_CELLS:,} cells, got {cell:g} m for {rows * columns:,}")
    if solid_cells(width, height, cell, rectangles, occupancy).all():
        raise ValueError(f"{'obstacles' if rectangles else 'occupancy'} must leave a part of the domain free")


def grid_shape(width: float, height: float, cell: float, occupancy: tuple[str, ...]) -> tuple[int, int]:
    """Rows and columns of the grid: cells are at most `cell` long, and divide those of an occupancy grid evenly."""
    rows, columns = (len(occupancy), len(occupancy[0])) if occupancy else (1, 1)
    return rows * _parts(height / rows, cell), columns * _parts(width / columns, cell)


def _parts(length: float, longest: float) -> int:
    """Into how many equal parts a length is divided so that none is longer than `longest`."""
    return max(1, math.ceil(length / longest - _FUZZ))


def solid_cells(
    width: float, height: float, cell: float, rectangles: tuple[Rectangle, ...], occupancy: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Which cells are solid, shape (ny, nx), row 0 at the bottom.

    The edges of a rectangle move to the nearest faces between cells; touching rectangles leave no gap. A
    rectangle that is thinner than a cell fills the cell in which its middle lies: no wall vanishes.
    """
    ny, nx = grid_shape(width, height, cell, occupancy)
    if occupancy:
        coarse = np.array([[mark == "#" for mark in row] for row in reversed(occupancy)])
        return coarse.repeat(ny // coarse.shape[0], axis=0).repeat(nx // coarse.shape[1], axis=1)
    solid = np.zeros((ny, nx), np.bool_)
    for x, y, wide, high in rectangles:
        solid[_span(y, y + high, height, ny), _span(x, x + wide, width, nx)] = True
    return solid


def _span(low: float, high: float, extent: float, count: int) -> slice:
    """The cells between two edges, of `count` that divide an extent; all three in m."""
    low, high = (count * min(max(edge, 0.0), extent) / extent for edge in (low, high))  # in cells
    first, last = (math.floor(edge + 0.5 + _FUZZ) for edge in (low, high))
    if first == last:
        first = min(math.floor(0.5 * (low + high)), count - 1)
        last = first + 1
    return slice(first, last)
