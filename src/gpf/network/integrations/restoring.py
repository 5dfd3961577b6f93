"""Checkpoints of frameworks: work to do before and after the framework itself loads weights and moments."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gpf.network import surgery
from gpf.network.blocks.factory import default_block, extend, gated_places
from gpf.network.checkpoints.saving import EXTRA, UNDO, CheckpointError, read
from gpf.network.checkpoints.state import capture, restore, unique_tensors
from gpf.network.controller import BlockFactory, GrowPruneFreeze, attach
from gpf.network.events import Event
from gpf.network.schedule import Schedule


def depth_of(state: Mapping[str, Any], stack: str) -> int:
    """The number of blocks that a model's state dict has at the path of a stack."""
    prefix = f"{stack}."
    return len({name.removeprefix(prefix).partition(".")[0] for name in state if name.startswith(prefix)})


def factory_of(model: nn.Module, stack: str, block: BlockFactory | None) -> BlockFactory | None:
    """The function that makes blocks: the one given, or `make_block` of the module that holds the stack."""
    if block is not None:
        return block
    surgery.find_stack(model, stack)  # says what is wrong with the path
    found: BlockFactory | None = getattr(model.get_submodule(stack.rpartition(".")[0]), "make_block", None)
    return found


def extend_to(
    model: nn.Module,
    stack: str,
    depth: int,
    block: BlockFactory | None,
    names: Iterable[str] = (),
    shorten: bool = False,
) -> None:
    """Bring a model that nothing is attached to yet to a checkpoint's depth; its weights are loaded afterwards.

    Args:
        model: The model.
        stack: Path to its blocks.
        depth: How many blocks were saved.
        block: Makes a block, if the user has said how.
        names: The names of the saved tensors, which tell what blocks are behind a gate.
        shorten: Whether the model is built with its final depth, which may exceed the saved one.
    """
    blocks = surgery.find_stack(model, stack)
    while shorten and len(blocks) > depth:
        surgery.remove_last_block(model, stack)
    if len(blocks) > depth:
        raise CheckpointError(f"the model must have at most {depth} blocks, as many as were saved, got {len(blocks)}")
    make = factory_of(model, stack, block) or default_block(model, stack)
    extend(model, stack, depth, make, gated_places(names, stack))


def checkpoint_state(net: GrowPruneFreeze) -> dict[str, Any]:
    """The state that a framework does not save itself: masks, beliefs, counters, events, and moments of frozen layers.

    Plain data and tensors, which are those in use, not copies.
    """
    tensors, manifest = capture(net)
    frozen = [f"/{surgery.block_path(net.model, net.stack, i)}" for i in net.frozen]
    kept = {
        name: tensor.detach()
        for name, tensor in tensors.items()
        if name.startswith("layer/") or (name.startswith("optimizer/") and any(prefix in name for prefix in frozen))
    }
    return {
        "stack": net.stack,
        "epoch": net.epoch,
        "schedule": dataclasses.asdict(net.schedule),
        "events": [event.to_json() for event in net.events],
        "tensors": kept,
        "manifest": manifest,
        "undo": net.before_growth,
    }


def restore_state(net: GrowPruneFreeze, state: Mapping[str, Any]) -> None:
    """Restore what `checkpoint_state` returned; weights and moments stay what the framework loaded."""
    manifest = state["manifest"]
    if state["stack"] != net.stack:
        raise CheckpointError(f"stack must be {state['stack']!r}, as in the checkpoint, got {net.stack!r}")
    if len(manifest["layers"]) != net.depth:
        raise CheckpointError(
            f"the model must have {len(manifest['layers'])} blocks, as many as saved, got {net.depth}"
        )
    current, _ = capture(net)
    restore(net, {name: tensor.detach().clone() for name, tensor in current.items()} | state["tensors"], manifest)
    net.epoch = state["epoch"]
    net.schedule = Schedule(**state["schedule"])
    net.events = [Event.from_json(event) for event in state["events"]]
    net.before_growth = state["undo"]


