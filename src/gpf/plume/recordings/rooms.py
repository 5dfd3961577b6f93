"""Files next to a filament log: the room's occupancy grid, and wind fields on the same grid, cut at a height."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown
from gpf.plume.recordings.filaments import FilamentLog, Header

_OBSTACLE = 1
"""Value of an occupied cell; 0 is free, and through 2 gas leaves the room."""


def level(header: Header, height: float) -> int:
    """Which layer of the room's cells has a height, m."""
    low, high = header.low[2], header.high[2]
    if not isinstance(height, int | float | np.number) or not low <= height <= high:
        raise ValueError(f"height must be in the room, from {low:g} to {high:g} m, got {shown(height)}")
    cells = header.cells[2]
    return min(int((height - low) / (high - low) * cells), cells - 1)


def occupied_cells(log: FilamentLog, height: float) -> NDArray[np.bool_] | None:
    """Which cells (rows, columns) are occupied at a height; None if no occupancy grid lies next to the log.

    It is looked for in `occupancy/` of an environment of GSL-Bench, and as `OccupancyGrid3D.csv` next to the iterations
    or in the directory above.
    """
    environment = log.folder.parent.parent
    grids = sorted((environment / "occupancy").glob("*_grid.npy")) if log.folder.parent.name == "gas_data" else []
    tables = [file for folder in (log.folder, log.folder.parent) for file in folder.glob("OccupancyGrid3D.csv")]
    if not grids and not tables:
        return None
    file = (grids or tables)[0]
    try:
        grid = _read_grid(file) if grids else _read_table(file)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise ValueError(f"occupancy: {file} cannot be read ({error})") from None
    x, y, z = log.header.cells
    if grid.shape != (z, x, y):
        raise ValueError(f"occupancy: {file} must have the cells of the log, (z, x, y) = {(z, x, y)}, got {grid.shape}")
    return np.ascontiguousarray(grid[level(log.header, height)].T == _OBSTACLE)


def wind_fields(log: FilamentLog, height: float) -> NDArray[np.float32] | None:
    """The wind of each frame at a height, shape (times, rows, columns, 2), m/s; None if none lies next to the log.

    One time if all frames have the same wind. It is looked for in `wind_data/` of an environment of GSL-Bench (an array
    of times, cells, and u, v, w) and in `wind/wind_iteration_N` (doubles: all u, all v, all w).
    """
    arrays = sorted((log.folder.parent.parent / "wind_data").glob("*.npy"))
    numbers = sorted(set(log.winds))
    if log.folder.parent.name == "gas_data" and arrays:
        fields = _read_wind_array(arrays[0], numbers)
    elif (log.folder / "wind").is_dir():
        fields = {number: _read_wind(log.folder / "wind" / f"wind_iteration_{number}") for number in numbers}
    else:
        return None
    x, y, z = log.header.cells
    layer = level(log.header, height)
    slices: dict[int, Any] = {}
    for number, field in fields.items():
        if field.shape != (x * y * z, 3):
            raise ValueError(f"wind field {number} of {log.folder} must have {x * y * z} cells, got {len(field)}")
        slices[number] = field.reshape(z, y, x, 3)[layer, :, :, :2].astype(np.float32)  # x runs fastest
    used = log.winds if len(numbers) > 1 else numbers
    return np.stack([slices[number] for number in used])


def _read_grid(file: Path) -> NDArray[Any]:
    """The grid of GSL-Bench, axes z, x, y; its header must say the same."""
    grid = np.load(file, allow_pickle=False)
    head = json.loads(file.with_name(file.name.replace("_grid.npy", "_head.txt")).read_text())
    x, y, z = head["num_cells"]
    if grid.shape != (z, x, y):
        raise ValueError(f"its header says {(z, x, y)} cells (z, x, y), and it has {grid.shape}")
    return grid


def _read_table(file: Path) -> NDArray[Any]:
    """The table of GADEN: four lines of header, then for each z a line for each x with all y, and a semicolon."""
    lines = file.read_text().splitlines()
    layers = " \n".join(lines[4:]).split(";")
    rows = [[[int(cell) for cell in line.split()] for line in layer.splitlines() if line.strip()] for layer in layers]
    return np.array([layer for layer in rows if layer])


def _read_wind_array(file: Path, numbers: list[int]) -> dict[int, NDArray[np.float64]]:
    try:
        fields = np.load(file, mmap_mode="r", allow_pickle=False)
        return {number: np.array(fields[number]) for number in numbers}
    except (OSError, ValueError, EOFError, IndexError) as error:
        raise ValueError(f"wind: {file} cannot be read ({error})") from None


def _read_wind(file: Path) -> NDArray[np.float64]:
    try:
        return np.frombuffer(file.read_bytes(), "<f8").reshape(3, -1).T
    except (OSError, ValueError) as error:
        raise ValueError(f"wind: {file} cannot be read ({error})") from None
