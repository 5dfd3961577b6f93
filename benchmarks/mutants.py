"""How much the tests notice: a random sample of small changes to the sources, and the share that makes a test fail.

    python benchmarks/mutants.py [--sample 200] [--seed 0] [--packages network plume ...] [--tests tests/network ...]

A first run of the suite records which test runs which lines. Each mutant then gets a private copy of the checkout and
only the tests that may notice it, fastest first; a survivor may have slow ones left, which a larger `--budget` runs.
Results go to runs/mutants/results.jsonl; a run that was interrupted continues there as long as neither sources nor
tests have changed. Survivors go to runs/mutants/survivors.txt. benchmarks/mutants.equivalent.txt lists those that no
test can notice, with the reason; they are counted out.
"""

import argparse
import json
import math
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.baseline import FILE_SIZE, MEMORY, Baseline, measure_baseline
from mutation.checkout import copy_checkout, environment, place, revision
from mutation.selection import Selector
from mutation.sites import EXCLUDED_FILES, Mutant, draw, find_mutants

SLACK, COMPILATION = 60.0, 180.0
"""Seconds allowed on top of three times the tests' own: for starting, and for compiling all kernels."""

Result = dict[str, Any]


def main() -> None:
    """Draw, run and report."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that the copies are removed
    root = arguments.root.resolve()
    found, excluded = find_mutants(root, arguments.packages)
    sample = draw(root, found, arguments.sample, arguments.seed)
    print(f"{len(sample)} of {len(found)} mutants, seed {arguments.seed}", flush=True)
    print(f"not mutated ({', '.join(EXCLUDED_FILES)}): {', '.join(excluded) or 'none'}", flush=True)
    folder = root / "runs" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder / "results.jsonl", revision(root, arguments.tests))
    waiting = [mutant for mutant in sample if not results.is_final(mutant, arguments.budget)]
    if len(waiting) < len(sample):
        print(f"{len(sample) - len(waiting)} of them were run before", flush=True)
    if waiting:
        run(root, waiting, results, arguments)
    listed = read_equivalents(arguments.root / "benchmarks" / "mutants.equivalent.txt")
    report = summarise([results.known[mutant.id] for mutant in sample], listed)
    (folder / "survivors.txt").write_text(report)
    print(report, end="")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=200, help="number of mutants (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    parser.add_argument("--packages", nargs="+", default=[], help="subpackages to mutate (all)")
    parser.add_argument("--tests", nargs="+", default=[], help="files or folders of tests that may be used (all)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests per mutant, fastest first (60)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the checkout (this one)")
    return parser.parse_args()


class Results:
    """Outcomes of mutants, kept in a file of JSON lines; those of other revisions stay in it unread."""

    def __init__(self, path: Path, revision: str) -> None:
        self.revision = revision
        self.known: dict[str, Result] = {}
        self._path = path
        if path.exists():
            text = path.read_text()
            if not text.endswith("\n"):
                path.write_text(text + "\n")  # the last line was cut off; the next result needs its own
            for line in text.splitlines():
                try:
                    result = json.loads(line)
                except json.JSONDecodeError:
                    continue  # of a run that was killed while it wrote
                if result["revision"] == revision:
                    self.known[result["mutant"]] = result

    def is_final(self, mutant: Mutant, budget: float) -> bool:
        """Whether a run with this budget would find nothing new."""
        known = self.known.get(mutant.id)
        return known is not None and (
            known["left_out"] == 0 or known["outcome"] != "survived" or known["budget"] >= budget
        )

    def add(self, mutant: Mutant, outcome: Result) -> None:
        """Append at once, so that nothing is lost when the run is interrupted."""
        result = {
            "revision": self.revision,
            "mutant": mutant.id,
            "path": mutant.path,
            "line": mutant.line,
            "function": mutant.function,
            "operator": mutant.operator,
            "original": mutant.original,
            "mutated": mutant.mutated,
        } | outcome
        self.known[mutant.id] = result
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")


def run(root: Path, mutants: list[Mutant], results: Results, arguments: argparse.Namespace) -> None:
    """Run the mutants that have no result yet, in temporary copies of the checkout."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as name:
        scratch = Path(name).resolve()
        template = copy_checkout(root, scratch / "template")
        folder = root / "runs" / "mutants" / f"baseline-{results.revision}"
        baseline = load_baseline(folder, template) or make_baseline(
            folder, template, scratch, arguments.jobs, arguments.tests
        )
        Run(root, template, scratch, baseline, results, mutants, arguments.budget).go(min(arguments.jobs, len(mutants)))


