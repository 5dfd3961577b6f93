"""Saves checkpoints of networks whose architecture has changed: safetensors and a JSON manifest, no pickle.

A checkpoint is a folder with `manifest.json` and the file of tensors that it names. A new file of tensors gets a new
name; replacing the manifest is what makes it count. Whenever a process is killed, the folder holds a whole checkpoint:
the old one or the new one.
"""

import dataclasses
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.optim import Optimizer

from gpf.network import sharding
from gpf.network.checkpoints import random_state, schedulers, tensorfile
from gpf.network.checkpoints.manifest import FORMAT, VERSION, check_manifest
from gpf.network.checkpoints.state import Network, capture
from gpf.network.optimizers import Optimizers
from gpf.network.wrappers import collect_activation

MANIFEST = "manifest.json"
UNDO, EXTRA = "undo/", "extra/"
"""What the names of the tensors of the state before the last growth, and of the user's own, begin with."""


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message says what is wrong with it."""


def save(
    net: Network, folder: Path, optimizer: bool = True, extra: dict[str, Any] | None = None, scheduler: Any = None
) -> None:
    """Write a checkpoint, replacing the one that is there only when the new one is complete."""
    if net.distributed and net.rules.activation_threshold is not None:
        for layer in net.layers:
            collect_activation(layer)
    writes = not net.distributed or torch.distributed.get_rank() == 0
    if writes or sharding.is_sharded(net.model):  # then all processes have a part of what is written
        _save(net, folder, optimizer, extra or {}, scheduler, writes)
    if net.distributed:
        torch.distributed.barrier()


def _save(
    net: Network, folder: Path, with_optimizer: bool, extra: dict[str, Any], scheduler: Any, writes: bool
) -> None:
    sharding.settle(net.model)
    net.masking.silence()  # what was written from outside is not saved
    optimizers = net.optimizers if with_optimizer else None
    if optimizers is not None and (foreign := _foreign_parameters(net, optimizers)):
        raise ValueError(f"optimizer must hold only the model's parameters to be saved, got {foreign} others")
    tensors, manifest = capture(net)
    if optimizers is None:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("optimizer/")}
        manifest["optimizer"] = None
    elif net.before_growth is not None:
        kept, manifest["undo"] = net.before_growth
        tensors |= {UNDO + name: tensor for name, tensor in kept.items()}
    tensors |= {EXTRA + name: value for name, value in extra.items() if isinstance(value, Tensor)}
    tensors = sharding.gathered(tensors, writes)
    if not writes:
        return
    manifest["extra"] = {
        name: _checked_extra(name, value) for name, value in extra.items() if not isinstance(value, Tensor)
    }
    manifest |= {
        "format": FORMAT,
        "version": VERSION,
        "torch": torch.__version__,
        "stack": net.stack,
        "rules": dataclasses.asdict(net.rules),
        "epoch": net.epoch,
        "schedule": dataclasses.asdict(net.schedule),
        "events": [event.to_json() for event in net.events],
        "random": random_state.capture(),
        "schedulers": schedulers.describe(scheduler),
    }
    if optimizers is not None:
        manifest["optimizer"]["each"] = [_describe(one) for one in optimizers]
    folder.mkdir(parents=True, exist_ok=True)
    name = f"tensors-{secrets.token_hex(6)}.safetensors"
    try:
        size, digest = tensorfile.write(folder / name, tensors)
        manifest["tensors"] = {"file": name, "bytes": size, "sha256": digest}
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


def _checked_extra(name: str, value: Any) -> Any:
    """A value that JSON can hold."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"extra must hold tensors and plain data, got {name!r} ({error})") from None
    return value


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the manifest of a checkpoint, each entry of the right kind; a CheckpointError otherwise."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{MANIFEST} is missing; save() writes it") from None
    except OSError as error:
        raise CheckpointError(f"{MANIFEST} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{MANIFEST} must be JSON in UTF-8 ({error})") from None
    try:
        check_manifest(manifest)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    return _read_tensors(folder, manifest["tensors"]), manifest


def _read_tensors(folder: Path, described: dict[str, Any]) -> dict[str, Tensor]:
    name = described["file"]
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{name} cannot be read ({error.strerror})") from None
    if len(data) != described["bytes"] or hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise CheckpointError(f"{name} is damaged ({len(data)} of {described['bytes']} bytes, checksum differs)")
    try:
        return safetensors.torch.load(data)
    except SafetensorError as error:
        raise CheckpointError(f"{name} must be in the safetensors format ({error})") from None


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


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": value.item()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _foreign_parameters(net: Network, optimizers: Optimizers) -> int:
    ours = {id(parameter) for parameter in net.model.parameters()}
    return sum(id(p) not in ours for group in optimizers.groups for p in group["params"])


def _write(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
