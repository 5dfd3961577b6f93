import json
import math

import numpy as np
import pytest

from gpf.navigation.evaluate import evaluate
from gpf.navigation.odometry import GRADES, Estimating, Imu, Model, OdometryFilter, with_odometry
from gpf.navigation.odometry.imu import read_imu, start_imu
from gpf.navigation.odometry.tracking import TRACKER
from gpf.navigation.policies import CastAndSurge, Reactive
from gpf.plume.kernels import kernel
from gpf.plume.rng import seed_streams
from gpf.plume.scenario import Scenario
from gpf.plume.world import World

T = 0.1
NEAR = Scenario.of({"preset": "reference", "start_distance_max": 4.0, "max_steps": 300})
IDEAL = {
    "imu": Imu(1e-12, 1e-12, 1e-12, 1e-12), "aids": "none", "heading_sigma": 1e-9, "turn_slip": 1e-9,
    "speed_slip": 1e-9,
}  # fmt: skip


@kernel
def _at_rest(trackers, q, streams, turned, gained, biases):
    for lane in range(turned.shape[0]):
        o = trackers[lane]
        start_imu(o, q, streams[lane])
        biases[0, lane], biases[1, lane] = o.gyro_bias, o.accelerometer_bias
        for step in range(turned.shape[1]):
            turned[lane, step], gained[lane, step] = read_imu(o, q, T, 0.0, 0.0, streams[lane])


def at_rest(imu, lanes, steps):
    """Mean rates and accelerations of the steps of IMUs at rest, and the biases with which they begin."""
    turned, gained, biases = np.zeros((lanes, steps)), np.zeros((lanes, steps)), np.zeros((2, lanes))
    _at_rest(np.zeros(lanes, TRACKER), Model(imu=imu).row(), seed_streams(list(range(lanes))), turned, gained, biases)
    return turned / T, gained / T, biases


