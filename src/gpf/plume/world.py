"""Many plume worlds in parallel: their memory, and the kernels that start and step them.

A lane is one world with one agent. Lanes share nothing, so a lane's episodes are the same bits for any number and order
of lanes and any number of threads. The single and the vector environment, the evaluation and the learners all
run these same compiled functions.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.antennae import sense, sense_simply, sense_wind, start_sensors
from gpf.plume.arrays import LANE, Arrays
from gpf.plume.catalogue import Catalogue, Room
from gpf.plume.inputs import shown, whole_number
from gpf.plume.kernels import Record, announcing_compilation, device, inlined, lean_kernel
from gpf.plume.physics import (
    advect,
    advect_together,
    distance_to_plume,
    distance_to_source,
    emit,
    emit_from_one,
    move,
    move_freely,
    place_agent,
    place_sources,
    turn,
    wrap,
)
from gpf.plume.rewards import TERMS, reward
from gpf.plume.rng import seed_streams, uniform
from gpf.plume.row import ROW
from gpf.plume.scenario import Scenario
from gpf.plume.tokens import OBSERVATION_SIZES, tokenize
from gpf.plume.wind import NOISE_SIZE, start_wind, step_mean_wind, step_wind

RAW = ("left", "right", "wind_speed", "wind_direction", "heading", "bump", "second_left", "second_right")
"""Columns of a raw observation: two readings; the wind where the agent is, m/s and where it blows to; the heading; 1 if
a wall stopped the agent; and the readings of the second gas channel. Angles are in [-pi, pi), counter-clockwise from
+x."""

FASTEST_WIND = 100.0
"""Wind speed above which the vane of a raw observation shows no more, m/s."""

START = ("source_x", "source_y", "x", "y", "heading")
"""Columns of a start: where source and agent are put when an episode begins, m and rad; NaN for what is drawn."""
_DRAWN = np.full(len(START), math.nan)
_NO_STARTS = np.empty((0, len(START)))

_LANES_PER_THREAD = 256
"""Fewer lanes than this are not worth waking another thread for."""
_LANES_AT_A_TIME = 128
"""Lanes that a thread steps before it looks for more."""


@device
def begin(world: Arrays, i: int) -> None:
    """Begin an episode in lane i: source and agent placed, wind and source on for a while, first readings taken."""
    begin_at(world, i, _DRAWN)


@device
def begin_at(world: Arrays, i: int, start: NDArray[np.float64]) -> None:
    """Begin an episode where `start` says (see `START`).

    Everything is drawn first, whether it is needed or not: a seed has the same wind, emission and noise wherever the
    source and the agent are put.
    """
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    if p.bank_count > 0.0:
        world.rows[i] = world.bank[int(p.bank_first) + int(p.bank_count * uniform(stream))]
    lane.step = lane.tick = lane.blank_steps = lane.first = lane.last = lane.lost = 0
    lane.running = 1
    lane.bump = 0.0
    for n in range(len(lane.on)):
        lane.on[n] = 1
    lane.frame = 0.0
    lane.mirrored = 0
    start_wind(p, lane, world.grids[i], world.scratch, stream)
    if p.recording >= 0.0:
        _start_recording(world, i)
    place_sources(world, i)
    if not math.isnan(start[0]):
        lane.source_x, lane.source_y = start[0], start[1]
    place_agent(world, i)
    if not math.isnan(start[2]):
        lane.x, lane.y = start[2], start[3]
    if not math.isnan(start[4]):
        lane.heading = start[4]
    for _ in range(int(p.head_start)):
        blow(world, i)
    lane.distance = distance_to_source(p, lane)
    start_sensors(p, lane)
    sense_wind(world, i)
    sense(world, i)


@device
def _start_recording(world: Arrays, i: int) -> None:
    """Choose when a recording starts, and whether it is mirrored."""
    p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
    if p.recording_start_random != 0.0:
        lane.frame = world.recordings.table[int(p.recording)].frames * uniform(stream)
    if p.recording_mirrored != 0.0 and uniform(stream) < 0.5:
        lane.mirrored = 1
        lane.wind_direction = -lane.wind_direction


@device
def blow(world: Arrays, i: int) -> None:
    """Advance wind and filaments of lane i by one physical step."""
    p, lane = world.rows[i], world.lanes[i]
    lane.tick += 1
    if p.recording >= 0.0:
        return
    step_wind(p, lane, world.grids[i], world.scratch, world.streams[i])
    emit(world, i)
    advect(world, i)


@inlined
def step(world: Arrays, i: int, action: int) -> tuple[float, bool, bool]:
    """Advance lane i by one step of the agent; returns its reward, whether the source was found, and whether the
    episode ended without that.
    """
    p, lane = world.rows[i], world.lanes[i]
    lane.step += 1
    turn(p, lane, action)
    if p.simple != 0.0:
        _advance_simply(p, lane, world.filaments[i], world.scratch, world.streams[i])
    else:
        _advance(world, i)
    previous_distance = lane.distance
    lane.distance = distance_to_source(p, lane)
    success = lane.distance < p.success_radius
    if p.lost_distance > 0.0 and not success:
        lane.lost = distance_to_plume(lane, world.filaments[i]) > p.lost_distance
    failure = not success and (lane.step >= p.max_steps or lane.lost != 0)
    lane.running = not (success or failure)
    return reward(p, lane, previous_distance, success, world.terms[i]), success, failure


@device
def _advance(world: Arrays, i: int) -> None:
    """Advance wind, plume and agent of lane i by one step, and read its sensors."""
    for _ in range(int(world.rows[i].substeps)):
        blow(world, i)
        move(world, i)
        sense(world, i)
    sense_wind(world, i)


@device
def _advance_simply(
    p: Record,
    lane: Record,
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    stream: NDArray[np.uint64],
) -> None:
    """The same in a simple world (see `gpf.plume.row`): the same bits, without what such a world does not have."""
    lane.tick += 1
    step_mean_wind(p, lane, stream)
    emit_from_one(p, lane, filaments, stream)
    advect_together(p, lane, filaments)
    move_freely(p, lane)
    sense_simply(p, lane, filaments, scratch, stream)
    lane.vane_speed, lane.vane_direction = lane.wind_speed, lane.wind_direction


@device
def terminal(p: Record, lane: Record, success: bool, failure: bool) -> bool:
    """Whether an episode that ended so has no future to be bootstrapped: not if it only ran out of time."""
    return success or (failure and (p.timeout_terminates != 0.0 or lane.lost != 0))


@inlined
def observe(world: Arrays, i: int) -> None:
    """Write the observation of lane i, as tokens and as raw numbers."""
    p, lane, raw = world.rows[i], world.lanes[i], world.raw[i]
    tokenize(p, lane, world.tokens[i])
    raw[0] = lane.left
    raw[1] = lane.right
    raw[2] = min(lane.vane_speed, FASTEST_WIND)
    raw[3] = wrap(lane.vane_direction + p.vane_offset)
    raw[4] = lane.heading
    raw[5] = lane.bump
    raw[6] = lane.second_left
    raw[7] = lane.second_right


@lean_kernel
def _begin_lanes(world, indices, starts):
    """Begin an episode in each of the lanes given by their indices, at their starts, if given."""
    for n in range(len(indices)):
        i = indices[n]
        if len(starts) == 0:
            begin(world, i)
        else:
            begin_at(world, i, starts[n])
        observe(world, i)
        world.rewards[i] = 0.0
        for k in range(len(TERMS)):
            world.terms[i, k] = 0.0
        world.successes[i] = world.terminations[i] = world.truncations[i] = False


@lean_kernel
def _step_lanes(world, start, stop, restart, actions):
    """Step lanes `start` to `stop`; where an episode is over, begin another (`restart`) or leave the lane alone."""
    rows, lanes, rewards, terms = world.rows, world.lanes, world.rewards, world.terms
    for i in range(start, stop):
        success = failure = False
        if lanes[i].running:
            rewards[i], success, failure = step(world, i, actions[i])
        else:
            rewards[i] = 0.0
            for k in range(len(TERMS)):
                terms[i, k] = 0.0
            if restart:
                begin(world, i)
        observe(world, i)
        world.successes[i] = success
        world.truncations[i] = failure and not lanes[i].lost
        world.terminations[i] = terminal(rows[i], lanes[i], success, failure)


class World:
    """Lanes of plume worlds and the arrays that they write; the arrays are reused at every step.

    Attributes:
        lanes: Structured array of `LANE`, shape (n,): where everything is.
        filaments: Shape (n, 3 or 6, capacity); see `gpf.plume.physics`. grids: shape (n, 2, nodes^2), of the wind.
        tokens: int64, shape (n, 3). raw: float32, shape (n, 8). The current observation, in both forms.
        rewards: float64, shape (n,). terms: float64, shape (n, 5), the reward's terms, named in `rewards.TERMS`.
        successes, terminations, truncations: bool, shape (n,), of the last step.
    """

    def __init__(
        self,
        count: int,
        scenario: Scenario | str | dict[str, Any] | Sequence[Scenario] = "paper",
        threads: int | None = None,
    ) -> None:
        count = whole_number("num_envs", count, 1)
        most = max(64, 4 * cores())  # more would only wait for each other
        if threads is not None and not (isinstance(threads, int | np.integer) and 1 <= threads <= most):
            raise ValueError(
                f"threads must be a whole number from 1 to {most}, or None for all cores, got {shown(threads)}"
            )
        several = isinstance(scenario, list | tuple)
        scenarios = [Scenario.of(s) for s in scenario] if several else [Scenario.of(scenario)]  # type: ignore[union-attr, arg-type]
        if several and len(scenarios) != count:
            raise ValueError(f"scenario must be one, or one per lane ({count}), got {len(scenarios)}")
        self.room: Room = Room.of(scenarios)
        capacity, nodes = self.room.capacity, self.room.nodes**2
        _check_memory(count, self.room.filament_rows * capacity + 2 * nodes)
        self.catalogue: Catalogue = Catalogue()
        self.count = count
        self.threads: int = int(threads or max(1, min(cores(), count // _LANES_PER_THREAD)))
        self.rows: NDArray[np.void] = np.empty(count, ROW)
        self.rows[:] = [self.catalogue.row(s) for s in scenarios] if several else self.catalogue.row(scenarios[0])
        self.lanes: NDArray[np.void] = np.zeros(count, LANE)
        self.streams: NDArray[np.uint64] = np.zeros((count, 4), np.uint64)
        self.filaments: NDArray[np.float64] = np.zeros((count, self.room.filament_rows, capacity))
        self.grids: NDArray[np.float64] = np.zeros((count, 2, nodes))
        self.scratch: NDArray[np.float64] = np.zeros((self.threads, 2, max(capacity, nodes, NOISE_SIZE)))
        self.tokens: NDArray[np.int64] = np.zeros((count, len(OBSERVATION_SIZES)), np.int64)
        self.raw: NDArray[np.float32] = np.zeros((count, len(RAW)), np.float32)
        self.rewards: NDArray[np.float64] = np.zeros(count)
        self.terms: NDArray[np.float64] = np.zeros((count, len(TERMS)))
        self.successes: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.terminations: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self.truncations: NDArray[np.bool_] = np.zeros(count, np.bool_)
        if not _step_lanes.signatures:
            with announcing_compilation():  # no lane is touched: this only compiles, or loads what was compiled before
                nothing = np.empty(0, np.int64)
                self.begin(nothing)
                _step_lanes(self.arrays(), 0, 0, False, nothing)

    def set_scenario(self, scenario: Scenario, indices: NDArray[np.int64] | None = None) -> None:
        """Let lanes (all, or those of `indices`) live in another scenario from now on; nothing is recompiled."""
        room = Room.of([scenario])
        if room.capacity > self.room.capacity:
            raise ValueError(
                f"scenario must need at most {self.room.capacity} filaments a lane, for which there is room,"
                f" got one that needs {room.capacity}"
            )
        if room.nodes > self.room.nodes:
            raise ValueError(
                f"wind_grid must be at most {self.room.nodes} nodes, for which there is room, got {scenario.wind_grid}"
            )
        if room.filament_rows > self.room.filament_rows:
            raise ValueError(
                "scenario must have no filament_velocity_sigma and no decoys, for which there is no room,"
                f" got {scenario.filament_velocity_sigma:g} and {scenario.decoys}"
            )
        self.rows[slice(None) if indices is None else indices] = self.catalogue.row(scenario)

    def all_rows(self) -> NDArray[np.void]:
        """The scenarios of all lanes, and those that they may draw, as rows."""
        return np.concatenate([self.rows, self.catalogue.bank])

    def seed(self, seeds: Sequence[int], indices: NDArray[np.int64] | None = None) -> None:
        """Give lanes (all, or those of `indices`) the random streams of their seeds."""
        self.streams[slice(None) if indices is None else indices] = seed_streams(seeds)

    def begin(self, indices: NDArray[np.int64] | None = None, starts: NDArray[np.float64] | None = None) -> None:
        """Begin an episode in all lanes, or in those of `indices`; `starts` has a row of `START` for each of them."""
        lanes = np.arange(self.count) if indices is None else indices
        _begin_lanes(self.arrays(), lanes, _NO_STARTS if starts is None else starts)

    def step(self, actions: NDArray[np.int64], restart: bool = False) -> None:
        """Step all lanes whose episode is running; the others restart if `restart`, or else are left alone."""
        if self.threads == 1:
            _step_lanes(self.arrays(), 0, self.count, restart, actions)
            return
        # Threads take the next few lanes whenever they are free, so a thread that wakes late delays no other.
        starts = iter(range(0, self.count, _LANES_AT_A_TIME))

        def work(thread: int) -> None:
            arrays = self.arrays(thread)
            for start in starts:
                _step_lanes(arrays, start, min(start + _LANES_AT_A_TIME, self.count), restart, actions)

        pool = thread_pool(self.threads - 1, os.getpid())
        others = [pool.submit(work, thread) for thread in range(1, self.threads)]
        work(0)
        for other in others:
            other.result()

    def arrays(self, thread: int = 0, scratch: NDArray[np.float64] | None = None) -> Arrays:
        """The arguments of the kernels, with the scratch space of a thread, or with a caller's own."""
        return Arrays(
            self.rows, self.lanes, self.streams, self.filaments, self.grids,
            self.scratch[thread] if scratch is None else scratch, self.tokens, self.raw,
            self.rewards, self.terms, self.successes, self.terminations, self.truncations,
            self.catalogue.bank, self.catalogue.terrains, self.catalogue.recordings,
        )  # fmt: skip

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything on which the next step depends; the world's own arrays, not copies."""
        names = ("rows", "lanes", "streams", "filaments", "grids", "tokens", "raw")
        return {name: getattr(self, name) for name in names}


def _check_memory(count: int, numbers: int) -> None:
    """Refuse more lanes, of this many numbers each, than fit into half of the machine's memory."""
    lane = ROW.itemsize + LANE.itemsize + 8 * numbers + 256  # 256: streams, observations, rewards, ends
    half = machine_memory() // 2
    if count * lane > half:
        raise ValueError(
            f"num_envs must be at most {max(1, half // lane):,} here, got {shown(count)}: that would take"
            f" {count * lane // 10**9:,} GB, and half of the machine's memory is {half // 10**9:,} GB"
        )


def machine_memory() -> int:
    """Bytes of memory of this machine; 16 GB where it cannot be asked."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 16 * 10**9


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def thread_pool(workers: int, process: int) -> ThreadPoolExecutor:
    """Threads shared by all worlds of a process; a forked process must start its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix=f"gpf-plume-{process}")
