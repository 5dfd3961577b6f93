"""Evaluation: how well a policy finds the source, over held-out episodes.

Every episode has a seed of its own, so results do not depend on how many run side by side. Evaluation seeds lie in
blocks far above anything that training uses.
"""

import math
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpf.navigation.policies import Policy
from gpf.navigation.seeds import HELD_OUT
from gpf.plume.render import PIXELS, Frame, draw
from gpf.plume.scenario import Scenario
from gpf.plume.world import START, World, cores
from gpf.reports.statistics import wilson

LANES = max(1024, 256 * cores())
"""Episodes that run side by side: enough to keep all cores busy."""
FRAMES = 100
"""Frames of a film, at most: some seconds of it."""

Progress = Callable[[int, int], None]
"""Called with the number of finished episodes and of those of them that found the source."""


@dataclass(frozen=True)
class Evaluation:
    """The outcome of each episode, and summaries."""

    success: NDArray[np.bool_]
    """Whether the source was found."""
    steps: NDArray[np.int64]
    """Length of the episode, steps."""
    start_distance: NDArray[np.float64]
    """Distance from the source at the start, m."""
    scenario: Scenario
    seconds: float
    """Wall-clock time."""
    paths: dict[int, NDArray[np.float32]]
    """Of the first few successes and failures, by episode: positions downwind of the source and to the left of that, m,
    shape (steps + 1, 2)."""

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.success)

    @property
    def arrival(self) -> NDArray[np.int64]:
        """Arrival times of the episodes that found the source, steps."""
        return self.steps[self.success]

    @property
    def spl(self) -> float:
        """Success weighted by path length (Anderson et al. 2018): 1 for a straight walk to the source every time."""
        stride = self.scenario.speed * self.scenario.time_step
        shortest = np.ceil((self.start_distance - self.scenario.success_radius) / stride) if stride else self.steps
        shortest = np.clip(shortest, 1, self.steps)  # steps of a straight walk, of which there is at least one
        return float(np.mean(self.success * shortest / self.steps))

    def summary(self) -> dict[str, float | int | None]:
        """The figures that are reported; arrival times are those of successful episodes."""
        found = int(self.success.sum())
        low, high = wilson(found, self.episodes)
        quantiles = {
            f"arrival_q{q}": float(np.quantile(self.arrival, q / 100)) if found else None for q in (5, 25, 50, 75, 95)
        }
        return {
            "episodes": self.episodes,
            "success": found / self.episodes,
            "low": low,
            "high": high,
            "mean_steps": float(self.arrival.mean()) if found else None,
            **quantiles,
            "never": 1.0 - found / self.episodes,
            "spl": self.spl,
            "steps_per_second": float(self.steps.sum() / self.seconds),
        }

    def save(self, path: str | Path) -> None:
        """Save all episodes to a .npz file, atomically."""
        path = Path(path)
        unfinished = path.with_name(f".{path.name}.new")
        try:
            with unfinished.open("wb") as file:
                np.savez_compressed(
                    file, success=self.success, steps=self.steps, start_distance=self.start_distance,
                    seconds=self.seconds, kept=np.array(list(self.paths), np.int64),
                    paths=np.concatenate([*self.paths.values(), np.zeros((0, 2), np.float32)]),
                )  # fmt: skip
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, scenario: Scenario) -> "Evaluation":
        """Read back what `save` wrote, of episodes in this world."""
        try:
            with np.load(path) as held:
                steps, kept = held["steps"], held["kept"]
                paths = np.split(held["paths"], np.cumsum(steps[kept] + 1))
                of = dict(zip(kept.tolist(), paths, strict=False))
                return cls(held["success"], steps, held["start_distance"], scenario, float(held["seconds"]), of)
        except (OSError, KeyError, IndexError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} must be episodes that an evaluation saved ({type(error).__name__})") from None


