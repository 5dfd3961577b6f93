"""An error-state Kalman filter for a robot in a plume: position, heading, speed and the biases of its IMU.

The frame is that of the wind: x points down the mean wind, y to the left of that, and the heading is counted from x.
The state is (x, y, heading h, speed v, gyro bias b_g, accelerometer bias b_a, wind w, axis a): w is how far the wind's
direction is off its mean, an Ornstein-Uhlenbeck process, and a the crosswind place of the plume's axis. Of a step of
duration T, with the sums `turned` and `gained` of the IMU, follows

    h' = h + turned - T b_g - n_g        v' = v + gained - T b_a - n_a
    x' = x + T v' cos h'                 y' = y + T v' sin h'
    w' = w exp(-T / tau) + noise         biases walk, a stays

and four things correct it, each a number with Gaussian noise:

    commanded turn = h' - h - slip       commanded speed = v' - slip
    vane           = w - h + noise       contact with the plume: 0 = y - a + noise

The turn's slip is measured by the gyro whose noise is also in h', so this correction takes their covariance into
account.

Errors are estimates minus truth, but for the position: its error is the invariant one (Barrau and Bonnabel 2017), what
is left once the true position p is turned about the start by the error of the heading, q - R(error) p with the estimate
q. An error of the heading at the start turns the whole way; in these coordinates that is linear, however long the way.
Errors of x and y are not linear in it, and an extended Kalman filter of those is overconfident along the way. A
correction of the heading turns the estimated position. Kernels work on one lane at a time and allocate nothing.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device
from gpf.plume.physics import wrap

STATE = ("downwind", "crosswind", "heading", "speed", "gyro_bias", "accelerometer_bias", "wind", "axis")
"""Numbers of the state: m, m, rad, m/s, rad/s, m/s^2, rad, m."""
X, Y, HEADING, SPEED, GYRO, ACCELEROMETER, WIND, AXIS = range(len(STATE))
POSE = ACCELEROMETER + 1
"""Numbers of the state that are the robot's own; the other two belong to the world."""
START_SIGMA = 1e-6
"""Standard deviation of position and speed at the start, where the robot rests at the origin, m and m/s."""

ESTIMATE = np.dtype(
    [
        ("mean", np.float64, (len(STATE),)),
        ("covariance", np.float64, (len(STATE), len(STATE))),
        ("cross", np.float64, (len(STATE),)),
        ("since", np.float64),
    ]
)
"""Mean of the state and covariance of its errors, working space, and time since the last contact that counted, s."""


@device
def start(e: Record, q: Record, heading: float, axis: float) -> None:
    """Begin at the origin, at rest, with this heading; the plume's axis is about so far to the left of downwind."""
    for i in range(len(e.mean)):
        e.mean[i] = 0.0
        for j in range(len(e.mean)):
            e.covariance[i, j] = 0.0
    e.mean[HEADING] = wrap(heading)
    e.mean[AXIS] = axis
    e.since = math.inf
    p = e.covariance
    p[X, X] = p[Y, Y] = START_SIGMA**2
    p[HEADING, HEADING] = q.heading_sigma**2
    p[SPEED, SPEED] = START_SIGMA**2
    p[GYRO, GYRO] = q.gyro_bias**2
    p[ACCELEROMETER, ACCELEROMETER] = q.accelerometer_bias**2
    p[WIND, WIND] = q.wind_sigma**2
    p[AXIS, AXIS] = q.axis_prior**2


@device
def predict(e: Record, q: Record, seconds: float, turned: float, gained: float, turn: float, speed: float) -> None:
    """Go through a step: by gyro (rad) and accelerometer (m/s), and by the commanded turn (rad) and speed (m/s)."""
    m, p = e.mean, e.covariance
    m[HEADING] = wrap(m[HEADING] + turned - seconds * m[GYRO])
    m[SPEED] += gained - seconds * m[ACCELEROMETER]
    noise = seconds * q.gyro_density**2
    for i in range(HEADING + 1):
        _add(p, i, GYRO, -seconds * _turning(m, i))
    for i in range(HEADING + 1):
        for j in range(HEADING + 1):
            p[i, j] += noise * _turning(m, i) * _turning(m, j)
    _add(p, SPEED, ACCELEROMETER, -seconds)
    p[SPEED, SPEED] += seconds * q.accelerometer_density**2
    _correct_turn(e, q, seconds, turned, turn)
    _correct_speed(e, q, speed)
    _walk(e, seconds)
    _drift(e, q, seconds)
    e.since += seconds


