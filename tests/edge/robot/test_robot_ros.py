"""The ROS 2 node over a small stand-in for rclpy; every message passes through the CDR bytes of a real ROS 2."""

import json
import math
import runpy
import sys
import types
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore

import gpf
from gpf.edge.robot import Command, ros
from gpf.edge.robot.log import read_log
from gpf.plume import Scenario

PACKAGE = Path(__file__).parents[3] / "ros2"
TYPES = get_typestore(Stores.ROS2_JAZZY)
SECOND = 1_000_000_000


def blank(name):
    """A message with all fields zero or empty, as ROS makes it."""
    values = {}
    for field, (kind, detail) in TYPES.fielddefs[name][1]:
        if kind == Nodetype.NAME:
            values[field] = blank(detail)
        elif kind == Nodetype.BASE:
            values[field] = "" if detail[0] == "string" else 0
        elif kind == Nodetype.ARRAY:
            values[field] = np.zeros(detail[1], detail[0][1][0])
        else:
            of, inner = detail[0]
            values[field] = [] if of == Nodetype.NAME else np.zeros(0, inner[0])
    return TYPES.types[name](**values)


def through_cdr(message):
    """A message as another node would see it."""
    name = message.__msgtype__
    return TYPES.deserialize_cdr(TYPES.serialize_cdr(message, name), name)


def stamped(message, nanoseconds, frame="odom"):
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(nanoseconds, SECOND)
    message.header.frame_id = frame
    return message


def gas(*readings):
    message = blank("std_msgs/msg/Float32MultiArray")
    message.data = np.array(readings, np.float32)
    return message


def wind(nanoseconds, x, y, frame="odom"):
    message = stamped(blank("geometry_msgs/msg/Vector3Stamped"), nanoseconds, frame)
    message.vector.x, message.vector.y = x, y
    return message


def odometry(nanoseconds, x, y, heading, speed=0.0):
    message = stamped(blank("nav_msgs/msg/Odometry"), nanoseconds)
    message.pose.pose.position.x, message.pose.pose.position.y = x, y
    message.pose.pose.orientation.z, message.pose.pose.orientation.w = math.sin(heading / 2), math.cos(heading / 2)
    message.twist.twist.linear.x = speed
    return message


def test_cdr_bytes_of_odometry_become_a_pose():
    found = ros.odometry_of(through_cdr(odometry(1_750_000_000 * SECOND + 250_000_000, 3.0, 4.0, 2.5, 0.5)))
    assert (found.stamp, found.x, found.y, found.speed) == (1_750_000_000.25, 3.0, 4.0, 0.5)
    assert found.heading == pytest.approx(2.5)


def test_a_quaternion_that_is_no_rotation_has_no_heading():
    assert math.isnan(ros.odometry_of(through_cdr(blank("nav_msgs/msg/Odometry"))).heading)


def test_cdr_bytes_of_a_wind_become_speed_direction_and_frame():
    found = ros.wind_of(through_cdr(wind(2 * SECOND, -3.0, 4.0)))
    assert (found.stamp, found.speed, found.frame) == (2.0, 5.0, "world")
    assert found.direction == pytest.approx(math.atan2(4.0, -3.0))
    assert ros.wind_of(through_cdr(wind(0, 1.0, 0.0, "base_link"))).frame == "robot"


def test_cdr_bytes_of_gas_become_two_or_four_readings():
    two, four = ros.gas_of(through_cdr(gas(0.25, 0.5)), 9.0), ros.gas_of(through_cdr(gas(1, 2, 3, 4)), 9.0)
    assert (two.stamp, two.left, two.right, two.second_left) == (9.0, 0.25, 0.5, None)
    assert (four.second_left, four.second_right) == (3.0, 4.0)
    with pytest.raises(ValueError, match="gas must have 2 or 4 readings, got 3"):
        ros.gas_of(through_cdr(gas(1, 2, 3)), 9.0)


@pytest.mark.parametrize("stamp", [12.5, 1_750_000_000.9999999999])
def test_a_command_survives_its_cdr_bytes(stamp):
    twist = through_cdr(ros.fill_twist(blank("geometry_msgs/msg/TwistStamped"), Command(stamp, 0.5, -0.25)))
    assert (twist.twist.linear.x, twist.twist.angular.z) == (0.5, -0.25)
    assert (ros.stamp_of(twist.header), twist.header.frame_id) == (pytest.approx(stamp), "base_link")
    assert twist.twist.linear.y == twist.twist.linear.z == twist.twist.angular.x == twist.twist.angular.y == 0.0


class FakeNode:
    """As much of rclpy's node as ours uses; what it publishes has been through CDR bytes."""

    parameters: dict = {}
    made: list = []

    def __init__(self, name):
        self.name, self.nanoseconds = name, 100 * SECOND
        self.subscriptions, self.services, self.sent, self.timers, self.destroyed = {}, {}, [], [], False
        FakeNode.made.append(self)

    def declare_parameter(self, name, default):
        value = self.parameters.get(name, default)
        assert type(value) is type(default)  # as ROS demands
        return types.SimpleNamespace(value=value)

    def create_publisher(self, kind, topic, quality):
        def publish(message):
            assert message.__msgtype__ == kind().__msgtype__
            self.sent.append((topic, through_cdr(message)))

        return types.SimpleNamespace(publish=publish)

    def create_subscription(self, kind, topic, callback, quality):
        self.subscriptions[topic] = (kind().__msgtype__, callback)

    def create_service(self, kind, name, callback):
        self.services[name] = callback

    def create_timer(self, period, callback):
        self.timers.append((period, callback))

    def get_clock(self):
        return types.SimpleNamespace(now=lambda: types.SimpleNamespace(nanoseconds=self.nanoseconds))

    def destroy_node(self):
        self.destroyed = True

    def deliver(self, topic, message):
        kind, callback = self.subscriptions[topic]
        assert message.__msgtype__ == kind
        callback(through_cdr(message))

    def call(self, service):
        return self.services[service](None, types.SimpleNamespace(success=False, message=""))

    def tick(self):
        ((period, callback),) = self.timers
        callback()
        self.nanoseconds += round(period * SECOND)

    def feed(self):
        self.deliver("gas", gas(0.1, 0.2))
        self.deliver("wind", wind(self.nanoseconds, 1.0, 0.5))
        self.deliver("odom", odometry(self.nanoseconds, 1.0, 2.0, 0.5))

    def last(self, topic):
        message = [message for of, message in self.sent if of == topic][-1]
        return json.loads(message.data) if topic == "~/status" else message.twist


