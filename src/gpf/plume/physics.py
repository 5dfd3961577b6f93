"""The physics of the plume: wind, emission, advection, concentration.

Kernels work on one lane at a time and allocate nothing. A lane's filaments are three rows of one float array (x, y, the
step of release), of which columns `first` to `last` are in use, oldest first. A filament that has left the domain keeps
its place, at x = NaN, until the ones before it are gone: nothing is moved on most steps, and every loop over filaments
is one that the compiler can vectorise. No loop lets the compiler reorder sums, so a world gives the same bits wherever
its kernels are inlined.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.kernels import Record, fma
from gpf.plume.rng import normal, poisson, uniform

X, Y, BORN = 0, 1, 2

_SLACK = 32
"""Columns that may lie unused before the first filament: few, so that a lane's filaments stay in the cache."""
_ONE, _TWO, _THREE, _FOUR = (np.uint64(n) for n in (1, 2, 3, 4))


@njit(error_model="numpy")
def start_wind(p: Record, lane: Record) -> None:
    """Set the wind to its mean."""
    lane.wind_speed = p.wind_speed
    lane.wind_direction = p.wind_direction


@njit(error_model="numpy")
def step_wind(p: Record, lane: Record, stream: NDArray[np.uint64]) -> None:
    """Advance wind speed and direction by one step of their Ornstein-Uhlenbeck processes."""
    speed = lane.wind_speed - p.wind_reversion * (lane.wind_speed - p.wind_speed) + p.wind_speed_kick * normal(stream)
    lane.wind_speed = max(p.wind_speed_floor, speed)
    mean_direction = p.wind_direction + p.wind_turn * lane.step
    lane.wind_direction += p.wind_direction_kick * normal(stream) - p.wind_reversion * (
        lane.wind_direction - mean_direction
    )


@njit(error_model="numpy")
def emit(p: Record, lane: Record, filaments: NDArray[np.float64], stream: NDArray[np.uint64]) -> None:
    """Release this step's filaments at the source, if it is on."""
    if p.emission_period > 0.0 and (lane.step - 1) % p.emission_period >= p.emission_on:
        return
    count = poisson(stream, p.emission_mean, p.emission_none)
    if lane.first >= _SLACK or lane.last + count > filaments.shape[1]:
        _compact(lane, filaments, count)
    for _ in range(count):
        k = lane.last
        filaments[X, k] = lane.source_x + p.emission_jitter * normal(stream)
        filaments[Y, k] = lane.source_y + p.emission_jitter * normal(stream)
        filaments[BORN, k] = lane.step - 1  # it ages by the whole of this step
        lane.last += 1


@njit(error_model="numpy")
def _compact(lane: Record, filaments: NDArray[np.float64], room: int) -> None:
    """Move the filaments that are still there to the front; if `room` columns are not free then, drop the oldest."""
    kept = 0
    for k in range(lane.first, lane.last):
        if not math.isnan(filaments[X, k]):
            for row in range(3):
                filaments[row, kept] = filaments[row, k]
            kept += 1
    excess = max(0, kept + room - filaments.shape[1])
    if excess > 0:
        for k in range(excess, kept):
            for row in range(3):
                filaments[row, k - excess] = filaments[row, k]
    lane.first = 0
    lane.last = kept - excess


@njit(error_model="numpy")
def advect(p: Record, lane: Record, filaments: NDArray[np.float64]) -> None:
    """Move all filaments with the wind; end those that leave the domain or have reached their age."""
    distance = lane.wind_speed * p.time_step
    dx = distance * math.cos(lane.wind_direction)
    dy = distance * math.sin(lane.wind_direction)
    width, height = p.width, p.height
    first, last = np.uint64(lane.first), np.uint64(lane.last)  # unsigned: no wrap-around test in the loops
    for k in range(first, last):
        x = filaments[X, k] + dx
        y = filaments[Y, k] + dy
        inside = (x >= 0.0) & (x <= width) & (y >= 0.0) & (y <= height)
        filaments[X, k] = x if inside else math.nan
        filaments[Y, k] = y
    released_after = lane.step - p.lifetime_steps
    while lane.first < lane.last and (
        math.isnan(filaments[X, lane.first]) or filaments[BORN, lane.first] < released_after
    ):
        lane.first += 1


_SQUARINGS = 7
# exp(-z / 2) ** (1 / 2^7) on [0, 4^2], the squared distances in radii that a cutoff of at most 4 lets through.
_EXP = tuple(
    np.polynomial.Chebyshev.interpolate(lambda z: np.exp(-0.5 * z / 2**_SQUARINGS), 6, [0.0, 16.0])
    .convert(kind=np.polynomial.Polynomial)
    .coef.tolist()
)


