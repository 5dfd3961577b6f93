"""Concentration movies in files: HDF5, MATLAB 7.3, NPY, NPZ, Zarr, GIF, MP4 and AVI, read unchanged.

A reader's result is not yet rotated, scaled or checked; see `gpf.plume.recordings.loading`.
"""

import importlib
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CRIMALDI = "dataset2"
"""Name of the movie in the files of Crimaldi's laboratory."""
CRIMALDI_RATE, CRIMALDI_PIXEL = 15.0, 0.74e-3  # Hz and m; no such file says so itself
TIMES = "times"
"""Name of the array with the time of each frame, s, if it exists next to the movie."""


@dataclass(frozen=True, eq=False)
class Movie:
    """The movie in a file."""

    values: NDArray[Any]
    """The numbers, in the order of the file."""
    axes: str = "tyx"
    """The axes, as the format has them."""
    times: NDArray[Any] | None = None
    """The time of each frame, s, if the file says so."""
    rate: float | None = None
    """Frames a second, if the format says so."""
    pixel: float | None = None
    """Side of a pixel, m, if the format says so."""
    top_row_first: bool = False
    """Whether row 0 is at the top, as in pictures."""


def is_zarr(path: Path) -> bool:
    """Whether a directory is a Zarr store."""
    return path.suffix == ".zarr" or any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup"))


def read_movie(path: Path, dataset: str | None) -> Movie:
    """The movie in a file; `dataset` is its name there, if the file holds several arrays."""
    if not path.exists():
        raise ValueError(f"recording: {path} does not exist")
    read = _read_zarr if path.is_dir() and is_zarr(path) else READERS.get(path.suffix.lower())
    if read is None:
        known = ", ".join(READERS)
        raise ValueError(
            f"recording must be a file that ends in {known}, a Zarr directory or one of filaments, got {str(path)!r}"
        )
    if dataset is not None and read not in _OF_ARRAYS:
        raise ValueError(f"dataset must not be given for a {path.suffix} file, which holds one movie, got {dataset!r}")
    return read(path, dataset)


def _read_npy(path: Path, dataset: str | None) -> Movie:
    with _reading(path), path.open("rb") as file:
        return Movie(np.load(file, allow_pickle=False))


def _read_npz(path: Path, dataset: str | None) -> Movie:
    with _reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return _chosen(path, arrays, dataset)


def _read_hdf5(path: Path, dataset: str | None) -> Movie:
    h5py = _package("h5py", "HDF5")
    with _reading(path), h5py.File(path, "r") as file:
        arrays: dict[str, Any] = {}
        file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        # MATLAB's first axis runs fastest. A variable (y, x, t) of a 7.3 file has the axes t, x, y for everybody else.
        with path.open("rb") as start:
            matlab = start.read(10) == b"MATLAB 7.3"
        return _chosen(path, arrays, dataset, axes="txy" if matlab else "tyx")


def _read_zarr(path: Path, dataset: str | None) -> Movie:
    zarr = _package("zarr", "Zarr")
    with _reading(path):
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else path
        opened = zarr.open(store, mode="r")
        if not hasattr(opened, "members"):  # one array, not a group of them
            return Movie(np.asarray(opened))
        arrays = {name: item for name, item in opened.members(max_depth=None) if hasattr(item, "ndim")}
        return _chosen(path, arrays, dataset)


def _read_gif(path: Path, dataset: str | None) -> Movie:
    from PIL import Image, ImageSequence

    with _reading(path), Image.open(path) as picture:
        pictures, durations = [], []
        for frame in ImageSequence.Iterator(picture):
            pictures.append(np.asarray(frame.convert("L")))
            durations.append(frame.info.get("duration", 0) / 1000.0)
    times = np.concatenate([[0.0], np.cumsum(durations[:-1])])  # what follows the last frame does not matter
    return Movie(np.stack(pictures), times=times if all(durations) and len(times) > 1 else None, top_row_first=True)


def _read_video(path: Path, dataset: str | None) -> Movie:
    """Decoded by ffmpeg to grey frames in the format Y4M: a line with size and rate, then each frame after a line."""
    program = _package("imageio_ffmpeg", "MP4 and AVI").get_ffmpeg_exe()
    grey = ["-fps_mode", "passthrough", "-pix_fmt", "gray", "-strict", "-1", "-f", "yuv4mpegpipe", "-"]
    with _reading(path):
        done = subprocess.run([program, "-v", "error", "-i", str(path), *grey], capture_output=True)
        header, line, stream = done.stdout.partition(b"\n")
        found = re.match(rb"YUV4MPEG2 W(\d+) H(\d+) F(\d+):(\d+) .*Cmono", header)
        if done.stderr or found is None:  # ffmpeg would show what it can of a damaged video
            raise OSError(done.stderr.decode(errors="replace"))
        columns, rows, frames, seconds = (int(number) for number in found.groups())
        values = np.frombuffer(stream, np.uint8).reshape(-1, len(b"FRAME\n") + rows * columns)
    return Movie(
        values[:, len(b"FRAME\n") :].reshape(-1, rows, columns),
        rate=frames / seconds if frames and seconds else None,
        top_row_first=True,
    )


READERS: dict[str, Callable[[Path, str | None], Movie]] = {
    ".h5": _read_hdf5, ".hdf5": _read_hdf5, ".mat": _read_hdf5, ".npy": _read_npy, ".npz": _read_npz,
    ".zarr": _read_zarr, ".zip": _read_zarr, ".gif": _read_gif, ".mp4": _read_video, ".avi": _read_video,
}  # fmt: skip
_OF_ARRAYS = (_read_hdf5, _read_npz, _read_zarr)


def _package(name: str, formats: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"{formats} files need the package {name}: pip install 'gpf-networks[recordings]'") from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Context in which any error of a library about a damaged file becomes one sentence that names it."""
    try:
        yield
    except MemoryError:
        raise
    except ValueError as error:
        if str(error).startswith(("dataset", "recording")):  # one of ours
            raise
        raise _unreadable(path, error) from None
    except (OSError, EOFError, KeyError, IndexError, RuntimeError, TypeError, zipfile.BadZipFile) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> ValueError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return ValueError(f"recording: {path} cannot be read ({reason[:200]})")


def _chosen(path: Path, arrays: Mapping[str, Any], dataset: str | None, axes: str = "tyx") -> Movie:
    """The movie among the arrays of a file: the one that is named, Crimaldi's, or the only one with three axes."""
    held = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items()) or "nothing"
    movies = [name for name, array in arrays.items() if array.ndim == 3]
    if dataset is not None:
        name = dataset.strip("/")
        if name not in arrays:
            raise ValueError(f"dataset {dataset!r} is not in {path}, which holds: {held}")
    elif CRIMALDI in movies:
        name = CRIMALDI
    elif len(movies) == 1:
        name = movies[0]
    elif movies:
        raise ValueError(f"dataset must be named, as {path} holds several arrays with three axes: {held}")
    else:
        raise ValueError(f"recording: {path} must hold an array with three axes, time, y and x, but holds: {held}")
    times = arrays[TIMES] if TIMES in arrays and name != TIMES else None
    crimaldi = name == CRIMALDI
    return Movie(
        np.asarray(arrays[name]),
        axes=axes,
        times=None if times is None else np.asarray(times),
        rate=CRIMALDI_RATE if crimaldi else None,
        pixel=CRIMALDI_PIXEL if crimaldi else None,
    )
