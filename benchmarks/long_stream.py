"""Does cost stay bounded? GPF in a stream of 100 regimes: memory, time a step, depth and parameters, visit by visit.

    python benchmarks/long_stream.py [--visits 100] [--episodes 300] [--runs runs/long_stream] [--write] [--json]

Two runs of the same seed: one to the end, and one that is killed (SIGKILL) on the way and resumed; both must end with
the same lines and the same tensors. Memory is the process's resident set at the end of the round in which a visit
ended. `--write` puts figure and table into docs/continual.md.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from documents import ROOT, insert
from matplotlib.figure import Figure

from gpf.reports.figures import save_figure
from gpf.reports.tables import markdown_table
from gpf.runs.folder import Run, read_log
from gpf.tasks.shifting import TASK, Config

WARM = 10
"""Visits after which everything should be flat."""


def live(folder: Path, config: Config) -> None:
    """Live through the stream in this process, and write down its memory after every visit."""
    run = Run.open(folder) if (folder / "config.json").exists() else TASK.create(folder, config)

    def note_memory(metrics: dict[str, Any]) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        with (folder / "memory.jsonl").open("a") as log:
            for visit in metrics["visits"]:
                log.write(json.dumps({"visit": visit["visit"] + 1, "megabytes": megabytes}) + "\n")

    TASK.train(run, 1, note_memory)


def started(folder: Path, config: Config) -> subprocess.Popen[bytes]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--live", str(folder), "--visits", str(config.visits)]
    return subprocess.Popen([*command, "--episodes", str(config.episodes)], env={**os.environ, "OMP_NUM_THREADS": "1"})


def what_happened(folder: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Everything that a run left, but for the clock."""
    lines = [
        {key: value for key, value in line.items() if key not in ("seconds", "steps_per_second")}
        for log in ("metrics", "events")
        for line in read_log(folder, log)
    ]
    return lines, [path.read_bytes() for path in (folder / "checkpoints" / "last").glob("*.safetensors")]


def visits_of(folder: Path) -> list[dict[str, Any]]:
    """The visits that have ended, each with the steps and the seconds of the run until the end of its round."""
    return [
        {**visit, "round_step": line["step"], "round_seconds": line["seconds"]}
        for line in read_log(folder, "metrics")
        for visit in line["visits"]
    ]


def microseconds_a_step(visits: list[dict[str, Any]]) -> list[float]:
    """Of the rounds since the visit before; visits that end in one round share them."""
    ends = sorted({(visit["round_step"], visit["round_seconds"]) for visit in visits})
    steps, seconds = (np.diff([0.0, *values]) for values in zip(*ends, strict=True))
    by_end = dict(zip(ends, (1e6 * seconds / steps).tolist(), strict=True))
    return [by_end[visit["round_step"], visit["round_seconds"]] for visit in visits]


def measure(runs: Path, config: Config) -> dict[str, Any]:
    """Both runs, side by side."""
    whole, killed = started(runs / "whole", config), started(runs / "killed", config)
    count = len(config.made_stream().visits)
    at = random.Random(0).randint(count // 3, 2 * count // 3)
    while len(visits_of(runs / "killed")) < at and killed.poll() is None:
        time.sleep(0.2)
    killed.kill()
    killed.wait()
    again = started(runs / "killed", config)
    if whole.wait() or again.wait():
        raise RuntimeError("a run ended with an error")
    visits = visits_of(runs / "whole")
    memory = [json.loads(line) for line in (runs / "whole" / "memory.jsonl").read_text().splitlines()]
    return {
        "killed in visit": at,
        "same": what_happened(runs / "whole") == what_happened(runs / "killed"),
        "success": [sum(visit["found"]) / sum(visit["ended"]) for visit in visits],
        "depth": [visit["depth"] for visit in visits],
        "parameters": [visit["parameters"] for visit in visits],
        "microseconds": microseconds_a_step(visits),
        "memory": memory,
    }


def draw(result: dict[str, Any], path: Path) -> None:
    """Success, memory, time a step, depth and parameters over visits."""
    drawing = Figure(figsize=(11, 10), layout="constrained")
    panels = drawing.subplots(5, 1, sharex=True)
    for axes, key, label in zip(
        panels,
        ("success", "memory", "microseconds", "depth", "parameters"),
        ("success", "memory, MB", "microseconds a step", "depth", "parameters"),
        strict=True,
    ):
        if key == "memory":
            axes.plot(*zip(*((line["visit"], line["megabytes"]) for line in result[key]), strict=True), ".-")
        else:
            axes.plot(np.arange(len(result[key])) + 1, result[key], ".-")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[-1].set_xlabel("visit")
    save_figure(drawing, path)


def table(result: dict[str, Any]) -> str:
    """First ten visits against the last ten, as Markdown."""
    memory = [line["megabytes"] for line in result["memory"]]
    measured: list[tuple[str, list[float], Any, str]] = [
        ("memory, MB", memory, np.max, ".0f"),
        ("microseconds a step, median", result["microseconds"], np.median, ".2f"),
        ("depth, greatest", result["depth"], np.max, ".0f"),
        ("parameters, greatest", result["parameters"], np.max, ",.0f"),
        ("success, mean", result["success"], np.mean, ".3f"),
    ]
    rows = [
        [name, *(format(float(of(part)), form) for part in (values[WARM : 2 * WARM], values[-WARM:]))]
        for name, values, of, form in measured
    ]
    same = "the same lines and the same tensors" if result["same"] else "NOT the same"
    return (
        markdown_table(["", f"visits {WARM + 1} to {2 * WARM}", f"last {WARM}"], rows)
        + f"\n\nKilled in visit {result['killed in visit']} and resumed, it ends with {same}."
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--runs", type=Path, default=Path("runs/long_stream"))
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    config = Config(stream="harsh", method="gpf", visits=arguments.visits, episodes=arguments.episodes)
    if arguments.live:
        live(arguments.live, config)
        return
    if arguments.visits < 2 * WARM:
        raise SystemExit(f"visits must be at least {2 * WARM}, got {arguments.visits}")
    if arguments.runs.exists():
        raise SystemExit(f"runs: {arguments.runs} exists; accepted: a new folder")
    arguments.runs.mkdir(parents=True)
    result = measure(arguments.runs, config)
    draw(result, arguments.runs / "long-stream.png")
    if arguments.write:
        draw(result, ROOT / "docs" / "images" / "long-stream.png")
        insert("docs/continual.md", "long stream", table(result))
    print(json.dumps(result) if arguments.json else table(result))


if __name__ == "__main__":
    main()
