"""A recorded plume in memory: frames of concentration, wind, obstacles and source, all checked."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """A plume that was filmed or simulated elsewhere. It repeats: after the last frame comes the first.

    Positions are in the coordinates of the file, in which the lower left corner is at `origin`; y points up. Arrays are
    read-only, and nothing incomplete is ever made: every field is checked.
    """

    frames: NDArray[np.float32]
    """Concentration, shape (times, rows, columns), finite and not negative; row 0 is at the bottom."""
    interval: float
    """Time between two frames, s."""
    pixel: float
    """Side of a pixel, m; pixel (0, 0) has its centre at half of it, up and right of the corner."""
    wind: NDArray[np.float32]
    """Wind (u, v), shape (times, rows, columns, 2), m/s: cells that divide the extent, times that divide the duration.

    Uniform and steady wind has shape (1, 1, 1, 2).
    """
    origin: tuple[float, float] = (0.0, 0.0)
    """The lower left corner (x, y), m."""
    occupied: NDArray[np.bool_] | None = None
    """Where obstacles are, shape (rows, columns): cells that divide the extent; None if unknown."""
    source: tuple[float, float] | None = None
    """Where the source is (x, y), m; None if unknown."""
    name: str = ""
    """Its name in messages and figures."""

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "frames": checked_frames(self.frames),
            "interval": positive("interval", self.interval, "s"),
            "pixel": positive("pixel", self.pixel, "m"),
            "wind": _checked_wind(self.wind),
            "origin": point("origin", self.origin),
            "occupied": _checked_cells(self.occupied),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.source is not None:
            object.__setattr__(self, "source", self._checked_source(self.source))

    @property
    def width(self) -> float:
        """Extent along x, m."""
        return self.frames.shape[2] * self.pixel

    @property
    def height(self) -> float:
        """Extent along y, m."""
        return self.frames.shape[1] * self.pixel

    @property
    def duration(self) -> float:
        """Time after which the recording repeats, s: the last frame, too, lasts one interval."""
        return self.frames.shape[0] * self.interval

    @property
    def wind_interval(self) -> float:
        """Time between two winds, s."""
        return self.duration / self.wind.shape[0]

    def _checked_source(self, value: Any) -> tuple[float, float]:
        x, y = point("source", value)
        low_x, low_y = self.origin
        high_x, high_y = low_x + self.width, low_y + self.height
        slack = 1e-9 * max(self.width, self.height)
        if not (low_x - slack <= x <= high_x + slack and low_y - slack <= y <= high_y + slack):
            raise ValueError(
                f"source must be in the recording, x from {low_x:g} to {high_x:g} m and y from {low_y:g} to {high_y:g}"
                f" m, got ({x:g}, {y:g})"
            )
        return x, y


def positive(name: str, value: Any, unit: str) -> float:
    """The value as a positive, finite number."""
    number = value if isinstance(value, int | float | np.integer | np.floating) else math.nan
    if isinstance(value, bool) or not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be a positive number, in {unit}, got {shown(value)}")
    return float(number)


def point(name: str, value: Any) -> tuple[float, float]:
    """The value as two finite numbers, x and y."""
    try:
        x, y = (float(number) for number in value)
    except (TypeError, ValueError):
        x = y = math.nan
    if not (math.isfinite(x) and math.isfinite(y)):
        raise ValueError(f"{name} must be two numbers, x and y in m, got {shown(value)}")
    return x, y


def checked_frames(values: Any) -> NDArray[np.float32]:
    """Concentrations as float32, read-only; refused unless (times, rows, columns), finite and not negative."""
    frames = np.asarray(values)
    if frames.ndim != 3:
        raise ValueError(f"frames must have three axes, time, y and x, got shape {frames.shape}")
    if frames.size == 0:
        raise ValueError(f"frames must hold at least one frame of at least one pixel, got shape {frames.shape}")
    if frames.dtype.kind not in "iuf":
        raise ValueError(f"frames must be numbers, got the type {frames.dtype}")
    with np.errstate(over="ignore"):
        frames = _read_only(frames, np.float32)
    low, high = float(frames.min()), float(frames.max())  # both are NaN if any value is
    if not (low >= 0.0 and high < math.inf):
        frame, row, column = np.unravel_index(int(np.argmin((frames >= 0.0) & (frames < math.inf))), frames.shape)
        raise ValueError(
            f"frames must be finite and not negative, got {frames[frame, row, column]:g} in frame {frame},"
            f" row {row} from the bottom, column {column}"
        )
    return frames


def _checked_wind(values: Any) -> NDArray[np.float32]:
    wind = np.asarray(values)
    if wind.ndim != 4 or wind.shape[3] != 2 or wind.size == 0 or wind.dtype.kind not in "iuf":
        raise ValueError(f"wind must be numbers of shape (times, rows, columns, 2), got shape {wind.shape}")
    if not np.isfinite(wind).all():
        raise ValueError(f"wind must be finite, got {wind[~np.isfinite(wind)][0]:g}")
    return _read_only(wind, np.float32)


def _checked_cells(values: Any) -> NDArray[np.bool_] | None:
    if values is None:
        return None
    cells = np.asarray(values)
    if cells.ndim != 2 or cells.size == 0 or cells.dtype != np.bool_:
        raise ValueError(f"occupied must be true or false, of shape (rows, columns), got {cells.dtype} {cells.shape}")
    return _read_only(cells, np.bool_)


def _read_only(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """The values as a read-only array; copied, unless they are such an array already."""
    array = np.ascontiguousarray(values, dtype=kind)
    if array is values and values.flags.writeable:
        array = array.copy()
    array.flags.writeable = False
    return array
