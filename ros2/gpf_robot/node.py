"""A gpf navigator as a ROS 2 node. All decisions are made in `gpf.edge.robot`; this file only connects topics.

    ros2 run gpf_robot navigator --ros-args -p run:=runs/plume-1 -p log:=episode.mcap

| topic or service | type |
|---|---|
| `gas` (in) | std_msgs/Float32MultiArray: left, right[, second_left, second_right] |
| `wind` (in) | geometry_msgs/Vector3Stamped: velocity, m/s |
| `odom` (in) | nav_msgs/Odometry |
| `cmd_vel` (out) | geometry_msgs/TwistStamped |
| `~/status` (out) | std_msgs/String: JSON of stamp, state and reason |
| `~/resume`, `~/stop` | std_srvs/Trigger |
"""

import dataclasses
import json

import rclpy
from geometry_msgs.msg import TwistStamped, Vector3Stamped
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float32MultiArray, String
from std_srvs.srv import Trigger

import gpf
from gpf.edge.robot import Limits, Robot, ros
from gpf.edge.robot.log import EpisodeLog


class NavigatorNode(Node):
    """Parameters: `run` (a run folder), `robot_frame`, `log` (an MCAP file; empty for none), and the `Limits`."""

    def __init__(self):
        super().__init__("navigator")
        run, self.frame, log = (
            self.declare_parameter(name, default).value
            for name, default in (("run", "runs/plume-1"), ("robot_frame", "base_link"), ("log", ""))
        )
        limits = Limits(**{name: self.declare_parameter(name, value).value for name, value in Limits().plain().items()})
        self.log = EpisodeLog(log) if log else None
        self.robot = Robot(gpf.load_navigator(run), limits=limits, clock=self.now, log=self.log)
        self.reported = None
        self.command_publisher = self.create_publisher(TwistStamped, "cmd_vel", 1)
        lasting = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.status_publisher = self.create_publisher(String, "~/status", lasting)
        self.create_subscription(Float32MultiArray, "gas", self.on_gas, qos_profile_sensor_data)
        self.create_subscription(Vector3Stamped, "wind", self.on_wind, qos_profile_sensor_data)
        self.create_subscription(Odometry, "odom", self.on_odometry, qos_profile_sensor_data)
        self.create_service(Trigger, "~/resume", self.on_resume)
        self.create_service(Trigger, "~/stop", self.on_stop)
        self.create_timer(limits.command_period, self.send)

    def now(self):
        """The node's time, s; simulated time if use_sim_time is set."""
        return self.get_clock().now().nanoseconds * 1e-9

    def on_gas(self, message):
        """Readings."""
        try:
            self.robot.receive(ros.gas_of(message, self.now()))
        except ValueError as error:
            self.robot.reject("gas", str(error))
        self.send_stop()

    def on_wind(self, message):
        """The wind."""
        self.robot.receive(ros.wind_of(message, self.frame))
        self.send_stop()

    def on_odometry(self, message):
        """The pose."""
        self.robot.receive(ros.odometry_of(message))
        self.send_stop()

    def on_resume(self, request, response):
        """Service: go on after a stop."""
        self.robot.resume()
        response.success, response.message = True, self.robot.status.reason
        return response

    def on_stop(self, request, response):
        """Service: stop until resumed."""
        self.robot.stop("the operator stopped the robot")
        self.send_stop()
        response.success, response.message = True, self.robot.status.reason
        return response

    def send_stop(self):
        """Send the zero command of a robot that has just stopped, without waiting for the timer."""
        if self.robot.is_stopped and self.robot.status is not self.reported:
            self.send()

    def send(self):
        """Send a command, and the status if it has changed."""
        command = self.robot.command()
        self.command_publisher.publish(ros.fill_twist(TwistStamped(), command, self.frame))
        if self.robot.status is not self.reported:
            self.reported = self.robot.status
            status = String()
            status.data = json.dumps(dataclasses.asdict(self.reported))
            self.status_publisher.publish(status)

    def close(self):
        """Leave the robot standing, and complete the log."""
        if not self.robot.is_stopped:
            self.robot.stop("the node was shut down")
        self.send()
        if self.log is not None:
            self.log.finish()


def main():
    """Run the node until it is interrupted."""
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # ROS is still there when the last command is sent
    node = NavigatorNode()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.close()
        node.destroy_node()
        rclpy.try_shutdown()