@pytest.mark.parametrize("grade", GRADES)
def test_the_allan_variance_of_an_imu_at_rest_is_that_of_white_noise_and_a_random_walk(grade):
    """Of steps within which the bias holds still: N^2 / (m T) + K^2 T (2 m^2 + 1) / (6 m) for clusters of m steps."""
    imu = GRADES[grade]
    rates, accelerations, _ = at_rest(imu, 1000, 512)
    for samples, density, walk in (
        (rates, imu.gyro_density, imu.gyro_walk),
        (accelerations, imu.accelerometer_density, imu.accelerometer_walk),
    ):
        for m in (1, 8, 64, 256):
            means = samples.reshape(1000, -1, m).mean(axis=2)
            allan = 0.5 * np.mean(np.diff(means, axis=1) ** 2)
            expected = density**2 / (m * T) + walk**2 * T * (2 * m**2 + 1) / (6 * m)
            assert allan == pytest.approx(expected, rel=5.0 * math.sqrt(2.0 / (1000 * (512 // m - 1))))


def test_biases_begin_with_the_spread_of_their_grade_and_noise_is_that_of_summed_samples():
    imu = GRADES["drone"]
    rates, accelerations, biases = at_rest(imu, 20_000, 1)
    assert biases.std(axis=1) == pytest.approx([imu.gyro_bias, imu.accelerometer_bias], rel=0.03)
    samples = T * imu.rate
    assert (rates[:, 0] - biases[0]).std() == pytest.approx(imu.gyro_noise / math.sqrt(samples), rel=0.03)
    noise = imu.accelerometer_noise / math.sqrt(samples)
    assert (accelerations[:, 0] - biases[1]).std() == pytest.approx(noise, rel=0.03)


def test_perfect_odometry_is_the_policy_itself():
    policy = CastAndSurge()
    assert with_odometry(policy, "perfect") is policy


def test_a_filter_without_any_error_is_perfect_odometry():
    perfect = evaluate(CastAndSurge(), NEAR, 16, 5)
    filtered = evaluate(Estimating(CastAndSurge(), **IDEAL), NEAR, 16, 5)
    assert (filtered.steps == perfect.steps).all()
    assert (filtered.success == perfect.success).all()


def test_an_imu_with_errors_changes_what_a_policy_does():
    perfect = evaluate(CastAndSurge(), NEAR, 16, 5)
    filtered = evaluate(Estimating(CastAndSurge(), "consumer"), NEAR, 16, 5)
    assert (filtered.steps != perfect.steps).mean() > 0.5


def test_an_episode_does_not_depend_on_the_other_lanes():
    together = evaluate(Estimating(CastAndSurge()), NEAR, 12, 5)
    alone = evaluate(Estimating(CastAndSurge()), NEAR, 3, 12)
    again = evaluate(Estimating(CastAndSurge()), NEAR, 12, 5)
    assert (together.steps[7:10] == alone.steps).all()
    assert (together.steps == again.steps).all()


def test_the_wind_over_the_body_is_what_the_vane_says_whatever_the_filter_thinks():
    class Seen(CastAndSurge):
        def act(self, raw, lanes, actions):
            self.raw = raw.copy()
            super().act(raw, lanes, actions)

    policy = Seen()
    estimating = Estimating(policy, "consumer")
    estimating.begin([1, 2], NEAR)
    raw = np.array([[0.1, 0.0, 1.0, 0.3, -2.9, 0.0, 0.0, 0.0], [0.0, 0.2, 1.0, -0.4, 3.1, 0.0, 0.0, 0.0]], np.float32)
    before = raw.copy()
    estimating.act(raw, np.arange(2), np.zeros(2, np.int64))
    assert (raw == before).all()
    assert (np.delete(policy.raw, [3, 4], axis=1) == np.delete(raw, [3, 4], axis=1)).all()
    assert (policy.raw[:, 4] != raw[:, 4]).all()
    np.testing.assert_allclose(np.exp(1j * (policy.raw[:, 3] - policy.raw[:, 4])), np.exp(1j * (raw[:, 3] - raw[:, 4])),
                               atol=1e-6)  # fmt: skip


def test_the_places_of_a_policy_move_as_the_filter_says():
    """Where no whiff resets it, the place that a policy reckons is the filter's own."""
    blank = Scenario.of({"preset": "reference", "emission_rate": 0.0, "sensor_noise": 0.0, "max_steps": 60})
    policy = CastAndSurge()
    estimating = Estimating(policy, "consumer", "vane")
    world = World(5, blank)
    world.seed(range(5))
    world.begin()
    estimating.begin(range(5), blank)
    actions = np.zeros(5, np.int64)
    for _ in range(60):
        estimating.act(world.raw, np.arange(5), actions)
        world.step(actions)
    means = estimating.trackers["estimate"]["mean"]
    start_turns = np.hypot(means[:, 0], means[:, 1]) - np.hypot(policy.places["x"], policy.places["y"])
    np.testing.assert_allclose(start_turns, 0.0, atol=1e-4)


def test_policies_that_do_not_reckon_their_place_are_refused():
    with pytest.raises(ValueError, match="odometry filter needs a policy that reckons its place .*got Reactive"):
        with_odometry(Reactive(), "filter")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aids": "compass"}, "unknown aids 'compass'"),
        ({"axis_sigma": 0.0}, "axis_sigma must be at least 0.001, got 0"),
        ({"heading_sigma": math.nan}, "heading_sigma must be at least 0 and at most 180, got nan"),
    ],
)
def test_models_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Model(**change)


def test_readings_that_cannot_be_are_refused():
    robot = OdometryFilter()
    before = robot.state
    for bad in (lambda: robot.predict(T, math.nan, 0.0, 0.0, 0.5), lambda: robot.update_vane(math.inf)):
        with pytest.raises(ValueError, match="must be finite, got"):
            bad()
    with pytest.raises(ValueError, match="seconds must be positive, got 0"):
        robot.predict(0.0, 0.0, 0.0, 0.0, 0.5)
    assert (robot.state == before).all()


def test_the_wind_of_a_model_is_that_of_the_scenario():
    plain, turbulent = (Model.of(Scenario.preset(name)) for name in ("paper", "turbulent"))
    assert (plain.wind_sigma, plain.wind_time) == (15.0, 2.0)
    assert turbulent.wind_sigma == pytest.approx(math.degrees(0.5))
    assert turbulent.wind_time == 5.0


def test_the_command_evaluates_with_a_filter(gpf):
    common = "evaluate", "cast-and-surge", "--episodes", "8", "--json"
    perfect = json.loads(gpf(*common).splitlines()[-1])
    filtered = json.loads(gpf(*common, "--odometry", "filter", "--imu", "consumer").splitlines()[-1])
    assert "odometry" not in perfect
    assert (filtered["odometry"], filtered["imu"]) == ("filter", "consumer")
    assert "filter-consumer" in filtered["figure"]


def test_an_imu_without_a_filter_is_a_mistake(mistake):
    assert "--imu needs --odometry filter" in mistake("evaluate", "cast-and-surge", "--imu", "drone")


def test_navigators_with_memory_take_a_filter_and_others_do_not():
    from gpf.navigation.acting import NetworkPolicy
    from gpf.navigation.flat import FlatNetwork
    from gpf.navigation.inputs import INPUTS
    from gpf.network import MLP

    made = {name: NetworkPolicy(FlatNetwork(MLP(size, 8, 6)), name, "greedy", NEAR) for name, size in INPUTS.items()}
    policy = made["memory"]
    estimating = with_odometry(policy, "filter", "consumer")
    estimating.begin(range(3), NEAR)
    raw = np.array([[0.0, 0.0, 1.0, 0.3, 2.9, 0.0, 0.0, 0.0]] * 3, np.float32)
    for _ in range(20):
        estimating.act(raw, np.arange(3), np.zeros(3, np.int64))
    way = 19 * NEAR.speed * NEAR.time_step
    perfect = way * np.array([math.cos(2.9), math.sin(2.9)])
    off = np.hypot(policy.places["x"] - perfect[0], policy.places["y"] - perfect[1])
    assert (off > 1e-3).all()
    assert (off < 0.5 * way).all()
    with pytest.raises(ValueError, match="needs a policy that reckons its place"):
        with_odometry(made["onehot"], "filter")
