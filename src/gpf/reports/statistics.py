"""Intervals for what was measured: of one run over its episodes, of many over their seeds (Agarwal et al. 2021)."""

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


def interquartile_mean(scores: Scores, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """The mean of the middle half of some seeds' scores, with its 95 % percentile bootstrap interval."""
    values = _checked("scores", scores)
    return _interval(float(stats.trim_mean(values, 0.25)), stats.trim_mean(_drawn(values, resamples), 0.25, axis=1))


def probability_of_improvement(ours: Scores, theirs: Scores, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """How likely a run of ours scores higher than one of theirs, ties counting half, with its bootstrap interval.

    Whoever has it above 0.5, interval included, is better; by how much it does not say.
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
    """Bootstrap interval of the mean difference."""
    p: float
    """How often a difference as great arises where the sign of each seed's difference is a coin's; two-sided."""

    @property
    def shown(self) -> bool:
        """Whether the interval does not hold zero and chance is unlikely, both."""
        return self.p < 0.05 and (self.low > 0 or self.high < 0)


def paired_difference(ours: Scores, theirs: Scores, resamples: int = RESAMPLES) -> Paired:
    """Ours less theirs, seed by seed."""
    mine, others = _checked("ours", ours), _checked("theirs", theirs)
    if len(mine) != len(others):
        raise ValueError(f"theirs: {len(others)} scores beside {len(mine)}; accepted: one for each of the same seeds")
    differences = mine - others
    mean, low, high = _interval(float(differences.mean()), _drawn(differences, resamples).mean(axis=1))
    count = len(differences)
    if count <= 14:  # all coins
        signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], (2**14, count))
        signs[0] = 1  # what was seen is one of the possibilities
    flipped = np.abs((signs * differences).mean(axis=1))
    return Paired(mean, low, high, float(np.mean(flipped >= abs(mean) * (1.0 - 1e-12))))


def _checked(name: str, scores: Scores) -> NDArray[np.float64]:
    values = np.asarray(scores, float)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name}: {scores!r}; accepted: at least one number, all of them finite")
    return values


def _drawn(values: NDArray[np.float64], resamples: int, seed: int = 0) -> NDArray[np.float64]:
    """Resamples of the seeds, with replacement; always the same ones."""
    return np.random.default_rng(seed).choice(values, (resamples, len(values)))


def _interval(value: float, draws: NDArray[np.float64]) -> tuple[float, float, float]:
    low, high = np.quantile(draws, TAILS)
    return value, float(low), float(high)
