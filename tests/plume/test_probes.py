"""Probes against other ways to compute a concentration, and the places where they stand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.physics import X
from gpf.plume.pixels import concentration_field
from gpf.plume.probes import AXIS, SOURCE, filling_time, layout, measure, steady_plume, total_steps
from gpf.plume.state import state_of

PAPER = Scenario()
POINTS = [[7.0, 10.0], [10.0, 10.3], [13.0, 9.0]]


def test_a_probe_reads_the_sum_over_all_filaments():
    series = measure(PAPER, POINTS, 2.0, [3], warmup=20.0)
    for step in (1, 7, 20):
        state = state_of(steady_plume(PAPER, layout(PAPER).source, [3], 20.0 + 0.1 * step), 0)
        squared = ((np.array(POINTS)[:, None] - state.filament_positions) ** 2).sum(axis=2) / state.filament_radii**2
        masses = PAPER.filament_mass / (2.0 * math.pi * state.filament_radii**2) * np.exp(-0.5 * squared)
        expected = np.where(squared < PAPER.cutoff**2, masses, 0.0).sum(axis=1)
        assert expected.max() > 0.0
        assert series[0, :, step - 1] == pytest.approx(expected, rel=1e-10)


def test_probes_at_the_centres_of_pixels_read_what_the_picture_shows():
    centres = (np.arange(10) + 0.5) * 2.0
    points = [[x, y] for y in centres[::-1] for x in centres]
    world = steady_plume(PAPER, layout(PAPER).source, [1], 30.1)
    field = concentration_field(world, 0, 10, 10)
    assert field.max() > 0.01
    assert measure(PAPER, points, 0.1, [1], warmup=30.0)[0, :, 0].reshape(10, 10) == pytest.approx(field, rel=1e-10)


def test_among_obstacles_a_probe_reads_what_an_agent_there_would_smell():
    """Not what can be smelled from where the agent happens to stand."""
    office = Scenario.preset("office")
    centres = (np.arange(10) + 0.5) * 2.0
    points = [[x, y] for y in centres[::-1] for x in centres]
    source = [4.0, 12.0]
    field = concentration_field(steady_plume(office, source, [1], 30.1), 0, 10, 10)
    assert (field > 0.01).sum() > 3
    assert measure(office, points, 0.1, [1], 30.0, source)[0, :, 0].reshape(10, 10) == pytest.approx(field, rel=1e-10)


def test_a_probe_reads_the_same_bits_whatever_else_is_measured():
    together = measure(PAPER, POINTS, 30.0, [5, 6])
    assert together.shape == (2, 3, 300)
    for lane, seed in enumerate((5, 6)):
        for n, point in enumerate(POINTS):
            assert (measure(PAPER, [point], 30.0, [seed])[0, 0] == together[lane, n]).all()
    assert (together[0] != together[1]).any()


def test_a_series_may_be_longer_than_an_episode():
    """A lane must have room for all filaments of a lifetime, although episodes are shorter."""
    short = dataclasses.replace(PAPER, max_steps=5)
    assert (measure(short, POINTS, 60.0, [0]) == measure(PAPER, POINTS, 60.0, [0])).all()


def test_the_source_stands_where_it_is_put():
    calm = Scenario(wind_speed_sigma=0.0, wind_direction_sigma=0.0)
    here, above = measure(calm, [[10.0, 10.0], [10.0, 15.0]], 20.0, [0], source=[4.0, 15.0])[0]
    assert here.max() < 1e-3 * above.mean()


def test_the_plume_is_steady_after_the_warm_up():
    def filaments(seconds):
        world = steady_plume(PAPER, layout(PAPER).source, range(60), seconds)
        return [np.count_nonzero(~np.isnan(world.filaments[n][X, lane["first"] : lane["last"]]))
                for n, lane in enumerate(world.lanes)]  # fmt: skip

    now, later = filaments(filling_time(PAPER)), filaments(3.0 * filling_time(PAPER))
    error = np.hypot(np.std(now), np.std(later)) / math.sqrt(60)
    assert abs(np.mean(now) - np.mean(later)) < 4.0 * error
    assert np.mean(filaments(5.0)) < 0.5 * np.mean(now)


@given(st.floats(-360.0, 360.0), st.floats(1.0, 100.0), st.floats(1.0, 100.0))
def test_source_and_probes_stand_in_the_domain_whatever_the_wind(direction, width, height):
    scenario = Scenario(wind_direction=direction, width=width, height=height, antenna_separation=0.0)
    where = layout(scenario)
    points = np.vstack([where.points, where.source])
    assert (points >= -1e-9).all()
    assert (points <= np.array([width, height]) + 1e-9).all()
    ahead = np.array([math.cos(where.direction), math.sin(where.direction)])
    axis = where.points[: len(AXIS)] - where.source
    assert axis @ ahead == pytest.approx(where.distances)
    line = where.points[len(AXIS) :][: len(where.offsets)] - where.source
    assert line @ ahead == pytest.approx(np.full(len(line), where.profile_distance))


def test_the_source_of_the_paper_stands_upwind_on_the_centre_line():
    where = layout(PAPER)
    assert where.source == pytest.approx([SOURCE * 20.0, 10.0])
    assert where.distances == pytest.approx([3.0, 6.0, 9.0, 12.0])
    left, right = np.split(where.points[len(AXIS) + len(where.offsets) :], 2)
    assert left - right == pytest.approx(np.tile([0.0, PAPER.antenna_separation], (len(AXIS), 1)))


def test_progress_adds_up_to_all_steps():
    steps = []
    measure(PAPER, POINTS, 301.0, range(2), warmup=7.0, progress=steps.append)
    assert sum(steps) == 2 * total_steps(PAPER, 301.0, 7.0) == 2 * (3010 + 70)
    assert len(steps) > 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": [1.0, 2.0]}, "points must be rows of finite x and y, got "),
        ({"points": [[1.0, math.nan]]}, "points must be rows of finite x and y, got "),
        ({"points": np.empty((0, 2))}, "points must be rows of finite x and y, got "),
        ({"seconds": 0.0}, "seconds must be positive, got 0.0"),
        ({"seconds": math.nan}, "seconds must be positive, got nan"),
        ({"seconds": 1e9}, "seconds and warmup must be at most 1,000,000 together, got 1,000,000,030"),
        ({"warmup": -1.0}, "warmup must be at least 0, got -1.0"),
        ({"seeds": []}, "seeds must be at least one, got none"),
    ],
)
def test_a_measurement_that_there_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        measure(**{"scenario": PAPER, "points": POINTS, "seconds": 1.0, "seeds": [0]} | changes)


def test_more_samples_than_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr("gpf.plume.probes.machine_memory", lambda: 10_000)
    with pytest.raises(ValueError, match=r"^seconds must be fewer here: 1 series of 1,000 steps at 3 points take "):
        measure(PAPER, POINTS, 100.0, [0])
