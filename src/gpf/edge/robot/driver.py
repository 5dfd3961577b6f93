"""The robot: keeps the newest messages, decides at the scenario's rate, and stops when a sensor cannot be trusted."""

import dataclasses
import operator
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpf.edge.robot.checks import jump, problem, staleness
from gpf.edge.robot.conversion import Conversion
from gpf.edge.robot.limits import Limits
from gpf.edge.robot.messages import SENSORS, Command, Gas, Message, Odometry, Sensor, State, Status, sensor_of
from gpf.edge.robot.motion import Motion, motions
from gpf.edge.robot.observation import observation
from gpf.plume.inputs import shown
from gpf.plume.scenario import ACTIONS, Scenario


class Log(Protocol):
    """Where a robot writes what happens; see `gpf.edge.robot.log.EpisodeLog`."""

    def write(self, channel: str, stamp: float, values: dict[str, Any]) -> None:
        """Append an entry to a channel; `stamp` is on the robot's clock, s."""


class Robot:
    """Turns messages into velocity commands.

    Give it messages as they arrive (`receive`) and ask for a command every `limits.command_period` (`command`). It
    waits until every sensor has spoken, then acts. A stale or implausible reading stops it at once; it stays stopped
    until `resume` is called. Nothing that a message contains raises an exception. It is not thread-safe.

    >>> robot = Robot(gpf.load_navigator("runs/plume-1"))  # doctest: +SKIP
    >>> robot.receive(Gas(stamp, left=0.02, right=0.01))  # doctest: +SKIP
    >>> command = robot.command()  # doctest: +SKIP

    Args:
        navigator: A result of `gpf.load_navigator`, or any function from a raw observation, shape (8,), to an action.
        scenario: The world that it was trained in; None for the navigator's own.
        limits: Velocities, timeouts, and what is plausible.
        clock: Returns the time in s, on the clock of the messages' stamps.
        convert: Makes sensor units of each gas reading; see `from_ppm` and `from_adc`. None where they are already.
        log: Where messages, actions, commands and changes of the status go.
    """

    def __init__(
        self,
        navigator: Any,
        scenario: Scenario | str | dict[str, Any] | None = None,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        convert: Conversion | None = None,
        log: Log | None = None,
    ) -> None:
        self.scenario: Scenario = Scenario.of(navigator.scenario if scenario is None else scenario)
        self.limits: Limits = limits or Limits()
        self.clock: Callable[[], float] = clock
        self.motion: Motion | None = None
        """The motion that is under way."""
        self.action: int | None = None
        """The newest action."""
        self.decisions: int = 0
        """How many actions were chosen."""
        self._navigator = navigator
        self._act: Callable[[NDArray[np.float32]], Any] = getattr(navigator, "act", navigator)
        self._motions = motions(self.scenario, self.limits)
        self._convert = convert
        self._log = log
        self._newest: dict[Sensor, Message] = {}
        self._stamps: dict[Sensor, float] = {}
        self._pose: Odometry | None = None  # the newest that is plausible by itself, to see jumps
        self._good: dict[Sensor, int] = dict.fromkeys(SENSORS, 0)
        self._may_resume = False  # by itself
        self._started = 0.0  # the motion
        self._now = -float("inf")
        self.status: Status = Status(0.0, "waiting", "")
        self.begin()

    @property
    def is_stopped(self) -> bool:
        """Whether it has stopped until it is resumed."""
        return self.status.state == "stopped"

    def begin(self) -> None:
        """Begin a new episode: the navigator forgets what it has observed, and the robot waits for its sensors."""
        if hasattr(self._navigator, "reset"):
            self._navigator.reset()
        self._newest.clear()
        self.resume()

    def resume(self) -> None:
        """Continue as soon as every sensor is heard and plausible; the navigator remembers what it observed before."""
        self.motion = None
        self._change("waiting", self._waiting_for(self.clock()))

    def stop(self, reason: str) -> None:
        """Stop until `resume` is called."""
        self._stop(reason, by_sensor=False)

    def reject(self, sensor: Sensor, reason: str) -> None:
        """Record an unreadable message of a sensor; it stops the robot like an implausible reading."""
        self._newest.pop(sensor, None)
        self._stop(reason, by_sensor=True)

    def receive(self, message: Message) -> None:
        """Record a message; one that is not newer than the last of its sensor is ignored, unless it is bad."""
        now = self._time()
        sensor = sensor_of(message)
        self._write(sensor, now, dataclasses.asdict(message))
        if isinstance(message, Gas) and self._convert is not None:
            message = self._converted(message, self._convert)
        found = problem(message, self.scenario, self.limits, now)
        if found is not None:
            self.reject(sensor, found)
            return
        if message.stamp <= self._stamps.get(sensor, -float("inf")):
            return
        if isinstance(message, Odometry):
            found = None if self._pose is None else jump(self._pose, message, self.limits)
            self._pose = message
        self._stamps[sensor] = message.stamp
        self._newest[sensor] = message
        if found is not None:
            self._stop(found, by_sensor=True)
            return
        self._good[sensor] += 1
        wanted = self.limits.resume_after
        if self.is_stopped and self._may_resume and 0 < wanted <= min(self._good.values()):
            self.resume()

    def command(self) -> Command:
        """The current command; zero unless the robot is running."""
        now = self._time()
        if self.status.state == "waiting":
            self._change(*(("waiting", reason) if (reason := self._waiting_for(now)) else ("running", "")))
        if self.status.state == "running":
            for sensor in SENSORS:
                if found := staleness(self._newest[sensor], self.limits, now):
                    self._stop(found, by_sensor=True)
        if self.status.state == "running" and (self.motion is None or self.motion.is_over(now - self._started)):
            self._decide(now)
        running = self.status.state == "running" and self.motion is not None
        command = self.motion.command(now - self._started, now) if running and self.motion else Command(now)
        self._write("command", now, dataclasses.asdict(command))
        return command

    def _decide(self, now: float) -> None:
        """Choose the next action and begin its motion, where the one before ended if that was just now."""
        raw = observation(self._newest["gas"], self._newest["wind"], self._newest["odometry"])  # type: ignore[arg-type]
        try:
            action = operator.index(self._act(raw))
            if not 0 <= action < len(ACTIONS):
                raise ValueError(f"action must be from 0 to {len(ACTIONS) - 1}, got {shown(action)}")
        except Exception as error:  # a robot must stop whatever goes wrong in a navigator
            said = " ".join(str(error).split())
            self._stop(f"the navigator failed ({type(error).__name__}: {said})", by_sensor=False)
            return
        ended = now if self.motion is None else self._started + self.motion.duration
        self._started = ended if abs(now - ended) <= self.limits.command_period else now
        self.motion, self.action = self._motions[action], action
        self.decisions += 1
        self._write("action", now, {"action": action, "name": ACTIONS[action], "observation": raw.tolist()})

    def _time(self) -> float:
        """The time; a clock that went backwards stops the robot, because ages are then meaningless."""
        now = float(self.clock())
        if now < self._now:
            back = self._now - now
            self._newest.clear()
            self._stamps.clear()
            self._pose = None
            self._stop(f"the clock went back by {back:.3g} s", by_sensor=False)
        self._now = now
        return now

    def _converted(self, gas: Gas, convert: Conversion) -> Gas:
        """A message in sensor units; NaN for what cannot be converted."""
        changes = {}
        for name in ("left", "right", "second_left", "second_right"):
            if (value := getattr(gas, name)) is not None:
                try:
                    changes[name] = convert(value)
                except Exception:  # a robot must stop whatever goes wrong in a conversion
                    changes[name] = float("nan")
        return dataclasses.replace(gas, **changes)

    def _waiting_for(self, now: float) -> str:
        """Which sensors are missing or stale, as a sentence; empty if none is."""
        missing = [s for s in SENSORS if s not in self._newest or staleness(self._newest[s], self.limits, now)]
        return f"waiting for {', '.join(missing)}" if missing else ""

    def _stop(self, reason: str, by_sensor: bool) -> None:
        """Stop; the first reason is the one that is kept."""
        self._good = dict.fromkeys(SENSORS, 0)
        self.motion = None
        if not self.is_stopped:
            self._may_resume = by_sensor
            self._change("stopped", reason)
        elif not by_sensor:
            self._may_resume = False

    def _change(self, state: State, reason: str) -> None:
        if (state, reason) != (self.status.state, self.status.reason):
            self.status = Status(float(self.clock()), state, reason)
            self._write("status", self.status.stamp, {"state": state, "reason": reason})

    def _write(self, channel: str, stamp: float, values: dict[str, Any]) -> None:
        """Log; a log that cannot be written stops the robot, once."""
        if self._log is None:
            return
        try:
            self._log.write(channel, stamp, values)
        except OSError as error:
            self._log = None
            self._stop(f"the log cannot be written ({error.strerror or error})", by_sensor=False)
