"""The physics against a plain NumPy version of PAPER's equations, written here and nowhere else."""

import math

import numpy as np
import pytest
from scipy import stats

from gpf.plume import Scenario
from gpf.plume.physics import BORN, X, Y, gaussian
from gpf.plume.pixels import concentration_field
from gpf.plume.world import World


def world_of(count=1, seed=0, **fields):
    world = World(count, Scenario(**fields))
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def walk(world, steps, action=0):
    actions = np.full(world.count, action)
    for _ in range(steps):
        world.step(actions)


def alive(world, lane=0):
    """The filaments of a lane as columns x, y, born."""
    first, last = world.lanes[lane]["first"], world.lanes[lane]["last"]
    columns = world.filaments[lane][:, first:last]
    return columns[:, ~np.isnan(columns[X])]


def plain_concentration(point, filaments, step, scenario):
    """Sum of m / (2 pi s^2) exp(-d^2 / 2 s^2) over filaments with d < 3 s."""
    total = 0.0
    for x, y, born in filaments.T:
        variance = scenario.filament_radius**2 + 2 * scenario.diffusion * (step - born) * scenario.time_step
        distance2 = (point[0] - x) ** 2 + (point[1] - y) ** 2
        if distance2 < scenario.cutoff**2 * variance:
            total += scenario.filament_mass / (2 * math.pi * variance) * math.exp(-distance2 / (2 * variance))
    return total


def plain_antennae(lane, scenario):
    c, s = math.cos(lane["heading"]), math.sin(lane["heading"])
    rotation = np.array([[c, -s], [s, c]])
    body = np.array([lane["x"], lane["y"]])
    half = scenario.antenna_separation / 2
    return [body + rotation @ np.array([scenario.antenna_forward, side]) for side in (half, -half)]


def test_the_fast_exponential_is_exact_to_a_few_units_of_the_last_place():
    for z in np.linspace(0.0, 16.0, 2001):
        assert gaussian(z) == pytest.approx(math.exp(-z / 2), rel=1e-13)


def test_readings_equal_the_plain_sum_over_filaments_at_every_step():
    scenario = Scenario(sensor_noise=0.0, start_distance_min=0.6, start_distance_max=8.0)
    world = World(16, scenario)
    world.seed(range(16))
    world.begin()
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(150):
        world.step(rng.integers(0, 6, 16))
        for i, lane in enumerate(world.lanes):
            left, right = plain_antennae(lane, scenario)
            for point, reading in ((left, lane["left"]), (right, lane["right"])):
                expected = min(plain_concentration(point, alive(world, i), lane["step"], scenario), 1.0)
                assert reading == pytest.approx(expected, rel=1e-12, abs=1e-15)
                seen += 0.0 < expected < 1.0
    assert seen > 1000


def test_a_filament_contributes_within_the_cutoff_and_nothing_beyond():
    world = world_of(sensor_noise=0.0, emission_rate=0.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0,
                     speed=0.0, antenna_separation=0.0, antenna_forward=0.0)  # fmt: skip
    lane = world.lanes[0]
    variance = 0.01**2 + 2 * 0.05 * 0.1  # one step old at the reading
    for factor, inside in ((2.999999, True), (3.000001, False)):
        world.begin()
        lane["last"] = 1
        world.filaments[0, :, 0] = lane["x"] + factor * math.sqrt(variance), lane["y"], 0
        walk(world, 1)
        expected = 0.1 / (2 * math.pi * variance) * math.exp(-(factor**2) / 2) if inside else 0.0
        assert lane["left"] == pytest.approx(min(1.0, expected), rel=1e-12)
        assert bool(lane["left"] > 0) is inside


def test_radius_grows_with_the_square_root_of_age():
    world = world_of(sensor_noise=0.0, emission_rate=0.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0,
                     speed=0.0, antenna_separation=0.0, antenna_forward=0.0, success_radius=1e-6,
                     filament_mass=0.01)  # fmt: skip
    lane = world.lanes[0]
    lane["last"] = 1
    world.filaments[0, :, 0] = lane["x"], lane["y"], 0
    for step in range(1, 300):
        walk(world, 1)
        radius = math.sqrt(0.01**2 + 2 * 0.05 * step * 0.1)
        assert lane["left"] == pytest.approx(min(1.0, 0.01 / (2 * math.pi * radius**2)), rel=1e-12)
    walk(world, 1)
    assert lane["left"] > 0  # 30 s old: still there
    walk(world, 1)
    assert lane["left"] == 0  # older than 30 s: gone


