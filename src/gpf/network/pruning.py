"""Which weights to prune (Eq. 3): little believed in, and cheap to lose."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gpf.network.rules import Saliency


def saliency(weight: Tensor, kind: Saliency, mean_square_gradient: Tensor | None = None) -> Tensor:
    """What the loss is thought to rise by if each weight is set to zero.

    `magnitude` is abs(w). `obd` is w^2 h / 2 with the Hessian's diagonal h taken as E[g^2] (LeCun et al. 1989).
    """
    if kind == "magnitude":
        return weight.abs()
    if mean_square_gradient is None:
        raise ValueError("saliency: 'obd' needs gradients, and none were seen; accepted: train before pruning")
    return 0.5 * weight.square() * mean_square_gradient


def prunable(belief: Tensor, cost: Tensor, belief_threshold: float, saliency_threshold: float) -> Tensor:
    """A mask of the weights whose belief and saliency both lie below their thresholds."""
    return (belief < belief_threshold) & (cost < saliency_threshold)


def cheapest(costs: Sequence[Tensor], count: int) -> list[Tensor]:
    """Masks of the `count` weights that cost least, over all tensors together; of equals, the first."""
    if not costs:
        return []
    order = torch.cat([cost.flatten().cpu() for cost in costs]).argsort(stable=True)
    chosen = torch.zeros(len(order), dtype=torch.bool)
    chosen[order[:count]] = True
    parts = chosen.split([cost.numel() for cost in costs])
    return [part.view_as(cost).to(cost.device) for part, cost in zip(parts, costs, strict=True)]


def dead_units(incoming: Tensor, outgoing: Tensor | None = None) -> Tensor:
    """Which units have no incoming weight left, or no outgoing one.

    Args:
        incoming: Which weights are pruned, shape (units, ...).
        outgoing: The same of the next layer's weights, shape (next units, units, ...).
    """
    dead = incoming.flatten(1).all(dim=1)
    if outgoing is not None:
        dead = dead | outgoing.transpose(0, 1).flatten(1).all(dim=1)
    return dead
