"""Movies in files: every format gives the same frames, and what is wrong with one is said in a sentence."""

import builtins
import importlib
import re

import h5py
import imageio_ffmpeg
import numpy as np
import pytest
import zarr
from PIL import Image
from plume_movies import INTERVAL, PIXEL, advected_plume

from gpf.plume.recordings import Recording, load_recording

KNOWN = {"rate": 1.0 / INTERVAL, "pixel": PIXEL, "wind": (0.9, 0.3)}


@pytest.fixture(scope="module")
def plume():
    """A solved plume of 60 frames, 40 x 64 pixels, from 0 to 1."""
    movie = advected_plume()
    return (movie / movie.max()).astype(np.float32)


def as_bytes(movie):
    return np.round(255.0 * movie).astype(np.uint8)


def write_npy(path, movie):
    np.save(path, movie)


def write_npz(path, movie):
    np.savez(path, frames=movie, times=INTERVAL * np.arange(len(movie)), note=np.array("ours"))


def write_hdf5(path, movie):
    with h5py.File(path, "w") as file:
        file["group/concentration"] = movie
        file["calibration"] = np.ones(3)


def write_crimaldi(path, movie):
    with h5py.File(path, "w") as file:
        file["dataset1"] = movie[:2]
        file["dataset2"] = movie


def write_matlab(path, movie):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["plume"] = movie.transpose(0, 2, 1)  # a variable (y, x, t) of MATLAB, for others
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")


def write_zarr(path, movie):
    zarr.save_array(path, movie)


def write_zarr_group(path, movie):
    group = zarr.open_group(path, mode="w", zarr_format=2)
    group.create_array("frames", data=movie)
    group.create_array("times", data=INTERVAL * np.arange(len(movie)))


def write_zipped_zarr(path, movie):
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.create_array(store, data=movie)


def write_gif(path, movie):
    first, *rest = [Image.fromarray(frame[::-1]) for frame in as_bytes(movie)]
    first.save(path, save_all=True, append_images=rest, duration=round(1000 * INTERVAL), loop=0)


def write_video(path, movie, **options):
    pictures = as_bytes(movie)[:, ::-1]
    writer = imageio_ffmpeg.write_frames(
        path, pictures.shape[:0:-1], pix_fmt_in="gray", fps=1.0 / INTERVAL, macro_block_size=1, **options
    )
    writer.send(None)
    for picture in pictures:
        writer.send(np.ascontiguousarray(picture))
    writer.close()


def write_mp4(path, movie):
    write_video(path, movie, codec="libx264", output_params=["-crf", "1"])


def write_avi(path, movie):
    write_video(path, movie, codec="ffv1", pix_fmt_out="gray")


