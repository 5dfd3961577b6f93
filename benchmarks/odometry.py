"""Odometry by IMU, vane and plume contacts: errors, consistency, and what they cost a navigator.

    python benchmarks/odometry.py errors [--episodes 1000] [--write]
    python benchmarks/odometry.py cost RUN ... [--episodes 2000] [--write]

`errors` lets cast-and-surge search with each grade of IMU and each arm. `cost` evaluates navigators, each in the world
it was trained in, with perfect odometry and with the filter. `--write` puts the tables into docs/odometry.md.
"""

import argparse
import dataclasses
import math
from typing import Any

import numpy as np
from documents import insert
from numpy.typing import NDArray

from gpf.navigation.agents import load_navigator
from gpf.navigation.odometry import GRADES, Estimating
from gpf.navigation.odometry.consistency import band, errors, invariant_errors, nees
from gpf.navigation.odometry.kalman import AXIS, HEADING, POSE, X, Y
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.scenario import Scenario
from gpf.plume.world import World
from gpf.reports.tables import markdown_table

SEEDS = HELD_OUT + 7_011 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
ARMS: tuple[Any, ...] = ("none", "vane", "vane and gas")
KNOWN = 0.01
"""Standard deviation of the place of an axis that is known beforehand, m."""
PAPER = Scenario.preset("paper")
STAY = dataclasses.replace(PAPER, width=80.0, height=80.0, success_radius=0.01, max_steps=1800)
"""Three minutes near a source that is never found, far from walls."""
WORLDS = {"`paper`": PAPER, "`turbulent`": Scenario.preset("turbulent")}


def follow(scenario: Scenario, count: int, policy: Estimating, known: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Plain errors, shape (episodes, 6), and NEES at the end of the episodes in which no wall was touched."""
    world, seeds = World(count, scenario, 1), range(SEEDS, SEEDS + count)
    world.seed(seeds)
    world.begin()
    policy.begin(seeds, scenario)
    start, axis = world.lanes[["x", "y"]].copy(), world.lanes["source_y"] - world.lanes["y"]  # the wind blows along +x
    actions, free = np.zeros(count, np.int64), np.ones(count, np.bool_)
    plain, normed = np.zeros((count, POSE)), np.zeros(count)
    running = np.arange(count)
    while len(running):
        policy.act(world.raw, running, actions)
        lanes, trackers = world.lanes, policy.trackers
        if known:
            trackers["estimate"]["mean"][:, AXIS] = axis
            known = False
        own = [trackers[name] for name in ("speed", "gyro_bias", "accelerometer_bias")]
        pose = [lanes["x"] - start["x"], lanes["y"] - start["y"], lanes["heading"]]
        truth = np.stack([*pose, *own], axis=1)[running]
        estimate = trackers["estimate"][running]
        means = estimate["mean"][:, :POSE]
        plain[running] = errors(means, truth)
        normed[running] = nees(invariant_errors(means, truth), estimate["covariance"][:, :POSE, :POSE])
        free[running] &= world.raw[running, 5] == 0.0
        world.step(actions)
        running = np.flatnonzero(lanes["running"])
    return plain[free], normed[free]


def rmse(values: NDArray[np.float64]) -> str:
    """Root mean square with its 95 % bootstrap interval over episodes."""
    rng = np.random.default_rng(0)
    squares = values**2
    draws = np.sqrt(squares[rng.integers(0, len(squares), (1000, len(squares)))].mean(axis=1))
    low, high = np.quantile(draws, [0.025, 0.975])
    return f"{math.sqrt(squares.mean()):.2f} [{low:.2f}, {high:.2f}]"


def error_rows(name: str, scenario: Scenario, episodes: int, arms: tuple[Any, ...]) -> list[list[str]]:
    """The rows of a world: every grade, every arm."""
    rows = []
    for grade in GRADES:
        for arm in arms:
            known = arm not in ARMS
            more = {"axis_prior": KNOWN} if known else {}
            policy = Estimating(CastAndSurge(), grade, "vane and gas" if known else arm, **more)  # type: ignore[arg-type]
            plain, normed = follow(scenario, episodes, policy, known)
            low, high = band(POSE, len(normed))
            verdict = "in" if low < normed.mean() < high else "above" if normed.mean() > high else "below"
            shown = [rmse(plain[:, Y]), rmse(plain[:, X]), rmse(np.degrees(plain[:, HEADING]))]
            consistency = [f"{normed.mean():.2f}", f"{low:.2f} to {high:.2f}: {verdict}"]
            rows.append([name, grade, arm, *shown, *consistency, str(len(normed))])
            print(rows[-1], flush=True)
    return rows


def errors_tables(episodes: int, write: bool) -> None:
    """Errors in search episodes, and near a source for minutes."""
    header = ["world", "IMU", "aids", "crosswind, m [95 %]", "downwind, m [95 %]", "heading, deg [95 %]", "ANEES",
              "95 % band", "episodes"]  # fmt: skip
    search = [row for name, world in WORLDS.items() for row in error_rows(name, world, episodes, ARMS)]
    stay = error_rows("three minutes", STAY, max(episodes // 4, 250), (*ARMS, "vane and gas, axis known"))
    for name, rows in (("search", search), ("stay", stay)):
        table = markdown_table(header, rows)
        print(table)
        if write:
            insert("docs/odometry.md", name, table)


def cost_table(runs: list[str], episodes: int, write: bool) -> None:
    """Success and SPL of navigators, each in its own world, paired by episode with perfect odometry."""
    rows = []
    for run in runs:
        navigator = load_navigator(run)
        perfect = None
        for grade in ("perfect", *GRADES):
            options: dict[str, Any] = {} if perfect is None else {"odometry": "filter", "imu": grade}
            result = navigator.evaluate(episodes, threads=1, **options)
            summary = result.summary()
            perfect = result if perfect is None else perfect
            change = result.success.astype(float) - perfect.success
            half = 1.96 * change.std(ddof=1) / math.sqrt(episodes)
            rows.append([
                f"`{navigator.config.scenario}`", str(navigator.config.seed), grade,
                f"{summary['success']:.2%} [{summary['low']:.2%}, {summary['high']:.2%}]",
                "" if result is perfect else f"{change.mean() * 100:+.2f} ± {half * 100:.2f}", f"{summary['spl']:.3f}",
                "" if result is perfect else spl_change(result, perfect),
            ])  # fmt: skip
            print(rows[-1], flush=True)
    table = markdown_table(
        ["world", "seed", "odometry", "success [95 %]", "change, points", "SPL", "change of SPL [95 %]"], rows
    )
    print(table)
    if write:
        insert("docs/odometry.md", "cost", table)


def spl_change(result: Any, perfect: Any) -> str:
    """The mean change of SPL over paired episodes, with its normal 95 % interval."""
    change = scores(result) - scores(perfect)
    return f"{change.mean():+.3f} ± {1.96 * change.std(ddof=1) / math.sqrt(len(change)):.3f}"


def scores(result: Any) -> NDArray[np.float64]:
    """SPL of each episode."""
    stride = result.scenario.speed * result.scenario.time_step
    shortest = np.ceil((result.start_distance - result.scenario.success_radius) / stride)
    score: NDArray[np.float64] = result.success * np.clip(shortest, 1, result.steps) / result.steps
    return score


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("errors", "cost"))
    parser.add_argument("runs", nargs="*", help="folders of runs, for cost")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/odometry.md")
    arguments = parser.parse_args()
    if arguments.what == "errors":
        errors_tables(arguments.episodes, arguments.write)
    else:
        cost_table(arguments.runs, arguments.episodes, arguments.write)


if __name__ == "__main__":
    main()
