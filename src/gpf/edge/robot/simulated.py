"""A simulated robot: the plume world behind the messages of a real one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.edge.robot.driver import Log, Robot
from gpf.edge.robot.limits import Limits
from gpf.edge.robot.messages import Command, Gas, Odometry, Status, Wind
from gpf.navigation.policies import Policy
from gpf.plume.env import PlumeEnv
from gpf.plume.scenario import Scenario


@dataclass(frozen=True)
class Flight:
    """An episode of a simulated robot."""

    actions: list[int]
    """The navigator's action."""
    found: bool
    """Whether the robot found the source."""
    seconds: float
    """How long the robot took, turns included, s."""
    status: Status
    """How it ended."""
    worst_position: float
    """Greatest distance between where an action led and where its commands led, m; bumps left out."""
    worst_heading: float
    """The same of headings, rad."""


class Single:
    """A policy, which steers many lanes, as the navigator of one robot."""

    def __init__(self, policy: Policy, scenario: Scenario | str, seed: int = 0) -> None:
        self.scenario: Scenario = Scenario.of(scenario)
        self._policy, self._seed = policy, seed
        self._lane, self._action = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def reset(self) -> None:
        """Begin an episode."""
        self._policy.begin([self._seed], self.scenario)

    def act(self, raw: NDArray[np.float32]) -> int:
        """The action for a raw observation, shape (8,)."""
        self._policy.act(raw[None], self._lane, self._action)
        return int(self._action[0])


class _Body:
    """Moves as commands say, and publishes what the world's sensors show; messages are all that the robot sees."""

    def __init__(self, env: PlumeEnv, robot: Robot, raw: NDArray[np.float32]) -> None:
        self.env, self.robot = env, robot
        self.worst_position = self.worst_heading = 0.0
        self.set_down(raw)

    def set_down(self, raw: NDArray[np.float32]) -> None:
        """Take over what the world says: the sensors, and the true pose."""
        state = self.env.state()
        self.raw = raw
        (self.x, self.y), self.heading = state.position.tolist(), state.heading

    def arrive(self, raw: NDArray[np.float32]) -> None:
        """Record how far the commands led from the action's end point; then move there."""
        state = self.env.state()
        if not self.env.world.lanes[0]["bump"]:
            off = math.hypot(self.x - state.position[0], self.y - state.position[1])
            turned = abs(math.remainder(self.heading - state.heading, 2.0 * math.pi))
            self.worst_position, self.worst_heading = max(self.worst_position, off), max(self.worst_heading, turned)
        self.set_down(raw)

    def publish(self, now: float) -> None:
        """Send one message of each sensor."""
        left, right, speed, direction, _, bump, *second = self.raw.tolist()
        self.robot.receive(Gas(now, left, right, *(second if self.robot.scenario.decoys else ())))
        self.robot.receive(Wind(now, speed, direction))
        self.robot.receive(Odometry(now, self.x, self.y, self.heading, bumped=bump != 0.0))

    def move(self, command: Command, seconds: float) -> None:
        """Hold a velocity for a while; no command has both parts."""
        self.heading += command.angular * seconds
        self.x += command.linear * seconds * math.cos(self.heading)
        self.y += command.linear * seconds * math.sin(self.heading)


def fly(
    navigator: Any,
    scenario: Scenario | str | dict[str, Any],
    seed: int,
    *,
    limits: Limits | None = None,
    log: Log | None = None,
) -> Flight:
    """Fly one episode of `PlumeEnv` through a `Robot`, with only messages and commands between them.

    While the robot turns the world stands still, as it does in training, and the sensors repeat what they show.
    """
    now, due, tick, over, found = 0.0, math.inf, 0, False, False
    actions: list[int] = []
    env = PlumeEnv(scenario, observation="raw")
    robot = Robot(navigator, scenario, limits=limits, clock=lambda: now, log=log)
    raw, _ = env.reset(seed=seed)
    body = _Body(env, robot, raw)
    period = robot.limits.command_period
    while not robot.is_stopped:
        now = tick * period
        if now >= due - 0.5 * period:
            body.arrive(raw)
            due = math.inf
            if over:
                robot.stop("the episode is over")
        body.publish(now)
        command = robot.command()
        if robot.decisions > len(actions) and robot.action is not None and robot.motion is not None:
            actions.append(robot.action)
            raw, _, terminated, truncated, info = env.step(robot.action)
            over, found, due = terminated or truncated, info["success"], now + robot.motion.duration
        body.move(command, period)
        tick += 1
    return Flight(actions, found, now, robot.status, body.worst_position, body.worst_heading)
