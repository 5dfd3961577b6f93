"""A lane on a grid of pixels: concentration and wind everywhere, simulated or recorded, and the obstacles."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.antennae import smell, tips, wind_at
from gpf.plume.ground import sees
from gpf.plume.kernels import kernel
from gpf.plume.physics import BORN, SUBSTANCE, X, Y, gaussian, variance
from gpf.plume.world import World


@kernel
def _simulated_field(world, i, substance, field):
    """Write the concentration at the centre of each pixel; the first row is the top of the domain."""
    p, lane, filaments = world.rows[i], world.lanes[i], world.filaments[i]
    rows, columns = field.shape
    field[:] = 0.0
    for k in range(lane.first, lane.last):
        if p.substances > 1.0 and filaments[SUBSTANCE, k] != substance:
            continue
        spread = variance(p, lane.tick - filaments[BORN, k])
        centre = p.filament_mass / (2.0 * math.pi * spread)
        for r in range(rows):
            y = p.height * (1.0 - (r + 0.5) / rows)
            dy = y - filaments[Y, k]
            if dy * dy >= p.cutoff_squared * spread:
                continue
            for c in range(columns):
                x = p.width * (c + 0.5) / columns
                dx = x - filaments[X, k]
                z = (dx * dx + dy * dy) / spread
                if z < p.cutoff_squared and (
                    p.terrain < 0.0 or sees(world.terrains, p, lane, x, y, filaments[X, k], filaments[Y, k])
                ):
                    field[r, c] += centre * gaussian(z)


@kernel
def _recorded_field(world, i, field):
    """The same of a recording."""
    p = world.rows[i]
    rows, columns = field.shape
    for r in range(rows):
        y = p.height * (1.0 - (r + 0.5) / rows)
        for c in range(columns):
            x = p.width * (c + 0.5) / columns
            field[r, c] = smell(world, i, x, y, x, y)[0]


@kernel
def _wind_field(world, i, field):
    """Write the wind at the centre of each pixel."""
    p = world.rows[i]
    rows, columns = field.shape[:2]
    for r in range(rows):
        for c in range(columns):
            x, y = p.width * (c + 0.5) / columns, p.height * (1.0 - (r + 0.5) / rows)
            field[r, c, 0], field[r, c, 1] = wind_at(world, i, x, y)


@kernel
def _smell_tips(world, i, out):
    """Write where the antennae are, x and y of the left one, then of the right one, and the concentrations there."""
    left_x, left_y, right_x, right_y = tips(world.rows[i], world.lanes[i])
    out[0], out[1], out[2], out[3] = left_x, left_y, right_x, right_y
    out[4], out[5] = smell(world, i, left_x, left_y, right_x, right_y)


def concentration_field(world: World, lane: int, rows: int, columns: int, substance: int = 0) -> NDArray[np.float64]:
    """The concentration in a lane on a grid over the domain, top row first.

    Substance 0 is the one of the sources, 1 the one of the decoys. Among obstacles a pixel has the concentration of the
    filaments that an agent there would see; see `gpf.plume.physics.concentrations_of`.
    """
    field = np.zeros((rows, columns))
    if world.rows[lane]["recording"] < 0.0:
        _simulated_field(world.arrays(), lane, float(substance), field)
    elif substance == 0:
        _recorded_field(world.arrays(), lane, field)
    return field


def wind_field(world: World, lane: int, rows: int, columns: int) -> NDArray[np.float64]:
    """The wind in a lane on a grid over the domain, top row first, shape (rows, columns, 2), m/s."""
    field = np.zeros((rows, columns, 2))
    _wind_field(world.arrays(), lane, field)
    return field


def antennae(world: World, lane: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where the tips of a lane's antennae are, left first, shape (2, 2), m, and the sources' concentration there."""
    out = np.zeros(6)
    _smell_tips(world.arrays(), lane, out)
    return out[:4].reshape(2, 2), out[4:]


def obstacle_map(world: World, lane: int) -> NDArray[np.bool_]:
    """Which cells of a lane's obstacles are solid, top row first; shape (0, 0) without obstacles."""
    if world.rows[lane]["terrain"] < 0.0:
        return np.zeros((0, 0), np.bool_)
    terrains = world.catalogue.terrains
    terrain = terrains.table[int(world.rows[lane]["terrain"]) + int(world.lanes[lane]["mirrored"])]
    cells = terrains.solid[terrain["cells"] :][: terrain["nx"] * terrain["ny"]]
    return cells.reshape(terrain["ny"], terrain["nx"])[::-1] != 0
