"""The physics of the plume: emission, advection, concentration; placement and motion of source and agent.

Kernels work on one lane at a time and allocate nothing. A lane's filaments are rows of one float array (x, y, the
physical step of release; in worlds that need them also two velocities and the substance). Columns `first` to `last` are
in use, oldest first. A filament that has left the domain keeps its place, at x = NaN, until the ones before
it are gone: nothing is moved on most steps, and every loop over filaments is one that the compiler can vectorise. No
loop lets the compiler reorder sums, so a world gives the same bits wherever its kernels are inlined.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.arrays import Arrays
from gpf.plume.ground import connected, is_free, sees, slide, walk, wind_around
from gpf.plume.kernels import Record, device, fma
from gpf.plume.rng import fill_normals, normal, poisson, uniform
from gpf.plume.wind import between_nodes, fluctuation_at, mean_wind

X, Y, BORN, VELOCITY_X, VELOCITY_Y, SUBSTANCE = range(6)
ROWS = 6
"""Rows of filaments with a velocity and a substance of their own; others have the first three."""
PLAIN_ROWS = 3

_SLACK = 32
"""Columns that may lie unused before the first filament: few, to keep a lane's filaments in the cache."""
_TRIES = 1000
"""Attempts to place a source or an agent where it may be."""
_ONE, _TWO, _THREE, _FOUR = (np.uint64(n) for n in (1, 2, 3, 4))


@device
def emit_from_one(p: Record, lane: Record, filaments: NDArray[np.float64], stream: NDArray[np.uint64]) -> None:
    """Release this step's filaments at a single source, if it is on."""
    if p.emission_period > 0.0 and (lane.tick - 1) % p.emission_period >= p.emission_on:
        return
    _release(p, lane, filaments, lane.source_x, lane.source_y, p.emission_mean, p.emission_none, 0.0, stream)


@device
def emit(world: Arrays, i: int) -> None:
    """Release this step's filaments at the source, and at all others, where they are on."""
    p, lane, filaments, stream = world.rows[i], world.lanes[i], world.filaments[i], world.streams[i]
    if p.places == 1.0 and p.emission_random == 0.0:
        emit_from_one(p, lane, filaments, stream)
    elif p.emission_random != 0.0 or p.emission_period == 0.0 or (lane.tick - 1) % p.emission_period < p.emission_on:
        _emit_from_all(p, lane, filaments, stream)
    if p.terrain >= 0.0:
        _keep_out_of_walls(world, i)


@device
def _emit_from_all(p: Record, lane: Record, filaments: NDArray[np.float64], stream: NDArray[np.uint64]) -> None:
    """Release filaments at all sources and decoys; those with random spells may be off."""
    for n in range(int(p.places)):
        if p.emission_random != 0.0 and not _is_on(p, lane, n, stream):
            continue
        x, y = (lane.source_x, lane.source_y) if n == 0 else (lane.others_x[n - 1], lane.others_y[n - 1])
        if n < p.sources:
            _release(p, lane, filaments, x, y, p.emission_mean, p.emission_none, 0.0, stream)
        else:
            _release(p, lane, filaments, x, y, p.decoy_mean, p.decoy_none, 1.0, stream)


@device
def _keep_out_of_walls(world: Arrays, i: int) -> None:
    """Put filaments that the jitter of emission has put behind a wall back in front of it."""
    p, lane, filaments = world.rows[i], world.lanes[i], world.filaments[i]
    k = lane.last - 1
    while k >= lane.first and filaments[BORN, k] == lane.tick - 1:  # the newest are the last
        x, y = nearest_source(p, lane, filaments[X, k], filaments[Y, k])
        filaments[X, k], filaments[Y, k] = slide(
            world.terrains, p, lane, x, y, filaments[X, k] - x, filaments[Y, k] - y
        )
        k -= 1


@device
def _is_on(p: Record, lane: Record, place: int, stream: NDArray[np.uint64]) -> bool:
    """Whether a source whose spells on and off are exponentially distributed is on; it may change in this step."""
    ends = p.emission_stop if lane.on[place] else p.emission_start
    if uniform(stream) < ends:
        lane.on[place] = 1 - lane.on[place]
    return lane.on[place] != 0


