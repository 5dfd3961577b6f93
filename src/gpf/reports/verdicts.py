"""Verdicts on differences and on the paper's claims: one vocabulary and one correction for all pages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from gpf.reports.statistics import Paired, Scores, benjamini_hochberg, paired_difference, smallest_p

ENOUGH_SEEDS = 6
"""A permutation test of fewer paired differences cannot have p < 0.05."""
LEVEL = 0.05
"""Share of the differences that a page shows which are false, at most, on average."""

PAIRED_WORDS = (
    "Differences are means over shared seeds with 95 % intervals by Student's t; a difference is better or worse if its"
    " interval does not include zero and a permutation test is significant after correction."
)
"""Introduction to the differences on a page."""


class Verdict(StrEnum):
    """The possible verdicts."""

    BETTER = "better"
    WORSE = "worse"
    HIGHER = "higher"
    LOWER = "lower"
    NOT_SIGNIFICANT = "not significant"
    TOO_FEW = "too few seeds"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    PARTLY = "partly"
    UNDECIDED = "not shown"
    OF_THE_RULES = "follows from the rules"

    @classmethod
    def of_claim(cls, holds: bool, divided: bool = False, *, seeds: int) -> "Verdict":
        """Of a claim; divided, where some numbers say so and some do not."""
        if seeds < ENOUGH_SEEDS:
            return cls.TOO_FEW
        return cls.PARTLY if divided else cls.CONFIRMED if holds else cls.REFUTED

    @classmethod
    def of_bounds(cls, low: float, high: float, bound: float = 0.0, *, seeds: int) -> "Verdict":
        """Of a claim that something lies below a bound, by the interval that it lies in."""
        if seeds < ENOUGH_SEEDS:
            return cls.TOO_FEW
        return cls.CONFIRMED if high < bound else cls.REFUTED if low > bound else cls.UNDECIDED


def caution(seeds: int) -> str:
    """A warning if there are too few seeds for a verdict; empty if there are enough."""
    if seeds == 1:
        return "**One seed: no number here has an interval, and nothing can be concluded from a difference.**"
    if seeds < ENOUGH_SEEDS:
        return f"**{seeds} seeds are too few for a verdict on a difference or a claim; that takes {ENOUGH_SEEDS}.**"
    return ""


@dataclass(frozen=True)
class Family:
    """The paired permutation tests of one page, corrected together by Benjamini and Hochberg's procedure."""

    tests: int = 0
    """How many there are; differences of too few seeds are not tested."""
    seeds: int = 0
    """The fewest of a test."""
    limit: float = 0.0
    """The greatest p that shows a difference."""
    found: list[Paired] = field(default_factory=list)
    """All differences that were asked for."""

    def compare(self, ours: Scores, theirs: Scores) -> Paired:
        """Ours less theirs, seed by seed, as one of the tests of the page."""
        self.found.append(paired_difference(ours, theirs))
        return self.found[-1]

    def shows(self, d: Paired) -> bool:
        """Whether the test counts and the interval does not include zero, both."""
        return d.seeds >= ENOUGH_SEEDS and d.p <= self.limit and (d.low > 0 or d.high < 0)

    def judge(self, d: Paired, better: int = 0) -> Verdict:
        """Of ours less theirs: better or worse where `better` says which sign is, higher or lower where it does not."""
        if d.seeds < ENOUGH_SEEDS:
            return Verdict.TOO_FEW
        if not self.shows(d):
            return Verdict.NOT_SIGNIFICANT
        if better:
            return Verdict.BETTER if better * d.mean > 0 else Verdict.WORSE
        return Verdict.HIGHER if d.mean > 0 else Verdict.LOWER

    @property
    def sentence(self) -> str:
        """How many tests there are, and from which p on they count; nothing, if there is no test."""
        if not self.tests:
            return ""
        said = (
            f"Paired permutation tests on this page: {self.tests}, corrected together (Benjamini-Hochberg, false"
            f" discovery rate {LEVEL:.0%}); "
        )
        said += f"those with p up to {self.limit:.3f} are significant." if self.limit else "none is significant."
        least = smallest_p(self.seeds)
        needed = next(k for k in range(1, self.tests + 1) if least <= LEVEL * k / self.tests)
        if needed > 1:
            said += f" With {self.seeds} seeds p is at least {least:.3f}; {needed} must reach it for any to count."
        return said


def corrected(render: Callable[[Family], str]) -> str:
    """A text whose tests are corrected together: rendered once to find them all, and again with what they allow."""
    first = Family()
    render(first)
    tested = [d for d in first.found if d.seeds >= ENOUGH_SEEDS]
    counts = benjamini_hochberg([d.p for d in tested], LEVEL)
    limit = max((d.p for d, counted in zip(tested, counts, strict=True) if counted), default=0.0)
    return render(Family(len(tested), min((d.seeds for d in tested), default=0), limit))


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, our measurement, and the verdict."""

    paper: str
    measured: str
    verdict: str

    def of(self, seeds: int) -> "Claim":
        """The same with no verdict where there are too few seeds for one."""
        if seeds >= ENOUGH_SEEDS or self.verdict == Verdict.OF_THE_RULES:
            return self
        return Claim(self.paper, self.measured, Verdict.TOO_FEW)
