"""When to grow (Eq. 1: the metric has stopped improving), by how much, and where."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpf.network.events import METRIC
from gpf.network.rules import Init, Mode, Place, Rules


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


def slope(values: Sequence[float]) -> float:
    """By how much values change from one to the next: that of the regression line through them."""
    count = len(values)
    if count < 2:
        raise ValueError(f"values must be at least two, got {count}")
    middle, mean = (count - 1) / 2.0, sum(values) / count
    return sum((i - middle) * (value - mean) for i, value in enumerate(values)) / sum(
        (i - middle) ** 2 for i in range(count)
    )


def slowed(early: Sequence[float], late: Sequence[float], cost_ratio: float, mode: Mode) -> bool:
    """Whether a network now learns more slowly, for the compute that it takes, than a deeper one would.

    The estimate: a deeper network of the same function improves, in an epoch, by as much as this one did in its first
    epochs at this depth, and an epoch of it costs more. So a unit of compute would buy the early slope times
    `cost_ratio`, and buys the late slope now.

    Args:
        early: Metrics of the first epochs at this depth.
        late: As many of the latest epochs.
        cost_ratio: Cost of a step of this network by that of the deeper one, below 1.
        mode: Whether a lower metric is better, or a higher one.
    """
    sign = -1.0 if mode == "min" else 1.0
    return sign * slope(late) < cost_ratio * sign * slope(early)


def count_due(shares: Sequence[float], passed: int, progress: float) -> int:
    """How many planned growths are due: their share of the training is over, and they are not."""
    return max(0, sum(share <= progress for share in shares) - passed)


def count_new(depth: int, by: int | str, max_depth: int | None, times: int = 1) -> int:
    """How many layers this many growths add together."""
    deeper = depth
    for _ in range(times):
        deeper += deeper if by == "double" else int(by)
    return deeper - depth if max_depth is None else max(0, min(deeper, max_depth) - depth)


def arrangement(depth: int, count: int, init: Init, place: Place) -> list[int]:
    """The layers of a stack after a growth, by where each comes from: below `depth` an old one, else a new one.

    >>> arrangement(4, 4, "stack", "end")
    [0, 1, 2, 3, 0, 1, 2, 3]
    >>> arrangement(4, 2, "interleave", "end")
    [0, 1, 2, 2, 3, 3]
    >>> arrangement(4, 1, "identity", "middle")
    [0, 1, 4, 2, 3]
    """
    old = list(range(depth))
    if init == "stack":
        return old + [(depth - count + i) % depth for i in range(count)]
    if init == "interleave":
        copies, more = divmod(count, depth)
        return [i for i in old for _ in range(1 + copies + (i >= depth - more))]
    at = {"end": depth, "middle": (depth + 1) // 2, "start": 0}[place]
    return [*old[:at], *range(depth, depth + count), *old[at:]]


def new_places(arranged: Sequence[int], depth: int) -> tuple[int, ...]:
    """The places in a new arrangement whose layers were not there before: new ones, and second copies of old ones."""
    seen: set[int] = set()
    places = []
    for place, source in enumerate(arranged):
        if source >= depth or source in seen:
            places.append(place)
        seen.add(source)
    return tuple(places)


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
    early: list[float] = field(default_factory=list)
    """The first values since the last growth, whose slope the rule of slopes uses."""
    late: list[float] = field(default_factory=list)
    """The latest values after those, as many."""

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
        early, late = list(self.early), list(self.late)
        if rules.grow_slope is not None and not settling:
            if len(early) < rules.grow_slope:
                early.append(metric)
            else:
                late = [*late, metric][-rules.grow_slope :]
        return Plateau(before, window, cooldown, hold, since, self.at_growth, trial, recent, peak, early, late)

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


def reason_to_grow(plateau: Plateau, rules: Rules, planned: float | None, cost_ratio: float) -> str | None:
    """Why to grow now: a plan, a plateau, or slopes; None if nothing says so.

    Args:
        plateau: The metric so far.
        rules: The rules.
        planned: The share of the training that is over, if a planned growth is due.
        cost_ratio: As for `slowed`.
    """
    if plateau.hold > 0:
        return None
    if planned is not None:
        return f"planned, at {planned:.1%} of the training"
    patience = rules.grow_patience
    if patience is not None and plateaued(plateau.before, plateau.window, patience, rules.grow_threshold, rules.mode):
        return _plateau_reason(plateau, rules)
    compared = rules.grow_slope is not None and len(plateau.late) == rules.grow_slope
    if compared and slowed(plateau.early, plateau.late, cost_ratio, rules.mode):
        return _slope_reason(plateau, rules, cost_ratio)
    return None


def _plateau_reason(plateau: Plateau, rules: Rules) -> str:
    assert plateau.before is not None  # or there is no plateau
    gain = improvement(plateau.before, plateau.window, rules.mode)
    least = f"less than {rules.grow_threshold:g}" if rules.grow_threshold else "not more than 0"
    return f"{METRIC} improved by {gain:.2g} in {rules.grow_patience} epochs, {least}"


def _slope_reason(plateau: Plateau, rules: Rules, ratio: float) -> str:
    sign = -1.0 if rules.mode == "min" else 1.0
    early, late = (sign * slope(values) for values in (plateau.early, plateau.late))
    return f"{METRIC} improves by {late:.2g} an epoch, less than {ratio:.2f} of the {early:.2g} after the last growth"
