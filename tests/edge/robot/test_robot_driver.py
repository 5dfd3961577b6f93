import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from gpf.edge.robot import Command, Gas, Limits, Odometry, Robot, Wind
from gpf.edge.robot.observation import observation
from gpf.plume import Scenario
from gpf.plume.world import RAW

NAN = math.nan


class Bench:
    """A robot on a bench: a clock that is set by hand, and a navigator that notes what it sees."""

    def __init__(self, action=0, scenario="paper", **settings):
        self.now = 100.0
        self.action = action
        self.seen = []
        limits = {key: settings.pop(key) for key in list(settings) if hasattr(Limits, key)}
        self.robot = Robot(self.act, scenario, limits=Limits(**limits), clock=lambda: self.now, **settings)

    def act(self, raw):
        self.seen.append(raw)
        return self.action

    def feed(self, gas=(0.1, 0.2), wind=(1.0, 0.5), pose=(3.0, 4.0, 0.25)):
        self.robot.receive(Gas(self.now, *gas))
        self.robot.receive(Wind(self.now, *wind))
        self.robot.receive(Odometry(self.now, *pose))

    def run(self, ticks):
        """The commands of the next ticks, with fresh sensors in each."""
        commands = []
        for _ in range(ticks):
            self.feed()
            commands.append(self.robot.command())
            self.now += self.robot.limits.command_period
        return commands

    @property
    def state(self):
        return self.robot.status.state


def is_zero(command):
    return command.linear == command.angular == 0.0


def test_it_waits_until_every_sensor_has_spoken():
    bench = Bench()
    assert is_zero(bench.robot.command())
    assert (bench.state, bench.robot.status.reason) == ("waiting", "waiting for gas, wind, odometry")
    bench.robot.receive(Gas(100.0, 0.0, 0.0))
    bench.robot.receive(Odometry(100.0, 0.0, 0.0, 0.0))
    assert is_zero(bench.robot.command())
    assert bench.robot.status.reason == "waiting for wind"
    bench.robot.receive(Wind(100.0, 1.0, 0.0))
    assert bench.robot.command() == Command(100.0, 0.5, 0.0)
    assert (bench.state, bench.robot.status.reason) == ("running", "")


def test_the_navigator_sees_the_columns_of_a_raw_observation():
    bench = Bench()
    bench.robot.receive(Gas(100.0, 0.1, 0.2, 0.3, 0.4))
    bench.robot.receive(Wind(100.0, 1.5, -0.5))
    bench.robot.receive(Odometry(100.0, 3.0, 4.0, 0.25, bumped=True))
    bench.robot.command()
    named = dict(zip(RAW, bench.seen[0], strict=True))
    assert bench.seen[0].dtype == np.float32
    wanted = {
        "left": 0.1, "right": 0.2, "wind_speed": 1.5, "wind_direction": -0.5, "heading": 0.25, "bump": 1.0,
        "second_left": 0.3, "second_right": 0.4,
    }  # fmt: skip
    assert named == {name: np.float32(value) for name, value in wanted.items()}


def test_wind_in_the_robots_frame_is_turned_into_the_worlds():
    seen = observation(Gas(0, 0, 0), Wind(0, 1.0, 3.0, "robot"), Odometry(0, 0, 0, 1.0))
    assert seen[3] == pytest.approx(4.0 - 2.0 * math.pi)


def test_angles_are_wrapped_and_keep_their_bits_where_they_need_not_be():
    for angle in (3.0, -3.0, float(np.float32(-math.pi)), float(np.float32(math.pi))):
        assert observation(Gas(0, 0, 0), Wind(0, 1, angle), Odometry(0, 0, 0, angle))[3] == np.float32(angle)
    seen = observation(Gas(0, 0, 0), Wind(0, 1, 7.0), Odometry(0, 0, 0, -50.0))
    assert np.sin(seen[3]) == pytest.approx(math.sin(7.0), abs=1e-6)
    assert np.sin(seen[4]) == pytest.approx(math.sin(-50.0), abs=1e-6)
    assert np.all(np.abs(seen[3:5]) <= math.pi)


@pytest.mark.parametrize("action", range(6))
@pytest.mark.parametrize("period", [0.02, 0.03, 0.1])
def test_commands_turn_by_the_actions_angle_then_go_one_stride_ahead(action, period):
    bench = Bench(action, command_period=period)
    commands = []
    while bench.robot.decisions < 2:
        commands += bench.run(1)
    *commands, _ = commands  # of the second action
    turned = sum(command.angular for command in commands) * period
    scenario = Scenario()
    wanted = [
        0.0,
        scenario.turn_angle,
        -scenario.turn_angle,
        scenario.around_angle,
        scenario.cast_angle,
        -scenario.cast_angle,
    ]
    assert turned == pytest.approx(math.radians(wanted[action]))
    assert sum(command.linear for command in commands) * period == pytest.approx(scenario.speed * scenario.time_step)
    assert max(abs(command.angular) for command in commands) <= bench.robot.limits.angular_max
    turning = [command.angular != 0.0 for command in commands]
    assert turning == sorted(turning, reverse=True)  # first the turn, then the stride
    assert not any(command.angular and command.linear for command in commands)


