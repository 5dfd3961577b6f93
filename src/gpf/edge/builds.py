"""Exported C compiled: for this machine, as a library, and for a Cortex-M4F, as a program that QEMU runs."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpf.edge.c import SOURCE

FLAGS = ("-std=c99", "-O3", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
"""For every compiler: a warning is a defect."""
ROOM = 256
"""Bytes for a state; more than it takes."""


def compile_c(command: Sequence[str]) -> None:
    """Run a compiler, and say what it says if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")


def require(program: str, packages: str) -> str:
    """The path of a program, or an error that says what to install."""
    path = shutil.which(program)
    if path is None:
        raise RuntimeError(f"{program} is missing; install it with: apt-get install --no-install-recommends {packages}")
    return path


class Library:
    """An exported policy, compiled for this machine, with a state of its own."""

    def __init__(self, folder: Path) -> None:
        path = folder / "gpf_policy.so"
        compile_c([
            require("gcc", "gcc libc6-dev"), *FLAGS, "-fPIC", "-shared", str(folder / SOURCE), "-o", str(path), "-lm"
        ])  # fmt: skip
        self.code = ctypes.CDLL(str(path))
        self.code.gpf_metadata.restype = ctypes.c_char_p
        for name in ("gpf_ram", "gpf_flash"):
            getattr(self.code, name).restype = ctypes.c_size_t
        self._state = (ctypes.c_uint64 * (ROOM // 8))()

    def reset(self, words: NDArray[np.uint64] | None = None) -> None:
        """Begin an episode, and a random stream if one is given."""
        self.code.gpf_reset(ctypes.byref(self._state))
        if words is not None:
            self.code.gpf_seed(ctypes.byref(self._state), words.ctypes.data_as(ctypes.c_void_p))

    def act(self, sensors: NDArray[np.float32], sampled: bool = False) -> int:
        """The action for an observation."""
        act = self.code.gpf_sampled if sampled else self.code.gpf_greedy
        return int(act(ctypes.byref(self._state), sensors.ctypes.data_as(ctypes.c_void_p)))

    def replay(self, sensors: NDArray[np.float32]) -> NDArray[np.int64]:
        """The greedy actions for the observations of an episode, shape (steps, 5)."""
        self.reset()
        return np.array([self.act(row) for row in np.ascontiguousarray(sensors, np.float32)])

    @property
    def self_test(self) -> int:
        """Built-in observations that it gets wrong."""
        return int(self.code.gpf_self_test())
