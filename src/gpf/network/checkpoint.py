"""Checkpoints of networks whose architecture has changed: safetensors and a JSON manifest, no pickle.

A checkpoint is a folder with `manifest.json` and the file of tensors that it names. A new file of tensors gets a new
name; replacing the manifest is what makes it count. Whenever a process is killed, the folder holds a whole checkpoint:
the old one or the new one.
"""

import base64
import dataclasses
import hashlib
import json
import os
import random
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import surgery
from gpf.network.controller import BlockFactory, GrowPruneFreeze
from gpf.network.events import Event
from gpf.network.rules import Rules
from gpf.network.state import capture, restore, unique_tensors

FORMAT = "gpf-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
_UNDO = "undo/"
_EXTRA = "extra/"


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message says what is wrong with it."""


def save(net: GrowPruneFreeze, folder: Path, optimizer: bool = True, extra: dict[str, Any] | None = None) -> None:
    """Write a checkpoint, replacing the one that is there only when the new one is complete."""
    if net.distributed:
        if torch.distributed.get_rank() == 0:
            _save(net, folder, optimizer, extra or {})
        torch.distributed.barrier()
    else:
        _save(net, folder, optimizer, extra or {})


def _save(net: GrowPruneFreeze, folder: Path, optimizer: bool, extra: dict[str, Any]) -> None:
    optimizer = optimizer and net.optimizer is not None
    foreign = _foreign_parameters(net) if optimizer else 0
    if foreign:
        raise ValueError(
            f"optimizer: {foreign} of its parameters are not the model's; accepted: a model that holds all of them"
        )
    tensors, manifest = capture(net)
    if not optimizer:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer/")}
        manifest["optimizer"] = None
    elif net.before_growth is not None:
        kept, manifest["undo"] = net.before_growth
        tensors |= {_UNDO + name: tensor for name, tensor in kept.items()}
    tensors |= {_EXTRA + name: value for name, value in extra.items() if isinstance(value, Tensor)}
    manifest["extra"] = {name: value for name, value in extra.items() if not isinstance(value, Tensor)}
    manifest |= {
        "format": FORMAT,
        "version": VERSION,
        "torch": torch.__version__,
        "stack": net.stack,
        "rules": dataclasses.asdict(net.rules),
        "epoch": net.epoch,
        "events": [event.to_json() for event in net.events],
        "random": _random_state(),
    }
    if optimizer:
        manifest["optimizer"] |= _describe(net.optimizer)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tensors-{secrets.token_hex(6)}.safetensors"
    data = safetensors.torch.save({key: tensor.detach().clone(memory_format=torch.contiguous_format)
                                   for key, tensor in tensors.items()})  # fmt: skip
    manifest["tensors"] = {"file": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    try:
        _write(folder / name, data)
        _write(folder / f"{name}.json", json.dumps(manifest).encode())
        (folder / f"{name}.json").replace(folder / MANIFEST)
    except BaseException:  # an interrupt may come just after the replacement, which then counts
        if (folder / f"{name}.json").exists() or not (folder / MANIFEST).exists():
            for leftover in (folder / name, folder / f"{name}.json"):
                leftover.unlink(missing_ok=True)
        elif json.loads((folder / MANIFEST).read_text())["tensors"]["file"] != name:
            (folder / name).unlink(missing_ok=True)
        raise
    for old in folder.glob("tensors-*"):
        if old.name != name:
            old.unlink(missing_ok=True)


def load(
    folder: str | Path,
    build: Callable[[], nn.Module],
    block: BlockFactory | None = None,
    optimizer: Callable[[Iterable[dict[str, Any]]], Optimizer] | None = None,
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
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    tensors = _read_tensors(folder, manifest["tensors"])
    model = build()
    stack = _checked_stack(folder, model, manifest["stack"])
    make_block = block or getattr(model, "make_block", None)
    depth = len(manifest["layers"])
    if len(stack) > depth:
        raise CheckpointError(f"checkpoint: {folder} has {depth} layers and build() made {len(stack)}; accepted: fewer")
    if len(stack) < depth and make_block is None:
        raise CheckpointError(f"checkpoint: {folder} has {depth} layers; accepted: block=f(depth) to make them")
    while len(stack) < depth:
        surgery.append_block(model, manifest["stack"], make_block(len(stack)))  # type: ignore[misc]
    _check_tensors(folder, model, tensors)
    try:
        net = _assemble(model, make_block or _no_factory, manifest, tensors, optimizer, distributed)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"checkpoint: {folder} is not complete ({type(error).__name__}: {error}); accepted: one that save() wrote"
        ) from None
    if restore_random:
        _restore_random_state(manifest["random"])
    return net


def _assemble(
    model: nn.Module,
    make_block: BlockFactory,
    manifest: dict[str, Any],
    tensors: dict[str, Tensor],
    optimizer: Callable[[Iterable[dict[str, Any]]], Optimizer] | None,
    distributed: bool,
) -> GrowPruneFreeze:
    described = manifest["optimizer"]
    made = None if described is None else _make_optimizer(model, described, optimizer)
    # A network that was saved without an optimizer still needs one to be attached to.
    attached = torch.optim.SGD(model.parameters(), lr=0.0) if made is None else made
    net = GrowPruneFreeze(model, attached, manifest["stack"], make_block, Rules(**manifest["rules"]), distributed)
    net.optimizer = made  # type: ignore[assignment]
    restore(net, {name: tensor for name, tensor in tensors.items() if not name.startswith((_UNDO, _EXTRA))}, manifest)
    net.extra = dict(manifest["extra"])
    net.extra |= {name.removeprefix(_EXTRA): tensor for name, tensor in tensors.items() if name.startswith(_EXTRA)}
    net.epoch = manifest["epoch"]
    net.events = [Event.from_json(event) for event in manifest["events"]]
    if "undo" in manifest:
        kept = {name.removeprefix(_UNDO): tensor for name, tensor in tensors.items() if name.startswith(_UNDO)}
        net.before_growth = kept, manifest["undo"]
    return net


def _checked_stack(folder: Path, model: nn.Module, path: str) -> surgery.Stack:
    try:
        return surgery.find_stack(model, path)
    except ValueError as error:
        raise CheckpointError(f"checkpoint: {folder} does not fit the model: {error}") from None


def _no_factory(depth: int) -> nn.Module:
    raise ValueError("block: none was given to load, and the model has no make_block; accepted: block=f(depth)")


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint: no {MANIFEST} in {folder}; accepted: a folder that save() wrote") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"checkpoint: {folder / MANIFEST} cannot be read ({error}); accepted: JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"checkpoint: {folder / MANIFEST} is not of a gpf checkpoint; accepted: format {FORMAT!r}"
        )
    if manifest.get("version") != VERSION:
        raise CheckpointError(f"checkpoint: {folder} has version {manifest.get('version')!r}; accepted: {VERSION}")
    wanted = {
        "tensors": dict,
        "layers": list,
        "stack": str,
        "rules": dict,
        "plateau": dict,
        "events": list,
        "random": dict,
        "extra": dict,
    }
    for name, kind in wanted.items():
        if not isinstance(manifest.get(name), kind):
            raise CheckpointError(f"checkpoint: {folder / MANIFEST} lacks {name!r}; accepted: a complete one")
    if not {"file", "bytes", "sha256"} <= manifest["tensors"].keys():
        raise CheckpointError(f"checkpoint: {folder / MANIFEST} names no tensors; accepted: a complete one")
    return manifest


def _read_tensors(folder: Path, described: dict[str, Any]) -> dict[str, Tensor]:
    path = folder / described["file"]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"checkpoint: {path} cannot be read ({error.strerror}); accepted: a complete one"
        ) from None
    if len(data) != described["bytes"] or hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise CheckpointError(
            f"checkpoint: {path} is damaged ({len(data)} of {described['bytes']} bytes, checksum differs);"
            " accepted: the file as it was saved"
        )
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise CheckpointError(
            f"checkpoint: {path} is not safetensors ({error}); accepted: one that save() wrote"
        ) from None


def _check_tensors(folder: Path, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    wanted = {f"model/{name}": _kind(tensor) for name, tensor in unique_tensors(model).items()}
    saved = {name: _kind(tensor) for name, tensor in tensors.items() if name.startswith("model/")}
    for name in [*wanted, *saved]:
        if wanted.get(name) != saved.get(name):
            raise CheckpointError(
                f"checkpoint: {folder} does not fit the model: {name.removeprefix('model/')} is"
                f" {saved.get(name, 'missing')} there and {wanted.get(name, 'missing')} here; accepted: the saved model"
            )


def _kind(tensor: Tensor) -> str:
    return f"{'x'.join(map(str, tensor.shape)) or 'a number'} of {str(tensor.dtype).removeprefix('torch.')}"


def _describe(optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer's class and settings as plain data."""
    return {
        "class": type(optimizer).__name__,
        "of_torch": type(optimizer) is getattr(torch.optim, type(optimizer).__name__, None),
        "groups": [
            {key: _plain(value) for key, value in group.items() if key not in ("params", "param_names")}
            for group in optimizer.param_groups
        ],
        "named": "param_names" in optimizer.param_groups[0],
    }


