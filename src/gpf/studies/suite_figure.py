"""The figure of the suite: performance profiles."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from gpf.studies.suite_ranks import profile, scores_of

LEVELS = np.linspace(0.0, 1.0, 201)
STYLES = ("-", "--", ":", "-.")
"""Ten colours do not suffice for all agents."""
PANELS = {"success": "success rate", "spl": "SPL"}


def figure(results: dict[str, Any]) -> Figure:
    """For each agent the share of its (world, seed) runs that score above tau, with 95 % bands."""
    drawing = Figure(figsize=(13, 5.4), layout="constrained")
    panels = drawing.subplots(1, len(PANELS))
    for axes, (measure, title) in zip(panels, PANELS.items(), strict=True):
        for n, (agent, scores) in enumerate(scores_of(results["results"], measure).items()):
            value, low, high = profile(scores, LEVELS, 500)
            style, colour = STYLES[n // 10 % len(STYLES)], f"C{n % 10}"
            axes.step(LEVELS, value, where="post", linestyle=style, color=colour, label=agent)
            axes.fill_between(LEVELS, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel(f"{title}, tau")
        axes.set_ylabel("share of (world, seed) runs above tau")
        axes.grid(alpha=0.3)
    panels[-1].legend(fontsize=8)
    return drawing
