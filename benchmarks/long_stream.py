"""Does cost stay bounded? GPF in a stream of 100 regimes: memory, time a step, depth and parameters, visit by visit.

    python benchmarks/long_stream.py [--visits 100] [--episodes 300] [--runs runs/long_stream] [--write] [--json]

Two runs of the same seed: one to the end, and one that is killed (SIGKILL) in its midst and resumed; both must end with
the same lines and the same tensors. Memory is the process's resident set at the end of a visit. `--write` puts figure
and table into docs/continual.md.
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
from gpf.runs.folder import Run, read_log
from gpf.tasks.continual import Config, Training, create_run, finish

WARM = 10
"""Visits after which everything should be flat."""


def live(folder: Path, config: Config) -> None:
    """Live through the stream in this process, and write down its memory after every visit."""
    run = Run.open(folder) if (folder / "config.json").exists() else create_run(folder, config)
    training = Training(run)
    while not training.over:
        before = training.progress["visit"]
        training.round()
        if training.progress["visit"] > before:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            with (folder / "memory.jsonl").open("a") as log:
                megabytes = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
                log.write(json.dumps({"visit": training.progress["visit"], "megabytes": megabytes}) + "\n")
    finish(run)


def started(folder: Path, config: Config) -> subprocess.Popen[bytes]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--live", str(folder), "--visits", str(config.visits)]
    return subprocess.Popen([*command, "--episodes", str(config.episodes)], env={**os.environ, "OMP_NUM_THREADS": "1"})


def what_happened(folder: Path) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Everything that a run left, but for the clock."""
    lines = [
        {key: value for key, value in line.items() if key != "seconds"}
        for log in ("metrics", "events")
        for line in read_log(folder, log)
    ]
    return lines, [path.read_bytes() for path in (folder / "checkpoints" / "last").glob("*.safetensors")]


def measure(runs: Path, config: Config) -> dict[str, Any]:
    """Both runs, side by side."""
    whole, killed = started(runs / "whole", config), started(runs / "killed", config)
    at = random.Random(0).randint(config.visits // 3, 2 * config.visits // 3)  # type: ignore[operator]
    while len(read_log(runs / "killed", "metrics")) < at and killed.poll() is None:
        time.sleep(0.2)
    killed.kill()
    killed.wait()
    again = started(runs / "killed", config)
    if whole.wait() or again.wait():
        raise RuntimeError("a run ended with an error")
    visits = read_log(runs / "whole", "metrics")
    memory = [json.loads(line) for line in (runs / "whole" / "memory.jsonl").read_text().splitlines()]
    steps, seconds = (np.diff([0, *(visit[key] for visit in visits)]) for key in ("steps", "seconds"))
    return {
        "killed in visit": at,
        "same": what_happened(runs / "whole") == what_happened(runs / "killed"),
        "success": [sum(visit["found"]) / sum(visit["ended"]) for visit in visits],
        "depth": [visit["depth"] for visit in visits],
        "parameters": [visit["parameters"] for visit in visits],
        "microseconds": (1e6 * seconds / steps).tolist(),
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
    rows = [
        ("memory, MB", memory, ".0f"), ("microseconds a step, median", result["microseconds"], ".2f"),
        ("depth, greatest", result["depth"], ".0f"), ("parameters, greatest", result["parameters"], ",.0f"),
        ("success, mean", result["success"], ".3f"),
    ]  # fmt: skip
    of: dict[str, Any] = {"median": np.median, "greatest": np.max, "mean": np.mean, "MB": np.max}
    lines = [f"| | visits {WARM + 1} to {2 * WARM} | last {WARM} |", "|---|---|---|"]
    for name, values, form in rows:
        amounts = of[name.rsplit(" ", 1)[1]]
        early, late = (format(float(amounts(part)), form) for part in (values[WARM : 2 * WARM], values[-WARM:]))
        lines.append(f"| {name} | {early} | {late} |")
    same = "the same lines and the same tensors" if result["same"] else "NOT the same"
    lines.append(f"\nKilled in visit {result['killed in visit']} and resumed, it ends with {same}.")
    return "\n".join(lines)


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
