"""The wind around obstacles, against closed forms, another solver and the equations that it must satisfy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit

from gpf.plume import Scenario
from gpf.plume.collisions import is_solid
from gpf.plume.flow import flow_at
from gpf.plume.layout import OFFICE
from gpf.plume.obstacles import make_terrain, pack_terrains, terrain_of

BLOCK = np.zeros((12, 16), np.bool_)
BLOCK[4:8, 6:9] = True
SOLIDS = arrays(np.bool_, st.tuples(st.integers(1, 7), st.integers(1, 7)))
EXTENTS = st.floats(0.05, 5.0)


def velocities(terrain, x, y, wx=1.0, wy=0.0):
    """The velocity at points, shape (2, n)."""
    ny, nx = terrain.solid.shape
    uv = pack_terrains([terrain]).uv
    grid = (uv, 0, nx, ny, terrain.cell_x, terrain.cell_y)
    return np.array([flow_at(*grid, *place, wx, wy) for place in np.broadcast(x, y)]).T


def divergence(terrain):
    """Net outflow of each cell over its area, for both basis winds, 1/s."""
    return np.diff(terrain.u, axis=2) / terrain.cell_x + np.diff(terrain.v, axis=1) / terrain.cell_y


def assert_no_flow_into_solids(terrain):
    for row, column in np.argwhere(terrain.solid):
        assert not terrain.u[:, row, column : column + 2].any()
        assert not terrain.v[:, row : row + 2, column].any()


def dense_flow(solid, cell_x, cell_y, wx, wy):
    """The same flow from a dense matrix, cell by cell, for the potential of any wind itself."""
    ny, nx = solid.shape
    matrix, known = np.eye(nx * ny), np.zeros(nx * ny)

    def potential(i, j):
        return wx * i * cell_x + wy * j * cell_y  # of the undisturbed wind; i and j in cells

    sides = [(1, 0, cell_y / cell_x), (-1, 0, cell_y / cell_x), (0, 1, cell_x / cell_y), (0, -1, cell_x / cell_y)]
    for j, i in np.argwhere(~solid):
        equation = np.zeros(nx * ny)
        for across, up, conductance in sides:
            if not (0 <= i + across < nx and 0 <= j + up < ny):
                equation[j * nx + i] += 2 * conductance
                known[j * nx + i] += 2 * conductance * potential(i + 0.5 + across / 2, j + 0.5 + up / 2)
            elif not solid[j + up, i + across]:
                equation[j * nx + i] += conductance
                equation[(j + up) * nx + i + across] -= conductance
        matrix[j * nx + i] = equation
    phi = np.linalg.lstsq(matrix, known)[0].reshape(ny, nx)  # pockets have any constant potential
    u, v = np.zeros((ny, nx + 1)), np.zeros((ny + 1, nx))
    for j, i in np.argwhere(~solid):
        if i == 0 or not solid[j, i - 1]:
            u[j, i] = (phi[j, i] - phi[j, i - 1]) / cell_x if i else 2 * (phi[j, i] - potential(0, j + 0.5)) / cell_x
        if i == nx - 1:
            u[j, nx] = 2 * (potential(nx, j + 0.5) - phi[j, i]) / cell_x
        if j == 0 or not solid[j - 1, i]:
            v[j, i] = (phi[j, i] - phi[j - 1, i]) / cell_y if j else 2 * (phi[j, i] - potential(i + 0.5, 0)) / cell_y
        if j == ny - 1:
            v[ny, i] = 2 * (potential(i + 0.5, ny) - phi[j, i]) / cell_y
    return u, v


@given(EXTENTS, EXTENTS, st.integers(1, 9), st.integers(1, 9))
def test_without_obstacles_the_wind_is_uniform(cell_x, cell_y, nx, ny):
    terrain = make_terrain(np.zeros((ny, nx), np.bool_), cell_x, cell_y)
    np.testing.assert_allclose(terrain.u, np.stack([np.ones((ny, nx + 1)), np.zeros((ny, nx + 1))]), atol=1e-12)
    np.testing.assert_allclose(terrain.v, np.stack([np.zeros((ny + 1, nx)), np.ones((ny + 1, nx))]), atol=1e-12)
    x, y = np.random.default_rng(0).uniform(-1.0, 20.0, (2, 20))  # beyond the domain, too
    expected = [[1.5] * 20, [-0.5] * 20]
    np.testing.assert_allclose(velocities(terrain, x, y, 1.5, -0.5), expected, atol=1e-12)


@given(SOLIDS, EXTENTS, EXTENTS)
def test_any_obstacles_have_a_flow_without_divergence_that_does_not_enter_them(solid, cell_x, cell_y):
    terrain = make_terrain(solid, cell_x, cell_y)
    speed = max(1.0, abs(terrain.u).max(), abs(terrain.v).max())
    assert abs(divergence(terrain)).max() < 1e-10 * speed / min(cell_x, cell_y)
    assert_no_flow_into_solids(terrain)


@settings(max_examples=50)
@given(SOLIDS, st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0))
def test_any_wind_is_the_combination_of_the_two_basis_winds(solid, cell_x, cell_y, wx, wy):
    terrain = make_terrain(solid, cell_x, cell_y)
    u, v = dense_flow(solid, cell_x, cell_y, wx, wy)
    np.testing.assert_allclose(wx * terrain.u[0] + wy * terrain.u[1], u, atol=1e-10)
    np.testing.assert_allclose(wx * terrain.v[0] + wy * terrain.v[1], v, atol=1e-10)


@pytest.mark.parametrize("cell", [0.25, 0.1])
def test_the_flow_through_the_office_has_no_divergence(cell):
    terrain = terrain_of(Scenario(obstacles=OFFICE, obstacle_cell=cell))
    assert abs(divergence(terrain)).max() < 1e-10
    assert_no_flow_into_solids(terrain)


def test_the_interpolated_velocity_has_no_divergence_inside_cells():
    terrain = terrain_of(Scenario(obstacles=OFFICE))
    rng = np.random.default_rng(0)
    rows, columns = np.argwhere(~terrain.solid)[rng.integers(0, (~terrain.solid).sum(), 300)].T
    x = (columns + rng.uniform(0.1, 0.9, 300)) * terrain.cell_x
    y = (rows + rng.uniform(0.1, 0.9, 300)) * terrain.cell_y
    h = 0.05 * terrain.cell_x
    east, west = (velocities(terrain, x + side, y, 0.8, -0.6)[0] for side in (h, -h))
    north, south = (velocities(terrain, x, y + side, 0.8, -0.6)[1] for side in (h, -h))
    assert abs((east - west) / (2 * h)).max() > 1.0  # parts of it do not vanish
    assert abs((east - west + north - south) / (2 * h)).max() < 1e-10


def test_the_interpolated_velocity_is_that_of_faces_on_faces_and_their_mean_between():
    terrain = make_terrain(BLOCK, 0.5, 0.25)
    for j, i in ((0, 0), (2, 7), (9, 15)):
        y = (j + 0.3) * 0.25
        left, right = terrain.u[0, j, i : i + 2]
        at = velocities(terrain, [i * 0.5, (i + 0.5) * 0.5, (i + 1 - 1e-12) * 0.5], y)[0]
        np.testing.assert_allclose(at, [left, (left + right) / 2, right], atol=1e-10)
        lower, upper = terrain.v[0, j : j + 2, i]
        at = velocities(terrain, (i + 0.3) * 0.5, [j * 0.25, (j + 0.5) * 0.25, (j + 1 - 1e-12) * 0.25])[1]
        np.testing.assert_allclose(at, [lower, (lower + upper) / 2, upper], atol=1e-10)


def test_the_normal_velocity_vanishes_at_the_faces_of_a_block():
    terrain = make_terrain(BLOCK, 0.5, 0.25)
    along = np.linspace(3.01, 4.49, 20)
    below, above = (velocities(terrain, along, y, 0.3, 1.0)[1] for y in (1.0 - 1e-13, 2.0 + 1e-13))
    np.testing.assert_allclose([below, above], 0.0, atol=1e-11)
    up = np.linspace(1.01, 1.99, 20)
    before, behind = (velocities(terrain, x, up, 1.0, 0.3)[0] for x in (3.0 - 1e-13, 4.5 + 1e-13))
    np.testing.assert_allclose([before, behind], 0.0, atol=1e-11)


def test_as_much_air_flows_through_every_section_of_a_channel():
    channel = np.zeros((14, 30), np.bool_)
    channel[[0, -1]] = True  # walls along the wind
    channel[1:6, 8:11] = channel[9:13, 18:20] = True
    terrain = make_terrain(channel, 0.3, 0.2)
    flux = terrain.u[0].sum(axis=0) * terrain.cell_y
    np.testing.assert_allclose(flux, flux[0], rtol=1e-12)
    assert 0.2 < flux[0] < 12 * 0.2  # less than without obstacles
    assert not terrain.v[:, [0, -1]].any()  # nothing through the walls


def test_a_straight_channel_does_not_change_the_wind():
    channel = np.zeros((5, 9), np.bool_)
    channel[[0, -1]] = True
    terrain = make_terrain(channel, 0.3, 0.2)
    np.testing.assert_allclose(terrain.u[0, 1:-1], 1.0, atol=1e-14)


def test_the_flow_around_a_disc_is_that_of_the_textbook():
    """u - iv = 1 - R^2 / z^2 for a wind of 1 m/s.

    A disc made of cells has steps, which disturb the flow within a few cells of them; and the edges of the domain, ten
    radii away, add about R^2 / L^2 = 1 %. So: 6 % anywhere four cells off, 1.2 % in the mean, 15 % next to the flanks.
    """
    cell, radius, half = 0.1, 1.0, 10.0
    centres, faces = (np.arange(200) + 0.5) * cell - half, np.arange(201) * cell - half
    solid = np.hypot(centres, centres[:, None]) < radius
    terrain = make_terrain(solid, cell, cell)
    on_u, on_v = faces + 1j * centres[:, None], centres + 1j * faces[:, None]  # where u and v are, from the centre
    errors = []
    for found, where, part in ((terrain.u[0], on_u, np.real), (terrain.v[0], on_v, lambda w: -np.imag(w))):
        outside = abs(where) > radius + 4 * cell
        errors.append(found[outside] - part(1.0 - radius**2 / where[outside] ** 2))
    errors = np.concatenate(errors)
    assert abs(errors).max() < 0.06
    assert np.sqrt((errors**2).mean()) < 0.012
    for row in (89, 110):  # just below and just above it
        assert not solid[row, 100]
        assert solid[row + (1 if row < 100 else -1), 100]
        np.testing.assert_allclose(terrain.u[0, row, 100], 1.0 + radius**2 / centres[row] ** 2, rtol=0.15)  # 1.9
    column = int(np.argmax(solid[100]))
    assert terrain.u[0, 100, column] == 0.0  # the stagnation point, before which the wind slows down
    np.testing.assert_allclose(terrain.u[0, 100, column - 10], 1.0 - radius**2 / (10 * cell + radius) ** 2, rtol=0.05)
    assert (np.diff(terrain.u[0, 100, : column + 1]) < 0.0).all()


def test_mirrored_obstacles_have_mirrored_flows():
    solid = np.random.default_rng(3).random((9, 11)) < 0.3
    one = make_terrain(solid, 0.5, 0.25)
    mirrored = make_terrain(solid[:, ::-1], 0.5, 0.25)
    np.testing.assert_allclose(mirrored.u[0], one.u[0][:, ::-1], atol=1e-12)
    np.testing.assert_allclose(mirrored.v[0], -one.v[0][:, ::-1], atol=1e-12)
    turned = make_terrain(solid.T, 0.25, 0.5)  # x and y exchanged
    np.testing.assert_allclose(turned.u[::-1], one.v.transpose(0, 2, 1), atol=1e-12)
    np.testing.assert_allclose(turned.v[::-1], one.u.transpose(0, 2, 1), atol=1e-12)


def test_the_flow_around_a_symmetric_block_is_symmetric():
    block = np.zeros((10, 14), np.bool_)
    block[4:6, 5:9] = True
    u, v = make_terrain(block, 0.2, 0.2).u[0], make_terrain(block, 0.2, 0.2).v[0]
    np.testing.assert_allclose(u, u[::-1], atol=1e-12)
    np.testing.assert_allclose(u, u[:, ::-1], atol=1e-12)
    np.testing.assert_allclose(v, -v[::-1], atol=1e-12)
    assert v[6, 4] > 0.05  # up before the block, and down behind it
    assert v[6, 9] < -0.05


def test_enclosed_air_is_still():
    solid = np.zeros((11, 11), np.bool_)
    solid[3:8, 3:8] = True
    solid[4:7, 4:7] = False
    terrain = make_terrain(solid, 0.25, 0.25)
    assert not terrain.u[:, 4:7, 3:9].any()
    assert not terrain.v[:, 3:9, 4:7].any()
    assert terrain.u[0, 5, 0] > 0.1  # though there is wind outside
    assert not make_terrain(np.pad(np.zeros((3, 3), np.bool_), 1, constant_values=True), 1.0, 1.0).u.any()


def test_a_wall_across_the_domain_stops_the_wind_at_it():
    wall = np.zeros((10, 10), np.bool_)
    wall[:, 5] = True
    terrain = make_terrain(wall, 0.5, 0.5)
    assert not terrain.u[:, :, 5:7].any()
    assert np.isfinite(terrain.u).all()
    assert terrain.u[0, 5, 0] > 0.05  # it goes up and down in front of it
    assert terrain.v[0, -1, 4] > 0.05
    np.testing.assert_allclose(terrain.v[1, :, 4], 1.0, atol=1e-12)  # along the wall it blows as ever


@njit
def _carried(uv, solid, nx, ny, cell_x, cell_y, x, y, time_step, steps):
    """Tracers carried by a wind along +x, by small steps; how often one was in an obstacle."""
    entered = 0
    for _ in range(steps):
        for k in range(len(x)):
            if 0.0 <= x[k] <= nx * cell_x and 0.0 <= y[k] <= ny * cell_y:
                ux, uy = flow_at(uv, 0, nx, ny, cell_x, cell_y, x[k], y[k], 1.0, 0.0)
                x[k] += ux * time_step
                y[k] += uy * time_step
                entered += is_solid(solid, 0, nx, ny, cell_x, cell_y, x[k], y[k])
    return entered


def test_tracers_go_around_a_block_and_leave_downwind():
    packed = pack_terrains([make_terrain(BLOCK, 0.5, 0.5)])
    grid = (packed.uv, packed.solid, 16, 12, 0.5, 0.5)
    before = np.linspace(2.05, 3.95, 200)  # those that would hit the block in a straight line
    x, y = np.full(200, 0.01), before.copy()
    beside = np.zeros(200, np.bool_)
    for _ in range(40):  # s
        assert _carried(*grid, x, y, 0.01, 100) == 0
        here = (x > 3.0) & (x < 4.5)
        assert ((y[here] < 2.0) | (y[here] > 4.0)).all()
        beside |= here
    assert beside.mean() > 0.9  # all but those that passed within a second
    left = x > 8.0
    assert left.mean() > 0.98  # all but those that stay before the stagnation point
    np.testing.assert_allclose(y[left], before[left], atol=0.15)  # streamlines of a symmetric block return


def test_tracers_in_the_office_stay_out_of_walls():
    terrain = terrain_of(Scenario(obstacles=OFFICE))
    packed = pack_terrains([terrain])
    y = np.linspace(0.05, 19.95, 300)
    x = np.full(300, 0.01)
    assert _carried(packed.uv, packed.solid, 80, 80, 0.25, 0.25, x, y, 0.02, 5000) == 0
    assert (x > 20.0).mean() > 0.5  # the others leave by the sides, or dawdle along walls
