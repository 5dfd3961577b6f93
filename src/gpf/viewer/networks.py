"""A network from its tensors on disk, without its model: layers, weights by magnitude, belief, and spectra.

Weights come from a checkpoint, which also has belief and masks, or from a snapshot that was taken at an event.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from gpf.network.checkpoints.manifest import check_manifest
from gpf.runs.folder import RunError
from gpf.spectra.empirical import Weights, analyse_weights
from gpf.spectra.theory import marchenko_pastur

Matrix = NDArray[np.float64]
MOST_CELLS = 48
"""Rows and columns of a weight matrix that are drawn; of more, each cell is the weight that is greatest in it."""
MOST_MATRICES = 96
"""Weight matrices of a network that are read."""
MOST_SPECTRA = 24
"""Weight matrices whose eigenvalues are computed here."""
LARGEST = 512
"""Shorter side of a matrix up to which its eigenvalues are computed here; `gpf spectra` has no such limit."""
MOST_MOMENTS = 2000
CHECKPOINTS = {"last": "checkpoints/last", "best": "checkpoints/best", "here": "."}
"""Folders of checkpoints in a run's, by the names of their moments; `here` is a checkpoint on its own."""
_INPUT = re.compile(r"emb|wte|wpe|stem|input|patch|token|position", re.IGNORECASE)
_OUTPUT = re.compile(r"head|output|classifier|decoder|value|policy", re.IGNORECASE)
_SNAPSHOT = re.compile(r"(\d{4,9})-(before|after)")


@dataclass
class _Held:
    """The weights of a network."""

    about: str
    """Where they are from."""
    stack: str
    tensors: dict[str, NDArray[Any]]
    """By name: matrices with a unit in each row."""
    beliefs: dict[str, NDArray[Any]] = field(default_factory=dict)
    pruned: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Masks of pruned weights; a matrix without one is dense."""
    frozen: list[int] | None = None


def moments(folder: Path) -> list[dict[str, Any]]:
    """The moments of a run whose weights are on disk: snapshots at events, oldest first, and checkpoints."""
    named = filter(None, (_SNAPSHOT.fullmatch(path.stem) for path in (folder / "spectra").glob("*.safetensors")))
    found: list[dict[str, Any]] = [{"id": one[0], "event": int(one[1]), "when": one[2]} for one in named]
    found.sort(key=lambda moment: (moment["event"], moment["when"] == "after"))
    names = [name for name, place in CHECKPOINTS.items() if (folder / place / "manifest.json").exists()]
    return [*found[-MOST_MOMENTS:], *({"id": name, "event": None, "when": name} for name in names)]


def network(folder: Path, moment: str) -> dict[str, Any]:
    """The network of a run at one of its `moments`, as plain data: layers, spectra, and where the weights are from."""
    if moment in CHECKPOINTS:
        held = _of_checkpoint(folder / CHECKPOINTS[moment])
    elif _SNAPSHOT.fullmatch(moment):
        held = _of_snapshot(folder, moment)
    else:
        raise RunError(f"moment must be last, best, here, or the name of a snapshot, got {moment[:40]!r}")
    layers = _layers(held)
    order = [f"{layer['name']}.{one['name']}" if layer["place"] is not None else one["name"]
             for layer in layers for one in layer["weights"]]  # fmt: skip
    return {"moment": moment, "about": held.about, "stack": held.stack, "layers": layers, **_spectra(held, order)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, checked."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        check_manifest(manifest)
    except FileNotFoundError:
        raise RunError(f"{folder.name} has no manifest.json; it is no checkpoint") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"the manifest of checkpoint {folder.name} is damaged ({str(error)[:200]})") from None
    return manifest


def _of_checkpoint(folder: Path) -> _Held:
    for attempt in range(3):
        manifest = read_manifest(folder)
        path = folder / manifest["tensors"]["file"]
        if path.exists() or attempt == 2:  # a running process replaces it after each round
            break
    depth, kinds = len(manifest["layers"]), ("model/", "layer/")
    tensors = _read(path, lambda name: name.startswith(kinds) and "/previous/" not in name and "/squares/" not in name)
    weights = {name.removeprefix("model/"): one for name, one in tensors.items() if name.startswith("model/")}
    held = _Held(
        f"Weights of checkpoint {folder.name}, after {manifest['epoch']} epochs of the rules.",
        manifest["stack"],
        weights,
        frozen=[i for i in range(depth) if manifest["layers"][i]["frozen"]],
    )
    blocks = _blocks(weights, held.stack)
    for name, one in tensors.items():
        _, place, kind, *rest = [*name.split("/", 3), "", ""]
        if not name.startswith("layer/") or not place.isdigit() or int(place) >= len(blocks):
            continue
        owner = _under(held.stack, blocks[int(place)]) + rest[0]
        if kind == "belief":
            held.beliefs[owner] = one
        elif kind == "pruned":
            held.pruned[owner] = one
    return held


def _of_snapshot(folder: Path, moment: str) -> _Held:
    path = folder / "spectra" / f"{moment}.safetensors"
    about: dict[str, Any] = {}
    tensors = _read(path, lambda name: True, about)
    try:
        snapshot = json.loads(about["snapshot"])
        stack, epoch, event = str(snapshot["stack"]), int(snapshot["epoch"]), snapshot["event"]
        what = "just before the event" if event is None else f"just after the event ({event['kind']})"
        frozen = None if event is None else [int(place) for place in event["after"]["frozen"]]
        grown = [int(place) for place in event["layers"]] if event and event["kind"] == "grown" else []
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RunError(f"spectra/{path.name} is damaged ({type(error).__name__}: {error})") from None
    blocks = _blocks(tensors, stack)
    new = tuple(_under(stack, blocks[place]) for place in grown if place < len(blocks))
    return _Held(
        f"Weights of the snapshot taken {what}, at epoch {epoch}. It has no belief and no masks: weights of exactly"
        " zero are shown as pruned, except in layers that were just grown.",
        stack,
        tensors,
        pruned={
            name: np.zeros(one.shape, bool) if name.startswith(new) else one == 0.0 for name, one in tensors.items()
        },
        frozen=frozen,
    )


def _read(path: Path, wanted: Any, about: dict[str, Any] | None = None) -> dict[str, NDArray[Any]]:
    """Tensors of two dimensions and more, as matrices with a unit in each row."""
    found: dict[str, NDArray[Any]] = {}
    try:
        with safe_open(path, "pt") as file:
            if about is not None:
                about.update(file.metadata() or {})
            for name in sorted(file.keys(), key=_natural):
                if wanted(name) and len(file.get_slice(name).get_shape()) > 1:
                    matrix = file.get_tensor(name).flatten(1)
                    found[name] = matrix.numpy() if matrix.dtype.itemsize == 1 else matrix.float().numpy()
    except FileNotFoundError:
        raise RunError(f"{path.name} was deleted") from None
    except (SafetensorError, ValueError, KeyError, TypeError, OSError, RuntimeError) as error:
        raise RunError(f"{path.name} is damaged ({str(error).splitlines()[0][:200]})") from None
    return found


def _under(stack: str, block: str) -> str:
    """What the names of a block's tensors begin with."""
    return f"{stack}.{block}." if stack else f"{block}."