def test_filaments_drift_with_the_wind_and_end_outside_the_domain():
    """A list of filaments kept here, moved by the wind that the lane reports, holds the same as the lane's."""
    scenario = Scenario(width=8.0, height=5.0, wind_direction_sigma=40.0, filament_lifetime=6.0)
    world = World(1, scenario)
    world.seed([5])
    world.begin()
    lane = world.lanes[0]
    ours = np.empty((3, 0))
    left_domain = grown_old = 0
    for step in range(1, 600):
        lane["running"] = 1  # whatever the agent finds, the plume goes on
        walk(world, 1)
        shift = (
            lane["wind_speed"] * 0.1 * np.array([math.cos(lane["wind_direction"]), math.sin(lane["wind_direction"])])
        )
        ours[:2] += shift[:, None]
        theirs = alive(world)
        new = theirs[:, theirs[BORN] == step - 1]
        source = np.array([lane["source_x"], lane["source_y"]])
        assert np.all(np.abs(new[:2] - shift[:, None] - source[:, None]) < 0.07)  # jitter of 1 cm
        inside = (ours[X] >= 0) & (ours[X] <= 8) & (ours[Y] >= 0) & (ours[Y] <= 5)
        young = step - ours[BORN] <= 60
        left_domain += np.count_nonzero(~inside)
        grown_old += np.count_nonzero(inside & ~young)
        ours = np.concatenate([ours[:, inside & young], new], axis=1)
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-12)
    assert left_domain > 50
    assert grown_old > 3


def test_filaments_never_run_out_of_room_and_none_is_lost():
    """Calm and a long life: as many filaments as there can be, through many compactions."""
    world = world_of(emission_rate=20.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0, max_steps=10**6,
                     speed=0.0, filament_lifetime=10.0)  # fmt: skip
    emitted = []
    for step in range(1, 3000):
        before = world.lanes[0]["last"] - world.lanes[0]["first"]
        walk(world, 1)
        columns = alive(world)
        emitted.append(np.count_nonzero(columns[BORN] == step - 1))
        assert columns.shape[1] == sum(emitted[-100:])  # at most 10 s old
        assert before <= world.filaments.shape[2]
        assert np.all(np.diff(columns[BORN]) >= 0)


def test_where_there_is_no_room_the_oldest_filaments_go():
    """More than eight standard deviations above the mean: a lane that is full of filaments, set up by hand."""
    world = world_of(emission_rate=20.0, wind_speed=0.0, wind_speed_sigma=0.0, wind_speed_floor=0.0, speed=0.0,
                     success_radius=1e-9)  # fmt: skip
    lane, room = world.lanes[0], world.filaments.shape[2]
    born = 200.0 * np.arange(room) / room
    world.filaments[0, :2], world.filaments[0, BORN] = 10.0, born
    lane["step"], lane["tick"], lane["last"] = 200, 200, room
    for step in range(200, 220):
        walk(world, 1)
        there = alive(world)[BORN]
        new = np.count_nonzero(there == step)
        born = np.append(born, np.full(new, step))[-room:]
        np.testing.assert_array_equal(there, born)
    assert born[0] > 0.0


def test_emission_is_poisson_with_the_given_rate():
    world = world_of(64, max_steps=10**6, success_radius=1e-9, speed=0.0)
    counts = []
    for step in range(1, 500):
        walk(world, 1)
        counts += [np.count_nonzero(alive(world, i)[BORN] == step - 1) for i in range(64)]
    counts = np.array(counts)
    assert counts.mean() == pytest.approx(0.5, abs=4 * math.sqrt(0.5 / len(counts)))
    observed = np.bincount(np.minimum(counts, 4), minlength=5)
    expected = len(counts) * np.append(stats.poisson.pmf(range(4), 0.5), stats.poisson.sf(3, 0.5))
    assert stats.chisquare(observed, expected).pvalue > 1e-3


