"""When to grow (Eq. 1): the metric has not improved for as long as patience lasts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpf.network.events import METRIC
from gpf.network.rules import Mode, Rules


def best(values: Sequence[float], mode: Mode) -> float:
    """The best of some metric values."""
    return min(values) if mode == "min" else max(values)


def improvement(before: float, window: Sequence[float], mode: Mode) -> float:
    """By how much the best value in a window is better than the best one before it; negative if it is worse."""
    return before - best(window, mode) if mode == "min" else best(window, mode) - before


def improved(gain: float, threshold: float) -> bool:
    """Whether a gain counts as an improvement: at least the threshold, and more than nothing."""
    return gain >= threshold and gain > 0.0


def plateaued(before: float | None, window: Sequence[float], patience: int, threshold: float, mode: Mode) -> bool:
    """Whether the last `patience` values have not improved on the best one before them by `threshold`."""
    if before is None or len(window) < patience:
        return False
    return not improved(improvement(before, window, mode), threshold)


def dropped(metric: float, best_before: float | None, share: float, mode: Mode) -> bool:
    """Whether a metric has fallen below a share of its best; of a loss, whether its best is below a share of it."""
    if best_before is None:
        return False
    return metric * share > best_before if mode == "min" else metric < share * best_before


@dataclass
class Plateau:
    """The metric so far, as the growth rule sees it."""

    before: float | None = None
    """Best value before the window."""
    window: list[float] = field(default_factory=list)
    """Values since the last growth, at most as many as patience."""
    cooldown: int = 0
    """Epochs left in which a new layer settles."""
    hold: int = 0
    """Epochs left, after an undone growth, in which none is tried again."""
    since: float | None = None
    """Best value since the last growth."""
    at_growth: float | None = None
    """Best value before the last growth."""
    trial: int = 0
    """Epochs left in which the last growth must pay."""
    recent: list[float] = field(default_factory=list)
    """The latest values, over which a drop is seen."""
    peak: float | None = None
    """The best mean of as many."""

    def after(self, metric: float, rules: Rules, warm: bool) -> "Plateau":
        """The same, one epoch on."""
        window, before = list(self.window), self.before
        settling = self.cooldown > 0 or not warm
        window.append(metric)
        while window and (settling or len(window) > (rules.grow_patience or 0)):
            before = best([window.pop(0)] + ([] if before is None else [before]), rules.mode)
        since = best([metric] + ([] if self.since is None else [self.since]), rules.mode)
        cooldown, hold, trial = (max(0, left - 1) for left in (self.cooldown, self.hold, self.trial))
        recent, peak = [*self.recent, metric][-rules.drop_window :], self.peak
        if len(recent) == rules.drop_window:
            peak = best([sum(recent) / len(recent)] + ([] if peak is None else [peak]), rules.mode)
        return Plateau(before, window, cooldown, hold, since, self.at_growth, trial, recent, peak)

    def fallen(self, rules: Rules) -> str | None:
        """Where the metric has dropped, from what to what; None where it has not."""
        if rules.drop is None or len(self.recent) < rules.drop_window or self.peak is None:
            return None
        mean = sum(self.recent) / len(self.recent)
        if not dropped(mean, self.peak, rules.drop, rules.mode):
            return None
        moved = "fell" if rules.mode == "max" else "rose"
        return f"{METRIC} {moved} to {mean:.3g} from {self.peak:.3g}, its best"

    def best_of_all(self, rules: Rules) -> float | None:
        """Best value of all."""
        values = [*self.window, *([] if self.before is None else [self.before])]
        return best(values, rules.mode) if values else None

    def restarted(self, rules: Rules) -> "Plateau":
        """The same, with all values before the window."""
        best_of_all = self.best_of_all(rules)
        return Plateau(
            best_of_all, [], rules.grow_cooldown, self.hold, at_growth=best_of_all, trial=rules.grow_trial or 0,
            recent=list(self.recent), peak=self.peak,
        )  # fmt: skip

    def trial_failed(self, rules: Rules) -> bool:
        """Whether the values since the last growth are no better than those before it, by the threshold of growth."""
        if self.at_growth is None or self.since is None:
            return False
        return not improved(improvement(self.at_growth, [self.since], rules.mode), rules.grow_threshold)
