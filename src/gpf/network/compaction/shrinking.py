"""Removes units from a model in place: cut-off units, the same units as in another model, or down to given sizes."""

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from gpf.network.compaction import maps
from gpf.network.compaction.cuts import Cuts
from gpf.network.compaction.feed_forward import Going, Link
from gpf.network.compaction.links import find_links

Pass = list[tuple[Link, Going]]
"""All links of a model, and what went from each."""


def shrink(model: nn.Module, stack: str, cuts: Cuts) -> list[Pass]:
    """Remove all units that are cut off, and repeat: a removal may cut off others."""
    passes: list[Pass] = []
    while True:
        taken = [(link, link.shrink(cuts)) for link in find_links(model, stack)]
        if not any(going.count for _, going in taken):
            return passes
        passes.append(taken)


def repeat(passes: Sequence[Pass], copy: nn.Module, stack: str, cuts: Cuts) -> None:
    """Remove from a copy of a model the units that went from the model; their constant outputs are folded there."""
    for taken in passes:
        for link, (_, going) in zip(find_links(copy, stack), taken, strict=True):
            link.shrink(cuts, going)


@torch.no_grad()
def fit(model: nn.Module, stack: str, shapes: Mapping[str, torch.Size]) -> None:
    """Take units out of a model until its weights have the shapes of another's, by name; which ones does not matter."""
    names = {id(module): f"{name}.weight" for name, module in model.named_modules()}

    def size(module: nn.Module, side: maps.Side) -> int:
        shape = shapes.get(names[id(module)], ())
        return shape[maps.axis_of(module, side)] if len(shape) >= 2 else 0

    while sum(link.fit(lambda m: size(m, "outputs"), lambda m: size(m, "inputs")) for link in find_links(model, stack)):
        pass
