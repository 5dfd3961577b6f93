"""Realism checks: compares the statistics of a plume with the ranges of field plumes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpf.plume.statistics import PlumeStatistics, PointStatistics

SECONDS, SEEDS = 1800.0, 5
"""Duration and number of the records that the ranges are meant for; the maximum grows with the duration."""


@dataclass(frozen=True)
class Check:
    """One quantity against its range."""

    name: str
    value: float
    """Median over the points on the axis; NaN if it is not defined at one of them."""
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether the value lies in the range; one that is not defined does not."""
        return self.low <= self.value <= self.high

    def plain(self) -> dict[str, Any]:
        """The check as plain data; None for a value that is not defined, and for a range without an end."""
        value, low, high = (x if math.isfinite(x) else None for x in (self.value, self.low, self.high))
        return {"name": self.name, "value": value, "low": low, "high": high, "passed": self.passed}


@dataclass(frozen=True)
class Range:
    """The checks, and the ranges of field plumes."""

    name: str
    of: Callable[[PointStatistics], float]
    low: float
    high: float


RANGES = (
    Range("intermittency", lambda point: point.intermittency, 0.1, 0.7),
    Range("blank duration CV", lambda point: point.blanks.cv, 1.2, 2.5),
    Range("blank PDF slope", lambda point: point.blanks.slope, -1.9, -1.1),
    Range("whiff PDF slope", lambda point: point.whiffs.slope, -1.9, -1.1),
    Range("peak-to-mean ratio", lambda point: point.peak_to_mean, 10.0, math.inf),
)
"""Ranges of field plumes; docs/plume.md has their sources."""


def realism(statistics: PlumeStatistics) -> list[Check]:
    """Every range against the median over the points on the axis. A realistic plume passes all of them."""
    return [
        Check(one.name, float(np.median([one.of(point) for point in statistics.axis])), one.low, one.high)
        for one in RANGES
    ]
