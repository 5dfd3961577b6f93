"""The obstacles of a lane: the wind around them, motion along them, sight past them.

Thin kernels that pick a lane's terrain out of the packed ones and call `flow` and `collisions`. A lane whose recording
is mirrored has the next terrain, which is mirrored, too.
"""

from gpf.plume.collisions import blocked_move, is_free_and_reachable, is_solid, line_of_sight
from gpf.plume.flow import flow_at
from gpf.plume.kernels import Record, device
from gpf.plume.obstacles import PackedTerrains


@device
def wind_around(
    terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float, u: float, v: float
) -> tuple[float, float]:
    """The wind at a point, m/s, where it would be (u, v) without obstacles."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    return flow_at(terrains.uv, t.faces, t.nx, t.ny, t.cell_x, t.cell_y, x, y, u, v)


@device
def slide(
    terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float, dx: float, dy: float
) -> tuple[float, float]:
    """Where a filament ends that moves by (dx, dy), m, and slides along obstacles."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    x, y, _ = blocked_move(
        terrains.solid, t.cells, t.nx, t.ny, t.cell_x, t.cell_y, p.width, p.height, x, y, dx, dy, True
    )
    return x, y


@device
def walk(
    terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float, dx: float, dy: float
) -> tuple[float, float, bool]:
    """Where an agent ends that moves by (dx, dy), m, and whether an obstacle or the edge of the domain stopped it."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    return blocked_move(terrains.solid, t.cells, t.nx, t.ny, t.cell_x, t.cell_y, p.width, p.height, x, y, dx, dy, False)


@device
def sees(terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float, to_x: float, to_y: float) -> bool:
    """Whether no obstacle lies between two points."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    return line_of_sight(terrains.solid, t.cells, t.nx, t.ny, t.cell_x, t.cell_y, x, y, to_x, to_y)


@device
def is_free(terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float) -> bool:
    """Whether a point lies in no obstacle."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    return not is_solid(terrains.solid, t.cells, t.nx, t.ny, t.cell_x, t.cell_y, x, y)


@device
def connected(terrains: PackedTerrains, p: Record, lane: Record, x: float, y: float) -> bool:
    """Whether there is a way from a point to the source."""
    t = terrains.table[int(p.terrain) + lane.mirrored]
    return is_free_and_reachable(
        terrains.labels, t.cells, t.nx, t.ny, t.cell_x, t.cell_y, x, y, lane.source_x, lane.source_y
    )