def load_baseline(folder: Path, template: Path) -> Baseline | None:
    """The baseline of an earlier run; the template gets the byte code and the compiled kernels that go with it."""
    if not (folder / "baseline.json").exists():
        return None
    shutil.rmtree(template / "src")
    shutil.copytree(folder / "src", template / "src", symlinks=True)
    return Baseline.load(folder / "baseline.json")


def make_baseline(folder: Path, template: Path, scratch: Path, jobs: int, chosen: list[str]) -> Baseline:
    """Run the tests without mutants, and keep what they give instead of that of other revisions."""
    print(f"baseline: running {' '.join(chosen) or 'all tests'} with coverage ...", flush=True)
    baseline = measure_baseline(template, scratch, jobs, chosen)
    for old in folder.parent.glob("baseline-*"):
        shutil.rmtree(old)
    shutil.copytree(template / "src", folder / "src", symlinks=True)
    baseline.save(folder / "baseline.json")
    print(f"baseline: {len(baseline.seconds)} tests pass, {baseline.wall_seconds:.0f} s", flush=True)
    if baseline.failed:
        print(f"baseline: not used, for they fail or are skipped: {', '.join(baseline.failed)}", flush=True)
    return baseline


@dataclass
class Run:
    """Workers that share a queue of mutants."""

    root: Path
    template: Path
    scratch: Path
    baseline: Baseline
    results: Results
    mutants: list[Mutant]
    budget: float

    def __post_init__(self) -> None:
        self.selector = Selector(self.root, self.baseline)
        self.queue: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.done = 0
        self.sound: dict[str, bool] = {}  # tests that have failed with a mutant: whether they pass without
        self.errors: list[BaseException] = []
        for mutant in self.mutants:
            self.queue.put(mutant)

    def go(self, jobs: int) -> None:
        """Run all of them."""
        workers = [Worker(self, n) for n in range(jobs)]
        try:
            threads = [threading.Thread(target=self._serve, args=(worker,), daemon=True) for worker in workers]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.05)  # stay open to signals
        finally:
            for worker in workers:
                worker.close()
        if self.errors:
            raise self.errors[0]

    def _serve(self, worker: "Worker") -> None:
        try:
            while not self.errors:
                mutant = self.queue.get_nowait()
                outcome = worker.judge(mutant)
                with self.lock:
                    self.results.add(mutant, outcome)
                    self.done += 1
                    print(self._progress(mutant, outcome), flush=True)
        except queue.Empty:
            pass
        except Exception as error:
            self.errors.append(error)

    def _progress(self, mutant: Mutant, outcome: Result) -> str:
        place = f"{mutant.path}:{mutant.line}: {mutant.original} -> {mutant.mutated}"
        took = f"{outcome['seconds']:.1f} s, CPU {outcome['cpu_seconds']:.1f} s"
        return f"[{self.done}/{len(self.mutants)}] {outcome['outcome']} {took}  {place}"


class Worker:
    """A process that runs tests in forks of itself, with a checkout of its own."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._folder = run.scratch / f"worker{number}"
        self._checkout = copy_checkout(run.template, self._folder)
        self._basetemp = run.scratch / "base" / f"worker{number}"  # what tests share lies next to it
        self._basetemp.parent.mkdir(exist_ok=True)
        script = Path(__file__).parent / "mutation" / "worker.py"
        self._process = subprocess.Popen(
            [sys.executable, script, json.dumps(run.baseline.modules)],
            env=environment(self._checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us, who then end it
        )

    def judge(self, mutant: Mutant) -> Result:
        """Run the tests that may notice a mutant, until one does."""
        stages, left_out = self._run.selector.stages(mutant, self._run.budget)
        spent: Result = {"outcome": "survived", "by": "", "tests": 0, "left_out": left_out, "budget": self._run.budget}
        spent |= {"seconds": 0.0, "cpu_seconds": 0.0}
        for stage in stages:
            left = [test for test in stage if self._run.sound.get(test, True)]
            while left:
                answer = self._test(mutant, left)
                for name in ("seconds", "cpu_seconds"):
                    spent[name] = round(spent[name] + answer[name], 2)
                if answer["outcome"] == "failed" and not self._is_sound(answer["by"]):
                    left.remove(answer["by"])
                    continue
                spent["tests"] += len(left)
                if answer["outcome"] != "survived":
                    killed = "killed" if answer["outcome"] == "failed" else answer["outcome"]
                    return spent | {"outcome": killed, "by": answer["by"]}
                break
        return spent

    def _is_sound(self, test: str) -> bool:
        """Whether a test that fails with a mutant passes here without one; tried once per test."""
        if test not in self._run.baseline.seconds:
            return True  # a file of tests that cannot be imported any more
        if test not in self._run.sound:
            self._run.sound[test] = self._test(None, [test])["outcome"] == "survived"
            if not self._run.sound[test]:
                print(f"not used any more, for it fails without a mutant: {test}", flush=True)
        return self._run.sound[test]

    def _test(self, mutant: Mutant | None, tests: list[str]) -> Result:
        place(mutant, self._run.template, self._checkout)
        unchanged = None  # a source that should look as if it were not mutated to those who compile kernels
        if mutant is not None and self._run.selector.reuses_kernels(mutant):
            path = mutant.path
            unchanged = {"path": str(self._checkout / path), "original": (self._run.template / path).read_text()}
        own = sum(self._run.baseline.seconds[test] for test in tests)
        job = {
            "tests": tests,
            "checkout": str(self._checkout),
            "scratch": str(self._folder),
            "basetemp": str(self._basetemp),
            "timeout": 3 * own + SLACK + (0.0 if unchanged else COMPILATION),
            "unchanged": unchanged,
            "memory": MEMORY,
            "file_size": FILE_SIZE,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended unexpectedly (exit code {self._process.wait()}) at {mutant}")
        answer: Result = json.loads(line)
        if answer["outcome"] == "failed" and answer["status"] in (3, 4) and not answer["by"]:
            log = (self._folder / "log").read_text(errors="replace")
            raise RuntimeError(f"pytest could not run (exit code {answer['status']}) at {mutant}:\n{log[-3000:]}")
        return answer

    def close(self) -> None:
        """End the process, which ends what it has started."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()


