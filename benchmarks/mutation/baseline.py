"""One run of the whole suite without mutants: which tests pass, how long they take and which lines they run."""

import ctypes
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import coverage

from mutation.checkout import environment

PRELOAD = (
    "numpy", "scipy.stats", "scipy.optimize", "scipy.special", "numba", "torch", "torch.nn.functional",
    "torch._dynamo", "matplotlib.pyplot", "gymnasium", "safetensors.torch", "rich.progress", "PIL.Image",
    "pytest",
)  # fmt: skip
"""Modules that take long to import; those of them that the tests use are imported once for all mutants."""

MEMORY = 8 << 30
"""Bytes of address space of a process: a mutant that allocates without end must not take the machine down."""
FILE_SIZE = 2 << 30
PR_SET_PDEATHSIG = 1

CONFIG = """
[run]
source = {source}
data_file = {data}
parallel = true
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
"""


@dataclass
class Baseline:
    """What the suite does without mutants."""

    seconds: dict[str, float]
    """Time of each test that passes."""
    failed: list[str]
    """Tests that fail or are skipped without any mutant: never used."""
    modules: list[str]
    """Those of PRELOAD that the tests import."""
    lines: dict[str, dict[int, list[str]]]
    """Tests by source file and line."""
    wall_seconds: float

    def save(self, path: Path) -> None:
        """Write as JSON, all at once."""
        tests = {test: n for n, test in enumerate(self.seconds)}
        lines = {
            file: {line: [tests[one] for one in many] for line, many in of.items()} for file, of in self.lines.items()
        }
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self) | {"lines": lines}))
        part.rename(path)

    @classmethod
    def load(cls, path: Path) -> "Baseline":
        """Read what `save` wrote."""
        values = json.loads(path.read_text())
        tests = list(values["seconds"])
        values["lines"] = {
            file: {int(line): [tests[n] for n in many] for line, many in of.items()}
            for file, of in values["lines"].items()
        }
        return cls(**values)


def limit_resources() -> None:
    """Of this process and those it starts; it ends with its parent, even if that is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))


def measure_baseline(checkout: Path, scratch: Path, jobs: int, chosen: list[str]) -> Baseline:
    """Run the tests that are not slow in a copy of the checkout, which gets byte code and compiled kernels by it.

    Args:
        checkout: The copy.
        scratch: A folder for what is recorded.
        jobs: Processes that run tests.
        chosen: Files or folders of tests; all of them when empty.
    """
    records, data, plugin = scratch / "records", scratch / "coverage", scratch / "plugin"
    for folder in (records, data, plugin):
        folder.mkdir()
    shutil.copy(Path(__file__).with_name("recorder.py"), plugin / "recorder.py")
    config = scratch / "coverage.ini"
    config.write_text(CONFIG.format(source=checkout / "src", data=data / "data"))
    settings = {
        "COVERAGE_PROCESS_START": str(config),
        "COVERAGE_CORE": "ctrace",  # sys.monitoring reports a line once, not once per test
        "RECORDER_FOLDER": str(records),
        "RECORDER_PRELOAD": json.dumps(PRELOAD),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:cov"]
    command += ["-p", "recorder", f"--basetemp={scratch / 'base'}"]
    command += ["-n", str(jobs)] if jobs > 1 else ["-p", "no:xdist"]
    command += chosen
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=checkout,
        env=environment(checkout, plugin) | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=limit_resources,
    )
    return _collect(checkout, records, data, time.monotonic() - started, done.stdout)


def _collect(checkout: Path, records: Path, data: Path, wall_seconds: float, output: str) -> Baseline:
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    users: dict[str, set[str]] = defaultdict(set)  # tests by shared fixture
    modules: set[str] = set()
    for path in sorted(records.glob("*.json")):
        record = json.loads(path.read_text())
        seconds |= record["seconds"]
        failed |= set(record["failed"])
        modules |= set(record["modules"])
        for test, fixtures in record["shared_fixtures"].items():
            for fixture in fixtures:
                users[fixture].add(test)
    passed = {test: took for test, took in seconds.items() if test not in failed}
    if not passed:
        raise SystemExit(f"no test passes without mutants:\n{output[-3000:]}")
    return Baseline(
        seconds=passed,
        failed=sorted(failed),
        modules=[name for name in PRELOAD if name in modules],
        lines=_lines(checkout, data, passed, users),
        wall_seconds=wall_seconds,
    )


def _lines(
    checkout: Path, folder: Path, passed: dict[str, float], users: dict[str, set[str]]
) -> dict[str, dict[int, list[str]]]:
    """Passing tests by file and line, from the coverage of all processes."""
    found: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.glob("data.*")):
        data = coverage.CoverageData(basename=str(path))
        try:
            data.read()
        except coverage.CoverageException:
            continue  # of a process that was killed while it wrote
        for file in data.measured_files():
            relative = Path(os.path.relpath(file, checkout)).as_posix()
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    for part in context.split("|"):
                        test = re.sub(r" \((setup|call|teardown)\)$", "", part)  # a process started by a test
                        found[relative][line] |= {test} | users.get(test, set())
    return {file: {line: sorted(tests & passed.keys()) for line, tests in of.items()} for file, of in found.items()}
