"""How fast the plume world is, beside the code of the paper's authors, in one run on the same cores.

    python benchmarks/plume_speed.py --reference PATH [--rounds 15] [--lanes 256] [--write] [--json]

PATH is a checkout of the authors' repository. All contestants take random actions in the same world and are measured in
turns, `--rounds` times; medians count. One core, except where two threads are compared with one. Then it prints where
the time of a step goes, and how long the first process compiles. `--write` puts the ratios into README.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from documents import insert
from numba import njit

import gpf  # noqa: F401 - registers the environments
from gpf.plume import physics, rewards, rng, sensors, tokens
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World
from gpf.reports.tables import markdown_table

AUTHORS = "authors' code"
SECONDS = 0.4
"""Least duration of one measurement."""
MANY = 4096
"""Lanes with which threads and memory are measured."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lanes", type=int, default=256, help="lanes of the vector environment on one core")
    parser.add_argument("--write", action="store_true", help="put the ratios into README.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    arguments = parser.parse_args()
    if arguments.reference is not None and not (arguments.reference / "agent" / "env.py").is_file():
        parser.error(
            f"--reference: {arguments.reference} has no agent/env.py; accepted: a checkout of the authors' code"
        )

    if arguments.write and arguments.reference is None:
        parser.error("--write: needs --reference, which the table is about")

    cores = sorted(os.sched_getaffinity(0))
    on_one_core = {
        "vector environment": vector_contestant(arguments.lanes, 1),
        "gymnasium.make": single_contestant(),
    }
    if arguments.reference is not None:
        on_one_core[AUTHORS] = reference_contestant(arguments.reference.resolve())
    os.sched_setaffinity(0, cores[:1])
    speeds = measure_in_turns(on_one_core, arguments.rounds)
    os.sched_setaffinity(0, cores)
    one, two = f"{MANY} lanes, one thread", f"{MANY} lanes, two threads"
    threaded = {one: vector_contestant(MANY, 1), two: vector_contestant(MANY, 2)}
    speeds |= measure_in_turns(threaded, arguments.rounds)

    print(f"\nsteps a second, median of {arguments.rounds} (lowest to highest):")
    for name, values in speeds.items():
        print(f"  {name:26} {statistics.median(values):12,.0f}  ({min(values):,.0f} to {max(values):,.0f})")
    ratios = {"threads": ratio(speeds, two, one)}
    if arguments.reference is not None:
        ratios["vector"] = ratio(speeds, "vector environment", AUTHORS)
        ratios["single"] = ratio(speeds, "gymnasium.make", AUTHORS)
        print("\nmedian of the ratios within a round:")
        print(f"  vector environment / authors' code     {ratios['vector']:7.1f}")
        print(f"  gymnasium.make / authors' code         {ratios['single']:7.1f}")
    print(f"  two threads / one thread               {ratios['threads']:7.2f}")

    print_breakdown(arguments.lanes, 1e9 / statistics.median(speeds["vector environment"]))
    print_memory(MANY)
    print_compilation()
    if arguments.write:
        insert("README.md", "speed", markdown(speeds, ratios))
    if arguments.json:
        print(json.dumps(ratios))


def markdown(speeds: dict[str, list[float]], ratios: dict[str, float]) -> str:
    """The ratios as a table, with the median speeds that they come from."""
    medians = {name: f"{statistics.median(values):,.0f}" for name, values in speeds.items()}
    many_one, many_two = (name for name in speeds if "lanes" in name)
    return markdown_table(
        ["", "steps/s", "ratio"],
        [
            ["authors' code", medians[AUTHORS], 1],
            ["`gymnasium.make`, with its wrappers", medians["gymnasium.make"], f"{ratios['single']:.0f}"],
            ["vector environment, one core", medians["vector environment"], f"{ratios['vector']:.0f}"],
            [many_one, medians[many_one], ""],
            [many_two, medians[many_two], f"{ratios['threads']:.2f} times one thread"],
        ],
    )


def ratio(speeds: dict[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of one contestant's speed in units of another's."""
    return statistics.median(a / b for a, b in zip(speeds[of], speeds[to], strict=True))


def measure_in_turns(contestants: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """The speed of each contestant in each round, steps a second."""
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            speeds[name].append(steps_per_second(run))
    return speeds


def steps_per_second(run: Callable[[], int]) -> float:
    """Repeat `run`, which returns how many steps it took, for long enough to measure."""
    steps, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        steps += run()
    return steps / seconds


def vector_contestant(lanes: int, threads: int) -> Callable[[], int]:
    """Our vector environment, in its steady state."""
    env = PlumeVectorEnv(lanes, "reference", threads=threads)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 6, (64, lanes))
    for _ in range(5):
        for row in actions:
            env.step(row)

    def run() -> int:
        for row in actions[:16]:
            env.step(row)
        return 16 * lanes

    return run


def single_contestant() -> Callable[[], int]:
    """Our single environment, with the wrappers that `gymnasium.make` puts around it."""
    env = gymnasium.make("gpf/Plume-v0", scenario="reference")
    env.reset(seed=0)
    return episode_contestant(env.step, env.reset, lambda result: result[2] or result[3])


def reference_contestant(path: Path) -> Callable[[], int]:
    """The authors' environment, with the configuration of the run that the paper reports."""
    import yaml

    sys.path.insert(0, str(path))
    from agent.env import PlumeNavigationEnv

    config = yaml.safe_load((path / "research" / "configs" / "exp_best.yaml").read_text())
    env = PlumeNavigationEnv(config["simulator"], config["tokenization"], config["rl_agent"], seed=0)
    env.reset()
    return episode_contestant(env.step, env.reset, lambda result: result[2])


def episode_contestant(
    step: Callable[[int], Any], reset: Callable[[], Any], over: Callable[[Any], bool]
) -> Callable[[], int]:
    """An environment of one lane that is reset when its episode is over."""
    actions = np.random.default_rng(0).integers(0, 6, 500).tolist()

    def run() -> int:
        for action in actions:
            if over(step(action)):
                reset()
        return len(actions)

    run()  # filaments fill the domain, so that no contestant starts in an empty one
    return run


@njit
def wind_part(world):
    rows, lanes, streams = world[:3]
    for i in range(len(lanes)):
        physics.step_wind(rows[i], lanes[i], streams[i])


@njit
def emission_part(world):
    rows, lanes, streams, filaments = world[:4]
    for i in range(len(lanes)):
        physics.emit(rows[i], lanes[i], filaments[i], streams[i])


@njit
def advection_part(world):
    rows, lanes, _, filaments = world[:4]
    for i in range(len(lanes)):
        physics.advect(rows[i], lanes[i], filaments[i])


@njit
def motion_part(world):
    rows, lanes = world[:2]
    for i in range(len(lanes)):
        physics.move(rows[i], lanes[i], i % 6)


@njit
def sensing_part(world):
    rows, lanes, streams, filaments, scratch = world[:5]
    for i in range(len(lanes)):
        sensors.sense(rows[i], lanes[i], filaments[i], scratch, streams[i])


@njit
def reward_part(world):
    rows, lanes, terms = world[0], world[1], world[5]
    for i in range(len(lanes)):
        lanes[i].distance += rewards.reward(rows[i], lanes[i], 1.0, False, terms[i])


@njit
def tokens_part(world):
    rows, lanes, out = world[0], world[1], world[6]
    for i in range(len(lanes)):
        tokens.tokenize(rows[i], lanes[i], out[i])


@njit
def random_part(world):
    rows, lanes, streams = world[:3]
    for i in range(len(lanes)):
        stream = streams[i]
        lanes[i].x = rng.normal(stream) + rng.normal(stream)  # wind speed and direction
        lanes[i].y = rng.normal(stream) + rng.normal(stream)  # noise of the two antennae
        lanes[i].heading = rng.poisson(stream, rows[i].emission_mean, rows[i].emission_none)
        lanes[i].left = rng.normal(stream)  # half a filament a step, two coordinates each


PARTS = {
    "wind": wind_part,
    "filaments: emission": emission_part,
    "filaments: advection": advection_part,
    "motion": motion_part,
    "concentration at both antennae, with noise": sensing_part,
    "reward": reward_part,
    "tokens": tokens_part,
    "random numbers (contained in the above)": random_part,
}


def print_breakdown(lanes: int, whole: float) -> None:
    """Time each part of a step on its own, over the lanes of a world in its steady state."""
    world = World(lanes, "reference", threads=1)
    world.seed(range(lanes))
    world.begin()
    for row in np.random.default_rng(0).integers(0, 6, (400, lanes)):
        world.step(row, restart=True)
    memory = (world.rows, world.lanes, world.streams, world.filaments, world.scratch[0], world.terms, world.tokens)
    before = [array.copy() for array in memory]
    alive = float((world.lanes["last"] - world.lanes["first"]).mean())
    print(f"\nwhere a step's time goes, ns (each part alone, {alive:.0f} filaments a lane; best of 50):")
    for name, part in PARTS.items():
        best = float("inf")
        for _ in range(50):
            for array, old in zip(memory, before, strict=True):
                array[...] = old
            start = time.perf_counter()
            part(memory)
            best = min(best, time.perf_counter() - start)
        print(f"  {name:44} {best / lanes * 1e9:7.0f}")
    print(f"  {'a whole step of the vector environment':44} {whole:7.0f}")
    print("  What bounds it: two exponentials for each filament, which keep the vector units busy.")


def print_memory(lanes: int) -> None:
    """What a process grows by when it makes this many lanes and steps them."""
    code = (
        "import numpy as np\n"
        "from gpf.plume.vector_env import PlumeVectorEnv\n"
        "def resident(): return 4096 * int(open('/proc/self/statm').read().split()[1])\n"
        "def play(n):\n"
        "    env = PlumeVectorEnv(n, 'reference'); env.reset(seed=0)\n"
        "    for _ in range(1500): env.step(np.zeros(n, np.int64))\n"
        "    return env\n"
        "play(1); before = resident()\n"
        f"env = play({lanes}); print((resident() - before) / 1e6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"\nmemory of {lanes} lanes: {float(done.stdout):.0f} MB")


def print_compilation() -> None:
    """How long the first step takes in a first process, which compiles, and in a second one."""
    code = (
        "import time, numpy as np\nfrom gpf.plume.vector_env import PlumeVectorEnv\n"
        "start = time.perf_counter()\n"
        "env = PlumeVectorEnv(1); env.reset(seed=0); env.step(np.zeros(1, np.int64))\n"
        "print(time.perf_counter() - start)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        seconds = [
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True).stdout)
            for _ in range(2)
        ]
    print(f"first step: {seconds[0]:.1f} s in a first process, which compiles; {seconds[1]:.2f} s in later ones")


if __name__ == "__main__":
    main()