def _make_optimizer(
    model: nn.Module, described: dict[str, Any], make: Callable[[Iterable[dict[str, Any]]], Optimizer] | None
) -> Optimizer:
    parameters = dict(model.named_parameters())
    stored = described["stored"]
    groups = []
    for index, (options, names) in enumerate(zip(described["groups"], described["members"], strict=True)):
        held = [*names, *(name for name, group in stored.items() if group == index)]
        chosen = [(name, parameters[name]) if described["named"] else parameters[name] for name in held]
        groups.append({"params": chosen, **{key: _unplain(value) for key, value in options.items()}})
    if make is None:
        make = getattr(torch.optim, described["class"], None)
        if make is None or not described["of_torch"]:
            raise CheckpointError(
                f"optimizer: {described['class']} is not of torch.optim; accepted: load(..., optimizer=f(groups))"
            )
    return make(groups)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": value.item()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _unplain(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"tensor"}:
        return torch.tensor(value["tensor"])
    return tuple(_unplain(one) for one in value) if isinstance(value, list) else value


def _foreign_parameters(net: GrowPruneFreeze) -> int:
    if net.optimizer is None:
        return 0
    ours = {id(parameter) for parameter in net.model.parameters()}
    return sum(id(p) not in ours for group in net.optimizer.param_groups for p in group["params"])


def _random_state() -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - the state that users' code draws from
    return {
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
        "cuda": [base64.b64encode(state.numpy().tobytes()).decode() for state in torch.cuda.get_rng_state_all()]
        if torch.cuda.is_available()
        else [],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def _restore_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state["torch"])), dtype=torch.uint8))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(
            [torch.frombuffer(bytearray(base64.b64decode(one)), dtype=torch.uint8) for one in state["cuda"]]
        )
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


def _write(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
