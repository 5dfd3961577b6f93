"""A federation on this machine: a SuperLink, SuperNodes and a Flower run, each in processes of its own, on loopback.

    python loopback.py FOLDER [--clients 8] [--simulation] [NAME=VALUE ...]

Names are those of `[tool.flwr.app.config]` in app/pyproject.toml. When it ends, so do all processes that it started.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
START = 120.0
"""Seconds that a process may take to start."""


class Loopback:
    """A SuperLink and SuperNodes; use it in a `with` statement.

    Attributes:
        folder: Holds the federation's state, and a log of every process.
    """

    def __init__(self, folder: Path, app: Path = HERE / "app", simulation: bool = False) -> None:
        self.folder, self.app, self.simulation = folder.resolve(), app.resolve(), simulation
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = free_port()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start_superlink()
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)

    def start_superlink(self) -> None:
        """Start the server's side, and wait until it answers."""
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        address = f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "127.0.0.1:{self.port}"\n'
        (home / "config.toml").write_text(address + "insecure = true\n")
        options = ["--simulation"] if self.simulation else []
        self._start(
            "superlink", "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port),
            "--disable-runtime-dependency-installation", *options,
        )  # fmt: skip
        wait("the SuperLink to answer", self._healthy, START)

    def start_node(self, index: int, **config: str | int) -> None:
        """Start the SuperNode of a client."""
        values = {"partition-id": index, **config}
        self._start(
            f"node-{index}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
            "--host", "127.0.0.1", "--port", str(free_port()),
            "--node-config", " ".join(f"{name}={json.dumps(value)}" for name, value in values.items()),
        )  # fmt: skip

    def run(self, within: float, nodes: int = 0, **config: Any) -> None:
        """Start a Flower run and wait until it has ended.

        Args:
            within: Seconds after which it must have.
            nodes: With the simulation engine, how many SuperNodes it simulates.
            config: Changes of the app's configuration.
        """
        run = self.start_run(nodes, **config)
        run.wait(within)
        found = self._flwr("list", "--format", "json")
        (one, *_) = json.loads(found)["runs"]
        if one["status"] != "finished:completed":
            raise RuntimeError(f"the run must end as finished:completed, got {one['status']}; see {self.folder}")

    def start_run(self, nodes: int = 0, **config: Any) -> "subprocess.Popen[bytes]":
        """Start a Flower run; the process ends when the run does."""
        values = {"folder": str(self.folder / "federation"), **config}
        changes = " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())
        simulated = [
            "--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1 init-args-num-cpus=2",
        ] if self.simulation else []  # fmt: skip
        return self._start("run", "flwr", "run", str(self.app), "--stream", "--run-config", changes, *simulated)

    def kill(self, name: str) -> None:
        """End a process, and those that it has started, at once."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        process.wait(10)

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def reports(self) -> list[dict[str, Any]]:
        """What happened in each round of a run that has ended."""
        found: list[dict[str, Any]] = json.loads((self.folder / "federation/reports.json").read_text())
        return found

    def _start(self, name: str, command: str, *options: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [BIN / command, *options], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.processes[name] = process
        return process

    def _flwr(self, *options: str) -> str:
        done = subprocess.run(
            [BIN / "flwr", *options], cwd=self.folder, env=self._environment(), capture_output=True, text=True,
            timeout=START, check=True,
        )  # fmt: skip
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1",
            "RAY_ADDRESS": "local",  # not another Ray cluster of this machine
            "NUMBA_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip

    def _healthy(self) -> bool:
        if self.processes["superlink"].poll() is not None:
            raise RuntimeError(f"the SuperLink has ended:\n{self.log('superlink')[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait(what: str, done: Callable[[], bool], timeout: float) -> None:
    """Wait until something is so; `TimeoutError` if it takes too long."""
    until = time.monotonic() + timeout
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {timeout:g} seconds for {what}")
        time.sleep(0.2)


def main() -> None:
    """Run a federation, and print what happened in each round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("config", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--simulation", action="store_true", help="Flower's simulation engine in place of SuperNodes")
    parser.add_argument("--hours", type=float, default=2.0, help="after which the federation must have ended")
    given = parser.parse_intermixed_args()
    config = dict(_setting(one) for one in given.config)
    with Loopback(given.folder, simulation=given.simulation) as federation:
        for index in range(0 if given.simulation else given.clients):
            federation.start_node(index)
        federation.run(3600 * given.hours, given.clients, clients=given.clients, **config)
        for report in federation.reports():
            success = "unknown" if report["success"] is None else f"{report['success']:.1%}"
            refused = "".join(f"; {name} refused: {why}" for name, why in report["refused"])
            print(
                f"round {report['round']}: success before it {success}, {len(report['accepted'])} clients merged,"
                f" depth {report['depth']}, density {report['density']:.3f}{refused}"
            )


def _setting(text: str) -> tuple[str, Any]:
    """A NAME=VALUE that was typed; the value as JSON where it is any."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    main()