def read_equivalents(path: Path) -> dict[tuple[str, str, str, str], str]:
    """Reasons by path, function, original and mutated line, from `path | function | original => mutated | reason`."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            file, function, rest = (part.strip() for part in line.split(" | ", 2))
            change, reason = rest.rsplit(" | ", 1)
            original, mutated = change.split(" => ")
        except ValueError:
            raise SystemExit(f"{path}:{number} must be 'path | function | original => mutated | reason'") from None
        found[file, function, original.strip(), mutated.strip()] = reason.strip()
    return found


def summarise(results: list[Result], listed: dict[tuple[str, str, str, str], str]) -> str:
    """Share killed by package and in all, then the survivors."""
    equivalent: list[str] = []
    survivors: list[str] = []
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])  # killed, drawn, equivalent
    for result in results:
        key = (result["path"], result["function"], result["original"], result["mutated"])
        parts = result["path"].split("/")
        package = parts[2] if len(parts) > 3 else "(top level)"
        reason = listed.get(key) if result["outcome"] == "survived" else None
        for name in (package, "all"):
            counts[name][0] += result["outcome"] != "survived"
            counts[name][1] += 1
            counts[name][2] += reason is not None
        if result["outcome"] == "survived":
            where = f"{result['path']}:{result['line']}: {result['original']} -> {result['mutated']}"
            unused = f", {result['left_out']} over the budget" if result["left_out"] else ""
            where += f"  [{result['function'] or 'module'}; tests: {result['tests']}{unused}]"
            (survivors if reason is None else equivalent).append(where if reason is None else f"{where}: {reason}")
    lines = [f"{'package':<14}{'killed':>8}{'of':>6}{'equivalent':>12}{'share':>8}  95 % interval"]
    for name in (*sorted(counts.keys() - {"all"}), *(["all"] if counts else [])):
        killed, drawn, left_out = counts[name]
        share, low, high = wilson(killed, drawn - left_out)
        lines.append(f"{name:<14}{killed:>8}{drawn:>6}{left_out:>12}{share:>8.1%}  {low:.1%} to {high:.1%}")
    outcomes = [result["outcome"] for result in results]
    killed, drawn, left_out = counts["all"]
    lines.append(
        f"killed {killed} of {drawn}, {left_out} equivalent "
        f"({outcomes.count('timeout')} by time-out, {outcomes.count('crash')} by a crash)"
    )
    lines += _section("survivors", survivors) + _section("equivalent", equivalent)
    return "\n".join(lines) + "\n"


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float, float]:
    """A share, and the ends of its Wilson score interval at 95 %."""
    if trials == 0:
        return math.nan, 0.0, 1.0
    share = successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return share, max(0.0, middle - half), min(1.0, middle + half)


def _section(title: str, lines: Iterable[str]) -> list[str]:
    ordered = sorted(lines)
    return ["", f"{title} ({len(ordered)}):", *ordered] if ordered else []


if __name__ == "__main__":
    main()
