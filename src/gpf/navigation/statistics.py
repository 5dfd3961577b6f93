"""Intervals for what was measured."""

import math
from statistics import NormalDist


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
