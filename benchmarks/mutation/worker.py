"""Runs the tests of one mutant after another, each in a fork of a process that has imported what takes long.

Jobs come as lines of JSON on stdin, results go as lines of JSON to stdout. The package itself is imported only in the
forks. The worker ends, with everything it started, when stdin is closed or its parent has died.
"""

import importlib
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "MUTANTS_RUN"
"""Environment variable by which processes are found that a test has started and a killed test has left behind."""


def main() -> None:
    """Preload, and serve."""
    token = f"{os.getpid()}-{time.time_ns()}"
    os.environ[MARK] = f"{os.environ.get(MARK, '')}/{token}/"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name in json.loads(sys.argv[1]):
        with suppress(ImportError):
            importlib.import_module(name)
    _warm_up_numba()
    parent = os.getppid()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), token, parent)), flush=True)


def run(job: dict[str, Any], token: str, parent: int) -> dict[str, Any]:
    """Run the tests of one stage until the first fails.

    Returns:
        outcome ("survived", "failed", "timeout" or "crash"), by (the test that failed), seconds, cpu_seconds (which
        other load on the machine does not change) and status (the exit code, minus a signal, None after a time-out).
    """
    noted = Path(job["scratch"]) / "failed"
    noted.unlink(missing_ok=True)
    started, cpu_before = time.monotonic(), _cpu_seconds()
    child = os.fork()
    if child == 0:
        _run_tests(job, noted)
    try:
        status = _wait(child, started + job["timeout"], parent)
    finally:
        _end(child, token)
        if os.getppid() != parent:  # it was killed, and cannot tidy up any more
            shutil.rmtree(Path(job["scratch"]).parent, ignore_errors=True)
    by = noted.read_text() if noted.exists() else ""
    if status is None:
        outcome = "timeout"
    elif status < 0:
        outcome = "crash"
    elif status in (0, 5):  # 5: none of the tests exists any more, so none fails
        outcome = "survived"
    else:
        outcome = "failed"
    seconds, cpu_seconds = time.monotonic() - started, _cpu_seconds() - cpu_before
    return {"outcome": outcome, "by": by, "seconds": seconds, "cpu_seconds": cpu_seconds, "status": status}


class Chosen:
    """A pytest plugin that keeps the chosen tests, in their order, and notes the first that fails."""

    def __init__(self, tests: list[str], noted: Path) -> None:
        self._rank = {test: n for n, test in enumerate(tests)}
        self._noted = noted

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the chosen ones."""
        items[:] = sorted((one for one in items if one.nodeid in self._rank), key=lambda one: self._rank[one.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a failure."""
        self._note(report)

    def pytest_collectreport(self, report: Any) -> None:
        """Note a module that can no longer be imported."""
        self._note(report)

    def _note(self, report: Any) -> None:
        if report.failed and not self._noted.exists():
            self._noted.write_text(report.nodeid)


def _run_tests(job: dict[str, Any], noted: Path) -> None:
    """In the fork: become a pytest process in the checkout, and never return."""
    code = 3
    try:
        os.setsid()
        log = os.open(Path(job["scratch"]) / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _limit_resources(job["memory"], job["file_size"])
        os.chdir(job["checkout"])
        os.environ["PYTHONPATH"] = str(Path(job["checkout"]) / "src")
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        sys.path[0] = os.environ["PYTHONPATH"]
        importlib.invalidate_caches()  # the folder was replaced, perhaps within a tick of its modification time
        if job["unchanged"]:
            _pretend_unchanged(**job["unchanged"])
        import pytest

        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--tb=line"]
        files = list(dict.fromkeys(test.split("::")[0] for test in job["tests"]))
        code = int(pytest.main([*arguments, f"--basetemp={job['basetemp']}", *files], [Chosen(job["tests"], noted)]))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 3
    finally:
        os._exit(code)


def _cpu_seconds() -> float:
    """Of all forks that have ended, and of what they started and waited for."""
    times = os.times()
    return times.children_user + times.children_system


def _limit_resources(memory: int, file_size: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))


def _pretend_unchanged(path: str, original: str) -> None:
    """Return the original bytes when the mutated source is read as data.

    A digest of the sources decides whether cached kernels are stale. None depends on this mutant, and compiling them
    all would take longer than the tests. Python imports modules by other means, and sees the mutant.
    """
    read = Path.read_bytes
    bytes_before = original.encode()
    Path.read_bytes = lambda self: bytes_before if str(self) == path else read(self)  # type: ignore[method-assign]


def _warm_up_numba() -> None:
    """The first compilation in a process sets up numba's tables of types; forks inherit them."""
    if "numba" in sys.modules:
        sys.modules["numba"].njit(lambda x: x + 1.0)(1.0)


def _wait(child: int, deadline: float, parent: int) -> int | None:
    """Exit code of the child, minus the signal that ended it, or None where it took too long."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != parent:
            sys.exit(1)
        time.sleep(0.02)
    return None


def _end(child: int, token: str) -> None:
    """End the child, where it still runs, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)
    mark = token.encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)


if __name__ == "__main__":
    main()
