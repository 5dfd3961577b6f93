"""A run as an artefact in a folder: `gpf export`."""

import importlib.util
from pathlib import Path
from typing import Literal, get_args

from gpf.edge.c import write_c
from gpf.edge.flights import fly
from gpf.edge.learning import Learning, learning_of, start_arrays, with_rules, write_learner
from gpf.edge.policy import read_policy
from gpf.edge.table import table_of, write_table
from gpf.navigation.acting import Acting
from gpf.runs.folder import CheckpointName
from gpf.settings import choose

Target = Literal["onnx", "c", "table"]
"""Formats of an export."""
Numbers = Literal["float32", "int8"]
"""Of weights and activations, in C."""


def export(
    run: str | Path,
    to: Target,
    out: str | Path,
    *,
    checkpoint: CheckpointName = "last",
    acting: Acting | None = None,
    numbers: Numbers = "float32",
    sequential: bool = False,
    episodes: int = 20,
    learn: bool = False,
    max_depth: int | None = None,
) -> str:
    """Export the navigator of a run; returns what there is to say about sizes.

    Args:
        run: Its folder.
        to: `onnx`, `c` (C99) or `table` (392 actions).
        out: Folder of the files, which is made if it does not exist.
        checkpoint: Which one.
        acting: How it acts when it flies the episodes; None for as it was trained.
        numbers: Of the weights and activations in C.
        sequential: A function for each layer in C, rather than one for all; in ONNX, no `Scan`.
        episodes: Flown for the self-test or to verify ONNX, and to calibrate int8.
        learn: Export a navigator that keeps learning on the robot, in C.
        max_depth: Hidden layers that it may have then; None for as its run's rules say.
    """
    choose("to", to, get_args(Target))
    choose("numbers", numbers, get_args(Numbers))
    if numbers != "float32" and to != "c":
        raise ValueError(f"numbers must be float32 with --to {to}, got {numbers!r}")
    if sequential and to == "table":
        raise ValueError("sequential needs layers; a table has none")
    if sequential and numbers == "int8":
        raise ValueError("sequential needs float32, got int8")
    if learn and (to != "c" or numbers != "float32" or sequential):
        given = f"to {to}, numbers {numbers}{', sequential' if sequential else ''}"
        raise ValueError(f"learn needs to c, numbers float32 and no sequential, got {given}")
    if max_depth is not None and not learn:
        raise ValueError(f"max_depth needs learn, got {max_depth} without it")
    if episodes < 1:
        use = "int8 is calibrated on them" if numbers == "int8" else "the artefact is verified on them"
        raise ValueError(f"episodes must be at least 1, because {use}, got {episodes}")
    if to == "onnx" and importlib.util.find_spec("onnxscript") is None:
        raise ValueError("export to onnx needs the extra edge: pip install 'gpf-networks[edge]'")
    policy, navigator = read_policy(run, checkpoint, acting)
    if learn:
        return _export_learner(Path(out), learning_of(navigator, policy), max_depth)
    if to == "table":
        table_of(policy)  # refuses a navigator with memory before anything is written
    flights = fly(navigator.policy, navigator.scenario, episodes)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if to == "onnx":
        from gpf.edge.graph import write_onnx

        return f"{write_onnx(folder, policy, flights, sequential=sequential):,} bytes"
    if to == "table":
        write_table(folder, policy, flights)
        return "392 bytes"
    return str(write_c(folder, policy, flights, quantised=numbers == "int8", sequential=sequential))


def _export_learner(folder: Path, learning: Learning, max_depth: int | None) -> str:
    """Write the C of a navigator that keeps learning; returns what it takes."""
    if max_depth is not None:
        if max_depth < len(learning.layers) - 1:
            raise ValueError(f"max_depth must be at least the depth now, {len(learning.layers) - 1}, got {max_depth}")
        learning = with_rules(learning, max_depth=max_depth)
    folder.mkdir(parents=True, exist_ok=True)
    ram = write_learner(folder, learning)
    weights = sum(array.size for array in start_arrays(learning))
    return f"weights {weights:,} bytes, RAM {ram:,} bytes with room for {learning.max_depth} hidden layers"
