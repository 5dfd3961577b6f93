"""Messages from a robot to a navigator and back, with their units.

Angles are in rad, counter-clockwise from +x. Stamps are in s, on the clock of the `Robot` that receives the message.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from gpf.plume.inputs import shown, unknown

Sensor = Literal["gas", "wind", "odometry"]
SENSORS: tuple[Sensor, ...] = ("gas", "wind", "odometry")
"""Messages that a robot needs before it moves."""
FRAMES = ("world", "robot")
"""Reference of a wind direction: +x of the world, or straight ahead of the robot."""


@dataclass(frozen=True)
class Gas:
    """Readings of the two antennae, in the units of the scenario's sensors (or what `Robot.convert` makes such)."""

    stamp: float
    """When it was measured, s."""
    left: float
    """Reading of the left antenna, concentration."""
    right: float
    """Reading of the right antenna, concentration."""
    second_left: float | None = None
    """Second gas channel of the left antenna, concentration; needed in worlds with decoys."""
    second_right: float | None = None
    """Second gas channel of the right antenna, concentration."""


@dataclass(frozen=True)
class Wind:
    """The wind where the robot is."""

    stamp: float
    """When it was measured, s."""
    speed: float
    """Speed, m/s."""
    direction: float
    """Direction that it blows to, rad."""
    frame: str = "world"
    """Reference of the direction: `world` (+x) or `robot` (straight ahead)."""


@dataclass(frozen=True)
class Odometry:
    """Where the robot is."""

    stamp: float
    """When it was measured, s."""
    x: float
    """Position, m."""
    y: float
    """Position, m."""
    heading: float
    """Where it faces, rad."""
    speed: float = 0.0
    """Speed ahead, m/s."""
    bumped: bool = False
    """Whether an obstacle stopped it."""


Message = Gas | Wind | Odometry


def sensor_of(message: Message) -> Sensor:
    """The sensor that a message comes from."""
    return "gas" if isinstance(message, Gas) else "wind" if isinstance(message, Wind) else "odometry"


KINDS: dict[Sensor, type[Gas] | type[Wind] | type[Odometry]] = {"gas": Gas, "wind": Wind, "odometry": Odometry}


def message_of(sensor: Sensor, values: Any, now: float) -> Message:
    """A message from plain data: its fields by name. `stamp` may be left out; it then is `now`."""
    if not isinstance(values, dict):
        raise ValueError(f"{sensor} must be an object of fields, got {shown(values)}")
    specs = {spec.name: spec for spec in dataclasses.fields(KINDS[sensor])}
    for name in values:
        if name not in specs:
            raise ValueError(f"{sensor}: {unknown('field', name, specs)}")
    for name, spec in specs.items():
        if name != "stamp" and name not in values and spec.default is dataclasses.MISSING:
            raise ValueError(f"{sensor} must have the field {name}, got {', '.join(values) or 'none'}")
    return KINDS[sensor](**{"stamp": now, **values})


@dataclass(frozen=True)
class Command:
    """A velocity to hold until the next command, but not for long: a robot must stop where none arrives."""

    stamp: float
    """When it was given, s."""
    linear: float = 0.0
    """Speed ahead, m/s."""
    angular: float = 0.0
    """Turn rate, counter-clockwise, rad/s."""


State = Literal["waiting", "running", "stopped"]


@dataclass(frozen=True)
class Status:
    """A robot's command, and its reason."""

    stamp: float
    """Since when, s."""
    state: State
    """`waiting` for sensors, `running`, or `stopped` until resumed."""
    reason: str
    """Why it waits or has stopped, in one sentence; empty while it is running."""


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False
