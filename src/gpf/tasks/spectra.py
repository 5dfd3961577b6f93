"""Effects of growing, pruning and freezing on the network of a run: analyses and draws its snapshots."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gpf.navigation.agents import load_network, make_model, read_run_config
from gpf.navigation.rollouts import probe_inputs
from gpf.reports.figures import save_figure
from gpf.runs.folder import read_log, write_json
from gpf.spectra.capture import weight_matrix, weighted_layers
from gpf.spectra.figures import grams_figure, plasticity_figure, weights_figure
from gpf.spectra.folds import folds
from gpf.spectra.inspection import Inspection, inspect
from gpf.spectra.recorder import read_snapshots

SHOWN = 8
"""Columns of a figure; of more moments, first those before an event are left out, then the middle."""


@dataclass(frozen=True, eq=False)
class Moment:
    """A network at one moment of its run."""

    label: str
    before: bool
    """Whether an event was about to happen."""
    epoch: int
    inspection: Inspection
    weights: dict[str, torch.Tensor]
    """Of every layer."""
    folds: list[float]
    """Mean number of linear regions that a path between two observations passes through, up to each hidden layer;
    empty where the network is not piecewise linear, or where it was not asked for."""


def analyse_run(
    folder: Path, most: int | None = None, tell: Callable[[str], None] = lambda phase: None
) -> list[Moment]:
    """All snapshots of a run, and the network at its end; `tell` is called before each.

    With `most`, not more of these, chosen by `telling`, and activations of the first and the last only: they take most
    of the time.
    """
    config, world = read_run_config(folder)
    probe = torch.from_numpy(probe_inputs(world, config.learner.observation, config.without))

    def build(depth: int) -> nn.Module:
        model = make_model(config)
        while len(model.layers) < depth:
            model.layers.append(model.make_block(len(model.layers)))
        return model

    with torch.random.fork_rng():
        last = load_network(folder / "checkpoints" / "last", config)
    seen = [
        (snapshot.label, snapshot.when == "before", snapshot.epoch, snapshot.model)
        for snapshot in read_snapshots(folder / "spectra", build)
        if snapshot.number < len(last.events)  # a killed run may have left later ones, and will write them again
    ]
    seen.append(("end", False, last.epoch, last.model))
    if most is not None:
        seen = [seen[n] for n in telling([label for label, *_ in seen], most)]
    moments = []
    for n, (label, before, epoch, model) in enumerate(seen):
        tell(f"spectra, moment {n + 1} of {len(seen)}")
        looked_at = most is None or n in (0, len(seen) - 1)
        moments.append(
            Moment(
                label,
                before,
                epoch,
                inspect(model, probe if looked_at else None, quiet=True),
                {name: weight_matrix(module).double() for name, module in weighted_layers(model)},
                _regions(model, probe) if most is None else [],
            )
        )
    return moments


def telling(labels: Sequence[str], most: int) -> list[int]:
    """Which moments to show: the last and the first, then growths, then other events, of each kind the latest."""

    def rank(n: int) -> tuple[int, int]:
        kinds = ("before event", " frozen ", " pruned ", " grown ")
        kind = max((k for k, words in enumerate(kinds) if words in labels[n]), default=0)
        return (5 if n == len(labels) - 1 else 4 if n == 0 else kind), n

    return sorted(sorted(range(len(labels)), key=rank, reverse=True)[:most])


def draw_run(folder: Path, moments: list[Moment]) -> list[Path]:
    """Write the figures of a run's spectra, and their numbers as JSON; returns the paths."""
    shown = moments
    if len(shown) > SHOWN:
        shown = [moments[0], *(moment for moment in moments[1:] if not moment.before)]
    if len(shown) > SHOWN:
        shown = [*shown[: SHOWN // 2], *shown[-SHOWN // 2 :]]
    parts = [m.label for m in shown], [m.inspection for m in shown], drifts(shown)
    paths = {
        folder / "figures" / "spectra-weights.png": weights_figure(*parts),
        folder / "figures" / "spectra-activations.png": grams_figure(*parts),
    }
    lines = [line for line in read_log(folder, "metrics") if line.get("plasticity")]
    if lines:
        steps = [line["step"] / 1e6 for line in lines]
        paths[folder / "figures" / "plasticity.png"] = plasticity_figure(
            steps, [line["plasticity"] for line in lines], "steps, millions"
        )
    for path, figure in paths.items():
        save_figure(figure, path)
    write_json(folder / "spectra.json", as_json(moments))
    return [*paths, folder / "spectra.json"]


def drifts(moments: list[Moment]) -> list[dict[str, float]]:
    """How far the weights of each layer are from the moment before, as a share of their norm."""
    found: list[dict[str, float]] = [{}]
    for before, after in itertools.pairwise(moments):
        old = before.weights
        found.append(
            {
                name: float((weight - old[name]).norm() / old[name].norm().clamp(min=1e-30))
                for name, weight in after.weights.items()
                if name in old and old[name].shape == weight.shape
            }
        )
    return found


def as_json(moments: list[Moment]) -> list[dict[str, Any]]:
    """All moments as plain data, without the eigenvalues."""
    return [_moment_json(moment, drift) for moment, drift in zip(moments, drifts(moments), strict=True)]


def _moment_json(moment: Moment, drift: dict[str, float]) -> dict[str, Any]:
    layers = []
    for layer in moment.inspection.layers:
        w, gram, bulk = layer.weights, layer.gram, layer.weights.bulk
        layers.append(
            {
                "name": layer.name,
                "shape": list(w.shape),
                "spectral_norm": w.spectral_norm,
                "stable_rank": w.stable_rank,
                "alpha": None if np.isnan(w.alpha) else w.alpha,
                "sigma": None if bulk is None else bulk.sigma,
                "weight_spikes": None if bulk is None else len(bulk.spikes),
                "kolmogorov": None if gram is None else gram.kolmogorov,
                "wasserstein": None if gram is None else gram.wasserstein,
                "gram_spikes": None if gram is None else len(gram.spikes),
                "effective_rank": None if layer.plasticity is None else layer.plasticity.effective_rank,
                "dead": None if layer.plasticity is None else layer.plasticity.dead,
                "chance": None if gram is None else gram.chance,
                "drift": drift.get(layer.name),
            }
        )
    return {"label": moment.label, "epoch": moment.epoch, "layers": layers, "regions": moment.folds}


def _regions(model: nn.Module, probe: torch.Tensor) -> list[float]:
    try:
        return [float(layer.regions.mean()) for layer in folds(model, probe)]
    except ValueError:
        return []  # normalised layers
