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
    """The thresholds that a client tries in a round: each as it is, a step higher or a step lower."""
    draws = np.random.default_rng(list(seed)).integers(-1, 2, len(current))
    return {name: current[name] * STEP ** int(draw) for name, draw in zip(sorted(current), draws, strict=True)}


def elect(
    current: Mapping[str, float],
    proposals: Sequence[Mapping[str, float]],
    gains: Sequence[float],
) -> Thresholds:
    """Of each threshold, the value under which validation improved most, on average over those who tried it.

    Gains are noisy, but a step is small, and the next round may take it back. Ties go to the current value, then to the
    lower one. Nothing leaves its range.
    """
    elected = dict(current)
    for name, now in current.items():
        tried: dict[float, list[float]] = {}
        for proposal, gain in zip(proposals, gains, strict=True):
            if math.isfinite(gain):
                tried.setdefault(round(proposal[name], 12), []).append(gain)
        if tried:
            means = {value: float(np.mean(some)) for value, some in tried.items()}
            best = max(means, key=lambda value: (means[value], math.isclose(value, now), -value))
            low, high = RANGES[name]
            elected[name] = min(high, max(low, best))
    return elected
