"""The whole state of a network, its optimizer and its counters, as named tensors and plain data.

Undoing a growth and checkpoints both use it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gpf.network import sharding, surgery
from gpf.network.events import Event
from gpf.network.growth import Plateau
from gpf.network.layer import Layer
from gpf.network.masking import Masking
from gpf.network.optimizers import Optimizers
from gpf.network.rules import Rules
from gpf.network.schedule import Schedule

_OF_WEIGHT = ("belief", "pruned", "previous", "squares", "dense")


class Network(Protocol):
    """The state of a network; `GrowPruneFreeze` has it."""

    model: nn.Module
    stack: str
    optimizers: Optimizers | None
    masking: Masking
    rules: Rules
    distributed: bool
    epoch: int
    schedule: Schedule
    events: list[Event]
    layers: list[Layer]
    stored: dict[int, surgery.Stored]
    """The optimizer state of frozen layers."""
    plateau: Plateau
    prunes_due: list[int]
    before_growth: tuple[dict[str, Tensor], dict[str, Any]] | None
    """A captured state, to which `undo` goes back."""

    def extend(self) -> None:
        """Put a block of whatever weights at the end of the stack."""


def capture(net: Network) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The current state; the tensors are those in use, not copies."""
    tensors = {f"model/{name}": tensor for name, tensor in unique_tensors(net.model).items()}
    layers = []
    for i, layer in enumerate(net.layers):
        for weight in layer.weights:
            for kind in _OF_WEIGHT:
                if (values := getattr(weight, kind)) is not None:
                    tensors[f"layer/{i}/{kind}/{weight.name}"] = sharding.as_shard_of(values, weight.parameter)
        if layer.activation is not None and layer.activations:
            tensors[f"layer/{i}/activation"] = layer.activation
        layers.append(
            {
                "frozen": layer.frozen,
                "still": layer.still,
                "gradients": layer.gradients,
                "activations": layer.activations,
                "removed_units": layer.removed_units,
                "removed_weights": layer.removed_weights,
            }
        )
    manifest: dict[str, Any] = {
        "plateau": dataclasses.asdict(net.plateau),
        "trainable": [name for name, parameter in net.model.named_parameters() if parameter.requires_grad],
        "prunes_due": list(net.prunes_due),
        "layers": layers,
        "optimizer": None if net.optimizers is None else _capture_optimizers(net, net.optimizers, tensors),
    }
    return tensors, manifest


def _capture_optimizers(net: Network, optimizers: Optimizers, tensors: dict[str, Tensor]) -> dict[str, Any]:
    names = {id(parameter): name for name, parameter in net.model.named_parameters()}
    states = {names[id(p)]: state for p, state in optimizers.states() if id(p) in names}
    stored = {}
    for i, parameters in net.stored.items():
        prefix = surgery.block_path(net.model, net.stack, i)
        for name, (group, state) in parameters.items():
            states[prefix + name] = state
            stored[prefix + name] = group
    scalars: dict[str, dict[str, Any]] = {}
    for name, state in states.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{name}/{key}"] = value
            else:
                scalars.setdefault(name, {})[key] = value
    ranks = {name: optimizers.rank_of(parameter) for name, parameter in net.model.named_parameters()}
    members = [[names[id(p)] for p in group["params"] if id(p) in names] for group in optimizers.groups]
    for name in sorted(stored, key=ranks.__getitem__):  # where they stood before they were frozen
        column = members[stored[name]]
        column.insert(sum(ranks[other] <= ranks[name] for other in column), name)
    return {
        "members": members,
        "stored": stored,
        "scalars": scalars,
    }


@torch.no_grad()
def restore(net: Network, tensors: dict[str, Tensor], manifest: dict[str, Any]) -> None:
    """Go back to a captured state; blocks that it does not have are taken out of the stack, those that it has made."""
    _check_sizes(net.model, tensors)
    while len(net.layers) < len(manifest["layers"]):
        net.extend()
    while len(net.layers) > len(manifest["layers"]):
        for parameter in net.layers[-1].parameters():
            if net.optimizers is not None:
                surgery.leave(net.optimizers, parameter)
                net.optimizers.forget(parameter)
        net.layers.pop().unwatch()
        surgery.remove_last_block(net.model, net.stack)
    for name, tensor in unique_tensors(net.model).items():
        sharding.local(tensor).copy_(sharding.share_of(tensors[f"model/{name}"], tensor))
        tensor.grad = None
    for i, (layer, values) in enumerate(zip(net.layers, manifest["layers"], strict=True)):
        layer.frozen, layer.still = values["frozen"], values["still"]
        layer.gradients = values["gradients"]
        layer.removed_units, layer.removed_weights = values["removed_units"], values["removed_weights"]
        layer.forget_activations()
        gathered = tensors.get(f"layer/{i}/activation")
        if gathered is not None and layer.activation is not None and layer.activation_count is not None:
            layer.activation.copy_(gathered)
            layer.activation_count.fill_(values["activations"])
        if not layer.frozen:
            layer.release_statistics()
        for weight in layer.weights:
            device = weight.parameter.device
            for kind in _OF_WEIGHT:
                saved = tensors.get(f"layer/{i}/{kind}/{weight.name}")
                share = None if saved is None else sharding.share_of(saved, weight.parameter)
                setattr(weight, kind, _copy_of(share, device))
        layer.update_masks()
    net.plateau = Plateau(**{**manifest["plateau"], "window": list(manifest["plateau"]["window"])})
    net.prunes_due = list(manifest["prunes_due"])
    net.stored = {}
    if net.optimizers is not None:
        _restore_optimizers(net, net.optimizers, tensors, manifest["optimizer"])
    for name, parameter in net.model.named_parameters():
        parameter.requires_grad_(name in manifest["trainable"])
    net.masking.structure_changed()
    sharding.renew_root(net.model)


