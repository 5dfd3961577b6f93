"""Attention heads that can go: those whose values are constant, and those that the output projection ignores."""

from collections.abc import Sequence

from torch import Tensor, nn

from gpf.network.compaction import maps
from gpf.network.compaction.feed_forward import Link
from gpf.network.compaction.maps import Part, Split, evenly


class Heads(Link):
    """The heads of an attention module; with grouped queries a unit is a head of keys and values with all its queries.

    Attention weights sum to one, so that a head whose values are constant says just that, in evaluation. Positions that
    may attend to nothing, which only padding does, are not counted.
    """

    adds_bias = False

    def __init__(self, owner: nn.Module, projections: Sequence[Part], output: nn.Module, size: int) -> None:
        self.owner = owner
        self.value: Part = projections[2]
        self.size = size
        units = len(self.value.biases)
        self.queries: int = maps.count(output, "inputs") // size // units  # of a head of keys and values
        super().__init__(projections, evenly(output, "inputs", units), units)

    def silent(self) -> tuple[Tensor, Tensor]:
        """Heads without weights into their values say the values' biases."""
        return self.value.cut_off(), self.value.biases.repeat(1, self.queries)

    def members(self) -> list[Part]:
        """The weights into the values, or those out of the head where biases of the values could not be folded."""
        output = self.consumer.module
        folds = maps.bias_of(self.value.module) is None or maps.bias_of(output) is not None
        return [self.value if folds else self.consumer]

    def shrink(self) -> int:
        """Remove heads, then as many queries from each that is left as all of them can spare."""
        gone = super().shrink()
        return gone + (self._shrink_groups() if gone == 0 and self.queries > 1 else 0)

    def remove(self, dead: Tensor) -> None:
        """Take heads out of the projections, and let the module know."""
        super().remove(dead)
        self._write_down(int((~dead).sum()), self.queries)

    def _shrink_groups(self) -> int:
        """Each head of keys and values must keep the same number of queries."""
        output, query = self.consumer.module, self.producers[0].module
        split = evenly(output, "inputs", self.units * self.queries)
        unheard = split.cut_off().view(self.units, self.queries)
        spare = min(int(unheard.sum(1).min()), self.queries - 1)
        if spare == 0:
            return 0
        dead = (unheard & (unheard.cumsum(1) <= spare)).flatten()
        maps.remove([evenly(query, "outputs", self.units * self.queries), split], dead)
        self._write_down(self.units, self.queries - spare)
        return int(dead.sum())

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
