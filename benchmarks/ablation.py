"""What each group of memory features is worth: train without it, and see what is lost.

    python benchmarks/ablation.py [--seeds 4] [--steps 3000000] [--jobs 2] [--runs runs/ablation] [--write]

The default learner with two fixed layers, paired by seed; seeds begin at 200, where no choice was made. A group
earns its place where leaving it out costs success or path length. `--write` puts the table into docs/navigators.md.
"""

import argparse
from pathlib import Path

import numpy as np
from documents import insert
from scipy import stats

from gpf.navigation.config import Config
from gpf.plume.memory import FEATURES
from gpf.progress import runs_progress
from gpf.tasks.many import train_all

FIRST_SEED = 200


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/navigators.md")
    arguments = parser.parse_args()
    groups: list[str | None] = [None, *FEATURES]
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    wanted = {
        folder(arguments.runs, group, seed): Config(
            gpf=False, depth=2, seed=seed, steps=arguments.steps, without=(group,) if group else ()
        )
        for seed in seeds
        for group in groups
    }
    with runs_progress(str(arguments.runs), len(wanted)) as tell:
        results = train_all(wanted, arguments.jobs, tell)

    def column(group: str | None, key: str) -> np.ndarray:
        return np.array([results[folder(arguments.runs, group, seed)][key] for seed in seeds])

    lines = ["| without | success | change | SPL | change [95 %] |", "|---|---|---|---|---|"]
    for group in groups:
        success, spl = column(group, "success"), column(group, "spl")
        lost, longer = success - column(None, "success"), spl - column(None, "spl")
        changes = ("", "") if group is None else (f"{lost.mean():+.2%}", f"{longer.mean():+.3f} {interval(longer)}")
        lines.append(
            f"| {group or 'nothing'} | {success.mean():.2%} | {changes[0]} | {spl.mean():.3f} | {changes[1]} |"
        )
    text = "\n".join(lines)
    print(text)
    if arguments.write:
        insert("docs/navigators.md", "ablation", text)


def folder(runs: Path, group: str | None, seed: int) -> Path:
    """Where a run is kept."""
    return runs / (group or "nothing").replace(" ", "-") / str(seed)


def interval(differences: np.ndarray) -> str:
    """Student's interval of the mean of paired differences."""
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return f"[{differences.mean() - half:+.3f}, {differences.mean() + half:+.3f}]"


if __name__ == "__main__":
    main()
