"""The terrain of a world with obstacles: solid cells, the wind around them, and which places connect.

Kernels read terrains from flat arrays that hold several of them one after the other (`pack_terrains`), so lanes with
different obstacles need no views and no recompilation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpf.plume.collisions import cell_index
from gpf.plume.flow import basis_flows
from gpf.plume.layout import Rectangle, solid_cells
from gpf.plume.scenario import Scenario


@dataclass(frozen=True, eq=False)
class Terrain:
    """Obstacles on a grid of cells over the domain, row 0 at the bottom, and the wind around them. Read-only."""

    solid: NDArray[np.bool_]
    """Which cells are solid, shape (ny, nx)."""
    labels: NDArray[np.int32]
    """Connected parts of the free cells (by their sides), from 1, and 0 for solid cells; shape (ny, nx)."""
    cell_x: float
    """Extent of a cell along x, m."""
    cell_y: float
    """Extent of a cell along y, m."""
    u: NDArray[np.float64]
    """Velocity along x on left and right faces, for a wind of 1 m/s along +x and along +y, shape (2, ny, nx + 1)."""
    v: NDArray[np.float64]
    """Velocity along y on lower and upper faces, for the same two winds, shape (2, ny + 1, nx)."""

    def label_at(self, xy: Sequence[float]) -> int:
        """The part of the free cells in which a point (x, y) in m lies; 0 in an obstacle."""
        ny, nx = self.solid.shape
        column = cell_index.py_func(float(xy[0]), self.cell_x, nx)
        return int(self.labels[cell_index.py_func(float(xy[1]), self.cell_y, ny), column])


def terrain_of(scenario: Scenario) -> Terrain | None:
    """The terrain of a scenario; None without obstacles. Scenarios with the same obstacles share one."""
    if not scenario.obstacles and not any("#" in row for row in scenario.occupancy):
        return None
    return _terrain(scenario.width, scenario.height, scenario.obstacle_cell, scenario.obstacles, scenario.occupancy)


@lru_cache(maxsize=64)
def _terrain(
    width: float, height: float, cell: float, rectangles: tuple[Rectangle, ...], occupancy: tuple[str, ...]
) -> Terrain:
    solid = solid_cells(width, height, cell, rectangles, occupancy)
    return make_terrain(solid, width / solid.shape[1], height / solid.shape[0])


def make_terrain(solid: NDArray[np.bool_], cell_x: float, cell_y: float) -> Terrain:
    """The terrain of solid cells, shape (ny, nx), of these extents in m."""
    from scipy.ndimage import label

    solid = np.array(solid, np.bool_)  # a copy, because it becomes read-only
    labels = label(~solid)[0].astype(np.int32)
    u, v = basis_flows(labels, cell_x, cell_y)
    for array in (solid, labels, u, v):
        array.setflags(write=False)  # shared by all who ask for the same terrain
    return Terrain(solid, labels, cell_x, cell_y, u, v)


TERRAIN_ROW = np.dtype(
    [(name, np.int64) for name in ("cells", "faces", "nx", "ny")]
    + [(name, np.float64) for name in ("cell_x", "cell_y")],
    align=True,
)
"""One terrain in packed arrays: where its cells and its faces begin, columns, rows, and extents of a cell in m."""


class PackedTerrains(NamedTuple):
    """Terrains one after the other in flat arrays, as kernels read them."""

    solid: NDArray[np.uint8]
    """1 for solid cells, row by row, from `cells` of the table."""
    labels: NDArray[np.int32]
    """Connected parts of the free cells, in the same order."""
    uv: NDArray[np.float64]
    """Velocities on faces, from `faces` of the table: u, then v, row by row; the two basis winds alternate, m/s."""
    table: NDArray[np.void]
    """A row of `TERRAIN_ROW` for each terrain."""


def pack_terrains(terrains: Sequence[Terrain]) -> PackedTerrains:
    """Terrains in flat arrays, in their order; the arrays are empty without any."""
    table = np.zeros(len(terrains), TERRAIN_ROW)
    cells = faces = 0
    for row, terrain in zip(table, terrains, strict=True):
        ny, nx = terrain.solid.shape
        row["cells"], row["faces"], row["nx"], row["ny"] = cells, faces, nx, ny
        row["cell_x"], row["cell_y"] = terrain.cell_x, terrain.cell_y
        cells += terrain.solid.size
        faces += terrain.u.size + terrain.v.size
    return PackedTerrains(
        _joined([terrain.solid for terrain in terrains], np.uint8),
        _joined([terrain.labels for terrain in terrains], np.int32),
        _joined([np.moveaxis(array, 0, -1) for terrain in terrains for array in (terrain.u, terrain.v)], np.float64),
        table,
    )


def _joined(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(array.ravel() for array in arrays)]).astype(dtype)


def reachable(terrain: Terrain, from_xy: Sequence[float]) -> NDArray[np.bool_]:
    """The cells to which there is a way from a point (x, y) in m, shape (ny, nx); none from within an obstacle."""
    label = terrain.label_at(from_xy)
    return (terrain.labels == label) & (label > 0)


def check_reachable(
    terrain: Terrain, source: Sequence[float] | None, position: Sequence[float] | None = None, where: str = ""
) -> None:
    """Refuse a source or a start in an obstacle, and a start without a way to the source.

    Args:
        terrain: The obstacles.
        source: Where the source is, (x, y), m; None if that is drawn.
        position: Where the agent starts, (x, y), m; None if that is drawn.
        where: Ends the sentence of an error, such as " in lane 3".
    """
    for name, place in (("source", source), ("position", position)):
        if place is not None and terrain.label_at(place) == 0:
            raise ValueError(f"{name} must not be in an obstacle, got {_shown(place)}{where}")
    if source is not None and position is not None and terrain.label_at(position) != terrain.label_at(source):
        raise ValueError(
            f"position must have a way to the source at {_shown(source)} between the obstacles,"
            f" got {_shown(position)}{where}"
        )


def _shown(place: Sequence[float]) -> list[float]:
    return [float(number) for number in place]
