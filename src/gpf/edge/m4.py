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
    """What a board did with the observations of an episode."""

    actions: NDArray[np.int64]
    instructions: float
    """For each observation, on average."""
    wrong: int
    """Observations of the built-in self-test."""


@dataclass(frozen=True)
class ObjectSize:
    """What the compiled policy takes, without libm, bytes."""

    flash: int
    """Code and constants."""
    ram: int


def measure_object(folder: Path, optimise: str = "-O3") -> ObjectSize:
    """The sizes of an exported policy, compiled for the core."""
    path = folder / "gpf_policy.o"
    compiler = require("arm-none-eabi-gcc", PACKAGES)
    compile_c([compiler, *CORE, *FLAGS, optimise, "-c", str(folder / SOURCE), "-o", str(path)])
    said = subprocess.run(
        [require("arm-none-eabi-size", PACKAGES), str(path)], capture_output=True, text=True, check=True
    )
    code, data, nothing = map(int, said.stdout.splitlines()[1].split()[:3])
    return ObjectSize(code + data, data + nothing)


def replay_on_m4(folder: Path, sensors: NDArray[np.float32], optimise: str = "-O3") -> Replay:
    """Compile an exported policy for the board and replay the observations of an episode, shape (steps, 5)."""
    compiler, emulator = require("arm-none-eabi-gcc", PACKAGES), require("qemu-system-arm", PACKAGES)
    main, script, program = folder / "m4_main.c", folder / "m4.ld", folder / "m4.elf"
    main.write_text(template("m4_main.c").substitute(sensors=Array("float", "sensors", sensors), count=len(sensors)))
    script.write_text((resources.files("gpf.edge") / "templates" / "m4.ld").read_text())
    compile_c([
        compiler, *CORE, *(flag for flag in FLAGS if flag != "-Wpedantic"), optimise, "--specs=rdimon.specs", "-T",
        str(script), str(folder / SOURCE), str(main), "-o", str(program), "-lm",
    ])  # fmt: skip
    done = subprocess.run(
        [emulator, "-machine", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native",
         "-icount", "shift=0", "-kernel", str(program)],
        capture_output=True, text=True, check=False, timeout=PATIENCE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = re.search(r"self-test (\d+)\s+ticks (\d+)\s+actions([-\d ]+)", done.stdout)
    if found is None:
        raise RuntimeError(f"the emulated board must print its actions, got {(done.stdout + done.stderr)[-300:]!r}")
    actions = np.array(found[3].split(), np.int64)
    return Replay(actions, int(found[2]) * INSTRUCTIONS / len(sensors), int(found[1]))
