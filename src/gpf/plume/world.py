"""Many plume worlds side by side: their memory, and the kernels that begin and step them.

A lane is one world with one agent. Lanes share nothing, so a lane's episodes are the same bits whatever the number of
lanes, their order or the number of threads. The single and the vector environment, the evaluation and the learners all
run these same compiled functions.
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpf.plume.inputs import shown, whole_number
from gpf.plume.kernels import Record, announcing_compilation, kernel
from gpf.plume.physics import advect, emit, move, place_agent, place_source, start_wind, step_wind, wrap
from gpf.plume.rewards import TERMS, reward
from gpf.plume.rng import seed_streams
from gpf.plume.scenario import ROW, Scenario
from gpf.plume.sensors import sense
from gpf.plume.tokens import OBSERVATION_SIZES, tokenize

RAW = ("left", "right", "wind_speed", "wind_direction", "heading")
"""Columns of a raw observation: two readings, m/s, and two angles in [-pi, pi), counter-clockwise from +x."""

FASTEST_WIND = 100.0
"""Wind speed above which the vane of a raw observation shows no more, m/s."""

LANE = np.dtype(
    [(name, np.float64) for name in ("x", "y", "heading", "source_x", "source_y", "distance")]
    + [(name, np.float64) for name in ("wind_speed", "wind_direction", "left", "right")]
    + [(name, np.int64) for name in ("step", "blank_steps", "first", "last", "running")],
    align=True,
)
"""The state of a lane, but for its filaments and its random stream. Positions in m, angles in rad."""

START = ("source_x", "source_y", "x", "y", "heading")
"""Columns of a start: where source and agent are put when an episode begins, m and rad; NaN for what is drawn."""
_DRAWN = np.full(len(START), math.nan)
_NO_STARTS = np.empty((0, len(START)))

_LANES_PER_THREAD = 256
"""Fewer lanes than this are not worth waking another thread for."""
_LANES_AT_A_TIME = 128
"""Lanes that a thread steps before it looks for more."""


@njit(error_model="numpy")
def begin(
    p: Record,
    lane: Record,
    stream: NDArray[np.uint64],
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> None:
    """Begin an episode: mean wind, no filaments yet, source and agent placed, first readings taken."""
    begin_at(p, lane, stream, filaments, scratch, _DRAWN)


@njit(error_model="numpy")
def begin_at(
    p: Record,
    lane: Record,
    stream: NDArray[np.uint64],
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    start: NDArray[np.float64],
) -> None:
    """Begin an episode where `start` says (see `START`).

    Everything is drawn first, whether it is needed or not: a seed has the same wind, emission and noise wherever the
    source and the agent are put.
    """
    lane.step = lane.blank_steps = lane.first = lane.last = 0
    lane.running = 1
    start_wind(p, lane)
    place_source(p, lane, stream)
    if not math.isnan(start[0]):
        lane.source_x, lane.source_y = start[0], start[1]
    place_agent(p, lane, stream)
    if not math.isnan(start[2]):
        lane.x, lane.y = start[2], start[3]
    if not math.isnan(start[4]):
        lane.heading = start[4]
    lane.distance = np.hypot(lane.x - lane.source_x, lane.y - lane.source_y)
    sense(p, lane, filaments, scratch, stream)


@njit(error_model="numpy")
def step(
    p: Record,
    lane: Record,
    stream: NDArray[np.uint64],
    filaments: NDArray[np.float64],
    scratch: NDArray[np.float64],
    action: int,
    terms: NDArray[np.float64],
) -> tuple[float, bool, bool]:
    """Advance one lane by one step; returns its reward, and whether the source was found and time has run out."""
    lane.step += 1
    step_wind(p, lane, stream)
    emit(p, lane, filaments, stream)
    advect(p, lane, filaments)
    move(p, lane, action)
    sense(p, lane, filaments, scratch, stream)
    previous_distance = lane.distance
    lane.distance = np.hypot(lane.x - lane.source_x, lane.y - lane.source_y)
    success = lane.distance < p.success_radius
    timeout = not success and lane.step >= p.max_steps
    lane.running = not (success or timeout)
    return reward(p, lane, previous_distance, success, terms), success, timeout


@njit(error_model="numpy")
def observe(p: Record, lane: Record, tokens: NDArray[np.int64], raw: NDArray[np.float32]) -> None:
    """Write a lane's observation, as tokens and as raw numbers."""
    tokenize(p, lane, tokens)
    raw[0] = lane.left
    raw[1] = lane.right
    raw[2] = min(lane.wind_speed, FASTEST_WIND)
    raw[3] = wrap(lane.wind_direction + p.vane_offset)
    raw[4] = lane.heading