FORMATS = {
    "movie.npy": (write_npy, 0.0),
    "movie.npz": (write_npz, 0.0),
    "movie.h5": (write_hdf5, 0.0),
    "movie.hdf5": (write_crimaldi, 0.0),
    "movie.mat": (write_matlab, 0.0),
    "movie.zarr": (write_zarr, 0.0),
    "group.zarr": (write_zarr_group, 0.0),
    "movie.zarr.zip": (write_zipped_zarr, 0.0),
    "movie.gif": (write_gif, 0.51 / 255.0),
    "movie.mp4": (write_mp4, 4.0 / 255.0),  # brightness has 219 steps there, and is compressed
    "movie.avi": (write_avi, 0.51 / 255.0),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_frames_that_were_written(name, plume, tmp_path):
    write, precision = FORMATS[name]
    write(tmp_path / name, plume)
    recording = load_recording(tmp_path / name, **KNOWN)
    assert recording.frames.dtype == np.float32
    assert recording.frames.shape == plume.shape
    assert np.abs(recording.frames - plume).max() <= precision
    assert recording.interval == pytest.approx(INTERVAL)
    assert (recording.width, recording.height) == pytest.approx((64 * PIXEL, 40 * PIXEL))
    assert recording.duration == pytest.approx(60 * INTERVAL)
    assert recording.wind.shape == (1, 1, 1, 2)
    assert recording.wind.ravel() == pytest.approx([0.9, 0.3])
    assert recording.name == name


@pytest.mark.parametrize("name", ["movie.npz", "group.zarr", "movie.gif", "movie.mp4", "movie.avi"])
def test_a_file_that_knows_its_times_needs_no_rate(name, plume, tmp_path):
    FORMATS[name][0](tmp_path / name, plume)
    assert load_recording(tmp_path / name, pixel=PIXEL, wind=(1, 0)).interval == pytest.approx(INTERVAL)


def test_crimaldis_files_have_15_frames_a_second_and_pixels_of_740_micrometres(plume, tmp_path):
    write_crimaldi(tmp_path / "10302017.hdf5", plume)
    recording = load_recording(tmp_path / "10302017.hdf5", wind=(0.1, 0.0))
    assert recording.interval == pytest.approx(1 / 15)
    assert recording.pixel == pytest.approx(0.74e-3)
    assert recording.frames.shape == plume.shape


def test_a_dataset_is_chosen_by_its_name(plume, tmp_path):
    write_crimaldi(tmp_path / "movie.h5", plume)
    assert load_recording(tmp_path / "movie.h5", dataset="/dataset1", **KNOWN).frames.shape == (2, 40, 64)


@pytest.mark.parametrize("axes", ["tyx", "txy", "yxt", "xyt", "ytx", "xty"])
def test_axes_in_any_order_give_the_same_frames(axes, plume, tmp_path):
    np.save(tmp_path / "movie.npy", plume.transpose(["tyx".index(axis) for axis in axes]))
    recording = load_recording(tmp_path / "movie.npy", axes=axes, size=(40, 64), **KNOWN)
    assert (recording.frames == plume).all()


def test_rows_can_be_counted_from_the_top(plume, tmp_path):
    np.save(tmp_path / "movie.npy", plume[:, ::-1])
    assert (load_recording(tmp_path / "movie.npy", top_row_first=True, **KNOWN).frames == plume).all()


@pytest.mark.parametrize(("kind", "greatest"), [(np.uint8, 255), (np.uint16, 65535)])
def test_integers_are_shares_of_the_greatest_one_times_the_scale(kind, greatest, tmp_path):
    movie = np.array([[[0, greatest // 5, greatest]]], kind)
    np.save(tmp_path / "movie.npy", movie)
    recording = load_recording(tmp_path / "movie.npy", scale=3.0, **KNOWN)
    assert recording.frames.ravel() == pytest.approx([0.0, 0.6, 3.0], rel=1e-4)


def test_floats_are_multiplied_by_the_scale(plume, tmp_path):
    np.save(tmp_path / "movie.npy", plume)
    assert (load_recording(tmp_path / "movie.npy", scale=2.0, **KNOWN).frames == 2.0 * plume).all()


def test_a_movie_without_wind_gets_the_one_that_moves_it(plume, tmp_path):
    np.save(tmp_path / "movie.npy", plume)
    recording = load_recording(tmp_path / "movie.npy", rate=1.0 / INTERVAL, pixel=PIXEL)
    assert recording.wind.shape == (1, 1, 1, 2)
    assert recording.wind.ravel() == pytest.approx([0.9, 0.3], rel=0.1)


def test_a_recording_cannot_be_changed(plume):
    frames, wind = plume.copy(), np.ones((1, 1, 1, 2), np.float32)
    recording = Recording(frames=frames, interval=0.1, pixel=0.1, wind=wind)
    frames[:], wind[:] = 7.0, 7.0
    assert (recording.frames == plume).all()
    assert (recording.wind == 1.0).all()
    with pytest.raises(ValueError, match="read-only"):
        recording.frames[0, 0, 0] = 1.0


def spoilt(value):
    movie = np.ones((4, 3, 5))
    movie[2, 1, 4] = value
    return movie


UNEVEN = {"frames": np.ones((4, 3, 5)), "times": np.array([0.0, 0.1, 0.2, 0.5])}
GOOD = np.ones((4, 3, 5))
BAD = [
    (np.ones((4, 3)), {}, "frames must have three axes, time, y and x, got shape (4, 3)"),
    (np.ones((0, 3, 5)), {}, "frames must hold at least one frame of at least one pixel, got shape (0, 3, 5)"),
    (np.full((1, 2, 2), "a"), {}, "frames must be numbers, got the type <U1"),
    (np.ones((1, 2, 2), np.int64), {}, "frames must be floats, or integers of type uint8 or uint16, got int64"),
    (spoilt(np.nan), {}, "frames must be finite and not negative, got nan in frame 2, row 1 from the bottom, column 4"),
    (spoilt(np.inf), {}, "frames must be finite and not negative, got inf in frame 2, row 1 from the bottom, column 4"),
    (spoilt(-1.0), {}, "frames must be finite and not negative, got -1 in frame 2, row 1 from the bottom, column 4"),
    (spoilt(1e300), {}, "frames must be finite and not negative, got inf in frame 2, row 1 from the bottom, column 4"),
    (UNEVEN, {"rate": None},
     "times must be evenly spaced, got 0.3 s between frames 2 and 3 where the usual time is 0.1 s"),
    ({**UNEVEN, "times": np.arange(3)}, {"rate": None}, "times must be one for each of the 4 frames, got 3"),
    ({**UNEVEN, "times": 0.1 * np.arange(4)}, {"rate": 5.0},
     "rate must be that of the file's times, 10 1/s, got 5"),
    (GOOD, {"rate": None}, "rate must be given, in 1/s, as FILE does not say it"),
    (GOOD, {"pixel": None}, "pixel must be given, in m, as FILE does not say it"),
    (GOOD, {"rate": -1.0}, "rate must be a positive number, in 1/s, got -1.0"),
    (GOOD, {"pixel": "small"}, "pixel must be a positive number, in m, got 'small'"),
    (GOOD, {"scale": 0.0}, "scale must be a positive number, in concentration, got 0.0"),
    (GOOD, {"size": (5, 3)}, "size must be that of a frame, got (5, 3) (rows, columns) for frames of (3, 5);"
     " the axes of the file seem to be 'txy', not 'tyx'"),
    (GOOD, {"size": (4, 3)}, "size must be that of a frame, got (4, 3) (rows, columns) for frames of (3, 5);"
     " the axes of the file seem to be 'yxt', not 'tyx'"),
    (GOOD, {"size": (7, 7)}, "size must be that of a frame, got (7, 7) (rows, columns) for frames of (3, 5);"
     " the file has the shape (4, 3, 5)"),
    (GOOD, {"axes": "tyz"}, "axes must be the letters t, y and x in the order of the file's axes, got 'tyz'"),
    (GOOD, {"dataset": "a"}, "dataset must not be given for a .npy file, which holds one movie, got 'a'"),
    (GOOD, {"height": 1.5}, "height is for recordings of filaments, which FILE is not, got 1.5"),
    (GOOD, {"wind": (1.0, 2.0, 3.0)}, "wind must be (u, v) in m/s or an array of shape (times, 2),"
     " (rows, columns, 2) or (times, rows, columns, 2), got (1.0, 2.0, 3.0)"),
    (GOOD, {"wind": (1.0, np.nan)}, "wind must be finite, got nan"),
    (GOOD, {"wind": None}, "wind cannot be estimated from this movie, as nothing in it can be followed;"
     " give wind=(u, v)"),
    (GOOD, {"source": (1.0, 0.1)}, "source must be in the recording, x from 0 to 0.25 m and y from 0 to 0.15 m,"
     " got (1, 0.1)"),
    (GOOD, {"source": "here"}, "source must be two numbers, x and y in m, got 'here'"),
    ({"a": GOOD, "b": GOOD}, {},
     "dataset must be named, as FILE holds several arrays with three axes: a (4, 3, 5), b (4, 3, 5)"),
    ({"a": GOOD, "b": np.ones(2)}, {"dataset": "c"}, "dataset 'c' is not in FILE, which holds: a (4, 3, 5), b (2,)"),
    ({"a": np.ones((3, 5))}, {},
     "recording: FILE must hold an array with three axes, time, y and x, but holds: a (3, 5)"),
    ({"a": np.ones((3, 5))}, {"dataset": "a"}, "frames must have three axes, time, y and x, got shape (3, 5)"),
]  # fmt: skip


@pytest.mark.parametrize(("movie", "options", "sentence"), BAD, ids=[sentence[:60] for *_, sentence in BAD])
def test_what_is_wrong_is_said_in_one_sentence(movie, options, sentence, tmp_path):
    path = tmp_path / ("movie.npz" if isinstance(movie, dict) else "movie.npy")
    if isinstance(movie, dict):
        np.savez(path, **movie)
    else:
        np.save(path, movie)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence.replace('FILE', str(path)))}$"):
        load_recording(path, **{**KNOWN, **options})


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_named(name, plume, tmp_path):
    path = tmp_path / name
    FORMATS[name][0](path, plume)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        file.write_bytes(b"not what it was")
    with pytest.raises(ValueError, match=f"^recording: {re.escape(str(path))} (cannot be read|must hold)[^\n]*$"):
        load_recording(path, **KNOWN)


@pytest.mark.parametrize("name", [name for name in FORMATS if not name.endswith((".zarr", ".avi"))])
def test_a_file_that_is_cut_off_gives_nothing(name, plume, tmp_path):
    path = tmp_path / name
    FORMATS[name][0](path, plume)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(ValueError, match="cannot be read"):
        load_recording(path, **KNOWN)


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(ValueError, match="none.npy does not exist"):
        load_recording(tmp_path / "none.npy", **KNOWN)


def test_an_unknown_ending_is_answered_by_the_known_ones(tmp_path):
    (tmp_path / "movie.tiff").touch()
    with pytest.raises(ValueError, match=r"ends in \.h5, .*, \.avi, a Zarr directory .* got '.*movie\.tiff'$"):
        load_recording(tmp_path / "movie.tiff", **KNOWN)
    with pytest.raises(ValueError, match="a Zarr directory or one of filaments"):
        load_recording(tmp_path, **KNOWN)


@pytest.mark.parametrize(("name", "package"), [("a.h5", "h5py"), ("a.zarr", "zarr"), ("a.mp4", "imageio_ffmpeg")])
def test_a_missing_package_is_named_with_its_extra(name, package, plume, tmp_path, monkeypatch):
    path = tmp_path / name
    path.touch()
    imports = importlib.import_module

    def without(wanted, *args):
        if wanted == package:
            raise ImportError
        return imports(wanted, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ValueError, match=rf"need the package {package}: pip install 'gpf-networks\[recordings\]'"):
        load_recording(path, **KNOWN)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("frames", np.ones((2, 2)), "frames must have three axes"),
        ("interval", 0.0, "interval must be a positive number, in s, got 0.0"),
        ("interval", True, "interval must be a positive number, in s, got True"),
        ("pixel", np.inf, "pixel must be a positive number, in m, got inf"),
        ("wind", np.ones(2), r"wind must be numbers of shape \(times, rows, columns, 2\), got shape \(2,\)"),
        ("occupied", np.ones((2, 2)), r"occupied must be true or false, of shape \(rows, columns\), got float64"),
        ("origin", (0.0,), r"origin must be two numbers, x and y in m, got \(0.0,\)"),
        ("source", (5.0, 0.0), r"source must be in the recording, x from 0 to 0.3 m and y from 0 to 0.2 m"),
    ],
)
def test_a_recording_refuses_what_it_cannot_be(field, value, sentence):
    good = {"frames": np.ones((4, 2, 3)), "interval": 0.1, "pixel": 0.1, "wind": np.ones((1, 1, 1, 2))}
    with pytest.raises(ValueError, match=f"^{sentence}"):
        Recording(**{**good, field: value})


def test_reading_needs_no_optional_package(plume, tmp_path, monkeypatch):
    np.save(tmp_path / "movie.npy", plume)
    imports = builtins.__import__

    def without(name, *args, **options):
        assert name.partition(".")[0] not in ("h5py", "zarr", "imageio_ffmpeg"), name
        return imports(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    load_recording(tmp_path / "movie.npy", **KNOWN)