@device
def _release(p, lane, filaments, x, y, mean, none, substance, stream):
    """Release a Poisson number of filaments at a place."""
    count = poisson(stream, mean, none)
    if lane.first >= _SLACK or lane.last + count > filaments.shape[1]:
        _compact(lane, filaments, count)
    for _ in range(count):
        k = lane.last
        filaments[X, k] = x + p.emission_jitter * normal(stream)
        filaments[Y, k] = y + p.emission_jitter * normal(stream)
        filaments[BORN, k] = lane.tick - 1  # it ages by the whole of this step
        if filaments.shape[0] == ROWS:
            turbulent = p.velocity_sigma > 0.0
            filaments[VELOCITY_X, k] = p.velocity_sigma * normal(stream) if turbulent else 0.0
            filaments[VELOCITY_Y, k] = p.velocity_sigma * normal(stream) if turbulent else 0.0
            filaments[SUBSTANCE, k] = substance
        lane.last += 1


@device
def _compact(lane: Record, filaments: NDArray[np.float64], room: int) -> None:
    """Move the filaments that are still there to the front; if `room` columns are not free then, drop the oldest."""
    kept = 0
    for k in range(lane.first, lane.last):
        if not math.isnan(filaments[X, k]):
            for row in range(filaments.shape[0]):
                filaments[row, kept] = filaments[row, k]
            kept += 1
    excess = max(0, kept + room - filaments.shape[1])
    if excess > 0:
        for k in range(excess, kept):
            for row in range(filaments.shape[0]):
                filaments[row, k - excess] = filaments[row, k]
    lane.first = 0
    lane.last = kept - excess


@device
def advect(world: Arrays, i: int) -> None:
    """Move all filaments with the wind; end those that leave the domain or have reached their age."""
    p, lane, filaments = world.rows[i], world.lanes[i], world.filaments[i]
    if p.simple_air != 0.0:
        advect_together(p, lane, filaments)
        return
    _find_velocities(p, lane, filaments, world.scratch, world.streams[i])
    if p.terrain >= 0.0:
        _advect_around(world, i)
    else:
        _advect_apart(p, lane, filaments, world.grids[i], world.scratch)
    _end_old(p, lane, filaments)


@device
def advect_together(p: Record, lane: Record, filaments: NDArray[np.float64]) -> None:
    """The same where the wind moves all filaments alike."""
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
    _end_old(p, lane, filaments)


@device
def _end_old(p: Record, lane: Record, filaments: NDArray[np.float64]) -> None:
    """End the oldest filaments, as long as they have left the domain or reached their age."""
    released_after = lane.tick - p.lifetime_steps
    while lane.first < lane.last and (
        math.isnan(filaments[X, lane.first]) or filaments[BORN, lane.first] < released_after
    ):
        lane.first += 1


