"""Loads checkpoints: everything is verified against the model before anything is restored."""

import reprlib
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import sharding, surgery
from gpf.network.blocks.factory import default_block, extend, gated_places
from gpf.network.checkpoints import random_state, schedulers
from gpf.network.checkpoints.saving import EXTRA, UNDO, CheckpointError, read
from gpf.network.checkpoints.state import restore, unique_tensors
from gpf.network.compaction.shrinking import fit
from gpf.network.controller import BlockFactory, GrowPruneFreeze
from gpf.network.events import Event
from gpf.network.prunable import Prunable, named_weights
from gpf.network.rules import Rules
from gpf.network.schedule import Schedule

OptimizerFactory = Callable[[Iterable[dict[str, Any]]], Optimizer]


def load(
    folder: str | Path,
    build: Callable[[], nn.Module],
    block: BlockFactory | None = None,
    optimizer: OptimizerFactory | Sequence[OptimizerFactory | None] | None = None,
    restore_random: bool = True,
    distributed: bool = False,
    prunable: Prunable | None = None,
    scheduler: schedulers.SchedulerFactory | Sequence[schedulers.SchedulerFactory] | None = None,
) -> GrowPruneFreeze:
    """Read a checkpoint; training continues from it as if it had never stopped.

    Args:
        folder: Where `save` wrote it.
        build: Makes the model as it was before it grew, and shards it if it is to be sharded (`fully_shard`).
        block: Makes a new block, given its place in the stack; as for `attach` if not given.
        optimizer: Makes the optimizer from parameter groups; needed only for one that is not of torch.optim. Where
            several were saved, a list with a function, or None, for each.
        restore_random: Also set the random state of torch, NumPy and Python to what it was.
        distributed: Whether the model will be put into DistributedDataParallel; all processes then decide alike.
        prunable: The same choice of weights as was given to `attach`, if any.
        scheduler: Makes the learning-rate scheduler that was saved, given the optimizer, or a list of such functions;
            they come back, in the state that they had, as `net.schedulers`.

    Returns:
        The network, with its `model` and, if one was saved, its `optimizer`.

    Raises:
        CheckpointError: It is damaged, or does not fit the model; the random state is then what it was before.
    """
    before = random_state.decode(random_state.capture())
    try:
        tensors, manifest = read(Path(folder))
        after = _random_state(manifest["random"])
        rules = _rules(manifest["rules"])
        model = build()
        make_block = _resize(model, block or getattr(model, "make_block", None), tensors, manifest)
        _check_fit(model, tensors, manifest, prunable)
        made = None if manifest["optimizer"] is None else _make_optimizers(model, manifest["optimizer"], optimizer)
        net = _assemble(model, made, make_block, rules, tensors, manifest, distributed, prunable)
        net.schedulers = _make_schedulers(scheduler, manifest["schedulers"], made)
    except CheckpointError as error:
        before.restore()
        raise CheckpointError(f"checkpoint {folder}: {error}") from None
    except BaseException:  # of build, block or optimizer
        before.restore()
        raise
    if restore_random:
        after.restore()
    return net


def _random_state(plain: dict[str, Any]) -> random_state.RandomState:
    try:
        return random_state.decode(plain)
    except ValueError as error:
        raise CheckpointError(f"random must be a state of torch, NumPy and Python ({error})") from None


def _rules(values: dict[str, Any]) -> Rules:
    try:
        return Rules(**values)
    except ValueError as error:
        raise CheckpointError(f"rules: {error}") from None


def _resize(
    model: nn.Module, make_block: BlockFactory | None, tensors: dict[str, Tensor], manifest: dict[str, Any]
) -> BlockFactory:
    """Bring the stack of a new model to a checkpoint's depth and sizes; returns what made the blocks."""
    path, depth = manifest["stack"], len(manifest["layers"])
    try:
        stack = surgery.find_stack(model, path)
    except ValueError as error:
        raise CheckpointError(f"it does not fit the model: {error}") from None
    if manifest["rules"]["start_depth"] is not None:
        while len(stack) > depth:  # the model is built as deep as it is to become
            surgery.remove_last_block(model, path)
    if len(stack) > depth:
        raise CheckpointError(f"build() must make at most {depth} layers, as many as were saved, got {len(stack)}")
    make_block = make_block or default_block(model, path)
    extend(model, path, depth, make_block, gated_places((name.removeprefix("model/") for name in tensors), path))
    if any(layer["removed_units"] for layer in manifest["layers"]) and not sharding.is_sharded(model):
        shapes = {name.removeprefix("model/"): t.shape for name, t in tensors.items() if name.startswith("model/")}
        fit(model, path, shapes)
    return make_block


