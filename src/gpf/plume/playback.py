"""Recorded plumes in the kernels: concentration and wind at a point of a recording.

The recordings of a world lie one after the other in two flat float32 arrays, frames and wind, which all lanes share and
only read. A `RECORDING_ROW` says where one of them begins and what shape it has.

Positions are in m from the lower left corner, times in frames. A lane that varies a recording does so with these
arguments alone: a larger pixel enlarges the plume, a later time starts it part-way, and `height - y`, with the sign of
v changed, mirrors it.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import device
from gpf.plume.recordings.recording import Recording

RECORDING_ROW = np.dtype(
    [(name, np.int64) for name in ("frames_offset", "frames", "rows", "columns")]
    + [(name, np.int64) for name in ("wind_offset", "wind_times", "wind_rows", "wind_columns")]
    + [(name, np.float64) for name in ("interval", "wind_interval", "pixel", "width", "height")]
    + [(name, np.float64) for name in ("source_x", "source_y")],
    align=True,
)
"""One recording as the kernels see it: offsets in elements, intervals in s, lengths in m.

The source is measured from the lower left corner, as everything in a lane; NaN if unknown.
"""


class PackedRecordings(NamedTuple):
    """Recordings one after the other in flat arrays, as kernels read them."""

    frames: NDArray[np.float32]
    wind: NDArray[np.float32]
    table: NDArray[np.void]
    """A `RECORDING_ROW` for each recording."""


def pack(recordings: Sequence[Recording]) -> PackedRecordings:
    """The frames and the wind of all recordings, flat, and a `RECORDING_ROW` for each of them.

    A recording that is given several times is stored once.
    """
    stored: dict[int, Any] = {}
    frames: list[NDArray[np.float32]] = []
    wind: list[NDArray[np.float32]] = []
    table = np.zeros(len(recordings), RECORDING_ROW)
    frames_offset = wind_offset = 0
    for row, recording in enumerate(recordings):
        if id(recording) not in stored:
            source = recording.source or (math.nan, math.nan)
            stored[id(recording)] = (
                frames_offset, *recording.frames.shape, wind_offset, *recording.wind.shape[:3],
                recording.interval, recording.wind_interval, recording.pixel, recording.width, recording.height,
                source[0] - recording.origin[0], source[1] - recording.origin[1],
            )  # fmt: skip
            frames.append(recording.frames.ravel())
            wind.append(recording.wind.ravel())
            frames_offset += recording.frames.size
            wind_offset += recording.wind.size
        table[row] = stored[id(recording)]
    nothing = np.empty(0, np.float32)
    return PackedRecordings(np.concatenate([nothing, *frames]), np.concatenate([nothing, *wind]), table)


@device
def sample_movie(
    flat_frames: NDArray[np.float32],
    offset: int,
    frames: int,
    rows: int,
    columns: int,
    pixel: float,
    time_in_frames: float,
    x: float,
    y: float,
) -> float:
    """The concentration at a point (x, y), m, at a time counted in frames.

    Between pixel centres and between frames it is interpolated linearly. In the outer half of an edge pixel the
    concentration is that of the pixel, and outside of the movie it is 0. After the last frame comes the first.
    """
    column, row = x / pixel, y / pixel
    if not (0.0 <= column <= columns and 0.0 <= row <= rows):  # NaN is outside, too
        return 0.0
    left, right, across = _between(column - 0.5, columns)
    below, above, up = _between(row - 0.5, rows)
    first, second, later = _moments(time_in_frames, frames)
    size = rows * columns
    lower, upper = below * columns, above * columns
    now = _bilinear(flat_frames, offset + first * size, lower, upper, left, right, across, up)
    then = _bilinear(flat_frames, offset + second * size, lower, upper, left, right, across, up)
    return now + later * (then - now)


@device
def sample_wind(
    flat_wind: NDArray[np.float32],
    offset: int,
    times: int,
    rows: int,
    columns: int,
    width: float,
    height: float,
    time: float,
    x: float,
    y: float,
) -> tuple[float, float]:
    """The wind (u, v), m/s, at a point (x, y), m, at a time counted in frames of the wind.

    `width` and `height` are those of the recording, m. Between the centres of cells and between times the wind is
    interpolated linearly; beyond the outermost centres, and outside of the recording, it is that of the nearest one.
    """
    left, right, across = _between(x / width * columns - 0.5, columns)
    below, above, up = _between(y / height * rows - 0.5, rows)
    first, second, later = _moments(time, times)
    size = 2 * rows * columns
    lower, upper = 2 * below * columns, 2 * above * columns
    now, then = offset + first * size, offset + second * size
    left, right = 2 * left, 2 * right
    u = _bilinear(flat_wind, now, lower, upper, left, right, across, up)
    v = _bilinear(flat_wind, now + 1, lower, upper, left, right, across, up)
    next_u = _bilinear(flat_wind, then, lower, upper, left, right, across, up)
    next_v = _bilinear(flat_wind, then + 1, lower, upper, left, right, across, up)
    return u + later * (next_u - u), v + later * (next_v - v)


@device
def _between(position: float, count: int) -> tuple[int, int, float]:
    """The two neighbours of a position among `count` nodes at 0, 1, 2, ..., and how far it is from the first."""
    position = min(max(position, 0.0), count - 1.0)
    first = int(position)
    return first, min(first + 1, count - 1), position - first


@device
def _moments(time: float, count: int) -> tuple[int, int, float]:
    """The two frames around a time, which repeats after `count` frames, and how far it is from the first."""
    whole = math.floor(time)
    first = int(whole - count * math.floor(whole / count))
    return first, first + 1 if first + 1 < count else 0, time - whole


@device
def _bilinear(
    values: NDArray[np.float32],
    frame: int,
    lower: int,
    upper: int,
    left: int,
    right: int,
    across: float,
    up: float,
) -> float:
    """Four values of a frame, weighted; `frame`, `lower` and `upper`, `left` and `right` are offsets that add up."""
    a, b = float(values[frame + lower + left]), float(values[frame + lower + right])
    c, d = float(values[frame + upper + left]), float(values[frame + upper + right])
    bottom = a + across * (b - a)
    return bottom + up * (c + across * (d - c) - bottom)
