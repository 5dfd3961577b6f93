"""Linear maps and convolutions as matrices of units, and the removal of units from them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from gpf.network.compaction.cuts import Cuts

Side = Literal["outputs", "inputs"]
Split = Callable[[Tensor], Tensor]
"""Takes a tensor of (outputs, ...) or (inputs, ...) of a map to a view of (units, entries of a unit, ...)."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)


def is_map(module: object) -> bool:
    """Whether a module is a plain linear map or convolution with a weight of its own."""
    if not isinstance(module, nn.Module) or hasattr(module, "parametrizations"):
        return False
    if not isinstance(getattr(module, "weight", None), nn.Parameter):
        return False
    if isinstance(module, CONVOLUTIONS):
        return type(module) in CONVOLUTIONS and module.groups == 1
    return type(module) is nn.Linear or _is_transposed(module)


def weight_of(module: nn.Module) -> nn.Parameter:
    """The weight of a map."""
    weight = module.weight
    assert isinstance(weight, nn.Parameter)
    return weight


def count(module: nn.Module, side: Side) -> int:
    """Number of outputs or inputs of a map."""
    return weight_of(module).shape[axis_of(module, side)]


def bias_of(module: nn.Module) -> Tensor | None:
    """The bias of a map, if it has one."""
    bias = module.bias
    return bias.detach() if isinstance(bias, Tensor) else None


def constant_stays_constant(module: nn.Module) -> bool:
    """Whether a constant input gives a constant output: not at the borders of a convolution padded with zeros."""
    if not isinstance(module, CONVOLUTIONS) or module.padding_mode != "zeros" or module.padding == "valid":
        return True
    return not isinstance(module.padding, str) and not any(module.padding)


def shift_bias(module: nn.Module, shift: Tensor) -> None:
    """Add to the bias of a map, in place; it gets one if it has none."""
    bias = bias_of(module)
    if bias is None:
        module.bias = nn.Parameter(shift.clone(), weight_of(module).requires_grad)
    else:
        bias += shift


def split_evenly(units: int) -> Split:
    """The entries of a unit lie side by side."""
    return lambda values: values.unflatten(0, (units, -1))


@dataclass(frozen=True)
class Part:
    """The outputs or the inputs of a map, grouped by unit."""

    module: nn.Module
    side: Side
    split: Split

    def view(self, values: Tensor) -> Tensor:
        """A view of a tensor of the weight's shape, with units first: (units, entries of a unit, ...)."""
        return self.split(values.transpose(0, axis_of(self.module, self.side)))

    @property
    def weights(self) -> Tensor:
        """The weights, with units first."""
        return self.view(weight_of(self.module).detach())

    @property
    def biases(self) -> Tensor:
        """The biases of the outputs, (units, entries of a unit); zeros if it has no biases."""
        bias = bias_of(self.module)
        outputs = count(self.module, "outputs")
        return self.split(self.weights.new_zeros(outputs) if bias is None else bias)

    def cut_off(self, cuts: Cuts) -> Tensor:
        """Which units have no weights left."""
        return self.view(cuts.absent(self.module)).flatten(1).all(1)


def evenly(module: nn.Module, side: Side, units: int) -> Part:
    """A part in which each unit has the same number of neighbouring entries."""
    return Part(module, side, split_evenly(units))


def remove(parts: Iterable[Part], dead: Tensor, cuts: Cuts) -> None:
    """Take units out of all parts."""
    keeping: dict[tuple[int, Side], tuple[nn.Module, Tensor]] = {}
    for part in parts:
        total = count(part.module, part.side)
        everything = torch.ones(total, dtype=torch.bool, device=dead.device)
        _, keep = keeping.setdefault((id(part.module), part.side), (part.module, everything))
        part.split(keep)[dead] = False
    for (_, side), (module, keep) in keeping.items():
        _take(module, side, keep.nonzero().flatten(), cuts)


def _take(module: nn.Module, side: Side, kept: Tensor, cuts: Cuts) -> None:
    cuts.take(module, "weight", axis_of(module, side), kept)
    if side == "outputs" and isinstance(module.bias, Tensor):
        cuts.take(module, "bias", 0, kept)
    names = ("out_features", "out_channels", "nf") if side == "outputs" else ("in_features", "in_channels", "nx")
    write_down(module, names, len(kept))


def write_down(module: nn.Module, names: Iterable[str], size: int) -> None:
    """Bring a size that a module has written down under some of these names up to date."""
    for name in names:
        if hasattr(module, name):
            setattr(module, name, size)


def _is_transposed(module: nn.Module) -> bool:
    """Hugging Face's Conv1D, a linear map whose weight is (inputs, outputs)."""
    return type(module).__name__ == "Conv1D"


def axis_of(module: nn.Module, side: Side) -> int:
    """The axis of a map's weight along which its outputs or inputs lie."""
    return int((side == "inputs") != _is_transposed(module))
