"""A simulated inertial measurement unit (IMU) in three grades: readings of gyro and accelerometer over a step.

A step of the plume world is a turn on the spot followed by a straight walk at constant speed, in that order. The robot
brakes, turns and accelerates again at the beginning of the step, so that the accelerometer along its body sees the
change of speed between two steps, and the gyro the turn. Both sample at `rate`, each sample integrated over its
interval as IMUs with increment outputs do. The filter uses the sums of a step of duration T,

    turned = turn + T b_g + n_g,    gained = change of speed + T b_a + n_a,

with the white noise of the samples in n (variance: noise^2 T / rate) and biases b that hold still within a step and
walk at its end. These sums have exactly the law of the summed samples, which need not be drawn.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device
from gpf.plume.rng import normal

WALK_TIME = 300.0
"""Time in which a bias walks by its own initial standard deviation, s. An assumption: data sheets give the stability of
a bias, not its walk."""


@dataclass(frozen=True)
class Imu:
    """Errors of a gyro and of an accelerometer that were calibrated at rest before the start."""

    gyro_bias: float
    """Standard deviation of the bias at the start, rad/s."""
    gyro_noise: float
    """Standard deviation of the white noise of a sample, rad/s."""
    accelerometer_bias: float
    """Standard deviation of the bias at the start, m/s^2."""
    accelerometer_noise: float
    """Standard deviation of the white noise of a sample, m/s^2."""
    rate: float = 100.0
    """Samples a second, Hz."""

    @property
    def gyro_density(self) -> float:
        """Angle random walk, rad/sqrt(s)."""
        return self.gyro_noise / math.sqrt(self.rate)

    @property
    def accelerometer_density(self) -> float:
        """Velocity random walk, m/s/sqrt(s)."""
        return self.accelerometer_noise / math.sqrt(self.rate)

    @property
    def gyro_walk(self) -> float:
        """Random walk of the gyro's bias, rad/s/sqrt(s)."""
        return self.gyro_bias / math.sqrt(WALK_TIME)

    @property
    def accelerometer_walk(self) -> float:
        """Random walk of the accelerometer's bias, m/s^2/sqrt(s)."""
        return self.accelerometer_bias / math.sqrt(WALK_TIME)


GRADES: dict[str, Imu] = {
    "industrial": Imu(7e-5, 1.7e-3, 2.5e-3, 0.02),
    "drone": Imu(0.002, 0.004, 0.03, 0.06),
    "consumer": Imu(0.03, 0.02, 0.3, 0.3),
}
"""IMUs by grade. `industrial`: in-run bias stability of the ADIS16448 (14.5 deg/h, 0.25 mg) and the noise densities of
that part in the EuRoC calibration (1.7e-4 rad/s/sqrt(Hz), 2e-3 m/s^2/sqrt(Hz)). `drone`: a small drone's. `consumer`:
an MPU-6050 that has warmed up by 5 K since its calibration (zero-rate output 20 deg/s over 62 K, zero-g level 35 mg),
with five times the noise of `drone` for a frame that vibrates, which is an assumption."""


@device
def start_imu(o: Record, q: Record, stream: NDArray[np.uint64]) -> None:
    """Draw the biases with which an episode begins."""
    o.gyro_bias = q.gyro_bias * normal(stream)
    o.accelerometer_bias = q.accelerometer_bias * normal(stream)


@device
def read_imu(
    o: Record, q: Record, seconds: float, turn: float, gain: float, stream: NDArray[np.uint64]
) -> tuple[float, float]:
    """Readings of gyro and accelerometer over a step: rad and m/s; the biases walk at its end."""
    root = math.sqrt(seconds)
    turned = turn + seconds * o.gyro_bias + q.gyro_density * root * normal(stream)
    gained = gain + seconds * o.accelerometer_bias + q.accelerometer_density * root * normal(stream)
    o.gyro_bias += q.gyro_walk * root * normal(stream)
    o.accelerometer_bias += q.accelerometer_walk * root * normal(stream)
    return turned, gained
