"""Whole units to prune: neurons, channels and attention heads, each with its weights.

Only units are listed that `compact` can remove once their weights are zero. Pure functions: who prunes decides when.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpf.network import surgery
from gpf.network.compaction.links import find_links

View = Callable[[Tensor], Tensor]
"""Takes any tensor of a parameter's shape to a view of it with units first, (units, ...)."""


@dataclass(frozen=True)
class Units:
    """Units of one kind in one block of a stack.

    Attributes:
        layer: The place of the block in the stack.
        count: Number of units; one of them has to stay.
        members: The parameters without which a unit is dead, by name within the block, each with its view.
    """

    layer: int
    count: int
    members: Mapping[str, View]


def unit_groups(model: nn.Module, stack: str) -> list[Units]:
    """All groups of units that can be pruned and then removed, in the order of the blocks."""
    groups = []
    links = find_links(model, stack)
    for layer, block in enumerate(surgery.find_stack(model, stack)):
        names = {id(parameter): name for name, parameter in block.named_parameters()}
        for link in links:
            members = {names.get(id(part.module.weight)): part.view for part in link.members()}
            if None not in members:
                groups.append(Units(layer, link.units, {name: view for name, view in members.items() if name}))
    return groups


def unit_means(units: Units, values: Mapping[str, Tensor]) -> Tensor:
    """The mean of values, such as beliefs or saliencies, over all entries of each unit, shape (count,)."""
    entries = [view(values[name]).flatten(1) for name, view in units.members.items()]
    return torch.cat(entries, dim=1).mean(dim=1)


def unit_mask(units: Units, dead: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks of the members' shapes that cover all entries of the units that are dead, shape (count,).

    Args:
        units: The group.
        dead: Which of its units to cover.
        like: Tensors of the members' shapes, by name; others are ignored.
    """
    masks = {}
    for name, view in units.members.items():
        masks[name] = torch.zeros_like(like[name], dtype=torch.bool, memory_format=torch.contiguous_format)
        view(masks[name])[dead] = True
    return masks
