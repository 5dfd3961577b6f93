import os
import shutil
import subprocess
import sys
from pathlib import Path

import gpf

STEP = (
    "import numpy as np\nfrom gpf.plume.world import World\n"
    "world = World(4); world.seed(range(4)); world.begin()\n"
    "for _ in range(50): world.step(np.zeros(4, np.int64))\n"
    "print(world.lanes['left'].tobytes().hex())\n"
)
NOTICE = "gpf: compiling the plume kernels, once on this machine; takes some seconds\n"


def run(source, cache):
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", STEP], capture_output=True, text=True, env=environment, check=True, cwd=source
    )
    return done.stdout, done.stderr


def test_kernels_compile_once_say_so_and_never_go_stale(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(Path(gpf.__file__).parent, source / "gpf", ignore=shutil.ignore_patterns("__pycache__"))
    first, said = run(source, tmp_path / "cache")
    assert said == NOTICE
    again, said = run(source, tmp_path / "cache")
    assert said == ""
    assert again == first
    # A change in a file that the entry kernels only call into must reach them all the same.
    physics = source / "gpf" / "plume" / "sensors.py"
    physics.write_text(physics.read_text().replace("lane.left = ", "lane.left = 0.25 + "))
    changed, said = run(source, tmp_path / "cache")
    assert said == NOTICE
    assert changed != first
