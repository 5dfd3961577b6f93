"""Several sources, decoys and their spells against sums and closed forms written here."""

import math

import numpy as np
import pytest
from scipy import stats

from gpf.plume import Scenario
from gpf.plume.fields import MOST_PLACES
from gpf.plume.physics import BORN, SUBSTANCE, X, Y
from gpf.plume.world import World


def world_of(count=1, seed=0, **fields):
    world = World(count, Scenario.of(fields), threads=1)
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def walk(world, steps=1):
    for _ in range(steps):
        world.step(np.zeros(world.count, np.int64))


def places(world):
    """Where all sources are, then all decoys; shape (lanes, places, 2)."""
    lanes = world.lanes
    count = int(world.rows["places"][0])
    x = np.column_stack([lanes["source_x"], lanes["others_x"]])[:, :count]
    y = np.column_stack([lanes["source_y"], lanes["others_y"]])[:, :count]
    return np.stack([x, y], axis=-1)


def alive(world, lane=0):
    first, last = world.lanes[lane]["first"], world.lanes[lane]["last"]
    filaments = world.filaments[lane][:, first:last]
    return filaments[:, ~np.isnan(filaments[X])]


# Where they are


@pytest.mark.parametrize(("sources", "decoys"), [(2, 0), (1, 1), (4, 0), (2, 2), (1, 3)])
def test_sources_and_decoys_keep_their_distance_from_each_other_and_from_the_walls(sources, decoys):
    world = world_of(400, sources=sources, decoys=decoys, source_spacing=5.0, source_margin=0.1, height=14.0)
    where = places(world)
    assert where.shape == (400, sources + decoys, 2)
    for a in range(sources + decoys):
        for b in range(a):
            assert np.hypot(*(where[:, a] - where[:, b]).T).min() >= 5.0
    slack = 1e-12
    assert where[..., 0].min() >= 2.0 - slack
    assert where[..., 0].max() <= 18.0 + slack
    assert where[..., 1].min() >= 1.4 - slack
    assert where[..., 1].max() <= 12.6 + slack
    assert where[:, 1, 0].std() > 3.0  # anywhere, unlike the first, which is upwind
    assert where[:, 0, 0].max() <= 20.0 * (0.25 + 0.15) + slack


def test_sources_that_cannot_keep_their_distance_are_placed_all_the_same():
    where = places(world_of(20, sources=MOST_PLACES, source_spacing=50.0))
    assert np.isfinite(where).all()
    assert where.min() >= 1.0
    assert where.max() <= 19.0


def test_the_first_source_does_not_depend_on_how_many_others_there_are():
    one, many = world_of(50, start_distance_min=3.0), world_of(50, start_distance_min=3.0, sources=3, decoys=1)
    np.testing.assert_array_equal(places(one)[:, 0], places(many)[:, 0])


# What counts as found

STAY = {"speed": 0.0, "emission_rate": 0.0, "source_spacing": 4.0}


def put(world, where):
    world.lanes["x"], world.lanes["y"] = where[:, 0], where[:, 1]


def test_any_true_source_can_be_found_and_no_decoy():
    sources, decoys = 2, 2
    for place in range(sources + decoys):
        world = world_of(50, sources=sources, decoys=decoys, **STAY)
        put(world, places(world)[:, place] + [0.3, 0.0])
        walk(world)
        found = place < sources
        assert (world.successes == found).all()
        assert (world.terminations == found).all()
        assert not world.truncations.any()
        assert (world.lanes["running"] == (not found)).all()


def test_the_distance_is_that_to_the_nearest_true_source():
    world = world_of(200, sources=2, decoys=2, **STAY)
    rng = np.random.default_rng(0)
    nearest_is_second = 0
    for _ in range(5):
        world.lanes["running"] = 1
        put(world, rng.uniform(0.0, 20.0, (200, 2)))
        walk(world)
        offsets = places(world)[:, :2] - np.column_stack([world.lanes["x"], world.lanes["y"]])[:, None]
        distances = np.sqrt((offsets**2).sum(axis=-1))
        np.testing.assert_allclose(world.lanes["distance"], distances.min(axis=1), rtol=1e-12)
        nearest_is_second += (distances.argmin(axis=1) == 1).sum()
    assert 100 < nearest_is_second < 900


# What they release


def test_filaments_appear_at_all_sources_and_decoys_each_at_its_rate_and_with_its_substance():
    world = world_of(
        100, sources=2, decoys=1, decoy_strength=3.0, emission_rate=4.0, source_spacing=6.0, speed=0.0,
        success_radius=1e-6, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0, emission_jitter=0.02,
    )  # fmt: skip
    walk(world, 50)
    counts = np.zeros(3)
    for n, where in enumerate(places(world)):
        filaments = alive(world, n)
        far = np.hypot(filaments[X] - where[:, :1], filaments[Y] - where[:, 1:])  # (places, filaments)
        nearest = far.argmin(axis=0)
        assert far.min(axis=0).max() < 0.15
        np.testing.assert_array_equal(filaments[SUBSTANCE], nearest == 2)
        counts += np.bincount(nearest, minlength=3)
    expected = 100 * 5.0 * np.array([4.0, 4.0, 12.0])
    assert np.abs((counts - expected) / np.sqrt(expected)).max() < 5.0  # Poisson


