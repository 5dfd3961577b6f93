"""What decides whether two machines train the same run from the same seed: code paths of torch, its BLAS and numba.

    python benchmarks/same_bits.py [--steps 200000] [--write]

Trains the default navigator with one seed several times. In each run, one library takes the code path that it would
take on a processor with other instructions. A run is the same if all metrics are, bit for
bit. `pinned` tells all three libraries to take paths that every x86-64 processor of the last ten years has. Times are
of the whole process, relative to the plain one. `--write` puts the table into docs/navigators.md.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from documents import insert

from gpf.reports.tables import markdown_table

HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
PINNED = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "avx2", **HASWELL}
PATHS: dict[str, dict[str, str]] = {
    "plain": {},
    "plain, again": {},
    "torch's kernels: AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "torch's kernels: no vector instructions": {"ATEN_CPU_CAPABILITY": "default"},
    "BLAS (MKL): COMPATIBLE": {"MKL_CBWR": "COMPATIBLE"},
    "BLAS (MKL): AVX2": {"MKL_CBWR": "AVX2"},
    "numba: for Haswell (AVX2, FMA)": HASWELL,
    "numba: for any x86-64, without FMA": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""},
    "pinned": PINNED,
    "pinned, two threads": {**PINNED, "THREADS": "2"},
}
"""By name, the environment of the process; THREADS is an option of ours."""


def main() -> None:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--write", action="store_true", help="put the table into docs/navigators.md")
    arguments = parser.parse_args()
    found: dict[str, tuple[str, float]] = {}
    rows = []
    for name, environment in PATHS.items():
        train(environment, 10_000)  # compiles
        found[name] = train(environment, arguments.steps)
        same = [other for other in found if other != name and found[other][0] == found[name][0]]
        rows.append((name, found[name][0], same[0] if same else "", f"{found[name][1] / found['plain'][1]:.2f}"))
        print(*rows[-1], sep=", ", flush=True)
    table = markdown_table(["code path", "digest of all metrics", "same as", "time / plain"], rows)
    print(table)
    if arguments.write:
        insert("docs/navigators.md", "bits", table)


def train(environment: dict[str, str], steps: int) -> tuple[str, float]:
    """The digest of a run's metrics, without times, and the seconds that it took."""
    threads = environment.get("THREADS", "1")
    options = ["--steps", str(steps), "--seed", "1", "--evaluate", "0", "--no-report", "--threads", threads]
    with tempfile.TemporaryDirectory() as folder:
        run, start = Path(folder, "run"), time.perf_counter()
        parts = sorted(filter(None, environment.values()))
        cache = {"NUMBA_CACHE_DIR": str(Path(tempfile.gettempdir(), "gpf-same-bits", *parts))}
        subprocess.run(
            [sys.executable, "-m", "gpf", "train", *options, "--run", str(run)],
            env={**os.environ, **environment, **cache}, check=True, capture_output=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if "second" not in name} for line in lines]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:8], seconds


if __name__ == "__main__":
    main()
