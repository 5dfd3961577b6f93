"""A live network takes over the merged one, and is read out again; optimizer moments never leave it."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from gpf.federated.merging import Network, identity_array
from gpf.network import GrowPruneFreeze, surgery
from gpf.network.layer import Layer, Weight

REASON = "the merged network has it"


@torch.no_grad()
def extract(net: GrowPruneFreeze) -> Network:
    """A copy of a live network as named arrays, with its structure."""
    arrays = {name: p.detach().cpu().numpy().copy() for name, p in net.model.named_parameters()}
    masks = {
        name: (~weight.pruned).cpu().numpy().copy()
        for _, _, weight, name in _weights(net)
        if weight.pruned is not None and bool(weight.pruned.any())
    }
    return Network(arrays, net.depth, masks, frozenset(net.frozen), net.stack)


@torch.no_grad()
def adopt(net: GrowPruneFreeze, merged: Network, before: Network | None = None) -> None:
    """Replace a live network by the merged one; its own layers, masks and freezes stay, as votes in the next round.

    Layers that are new to it enter as the identity, join the optimizer, and then take the merged values. A layer that
    only this network has becomes the identity again, which leaves the merged function unchanged. Weights that only
    this network has pruned stay pruned, and layers that only it froze stay frozen, at the merged values. Moments of the
    optimizer are kept.

    Args:
        net: The live network.
        merged: The network that the server sent.
        before: The one that it sent in the round before; layers that are no longer frozen learn again.
    """
    for layer in sorted((before.frozen if before else frozenset()) - merged.frozen):
        if layer in net.frozen:
            net.thaw(layer, "the merged network has it thawed")
    while net.depth < merged.depth:
        net.grow(REASON)
    optimizers = net.optimizers
    assert optimizers is not None  # it learns
    parameters = dict(net.model.named_parameters())
    for name, parameter in parameters.items():
        array = merged.arrays.get(name)
        if array is None:
            own_layer = net.layers[_place(merged, name)]
            array = identity_array(parameter.numpy())
            _forget_moments(net, parameter)
            _unprune(own_layer)
        parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))
    for _, holder, weight, name in _weights(net):
        if name in merged.masks:
            surgery.prune(holder, weight, torch.from_numpy(~merged.masks[name]), optimizers)
        surgery.silence(weight, optimizers)
    for layer in sorted(merged.frozen):
        if layer not in net.frozen:
            net.freeze(layer, "the merged network has it frozen")


def _weights(net: GrowPruneFreeze) -> Iterator[tuple[int, Layer, Weight, str]]:
    """Every weight of the stack that can be pruned, with its layer and its name in the model."""
    for place, layer in enumerate(net.layers):
        prefix = surgery.block_path(net.model, net.stack, place)
        for weight in layer.weights:
            yield place, layer, weight, prefix + weight.name


def _place(merged: Network, name: str) -> int:
    place = merged.layer_of(name)
    if place is None or place < merged.depth:
        raise ValueError(f"the merged network must have {name!r}, as the model has")
    return place


def _forget_moments(net: GrowPruneFreeze, parameter: Tensor) -> None:
    """Reset the optimizer's state of a parameter; in place, because compiled code shares this memory."""
    for optimizer in net.optimizers or ():
        for value in optimizer.state.get(parameter, {}).values():
            if isinstance(value, Tensor):
                value.zero_()


def _unprune(layer: Layer) -> None:
    for weight in layer.weights:
        weight.pruned = None
    layer.update_masks()