def test_two_gas_channels_read_the_two_substances_through_the_sensitivity():
    """Sums over the filaments of each substance, mixed here by a matrix product."""
    matrix = np.array([[1.0, 0.4], [0.3, 0.8]])
    scenario = Scenario.of({
        "preset": "decoy", "sensor_noise": 0.0, "sensor_saturation": 1e4, "sensitivity": matrix.ravel().tolist(),
        "left_gain": 1.0, "right_gain": 0.5, "diffusion": 0.01, "source_spacing": 3.0, "success_radius": 1e-3,
    })  # fmt: skip
    world = World(20, scenario, threads=1)
    world.seed(range(20))
    world.begin()
    rng = np.random.default_rng(1)
    mixed = 0
    for _ in range(40):
        near = places(world)[np.arange(20), rng.integers(0, 2, 20)]
        put(world, np.clip(near + rng.normal(0.0, 1.0, (20, 2)) + [0.5, 0.0], 0.0, 20.0))
        world.step(rng.integers(0, 6, 20))
        for i, lane in enumerate(world.lanes):
            filaments = alive(world, i)
            variance = 0.01**2 + 2.0 * 0.01 * 0.1 * (lane["tick"] - filaments[BORN])
            heading = np.exp(1j * lane["heading"])
            body = lane["x"] + 1j * lane["y"]
            for side, gain, first, second in ((1.0, 1.0, "left", "second_left"), (-1.0, 0.5, "right", "second_right")):
                tip = body + heading * (0.08 + 0.05j * side)
                z = np.abs(filaments[X] + 1j * filaments[Y] - tip) ** 2 / variance
                each = np.where(z < 9.0, 0.08 / (2.0 * np.pi * variance) * np.exp(-z / 2.0), 0.0)
                substances = np.array([each[filaments[SUBSTANCE] == kind].sum() for kind in (0, 1)])
                expected = gain * matrix @ substances
                assert [lane[first], lane[second]] == pytest.approx(expected.tolist(), rel=1e-10, abs=1e-14)
                mixed += substances.min() > 1e-4
    assert mixed > 20
    np.testing.assert_allclose(world.raw[:, 6], world.lanes["second_left"], rtol=1e-6)
    np.testing.assert_allclose(world.raw[:, 7], world.lanes["second_right"], rtol=1e-6)


def test_the_second_channel_reads_nothing_without_decoys():
    world = world_of(10, preset="turbulent")
    walk(world, 100)
    assert (world.raw[:, 6:] == 0.0).all()


# When they are on


def runs_of(series):
    """Durations of the complete spells of a series of zeros and ones, (off, on), in steps."""
    changes = np.flatnonzero(np.diff(series)) + 1
    lengths, values = np.diff(changes), series[changes[:-1]]
    return lengths[values == 0], lengths[values == 1]


def test_random_spells_are_exponentially_distributed_with_the_means_of_period_and_duty():
    world = world_of(
        60, sources=2, emission_random=True, emission_period=3.0, emission_duty=0.3, emission_rate=10.0,
        speed=0.0, success_radius=1e-6, max_steps=10**6, filament_lifetime=1.0,
    )  # fmt: skip
    series = np.empty((2000, 60, 2), np.int64)
    for moment in series:
        walk(world)
        moment[:] = world.lanes["on"][:, :2]
    spells = [runs_of(series[:, lane, place]) for lane in range(60) for place in range(2)]
    for which, mean in ((0, 0.7 * 3.0), (1, 0.3 * 3.0)):
        steps = np.concatenate([each[which] for each in spells])
        assert len(steps) > 5000
        for least in (1, 5, 10, 30):  # seen every 0.1 s, a spell lasts longer than so many steps
            survives = math.exp(-least * 0.1 / mean)
            error = math.sqrt(survives * (1.0 - survives) / len(steps))
            assert (steps > least).mean() == pytest.approx(survives, abs=5.0 * error)
        assert steps.mean() == pytest.approx(1.0 / (1.0 - math.exp(-0.1 / mean)), rel=0.05)
    assert abs(np.corrcoef(series[..., 0].ravel(), series[..., 1].ravel())[0, 1]) < 0.05  # independent of each other


def test_a_source_releases_only_while_it_is_on():
    world = world_of(
        30, emission_random=True, emission_period=4.0, emission_duty=0.5, emission_rate=20.0, speed=0.0,
        success_radius=1e-6, filament_lifetime=100.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0,
    )  # fmt: skip
    released = {0: 0, 1: 0}
    moments = {0: 0, 1: 0}
    for tick in range(1, 400):
        walk(world)
        for n, lane in enumerate(world.lanes):
            on = int(lane["on"][0])
            moments[on] += 1
            released[on] += int((alive(world, n)[BORN] == tick - 1).sum())
    assert released[0] == 0
    assert moments[0] > 3000
    assert stats.poisson(2.0 * moments[1]).sf(released[1]) > 1e-4
    assert stats.poisson(2.0 * moments[1]).cdf(released[1]) > 1e-4


@pytest.mark.parametrize("sources", [1, 2])
def test_periodic_sources_are_on_for_the_first_share_of_each_period(sources):
    world = world_of(
        10, sources=sources, emission_period=2.0, emission_duty=0.4, emission_rate=20.0, speed=0.0, success_radius=1e-6,
        filament_lifetime=100.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0,
    )  # fmt: skip
    walk(world, 200)
    births = np.concatenate([alive(world, n)[BORN] for n in range(10)])
    phases = np.bincount(births.astype(int) % 20, minlength=20)
    assert (phases[8:] == 0).all()
    expected = 10 * 10 * 2.0 * sources  # lanes, periods, filaments a step
    assert np.abs(phases[:8] - expected).max() < 5.0 * math.sqrt(expected)
