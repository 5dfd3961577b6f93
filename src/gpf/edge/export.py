"""A run as an artefact in a folder: `gpf export`."""

import importlib.util
from pathlib import Path
from typing import Literal, get_args

from gpf.edge.c import write_c
from gpf.edge.flights import fly
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
    """
    choose("to", to, get_args(Target))
    choose("numbers", numbers, get_args(Numbers))
    if numbers != "float32" and to != "c":
        raise ValueError(f"numbers must be float32 with --to {to}, got {numbers!r}")
    if sequential and to == "table":
        raise ValueError("sequential needs layers; a table has none")
    if sequential and numbers == "int8":
        raise ValueError("sequential needs float32, got int8")
    if episodes < 1:
        use = "int8 is calibrated on them" if numbers == "int8" else "the artefact is verified on them"
        raise ValueError(f"episodes must be at least 1, because {use}, got {episodes}")
    if to == "onnx" and importlib.util.find_spec("onnxscript") is None:
        raise ValueError("export to onnx needs the extra edge: pip install 'gpf-networks[edge]'")
    policy, navigator = read_policy(run, checkpoint, acting)
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
