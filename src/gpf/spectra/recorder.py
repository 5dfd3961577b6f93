"""Snapshots of a network just before and just after each event, in memory or in a run's folder."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from gpf.network import GrowPruneFreeze
from gpf.network.compaction.shrinking import fit
from gpf.network.events import Event

When = Literal["before", "after"]


@dataclass(frozen=True)
class Snapshot:
    """A network at one moment."""

    number: int
    """Of the event, counted from 0."""
    when: When
    epoch: int
    depth: int
    event: Event | None
    """The last event; None before it."""
    model: nn.Module
    stack: str = "layers"
    """Path to the model's stack."""

    @property
    def label(self) -> str:
        """In a few words."""
        if self.event is None:
            return f"epoch {self.epoch}, before event {self.number + 1}"
        layers = ", ".join(str(layer) for layer in self.event.layers)
        return f"epoch {self.epoch}, {self.event.kind} {layers}"


class Recorder:
    """Watches a network: `net.watchers.append(Recorder())`.

    Snapshots are kept in memory, or given to `write` and forgotten. One before an event is left out where nothing has
    changed since the one after the event before it.
    """

    def __init__(self, write: Callable[[Snapshot], None] | None = None) -> None:
        self.snapshots: list[Snapshot] = []
        self._write = write or self.snapshots.append
        self._last: nn.Module | None = None

    def before(self, net: GrowPruneFreeze) -> None:
        """Something is about to happen."""
        if self._last is None or not _same(self._last, net.model):
            self._take(net, "before", None)

    def after(self, net: GrowPruneFreeze, event: Event) -> None:
        """It has happened."""
        self._take(net, "after", event)

    def _take(self, net: GrowPruneFreeze, when: When, event: Event | None) -> None:
        model = copy.deepcopy(net.model)
        number = len(net.events) - (when == "after")
        self._write(Snapshot(number, when, net.epoch, net.depth, event, model, net.stack))
        self._last = model


def write_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Put a snapshot's weights into a file of its own; an older one of the same event is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {name: getattr(snapshot, name) for name in ("number", "when", "epoch", "depth", "stack")}
    about["event"] = None if snapshot.event is None else snapshot.event.to_json()
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in snapshot.model.state_dict().items()}
    path = folder / f"{snapshot.number:04d}-{snapshot.when}.safetensors"
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(safetensors.torch.save(tensors, {"snapshot": json.dumps(about)}))
    unfinished.replace(path)


def read_snapshots(folder: Path, build: Callable[[int], nn.Module]) -> Iterator[Snapshot]:
    """The snapshots in a folder, oldest first; `build` makes a model of a given depth, to be filled."""
    for path in sorted(folder.glob("*.safetensors"), key=lambda p: (p.name[:4], p.stem.endswith("after"))):
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["snapshot"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            with torch.random.fork_rng():  # the weights that are drawn are replaced
                model = build(about["depth"])
            fit(model, about["stack"], {name: tensor.shape for name, tensor in tensors.items()})
            model.load_state_dict(tensors)
            event = about.pop("event")
            about["event"] = None if event is None else Event.from_json(event)
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{path} must be a file written by a run, but is damaged ({reason})") from None
        yield Snapshot(model=model, **about)


def _same(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