def evaluate(
    policy: Policy,
    scenario: Scenario,
    episodes: int,
    first_seed: int = HELD_OUT,
    *,
    threads: int | None = None,
    paths: int = 0,
    progress: Progress | None = None,
    starts: ArrayLike | None = None,
) -> Evaluation:
    """Run a policy for a number of episodes, each with its own seed, counting up from `first_seed`.

    Paths are kept of the first `paths` episodes that succeed, and of as many that fail. With `starts`, each episode
    begins where its row says: see `gpf.plume.world.START`, in m and rad, NaN for what is drawn.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    places = _checked_starts(starts, episodes)
    success = np.zeros(episodes, np.bool_)
    steps = np.zeros(episodes, np.int64)
    start_distance = np.zeros(episodes)
    kept: dict[int, NDArray[np.float32]] = {}
    wanted = {True: paths, False: paths}
    _warm_up(policy, scenario)
    started = time.perf_counter()
    for start in range(0, episodes, LANES):
        block = slice(start, min(start + LANES, episodes))
        count = block.stop - start
        world = World(count, scenario, threads)
        seeds = range(first_seed + start, first_seed + block.stop)
        world.seed(seeds)
        world.begin(starts=None if places is None else places[block])
        policy.begin(seeds, scenario)
        start_distance[block] = world.lanes["distance"]
        track = [_relative(world)]
        actions = np.zeros(count, np.int64)
        running = np.arange(count)
        while len(running):
            policy.act(world.raw, running, actions)
            world.step(actions)
            if any(wanted.values()):
                track.append(_relative(world))
            success[block] |= world.successes
            now = np.flatnonzero(world.lanes["running"])
            if progress is not None and len(now) != len(running):
                progress(start + count - len(now), int(success.sum()))
            running = now
        steps[block] = world.lanes["step"]
        for i, found in enumerate(success[block].tolist()):
            if wanted[found]:
                wanted[found] -= 1
                kept[start + i] = np.array([at[i] for at in track[: steps[start + i] + 1]])
    return Evaluation(success, steps, start_distance, scenario, time.perf_counter() - started, kept)


def _checked_starts(starts: ArrayLike | None, episodes: int) -> NDArray[np.float64] | None:
    """Starts as an array of rows; refuses what has not one row for each episode."""
    if starts is None:
        return None
    places = np.ascontiguousarray(starts, np.float64)
    if places.shape != (episodes, len(START)):
        raise ValueError(
            f"starts must have the shape ({episodes}, {len(START)}), a row of {', '.join(START)} for each episode,"
            f" got {places.shape}"
        )
    return places


def film(
    policy: Policy, scenario: Scenario, seed: int, every: int | None = None, pixels: int | None = None
) -> Iterator[Frame]:
    """The frames of one episode, one in `every` steps and the last; None for as many as `FRAMES` allows."""
    if every is None:
        steps = int(evaluate(policy, scenario, 1, seed, threads=1).steps[0])
        every = math.ceil(steps / (FRAMES - 1))
    world = World(1, scenario)
    world.seed([seed])
    world.begin()
    policy.begin([seed], scenario)
    actions = np.zeros(1, np.int64)
    lane = world.lanes[0]
    path = [(float(lane["x"]), float(lane["y"]))]
    while lane["running"]:
        if lane["step"] % every == 0:
            yield draw(world, 0, path, pixels or PIXELS)
        policy.act(world.raw, np.zeros(1, np.int64), actions)
        world.step(actions)
        path.append((float(lane["x"]), float(lane["y"])))
    yield draw(world, 0, path, pixels or PIXELS)


def _warm_up(policy: Policy, scenario: Scenario) -> None:
    """Compile, or load from the cache, the kernels of an evaluation before its speed is measured."""
    world = World(1, scenario)
    world.begin()
    policy.begin([0], scenario)
    policy.act(world.raw, np.zeros(1, np.int64), np.zeros(1, np.int64))
    world.step(np.zeros(1, np.int64))


def _relative(world: World) -> NDArray[np.float32]:
    """Positions of all lanes downwind of their sources, and to the left of that, shape (lanes, 2)."""
    lanes, wind = world.lanes, world.rows["wind_direction"]
    x, y = lanes["x"] - lanes["source_x"], lanes["y"] - lanes["source_y"]
    return np.stack(
        [x * np.cos(wind) + y * np.sin(wind), y * np.cos(wind) - x * np.sin(wind)], axis=1, dtype=np.float32
    )
