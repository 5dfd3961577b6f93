"""Concentration and wind at a point of a recording, against SciPy's interpolation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from plume_movies import INTERVAL, PIXEL, advected_plume
from scipy.interpolate import RegularGridInterpolator
from scipy.ndimage import map_coordinates

from gpf.plume.playback import RECORDING_ROW, pack, sample_movie, sample_wind
from gpf.plume.recordings import Recording


def some_recording(seed=0, frames=5, shape=(6, 9), wind=(4, 3, 2), pixel=0.2, **fields):
    rng = np.random.default_rng(seed)
    return Recording(
        frames=rng.random((frames, *shape)),
        interval=0.5,
        pixel=pixel,
        wind=rng.normal(size=(*wind, 2)),
        **fields,
    )


def concentration(recording, time, x, y):
    frames, _, (row,) = pack([recording])
    return sample_movie(frames, 0, row["frames"], row["rows"], row["columns"], row["pixel"], time, x, y)


def wind_at(recording, time, x, y):
    _, wind, (row,) = pack([recording])
    shape = row["wind_times"], row["wind_rows"], row["wind_columns"]
    return sample_wind(wind, 0, *shape, row["width"], row["height"], time, x, y)


def test_pixel_centres_give_back_the_frames():
    frames = advected_plume(frames=4).astype(np.float32)
    recording = Recording(frames=frames, interval=INTERVAL, pixel=PIXEL, wind=np.ones((1, 1, 1, 2)))
    for frame, row, column in np.argwhere(frames[..., ::7] > 0.0)[::5]:
        x, y = (7 * column + 0.5) * PIXEL, (row + 0.5) * PIXEL
        assert concentration(recording, float(frame), x, y) == pytest.approx(frames[frame, row, 7 * column], rel=1e-6)


@settings(max_examples=300, deadline=None)
@given(st.floats(-20.0, 20.0), st.floats(0.0, 1.8), st.floats(0.0, 1.2))
def test_concentration_is_interpolated_in_space_and_time_and_repeats(time, x, y):
    recording = some_recording()
    looped = np.concatenate([recording.frames, recording.frames[:1]]).astype(np.float64)
    where = [[time % 5.0], [y / 0.2 - 0.5], [x / 0.2 - 0.5]]
    (expected,) = map_coordinates(looped, where, order=1, mode="nearest")
    assert concentration(recording, time, x, y) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("x", "y"), [(-1e-9, 0.5), (0.5, -1e-9), (1.8 + 1e-9, 0.5), (0.5, 1.2 + 1e-9), (np.nan, 0.5)])
def test_there_is_no_odour_outside_of_the_movie(x, y):
    assert concentration(some_recording(), 1.3, x, y) == 0.0


@settings(max_examples=300, deadline=None)
@given(st.floats(-9.0, 9.0), st.floats(-3.0, 5.0), st.floats(-3.0, 5.0))
def test_wind_is_interpolated_repeats_and_does_not_end_at_the_edge(time, x, y):
    recording = some_recording()  # 1.8 m x 1.2 m, 4 times, 3 x 2 cells
    looped = np.concatenate([recording.wind, recording.wind[:1]]).astype(np.float64)
    centres_y, centres_x = 0.2 + 0.4 * np.arange(3), 0.45 + 0.9 * np.arange(2)
    oracle = RegularGridInterpolator((np.arange(5), centres_y, centres_x), looped)
    inside = time % 4.0, np.clip(y, *centres_y[[0, -1]]), np.clip(x, *centres_x[[0, -1]])
    assert wind_at(recording, time, x, y) == pytest.approx(tuple(oracle(inside)), abs=1e-6)


def test_a_steady_uniform_wind_is_the_same_everywhere():
    recording = some_recording(wind=(1, 1, 1))
    for time, x, y in ((0.0, 0.0, 0.0), (7.7, 1.0, 0.3), (-3.2, 99.0, -99.0)):
        assert wind_at(recording, time, x, y) == pytest.approx(tuple(recording.wind.ravel()))


def test_a_larger_pixel_enlarges_the_plume():
    frames, _, (row,) = pack([some_recording()])
    shape = row["frames"], row["rows"], row["columns"]
    small = sample_movie(frames, 0, *shape, 0.2, 1.5, 0.7, 0.5)
    assert sample_movie(frames, 0, *shape, 0.6, 1.5, 2.1, 1.5) == pytest.approx(small)


def test_counting_y_from_the_top_mirrors_the_plume():
    recording = some_recording()
    mirrored = Recording(frames=recording.frames[:, ::-1], interval=0.5, pixel=0.2, wind=recording.wind)
    assert concentration(recording, 2.25, 0.7, 1.2 - 0.3) == pytest.approx(concentration(mirrored, 2.25, 0.7, 0.3))


def test_recordings_in_one_array_are_told_apart_by_their_rows():
    recordings = [
        some_recording(1, shape=(3, 4), wind=(1, 1, 1)),
        some_recording(2, frames=1, shape=(7, 2), pixel=0.5, source=(11.0, 21.5), origin=(10.0, 20.0)),
        some_recording(3, frames=2),
    ]
    frames, wind, table = pack([*recordings, recordings[0]])
    assert table.dtype == RECORDING_ROW
    assert frames.size == sum(recording.frames.size for recording in recordings)  # the repeated one is stored once
    assert table[0].tobytes() == table[3].tobytes()
    for row, recording in zip(table, recordings, strict=False):
        x, y, time = 0.3 * row["width"], 0.8 * row["height"], 3.4
        shape = row["frames"], row["rows"], row["columns"]
        sampled = sample_movie(frames, row["frames_offset"], *shape, row["pixel"], time, x, y)
        assert sampled == concentration(recording, time, x, y) > 0.0
        shape = row["wind_times"], row["wind_rows"], row["wind_columns"]
        blown = sample_wind(wind, row["wind_offset"], *shape, row["width"], row["height"], time, x, y)
        assert blown == wind_at(recording, time, x, y)
        assert (row["interval"], row["width"]) == (0.5, recording.width)
        assert row["wind_interval"] * row["wind_times"] == pytest.approx(recording.duration)
    assert np.isnan(table["source_x"][0])
    assert (table["source_x"][1], table["source_y"][1]) == (1.0, 1.5)  # from the corner


def test_nothing_packs_to_nothing():
    frames, wind, table = pack([])
    assert frames.shape == wind.shape == table.shape == (0,)
    assert frames.dtype == wind.dtype == np.float32


def test_kernels_sample_within_other_kernels():
    @njit
    def total(frames, table, wind):
        found = 0.0
        for row in table:
            u, v = sample_wind(
                wind,
                row.wind_offset,
                row.wind_times,
                row.wind_rows,
                row.wind_columns,
                row.width,
                row.height,
                0.0,
                0.1,
                0.1,
            )
            found += u + v
            found += sample_movie(
                frames, row.frames_offset, row.frames, row.rows, row.columns, row.pixel, 0.0, 0.1, 0.1
            )
        return found

    recording = some_recording()
    frames, wind, table = pack([recording, recording])
    expected = 2.0 * (recording.frames[0, 0, 0] + recording.wind[0, 0, 0].sum())
    assert total(frames, table, wind) == pytest.approx(expected, rel=1e-6)
