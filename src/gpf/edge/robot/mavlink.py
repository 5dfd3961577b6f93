"""A robot that speaks MAVLink: sensors in, velocity set-points out.

| message | direction | what |
|---|---|---|
| `NAMED_VALUE_FLOAT` `gas_l`, `gas_r`, `gas_l2`, `gas_r2` | in | readings; equal time_boot_ms: one moment |
| `WIND_COV` | in | velocity of the wind, north and east, m/s |
| `ODOMETRY` | in | position and attitude, in `MAV_FRAME_LOCAL_NED` |
| `COMMAND_LONG` `MAV_CMD_DO_PAUSE_CONTINUE` | in | 0 stops the robot, 1 resumes it |
| `SET_POSITION_TARGET_LOCAL_NED` | out, every command period | speed ahead (body frame) and yaw rate |
| `STATUSTEXT` | out on change | why the robot waits or has stopped |

MAVLink's north, east and clockwise become our y, x and counter-clockwise. Times of a MAVLink device are since its boot,
so a reading is taken to be as old as its message, and one that repeats an earlier device time is ignored.
"""

import math
import time
from typing import Any

from pymavlink.dialects.v20 import common

from gpf.edge.robot.driver import Robot
from gpf.edge.robot.messages import Command, Gas, Odometry, Status, Wind

GAS = {"gas_l": "left", "gas_r": "right", "gas_l2": "second_left", "gas_r2": "second_right"}
"""Names of `NAMED_VALUE_FLOAT` and the fields of `Gas` that they stand for."""
ONLY_VELOCITY: int = (
    common.POSITION_TARGET_TYPEMASK_X_IGNORE
    | common.POSITION_TARGET_TYPEMASK_Y_IGNORE
    | common.POSITION_TARGET_TYPEMASK_Z_IGNORE
    | common.POSITION_TARGET_TYPEMASK_AX_IGNORE
    | common.POSITION_TARGET_TYPEMASK_AY_IGNORE
    | common.POSITION_TARGET_TYPEMASK_AZ_IGNORE
    | common.POSITION_TARGET_TYPEMASK_YAW_IGNORE
)
"""Velocities and the yaw rate count, nothing else does."""
_TEXT = 50
"""Characters of a `STATUSTEXT`."""


class MavlinkRobot:
    """Connects a robot to an autopilot.

    >>> from pymavlink import mavutil  # doctest: +SKIP
    >>> robot = MavlinkRobot(Robot(navigator), mavutil.mavlink_connection("udpin:0.0.0.0:14550"))  # doctest: +SKIP
    >>> robot.run()  # doctest: +SKIP

    Args:
        robot: The robot.
        connection: Of pymavlink.
        system: The system that is steered.
        component: Its component.
    """

    def __init__(self, robot: Robot, connection: Any, system: int = 1, component: int = 1) -> None:
        self.robot: Robot = robot
        self._connection, self._target = connection, (system, component)
        self._channels = 4 if robot.scenario.decoys else 2
        self._gas: dict[str, float] = {}
        self._device_times: dict[str, float] = {}
        self._reported: Status | None = None

    def take(self, message: Any) -> None:
        """Record a message; others are ignored."""
        kind = message.get_type()
        if kind == "NAMED_VALUE_FLOAT":
            self._take_gas(message)
        elif kind == "WIND_COV" and self._is_new(kind, message.time_usec):
            self.robot.receive(wind_of(message, self.robot.clock()))
        elif kind == "ODOMETRY" and self._is_new(kind, message.time_usec):
            if message.frame_id != common.MAV_FRAME_LOCAL_NED:
                wanted = f"{common.MAV_FRAME_LOCAL_NED} (MAV_FRAME_LOCAL_NED)"
                self.robot.reject("odometry", f"odometry frame_id must be {wanted}, got {message.frame_id}")
                return
            self.robot.receive(odometry_of(message, self.robot.clock()))
        elif kind == "COMMAND_LONG" and message.command == common.MAV_CMD_DO_PAUSE_CONTINUE:
            self._obey(message.param1)

    def step(self) -> Command:
        """Take what has arrived, then send a command, and the status if it has changed."""
        while (message := self._connection.recv_match(blocking=False)) is not None:
            self.take(message)
        command = self.robot.command()
        self._connection.mav.send(set_point(command, *self._target))
        if self.robot.status is not self._reported:
            self._reported = self.robot.status
            urgent = self.robot.is_stopped
            severity = common.MAV_SEVERITY_CRITICAL if urgent else common.MAV_SEVERITY_INFO
            text = self.robot.status.reason or self.robot.status.state
            self._connection.mav.statustext_send(severity, text.encode("ascii", "replace")[:_TEXT])
        return command

    def run(self) -> None:
        """Run until interrupted."""
        period = self.robot.limits.command_period
        due = time.monotonic()
        while True:
            self.step()
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _take_gas(self, message: Any) -> None:
        """Collect the readings of one moment; they are a message when the last has arrived."""
        name = GAS.get(message.name)
        if name is None or not self._is_new(message.name, message.time_boot_ms):
            return
        if message.time_boot_ms != self._device_times.get("gas"):
            self._gas = {}
            self._device_times["gas"] = message.time_boot_ms
        self._gas[name] = message.value
        if len(self._gas) == self._channels:
            self.robot.receive(Gas(self.robot.clock(), **{"left": math.nan, "right": math.nan, **self._gas}))

    def _obey(self, parameter: float) -> None:
        """Pause or continue, as an operator says."""
        if parameter == 1.0:
            self.robot.resume()
        elif parameter == 0.0:
            self.robot.stop("the operator paused the robot")
        known = parameter in (0.0, 1.0)
        result = common.MAV_RESULT_ACCEPTED if known else common.MAV_RESULT_DENIED
        self._connection.mav.command_ack_send(common.MAV_CMD_DO_PAUSE_CONTINUE, result)

    def _is_new(self, what: str, device_time: float) -> bool:
        """Whether a device time is later than the last."""
        if device_time <= self._device_times.get(what, -math.inf):
            return False
        self._device_times[what] = device_time
        return True


def wind_of(message: Any, stamp: float) -> Wind:
    """A `WIND_COV`."""
    north, east = message.wind_x, message.wind_y
    return Wind(stamp, math.hypot(north, east), math.atan2(north, east))


def odometry_of(message: Any, stamp: float) -> Odometry:
    """An `ODOMETRY` in the frame NED."""
    w, x, y, z = message.q
    yaw = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))  # clockwise from north
    is_rotation = abs(w * w + x * x + y * y + z * z - 1.0) < 0.05
    heading = math.remainder(0.5 * math.pi - yaw, 2.0 * math.pi) if is_rotation else math.nan
    return Odometry(stamp, message.y, message.x, heading, message.vx)


def set_point(command: Command, system: int, component: int) -> Any:
    """A command as `SET_POSITION_TARGET_LOCAL_NED`."""
    milliseconds = int(max(0.0, command.stamp) * 1e3) % 2**32
    return common.MAVLink_set_position_target_local_ned_message(
        milliseconds, system, component, common.MAV_FRAME_BODY_NED, ONLY_VELOCITY,
        0.0, 0.0, 0.0, command.linear, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -command.angular,
    )  # fmt: skip
