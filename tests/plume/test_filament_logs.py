"""Filament logs of GSL-Bench and GADEN, and the movies made of them. The files are written here, byte by byte."""

import json
import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.plume.recordings import load_recording
from gpf.plume.recordings.filaments import FILAMENT, read_filaments, youngest
from gpf.plume.recordings.rasterising import rasterise

LOW, HIGH, CELLS, CELL = (-0.5, -1.0, 0.0), (5.5, 3.0, 2.0), (12, 8, 4), 0.5
SOURCE, MOLES, AIR = (1.0, 0.5, 1.25), 6.4e-6, 4.1e-5
RATE, WIND = 4.0, (0.4, -0.1)
_NAMES = "id pose_x pose_y pose_z sigma".split()


def filaments_at(frame):
    """A filament is released at the source in each frame, and drifts with the wind while it grows."""
    rows = []
    for number in range(frame + 1):
        age = (frame - number) / RATE
        place = [SOURCE[0] + WIND[0] * age, SOURCE[1] + WIND[1] * age, SOURCE[2] + 0.01 * age]
        rows.append((number, *place, np.sqrt(100.0 + 10.0 * age)))
    return rows


FRAMES = [filaments_at(frame) for frame in range(6)]


def occupancy():
    """Obstacles as GSL-Bench stores them, axes z, x, y: walls, a box that is not symmetric, and an outlet."""
    grid = np.zeros((CELLS[2], CELLS[0], CELLS[1]), np.int64)
    grid[:, 0, :] = 1
    grid[2, 7:9, 5] = 1  # at heights from 1 to 1.5 m
    grid[:, 11, 3] = 2
    return grid


def header_1(wind=0):
    """Header of GADEN 1: doubles."""
    size = (CELL,) * 3
    return struct.pack("<i6d3i6di2di", 1, *LOW, *HIGH, *CELLS, *size, *SOURCE, 0, MOLES, AIR, wind)


def header_2(wind=0, version=(2, 4)):
    """Header of GADEN 2: floats."""
    return struct.pack("<2i3i3f3ff3fi2di", *version, *CELLS, *LOW, *HIGH, CELL, *SOURCE, 0, MOLES, AIR, wind)


def write_gsl_bench(folder, frames=FRAMES):
    gas = folder / "gas_data" / "hall_001"
    gas.mkdir(parents=True)
    fields = ["h", *[f"env_{end}_{axis}" for end in ("min", "max") for axis in "xyz"]]
    fields += [f"{name}_{axis}" for name in ("env_cells", "cell_size", "gas_source_pos") for axis in "xyz"]
    fields += ["gas_type", "filament_num_moles_of_gas", "num_moles_all_gases_in_cm3", "binary_bool"]
    whole = ("h", "env_cells_x", "env_cells_y", "env_cells_z", "gas_type", "binary_bool")
    kind = np.dtype([(name, "<u4" if name in whole else "<f8") for name in fields])
    head = np.array([(1, *LOW, *HIGH, *CELLS, CELL, CELL, CELL, *SOURCE, 0, MOLES, AIR, 0)], kind)
    for number, rows in enumerate(frames):
        np.save(gas / f"iteration_{number}_head.npy", head)
        filaments = np.array(rows, [(name, "<u4" if name == "id" else "<f8") for name in _NAMES])
        np.save(gas / f"iteration_{number}_fil.npy", filaments)
    (folder / "occupancy").mkdir()
    np.save(folder / "occupancy" / "hall_001_grid.npy", occupancy())
    about = {"env_min": LOW, "env_max": HIGH, "num_cells": CELLS, "cell_size": CELL}
    (folder / "occupancy" / "hall_001_head.txt").write_text(json.dumps(about))
    return folder