def test_it_decides_once_a_step_of_the_scenario():
    bench = Bench()
    bench.run(51)
    assert bench.robot.decisions == 11  # five commands of 20 ms in a step of 0.1 s


def test_commands_that_are_asked_for_late_do_not_delay_later_decisions():
    bench = Bench()
    times = [0.0, 0.021, 0.043, 0.062, 0.079, 0.108, 0.121, 0.139, 0.162, 0.181, 0.199, 0.22, 0.24, 0.26, 0.28, 0.3]
    for time in times:
        bench.now = 100.0 + time
        bench.feed()
        bench.robot.command()
    assert bench.robot.decisions == 4


GOOD_ODOMETRY = Odometry(100.5, 3.0, 4.0, 0.25)
BAD = {
    "gas left must be a finite number, got nan": Gas(100.5, NAN, 0.0),
    "gas right must be a finite number, got inf": Gas(100.5, 0.0, math.inf),
    "gas left must be from 0 to 1, got -0.5": Gas(100.5, -0.5, 0.0),
    "gas right must be from 0 to 1, got 7.0": Gas(100.5, 0.0, 7.0),
    "gas left must be a finite number, got 'high'": Gas(100.5, "high", 0.0),
    "gas left must be a finite number, got None": Gas(100.5, None, 0.0),
    "gas stamp must be a finite number, got nan": Gas(NAN, 0.0, 0.0),
    "gas is stamped 9.5 s in the future": Gas(110.0, 0.0, 0.0),
    "gas must have both readings of the second channel, or none": Gas(100.5, 0.0, 0.0, 0.0),
    "wind speed must be from 0 to 50, got 60.0": Wind(100.5, 60.0, 0.0),
    "wind direction must be a finite number, got nan": Wind(100.5, 1.0, NAN),
    "wind frame must be world or robot, got 'mars'": Wind(100.5, 1.0, 0.0, "mars"),
    "odometry heading must be a finite number, got nan": Odometry(100.5, 3.0, 4.0, NAN),
    "odometry x must be a finite number, got -inf": Odometry(100.5, -math.inf, 4.0, 0.0),
    "odometry speed must be from -2 to 2, got 30.0": Odometry(100.5, 3.0, 4.0, 0.0, 30.0),
    "odometry bumped must be true or false, got 1": Odometry(100.5, 3.0, 4.0, 0.25, bumped=1),
    "odometry position jumped by 5 m in 0.12 s": Odometry(100.5, 8.0, 4.0, 0.25),
    "odometry heading jumped by 2 rad in 0.12 s": Odometry(100.5, 3.0, 4.0, 2.25),
}


@pytest.mark.parametrize("reason", BAD)
def test_an_implausible_reading_stops_it_at_once_and_it_says_why(reason):
    bench = Bench()
    bench.run(20)
    bench.now = 100.5
    assert bench.state == "running"
    bench.robot.receive(BAD[reason])
    assert (bench.state, bench.robot.status.reason) == ("stopped", reason)
    assert all(is_zero(command) for command in bench.run(100))  # good readings alone change nothing
    bench.robot.resume()
    assert bench.state == "waiting"
    assert not is_zero(bench.run(1)[0])


def test_the_message_of_the_test_above_is_plausible_where_nothing_is_wrong():
    bench = Bench()
    bench.run(20)
    bench.now = 100.5
    for message in (Gas(100.5, 0.0, 0.5), Wind(100.5, 3.0, 1.0), GOOD_ODOMETRY):
        bench.robot.receive(message)
    assert not is_zero(bench.robot.command())


@pytest.mark.parametrize("silent", ["gas", "wind", "odometry"])
def test_a_sensor_that_falls_silent_stops_it(silent):
    bench = Bench(**{f"{silent}_timeout": 0.3})
    bench.run(1)
    messages = {"gas": Gas(0, 0.1, 0.2), "wind": Wind(0, 1.0, 0.5), "odometry": Odometry(0, 3.0, 4.0, 0.25)}
    while not bench.robot.is_stopped:
        bench.now += 0.02
        for sensor, message in messages.items():
            if sensor != silent:
                bench.robot.receive(dataclasses.replace(message, stamp=bench.now))
        command = bench.robot.command()
    assert is_zero(command)
    assert bench.now == pytest.approx(100.32)
    assert bench.robot.status.reason == f"{silent} is stale: the newest is 0.32 s old, at most 0.3 s is accepted"


def test_readings_that_arrive_with_old_stamps_are_stale():
    bench = Bench()
    for message in (Gas(99.0, 0.1, 0.2), Wind(99.0, 1.0, 0.5), Odometry(99.0, 3.0, 4.0, 0.25)):
        bench.robot.receive(message)
    assert is_zero(bench.robot.command())
    assert bench.robot.status.reason == "waiting for gas, wind, odometry"


