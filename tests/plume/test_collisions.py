"""Motion and sight among obstacles, against walkers that take tiny steps and against lines sampled densely."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit

from gpf.plume import Scenario
from gpf.plume.collisions import blocked_move, is_free_and_reachable, is_solid, line_of_sight
from gpf.plume.layout import OFFICE
from gpf.plume.obstacles import make_terrain, pack_terrains, terrain_of

CELL_X, CELL_Y = 1.0, 0.75
NX, NY = 6, 5
WIDTH, HEIGHT = NX * CELL_X, NY * CELL_Y
STEPS = 3000
CLEARANCE = 0.01
"""How far from corners of cells, m, the segments stay for which oracles of finite steps are right."""


def rows(*text):
    """Cells drawn as text, top row first."""
    return np.array([[mark == "#" for mark in row] for row in reversed(text)])


def flat(solid):
    return solid.astype(np.uint8).ravel()


def moved(solid, x, y, dx, dy, slide=False):
    ny, nx = solid.shape
    extents = (CELL_X, CELL_Y, nx * CELL_X, ny * CELL_Y)
    return blocked_move(flat(solid), 0, nx, ny, *extents, x, y, dx, dy, slide)


def sees(solid, x0, y0, x1, y1):
    return line_of_sight(flat(solid), 0, solid.shape[1], solid.shape[0], CELL_X, CELL_Y, x0, y0, x1, y1)


def is_free(solid, x, y):
    """Whether cells are free at points; the nearest cell counts outside the domain."""
    columns = np.searchsorted(np.arange(1, solid.shape[1]) * CELL_X, x, side="right")
    return ~solid[np.searchsorted(np.arange(1, solid.shape[0]) * CELL_Y, y, side="right"), columns]


def stroll(solid, x, y, dx, dy, slide):
    """Move by tiny steps; what leads into a solid cell ends for good: all motion, or its component (`slide`)."""
    share = np.linspace(0.0, 1.0, STEPS + 1)
    way_x, way_y = x + share * dx, y + share * dy
    clear = is_free(solid, way_x, way_y)
    if not slide:
        clear &= (way_x >= 0) & (way_x <= WIDTH) & (way_y >= 0) & (way_y <= HEIGHT)
    if clear.all():
        return way_x[-1], way_y[-1], False
    last = int(np.argmin(clear)) - 1
    if not slide:
        return way_x[last], way_y[last], True
    rest_x, rest_y = way_x[last + 1 :], way_y[last + 1 :]
    if is_free(solid, rest_x[0], way_y[last]):  # it is y that is blocked
        ahead = is_free(solid, rest_x, way_y[last])
        return rest_x[-1 if ahead.all() else np.argmin(ahead) - 1], way_y[last], True
    ahead = is_free(solid, way_x[last], rest_y)
    return way_x[last], rest_y[-1 if ahead.all() else np.argmin(ahead) - 1], True


def misses_corners(x, y, dx, dy):
    """Whether a segment keeps clear of all corners of cells."""
    corner_x, corner_y = np.meshgrid(np.arange(NX + 1) * CELL_X, np.arange(NY + 1) * CELL_Y)
    length = math.hypot(dx, dy)
    if length == 0.0:
        return True
    share = np.clip(((corner_x - x) * dx + (corner_y - y) * dy) / length**2, 0.0, 1.0)
    return np.hypot(x + share * dx - corner_x, y + share * dy - corner_y).min() > CLEARANCE


@st.composite
def segments(draw):
    """Solid cells, a point in a free one, and a displacement of up to some cells."""
    solid = draw(arrays(np.bool_, (NY, NX), elements=st.sampled_from([False, False, True])))
    row, column = draw(st.tuples(st.integers(0, NY - 1), st.integers(0, NX - 1)))
    solid[row, column] = False
    share = st.floats(0.02, 0.98)
    x, y = (column + draw(share)) * CELL_X, (row + draw(share)) * CELL_Y
    dx, dy = (draw(st.floats(-4.0, 4.0).map(lambda number: round(number, 9))) for _ in range(2))
    assume(misses_corners(x, y, dx, dy))
    return solid, x, y, dx, dy


@settings(max_examples=150)
@given(segments(), st.booleans())
def test_a_move_ends_where_one_of_tiny_steps_does(segment, slide):
    solid, x, y, dx, dy = segment
    end_x, end_y, bumped = moved(*segment, slide)
    oracle_x, oracle_y, oracle_bumped = stroll(*segment, slide)
    assert (end_x, end_y) == pytest.approx((oracle_x, oracle_y), abs=2 * 4.0 / STEPS)
    near_a_face = min(abs(end_x / CELL_X - round(end_x / CELL_X)), abs(end_y / CELL_Y - round(end_y / CELL_Y))) < 1e-3
    assert bumped == oracle_bumped or near_a_face  # where the last tiny step decides


@settings(max_examples=300)
@given(segments())
def test_sight_ends_at_obstacles(segment):
    solid, x, y, dx, dy = segment
    assume(0 <= x + dx <= WIDTH)
    assume(0 <= y + dy <= HEIGHT)
    share = np.linspace(0.0, 1.0, STEPS)
    sampled = is_free(solid, x + share * dx, y + share * dy).all()
    assert sees(solid, x, y, x + dx, y + dy) == sampled
    assert sees(solid, x + dx, y + dy, x, y) == sampled


@given(segments())
def test_a_move_that_meets_nothing_is_made_in_full(segment):
    solid, x, y, dx, dy = segment
    assume(0 <= x + dx <= WIDTH)
    assume(0 <= y + dy <= HEIGHT)
    clear = sees(solid, x, y, x + dx, y + dy)
    for slide in (False, True):
        end_x, end_y, bumped = moved(*segment, slide)
        assert bumped != clear
        assert not clear or (end_x, end_y) == (x + dx, y + dy)


ROOM = rows(
    "######",
    "#....#",
    "#..#.#",
    "#....#",
    "######",
)


@pytest.mark.parametrize(
    ("move", "slide", "end", "bumped"),
    [
        ((0.25, 0.0), False, (1.75, 1.125), False),
        ((-0.75, 0.0), False, (1.0, 1.125), True),
        ((-7.5, 0.0), False, (1.0, 1.125), True),  # through the wall and out of the domain
        ((30.0, 0.0), False, (5.0, 1.125), True),
        ((-1.0, 0.5), False, (1.0, 1.375), True),
        ((-1.0, 0.5), True, (1.0, 1.625), True),
        ((0.5, -1.0), True, (2.0, 0.75), True),
        ((20.0, -20.0), True, (5.0, 0.75), True),  # into the corner
        ((1.0, 0.75), False, (2.5, 1.875), False),
        ((3.0, 0.5), False, (3.75, 1.5), True),  # the pillar, from below
        ((3.0, 0.5), True, (4.5, 1.5), True),
        ((2.0, 1.0), False, (3.0, 1.875), True),  # and from the side
        ((2.0, 1.0), True, (3.0, 2.125), True),
        ((0.0, 0.0), False, (1.5, 1.125), False),
    ],
)
def test_moves_in_a_room_worked_by_hand(move, slide, end, bumped):
    """From (1.5, 1.125); room: x from 1 to 5 and y from 0.75 to 3, pillar: x from 3 to 4 and y from 1.5 to 2.25."""
    x, y, was_bumped = moved(ROOM, 1.5, 1.125, *move, slide)
    assert (x, y) == pytest.approx(end, abs=1e-8)
    assert was_bumped == bumped
    assert is_free(ROOM, x, y)


def test_edges_of_the_domain_stop_an_agent_and_let_filaments_out():
    empty = np.zeros((NY, NX), np.bool_)
    assert moved(empty, 5.0, 2.0, 2.0, 1.0) == (6.0, 2.5, True)
    assert moved(empty, 1.0, 2.0, -4.0, 1.0) == (0.0, 2.25, True)
    assert moved(empty, 1.0, 3.0, 1.0, 1.5) == (1.5, 3.75, True)
    assert moved(empty, 1.0, 1.0, 0.5, -2.0) == (1.25, 0.0, True)
    assert moved(empty, 6.0, 3.75, 0.1, 0.1) == (6.0, 3.75, True)
    assert moved(empty, 6.0, 3.75, -0.5, 0.0) == (5.5, 3.75, False)  # it can leave the corner
    assert moved(empty, 5.0, 2.0, 1.0, 0.0) == (6.0, 2.0, False)  # just as far as the edge
    assert moved(empty, 0.0, 2.0, -1e-16, 0.5) == (0.0, 2.5, False)  # along an edge, but for rounding
    assert moved(empty, 5.0, 2.0, 2.0, 1.0, slide=True) == (7.0, 3.0, False)
    assert moved(empty, 1.0, 2.0, -4.0, -9.0, slide=True) == (-3.0, -7.0, False)


def test_an_obstacle_at_the_edge_stops_what_would_leave_through_it():
    wall = np.zeros((NY, NX), np.bool_)
    wall[:, -1] = True
    assert moved(wall, 4.5, 2.0, 20.0, 0.0)[0] == pytest.approx(5.0, abs=1e-8)
    assert moved(wall, 4.5, 2.0, 20.0, 0.0, slide=True)[0] == pytest.approx(5.0, abs=1e-8)


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize(("x", "y", "dx", "dy"), [(0.5, 0.25, 1.0, 1.0), (1.5, 1.25, -1.0, -1.0)])
def test_nothing_squeezes_through_where_two_obstacles_touch_at_a_corner(x, y, dx, dy, slide):
    corner = rows("#.", ".#")
    extents = (1.0, 0.75, 2.0, 1.5)
    to_corner = (1.0 - x) / dx * dx, (0.75 - y) / dy * dy  # the segment goes exactly through the corner
    x1, y1, bumped = blocked_move(flat(corner), 0, 2, 2, *extents, x, y, 2 * to_corner[0], 2 * to_corner[1], slide)
    assert bumped
    assert (x1 < 1.0, y1 < 0.75) == (x < 1.0, y < 0.75)
    assert not sees(corner, x, y, x + 2 * to_corner[0], y + 2 * to_corner[1])


def test_what_is_in_an_obstacle_is_not_seen_but_may_leave_it():
    solid = rows("...", ".#.", "...")
    assert not sees(solid, 1.5, 1.1, 1.6, 1.1)
    assert not sees(solid, 1.5, 1.1, 2.5, 1.1)
    assert not sees(solid, 2.5, 1.1, 1.5, 1.1)
    assert moved(solid, 1.5, 1.1, 1.0, 0.0) == (2.5, 1.1, False)


def test_a_filament_that_has_ended_stays_so():
    x, _, _ = moved(ROOM, math.nan, 1.125, 0.1, 0.1, slide=True)
    assert math.isnan(x)


def test_kernels_find_their_terrain_among_others():
    small, office = make_terrain(ROOM, CELL_X, CELL_Y), terrain_of(Scenario(obstacles=OFFICE))
    packed = pack_terrains([office, small, office])
    for row, terrain in zip(packed.table, [office, small, office], strict=True):
        grid = (row["cells"], row["nx"], row["ny"], row["cell_x"], row["cell_y"])
        width, height = row["nx"] * row["cell_x"], row["ny"] * row["cell_y"]
        centres = [((i + 0.5) * row["cell_x"], (j + 0.5) * row["cell_y"]) for j, i in np.ndindex(terrain.solid.shape)]
        assert [is_solid(packed.solid, *grid, *place) for place in centres] == terrain.solid.ravel().tolist()
        end = blocked_move(packed.solid, *grid, width, height, 2.1, 2.1, 40.0, 0.0, False)
        alone = blocked_move(flat(terrain.solid), 0, *grid[1:], width, height, 2.1, 2.1, 40.0, 0.0, False)
        assert end == alone
        assert end[2]
        sights = [line_of_sight(packed.solid, *grid, 2.1, 2.1, x, 2.1) for x in (end[0], end[0] + row["cell_x"])]
        assert sights == [True, False]


def test_a_place_is_good_for_a_start_if_there_is_a_way_to_the_source():
    terrain = make_terrain(rows("...", "###", ".#."), CELL_X, CELL_Y)
    packed = pack_terrains([make_terrain(ROOM, CELL_X, CELL_Y), terrain])
    grid = (packed.labels, packed.table[1]["cells"], 3, 3, CELL_X, CELL_Y)
    assert is_free_and_reachable(*grid, 0.5, 2.0, 2.5, 2.0)
    assert not is_free_and_reachable(*grid, 0.5, 0.5, 2.5, 2.0)  # beyond the wall
    assert not is_free_and_reachable(*grid, 0.5, 0.5, 2.5, 0.5)
    assert not is_free_and_reachable(*grid, 1.5, 0.5, 1.5, 0.5)  # in an obstacle, though it is the same one
    assert is_free_and_reachable(*grid, 3.0, 0.0, 2.5, 0.5)  # the corner of the domain belongs to its cell


@njit
def _wander(solid, labels, nx, ny, cell_x, cell_y, x, y, longest, draws, slide):
    """A random walk of round and of any headings; how often it was in an obstacle or on the other side of one."""
    wrong = bumps = 0
    width, height = nx * cell_x, ny * cell_y
    for n in range(len(draws)):
        heading = 2.0 * math.pi * draws[n, 0]
        if n % 2:
            heading = math.pi / 4.0 * math.floor(8.0 * draws[n, 0])
        length = longest * draws[n, 1] ** 3
        dx, dy = length * math.cos(heading), length * math.sin(heading)
        new_x, new_y, bumped = blocked_move(solid, 0, nx, ny, cell_x, cell_y, width, height, x, y, dx, dy, slide)
        bumps += bumped
        if not (0.0 <= new_x <= width and 0.0 <= new_y <= height):
            wrong += not slide
            continue
        wrong += is_solid(solid, 0, nx, ny, cell_x, cell_y, new_x, new_y)
        wrong += not is_free_and_reachable(labels, 0, nx, ny, cell_x, cell_y, new_x, new_y, x, y)
        if n % 3:
            new_x, new_y = round(new_x, 6), round(new_y, 6)  # onto faces, from which one may step
            if not is_free_and_reachable(labels, 0, nx, ny, cell_x, cell_y, new_x, new_y, x, y):
                continue
        x, y = new_x, new_y
    return wrong, bumps


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("longest", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("cell_x", [0.25, 0.1, 1 / 3])
def test_random_walks_never_enter_or_cross_obstacles(cell_x, longest, slide):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        solid = rng.random((20, 25)) < 0.35
        solid[10] = True  # two halves
        solid[4, 6] = False
        terrain = make_terrain(solid, cell_x, 0.2)
        packed = pack_terrains([terrain])
        grid = (packed.solid, packed.labels, 25, 20, cell_x, 0.2)
        wrong, bumps = _wander(*grid, 6.5 * cell_x, 0.9, longest, rng.random((5000, 2)), slide)
        assert wrong == 0
        assert bumps > 100