def write_gaden(folder, header=header_2, frames=FRAMES, winds=None):
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(frames):
        content = header(winds[number] if winds else 0) + b"".join(struct.pack("<i4d", *row) for row in rows)
        (folder / f"iteration_{number}").write_bytes(zlib.compress(content))
    layers = []
    for layer in occupancy():
        layers += [" ".join(str(cell) for cell in line) + " " for line in layer] + [";"]
    low, high, cells = (" ".join(str(number) for number in some) for some in (LOW, HIGH, CELLS))
    lines = [f"#env_min(m) {low}", f"#env_max(m) {high}", f"#num_cells {cells}", f"#cell_size(m) {CELL}", *layers]
    (folder / "OccupancyGrid3D.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_gaden_1(folder):
    return write_gaden(folder, header_1)


def write_text(folder):
    folder.mkdir()
    for number, rows in enumerate(FRAMES):
        low, high, cells, source = (" ".join(str(one) for one in some) for some in (LOW, HIGH, CELLS, SOURCE))
        lines = ["VERSION 2.4", f"env_min {low}", f"env_max {high}", f"NumCells_XYZ {cells}", f"CellSize {CELL}"]
        lines += [f"GasSourceLocation_XYZ {source}", "GasType 0", f"Number of moles per filament {MOLES}"]
        lines += [f"Moles of all gases in cm3 {AIR}", "Wind iteration 0", "", "-" * 25, "", "", "Filament list:"]
        lines += ["(index) (position_x) (position_y) (position_z) (sigma)", "-" * 25]
        lines += [" ".join(str(one) for one in row) for row in rows]
        (folder / f"iteration_{number}").write_text("\n".join(lines) + "\n")
    return folder


FORMATS = {"gsl-bench": write_gsl_bench, "gaden 1": write_gaden_1, "gaden 2": write_gaden, "text": write_text}


def direct_sum(rows, mass, height, low, pixel, shape):
    """The concentration of filaments at pixel centres: one Gaussian after the other, nothing cut off."""
    y, x = (np.mgrid[: shape[0], : shape[1]] + 0.5) * pixel
    total = np.zeros(shape)
    for _, fx, fy, fz, sigma in rows:
        squared = (low[0] + x - fx) ** 2 + (low[1] + y - fy) ** 2 + (height - fz) ** 2
        total += mass * np.exp(-squared / (2 * (sigma / 100) ** 2)) / (np.sqrt(2 * np.pi) * sigma / 100) ** 3
    return total


@pytest.mark.parametrize("name", FORMATS)
def test_every_kind_of_log_gives_the_same_recording(name, tmp_path):
    recording = load_recording(FORMATS[name](tmp_path / "log"), rate=RATE, height=1.2)
    assert recording.frames.shape == (6, 40, 60)
    assert (recording.interval, recording.pixel) == (0.25, 0.1)
    assert recording.origin == (-0.5, -1.0)
    assert recording.source == pytest.approx((1.0, 0.5))
    for frame, rows in zip(recording.frames, FRAMES, strict=True):
        expected = direct_sum(rows, MOLES / AIR, 1.2, LOW, 0.1, (40, 60))  # ppm: moles in moles of a m^3, times 10^6
        assert np.abs(frame - expected).max() < 1e-4 * expected.max()
    assert recording.wind == pytest.approx(np.broadcast_to(WIND, recording.wind.shape), abs=1e-5)


def test_the_concentration_is_that_of_gadens_formula(tmp_path):
    recording = load_recording(write_gsl_bench(tmp_path / "001"), height=1.25, pixel=0.5, wind=WIND)
    sigma, distance_cm = 10.0, np.hypot(25.0, 25.0)  # the first filament, seen from the centre of the nearest pixel
    moles_cm3 = MOLES / (np.sqrt(8 * np.pi**3) * sigma**3) * np.exp(-(distance_cm**2) / (2 * sigma**2))
    assert recording.frames[0, 3, 3] == pytest.approx(1e6 * moles_cm3 / AIR, rel=1e-5)


def test_gsl_bench_has_two_frames_a_second(tmp_path):
    assert load_recording(write_gsl_bench(tmp_path / "001")).interval == 0.5


def test_a_slice_is_at_the_height_of_the_source_unless_told(tmp_path):
    path = write_gsl_bench(tmp_path / "001")
    assert (load_recording(path).frames == load_recording(path, height=SOURCE[2]).frames).all()
    assert load_recording(path, height=1.0).frames[0].max() < load_recording(path).frames[0].max()


@pytest.mark.parametrize("name", ["gsl-bench", "gaden 1", "gaden 2"])
def test_obstacles_are_those_at_the_height_of_the_slice(name, tmp_path):
    path = FORMATS[name](tmp_path / "log")
    expected = np.zeros((8, 12), bool)
    expected[:, 0] = True
    assert (load_recording(path, rate=RATE, height=0.9).occupied == expected).all()
    expected[5, 7:9] = True  # x runs along columns
    assert (load_recording(path, rate=RATE, height=1.2).occupied == expected).all()


def test_without_an_occupancy_grid_nothing_is_said_of_obstacles(tmp_path):
    assert load_recording(write_text(tmp_path / "log"), rate=RATE).occupied is None


def test_the_source_is_where_the_youngest_filaments_are_if_no_file_says_it(tmp_path):
    far = header_2().replace(struct.pack("<3f", *SOURCE), struct.pack("<3f", -99.0, 0.0, 0.0))
    path = write_gaden(tmp_path / "log", lambda wind: far)
    assert read_filaments(path).header.source is None
    assert load_recording(path, rate=RATE).source == pytest.approx(SOURCE[:2])
    assert load_recording(path, rate=RATE, source=(2.0, 2.0)).source == (2.0, 2.0)
    assert youngest([np.empty(0, FILAMENT)]) is None


def wind_cells(number):
    """A wind on the cells of the room that has another value in each of them: x runs fastest, then y, then z."""
    z, y, x = np.mgrid[: CELLS[2], : CELLS[1], : CELLS[0]]
    return np.stack([x + 100.0 * number, y + 10.0 * z, 0.0 * z], axis=-1)


def test_wind_files_of_gsl_bench_are_cut_at_the_height(tmp_path):
    path = write_gsl_bench(tmp_path / "001")
    (path / "wind_data").mkdir()
    np.save(path / "wind_data" / "hall_001.npy", np.stack([wind_cells(n).reshape(-1, 3) for n in range(3)]))
    recording = load_recording(path, height=1.2)
    assert recording.wind.shape == (1, 8, 12, 2)  # all frames say wind 0
    assert (recording.wind[0] == wind_cells(0)[2, :, :, :2]).all()


def test_each_frame_of_gaden_has_the_wind_that_it_names(tmp_path):
    path = write_gaden(tmp_path / "log", winds=[0, 0, 1, 1, 2, 2])
    (path / "wind").mkdir()
    for number in range(3):
        (path / "wind" / f"wind_iteration_{number}").write_bytes(
            b"".join(wind_cells(number)[..., part].astype("<f8").tobytes() for part in range(3))
        )
    recording = load_recording(path, rate=RATE, height=0.3)
    assert recording.wind.shape == (6, 8, 12, 2)
    assert recording.wind_interval == recording.interval
    for frame, number in enumerate([0, 0, 1, 1, 2, 2]):
        assert (recording.wind[frame] == wind_cells(number)[0, :, :, :2]).all()


def test_wind_from_filaments_can_have_cells_and_times_of_any_size(tmp_path):
    path = write_gsl_bench(tmp_path / "001")
    recording = load_recording(path, wind_cell=2.0, wind_every=1.0)
    assert recording.wind.shape == (3, 2, 3, 2)
    assert recording.wind_interval == pytest.approx(1.0)
    assert recording.wind == pytest.approx(np.broadcast_to(np.array(WIND) / 2.0, (3, 2, 3, 2)), abs=1e-5)  # at 2 Hz


def structured(rows):
    return np.array([tuple(row) for row in rows], FILAMENT)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.just(0), st.floats(-1, 4), st.floats(-1, 3), st.floats(0, 2), st.floats(8.0, 70.0)), max_size=6
    ),
    st.floats(0.0, 2.0),
)
def test_a_rasterised_frame_is_the_sum_of_its_gaussians(rows, height):
    (frame,) = rasterise([structured(rows)], 0.3, height, (-0.5, 0.25), 0.1, (22, 31))
    expected = direct_sum(rows, 0.3, height, (-0.5, 0.25), 0.1, (22, 31))
    peak = sum((0.3 / (np.sqrt(2 * np.pi) * row[4] / 100) ** 3 for row in rows), 0.0)
    assert np.abs(frame - expected).max() <= 5e-6 * peak + 1e-12  # what lies beyond five radii


