"""A lane on a grid of pixels: the concentration everywhere, simulated or recorded, and the obstacles."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.antennae import smell
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


def obstacle_map(world: World, lane: int) -> NDArray[np.bool_]:
    """Which cells of a lane's obstacles are solid, top row first; shape (0, 0) without obstacles."""
    if world.rows[lane]["terrain"] < 0.0:
        return np.zeros((0, 0), np.bool_)
    terrains = world.catalogue.terrains
    terrain = terrains.table[int(world.rows[lane]["terrain"]) + int(world.lanes[lane]["mirrored"])]
    cells = terrains.solid[terrain["cells"] :][: terrain["nx"] * terrain["ny"]]
    return cells.reshape(terrain["ny"], terrain["nx"])[::-1] != 0
