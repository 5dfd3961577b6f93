import json
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import paho.mqtt.client as mqtt
import pytest

from gpf.edge.robot import Robot
from gpf.edge.robot.messages import Gas, message_of
from gpf.edge.robot.mqtt import MqttRobot


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_broker(folder, port):
    """A broker of our own, on this machine only, which is stopped by its process."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "mosquitto is missing: apt-get install --no-install-recommends mosquitto"
    (folder / "broker.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    process = subprocess.Popen([program, "-c", folder / "broker.conf"], stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    port = free_port()
    with running_broker(tmp_path_factory.mktemp("broker"), port):
        yield port


class Base:
    """The rest of the robot: sensors, motors and an operator, as another client of the broker."""

    def __init__(self, port, prefix):
        self.prefix, self.heard, self.subscribed = prefix, [], threading.Event()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self.client.on_connect = lambda client, *_: client.subscribe(
            [(f"{prefix}/command", 1), (f"{prefix}/status", 1)]
        )
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = lambda client, data, message: self.heard.append(
            (message.topic.removeprefix(f"{prefix}/"), json.loads(message.payload))
        )
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self.subscribed.wait(30)

    def send(self, topic, payload, retain=False):
        text = payload if isinstance(payload, str | bytes) else json.dumps(payload)
        self.client.publish(f"{self.prefix}/{topic}", text, qos=1, retain=retain).wait_for_publish(30)

    def feed(self):
        self.send("gas", {"left": 0.1, "right": 0.2})
        self.send("wind", {"speed": 1.0, "direction": 0.5})
        self.send("odometry", {"x": 1.0, "y": 2.0, "heading": 0.1})

    def last(self, topic):
        return [payload for of, payload in self.heard if of == topic][-1]

    def close(self):
        self.client.loop_stop()
        self.client.disconnect()


@pytest.fixture
def connect(broker, request):
    """Connects the two sides of a robot, whose clock stands still: no reading becomes stale on a busy machine."""
    open_ones = []

    def connected(first=lambda base: None):
        prefix = f"test-{abs(hash(request.node.name))}"
        base = Base(broker, prefix)
        first(base)
        adapter = MqttRobot(Robot(lambda raw: 0, "paper", clock=lambda: 50.0), "127.0.0.1", broker, prefix)
        open_ones.extend((adapter, base))
        until(adapter, lambda: "status" in dict(base.heard))
        return adapter, base

    yield connected
    for one in open_ones:
        one.close()


def until(adapter, happened):
    """Step until something has happened."""
    for _ in range(1500):
        adapter.step()
        if happened():
            return
    raise AssertionError("it did not happen")


def test_messages_of_a_broker_become_commands(connect):
    adapter, base = connect()
    assert base.last("status")["reason"] == "waiting for gas, wind, odometry"
    base.feed()
    until(adapter, lambda: base.last("command")["linear"] > 0.0)
    assert base.last("command") == {"stamp": 50.0, "linear": 0.5, "angular": 0.0}
    until(adapter, lambda: base.last("status")["state"] == "running")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"left": NaN, "right": 0.1}', "gas left must be a finite number, got nan"),
        ('{"left": 0.1', "gas cannot be read (Expecting"),
        ('{"left": 0.1}', "gas cannot be read (gas must have the field right, got left)"),
        ('{"left": 0.1, "right": 0.1, "rigth": 0.1}', "gas cannot be read (gas: unknown field 'rigth'; did you mean"),
        ("[1, 2]", "gas cannot be read (gas must be an object of fields, got [1, 2])"),
        (b"\xff\xfe\xfa", "gas cannot be read ("),
        ("[" * 100_000, "gas cannot be read ("),
    ],
)
def test_a_bad_payload_stops_the_robot_until_it_is_resumed(connect, payload, reason):
    adapter, base = connect()
    base.feed()
    until(adapter, lambda: base.last("command")["linear"] > 0.0)
    base.send("gas", payload)
    until(adapter, lambda: base.last("status")["state"] == "stopped")
    assert base.last("status")["reason"].startswith(reason)
    assert base.last("command")["linear"] == 0.0
    base.send("resume", "")
    until(adapter, lambda: base.last("status")["state"] == "waiting")


def test_retained_readings_are_ignored_for_their_age_is_unknown(connect):
    adapter, base = connect(lambda base: base.send("gas", {"left": 0.1, "right": 0.2}, retain=True))
    base.send("wind", {"speed": 1.0, "direction": 0.5})
    until(adapter, lambda: base.last("status")["reason"] == "waiting for gas, odometry")


def test_a_robot_whose_program_dies_is_stopped_by_the_brokers_last_will(connect):
    adapter, base = connect()
    base.feed()
    until(adapter, lambda: base.last("command")["linear"] > 0.0)
    adapter._client.socket().shutdown(socket.SHUT_RDWR)  # without a farewell
    for _ in range(600):
        if base.last("command") == {"stamp": 0.0, "linear": 0.0, "angular": 0.0}:
            return
        time.sleep(0.05)
    raise AssertionError("no last will")


def test_a_broker_that_goes_away_and_comes_back_is_found_again(tmp_path):
    port = free_port()
    now = [50.0]
    robot = Robot(lambda raw: 0, "paper", clock=lambda: now[0])
    with running_broker(tmp_path, port):
        adapter = MqttRobot(robot, "127.0.0.1", port)
        base = Base(port, "gpf")
        until(adapter, lambda: "status" in dict(base.heard))
        base.feed()
        until(adapter, lambda: robot.status.state == "running")
        base.close()
    now[0] += 1.0
    assert adapter.step().linear == 0.0
    assert "is stale" in robot.status.reason
    with running_broker(tmp_path, port):
        base = Base(port, "gpf")
        until(adapter, lambda: "status" in dict(base.heard))
        assert "is stale" in base.last("status")["reason"]
        adapter.close()
        base.close()


def test_no_broker_is_one_sentence():
    port = free_port()
    with pytest.raises(ConnectionError, match=f"no MQTT broker answers at 127.0.0.1:{port} "):
        MqttRobot(Robot(lambda raw: 0, "paper"), "127.0.0.1", port)


def test_a_stamp_that_is_given_is_kept():
    assert message_of("gas", {"stamp": 3.0, "left": 0.1, "right": 0.2}, 50.0) == Gas(3.0, 0.1, 0.2)
    assert message_of("gas", {"left": 0.1, "right": 0.2}, 50.0).stamp == 50.0
