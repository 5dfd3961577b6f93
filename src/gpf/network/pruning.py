"""Which weights to prune (Eq. 3): those with low belief and low saliency."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gpf.network.rules import Saliency

_ROUNDING = 3e-4
"""Relative error of a belief that was summed in float32 over some thousands of epochs."""
_BIN_BITS = 15
_BINS = 2 ** (31 - _BIN_BITS)
_PART = 2**18
_MAGNITUDE = 2**31 - 1  # all bits of a float32 but its sign


def saliency(weight: Tensor, kind: Saliency, mean_square_gradient: Tensor | None = None) -> Tensor:
    """The estimated rise of the loss if each weight is set to zero.

    `magnitude` is abs(w). `obd` is w^2 h / 2 with the Hessian's diagonal h taken as E[g^2] (LeCun et al. 1989).
    """
    if kind == "magnitude":
        return weight.abs()
    if mean_square_gradient is None:
        raise ValueError("saliency 'obd' needs gradients, and none were seen; train before pruning")
    return 0.5 * weight.square() * mean_square_gradient


def prunable(belief: Tensor, cost: Tensor, belief_threshold: float, saliency_threshold: float) -> Tensor:
    """A mask of the weights whose belief and saliency both lie below their thresholds.

    A belief that equals its threshold, up to rounding, does not lie below it.
    """
    return (belief < belief_threshold * (1.0 - _ROUNDING)) & (cost < saliency_threshold)


def scheduled_keep(progress: float, begin: float, end: float, final: float) -> float:
    """The share of weights to keep at some point of the training: 1, then a cubic fall, then the final one.

    Zhu & Gupta (2017): final + (1 - final) (1 - t)^3, with t running from 0 to 1 between begin and end.
    """
    t = min(1.0, max(0.0, (progress - begin) / (end - begin)))
    return final + (1.0 - final) * (1.0 - t) ** 3


def is_due(keep: float, kept: float, final: float, steps: int) -> bool:
    """Whether enough is due since the last pruning to make one worthwhile: a step's share of it all, or the rest.

    >>> [is_due(keep, kept=1.0, final=0.5, steps=5) for keep in (1.0, 0.95, 0.9)]
    [False, False, True]
    """
    return keep < kept and (keep <= final or kept - keep >= (1.0 - final) / steps * (1.0 - 1e-9))


def scheduled_regrowth(progress: float, begin: float, end: float, share: float) -> float:
    """The share of the weights left to exchange at some point of the training: it falls by a cosine to 0 at the end.

    Evci et al. (2020): share (1 + cos(pi t)) / 2, with t running from 0 to 1 between begin and end.
    """
    if not begin <= progress < end:
        return 0.0
    return 0.5 * share * (1.0 + math.cos(math.pi * (progress - begin) / (end - begin)))


def returning(gradients: Sequence[Tensor], pruned: Sequence[Tensor], count: int) -> list[Tensor]:
    """Masks of the `count` pruned entries with the largest gradients, over all tensors together.

    Entries without a gradient, or without a finite one, do not come back.

    >>> gradients = [torch.tensor([0.5, -3.0, 2.0]), torch.tensor([0.0, 1.0])]
    >>> pruned = [torch.tensor([True, True, False]), torch.tensor([True, True])]
    >>> returning(gradients, pruned, 2)
    [tensor([False,  True, False]), tensor([False,  True])]
    """
    sizes = [gradient.abs().nan_to_num(0.0, 0.0, 0.0) for gradient in gradients]
    others = [~(mask & (size > 0)) for size, mask in zip(sizes, pruned, strict=True)]
    total = sum(size.numel() for size in sizes)
    count = min(count, sum(int(torch.count_nonzero(~mask)) for mask in others))
    return [~mask for mask in cheapest(sizes, total - count, others)]


def round_survivors(dead: Tensor, gone: Tensor, costs: Tensor, multiple: int) -> Tensor:
    """A mask of the dead such that the number of survivors is the nearest multiple, and at least one multiple.

    Units that are gone stay so: where too few are left for a multiple, the next lower one counts, or else all that are
    left. Half a multiple is rounded up.

    >>> costs = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.5, 0.1])
    >>> none = torch.zeros(6, dtype=torch.bool)
    >>> round_survivors(costs < 2.5, none, costs, 3)  # 2 survivors become 3
    tensor([False, False, False,  True,  True,  True])
    >>> round_survivors(costs < 0.7, none, costs, 3)  # 4 become 3
    tensor([False, False, False,  True,  True,  True])
    """
    if multiple == 1:
        return dead
    left = len(dead) - int(torch.count_nonzero(gone))
    wanted = max(1, math.floor((len(dead) - int(torch.count_nonzero(dead))) / multiple + 0.5)) * multiple
    survivors = wanted if wanted <= left else left // multiple * multiple or left
    alive = torch.where(gone, -torch.inf, costs).topk(survivors).indices
    rounded = torch.ones_like(dead)
    rounded[alive] = False
    return rounded


def cheapest(costs: Sequence[Tensor], count: int, gone: Sequence[Tensor | None] | None = None) -> list[Tensor]:
    """Masks of the `count` entries of smallest absolute value, over all tensors together; of equals, the first.

    Takes linear time and little memory: a histogram of the values, read as whole numbers of the same order, and then a
    look into one bin.

    Args:
        costs: Costs, or weights whose cost is their magnitude.
        count: How many entries to choose.
        gone: Masks of entries that come before all others, or None.
    """
    first = gone or [None] * len(costs)
    masks = [torch.zeros(cost.shape, dtype=torch.bool) for cost in costs]
    if not costs or count <= 0:
        return [mask.to(cost.device) for mask, cost in zip(masks, costs, strict=True)]
    values = [cost.detach().cpu().float().flatten().view(torch.int32) for cost in costs]
    before_all = [None if mask is None else mask.cpu().flatten() for mask in first]

    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        """Whole numbers in the order of the costs, in parts that fit a cache, and the same parts of the masks."""
        for value, early, mask in zip(values, before_all, masks, strict=True):
            for start in range(0, len(value), _PART):
                part = slice(start, start + _PART)
                key = value[part].bitwise_and(_MAGNITUDE).add_(1)
                yield key if early is None else key.mul_(~early[part]), mask.view(-1)[part]

    histogram = torch.zeros(_BINS, dtype=torch.int64)
    for key, _ in parts():
        histogram += torch.bincount(key >> _BIN_BITS, minlength=_BINS)
    upto = histogram.cumsum(0)
    bin_of_last = int(torch.searchsorted(upto, count))
    below = int(upto[bin_of_last - 1]) if bin_of_last else 0
    inside = torch.cat([key[key >> _BIN_BITS == bin_of_last] for key, _ in parts()])
    highest = int(inside.kthvalue(count - below).values)
    equals = count - below - int(torch.count_nonzero(inside < highest))  # how many of them are wanted
    for key, mask in parts():
        torch.lt(key, highest, out=mask)
        if equals > 0:
            found = torch.nonzero(key == highest).flatten()[:equals]
            mask[found] = True
            equals -= len(found)
    return [mask.to(cost.device) for mask, cost in zip(masks, costs, strict=True)]
