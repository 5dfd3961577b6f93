"""The wind: its mean over the domain, and fluctuations that vary in space.

The mean wind has a speed and a direction, both Ornstein-Uhlenbeck processes. The fluctuations follow Farrell et al.
(2002): a velocity on a grid of nodes that is carried along and diffuses,

    dw/dt = -(W + w) . grad w + (K / 2) laplacian w,

with W the mean wind and K a diffusivity. Its boundary is driven by coloured noise at the four corners, interpolated
along the edges. Each corner has for each component a damped oscillator

    dx1 = x2 dt,    dx2 = -(f^2 x1 + 2 z f x2) dt + G f^2 dW,

which is advanced by its exact solution: its statistics do not depend on the time step. Its stationary standard
deviation is sigma = G sqrt(f / (4 z)), and scenarios give sigma in place of G.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device
from gpf.plume.rng import fill_normals, normal, uniform

CORNERS = 4
NOISES = 2 * CORNERS
"""Oscillators of a grid: two components at each corner. Corners are numbered by row, then column."""
_ONE = np.uint64(1)
NOISE_SIZE = 2 * NOISES
"""Numbers of their state: position and velocity of each."""


@device
def start_wind(
    p: Record,
    lane: Record,
    grid: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """Set the mean wind to its mean, and draw the fluctuations from their stationary law."""
    lane.wind_speed = p.wind_speed
    lane.wind_direction = p.wind_direction
    lane.switched = 0.0
    if p.grid_nodes > 0.0:
        for k in range(NOISES):
            lane.noise[2 * k] = p.noise_sigma * normal(stream)
            lane.noise[2 * k + _ONE] = p.noise_sigma * p.noise_frequency * normal(stream)
        _fill_from_corners(p, lane, grid)
        for _ in range(int(p.grid_relaxation)):
            _step_grid(p, lane, grid, scratch, stream)


@device
def step_wind(
    p: Record,
    lane: Record,
    grid: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """Advance the mean wind, and the fluctuations, if any, by one physical step."""
    step_mean_wind(p, lane, stream)
    if p.grid_nodes > 0.0:
        _step_grid(p, lane, grid, scratch, stream)


@device
def step_mean_wind(p: Record, lane: Record, stream: NDArray[np.uint64]) -> None:
    """Advance speed and direction of the mean wind by one step of their Ornstein-Uhlenbeck processes."""
    speed = lane.wind_speed - p.wind_reversion * (lane.wind_speed - p.wind_speed) + p.wind_speed_kick * normal(stream)
    lane.wind_speed = max(p.wind_speed_floor, speed)
    if p.switch_first > 0.0:
        _switch(p, lane, stream)
    mean_direction = p.wind_direction + p.wind_turn * lane.tick + lane.switched
    lane.wind_direction += p.wind_direction_kick * normal(stream) - p.wind_reversion * (
        lane.wind_direction - mean_direction
    )


@device
def _switch(p: Record, lane: Record, stream: NDArray[np.uint64]) -> None:
    """Turn the mean direction at the times of the scenario: once or periodically, by a given or a random angle."""
    late = lane.tick - p.switch_first
    if late < 0.0 or (late > 0.0 and (p.switch_period == 0.0 or late % p.switch_period != 0.0)):
        return
    if p.switch_random != 0.0:
        lane.switched = p.switch_angle * (2.0 * uniform(stream) - 1.0)
    else:
        lane.switched = p.switch_angle if uniform(stream) < 0.5 else -p.switch_angle


@device
def mean_wind(lane: Record) -> tuple[float, float]:
    """The mean wind over the domain, x and y component, m/s."""
    return lane.wind_speed * math.cos(lane.wind_direction), lane.wind_speed * math.sin(lane.wind_direction)


@device
def fluctuation_at(p: Record, grid: NDArray[np.float64], x: float, y: float) -> tuple[float, float]:
    """The fluctuation at a point of the domain, bilinear between nodes, m/s; `grid` has shape (2, nodes^2)."""
    return between_nodes(p.grid_nodes, p.grid_per_x, p.grid_per_y, grid[0], grid[1], x, y)


@device
def between_nodes(nodes, per_x, per_y, us, vs, x, y):
    """The same with numbers and rows in place of the scenario and the grid, for loops that keep them in registers."""
    n = np.uint64(nodes)
    last = nodes - 2.0
    column, row = x * per_x, y * per_y
    c, r = column if column > 0.0 else 0.0, row if row > 0.0 else 0.0  # NaN, a filament that is gone, is at 0
    c, r = np.uint64(c if c < last else last), np.uint64(r if r < last else last)
    a, b = column - c, row - r
    k = r * n + c
    north = k + n
    u = (1.0 - b) * ((1.0 - a) * us[k] + a * us[k + _ONE]) + b * ((1.0 - a) * us[north] + a * us[north + _ONE])
    v = (1.0 - b) * ((1.0 - a) * vs[k] + a * vs[k + _ONE]) + b * ((1.0 - a) * vs[north] + a * vs[north + _ONE])
    return u, v


@device
def _fill_from_corners(p: Record, lane: Record, grid: NDArray[np.float64]) -> None:
    """Set all nodes by bilinear interpolation of the corners: a first guess of the interior."""
    n = int(p.grid_nodes)
    for component in range(2):
        base = 2 * component * CORNERS
        a, b, c, d = lane.noise[base], lane.noise[base + 2], lane.noise[base + 4], lane.noise[base + 6]
        for row in range(n):
            t = row / (n - 1.0)
            left, right = (1.0 - t) * a + t * c, (1.0 - t) * b + t * d
            for column in range(n):
                s = column / (n - 1.0)
                grid[component, row * n + column] = (1.0 - s) * left + s * right


@device
def _step_grid(
    p: Record,
    lane: Record,
    grid: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    drawn = scratch[0]
    fill_normals(stream, drawn, 0, NOISE_SIZE)
    for k in range(NOISES):
        x, v, first, second = lane.noise[2 * k], lane.noise[2 * k + _ONE], drawn[2 * k], drawn[2 * k + _ONE]
        lane.noise[2 * k] = p.noise_xx * x + p.noise_xv * v + p.noise_kick_x * first
        lane.noise[2 * k + _ONE] = p.noise_vx * x + p.noise_vv * v + p.noise_kick_vx * first + p.noise_kick_v * second
    _set_edges(p, lane, grid)
    wind_x, wind_y = mean_wind(lane)
    for _ in range(int(p.grid_substeps)):
        _advance_interior(p, wind_x, wind_y, grid, scratch)


@device
def _set_edges(p: Record, lane: Record, grid: NDArray[np.float64]) -> None:
    """Interpolate the corners along the edges of the grid."""
    n = int(p.grid_nodes)
    top = (n - 1) * n
    for component in range(2):
        base = 2 * component * CORNERS
        a, b, c, d = lane.noise[base], lane.noise[base + 2], lane.noise[base + 4], lane.noise[base + 6]
        for k in range(n):
            t = k / (n - 1.0)
            grid[component, k] = (1.0 - t) * a + t * b
            grid[component, top + k] = (1.0 - t) * c + t * d
            grid[component, k * n] = (1.0 - t) * a + t * c
            grid[component, k * n + n - 1] = (1.0 - t) * b + t * d


@device
def _advance_interior(
    p: Record, wind_x: float, wind_y: float, grid: NDArray[np.float64], scratch: NDArray[np.float64]
) -> None:
    """One explicit step of advection and diffusion with central differences; the edges stay."""
    n = np.uint64(int(p.grid_nodes))
    advect_x, advect_y, diffuse_x, diffuse_y = p.grid_advect_x, p.grid_advect_y, p.grid_diffuse_x, p.grid_diffuse_y
    first, last = n + _ONE, n * n - n - _ONE
    for k in range(first, last):  # one long loop: what it writes for the sides is replaced below
        u, v = grid[0, k], grid[1, k]
        along_x, along_y = advect_x * (wind_x + u), advect_y * (wind_y + v)
        east, west, north, south = grid[0, k + _ONE], grid[0, k - _ONE], grid[0, k + n], grid[0, k - n]
        scratch[0, k] = (
            u - along_x * (east - west) - along_y * (north - south)
            + diffuse_x * (east - u - u + west) + diffuse_y * (north - u - u + south)
        )  # fmt: skip
        east, west, north, south = grid[1, k + _ONE], grid[1, k - _ONE], grid[1, k + n], grid[1, k - n]
        scratch[1, k] = (
            v - along_x * (east - west) - along_y * (north - south)
            + diffuse_x * (east - v - v + west) + diffuse_y * (north - v - v + south)
        )  # fmt: skip
    for component in range(2):
        for k in range(n + n, last, n):  # the left side; the right side of the row before is the node before it
            scratch[component, k], scratch[component, k - _ONE] = grid[component, k], grid[component, k - _ONE]
        for k in range(first, last):
            grid[component, k] = scratch[component, k]
