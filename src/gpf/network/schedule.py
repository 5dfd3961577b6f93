"""Progress of a training of planned length, for rules on a schedule."""

from dataclasses import dataclass

from gpf.network.rules import Rules


@dataclass
class Schedule:
    """Optimizer steps, done and planned."""

    steps: int | None = None
    """Planned steps; None if unknown."""
    step: int = 0
    """Steps done."""
    passed: int = 0
    """Planned growths (`Rules.grow_at`) that are over."""
    kept: float = 1.0
    """Share of the weights that planned pruning (`Rules.prune_to`) has left so far."""

    def __post_init__(self) -> None:
        if self.steps is not None and not (isinstance(self.steps, int) and self.steps >= 1):
            raise ValueError(f"steps must be a whole number of at least 1, got {self.steps!r}")

    def progress(self, given: float | None) -> float:
        """The share of the training that is done: as given, or by the steps; 0 if unknown."""
        if given is None:
            return 0.0 if self.steps is None else self.step / self.steps
        if not isinstance(given, int | float) or not 0.0 <= given <= 1.0:
            raise ValueError(f"progress must be a number from 0 to 1, got {given!r}")
        return float(given)


def check_planned(rules: Rules, steps: int | None) -> None:
    """Refuse rules that need the planned steps if these are unknown, and impossible numbers of steps."""
    Schedule(steps)
    if rules.planned and steps is None:
        raise ValueError("steps must be given, because the rules go by them (grow_at, prune_to)")
