"""Checks of messages: the fault in one sentence. Pure functions."""

import math
from typing import Any

from gpf.edge.robot.limits import Limits
from gpf.edge.robot.messages import FRAMES, Gas, Message, Odometry, Wind, is_finite, sensor_of
from gpf.plume.inputs import shown
from gpf.plume.scenario import Scenario

_FARTHEST = 1e7
"""Coordinates beyond this are no position on this planet's surface, m."""
_ROUNDING = 1e-6
"""Relative error of a number that was once a float32."""


def problem(message: Message, scenario: Scenario, limits: Limits, now: float) -> str | None:
    """Why a message cannot be believed; None if it can."""
    if not is_finite(message.stamp):
        return _say(message, "stamp", "a finite number", message.stamp)
    if message.stamp > now + limits.stamp_ahead:
        return f"{sensor_of(message)} is stamped {message.stamp - now:.3g} s in the future"
    if isinstance(message, Gas):
        return _gas_problem(message, scenario)
    if isinstance(message, Wind):
        return _wind_problem(message, limits)
    return _odometry_problem(message, limits)


def jump(before: Odometry, after: Odometry, limits: Limits) -> str | None:
    """Why a robot cannot have moved like this; both messages are plausible by themselves."""
    seconds = after.stamp - before.stamp
    distance = math.hypot(after.x - before.x, after.y - before.y)
    if distance > limits.speed_max * seconds + limits.jump_distance:
        return f"odometry position jumped by {distance:.3g} m in {seconds:.3g} s"
    angle = abs(math.remainder(after.heading - before.heading, 2.0 * math.pi))
    if angle > limits.turn_rate_max * seconds + limits.jump_angle:
        return f"odometry heading jumped by {angle:.3g} rad in {seconds:.3g} s"
    return None


def staleness(message: Message, limits: Limits, now: float) -> str | None:
    """Why a message is too old to act on; None if it is not."""
    sensor, age = sensor_of(message), now - message.stamp
    if age <= limits.timeout(sensor):
        return None
    return f"{sensor} is stale: the newest is {age:.3g} s old, at most {limits.timeout(sensor):g} s is accepted"


def _gas_problem(gas: Gas, scenario: Scenario) -> str | None:
    second = {"second_left": gas.second_left, "second_right": gas.second_right}
    given = {name: value for name, value in second.items() if value is not None}
    if len(given) == 1 or (scenario.decoys and not given):
        return "gas must have both readings of the second channel" + (" in this scenario" if not given else ", or none")
    for name, value in {"left": gas.left, "right": gas.right, **given}.items():
        if found := _outside(gas, name, value, 0.0, scenario.sensor_saturation):
            return found
    return None


def _wind_problem(wind: Wind, limits: Limits) -> str | None:
    if wind.frame not in FRAMES:
        return _say(wind, "frame", " or ".join(FRAMES), wind.frame)
    if found := _outside(wind, "speed", wind.speed, 0.0, limits.wind_speed_max):
        return found
    return _outside(wind, "direction", wind.direction, -_FARTHEST, _FARTHEST)


def _odometry_problem(odometry: Odometry, limits: Limits) -> str | None:
    for name, most in (("x", _FARTHEST), ("y", _FARTHEST), ("heading", _FARTHEST), ("speed", limits.speed_max)):
        if found := _outside(odometry, name, getattr(odometry, name), -most, most):
            return found
    if not isinstance(odometry.bumped, bool):
        return _say(odometry, "bumped", "true or false", odometry.bumped)
    return None


def _outside(message: Message, name: str, value: Any, low: float, high: float) -> str | None:
    if not is_finite(value):
        return _say(message, name, "a finite number", value)
    if not low * (1.0 + _ROUNDING) <= value <= high * (1.0 + _ROUNDING):
        return _say(message, name, f"from {low:g} to {high:g}", value)
    return None


def _say(message: Message, name: str, accepted: str, value: Any) -> str:
    return f"{sensor_of(message)} {name} must be {accepted}, got {shown(value)}"
