"""Intervals for what was measured."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from scipy import stats


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a probability, of which `successes` out of `trials` were seen."""
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes: {successes} of {trials}; accepted: 0 to trials, of at least one trial")
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    margin = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # The rate lies inside, whatever the rounding.
    return max(0.0, min(rate, (centre - margin) / scale)), min(1.0, max(rate, (centre + margin) / scale))


def interquartile_mean(scores: Sequence[float], resamples: int = 10_000) -> tuple[float, float, float]:
    """The mean of the middle half of some seeds' scores, with its 95 % percentile bootstrap interval."""
    values = np.asarray(scores, float)
    middle = float(stats.trim_mean(values, 0.25))
    if len(values) < 2 or np.ptp(values) == 0.0:
        return middle, middle, middle
    drawn = np.random.default_rng(0).choice(values, (resamples, len(values)))
    low, high = np.quantile(stats.trim_mean(drawn, 0.25, axis=1), (0.025, 0.975))
    return middle, float(low), float(high)
