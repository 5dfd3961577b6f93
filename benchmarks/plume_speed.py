"""How fast the plume worlds are, next to the code of the paper's authors, in one run on the same cores.

    python benchmarks/plume_speed.py [--reference PATH] [--rounds 15] [--lanes 256] [--write] [--json]

PATH is a checkout of the authors' repository. All contestants take random actions and are measured in turns, `--rounds`
times; medians count. One core, except where two threads are compared with one. The first comparison is in `reference`,
the second between all presets. Then it prints where the time of a step goes, and how long the first process compiles.
`--write` puts the presets and, with `--reference`, the ratios to the authors' code into docs/plume.md.
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
from plume_parts import print_breakdown

import gpf  # noqa: F401 - registers the environments
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import Scenario
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World
from gpf.reports.tables import markdown_table

AUTHORS = "authors' code"
SECONDS = 0.4
"""Least duration of one measurement."""
MANY = 4096
"""Lanes with which threads and memory are measured."""
WORLDS = {
    **{name: Scenario.preset(name) for name in PRESETS},
    "turbulent, 21 x 21 nodes": Scenario.preset("turbulent").changed(["wind_grid=21"]),
}
"""The worlds that are compared with `reference`."""
MEASURED = ("reference", "turbulent")
"""Presets whose resident memory is measured, not only estimated."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lanes", type=int, default=256, help="lanes of the vector environment on one core")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/plume.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    arguments = parser.parse_args()
    if arguments.reference is not None and not (arguments.reference / "agent" / "env.py").is_file():
        parser.error(
            f"--reference: {arguments.reference} has no agent/env.py; accepted: a checkout of the authors' code"
        )

    cores = sorted(os.sched_getaffinity(0))
    on_one_core = {
        "vector environment": vector_contestant(arguments.lanes, 1),
        "gymnasium.make": single_contestant(),
    }
    if arguments.reference is not None:
        on_one_core[AUTHORS] = reference_contestant(arguments.reference.resolve())
    os.sched_setaffinity(0, cores[:1])
    speeds = measure_in_turns(on_one_core, arguments.rounds)
    presets = measure_in_turns(
        {name: vector_contestant(arguments.lanes, 1, world) for name, world in WORLDS.items()}, arguments.rounds
    )
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
    table = presets_table(presets, {name: resident(name, MANY) for name in MEASURED})
    print(f"\npresets, {arguments.lanes} lanes on one core; memory of {MANY:,} lanes:\n{table}\n")
    print_compilation()
    if arguments.write:
        insert("docs/plume.md", "speed", table)
    if arguments.write and arguments.reference is not None:
        insert("docs/plume.md", "against the authors", markdown(speeds, ratios))
    if arguments.json:
        print(json.dumps({**ratios, "presets": {name: ratio(presets, name, "reference") for name in presets}}))


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


def presets_table(speeds: dict[str, list[float]], measured: dict[str, float]) -> str:
    """Speed and memory of all presets, relative to `reference`; `measured` is resident memory, MB."""
    rows = []
    for name, values in speeds.items():
        memory = f"{allocated(WORLDS[name], MANY):,.0f} MB"
        seen = f"{measured[name]:,.0f} MB" if name in measured else ""
        rows.append(
            [name, f"{statistics.median(values):,.0f}", f"{ratio(speeds, name, 'reference'):.2f}", memory, seen]
        )
    return markdown_table(["preset", "steps/s", "ratio to reference", "memory, arrays", "memory, resident"], rows)


def allocated(scenario: Scenario, lanes: int) -> float:
    """The size of a world's arrays, MB."""
    arrays = World(lanes, scenario, threads=1).arrays()
    parts = [part for each in arrays for part in (each if isinstance(each, tuple) else (each,))]
    return sum(part.nbytes for part in parts) / 1e6


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


def vector_contestant(lanes: int, threads: int, scenario: Scenario | str = "reference") -> Callable[[], int]:
    """Our vector environment, in its steady state; its lanes do not end their episodes at the same time."""
    env = PlumeVectorEnv(lanes, scenario, threads=threads)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    env.world.lanes["step"] = rng.integers(0, env.world.rows["max_steps"].astype(int))
    actions = rng.integers(0, 6, (64, lanes))
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


def resident(preset: str, lanes: int) -> float:
    """What a process grows by when it makes this many lanes and steps them, MB."""
    code = (
        f"import numpy as np\npreset = {preset!r}\n"
        "from gpf.plume.vector_env import PlumeVectorEnv\n"
        "def resident(): return 4096 * int(open('/proc/self/statm').read().split()[1])\n"
        "def play(n):\n"
        "    env = PlumeVectorEnv(n, preset); env.reset(seed=0)\n"
        "    for _ in range(1500): env.step(np.zeros(n, np.int64))\n"
        "    return env\n"
        "play(1); before = resident()\n"
        f"env = play({lanes}); print((resident() - before) / 1e6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


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
