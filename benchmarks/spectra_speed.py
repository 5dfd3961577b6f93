"""How fast spectra are: beside weightwatcher, for a very wide layer, and in a training run.

    python benchmarks/spectra_speed.py [--rounds 5] [--steps 3000000] [--write] [--json]

- `analysis`: `gpf.spectra.inspect` of a 4-layer 512-wide model, weights and activations and what random weights would
  give, against weightwatcher's analysis of its weights with a Marchenko-Pastur fit; interleaved, medians.
- `wide`: seconds and memory beyond the matrix itself for the spectrum of one layer of 8,192 x 8,192.
- `recorder`: share of a default training run (`gpf train`) that goes into snapshots and plasticity.

`--write` puts the table into docs/spectra.md.
"""

import argparse
import json
import logging
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from documents import insert
from torch import nn

from gpf.reports.tables import markdown_table
from gpf.spectra import gram_spectrum, inspect, kolmogorov, marchenko_pastur
from gpf.spectra.recorder import Recorder
from gpf.tasks import plume


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3_000_000, help="of the training run")
    parser.add_argument("--write", action="store_true", help="put the table into docs/spectra.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seconds, megabytes, distance = wide()  # first: it looks at the highest memory use so far
    ours, theirs = analysis(arguments.rounds)
    share, total = recorder(arguments.steps)
    text = markdown_table(
        ["quantity", "measured"],
        [
            [
                "full analysis of a 4-layer 512-wide model",
                f"{ours:.2f} s; weightwatcher (weights only) {theirs:.2f} s: {theirs / ours:.1f} times as fast",
            ],
            [
                "spectrum of an 8,192 x 8,192 layer",
                f"{seconds:.1f} s, {megabytes:.0f} MB beside the matrix's {8192**2 * 4 / 2**20:.0f} MB;"
                f" Kolmogorov distance from Marchenko-Pastur {distance:.3f}",
            ],
            ["recorder and plasticity in a default training run", f"{share:.2%} of {total:.0f} s"],
        ],
    )
    print(text)
    if arguments.write:
        insert("docs/spectra.md", "speed", text)
    if arguments.json:
        print(json.dumps({"analysis": theirs / ours, "wide_seconds": seconds, "recorder_share": share}))


def analysis(rounds: int) -> tuple[float, float]:
    """Median seconds of ours and of weightwatcher's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import weightwatcher
    logging.getLogger("weightwatcher").setLevel(logging.ERROR)
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(512, 512), nn.ReLU())))
    batch = torch.randn(512, 512)

    def watch() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weightwatcher.WeightWatcher(model=model, log_level="ERROR").analyze(mp_fit=True)

    contenders: dict[str, Callable[[], Any]] = {"ours": lambda: inspect(model, batch, quiet=True), "theirs": watch}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if turn:  # the first time, libraries are still being loaded
                times[name].append(time.perf_counter() - started)
    return statistics.median(times["ours"]), statistics.median(times["theirs"])


def wide(size: int = 8192) -> tuple[float, float, float]:
    """Seconds, and the greatest memory in use meanwhile, for one wide layer; and how far it is from the truth."""
    weights = np.random.default_rng(0).standard_normal((size, size), np.float32) / np.float32(np.sqrt(size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    spectrum = gram_spectrum(weights)
    seconds = time.perf_counter() - started
    extra = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kilobytes above the highest so far
    return seconds, extra / 2**10, kolmogorov(spectrum, marchenko_pastur(1.0))


def recorder(steps: int) -> tuple[float, float]:
    """The share of a run, the default but for its length, that goes into recording, and the run's seconds."""
    spent = 0.0

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent += time.perf_counter() - started

        return call

    class Timed(Recorder):
        before = timed(Recorder.before)
        after = timed(Recorder.after)

    task: Any = plume
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(task, "Recorder", Timed),
        mock.patch.object(task, "plasticity", timed(task.plasticity)),
    ):
        started = time.perf_counter()
        plume.TASK.train(plume.TASK.create(Path(folder, "run"), plume.TASK.of({"steps": steps})))
        total = time.perf_counter() - started
    return spent / total, total


if __name__ == "__main__":
    main()
