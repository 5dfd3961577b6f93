"""The features of memory against a plain version, and against what a robot can and cannot know."""

import cmath
import dataclasses
import math

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.memory import FEATURES, MEMORY_SIZE, NAMES, Memory, memory_bounds
from gpf.plume.row import row_of
from gpf.plume.vector_env import PlumeVectorEnv

REFERENCE = Scenario.preset("reference")
STRIDE = REFERENCE.speed * REFERENCE.time_step


def plain_features(raws, stride=STRIDE, max_steps=1200):
    """The features after the last of some raw observations, with complex numbers for places and directions."""
    place = whiff_place = 0j
    mean_wind = -cmath.exp(1j * raws[0][3])  # where it comes from
    since, side, met = 1000.0, 0.0, 0.0
    offsets = [0.0]  # across the wind, since the last whiff
    for step, (left, right, _, direction, heading, *_) in enumerate(raws):
        if step:
            place += stride * cmath.exp(1j * heading)
        mean_wind += 0.03 * (-cmath.exp(1j * direction) - mean_wind)
        since += 1.0
        whiff = max(left, right) > 4e-3
        if whiff:
            since, whiff_place, met, offsets = 0.0, place, 1.0, []
            side = 0.8 * side + 0.2 * (1.0 if left > right else -1.0)
        offsets.append(((place - whiff_place) / mean_wind * abs(mean_wind)).imag)
    ahead = cmath.exp(1j * heading)
    upwind = mean_wind / abs(mean_wind)
    from_whiff = (place - whiff_place) / upwind
    values = {
        "difference": (left - right) / (left + right + 3e-3), "whiff": float(whiff),
        "since_10": math.exp(-since / 10), "since_50": math.exp(-since / 50), "since_200": math.exp(-since / 200),
        "side": side, "met": met, "clock": step / max_steps,
        "whiff_across": from_whiff.imag / 3, "whiff_upwind": from_whiff.real / 3,
        "mean_wind_ahead": (upwind / ahead).real, "mean_wind_left": (upwind / ahead).imag,
        "wind_ahead": (-cmath.exp(1j * direction) / ahead).real,
        "wind_left": (-cmath.exp(1j * direction) / ahead).imag,
        "searched_left": max(offsets) / 3, "searched_right": -min(offsets) / 3,
    }  # fmt: skip
    return [values[name] for name in NAMES]


def observations(count, seed=0):
    """Raw observations of a robot that turns at random in a gusting wind, with a whiff now and then."""
    rng = np.random.default_rng(seed)
    raws = np.zeros((count, 5), np.float32)
    raws[:, :2] = rng.random((count, 2)) * 1e-3 + (rng.random((count, 1)) < 0.1) * rng.random((count, 2)) * 0.1
    raws[::17, :2] = 0.05  # a tie
    raws[:, 2] = rng.uniform(0.5, 1.5, count)
    raws[:, 3] = rng.normal(0.3, 0.3, count)
    raws[:, 4] = np.angle(np.exp(1j * np.cumsum(rng.normal(0, 0.3, count))))
    return raws


def memory(lanes=1, scenario=REFERENCE):
    return Memory(np.repeat(np.array([row_of(scenario)]), lanes))


def test_features_equal_the_plain_version():
    raws = observations(150)
    remembered = memory()
    for step in range(len(raws)):
        features = remembered.update(raws[step : step + 1])
        np.testing.assert_allclose(features[0], plain_features(raws[: step + 1].tolist()), atol=2e-5)


@settings(max_examples=30)
@given(turn=st.floats(-3.1, 3.1), seed=st.integers(0, 100))
def test_a_turned_world_looks_the_same(turn, seed):
    """Features depend on wind and heading relative to each other: no compass points to the source."""
    raws, one, other = observations(40, seed), memory(), memory()
    turned = raws.copy()
    turned[:, 3:] += turn
    for k in range(len(raws)):
        np.testing.assert_allclose(one.update(raws[k : k + 1]), other.update(turned[k : k + 1]), atol=1e-4)


def test_a_known_walk_in_a_steady_wind():
    """Start facing upwind, five strides ahead, a whiff, then four strides to the left."""
    remembered = memory()
    wind = math.pi  # blows to -x, so that upwind is +x
    for step in range(10):
        heading = 0.0 if step <= 5 else math.pi / 2
        reading = 0.05 if step == 5 else 0.0
        features = dict(
            zip(NAMES, remembered.update(np.array([[reading, 0.0, 1.0, wind, heading]], np.float32))[0], strict=True)
        )
    assert features["whiff_across"] == pytest.approx(4 * STRIDE / 3, abs=1e-6)
    assert features["whiff_upwind"] == pytest.approx(0.0, abs=1e-6)
    assert features["since_10"] == pytest.approx(math.exp(-4 / 10))
    assert features["met"] == 1.0
    assert features["clock"] == pytest.approx(9 / 1200)
    assert features["side"] > 0.0  # it came from the left antenna
    assert features["mean_wind_ahead"] == pytest.approx(0.0, abs=1e-6)
    assert features["mean_wind_left"] == pytest.approx(
        -1.0, abs=1e-6
    )  # facing left of the wind, it comes from the right


