import math

import gymnasium
import numpy as np
import pytest

from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.vector_env import PlumeVectorEnv

QUIET = Scenario(sensor_noise=0.0, sensor_saturation=1e3, vane_offset=0.0)


def concentration(state, scenario, x, y):
    """The sum over all Gaussians, as the paper writes it."""
    squared = ((state.filament_positions - [x, y]) ** 2).sum(axis=1)
    variance = state.filament_radii**2
    inside = squared < scenario.cutoff**2 * variance
    return float((scenario.filament_mass / (2 * math.pi * variance) * np.exp(-squared / (2 * variance)))[inside].sum())


def antenna(state, scenario, side):
    """Where the left (1) or right (-1) antenna is."""
    ahead = np.array([math.cos(state.heading), math.sin(state.heading)])
    left = np.array([-ahead[1], ahead[0]])
    return state.position + scenario.antenna_forward * ahead + side * 0.5 * scenario.antenna_separation * left


def test_readings_follow_from_the_state():
    """Everything that the antennae can smell is in the state, in metres."""
    env = gymnasium.make("gpf/Plume-v0", scenario=QUIET, observation="raw")
    env.reset(seed=2, options={"source": [5.0, 10.0], "position": [8.0, 10.0], "heading": 0.0})
    smelled = 0
    for step in range(200):
        raw, *_ = env.step((1, 2, 3, 0)[step % 4])
        state = env.unwrapped.state()
        for column, side in ((0, 1), (1, -1)):
            reading = concentration(state, QUIET, *antenna(state, QUIET, side))
            assert raw[column] == pytest.approx(reading, rel=1e-5, abs=1e-9)
            smelled += reading > 0.01
    assert smelled > 50


def test_the_state_is_that_of_the_observation_and_the_info():
    env = PlumeEnv("reference", "raw")
    raw, info = env.reset(seed=4)
    for step in range(1, 300):
        state = env.state()
        assert state.heading == pytest.approx(raw[4], abs=1e-6)
        assert (state.wind_speed, state.wind_direction) == pytest.approx(tuple(raw[2:4]), abs=1e-6)
        assert state.distance == info["distance"] == pytest.approx(math.dist(state.position, state.source))
        assert state.step == step - 1
        raw, _, terminated, truncated, info = env.step(step % 6)
        assert not terminated
        assert not truncated


def test_a_turned_vane_does_not_turn_the_wind_of_the_state():
    env = PlumeEnv({"vane_offset": 90.0, "wind_direction": 170.0, "wind_direction_sigma": 0.0}, "raw")
    raw, _ = env.reset(seed=0)
    assert env.state().wind_direction == pytest.approx(math.radians(170.0))
    assert raw[3] == pytest.approx(math.radians(170.0 + 90.0 - 360.0))


def test_filaments_age_grow_and_leave():
    scenario = Scenario(filament_lifetime=5.0, wind_speed_sigma=0.0, wind_direction_sigma=0.0, emission_jitter=0.0)
    env = PlumeEnv(scenario)
    env.reset(seed=0, options={"source": [17.0, 10.0], "position": [0.0, 0.0], "heading": math.pi})
    assert len(env.state().filament_positions) == 0
    for _ in range(100):
        env.step(0)
    state = env.state()
    count = len(state.filament_ages)
    assert state.filament_positions.shape == (count, 2)
    assert state.filament_radii.shape == (count,)
    assert count > 5
    # The wind blows to +x at 1 m/s: how far a filament has come says how old it is, and the wall is 3 m away.
    np.testing.assert_allclose(state.filament_positions[:, 0] - 17.0, state.filament_ages, atol=1e-9)
    np.testing.assert_allclose(state.filament_radii**2, 0.01**2 + 2 * 0.05 * state.filament_ages)
    assert state.filament_ages.max() <= 3.0
    assert (np.diff(state.filament_ages) <= 0).all()  # oldest first
    assert state.filament_ages.min() >= scenario.time_step - 1e-9


def test_the_state_is_the_callers_to_keep_and_to_change():
    env = PlumeEnv("reference")
    env.reset(seed=0)
    for _ in range(30):
        env.step(0)
    state = env.state()
    kept = [array.copy() for array in (state.position, state.source, state.filament_positions)]
    before = env.world.lanes.copy(), env.world.filaments.copy()
    for array in (state.position, state.source, state.filament_positions, state.filament_radii, state.filament_ages):
        array += 1.0
    assert (env.world.lanes == before[0]).all()
    np.testing.assert_array_equal(env.world.filaments, before[1])
    state = env.state()
    env.step(0)
    for array, old in zip((state.position, state.source, state.filament_positions), kept, strict=True):
        np.testing.assert_array_equal(array, old)


def test_lanes_have_states_of_their_own():
    lanes = PlumeVectorEnv(3, "reference")
    lanes.reset(seed=6)
    singles = [PlumeEnv("reference") for _ in range(3)]
    for i, env in enumerate(singles):
        env.reset(seed=6 + i)
    for _ in range(50):
        lanes.step([0, 1, 2])
        for i, env in enumerate(singles):
            env.step(i)
    for i, env in enumerate(singles):
        mine, other = vars(lanes.state(i)), vars(env.state())
        assert mine.keys() == other.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], other[name])


@pytest.mark.parametrize("lane", [-1, 3, 1.0, None, True])
def test_a_lane_that_is_not_there_has_no_state(lane):
    lanes = PlumeVectorEnv(3)
    lanes.reset(seed=0)
    with pytest.raises(ValueError, match="^lane must be a whole number from 0 to 2, got "):
        lanes.state(lane)


def test_there_is_no_state_before_the_first_episode():
    message = r"^there is no state before the first episode; call reset\(\) first$"
    with pytest.raises(gymnasium.error.ResetNeeded, match=message):
        PlumeEnv().state()
    with pytest.raises(gymnasium.error.ResetNeeded, match=message):
        PlumeVectorEnv(2).state(0)
