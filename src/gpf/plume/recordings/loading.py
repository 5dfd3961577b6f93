"""Loads a file as a `Recording`: correctly oriented, in SI units, with its wind; or one sentence about the fault."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown
from gpf.plume.recordings.filaments import FilamentLog, is_filaments, read_filaments, youngest
from gpf.plume.recordings.movies import Movie, is_zarr, read_movie
from gpf.plume.recordings.recording import Recording, checked_frames, positive
from gpf.plume.recordings.rooms import level, occupied_cells, wind_fields
from gpf.plume.recordings.wind import estimate_wind, given_wind, wind_of_filaments

_FILAMENT_RATE = 2.0
"""Frames a second of GSL-Bench, which its files do not say."""
_FILAMENT_PIXEL = 0.1
_FILAMENT_CELL = 1.0
_UNEVEN = 0.1
"""By which share the time between two frames may differ from the usual one."""


def load_recording(
    path: str | Path,
    *,
    rate: float | None = None,
    pixel: float | None = None,
    scale: float = 1.0,
    wind: Any = None,
    wind_cell: float | None = None,
    source: tuple[float, float] | None = None,
    dataset: str | None = None,
    axes: str | None = None,
    size: tuple[int, int] | None = None,
    top_row_first: bool | None = None,
    height: float | None = None,
    wind_every: float | None = None,
) -> Recording:
    """A recorded plume, from a movie or a directory of filaments.

    Args:
        path: A movie (.h5, .hdf5, .mat, .npy, .npz, .zarr, .zip, .gif, .mp4, .avi) or a filament log: an environment of
            GSL-Bench, or a directory of GADEN.
        rate: Frames a second. Needed where neither the file nor its format says so: for NPY, NPZ, HDF5 and Zarr without
            an array `times` (Crimaldi's have 15), and for GADEN (GSL-Bench has 2).
        pixel: Side of a pixel, m. Needed for movies, but for Crimaldi's (0.74 mm); 0.1 by default for filaments.
        scale: Factor of concentrations. Movies of 8 or 16 bits have values from 0 to 1 before that,
            filaments give ppm.
        wind: (u, v) in m/s, or an array of shape (times, 2), (rows, columns, 2) or (times, rows, columns, 2) that
            covers extent and duration. None: from the files next to a filament log or else from its filaments' paths,
            and estimated from a movie's motion.
        wind_cell: Side of the cells of a wind that is derived or estimated, m; None for 1 m with filaments, and for
            one wind everywhere with movies.
        source: Where the source is (x, y), m. None: as the filament log says; unknown with movies.
        dataset: Movies: the name of the array, where the file holds several.
        axes: Movies: what the axes of the array are, such as `tyx` (frames, rows, columns), `txy` or `yxt`. None: `txy`
            for MATLAB 7.3, `tyx` for all others.
        size: Movies: rows and columns that a frame must have; says which way the axes are swapped if it has others.
        top_row_first: Movies: whether row 0 is at the top. None: so in GIF, MP4 and AVI, not so in arrays.
        height: Filaments: height of the slice, m. None: that of the source.
        wind_every: Filaments: time between two winds derived from the filaments' paths, s. None: one for all times.
    """
    path = Path(path)
    movie: dict[str, Any] = {"dataset": dataset, "axes": axes, "size": size, "top_row_first": top_row_first}
    filaments: dict[str, Any] = {"height": height, "wind_every": wind_every}
    scale = positive("scale", scale, "concentration")
    cell = None if wind_cell is None else positive("wind_cell", wind_cell, "m")
    if holds_filaments(path):
        _refuse(movie, "a movie", path)
        return _load_filaments(path, rate, pixel, scale, wind, cell, source, height, wind_every)
    _refuse(filaments, "filaments", path)
    return _load_movie(path, rate, pixel, scale, wind, cell, source, **movie)


def holds_filaments(path: Path) -> bool:
    """Whether a path is a folder of a filament log, and not a movie."""
    return path.is_dir() and not is_zarr(path) and is_filaments(path)


def _refuse(options: dict[str, Any], kind: str, path: Path) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} is for recordings of {kind}, which {path} is not, got {shown(value)}")


def _load_movie(
    path: Path,
    rate: float | None,
    pixel: float | None,
    scale: float,
    wind: Any,
    cell: float | None,
    source: tuple[float, float] | None,
    dataset: str | None,
    axes: str | None,
    size: tuple[int, int] | None,
    top_row_first: bool | None,
) -> Recording:
    movie = read_movie(path, dataset)
    frames = _oriented(movie, axes, size, top_row_first)
    interval = _interval(path, movie, rate, len(frames))
    pixel = _needed("pixel", "m", path, pixel, movie.pixel)
    frames = checked_frames(_scaled(frames, scale))
    if wind is None:
        shape = _cells((frames.shape[1] * pixel, frames.shape[2] * pixel), cell) if cell else (1, 1)
        field = estimate_wind(frames, interval, pixel, shape)
    else:
        field = given_wind(wind)
    return Recording(frames=frames, interval=interval, pixel=pixel, wind=field, source=source, name=path.name)


def _oriented(movie: Movie, axes: str | None, size: tuple[int, int] | None, top_row_first: bool | None) -> NDArray[Any]:
    """The numbers with axes time, y and x, and row 0 at the bottom."""
    values = movie.values
    if values.ndim != 3:
        raise ValueError(f"frames must have three axes, time, y and x, got shape {values.shape}")
    axes = movie.axes if axes is None else axes
    if not isinstance(axes, str) or sorted(axes) != ["t", "x", "y"]:
        raise ValueError(f"axes must be the letters t, y and x in the order of the file's axes, got {shown(axes)}")
    frames = values.transpose([axes.index(axis) for axis in "tyx"])
    if size is not None and frames.shape[1:] != tuple(size):
        raise ValueError(_wrong_size(values.shape, frames.shape, axes, tuple(size)))
    return frames[:, ::-1] if (movie.top_row_first if top_row_first is None else top_row_first) else frames


def _wrong_size(shape: tuple[int, ...], turned: tuple[int, ...], axes: str, size: tuple[int, ...]) -> str:
    """The error about a movie whose frames differ from the declared size."""
    problem = f"size must be that of a frame, got {size} (rows, columns) for frames of {turned[1:]}"
    for other in ("tyx", "txy", "yxt", "xyt", "ytx", "xty"):
        if other != axes and (shape[other.index("y")], shape[other.index("x")]) == size:
            return f"{problem}; the axes of the file seem to be {other!r}, not {axes!r}"
    return f"{problem}; the file has the shape {shape}"


def _scaled(frames: NDArray[Any], scale: float) -> NDArray[Any]:
    """Concentrations: integers as shares of the greatest one of their type, all times `scale`."""
    if frames.dtype.kind in "iub":
        if frames.dtype not in (np.uint8, np.uint16):
            raise ValueError(f"frames must be floats, or integers of type uint8 or uint16, got {frames.dtype}")
        return np.multiply(frames, scale / np.iinfo(frames.dtype).max, dtype=np.float32)
    return np.multiply(frames, frames.dtype.type(scale)) if scale != 1.0 and frames.dtype.kind == "f" else frames


def _interval(path: Path, movie: Movie, rate: float | None, count: int) -> float:
    """Time between two frames, s."""
    given = None if rate is None else positive("rate", rate, "1/s")
    if movie.times is None:
        return 1.0 / _needed("rate", "1/s", path, given, movie.rate)
    times = np.asarray(movie.times, np.float64).ravel()
    if len(times) != count:
        raise ValueError(f"times must be one for each of the {count} frames, got {len(times)}")
    if count == 1:
        return 1.0 / _needed("rate", "1/s", path, given, movie.rate)
    steps = np.diff(times)
    usual = float(np.median(steps))
    even = np.abs(steps - usual) <= _UNEVEN * usual  # not so of NaN, nor if the usual step is not positive
    if not even.all():
        gap = int(np.argmin(even))
        raise ValueError(
            f"times must be evenly spaced, got {steps[gap]:g} s between frames {gap} and {gap + 1} where the usual time"
            f" is {usual:g} s"
        )
    interval = float((times[-1] - times[0]) / (count - 1))
    if given is not None and abs(given * interval - 1.0) > 0.01:
        raise ValueError(f"rate must be that of the file's times, {1.0 / interval:g} 1/s, got {given:g}")
    return interval


def _needed(name: str, unit: str, path: Path, given: float | None, known: float | None) -> float:
    value = known if given is None else given
    if value is None:
        raise ValueError(f"{name} must be given, in {unit}, as {path} does not say it")
    return positive(name, value, unit)


def _load_filaments(
    path: Path,
    rate: float | None,
    pixel: float | None,
    scale: float,
    wind: Any,
    cell: float | None,
    source: tuple[float, float] | None,
    height: float | None,
    wind_every: float | None,
) -> Recording:
    from gpf.plume.recordings.rasterising import rasterise  # with numba

    log = read_filaments(path)
    interval = 1.0 / _needed(
        "rate", "1/s", path, rate, _FILAMENT_RATE if log.folder.parent.name == "gas_data" else None
    )
    place = log.header.source if log.header.source is not None else youngest(log.frames)
    if height is None:
        if place is None:
            raise ValueError(f"height must be given, in m, as {path} does not say where the source is")
        height = float(place[2])
    level(log.header, height)  # refuses a height outside of the room
    pixel = positive("pixel", _FILAMENT_PIXEL if pixel is None else pixel, "m")
    low = (float(log.header.low[0]), float(log.header.low[1]))
    frames = rasterise(log.frames, log.header.mass * scale, height, low, pixel, _shape(log, pixel))
    return Recording(
        frames=frames,
        interval=interval,
        pixel=pixel,
        wind=_wind_of_log(log, interval, height, wind, cell or _FILAMENT_CELL, wind_every),
        origin=low,
        occupied=occupied_cells(log, height),
        source=source if source is not None or place is None else (float(place[0]), float(place[1])),
        name=path.name,
    )


def _shape(log: FilamentLog, pixel: float) -> tuple[int, int]:
    """Rows and columns of a slice of the room."""
    width, depth = (log.header.high - log.header.low)[:2]
    columns, rows = round(width / pixel), round(depth / pixel)
    if min(rows, columns) < 1 or max(abs(columns * pixel - width), abs(rows * pixel - depth)) > 1e-4 * pixel * columns:
        raise ValueError(f"pixel must divide the room, {width:g} x {depth:g} m, got {pixel:g}")
    return rows, columns


def _cells(extent: Sequence[float], cell: float) -> tuple[int, int]:
    """Into how many cells of about that side an extent (y, x) is divided."""
    rows, columns = (max(1, round(length / cell)) for length in extent)
    return rows, columns


def _wind_of_log(
    log: FilamentLog, interval: float, height: float, wind: Any, cell: float, every: float | None
) -> NDArray[np.float32]:
    if wind is not None:
        return given_wind(wind)
    if every is None:
        fields = wind_fields(log, height)
        if fields is not None:
            return fields
    times = 1 if every is None else max(1, round(len(log.frames) * interval / positive("wind_every", every, "s")))
    low, high = log.header.low, log.header.high
    near = [frame[np.abs(frame["z"] - height) <= cell] for frame in log.frames]  # wind changes with height
    if sum(len(frame) for frame in near) == 0:
        near = log.frames
    return wind_of_filaments(
        [frame["id"].astype(np.int64) for frame in near],
        [np.stack([frame["x"], frame["y"]], axis=1) for frame in near],
        interval, low[:2], high[:2], _cells((high[1] - low[1], high[0] - low[0]), cell), times,
    )  # fmt: skip
