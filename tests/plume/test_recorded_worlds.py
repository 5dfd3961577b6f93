"""Worlds of recorded plumes against SciPy's interpolation of the same movie."""

import json
import math

import numpy as np
import pytest
from plume_movies import moving_texture
from scipy import stats
from scipy.interpolate import RegularGridInterpolator

from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.recordings import Recording
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World

FRAMES, ROWS, COLUMNS, PIXEL, RATE = 12, 10, 16, 0.25, 5.0
WIDTH, HEIGHT = COLUMNS * PIXEL, ROWS * PIXEL  # 4 x 2.5 m
SOURCE, WIND = (0.5, 1.0), (0.6, 0.2)


@pytest.fixture(scope="module")
def movie():
    return np.random.default_rng(0).random((FRAMES, ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture(scope="module")
def fields(movie, tmp_path_factory):
    """A scenario that replays the movie, with sensors that read what is there."""
    path = tmp_path_factory.mktemp("recordings") / "movie.npy"
    np.save(path, movie)
    return {
        "recording": str(path), "recording_rate": RATE, "recording_pixel": PIXEL, "recording_wind": list(WIND),
        "source_at": list(SOURCE), "sensor_noise": 0.0, "sensor_saturation": 1e6, "success_radius": 0.05,
        "start_distance_min": 0.5, "start_distance_max": 3.0, "start_bearing": 60.0,
    }  # fmt: skip


def world_of(fields, count=1, seed=0, **changes):
    world = World(count, Scenario.of({**fields, **changes}), threads=1)
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def oracle(movie, pixel=PIXEL):
    """The concentration at (frame, x, y): linear in all three, periodic in time, 0 outside of the movie."""
    frames, rows, columns = movie.shape
    around = np.pad(np.concatenate([movie, movie[:1]]).astype(float), ((0, 0), (1, 1), (1, 1)), mode="edge")
    axes = np.arange(frames + 1.0), pixel * (np.arange(-1, rows + 1) + 0.5), pixel * (np.arange(-1, columns + 1) + 0.5)
    inside = RegularGridInterpolator(axes, around)

    def at(frame, x, y):
        within = 0.0 <= x <= columns * pixel and 0.0 <= y <= rows * pixel
        return float(inside([[frame % frames, y, x]])[0]) if within else 0.0

    return at


def antennae(lane, separation=0.1, forward=0.08):
    """Where the left and the right antenna are."""
    heading = np.exp(1j * lane["heading"])
    tips = [lane["x"] + 1j * lane["y"] + heading * (forward + 0.5j * side * separation) for side in (1.0, -1.0)]
    return [(tip.real, tip.imag) for tip in tips]


def check_readings(world, at, frames_a_second=RATE, scale=1.0, steps=60):
    """Every reading of a random walk is what the oracle says; mirrored lanes see the movie mirrored."""
    rng = np.random.default_rng(1)
    read = 0
    for _ in range(steps):
        for i, lane in enumerate(world.lanes):
            if not lane["running"]:
                continue
            frame = lane["frame"] + 0.1 * lane["step"] * frames_a_second
            height = world.rows["height"][i]
            for (x, y), reading in zip(antennae(lane), (lane["left"], lane["right"]), strict=True):
                expected = scale * at(frame, x, height - y if lane["mirrored"] else y)
                assert reading == pytest.approx(expected, rel=1e-6, abs=1e-7)
                read += expected > 0.0
        world.step(rng.choice([0, 0, 0, 1, 2, 4], world.count))
    assert read > steps * world.count


def test_readings_are_the_movie_interpolated_at_the_antennae(movie, fields):
    check_readings(world_of(fields, 8), oracle(movie))


def test_domain_source_and_wind_are_those_of_the_recording(fields):
    world = world_of(fields, 20)
    assert (world.rows["width"] == WIDTH).all()
    assert (world.rows["height"] == HEIGHT).all()
    assert (world.lanes["source_x"] == SOURCE[0]).all()
    assert (world.lanes["source_y"] == SOURCE[1]).all()
    for _ in range(5):
        np.testing.assert_allclose(world.raw[:, 2], math.hypot(*WIND), rtol=1e-6)
        np.testing.assert_allclose(world.raw[:, 3], math.atan2(WIND[1], WIND[0]), rtol=1e-6)
        world.step(np.zeros(20, np.int64))
    assert (world.lanes["x"] <= WIDTH).all()
    assert (world.lanes["x"] > SOURCE[0]).all()  # downwind


def test_without_a_given_wind_it_is_estimated_from_the_movie(fields, tmp_path):
    path = tmp_path / "moving.npy"
    np.save(path, moving_texture((2.0, -1.0)).astype(np.float32))  # pixels a frame
    world = world_of({**fields, "recording": str(path), "recording_wind": []})
    expected = np.hypot(2.0, 1.0) * PIXEL * RATE, math.atan2(-1.0, 2.0)
    assert (world.lanes["vane_speed"][0], world.lanes["vane_direction"][0]) == pytest.approx(expected, rel=0.03)


def test_the_source_may_lie_beyond_the_domain_of_simulated_plumes(movie, tmp_path):
    np.save(tmp_path / "wide.npy", movie)
    fields = {"recording": str(tmp_path / "wide.npy"), "recording_rate": 1.0, "recording_pixel": 3.0,
              "recording_wind": [1.0, 0.0]}  # fmt: skip
    world = world_of(fields, source_at=[30.0, 25.0])
    assert (world.lanes["source_x"][0], world.lanes["source_y"][0]) == (30.0, 25.0)
    with pytest.raises(ValueError, match=r"^source_at must be in the recording, x from 0 to 48 m and y from 0 to 30 m"):
        world_of(fields, source_at=[30.0, 35.0])


# Variations


def test_half_of_the_episodes_are_mirrored_and_mirror_source_wind_and_readings(movie, fields):
    world = world_of(fields, 200, recording_mirrored=True)
    mirrored = world.lanes["mirrored"] == 1
    assert 70 < mirrored.sum() < 130
    np.testing.assert_allclose(world.lanes["source_y"], np.where(mirrored, HEIGHT - SOURCE[1], SOURCE[1]), rtol=1e-12)
    direction = math.atan2(WIND[1], WIND[0])
    np.testing.assert_allclose(world.raw[:, 3], np.where(mirrored, -direction, direction), rtol=1e-6)
    check_readings(world_of(fields, 8, recording_mirrored=True), oracle(movie))


def test_an_agent_that_mirrors_its_walk_in_a_mirrored_episode_swaps_its_antennae(fields):
    world = world_of(fields, 40, recording_mirrored=True, recording_start_random=False)
    one, other = (int(np.flatnonzero(world.lanes["mirrored"] == side)[0]) for side in (0, 1))
    world.lanes[one]["x"] = world.lanes[other]["x"] = 2.0
    world.lanes[one]["y"], world.lanes[other]["y"] = 0.9, HEIGHT - 0.9
    world.lanes[one]["heading"], world.lanes[other]["heading"] = 2.5, -2.5
    actions = np.zeros(40, np.int64)
    for step in range(30):
        actions[one], actions[other] = [(0, 0), (1, 2), (4, 5)][step % 3]
        world.step(actions)
        a, b = world.lanes[one], world.lanes[other]
        assert (a["left"], a["right"]) == pytest.approx((b["right"], b["left"]), rel=1e-9)
        assert a["distance"] == pytest.approx(b["distance"], rel=1e-9)
        assert a["vane_direction"] == pytest.approx(-b["vane_direction"])


def test_episodes_start_anywhere_in_the_recording_or_at_its_beginning(fields):
    frames = world_of(fields, 1000).lanes["frame"]
    assert stats.kstest(frames, stats.uniform(0.0, FRAMES).cdf).pvalue > 1e-3
    assert (world_of(fields, 20, recording_start_random=False).lanes["frame"] == 0.0).all()


def test_concentrations_are_scaled(movie, fields):
    check_readings(world_of(fields, 4, recording_scale=7.5), oracle(movie), scale=7.5, steps=20)


def test_another_pixel_enlarges_the_plume(movie, fields):
    world = world_of(fields, 4, recording_pixel=0.5)
    assert (world.rows["width"] == 2.0 * WIDTH).all()
    check_readings(world, oracle(movie, 0.5), steps=20)


def test_a_range_of_pixels_enlarges_plume_and_domain_anew_for_each_episode(movie, fields):
    world = world_of(fields, 8, recording_pixel=[0.2, 0.5])
    pixels = world.rows["pixel"]
    assert pixels.std() > 0.03
    np.testing.assert_allclose(world.rows["width"], COLUMNS * pixels, rtol=1e-12)
    for i, lane in enumerate(world.lanes):
        at = oracle(movie, pixels[i])
        expected = [at(lane["frame"], x, y) for x, y in antennae(lane)]
        assert [lane["left"], lane["right"]] == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_the_beginning_can_be_skipped(movie, fields):
    world = world_of(fields, 4, recording_skip=1.0)  # five frames
    check_readings(world, oracle(movie[5:]), steps=30)
    assert world_of(fields, 200, recording_skip=1.0).lanes["frame"].max() < FRAMES - 5


def test_a_recording_repeats(movie, fields):
    world = world_of(fields, recording_start_random=False, speed=0.0)
    world.lanes["x"], world.lanes["y"] = 2.0, 1.5
    readings = []
    for _ in range(48):
        world.step(np.zeros(1, np.int64))
        readings.append(float(world.lanes[0]["left"]))
    assert readings[:24] == pytest.approx(readings[24:])  # 12 frames, 5 a second, 10 steps a second
    assert np.std(readings) > 0.05


# Obstacles


@pytest.fixture
def with_obstacles(movie, tmp_path, monkeypatch):
    """A recording that knows of obstacles: a block above the middle, on cells of 0.5 m."""
    occupied = np.zeros((5, 8), np.bool_)
    occupied[3:, 3:5] = True
    path = tmp_path / "room"
    path.touch()
    room = Recording(
        frames=movie, interval=1.0 / RATE, pixel=PIXEL, wind=np.array(WIND).reshape(1, 1, 1, 2), origin=(-1.0, -2.0),
        occupied=occupied, source=(SOURCE[0] - 1.0, SOURCE[1] - 2.0), name="room",
    )  # fmt: skip
    monkeypatch.setattr("gpf.plume.recorded.load_recording", lambda path, **options: room)
    return {"recording": str(path), "start_distance_min": 0.5, "start_distance_max": 3.0, "success_radius": 0.05}


def test_obstacles_of_a_recording_stop_the_agent_mirrored_where_it_is(with_obstacles):
    """x from 1.5 to 2.5 m, y from 1.5 m to the top; in mirrored episodes from the bottom to 1 m."""
    world = world_of(with_obstacles, 60, recording_mirrored=True)
    np.testing.assert_allclose(world.lanes["source_x"], SOURCE[0])
    mirrored = world.lanes["mirrored"] == 1
    rng = np.random.default_rng(0)
    stopped = np.zeros(60, bool)
    for _ in range(300):
        x, y = world.lanes["x"], np.where(mirrored, HEIGHT - world.lanes["y"], world.lanes["y"])
        assert not ((x > 1.5) & (x < 2.5) & (y > 1.5)).any()
        inside = (x > 0.1) & (x < WIDTH - 0.1) & (y > 0.1) & (y < HEIGHT - 0.1)
        stopped |= (world.lanes["bump"] == 1.0) & inside
        world.step(rng.choice([0, 0, 0, 0, 0, 1, 2, 3], 60))
    assert stopped[mirrored].any()
    assert stopped[~mirrored].any()


def test_starts_in_obstacles_of_a_recording_are_refused_mirrored_or_not(with_obstacles):
    env = PlumeEnv({**with_obstacles, "recording_mirrored": True})
    for y in (0.4, 2.0):  # in the block of a mirrored episode, and of one that is not
        with pytest.raises(ValueError, match="^position must not be in an obstacle"):
            env.reset(seed=0, options={"position": [2.0, y]})
    env.reset(seed=0, options={"position": [3.5, 2.0]})
    straight = PlumeEnv(with_obstacles)
    straight.reset(seed=0, options={"position": [2.0, 0.4]})


# What cannot be


def missing_source(fields, folder):
    return {**fields, "source_at": []}, "source_at must be given, for the source of the recording movie.npy is not"


def no_such_file(fields, folder):
    return {**fields, "recording": str(folder / "nothing.npy")}, ""


def not_a_movie(fields, folder):
    np.save(folder / "flat.npy", np.zeros((4, 5)))
    return {**fields, "recording": str(folder / "flat.npy")}, "frames must have three axes, time, y and x, got shape"


def not_an_array(fields, folder):
    (folder / "text.npy").write_text("not an array")
    return {**fields, "recording": str(folder / "text.npy")}, ""


def unknown_format(fields, folder):
    (folder / "movie.txt").write_text("1 2 3")
    return {**fields, "recording": str(folder / "movie.txt")}, ""


def negative_values(fields, folder):
    np.save(folder / "negative.npy", np.full((3, 4, 5), -1.0))
    return {**fields, "recording": str(folder / "negative.npy")}, "frames must be finite and not negative, got -1 in"


def no_rate(fields, folder):
    return {**fields, "recording_rate": 0.0}, "rate must be given"


def lost(fields, folder):
    return {**fields, "lost_distance": 2.0}, "lost_distance must be 0 with a recording, got 2"


def several_sources(fields, folder):
    return {**fields, "sources": 2}, "sources and decoys must be 1 and 0 with a recording, got 2 and 0"


def skipped_all(fields, folder):
    return {**fields, "recording_skip": 60.0}, "recording_skip must be below the duration of the recording, 2.4 s"


def source_outside(fields, folder):
    return {**fields, "source_at": [5.0, 1.0]}, "source_at must be in the recording, x from 0 to 4 m and y from 0 to"


def range_of_rates(fields, folder):
    return {**fields, "recording_rate": [2.0, 9.0]}, "recording_rate must be one number with a recording, got the range"


MISTAKES = (
    missing_source, no_such_file, not_a_movie, not_an_array, unknown_format, negative_values, no_rate, lost,
    several_sources, skipped_all, source_outside, range_of_rates,
)  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_refused_in_one_sentence_and_leave_a_world_as_it_was(mistake, fields, tmp_path):
    wrong, message = mistake(fields, tmp_path)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        World(2, Scenario.of(wrong))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    world, same = (world_of({"preset": "paper"}, 3) for _ in range(2))
    with pytest.raises((ValueError, FileNotFoundError)):
        world.set_scenario(Scenario.of(wrong))
    assert world.catalogue.recordings.table.size == 0
    for _ in range(20):
        world.step(np.zeros(3, np.int64))
        same.step(np.zeros(3, np.int64))
    for name, array in world.state().items():
        assert array.tobytes() == same.state()[name].tobytes()


def test_a_movie_that_was_written_anew_is_loaded_anew(movie, fields, tmp_path):
    path = tmp_path / "changing.npy"
    changing = {**fields, "recording": str(path), "speed": 0.0}
    np.save(path, movie)
    before = world_of(changing).lanes["left"][0]
    np.save(path, 2.0 * movie)
    assert world_of(changing).lanes["left"][0] == pytest.approx(2.0 * before, rel=1e-6)


# As an environment


def test_lanes_equal_single_environments(fields):
    varied = {**fields, "recording_mirrored": True, "max_steps": 25, "recording_scale": [0.5, 2.0]}
    vector = PlumeVectorEnv(4, varied, "raw", threads=1)
    observations, _ = vector.reset(seed=7)
    singles = [PlumeEnv(varied, "raw") for _ in range(4)]
    for i, env in enumerate(singles):
        np.testing.assert_array_equal(env.reset(seed=7 + i)[0], observations[i])
    over = np.zeros(4, bool)
    rng = np.random.default_rng(0)
    for _ in range(80):
        actions = rng.integers(0, 6, 4)
        observations, rewards, *ends, _ = vector.step(actions)
        for i, env in enumerate(singles):
            if over[i]:
                np.testing.assert_array_equal(env.reset()[0], observations[i])
                over[i] = False
                continue
            observation, reward, terminated, truncated, _ = env.step(actions[i])
            np.testing.assert_array_equal(observation, observations[i])
            assert (reward, terminated, truncated) == (rewards[i], ends[0][i], ends[1][i])
            over[i] = terminated or truncated


def test_a_scenario_of_a_recording_survives_json(fields):
    scenario = Scenario.of(fields)
    assert Scenario.from_json(scenario.to_json()) == scenario
    assert json.loads(scenario.to_json())["recording"] == fields["recording"]
