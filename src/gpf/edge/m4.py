"""Exported C on a Cortex-M4F: its sizes, and what it does and takes on a board that QEMU emulates."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpf.edge import learning
from gpf.edge.arrays import Array
from gpf.edge.builds import FLAGS, compile_c, require
from gpf.edge.c import SOURCE, template
from gpf.edge.learners import ROOTS

CORE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
INSTRUCTIONS = 40
"""Of a tick of the board's clock, of 25 MHz, where an instruction takes 1 ns."""
PATIENCE = 600.0
"""How long the emulation may take, s."""


@dataclass(frozen=True)
class Replay:
    """A board's actions for observations."""

    actions: NDArray[np.int64]
    instructions: float
    """For each observation, on average."""
    wrong: int
    """Observations of the built-in self-test."""


@dataclass(frozen=True)
class ObjectSize:
    """The size of the compiled policy, without libm, bytes."""

    flash: int
    """Code and constants."""
    ram: int


def measure_object(folder: Path, *options: str, source: str = SOURCE) -> ObjectSize:
    """The sizes of an exported policy, compiled for the core, perhaps with further options."""
    path = (folder / source).with_suffix(".o")
    compiler = require("arm-none-eabi-gcc", PACKAGES)
    compile_c([compiler, *CORE, *FLAGS, *options, "-c", str(folder / source), "-o", str(path)])
    said = subprocess.run(
        [require("arm-none-eabi-size", PACKAGES), str(path)], capture_output=True, text=True, check=True
    )
    code, data, nothing = map(int, said.stdout.splitlines()[1].split()[:3])
    return ObjectSize(code + data, data + nothing)


def run_on_board(folder: Path, main: str, *more: str) -> str:
    """Compile a program for the board, run it, and return what it prints.

    Args:
        folder: Where it is built; sources may include files that are there.
        main: The program, which includes m4_board.h.
        more: Further sources and options of the compiler.
    """
    compiler, emulator = require("arm-none-eabi-gcc", PACKAGES), require("qemu-system-arm", PACKAGES)
    for name in ("m4_board.h", "m4.ld"):
        (folder / name).write_text((resources.files("gpf.edge") / "templates" / name).read_text())
    (folder / "m4_main.c").write_text(main)
    program = str(folder / "m4.elf")
    compile_c([
        compiler, *CORE, "-std=c99", "-O3", "--specs=rdimon.specs", "-T", str(folder / "m4.ld"),
        str(folder / "m4_main.c"), *more, "-o", program, "-lm",
    ])  # fmt: skip
    done = subprocess.run(
        [emulator, "-machine", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native",
         "-icount", "shift=0", "-kernel", program],
        capture_output=True, text=True, check=False, timeout=PATIENCE, stdin=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    return done.stdout + done.stderr


def replay_on_m4(folder: Path, sensors: NDArray[np.float32], starts: Sequence[int] = (0,)) -> Replay:
    """Compile an exported policy for the board and replay observations, shape (steps, 5).

    Episodes begin at `starts`.
    """
    rows = np.zeros((len(sensors), 1 + sensors.shape[1]), "<f4")
    rows[:, 1:] = sensors
    rows[list(starts), 0] = 1.0
    rows.tofile(folder / "sensors.bin")
    main = template("m4_main.c").substitute(sensors="sensors.bin", actions="actions.bin")
    said = run_on_board(folder, main, str(folder / SOURCE))
    found = re.search(r"self-test (\d+)\s+ticks (\d+)", said)
    if found is None:
        raise RuntimeError(f"the emulated board must print its clock, got {said[-300:]!r}")
    actions = np.fromfile(folder / "actions.bin", np.int8).astype(np.int64)
    return Replay(actions, int(found[2]) * INSTRUCTIONS / len(sensors), int(found[1]))


@dataclass(frozen=True)
class Lesson:
    """What a board learned from transitions, epoch by epoch."""

    happened: list[int]
    """As `gpf_end_epoch` returns it."""
    checksums: list[int]
    """CRC-32 of parameters, moments and beliefs."""
    instructions: list[float]
    """For each update, on average."""
    ram: int
    """Bytes, as the program says."""


def learn_on_m4(
    folder: Path,
    transitions: Sequence[tuple[NDArray[np.float32], int, float, bool]],
    metrics: Sequence[float],
) -> Lesson:
    """Compile an exported learner for the board, and let it learn.

    Args:
        folder: Of its header and source.
        transitions: Inputs of the network, action, reward, and whether the episode ended; each goes on where the next
            begins.
        metrics: Of the epochs, which are equal shares of the transitions.
    """
    inputs, actions, rewards, ends = map(np.array, zip(*transitions, strict=True))
    arrays = (
        Array("float", "inputs", np.concatenate([inputs, inputs[:1]])), Array("int8_t", "actions", actions),
        Array("float", "rewards", rewards), Array("uint8_t", "ends", ends.astype(np.uint8)),
        Array("float", "metrics", np.array(metrics)),
    )  # fmt: skip
    epoch = len(actions) // len(metrics)
    main = template("m4_learner.c").substitute(
        arrays="\n\n".join(map(str, arrays)), count=epoch * len(metrics), epoch=epoch
    )
    said = run_on_board(folder, main, ROOTS, str(folder / learning.SOURCE))
    lines = re.findall(r"epoch (\d+) (\d+) (\d+)", said)
    ram = re.search(r"RAM (\d+)", said)
    if len(lines) != len(metrics) or ram is None:
        raise RuntimeError(f"the emulated board must print {len(metrics)} epochs, got {said[-300:]!r}")
    happened, checksums, ticks = (list(map(int, column)) for column in zip(*lines, strict=True))
    return Lesson(happened, checksums, [one * INSTRUCTIONS / epoch for one in ticks], int(ram[1]))
