"""Filament logs: directories of GSL-Bench and of GADEN, read into one form.

A log has one file a frame, `iteration_0`, `iteration_1` and so on, and no times:

- GSL-Bench: `iteration_N_fil.npy` and `iteration_N_head.npy`, in `gas_data/NAME/` of an environment, next to
  `occupancy/` and, if it was downloaded, `wind_data/`. The files are what GADEN 1 writes, as structured arrays.
- GADEN up to version 2.5: `iteration_N`, compressed with zlib, or the text that its tool `toASCII` makes of it, next to
  `wind/`. Version 1 has doubles in its header where version 2 has floats. Later versions number no filaments.

Positions are in m, radii (sigma) in cm.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILAMENT = np.dtype([("id", "<u4"), ("x", "<f8"), ("y", "<f8"), ("z", "<f8"), ("sigma", "<f8")])
"""A filament in a file: its number, where it is in m, and its radius in cm."""
_DOUBLES = [
    ("version", "<i4"), ("low", "<f8", 3), ("high", "<f8", 3), ("cells", "<i4", 3), ("cell", "<f8", 3),
    ("source", "<f8", 3), ("gas", "<i4"), ("moles", "<f8"), ("air", "<f8"), ("wind", "<i4"),
]  # fmt: skip
_FLOATS = [
    ("version", "<i4", 2), ("cells", "<i4", 3), ("low", "<f4", 3), ("high", "<f4", 3), ("cell", "<f4"),
    ("source", "<f4", 3), ("gas", "<i4"), ("moles", "<f8"), ("air", "<f8"), ("wind", "<i4"),
]  # fmt: skip
_HEADER_1, _HEADER_2 = np.dtype(_DOUBLES), np.dtype(_FLOATS)
_NUMBERED = re.compile(r"iteration_(\d+)(_fil\.npy|\.txt)?")
_WORDS = {
    "low": "env_min", "high": "env_max", "cells": "NumCells_XYZ", "source": "GasSourceLocation_XYZ",
    "moles": "Number of moles per filament", "air": "Moles of all gases in cm3", "wind": "Wind iteration",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Header:
    """Entries of a file besides its filaments."""

    low: NDArray[np.float64]
    """Lowest corner of the room (x, y, z), m."""
    high: NDArray[np.float64]
    """Highest corner, m."""
    cells: tuple[int, int, int]
    """Cells of the occupancy and wind grids along x, y and z."""
    source: NDArray[np.float64] | None
    """Where the source is (x, y, z), m."""
    mass: float
    """Gas in a filament, ppm m^3: its moles, divided by the moles of air in a cm^3."""
    wind: int
    """Number of the wind field."""


@dataclass(frozen=True, eq=False)
class FilamentLog:
    """A filament recording: the header of its first frame, and the filaments and the wind field of every frame."""

    folder: Path
    header: Header
    frames: list[NDArray[np.void]]
    """Arrays of `FILAMENT`."""
    winds: list[int]


def read_filaments(path: Path) -> FilamentLog:
    """The filaments in a directory: an environment of GSL-Bench, or one that has the iterations itself."""
    folder = _iterations_folder(path)
    files = _numbered(folder)
    headers, frames = [], []
    for number, file in files:
        with _reading(file):
            header, filaments = _read_arrays(file) if file.suffix == ".npy" else _read_log(file)
        _check_filaments(filaments, number)
        headers.append(header)
        frames.append(filaments)
    return FilamentLog(folder, headers[0], frames, [header.wind for header in headers])


def is_filaments(path: Path) -> bool:
    """Whether a directory looks like a filament log."""
    return (path / "gas_data").is_dir() or any(_NUMBERED.fullmatch(file.name) for file in path.iterdir())


def youngest(frames: list[NDArray[np.void]]) -> NDArray[np.float64] | None:
    """Where the source probably is (x, y, z), m: the mean position of the narrowest filaments of all frames."""
    narrowest = min((frame["sigma"].min() for frame in frames if len(frame)), default=None)
    if narrowest is None:
        return None
    young = np.concatenate([frame[frame["sigma"] <= 1.001 * narrowest] for frame in frames])
    return np.array([young[axis].mean() for axis in "xyz"])


def _iterations_folder(path: Path) -> Path:
    if not (path / "gas_data").is_dir():
        return path
    folders = sorted(folder for folder in (path / "gas_data").iterdir() if folder.is_dir())
    if len(folders) != 1:
        names = ", ".join(folder.name for folder in folders) or "none"
        raise ValueError(f"recording: {path / 'gas_data'} must hold one directory of filaments, but holds: {names}")
    return folders[0]


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The files of a log with their numbers, in order; a number that is left out is refused."""
    found = [(_NUMBERED.fullmatch(file.name), file) for file in folder.iterdir()]
    files = sorted((int(match[1]), file) for match, file in found if match)
    if not files:
        raise ValueError(f"recording: {folder} must hold files iteration_0, iteration_1 and so on, but holds none")
    for (number, _), (following, _) in pairwise(files):
        if following != number + 1:
            raise ValueError(f"recording: {folder} has a gap in time, between iteration {number} and {following}")
    return files


