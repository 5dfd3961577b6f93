"""Many training runs in parallel processes; finished ones are not repeated, unfinished ones go on."""

import dataclasses
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpf.navigation.agents import read_run_config
from gpf.navigation.config import Config
from gpf.runs import Run
from gpf.tasks.plume import create_run, train


def train_all(wanted: dict[Path, Config], jobs: int) -> dict[Path, dict[str, Any]]:
    """Train a run in each folder, `jobs` at a time, each on one thread; returns their results.

    A folder that holds a run of another configuration is refused.
    """

    def one(item: tuple[Path, Config]) -> dict[str, Any]:
        folder, config = item
        if (folder / "config.json").exists() and read_run_config(folder)[0] != config.resolved():
            raise ValueError(
                f"runs: {folder} is of another configuration; accepted: another --runs, or that one deleted"
            )
        if not (folder / "result.json").exists():
            command = [sys.executable, __file__, str(folder), json.dumps(dataclasses.asdict(config))]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{folder}: exit code {done.returncode}\n{done.stderr}")
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        print(
            f"{folder}: success {result['success']:.4f}, {result['mean_steps'] or 0:.1f} steps,"
            f" depth {result['depth']}, density {result['density']:.3f}",
            file=sys.stderr,
            flush=True,
        )
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(one, wanted.items()), strict=True))


if __name__ == "__main__":
    place, values = Path(sys.argv[1]), json.loads(sys.argv[2])
    chosen = Config(**{**values, "without": tuple(values["without"])})
    train(Run.open(place) if (place / "config.json").exists() else create_run(place, chosen), threads=1)
