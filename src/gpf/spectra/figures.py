"""Figures of spectra: weights and activations of every layer after each event."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from gpf.spectra.empirical import Spectrum, Weights
from gpf.spectra.inspection import GramReport, Inspection
from gpf.spectra.theory import marchenko_pastur

_MEASURED, _PREDICTED, _SPIKE = "#2f5d8c", "#ab3742", "#b07d1a"
_BEHIND = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
COLUMNS = 4
"""Snapshots next to each other; more are hard to read on a page."""
MEASURES = {
    "weight_magnitude": "mean absolute weight",
    "effective_rank": "effective rank of activations",
    "dead": "share of dead units",
    "dormant": "share of dormant units",
    "stable_rank": "stable rank of activations",
    "gradient_norm": "norm of the last gradient",
}


def weights_figure(
    labels: Sequence[str], inspections: Sequence[Inspection], drifts: Sequence[dict[str, float]]
) -> Figure:
    """Eigenvalues of the weights of every layer (rows) at every snapshot (columns), with the fitted bulk and spikes."""
    return _grid(
        labels, inspections, drifts, lambda axes, layer: _draw_weights(axes, layer.weights), "eigenvalue of W^T W"
    )


def grams_figure(
    labels: Sequence[str], inspections: Sequence[Inspection], drifts: Sequence[dict[str, float]]
) -> Figure:
    """Eigenvalues of the activations' Gram matrices, with what random weights would give."""
    return _grid(
        labels, inspections, drifts, lambda axes, layer: _draw_gram(axes, layer.gram), "eigenvalue of Y^T Y / m"
    )


def plasticity_figure(steps: Sequence[float], lines: Sequence[list[dict[str, Any]]], unit: str = "steps") -> Figure:
    """The measures of plasticity of every layer over time."""
    figure = Figure(figsize=(8.5, 7.5), layout="constrained")
    panels = figure.subplots(3, 2, sharex=True).ravel()
    names = list(dict.fromkeys(layer["name"] for line in lines for layer in line))
    for axes, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for n, name in enumerate(names):
            found = [
                (step, layer[measure])
                for step, line in zip(steps, lines, strict=True)
                for layer in line
                if layer["name"] == name and layer[measure] is not None
            ]
            if found:
                axes.plot(*zip(*found, strict=True), color=f"C{n}", marker="o", markersize=3, label=name)
        axes.set_title(title, fontsize=11)
        axes.set_ylim(0, max(axes.get_ylim()[1], 0.2) if measure in ("dead", "dormant") else None)
    for axes in panels[4:]:
        axes.set_xlabel(unit)
    panels[0].legend(fontsize=9)
    return figure


def _grid(labels: Any, inspections: Any, drifts: Any, draw: Any, unit: str) -> Figure:
    """A column for each snapshot, a row for each layer; after `COLUMNS` snapshots the next ones begin below."""
    latest = [layer.name for inspection in reversed(inspections) for layer in inspection.layers]
    names = list(dict.fromkeys(latest))  # in the order of the last one, which has most
    columns, blocks = min(COLUMNS, len(labels)), math.ceil(len(labels) / COLUMNS)
    width, height = 2.3 * columns + 0.6, blocks * (1.9 * len(names) + 0.9)
    figure = Figure(figsize=(width, height))  # with margins of our own: to find them out takes half of the time
    moments = list(zip(labels, inspections, drifts, strict=True))
    for block in range(blocks):
        below = (blocks - block - 1) / blocks
        place = figure.add_gridspec(
            len(names), columns, left=0.5 / width, right=1 - 0.1 / width, bottom=below + 0.5 / height,
            top=below + 1 / blocks - 0.4 / height, wspace=0.12, hspace=0.22,
        )  # fmt: skip
        panels = place.subplots(squeeze=False)
        shown = moments[block * columns : (block + 1) * columns]
        for axes in panels[:, len(shown) :].ravel():
            axes.axis("off")
        _draw_block(panels, names, shown, draw, unit)
    return figure


def _draw_block(panels: Any, names: list[str], moments: Any, draw: Any, unit: str) -> None:
    unnamed = set(names)
    for column, (label, inspection, drift) in enumerate(moments):
        layers = {layer.name: layer for layer in inspection.layers}
        panels[0, column].set_title(label, fontsize=9)
        for row, name in enumerate(names):
            axes = panels[row, column]
            if name not in layers:
                axes.axis("off")
                continue
            draw(axes, layers[name])
            if name in drift:
                axes.text(
                    0.97, 0.96, f"drift {drift[name]:.3f}", transform=axes.transAxes, ha="right", va="top", fontsize=8,
                    bbox=_BEHIND,
                )  # fmt: skip
            axes.tick_params(labelsize=8)
            axes.minorticks_off()
            axes.set_yticks([])
            if name in unnamed:
                axes.set_ylabel(name, fontsize=9)
                unnamed.remove(name)
        panels[-1, column].set_xlabel(unit, fontsize=9)


def _draw_weights(axes: Axes, weights: Weights) -> None:
    bulk = weights.bulk
    _histogram(axes, weights.spectrum)
    if bulk is None:
        return
    longer, shorter = max(weights.shape), min(weights.shape)
    law = marchenko_pastur(shorter / longer, longer * bulk.sigma**2)
    x = np.linspace(max(bulk.low, 0.01 * bulk.high), bulk.high, 200)
    axes.plot(x, law.density(x) * (1.0 - len(bulk.spikes) / shorter), color=_PREDICTED, linewidth=1.2)
    for spike in bulk.spikes:
        axes.axvline(float(spike), color=_SPIKE, linewidth=0.8)


def _draw_gram(axes: Axes, gram: GramReport | None) -> None:
    if gram is None:
        axes.axis("off")
        return
    positive = gram.spectrum.values[gram.spectrum.values > 1e-6 * gram.spectrum.values[-1]]
    if not len(positive):
        axes.text(0.5, 0.5, "all zero", transform=axes.transAxes, ha="center", fontsize=8)
        return
    bins = np.geomspace(positive[0], positive[-1] * 1.001, 25)
    share = len(positive) / len(gram.spectrum.values)
    heights, _ = np.histogram(np.log10(positive), np.log10(bins), density=True)
    axes.stairs(heights * share, bins, fill=True, color=_MEASURED, alpha=0.6)
    axes.set_xscale("log")
    axes.set_ylim(0.0, 1.25 * share * float(heights.max()))
    axes.xaxis.set_major_locator(LogLocator(numticks=4))
    if gram.law is not None:
        low = max(gram.law.support[0], 1e-6 * gram.law.support[1])
        x = np.geomspace(low, gram.law.support[1], 200)
        axes.plot(x, gram.law.density(x) * x * np.log(10.0), color=_PREDICTED, linewidth=1.2)
    for spike in gram.spikes:
        axes.axvline(float(spike), color=_SPIKE, linewidth=0.8)
    if gram.kolmogorov is not None:
        axes.text(0.03, 0.96, f"D {gram.kolmogorov:.2f}", transform=axes.transAxes, va="top", fontsize=8, bbox=_BEHIND)


def _histogram(axes: Axes, spectrum: Spectrum) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(3))
    bins = np.linspace(0.0, max(float(spectrum.values[-1]), 1e-12) * 1.001, 30)
    heights, *_ = axes.hist(
        spectrum.values, bins.tolist(), weights=spectrum.shares / (bins[1] - bins[0]), color=_MEASURED, alpha=0.6
    )
    axes.set_ylim(0.0, 1.25 * float(np.max(np.asarray(heights))))
