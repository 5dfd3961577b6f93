"""An action as velocities over time: turn at a bounded rate, then go ahead at the scenario's speed for one step."""

import math
from dataclasses import dataclass

from gpf.edge.robot.limits import Limits
from gpf.edge.robot.messages import Command
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS, Scenario


@dataclass(frozen=True)
class Motion:
    """The motion of one action. Each of its two parts lasts whole command periods and is executed exactly."""

    turn_time: float
    """How long it turns, s."""
    angular: float
    """At which rate, rad/s."""
    forward_time: float
    """How long it then goes ahead, s."""
    linear: float
    """At which speed, m/s."""
    slack: float
    """By how much commands may be asked for early or late without a part being cut or prolonged, s."""

    @property
    def duration(self) -> float:
        """How long all of it takes, s."""
        return self.turn_time + self.forward_time

    def is_over(self, elapsed: float) -> bool:
        """Whether it is over, this many seconds after it began."""
        return elapsed >= self.duration - self.slack

    def command(self, elapsed: float, now: float) -> Command:
        """The velocities this many seconds after it began."""
        if elapsed < self.turn_time - self.slack:
            return Command(now, 0.0, self.angular)
        return Command(now, self.linear, 0.0)


def motions(scenario: Scenario, limits: Limits) -> tuple[Motion, ...]:
    """The motion of every action."""
    if scenario.speed > limits.linear_max:
        raise ValueError(
            f"linear_max must be at least the scenario's speed, {scenario.speed:g} m/s, got {limits.linear_max:g}"
        )
    period = limits.command_period
    forward_time = period * math.ceil(scenario.time_step / period - 1e-9)
    linear = min(scenario.speed * scenario.time_step / forward_time, limits.linear_max)
    found = []
    for turn in row_of(scenario)["turns"][: len(ACTIONS)].tolist():
        turn_time = period * math.ceil(abs(turn) / (limits.angular_max * period) - 1e-9)
        angular = turn / turn_time if turn_time else 0.0
        bounded = max(-limits.angular_max, min(limits.angular_max, angular))  # the last digit may round up
        found.append(Motion(turn_time, bounded, forward_time, linear, 0.5 * period))
    return tuple(found)
