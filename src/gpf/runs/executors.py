"""Trains many runs in parallel: finished ones are skipped, unfinished ones are resumed.

An executor trains what it is given, each run in its folder. `Local` uses processes of this machine, `gpf.runs.fleet` a
Ray cluster. Both run `train_folder` in processes that know a task by its reference, `module:name`.
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol

from gpf.runs.folder import Run, RunError, check_free, read_config, read_result, versions

PATIENCE = 60.0
"""Seconds to wait for a run that a killed process had begun, and that is saving."""
OFTEN = 1.0
"""Seconds between two reports of a run's progress."""

What = Literal["begun", "round", "finished", "failed"]
Tell = Callable[[Path, What, dict[str, Any]], None]
"""Called with a folder when its run begins or is resumed, with the metrics of a round now and then, with its result, or
with the `error` that ended it."""


class Config(Protocol):
    """The settings of one run."""

    def plain(self) -> dict[str, Any]:
        """As plain data."""


class Trainable(Protocol):
    """The interface of a task that executors use."""

    @property
    def reference(self) -> str:
        """Where processes find it: `module:name`."""

    def of(self, values: Mapping[str, Any]) -> Any:
        """Settings from plain data."""

    def check_same(self, folder: Path, config: Any) -> None:
        """Refuse a folder that holds the run of other settings."""

    def find_data(self, config: Any) -> object:
        """Refuse to begin where the data is missing, and cannot be had."""

    def create(self, folder: Path, config: Any) -> Run:
        """A new run."""

    def train(self, run: Run, threads: int | None, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Train to the end; returns, and writes, the result."""


class Executor(Protocol):
    """Who trains many runs."""

    def train(self, task: Trainable, wanted: Mapping[Path, Config], tell: Tell, keep_going: bool = False) -> None:
        """Train a run in each folder to its end. Ctrl-C saves the runs; the same call resumes them.

        A run that fails stops all of them; with `keep_going`, it is reported and the others continue.
        """


def train_all(
    task: Trainable,
    wanted: Mapping[Path, Config],
    executor: Executor | None = None,
    tell: Tell = lambda folder, what, told: None,
    keep_going: bool = False,
) -> dict[Path, dict[str, Any]]:
    """Train an unfinished run in each folder, and return the results of all finished runs.

    A folder with a run of other settings or other versions is refused before training starts.
    """
    for folder, config in wanted.items():
        check_same(task, folder, config)
    missing = {}
    for folder, config in wanted.items():
        result = read_result(folder) if (folder / "config.json").exists() else None
        if result is None:
            missing[folder] = config
        else:
            tell(folder, "finished", result)
    if missing:
        task.find_data(next(iter(missing.values())))  # before several processes look for it at once
        (executor or Local()).train(task, missing, tell, keep_going)
    results = {folder: read_result(folder) for folder in wanted}
    return {folder: result for folder, result in results.items() if result is not None}


def check_same(task: Trainable, folder: Path, config: Any) -> None:
    """Refuse a folder that holds another run than the one that is wanted, or something else."""
    if not (folder / "config.json").exists():
        check_free(folder)
        return
    task.check_same(folder, config)
    now = versions()
    held = read_config(folder).get("versions")
    # Packages must be the same. Another kind of CPU may resume a run: clusters have several.
    written = {name: held[name] for name in now if name in held} if isinstance(held, dict) else held
    if written != now:
        raise RunError(f"run {folder} was made with {written}, not {now}; use another folder, or delete that one")


def find(reference: str) -> Any:
    """The object named by a reference, `module:name`."""
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{reference!r} cannot be imported ({error}); it must be module:name") from None


def train_folder(task: Trainable, folder: Path, config: Mapping[str, Any], report: Callable[[Any], None]) -> None:
    """Train a run to its end, from wherever its folder is, on one thread; metrics are reported now and then."""
    known = (folder / "config.json").exists()
    run = Run.open(folder, PATIENCE) if known else task.create(folder, task.of(config))
    said = 0.0

    def now_and_then(metrics: dict[str, Any]) -> None:
        nonlocal said
        if time.monotonic() - said >= OFTEN:
            said = time.monotonic()
            report(metrics)

    try:
        task.train(run, 1, now_and_then)
    finally:
        run.close()


class Local:
    """Processes of this machine, each of which trains one run after the other on one core."""

    def __init__(self, jobs: int = 2) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        self.jobs = jobs

    def train(self, task: Trainable, wanted: Mapping[Path, Config], tell: Tell, keep_going: bool = False) -> None:
        """Train a run in each folder to its end."""
        stopping, idle = Event(), SimpleQueue[_Worker]()
        workers = [_Worker(task) for _ in range(min(self.jobs, len(wanted)))]
        for worker in workers:
            idle.put(worker)

        def one(item: tuple[Path, Config]) -> None:
            folder, config = item
            if stopping.is_set():
                return
            worker = idle.get()
            try:
                tell(folder, "begun", {})
                error = worker.train(folder, config, lambda metrics: tell(folder, "round", metrics))
            except BaseException:
                stopping.set()
                raise
            finally:
                idle.put(worker)
            if error is not None and keep_going:
                tell(folder, "failed", {"error": error})
            elif error is not None and not stopping.is_set():
                stopping.set()
                raise RunError(f"run {folder} ended with {error}")
            if (result := read_result(folder)) is not None:
                tell(folder, "finished", result)

        pool = ThreadPoolExecutor(self.jobs)
        try:
            list(pool.map(one, wanted.items()))
        except BaseException:  # Ctrl-C too: runs save themselves, and the same command resumes them
            stopping.set()
            for worker in workers:
                worker.interrupt()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            for worker in workers:
                worker.close()


class _Worker:
    """A process that trains one run after the other: to start one takes as long as many seconds of learning."""

    def __init__(self, task: Trainable) -> None:
        self._task = task
        self._process: subprocess.Popen[str] | None = None
        self._interrupted = False
        self._lock = Lock()

    def train(self, folder: Path, config: Config, report: Callable[[dict[str, Any]], None]) -> str | None:
        """Train a run to its end; returns how the process ended instead, if it did."""
        with self._lock:
            if self._interrupted:
                return "an interrupt"
            process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone, which the next line finds out
            process.stdin.write(json.dumps([str(folder), config.plain()]) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            metrics = json.loads(line)
            if metrics is None:
                return None
            report(metrics)
        errors = self.close()
        return f"code {process.returncode} ({errors.splitlines()[-1] if errors else 'no message'})"

    def interrupt(self) -> None:
        """Let the current run save itself and stop, and start no other."""
        with self._lock:
            self._interrupted = True
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGINT)

    def close(self) -> str:
        """Wait for the end of the process, which is asked for nothing more; returns what it said on stderr."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return ""
        process.communicate()
        with self._errors:
            self._errors.seek(0)
            return self._errors.read().strip()

    def _started(self) -> "subprocess.Popen[str]":
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "gpf.runs.executors", self._task.reference],
                stdin=subprocess.PIPE,  # closes when we end, however we end, and the run stops too
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's threads would wait for each other's cores
                text=True,
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise


def _listen(orders: "SimpleQueue[str | None]", busy: Event) -> None:
    """Pass on what is asked; save and stop when the process that asks is gone: it may have been killed."""
    for line in sys.stdin:
        busy.set()
        orders.put(line)
    orders.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE / 2)
        os._exit(130)  # it ignored the signal; at most one round is lost


def main() -> None:
    """Train the runs that are asked for on stdin, one after the other, in a process that `Local` began.

    On stdout there are metrics of rounds, as JSON lines, and `null` at the end of each run.
    """
    task, orders, busy = find(sys.argv[1]), SimpleQueue[str | None](), Event()
    Thread(target=_listen, args=(orders, busy), daemon=True).start()
    try:
        while (line := orders.get()) is not None:
            folder, asked = json.loads(line)
            train_folder(task, Path(folder), asked, lambda metrics: print(json.dumps(metrics), flush=True))
            busy.clear()
            print("null", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
