"""Block types registered by users, with the units that can be removed from them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from gpf.network.compaction.between import acts_elementwise, fits, flattened, keeps_units_apart
from gpf.network.compaction.feed_forward import Function, Joined, Link, Plain
from gpf.network.compaction.maps import count, is_map

Chain = tuple[nn.Module | Sequence[nn.Module], Sequence[Function], nn.Module]
"""A map, or several of which the outputs make up the units together, the functions that its outputs pass through, and
the map that takes them."""

_REGISTERED: dict[type | str, Callable[[Any], Iterable[Chain]]] = {}


def register_units(block: type | str, chains: Callable[[Any], Iterable[Chain]]) -> None:
    """Say where units can be removed from a block type; the type may be given by its name, without importing it.

    Args:
        block: The type of the block, or of a module in it.
        chains: Given such a block, lists (map, functions between, map): only the second map may use the outputs of
            the first one. Maps are Linear, Conv1d or Conv2d; functions take each unit by itself. Several maps in
            place of the first, such as the gate and the candidate of recurrent units, make up the units together;
            what lies between is then not asked for, but must take each unit by itself as well.

    >>> import torch
    >>> from torch import nn
    >>> from gpf.network import register_units
    >>> class Residual(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 4)
    ...     def forward(self, x):
    ...         return x + self.down(self.up(x).relu())
    >>> register_units(Residual, lambda block: [(block.up, [torch.relu], block.down)])
    """
    _REGISTERED[block] = chains


def declared_links(module: nn.Module) -> Iterator[Link]:
    """The places from which a module's type, or one that runs alike, has said that units can be removed."""
    for kind in type(module).__mro__:
        chains = _REGISTERED.get(kind) or _REGISTERED.get(kind.__name__)
        if chains is not None and type(module).forward is getattr(kind, "forward", None):
            for producer, between, consumer in chains(module):
                if not isinstance(producer, nn.Module):
                    yield _joined(type(module).__name__, producer, consumer)
                    continue
                _check(type(module).__name__, producer, between, consumer)
                yield Plain(producer, list(between), consumer)
            return


def _joined(owner: str, producers: Sequence[nn.Module], consumer: nn.Module) -> Joined:
    """The link of several maps to another one."""
    for producer in producers:
        _check(owner, producer, [], consumer)
    return Joined(producers, consumer)


def _check(owner: str, producer: nn.Module, between: Sequence[Function], consumer: nn.Module) -> None:
    for one in (producer, consumer):
        if not is_map(one):
            raise ValueError(
                f"the units of {owner} must lie between Linear, Conv1d or Conv2d, got {type(one).__name__}"
            )
    for i, part in enumerate(between):
        apart = keeps_units_apart(part, producer, flattened(between[:i])) if isinstance(part, nn.Module) else False
        if not apart and not acts_elementwise(part):
            name = getattr(part, "__name__", type(part).__name__)
            raise ValueError(f"what lies between the maps of {owner} must take each unit by itself, got {name}")
    if not fits(producer, between, consumer):
        outputs, inputs = count(producer, "outputs"), count(consumer, "inputs")
        raise ValueError(f"the second map of {owner} must take the {outputs} units of the first, got {inputs} inputs")
