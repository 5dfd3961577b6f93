"""Readings of the agent's antennae and vane."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.arrays import Arrays
from gpf.plume.ground import wind_around
from gpf.plume.kernels import Record, device
from gpf.plume.physics import concentrations, concentrations_of
from gpf.plume.playback import sample_movie, sample_wind
from gpf.plume.sensors import ELEMENTS, ideal, respond, start_sensor
from gpf.plume.wind import fluctuation_at, mean_wind


@device
def sense(world: Arrays, i: int) -> None:
    """Read both antennae: their sensors' responses to the concentrations at their places."""
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    left_x, left_y, right_x, right_y = tips(p, lane)
    left, right = smell(world, i, left_x, left_y, right_x, right_y)
    if p.substances > 1.0:
        other_left, other_right = concentrations_of(world, i, 1.0, left_x, left_y, right_x, right_y)
        second_left = p.sensitivity[2] * left + p.sensitivity[3] * other_left
        second_right = p.sensitivity[2] * right + p.sensitivity[3] * other_right
        left = p.sensitivity[0] * left + p.sensitivity[1] * other_left
        right = p.sensitivity[0] * right + p.sensitivity[1] * other_right
        lane.second_left = respond(p, lane.sensors[2], second_left, p.left_gain, stream)
        lane.second_right = respond(p, lane.sensors[3], second_right, p.right_gain, stream)
    lane.left = respond(p, lane.sensors[0], left, p.left_gain, stream)
    lane.right = respond(p, lane.sensors[1], right, p.right_gain, stream)


@device
def sense_simply(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """The same with ideal sensors, in a world of plain filaments."""
    left_x, left_y, right_x, right_y = tips(p, lane)
    left, right = concentrations(p, lane, filaments, left_x, left_y, right_x, right_y, scratch)
    lane.left = ideal(p, p.left_gain * left, stream)
    lane.right = ideal(p, p.right_gain * right, stream)


@device
def tips(p: Record, lane: Record) -> tuple[float, float, float, float]:
    """Where the two antennae are: x and y of the left one, then of the right one, m."""
    ahead_x, ahead_y = math.cos(lane.heading), math.sin(lane.heading)
    x = lane.x + p.antenna_forward * ahead_x
    y = lane.y + p.antenna_forward * ahead_y
    side_x, side_y = -p.antenna_left * ahead_y, p.antenna_left * ahead_x  # from the middle to the left antenna
    return x + side_x, y + side_y, x - side_x, y - side_y


@device
def smell(world: Arrays, i: int, left_x: float, left_y: float, right_x: float, right_y: float) -> tuple[float, float]:
    """The concentration of the source's substance at two points, simulated or recorded."""
    p = world.rows[i]
    if p.plain_smell != 0.0:
        return concentrations(p, world.lanes[i], world.filaments[i], left_x, left_y, right_x, right_y, world.scratch)
    if p.recording >= 0.0:
        return _recorded(world, i, left_x, left_y), _recorded(world, i, right_x, right_y)
    return concentrations_of(world, i, 0.0, left_x, left_y, right_x, right_y)


@device
def _recorded(world: Arrays, i: int, x: float, y: float) -> float:
    """The concentration of a recording at a point."""
    p, lane = world.rows[i], world.lanes[i]
    r = world.recordings.table[int(p.recording)]
    time = lane.frame + lane.tick * p.frames_a_tick
    y = p.height - y if lane.mirrored else y
    return p.recording_scale * sample_movie(
        world.recordings.frames, r.frames_offset, r.frames, r.rows, r.columns, p.pixel, time, x, y
    )


@device
def start_sensors(p: Record, lane: Record) -> None:
    """Put all sensing elements into clean air."""
    for n in range(ELEMENTS):
        start_sensor(p, lane.sensors[n])
    lane.left = lane.right = lane.second_left = lane.second_right = 0.0


@device
def sense_wind(world: Arrays, i: int) -> None:
    """Read the vane: the wind where the agent is."""
    p, lane = world.rows[i], world.lanes[i]
    if p.simple_air != 0.0:
        lane.vane_speed, lane.vane_direction = lane.wind_speed, lane.wind_direction
        return
    u, v = wind_at(world, i, lane.x, lane.y)
    lane.vane_speed, lane.vane_direction = math.hypot(u, v), math.atan2(v, u)


@device
def wind_at(world: Arrays, i: int, x: float, y: float) -> tuple[float, float]:
    """The wind at a point, m/s: recorded, or the mean wind with its fluctuations, around obstacles."""
    p, lane = world.rows[i], world.lanes[i]
    if p.recording >= 0.0:
        r = world.recordings.table[int(p.recording)]
        time = (lane.frame + lane.tick * p.frames_a_tick) * r.wind_times / r.frames
        y = p.height - y if lane.mirrored else y
        u, v = sample_wind(
            world.recordings.wind, r.wind_offset, r.wind_times, r.wind_rows, r.wind_columns, p.width, p.height,
            time, x, y,
        )  # fmt: skip
        return u, -v if lane.mirrored else v
    u, v = mean_wind(lane)
    if p.grid_nodes > 0.0:
        du, dv = fluctuation_at(p, world.grids[i], x, y)
        u, v = u + du, v + dv
    if p.terrain >= 0.0:
        u, v = wind_around(world.terrains, p, lane, x, y, u, v)
    return u, v
