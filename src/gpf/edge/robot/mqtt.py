"""A robot behind an MQTT broker: JSON messages in, JSON commands out.

| topic | direction | payload |
|---|---|---|
| `gpf/gas`, `gpf/wind`, `gpf/odometry` | in | an object of the fields of `Gas`, `Wind` or `Odometry` |
| `gpf/resume` | in | anything; resumes a robot that has stopped |
| `gpf/command` | out, every command period | stamp, linear (m/s), angular (rad/s); zero as the last will |
| `gpf/status` | out on change, retained | stamp, state, reason |
"""

import dataclasses
import json
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from gpf.edge.robot.driver import Robot
from gpf.edge.robot.log import as_json
from gpf.edge.robot.messages import SENSORS, Command, Status, message_of

RECONNECT_EVERY = 1.0
"""Time between two attempts to reach a broker that was lost, s."""


class MqttRobot:
    """Connects a robot to a broker.

    >>> with MqttRobot(Robot(navigator), "192.168.1.5") as robot:  # doctest: +SKIP
    ...     robot.run()

    Stamps are optional: a reading without one is taken to be as old as its message. Those that are given are on the
    robot's clock, so give it `clock=time.time` if sensors send UNIX times. Retained readings are ignored.

    Args:
        robot: The robot.
        host: Of the broker.
        port: Of the broker.
        prefix: Of the topics.
    """

    def __init__(self, robot: Robot, host: str = "localhost", port: int = 1883, prefix: str = "gpf") -> None:
        self.robot: Robot = robot
        self._prefix = prefix
        self._reported: Status | None = None
        self._lost_at = 0.0
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = self._connected
        self._client.on_message = self._received
        self._client.will_set(f"{prefix}/command", as_json(dataclasses.asdict(Command(0.0))), qos=1)
        try:
            self._client.connect(host, port)
        except OSError as error:
            raise ConnectionError(f"no MQTT broker answers at {host}:{port} ({error.strerror or error})") from None

    def step(self) -> Command:
        """Take what arrives for one command period, then send a command."""
        due = time.monotonic() + self.robot.limits.command_period
        while (left := due - time.monotonic()) > 0.0:
            if self._client.loop(left) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                self._reconnect()
                time.sleep(max(0.0, due - time.monotonic()))
        return self._send()

    def run(self) -> None:
        """Run until interrupted."""
        while True:
            self.step()

    def close(self) -> None:
        """Send a zero command and leave."""
        if not self.robot.is_stopped:
            self.robot.stop("the connection was closed")
        self._send()
        self._client.loop(0.1)
        self._client.disconnect()

    def _send(self) -> Command:
        command = self.robot.command()
        self._client.publish(f"{self._prefix}/command", as_json(dataclasses.asdict(command)))
        if self.robot.status is not self._reported:
            self._reported = self.robot.status
            self._client.publish(f"{self._prefix}/status", as_json(dataclasses.asdict(self._reported)), 1, True)
        return command

    def _reconnect(self) -> None:
        """Try again, now and then; meanwhile the sensors become stale, which stops the robot."""
        if time.monotonic() - self._lost_at > RECONNECT_EVERY:
            self._lost_at = time.monotonic()
            with suppress(OSError):
                self._client.reconnect()

    def _connected(self, client: mqtt.Client, *_: Any) -> None:
        for topic in (*SENSORS, "resume"):
            client.subscribe(f"{self._prefix}/{topic}")
        self._reported = None

    def _received(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        """Record a message; if it stops the robot, report that without waiting for the next period."""
        if message.retain:
            return  # it is of unknown age
        topic = message.topic.removeprefix(f"{self._prefix}/")
        if topic == "resume":
            self.robot.resume()
        for sensor in SENSORS:
            if topic == sensor:
                try:
                    self.robot.receive(message_of(sensor, json.loads(message.payload), self.robot.clock()))
                except (ValueError, RecursionError) as error:
                    self.robot.reject(sensor, f"{sensor} cannot be read ({error})")
        if self.robot.is_stopped and self.robot.status is not self._reported:
            self._send()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
