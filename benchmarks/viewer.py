"""How fast the viewer draws, and whether its memory stays flat.

    python benchmarks/viewer.py [--filaments 1000] [--minutes 10] [--json]

Draw time: one frame with so many filaments, all layers, a trail of 300 steps and a canvas of 800 pixels, including the
rasterisation, which reading a pixel back forces. Memory: the heap of the page after garbage collection, before and
after so many minutes of simulated time were played, over and over, at 32 times the speed.

Needs a Chromium (Debian's package `chromium`, or --chromium PATH).
"""

import argparse
import asyncio
import base64
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from gpf.viewer.app import make_app
from gpf.viewer.serve import listen, server_of

TOKEN = "benchmark"
SPEED = 32
STEP = 0.1  # s of the worlds' steps
DRAW = """
async ({ filaments, wind, rounds }) => {
  const { Picture } = await import("/static/plume.js");
  const canvas = document.createElement("canvas");
  canvas.style.maxWidth = "800px";
  document.body.append(canvas);
  const picture = new Picture(canvas);
  const view = window.gpfView.frames();
  const header = { ...view.header, wind: [12, 12] };
  picture.setEpisode(header);
  const frames = Array.from({ length: 301 }, (_, n) => ({
    ...view.frames[0], did: n % 6, whiff: n % 7 === 0,
    agent: [10 + 5 * Math.sin(n / 30), 10 + 5 * Math.cos(n / 20), n / 9],
  }));
  const plume = { ...view.frames[0], filaments, wind };
  const layers = { field: true, filaments: true, wind: true, trail: true };
  const times = [];
  for (let n = 0; n < rounds; n++) {
    const started = performance.now();
    picture.draw(frames, 300, plume, { layers, rival: null, dragged: null });
    const drawn = performance.now();
    picture.context.getImageData(0, 0, 1, 1);
    times.push([drawn - started, performance.now() - started]);
  }
  canvas.remove();
  return times.slice(10);
}
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filaments", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0, help="simulated time that is played")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    with served() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.goto(f"{url}#/fly?world=turbulent&policy=cast-and-surge&seed=901")
        page.wait_for_function("() => window.gpfView?.frames().frames.length > 30", timeout=120_000)
        found = {**draw_time(page, arguments.filaments), **memory(page, arguments.minutes)}
        browser.close()
    print(json.dumps(found) if arguments.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


@contextmanager
def served() -> Iterator[str]:
    """A server of an empty folder; gives its address."""
    with tempfile.TemporaryDirectory() as folder, listen("127.0.0.1", 0) as listening:
        server = server_of(make_app([Path(folder)], token=TOKEN))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token={TOKEN}"
        server.should_exit = True
        thread.join()


def draw_time(page: Page, filaments: int, rounds: int = 210) -> dict[str, Any]:
    """Milliseconds to draw a frame: the calls alone, and until its pixels are there."""
    if page.get_by_role("button", name="Pause").count():
        page.get_by_role("button", name="Pause").click()
    random = np.random.default_rng(900)
    places = random.integers(0, 65536, (2, filaments))
    radii = random.integers(50, 700, (1, filaments))
    wind = random.normal(0.0, 300.0, (12, 12, 2)).astype("<i2")
    packed = np.concatenate([places, radii]).astype("<u2")
    numbers = {"filaments": _base64(packed), "wind": _base64(wind), "rounds": rounds}
    times = np.array(page.evaluate(DRAW, numbers))
    calls, pixels = np.median(times, axis=0)
    return {
        "filaments": filaments,
        "draw_ms_median": round(float(calls), 2),
        "draw_ms_q95": round(float(np.quantile(times[:, 0], 0.95)), 2),
        "draw_and_raster_ms_median": round(float(pixels), 2),
    }


def memory(page: Page, minutes: float) -> dict[str, Any]:
    """The heap of the page, MB, after an episode was played once, and after so many minutes of simulated time."""
    session = page.context.new_cdp_session(page)
    page.get_by_label("Speed").select_option(str(SPEED))
    _play_once(page)
    before, played, heaps = _heap(session), 0.0, []
    while played < 60.0 * minutes:
        played += _play_once(page)
        heaps.append(_heap(session))
    return {
        "minutes_played": round(played / 60.0, 1),
        "heap_mb_before": before,
        "heap_mb_after": heaps[-1],
        "heap_mb_highest": max(heaps),
    }


def _play_once(page: Page) -> float:
    """Play the episode from its start to its end; returns its length, s."""
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Play").wait_for(timeout=300_000)
    time.sleep(0.1)
    return STEP * float(page.evaluate("window.gpfView.step()"))


def _heap(session: CDPSession) -> float:
    session.send("HeapProfiler.collectGarbage")
    return round(session.send("Runtime.getHeapUsage")["usedSize"] / 1e6, 2)


def _base64(numbers: "np.ndarray[Any, Any]") -> str:
    return base64.b64encode(numbers.tobytes()).decode()


if __name__ == "__main__":
    main()