def _check_fit(
    model: nn.Module, tensors: dict[str, Tensor], manifest: dict[str, Any], prunable: Prunable | None
) -> None:
    """Refuse what belongs neither to the model nor to the rest of the checkpoint."""
    described, undo = manifest["optimizer"], manifest.get("undo")
    groups = 0 if described is None else sum(len(one["groups"]) for one in described["each"])
    if described is not None and not 0 < groups == len(described["members"]):
        raise CheckpointError(f"optimizer.members must be a list for each of its {groups} groups")
    now = {name: tensor for name, tensor in tensors.items() if not name.startswith((UNDO, EXTRA))}
    kept = {name.removeprefix(UNDO): tensor for name, tensor in tensors.items() if name.startswith(UNDO)}
    _check_state(model, manifest["stack"], groups, now, manifest)
    _check_weights(model, manifest["stack"], now, prunable)
    if (undo is None) != (not kept):
        raise CheckpointError(f"undo is missing in {'the manifest' if undo is None else 'the tensors'}")
    if undo is not None:
        _check_state(model, manifest["stack"], groups, kept, undo)


def _check_state(
    model: nn.Module, path: str, groups: int, tensors: dict[str, Tensor], manifest: dict[str, Any]
) -> None:
    """Refuse a state, as `state.capture` gives it, that could not be restored; it may have fewer layers."""
    depth = len(manifest["layers"])
    prefixes = [surgery.block_path(model, path, i) for i in range(len(surgery.find_stack(model, path)))]
    if depth > len(prefixes):
        return  # to undo a growth in a network that is smaller now makes new blocks, of which nothing is known here
    prefixes, later = prefixes[:depth], tuple(prefixes[depth:])
    wanted = {name: tensor for name, tensor in unique_tensors(model).items() if not name.startswith(later)}
    saved = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
    for name in [*wanted, *saved]:
        if (here := _kind(wanted.get(name))) != (there := _kind(saved.get(name))):
            raise CheckpointError(f"it does not fit the model: {name} is {there} there and {here} here")
    parameters = {name: p for name, p in model.named_parameters() if not name.startswith(later)}
    _check_names("trainable", manifest["trainable"], parameters)
    for name, tensor in tensors.items():
        kind, layer, *rest = name.split("/", 3)
        if kind == "layer" and len(rest) == 2:  # its number, belief or mask or the like, and the parameter's name
            owner = parameters.get(prefixes[int(layer)] + rest[1]) if int(layer) < depth else None
            if owner is None or owner.shape != tensor.shape:
                raise CheckpointError(f"it does not fit the model: {name} is {_kind(tensor)} there")
    owners = {name.split("/", 1)[1].rpartition("/")[0] for name in tensors if name.startswith("optimizer/")}
    if (described := manifest["optimizer"]) is not None:
        frozen = tuple(p for p, layer in zip(prefixes, manifest["layers"], strict=True) if layer["frozen"])
        _check_members(described, owners, set(parameters), frozen, groups)
    elif owners:
        raise CheckpointError("optimizer must be described, for there are tensors of it, got None")


def _check_weights(model: nn.Module, path: str, tensors: dict[str, Tensor], prunable: Prunable | None) -> None:
    """Refuse a checkpoint in which other parameters were prunable than are now."""
    for i, block in enumerate(surgery.find_stack(model, path)):
        saved = {name.split("/", 3)[3] for name in tensors if name.startswith(f"layer/{i}/belief/")}
        here = {name for name, _, _ in named_weights(block, prunable)}
        if saved != here:
            name = sorted(saved ^ here)[0]
            raise CheckpointError(
                f"{name} of layer {i} was {'' if name in saved else 'not '}prunable when it was saved, and is"
                f"{' not' if name in saved else ''} now; pass the same prunable to load as to attach"
            )


def _check_members(
    described: dict[str, Any], owners: set[str], parameters: set[str], frozen: tuple[str, ...], groups: int
) -> None:
    members = [name for names in described["members"] for name in names]
    stored: dict[str, int] = described["stored"]
    _check_names("optimizer.members", members, parameters)
    _check_names("optimizer.scalars", described["scalars"], parameters)
    _check_names("the optimizer's tensors", owners, parameters)
    _check_names("optimizer.stored", stored, {name for name in parameters if name.startswith(frozen)})
    if len(set(members)) < len(members):
        raise CheckpointError("optimizer.members must name each parameter once")
    if len(described["members"]) > groups or any(group >= groups for group in stored.values()):
        raise CheckpointError(f"optimizer.members and optimizer.stored must be of its {groups} groups")
    if any(name not in described["members"][group] for name, group in stored.items()):
        raise CheckpointError("optimizer.stored must name members of its groups")


def _check_names(where: str, names: Iterable[str], accepted: Container[str]) -> None:
    for name in names:
        if name not in accepted:
            raise CheckpointError(f"{where} must name parameters that the model has there, got {name!r}")


