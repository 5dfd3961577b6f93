"""Measures of concentrations: intermittency, peaks, tails, profiles and correlations.

Functions take series of the shape (steps,) or (records, steps). Concentrations are in the units of the series.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import brentq, least_squares
from scipy.special import exp1

from gpf.plume.durations import BINS_PER_DECADE, Density
from gpf.plume.inputs import shown

TAIL = 0.5
"""Quantile of the concentrations within whiffs at which their tail begins."""

Series = NDArray[np.float64]
"""Concentrations, shape (records, steps)."""


def checked_series(series: ArrayLike) -> Series:
    """A series as (records, steps), refused if it is empty or holds anything but finite numbers of at least 0."""
    values = np.atleast_2d(np.asarray(series, np.float64))
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"series must have the shape (records, steps), got {np.shape(series)}")
    if not (np.isfinite(values).all() and (values >= 0.0).all()):
        raise ValueError("series must hold finite concentrations of at least 0")
    return values


def checked_threshold(threshold: float) -> float:
    """A threshold, refused if it is no finite number of at least 0."""
    if not 0.0 <= threshold < math.inf:
        raise ValueError(f"threshold must be a number of at least 0, got {shown(threshold)}")
    return float(threshold)


def intermittency(series: ArrayLike, threshold: float) -> float:
    """Intermittency factor: gamma = P(c > threshold), the share of samples above the threshold."""
    return float(np.mean(np.asarray(series) > threshold))


def peak_to_mean(series: ArrayLike) -> float:
    """Peak-to-mean ratio: the maximum of a record over the mean of the same record, averaged over records.

    The classical definition. The maximum grows slowly with the duration of a record: compare records of equal duration.
    A record without odour has no ratio, and is left out.
    """
    values = checked_series(series)
    means = values.mean(axis=1)
    return float((values.max(axis=1)[means > 0.0] / means[means > 0.0]).mean()) if (means > 0.0).any() else math.nan


def percentile_to_mean(series: ArrayLike, percentile: float = 99.9) -> float:
    """A percentile of all samples over their mean."""
    values = checked_series(series)
    mean = float(values.mean())
    return float(np.percentile(values, percentile)) / mean if mean > 0.0 else math.nan


def concentration_density(concentrations: NDArray[np.float64]) -> Density:
    """The density of positive concentrations, in logarithmic bins."""
    low, high = float(concentrations.min()), float(concentrations.max())
    bins = 1 + math.ceil(BINS_PER_DECADE * math.log10(high / low)) if high > low else 2
    edges = np.geomspace(low, high * (1.0 + 1e-9), bins)
    counts, _ = np.histogram(concentrations, edges)
    used = counts > 0
    return Density(np.sqrt(edges[:-1] * edges[1:])[used], (counts / np.diff(edges) / len(concentrations))[used])


def tail_scale(concentrations: NDArray[np.float64], start: float | None = None) -> tuple[float, float]:
    """Scale c0 of a tail p(c) = exp(-c / c0) / c, by maximum likelihood, and the concentration at which it begins.

    With x = start / c0 the law has the mean c0 exp(-x) / E1(x); the likelihood is greatest where that is the mean of
    the samples. NaN for fewer than ten of them, or if all are the same.

    Args:
        concentrations: Samples within whiffs.
        start: Where the tail begins. Default: their median.
    """
    if start is None:
        start = float(np.quantile(concentrations, TAIL)) if len(concentrations) else math.nan
    tail = concentrations[concentrations > start]
    if len(tail) < 10 or not start > 0.0:
        return math.nan, start
    target = math.log(float(tail.mean()) / start)

    def excess(log_x: float) -> float:
        x = math.exp(log_x)
        return -x - log_x - math.log(exp1(x)) - target

    low, high = math.log(1e-12), math.log(500.0)
    return (start / math.exp(brentq(excess, low, high)) if excess(low) > 0.0 > excess(high) else math.nan), start


def gaussian_fit(offsets: ArrayLike, values: ArrayLike) -> tuple[float, float, float]:
    """Height, centre and standard deviation of the least-squares Gaussian of a profile.

    NaN for a profile that is zero everywhere.
    """
    y, v = np.asarray(offsets, np.float64), np.asarray(values, np.float64)
    top = float(v.max())
    if len(v) < 3 or not top > 0.0:
        return math.nan, math.nan, math.nan
    centre = float((v * y).sum() / v.sum())
    spread = math.sqrt(float((v * (y - centre) ** 2).sum() / v.sum())) or float(np.ptp(y)) / len(y)

    def deviation(of: NDArray[np.float64]) -> NDArray[np.float64]:
        return of[0] * np.exp(-0.5 * ((y - of[1]) / of[2]) ** 2) - v / top

    widest, finest = 10.0 * float(np.ptp(y)), 1e-3 * float(np.ptp(y))
    bounds = ([0.0, float(y.min()), finest], [10.0, float(y.max()), widest])
    fit = least_squares(deviation, [1.0, centre, min(max(spread, 2.0 * finest), 0.5 * widest)], bounds=bounds)
    return top * float(fit.x[0]), float(fit.x[1]), float(fit.x[2])


def decay_exponent(distances: ArrayLike, means: ArrayLike) -> float:
    """Exponent b of mean = a distance^b, by least squares on logarithmic axes; NaN where a mean is zero."""
    d, m = np.asarray(distances, np.float64), np.asarray(means, np.float64)
    if len(d) < 2 or not ((d > 0.0).all() and (m > 0.0).all()):
        return math.nan
    return float(np.polyfit(np.log(d), np.log(m), 1)[0])


def correlation(left: ArrayLike, right: ArrayLike) -> float:
    """Pearson correlation of two series over time, averaged over records; records that do not vary are left out."""
    return float(lagged_correlation(left, right, 0)[0])


def lagged_correlation(first: ArrayLike, second: ArrayLike, lags: int) -> NDArray[np.float64]:
    """Correlation of first(t) with second(t + lag) for lags of 0 to `lags` samples, averaged over records.

    Sums over the overlap are divided by the number of all samples (the biased estimate). Long lags, for which there are
    few samples, then count little. NaN if no record varies.
    """
    a, b = (_standardised(checked_series(series)) for series in (first, second))
    varies = ~np.isnan(a[:, 0] + b[:, 0])
    if not varies.any():
        return np.full(lags + 1, math.nan)
    a, b = a[varies], b[varies]
    steps = a.shape[1]
    size = next_fast_len(steps + lags, real=True)
    sums = irfft(np.conj(rfft(a, size)) * rfft(b, size), size)[:, : lags + 1]
    return np.asarray(sums.mean(axis=0) / steps)


def _standardised(series: Series) -> Series:
    """Every record with mean 0 and standard deviation 1; NaN if it does not vary."""
    top = series.max(axis=1, keepdims=True)
    scaled = series / np.where(top > 0.0, top, 1.0)  # squares of faint concentrations would be zero
    spread = scaled.std(axis=1, keepdims=True)
    return (scaled - scaled.mean(axis=1, keepdims=True)) / np.where(spread > 0.0, spread, math.nan)


def integral_time(series: ArrayLike, time_step: float) -> float:
    """Integral time scale, s: the autocorrelation's integral from lag 0 to its first zero, by the trapezoidal rule."""
    values = checked_series(series)
    rho = lagged_correlation(values, values, values.shape[1] - 1)
    if math.isnan(rho[0]):
        return math.nan
    negative = np.flatnonzero(rho <= 0.0)
    end = int(negative[0]) if len(negative) else len(rho)
    return float(np.trapezoid(rho[:end], dx=time_step)) if end > 1 else 0.5 * time_step
