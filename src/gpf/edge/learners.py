"""Learners compiled for this machine: many at once, in memory that NumPy sees field by field."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpf.edge.builds import FLAGS, address, compile_c, require
from gpf.edge.c import template
from gpf.edge.learning import SOURCE, Learning, learner_type, write_learner
from gpf.plume.rng import seed_streams

Real = Literal["float", "double"]
"""C's type of what exists once for each weight."""
FIRST, RUNNING, ENDED, OUT_OF_TIME = range(4)
"""What the last step of a lane was: none, one of many, the end of the search, or the last for want of time."""
GROWN, PRUNED, FROZEN, THAWED = 1, 2, 4, 8
"""What the end of an epoch may bring; it returns their sum."""
WRITER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)
LANES = "learner_lanes.c"
ROOTS = "-fno-math-errno"
"""For the compiler: roots are single instructions, which set no error number."""


class Learners:
    """Learners on this machine, one for each seed of their random streams.

    Attributes:
        memory: Structured array of `learner_type`, shape (lanes,).
        actions: int64, shape (lanes,), as of the last step.
    """

    def __init__(self, folder: Path, learning: Learning, seeds: Sequence[int], real: Real = "float") -> None:
        write_learner(folder, learning)
        lanes, path = folder / LANES, folder / f"gpf_learner_{real}.so"
        lanes.write_text(template(LANES).template)
        compile_c([
            require("gcc", "gcc libc6-dev"), *FLAGS, ROOTS, f"-DGPF_REAL={real}", "-fPIC", "-shared",
            str(folder / SOURCE), str(lanes), "-o", str(path), "-lm",
        ])  # fmt: skip
        self.code: ctypes.CDLL = ctypes.CDLL(str(path))
        for name in ("gpf_learner_size", "gpf_state_size", "gpf_block_size", "gpf_learner_ram"):
            getattr(self.code, name).restype = ctypes.c_size_t
        self.real: Any = np.float64 if real == "double" else np.float32
        self._metric = ctypes.c_double if real == "double" else ctypes.c_float
        layout = learner_type(learning, self.real)
        if layout.itemsize != self.code.gpf_learner_size():
            raise RuntimeError(f"gpf_learner must take {layout.itemsize} bytes, got {self.code.gpf_learner_size()}")
        self._layout = layout
        self.begin(seeds)

    def begin(self, seeds: Sequence[int]) -> None:
        """Begin from the exported network, one learner for each seed."""
        self.memory: NDArray[np.void] = np.zeros(len(seeds), self._layout)
        self.actions: NDArray[np.int64] = np.zeros(len(seeds), np.int64)
        self._states = np.zeros(len(seeds) * self.code.gpf_state_size(), np.uint8)
        words = seed_streams([(seed, 1) for seed in seeds])
        self.code.gpf_begin_lanes(self.at(0), len(seeds), address(words))

    def at(self, lane: int) -> ctypes.c_void_p:
        """The address of a lane's learner."""
        return ctypes.c_void_p(self.memory.ctypes.data + int(lane) * self.memory.itemsize)

    def step(self, raw: NDArray[np.float32], rewards: NDArray[np.float32], kinds: NDArray[np.uint8]) -> None:
        """Let every lane learn from its last step and choose an action; raw observations have shape (lanes, 5 or 8)."""
        self.code.gpf_step_lanes(
            self.at(0), address(self._states), len(self.memory), address(raw), raw.shape[1], address(rewards),
            address(kinds), address(self.actions),
        )  # fmt: skip

    def update(
        self, inputs: NDArray[Any], action: int, reward: float, following: NDArray[Any] | None, lane: int = 0
    ) -> None:
        """One update from a transition; `following` is what the network sees next, None at an end."""
        seen = np.ascontiguousarray(inputs, self.real)
        after = None if following is None else np.ascontiguousarray(following, self.real)
        place = None if after is None else address(after)
        self.code.gpf_update(self.at(lane), address(seen), action, ctypes.c_float(reward), place)

    def respond(self, inputs: NDArray[Any], outputs: int = 6, lane: int = 0) -> NDArray[Any]:
        """The outputs of a lane's network."""
        seen, out = np.ascontiguousarray(inputs, self.real), np.zeros(outputs, self.real)
        self.code.gpf_respond(self.at(lane), address(seen), address(out))
        return out

    def end_epoch(self, metric: float, lane: int = 0) -> int:
        """End an epoch of a lane; returns the sum of what happened."""
        return int(self.code.gpf_end_epoch(self.at(lane), self._metric(metric)))
