"""A survey of a scenario's plume: probes in the standard layout, their series, and their statistics."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpf.plume.measures import checked_threshold
from gpf.plume.probes import Layout, Progress, layout, measure
from gpf.plume.scenario import Scenario
from gpf.plume.statistics import PlumeStatistics, plume_statistics


@dataclass(frozen=True, eq=False)
class Survey:
    """Measurements, and their places. Series have the shape (points, seeds, steps)."""

    scenario: Scenario
    layout: Layout
    statistics: PlumeStatistics
    axis: NDArray[np.float64]
    """Series at the points on the axis."""
    left: NDArray[np.float64]
    """Series of the left antenna of each pair on the axis."""
    right: NDArray[np.float64]
    """The same of the right antenna."""


def survey(
    scenario: Scenario,
    seconds: float,
    seeds: Sequence[int],
    threshold: float | None = None,
    warmup: float | None = None,
    progress: Progress = lambda steps: None,
) -> Survey:
    """Measure a scenario's plume.

    Args:
        scenario: The world.
        seconds: Duration of the series of each seed, s.
        seeds: Of the worlds.
        threshold: Concentration above which a sample belongs to a whiff. Default: the scenario's `whiff_threshold`.
        warmup: How long the plume is stepped before, s. Default: as `measure` has it.
        progress: Called now and then with the number of steps done since the last call.
    """
    threshold = checked_threshold(scenario.whiff_threshold if threshold is None else threshold)
    where = layout(scenario)
    series = measure(scenario, where.points, seconds, seeds, warmup, where.source, progress)
    ends = np.cumsum([len(where.distances), len(where.offsets), len(where.distances)])
    axis, line, left, right = np.split(series.swapaxes(0, 1), ends)
    statistics = plume_statistics(
        list(axis),
        list(zip(left, right, strict=True)),
        list(line),
        distances=where.distances.tolist(),
        offsets=where.offsets.tolist(),
        profile_distance=where.profile_distance,
        separation=where.separation,
        threshold=threshold,
        time_step=scenario.time_step,
    )
    return Survey(scenario, where, statistics, axis, left, right)
