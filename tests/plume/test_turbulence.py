"""Turbulent filaments against a plain NumPy replay of their random numbers, and Taylor's and Richardson's laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.physics import BORN, VELOCITY_X, VELOCITY_Y, X, Y
from gpf.plume.render import concentration_field
from gpf.plume.rng import fill_normals, normal, poisson, seed_streams
from gpf.plume.state import state_of
from gpf.plume.world import World

CALM = {"wind_speed": 0.0, "wind_speed_sigma": 0.0, "wind_speed_floor": 0.0, "wind_direction_sigma": 0.0}
WATCH = {"speed": 0.0, "success_radius": 1e-6, "max_steps": 10**6, "sensor_noise": 0.0}
"""An agent that only watches."""


def world_of(count=1, seed=0, **fields):
    world = World(count, Scenario.of(fields), threads=1)
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def walk(world, steps=1):
    for _ in range(steps):
        world.step(np.zeros(world.count, np.int64))


def columns(world, lane=0):
    """The filaments of a lane, with NaN for the place of those that have left the domain but keep their column."""
    first, last = world.lanes[lane]["first"], world.lanes[lane]["last"]
    filaments = world.filaments[lane][:, first:last].copy()
    filaments[Y, np.isnan(filaments[X])] = np.nan
    return filaments


def alive(world, lane=0):
    filaments = columns(world, lane)
    return filaments[:, ~np.isnan(filaments[X])]


def stop_emission(world):
    world.rows["emission_mean"], world.rows["emission_none"] = 0.0, 1.0


def normals(stream, count):
    return np.array([normal(stream) for _ in range(count)])


@settings(max_examples=20)
@given(seed=st.integers(0, 2**63), first=st.integers(0, 50), count=st.integers(0, 3000))
def test_filling_with_normals_is_drawing_them_one_by_one(seed, first, count):
    filled, single = seed_streams([seed, seed])
    out = np.full(first + count + 3, 7.0)
    fill_normals(filled, out, first, first + count)
    np.testing.assert_array_equal(out[first : first + count], normals(single, count))
    np.testing.assert_array_equal(filled, single)  # and leaves the stream where they leave it
    assert (out[:first] == 7.0).all()
    assert (out[first + count :] == 7.0).all()


class Replay:
    """A turbulent plume in plain NumPy, from the same random numbers; it reads nothing of a lane but wind and grid."""

    SLACK = 32
    """Places of filaments that are gone, before the first one, at which they are thrown out; it decides on draws."""

    def __init__(self, scenario, source):
        self.s, self.source = scenario, np.array(source)
        self.filaments = np.empty((5, 0))  # x, y, born, two velocities
        self.gone = self.released = self.ended = 0

    def wind(self, lane, grid):
        """The wind at all filaments, shape (2, n): bilinear by weights of all nodes."""
        n = self.s.wind_grid
        total = lane["wind_speed"] * np.array([[math.cos(lane["wind_direction"])], [math.sin(lane["wind_direction"])]])
        if n == 0:
            return total
        x, y = self.filaments[:2]
        hat_x = np.maximum(0.0, 1.0 - np.abs(np.nan_to_num(x) / self.s.width * (n - 1) - np.arange(n)[:, None]))
        hat_y = np.maximum(0.0, 1.0 - np.abs(np.nan_to_num(y) / self.s.height * (n - 1) - np.arange(n)[:, None]))
        return total + np.einsum("cyx,xk,yk->ck", grid.reshape(2, n, n), hat_x, hat_y)

    def step(self, stream, lane, grid):
        s = self.s
        normals(stream, 2 + (16 if s.wind_grid else 0))  # the wind's
        count = poisson(stream, s.emission_rate * s.time_step, math.exp(-s.emission_rate * s.time_step))
        if self.gone >= self.SLACK:
            self.filaments = self.filaments[:, ~np.isnan(self.filaments[0])]
            self.gone = 0
        for _ in range(count):
            jitter, velocity = normals(stream, 2), normals(stream, 2)
            place = self.source + s.emission_jitter * jitter
            new = [*place, lane["tick"] - 1, *(s.filament_velocity_sigma * velocity)]
            self.filaments = np.column_stack([self.filaments, new])
        self.released += count
        before = self.filaments[3:].copy()
        keep = math.exp(-s.time_step / s.filament_velocity_time)
        noise = np.array([normals(stream, before.shape[1]) for _ in range(2)]).reshape(before.shape)
        after = keep * before + s.filament_velocity_sigma * math.sqrt(1.0 - keep**2) * noise
        moved = self.filaments[:2] + s.time_step * (self.wind(lane, grid) + 0.5 * (before + after))
        self.filaments[3:] = after
        self.filaments[:2] = moved
        with np.errstate(invalid="ignore"):
            left = ~((moved >= 0.0) & (moved <= [[s.width], [s.height]])).all(axis=0)
        self.filaments[:2, left] = np.nan
        oldest = lane["tick"] - round(s.filament_lifetime / s.time_step)
        done = np.isnan(self.filaments[0]) | (self.filaments[2] < oldest)
        front = len(done) if done.all() else int(np.argmin(done))
        self.gone += front
        self.filaments = self.filaments[:, front:]


@pytest.mark.parametrize("preset", ["turbulent", "meandering"])
def test_filaments_follow_the_exact_ornstein_uhlenbeck_step_in_the_wind_where_they_are(preset):
    """Released, moved and ended as in the replay: so what was released and has not ended is there, and nothing else."""
    scenario = Scenario.of({"preset": preset, **WATCH, "head_start": 0.0, "filament_lifetime": 12.0, "width": 12.0})
    world = World(1, scenario, threads=1)
    world.seed([3])
    world.begin()
    lane = world.lanes[0]
    replay = Replay(scenario, (lane["source_x"], lane["source_y"]))
    there = 0
    for _ in range(500):
        stream = world.streams[0].copy()
        walk(world)
        replay.step(stream, lane, world.grids[0])
        expected = replay.filaments
        assert columns(world).shape[1] == expected.shape[1]
        np.testing.assert_allclose(columns(world)[:5], expected, rtol=1e-9, atol=1e-9)
        there += np.isnan(expected[0]).sum() > 0
    assert replay.released > 1.5 * columns(world).shape[1]  # many have ended
    assert there > 50  # also in the midst of others


@pytest.mark.parametrize("step", [0.02, 0.1])
def test_the_mean_square_displacement_of_filaments_is_taylors(step):
    sigma, time = 0.3, 1.0
    world = world_of(
        200, width=200.0, height=200.0, source_at=(100.0, 100.0), emission_jitter=0.0, time_step=step,
        emission_rate=20.0 / step, filament_lifetime=0.2 + step, filament_velocity_sigma=sigma,
        filament_velocity_time=time, **CALM, **WATCH,
    )  # fmt: skip
    walk(world)
    stop_emission(world)
    world.rows["lifetime_steps"] = 10**6
    moments = {round(t / step) for t in (step, 0.2, 1.0, 3.0, 8.0)}
    velocities = np.concatenate([alive(world, n)[[VELOCITY_X, VELOCITY_Y]] for n in range(200)], axis=1)
    assert velocities.std() == pytest.approx(sigma, rel=0.04)
    assert velocities.shape[1] > 3500
    for tick in range(1, max(moments) + 1):
        if tick in moments:
            moved = np.concatenate([alive(world, n)[[X, Y]] - 100.0 for n in range(200)], axis=1)
            age = tick * step / time
            taylor = 2.0 * sigma**2 * time**2 * (age - 1.0 + math.exp(-age))
            assert moved.shape == velocities.shape
            assert (moved**2).mean() == pytest.approx(taylor, rel=0.07)  # 8,000 displacements: 1.6 %
        walk(world)


@pytest.mark.parametrize("dispersion", [0.0, 0.003, 0.2])
def test_the_squared_radius_grows_linearly_and_with_the_third_power_of_age(dispersion):
    world = world_of(
        emission_rate=0.0, diffusion=0.01, dispersion=dispersion, antenna_separation=0.0, antenna_forward=0.0,
        filament_mass=1e-3, **CALM, **WATCH,
    )  # fmt: skip
    lane = world.lanes[0]
    lane["first"], lane["last"] = 0, 1
    world.filaments[0, :3, 0] = lane["x"], lane["y"], 0
    for step in range(1, 290):
        walk(world)
        age = 0.1 * step
        squared = 0.01**2 + 2.0 * 0.01 * age + dispersion * age**3
        assert lane["left"] == pytest.approx(1e-3 / (2.0 * math.pi * squared), rel=1e-11)
        assert state_of(world, 0).filament_radii[0] == pytest.approx(math.sqrt(squared), rel=1e-12)


def plain_readings(world, i, scenario):
    """The sum of m / (2 pi r^2) exp(-d^2 / 2 r^2) over filaments with d < cutoff r, at both antennae."""
    lane, filaments = world.lanes[i], alive(world, i)
    age = (lane["tick"] - filaments[BORN]) * scenario.time_step / scenario.substeps
    squared = scenario.filament_radius**2 + 2.0 * scenario.diffusion * age + scenario.dispersion * age**3
    ahead = np.array([math.cos(lane["heading"]), math.sin(lane["heading"])])
    to_left = np.array([-ahead[1], ahead[0]])
    readings = []
    for side in (0.5, -0.5):
        tip = [lane["x"], lane["y"]] + scenario.antenna_forward * ahead + side * scenario.antenna_separation * to_left
        z = ((filaments[[X, Y]] - tip[:, None]) ** 2).sum(axis=0) / squared
        near = z < scenario.cutoff**2
        readings.append((scenario.filament_mass / (2.0 * np.pi * squared) * np.exp(-0.5 * z))[near].sum())
    return readings


@pytest.mark.parametrize(
    "fields", [{}, {"dispersion": 0.002}, {"substeps": 5}], ids=["turbulent", "dispersion", "substeps"]
)
def test_readings_are_the_plain_sum_over_turbulent_filaments(fields):
    scenario = Scenario.of({
        "preset": "turbulent", "sensor_noise": 0.0, "sensor_saturation": 1e3, "start_distance_min": 0.6,
        "start_distance_max": 6.0, "start_bearing": 20.0, **fields,
    })  # fmt: skip
    world = World(12, scenario, threads=1)
    world.seed(range(12))
    world.begin()
    rng = np.random.default_rng(0)
    smelled = 0
    for _ in range(60):
        world.step(rng.integers(0, 6, 12))
        for i, lane in enumerate(world.lanes):
            if lane["running"]:
                expected = plain_readings(world, i, scenario)
                assert [lane["left"], lane["right"]] == pytest.approx(expected, rel=1e-10, abs=1e-15)
                smelled += expected[0] > 1e-3
    assert smelled > 100


@pytest.mark.parametrize("dispersion", [0.0, 1e-3])
def test_the_mass_in_the_domain_is_that_of_the_filaments_released(dispersion):
    """The integral of the concentration over the domain, while nothing leaves it."""
    world = world_of(
        width=8.0, height=8.0, source_at=(4.0, 4.0), filament_velocity_sigma=0.1, filament_radius=0.1, diffusion=0.001,
        dispersion=dispersion, cutoff=4.0, **CALM, **WATCH,
    )  # fmt: skip
    for _ in range(4):
        walk(world, 10)
        count = alive(world).shape[1]
        field = concentration_field(world, 0, 200, 200)
        mass = field.mean() * 8.0 * 8.0
        assert mass == pytest.approx(0.1 * count, rel=2e-3)  # beyond 4 radii lie 0.03 %
    assert count > 10