def _read_arrays(file: Path) -> tuple[Header, NDArray[np.void]]:
    """The two arrays of GSL-Bench. Their fields have names of their own, in the order of the file of GADEN 1."""
    head = file.with_name(file.name.replace("_fil.npy", "_head.npy"))
    header, filaments = (np.load(one, allow_pickle=False) for one in (head, file))
    if header.dtype.itemsize != _HEADER_1.itemsize or filaments.dtype.itemsize != FILAMENT.itemsize:
        raise ValueError("its fields are not those of GADEN")
    return _header(header.view(_HEADER_1)[0]), filaments.view(FILAMENT)


def _read_log(file: Path) -> tuple[Header, NDArray[np.void]]:
    """A file of GADEN, compressed or as text."""
    content = file.read_bytes()
    if content[:7] == b"VERSION":
        return _read_text(content.decode())
    content = zlib.decompress(content)
    major, minor = np.frombuffer(content, "<i4", 2)
    if not (major == 1 or (major == 2 and minor <= 5)):
        raise ValueError(f"it is of GADEN {major}.{minor}, and up to 2.5 can be read")
    kind = _HEADER_1 if major == 1 else _HEADER_2
    header = np.frombuffer(content, kind, 1)[0]
    return _header(header), np.frombuffer(content, FILAMENT, offset=kind.itemsize)


def _read_text(text: str) -> tuple[Header, NDArray[np.void]]:
    """The output of GADEN's tool `toASCII`: named lines, and a filament on each line after the second rule."""
    head, *_, body = re.split(r"^-+$", text, flags=re.MULTILINE)
    values: dict[str, Any] = {}
    for name, words in _WORDS.items():
        line = re.search(rf"^{words} (.*)$", head, re.MULTILINE)
        if line is None:
            raise ValueError(f"it has no line {words!r}")
        numbers = [float(word) for word in line[1].split()]
        values[name] = numbers if len(numbers) > 1 else numbers[0]
    rows = [tuple(float(word) for word in line.split()) for line in body.splitlines() if line.strip()]
    return _header(values), np.array(rows, FILAMENT)


def _header(values: Any) -> Header:
    low, high, source = (np.array(values[name], np.float64) for name in ("low", "high", "source"))
    x, y, z = (int(count) for count in values["cells"])
    moles, air = float(values["moles"]), float(values["air"])
    if not (np.isfinite([*low, *high]).all() and (high > low).all() and min(x, y, z) > 0):
        raise ValueError(f"its room is not one: from {low.tolist()} to {high.tolist()} m")
    if not (0.0 < moles < np.inf and 0.0 < air < np.inf):
        raise ValueError(f"its filaments hold {moles:g} mol, in air of {air:g} mol/cm^3")
    inside = bool(((source >= low) & (source <= high)).all())  # not so of NaN
    return Header(low, high, (x, y, z), source if inside else None, moles / air, int(values["wind"]))


def _check_filaments(filaments: NDArray[np.void], number: int) -> None:
    values = np.stack([filaments[name] for name in ("x", "y", "z", "sigma")], axis=-1).reshape(-1, 4)
    good = np.isfinite(values).all(axis=1) & (values[:, 3] > 0.0)
    if not good.all():
        bad = int(np.argmin(good))
        raise ValueError(
            f"filaments must have finite positions and a positive radius, got {values[bad].tolist()} (x, y, z in m,"
            f" radius in cm) in iteration {number}, filament {filaments['id'][bad]}"
        )


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Context in which any fault of a file becomes one sentence that names it."""
    try:
        yield
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"recording: {file} cannot be read ({reason[:200]})") from None
