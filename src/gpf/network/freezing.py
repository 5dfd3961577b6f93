"""When to freeze a layer (Eq. 4): most of its weights hardly change."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def still_share(
    changes: Iterable[tuple[Tensor, Tensor, Tensor | None]],
    delta: float,
    total: Callable[[list[int]], list[int]] = list,
) -> float:
    """The share of a layer's weights that moved less than `delta` over an epoch.

    Args:
        changes: For each weight tensor of the layer: its values before and after, and which of them are pruned (these
            cannot move, and do not count).
        delta: The change below which a weight counts as still.
        total: Sums counts over all processes, where each holds a part of the weights.
    """
    still = counted = 0
    for before, after, pruned in changes:
        calm = (after - before).abs_() < delta
        counted += calm.numel()
        if pruned is not None:
            calm &= ~pruned
            counted -= int(torch.count_nonzero(pruned))
        still += int(torch.count_nonzero(calm))
    still, counted = total([still, counted])
    return still / counted if counted else 1.0