@kernel
def _begin_lanes(
    indices, starts,
    rows, lanes, streams, filaments, scratch, tokens, raw, rewards, terms, successes, terminations, truncations,
):  # fmt: skip
    """Begin an episode in each of the lanes given by their indices, at their starts if there are any."""
    for n in range(len(indices)):
        i = indices[n]
        if len(starts) == 0:
            begin(rows[i], lanes[i], streams[i], filaments[i], scratch)
        else:
            begin_at(rows[i], lanes[i], streams[i], filaments[i], scratch, starts[n])
        observe(rows[i], lanes[i], tokens[i], raw[i])
        rewards[i] = 0.0
        terms[i] = 0.0
        successes[i] = terminations[i] = truncations[i] = False


@kernel
def _step_lanes(
    start, stop, restart, actions,
    rows, lanes, streams, filaments, scratch, tokens, raw, rewards, terms, successes, terminations, truncations,
):  # fmt: skip
    """Step lanes `start` to `stop`; where an episode is over, begin another (`restart`) or leave the lane alone."""
    for i in range(start, stop):
        success = timeout = False
        if lanes[i].running:
            rewards[i], success, timeout = step(
                rows[i], lanes[i], streams[i], filaments[i], scratch, actions[i], terms[i]
            )
        else:
            rewards[i] = 0.0
            terms[i] = 0.0
            if restart:
                begin(rows[i], lanes[i], streams[i], filaments[i], scratch)
        observe(rows[i], lanes[i], tokens[i], raw[i])
        successes[i] = success
        truncations[i] = timeout
        terminations[i] = success or (timeout and rows[i].timeout_terminates != 0.0)


class World:
    """Lanes of plume worlds and the arrays that they write; the arrays are reused at every step.

    Attributes:
        lanes: Structured array of `LANE`, shape (n,): where everything is.
        filaments: Shape (n, 3, capacity); see `gpf.plume.physics`.
        tokens: int64, shape (n, 3). raw: float32, shape (n, 5). The current observation, in both forms.
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
        capacity = max(s.filament_capacity for s in scenarios)
        _check_memory(count, capacity)
        self.count = count
        self.threads: int = int(threads or max(1, min(cores(), count // _LANES_PER_THREAD)))
        self.rows: NDArray[np.void] = np.empty(count, ROW)
        self.rows[:] = [s.row() for s in scenarios] if several else scenarios[0].row()
        self.lanes: NDArray[np.void] = np.zeros(count, LANE)
        self.streams: NDArray[np.uint64] = np.zeros((count, 4), np.uint64)
        self.filaments: NDArray[np.float64] = np.zeros((count, 3, capacity))
        self.scratch: NDArray[np.float64] = np.zeros((self.threads, 2, capacity))
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
                _step_lanes(0, 0, False, nothing, *self._memory(0))

    def set_scenario(self, scenario: Scenario, indices: NDArray[np.int64] | None = None) -> None:
        """Let lanes (all, or those of `indices`) live in another scenario from now on; nothing is recompiled."""
        capacity = self.filaments.shape[2]
        if scenario.filament_capacity > capacity:
            raise ValueError(
                f"scenario must need at most {capacity} filaments a lane, for which there is room,"
                f" got one that needs {scenario.filament_capacity}"
            )
        self.rows[slice(None) if indices is None else indices] = scenario.row()

    def seed(self, seeds: Sequence[int], indices: NDArray[np.int64] | None = None) -> None:
        """Give lanes (all, or those of `indices`) the random streams of their seeds."""
        self.streams[slice(None) if indices is None else indices] = seed_streams(seeds)

    def begin(self, indices: NDArray[np.int64] | None = None, starts: NDArray[np.float64] | None = None) -> None:
        """Begin an episode in all lanes, or in those of `indices`; `starts` has a row of `START` for each of them."""
        lanes = np.arange(self.count) if indices is None else indices
        _begin_lanes(lanes, _NO_STARTS if starts is None else starts, *self._memory(0))

    def step(self, actions: NDArray[np.int64], restart: bool = False) -> None:
        """Step all lanes whose episode is running; the others begin anew if `restart`, or else are left alone."""
        if self.threads == 1:
            _step_lanes(0, self.count, restart, actions, *self._memory(0))
            return
        # Threads take the next few lanes whenever they are free, so that a thread that wakes late delays nobody.
        starts = iter(range(0, self.count, _LANES_AT_A_TIME))

        def work(thread: int) -> None:
            memory = self._memory(thread)
            for start in starts:
                _step_lanes(start, min(start + _LANES_AT_A_TIME, self.count), restart, actions, *memory)

        pool = thread_pool(self.threads - 1, os.getpid())
        others = [pool.submit(work, thread) for thread in range(1, self.threads)]
        work(0)
        for other in others:
            other.result()

    def _memory(self, thread: int) -> tuple[Any, ...]:
        """What the kernels work on, with scratch space for a thread."""
        return (
            self.rows, self.lanes, self.streams, self.filaments, self.scratch[thread], self.tokens, self.raw,
            self.rewards, self.terms, self.successes, self.terminations, self.truncations,
        )  # fmt: skip


def _check_memory(count: int, capacity: int) -> None:
    """Refuse more lanes than fit into half of the machine's memory."""
    lane = ROW.itemsize + LANE.itemsize + 24 * capacity + 256  # filaments; streams, observations, rewards, ends
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
