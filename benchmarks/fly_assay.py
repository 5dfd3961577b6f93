"""The flies' assay of Singh et al. (2023): 240 fixed starts in three winds, next to published numbers.

    python benchmarks/fly_assay.py [--repeats 5] [--write]

Every start is run `--repeats` times, each with a seed of its own. `--write` puts the table into docs/plume.md.
"""

import argparse

import numpy as np
from documents import insert

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import CastAndSurge, Policy, Random
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.presets import fly_starts
from gpf.plume.scenario import Scenario
from gpf.reports.tables import markdown_table

SEEDS = HELD_OUT + 7_003 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
POLICIES: dict[str, type[Policy]] = {"cast-and-surge": CastAndSurge, "random": Random}
PUBLISHED = {
    "fly-constant": ("46 to 65 %", "97 %"),
    "fly-once": ("21 to 58 %", "70 %"),
    "fly-many": ("9 to 43 %", "3 to 12 %"),
}
"""Success of the five best of 14 recurrent networks, and of a cast-and-surge in a re-implementation of their world."""


def main() -> None:
    """Run the assay, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="episodes of each start")
    parser.add_argument("--write", action="store_true", help="put the table into docs/plume.md")
    arguments = parser.parse_args()
    starts = np.tile(fly_starts(), (arguments.repeats, 1))
    rows = []
    for preset, (networks, other) in PUBLISHED.items():
        row = [f"`{preset}`"]
        for policy in POLICIES.values():
            one = evaluate(policy(), Scenario.preset(preset), len(starts), SEEDS, starts=starts).summary()
            row.append(f"{one['success']:.1%} [{one['low']:.1%}, {one['high']:.1%}]")
        rows.append([*row, networks, other])
    published = ["recurrent networks, best 5 of 14", "cast-and-surge, another implementation"]
    table = markdown_table(["preset", *(f"{name} [95 %]" for name in POLICIES), *published], rows)
    print(table)
    if arguments.write:
        insert("docs/plume.md", "flies", table)


if __name__ == "__main__":
    main()