def test_slices_at_all_heights_hold_the_mass_of_the_filaments():
    rows = [(0, 2.0, 2.0, 1.5, 10.0), (1, 1.6, 2.3, 1.4, 25.0), (2, 2.5, 1.8, 1.6, 18.0)]
    total, step = 0.0, 0.05
    for height in np.arange(-0.5, 3.5, step):
        (frame,) = rasterise([structured(rows)], 0.157, height, (0.0, 0.0), 0.1, (40, 40))
        total += float(frame.sum(dtype=np.float64)) * 0.1**2 * step  # ppm m^3
    assert total == pytest.approx(3 * 0.157, rel=1e-4)


def broken(change, name="gaden 2"):
    """Writes a log, and then changes something in its folder."""

    def make(folder):
        change(FORMATS[name](folder))
        return folder

    return make


def cut_header(folder):
    (folder / "iteration_3").write_bytes(zlib.compress(header_2()[:-3]))


def not_finite(folder):
    rows = [(7, 1.0, np.nan, 1.0, 10.0)]
    (folder / "iteration_3").write_bytes(zlib.compress(header_2() + struct.pack("<i4d", *rows[0])))


def empty_gas_data(folder):
    (folder / "gas_data").mkdir(parents=True)
    return folder


BAD = [
    (broken(lambda f: (f / "iteration_2").unlink()), {},
     "recording: LOG has a gap in time, between iteration 1 and 3"),
    (broken(lambda f: (f / "iteration_2").write_bytes(b"x")), {},
     "recording: LOG/iteration_2 cannot be read (Error -5 while decompressing data: incomplete or truncated stream)"),
    (broken(cut_header), {}, "recording: LOG/iteration_3 cannot be read ("),
    (broken(not_finite), {}, "filaments must have finite positions and a positive radius, got [1.0, nan, 1.0, 10.0]"
     " (x, y, z in m, radius in cm) in iteration 3, filament 7"),
    (lambda f: write_gaden(f, lambda wind: header_2(version=(3, 0))), {},
     "recording: LOG/iteration_0 cannot be read (it is of GADEN 3.0, and up to 2.5 can be read)"),
    (broken(lambda f: (f / "iteration_0").write_text("VERSION 2.4\nenv_min 0 0 0\n---\n---\n"), "text"), {},
     "recording: LOG/iteration_0 cannot be read (it has no line 'env_max')"),
    (broken(lambda f: (f / "gas_data/hall_001/iteration_1_head.npy").unlink(), "gsl-bench"), {},
     "recording: LOG/gas_data/hall_001/iteration_1_fil.npy cannot be read ("),
    (broken(lambda f: np.save(f / "gas_data/hall_001/iteration_1_fil.npy", np.ones((3, 5))), "gsl-bench"), {},
     "recording: LOG/gas_data/hall_001/iteration_1_fil.npy cannot be read (its fields are not those of GADEN)"),
    (broken(lambda f: np.save(f / "occupancy/hall_001_grid.npy", np.ones((2, 3, 4))), "gsl-bench"), {},
     "occupancy: LOG/occupancy/hall_001_grid.npy cannot be read (its header says (4, 12, 8) cells (z, x, y),"
     " and it has (2, 3, 4))"),
    (broken(lambda f: (f / "wind").mkdir()), {}, "wind: LOG/wind/wind_iteration_0 cannot be read ("),
    (empty_gas_data, {},
     "recording: LOG/gas_data must hold one directory of filaments, but holds: none"),
    (write_gaden, {"rate": None}, "rate must be given, in 1/s, as LOG does not say it"),
    (write_gaden, {"height": 2.5}, "height must be in the room, from 0 to 2 m, got 2.5"),
    (write_gaden, {"pixel": 0.7}, "pixel must divide the room, 6 x 4 m, got 0.7"),
    (write_gaden, {"axes": "tyx"}, "axes is for recordings of a movie, which LOG is not, got 'tyx'"),
    (write_gaden, {"wind_every": 0.0}, "wind_every must be a positive number, in s, got 0.0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "options", "sentence"), BAD, ids=[sentence[:60] for *_, sentence in BAD])
def test_what_is_wrong_with_a_log_is_said_in_one_sentence(make, options, sentence, tmp_path):
    folder = make(tmp_path / "log")
    with pytest.raises(ValueError, match=f"^{re.escape(sentence.replace('LOG', str(folder)))}[^\n]*$"):
        load_recording(folder, **{"rate": RATE, **options})
