"""What the viewer costs a run that is training, and how fast it opens a long one.

    python benchmarks/viewer_live.py [--only slowdown opening] [--pairs 60] [--rounds 4] [--browser] [--json]

Slowdown: a navigator trains in this process, round by round. In half of the blocks of rounds, a viewer in another
process has opened the run and gets every line over its socket: a plain socket, or with `--browser` a page in headless
chromium, which also draws. The server runs all the time. Blocks are interleaved in pairs, and which comes first
alternates. The mean of the ratios of the pairs counts, with its interval by Student's t; the aim is at most 1.02.

Opening: a run with 10,000 events and as many lines of metrics, with plasticity, is opened in chromium; the time is from
the request of the address to the drawn page. The aim is at most 2 s.
"""

import argparse
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from gpf.network.events import Grown, Shape
from gpf.reports.statistics import mean_interval
from gpf.runs.folder import Run
from gpf.runs.training import one_thread
from gpf.tasks.plume import TASK

CHROMIUM = "/usr/bin/chromium"
LINES = 10_000
SETTINGS = {"seed": 900, "gpf": False, "steps": 10**9, "validate_every": 10**6}
"""The default navigator, whose rounds all take the same work."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=("slowdown", "opening"), default=["slowdown", "opening"])
    parser.add_argument("--pairs", type=int, default=60, help="pairs of blocks, one of them with a viewer")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of a block")
    parser.add_argument("--openings", type=int, default=10, help="how often the long run is opened")
    parser.add_argument("--browser", action="store_true", help="let the viewer be a page in chromium")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "slowdown" in arguments.only:
            found |= slowdown(Path(folder), arguments.pairs, arguments.rounds, arguments.browser)
        if "opening" in arguments.only:
            found |= opening(Path(folder), arguments.openings)
    if arguments.json:
        print(json.dumps(found))


def slowdown(parent: Path, pairs: int, rounds: int, browser: bool) -> dict[str, Any]:
    """Seconds of a round with a viewer, over those without."""
    config = TASK.of(SETTINGS)
    run = TASK.create(parent / "live" / "run", config)
    context = multiprocessing.get_context("spawn")
    with one_thread(), server(parent / "live") as url:
        loop = TASK.training(run, config, 1)
        for _ in range(5):
            loop.round()
        ours, theirs = context.Pipe()
        viewer = context.Process(target=view, args=(theirs, url, "live/run", browser), daemon=True)
        viewer.start()
        theirs.close()  # so that a viewer that fails ends this process, too
        ratios, seconds = [], []
        for pair in range(pairs):
            taken = {}
            for attached in (True, False) if pair % 2 else (False, True):
                ours.send("attach" if attached else "detach")
                ours.recv()
                started = time.perf_counter()
                for _ in range(rounds):
                    loop.round()
                taken[attached] = time.perf_counter() - started
            ratios.append(taken[True] / taken[False])
            seconds.append(taken[False] / rounds)
        ours.send("end")
        received = ours.recv()
        viewer.join()
    run.close()
    mean, low, high = mean_interval(ratios)
    print(
        f"slowdown with a {'page' if browser else 'socket'}: {mean:.4f}, 95 % interval {low:.4f} to {high:.4f},"
        f" median {statistics.median(ratios):.4f}; {pairs} pairs of {rounds} rounds of"
        f" {statistics.median(seconds):.2f} s; {received} messages received; aim at most 1.02"
    )
    return {"slowdown": mean, "low": low, "high": high, "messages": received}


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """`gpf view` in a process of its own; its address."""
    command = [sys.executable, "-m", "gpf", "view", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"http://\S+", line):
                    yield found[0]
                    break
        finally:
            process.terminate()


def view(orders: Connection, url: str, name: str, browser: bool) -> None:
    """Open and close the page of a run as told, and count messages."""
    if browser:
        view_in_browser(orders, url, name)
    else:
        view_by_socket(orders, url, name)


def view_by_socket(orders: Connection, url: str, name: str) -> None:
    """A viewer that reads what is sent, and draws nothing."""
    from urllib.request import urlopen

    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import ClientConnection, connect

    token, host = urlsplit(url).query, urlsplit(url).netloc
    socket: ClientConnection | None = None
    received = 0

    def read(timeout: float | None) -> int:
        assert socket is not None
        count = 0
        try:
            while socket.recv(timeout):
                count += 1
        except (TimeoutError, ConnectionClosed):
            pass
        return count

    while True:
        while not orders.poll(0.2):
            if socket is not None:
                received += read(0.0)
        order = orders.recv()
        if socket is not None and order != "attach":
            received += read(0.0)
            socket.close()
            socket = None
        if order == "attach" and socket is None:
            with urlopen(f"http://{host}/api/run/{quote(name)}?{token}") as answer:
                run = json.load(answer)
            marks = "&".join(f"{log}={mark}" for log, mark in run["cursor"].items())
            socket = connect(
                f"ws://{host}/ws/run/{quote(name)}?{token}&unit={run['unit']}&state={run['state']}&{marks}"
            )
        orders.send(received if order == "end" else order)
        if order == "end":
            return


def view_in_browser(orders: Connection, url: str, name: str) -> None:
    """A page in chromium, which draws what it is sent."""
    from playwright.sync_api import sync_playwright

    received = 0

    def count(_: Any) -> None:
        nonlocal received
        received += 1

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("websocket", lambda socket: socket.on("framereceived", count))
        page.goto(url)
        while True:
            while not orders.poll(0.0):
                page.wait_for_timeout(200)
            order = orders.recv()
            if order == "attach":
                page.goto(f"{url}#/run/{quote(name, safe='')}")
                page.locator(".running").wait_for()
            elif order == "detach":
                page.goto("about:blank")
            orders.send(received if order == "end" else order)
            if order == "end":
                return


def opening(parent: Path, times: int) -> dict[str, Any]:
    """Seconds until a long run is drawn in chromium."""
    from playwright.sync_api import sync_playwright

    write_long_run(parent / "long" / "run")
    seconds = []
    with server(parent / "long") as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        page.locator("table").wait_for()
        for _ in range(times + 1):
            page.goto("about:blank")
            started = time.perf_counter()
            page.goto(f"{url}#/run/long%2Frun")
            page.locator(".events tbody tr").first.wait_for()
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            seconds.append(time.perf_counter() - started)
        browser.close()
    warm = sorted(seconds[1:])
    print(
        f"opening a run with {LINES:,} events and lines: median {statistics.median(warm):.2f} s,"
        f" longest {warm[-1]:.2f} s, first {seconds[0]:.2f} s, {times} times; aim at most 2 s"
    )
    return {"opening": statistics.median(warm), "longest_opening": warm[-1], "first_opening": seconds[0]}


def write_long_run(folder: Path) -> None:
    """A run's logs with many lines, of the shape that the plume task writes."""
    run = Run.create(folder, {"task": "plume", "config": {"seed": 900}})
    shapes = [Shape(depth, 10_000 * depth, 9_000 * depth, 0, 0, ()) for depth in (1, 2)]
    event = Grown(1, (1,), "SPL improved by 0.003 in 10 epochs, less than 0.01", *shapes).to_json()
    layer = {"units": 64, "weight_magnitude": 0.1, "dead": 0.0, "dormant": 0.0, "effective_rank": 20.0,
             "stable_rank": 3.0, "held_rank": 40, "gradient_norm": 0.1}  # fmt: skip
    run.append(
        "metrics",
        [
            {"round": n, "step": 1000 * n, "seconds": 0.5 * n, "flops": 1e9 * n, "depth": 2, "density": 0.5,
             "frozen": [], "parameters": 9000, "success": n / LINES, "spl": n / LINES, "return": 1.0 - 1.0 / n,
             "plasticity": [{"name": f"layers.{place}.linear", **layer} for place in range(3)]}
            for n in range(1, LINES + 1)
        ],
    )  # fmt: skip
    run.append("events", [{"round": n, "step": 1000 * n, **event} for n in range(1, LINES + 1)])
    run.close()


if __name__ == "__main__":
    main()
