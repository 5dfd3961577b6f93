"""Two maps in sequence: removes units of the first, and folds their constants into the second."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gpf.network.compaction import maps
from gpf.network.compaction.between import on_constants, remove_from
from gpf.network.compaction.cuts import Cuts
from gpf.network.compaction.maps import Part, evenly

Function = Callable[[Tensor], Tensor]
Sizes = Callable[[nn.Module], int]


@dataclass(frozen=True)
class Going:
    """Which units of a link go."""

    units: Tensor
    carrier: int | None = None
    """The unit that stays to say what the others said, where no bias can."""
    queries: Tensor | None = None
    """Heads of queries that go by themselves; see `Heads`."""

    @property
    def count(self) -> int:
        """How many."""
        return int(self.units.sum()) + (0 if self.queries is None else int(self.queries.sum()))


class Link(ABC):
    """A place in a model where units can be removed without changing what it computes.

    Attributes:
        producers: The outputs that make up the units.
        consumer: The inputs of the map that listens to them.
        units: Their number.
    """

    adds_bias = True
    """Whether a consumer without bias may get one, or a unit may stay, to hold what removed units said."""

    def __init__(self, producers: Sequence[Part], consumer: Part, units: int) -> None:
        self.producers = producers
        self.consumer = consumer
        self.units = units

    @abstractmethod
    def silent(self, cuts: Cuts) -> tuple[Tensor, Tensor]:
        """Which units say the same whatever comes in, and what they say: (units,), (units, inputs of a unit)."""

    @abstractmethod
    def members(self) -> list[Part]:
        """The weights without which a unit can be removed, for any biases."""

    def changed(self) -> list[nn.Module]:
        """All modules that change when units go."""
        return [*(part.module for part in self.producers), self.consumer.module]

    def going(self, cuts: Cuts) -> Going:
        """The units that can be removed: all that are cut off, except for one of each layer."""
        silent, constants = self.silent(cuts)
        unheard = self.consumer.cut_off(cuts)
        heard = silent & ~unheard & (constants != 0).any(1)
        going = silent | unheard
        carrier = None
        if heard.any() and not self._takes_constants(cuts):
            if self.adds_bias:
                # A bias would not do at the borders, or is not there: the loudest of them speaks for all.
                carrier = int(constants[:, 0].abs().masked_fill(~heard, -1.0).argmax())
                going[carrier] = False
            else:
                going &= ~heard
        if going.all():
            going[0] = False  # a layer keeps one unit
        return Going(going, carrier)

    def shrink(self, cuts: Cuts, going: Going | None = None) -> Going:
        """Remove units, by default all that can go; returns which."""
        going = self.going(cuts) if going is None else going
        if going.units.any():
            self._fold(going, cuts)
            self.remove(going.units, cuts)
        return going

    def remove(self, dead: Tensor, cuts: Cuts) -> None:
        """Take units out of all maps."""
        maps.remove([*self.producers, self.consumer], dead, cuts)

    def fit(self, outputs: Sizes, inputs: Sizes) -> bool:
        """Take out as many units as sizes of the maps, given elsewhere, have less; returns whether any went.

        Args:
            outputs: Gives the number of outputs that a map is to have.
            inputs: Gives the number of inputs that a map is to have.
        """
        producer = self.producers[-1].module
        left, rest = divmod(self.units * outputs(producer), maps.count(producer, "outputs"))
        if rest or not 0 < left < self.units:
            return False
        self.remove(torch.arange(self.units, device=maps.weight_of(producer).device) >= left, Cuts())
        return True

    def _takes_constants(self, cuts: Cuts) -> bool:
        """Whether the consumer's bias can say what removed units said."""
        consumer = self.consumer.module
        if not maps.constant_stays_constant(consumer):
            return False
        return maps.bias_of(consumer) is not None or (self.adds_bias and not cuts.learning)

    def _fold(self, going: Going, cuts: Cuts) -> None:
        """Let the consumer's bias say what units about to go have said, or the unit that speaks for them."""
        silent, constants = self.silent(cuts)
        dead = going.units & silent & (constants != 0).any(1)
        if not dead.any():
            return
        outgoing = self.consumer.weights  # (units, inputs of a unit, outputs, ...)
        said = constants[dead].reshape(*constants[dead].shape, *[1] * (outgoing.dim() - 2)) * outgoing[dead]
        if going.carrier is not None:
            constant = constants[going.carrier]
            if bool((constant != 0).all()):  # in an average of the weights it may be zero
                outgoing[going.carrier] += said.sum(0) / constant[0]
                self.consumer.view(cuts.absent(self.consumer.module))[going.carrier] &= outgoing[going.carrier] == 0
        elif self._takes_constants(cuts):
            maps.shift_bias(
                self.consumer.module, said.flatten(3).sum((0, 1, 3)) if said.dim() > 3 else said.sum((0, 1))
            )


