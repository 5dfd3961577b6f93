"""Pictures of worlds with obstacles, several sources, decoys and recordings."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gpf.plume.obstacles import terrain_of
from gpf.plume.pixels import concentration_field, obstacle_map
from gpf.plume.recorded import recording_of
from gpf.plume.render import draw
from gpf.plume.scenario import Scenario
from gpf.plume.state import state_of
from gpf.plume.world import World

GREEN, VIOLET, GREY = (30, 122, 84), (96, 40, 160), (122, 126, 134)


def played(scenario, steps=60, seed=3):
    world = World(1, scenario)
    world.seed([seed])
    world.begin()
    for _ in range(steps):
        world.step(np.zeros(1, np.int64))
    return world


def centres(scenario, rows, columns):
    """x and y of the centres of pixels, top row first."""
    x = (np.arange(columns) + 0.5) * scenario.width / columns
    y = scenario.height - (np.arange(rows) + 0.5) * scenario.height / rows
    return np.meshgrid(x, y)


def summed(scenario, positions, radii, x, y):
    """The concentration of filaments by its definition."""
    field = np.zeros(x.shape)
    for (at_x, at_y), radius in zip(positions, radii, strict=True):
        z = ((x - at_x) ** 2 + (y - at_y) ** 2) / radius**2
        field += (
            np.where(z < scenario.cutoff**2, np.exp(-z / 2), 0.0) * scenario.filament_mass / (2 * np.pi * radius**2)
        )
    return field


def test_the_field_has_relative_dispersion():
    scenario = Scenario(dispersion=0.02, diffusion=0.001)
    world = played(scenario)
    state = state_of(world, 0)
    x, y = centres(scenario, 30, 40)
    expected = summed(scenario, state.filament_positions, state.filament_radii, x, y)
    assert expected.max() > 0.01
    assert_allclose(concentration_field(world, 0, 30, 40), expected, rtol=1e-9, atol=1e-15)


def test_the_two_substances_have_fields_of_their_own():
    scenario = Scenario.preset("decoy")
    world = played(scenario)
    state, lane = state_of(world, 0), world.lanes[0]
    x, y = centres(scenario, 40, 40)
    filaments = world.filaments[0][:, lane["first"] : lane["last"]]
    substances = filaments[5][~np.isnan(filaments[0])]
    assert set(substances) == {0.0, 1.0}
    for substance in (0, 1):
        of_it = substances == substance
        expected = summed(scenario, state.filament_positions[of_it], state.filament_radii[of_it], x, y)
        assert_allclose(concentration_field(world, 0, 40, 40, substance), expected, rtol=1e-9, atol=1e-15)


def test_obstacles_cast_shadows_in_the_field():
    wall = Scenario(
        obstacles=((10.0, 0.0, 0.25, 20.0),), source_at=(9.0, 10.0), success_radius=1e-3,
        start_distance_min=0.2, start_distance_max=0.8, wind_speed_sigma=0.0, wind_direction_sigma=0.0,
    )  # fmt: skip
    open_air = dataclasses.replace(wall, obstacles=())
    world = played(wall, steps=100)
    field = concentration_field(world, 0, 80, 80)
    x, y = centres(wall, 80, 80)
    state = state_of(world, 0)
    assert (state.filament_positions[:, 0] < 10.0).all()  # they stop at the wall
    unshaded = summed(open_air, state.filament_positions, state.filament_radii, x, y)
    assert unshaded[:, 42:].max() > 1e-4
    assert (field[:, 40:] == 0.0).all()
    assert_allclose(field[:, :40], unshaded[:, :40], rtol=1e-9, atol=1e-15)  # nothing hides anything before it


def test_walls_are_drawn_where_the_terrain_is_solid():
    scenario = Scenario.preset("office")
    world = played(scenario, steps=5)
    solid = terrain_of(scenario).solid[::-1]
    assert_array_equal(obstacle_map(world, 0), solid)
    frame = draw(world, 0, pixels=480)
    grey = (frame.reshape(80, 6, 80, 6, 3) == GREY).all(axis=(1, 3, 4))
    away = np.s_[20:70, :]  # from the arrow and the letters
    path = ~grey[away] & solid[away]
    assert path.sum() <= 4  # agent or source next to a wall
    assert not (grey & ~solid).any()


def test_a_mirrored_lane_shows_mirrored_obstacles_and_plume(tmp_path):
    scenario = recorded(tmp_path, recording_mirrored=True, recording_start_random=False)
    world = World(16, scenario)
    world.seed(range(16))
    world.begin()
    plain, mirrored = (int(np.flatnonzero(world.lanes["mirrored"] == turned)[0]) for turned in (0, 1))
    assert_allclose(
        concentration_field(world, plain, 20, 40), concentration_field(world, mirrored, 20, 40)[::-1], atol=1e-7
    )
    assert obstacle_map(world, plain).size == 0


def recorded(folder, **fields):
    movie = np.random.default_rng(0).random((12, 20, 40)).astype(np.float32)
    np.save(folder / "movie.npy", movie)
    return Scenario(
        recording=str(folder / "movie.npy"), recording_rate=10.0, recording_pixel=0.1, recording_wind=(0.3, 0.0),
        source_at=(0.5, 1.0), start_distance_min=1.0, start_distance_max=2.0, **fields,
    )  # fmt: skip


def test_the_field_of_a_recording_is_its_frame(tmp_path):
    scenario = recorded(tmp_path, recording_scale=0.5, recording_start_random=False)
    world = played(scenario, steps=3)
    frames = recording_of(scenario).frames
    field = concentration_field(world, 0, 20, 40)
    assert_allclose(field, 0.5 * frames[3][::-1], rtol=1e-5, atol=1e-6)
    assert (concentration_field(world, 0, 20, 40, substance=1) == 0.0).all()
    assert draw(world, 0).shape == (240, 480, 3)


@pytest.mark.parametrize(("sources", "decoys"), [(1, 0), (3, 0), (1, 2), (2, 1)])
def test_every_source_and_every_decoy_is_drawn(sources, decoys):
    world = played(Scenario(sources=sources, decoys=decoys, emission_rate=0.0), steps=1)
    lane = world.lanes[0]
    frame = draw(world, 0, pixels=480)
    places = [(lane["source_x"], lane["source_y"]), *zip(lane["others_x"], lane["others_y"], strict=True)]
    for n, (x, y) in enumerate(places[: sources + decoys]):
        column, row = round(24 * float(x)), round(24 * (20.0 - float(y)))
        near = frame[row - 5 : row + 6, column - 5 : column + 6].reshape(-1, 3)
        assert ((near == GREEN).all(axis=1).any(), (near == VIOLET).all(axis=1).any()) == (n < sources, n >= sources)


def test_the_plume_of_a_decoy_is_blue_and_that_of_a_source_red():
    scenario = Scenario.preset("decoy")
    frame = draw(played(scenario), 0).astype(int)
    world = played(scenario)
    fields = [concentration_field(world, 0, 480, 480, substance) for substance in (0, 1)]
    ink = {}
    for substance in (0, 1):
        alone = (fields[substance] > 0.1) & (fields[1 - substance] == 0.0)
        ink[substance] = np.median(frame[alone], axis=0)
    assert ink[0][0] > ink[0][2]
    assert ink[1][2] > ink[1][0]
