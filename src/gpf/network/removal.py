"""Removes pruned units during training: model, optimizers, masks, statistics and copies shrink together."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from gpf.network import surgery
from gpf.network.compaction.cuts import Cuts, Place
from gpf.network.compaction.links import find_links
from gpf.network.compaction.shrinking import Pass, repeat, shrink
from gpf.network.layer import Layer
from gpf.network.optimizers import Optimizers


def can_remove_units(model: nn.Module, stack: str, layers: Sequence[Layer]) -> bool:
    """Whether pruning has cut off any unit that can be removed."""
    cuts = Cuts(_masks(model, stack, layers))
    return any(link.going(cuts).count for link in find_links(model, stack))


@torch.no_grad()
def remove_units(
    model: nn.Module,
    stack: str,
    layers: Sequence[Layer],
    optimizers: Optimizers,
    stored: Mapping[int, surgery.Stored],
    followers: Sequence[nn.Module],
) -> list[int]:
    """Remove all units that pruning has cut off; returns how many of each layer.

    A weight counts as pruned by its mask: the zeros of a new layer are not cut off.

    Args:
        model: The model.
        stack: Path to its stack.
        layers: The state of each layer.
        optimizers: Those that train it.
        stored: The optimizer state of frozen layers.
        followers: Copies of the model, from which the same units go.
    """
    masks = [_masks(one, stack, layers) for one in [model, *followers]]
    cuts = Cuts(masks[0])
    passes = shrink(model, stack, cuts)
    for follower, mask in zip(followers, masks[1:], strict=True):
        repeat(passes, follower, stack, Cuts(mask))
    places = {(id(module), name): path for path, module, name in _places(model)}
    states = {
        surgery.block_path(model, stack, i) + name: state
        for i, parameters in stored.items()
        for name, (_, state) in parameters.items()
    }
    for place, cut in cuts.made.items():
        if isinstance(cut.old, nn.Parameter):
            surgery.replace_cut(optimizers, cut, states.get(places[place]))
    counts = _count(passes, layers)
    for layer, count in zip(layers, counts, strict=True):
        surgery.follow_cuts(layer, cuts)
        layer.removed_units += count
    return counts


def _masks(model: nn.Module, stack: str, layers: Sequence[Layer]) -> dict[Place, Tensor]:
    """The masks of all pruned weights, by their place in a model or in a copy of it."""
    masks = {}
    for block, layer in zip(surgery.find_stack(model, stack), layers, strict=True):
        for weight in layer.weights:
            if weight.pruned is not None:
                owner, _, name = weight.name.rpartition(".")
                masks[id(block.get_submodule(owner)), name] = weight.pruned
    return masks


def _places(model: nn.Module) -> list[tuple[str, nn.Module, str]]:
    return [
        (f"{path}.{name}" if path else name, module, name)
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    ]


def _count(passes: Sequence[Pass], layers: Sequence[Layer]) -> list[int]:
    """How many units went of each layer: that of the map which makes them."""
    owners = {id(module): i for i, layer in enumerate(layers) for module in layer.block.modules()}
    counts = [0] * len(layers)
    for taken in passes:
        for link, going in taken:
            counts[owners[id(link.producers[-1].module)]] += going.count
    return counts
