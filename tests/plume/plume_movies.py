"""Movies of known source and wind: an advection-diffusion equation solved by finite differences, and textures."""

import numpy as np

PIXEL, INTERVAL = 0.05, 0.1  # m, s


def advected_plume(wind=(0.9, 0.3), source=(0.4, 0.5), frames=60, shape=(40, 64), diffusion=5e-4, seed=0):
    """Concentration (frames, rows, columns) of a source that turns on and off at random; explicit upwind differences.

    dc/dt = -u dc/dx - v dc/dy + D (d2c/dx2 + d2c/dy2) + s, with c = 0 outside of the domain.
    """
    rng = np.random.default_rng(seed)
    substeps = 10
    dt = INTERVAL / substeps
    u, v = wind
    concentration = np.zeros(shape)
    row, column = int(source[1] / PIXEL), int(source[0] / PIXEL)
    movie = np.zeros((frames, *shape))
    for frame in range(frames):
        movie[frame] = concentration
        strength = 2.0 * rng.random() * (rng.random() < 0.4)
        for _ in range(substeps):
            c = np.pad(concentration, 1)
            middle, west, east = c[1:-1, 1:-1], c[1:-1, :-2], c[1:-1, 2:]
            south, north = c[:-2, 1:-1], c[2:, 1:-1]
            along_x = u * (middle - west if u > 0 else east - middle) / PIXEL
            along_y = v * (middle - south if v > 0 else north - middle) / PIXEL
            spread = diffusion * (west + east + south + north - 4.0 * middle) / PIXEL**2
            concentration = middle + dt * (spread - along_x - along_y)
            concentration[row, column] += dt * strength
    return np.maximum(movie, 0.0)


def moving_texture(velocity, frames=40, shape=(48, 64), seed=0, scale=5.0):
    """A random pattern that moves by `velocity` (x, y) pixels a frame: sums of waves, so exact at every fraction."""
    rng = np.random.default_rng(seed)
    count = 60
    kx, ky = rng.normal(0.0, 1.0 / scale, (2, count))
    phase = rng.uniform(0.0, 2.0 * np.pi, count)
    y, x = np.mgrid[: shape[0], : shape[1]]
    movie = np.empty((frames, *shape))
    for frame in range(frames):
        across, up = x - velocity[0] * frame, y - velocity[1] * frame
        waves = np.cos(kx[:, None, None] * across + ky[:, None, None] * up + phase[:, None, None])
        movie[frame] = waves.mean(axis=0)
    return movie - movie.min()