@device
def _turning(m: NDArray[np.float64], i: int) -> float:
    """The effect of an error of 1 rad in a turn on the error of number i: x, y or heading."""
    if i == HEADING:
        return 1.0
    return m[Y] if i == X else -m[X]


@device
def _correct_turn(e: Record, q: Record, seconds: float, turned: float, turn: float) -> None:
    """Weigh the commanded turn against the gyro's."""
    p = e.covariance
    noise = seconds * q.gyro_density**2
    for i in range(len(e.cross)):
        e.cross[i] = -seconds * p[i, GYRO]
    for i in range(HEADING + 1):
        e.cross[i] += noise * _turning(e.mean, i)
    variance = seconds**2 * p[GYRO, GYRO] + noise + q.turn_slip**2
    correct(e, variance, wrap(turn - turned + seconds * e.mean[GYRO]))


@device
def _correct_speed(e: Record, q: Record, speed: float) -> None:
    """Weigh the commanded speed against that of the accelerometer."""
    for i in range(len(e.cross)):
        e.cross[i] = e.covariance[i, SPEED]
    correct(e, e.covariance[SPEED, SPEED] + q.speed_slip**2, speed - e.mean[SPEED])


@device
def _walk(e: Record, seconds: float) -> None:
    """Walk straight on; an error of the heading has its effect by way of the invariant error's definition."""
    m, p = e.mean, e.covariance
    cosine, sine, way = math.cos(m[HEADING]), math.sin(m[HEADING]), seconds * m[SPEED]
    m[X] += way * cosine
    m[Y] += way * sine
    _add(p, X, SPEED, seconds * cosine)
    _add(p, Y, SPEED, seconds * sine)


@device
def _drift(e: Record, q: Record, seconds: float) -> None:
    """Let biases walk and the wind return to its mean, each with noise."""
    p = e.covariance
    keep = math.exp(-seconds / q.wind_time)
    e.mean[WIND] *= keep
    for i in range(len(e.mean)):
        p[i, WIND] *= keep
    for i in range(len(e.mean)):
        p[WIND, i] *= keep
    p[WIND, WIND] += q.wind_sigma**2 * (1.0 - keep**2)
    p[GYRO, GYRO] += seconds * q.gyro_walk**2
    p[ACCELEROMETER, ACCELEROMETER] += seconds * q.accelerometer_walk**2


@device
def _add(p: NDArray[np.float64], to: int, of: int, share: float) -> None:
    """Update a covariance when a share of one number is added to another one."""
    for i in range(len(p)):
        p[to, i] += share * p[of, i]
    for i in range(len(p)):
        p[i, to] += share * p[i, of]


@device
def update_vane(e: Record, q: Record, reading: float) -> None:
    """Draw the heading to the wind's bearing, by the angle from the robot's axis to where the wind blows to, rad."""
    p = e.covariance
    for i in range(len(e.cross)):
        e.cross[i] = p[i, WIND] - p[i, HEADING]
    variance = e.cross[WIND] - e.cross[HEADING] + q.vane_noise**2
    correct(e, variance, wrap(reading - e.mean[WIND] + e.mean[HEADING]))


@device
def update_gas(e: Record, q: Record) -> None:
    """Draw the crosswind position and the plume's axis to each other, at a contact with the plume."""
    p = e.covariance
    for i in range(len(e.cross)):
        e.cross[i] = p[i, Y] + e.mean[X] * p[i, HEADING] - p[i, AXIS]
    variance = e.cross[Y] + e.mean[X] * e.cross[HEADING] - e.cross[AXIS] + q.axis_sigma**2
    correct(e, variance, e.mean[AXIS] - e.mean[Y])
    e.since = 0.0


@device
def correct(e: Record, variance: float, innovation: float) -> None:
    """Correct by a measured number: its innovation, the variance of that, and its covariances with the errors, `cross`.

    The signs of `cross` are those of the measured number's dependence on the state.
    """
    m, p = e.mean, e.covariance
    before = m[HEADING]
    for i in range(len(m)):
        gain = e.cross[i] / variance
        m[i] += gain * innovation
        for j in range(i + 1):
            p[i, j] -= gain * e.cross[j]
            p[j, i] = p[i, j]
    cosine, sine = math.cos(m[HEADING] - before), math.sin(m[HEADING] - before)
    m[X], m[Y] = cosine * m[X] - sine * m[Y], sine * m[X] + cosine * m[Y]
    m[HEADING] = wrap(m[HEADING])
