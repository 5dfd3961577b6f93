"""The baselines on both presets, as a table.

    python benchmarks/baselines.py [--episodes 2000] [--seed 0] [--write] [--json]

`--write` puts the table into docs/plume.md.
"""

import argparse
import json

from documents import insert

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import make_policy
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import Scenario
from gpf.reports.tables import markdown_table

BASELINES = ("random", "reactive", "cast-and-surge")
"""The policies of this table; docs/opponents.md has the others."""


def main() -> None:
    """Evaluate every baseline on every preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="block of held-out episodes")
    parser.add_argument("--write", action="store_true", help="put the table into docs/plume.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    rows, results = [], {}
    for preset in PRESETS:
        for name in BASELINES:
            first_seed = HELD_OUT + arguments.seed * BLOCK
            r = evaluate(make_policy(name), Scenario.preset(preset), arguments.episodes, first_seed).summary()
            results[f"{preset}/{name}"] = r
            rate = f"{r['success']:.2%} [{r['low']:.2%}, {r['high']:.2%}]"
            steps, *arrived = (
                "-" if r[key] is None else f"{r[key]:.0f}"
                for key in ("mean_steps", "arrival_q5", "arrival_q50", "arrival_q95")
            )
            rows.append([preset, name, rate, steps, " / ".join(arrived), f"{r['spl']:.3f}"])
    header = ["scenario", "policy", "success [95 %]", "mean steps", "5 / 50 / 95 % arrived by", "SPL"]
    table = markdown_table(header, rows)
    print(table)
    if arguments.write:
        insert("docs/plume.md", "baselines", table)
    if arguments.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
