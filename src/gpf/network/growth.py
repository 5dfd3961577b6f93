"""When to grow (Eq. 1): the metric has not improved for as long as patience lasts."""

from collections.abc import Sequence

from gpf.network.rules import Mode


def best(values: Sequence[float], mode: Mode) -> float:
    """The best of some metric values."""
    return min(values) if mode == "min" else max(values)


def improvement(before: float, window: Sequence[float], mode: Mode) -> float:
    """By how much the best value in a window is better than the best one before it; negative if it is worse."""
    return before - best(window, mode) if mode == "min" else best(window, mode) - before


def plateaued(before: float | None, window: Sequence[float], patience: int, threshold: float, mode: Mode) -> bool:
    """Whether the last `patience` values have not improved on the best one before them by `threshold`."""
    return before is not None and len(window) >= patience and improvement(before, window, mode) < threshold
