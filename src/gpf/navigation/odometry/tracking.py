"""Robots that do not know where they are: sensors simulated step by step, and a filter's estimates.

The world carries out every action exactly, and its observation holds the true heading. What the robot is told of its
own motion is off by slip, `told = done - slip`, which to a filter is the same as motion that is off by slip. IMU and
vane have their errors (`imu`, `Model`). A wall stops the robot without its odometry knowing: it counts the whole step,
as perfect dead reckoning does (`gpf.plume.memory`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.odometry.imu import read_imu, start_imu
from gpf.navigation.odometry.kalman import (
    ESTIMATE,
    HEADING,
    X,
    Y,
    predict,
    start,
    update_gas,
    update_vane,
)
from gpf.plume.kernels import Record, copy, device, lean_kernel
from gpf.plume.physics import wrap
from gpf.plume.rng import normal, seed_streams

TRACKER = np.dtype(
    [
        *((name, np.float64) for name in ("gyro_bias", "accelerometer_bias", "heading", "speed", "shift_x", "shift_y")),
        ("started", np.int64),
        ("estimate", ESTIMATE),
    ],
    align=True,
)
"""The true biases, heading (rad, in the world's frame) and speed (m/s) of a lane; whether it has started; by how much
the estimated way of the last step differs from a full stride along the estimated heading, m; and the estimate."""
CHANCES = 3
"""Marks the random streams of odometry: 1 is a policy's, 2 a training's."""


def tracker_streams(seeds: range | list[int]) -> NDArray[np.uint64]:
    """Random streams for the sensors of episodes."""
    return seed_streams([(seed, CHANCES) for seed in seeds])


@device
def track(
    o: Record,
    q: Record,
    stride: float,
    seconds: float,
    stream: NDArray[np.uint64],
    raw: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Record a raw observation, and write it as the robot sees it: the angles by its own heading.

    Args:
        o: The lane's `TRACKER`.
        q: Of the filter, see `model.ROW`.
        stride: Way of a step, m.
        seconds: Duration of a step, s.
        stream: Random numbers.
        raw: The world's observation, with the true heading.
        out: The robot's observation; may be `raw` itself.
    """
    e, heading = o.estimate, raw[4]
    vane = wrap(raw[3] - heading)
    x, y = 0.0, 0.0
    begins = o.started == 0
    if begins:
        _start(o, q, heading, stream)
    else:
        x, y = e.mean[X], e.mean[Y]
        _advance(o, q, stride / seconds, seconds, heading, stream)
    reading = wrap(vane + q.vane_noise * normal(stream))
    if q.vane != 0.0 and raw[2] > q.calm:
        update_vane(e, q, reading)
    if q.gas != 0.0 and max(raw[0], raw[1]) > q.whiff and e.since >= q.gap:
        update_gas(e, q)
    copy(raw, out)
    out[4] = wrap(e.mean[HEADING] + q.bearing)
    out[3] = wrap(vane + out[4])
    if begins:
        o.shift_x = o.shift_y = 0.0
        return
    c, s = math.cos(q.bearing), math.sin(q.bearing)
    x, y = e.mean[X] - x, e.mean[Y] - y
    o.shift_x = x * c - y * s - stride * math.cos(out[4])
    o.shift_y = x * s + y * c - stride * math.sin(out[4])


@device
def _start(o: Record, q: Record, heading: float, stream: NDArray[np.uint64]) -> None:
    """Begin an episode: at rest, with a heading from a compass."""
    o.started = 1
    o.heading, o.speed = heading, 0.0
    start_imu(o, q, stream)
    start(o.estimate, q, heading - q.bearing + q.heading_sigma * normal(stream), 0.0)


@device
def _advance(o: Record, q: Record, speed: float, seconds: float, heading: float, stream: NDArray[np.uint64]) -> None:
    """Simulate what IMU and commands say of a step, and let the filter go through it."""
    turn = wrap(heading - o.heading)
    turned, gained = read_imu(o, q, seconds, turn, speed - o.speed, stream)
    o.heading, o.speed = heading, speed
    told_turn = turn - q.turn_slip * normal(stream)
    told_speed = speed - q.speed_slip * normal(stream)
    predict(o.estimate, q, seconds, turned, gained, told_turn, told_speed)


@lean_kernel
def track_lanes(lanes, trackers, q, stride, seconds, streams, raw, out):
    """Track the lanes given by their indices."""
    for n in range(len(lanes)):
        i = lanes[n]
        track(trackers[i], q, stride, seconds, streams[i], raw[i], out[i])


@lean_kernel
def shift_lanes(lanes, trackers, places):
    """Move the places that a policy reckons by full strides to where the filter has them."""
    for n in range(len(lanes)):
        i = lanes[n]
        places[i].x += trackers[i].shift_x
        places[i].y += trackers[i].shift_y
