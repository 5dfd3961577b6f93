import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpf

STEP = (
    "import numpy as np\nfrom gpf.navigation.policies import Random\nfrom gpf.plume import Scenario\n"
    "policy, actions = Random(), np.zeros(4, np.int64)\n"
    "policy.begin(range(4), Scenario()); policy.act(np.zeros((4, 5), np.float32), np.arange(4), actions)\n"
    "print(actions)\n"
    "import numpy as np\nfrom gpf.plume.world import World\n"
    "world = World(4); world.seed(range(4)); world.begin()\n"
    "for _ in range(50): world.step(np.zeros(4, np.int64))\n"
    "print(world.lanes['left'].tobytes().hex())\n"
)
NOTICE = "gpf: compiling the plume kernels, once on this machine; takes some seconds\n"


def run(source, cache, script=STEP):
    environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True, cwd=source
    )
    return done.stdout, done.stderr


SMALL = (
    "from small.entry import twice\nfrom gpf.plume.kernels import announcing_compilation\n"
    "with announcing_compilation(): print(twice(3.0))\n"
)


def test_a_kernel_is_compiled_once_and_again_when_what_it_calls_changes(tmp_path):
    source = tmp_path / "source"
    plume = source / "gpf" / "plume"
    plume.mkdir(parents=True)
    (source / "small").mkdir()
    for package in (plume.parent, plume, source / "small"):
        (package / "__init__.py").touch()
    shutil.copy(Path(gpf.__file__).parent / "plume" / "kernels.py", plume)
    (plume / "inner.py").write_text("from numba import njit\n@njit\ndef once(x):\n    return x + 1.0\n")
    (source / "small" / "other.py").write_text("from numba import njit\n@njit\ndef less(x):\n    return x - 0.5\n")
    (source / "small" / "entry.py").write_text(
        "from gpf.plume.inner import once\nfrom gpf.plume.kernels import kernel\nfrom small.other import less\n"
        "@kernel\ndef twice(x):\n    return less(2.0 * once(x))\n"
    )
    assert run(source, tmp_path / "cache", SMALL) == ("7.5\n", NOTICE)
    assert run(source, tmp_path / "cache", SMALL) == ("7.5\n", "")
    for changed, old, new, said in ((plume / "inner.py", "1.0", "2.0", "9.5\n"),
                                    (source / "small" / "other.py", "0.5", "0.25", "9.75\n")):  # fmt: skip
        changed.write_text(changed.read_text().replace(old, new))
        assert run(source, tmp_path / "cache", SMALL) == (said, NOTICE)


@pytest.mark.slow
def test_kernels_compile_once_say_so_and_never_go_stale(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(Path(gpf.__file__).parent, source / "gpf", ignore=shutil.ignore_patterns("__pycache__"))
    first, said = run(source, tmp_path / "cache")
    assert said == NOTICE
    again, said = run(source, tmp_path / "cache")
    assert said == ""
    assert again == first
    # A change in a file that the entry kernels only call into must reach them all the same.
    for name, old, new in (
        ("antennae.py", "lane.left = ideal(", "lane.left = 0.25 + ideal("),
        ("rng.py", "return result\n", "return result ^ _BITS52\n"),
    ):
        path = source / "gpf" / "plume" / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    changed, said = run(source, tmp_path / "cache")
    assert said == NOTICE
    for mine, theirs in zip(changed.splitlines(), first.splitlines(), strict=True):
        assert mine != theirs


def test_where_nothing_can_be_cached_kernels_compile_all_the_same(monkeypatch):
    import numba

    from gpf.plume.kernels import kernel

    plain = numba.njit

    def without_a_place(*arguments, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*arguments, **options)

    monkeypatch.setattr(numba, "njit", without_a_place)

    @kernel
    def add(a, b):
        return a + b

    assert add(1, 2) == 3
