"""Intervals and tests: of one run over its episodes, and of many runs over their seeds.

A number over few seeds is their mean with Student's t interval. From `MANY_SEEDS` on it is the interquartile mean with
a percentile bootstrap (Agarwal et al. 2021), which is too narrow for few seeds. `benchmarks/interval_coverage.py`
measures how often both cover.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Scores = Sequence[float] | NDArray[np.float64]
RESAMPLES = 10_000
TAILS = (0.025, 0.975)
MANY_SEEDS = 10
"""From this number of seeds on, a number over seeds is their interquartile mean."""
ALL_SIGNS = 14
"""Up to this number of seeds, a permutation test uses all signs; with more, it draws a sample of the same size."""


def wilson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a probability, of which `successes` out of `trials` were seen."""
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"successes must be 0 to trials, of at least one trial, got {successes} of {trials}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    margin = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # Rounding must not put the rate outside.
    return max(0.0, min(rate, (centre - margin) / scale)), min(1.0, max(rate, (centre + margin) / scale))


def mean_interval(scores: Scores) -> tuple[float, float, float]:
    """The mean of some seeds' scores, with its 95 % interval by Student's t; a single seed is its own interval."""
    values = _checked("scores", scores)
    mean = float(values.mean())
    if len(values) == 1:
        return mean, mean, mean
    margin = float(stats.t.ppf(TAILS[1], len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return mean, mean - margin, mean + margin


def over_seeds(scores: Scores, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """The number that a page shows of some seeds, with its 95 % interval; `interval_words` says which it is."""
    few = len(scores) < MANY_SEEDS
    return mean_interval(scores) if few else interquartile_mean(scores, resamples)


def interval_words(seeds: int) -> str:
    """The statistic that `over_seeds` computes for a number of seeds, in words."""
    if seeds < 2:
        return "values of a single seed, which have no interval"
    few = "means over seeds with 95 % intervals by Student's t"
    return few if seeds < MANY_SEEDS else "interquartile means over seeds with 95 % bootstrap intervals"


def centre_name(seeds: int) -> str:
    """The centre that `over_seeds` computes for a number of seeds, as a label."""
    return "mean" if seeds < MANY_SEEDS else "IQM"


def interquartile_mean(scores: Scores, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """The mean of the middle half of some seeds' scores, with its 95 % percentile bootstrap interval."""
    values = _checked("scores", scores)
    return _interval(float(stats.trim_mean(values, 0.25)), stats.trim_mean(_drawn(values, resamples), 0.25, axis=1))


def probability_of_improvement(ours: Scores, theirs: Scores, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """Probability that a run of ours scores higher than one of theirs, counting ties half, with its bootstrap interval.

    Above 0.5, interval included, ours is better; the number does not say by how much.
    """
    mine, others = _checked("ours", ours), _checked("theirs", theirs)

    def share(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
        higher, equal = a[..., :, None] > b[..., None, :], a[..., :, None] == b[..., None, :]
        out: NDArray[np.float64] = (higher + 0.5 * equal).mean(axis=(-2, -1))
        return out

    draws = share(_drawn(mine, resamples, seed=0), _drawn(others, resamples, seed=1))
    return _interval(float(share(mine, others)), draws)


def performance_profile(
    scores: Scores, thresholds: Sequence[float] | NDArray[np.float64], resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """The share of runs that score above each threshold, with 95 % bands: rows value, low and high."""
    values, levels = _checked("scores", scores), np.asarray(thresholds, float)
    draws = (_drawn(values, resamples)[:, :, None] > levels).mean(axis=1)
    return np.stack([(values[:, None] > levels).mean(axis=0), *np.quantile(draws, TAILS, axis=0)])


@dataclass(frozen=True)
class Paired:
    """The difference of two agents that share seeds."""

    mean: float
    low: float
    high: float
    """95 % interval of the mean difference, by Student's t."""
    p: float
    """How often a difference as great arises where the sign of each seed's difference is a coin's; two-sided."""
    seeds: int


def paired_difference(ours: Scores, theirs: Scores) -> Paired:
    """Ours less theirs, seed by seed."""
    mine, others = _checked("ours", ours), _checked("theirs", theirs)
    if len(mine) != len(others):
        raise ValueError(f"theirs must have a score for each of the {len(mine)} seeds of ours, got {len(others)}")
    differences = mine - others
    mean, low, high = mean_interval(differences)
    count = len(differences)
    if count <= ALL_SIGNS:
        signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], (2**ALL_SIGNS, count))
        signs[0] = 1  # the observed signs are one of the possibilities
    flipped = np.abs((signs * differences).mean(axis=1))
    return Paired(mean, low, high, float(np.mean(flipped >= abs(mean) * (1.0 - 1e-12))), count)


def smallest_p(seeds: int) -> float:
    """The smallest p that a two-sided permutation test of this many paired differences can have."""
    return 2.0 ** (1 - seeds) if seeds <= ALL_SIGNS else 2.0**-ALL_SIGNS


def benjamini_hochberg(p_values: Scores, level: float = 0.05) -> list[bool]:
    """Which of several tests are significant, such that the expected share of false ones is at most `level`.

    The k tests with the smallest p count, for the largest k whose k-th p is at most level k / tests (Benjamini &
    Hochberg 1995).
    """
    values = np.asarray(p_values, float)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p_values must be numbers from 0 to 1, got {p_values!r}")
    ordered, ranks = np.sort(values), np.arange(1, len(values) + 1)
    passed = ordered <= level * ranks / max(1, len(values)) * (1.0 + 1e-12)
    limit = ordered[passed].max(initial=-1.0)
    return [bool(value <= limit) for value in values]


def _checked(name: str, scores: Scores) -> NDArray[np.float64]:
    values = np.asarray(scores, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must be at least one number, all of them finite, got {scores!r}")
    return values


def _drawn(values: NDArray[np.float64], resamples: int, seed: int = 0) -> NDArray[np.float64]:
    """Resamples of the seeds, with replacement; always the same ones."""
    return np.random.default_rng(seed).choice(values, (resamples, len(values)))


def _interval(value: float, draws: NDArray[np.float64]) -> tuple[float, float, float]:
    low, high = np.quantile(draws, TAILS)
    return value, float(low), float(high)
