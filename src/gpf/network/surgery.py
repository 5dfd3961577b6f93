"""The functions that change a module or an optimizer in place; nothing else does, but `state.restore`, by way of these.

Each checks what it is about to do before it does it, so that an error leaves everything as it was.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network.layer import Layer, Weight

Stack = nn.Sequential | nn.ModuleList
Stored = dict[str, tuple[int, dict[str, Any]]]
"""The parameter group and the optimizer state of each parameter of a frozen layer, by its name in the block."""


def find_stack(model: nn.Module, path: str) -> Stack:
    """The container at a path of the model whose blocks are its layers."""
    try:
        stack = model.get_submodule(path)
    except AttributeError:
        raise ValueError(f"stack: {path!r} is not in {type(model).__name__}; accepted: a path to its blocks") from None
    if not isinstance(stack, nn.Sequential | nn.ModuleList) or len(stack) == 0:
        raise ValueError(
            f"stack: {path!r} is {type(stack).__name__} of {len(list(stack.children()))} modules;"
            " accepted: a Sequential or ModuleList of at least one block"
        )
    return stack


def append_block(model: nn.Module, path: str, block: nn.Module) -> None:
    """Add a block to the end of the stack."""
    stack = find_stack(model, path)
    stack.append(block)
    _announce_depth(model, path, len(stack) - 1, len(stack))


def block_path(model: nn.Module, path: str, place: int) -> str:
    """The path of a block of the stack, with a dot at its end: what its parameters' names begin with."""
    name = list(find_stack(model, path)._modules)[place]
    return f"{path}.{name}." if path else f"{name}."


def remove_last_block(model: nn.Module, path: str) -> None:
    """Take the last block out of the stack."""
    stack = find_stack(model, path)
    delattr(stack, list(stack._modules)[-1])  # `del stack[-1]` would rename the others
    _announce_depth(model, path, len(stack) + 1, len(stack))


def _announce_depth(model: nn.Module, path: str, old: int, new: int) -> None:
    """Some models write their depth down: torch's TransformerEncoder, and Hugging Face's configurations."""
    owner = model.get_submodule(path.rpartition(".")[0])
    for holder, name in ((owner, "num_layers"), (getattr(model, "config", None), "num_hidden_layers")):
        if getattr(holder, name, None) == old:
            setattr(holder, name, new)


def group_index(optimizer: Optimizer, parameter: Tensor) -> int | None:
    """The parameter group that a parameter is in."""
    for index, group in enumerate(optimizer.param_groups):
        if any(p is parameter for p in group["params"]):
            return index
    return None


def join(optimizer: Optimizer, parameter: nn.Parameter, group: int, name: str) -> None:
    """Put a parameter into a group, with the group's settings."""
    if group_index(optimizer, parameter) is not None:
        raise ValueError(f"optimizer: {name} is in it already; accepted: each parameter once")
    members = optimizer.param_groups[group]
    members["params"].append(parameter)
    if "param_names" in members:
        members["param_names"].append(name)
    _match_momentum(optimizer, members, parameter)


def _match_momentum(optimizer: Optimizer, group: dict[str, Any], parameter: nn.Parameter) -> None:
    """Give a new parameter the momentum of rest where torch's fused SGD cannot take one without any."""
    if not (isinstance(optimizer, torch.optim.SGD) and group.get("fused") and group["momentum"]):
        return
    if any(optimizer.state.get(p, {}).get("momentum_buffer") is not None for p in group["params"]):
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def leave(optimizer: Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
    """Take a parameter out of the optimizer; returns the state that it had there."""
    for group in optimizer.param_groups:
        for place, member in enumerate(group["params"]):
            if member is parameter:
                del group["params"][place]
                if "param_names" in group:
                    del group["param_names"][place]
                return dict(optimizer.state.pop(parameter, {}))
    return {}


def set_members(
    optimizer: Optimizer, group: int, parameters: Mapping[str, nn.Parameter], foreign: list[Tensor]
) -> None:
    """Let a group hold these parameters, by name, and the foreign ones, which are not the model's, after them."""
    members = optimizer.param_groups[group]
    if "param_names" in members:
        names = {id(p): name for name, p in zip(members["param_names"], members["params"], strict=True)}
        members["param_names"] = [*parameters, *(names[id(p)] for p in foreign)]
    members["params"] = [*parameters.values(), *foreign]


@torch.no_grad()
def prune(layer: Layer, weight: Weight, mask: Tensor, state: dict[str, Any]) -> int:
    """Prune the masked entries of a weight for good: value, gradient, moments. Returns how many are new."""
    new = mask if weight.pruned is None else mask & ~weight.pruned
    count = int(new.sum())
    if count == 0:
        return 0
    weight.pruned = mask if weight.pruned is None else weight.pruned | mask
    layer.mask_gradients()
    silence(weight, state)
    return count


@torch.no_grad()
def silence(weight: Weight, state: Mapping[str, Any]) -> None:
    """Set pruned entries to zero wherever they are kept."""
    if weight.keep is None:
        return
    for values in (weight.parameter, weight.parameter.grad, weight.previous, *state.values()):
        if isinstance(values, Tensor) and values.shape == weight.parameter.shape:
            values.mul_(weight.keep)  # far faster than masked_fill_


def freeze(layer: Layer, optimizer: Optimizer) -> Stored:
    """Stop a layer from learning; returns the group and the optimizer state of each of its parameters, by name."""
    stored: Stored = {}
    for name, parameter in layer.block.named_parameters():
        group = group_index(optimizer, parameter)
        if group is not None and parameter.requires_grad:
            stored[name] = (group, leave(optimizer, parameter))
            parameter.requires_grad_(False)
            parameter.grad = None
    layer.frozen = True
    return stored


def thaw(layer: Layer, optimizer: Optimizer, stored: Stored, prefix: str) -> None:
    """Let a frozen layer learn again, with the optimizer state that it had."""
    parameters = dict(layer.block.named_parameters())
    for name, (group, state) in stored.items():
        parameters[name].requires_grad_(True)
        join(optimizer, parameters[name], group, prefix + name)
        if state:
            optimizer.state[parameters[name]] = state
    for weight in layer.weights:
        silence(weight, optimizer.state.get(weight.parameter, {}))
    layer.frozen = False
    layer.still = 0
    layer.release_statistics()
