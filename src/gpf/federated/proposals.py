"""Thresholds of growth and pruning: clients try variations, and validation picks among them."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

Thresholds = dict[str, float]
"""By the name of a rule: `grow_threshold`, `saliency_threshold`."""

RANGES: dict[str, tuple[float, float]] = {"grow_threshold": (1e-3, 0.2), "saliency_threshold": (1e-3, 0.3)}
"""The thresholds that clients propose, and how far they may go."""
STEP = 1.5
"""Factor between two neighbouring proposals."""


def propose(current: Mapping[str, float], seed: Sequence[int]) -> Thresholds:
    """The thresholds that a client tries in a round: each unchanged, a step higher or a step lower."""
    draws = np.random.default_rng(list(seed)).integers(-1, 2, len(current))
    return {name: current[name] * STEP ** int(draw) for name, draw in zip(sorted(current), draws, strict=True)}


def elect(
    current: Mapping[str, float],
    proposals: Sequence[Mapping[str, float]],
    gains: Sequence[float],
) -> Thresholds:
    """Of each threshold, the value under which validation improved most, on average over those who tried it.

    Validation is noisy: a value is taken only if it beats the current one by two standard errors of the difference.
    Nothing leaves its range.
    """
    elected = dict(current)
    for name, now in current.items():
        tried: dict[float, list[float]] = {}
        for proposal, gain in zip(proposals, gains, strict=True):
            if math.isfinite(gain):
                tried.setdefault(round(proposal[name], 12), []).append(gain)
        kept = tried.pop(round(now, 12), [])
        better = {value: _lead(some, kept) for value, some in sorted(tried.items())}
        if better and max(better.values()) > 0.0:
            low, high = RANGES[name]
            elected[name] = min(high, max(low, max(better, key=lambda value: better[value])))
    return elected


def _lead(gains: Sequence[float], others: Sequence[float]) -> float:
    """By how much a mean gain exceeds another plus two standard errors; minus infinity if that cannot be known."""
    free = len(gains) + len(others) - 2
    if not gains or not others or free < 1:
        return -math.inf
    variance = (len(gains) * np.var(gains) + len(others) * np.var(others)) / free
    error = math.sqrt(variance * (1 / len(gains) + 1 / len(others)))
    return float(np.mean(gains) - np.mean(others)) - 2 * error
