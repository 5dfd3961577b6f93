"""Parts of all figures: bands over runs, curves, events, and atomic writing of files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.reports.statistics import over_seeds
from gpf.runs.folder import Outcome


def draw_band(axes: Axes, x: NDArray[Any], values: NDArray[np.float64], colour: str, label: str) -> None:
    """The number over seeds and its 95 % interval at each x; values of shape (runs, len(x)).

    Nothing is drawn where a run has no value, which is NaN.
    """
    known = np.isfinite(values).all(axis=0)
    bands = np.array([over_seeds(column, 1000) for column in values.T[known]]).reshape(-1, 3)
    axes.plot(x[known], bands[:, 0], color=colour, label=label)
    axes.fill_between(x[known], bands[:, 1], bands[:, 2], color=colour, alpha=0.2, linewidth=0)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG; an existing file is replaced at the very end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    try:
        figure.savefig(unfinished, dpi=130, format="png")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


Curves = Mapping[str, Callable[[dict[str, Any]], float]]
"""By title, what is drawn of a line of metrics."""


def curves_figure(curves: Curves, outcomes: Mapping[str, Sequence[Outcome]], unit: str) -> Figure:
    """Curves of several variants, over a count of the metrics, with bands over seeds."""
    figure = Figure(figsize=(4.2 * len(curves), 3.6), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (title, of) in zip(panels, curves.items(), strict=True):
        drawn = []
        for n, (variant, runs) in enumerate(outcomes.items()):
            length = min(len(one.lines) for one in runs)
            x = np.array([line[unit] for line in runs[0].lines[:length]])
            drawn.append(np.array([[of(line) for line in one.lines[:length]] for one in runs]))
            draw_band(axes, x, drawn[-1], f"C{n}", variant)
        values = np.concatenate([part[np.isfinite(part)] for part in drawn])
        if len(values) and 0.0 < 1000.0 * float(np.median(values)) < values.max() and values.min() > 0.0:  # it exploded
            axes.set_yscale("log")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(unit)
    figure.axes[0].legend(fontsize=8)
    return figure


def pruned_shares(outcome: Outcome) -> list[float]:
    """Of each pruning, the share of the weights there were that went."""
    shares = []
    for event in outcome.events:
        if event["kind"] == "pruned":
            before, after = event["before"], event["after"]
            shares.append((after["pruned"] - before["pruned"]) / (before["weights"] - before["pruned"]))
    return shares


def events_figure(outcomes: Mapping[str, Sequence[Outcome]], unit: str) -> Figure:
    """When layers were added and frozen, and how much went at each pruning, in runs in which something happened."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    shares, layers = figure.subplots(1, 2)
    for n, (variant, runs) in enumerate(outcomes.items()):  # colours as in the figure of curves
        name: str | None = variant
        for one in runs:
            if not one.events:
                continue
            pruned = [event for event in one.events if event["kind"] == "pruned"]
            shares.plot([event[unit] for event in pruned], pruned_shares(one), "o-", color=f"C{n}", markersize=4)
            steps, depths = zip(*((line[unit], line["depth"]) for line in one.lines), strict=True)
            layers.step(steps, depths, where="post", color=f"C{n}", label=name)
            for event in one.events:
                if event["kind"] == "frozen":
                    layers.plot(event[unit], event["after"]["depth"], "s", color=f"C{n}", markersize=4)
            name = None  # one entry in the legend
    layers.legend(fontsize=8)
    shares.set_title("share of the weights that went, at each pruning", fontsize=10)
    layers.set_title("layers; a square: one was frozen", fontsize=10)
    shares.set_ylim(bottom=0.0)
    for axes in (shares, layers):
        axes.set_xlabel(unit)
    return figure