def _blocks(names: Mapping[str, Any], stack: str) -> list[str]:
    """The names of the blocks of a stack, in order."""
    prefix = f"{stack}." if stack else ""
    inside = dict.fromkeys(name.removeprefix(prefix).split(".", 1)[0] for name in names if name.startswith(prefix))
    blocks = [block for block in inside if any(name.startswith(_under(stack, block)) for name in names)]
    return sorted(blocks, key=int) if all(block.isdigit() for block in blocks) else blocks


def _layers(held: _Held) -> list[dict[str, Any]]:
    """Blocks of the stack with a matrix, and, by name, matrices before and after the stack."""
    names = list(held.tensors)[:MOST_MATRICES]
    blocks = _blocks(held.tensors, held.stack)
    places = {block: n for n, block in enumerate(blocks)}
    prefix = f"{held.stack}." if held.stack else ""
    groups: dict[str, list[str]] = {}
    for name in names:
        block = name.removeprefix(prefix).split(".", 1)[0]
        in_stack = name.startswith(prefix) and block in places
        groups.setdefault(f"{prefix}{block}" if in_stack else name, []).append(name)
    layers = []
    for title, members in groups.items():
        block = title.removeprefix(prefix)
        place = places.get(block) if members[0].startswith(_under(held.stack, block)) else None
        layers.append(_layer(held, title, place, members))
    inside = [layer for layer in layers if layer["place"] is not None]
    outside = [layer for layer in layers if layer["place"] is None]
    before = [_is_input(layer, inside[0] if inside else None) for layer in outside]
    return [
        *(layer for layer, first in zip(outside, before, strict=True) if first),
        *sorted(inside, key=lambda layer: layer["place"]),
        *(layer for layer, first in zip(outside, before, strict=True) if not first),
    ]


def _is_input(layer: dict[str, Any], first: dict[str, Any] | None) -> bool:
    """Whether a matrix outside the stack comes before it, by its name, or by units that are the stack's inputs."""
    if _INPUT.search(layer["name"]) or first is None:
        return True
    (units, inputs), (_, taken) = layer["weights"][0]["shape"], first["weights"][0]["shape"]
    return bool(units == taken and inputs != taken and not _OUTPUT.search(layer["name"]))


