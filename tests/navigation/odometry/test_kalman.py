import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.navigation.odometry import GRADES, Imu, Model, OdometryFilter
from gpf.navigation.odometry.consistency import band, invariant_errors, nees
from gpf.navigation.odometry.kalman import (
    ACCELEROMETER,
    AXIS,
    ESTIMATE,
    GYRO,
    HEADING,
    POSE,
    SPEED,
    STATE,
    WIND,
    X,
    Y,
    predict,
)
from gpf.plume.kernels import kernel

T = 0.1
FREE = 1e9
"""Standard deviation of a command that says nothing."""


@kernel
def _predict(estimates, q, turned, gained, turn, speed):
    predict(estimates[0], q, T, turned, gained, turn, speed)


def row_of(**changes):
    row = Model(imu=GRADES["consumer"]).row()
    for name, value in changes.items():
        row[name] = value
    return row


def random_estimate(seed):
    rng = np.random.default_rng(seed)
    estimates = np.zeros(1, ESTIMATE)
    estimates["mean"][0] = rng.normal(0.0, [3.0, 3.0, 2.0, 0.5, 0.02, 0.2, 0.2, 2.0])
    root = rng.normal(0.0, 0.1, (len(STATE), len(STATE)))
    estimates["covariance"][0] = root @ root.T
    return estimates


def walk(state, noise, row, turned, gained):
    """The true state after a step; noises are those of gyro, accelerometer, both biases and wind."""
    x, y, h, v, bg, ba, w, a = state
    h = h + turned - T * bg - noise[0]
    v = v + gained - T * ba - noise[1]
    w = w * math.exp(-T / row["wind_time"]) + noise[4]
    return np.array([x + T * v * math.cos(h), y + T * v * math.sin(h), h, v, bg + noise[2], ba + noise[3], w, a])


def truth_with(mean, errors):
    """The state of which an estimate has these invariant errors."""
    state = mean - errors
    c, s = math.cos(-errors[HEADING]), math.sin(-errors[HEADING])
    x, y = mean[X] - errors[X], mean[Y] - errors[Y]
    state[X], state[Y] = c * x - s * y, s * x + c * y
    return state


@pytest.mark.parametrize("seed", range(4))
def test_errors_propagate_as_finite_differences_say(seed):
    row = row_of(turn_slip=FREE, speed_slip=FREE)
    estimates = random_estimate(seed)
    mean, covariance = estimates["mean"][0].copy(), estimates["covariance"][0].copy()
    turned, gained = 0.4, 0.1
    _predict(estimates, row, turned, gained, 0.0, 0.0)
    after = walk(mean, np.zeros(5), row, turned, gained)
    np.testing.assert_allclose(invariant_errors(estimates["mean"][0], after), 0.0, atol=1e-9)

    def error(errors, noise):
        return invariant_errors(after, walk(truth_with(mean, errors), noise, row, turned, gained))

    step, none, still = 1e-6, np.zeros(len(STATE)), np.zeros(5)
    of_state = [(error(step * e, still) - error(-step * e, still)) / (2 * step) for e in np.eye(len(STATE))]
    of_noise = [(error(none, step * e) - error(none, -step * e)) / (2 * step) for e in np.eye(5)]
    keep = math.exp(-T / row["wind_time"])
    variances = [
        T * row["gyro_density"] ** 2, T * row["accelerometer_density"] ** 2, T * row["gyro_walk"] ** 2,
        T * row["accelerometer_walk"] ** 2, row["wind_sigma"] ** 2 * (1 - keep**2),
    ]  # fmt: skip
    f, g = np.array(of_state).T, np.array(of_noise).T
    expected = f @ covariance @ f.T + g @ np.diag(variances) @ g.T
    np.testing.assert_allclose(estimates["covariance"][0], expected, rtol=1e-6, atol=1e-8)


def kalman_step(mean, covariance, f, q, u):
    return f @ mean + u, f @ covariance @ f.T + q


def kalman_update(mean, covariance, h, variance, measured):
    gain = covariance @ h / (h @ covariance @ h + variance)
    return mean + gain * (measured - h @ mean), covariance - np.outer(gain, h @ covariance)


