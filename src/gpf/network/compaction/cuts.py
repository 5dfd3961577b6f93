"""Removes units from the parameters and buffers of a model, and records which entries remain."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Place = tuple[int, str]
"""The id of a module, and the name of a parameter or buffer of its own."""


@dataclass
class Cut:
    """The remaining part of one tensor."""

    module: nn.Module
    name: str
    old: Tensor
    """The tensor before."""
    slices: list[tuple[int, int, Tensor]] = field(default_factory=list)
    """Axis, size along it before, and the places that were kept; in the order in which it was cut."""

    @property
    def new(self) -> Tensor:
        """The tensor now."""
        tensor = getattr(self.module, self.name)
        assert isinstance(tensor, Tensor)
        return tensor

    def of(self, values: Tensor) -> Tensor:
        """The remaining part of values of the tensor's old shape; axes of size 1, along which they are shared, stay."""
        for axis, size, kept in self.slices:
            if values.shape[axis] == size:
                values = values.index_select(axis, kept.to(values.device))
        return values

    def fits(self, values: Tensor) -> bool:
        """Whether values have the tensor's old shape, except for axes of size 1."""
        sizes = zip(values.shape, self.old.shape, strict=False)
        return values.dim() == self.old.dim() and all(size in (1, whole) for size, whole in sizes)


class Cuts:
    """All cuts of a model.

    Args:
        pruned: Masks of the pruned entries, for a network that keeps learning: a zero that is not pruned is a weight
            there, and no parameter is added. None if every zero counts as pruned.
    """

    def __init__(self, pruned: Mapping[Place, Tensor] | None = None) -> None:
        self.learning: bool = pruned is not None
        self.pruned: dict[Place, Tensor] = {place: mask.clone() for place, mask in (pruned or {}).items()}
        self.made: dict[Place, Cut] = {}

    def absent(self, module: nn.Module) -> Tensor:
        """Which weights of a map count as pruned."""
        weight = module.weight
        assert isinstance(weight, Tensor)
        if not self.learning:
            return weight.detach() == 0
        mask = self.pruned.get((id(module), "weight"))
        return torch.zeros_like(weight, dtype=torch.bool) if mask is None else mask

    def take(self, module: nn.Module, name: str, axis: int, kept: Tensor) -> None:
        """Leave some places along an axis of a parameter or buffer."""
        old = getattr(module, name)
        place = id(module), name
        cut = self.made.setdefault(place, Cut(module, name, old))
        cut.slices.append((axis, old.shape[axis], kept))
        values = old.detach().index_select(axis, kept)
        setattr(module, name, nn.Parameter(values, old.requires_grad) if isinstance(old, nn.Parameter) else values)
        if place in self.pruned:
            self.pruned[place] = self.pruned[place].index_select(axis, kept)
