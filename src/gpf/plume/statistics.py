"""Statistics of a plume, from concentrations at fixed points over time, simulated or recorded.

A series has the shape (records, steps): one record for each seed, or for each run of an experiment. The definitions and
their sources are in docs/plume.md.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpf.plume.durations import DurationStatistics, duration_statistics, runs
from gpf.plume.measures import (
    Series,
    checked_series,
    checked_threshold,
    correlation,
    decay_exponent,
    gaussian_fit,
    integral_time,
    intermittency,
    peak_to_mean,
    percentile_to_mean,
    tail_scale,
)


@dataclass(frozen=True)
class PointStatistics:
    """Statistics at one point. NaN where something is not defined, such as the duration of whiffs without a whiff."""

    distance: float
    """How far downwind of the source, m."""
    mean: float
    """Mean concentration of the whole series, blanks included."""
    intermittency: float
    """Share of time above the threshold, gamma."""
    peak_to_mean: float
    """Maximum of a record over its mean, averaged over records."""
    percentile_to_mean: float
    """99.9th percentile over the mean, of all records together; hardly depends on how long they are."""
    whiffs: DurationStatistics
    """Durations above the threshold."""
    blanks: DurationStatistics
    """Durations at or below it."""
    tail_scale: float
    """c0 of the tail exp(-c / c0) / c of the concentrations within whiffs."""
    integral_time: float
    """Integral time scale of the concentration, s."""
    antenna_correlation: float
    """Correlation of two antennae that stand here."""


@dataclass(frozen=True)
class Profile:
    """A crosswind line: mean concentration and intermittency at each point, and the Gaussians fitted to them."""

    distance: float
    """How far downwind of the source, m."""
    offsets: tuple[float, ...]
    """Distance of the points from the axis, m."""
    mean: tuple[float, ...]
    """Mean concentration at each of them."""
    intermittency: tuple[float, ...]
    """Share of time above the threshold at each of them."""
    width: float
    """Standard deviation of a Gaussian fitted to the mean concentration, m."""
    intermittency_width: float
    """Standard deviation of a Gaussian fitted to the intermittency, m."""


@dataclass(frozen=True)
class PlumeStatistics:
    """Everything that is measured of a plume."""

    threshold: float
    """Concentration above which a sample belongs to a whiff."""
    time_step: float
    """Duration of a sample, s."""
    seconds: float
    """Duration of a record, s."""
    records: int
    """How many records there are; one a seed."""
    separation: float
    """Distance between the antennae of a pair, m."""
    axis: tuple[PointStatistics, ...]
    """Points on the axis, nearest first."""
    profile: Profile
    decay: float
    """Exponent b of the downwind decay: the mean on the axis falls as distance^b."""

    def plain(self) -> dict[str, Any]:
        """All of it as plain data; None for what is not defined."""
        values: dict[str, Any] = _plain(dataclasses.asdict(self))
        return values

    def to_json(self) -> str:
        """All of it as a JSON object; null for what is not defined."""
        return json.dumps(self.plain(), indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plume_statistics(
    axis: Sequence[Series],
    antennae: Sequence[tuple[Series, Series]],
    line: Sequence[Series],
    *,
    distances: Sequence[float],
    offsets: Sequence[float],
    profile_distance: float,
    separation: float,
    threshold: float,
    time_step: float,
) -> PlumeStatistics:
    """All statistics of a plume.

    Args:
        axis: A series for each point on the axis.
        antennae: A left and a right series for each of them.
        line: A series for each point of a crosswind line.
        distances: How far downwind of the source the points on the axis are, m.
        offsets: How far from the axis the points of the line are, m.
        profile_distance: How far downwind of the source the line is, m.
        separation: Distance between the antennae of a pair, m.
        threshold: Concentration above which a sample belongs to a whiff.
        time_step: Duration of a sample, s.
    """
    points = tuple(
        point_statistics(series, threshold, time_step, float(distance), pair)
        for series, distance, pair in zip(axis, distances, antennae, strict=True)
    )
    records, steps = np.atleast_2d(axis[0]).shape
    means = np.array([np.mean(series) for series in line])
    shares = np.array([intermittency(series, threshold) for series in line])
    return PlumeStatistics(
        threshold=float(threshold),
        time_step=float(time_step),
        seconds=steps * float(time_step),
        records=records,
        separation=float(separation),
        axis=points,
        profile=Profile(
            distance=float(profile_distance),
            offsets=tuple(float(offset) for offset in offsets),
            mean=tuple(means.tolist()),
            intermittency=tuple(shares.tolist()),
            width=gaussian_fit(offsets, means)[2],
            intermittency_width=gaussian_fit(offsets, shares)[2],
        ),
        decay=decay_exponent(distances, [point.mean for point in points]),
    )


def point_statistics(
    series: Series,
    threshold: float,
    time_step: float,
    distance: float = math.nan,
    pair: tuple[Series, Series] | None = None,
) -> PointStatistics:
    """All statistics at one point; `pair` are the series of two antennae there."""
    series = checked_series(series)
    found = runs(series > checked_threshold(threshold))
    return PointStatistics(
        distance=distance,
        mean=float(series.mean()),
        intermittency=intermittency(series, threshold),
        peak_to_mean=peak_to_mean(series),
        percentile_to_mean=percentile_to_mean(series),
        whiffs=duration_statistics(found.whiffs, time_step),
        blanks=duration_statistics(found.blanks, time_step),
        tail_scale=tail_scale(series[series > threshold])[0],
        integral_time=integral_time(series, time_step),
        antenna_correlation=math.nan if pair is None else correlation(*pair),
    )