def test_what_was_searched_on_either_side_is_kept_until_the_next_whiff():
    """Upwind is +x. Three strides to the left, five to the right, so two right of the start, one back, then a whiff."""
    remembered = memory()
    left, right = math.pi / 2, -math.pi / 2
    found = []
    for step, heading in enumerate([0.0, *[left] * 3, *[right] * 5, *[left] * 3]):
        reading = 0.05 if step == 10 else 0.0
        features = remembered.update(np.array([[reading, 0.0, 1.0, math.pi, heading]], np.float32))[0]
        found.append([features[NAMES.index(name)] * 3 / STRIDE for name in ("searched_left", "searched_right")])
    assert np.round(found, 4).tolist() == [
        [0, 0], [1, 0], [2, 0], [3, 0], [3, 0], [3, 0], [3, 0], [3, 1], [3, 2], [3, 2], [0, 0], [1, 0]
    ]  # fmt: skip


@pytest.mark.parametrize("sigma", [1e-3, 2e-3, 5e-3])
def test_noise_alone_hardly_ever_looks_like_a_whiff(sigma):
    noise = np.clip(np.random.default_rng(0).normal(0, sigma, (200_000, 5)), 0, 1).astype(np.float32)
    remembered = memory(len(noise), dataclasses.replace(REFERENCE, sensor_noise=sigma))
    whiffs = remembered.update(noise)[:, NAMES.index("whiff")].mean()
    tokens = (noise[:, :2].max(1) > REFERENCE.level_edges[0]).mean()
    assert whiffs < 2e-4 < 2e-3 < tokens


@pytest.mark.parametrize(("sigma", "threshold"), [(0.0, 4e-3), (5e-4, 4e-3), (1e-3, 4e-3), (2e-3, 8e-3)])
def test_a_whiff_exceeds_four_standard_deviations_and_never_less_than_the_presets(sigma, threshold):
    remembered = memory(2, dataclasses.replace(REFERENCE, sensor_noise=sigma))
    readings = np.array([[0.99 * threshold, 0, 1, 0, 0], [1.01 * threshold, 0, 1, 0, 0]], np.float32)
    np.testing.assert_array_equal(remembered.update(readings)[:, NAMES.index("whiff")], [0.0, 1.0])


def test_lanes_of_different_noise_have_thresholds_of_their_own():
    rows = np.array([row_of(dataclasses.replace(REFERENCE, sensor_noise=sigma)) for sigma in (1e-3, 2e-3)])
    readings = np.array([[6e-3, 0, 1, 0, 0]] * 2, np.float32)
    np.testing.assert_array_equal(Memory(rows).update(readings)[:, NAMES.index("whiff")], [1.0, 0.0])


def test_the_longest_walk_stays_in_the_observation_space():
    """Straight upwind from the first step to the last, and nothing smelt."""
    straight = {"width": 1000.0, "max_steps": 50, "emission_rate": 0.0, "sensor_noise": 0.0,
                "start_heading_sigma": 0.0, "wind_direction_sigma": 0.0}  # fmt: skip
    env = PlumeEnv(straight, "memory")
    features, _ = env.reset(seed=0)
    for _ in range(50):
        features, *_ = env.step(0)
    assert features[NAMES.index("whiff_upwind")] == pytest.approx(50 * STRIDE / 3, rel=1e-5)
    assert env.observation_space.contains(features)
    assert env.observation_space.high[NAMES.index("whiff_upwind")] == pytest.approx(50 * STRIDE / 3, rel=1e-4)


def test_the_widest_search_stays_in_the_observation_space():
    """Straight across the wind to the left, from the first step to the last."""
    remembered = memory(scenario=dataclasses.replace(REFERENCE, max_steps=50))
    low, high = memory_bounds(np.array([row_of(dataclasses.replace(REFERENCE, max_steps=50))]))
    for _ in range(51):
        features = remembered.update(np.array([[0.0, 0.0, 1.0, math.pi, math.pi / 2]], np.float32))[0]
    assert features[NAMES.index("searched_left")] == pytest.approx(50 * STRIDE / 3, rel=1e-5)
    assert (low <= features).all()
    assert (features <= high).all()
    assert low[NAMES.index("searched_right")] == pytest.approx(0.0, abs=1e-4)


def test_every_feature_belongs_to_one_group():
    assert len(NAMES) == len(set(NAMES)) == MEMORY_SIZE == sum(map(len, FEATURES.values()))


def test_environments_offer_memory_as_an_observation():
    lanes = PlumeVectorEnv(3, "reference", "memory", autoreset_mode="SameStep")
    singles = [gymnasium.make("gpf/Plume-v0", scenario="reference", observation="memory") for _ in range(3)]
    short = {"preset": "reference", "max_steps": 40}
    lanes.set_scenario(short)
    for one in singles:
        one.unwrapped.world.set_scenario(Scenario.of(short))
    many, _ = lanes.reset(seed=4)
    alone = np.stack([one.reset(seed=4 + i)[0] for i, one in enumerate(singles)])
    raw = PlumeEnv(short, "raw")
    walk, rng = [raw.reset(seed=4)[0]], np.random.default_rng(0)
    for step in range(100):
        np.testing.assert_array_equal(many, alone)
        assert lanes.single_observation_space.contains(many[0])
        if step < 40:
            np.testing.assert_allclose(many[0], plain_features([one.tolist() for one in walk], max_steps=40), atol=2e-5)
        actions = rng.integers(0, 6, 3)
        many, _, terminations, truncations, infos = lanes.step(actions)
        if step < 40:
            walk.append(raw.step(actions[0])[0])
        alone = []
        for i, one in enumerate(singles):
            observation, _, terminated, truncated, _ = one.step(actions[i])
            if terminated or truncated:
                np.testing.assert_array_equal(infos["final_obs"][i], observation)
                observation, _ = one.reset()
            alone.append(observation)
        alone = np.stack(alone)
