"""When a layer holds still (Eq. 4): most of its weights hardly moved."""

from collections.abc import Iterable

from torch import Tensor


def still_share(changes: Iterable[tuple[Tensor, Tensor, Tensor | None]], delta: float) -> float:
    """The share of a layer's weights that moved less than `delta` over an epoch.

    Args:
        changes: For each weight tensor of the layer: its values before and after, and which of them are pruned (these
            cannot move, and do not count).
        delta: The change below which a weight holds still.
    """
    still = counted = 0
    for before, after, pruned in changes:
        calm = (after - before).abs_() < delta
        if pruned is None:
            still += int(calm.sum())
            counted += calm.numel()
        else:
            still += int((calm & ~pruned).sum())
            counted += calm.numel() - int(pruned.sum())
    return still / counted if counted else 1.0
