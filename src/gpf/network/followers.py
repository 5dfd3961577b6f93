"""Copies of a model that follow its changes of structure, such as averages of its weights."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from gpf.network import surgery
from gpf.network.hooks import remove_hooks
from gpf.network.layer import Layer


def check_follower(model: nn.Module, follower: nn.Module) -> nn.Module:
    """The copy inside a wrapper such as AveragedModel; refuses one of another structure."""
    inner = getattr(follower, "module", follower)
    if not isinstance(inner, nn.Module):
        raise ValueError(f"follow needs a copy of the model, got {follower!r}")
    ours = {name: p.shape for name, p in model.named_parameters()}
    theirs = {name: p.shape for name, p in inner.named_parameters()}
    if ours != theirs:
        differing = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
        raise ValueError(f"follow needs a copy of the model, got one that differs in {differing}")
    if inner is model:
        raise ValueError("follow needs a copy of the model, got the model itself")
    return inner


@torch.no_grad()
def bring_in_line(follower: nn.Module, model: nn.Module, path: str, layers: list[Layer]) -> None:
    """Give a copy the depth and the masks of its model: new blocks start as copies, pruned weights are zero."""
    while len(surgery.find_stack(follower, path)) > len(layers):
        surgery.remove_last_block(follower, path)
    while (depth := len(surgery.find_stack(follower, path))) < len(layers):
        block = copy.deepcopy(layers[depth].block)
        remove_hooks(block)
        surgery.append_block(follower, path, block)
    for block, layer in zip(surgery.find_stack(follower, path), layers, strict=True):
        for weight in layer.masked:
            values = block.get_parameter(weight.name)
            values.mul_(weight.keep.to(values.dtype))  # type: ignore[union-attr]


@torch.no_grad()
def arrange(follower: nn.Module, path: str, layers: list[Layer], arranged: Sequence[int]) -> None:
    """Give a copy the arrangement of blocks that its model has after a growth.

    Args:
        follower: The copy, as deep as the model was before.
        path: Path to its stack.
        layers: The layers of the model.
        arranged: For each place, where its block comes from, as `growth.arrangement` has it.
    """
    old = [copy.deepcopy(block.state_dict()) for block in surgery.find_stack(follower, path)]
    while len(surgery.find_stack(follower, path)) < len(layers):
        block = copy.deepcopy(layers[-1].block)
        remove_hooks(block)
        surgery.append_block(follower, path, block)
    for block, layer, source in zip(surgery.find_stack(follower, path), layers, arranged, strict=True):
        block.load_state_dict(old[source] if source < len(old) else layer.block.state_dict())


@torch.no_grad()
def take_out(follower: nn.Module, path: str, places: Sequence[int]) -> None:
    """Take the blocks at some places out of a copy; the others keep their order."""
    blocks = list(surgery.find_stack(follower, path))
    kept = [copy.deepcopy(block.state_dict()) for place, block in enumerate(blocks) if place not in places]
    for _ in range(len(blocks) - len(kept)):
        surgery.remove_last_block(follower, path)
    for block, state in zip(surgery.find_stack(follower, path), kept, strict=True):
        block.load_state_dict(state)
