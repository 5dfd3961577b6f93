"""Worlds with obstacles: nobody walks, drifts or smells through a wall. Rectangles are checked here by comparison."""

import math
from collections import deque

import numpy as np
import pytest

from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.layout import OFFICE
from gpf.plume.physics import SUBSTANCE, X, Y
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World

STRAY = np.array([0, 0, 0, 0, 0, 0, 1, 2, 4, 5])
"""Actions of an agent that walks far: mostly ahead."""


def world_of(count=1, seed=0, **fields):
    world = World(count, Scenario.of(fields), threads=1)
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def walk(world, steps=1):
    for _ in range(steps):
        world.step(np.zeros(world.count, np.int64))


def in_rectangles(rectangles, x, y):
    """Whether points lie within a rectangle; x and y in m."""
    x, y = np.asarray(x), np.asarray(y)
    return np.any([(x > a) & (x < a + wide) & (y > b) & (y < b + high) for a, b, wide, high in rectangles], axis=0)


def crosses(rectangle, start, end):
    """Whether a segment passes through a rectangle: the shares of it that lie within both slabs overlap."""
    low, high = 0.0, 1.0
    for axis in range(2):
        move = end[axis] - start[axis]
        near, far = rectangle[axis], rectangle[axis] + rectangle[2 + axis]
        if move == 0.0:
            if not near < start[axis] < far:
                return False
            continue
        shares = sorted([(near - start[axis]) / move, (far - start[axis]) / move])
        low, high = max(low, shares[0]), min(high, shares[1])
    return low < high


def flooded(rectangles, x, y, extent=20.0, cell=0.25):
    """The cells to which there is a way from a point, by breadth-first search; shape (rows, columns)."""
    count = round(extent / cell)
    centres = cell * (np.arange(count) + 0.5)
    free = ~in_rectangles(rectangles, *np.meshgrid(centres, centres))
    reached = np.zeros_like(free)
    queue = deque([(int(y / cell), int(x / cell))])
    while queue:
        row, column = queue.popleft()
        if 0 <= row < count and 0 <= column < count and free[row, column] and not reached[row, column]:
            reached[row, column] = True
            queue.extend([(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)])
    return reached


def alive(world, lane=0):
    first, last = world.lanes[lane]["first"], world.lanes[lane]["last"]
    filaments = world.filaments[lane][:, first:last]
    return filaments[:, ~np.isnan(filaments[X])]


# The agent


def test_the_agent_never_enters_a_wall_and_feels_a_bump_exactly_when_it_was_stopped():
    world = world_of(40, preset="office", head_start=0.0, success_radius=1e-3)
    rng = np.random.default_rng(0)
    bumps = moves = 0
    for _ in range(400):
        x, y = world.lanes["x"].copy(), world.lanes["y"].copy()
        world.step(rng.choice(STRAY, 40))
        lanes = world.lanes
        assert not in_rectangles(OFFICE, lanes["x"], lanes["y"]).any()
        heading = lanes["heading"]
        wanted = np.column_stack([x + 0.05 * np.cos(heading), y + 0.05 * np.sin(heading)])
        missed = np.hypot(lanes["x"] - wanted[:, 0], lanes["y"] - wanted[:, 1])
        np.testing.assert_array_equal(lanes["bump"] == 1.0, missed > 1e-9)
        np.testing.assert_array_equal(world.raw[:, 5], lanes["bump"])
        bumps += (missed > 1e-9).sum()
        moves += (missed <= 1e-9).sum()
    assert bumps > 500
    assert moves > 5000


def test_a_wall_is_not_jumped_over_by_a_step_longer_than_it_is_thick():
    wall = ((10.0, 0.0, 0.25, 20.0),)
    world = world_of(obstacles=wall, speed=40.0, source_at=(5.0, 10.0), start_bearing=0.0)
    world.lanes["x"], world.lanes["y"], world.lanes["heading"] = 9.0, 12.0, 0.0
    walk(world)  # 4 m
    assert world.lanes["x"][0] == pytest.approx(10.0, abs=1e-6)
    assert world.lanes["x"][0] < 10.0
    assert world.raw[0, 5] == 1.0


# The odour


