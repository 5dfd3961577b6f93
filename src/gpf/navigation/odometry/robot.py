"""The filter for one robot, fed by its own sensors."""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.odometry import kalman
from gpf.navigation.odometry.consistency import plain_covariance
from gpf.navigation.odometry.model import Model
from gpf.plume.kernels import kernel


class OdometryFilter:
    """Where a robot is, by IMU, commands, wind vane and contacts with a plume; see `kalman` for the model.

    Positions are in the frame of the wind, from the start: downwind and crosswind (to the left of downwind), m.
    Headings are in the world's frame, rad, counter-clockwise, as `Model.bearing` is.

    >>> robot = OdometryFilter(heading=math.pi)  # facing the wind, which blows along +x
    >>> robot.predict(0.1, rate=0.0, acceleration=5.0, turn=0.0, speed=0.5)  # from rest to 0.5 m/s within the step
    >>> robot.update_vane(math.pi)  # it blows towards the tail
    >>> robot.update_gas()
    >>> bool(abs(robot.downwind + 0.05) < 0.01)
    True
    """

    def __init__(self, model: Model | None = None, heading: float = 0.0, axis: float = 0.0) -> None:
        """Begin at rest.

        Args:
            model: Assumptions of the filter; None for the defaults.
            heading: In the world's frame, rad; uncertain by `Model.heading_sigma`.
            axis: Crosswind place of the plume's axis, seen from here, m; uncertain by `Model.axis_prior`.
        """
        self.model: Model = model or Model()
        self._row = self.model.row()
        self._estimate = np.zeros(1, kalman.ESTIMATE)
        _start(self._estimate, self._row, _finite("heading", heading) - self._row["bearing"], _finite("axis", axis))

    def predict(self, seconds: float, rate: float, acceleration: float, turn: float, speed: float) -> None:
        """Go through a step.

        Args:
            seconds: Its duration, s.
            rate: Mean of the gyro's samples, rad/s, counter-clockwise.
            acceleration: Mean of the samples of the accelerometer along the body's axis, m/s^2, without gravity.
            turn: Commanded turn, rad, at the beginning of the step.
            speed: Commanded speed, m/s.
        """
        if _finite("seconds", seconds) <= 0.0:
            raise ValueError(f"seconds must be positive, got {seconds}")
        turned, gained = seconds * _finite("rate", rate), seconds * _finite("acceleration", acceleration)
        _predict(self._estimate, self._row, seconds, turned, gained, _finite("turn", turn), _finite("speed", speed))

    def update_vane(self, direction: float) -> None:
        """Add a reading of the vane: the downwind direction from the robot's axis, rad, counter-clockwise."""
        _update_vane(self._estimate, self._row, _finite("direction", direction))

    def update_gas(self) -> None:
        """Add a contact with the plume; of those within `Model.gap` seconds of the last one, call none."""
        _update_gas(self._estimate, self._row)

    @property
    def state(self) -> NDArray[np.float64]:
        """The mean of the state, in the order of `kalman.STATE`; its heading is counted from downwind. A copy."""
        mean: NDArray[np.float64] = self._estimate["mean"][0].copy()
        return mean

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the errors of `state`, to first order, shape (8, 8)."""
        return plain_covariance(self._estimate["mean"][0], self._estimate["covariance"][0])

    @property
    def downwind(self) -> float:
        """Way downwind from the start, m."""
        return float(self._estimate["mean"][0, kalman.X])

    @property
    def crosswind(self) -> float:
        """Way to the left of downwind from the start, m."""
        return float(self._estimate["mean"][0, kalman.Y])

    @property
    def heading(self) -> float:
        """Heading in the world's frame, rad, in [-pi, pi)."""
        turn = 2.0 * math.pi
        return float((self._estimate["mean"][0, kalman.HEADING] + self._row["bearing"] + math.pi) % turn - math.pi)

    @property
    def speed(self) -> float:
        """Speed along the body's axis, m/s."""
        return float(self._estimate["mean"][0, kalman.SPEED])


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


@kernel
def _start(estimates, q, heading, axis):
    kalman.start(estimates[0], q, heading, axis)


@kernel
def _predict(estimates, q, seconds, turned, gained, turn, speed):
    kalman.predict(estimates[0], q, seconds, turned, gained, turn, speed)


@kernel
def _update_vane(estimates, q, direction):
    kalman.update_vane(estimates[0], q, direction)


@kernel
def _update_gas(estimates, q):
    kalman.update_gas(estimates[0], q)
