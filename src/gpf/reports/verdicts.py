"""What numbers say of a difference, and of a claim of the paper's: one vocabulary for all pages."""

from dataclasses import dataclass
from enum import StrEnum

from gpf.reports.statistics import Paired

ENOUGH_SEEDS = 6
"""A permutation test of fewer paired differences cannot have p < 0.05."""


class Verdict(StrEnum):
    """What can be said."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    NO_DIFFERENCE = "no difference shown"
    ONE_SEED = "one seed, no conclusion"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    PARTLY = "partly"
    UNDECIDED = "not shown"
    OF_THE_RULES = "a matter of the rules"

    @classmethod
    def of_difference(cls, d: Paired, better: int = 0) -> "Verdict":
        """Of ours less theirs: better or worse where `better` says which sign is, higher or lower where it does not."""
        if not d.shown:
            return cls.NO_DIFFERENCE
        if better:
            return cls.BETTER if better * d.mean > 0 else cls.WORSE
        return cls.HIGHER if d.mean > 0 else cls.LOWER

    @classmethod
    def of_claim(cls, holds: bool, divided: bool = False) -> "Verdict":
        """Of a claim; divided, where some numbers say so and some do not."""
        return cls.PARTLY if divided else cls.CONFIRMED if holds else cls.REFUTED

    @classmethod
    def of_bounds(cls, low: float, high: float, bound: float = 0.0, seeds: int = 2) -> "Verdict":
        """Of a claim that something lies below a bound, by the interval that it lies in; one seed has none."""
        if seeds < 2:
            return cls.UNDECIDED
        return cls.CONFIRMED if high < bound else cls.REFUTED if low > bound else cls.UNDECIDED


def caution(seeds: int) -> str:
    """What so few seeds do not allow to conclude; nothing, if they are enough."""
    if seeds == 1:
        return "**One seed: no number here has an interval, and nothing can be concluded from a difference.**"
    if seeds < ENOUGH_SEEDS:
        return f"**{seeds} seeds are too few to call a difference better or worse; that takes {ENOUGH_SEEDS}.**"
    return ""


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we have measured, and what that means for it."""

    paper: str
    measured: str
    verdict: str
