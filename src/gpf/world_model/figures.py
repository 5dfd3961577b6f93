"""Figures of a world model: rollouts compared with the simulator, calibration, and training curves."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gpf.plume.scenario import LEVELS, OCTANTS
from gpf.runs.folder import read_log
from gpf.world_model.measures import Dreams, Predicted, durations
from gpf.world_model.sequences import STREAMS

_REAL, _IMAGINED = "#2f5d8c", "#b07d1a"
_EVENTS = {"grown": "#1e7a54", "pruned": "#b07d1a", "frozen": "#3b8ea5"}


def dreams_figure(dreams: Dreams, rows: int = 4) -> Figure:
    """Token streams of some rollouts, as they were and as they were imagined; and how long whiffs and blanks last."""
    figure = Figure(figsize=(13, 1.2 * rows + 4.2), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.2 * rows, 3.6))
    above, below = parts
    shown = np.argsort(-(dreams.real[:, :, :2].max(axis=2) > 0).mean(axis=1), kind="stable")
    shown = shown[np.linspace(0, len(shown) - 1, rows).astype(int)]  # from the smelliest to the blankest
    panels = above.subplots(rows, 2, squeeze=False)
    for line, rollout in zip(panels, shown, strict=True):
        for axes, tokens, words in zip(line, (dreams.real, dreams.imagined), ("real", "imagined"), strict=True):
            levels = tokens[rollout, :, :2].T / (LEVELS - 1.0)
            wind = tokens[rollout, :, 2:].T / (OCTANTS - 1.0)
            axes.imshow(levels, aspect="auto", cmap="viridis", vmin=0, vmax=1, extent=(0, tokens.shape[1], 0, 2))
            axes.imshow(wind, aspect="auto", cmap="twilight", vmin=0, vmax=1, extent=(0, tokens.shape[1], -1, 0))
            axes.set_ylim(-1, 2)
            axes.set_yticks([1.5, 0.5, -0.5], STREAMS, fontsize=7)
            axes.set_xticks([])
            if rollout == shown[0]:
                axes.set_title(f"{words}: {tokens.shape[1]} steps after the same history, same actions", fontsize=10)
    for axes, whiffs, words in zip(below.subplots(1, 2), (True, False), ("whiff", "blank"), strict=True):
        for tokens, colour, label in ((dreams.real, _REAL, "real"), (dreams.imagined, _IMAGINED, "imagined")):
            spells = np.sort(durations(tokens, whiffs))
            axes.step(spells, 1.0 - np.arange(len(spells)) / len(spells), color=colour, label=label)
        axes.set_yscale("log")
        axes.set_xlabel(f"duration of a {words}, steps, within {dreams.real.shape[1]}")
        axes.set_ylabel("share that last as long")
        axes.legend()
    return figure


def reliability_figure(predicted: Predicted) -> Figure:
    """Of each stream, how often what the model held for likeliest came, by how sure it was."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    for axes, (stream, name) in zip(figure.subplots(1, 3), enumerate(STREAMS), strict=True):
        confidence, hits, count = predicted.reliability(stream)
        used = count > 0
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        axes.plot(confidence[used], hits[used], "o-", color=_REAL)
        beside = axes.twinx()
        beside.bar(
            (np.arange(len(count)) + 0.5) / len(count), count / count.sum(), 0.9 / len(count), color="0.8", zorder=0
        )
        beside.set_ylim(0, 2)
        beside.set_yticks([])
        axes.set_zorder(1)
        axes.patch.set_visible(False)
        axes.set_title(f"{name}: calibration error {predicted.calibration_error(stream):.4f}")
        axes.set_xlabel("confidence in the likeliest token (bars: how often)")
        axes.set_ylabel("how often it came")
    return figure


def training_figure(folders: dict[str, list[Path]]) -> Figure:
    """Validation loss of several groups of runs by step, and by compute; depth; events of each group's first run."""
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    (by_step, by_compute), (depth, parameters) = figure.subplots(2, 2, height_ratios=(1.6, 1))
    for n, (name, runs) in enumerate(folders.items()):
        for m, run in enumerate(runs):
            lines = read_log(run, "metrics")
            loss = [sum(line["validation"]) for line in lines]
            label = name if m == 0 else None
            style = {"color": f"C{n}", "linewidth": 1.2, "alpha": 0.85}
            by_step.plot([line["step"] for line in lines], loss, label=label, **style)
            by_compute.plot([line["flops"] / 1e12 for line in lines], loss, label=label, **style)
            depth.step([line["step"] for line in lines], [line["depth"] for line in lines], where="post", **style)
            parameters.step(
                [line["step"] for line in lines], [line["parameters"] for line in lines], where="post", **style
            )
        for event in read_log(runs[0], "events"):
            by_step.axvline(event["step"], color=_EVENTS.get(event["kind"], "0.5"), linewidth=0.8, linestyle=":")
    by_step.set_ylabel("validation loss, nats an observation")
    for axes, words in ((by_step, "gradient steps"), (by_compute, "TFLOP"), (depth, "gradient steps")):
        axes.set_xlabel(words)
    parameters.set_xlabel("gradient steps")
    depth.set_ylabel("blocks")
    parameters.set_ylabel("parameters in use")
    by_step.legend()
    return figure
