"""Hand-written and belief-based agents in all presets.

    python benchmarks/opponents.py [--episodes 200] [--scenarios paper turbulent] [--write]

Held-out episodes that nothing else uses. A decision's time is the processor time of an agent's calls, divided by the
steps of all episodes, after one short run that compiles and fits. `--write` puts the tables into docs/opponents.md.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from documents import insert
from numpy.typing import NDArray

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import POLICIES, Policy, make_policy
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import Scenario
from gpf.reports.tables import markdown_table

SEEDS = HELD_OUT + 7_005 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
LEFT_OUT = ("random", "reactive")
"""Policies that the table has no room for."""


class Timed:
    """A policy whose decisions are timed."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.seconds = 0.0
        self.decisions = 0

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Begin the policy's episodes."""
        self.policy.begin(seeds, scenario)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Let the policy act, and take the time."""
        started = time.process_time()
        self.policy.act(raw, lanes, actions)
        self.seconds += time.process_time() - started
        self.decisions += len(lanes)


def main() -> None:
    """Evaluate, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--scenarios", nargs="+", default=list(PRESETS), metavar="PRESET")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/opponents.md")
    arguments = parser.parse_args()
    names = [name for name in POLICIES if name not in LEFT_OUT]
    rows: dict[str, list[list[Any]]] = {"success": [], "spl": []}
    clocks: dict[str, list[float]] = {name: [] for name in names}
    for preset in arguments.scenarios:
        success, spl = [f"`{preset}`"], [f"`{preset}`"]
        for name in names:
            policy, world = Timed(make_policy(name)), Scenario.preset(preset)
            evaluate(policy, world, 1, SEEDS)
            policy.seconds, policy.decisions = 0.0, 0
            result = evaluate(policy, world, arguments.episodes, SEEDS)
            numbers = result.summary()
            clocks[name].append(1e6 * policy.seconds / policy.decisions)
            success.append(f"{numbers['success']:.1%} [{numbers['low']:.0%}, {numbers['high']:.0%}]")
            spl.append(f"{numbers['spl']:.3f}")
            print(preset, name, success[-1], spl[-1], f"{clocks[name][-1]:.1f} us", flush=True)
        rows["success"].append(success)
        rows["spl"].append(spl)
        if arguments.write:  # after each preset, for it takes long
            times = [[f"`{name}`", f"{np.median(clocks[name]):.1f}", f"{max(clocks[name]):.1f}"] for name in names]
            insert("docs/opponents.md", "opponents success", markdown_table(["preset", *names], rows["success"]))
            insert("docs/opponents.md", "opponents spl", markdown_table(["preset", *names], rows["spl"]))
            header = ["agent", "median over presets, us", "slowest preset, us"]
            insert("docs/opponents.md", "opponents time", markdown_table(header, times))


if __name__ == "__main__":
    main()
