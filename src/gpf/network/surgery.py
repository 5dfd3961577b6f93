"""The only functions that change a module or an optimizer in place; `state.restore` uses them, too.

Each checks its change before it applies it; an error leaves everything unchanged.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import sharding
from gpf.network.blocks.depth import record_depth
from gpf.network.compaction.cuts import Cut, Cuts
from gpf.network.hooks import carry_hooks
from gpf.network.layer import Layer, Weight
from gpf.network.moments import only_divides
from gpf.network.optimizers import Optimizers

Stack = nn.Sequential | nn.ModuleList
Stored = dict[str, tuple[int, dict[str, Any]]]
"""The parameter group and the optimizer state of each parameter of a frozen layer, by its name in the block."""


def find_stack(model: nn.Module, path: str) -> Stack:
    """The container at a path of the model whose blocks are its layers."""
    try:
        stack = model.get_submodule(path)
    except AttributeError:
        raise ValueError(f"stack must be a path to the blocks of {type(model).__name__}, got {path!r}") from None
    if not isinstance(stack, nn.Sequential | nn.ModuleList) or len(stack) == 0:
        raise ValueError(
            "stack must be a path to a Sequential or ModuleList of at least one block, got"
            f" {path!r}, a {type(stack).__name__} of {len(list(stack.children()))} modules"
        )
    return stack


def append_block(model: nn.Module, path: str, block: nn.Module) -> None:
    """Add a block to the end of the stack."""
    stack = find_stack(model, path)
    stack.append(block)
    record_depth(model, path, len(stack) - 1, len(stack))
    sharding.renew_root(model)


def block_path(model: nn.Module, path: str, place: int) -> str:
    """The path of a block of the stack, with a dot at its end: the prefix of its parameters' names."""
    name = list(find_stack(model, path)._modules)[place]
    return f"{path}.{name}." if path else f"{name}."


def remove_last_block(model: nn.Module, path: str) -> None:
    """Take the last block out of the stack."""
    stack = find_stack(model, path)
    delattr(stack, list(stack._modules)[-1])  # `del stack[-1]` would rename the others
    record_depth(model, path, len(stack) + 1, len(stack))
    sharding.renew_root(model)


def shorten(model: nn.Module, path: str, depth: int, optimizers: Optimizers) -> None:
    """Take the last blocks out of a stack and of its optimizers until this many are left."""
    before = list(model.parameters())
    while len(find_stack(model, path)) > depth:
        remove_last_block(model, path)
    left = {id(parameter) for parameter in model.parameters()}  # some may be shared with what stays
    for parameter in before:
        if id(parameter) not in left:
            leave(optimizers, parameter)
            optimizers.forget(parameter)


def join(optimizers: Optimizers, parameter: nn.Parameter, group: int, name: str) -> None:
    """Put a parameter into a group, with the group's settings: where it was before, or at the end."""
    if optimizers.find(parameter)[0] is not None:
        raise ValueError(f"optimizer must have each parameter once, got {name} for a second time")
    optimizers.insert(parameter, group, name)
    _match_momentum(optimizers.owner(group), optimizers.groups[group], parameter)


def _match_momentum(optimizer: Optimizer, group: dict[str, Any], parameter: nn.Parameter) -> None:
    """Give a new parameter the momentum of rest where torch's fused SGD cannot take one without any."""
    if not (isinstance(optimizer, torch.optim.SGD) and group.get("fused") and group["momentum"]):
        return
    if any(optimizer.state.get(p, {}).get("momentum_buffer") is not None for p in group["params"]):
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def leave(optimizers: Optimizers, parameter: nn.Parameter) -> dict[str, Any]:
    """Take a parameter out of its optimizer; returns the state that it had there."""
    for group in optimizers.groups:
        for place, member in enumerate(group["params"]):
            if member is parameter:
                del group["params"][place]
                if "param_names" in group:
                    del group["param_names"][place]
                return optimizers.pop_state(parameter)
    return {}


def set_members(
    optimizers: Optimizers, group: int, parameters: Mapping[str, nn.Parameter], foreign: list[Tensor]
) -> None:
    """Let a group hold these parameters, by name, and the foreign ones, which are not the model's, after them."""
    members = optimizers.groups[group]
    if "param_names" in members:
        names = {id(p): name for name, p in zip(members["param_names"], members["params"], strict=True)}
        members["param_names"] = [*parameters, *(names[id(p)] for p in foreign)]
    members["params"] = [*parameters.values(), *foreign]


