"""Line and branch coverage of the tests, by package.

    python benchmarks/coverage_table.py [--from FILE.json] [--against FILE.json] [--jobs 2]

Runs the suite (without the slow tests) under coverage, writes runs/coverage.json and prints a table. `--from` prints
the table of a coverage JSON that exists already. `--against` adds the numbers of another run. Processes that tests
start are not counted, nor can coverage see into kernels that numba has compiled: their lines count as missed, and the
last line says how many they are.

Not named coverage.py: numba imports `coverage`, and every script in this folder would then import this one.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.sites import is_kernel

ROOT = Path(__file__).parent.parent


@dataclass
class Counts:
    """Lines and branches of some files."""

    lines: int = 0
    lines_covered: int = 0
    branches: int = 0
    branches_covered: int = 0

    def add(self, summary: dict[str, int]) -> None:
        """Add one file's summary in coverage's JSON."""
        self.lines += summary["num_statements"]
        self.lines_covered += summary["covered_lines"]
        self.branches += summary.get("num_branches", 0)
        self.branches_covered += summary.get("covered_branches", 0)


def main() -> None:
    """Measure, or read, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE.json", help="print this run's table")
    parser.add_argument("--against", type=Path, metavar="FILE.json", help="add this run's numbers")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests (2)")
    arguments = parser.parse_args()
    path, code = (arguments.source, 0) if arguments.source else measure(arguments.jobs)
    report = json.loads(path.read_text())
    against = by_package(json.loads(arguments.against.read_text())) if arguments.against else None
    print(table(by_package(report), against))
    if not arguments.source:
        print(f"{missed_in_kernels(report)} of the missed lines are in compiled kernels, where coverage is blind")
    sys.exit(code)


def measure(jobs: int) -> tuple[Path, int]:
    """Run the tests, with pytest's exit code."""
    path = ROOT / "runs" / "coverage.json"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-n", str(jobs), "--cov=gpf", "--cov-branch"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
        "COVERAGE_FILE": str(path.with_suffix(".data")),
    }
    done = subprocess.run([*command, f"--cov-report=json:{path}"], cwd=ROOT, env=environment)
    if not path.exists():
        raise SystemExit(f"pytest wrote no coverage (exit code {done.returncode})")
    return path, done.returncode


def by_package(report: dict[str, Any]) -> dict[str, Counts]:
    """Counts of each subpackage, of the modules at the top level, and of all."""
    found: dict[str, Counts] = defaultdict(Counts)
    for file, values in report["files"].items():
        parts = file.replace("\\", "/").split("src/")[-1].split("/")  # gpf, package, module
        found[parts[1] if len(parts) > 2 else "(top level)"].add(values["summary"])
        found["total"].add(values["summary"])
    return dict(found)


def table(ours: dict[str, Counts], against: dict[str, Counts] | None) -> str:
    """One row per package of either run, and the total last; packages that only one run has stay empty in the other."""
    names = sorted((ours.keys() | (against or {}).keys()) - {"total"})
    header = f"{'package':<14}" + _columns("lines", "covered", "branches", "covered")
    if against is not None:
        header += "   |" + _columns("lines", "covered", "branches", "covered") + "   (against)"
    rows = [header]
    for name in (*names, "total"):
        row = f"{name:<14}" + _cells(ours.get(name))
        rows.append(row if against is None else row + "   |" + _cells(against.get(name)))
    return "\n".join(row.rstrip() for row in rows)


def missed_in_kernels(report: dict[str, Any]) -> int:
    """Missed lines of this checkout that are in functions numba compiles."""
    missed = 0
    for file, values in report["files"].items():
        kernels = [node for node in ast.walk(ast.parse((ROOT / file).read_bytes())) if is_kernel(node)]
        inside = {line for node in kernels for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        missed += len(inside & set(values["missing_lines"]))
    return missed


def _cells(counts: Counts | None) -> str:
    if counts is None:
        return _columns("", "", "", "")
    lines = _share(counts.lines_covered, counts.lines)
    return _columns(str(counts.lines), lines, str(counts.branches), _share(counts.branches_covered, counts.branches))


def _columns(*cells: str) -> str:
    return "".join(f"{cell:>10}" for cell in cells)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


if __name__ == "__main__":
    main()
