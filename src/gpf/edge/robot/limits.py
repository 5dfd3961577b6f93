"""Limits of a robot's motion and of its sensors' values."""

from dataclasses import dataclass

from gpf.edge.robot.messages import Sensor
from gpf.settings import Settings, number


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """Greatest velocities, and what counts as stale or implausible."""

    linear_max: float = number(1.0, 1e-3, 100.0)
    """Greatest speed of a command, m/s; the scenario's speed must not exceed it."""
    angular_max: float = number(1.5, 1e-3, 100.0)
    """Greatest turn rate of a command, rad/s; turns take as long as they then need."""
    command_period: float = number(0.02, 1e-4, 10.0)
    """Time between two calls of `Robot.command`, s; turns and strides last whole periods."""
    gas_timeout: float = number(0.5, 1e-3, 3600.0)
    """Age above which a gas reading is stale, s."""
    wind_timeout: float = number(0.5, 1e-3, 3600.0)
    """Age above which a wind reading is stale, s."""
    odometry_timeout: float = number(0.5, 1e-3, 3600.0)
    """Age above which odometry is stale, s."""
    stamp_ahead: float = number(0.1, 0.0, 3600.0)
    """By how much a stamp may be ahead of the robot's clock, s."""
    wind_speed_max: float = number(50.0, 1e-3, 100.0)
    """Greatest plausible wind speed, m/s."""
    speed_max: float = number(2.0, 1e-3, 100.0)
    """Greatest plausible speed of the robot, m/s."""
    turn_rate_max: float = number(6.0, 1e-3, 1000.0)
    """Greatest plausible turn rate of the robot, rad/s."""
    jump_distance: float = number(0.3, 0.0, 1e5)
    """How much farther than `speed_max` allows a position may be from the one before, m."""
    jump_angle: float = number(0.3, 0.0, 10.0)
    """How much more than `turn_rate_max` allows a heading may differ from the one before, rad."""
    resume_after: int = number(0, 0, 1_000_000)
    """Good readings in a row, of every sensor, after which a robot that a sensor has stopped resumes by itself; 0 for
    never."""

    def __post_init__(self) -> None:
        self.check()

    def timeout(self, sensor: Sensor) -> float:
        """Age above which a reading is stale, s."""
        return float(getattr(self, f"{sensor}_timeout"))