class Navigator:
    scenario = Scenario()

    def act(self, raw):
        return 0


@pytest.fixture
def ros2(monkeypatch):
    """The node's file, in a ROS that is not there."""

    def module(name, **contents):
        made = types.ModuleType(name)
        vars(made).update(contents)
        monkeypatch.setitem(sys.modules, name, made)

    def messages(package, *names):
        kinds = {name: (lambda name=name: blank(f"{package}/msg/{name}")) for name in names}
        module(package)
        module(f"{package}.msg", **kinds)

    calls = []
    module(
        "rclpy",
        init=lambda **options: calls.append("init"),
        spin=lambda node: calls.append("spin"),
        try_shutdown=lambda: calls.append("shutdown"),
    )
    module("rclpy.node", Node=FakeNode)
    durability = types.SimpleNamespace(TRANSIENT_LOCAL="lasting")
    module("rclpy.qos", DurabilityPolicy=durability, QoSProfile=dict, qos_profile_sensor_data="sensors")
    module("rclpy.signals", SignalHandlerOptions=types.SimpleNamespace(NO=0))
    messages("geometry_msgs", "TwistStamped", "Vector3Stamped")
    messages("nav_msgs", "Odometry")
    messages("std_msgs", "Float32MultiArray", "String")
    module("std_srvs")
    module("std_srvs.srv", Trigger=object)
    monkeypatch.setitem(vars(gpf), "load_navigator", lambda folder: Navigator())
    monkeypatch.setattr(FakeNode, "parameters", {})
    monkeypatch.setattr(FakeNode, "made", [])
    return types.SimpleNamespace(calls=calls, **runpy.run_path(str(PACKAGE / "gpf_robot" / "node.py")))


def test_the_node_waits_runs_stops_and_resumes(ros2):
    node = ros2.NavigatorNode()
    node.tick()
    assert node.last("~/status")["reason"] == "waiting for gas, wind, odometry"
    node.feed()
    node.tick()
    assert (node.last("cmd_vel").linear.x, node.last("~/status")["state"]) == (0.5, "running")
    node.deliver("odom", odometry(node.nanoseconds, math.nan, 0.0, 0.0))
    assert node.last("cmd_vel").linear.x == 0.0  # before the next tick
    assert node.last("~/status")["reason"] == "odometry x must be a finite number, got nan"
    node.feed()
    node.tick()
    assert node.last("cmd_vel").linear.x == 0.0
    assert node.call("~/resume").success
    node.feed()
    node.tick()
    assert node.last("cmd_vel").linear.x == 0.5
    assert node.call("~/stop").message == "the operator stopped the robot"
    assert node.last("cmd_vel").linear.x == 0.0


def test_gas_of_a_wrong_size_stops_the_node(ros2):
    node = ros2.NavigatorNode()
    node.deliver("gas", gas(0.1, 0.2, 0.3))
    assert node.last("~/status")["reason"] == "gas must have 2 or 4 readings, got 3"


def test_a_silent_topic_stops_the_node(ros2):
    node = ros2.NavigatorNode()
    node.feed()
    for _ in range(30):
        node.tick()
    assert "gas is stale" in node.last("~/status")["reason"]
    assert node.last("cmd_vel").linear.x == 0.0


def test_limits_are_parameters(ros2):
    FakeNode.parameters = {"command_period": 0.05, "resume_after": 3, "odometry_timeout": 2.0}
    node = ros2.NavigatorNode()
    assert node.timers[0][0] == 0.05
    assert (node.robot.limits.resume_after, node.robot.limits.odometry_timeout) == (3, 2.0)


def test_the_program_leaves_the_robot_standing_and_its_log_complete(ros2, tmp_path):
    FakeNode.parameters = {"log": str(tmp_path / "episode.mcap")}
    ros2.main()
    (node,) = FakeNode.made
    assert ros2.calls == ["init", "spin", "shutdown"]
    assert node.destroyed
    assert node.last("cmd_vel").linear.x == 0.0
    assert read_log(tmp_path / "episode.mcap")[-2].values["reason"] == "the node was shut down"


def test_the_package_says_the_same_of_itself_everywhere():
    manifest = xml.etree.ElementTree.parse(PACKAGE / "package.xml").getroot()
    name, version = manifest.findtext("name"), manifest.findtext("version")
    code = (PACKAGE / "gpf_robot" / "node.py").read_text()
    needed = {one.text for one in manifest.findall("exec_depend")}
    assert needed == {"rclpy", "geometry_msgs", "nav_msgs", "std_msgs", "std_srvs"}
    assert all(f"from {one}" in code for one in needed)
    setup = (PACKAGE / "setup.py").read_text()
    assert f'name="{name}"' in setup
    assert f'version="{version}"' in setup
    assert (PACKAGE / "resource" / name).exists()
    assert f"script_dir=$base/lib/{name}" in (PACKAGE / "setup.cfg").read_text()
