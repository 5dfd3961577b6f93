"""Growth of a network: creates new blocks and adds them to model, optimizers and followers."""

import math
from collections.abc import Callable
from typing import Protocol

from torch import nn

from gpf.network import growth, surgery
from gpf.network.blocks.arrangeable import check_arrangeable
from gpf.network.blocks.factory import new_blocks
from gpf.network.checkpoints.state import Network, capture, rearranged, restore
from gpf.network.compaction.links import check_follows
from gpf.network.followers import arrange
from gpf.network.optimizers import Optimizers, groups_like


class Growing(Network, Protocol):
    """The parts of a network that grows; `GrowPruneFreeze` has them."""

    make_block: Callable[[int], nn.Module]
    followers: list[nn.Module]

    def adopt(self, block: nn.Module) -> None:
        """Watch a block that is now the last of the stack."""


def has_room(net: Network) -> bool:
    """Whether any rule may add a layer, and the stack is not as deep as it may be."""
    return net.rules.grows and len(net.layers) < (net.rules.max_depth or math.inf)


def cost_ratio(net: Network) -> float:
    """The cost of a step relative to one after a growth, both counted in parameters."""
    now = sum(parameter.numel() for parameter in net.model.parameters())
    return now / (now + _count_new(net) * net.layers[-1].size)


def next_blocks(net: Growing, times: int = 1) -> list[nn.Module]:
    """The blocks to grow by, as often as that; nothing that is in use changes."""
    depth, count = len(net.layers), max(1, _count_new(net, times))
    arranged = _arrangement(net, count)
    after = arranged.index(depth) if depth in arranged else None
    check_arrangeable(net.model, net.stack, net.rules)  # removed units may have made blocks differ
    blocks = new_blocks(net.model, net.stack, net.make_block, net.rules.grow_init, net.distributed, count, after)
    if any(layer.removed_units for layer in net.layers):
        check_follows(net.model, net.stack, blocks[0])
    return blocks


def add_blocks(net: Growing, optimizers: Optimizers, blocks: list[nn.Module]) -> tuple[int, ...]:
    """Put new blocks into the stack, where the rules say; returns the places of new layers."""
    depth = len(net.layers)
    arranged = _arrangement(net, len(blocks))
    example = max(0, arranged.index(depth) - 1) if depth in arranged else depth - 1  # the block before them
    like, stored = net.layers[example].block, net.stored.get(example, {})
    groups = [groups_like(like, block, optimizers, stored) for block in blocks]
    if net.rules.grow_undoable or net.rules.grow_trial is not None:
        tensors, manifest = capture(net)
        net.before_growth = {name: tensor.detach().clone() for name, tensor in tensors.items()}, manifest
    for place, block in enumerate(blocks, depth):
        surgery.append_block(net.model, net.stack, block)
        prefix = surgery.block_path(net.model, net.stack, place)
        for name, parameter in block.named_parameters():
            if parameter.requires_grad:
                surgery.join(optimizers, parameter, groups[place - depth][name], prefix + name)
        net.adopt(block)
    for layer in net.layers:
        layer.forget_gradients()
    if arranged != list(range(len(net.layers))):
        prefixes = [surgery.block_path(net.model, net.stack, place) for place in range(len(net.layers))]
        restore(net, *rearranged(*capture(net), prefixes, arranged))
        for follower in net.followers:
            arrange(follower, net.stack, net.layers, arranged)
    return growth.new_places(arranged, depth)


def _count_new(net: Network, times: int = 1) -> int:
    return growth.count_new(len(net.layers), net.rules.grow_by, net.rules.max_depth, times)


def _arrangement(net: Network, count: int) -> list[int]:
    return growth.arrangement(len(net.layers), count, net.rules.grow_init, net.rules.grow_place)
