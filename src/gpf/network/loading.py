"""Checkpoints read back: everything is verified against the model before anything is restored."""

import reprlib
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import random_state, surgery
from gpf.network.checkpoint import EXTRA, UNDO, CheckpointError, read
from gpf.network.controller import BlockFactory, GrowPruneFreeze
from gpf.network.events import Event
from gpf.network.rules import Rules
from gpf.network.state import restore, unique_tensors

OptimizerFactory = Callable[[Iterable[dict[str, Any]]], Optimizer]


def load(
    folder: str | Path,
    build: Callable[[], nn.Module],
    block: BlockFactory | None = None,
    optimizer: OptimizerFactory | None = None,
    restore_random: bool = True,
    distributed: bool = False,
) -> GrowPruneFreeze:
    """Read a checkpoint; training goes on from it as if it had never stopped.

    Args:
        folder: Where `save` wrote it.
        build: Makes the model as it was before it grew.
        block: Makes a new block, given its place in the stack; the model's own `make_block` if not given.
        optimizer: Makes the optimizer from parameter groups; needed only for one that is not of torch.optim.
        restore_random: Also set the random state of torch, NumPy and Python to what it was.
        distributed: Whether the model will be put into DistributedDataParallel; all processes then decide alike.

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
        make_block = block or getattr(model, "make_block", None)
        _extend(model, make_block, manifest["stack"], len(manifest["layers"]))
        _check_fit(model, tensors, manifest)
        made = None if manifest["optimizer"] is None else _make_optimizer(model, manifest["optimizer"], optimizer)
        net = _assemble(model, made, make_block or _no_factory, rules, tensors, manifest, distributed)
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


def _no_factory(depth: int) -> nn.Module:
    raise ValueError("block: none was given to load, and the model has no make_block; accepted: block=f(depth)")


def _extend(model: nn.Module, make_block: BlockFactory | None, path: str, depth: int) -> None:
    """Bring the stack of a new model to a checkpoint's depth."""
    try:
        stack = surgery.find_stack(model, path)
    except ValueError as error:
        raise CheckpointError(f"it does not fit the model: {error}") from None
    if len(stack) > depth:
        raise CheckpointError(f"build() must make at most {depth} layers, as many as were saved, got {len(stack)}")
    while len(stack) < depth:
        if make_block is None:
            raise CheckpointError(f"it has {depth} layers and build() makes {len(stack)}; pass block=f(depth)")
        surgery.append_block(model, path, make_block(len(stack)))


def _check_fit(model: nn.Module, tensors: dict[str, Tensor], manifest: dict[str, Any]) -> None:
    """Refuse what belongs neither to the model nor to the rest of the checkpoint."""
    described, undo = manifest["optimizer"], manifest.get("undo")
    groups = 0 if described is None else len(described["groups"])
    if described is not None and not 0 < groups == len(described["members"]):
        raise CheckpointError(f"optimizer.members must be a list for each of its {groups} groups")
    now = {name: tensor for name, tensor in tensors.items() if not name.startswith((UNDO, EXTRA))}
    kept = {name.removeprefix(UNDO): tensor for name, tensor in tensors.items() if name.startswith(UNDO)}
    _check_state(model, manifest["stack"], groups, now, manifest)
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


def _check_members(
    described: dict[str, Any], owners: set[str], parameters: set[str], frozen: tuple[str, ...], groups: int
) -> None:
    members = [name for names in described["members"] for name in names]
    stored: dict[str, int] = described["stored"]
    _check_names("optimizer.members", members, parameters)
    _check_names("optimizer.scalars", described["scalars"], parameters)
    _check_names("the optimizer's tensors", owners, parameters)
    _check_names("optimizer.stored", stored, {name for name in parameters if name.startswith(frozen)})
    if len({*members, *stored}) < len(members) + len(stored):
        raise CheckpointError("optimizer.members and optimizer.stored must name each parameter once")
    if len(described["members"]) > groups or any(group >= groups for group in stored.values()):
        raise CheckpointError(f"optimizer.members and optimizer.stored must be of its {groups} groups")


