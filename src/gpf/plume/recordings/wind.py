"""The wind of a recording: given, from the paths of filaments, or estimated from the motion of a movie."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown

_PAIRS = 48
"""Pairs of frames that are compared."""
_LONGEST = 256
"""Pixels of the longer side to which frames are reduced before they are compared."""
_FAR_ENOUGH = 8.0
"""Displacement in pixels from which on its error, a fraction of a pixel, no longer matters."""
_FEWEST = 5
"""Steps of filaments in a cell from which a mean velocity is taken."""
_LEAST_MATCH = 0.3
"""Correlation below which two frames do not show the same."""

Field = NDArray[np.float64]


def given_wind(wind: Any) -> NDArray[np.float32]:
    """A wind as a user writes it, as (times, rows, columns, 2): (u, v), one a time, a field, or a field a time, m/s."""
    try:
        values = np.asarray(wind, dtype=np.float32)
    except (TypeError, ValueError):
        values = np.empty(0, np.float32)
    if not 1 <= values.ndim <= 4 or values.size == 0 or values.shape[-1] != 2:
        raise ValueError(
            "wind must be (u, v) in m/s or an array of shape (times, 2), (rows, columns, 2) or"
            f" (times, rows, columns, 2), got {shown(wind)}"
        )
    axes = {1: (0, 1, 2), 2: (1, 2), 3: (0,), 4: ()}[values.ndim]
    return np.expand_dims(values, axes)


def wind_of_filaments(
    ids: Sequence[NDArray[np.int64]],
    positions: Sequence[Field],
    interval: float,
    low: Field,
    high: Field,
    shape: tuple[int, int],
    times: int = 1,
) -> NDArray[np.float32]:
    """The mean velocity of the filaments in each cell, shape (times, rows, columns, 2), m/s.

    Args:
        ids: Of each frame, the filaments' numbers, shape (n,). A number belongs to the same filament in all frames.
        positions: Of each frame, where they are, shape (n, 2), m.
        interval: Time between two frames, s.
        low: Lower left corner (x, y) of the extent, m.
        high: Upper right corner, m.
        shape: Into how many cells (rows, columns) the extent is divided. Cells that hardly any filament has crossed get
            the mean of their neighbours.
        times: Into how many times the recording is divided; 1 for the average over all of it.
    """
    sums = np.zeros((times, *shape, 3))  # u, v, 1
    for frame in range(len(ids) - 1):
        _, here, there = np.intersect1d(ids[frame], ids[frame + 1], return_indices=True)
        start, end = positions[frame][here], positions[frame + 1][there]
        relative = (0.5 * (start + end) - low) / (high - low)
        column, row = (np.clip((relative * shape[::-1]).astype(np.int64), 0, np.array(shape[::-1]) - 1)).T
        time = min(round((frame + 0.5) * times / len(ids)), times - 1)  # time k is in the middle of what it averages
        for part, values in enumerate([*((end - start) / interval).T, np.ones(len(row))]):
            np.add.at(sums[time, :, :, part], (row, column), values)
    if not sums[..., 2].any():
        raise ValueError("wind cannot be derived from filaments, as none is in two frames; give wind=(u, v)")
    mean = _filled(_means(sums.sum(axis=0)))
    known = [sums[time, :, :, 2].any() for time in range(times)]
    fields = [_filled(_means(sums[time])) if known[time] else mean for time in range(times)]
    return np.stack(fields).astype(np.float32)


def _means(sums: Field) -> Field:
    """Mean velocities (rows, columns, 2) of sums of u, v and 1; NaN in cells with too few steps of filaments."""
    counts = sums[:, :, 2:]
    enough = counts >= min(_FEWEST, counts.max())
    return np.where(enough, sums[:, :, :2] / np.maximum(counts, 1.0), math.nan)


def estimate_wind(
    frames: NDArray[Any], interval: float, pixel: float, shape: tuple[int, int] = (1, 1)
) -> NDArray[np.float32]:
    """The wind that moves a movie, steady, in `shape` cells (rows, columns); shape (1, rows, columns, 2), m/s.

    What changes from one frame to another is compared with what changes later, so a standing plume does not
    count. The displacement is that of the highest correlation, summed over many pairs of frames, to a fraction
    of a pixel. Cells in which nothing can be followed get the mean of their neighbours.

    Args:
        frames: Concentration, shape (times, rows, columns), row 0 at the bottom.
        interval: Time between two frames, s.
        pixel: Side of a pixel, m.
        shape: Into how many cells the extent is divided; (1, 1) for one wind everywhere.
    """
    factor = math.ceil(max(frames.shape[1:]) / _LONGEST)
    movie = _reduced(np.asarray(frames), factor)
    velocities = np.full((*shape, 2), math.nan)
    for row, band in enumerate(np.array_split(movie, shape[0], axis=1)):
        for column, block in enumerate(np.array_split(band, shape[1], axis=2)):
            velocities[row, column] = _velocity(block)
    if not np.isfinite(velocities).any():
        raise ValueError("wind cannot be estimated from this movie, as nothing in it can be followed; give wind=(u, v)")
    return (_filled(velocities) * (factor * pixel / interval)).astype(np.float32)[None]


def _reduced(frames: NDArray[Any], factor: int) -> NDArray[np.float32]:
    """Frames in which every pixel is the mean of `factor` x `factor`; the rest at the edges is dropped."""
    times, rows, columns = (frames.shape[0], frames.shape[1] // factor, frames.shape[2] // factor)
    whole = frames[:, : rows * factor, : columns * factor]
    return whole.reshape(times, rows, factor, columns, factor).mean(axis=(2, 4), dtype=np.float32)


def _velocity(block: NDArray[np.float32]) -> Field:
    """The velocity (x, y) of a block of a movie, pixels a frame; NaN where nothing can be followed.

    Frames further and further apart are compared until the displacement is some pixels long, as it is measured to a
    fraction of a pixel only.
    """
    velocity, longest = np.full(2, math.nan), -1.0
    enough = min(_FAR_ENOUGH, min(block.shape[1:]) / 4.0)
    lag = 1
    while 2 * lag < block.shape[0] and longest < enough:
        displacement, match = _displacement(block, lag)
        length = float(np.abs(displacement).max())
        if match >= _LEAST_MATCH and length > longest:
            velocity, longest = displacement / lag, length
        lag *= 2
    return velocity


def _displacement(block: NDArray[np.float32], lag: int) -> tuple[Field, float]:
    """By how many pixels (x, y) a movie moves in `lag` frames, and how well it matches itself then, at most about 1."""
    from scipy.fft import next_fast_len

    extent = block.shape[1:]
    size = [next_fast_len(2 * length, real=True) for length in extent]  # twice: what leaves does not come back in
    rows, columns = (np.fft.fftfreq(n, 1.0 / n) for n in size)  # displacements, as whole numbers
    allowed = np.outer(np.abs(rows) <= extent[0] / 2, np.abs(columns) <= extent[1] / 2)
    overlap = np.outer(1.0 - np.abs(rows) / extent[0], 1.0 - np.abs(columns) / extent[1])
    match = np.where(allowed, _correlation(block, lag, size) / np.where(allowed, overlap, 1.0), -math.inf)
    row, column = np.unravel_index(int(np.argmax(match)), match.shape)
    best = float(match[row, column])
    across = columns[column] + _vertex(match[row, column - 1], best, match[row, (column + 1) % size[1]])
    up = rows[row] + _vertex(match[row - 1, column], best, match[(row + 1) % size[0], column])
    return np.array([across, up]), best


def _correlation(block: NDArray[np.float32], lag: int, size: list[int]) -> Field:
    """The correlation of changes with those `lag` frames later, by displacement; shape `size`, 1 for the same.

    Pairs of frames count by the square root of their strength: neither empty frames nor a single strong one decide.
    """
    from scipy.fft import irfft2, rfft2

    total, weight = np.zeros(size), 0.0
    for start in np.unique(np.linspace(0, len(block) - 1 - 2 * lag, _PAIRS).astype(np.int64)):
        one, two, three = block[start].astype(np.float64), block[start + lag], block[start + 2 * lag]
        first, second = two - one, three - two
        first, second = first - first.mean(), second - second.mean()
        strength = math.sqrt(math.sqrt(float((first**2).sum() * (second**2).sum())))
        if strength > 0.0:
            total += irfft2(np.conj(rfft2(first, size)) * rfft2(second, size), size) / strength
            weight += strength
    return total / weight if weight > 0.0 else total


def _vertex(before: float, top: float, after: float) -> float:
    """Where a parabola through three values at -1, 0 and 1 is highest."""
    curvature = before - 2.0 * top + after
    return 0.5 * (before - after) / curvature if -math.inf < curvature < 0.0 else 0.0


def _filled(field: Field) -> Field:
    """A field (rows, columns, 2) in which each cell that is NaN has got the mean of its neighbours, nearest first."""
    field = field.copy()
    while np.isnan(field).any():
        padded = np.pad(field, ((1, 1), (1, 1), (0, 0)), constant_values=math.nan)
        shifted = [
            padded[1 + dy : 1 + dy + field.shape[0], 1 + dx : 1 + dx + field.shape[1]]
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
        ]
        known = np.isfinite(shifted).sum(axis=0)
        empty = np.isnan(field) & (known > 0)
        field[empty] = (np.nansum(shifted, axis=0) / np.maximum(known, 1))[empty]
    return field
