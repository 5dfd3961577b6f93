"""Two maps, one after the other: units of the first can go, and what they said is folded into the second."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gpf.network.compaction import maps
from gpf.network.compaction.between import on_constants, remove_from
from gpf.network.compaction.maps import Part, evenly

Function = Callable[[Tensor], Tensor]


class Link(ABC):
    """A place in a model where units can be removed without changing what it computes.

    Attributes:
        producers: The outputs that make up the units.
        consumer: The inputs of the map that listens to them.
        units: Their number.
    """

    adds_bias = True
    """Whether a consumer without bias may get one, to hold what removed units said."""

    def __init__(self, producers: Sequence[Part], consumer: Part, units: int) -> None:
        self.producers = producers
        self.consumer = consumer
        self.units = units

    @abstractmethod
    def silent(self) -> tuple[Tensor, Tensor]:
        """Which units say the same whatever comes in, and what they say: (units,), (units, inputs of a unit)."""

    @abstractmethod
    def members(self) -> list[Part]:
        """The weights without which a unit can be removed, whatever the biases are."""

    def changed(self) -> list[nn.Module]:
        """All modules that change when units go."""
        return [*(part.module for part in self.producers), self.consumer.module]

    def shrink(self) -> int:
        """Remove what units can be removed, but for one; returns how many."""
        silent, constants = self.silent()
        unheard = self.consumer.cut_off()
        heard = silent & ~unheard & (constants != 0).any(1)
        going = silent | unheard
        carrier = None
        if heard.any():
            if not maps.constant_stays_constant(self.consumer.module):
                # At the borders a bias would not do: the loudest of them speaks for all.
                carrier = constants[:, 0].abs().masked_fill(~heard, -1.0).argmax()
                going[carrier] = False
            elif not self.adds_bias and maps.bias_of(self.consumer.module) is None:
                going &= ~heard
        if going.all():
            going[0] = False  # a layer keeps one unit
        if not going.any():
            return 0
        fold = going & heard
        if fold.any():
            self._fold(fold, constants, carrier)
        self.remove(going)
        return int(going.sum())

    def remove(self, dead: Tensor) -> None:
        """Take units out of all maps."""
        maps.remove([*self.producers, self.consumer], dead)

    def _fold(self, dead: Tensor, constants: Tensor, carrier: Tensor | None) -> None:
        """Let the consumer's bias say what units about to go have said, or the unit that speaks for them."""
        outgoing = self.consumer.weights  # (units, inputs of a unit, outputs, ...)
        said = constants[dead].reshape(*constants[dead].shape, *[1] * (outgoing.dim() - 2)) * outgoing[dead]
        if carrier is None:
            maps.shift_bias(
                self.consumer.module, said.flatten(3).sum((0, 1, 3)) if said.dim() > 3 else said.sum((0, 1))
            )
        else:
            outgoing[carrier] += said.sum(0) / constants[carrier]


class Plain(Link):
    """A map, functions that keep units apart, and a map."""

    def __init__(self, producer: nn.Module, between: Sequence[Function], consumer: nn.Module) -> None:
        units = maps.count(producer, "outputs")
        super().__init__([evenly(producer, "outputs", units)], evenly(consumer, "inputs", units), units)
        self.between = between

    def silent(self) -> tuple[Tensor, Tensor]:
        """Units without incoming weights say what the functions make of their bias."""
        constants = self.producers[0].biases.flatten()
        for function in self.between:
            constants = on_constants(function, constants)
        inputs = maps.count(self.consumer.module, "inputs") // self.units
        return self.producers[0].cut_off(), constants[:, None].expand(-1, inputs)

    def members(self) -> list[Part]:
        """The weights into a unit."""
        return [self.producers[0]]

    def changed(self) -> list[nn.Module]:
        """The maps, and normalisations between them."""
        return super().changed() + [function for function in self.between if isinstance(function, nn.Module)]

    def remove(self, dead: Tensor) -> None:
        """Take units out of the maps and of normalisations between them."""
        super().remove(dead)
        for function in self.between:
            remove_from(function, dead)


class Gated(Link):
    """act(gate(x)) * up(x), and a map."""

    def __init__(self, gate: nn.Module, up: nn.Module, activation: Function, down: nn.Module) -> None:
        units = maps.count(up, "outputs")
        parts = [evenly(gate, "outputs", units), evenly(up, "outputs", units)]
        super().__init__(parts, evenly(down, "inputs", units), units)
        self.activation = activation

    def silent(self) -> tuple[Tensor, Tensor]:
        """One factor is always zero, or both are constants."""
        gate, up = self.producers
        opening, value = self.activation(gate.biases.clone()), up.biases
        closed = gate.cut_off() & (opening == 0).all(1)
        nothing = up.cut_off() & (value == 0).all(1)
        constant = gate.cut_off() & up.cut_off()
        constants = torch.where(constant[:, None], opening * value, torch.zeros_like(value))
        return closed | nothing | constant, constants

    def members(self) -> list[Part]:
        """The weights of `up`; with a bias there a unit would still say something, so then those of the last map."""
        return [self.producers[1] if maps.bias_of(self.producers[1].module) is None else self.consumer]
