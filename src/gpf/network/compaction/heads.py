"""Removable attention heads: those whose values are constant, and those that the output projection ignores."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gpf.network.compaction import maps
from gpf.network.compaction.cuts import Cuts
from gpf.network.compaction.feed_forward import Going, Link, Sizes
from gpf.network.compaction.maps import Part, Split, evenly


class Heads(Link):
    """The heads of an attention module; with grouped queries a unit is a head of keys and values with all its queries.

    Attention weights sum to one. In evaluation, a head with constant values therefore puts out this constant. Positions
    that may attend to nothing (padding) do not count.
    """

    adds_bias = False

    def __init__(self, owner: nn.Module, projections: Sequence[Part], output: nn.Module, size: int) -> None:
        self.owner = owner
        self.value: Part = projections[2]
        self.size = size
        units = len(self.value.biases)
        self.queries: int = maps.count(output, "inputs") // size // units  # of a head of keys and values
        super().__init__(projections, evenly(output, "inputs", units), units)

    def silent(self, cuts: Cuts) -> tuple[Tensor, Tensor]:
        """Heads without weights into their values say the values' biases."""
        return self.value.cut_off(cuts), self.value.biases.repeat(1, self.queries)

    def members(self) -> list[Part]:
        """The weights into the values, or those out of the head where biases of the values could not be folded."""
        output = self.consumer.module
        folds = maps.bias_of(self.value.module) is None or maps.bias_of(output) is not None
        return [self.value if folds else self.consumer]

    def going(self, cuts: Cuts) -> Going:
        """Heads; where none can go, as many queries from each as all of them can spare."""
        going = super().going(cuts)
        if going.count or self.queries == 1:
            return going
        unheard = self._queries().cut_off(cuts).view(self.units, self.queries)
        spare = min(int(unheard.sum(1).min()), self.queries - 1)  # each must keep the same number
        return dataclasses.replace(going, queries=(unheard & (unheard.cumsum(1) <= spare)).flatten())

    def shrink(self, cuts: Cuts, going: Going | None = None) -> Going:
        """Remove heads, or queries."""
        going = super().shrink(cuts, going)
        if going.queries is not None and going.queries.any():
            self._remove_queries(going.queries, cuts)
        return going

    def remove(self, dead: Tensor, cuts: Cuts) -> None:
        """Take heads out of the projections, and let the module know."""
        super().remove(dead, cuts)
        self._write_down(int((~dead).sum()), self.queries)

    def fit(self, outputs: Sizes, inputs: Sizes) -> bool:
        """Take out heads and, once their number is right, queries."""
        if super().fit(outputs, inputs):
            return True
        left, rest = divmod(inputs(self.consumer.module), self.size * self.units)
        if rest or not 0 < left < self.queries:
            return False
        places = torch.arange(self.units * self.queries, device=maps.weight_of(self.consumer.module).device)
        self._remove_queries(places % self.queries >= left, Cuts())
        return True

    def _queries(self) -> Part:
        """The inputs of the output projection, by heads of queries."""
        return evenly(self.consumer.module, "inputs", self.units * self.queries)

    def _remove_queries(self, dead: Tensor, cuts: Cuts) -> None:
        query = evenly(self.producers[0].module, "outputs", self.units * self.queries)
        maps.remove([query, self._queries()], dead, cuts)
        self._write_down(self.units, int((~dead).sum()) // self.units)

    def _write_down(self, units: int, queries: int) -> None:
        heads = units * queries
        maps.write_down(self.owner, ("num_heads", "num_attention_heads"), heads)
        maps.write_down(self.owner, ("all_head_size", "split_size"), heads * self.size)
        maps.write_down(self.owner, ("num_key_value_heads",), units)
        maps.write_down(self.owner, ("num_key_value_groups",), queries)


def split_by_kind(units: int, size: int, kind: int) -> Split:
    """The queries, keys or values (0, 1, 2) of each head where all queries come first, then all keys, all values."""
    return lambda values: values.unflatten(0, (3, units, size))[kind]


def split_by_head(units: int, size: int, kind: int) -> Split:
    """The queries, keys or values (0, 1, 2) of each head where they come head by head."""
    return lambda values: values.unflatten(0, (units, 3, size))[:, kind]
