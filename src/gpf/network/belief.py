"""Belief in a weight (Eq. 2): rises up to 1 while the weight is large or its unit active; may fall otherwise."""

import torch
from torch import Tensor

HIGHEST = 1.0 - 2.0**-24
"""The largest belief in a weight that can still change: the float32 next to 1, which means frozen."""


def raised(
    belief: Tensor,
    weight: Tensor,
    threshold: float,
    increment: float,
    active: Tensor | None = None,
    fall: float = 0.0,
) -> Tensor:
    """Belief after an epoch, given the weights at its end.

    Args:
        belief: Belief so far, of the weight's shape.
        weight: The weights.
        threshold: Absolute weight above which belief rises.
        increment: By how much.
        active: Which units were active, broadcastable to the weight; belief in all weights into them rises.
        fall: By how much it falls where it does not rise.
    """
    rises = weight.abs() > threshold
    if active is not None:
        rises = rises | active
    # Bytes, not truth values: torch adds those several times as fast.
    if fall:
        return torch.add(belief - fall, rises.view(torch.int8), alpha=increment + fall).clamp_(0.0, HIGHEST)
    return torch.add(belief, rises.view(torch.int8), alpha=increment).clamp_(max=HIGHEST)
