"""Whiffs and blanks: how long a concentration stays above and below a threshold, and the distribution of durations.

Durations are counted in samples here; `duration_statistics` turns them into seconds.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

BINS_PER_DECADE = 8
"""Logarithmic bins of a density."""
LONGEST = 0.99
"""Share of the durations up to the upper cut-off, where that is estimated."""
FEWEST = 10
"""Durations below which no slope is fitted."""
_STEEPEST = 20.0
"""Slopes are looked for between minus this and this."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Lengths of the runs of a series above and below its threshold, in samples.

    A run that begins before the series does, or continues after its end, has an unknown length. Such runs are cut off:
    they belong neither to the whiffs nor to the blanks. This removes more long runs than short ones, so a series must
    be much longer than its longest runs.
    """

    whiffs: NDArray[np.int64]
    """Complete runs above the threshold, in order."""
    blanks: NDArray[np.int64]
    """Complete runs at or below the threshold, in order."""
    cut: NDArray[np.int64]
    """The first and the last run of each series; a series that never crosses the threshold is one such run."""


def runs(above: ArrayLike) -> Runs:
    """The runs of one or several series; `above` says of every sample whether it is above the threshold.

    Args:
        above: Booleans, shape (steps,) or (series, steps). Runs do not continue from one series to the next.
    """
    parts = [_runs(series) for series in np.atleast_2d(np.asarray(above, np.bool_))]
    return Runs(
        whiffs=np.concatenate([part.whiffs for part in parts]),
        blanks=np.concatenate([part.blanks for part in parts]),
        cut=np.concatenate([part.cut for part in parts]),
    )


def _runs(above: NDArray[np.bool_]) -> Runs:
    crossings = 1 + np.flatnonzero(above[1:] != above[:-1])
    if len(crossings) == 0:
        nothing = np.empty(0, np.int64)
        return Runs(nothing, nothing, np.array([len(above)]))
    lengths, is_whiff = np.diff(crossings), above[crossings[:-1]]
    return Runs(lengths[is_whiff], lengths[~is_whiff], np.array([crossings[0], len(above) - crossings[-1]]))


@dataclass(frozen=True, eq=False)
class Density:
    """A density in logarithmic bins; empty bins are left out."""

    centres: NDArray[np.float64]
    """Geometric middle of each bin."""
    values: NDArray[np.float64]
    """Share of the values in the bin, divided by its width."""


def duration_density(lengths: NDArray[np.int64]) -> Density:
    """The density of run lengths, per sample.

    Bins hold whole numbers of samples, so a narrow bin has the width that it counts: one sample or more.
    """
    longest = int(lengths.max()) + 1
    bins = 1 + math.ceil(BINS_PER_DECADE * math.log10(longest))
    edges = np.unique(np.round(np.geomspace(1, longest, bins)).astype(np.int64))
    counts, _ = np.histogram(lengths, edges)
    centres = np.sqrt(edges[:-1] * (edges[1:] - 1.0))  # of the first and the last length in a bin
    used = counts > 0
    return Density(centres[used], (counts / np.diff(edges) / len(lengths))[used])


def cut_offs(lengths: NDArray[np.int64]) -> tuple[int, int]:
    """Between which lengths a power law is looked for, in samples.

    The lower cut-off is the mode of the density, because runs shorter than that are cut short by the size of a filament
    or by the sampling; it is at most the median. The upper one is the 99th percentile, above which few runs are left.
    """
    density = duration_density(lengths)
    mode = round(density.centres[np.argmax(density.values)])
    low = max(1, min(mode, int(np.median(lengths))))
    return low, max(low + 1, int(np.quantile(lengths, LONGEST)))


def least_squares_slope(lengths: NDArray[np.int64], low: int, high: int) -> float:
    """Slope of the density on logarithmic axes between the cut-offs, by least squares over its bins.

    This is what the literature reports; every bin counts the same, however few runs it holds. NaN for fewer than three
    bins.
    """
    density = duration_density(lengths)
    inside = (density.centres >= low) & (density.centres <= high)
    if np.count_nonzero(inside) < 3:
        return math.nan
    return float(np.polyfit(np.log(density.centres[inside]), np.log(density.values[inside]), 1)[0])


def likelihood_slope(lengths: NDArray[np.int64], low: int, high: int) -> float:
    """Slope of a truncated power law, by maximum likelihood: P(k) = k^slope / sum of j^slope, low <= j, k <= high.

    Run lengths are whole numbers, so the law is discrete, and needs no correction for short runs. NaN for fewer than
    `FEWEST` runs between the cut-offs.
    """
    inside = lengths[(lengths >= low) & (lengths <= high)]
    if len(inside) < FEWEST:
        return math.nan
    logarithms = np.log(np.arange(low, high + 1))
    mean = float(np.log(inside).mean())

    def loss(slope: float) -> float:
        return float(logsumexp(slope * logarithms)) - slope * mean

    return float(minimize_scalar(loss, bounds=(-_STEEPEST, _STEEPEST), method="bounded").x)


@dataclass(frozen=True)
class DurationStatistics:
    """Statistics of the whiffs, or of the blanks, at a point. Times in s; NaN where there are too few runs."""

    count: int
    """Complete runs."""
    mean: float
    """Mean duration, s."""
    cv: float
    """Coefficient of variation: standard deviation over mean; 1 for exponential durations."""
    low: float
    """Lower cut-off of the power law, s."""
    high: float
    """Upper cut-off of the power law, s."""
    slope: float
    """Slope of the PDF between the cut-offs, by maximum likelihood."""
    slope_least_squares: float
    """The same by least squares over logarithmic bins."""


def duration_statistics(
    lengths: NDArray[np.int64], time_step: float, low: float | None = None, high: float | None = None
) -> DurationStatistics:
    """Statistics of run lengths in samples.

    Args:
        lengths: Of the runs, in samples.
        time_step: Duration of a sample, s.
        low: Lower cut-off of the power law, s. Default: as `cut_offs` estimates it.
        high: Upper cut-off, s. Default: the same.
    """
    count = len(lengths)
    mean = float(lengths.mean()) if count else math.nan
    cv = float(lengths.std(ddof=1)) / mean if count > 1 else math.nan
    if count < FEWEST:
        nan = math.nan
        return DurationStatistics(count, mean * time_step, cv, nan, nan, nan, nan)
    first, last = cut_offs(lengths)
    if low is not None:
        first = max(1, math.ceil(low / time_step - 1e-9))
    if high is not None:
        last = math.floor(high / time_step + 1e-9)
    if last <= first:
        raise ValueError(
            f"the upper cut-off must be above the lower one, got {last * time_step:g} and {first * time_step:g} s"
        )
    return DurationStatistics(
        count=count,
        mean=mean * time_step,
        cv=cv,
        low=first * time_step,
        high=last * time_step,
        slope=likelihood_slope(lengths, first, last),
        slope_least_squares=least_squares_slope(lengths, first, last),
    )