def test_messages_out_of_order_change_nothing():
    bench = Bench()
    bench.run(1)
    for stamp in (100.0, 99.9):
        bench.robot.receive(Gas(stamp, 0.9, 0.9))
        bench.robot.receive(Odometry(stamp, 90.0, 90.0, 3.0))  # not even a jump
    bench.now = 100.1
    bench.robot.command()
    assert bench.seen[-1][0] == np.float32(0.1)
    assert bench.state == "running"


def test_after_a_jump_it_resumes_from_the_new_place():
    bench = Bench()
    bench.run(1)
    bench.robot.receive(Odometry(100.02, 50.0, 4.0, 0.25))
    assert bench.robot.is_stopped
    bench.robot.resume()
    bench.feed(pose=(50.0, 4.0, 0.25))
    bench.now = 100.04
    bench.robot.receive(Odometry(100.04, 50.0, 4.0, 0.25))
    assert not is_zero(bench.robot.command())


def test_it_resumes_by_itself_after_enough_good_readings_of_every_sensor_if_that_is_set():
    bench = Bench(resume_after=5)
    bench.run(3)
    bench.robot.receive(Gas(bench.now, NAN, 0.0))
    assert [is_zero(command) for command in bench.run(6)] == [True] * 4 + [False] * 2
    bench.robot.receive(Gas(bench.now, NAN, 0.0))
    bench.run(4)
    bench.robot.receive(Gas(bench.now, NAN, 0.0))  # counts begin again
    assert [is_zero(command) for command in bench.run(6)] == [True] * 4 + [False] * 2


def test_a_stop_by_hand_lasts_whatever_the_sensors_say():
    bench = Bench(resume_after=2)
    bench.run(3)
    bench.robot.stop("the operator pressed the button")
    assert all(is_zero(command) for command in bench.run(20))
    assert bench.robot.status.reason == "the operator pressed the button"


@pytest.mark.parametrize("action", [6, -1, 0.5, None, "forward"])
def test_an_action_that_does_not_exist_stops_it(action):
    bench = Bench(action)
    assert is_zero(bench.run(1)[0])
    assert bench.robot.status.reason.startswith("the navigator failed (")


def test_a_navigator_that_fails_stops_it():
    def fails(raw):
        raise RuntimeError("no\nmemory left")

    bench = Bench()
    robot = Robot(fails, "paper", clock=lambda: 100.0)
    for message in (Gas(100.0, 0.1, 0.2), Wind(100.0, 1.0, 0.5), GOOD_ODOMETRY):
        robot.receive(dataclasses.replace(message, stamp=100.0))
    assert is_zero(robot.command())
    assert robot.status.reason == "the navigator failed (RuntimeError: no memory left)"
    assert bench.state == "waiting"


def test_a_clock_that_goes_back_stops_it_and_it_can_be_resumed():
    bench = Bench()
    bench.run(2)
    bench.now = 50.0
    assert is_zero(bench.robot.command())
    assert bench.robot.status.reason == "the clock went back by 50 s"
    bench.robot.resume()
    assert not is_zero(bench.run(1)[0])


def test_a_new_episode_makes_the_navigator_forget():
    class Counting:
        scenario = Scenario()
        episodes = 0

        def reset(self):
            self.episodes += 1

        def act(self, raw):
            return 0

    navigator = Counting()
    robot = Robot(navigator, clock=lambda: 0.0)
    assert navigator.episodes == 1
    robot.resume()
    assert navigator.episodes == 1  # it goes on with what it remembers
    robot.begin()
    assert navigator.episodes == 2


def test_a_second_gas_channel_is_needed_where_the_scenario_has_decoys():
    bench = Bench(scenario="decoy")
    bench.feed()
    assert bench.robot.status.reason == "gas must have both readings of the second channel in this scenario"


def test_a_conversion_is_applied_to_every_reading_and_its_failure_stops():
    bench = Bench(convert=lambda volts: volts / 10.0)
    bench.feed(gas=(1.0, 2.0, 3.0, 4.0))
    bench.robot.command()
    assert np.allclose(bench.seen[0][[0, 1, 6, 7]], [0.1, 0.2, 0.3, 0.4])
    bench.robot.receive(Gas(100.1, "much", 1.0))
    assert bench.robot.status.reason == "gas left must be a finite number, got nan"


def test_a_scenario_faster_than_the_robot_may_go_is_refused():
    with pytest.raises(ValueError, match="linear_max must be at least the scenario's speed, 0.5 m/s, got 0.3"):
        Robot(lambda raw: 0, "paper", limits=Limits(linear_max=0.3))


def test_a_robot_needs_neither_torch_nor_numba():
    code = "import sys; from gpf.edge.robot import Robot; Robot(lambda raw: 0, 'paper')"
    code += "; print(sorted({'torch', 'numba', 'mcap', 'paho'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_limits_are_checked():
    with pytest.raises(ValueError, match="gas_timeout must be at least"):
        Limits(gas_timeout=0.0)
    with pytest.raises(ValueError, match="angular_max must be"):
        Limits(angular_max=NAN)
