"""Figures of one episode: the agent's path, its readings, and how it chose its actions."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from gpf.navigation.replay import Episode
from gpf.plume.scenario import ACTIONS
from gpf.plume.world import RAW

COLOURS = dict(zip(ACTIONS, ("#2b3440", "#2f6fb5", "#d9622b", "#7b4fa3", "#5fb7d4", "#e8a33d"), strict=True))
"""Turns to the left are blue, turns to the right orange; casts, which turn farther, are lighter."""
_SOURCE, _INK, _WHIFF, _WIND = "#1e7a54", "#1d2733", "#f2c230", "#3b8ea5"
_MARGIN = 1.2
"""Around path and source, m."""


def map_figure(episode: Episode) -> Figure:
    """The path, coloured by action, with whiffs and the wind, over the plume as it was at the end."""
    figure = Figure(figsize=(6, 7.1), layout="constrained")
    axes = figure.subplots()
    world, path = episode.scenario, episode.positions
    axes.imshow(
        np.maximum(episode.field, 1e-6), extent=(0.0, world.width, 0.0, world.height), cmap="Greys",
        norm=LogNorm(1e-3, 100.0), interpolation="bilinear",
    )  # fmt: skip
    segments = np.stack([path[:-1], path[1:]], axis=1)
    colours = [COLOURS[ACTIONS[action]] for action in episode.actions]
    smelled = segments[episode.whiffs].tolist()
    axes.add_collection(LineCollection(smelled, colors=_WHIFF, linewidths=9, capstyle="round", label="whiff"))
    axes.add_collection(LineCollection(segments.tolist(), colors=colours, linewidths=2.5))
    axes.plot(*path[0], "o", color=_INK, markersize=8, label="start")
    axes.plot(*episode.source, "*", color=_SOURCE, markersize=15, label="source")
    for action, colour in COLOURS.items():
        if ACTIONS.index(action) in episode.actions:
            axes.plot([], [], color=colour, linewidth=3, label=action)
    _mark_steps(axes, episode)
    _draw_wind(axes, episode)
    low, high = _frame(episode)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_xlabel("x, m")
    axes.set_ylabel("y, m")
    figure.legend(loc="outside lower center", ncols=4, fontsize=10)
    return figure


def choices_figure(episode: Episode, values: bool) -> Figure:
    """Readings, preferences of actions and state values of the agent, step by step.

    With `values`, the outputs of the network are the values of the actions; otherwise the logits of a policy.
    """
    judged = episode.best_value if values else episode.value
    figure = Figure(figsize=(6, 7.1), layout="constrained")
    smelled, chosen, place = figure.subplots(3, 1, sharex=True, height_ratios=(1, 2, 1))
    steps = np.arange(episode.steps)
    for name, colour in (("left", "#2f6fb5"), ("right", "#d9622b")):
        reading = np.maximum(episode.observations[:, RAW.index(name)], 1e-4)
        smelled.plot(steps, reading, color=colour, linewidth=1, label=f"{name} antenna")
    smelled.plot(steps[episode.whiffs], np.full(episode.whiffs.sum(), 1.6), "|", color=_WHIFF, mew=3, label="whiff")
    smelled.set_yscale("log")
    smelled.set_ylim(8e-4, 4.0)
    smelled.set_ylabel("reading")
    smelled.legend(fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    if values:
        advantages = episode.outputs - episode.outputs.mean(axis=1, keepdims=True)
        for advantage, colour in zip(advantages.T, COLOURS.values(), strict=True):
            chosen.plot(steps, advantage, color=colour)
        low, high = np.quantile(advantages, (0.02, 0.98))  # single steps would hide all others
        chosen.set_ylim(low - 0.2 * (high - low + 1e-6), high + 0.2 * (high - low + 1e-6))
        chosen.set_ylabel("value of each action, minus their mean")
    else:
        chosen.stackplot(steps, episode.probabilities.T, colors=list(COLOURS.values()), step="post")
        chosen.set_ylim(0, 1)
        chosen.set_ylabel("probability of each action")
    place.plot(steps, episode.distances, color=_SOURCE)
    place.set_ylabel("distance, m", color=_SOURCE)
    place.set_ylim(0, None)
    if judged is not None:
        beside = place.twinx()
        beside.plot(steps, judged, color=_INK)
        beside.set_ylabel("value", color=_INK)
    names = [chosen.plot([], [], color=colour, linewidth=4, label=action)[0] for action, colour in COLOURS.items()]
    figure.legend(handles=names, loc="outside lower center", ncols=3, fontsize=10, handlelength=1.5)
    place.set_xlabel("step")
    place.set_xlim(0, max(1, episode.steps - 1))
    return figure


def _mark_steps(axes: Axes, episode: Episode) -> None:
    """Numbers of some steps along the path, to find them again over time."""
    every = max(10, 10 * round(episode.steps / 60))
    for step in range(every, episode.steps, every):
        place = (float(episode.positions[step, 0]), float(episode.positions[step, 1]))
        axes.annotate(
            f"{step}", place, xytext=(7, 7), textcoords="offset points", fontsize=9, color=_INK,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
        )  # fmt: skip
        axes.plot(*place, ".", color=_INK, markersize=5)


def _draw_wind(axes: Axes, episode: Episode) -> None:
    """Where the wind blew at some moments, as arrows on the path; all are as long as the wind is fast."""
    count = min(8, episode.steps)
    some = np.linspace(0, episode.steps - 1, count).astype(int)
    speed, direction = (episode.observations[some, RAW.index(f"wind_{what}")] for what in ("speed", "direction"))
    axes.quiver(
        *episode.positions[some].T, speed * np.cos(direction), speed * np.sin(direction), color=_WIND,
        angles="xy", scale_units="xy", scale=1.6, width=0.006, zorder=1, label="wind then",
    )  # fmt: skip


def _frame(episode: Episode) -> tuple[np.ndarray, np.ndarray]:
    """Corners of a square around the path and the source."""
    places = np.vstack([episode.positions, episode.source])
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    half = np.ptp(places, axis=0).max() / 2 + _MARGIN
    return middle - half, middle + half
