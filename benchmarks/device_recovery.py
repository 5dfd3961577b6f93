"""A navigator whose wind vane is turned by 90 degrees: success with and without learning on the device.

    python benchmarks/device_recovery.py [--runs runs/device] [--seeds 10] [--first 20] [--episodes 400] [--write]

Each seed trains a navigator with a straight vane, which takes about a minute if it is not in the folder already. Its C
then flies in a world of held-out episodes, in float32, as on the device. Intervals are 95 % by Student's t over seeds.
`--write` puts the table into docs/edge.md. Settings of the learning were chosen with `--first 900`. The arm that learns
only while it fails was added after a table of seeds 0 to 9. The last arm was changed after one of seeds 10 to 19, in
which constant learning with 0.1 for a whiff reached 44.1 % [18.9 %, 69.4 %] in the last column. So the table has seeds
from 20 on, after which nothing was changed.
"""

import argparse
import dataclasses
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from documents import insert
from numpy.typing import NDArray

import gpf
from gpf.edge.learners import ENDED, FIRST, OUT_OF_TIME, RUNNING, Learners
from gpf.edge.learning import Learning, learning_of
from gpf.navigation.agents import Navigator, load_navigator
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.network import Rules
from gpf.plume.scenario import Scenario
from gpf.plume.world import World
from gpf.reports.statistics import mean_interval
from gpf.reports.tables import markdown_table

SEEDS = HELD_OUT + 7_020 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
EPOCH = 10
"""Episodes between two ends of an epoch."""
STAGES = ((0, 25), (25, 50), (50, 100), (100, 200), (200, 400))
"""Episodes over which success is averaged."""
TURNED = {"vane_offset": 90.0}
SENSED = {"reward_shaping": 0.0, "reward_whiff": 0.3}
"""A reward that a robot can measure itself: time, whiffs and the source, but not the distance that it has won."""
GROWING = Rules(
    mode="max", grow_patience=5, grow_threshold=0.0, max_depth=2, weight_threshold=0.05, belief_increment=0.1,
    prune_patience=3, belief_threshold=0.25, saliency_threshold=0.05, freeze_patience=None,
)  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """A way to go on."""

    name: str
    rate: float
    world: dict[str, Any]
    rules: Rules = dataclasses.field(default_factory=Rules.fixed)
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of the learning's settings."""
    enough: float = 2.0
    """Success rate of an epoch after which it does not learn in the next."""


ARMS = (
    Arm("straight vane, without learning", 0.0, {}),
    Arm("turned vane, without learning", 0.0, TURNED),
    Arm("turned vane, learning", 3e-4, TURNED),
    Arm("turned vane, learning until 9 of 10 searches succeed", 3e-4, TURNED, enough=0.9),
    Arm("turned vane, learning, growing and pruning", 3e-4, TURNED, GROWING),
    Arm(
        "turned vane, learning until 9 of 10 searches succeed, distance not rewarded",
        1e-4,
        TURNED | SENSED,
        changes={"discount": 0.95, "exploration": 0.1},
        enough=0.9,
    ),
)


def main() -> None:
    """Train what is missing, fly, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/device"), help="folder of the trained navigators")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=20, help="first seed")
    parser.add_argument("--episodes", type=int, default=STAGES[-1][1])
    parser.add_argument("--write", action="store_true", help="put the table into docs/edge.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    navigators = [trained(arguments.runs / f"seed-{seed}", seed) for seed in seeds]
    rows, results = [], {}
    for arm in ARMS:
        successes, learners = fly(arm, navigators, [SEEDS + seed for seed in seeds], arguments.episodes)
        rows.append((arm.name, *(stage(successes, *bounds) for bounds in STAGES if bounds[1] <= arguments.episodes)))
        results[arm.name] = successes.mean(0).tolist()
        print(*rows[-1], sep=" | ", flush=True)
        if arm.rules.grows:
            pruned, depths = (learners.memory["belief"] < 0.0).sum(1), learners.memory["depth"]
            print(f"  hidden layers {depths.tolist()}, pruned weights {pruned.tolist()}")
    heads = tuple(f"episodes {a + 1}-{b}" for a, b in STAGES if b <= arguments.episodes)
    table = markdown_table(("navigator", *heads), rows)
    print(table)
    if arguments.write:
        insert("docs/edge.md", "recovery", table)
    if arguments.json:
        print(json.dumps(results))


def trained(folder: Path, seed: int) -> Navigator:
    """The navigator of a seed: 32 units that learn the values of actions."""
    if not (folder / "checkpoints" / "last").is_dir():
        gpf.train(
            folder, threads=1, learner="parallel", observation="memory", layer_norm=False, width=32, gpf=False,
            steps=3_000_000, seed=seed, evaluate=0,
        )  # fmt: skip
    return load_navigator(folder)


def fly(
    arm: Arm, navigators: Sequence[Navigator], seeds: Sequence[int], episodes: int
) -> tuple[NDArray[np.bool_], Learners]:
    """Let the C of each navigator live through episodes; returns which succeeded, shape (navigators, episodes)."""
    learnings = [dataclasses.replace(learning_of(one), rules=arm.rules, **arm.changes) for one in navigators]
    with tempfile.TemporaryDirectory() as folder:
        learners = Learners(Path(folder), learnings[0], seeds)
    for lane, learning in enumerate(learnings):
        set_weights(learners.memory[lane], learning)
    learners.memory["rate"] = arm.rate
    home = navigators[0].config.rewarded(navigators[0].scenario)
    return live(learners, dataclasses.replace(home, **arm.world), seeds, episodes, arm), learners


def set_weights(learner: Any, learning: Learning) -> None:
    """Begin from another navigator of the same structure."""
    for layer, end in ((learning.layers[0], 0), (learning.layers[1], learner["values"].size)):
        values = np.concatenate([layer.weight.T.ravel(), layer.bias])
        learner["values"][end - values.size if end else 0 : end or values.size] = values


def live(learners: Learners, scenario: Scenario, seeds: Sequence[int], episodes: int, arm: Arm) -> NDArray[np.bool_]:
    """Live through episodes in a world; every tenth ends an epoch, whose metric is the success rate."""
    world, count = World(len(seeds), scenario, threads=1), len(seeds)
    world.seed(seeds)
    world.begin()
    kinds, rewards = np.full(count, FIRST, np.uint8), np.zeros(count, np.float32)
    successes: list[list[bool]] = [[] for _ in seeds]
    while min(map(len, successes)) < episodes:
        learners.step(world.raw, rewards, kinds)
        over = kinds >= ENDED
        world.step(learners.actions, restart=True)
        rewards[:] = world.rewards
        kinds[:] = np.where(over, FIRST, RUNNING)
        kinds[world.truncations] = OUT_OF_TIME
        kinds[world.terminations] = ENDED
        for lane in np.flatnonzero(world.truncations | world.terminations):
            successes[lane].append(bool(world.successes[lane]))
            if len(successes[lane]) % EPOCH == 0:
                rate = float(np.mean(successes[lane][-EPOCH:]))
                learners.end_epoch(rate, int(lane))
                learners.memory["rate"][lane] = arm.rate if rate < arm.enough else 0.0
    return np.array([one[:episodes] for one in successes])


def stage(successes: NDArray[np.bool_], start: int, stop: int) -> str:
    """The success rate over some episodes, with its interval over seeds."""
    mean, low, high = mean_interval(successes[:, start:stop].mean(1))
    return f"{mean:.1%} [{max(low, 0.0):.1%}, {min(high, 1.0):.1%}]"


if __name__ == "__main__":
    main()
