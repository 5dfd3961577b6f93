"""Many training runs in parallel processes; finished ones are not repeated, unfinished ones go on."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def train_all(wanted: dict[Path, list[str]], jobs: int) -> dict[Path, dict[str, Any]]:
    """Train a run in each folder with its arguments for `gpf train`, `jobs` at a time; returns their results."""

    def one(item: tuple[Path, list[str]]) -> dict[str, Any]:
        folder, arguments = item
        if not (folder / "result.json").exists():
            begun = (folder / "config.json").exists()
            which = ["--resume", str(folder)] if begun else ["--run", str(folder), *arguments]
            command = [sys.executable, "-m", "gpf", "train", *which, "--threads", "1", "--json"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{folder}: {done.stderr.strip().splitlines()[-1]}")
        result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        print(
            f"{folder}: success {result['success']:.4f}, {result['mean_steps'] or 0:.1f} steps,"
            f" depth {result['depth']}, density {result['density']:.3f}",
            file=sys.stderr,
        )
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(one, wanted.items()), strict=True))