def plain_ou(mean, sigma, alpha, steps, count, rng):
    """Ornstein-Uhlenbeck, step by step, from its mean: shape (steps, count)."""
    x = np.full(count, mean)
    out = np.empty((steps, count))
    for step in range(steps):
        x = x - alpha * (x - mean) + sigma * math.sqrt(2 * alpha) * rng.standard_normal(count)
        out[step] = x
    return out


@pytest.mark.parametrize(("name", "mean", "sigma"), [("wind_speed", 1.0, 0.2), ("wind_direction", 0.3, 0.2617993878)])
def test_wind_is_an_ornstein_uhlenbeck_process(name, mean, sigma):
    world = world_of(400, max_steps=10**6, success_radius=1e-9, emission_rate=0.0, wind_direction=math.degrees(0.3))
    series = np.empty((1500, 400))
    for step in range(1500):
        walk(world, 1)
        series[step] = world.lanes[name]
    plain = plain_ou(mean, sigma, 0.05, 1500, 400, np.random.default_rng(1))
    for lag in (1, 20, 40):  # 20 steps are one correlation time
        ours, oracle = (((x[300:-lag] - mean) * (x[300 + lag :] - mean)).mean() / sigma**2 for x in (series, plain))
        assert ours == pytest.approx(0.95**lag * 2 / 1.95, abs=0.03)
        assert ours == pytest.approx(oracle, abs=0.04)
    tail, plain_tail = series[300:], plain[300:]
    assert tail.mean() == pytest.approx(mean, abs=0.01 * sigma * 4)
    assert tail.var() == pytest.approx(sigma**2 * 2 / 1.95, rel=0.02)
    assert stats.ks_2samp(series[-1], plain[-1]).pvalue > 1e-3
    assert tail.std() == pytest.approx(plain_tail.std(), rel=0.02)
    decay = ((tail[:-20] - mean) * (tail[20:] - mean)).mean() / tail.var()
    assert -2.0 / math.log(decay) == pytest.approx(-0.1 / math.log(0.95), rel=0.05)  # correlation time, s


def test_the_wind_turns_from_the_first_step_on():
    """With a memory of one step and no noise the wind is where its mean is: 0.3 degrees further at every step."""
    world = world_of(wind_direction_sigma=0.0, wind_turn=3.0, wind_correlation_time=0.1, wind_direction=20.0)
    for step in range(1, 20):
        walk(world, 1)
        assert math.degrees(world.lanes[0]["wind_direction"]) == pytest.approx(20.0 + 0.3 * step, rel=1e-12)


def test_speed_and_direction_of_the_wind_are_independent():
    world = world_of(400, max_steps=10**6, success_radius=1e-9, emission_rate=0.0)
    pairs = []
    for _ in range(50):
        walk(world, 20)
        pairs.append((world.lanes["wind_speed"].copy(), world.lanes["wind_direction"].copy()))
    speed, direction = np.concatenate(pairs, axis=1)
    assert abs(np.corrcoef(speed, direction)[0, 1]) < 0.03


def test_wind_speed_never_falls_below_its_floor():
    world = world_of(50, wind_speed=0.2, wind_speed_sigma=0.5, max_steps=10**6, success_radius=1e-9)
    lowest = math.inf
    for _ in range(300):
        walk(world, 1)
        lowest = min(lowest, world.lanes["wind_speed"].min())
    assert lowest == 0.1


def test_mass_inside_the_domain_is_that_of_the_filaments():
    """The field, integrated, is the filaments' mass, less what the cutoff leaves out: exp(-9/2) of it."""
    scenario = Scenario(success_radius=1e-9, wind_speed=0.6)
    world = World(1, scenario)
    world.seed([3])
    world.begin()
    walk(world, 80)
    filaments = alive(world)
    margin = 3 * np.sqrt(0.01**2 + 0.1 * 0.1 * (80 - filaments[BORN]))
    assert ((filaments[X] > margin) & (filaments[X] < 20 - margin)).all()  # none is cut by a wall
    field = concentration_field(world, 0, 1600, 1600)
    mass = field.sum() * (20 / 1600) ** 2
    assert mass == pytest.approx(0.1 * filaments.shape[1] * (1 - math.exp(-4.5)), rel=2e-3)
    rng = np.random.default_rng(0)
    for r, c in rng.integers(0, 1600, (200, 2)):
        point = ((c + 0.5) * 20 / 1600, 20 - (r + 0.5) * 20 / 1600)
        assert field[r, c] == pytest.approx(plain_concentration(point, filaments, 80, scenario), rel=1e-10, abs=1e-14)