@torch.no_grad()
def prune(layer: Layer, weight: Weight, mask: Tensor, optimizers: Optimizers | None = None) -> int:
    """Prune the masked entries of a weight for good: value, gradient, moments. Returns how many are new."""
    new = mask if weight.pruned is None else mask & ~weight.pruned
    (count,) = sharding.total([int(torch.count_nonzero(new))], weight.parameter)
    if count == 0:
        return 0
    weight.pruned = mask if weight.pruned is None else weight.pruned | mask
    layer.update_mask(weight)
    silence(weight, optimizers)
    return count


@torch.no_grad()
def silence(weight: Weight, optimizers: Optimizers | None) -> None:
    """Set pruned entries to zero wherever they are kept."""
    if weight.keep is None or weight.pruned is None:
        return
    holder = None if optimizers is None else optimizers.holder(weight.parameter)
    state = {} if holder is None else holder.state[weight.parameter]
    kept = {"value": weight.values, "gradient": weight.parameter.grad, "previous": weight.previous, **state}
    for name, values in kept.items():
        if isinstance(values, Tensor) and (shard := sharding.local(values)).shape == weight.keep.shape:
            keep = weight.keep.to(shard.device, shard.dtype)  # the model may have been cast since
            if only_divides(holder, name):
                one = torch.ones((), dtype=shard.dtype, device=shard.device)
                torch.lerp(one.expand_as(shard), shard, keep, out=shard)  # exact at weights of 0 and 1
            else:
                shard.mul_(keep)  # far faster than masked_fill_


@torch.no_grad()
def regrow(layer: Layer, weight: Weight, mask: Tensor, optimizers: Optimizers) -> None:
    """Let the masked entries of a weight, which are pruned, learn again: from zero, without belief or moments."""
    holder = optimizers.holder(weight.parameter)
    state = {} if holder is None else holder.state[weight.parameter]
    for values in (weight.values, weight.belief, *state.values()):
        if isinstance(values, Tensor) and values.shape == mask.shape:
            values.masked_fill_(mask, 0)
    left = None if weight.pruned is None else weight.pruned & ~mask
    weight.pruned = left if left is not None and bool(left.any()) else None
    layer.update_mask(weight)


def replace_cut(optimizers: Optimizers, cut: Cut, stored: dict[str, Any] | None = None) -> None:
    """Let what is left of a parameter stand where it stood, with what is left of its gradient and optimizer state.

    Args:
        optimizers: The optimizers.
        cut: The old parameter and the new one.
        stored: The parameter's state, if its layer is frozen.
    """
    old, new = cut.old, cut.new
    assert isinstance(old, nn.Parameter) and isinstance(new, nn.Parameter)  # noqa: PT018 - only these are trained
    optimizers.replace(old, new)
    holder = optimizers.holder(new)
    for state in ({} if holder is None else holder.state[new], stored or {}):
        for name, values in state.items():
            if isinstance(values, Tensor) and values.dim() and cut.fits(values):
                state[name] = cut.of(values)
    if old.grad is not None:
        new.grad = cut.of(old.grad)
    vars(new).update(vars(old))
    carry_hooks(old, new)


def follow_cuts(layer: Layer, cuts: Cuts) -> None:
    """Let all that is kept of a layer's weights follow the cuts."""
    for weight in layer.weights:
        owner, _, name = weight.name.rpartition(".")
        place = id(layer.block.get_submodule(owner)), name
        if place not in cuts.made:
            continue
        cut = cuts.made[place]
        if weight is layer.weights[-1] and layer.activation is not None:
            column = layer.activation.view(-1, *[1] * (cut.old.dim() - 1))  # (units, 1, ...)
            layer.activation = cut.of(weight.by_unit(column)).flatten()
        layer.removed_weights += cut.old.numel() - cut.new.numel()
        weight.follow(cut, cuts.pruned.get(place))
        layer.update_mask(weight)


def freeze(layer: Layer, optimizers: Optimizers) -> Stored:
    """Stop a layer from learning; returns the group and the optimizer state of each of its parameters, by name."""
    stored: Stored = {}
    for name, parameter in layer.block.named_parameters():
        group = optimizers.find(parameter)[0]
        if group is not None and parameter.requires_grad:
            stored[name] = (group, leave(optimizers, parameter))
            parameter.requires_grad_(False)
            parameter.grad = None
    layer.frozen = True
    return stored


def thaw(layer: Layer, optimizers: Optimizers, stored: Stored, prefix: str) -> None:
    """Let a frozen layer learn again, with the optimizer state that it had."""
    parameters = dict(layer.block.named_parameters())
    for name, (group, state) in stored.items():
        parameters[name].requires_grad_(True)
        join(optimizers, parameters[name], group, prefix + name)
        if state:
            optimizers.set_state(parameters[name], state)
    for weight in layer.weights:
        silence(weight, optimizers)
    layer.frozen = False
    layer.still = 0
    layer.release_statistics()