def _kind(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{'x'.join(map(str, tensor.shape)) or 'a number'} of {str(tensor.dtype).removeprefix('torch.')}"


def _make_optimizers(
    model: nn.Module,
    described: dict[str, Any],
    make: OptimizerFactory | Sequence[OptimizerFactory | None] | None,
) -> list[Optimizer]:
    each, start, made = described["each"], 0, []
    factories = [make] * len(each) if make is None or callable(make) else list(make)
    if len(factories) != len(each) or (callable(make) and len(each) > 1):
        raise CheckpointError(
            f"it has {len(each)} optimizers; pass optimizer=[f, ...] with a function or None for each"
        )
    for one, factory in zip(each, factories, strict=True):
        try:
            groups = _groups(model, described, one, start)
        except (RuntimeError, TypeError, ValueError) as error:  # what is said to be a tensor is none
            raise CheckpointError(_wrong_settings(one, error)) from None
        made.append(_make_optimizer(one, groups) if factory is None else factory(groups))
        start += len(one["groups"])
    return made


def _make_optimizer(described: dict[str, Any], groups: list[dict[str, Any]]) -> Optimizer:
    kind = getattr(torch.optim, described["class"], None)
    if not (described["of_torch"] and isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise CheckpointError(
            f"its optimizer, {described['class']}, is not in torch.optim; pass optimizer=f(groups) to load"
        )
    try:
        made: Optimizer = kind(groups)  # type: ignore[call-arg]
    except Exception as error:  # whatever torch makes of wrong settings
        raise CheckpointError(_wrong_settings(described, error)) from None
    for index, group in enumerate(made.param_groups):  # of which torch looks only at those that are not given
        for name, usual in made.defaults.items():
            if not _alike(group[name], usual):
                where, got = f"{name} of {described['class']}'s group {index}", reprlib.repr(group[name])
                raise CheckpointError(f"{where} must be of the kind of torch's default, {usual!r}, got {got}")
    return made


def _wrong_settings(described: dict[str, Any], error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"the settings of {described['class']} must be those of torch's ({reason})"


def _make_schedulers(
    factories: schedulers.SchedulerFactory | Sequence[schedulers.SchedulerFactory] | None,
    described: list[dict[str, Any]],
    made: list[Optimizer] | None,
) -> list[Any]:
    if factories is not None and made is None:
        raise CheckpointError("it was saved without its optimizer, so it has no scheduler")
    try:
        return schedulers.make(factories, described, tuple(made or ()))
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def _alike(value: Any, usual: Any) -> bool:
    if isinstance(usual, tuple):
        return isinstance(value, tuple) and len(value) == len(usual) and all(map(_alike, value, usual))
    if isinstance(value, Tensor):
        return value.numel() == 1
    return usual is None or (isinstance(value, int | float) and abs(value) <= sys.float_info.max)


def _groups(model: nn.Module, described: dict[str, Any], one: dict[str, Any], start: int) -> list[dict[str, Any]]:
    """The parameter groups of one optimizer; the first one has the number `start` among those of all."""
    parameters = dict(model.named_parameters())
    groups = []
    for index, options in enumerate(one["groups"], start):
        held = described["members"][index]  # those of frozen layers included
        chosen = [(name, parameters[name]) if one["named"] else parameters[name] for name in held]
        settings = {key: _unplain(value) for key, value in options.items() if key != "param_names"}
        groups.append({**settings, "params": chosen})
    return groups


def _unplain(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"tensor"}:
        return torch.tensor(value["tensor"])
    return tuple(_unplain(one) for one in value) if isinstance(value, list) else value


def _assemble(
    model: nn.Module,
    optimizers: list[Optimizer] | None,
    make_block: BlockFactory,
    rules: Rules,
    tensors: dict[str, Tensor],
    manifest: dict[str, Any],
    distributed: bool,
    prunable: Prunable | None,
) -> GrowPruneFreeze:
    # A network that was saved without an optimizer still needs one to be attached to.
    attached = [torch.optim.SGD(model.parameters(), lr=0.0)] if optimizers is None else optimizers
    try:
        net = GrowPruneFreeze(model, attached, manifest["stack"], make_block, rules, distributed, prunable)
    except ValueError as error:
        raise CheckpointError(f"it does not fit the model: {error}") from None
    if optimizers is None:
        net.optimizers = None
    restore(net, {name: tensor for name, tensor in tensors.items() if not name.startswith((UNDO, EXTRA))}, manifest)
    if net.distributed and torch.distributed.get_rank() != 0:
        for layer in net.layers:  # the first process has those of all
            layer.forget_activations()
    net.extra = dict(manifest["extra"])
    net.extra |= {name.removeprefix(EXTRA): tensor for name, tensor in tensors.items() if name.startswith(EXTRA)}
    net.epoch = manifest["epoch"]
    net.schedule = Schedule(**manifest["schedule"])
    net.events = [Event.from_json(event) for event in manifest["events"]]
    if "undo" in manifest:
        kept = {name.removeprefix(UNDO): tensor for name, tensor in tensors.items() if name.startswith(UNDO)}
        net.before_growth = kept, manifest["undo"]
    net.shape()  # counts all masks, for which the processes of a sharded model must meet
    return net
