"""Events: changes of a network, with the reason in numbers."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

METRIC = "the metric"
"""How reasons refer to the metric of the rules. A task replaces it by the metric's name."""


@dataclass(frozen=True)
class Shape:
    """A network's stack at one moment."""

    depth: int
    """Number of layers in the stack."""
    parameters: int
    """Number of parameters in the stack."""
    weights: int
    """Number of weights in the stack: parameters of two dimensions and more, which can be pruned."""
    pruned: int
    """Number of pruned weights."""
    pruned_units: int
    """Number of units that have lost all incoming, or all outgoing, weights."""
    frozen: tuple[int, ...]
    """Which layers are frozen."""

    @property
    def density(self) -> float:
        """The share of the weights that is left."""
        return 1.0 - self.pruned / self.weights if self.weights else 1.0


@dataclass(frozen=True)
class Event:
    """A change of a network."""

    kind: ClassVar[str] = "event"
    structural: ClassVar[bool] = False
    """Whether wrappers around the model (DistributedDataParallel, torch.compile) must be renewed."""

    epoch: int
    """Number of epochs that had ended."""
    layers: tuple[int, ...]
    """Which layers it concerns, counted from 0."""
    reason: str
    before: Shape
    after: Shape

    def __str__(self) -> str:
        b, a = self.before, self.after
        return (
            f"epoch {self.epoch}: {self.kind} {', '.join(f'layer {i}' for i in self.layers) or 'nothing'}"
            f" ({self.reason});"
            f" depth {b.depth} -> {a.depth}, density {b.density:.3f} -> {a.density:.3f},"
            f" parameters {b.parameters - b.pruned:,} -> {a.parameters - a.pruned:,}"
        )

    def to_json(self) -> dict[str, Any]:
        """The event as plain data."""
        return {"kind": self.kind, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Event":
        """The event that `to_json` described."""
        values = dict(values)
        kind = KINDS[values.pop("kind")]
        for side in ("before", "after"):
            values[side] = Shape(**{**values[side], "frozen": tuple(values[side]["frozen"])})
        values["layers"] = tuple(values["layers"])
        return kind(**values)


@dataclass(frozen=True)
class Grown(Event):
    """Layers were added."""

    kind: ClassVar[str] = "grown"
    structural: ClassVar[bool] = True


@dataclass(frozen=True)
class Pruned(Event):
    """Weights were pruned."""

    kind: ClassVar[str] = "pruned"


@dataclass(frozen=True)
class Regrown(Event):
    """Pruned weights learn again."""

    kind: ClassVar[str] = "regrown"


@dataclass(frozen=True)
class Removed(Event):
    """Units that pruning has cut off were removed from the model."""

    kind: ClassVar[str] = "removed"
    structural: ClassVar[bool] = True


@dataclass(frozen=True)
class Frozen(Event):
    """A layer stopped learning."""

    kind: ClassVar[str] = "frozen"
    structural: ClassVar[bool] = True


@dataclass(frozen=True)
class Thawed(Event):
    """A frozen layer learns again."""

    kind: ClassVar[str] = "thawed"
    structural: ClassVar[bool] = True


@dataclass(frozen=True)
class Undone(Event):
    """A growth, and all that came after it, was taken back."""

    kind: ClassVar[str] = "undone"
    structural: ClassVar[bool] = True


KINDS = {kind.kind: kind for kind in (Grown, Pruned, Regrown, Removed, Frozen, Thawed, Undone)}


def newest_layers(events: Sequence[Event], depth: int) -> tuple[int, ...]:
    """The layers that the last growth added that was not undone; the last of the stack, if there was none."""
    undone = 0
    for event in reversed(events):
        if isinstance(event, Undone):
            undone += 1
        elif isinstance(event, Grown):
            if not undone:
                return event.layers
            undone -= 1
    return (depth - 1,)
