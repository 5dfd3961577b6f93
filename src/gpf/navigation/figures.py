"""Figures of an evaluation, and of a training run."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.navigation.agents import Navigator
from gpf.navigation.evaluate import Evaluation
from gpf.plume.memory import NAMES
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS
from gpf.runs.folder import read_log

_FOUND, _LOST, _SOURCE, _VALIDATED = "#2f5d8c", "#ab3742", "#1e7a54", "#c2307a"
_EVENTS = {
    "grown": "#1e7a54", "pruned": "#b07d1a", "frozen": "#303030", "thawed": "#8a5a9e", "undone": "#ab3742",
    "removed": "#b07d1a", "regrown": "#1e7a54",
}  # fmt: skip


def evaluation_figure(result: Evaluation, title: str) -> Figure:
    """Where the agent walked when it found the source, where when it did not, and how long it took to arrive.

    An outcome that no path shows has no panel.
    """
    outcomes = []
    for outcome, colour, words in ((True, _FOUND, "found the source"), (False, _LOST, "did not find it")):
        paths = [path for episode, path in result.paths.items() if result.success[episode] == outcome]
        if paths:
            total = int(np.count_nonzero(result.success == outcome))
            outcomes.append((paths, f"{len(paths)} of {total} that {words}", colour))
    figure = Figure(figsize=(8.5, 4.4 if len(outcomes) < 2 else 7.6), layout="constrained")
    figure.suptitle(title, parse_math=False, fontsize=11)
    layout = ["a", "0a", "01\naa"][len(outcomes)]
    panels = figure.subplot_mosaic(layout, height_ratios=[1.6, 1] if len(outcomes) == 2 else None)
    across, along = (_span(list(result.paths.values()), axis) for axis in (1, 0))
    for name, (paths, words, colour) in zip("01", outcomes, strict=False):
        _draw_paths(panels[name], paths, words, colour)
        panels[name].set(xlim=along, ylim=across)  # the same scale on both, to compare them
    _draw_arrival(panels["a"], result)
    return figure


def training_figure(folder: Path) -> Figure:
    """A run from start to end: success, SPL and validation above, the network's size below, events on both."""
    metrics, events = read_log(folder, "metrics"), read_log(folder, "events")
    steps = np.array([line["step"] for line in metrics]) / 1e6
    figure = Figure(figsize=(8.5, 5.6), layout="constrained")
    figure.suptitle(f"{folder.name}", parse_math=False)
    curve, size = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
    curve.plot(steps, _column(metrics, "success"), color=_FOUND, label="success, recent training episodes")
    curve.plot(steps, _column(metrics, "spl"), color="0.55", label="SPL of the same")
    validated = [line for line in metrics if line["validation"] is not None]
    curve.plot(
        [line["step"] / 1e6 for line in validated], [line["validation"]["success"] for line in validated], "D",
        color=_VALIDATED, markersize=6, label="success, validation episodes",
    )  # fmt: skip
    curve.set_ylim(0, 1.03)
    curve.set_ylabel("share of episodes")
    size.step(steps, _column(metrics, "parameters"), where="post", color=_FOUND, label="weights and biases in use")
    size.set_ylabel("parameters")
    size.set_ylim(0, None)
    size.set_xlabel("steps, millions")
    for axes in (curve, size):
        for kind, colour in _EVENTS.items():
            places = [line["step"] / 1e6 for line in events if line["kind"] == kind]
            for place in places:
                axes.axvline(place, color=colour, linewidth=1.0, alpha=0.7, zorder=0)
            if places and axes is curve:
                axes.plot([], [], color=colour, label=f"{kind} ({len(places)})")
    curve.legend(loc="lower right", fontsize=9)
    return figure


def network_figure(navigator: Navigator) -> Figure:
    """The weights of a navigator, a matrix for each layer; pruned weights are grey."""
    model: Any = navigator.net.model
    layers = navigator.net.layers
    matrices = [(layer.weights[0].parameter.detach().numpy(), layer.weights[0].pruned) for layer in layers]
    matrices.append((model.head.weight.detach().numpy(), None))
    columns = 2 if len(matrices) in (2, 4) else 3
    rows = math.ceil(len(matrices) / columns)
    figure = Figure(figsize=(8.5, 3.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(matrices) :]:
        axes.axis("off")
    for n, (axes, (matrix, pruned)) in enumerate(zip(panels, matrices, strict=False)):
        scale = max(float(np.quantile(np.abs(matrix), 0.99)), 1e-9)
        colours = colormaps["RdBu"].with_extremes(bad="0.86")
        shown = matrix if pruned is None else np.ma.masked_array(matrix, pruned.numpy())
        axes.imshow(shown, cmap=colours, vmin=-scale, vmax=scale, aspect="auto", interpolation="nearest")
        left = 1.0 if pruned is None else 1.0 - float(pruned.double().mean())
        title = "outputs" if n == len(layers) else f"layer {n}{', frozen' if layers[n].frozen else ''}"
        axes.set_title(f"{title}: {matrix.shape[0]} x {matrix.shape[1]}, {left:.0%} left", fontsize=9)
        axes.tick_params(labelsize=7)
    names = input_names(navigator)
    panels[0].set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    outputs = [*ACTIONS, "value"][: len(matrices[-1][0])]
    panels[len(layers)].set_yticks(range(len(outputs)), outputs, fontsize=8)
    return figure


def input_names(navigator: Navigator) -> list[str]:
    """The names of the inputs of a navigator's network."""
    if navigator.config.learner.observation == "memory":
        return list(NAMES)
    return [f"{side} {n}" for side in ("left", "right") for n in range(LEVELS)] + [f"wind {n}" for n in range(OCTANTS)]


def _column(metrics: list[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.array([np.nan if line[name] is None else line[name] for line in metrics])


def _draw_paths(axes: Axes, paths: list[NDArray[np.float32]], title: str, colour: str) -> None:
    for path in paths:
        axes.plot(path[:, 0], path[:, 1], color=colour, linewidth=0.7, alpha=0.5)
        axes.plot(*path[0], ".", color=colour, markersize=4)
    axes.plot(0.0, 0.0, "o", color=_SOURCE, markersize=7, zorder=3)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("downwind of the source, m")
    axes.set_ylabel("across the mean wind, m")
    axes.set_aspect("equal", adjustable="box")


def _span(paths: list[NDArray[np.float32]], axis: int) -> tuple[float, float]:
    values = np.concatenate([path[:, axis] for path in paths]) if paths else np.zeros(1)
    return min(-1.0, float(values.min()) - 0.5), max(1.0, float(values.max()) + 0.5)


def _draw_arrival(axes: Axes, result: Evaluation) -> None:
    """The share of episodes that had found the source after each number of steps."""
    times = np.sort(result.arrival)
    limit = result.scenario.max_steps
    share = np.arange(len(times) + 1) / result.episodes
    axes.step(np.concatenate([[0], times, [limit]]), np.append(share, share[-1]), where="post", color=_FOUND)
    axes.axhline(1.0, color="0.8", linewidth=0.8, zorder=0)
    axes.set_xlim(0, limit)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("steps")
    axes.set_ylabel(f"share of {result.episodes} episodes")
    axes.set_title("found the source within this many steps", fontsize=10)
