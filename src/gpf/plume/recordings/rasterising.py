"""Filaments as a movie: the concentration of 3D Gaussians on the pixels of a horizontal slice."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import kernel

_CUTOFF = 5.0
"""Distance along an axis beyond which a filament contributes nothing, in its radii; GADEN has the same."""


@kernel
def _add_filaments(x, y, z, sigma, mass, height, low_x, low_y, pixel, across, frame):
    """Add filaments to a frame (rows, columns); `across` has room for a row. Lengths in m, mass in ppm m^3."""
    rows, columns = frame.shape
    for k in range(len(x)):
        reach = _CUTOFF * sigma[k]
        rise = z[k] - height
        if abs(rise) >= reach:
            continue
        narrow = -0.5 / (sigma[k] * sigma[k])
        centre = mass * (2.0 * math.pi) ** -1.5 / sigma[k] ** 3 * math.exp(narrow * rise * rise)
        left = max(0, math.ceil((x[k] - reach - low_x) / pixel - 0.5))  # the first pixel centre within reach
        right = min(columns, math.floor((x[k] + reach - low_x) / pixel - 0.5) + 1)
        bottom = max(0, math.ceil((y[k] - reach - low_y) / pixel - 0.5))
        top = min(rows, math.floor((y[k] + reach - low_y) / pixel - 0.5) + 1)
        for column in range(left, right):
            distance = low_x + (column + 0.5) * pixel - x[k]
            across[column] = math.exp(narrow * distance * distance)
        for row in range(bottom, top):
            distance = low_y + (row + 0.5) * pixel - y[k]
            weight = centre * math.exp(narrow * distance * distance)
            for column in range(left, right):
                frame[row, column] += weight * across[column]


def rasterise(
    frames: Sequence[NDArray[np.void]],
    mass: float,
    height: float,
    low: Sequence[float],
    pixel: float,
    shape: tuple[int, int],
) -> NDArray[np.float32]:
    """The concentration of filaments at the centres of pixels, shape (times, rows, columns), ppm.

    A filament is a Gaussian in three dimensions, cut off at five radii along each axis. Obstacles do not shade it,
    whereas GADEN lets a filament be smelt only in its line of sight.

    Args:
        frames: Of each frame, the filaments, arrays of `filaments.FILAMENT` (positions in m, radii in cm).
        mass: Gas in a filament, ppm m^3.
        height: Height of the slice, m.
        low: Lower left corner of the slice (x, y), m.
        pixel: Side of a pixel, m.
        shape: Rows and columns of a frame.
    """
    movie = np.empty((len(frames), *shape), np.float32)
    frame, across = np.empty(shape), np.empty(shape[1])
    for time, filaments in enumerate(frames):
        frame[:] = 0.0
        x, y, z, sigma = (np.ascontiguousarray(filaments[name]) for name in ("x", "y", "z", "sigma"))
        _add_filaments(x, y, z, sigma / 100.0, mass, height, *low, pixel, across, frame)
        movie[time] = frame
    return movie