def _restore_optimizers(
    net: Network, optimizers: Optimizers, tensors: dict[str, Tensor], manifest: dict[str, Any]
) -> None:
    parameters = dict(net.model.named_parameters())
    ours = {id(parameter) for parameter in parameters.values()}
    states: dict[str, dict[str, Any]] = {name: dict(values) for name, values in manifest["scalars"].items()}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimizer":
            owner, _, key = rest.rpartition("/")
            like = parameters[owner]
            if tensor.shape == like.shape:
                share = sharding.share_of(tensor, like).to(like.device, copy=True)
                values = sharding.as_shard_of(share, like)
            else:
                values = tensor.clone()
            states.setdefault(owner, {})[key] = values
    for parameter in parameters.values():
        optimizers.pop_state(parameter)
    for index, members in enumerate(manifest["members"]):
        foreign = [p for p in optimizers.groups[index]["params"] if id(p) not in ours]
        optimizers.rank(parameters[name] for name in members)
        learning = [name for name in members if name not in manifest["stored"]]
        surgery.set_members(optimizers, index, {name: parameters[name] for name in learning}, foreign)
        for name in learning:
            if name in states:
                optimizers.set_state(parameters[name], states[name])
    for i, layer in enumerate(net.layers):
        if layer.frozen:
            prefix = surgery.block_path(net.model, net.stack, i)
            net.stored[i] = {
                name.removeprefix(prefix): (group, states.get(name, {}))
                for name, group in manifest["stored"].items()
                if name.startswith(prefix)
            }


def rearranged(
    tensors: Mapping[str, Tensor], manifest: dict[str, Any], prefixes: Sequence[str], arranged: Sequence[int]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A captured state with the layers of the stack in another arrangement, some of them copied; tensors are copies.

    A second copy of a layer has its weights and its optimizer state, and learns. Nothing of it is believed in, pruned
    or frozen.

    Args:
        tensors: Captured tensors.
        manifest: Everything else that was captured.
        prefixes: What the names of the parameters of each layer begin with.
        arranged: Where the layer at each place comes from.
    """
    first = {source: place for place, source in reversed(list(enumerate(arranged)))}
    copies = [(place, source) for place, source in enumerate(arranged) if first[source] != place]

    def renamed(name: str) -> list[str]:
        """The names of what has this name, after it was moved and copied; none if its layer has no place."""
        for source, prefix in enumerate(prefixes):
            if name.startswith(prefix):
                places = [place for place, of in enumerate(arranged) if of == source]
                return [prefixes[place] + name.removeprefix(prefix) for place in places]
        return [name]

    moved: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind != "layer":
            moved |= {f"{kind}/{new}": tensor.detach().clone() for new in renamed(rest)}
            continue
        source, _, what = rest.partition("/")
        if int(source) in first:
            moved[f"layer/{first[int(source)]}/{what}"] = tensor.detach().clone()
        if what.startswith(("belief/", "squares/", "dense/")):
            moved |= {f"layer/{place}/{what}": torch.zeros_like(tensor) for place, of in copies if of == int(source)}
    new_layer = {
        "frozen": False, "still": 0, "gradients": 0, "activations": 0, "removed_units": 0, "removed_weights": 0,
    }  # fmt: skip
    layers = [
        manifest["layers"][source] if first[source] == place else new_layer for place, source in enumerate(arranged)
    ]
    optimizer = manifest["optimizer"]
    members = [[new for name in group for new in renamed(name)] for group in optimizer["members"]]
    stored = {renamed(name)[0]: group for name, group in optimizer["stored"].items()}  # a copy of a frozen layer learns
    learning = {name for group in members for name in group if name not in stored}
    trainable = {new for name in manifest["trainable"] for new in renamed(name)}
    return moved, {
        **manifest,
        "layers": layers,
        "trainable": sorted(trainable | learning),
        "optimizer": {
            "members": members,
            "stored": stored,
            "scalars": {new: dict(of) for name, of in optimizer["scalars"].items() for new in renamed(name)},
        },
    }


def _check_sizes(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a state from before units were removed."""
    for name, tensor in unique_tensors(model).items():
        saved = tensors.get(f"model/{name}")
        if saved is not None and saved.shape != tensor.shape:
            raise ValueError(f"units were removed since this state was captured: {name} has another shape now")


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name, each tensor once though the model may use it in several places."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in seen:
            seen.add(id(tensor))
            unique[name] = tensor
    return unique


def _copy_of(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device, copy=True)