def test_filaments_are_never_in_a_wall():
    world = world_of(12, preset="office")
    seen = 0
    for _ in range(100):
        for n in range(12):
            filaments = alive(world, n)
            assert not in_rectangles(OFFICE, filaments[X], filaments[Y]).any()
            seen += filaments.shape[1]
        walk(world)
        world.lanes["running"] = 1
    assert seen > 50_000


CALM = {"wind_speed": 0.0, "wind_speed_sigma": 0.0, "wind_speed_floor": 0.0}
BEHIND = {
    **CALM, "source_at": (9.8, 5.0), "speed": 0.0, "head_start": 5.0, "sensor_noise": 0.0, "success_radius": 0.1,
    "emission_jitter": 0.2,
}  # fmt: skip


@pytest.mark.parametrize("turbulence", [0.0, 0.2])
def test_nothing_is_smelled_through_a_wall(turbulence):
    """A wall between source and agent, 0.6 m apart, with a gap far away."""
    start = np.array([[np.nan, np.nan, 10.4, 5.0, 0.0]])
    readings = []
    for wall in (((10.0, 0.0, 0.25, 19.0),), ()):
        world = World(1, Scenario(obstacles=wall, filament_velocity_sigma=turbulence, **BEHIND), threads=1)
        world.seed([0])
        world.begin(starts=start)
        total = 0.0
        for _ in range(30):
            walk(world)
            total += world.lanes["left"][0] + world.lanes["right"][0]
            if wall:
                assert (alive(world)[X] < 10.0).all()
        readings.append(total)
    assert readings[0] == 0.0
    assert readings[1] > 1.0


