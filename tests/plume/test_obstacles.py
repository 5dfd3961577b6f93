"""Obstacles as users give them, the cells that they fill, and which places connect."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpf.plume import Scenario
from gpf.plume.layout import MOST_CELLS, OFFICE, grid_shape, solid_cells
from gpf.plume.obstacles import TERRAIN_ROW, check_reachable, make_terrain, pack_terrains, reachable, terrain_of

SOLIDS = arrays(np.bool_, st.tuples(st.integers(1, 8), st.integers(1, 8)))
RECTANGLES = st.lists(
    st.tuples(st.floats(-1.0, 9.0), st.floats(-1.0, 7.0), st.floats(1.1, 12.0), st.floats(1.1, 12.0)), max_size=4
)


def rows(*text):
    """Cells drawn as text, top row first."""
    return np.array([[mark == "#" for mark in row] for row in reversed(text)])


def filled(solid):
    """Solid cells as text, top row first."""
    return ["".join(".#"[one] for one in row) for row in solid[::-1].astype(int)]


def flooded(solid, row, column):
    """The free cells to which one can walk from a cell, one neighbour after the other."""
    found, waiting = np.zeros(solid.shape, np.bool_), [(row, column)]
    while waiting:
        j, i = waiting.pop()
        if 0 <= j < solid.shape[0] and 0 <= i < solid.shape[1] and not solid[j, i] and not found[j, i]:
            found[j, i] = True
            waiting += [(j + 1, i), (j - 1, i), (j, i + 1), (j, i - 1)]
    return found


# As users give them


@given(RECTANGLES)
def test_rectangles_survive_json_and_dictionaries(rectangles):
    scenario = Scenario(width=25.0, height=8.0, obstacles=rectangles)
    assert Scenario.from_json(scenario.to_json()) == scenario
    assert Scenario.of(json.loads(scenario.to_json())) == scenario
    assert hash(Scenario.of(json.loads(scenario.to_json()))) == hash(scenario)
    assert scenario.obstacles == tuple(rectangles)


def test_rectangles_may_be_lists_or_an_array_and_become_plain_numbers():
    scenario = Scenario(obstacles=np.array([[2, 3, 1, 4], [6, 0, 0.25, 8]]))
    assert scenario == Scenario(obstacles=[[2, 3, 1, 4], (6, 0, 0.25, 8)])
    assert {type(number) for rectangle in scenario.obstacles for number in rectangle} == {float}


def test_an_occupancy_grid_survives_json():
    scenario = Scenario(occupancy=["..#", "..."])
    assert Scenario.from_json(scenario.to_json()) == scenario
    assert scenario.occupancy == ("..#", "...")
    assert hash(scenario) != hash(Scenario())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"obstacles": 3}, "obstacles must be a list of rectangles, got 3"),
        ({"obstacles": "2,3,1,4"}, "obstacles must be a list of rectangles, got '2,3,1,4'"),
        ({"obstacles": {}}, "obstacles must be a list of rectangles, got {}"),
        ({"obstacles": [2, 3, 1, 4]}, "obstacles must be rectangles of four numbers, x, y, width and height, got 2"),
        *(
            ({"obstacles": [one]}, f"obstacles must be rectangles of four numbers, x, y, width and height, got {one}")
            for one in ([1, 2, 3], [1] * 5, [1, 2, 3, "4"], [1, 2, 3, None], [True, 2, 3, 4], [1, 2, 3, math.inf])
        ),
        ({"obstacles": [[1, 2, 0, 4]]}, "obstacles must have positive width and height, got (1.0, 2.0, 0.0, 4.0)"),
        ({"obstacles": [[1, 2, 3, -4]]}, "obstacles must have positive width and height, got (1.0, 2.0, 3.0, -4.0)"),
        *(
            (
                {"obstacles": [[5, 5, 1, 1], place]},
                f"obstacles must overlap the domain, x from 0 to 20 m and y from 0 to 20 m, got {tuple(place)}",
            )
            for place in ([20.0, 1.0, 2.0, 2.0], [1.0, 20.0, 2.0, 2.0], [-2.0, 1.0, 2.0, 2.0], [1.0, -3.0, 2.0, 3.0])
        ),
        ({"obstacles": [[-1, -1, 30, 30]]}, "obstacles must leave a part of the domain free"),
        (
            {"obstacles": [[1, 1, 1, 1]], "obstacle_cell": 0.05},
            "obstacle_cell must give at most 40,000 cells, got 0.05 m for 160,000",
        ),
        ({"obstacle_cell": 0}, "obstacle_cell must be at least 0.001, got 0"),
        ({"occupancy": "..#"}, "occupancy must be rows of # and . of equal length, got '..#'"),
        ({"occupancy": ["..#", ".."]}, "occupancy must be rows of # and . of equal length, got ['..#', '..']"),
        ({"occupancy": ["..#", "..x"]}, "occupancy must be rows of # and . of equal length, got ['..#', '..x']"),
        ({"occupancy": [""]}, "occupancy must be rows of # and . of equal length, got ['']"),
        ({"occupancy": [1]}, "occupancy must be rows of # and . of equal length, got [1]"),
        ({"occupancy": ["##", "##"]}, "occupancy must leave a part of the domain free"),
        ({"occupancy": ["." * 500] * 500}, "obstacle_cell must give at most 40,000 cells, got 0.25 m for 250,000"),
        ({"occupancy": ["#."], "obstacles": [[1, 1, 1, 1]]}, "obstacles and occupancy must not both be given"),
    ],
)  # fmt: skip
def test_wrong_obstacles_are_refused_in_a_sentence(values, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared whole
        Scenario.of(values)
    assert str(error.value) == message


def test_a_number_too_large_is_refused():
    with pytest.raises(ValueError, match="^obstacles must be rectangles of four numbers"):
        Scenario(obstacles=[[1, 2, 3, 10**400]])


def test_small_cells_are_accepted_where_there_are_no_obstacles():
    assert terrain_of(Scenario(obstacle_cell=1e-3)) is None


# Cells


@pytest.mark.parametrize(
    ("rectangle", "picture"),
    [
        ((1.0, 1.0, 2.0, 1.0), ["....", ".##.", "...."]),
        ((0.6, 1.4, 2.0, 1.0), ["....", ".##.", "...."]),  # edges move to the nearest faces
        ((1.2, 0.0, 0.1, 3.0), [".#..", ".#..", ".#.."]),  # thinner than a cell
        ((1.9, 0.0, 0.15, 3.0), [".#..", ".#..", ".#.."]),
        ((-5.0, -5.0, 6.0, 6.0), ["....", "....", "#..."]),  # partly outside
        ((3.99, 2.99, 5.0, 5.0), ["...#", "....", "...."]),  # a sliver inside
        ((math.nextafter(4.0, 0.0), 1.0, 1.0, 1.0), ["....", "...#", "...."]),  # the thinnest
    ],
)
def test_rectangles_fill_cells(rectangle, picture):
    assert filled(solid_cells(4.0, 3.0, 1.0, (rectangle,), ())) == picture


@given(st.integers(0, 200), st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.1, 0.2, 0.25, 0.3]))
@example(6, 7, 10, 0.2)  # 0.6 + 0.7 is less than 1.3, the middle of a cell, by rounding
def test_rectangles_that_touch_leave_no_gap(begin, first, second, cell):
    """In tenths of a metre, so that sums of the numbers are not exact."""
    x, wide, next_x, more = begin / 10, first / 10, (begin + first) / 10, second / 10
    solid = solid_cells(30.0, 2.0, cell, ((x, 0.0, wide, 2.0), (next_x, 0.0, more, 2.0)), ())
    columns = np.flatnonzero(solid[0])
    assert (np.diff(columns) == 1).all()


@given(st.floats(0.5, 30.0), st.floats(0.5, 30.0), st.floats(0.1, 3.0), st.integers(1, 6), st.integers(1, 6))
def test_cells_are_no_larger_than_asked_and_divide_the_grid_evenly(width, height, cell, columns, tall):
    for occupancy in ((), ("." * columns,) * tall):
        ny, nx = grid_shape(width, height, cell, occupancy)
        for extent, count, parts in ((width, nx, columns), (height, ny, tall)):
            assert extent / count <= cell * (1 + 1e-6)
            assert count % (parts if occupancy else 1) == 0
            per_part = extent / (parts if occupancy else 1)
            assert count == 1 or extent / count > min(cell, per_part) / 2 * (1 - 1e-6)  # and not needlessly small


def test_an_extent_of_whole_cells_is_divided_into_these():
    assert 2.1 / 0.3 > 7.0  # by rounding
    assert grid_shape(2.1, 0.6, 0.3, ()) == (2, 7)


def test_an_occupancy_grid_is_stretched_over_the_domain_top_row_first():
    terrain = terrain_of(Scenario(width=6.0, height=4.0, occupancy=("#..", "..#"), obstacle_cell=1.0))
    assert filled(terrain.solid) == ["##....", "##....", "....##", "....##"]
    assert (terrain.cell_x, terrain.cell_y) == (1.0, 1.0)
    fine = tuple("".join("#" if i == j else "." for i in range(60)) for j in range(60))
    assert terrain_of(Scenario(width=6.0, height=6.0, occupancy=fine)).solid.shape == (60, 60)  # its own cells


def test_a_scenario_without_obstacles_has_no_terrain():
    assert terrain_of(Scenario()) is None
    assert terrain_of(Scenario(occupancy=("..", ".."))) is None


def test_scenarios_with_the_same_obstacles_share_a_terrain():
    scenario = Scenario(obstacles=OFFICE)
    terrain = terrain_of(scenario)
    assert terrain_of(dataclasses.replace(scenario, wind_speed=2.0)) is terrain
    assert terrain_of(dataclasses.replace(scenario, obstacle_cell=0.5)) is not terrain
    for array in (terrain.solid, terrain.labels, terrain.u, terrain.v):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_cells_of_a_caller_are_copied():
    solid = rows("..", ".#")
    terrain = make_terrain(solid, 1.0, 1.0)
    solid[:] = True
    assert not terrain.solid.all()


def test_the_grid_may_be_as_large_as_the_limit():
    scenario = Scenario(obstacles=((1.0, 1.0, 1.0, 1.0),), obstacle_cell=0.1)
    assert grid_shape(20.0, 20.0, scenario.obstacle_cell, ()) == (200, 200)
    assert MOST_CELLS == 200 * 200


# Ways


@given(SOLIDS)
def test_labels_are_the_parts_that_a_flood_fills(solid):
    labels = make_terrain(solid, 1.0, 1.0).labels
    assert labels.dtype == np.int32
    assert ((labels == 0) == solid).all()
    for row, column in np.argwhere(~solid):
        assert ((labels == labels[row, column]) == flooded(solid, row, column)).all()


@given(SOLIDS, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_reachable_cells_are_those_that_a_flood_fills(solid, across, up):
    terrain = make_terrain(solid, 0.5, 0.25)
    ny, nx = solid.shape
    row, column = min(int(up * ny), ny - 1), min(int(across * nx), nx - 1)
    place = (column + 0.5) * 0.5, (row + 0.5) * 0.25
    assert (reachable(terrain, place) == flooded(solid, row, column)).all()


def test_places_that_do_not_work_are_refused_in_a_sentence():
    terrain = make_terrain(rows("...", "###", "..#"), 1.0, 1.0)
    check_reachable(terrain, (0.5, 0.5), (1.5, 0.5))
    check_reachable(terrain, (0.5, 2.5))
    for places, message in (
        (((0.5, 1.5), (0.5, 0.5)), "source must not be in an obstacle, got [0.5, 1.5]"),
        (((0.5, 1.5),), "source must not be in an obstacle, got [0.5, 1.5]"),
        (((0.5, 0.5), (2.5, 0.5)), "position must not be in an obstacle, got [2.5, 0.5]"),
        (
            (np.array([0.5, 0.5]), np.array([0.5, 2.5])),
            "position must have a way to the source at [0.5, 0.5] between the obstacles, got [0.5, 2.5]",
        ),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared whole
            check_reachable(terrain, *places, where=" in lane 3")
        assert str(error.value) == message + " in lane 3"


# In flat arrays


def test_packed_terrains_hold_everything_one_after_the_other():
    terrains = [make_terrain(rows("..#", "..."), 0.5, 0.25), make_terrain(rows("#.", "..", ".#"), 1.0, 2.0)]
    packed = pack_terrains(terrains)
    assert packed.table.dtype == TERRAIN_ROW
    assert (packed.solid.dtype, packed.labels.dtype, packed.uv.dtype) == (np.uint8, np.int32, np.float64)
    cells = faces = 0
    for row, terrain in zip(packed.table, terrains, strict=True):
        ny, nx = terrain.solid.shape
        assert (row["cells"], row["faces"], row["nx"], row["ny"]) == (cells, faces, nx, ny)
        assert (row["cell_x"], row["cell_y"]) == (terrain.cell_x, terrain.cell_y)
        here = slice(cells, cells + nx * ny)
        assert (packed.solid[here].reshape(ny, nx) == terrain.solid).all()
        assert (packed.labels[here].reshape(ny, nx) == terrain.labels).all()
        for velocity in (terrain.u, terrain.v):
            block = packed.uv[faces : faces + velocity.size].reshape(*velocity.shape[1:], 2)
            assert (block[..., 0] == velocity[0]).all()
            assert (block[..., 1] == velocity[1]).all()
            faces += velocity.size
        cells += nx * ny
    assert (len(packed.solid), len(packed.uv)) == (cells, faces)


def test_no_terrains_are_empty_arrays():
    packed = pack_terrains([])
    assert [len(array) for array in packed] == [0, 0, 0, 0]
    assert (packed.solid.dtype, packed.labels.dtype, packed.uv.dtype) == (np.uint8, np.int32, np.float64)


# The office


def test_every_place_in_the_office_can_be_reached():
    terrain = terrain_of(Scenario(obstacles=OFFICE))
    assert (reachable(terrain, (2.0, 2.0)) == ~terrain.solid).all()
    assert 0.05 < terrain.solid.mean() < 0.15


def test_the_wind_blows_in_at_the_windows_of_the_office_and_out_on_the_other_side():
    terrain = terrain_of(Scenario(obstacles=OFFICE))

    def through(x, low, high):
        """Mean velocity along x in an opening."""
        return terrain.u[0, round(low / 0.25) : round(high / 0.25), round(x / 0.25)].mean()

    openings = [(1.0, 3.75, 6.25), (1.0, 11.75, 14.25), (8.0, 3.75, 5.75), (8.0, 13.0, 15.0), (19.0, 4.25, 6.75)]
    assert all(1.0 < through(*opening) < 3.0 for opening in [*openings, (19.0, 12.25, 14.75)])