def restore_into(net: GrowPruneFreeze, folder: Path) -> None:
    """Restore a checkpoint of `net.save` into a network that is attached already; its rules stay."""
    tensors, manifest = read(folder)
    if manifest["optimizer"] is None:
        raise CheckpointError(f"checkpoint {folder}: it was saved without its optimizer")
    if manifest["stack"] != net.stack:
        raise CheckpointError(f"checkpoint {folder}: its stack is {manifest['stack']!r}, not {net.stack!r}")
    for name, tensor in unique_tensors(net.model).items():
        saved = tensors.get(f"model/{name}", tensor)  # a block that is missing there is taken out
        if saved.shape != tensor.shape:
            there, here = ("x".join(map(str, one.shape)) for one in (saved, tensor))
            raise CheckpointError(f"checkpoint {folder}: {name} is {there} there and {here} here")
    restore(net, {name: tensor for name, tensor in tensors.items() if not name.startswith((UNDO, EXTRA))}, manifest)
    net.epoch = manifest["epoch"]
    net.schedule = Schedule(**manifest["schedule"])
    net.events = [Event.from_json(event) for event in manifest["events"]]
    kept = {name.removeprefix(UNDO): tensor for name, tensor in tensors.items() if name.startswith(UNDO)}
    net.before_growth = (kept, manifest["undo"]) if "undo" in manifest else None


def hold_frozen(model: nn.Module, folder: Path, block: BlockFactory | None) -> list[nn.Parameter]:
    """Bring a model to a saved depth, its frozen layers without gradients; returns the parameters of those layers.

    An optimizer that is made next, of the parameters that learn, then has groups of the saved size.
    """
    tensors, manifest = read(folder)
    names = (name.removeprefix("model/") for name in tensors)
    shorten = manifest["rules"]["start_depth"] is not None
    extend_to(model, manifest["stack"], len(manifest["layers"]), block, names, shorten)
    blocks = surgery.find_stack(model, manifest["stack"])
    held = []
    for module, layer in zip(blocks, manifest["layers"], strict=True):
        for parameter in module.parameters() if layer["frozen"] else ():
            if parameter.requires_grad:
                parameter.requires_grad_(False)
                held.append(parameter)
    return held


def release_frozen(held: list[nn.Parameter], optimizer: Optimizer) -> None:
    """Let what `hold_frozen` held learn again, and put it into the optimizer, before a network is attached.

    Which group is unimportant: `restore_into` takes the parameters out again, or finds their group by name.
    """
    group = optimizer.param_groups[0]
    for parameter in held:
        parameter.requires_grad_(True)
        group["params"].append(parameter)
        if "param_names" in group:
            group["param_names"].append(f"held.{len(group['params'])}")


def attached_again(
    net: GrowPruneFreeze, optimizers: Sequence[Optimizer], depth: int | None = None, names: Iterable[str] = ()
) -> GrowPruneFreeze:
    """A new network around the same model, of another depth or with other optimizers, and without a frozen layer.

    Masks, beliefs and counters are those of a new network, until a checkpoint is restored into it.
    """
    model, stack = net.model, net.stack
    held = [dict(net.layers[i].block.named_parameters())[name] for i, names in net.stored.items() for name in names]
    net.detach()
    for parameter in held:
        parameter.requires_grad_(True)
    if depth is not None:
        while len(surgery.find_stack(model, stack)) > depth:
            surgery.remove_last_block(model, stack)
        extend_to(model, stack, depth, net.make_block, names)
    ours = {id(parameter) for parameter in model.parameters()}
    members = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            gone = [i for i, parameter in enumerate(group["params"]) if id(parameter) not in ours]
            for i in reversed(gone):
                optimizer.state.pop(group["params"].pop(i), None)
                if "param_names" in group:
                    del group["param_names"][i]
            members |= {id(parameter) for parameter in group["params"]}
    blocks = surgery.find_stack(model, stack)
    release_frozen([p for p in blocks.parameters() if p.requires_grad and id(p) not in members], optimizers[0])
    rules = dataclasses.replace(net.rules, start_depth=None)
    return attach(model, optimizers, stack, net.make_block, rules, net.prunable, net.schedule.steps)
