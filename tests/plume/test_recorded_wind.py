"""The wind of recordings: as given, from filaments that move, and from movies that do."""

import numpy as np
import pytest
from plume_movies import INTERVAL, PIXEL, advected_plume, moving_texture

from gpf.plume.recordings import estimate_wind, load_recording
from gpf.plume.recordings.wind import given_wind, wind_of_filaments


@pytest.mark.parametrize(
    ("wind", "source"),
    [((0.9, 0.3), (0.4, 0.5)), ((-0.6, 0.2), (2.6, 0.6)), ((0.2, 0.5), (1.0, 0.2)), ((1.5, -0.5), (0.3, 1.5))],
)
def test_the_wind_of_a_solved_plume_is_found_within_a_tenth(wind, source):
    movie = advected_plume(wind, source, frames=80)
    (((found,),),) = estimate_wind(movie, INTERVAL, PIXEL)
    assert np.hypot(*(found - wind)) < 0.1 * np.hypot(*wind)


@pytest.mark.parametrize("velocity", [(0.2, 0.0), (0.7, -0.4), (3.3, 1.2), (-2.0, 5.0), (8.0, 0.0)])
def test_a_pattern_that_moves_is_followed_to_a_fraction_of_a_pixel(velocity):
    movie = moving_texture(velocity, frames=60, scale=3.0)
    (((found,),),) = estimate_wind(movie, 0.5, 2.0)  # 2 m a pixel, 0.5 s a frame
    assert found == pytest.approx(4.0 * np.array(velocity), abs=0.03 * 4.0 * np.hypot(*velocity))


def test_noise_of_a_camera_hardly_changes_the_estimate():
    movie = moving_texture((0.7, -0.4), frames=60, scale=3.0)
    noisy = movie + 0.2 * movie.std() * np.random.default_rng(0).normal(size=movie.shape)
    (((found,),),) = estimate_wind(noisy, 1.0, 1.0)
    assert found == pytest.approx([0.7, -0.4], abs=0.08)


def test_what_stands_still_in_a_movie_does_not_count():
    movie = moving_texture((1.5, 0.5), frames=60, scale=3.0)
    still = 20.0 * moving_texture((0.0, 0.0), frames=1, seed=5)
    (((found,),),) = estimate_wind(movie + still, 1.0, 1.0)
    assert found == pytest.approx([1.5, 0.5], abs=0.08)


def test_cells_have_winds_of_their_own():
    left = moving_texture((1.5, 0.0), frames=60, shape=(48, 48), scale=3.0)
    right = moving_texture((0.0, -2.5), frames=60, shape=(48, 48), scale=3.0, seed=1)
    ((found,),) = estimate_wind(np.concatenate([left, right], axis=2), 1.0, 1.0, (1, 2))
    assert found[0] == pytest.approx([1.5, 0.0], abs=0.15)
    assert found[1] == pytest.approx([0.0, -2.5], abs=0.25)


def test_cells_in_which_nothing_moves_take_after_their_neighbours():
    movie = np.zeros((60, 48, 144))
    movie[:, :, :48] = moving_texture((2.0, 1.0), frames=60, shape=(48, 48), scale=3.0)
    ((found,),) = estimate_wind(movie, 1.0, 1.0, (1, 3))
    assert (found == found[0]).all()
    assert found[0] == pytest.approx([2.0, 1.0], abs=0.2)


def test_large_frames_are_reduced_first_and_give_the_same_wind():
    movie = moving_texture((6.0, 2.0), frames=12, shape=(150, 300), scale=6.0).astype(np.float32)
    (((found,),),) = estimate_wind(movie, 1.0, 1.0)
    assert found == pytest.approx([6.0, 2.0], abs=0.3)


@pytest.mark.parametrize("frames", [1, 2, 30])
def test_a_movie_that_does_not_move_has_no_wind_to_estimate(frames):
    with pytest.raises(ValueError, match=r"^wind cannot be estimated from this movie, .*; give wind=\(u, v\)$"):
        estimate_wind(np.repeat(moving_texture((0.0, 0.0), frames=1), frames, axis=0), 1.0, 1.0)