def _natural(name: str) -> list[Any]:
    """Sorts `layers.10` after `layers.2`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def _layer(held: _Held, title: str, place: int | None, names: Sequence[str]) -> dict[str, Any]:
    gone, total, beliefs = 0, 0, []
    drawn = []
    for name in names:
        matrix = held.tensors[name]
        mask = held.pruned.get(name, np.zeros(matrix.shape, bool)).astype(bool)
        belief = held.beliefs.get(name)
        gone, total = gone + int(mask.sum()), total + matrix.size
        if belief is not None:
            beliefs.append(float(np.minimum(belief, 1.0).mean()))
        drawn.append(_drawn(name.removeprefix(f"{title}."), matrix, mask, belief))
    return {
        "name": title,
        "place": place,
        "frozen": place is not None and held.frozen is not None and place in held.frozen,
        "density": 1.0 - gone / total if total else 1.0,
        "belief": float(np.mean(beliefs)) if beliefs else None,
        "weights": drawn,
    }


def _drawn(name: str, matrix: NDArray[Any], mask: NDArray[Any], belief: NDArray[Any] | None) -> dict[str, Any]:
    """A matrix as cells of one byte each: the weight from -127 to 127, 0 if it is pruned or zero; and belief."""
    values = np.where(mask | ~np.isfinite(matrix), 0.0, matrix)
    scale = float(np.abs(values).max(initial=0.0))
    cells = extremes(values, MOST_CELLS) / (scale or 1.0)
    alive = extremes((~mask).astype(float), MOST_CELLS) > 0.0
    levels = np.where(alive, np.sign(cells) * np.maximum(np.abs(np.round(127.0 * cells)), 1.0), 0.0)
    return {
        "name": name,
        "shape": list(matrix.shape),
        "cells": list(cells.shape),
        "scale": scale,
        "values": _base64(levels.astype(np.int8)),
        "belief": None
        if belief is None
        else _base64(np.round(255.0 * np.clip(extremes(belief, MOST_CELLS), 0.0, 1.0)).astype(np.uint8)),
    }


def extremes(matrix: NDArray[Any], most: int) -> Matrix:
    """A matrix of not more than `most` rows and columns: in each cell, the value that is greatest in magnitude."""
    starts = [np.unique(np.linspace(0, side, min(side, most), endpoint=False).astype(int)) for side in matrix.shape]
    values = np.asarray(matrix, float)
    high, low = values, values
    for axis, edges in enumerate(starts):
        high, low = np.maximum.reduceat(high, edges, axis=axis), np.minimum.reduceat(low, edges, axis=axis)
    out: Matrix = np.where(high >= -low, high, low)
    return out


def _spectra(held: _Held, names: Sequence[str]) -> dict[str, Any]:
    """Eigenvalues of weight matrices with the law that fits those of random weights, and how many are left out."""
    found: list[dict[str, Any]] = []
    left_out = 0
    for name in names:
        matrix = held.tensors[name]
        if min(matrix.shape) > LARGEST or min(matrix.shape) < 2 or len(found) >= MOST_SPECTRA:
            left_out += 1
            continue
        if np.isfinite(matrix).all():
            found.append(_spectrum(name.removesuffix(".weight"), analyse_weights(matrix, LARGEST)))
    return {"spectra": found, "spectra_left_out": left_out}


def _spectrum(name: str, weights: Weights) -> dict[str, Any]:
    """A histogram of eigenvalues, the Marchenko-Pastur density of the fitted bulk, and the spikes above it."""
    values, bulk = weights.spectrum.values, weights.bulk
    edges = np.linspace(0.0, max(float(values[-1]), 1e-12) * 1.001, 31)
    heights, _ = np.histogram(values, edges, weights=weights.spectrum.shares / (edges[1] - edges[0]))
    law = None
    if bulk is not None:
        longer, shorter = max(weights.shape), min(weights.shape)
        x = np.linspace(max(bulk.low, 0.01 * bulk.high), bulk.high, 60)
        density = marchenko_pastur(shorter / longer, longer * bulk.sigma**2).density(x)
        law = {"x": _rounded(x), "y": _rounded(density * (1.0 - len(bulk.spikes) / shorter))}
    return {
        "name": name, "shape": list(weights.shape), "top": float(edges[-1]), "heights": _rounded(heights), "law": law,
        "spikes": [] if bulk is None else _rounded(bulk.spikes), "stable_rank": weights.stable_rank,
        "distance": None if bulk is None else bulk.distance,
    }  # fmt: skip


def _rounded(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
