"""What all figures share: bands over runs, and files that appear whole."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.reports.statistics import interquartile_mean


def draw_band(axes: Axes, x: NDArray[Any], values: NDArray[np.float64], colour: str, label: str) -> None:
    """The interquartile mean over runs, and its 95 % interval; values of shape (runs, len(x))."""
    bands = np.array([interquartile_mean(column, 1000) for column in values.T])
    axes.plot(x, bands[:, 0], color=colour, label=label)
    axes.fill_between(x, bands[:, 1], bands[:, 2], color=colour, alpha=0.2, linewidth=0)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG; an existing file is replaced at the very end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    try:
        figure.savefig(unfinished, dpi=130, format="png")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
