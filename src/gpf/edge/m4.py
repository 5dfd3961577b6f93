"""Exported C on a Cortex-M4F: its sizes, and what it does and takes on a board that QEMU emulates."""

import re
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpf.edge.arrays import Array
from gpf.edge.builds import FLAGS, compile_c, require
from gpf.edge.c import SOURCE, template

CORE = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
INSTRUCTIONS = 40
"""Of a tick of the board's clock, of 25 MHz, where an instruction takes 1 ns."""
PATIENCE = 120.0
"""How long the emulation may take, s."""


@dataclass(frozen=True)
class Replay:
    """A board's actions for the observations of an episode."""

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


def measure_object(folder: Path, *options: str) -> ObjectSize:
    """The sizes of an exported policy, compiled for the core, perhaps with further options."""
    path = folder / "gpf_policy.o"
    compiler = require("arm-none-eabi-gcc", PACKAGES)
    compile_c([compiler, *CORE, *FLAGS, *options, "-c", str(folder / SOURCE), "-o", str(path)])
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
        capture_output=True, text=True, check=False, timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout + done.stderr


def replay_on_m4(folder: Path, sensors: NDArray[np.float32]) -> Replay:
    """Compile an exported policy for the board and replay the observations of an episode, shape (steps, 5)."""
    main = template("m4_main.c").substitute(sensors=Array("float", "sensors", sensors), count=len(sensors))
    said = run_on_board(folder, main, str(folder / SOURCE))
    found = re.search(r"self-test (\d+)\s+ticks (\d+)\s+actions([-\d ]+)", said)
    if found is None:
        raise RuntimeError(f"the emulated board must print its actions, got {said[-300:]!r}")
    actions = np.array(found[3].split(), np.int64)
    return Replay(actions, int(found[2]) * INSTRUCTIONS / len(sensors), int(found[1]))
