"""Fields that are ranges: every episode draws its own world, uniformly and reproducibly."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from gpf.plume import Scenario
from gpf.plume.catalogue import DRAWS, draws
from gpf.plume.env import PlumeEnv
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World

RANGED = {"wind_speed": [0.5, 2.0], "emission_rate": [2.0, 9.0], "max_steps": [20, 29]}


def episodes(world, count):
    """Rows of this many episodes of each lane, shape (count, lanes)."""
    rows = []
    for _ in range(count):
        world.begin()
        rows.append(world.rows.copy())
    return np.array(rows)


def test_two_numbers_in_place_of_one_make_a_range_about_their_middle():
    scenario = Scenario.of(RANGED)
    assert {name: (low, high) for name, low, high in scenario.ranges} == {
        "wind_speed": (0.5, 2.0), "emission_rate": (2.0, 9.0), "max_steps": (20.0, 29.0),
    }  # fmt: skip
    assert scenario.wind_speed == 1.25
    assert scenario.emission_rate == 5.5


def test_episodes_draw_their_worlds_uniformly_and_independently_of_each_other():
    world = World(100, Scenario.of(RANGED), threads=1)
    world.seed(range(100))
    rows = episodes(world, 40)
    speeds, rates = rows["wind_speed"].ravel(), (rows["emission_mean"] / 0.1).ravel()
    for values, low, high in ((speeds, 0.5, 2.0), (rates, 2.0, 9.0)):
        assert values.min() >= low
        assert values.max() <= high
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-3
    assert abs(stats.spearmanr(speeds, rates).statistic) < 0.2  # a sample of 256 has 0.06 itself
    assert abs(stats.spearmanr(rows["wind_speed"][0], rows["wind_speed"][1]).statistic) < 0.4  # another every time
    assert len({*rows["wind_speed"][0]}) > 60  # and in every lane
    counts = np.bincount(rows["max_steps"].astype(int).ravel() - 20, minlength=10)
    assert (rows["max_steps"] % 1 == 0).all()
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4


def test_every_part_of_a_range_is_drawn_from_once():
    """A Latin hypercube: the draws, sorted, have one value in each of as many equal parts."""
    sample = draws(Scenario.of(RANGED))
    assert len(sample) == DRAWS
    shares = np.sort([(one.wind_speed - 0.5) / 1.5 for one in sample])
    np.testing.assert_array_equal(np.floor(shares * DRAWS), np.arange(DRAWS))
    assert all(one.ranges == () for one in sample)
    assert {type(one.max_steps) for one in sample} == {int}
    counts = np.bincount([one.max_steps for one in sample])[20:]  # a whole number has 25.6 parts, two of them shared
    assert counts.min() >= 24
    assert counts.max() <= 27


def test_what_is_drawn_is_what_the_episode_lives_in():
    world = World(30, Scenario.of({**RANGED, "wind_speed_sigma": 0.0}), threads=1)
    world.seed(range(30))
    world.begin()
    assert world.lanes["wind_speed"].std() > 0.2
    np.testing.assert_array_equal(world.lanes["wind_speed"], world.rows["wind_speed"])
    lengths = np.zeros(30)
    for _ in range(30):
        lengths += world.lanes["running"]
        world.step(np.zeros(30, np.int64))
    finished = ~world.successes
    np.testing.assert_array_equal(lengths[finished], world.rows["max_steps"][finished])


def test_a_seed_says_which_worlds_are_drawn_whatever_the_lanes_and_threads():
    scenario = Scenario.of({**RANGED, "preset": "turbulent", "head_start": [1.0, 3.0]})
    many = World(8, scenario, threads=1)
    many.seed(range(5, 13))
    again = World(8, scenario, threads=3)
    again.seed(range(5, 13))
    rows, same = episodes(many, 3), episodes(again, 3)
    assert rows.tobytes() == same.tobytes()
    for lane in range(8):
        one = World(1, scenario, threads=1)
        one.seed([5 + lane])
        assert episodes(one, 3)[:, 0]["wind_speed"].tolist() == rows[:, lane]["wind_speed"].tolist()


def test_a_lane_that_draws_is_the_single_environment_through_its_episodes():
    vector = PlumeVectorEnv(3, RANGED, "raw", threads=1)
    observations, _ = vector.reset(seed=4)
    singles = [PlumeEnv(RANGED, "raw") for _ in range(3)]
    for i, env in enumerate(singles):
        np.testing.assert_array_equal(env.reset(seed=4 + i)[0], observations[i])
    over = np.zeros(3, bool)
    rng = np.random.default_rng(0)
    begun = 0
    for _ in range(100):
        actions = rng.integers(0, 6, 3)
        observations, rewards, *ends, _ = vector.step(actions)
        for i, env in enumerate(singles):
            if over[i]:
                np.testing.assert_array_equal(env.reset()[0], observations[i])
                over[i], begun = False, begun + 1
                continue
            observation, reward, terminated, truncated, _ = env.step(actions[i])
            np.testing.assert_array_equal(observation, observations[i])
            assert reward == rewards[i]
            assert [terminated, truncated] == [ends[0][i], ends[1][i]]
            over[i] = terminated or truncated
    assert begun >= 9


def test_lanes_may_have_ranges_of_their_own_or_none():
    fixed, ranged = Scenario(wind_speed=3.0), Scenario.of({"wind_speed": [0.5, 2.0]})
    world = World(3, [fixed, ranged, Scenario.of({"wind_speed": [5.0, 6.0]})], threads=1)
    world.seed(range(3))
    speeds = episodes(world, 50)["wind_speed"]
    assert (speeds[:, 0] == 3.0).all()
    assert ((speeds[:, 1] >= 0.5) & (speeds[:, 1] <= 2.0)).all()
    assert ((speeds[:, 2] >= 5.0) & (speeds[:, 2] <= 6.0)).all()
    world.set_scenario(fixed, np.array([1]))
    assert (episodes(world, 5)["wind_speed"][:, :2] == 3.0).all()


@pytest.mark.parametrize("observation", ["raw", "memory"])
def test_the_observation_space_covers_all_that_may_be_drawn(observation):
    env = PlumeVectorEnv(
        20, {"sensor_saturation": [0.05, 5.0], "filament_mass": 3.0, "max_steps": [30, 300], "speed": [0.1, 5.0]},
        observation, threads=1,
    )  # fmt: skip
    observations, _ = env.reset(seed=0)
    for _ in range(300):
        assert env.observation_space.contains(observations)
        observations, *_ = env.step(np.zeros(20, np.int64))
    if observation == "raw":
        assert env.single_observation_space.high[0] == pytest.approx(5.0, rel=0.01)


def test_a_start_must_lie_in_every_domain_that_may_be_drawn():
    env = PlumeEnv({"width": [12.0, 20.0]})
    for seed in range(5):
        with pytest.raises(ValueError, match=r"^position must be in the domain, x from 0 to 12\.?\d* m"):
            env.reset(seed=seed, options={"position": [15.0, 5.0]})
        env.reset(seed=seed, options={"position": [11.0, 5.0]})


def test_ranges_survive_json(tmp_path):
    scenario = Scenario.of({**RANGED, "preset": "turbulent"})
    assert Scenario.from_json(scenario.to_json()) == scenario
    path = tmp_path / "world.json"
    path.write_text(json.dumps({"preset": "turbulent", **RANGED}))
    assert Scenario.of(path) == scenario
    assert draws(Scenario.of(path)) == draws(scenario)


def test_ranges_can_be_typed():
    scenario = Scenario.preset("paper").changed(["wind_speed=0.5..2", "max_steps=100..200"])
    assert scenario.ranges == (("max_steps", 100.0, 200.0), ("wind_speed", 0.5, 2.0))  # by name
    assert scenario.max_steps == 150
    fixed = scenario.changed(["wind_speed=1.5"])
    assert fixed.ranges == (("max_steps", 100.0, 200.0),)
    assert fixed.wind_speed == 1.5
    assert draws(Scenario.preset("paper")) == (Scenario.preset("paper"),)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("wind_speed=2..0.5", "wind_speed must be a range from a lower to a higher number, got [2.0, 0.5]"),
        ("wind_speed=1..1", "wind_speed must be a range from a lower to a higher number, got [1.0, 1.0]"),
        ("wind_speed=1..fast", "wind_speed must be a range from a lower to a higher number, got ['1', 'fast']"),
        ("wind_speed=-1..1", "wind_speed must be at least 0, got -1.0"),
        ("wind_speed=1..1000", "wind_speed must be at most 100, got 1000.0"),
        ("max_steps=10.5..20", "max_steps must be a whole number, got 10.5"),
        ("start_distance_min=1..15", "start_distance_max must be at least start_distance_min, 15, got 10"),
    ],
)
def test_wrong_ranges_are_refused_in_one_sentence(change, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        Scenario.preset("paper").changed([change])
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ([("wind_sped", 1.0, 2.0)], "unknown field of a range 'wind_sped'; did you mean 'wind_speed'?"),
        ([("octant_clockwise", 0, 1)], "unknown field of a range 'octant_clockwise'"),
        ([("wind_speed", 1.0)], "ranges must be a list of field, lowest and highest value"),
        ([("wind_speed", 1.0, 2.0), ("wind_speed", 3.0, 4.0)], "ranges must name each field once"),
        ("wind_speed", "ranges must be a list of field, lowest and highest value"),
    ],
)
def test_ranges_of_what_has_none_are_refused_in_one_sentence(ranges, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared below
        Scenario(ranges=ranges)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_unknown_fields_with_two_numbers_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"^unknown scenario field 'wind_sped'; did you mean 'wind_speed'\?$"):
        Scenario.of({"wind_sped": [1.0, 2.0]})


def test_ranges_whose_ends_contradict_each_other_are_refused_before_a_world_is_made():
    scenario = dataclasses.replace(
        Scenario(), ranges=(("start_distance_min", 3.0, 9.0), ("start_distance_max", 4.0, 12.0))
    )
    with pytest.raises(ValueError, match="^start_distance_max must be at least start_distance_min"):
        World(2, scenario)
