import math
import time

import pytest
from pymavlink import mavutil
from pymavlink.dialects.v20 import common

from gpf.edge.robot import Command, Robot
from gpf.edge.robot.mavlink import MavlinkRobot, odometry_of, set_point, wind_of

UNKNOWN = [math.nan] * 21


def through_bytes(message):
    """A message as another program would see it: packed and parsed."""
    sender, receiver = common.MAVLink(None, 1, 1), common.MAVLink(None, 2, 2)
    (parsed,) = receiver.parse_buffer(message.pack(sender))
    return parsed


def odometry(usec, north, east, yaw, speed=0.0, frame=common.MAV_FRAME_LOCAL_NED, scale=1.0):
    q = [scale * math.cos(yaw / 2), 0.0, 0.0, scale * math.sin(yaw / 2)]
    return common.MAVLink_odometry_message(
        usec, frame, common.MAV_FRAME_BODY_FRD, north, east, 0.0, q, speed, 0, 0, 0, 0, 0, UNKNOWN, UNKNOWN
    )


def wind(usec, north, east):
    return common.MAVLink_wind_cov_message(usec, north, east, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def gas(ms, name, value):
    return common.MAVLink_named_value_float_message(ms, name.encode(), value)


@pytest.mark.parametrize(
    ("north", "east", "direction"), [(2.0, 0.0, 90.0), (0.0, 2.0, 0.0), (-2.0, 0.0, -90.0), (0.0, -2.0, 180.0)]
)
def test_the_wind_blows_to_where_its_velocity_points(north, east, direction):
    found = wind_of(through_bytes(wind(1, north, east)), 7.0)
    assert (found.stamp, found.speed) == (7.0, 2.0)
    assert math.degrees(found.direction) == pytest.approx(direction)


@pytest.mark.parametrize(
    ("compass", "heading"), [(0.0, 90.0), (90.0, 0.0), (180.0, -90.0), (270.0, 180.0), (45.0, 45.0)]
)
def test_north_is_y_and_yaw_is_clockwise(compass, heading):
    found = odometry_of(through_bytes(odometry(1, 3.0, 4.0, math.radians(compass), 0.5)), 7.0)
    assert (found.x, found.y, found.speed) == (4.0, 3.0, 0.5)
    assert math.remainder(math.degrees(found.heading) - heading, 360.0) == pytest.approx(0.0, abs=1e-4)


def test_a_quaternion_that_is_no_rotation_has_no_heading():
    assert math.isnan(odometry_of(through_bytes(odometry(1, 0.0, 0.0, 1.0, scale=0.5)), 0.0).heading)


def test_a_command_is_a_velocity_ahead_and_a_clockwise_yaw_rate():
    found = through_bytes(set_point(Command(12.5, 0.5, 0.25), 1, 1))
    assert (found.time_boot_ms, found.coordinate_frame) == (12500, common.MAV_FRAME_BODY_NED)
    assert (found.vx, found.vy, found.vz, found.yaw_rate) == (0.5, 0.0, 0.0, -0.25)
    assert found.type_mask == 0b0101_1100_0111


@pytest.fixture
def link():
    """Two ends of a UDP connection on this machine, the robot's and the vehicle's, and the robot's clock."""
    robot_end = mavutil.mavlink_connection("udpin:127.0.0.1:0", dialect="common")
    port = robot_end.port.getsockname()[1]
    vehicle = mavutil.mavlink_connection(f"udpout:127.0.0.1:{port}", source_system=1, dialect="common")
    now = [50.0]
    robot = Robot(lambda raw: 1, "paper", clock=lambda: now[0])
    yield MavlinkRobot(robot, robot_end), vehicle, now
    robot_end.close()
    vehicle.close()


def until(adapter, vehicle, kind, happened):
    """Step until the vehicle has received a message of which something holds."""
    for _ in range(1500):
        adapter.step()
        while (message := vehicle.recv_match(type=kind, blocking=False)) is not None:
            if happened(message):
                return message
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def send(vehicle, *messages):
    for message in messages:
        vehicle.mav.send(message)


def feed(vehicle, ms):
    send(
        vehicle, gas(ms, "gas_l", 0.1), gas(ms, "gas_r", 0.2), wind(1000 * ms, 1.0, 0.0), odometry(1000 * ms, 1, 2, 0.0)
    )


def test_sensors_become_set_points_and_bad_ones_stop_the_robot(link):
    adapter, vehicle, now = link
    feed(vehicle, 10)
    until(
        adapter, vehicle, "SET_POSITION_TARGET_LOCAL_NED", lambda message: message.yaw_rate < -1.0
    )  # left: turns first
    send(vehicle, wind(11_000, math.nan, 1.0))
    said = until(
        adapter, vehicle, "STATUSTEXT", lambda message: "wind" in message.text and "waiting" not in message.text
    )
    assert said.severity == common.MAV_SEVERITY_CRITICAL
    assert said.text == "wind speed must be a finite number, got nan"
    feed(vehicle, 12)
    until(adapter, vehicle, "SET_POSITION_TARGET_LOCAL_NED", lambda message: message.yaw_rate == message.vx == 0.0)
    assert adapter.robot.is_stopped
    vehicle.mav.command_long_send(1, 1, common.MAV_CMD_DO_PAUSE_CONTINUE, 0, 1.0, 0, 0, 0, 0, 0, 0)
    until(adapter, vehicle, "COMMAND_ACK", lambda message: message.result == common.MAV_RESULT_ACCEPTED)
    now[0] += 0.1
    feed(vehicle, 13)
    until(adapter, vehicle, "SET_POSITION_TARGET_LOCAL_NED", lambda message: message.yaw_rate < -1.0)
    vehicle.mav.command_long_send(1, 1, common.MAV_CMD_DO_PAUSE_CONTINUE, 0, 0.0, 0, 0, 0, 0, 0, 0)
    until(adapter, vehicle, "STATUSTEXT", lambda message: message.text == "the operator paused the robot")


class Silent:
    """A connection that nothing is sent over."""

    def __init__(self):
        self.mav = self

    def command_ack_send(self, *arguments):
        self.acknowledged = arguments


def make_adapter(scenario="paper"):
    seen = []
    robot = Robot(lambda raw: 0, scenario, clock=lambda: 50.0)
    robot.receive = seen.append
    return MavlinkRobot(robot, Silent()), seen


def test_readings_of_one_moment_are_one_message():
    adapter, seen = make_adapter()
    for message in (gas(1, "gas_l", 0.5), gas(2, "gas_l", 0.25), gas(2, "gas_r", 0.75), gas(2, "other", 9.0)):
        adapter.take(through_bytes(message))
    ((left, right),) = [(one.left, one.right) for one in seen]
    assert (left, right) == (0.25, 0.75)


def test_two_gas_channels_are_awaited_where_there_are_decoys():
    adapter, seen = make_adapter("decoy")
    for name in ("gas_l", "gas_r", "gas_l2", "gas_r2"):
        assert not seen
        adapter.take(through_bytes(gas(1, name, 0.5)))
    assert seen[0].second_right == 0.5


def test_a_device_that_repeats_itself_is_not_fresh():
    adapter, seen = make_adapter()
    for usec in (1000, 1000, 900, 1001):
        adapter.take(through_bytes(wind(usec, 1.0, 0.0)))
        adapter.take(through_bytes(odometry(usec, 1.0, 0.0, 0.0)))
    assert len(seen) == 4


def test_odometry_in_another_frame_stops_the_robot():
    adapter, _ = make_adapter()
    adapter.take(through_bytes(odometry(1, 0.0, 0.0, 0.0, frame=common.MAV_FRAME_BODY_FRD)))
    assert adapter.robot.status.reason == "odometry frame_id must be 1 (MAV_FRAME_LOCAL_NED), got 12"


def test_an_unknown_request_of_the_operator_is_denied():
    adapter, _ = make_adapter()
    adapter.take(common.MAVLink_command_long_message(1, 1, common.MAV_CMD_DO_PAUSE_CONTINUE, 0, 5.0, 0, 0, 0, 0, 0, 0))
    assert adapter._connection.acknowledged[1] == common.MAV_RESULT_DENIED
    assert adapter.robot.status.state == "waiting"
