"""Whatever arrives, in whatever order: no exception, no command beyond its limits, and none but zero after a stop."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.edge.robot import Gas, Limits, Odometry, Robot, Wind
from gpf.edge.robot.messages import sensor_of

NUMBERS = st.one_of(
    st.floats(-1.5, 1.5),
    st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 10**400, None, "1", True]),
)
AGES = st.one_of(st.floats(-0.3, 1.0), st.just(0.0), st.sampled_from([math.nan, math.inf, -1e300]))
PLAUSIBLE = st.floats(0.0, 1.0)
GOOD = st.one_of(
    st.tuples(st.just(Gas), PLAUSIBLE, PLAUSIBLE),
    st.tuples(st.just(Wind), PLAUSIBLE, PLAUSIBLE),
    st.tuples(st.just(Odometry), st.floats(0.0, 0.1), st.floats(0.0, 0.1), PLAUSIBLE),
)
ANY = st.one_of(
    st.tuples(st.just(Gas), NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.tuples(st.just(Wind), NUMBERS, NUMBERS, st.sampled_from(["world", "robot", "moon", 3, None])),
    st.tuples(st.just(Odometry), NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from([True, False, None])),
)
EVENTS = st.one_of(
    st.tuples(st.just("message"), GOOD, st.just(0.0)),
    st.tuples(st.just("message"), GOOD, AGES),
    st.tuples(st.just("message"), ANY, AGES),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.floats(0.0, 0.3)),
    st.tuples(st.just("all good")),
    st.tuples(st.just("all good")),
    st.tuples(st.just("resume")),
)


class Bench:
    def __init__(self, actions, resume_after=0):
        self.now = 1000.0
        self.actions = list(actions)
        limits = Limits(resume_after=resume_after)
        self.robot = Robot(lambda raw: self.actions[int(raw[0] * 5)], "paper", limits=limits, clock=lambda: self.now)
        self.sent = []

    def receive(self, message):
        self.sent.append(message)
        self.robot.receive(message)

    def do(self, event):
        kind, *arguments = event
        if kind == "message":
            (of, *values), age = arguments
            self.receive(of(self.now - age, *values))
        elif kind == "again" and self.sent:
            self.robot.receive(self.sent[-1 - arguments[0] % len(self.sent)])
        elif kind == "wait":
            self.now += arguments[0]
        elif kind == "all good":
            for message in (Gas(self.now, 0.5, 0.0), Wind(self.now, 1.0, 0.0), Odometry(self.now, 0.05, 0.05, 0.5)):
                self.receive(message)
        elif kind == "resume":
            self.robot.resume()


def values_of(message):
    return [value for name, value in vars(message).items() if name not in ("frame", "bumped")]


def is_bad(message, now):
    """Whether a message is bad by itself, said anew: not by way of the robot's own checks."""
    numbers = [value for value in values_of(message) if value is not None]
    needed = values_of(message)[: {Gas: 3, Wind: 3, Odometry: 5}[type(message)]]
    if any(isinstance(value, bool | str) or value is None for value in needed):
        return True
    try:
        if any(isinstance(value, bool | str) or not np.isfinite(float(value)) for value in numbers):
            return True
    except OverflowError:
        return True
    if message.stamp > now + 0.1:
        return True
    if isinstance(message, Gas):
        return any(not 0.0 <= value <= 1.000001 for value in numbers[1:]) or len(numbers) == 4
    if isinstance(message, Wind):
        return (
            not 0.0 <= message.speed <= 50.0
            or message.frame not in ("world", "robot")
            or abs(message.direction) > 1.1e7
        )
    far = max(abs(message.x), abs(message.y), abs(message.heading)) > 1.1e7
    return far or abs(message.speed) > 2.00001 or not isinstance(message.bumped, bool)


@settings(max_examples=120)
@given(st.lists(EVENTS, max_size=40), st.lists(st.integers(-1, 6), min_size=6, max_size=6), st.integers(0, 3))
def test_nothing_raises_and_no_command_exceeds_its_limits(events, actions, resume_after):
    bench = Bench(actions, resume_after)
    for event in [("all good",), *events]:
        bench.do(event)
        command = bench.robot.command()
        assert math.isfinite(command.linear)
        assert 0.0 <= command.linear <= min(0.5 + 1e-12, bench.robot.limits.linear_max)
        assert abs(command.angular) <= bench.robot.limits.angular_max
        status = bench.robot.status
        if status.state != "running":
            assert command.linear == command.angular == 0.0
            assert status.reason


@settings(max_examples=120)
@given(st.lists(EVENTS, max_size=40), st.integers(0, 5))
def test_after_a_stop_commands_are_zero_until_it_is_resumed(events, action):
    bench = Bench([action] * 6)
    stopped = False
    for event in [("all good",), *events]:
        stopped = stopped and event[0] != "resume"
        bench.do(event)
        if event[0] == "message" and is_bad(bench.sent[-1], bench.now):
            stopped = True
        command = bench.robot.command()
        stopped = stopped or bench.robot.is_stopped
        if stopped:
            assert bench.robot.is_stopped
            assert command.linear == command.angular == 0.0


@settings(max_examples=100)
@given(st.lists(EVENTS, max_size=40))
def test_it_never_moves_on_readings_that_are_missing_or_stale(events):
    bench = Bench([0] * 6)
    newest = {}
    for event in events:
        before = len(bench.sent)
        bench.do(event)
        for message in bench.sent[before:]:
            if not is_bad(message, bench.now):
                sensor = sensor_of(message)
                newest[sensor] = max(newest.get(sensor, -math.inf), message.stamp)
        if bench.robot.command().linear:
            assert all(bench.now - newest.get(sensor, -math.inf) <= 0.5 for sensor in ("gas", "wind", "odometry"))