def test_noise_is_added_before_clipping():
    world = world_of(2000, emission_rate=0.0)
    readings = []
    for _ in range(20):
        walk(world, 1)
        readings += [world.lanes["left"].copy(), world.lanes["right"].copy()]
    readings = np.concatenate(readings)
    assert np.mean(readings == 0.0) == pytest.approx(0.5, abs=0.01)
    assert stats.kstest(readings[readings > 0], stats.halfnorm(scale=1e-3).cdf).pvalue > 1e-3


def test_readings_saturate():
    world = world_of(200, filament_mass=100.0, start_distance_min=0.6, start_distance_max=1.0)
    walk(world, 30)
    assert world.lanes["left"].max() == 1.0


def test_source_and_start_are_placed_as_the_paper_says():
    world = world_of(20_000)
    lanes = world.lanes
    assert lanes["source_x"].min() >= 2.0 - 1e-9  # 5 m, less 15 % of 20 m
    assert lanes["source_x"].max() <= 8.0 + 1e-9
    assert stats.kstest(lanes["source_x"], stats.uniform(2, 6).cdf).pvalue > 1e-3
    assert stats.kstest(lanes["source_y"], stats.uniform(7, 6).cdf).pvalue > 1e-3
    distance = np.hypot(lanes["x"] - lanes["source_x"], lanes["y"] - lanes["source_y"])
    np.testing.assert_allclose(lanes["distance"], distance)
    assert stats.kstest(distance, stats.uniform(3, 7).cdf).pvalue > 1e-3
    bearing = np.degrees(np.arctan2(lanes["y"] - lanes["source_y"], lanes["x"] - lanes["source_x"]))
    assert stats.kstest(bearing, stats.uniform(-45, 90).cdf).pvalue > 1e-3
    off = (np.degrees(lanes["heading"]) % 360) - 180
    assert stats.kstest(off, stats.norm(0, 30).cdf).pvalue > 1e-3


def test_the_source_stays_clear_of_the_walls():
    world = world_of(2000, source_upwind=0.5, wind_direction=90.0)
    assert world.lanes["source_y"].min() == pytest.approx(1.0)  # 5 % of 20 m
    world = world_of(2000, source_upwind=0.5, wind_direction=-90.0)
    assert world.lanes["source_y"].max() == pytest.approx(19.0)


@pytest.mark.parametrize(("distance", "found"), [(0.5, False), (math.nextafter(0.5, 0.0), True)])
def test_the_source_is_found_below_its_radius(distance, found):
    world = world_of(speed=0.0)
    world.lanes["source_x"] = world.lanes["source_y"] = world.lanes["y"] = 0.0
    world.lanes["x"] = distance
    walk(world, 1)
    assert world.successes.tolist() == [found]


@pytest.mark.parametrize(("action", "turn"), list(enumerate((0, 15, -15, 180, 30, -30))))
def test_actions_turn_and_then_move_five_centimetres(action, turn):
    world = world_of()
    lane = world.lanes[0]
    x, y, heading = lane["x"], lane["y"], lane["heading"]
    walk(world, 1, action)
    new = heading + math.radians(turn)
    assert math.remainder(lane["heading"] - new, 2 * math.pi) == pytest.approx(0.0, abs=1e-12)
    assert -math.pi <= lane["heading"] < math.pi
    assert lane["x"] == pytest.approx(x + 0.05 * math.cos(new))
    assert lane["y"] == pytest.approx(y + 0.05 * math.sin(new))


def test_walls_stop_the_agent():
    world = world_of(100, success_radius=1e-9)
    walk(world, 1000)
    for name in ("x", "y"):
        assert world.lanes[name].min() >= 0.0
        assert world.lanes[name].max() <= 20.0
    assert (world.lanes["x"] == 0.0).any()
