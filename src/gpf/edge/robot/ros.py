"""Messages of ROS 2 as ours, and back. Nothing here needs ROS: it takes anything with the same fields.

The node in `ros2/` is made of these. `geometry_msgs/Vector3Stamped` is the velocity of the wind (m/s), in the robot's
frame if its frame_id is that of the robot; `nav_msgs/Odometry` and `std_msgs/Float32MultiArray` (left, right, and maybe
second_left, second_right) are the other two. Axes are those of REP 103: x ahead, y left, counter-clockwise.
"""

import math
from typing import Any

from gpf.edge.robot.messages import Command, Gas, Odometry, Wind


def gas_of(message: Any, stamp: float) -> Gas:
    """A `Float32MultiArray` of two or four readings, which has no stamp of its own."""
    readings = [float(value) for value in message.data]
    if len(readings) not in (2, 4):
        raise ValueError(f"gas must have 2 or 4 readings, got {len(readings)}")
    return Gas(stamp, *readings)


def wind_of(message: Any, robot_frame: str = "base_link") -> Wind:
    """A `Vector3Stamped`."""
    east, north = float(message.vector.x), float(message.vector.y)
    frame = "robot" if message.header.frame_id == robot_frame else "world"
    return Wind(stamp_of(message.header), math.hypot(east, north), math.atan2(north, east), frame)


def odometry_of(message: Any) -> Odometry:
    """An `Odometry`; a quaternion that is no rotation becomes a heading of NaN, which stops the robot."""
    at, q = message.pose.pose.position, message.pose.pose.orientation
    heading = math.atan2(2.0 * (q.w * q.z + q.x * q.y), 1.0 - 2.0 * (q.y * q.y + q.z * q.z))
    is_rotation = abs(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z - 1.0) < 0.05
    speed = float(message.twist.twist.linear.x)
    return Odometry(stamp_of(message.header), float(at.x), float(at.y), heading if is_rotation else math.nan, speed)


def stamp_of(header: Any) -> float:
    """The stamp of a header, s."""
    return float(header.stamp.sec + 1e-9 * header.stamp.nanosec)


def fill_twist(message: Any, command: Command, frame: str = "base_link") -> Any:
    """Write a command to a `TwistStamped`, and return it."""
    nanoseconds = round(command.stamp * 1e9)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(nanoseconds, 1_000_000_000)
    message.header.frame_id = frame
    message.twist.linear.x, message.twist.angular.z = command.linear, command.angular
    return message