def _check_names(where: str, names: Iterable[str], accepted: Container[str]) -> None:
    for name in names:
        if name not in accepted:
            raise CheckpointError(f"{where} must name parameters that the model has there, got {name!r}")


def _kind(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return f"{'x'.join(map(str, tensor.shape)) or 'a number'} of {str(tensor.dtype).removeprefix('torch.')}"


def _make_optimizer(model: nn.Module, described: dict[str, Any], make: OptimizerFactory | None) -> Optimizer:
    if make is not None:
        return make(_groups(model, described))
    kind = getattr(torch.optim, described["class"], None)
    if not (described["of_torch"] and isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise CheckpointError(
            f"its optimizer, {described['class']}, is not in torch.optim; pass optimizer=f(groups) to load"
        )
    try:
        made: Optimizer = kind(_groups(model, described))  # type: ignore[call-arg]
    except Exception as error:  # whatever torch makes of wrong settings
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(f"optimizer.groups must be settings of {described['class']} ({reason})") from None
    for index, group in enumerate(made.param_groups):  # of which torch looks only at those that are not given
        for name, usual in made.defaults.items():
            if not _alike(group[name], usual):
                where, got = f"optimizer.groups[{index}].{name}", reprlib.repr(group[name])
                raise CheckpointError(f"{where} must be of the kind of torch's default, {usual!r}, got {got}")
    return made


def _alike(value: Any, usual: Any) -> bool:
    if isinstance(usual, tuple):
        return isinstance(value, tuple) and len(value) == len(usual) and all(map(_alike, value, usual))
    if isinstance(value, Tensor):
        return value.numel() == 1
    return usual is None or (isinstance(value, int | float) and abs(value) <= sys.float_info.max)


def _groups(model: nn.Module, described: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = dict(model.named_parameters())
    groups = []
    for index, (options, names) in enumerate(zip(described["groups"], described["members"], strict=True)):
        held = [*names, *(name for name, group in described["stored"].items() if group == index)]
        chosen = [(name, parameters[name]) if described["named"] else parameters[name] for name in held]
        settings = {key: _unplain(value) for key, value in options.items() if key != "param_names"}
        groups.append({**settings, "params": chosen})
    return groups


def _unplain(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"tensor"}:
        return torch.tensor(value["tensor"])
    return tuple(_unplain(one) for one in value) if isinstance(value, list) else value


def _assemble(
    model: nn.Module,
    optimizer: Optimizer | None,
    make_block: BlockFactory,
    rules: Rules,
    tensors: dict[str, Tensor],
    manifest: dict[str, Any],
    distributed: bool,
) -> GrowPruneFreeze:
    # A network that was saved without an optimizer still needs one to be attached to.
    attached = torch.optim.SGD(model.parameters(), lr=0.0) if optimizer is None else optimizer
    try:
        net = GrowPruneFreeze(model, attached, manifest["stack"], make_block, rules, distributed)
    except ValueError as error:
        raise CheckpointError(f"it does not fit the model: {error}") from None
    net.optimizer = optimizer  # type: ignore[assignment]
    restore(net, {name: tensor for name, tensor in tensors.items() if not name.startswith((UNDO, EXTRA))}, manifest)
    net.extra = dict(manifest["extra"])
    net.extra |= {name.removeprefix(EXTRA): tensor for name, tensor in tensors.items() if name.startswith(EXTRA)}
    net.epoch = manifest["epoch"]
    net.events = [Event.from_json(event) for event in manifest["events"]]
    if "undo" in manifest:
        kept = {name.removeprefix(UNDO): tensor for name, tensor in tensors.items() if name.startswith(UNDO)}
        net.before_growth = kept, manifest["undo"]
    return net
