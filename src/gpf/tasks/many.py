"""Many training runs in parallel processes; finished ones are not repeated, unfinished ones go on."""

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

from gpf.runs.folder import Run, RunError, check_free, read_config, read_result
from gpf.tasks.loop import versions

PATIENCE = 60.0
"""Seconds to wait for a run that a killed process had begun, and that is saving."""

_DONE = "done\n"
"""What a process says when a run has come to its end."""

Told = Callable[[Path, dict[str, Any] | None], None]
"""Called with a folder when its run begins or goes on (None), and again with its result."""


def train_all(
    wanted: dict[Path, Any], jobs: int, tell: Told = lambda folder, result: None, task: str = "plume"
) -> dict[Path, Any]:
    """Train a run in each folder, `jobs` processes at a time, each on one thread; returns their results.

    A task is a module of `gpf.tasks` with a `Config`, `same_run`, `create_run` and `train`. A folder that holds a
    run of another configuration, or of other versions, is refused before anything begins. Ctrl-C ends the runs that
    are going on, which save; the same call goes on with them.
    """
    check_jobs(jobs)
    for folder, config in wanted.items():
        check_same(folder, config, task)
    stopping, idle = Event(), SimpleQueue[_Worker]()
    workers = [_Worker(task) for _ in range(min(jobs, len(wanted)))]
    for worker in workers:
        idle.put(worker)

    def one(item: tuple[Path, Any]) -> dict[str, Any] | None:
        folder, config = item
        result = read_result(folder) if (folder / "config.json").exists() else None
        if result is None and not stopping.is_set():
            tell(folder, None)
            worker = idle.get()
            try:
                error = worker.train(folder, config)
            except BaseException:
                stopping.set()
                raise
            finally:
                idle.put(worker)
            if error is not None and not stopping.is_set():
                stopping.set()
                raise RunError(f"run: {folder} ended with {error}; accepted: one that ends")
            result = read_result(folder)
        if result is not None:
            tell(folder, result)
        return result

    pool = ThreadPoolExecutor(jobs)
    try:
        results = dict(zip(wanted, pool.map(one, wanted.items()), strict=True))
    except BaseException:  # Ctrl-C too: runs save themselves, and the same command goes on with them
        stopping.set()
        for worker in workers:
            worker.interrupt()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()
    return results


class _Worker:
    """A process that trains one run after the other: to start one takes as long as many seconds of learning."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._process: subprocess.Popen[str] | None = None
        self._interrupted = False
        self._lock = Lock()

    def train(self, folder: Path, config: Any) -> str | None:
        """Train a run to its end; returns how the process ended instead, if it did."""
        with self._lock:
            if self._interrupted:
                return "an interrupt"
            process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone, which the next line finds out
            process.stdin.write(json.dumps([str(folder), dataclasses.asdict(config)]) + "\n")
            process.stdin.flush()
        if any(line == _DONE for line in process.stdout):
            return None
        errors = self.close()
        return f"code {process.returncode} ({errors.splitlines()[-1] if errors else 'no message'})"

    def interrupt(self) -> None:
        """Let the run that is going on save itself and stop; no other begins."""
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
                [sys.executable, "-m", "gpf.tasks.many", self._task],
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


def check_jobs(jobs: int) -> None:
    """Refuse a number of processes that there cannot be."""
    if jobs < 1:
        raise ValueError(f"jobs: {jobs}; accepted: at least 1")


def check_same(folder: Path, config: Any, task: str = "plume") -> None:
    """Refuse a folder that holds another run than the one that is wanted, or something else."""
    if not (folder / "config.json").exists():
        check_free(folder)
        return
    if not _module(task).same_run(folder, config):
        raise RunError(
            f"run: {folder} is of another configuration; accepted: this one, another folder, or that one deleted"
        )
    written, now = read_config(folder).get("versions"), versions()
    if written != now:
        raise RunError(f"run: {folder} was made with {written}; accepted: {now}, another folder, or that one deleted")


def _module(task: str) -> Any:
    return importlib.import_module(f"gpf.tasks.{task}")


def _listen(orders: "SimpleQueue[str | None]", busy: Event) -> None:
    """Pass on what is asked; save and stop when the process that asks is gone: it may have been killed."""
    for line in sys.stdin:
        busy.set()
        orders.put(line)
    orders.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE / 2)
        os._exit(130)  # it was deaf; what is lost is a round


def main() -> None:
    """Train the runs that are asked for on stdin, one after the other, in a process that `train_all` began."""
    task, orders, busy = _module(sys.argv[1]), SimpleQueue[str | None](), Event()
    Thread(target=_listen, args=(orders, busy), daemon=True).start()
    try:
        while (line := orders.get()) is not None:
            place, asked = json.loads(line)
            folder = Path(place)
            known = (folder / "config.json").exists()
            run = Run.open(folder, PATIENCE) if known else task.create_run(folder, task.Config.of(asked))
            task.train(run, threads=1)
            run.close()
            busy.clear()
            print(_DONE, end="", flush=True)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