@njit(error_model="numpy")
def gaussian(z: float) -> float:
    """exp(-z / 2) for z in [0, 16], to 1e-13: a polynomial, squared seven times.

    The library's exp is a call, and a loop with a call in it is not vectorised.
    """
    y = fma(fma(fma(_EXP[6], z, _EXP[5]), z, _EXP[4]), z, _EXP[3])
    y = fma(fma(fma(y, z, _EXP[2]), z, _EXP[1]), z, _EXP[0])
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    return y * y


@njit(error_model="numpy")
def concentrations(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    left_x: float,
    left_y: float,
    right_x: float,
    right_y: float,
    scratch: NDArray[np.float64],
) -> tuple[float, float]:
    """The concentration at two points, (left, right); `scratch` has two rows as long as the filaments' rows."""
    cutoff = p.cutoff_squared
    growth = p.variance_growth
    variance_now = p.initial_variance + growth * lane.step
    first, last = np.uint64(lane.first), np.uint64(lane.last)
    for k in range(first, last):
        inverse = 1.0 / fma(-growth, filaments[BORN, k], variance_now)
        dx, dy = left_x - filaments[X, k], left_y - filaments[Y, k]
        left = fma(dx, dx, dy * dy) * inverse
        dx, dy = right_x - filaments[X, k], right_y - filaments[Y, k]
        right = fma(dx, dx, dy * dy) * inverse
        scratch[0, k] = inverse * gaussian(left) if left < cutoff else 0.0  # NaN is not below the cutoff
        scratch[1, k] = inverse * gaussian(right) if right < cutoff else 0.0
    scale = p.filament_mass / (2.0 * math.pi)
    return scale * _sum(scratch[0], first, last), scale * _sum(scratch[1], first, last)


@njit(error_model="numpy")
def _sum(values: NDArray[np.float64], first: np.uint64, last: np.uint64) -> float:
    """The sum of values[first:last], in an order that is fixed and still lets four additions run at once."""
    a = b = c = d = 0.0
    whole = first + (last - first) // _FOUR * _FOUR
    for k in range(first, whole, _FOUR):
        a += values[k]
        b += values[k + _ONE]
        c += values[k + _TWO]
        d += values[k + _THREE]
    for k in range(whole, last):
        a += values[k]
    return (a + b) + (c + d)


@njit(error_model="numpy")
def place_source(p: Record, lane: Record, stream: NDArray[np.uint64]) -> None:
    """Place the source upwind of the centre."""
    upwind_x, upwind_y = -math.cos(lane.wind_direction), -math.sin(lane.wind_direction)
    lane.source_x = _place_on_axis(p, p.width, upwind_x, stream)
    lane.source_y = _place_on_axis(p, p.height, upwind_y, stream)


@njit(error_model="numpy")
def place_agent(p: Record, lane: Record, stream: NDArray[np.uint64]) -> None:
    """Place the agent downwind of the source, facing upwind."""
    distance = p.start_distance_min + (p.start_distance_max - p.start_distance_min) * uniform(stream)
    bearing = lane.wind_direction + p.start_bearing * (2.0 * uniform(stream) - 1.0)
    lane.x = min(max(lane.source_x + distance * math.cos(bearing), 0.0), p.width)
    lane.y = min(max(lane.source_y + distance * math.sin(bearing), 0.0), p.height)
    lane.heading = wrap(lane.wind_direction + math.pi + p.start_heading_sigma * normal(stream))


@njit(error_model="numpy")
def _place_on_axis(p: Record, extent: float, upwind: float, stream: NDArray[np.uint64]) -> float:
    """One coordinate of the source."""
    position = extent * (0.5 + p.source_upwind * upwind + p.source_jitter * (2.0 * uniform(stream) - 1.0))
    return min(max(position, p.source_margin * extent), (1.0 - p.source_margin) * extent)


@njit(error_model="numpy")
def move(p: Record, lane: Record, action: int) -> None:
    """Turn, then take one step forward, carried along by the current if there is one; walls stop the agent."""
    lane.heading = wrap(lane.heading + p.turns[action])
    lane.x = min(max(lane.x + p.stride * math.cos(lane.heading) + p.drift_x, 0.0), p.width)
    lane.y = min(max(lane.y + p.stride * math.sin(lane.heading) + p.drift_y, 0.0), p.height)


@njit(error_model="numpy")
def wrap(angle: float) -> float:
    """The angle in [-pi, pi)."""
    return angle - 2.0 * math.pi * math.floor(angle / (2.0 * math.pi) + 0.5)
