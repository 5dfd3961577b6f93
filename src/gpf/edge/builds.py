"""Exported C compiled: for this machine, as a library, and for a Cortex-M4F, as a program that QEMU runs."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.edge.c import SOURCE, template
from gpf.plume.rng import seed_streams
from gpf.plume.scenario import Scenario

FLAGS = ("-std=c99", "-O3", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
"""For every compiler: a warning is a defect."""
LANES = "policy_lanes.c"
"""For this machine only: many robots in one call."""
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


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Where an array's memory, which must be contiguous, begins."""
    return ctypes.c_void_p(array.ctypes.data)


class Library:
    """An exported policy, compiled for this machine; it flies like any other policy.

    Args:
        folder: Of its header and source; the library goes there too.
        sampled: Draw actions from the softmax in place of taking the best.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("_states",)

    def __init__(self, folder: Path, sampled: bool = False) -> None:
        self.sampled = sampled
        path, lanes = folder / "gpf_policy.so", folder / LANES
        lanes.write_text(template(LANES).template)
        compile_c([
            require("gcc", "gcc libc6-dev"), *FLAGS, "-fPIC", "-shared", str(folder / SOURCE), str(lanes),
            "-o", str(path), "-lm",
        ])  # fmt: skip
        self.code: ctypes.CDLL = ctypes.CDLL(str(path))
        self.code.gpf_metadata.restype = ctypes.c_char_p
        self.samples: bool = hasattr(self.code, "gpf_sampled")
        for name in ("gpf_ram", "gpf_flash"):
            getattr(self.code, name).restype = ctypes.c_size_t
        self._states = np.zeros((1, ROOM // 8), np.uint64)

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Begin one episode per seed; random streams are those of `gpf.navigation.acting.NetworkPolicy`."""
        self._states = np.zeros((len(seeds), ROOM // 8), np.uint64)
        for lane, words in enumerate(seed_streams([(seed, 1) for seed in seeds])):
            self.code.gpf_reset(self._state(lane))
            if self.samples:
                self.code.gpf_seed(self._state(lane), words.ctypes.data_as(ctypes.c_void_p))

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices; raw observations have shape (n, 5) or (n, 8)."""
        rows = np.ascontiguousarray(raw, np.float32)
        self.code.gpf_act_lanes(
            self._state(0), ctypes.c_size_t(ROOM), address(lanes), len(lanes), address(rows),
            ctypes.c_size_t(rows.shape[1]), self.sampled, address(actions),
        )  # fmt: skip

    def replay(self, sensors: NDArray[np.float32], starts: Sequence[int] = (0,)) -> NDArray[np.int64]:
        """The actions for observations, shape (steps, 5), of episodes that begin at `starts`."""
        self.begin([0], Scenario())
        begins, actions = np.zeros(len(sensors), np.uint8), np.zeros(len(sensors), np.int64)
        begins[list(starts)] = 1
        rows = np.ascontiguousarray(sensors, np.float32)
        self.code.gpf_replay(
            self._state(0), len(rows), address(rows), address(begins), self.sampled, address(actions)
        )  # fmt: skip
        return actions

    def _state(self, lane: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._states.ctypes.data + ROOM * int(lane))

    @property
    def self_test(self) -> int:
        """Built-in observations that it gets wrong."""
        return int(self.code.gpf_self_test())