@device
def _find_velocities(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """Write the turbulent velocity that each filament has in this step to `scratch`, x and y.

    It is an Ornstein-Uhlenbeck process, advanced by its exact solution; a filament moves with the mean of its
    velocities at both ends of the step.
    """
    first, last = np.uint64(lane.first), np.uint64(lane.last)
    keep, kick = p.velocity_keep, p.velocity_kick
    for axis in range(2):
        if kick == 0.0:
            for k in range(first, last):
                scratch[axis, k] = 0.0
            continue
        fill_normals(stream, scratch[axis], lane.first, lane.last)
        for k in range(first, last):
            before = filaments[VELOCITY_X + axis, k]
            after = keep * before + kick * scratch[axis, k]
            filaments[VELOCITY_X + axis, k] = after
            scratch[axis, k] = 0.5 * (before + after)


@device
def _advect_apart(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    grid: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None:
    """Move each filament with the wind where it is, and with its own velocity in `scratch`."""
    wind_x, wind_y = mean_wind(lane)
    step, width, height = p.time_step, p.width, p.height
    first, last = np.uint64(lane.first), np.uint64(lane.last)
    for k in range(first, last):
        scratch[0, k] += wind_x
        scratch[1, k] += wind_y
    if p.grid_nodes > 0.0:
        _add_fluctuations(p, filaments, grid, scratch, first, last)
    for k in range(first, last):
        x, y = filaments[X, k] + scratch[0, k] * step, filaments[Y, k] + scratch[1, k] * step
        inside = (x >= 0.0) & (x <= width) & (y >= 0.0) & (y <= height)
        filaments[X, k] = x if inside else math.nan
        filaments[Y, k] = y


@device
def _add_fluctuations(p, filaments, grid, scratch, first, last):
    """Add the wind's fluctuation at each filament to its velocity in `scratch`."""
    nodes, per_x, per_y = p.grid_nodes, p.grid_per_x, p.grid_per_y  # kept in registers, in spite of the stores
    for k in range(first, last):
        u, v = between_nodes(nodes, per_x, per_y, grid[0], grid[1], filaments[X, k], filaments[Y, k])
        scratch[0, k] += u
        scratch[1, k] += v


@device
def _advect_around(world: Arrays, i: int) -> None:
    """The same among obstacles: they divert the wind and stop filaments, which slide along them."""
    p, lane, filaments, scratch = world.rows[i], world.lanes[i], world.filaments[i], world.scratch
    wind_x, wind_y = mean_wind(lane)
    for k in range(lane.first, lane.last):
        x, y = filaments[X, k], filaments[Y, k]
        if math.isnan(x):
            continue
        u, v = wind_x, wind_y
        if p.grid_nodes > 0.0:
            du, dv = fluctuation_at(p, world.grids[i], x, y)
            u, v = u + du, v + dv
        u, v = wind_around(world.terrains, p, lane, x, y, u, v)
        dx, dy = (u + scratch[0, k]) * p.time_step, (v + scratch[1, k]) * p.time_step
        x, y = slide(world.terrains, p, lane, x, y, dx, dy)
        inside = (x >= 0.0) & (x <= p.width) & (y >= 0.0) & (y <= p.height)
        filaments[X, k] = x if inside else math.nan
        filaments[Y, k] = y


_SQUARINGS = 7
# exp(-z / 2) ** (1 / 2^7) on [0, 4^2], the squared distances in radii that a cutoff of at most 4 lets through.
_EXP = tuple(
    np.polynomial.Chebyshev.interpolate(lambda z: np.exp(-0.5 * z / 2**_SQUARINGS), 6, [0.0, 16.0])
    .convert(kind=np.polynomial.Polynomial)
    .coef.tolist()
)


@device
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


@device
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
    variance_now = p.initial_variance + growth * lane.tick
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


@device
def concentrations_of(
    world: Arrays, i: int, substance: float, left_x: float, left_y: float, right_x: float, right_y: float
) -> tuple[float, float]:
    """As `concentrations`, of one substance, with relative dispersion, and only of filaments that the agent sees."""
    p, lane, filaments, scratch = world.rows[i], world.lanes[i], world.filaments[i], world.scratch
    cutoff, first, last = p.cutoff_squared, np.uint64(lane.first), np.uint64(lane.last)
    several = p.substances > 1.0
    for k in range(first, last):
        inverse = 1.0 / variance(p, lane.tick - filaments[BORN, k])
        dx, dy = left_x - filaments[X, k], left_y - filaments[Y, k]
        left = fma(dx, dx, dy * dy) * inverse
        dx, dy = right_x - filaments[X, k], right_y - filaments[Y, k]
        right = fma(dx, dx, dy * dy) * inverse
        of_it = not several or filaments[SUBSTANCE, k] == substance
        scratch[0, k] = inverse * gaussian(left) if of_it & (left < cutoff) else 0.0
        scratch[1, k] = inverse * gaussian(right) if of_it & (right < cutoff) else 0.0
    if p.terrain >= 0.0:
        for k in range(first, last):
            smelled = scratch[0, k] + scratch[1, k] > 0.0
            if smelled and not sees(world.terrains, p, lane, lane.x, lane.y, filaments[X, k], filaments[Y, k]):
                scratch[0, k] = scratch[1, k] = 0.0
    scale = p.filament_mass / (2.0 * math.pi)
    return scale * _sum(scratch[0], first, last), scale * _sum(scratch[1], first, last)


@device
def variance(p: Record, age: float) -> float:
    """The squared radius of a filament of this age, in physical steps: molecular and relative dispersion, m^2."""
    return p.initial_variance + (p.variance_growth + p.variance_cubic * age * age) * age


@device
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


@device
def place_sources(world: Arrays, i: int) -> None:
    """Place the source upwind of the centre, or where the scenario says, and all others anywhere; not in obstacles."""
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    upwind_x, upwind_y = -math.cos(lane.wind_direction), -math.sin(lane.wind_direction)
    for _ in range(_TRIES):
        lane.source_x = _place_on_axis(p, p.width, upwind_x, stream)
        lane.source_y = _place_on_axis(p, p.height, upwind_y, stream)
        if p.terrain < 0.0 or is_free(world.terrains, p, lane, lane.source_x, lane.source_y):
            break
    if p.source_x >= 0.0:
        lane.source_x, lane.source_y = p.source_x, p.height - p.source_y if lane.mirrored else p.source_y
    for n in range(int(p.places) - 1):
        _place_another(world, i, n)


@device
def _place_another(world: Arrays, i: int, n: int) -> None:
    """Place another source away from those before it; after many failures anywhere."""
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    margin_x, margin_y = p.source_margin * p.width, p.source_margin * p.height
    for _ in range(_TRIES):
        x = margin_x + (p.width - 2.0 * margin_x) * uniform(stream)
        y = margin_y + (p.height - 2.0 * margin_y) * uniform(stream)
        nearest = math.hypot(x - lane.source_x, y - lane.source_y)
        for k in range(n):
            nearest = min(nearest, math.hypot(x - lane.others_x[k], y - lane.others_y[k]))
        if nearest >= p.source_spacing and (p.terrain < 0.0 or connected(world.terrains, p, lane, x, y)):
            break
    lane.others_x[n], lane.others_y[n] = x, y


@device
def nearest_source(p: Record, lane: Record, x: float, y: float) -> tuple[float, float]:
    """Where the source, or decoy, is that is nearest to a point."""
    best_x, best_y = lane.source_x, lane.source_y
    for k in range(int(p.places) - 1):
        if math.hypot(x - lane.others_x[k], y - lane.others_y[k]) < math.hypot(x - best_x, y - best_y):
            best_x, best_y = lane.others_x[k], lane.others_y[k]
    return best_x, best_y


@device
def distance_to_source(p: Record, lane: Record) -> float:
    """The distance from the agent to the nearest true source, m."""
    nearest = np.hypot(lane.x - lane.source_x, lane.y - lane.source_y)
    for k in range(int(p.sources) - 1):
        nearest = min(nearest, np.hypot(lane.x - lane.others_x[k], lane.y - lane.others_y[k]))
    return nearest


@device
def distance_to_plume(lane: Record, filaments: NDArray[np.float64]) -> float:
    """The distance from the agent to the centre of the nearest filament, m; infinite without any."""
    nearest = math.inf
    for k in range(lane.first, lane.last):
        dx, dy = filaments[X, k] - lane.x, filaments[Y, k] - lane.y
        squared = dx * dx + dy * dy
        if squared < nearest:  # not so of NaN
            nearest = squared
    return math.sqrt(nearest)


@device
def place_agent(world: Arrays, i: int) -> None:
    """Place the agent downwind of the source, facing upwind, where there is a way to the source."""
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    for _ in range(_TRIES):
        distance = p.start_distance_min + (p.start_distance_max - p.start_distance_min) * uniform(stream)
        bearing = lane.wind_direction + p.start_bearing * (2.0 * uniform(stream) - 1.0)
        lane.x = min(max(lane.source_x + distance * math.cos(bearing), 0.0), p.width)
        lane.y = min(max(lane.source_y + distance * math.sin(bearing), 0.0), p.height)
        if p.terrain < 0.0 or connected(world.terrains, p, lane, lane.x, lane.y):
            break
    lane.heading = wrap(lane.wind_direction + math.pi + p.start_heading_sigma * normal(stream))


@device
def _place_on_axis(p: Record, extent: float, upwind: float, stream: NDArray[np.uint64]) -> float:
    """One coordinate of the source."""
    position = extent * (0.5 + p.source_upwind * upwind + p.source_jitter * (2.0 * uniform(stream) - 1.0))
    return min(max(position, p.source_margin * extent), (1.0 - p.source_margin) * extent)


@device
def turn(p: Record, lane: Record, action: int) -> None:
    """Turn as the action says."""
    lane.heading = wrap(lane.heading + p.turns[action])
    lane.bump = 0.0


@device
def move(world: Arrays, i: int) -> None:
    """Take a step forward, carried along by a current if any; walls and obstacles stop the agent."""
    p, lane = world.rows[i], world.lanes[i]
    if p.terrain < 0.0:
        move_freely(p, lane)
        return
    dx, dy = p.pace * math.cos(lane.heading) + p.drift_x, p.pace * math.sin(lane.heading) + p.drift_y
    lane.x, lane.y, bumped = walk(world.terrains, p, lane, lane.x, lane.y, dx, dy)
    if bumped:
        lane.bump = 1.0


@device
def move_freely(p: Record, lane: Record) -> None:
    """The same without obstacles: only the walls of the domain stop the agent."""
    x = lane.x + p.pace * math.cos(lane.heading) + p.drift_x
    y = lane.y + p.pace * math.sin(lane.heading) + p.drift_y
    lane.x, lane.y = min(max(x, 0.0), p.width), min(max(y, 0.0), p.height)
    if lane.x != x or lane.y != y:
        lane.bump = 1.0


@device
def wrap(angle: float) -> float:
    """The angle in [-pi, pi)."""
    return angle - 2.0 * math.pi * math.floor(angle / (2.0 * math.pi) + 0.5)