def test_along_a_known_heading_it_is_a_plain_kalman_filter():
    """Heading exactly known and across the wind: (y, v, b_a, a) are linear."""
    rng = np.random.default_rng(0)
    model = Model(imu=Imu(0.0, 0.0, 0.03, 0.06), heading_sigma=0.0, axis_prior=3.0)
    robot, q = OdometryFilter(model, heading=0.5 * math.pi, axis=1.0), model.row()
    mean, covariance = np.array([0.0, 0.0, 0.0, 1.0]), np.diag([1e-12, 1e-12, 0.03**2, 9.0])
    for step in range(60):
        acceleration, speed = rng.normal(0.0, 1.0), rng.normal(0.5, 0.1)
        robot.predict(T, 0.0, acceleration, 0.0, speed)
        # the speed is corrected before the walk, so the walk comes last
        velocity = np.array([[1, 0, 0, 0], [0, 1, -T, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
        noise = np.diag([0, T * q["accelerometer_density"] ** 2, 0, 0])
        mean, covariance = kalman_step(mean, covariance, velocity, noise, np.array([0, T * acceleration, 0, 0]))
        mean, covariance = kalman_update(mean, covariance, np.array([0, 1.0, 0, 0]), model.speed_slip**2, speed)
        way = np.eye(4)
        way[0, 1] = T
        walks = np.diag([0, 0, T * q["accelerometer_walk"] ** 2, 0])
        mean, covariance = kalman_step(mean, covariance, way, walks, np.zeros(4))
        if step % 20 == 10:
            robot.update_gas()
            mean, covariance = kalman_update(mean, covariance, np.array([1.0, 0, 0, -1]), model.axis_sigma**2, 0.0)
    picked = [Y, SPEED, ACCELEROMETER, AXIS]
    np.testing.assert_allclose(robot.state[picked], mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(robot.covariance[np.ix_(picked, picked)], covariance, rtol=1e-7, atol=1e-12)


def test_heading_and_wind_are_a_plain_kalman_filter_with_the_gyros_noise_in_its_state():
    """(h, b_g, w, n): the noise n of the gyro is in the heading and in what the command says of it."""
    rng = np.random.default_rng(1)
    model = Model(imu=GRADES["consumer"], wind_time=2.0)
    robot, q = OdometryFilter(model), model.row()
    mean, covariance = np.zeros(3), np.diag([q["heading_sigma"], q["gyro_bias"], q["wind_sigma"]]) ** 2
    keep = math.exp(-T / 2.0)
    for _ in range(50):
        rate, turn, vane = rng.normal(0.0, 0.3), rng.normal(0.0, 0.03), rng.normal(0.0, 0.2)
        robot.predict(T, rate, 0.0, turn, 0.5)
        robot.update_vane(vane)
        widened = np.zeros((4, 4))
        widened[:3, :3], widened[3, 3] = covariance, T * q["gyro_density"] ** 2
        full, f = np.append(mean, 0.0), np.eye(4)
        f[0, 1], f[0, 3] = -T, -1.0
        full, widened = kalman_step(full, widened, f, np.zeros((4, 4)), np.array([T * rate, 0, 0, 0]))
        # turn - T rate = -T b_g - n - slip
        says = np.array([0, -T, 0, -1.0])
        full, widened = kalman_update(full, widened, says, q["turn_slip"] ** 2, turn - T * rate)
        drift = np.diag([0, T * q["gyro_walk"] ** 2, q["wind_sigma"] ** 2 * (1 - keep**2)])
        mean, covariance = kalman_step(full[:3], widened[:3, :3], np.diag([1, 1, keep]), drift, np.zeros(3))
        mean, covariance = kalman_update(mean, covariance, np.array([-1.0, 0, 1]), q["vane_noise"] ** 2, vane)
    picked = [HEADING, GYRO, WIND]
    np.testing.assert_allclose(robot.state[picked], mean, rtol=1e-9)
    np.testing.assert_allclose(robot.covariance[np.ix_(picked, picked)], covariance, rtol=1e-9)


numbers = st.floats(-5.0, 5.0)
steps = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers, st.booleans(), st.booleans()), max_size=40)


@given(steps=steps, grade=st.sampled_from(sorted(GRADES)))
@settings(max_examples=60)
def test_the_covariance_stays_symmetric_and_positive_definite(steps, grade):
    robot = OdometryFilter(Model(imu=GRADES[grade]))
    for rate, acceleration, turn, speed, vane, reads, smells in steps:
        robot.predict(T, rate, acceleration, turn, speed)
        if reads:
            robot.update_vane(vane)
        if smells:
            robot.update_gas()
    covariance = robot._estimate["covariance"][0]
    assert (covariance == covariance.T).all()
    assert np.isfinite(robot.state).all()
    np.linalg.cholesky(covariance)  # refuses what is not positive definite


@given(heading=st.floats(-50.0, 50.0), turns=st.integers(-3, 3), rate=st.floats(-60.0, 60.0), vane=numbers)
def test_angles_count_modulo_full_turns(heading, turns, rate, vane):
    full = 2.0 * math.pi
    one, other = OdometryFilter(heading=heading), OdometryFilter(heading=heading + turns * full)
    one.predict(T, rate, 0.0, T * rate, 0.5)
    other.predict(T, rate, 0.0, T * rate + full, 0.5)
    one.update_vane(vane)
    other.update_vane(vane - turns * full)
    assert -math.pi <= one.heading < math.pi
    assert math.cos(one.heading - other.heading) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(np.delete(one.state, HEADING), np.delete(other.state, HEADING), atol=1e-9)


def test_a_vane_turns_the_way_walked_so_far_with_the_heading():
    """Of a way whose direction was wrong from the start, all of it was wrong."""
    robot = OdometryFilter(Model(imu=Imu(1e-6, 1e-6, 1e-6, 1e-6), heading_sigma=20.0, wind_sigma=0.1), heading=0.3)
    robot.predict(T, 0.0, 5.0, 0.0, 0.5)
    for _ in range(100):
        robot.predict(T, 0.0, 0.0, 0.0, 0.5)
    for _ in range(20):
        robot.update_vane(0.0)  # so it goes downwind
    assert abs(robot.heading) < 0.02
    assert robot.downwind == pytest.approx(5.05, abs=0.05)
    assert abs(robot.crosswind) < 0.1


def simulated(seed, model, legs):
    """The errors of a filter in a world of its own model, and their covariance, after some legs across the wind."""
    rng, q = np.random.default_rng(seed), model.row()
    imu, keep = model.imu, math.exp(-T / model.wind_time)
    truth = np.zeros(len(STATE))
    truth[GYRO], truth[ACCELEROMETER] = rng.normal(0.0, [imu.gyro_bias, imu.accelerometer_bias])
    truth[WIND], truth[AXIS] = rng.normal(0.0, [q["wind_sigma"], q["axis_prior"]])
    robot = OdometryFilter(model, heading=rng.normal(0.0, q["heading_sigma"]))
    for leg in range(legs):
        # to a contact that lies as far from the axis as the model says, within ten steps; the next leg at an angle
        off = truth[AXIS] + rng.normal(0.0, model.axis_sigma) - truth[Y]
        heading = math.copysign(1.0 if leg % 2 else 2.0, off)
        speed = abs(off) / (10 * T * abs(math.sin(heading)))
        for _ in range(10):
            turn, gain = heading - truth[HEADING], speed - truth[SPEED]
            turned = turn + T * truth[GYRO] + math.sqrt(T) * imu.gyro_density * rng.normal()
            gained = gain + T * truth[ACCELEROMETER] + math.sqrt(T) * imu.accelerometer_density * rng.normal()
            commanded = turn - q["turn_slip"] * rng.normal(), speed - model.speed_slip * rng.normal()
            truth[HEADING], truth[SPEED] = heading, speed
            truth[[X, Y]] += T * speed * np.array([math.cos(heading), math.sin(heading)])
            truth[GYRO] += imu.gyro_walk * math.sqrt(T) * rng.normal()
            truth[ACCELEROMETER] += imu.accelerometer_walk * math.sqrt(T) * rng.normal()
            truth[WIND] = keep * truth[WIND] + math.sqrt(1 - keep**2) * q["wind_sigma"] * rng.normal()
            robot.predict(T, turned / T, gained / T, *commanded)
            if model.aids != "none":
                robot.update_vane(truth[WIND] - heading + q["vane_noise"] * rng.normal())
        if model.aids == "vane and gas":
            robot.update_gas()
    return invariant_errors(robot.state, truth), robot._estimate["covariance"][0].copy()


@pytest.mark.parametrize("aids", ["none", "vane", "vane and gas"])
def test_the_filter_is_consistent_in_a_world_of_its_own_model(aids):
    model = Model(aids=aids, axis_sigma=0.5, axis_prior=1.0)
    runs = [simulated((23, seed), model, 4) for seed in range(500)]
    errors, covariances = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
    own = nees(errors[:, :POSE], covariances[:, :POSE, :POSE])
    low, high = band(POSE, len(runs))
    assert low < own.mean() < high


def test_a_filter_that_trusts_too_much_leaves_the_band():
    honest = Model(aids="none")
    runs = [simulated((18, seed), honest, 3) for seed in range(100)]
    own = nees(np.array([e for e, _ in runs])[:, :POSE], 0.7 * np.array([p for _, p in runs])[:, :POSE, :POSE])
    assert own.mean() > band(POSE, 100)[1]


def test_the_band_holds_as_many_means_as_it_says():
    low, high = band(6, 40)
    means = np.random.default_rng(0).chisquare(6, (20_000, 40)).mean(axis=1)
    assert ((low < means) & (means < high)).mean() == pytest.approx(0.95, abs=0.005)
