"""Many training runs in parallel processes; finished ones are not repeated, unfinished ones go on."""

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from gpf.runs import Run, RunError, check_free, read_config, read_result
from gpf.tasks.loop import Interrupted, versions

PATIENCE = 60.0
"""Seconds to wait for a run that a killed process had begun, and that is saving."""

Told = Callable[[Path, dict[str, Any] | None], None]
"""Called with a folder when its run begins or goes on (None), and again with its result."""


def train_all(
    wanted: dict[Path, Any], jobs: int, tell: Told = lambda folder, result: None, task: str = "plume"
) -> dict[Path, Any]:
    """Train a run in each folder, `jobs` at a time, each in a process of its own on one thread; returns their results.

    A task is a module of `gpf.tasks` with a `Config`, `same_run`, `create_run` and `train`. A folder that holds a
    run of another configuration, or of other versions, is refused before anything begins. Ctrl-C ends the runs that
    are going on, which save; the same call goes on with them.
    """
    check_jobs(jobs)
    for folder, config in wanted.items():
        check_same(folder, config, task)
    processes: set[subprocess.Popen[str]] = set()
    stopping, lock = Event(), Lock()

    def one(item: tuple[Path, Any]) -> dict[str, Any] | None:
        folder, config = item
        result = read_result(folder) if (folder / "config.json").exists() else None
        if result is None and not stopping.is_set():
            tell(folder, None)
            asked = json.dumps(dataclasses.asdict(config))
            command = [sys.executable, "-m", "gpf.tasks.many", task, str(folder), asked]
            with lock:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,  # closes when we end, however we end, and the run stops too
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                processes.add(process)
            with process:
                errors = process.stderr.read() if process.stderr else ""
            processes.discard(process)
            if process.returncode and not stopping.is_set():
                stopping.set()
                last = errors.strip().splitlines()[-1] if errors.strip() else "no message"
                raise RunError(f"run: {folder} ended with code {process.returncode} ({last}); accepted: one that ends")
            result = read_result(folder)
        if result is not None:
            tell(folder, result)
        return result

    pool = ThreadPoolExecutor(jobs)
    try:
        results = dict(zip(wanted, pool.map(one, wanted.items()), strict=True))
    except BaseException:  # Ctrl-C too: runs save themselves, and the same command goes on with them
        stopping.set()
        with lock:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    return results


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


def _stop_with_parent() -> None:
    """Save and stop when the process that began this one is gone: it may have been killed."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE / 2)
    os._exit(130)  # it was deaf; what is lost is a round


def main() -> None:
    """Train one run, in a process that `train_all` began."""
    task, place = _module(sys.argv[1]), Path(sys.argv[2])
    config = task.Config.of(json.loads(sys.argv[3]))
    Thread(target=_stop_with_parent, daemon=True).start()
    try:
        known = (place / "config.json").exists()
        run = Run.open(place, PATIENCE) if known else task.create_run(place, config)
        task.train(run, threads=1)
    except Interrupted:
        sys.exit(130)
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