def test_an_agent_smells_what_it_sees():
    """The plain sum over filaments, those left out to which a straight line crosses the wall."""
    x_wall, y_end, mass, diffusion = 10.0, 10.0, 0.1, 0.05
    scenario = Scenario(
        obstacles=((x_wall, 0.0, 0.25, y_end),), filament_velocity_sigma=0.3, antenna_forward=0.0,
        antenna_separation=0.0, sensor_saturation=1e3, **{**BEHIND, "source_at": (9.5, 9.5)},
    )  # fmt: skip
    world = World(1, scenario, threads=1)
    world.seed([1])
    world.begin(starts=np.array([[np.nan, np.nan, 10.6, 9.8, 0.0]]))
    hidden = 0
    for _ in range(60):
        walk(world)
        lane, filaments = world.lanes[0], alive(world)
        expected = 0.0
        for x, y, born in filaments[:3].T:
            variance = 0.01**2 + 2.0 * diffusion * 0.1 * (lane["tick"] - born)
            z = ((x - 10.6) ** 2 + (y - 9.8) ** 2) / variance
            if z < 9.0 and crosses(scenario.obstacles[0], (10.6, 9.8), (x, y)):
                hidden += 1
            elif z < 9.0:
                expected += mass / (2.0 * math.pi * variance) * math.exp(-z / 2.0)
        assert lane["left"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert hidden > 100
    assert expected > 0.0


def test_the_wind_that_the_vane_reads_is_still_in_a_closed_room_and_undisturbed_without_walls():
    ring = ((4.0, 4.0, 6.0, 0.5), (4.0, 9.5, 6.0, 0.5), (4.0, 4.0, 0.5, 6.0), (9.5, 4.0, 0.5, 6.0))
    fields = {"source_at": (7.0, 7.0), "speed": 0.0, "wind_speed_sigma": 0.0, "success_radius": 0.1}
    world = World(1, Scenario(obstacles=ring, **fields), threads=1)
    world.seed([0])
    world.begin(starts=np.array([[np.nan, np.nan, 6.0, 6.0, 0.0]]))
    walk(world)
    assert world.raw[0, 2] == pytest.approx(0.0, abs=1e-12)
    world.lanes["x"], world.lanes["y"] = 7.0, 11.0  # just above: the wind is diverted, and faster
    walk(world)
    assert world.raw[0, 2] > 1.05


# Places


def test_sources_and_starts_are_free_and_connected():
    world = world_of(150, preset="office", head_start=0.0)
    lanes = world.lanes
    assert not in_rectangles(OFFICE, lanes["source_x"], lanes["source_y"]).any()
    assert not in_rectangles(OFFICE, lanes["x"], lanes["y"]).any()
    for lane in lanes[:30]:
        reached = flooded(OFFICE, lane["source_x"], lane["source_y"])
        assert reached[min(int(lane["y"] / 0.25), 79), min(int(lane["x"] / 0.25), 79)]


@pytest.mark.parametrize("decoys", [0, 2])
def test_agent_and_decoys_are_on_the_side_of_the_source(decoys):
    wall = ((0.0, 10.0, 20.0, 0.25),)  # all across, so that bearings of up to 180 deg cross it
    world = world_of(100, obstacles=wall, start_bearing=180.0, decoys=decoys)
    above = world.lanes["source_y"] > 10.0
    assert 20 < above.sum() < 80
    np.testing.assert_array_equal(world.lanes["y"] > 10.0, above)
    for n in range(decoys):
        np.testing.assert_array_equal(world.lanes["others_y"][:, n] > 10.0, above)
    if decoys:
        walk(world, 20)
        for n in range(10):
            assert {*alive(world, n)[SUBSTANCE].tolist()} == {0.0, 1.0}


def test_obstacles_over_the_source_are_refused_in_one_sentence():
    block = ((4.0, 9.0, 2.0, 2.0),)
    with pytest.raises(ValueError, match=r"^source must not be in an obstacle, got \[5\.0, 10\.0\]$"):
        World(1, Scenario(obstacles=block, source_at=(5.0, 10.0)))
    upwind = ((0.0, 0.0, 10.0, 20.0),)
    with pytest.raises(ValueError, match=r"^obstacles must leave room for the source, upwind .*, got none there$"):
        World(1, Scenario(obstacles=upwind))


ROOMS = {"obstacles": [[0.0, 10.0, 20.0, 0.25], [3.0, 3.0, 2.0, 2.0]], "source_jitter": 0.0, "source_at": [4.0, 7.0]}
REFUSED = [
    ({"position": [4.0, 4.0]}, "position must not be in an obstacle, got [4.0, 4.0]"),
    ({"source": [4.0, 4.0]}, "source must not be in an obstacle, got [4.0, 4.0]"),
    (
        {"position": [4.0, 15.0]},
        "position must have a way to the source at [4.0, 7.0] between the obstacles, got [4.0, 15.0]",
    ),
    (
        {"position": [8.0, 8.0], "source": [8.0, 12.0]},
        "position must have a way to the source at [8.0, 12.0] between the obstacles, got [8.0, 8.0]",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
@pytest.mark.parametrize("lanes", [1, 3])
def test_places_in_obstacles_and_without_a_way_to_the_source_are_refused_and_change_nothing(options, message, lanes):
    env = PlumeEnv(ROOMS) if lanes == 1 else PlumeVectorEnv(lanes, ROOMS, threads=1)
    env.reset(seed=0)
    before = {name: array.tobytes() for name, array in env.world.state().items()}
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        env.reset(seed=1, options=options)
    assert str(caught.value) == message + (" in lane 0" if lanes > 1 else "")
    assert {name: array.tobytes() for name, array in env.world.state().items()} == before


def test_only_the_lanes_that_begin_are_checked_and_the_first_wrong_one_is_named():
    env = PlumeVectorEnv(3, [Scenario.of(ROOMS), Scenario(), Scenario.of(ROOMS)], threads=1)
    env.reset(seed=0)
    inside = np.array([[8.0, 8.0], [4.0, 4.0], [4.0, 4.0]])  # the second lane has no obstacles
    with pytest.raises(ValueError, match=r"^position must not be in an obstacle, got \[4\.0, 4\.0\] in lane 2$"):
        env.reset(options={"position": inside})
    env.reset(options={"position": inside, "reset_mask": np.array([True, True, False])})
    assert env.world.lanes["x"][:2].tolist() == [8.0, 4.0]


def test_good_places_are_taken():
    env = PlumeEnv(ROOMS)
    env.reset(seed=0, options={"position": [8.0, 15.0], "source": [4.0, 12.0]})
    assert (env.state().position.tolist(), env.state().source.tolist()) == ([8.0, 15.0], [4.0, 12.0])
    drawn = PlumeEnv({"obstacles": ROOMS["obstacles"]})  # where the source will be is not known: any free place will do
    drawn.reset(seed=0, options={"position": [4.0, 15.0]})
    with pytest.raises(ValueError, match="^position must not be in an obstacle"):
        drawn.reset(seed=0, options={"position": [4.0, 4.0]})
