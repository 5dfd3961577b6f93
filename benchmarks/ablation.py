"""What each group of memory features is worth: train without it, and see what is lost.

    python benchmarks/ablation.py [--seeds 5] [--steps 3000000] [--jobs 2] [--runs runs/ablation] [--write]

The default learner with two fixed layers, paired by seed; seeds begin at 200, where no choice was made. A group
earns its place where leaving it out costs success or path length; groups that stand in for each other are also left
out together. `--write` puts the table into docs/navigators.md.
"""

import argparse
from pathlib import Path

import numpy as np
from documents import insert
from scipy import stats

from gpf.navigation.config import Config
from gpf.plume.memory import FEATURES
from gpf.runs.progress import runs_progress
from gpf.tasks.many import train_all

FIRST_SEED = 200
TOGETHER = (
    ("whiff", "side", "wind", "ever met"),
    ("whiff", "time since whiff", "side", "wind", "ever met"),
)
Groups = tuple[str, ...]


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--write", action="store_true", help="put the table into docs/navigators.md")
    arguments = parser.parse_args()
    left_out: list[Groups] = [(), *((group,) for group in FEATURES), *TOGETHER]
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    wanted = {
        folder(arguments.runs, groups, seed): Config(
            gpf=False, depth=2, seed=seed, steps=arguments.steps, without=groups
        )
        for seed in seeds
        for groups in left_out
    }
    with runs_progress(str(arguments.runs), len(wanted)) as tell:
        results = train_all(wanted, arguments.jobs, tell)

    def column(groups: Groups, key: str) -> np.ndarray:
        return np.array([results[folder(arguments.runs, groups, seed)][key] for seed in seeds])

    lines = ["| without | success, % | change [95 %], points | SPL | change [95 %] |", "|---|---|---|---|---|"]
    for groups in left_out:
        success, spl = 100 * column(groups, "success"), column(groups, "spl")
        changes = ["", ""]
        if groups:
            lost, longer = success - 100 * column((), "success"), spl - column((), "spl")
            changes = [f"{lost.mean():+.2f} {interval(lost, 2)}", f"{longer.mean():+.3f} {interval(longer, 3)}"]
        name = ", ".join(groups) or "nothing"
        lines.append(f"| {name} | {success.mean():.2f} | {changes[0]} | {spl.mean():.3f} | {changes[1]} |")
    text = "\n".join(lines)
    print(text)
    if arguments.write:
        insert("docs/navigators.md", "ablation", text)


def folder(runs: Path, groups: Groups, seed: int) -> Path:
    """Where a run is kept."""
    return runs / ("-".join(groups) or "nothing").replace(" ", "-") / str(seed)


def interval(differences: np.ndarray, digits: int) -> str:
    """Student's interval of the mean of paired differences; in bold where it does not hold zero."""
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    low, high = differences.mean() - half, differences.mean() + half
    text = f"[{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


if __name__ == "__main__":
    main()