class Plain(Link):
    """A map, functions that keep units apart, and a map."""

    def __init__(self, producer: nn.Module, between: Sequence[Function], consumer: nn.Module) -> None:
        units = maps.count(producer, "outputs")
        super().__init__([evenly(producer, "outputs", units)], evenly(consumer, "inputs", units), units)
        self.between = between

    def silent(self, cuts: Cuts) -> tuple[Tensor, Tensor]:
        """Units without incoming weights put out the functions' values of their bias."""
        constants = self.producers[0].biases.flatten()
        for function in self.between:
            constants = on_constants(function, constants)
        inputs = maps.count(self.consumer.module, "inputs") // self.units
        return self.producers[0].cut_off(cuts), constants[:, None].expand(-1, inputs)

    def members(self) -> list[Part]:
        """The weights into a unit."""
        return [self.producers[0]]

    def changed(self) -> list[nn.Module]:
        """The maps, and normalisations between them."""
        return super().changed() + [function for function in self.between if isinstance(function, nn.Module)]

    def remove(self, dead: Tensor, cuts: Cuts) -> None:
        """Take units out of the maps and of normalisations between them."""
        super().remove(dead, cuts)
        for function in self.between:
            remove_from(function, dead, cuts)


class Gated(Link):
    """act(gate(x)) * up(x), and a map."""

    def __init__(self, gate: nn.Module, up: nn.Module, activation: Function, down: nn.Module) -> None:
        units = maps.count(up, "outputs")
        parts = [evenly(gate, "outputs", units), evenly(up, "outputs", units)]
        super().__init__(parts, evenly(down, "inputs", units), units)
        self.activation = activation

    def silent(self, cuts: Cuts) -> tuple[Tensor, Tensor]:
        """One factor is always zero, or both are constants."""
        gate, up = self.producers
        opening, value = self.activation(gate.biases.clone()), up.biases
        closed = gate.cut_off(cuts) & (opening == 0).all(1)
        nothing = up.cut_off(cuts) & (value == 0).all(1)
        constant = gate.cut_off(cuts) & up.cut_off(cuts)
        constants = torch.where(constant[:, None], opening * value, torch.zeros_like(value))
        return closed | nothing | constant, constants

    def members(self) -> list[Part]:
        """The weights of `up`; with a bias there a unit would still say something, so then those of the last map."""
        return [self.producers[1] if maps.bias_of(self.producers[1].module) is None else self.consumer]


class Joined(Link):
    """Maps whose outputs make up the units together, in a way that only their block knows, and a map of the units.

    So the gate and the candidate of a recurrent unit. Nothing is known of what a unit says; it can go once nothing
    listens.
    """

    def __init__(self, producers: Sequence[nn.Module], consumer: nn.Module) -> None:
        units = maps.count(producers[0], "outputs")
        parts = [evenly(producer, "outputs", units) for producer in producers]
        super().__init__(parts, evenly(consumer, "inputs", units), units)

    def silent(self, cuts: Cuts) -> tuple[Tensor, Tensor]:
        """None, as far as is known."""
        nothing = torch.zeros(self.units, 1, device=maps.weight_of(self.consumer.module).device)
        return nothing[:, 0].bool(), nothing

    def members(self) -> list[Part]:
        """The weights out of a unit."""
        return [self.consumer]
