"""Assumptions of an odometry filter about a robot and the wind, as one row of numbers for its kernels."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from gpf.navigation.odometry.imu import GRADES, Imu
from gpf.plume.memory import whiff_threshold
from gpf.plume.scenario import Scenario
from gpf.settings import check, choose, number

Grade = Literal["industrial", "drone", "consumer"]
"""The names of `imu.GRADES`."""
Aids = Literal["none", "vane", "vane and gas"]
"""Corrections of the dead reckoning of IMU and commands: nothing, the vane, or the vane and contacts with the plume."""

ROW = np.dtype(
    [
        (name, np.float64)
        for name in (
            "gyro_bias gyro_density gyro_walk accelerometer_bias accelerometer_density accelerometer_walk"
            " heading_sigma turn_slip speed_slip vane_noise bearing wind_sigma wind_time"
            " axis_sigma axis_prior vane gas whiff gap calm"
        ).split()
    ]
)
"""A `Model` as the kernels see it: SI units, radians."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Assumptions of a filter. Slip and vane noise are also simulated."""

    imu: Imu = GRADES["drone"]
    aids: Aids = "vane and gas"
    heading_sigma: float = number(5.0, 0.0, 180.0)
    """Standard deviation of the heading at the start, from a compass, deg."""
    turn_slip: float = number(1.0, 0.0, 180.0)
    """Standard deviation of the turn of a step about the commanded one, deg."""
    speed_slip: float = number(0.025, 0.0)
    """Standard deviation of the speed of a step about the commanded one, m/s."""
    vane_noise: float = number(3.0, 0.0, 180.0)
    """Standard deviation of a vane's reading, deg."""
    bearing: float = number(0.0, -360.0, 360.0)
    """Mean direction that the wind blows to, deg; the frame of the filter, and from a station or a forecast."""
    wind_sigma: float = number(15.0, 0.0, 180.0)
    """Standard deviation of the wind's direction about that bearing, deg."""
    wind_time: float = number(2.0, 1e-3)
    """Correlation time of that direction, s."""
    axis_sigma: float = number(1.6, 1e-3)
    """Standard deviation of the crosswind distance from the plume's axis at a contact, m: that of cast-and-surge in the
    preset `paper`, on tuning seeds."""
    axis_prior: float = number(10.0, 1e-3)
    """Standard deviation of the axis's crosswind place, seen from the start, before the first contact, m."""
    whiff: float = number(4e-3, 0.0)
    """Reading above which there is a whiff, concentration."""
    gap: float = number(10.0, 0.0)
    """Least time between two contacts that count, s: the first whiff after it is one. A robot stays on its side of the
    plume for a while, so contacts in quick succession repeat each other."""
    calm: float = number(0.05, 0.0)
    """Wind speed below which the vane is not read, m/s."""

    def __post_init__(self) -> None:
        check(self)
        choose("aids", self.aids, get_args(Aids))

    @classmethod
    def of(cls, scenario: Scenario, grade: str = "drone", aids: Aids = "vane and gas", **more: Any) -> "Model":
        """A model for a scenario's wind and sensors.

        Where fluctuations or switches add to the wind, their variance counts as if all of the wind were one
        Ornstein-Uhlenbeck process, which it then is not.
        """
        imu = GRADES[choose("imu", grade, GRADES)]
        turbulent = scenario.wind_grid > 0 and scenario.wind_speed > 0.0
        fluctuation = math.degrees(scenario.wind_noise_sigma / scenario.wind_speed) if turbulent else 0.0
        switch = scenario.wind_switch_angle if scenario.wind_switch_time else 0.0
        sigma = math.sqrt(scenario.wind_direction_sigma**2 + fluctuation**2 + switch**2)
        time = max(scenario.wind_correlation_time, 1.0 / scenario.wind_noise_frequency if turbulent else 0.0)
        values: dict[str, Any] = {
            "imu": imu, "aids": aids, "bearing": scenario.wind_direction, "wind_sigma": min(sigma, 180.0),
            "wind_time": time, "whiff": float(whiff_threshold(scenario.sensor_noise)), "calm": scenario.calm_speed,
        }  # fmt: skip
        return cls(**{**values, **more})

    def row(self) -> Any:
        """As the kernels see it."""
        angles = ("heading_sigma", "turn_slip", "vane_noise", "bearing", "wind_sigma")
        values = {name: getattr(self.imu, name) for name in ROW.names or () if hasattr(self.imu, name)}
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            values[spec.name] = math.radians(value) if spec.name in angles else value
        values |= {"vane": self.aids != "none", "gas": self.aids == "vane and gas"}
        return np.array(tuple(float(values[name]) for name in ROW.names or ()), ROW)[()]
