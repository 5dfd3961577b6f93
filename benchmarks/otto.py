"""Our searchers on OTTO's grid task, next to OTTO's own numbers, and the time of a decision.

    python benchmarks/otto.py [--write]

OTTO's numbers were measured with its own code, github.com/C0PEP0D/otto, and as many runs. A row agrees if the means
differ by no more than the root of the summed squares of both half-widths. `--write` puts both tables into
docs/opponents.md.
"""

import argparse
import math
import time

from documents import insert

from gpf.navigation.opponents.grid_task import POLICIES, GridTask, search
from gpf.reports.tables import markdown_table

TASKS = {
    "1D, lambda 2, R 2, N 33": (GridTask(1, 2.0, 2.0, 33), 2000),
    "2D, lambda 1, R 2, N 19": (GridTask(2, 1.0, 2.0, 19), 6400),
}
"""The tasks, and how many runs of each."""
OTTO = {
    ("1D, lambda 2, R 2, N 33", "infotaxis"): (13.08, 0.42),
    ("1D, lambda 2, R 2, N 33", "space-aware-infotaxis"): (7.22, 0.22),
    ("2D, lambda 1, R 2, N 19", "infotaxis"): (11.95, 0.23),
    ("2D, lambda 1, R 2, N 19", "space-aware-infotaxis"): (11.66, 0.24),
}
"""Mean arrival times of OTTO's code, and half-widths of their 95 % intervals, steps."""
TIMED = GridTask(2, 3.0, 2.0, 37)
"""The task whose decisions are timed."""


def main() -> None:
    """Search, time, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/opponents.md")
    arguments = parser.parse_args()
    table, times = compared(arguments.seed), timed()
    print(f"{table}\n\n{times}")
    if arguments.write:
        insert("docs/opponents.md", "otto", table)
        insert("docs/opponents.md", "otto time", times)


def compared(seed: int) -> str:
    """Mean arrival times of all agents on all tasks."""
    rows = []
    for name, (task, runs) in TASKS.items():
        for policy in POLICIES:
            ours = search(task, policy, runs, seed)
            row = [name, f"`{policy}`", f"{ours.mean:.2f} +- {ours.error:.2f}", f"{ours.found:.2%}"]
            if (name, policy) in OTTO:
                mean, error = OTTO[name, policy]
                agrees = abs(ours.mean - mean) <= math.hypot(ours.error, error)
                row += [f"{mean:.2f} +- {error:.2f}", "yes" if agrees else "no"]
            else:
                row += ["", ""]
            rows.append([*row, f"{runs:,}"])
    return markdown_table(["task", "agent", "ours, steps", "found", "OTTO, steps", "agree", "runs"], rows)


def timed() -> str:
    """Processor time of a decision and of the update that follows, the fastest of three times 10 runs."""
    rows = []
    for policy in POLICIES:
        search(TIMED, policy, 1)
        best = math.inf
        for seed in range(3):
            started = time.process_time()
            decisions = search(TIMED, policy, 10, seed).decisions
            best = min(best, (time.process_time() - started) / decisions)
        rows.append([f"`{policy}`", f"{1e3 * best:.3f}"])
    return markdown_table(["agent", "time of a decision at 37 x 37, one core, ms"], rows)


if __name__ == "__main__":
    main()