@pytest.mark.parametrize(
    ("given", "shape"),
    [((2,), (1, 1, 1, 2)), ((7, 2), (7, 1, 1, 2)), ((3, 5, 2), (1, 3, 5, 2)), ((2, 3, 4, 2), (2, 3, 4, 2))],
)
def test_a_given_wind_may_be_one_for_all_or_one_for_each_time_and_cell(given, shape):
    values = np.arange(np.prod(given)).reshape(given)
    wind = given_wind(values.tolist())
    assert wind.shape == shape
    assert (wind.ravel() == values.ravel()).all()


def test_a_wind_for_each_frame_has_the_time_of_the_frames(tmp_path):
    np.save(tmp_path / "movie.npy", np.ones((10, 3, 4)))
    recording = load_recording(tmp_path / "movie.npy", rate=5.0, pixel=0.1, wind=np.ones((10, 2)))
    assert recording.wind_interval == pytest.approx(recording.interval)
    half = load_recording(tmp_path / "movie.npy", rate=5.0, pixel=0.1, wind=np.ones((5, 2)))
    assert half.wind_interval == pytest.approx(2.0 * recording.interval)


def rotating(times=40, count=400, spin=0.3, seed=0):
    """Filaments that turn about (5, 5): positions at each time, and their numbers, shuffled."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, count), 5.0 * np.sqrt(rng.random(count))
    ids, positions = [], []
    for time in range(times):
        order = rng.permutation(count)
        turned = angle[order] + spin * 0.1 * time
        ids.append(order)
        positions.append(5.0 + radius[order, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1))
    return ids, positions


def test_filaments_that_turn_show_a_wind_that_turns():
    ids, positions = rotating()
    (wind,) = wind_of_filaments(ids, positions, 0.1, np.zeros(2), np.full(2, 10.0), (10, 10))
    y, x = np.mgrid[:10, :10] + 0.5
    inside = np.hypot(x - 5.0, y - 5.0) < 4.5
    expected = 0.3 * np.stack([5.0 - y, x - 5.0], axis=-1)
    assert np.abs(wind - expected)[inside].max() < 0.1  # a cell's mean is taken where its filaments are
    assert np.abs(wind - expected)[inside].mean() < 0.03


def test_a_wind_that_changes_is_kept_for_each_block_of_time():
    speeds = np.where(np.arange(40) < 20, 1.0, -2.0)
    x = 5.0 + np.concatenate([[0.0], np.cumsum(0.1 * speeds[:-1])])
    ids = [np.arange(9)] * 40
    positions = [np.stack([np.full(9, place), np.linspace(1.0, 9.0, 9)], axis=1) for place in x]
    low, high = np.zeros(2), np.full(2, 10.0)
    wind = wind_of_filaments(ids, positions, 0.1, low, high, (1, 1), times=4)
    assert wind[:, 0, 0, 0] == pytest.approx([1.0, 1.0, -0.5, -2.0], abs=0.15)  # the third one is about the change
    (average,) = wind_of_filaments(ids, positions, 0.1, low, high, (1, 1))
    assert average[0, 0] == pytest.approx([(x[-1] - x[0]) / 3.9, 0.0], abs=1e-6)


def test_cells_without_filaments_take_the_wind_of_their_neighbours():
    ids = [np.arange(20)] * 5
    positions = [np.full((20, 2), 0.5) + time * np.array([0.02, 0.01]) for time in range(5)]
    (wind,) = wind_of_filaments(ids, positions, 0.1, np.zeros(2), np.array([6.0, 4.0]), (4, 6))
    assert wind == pytest.approx(np.broadcast_to([0.2, 0.1], (4, 6, 2)), abs=1e-6)


def test_filaments_that_are_seen_once_show_no_wind():
    with pytest.raises(ValueError, match=r"none is in two frames; give wind=\(u, v\)$"):
        wind_of_filaments([np.array([1]), np.array([2])], [np.ones((1, 2))] * 2, 0.1, np.zeros(2), np.ones(2), (1, 1))
