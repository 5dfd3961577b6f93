"""Finds the places in a stack's blocks where units can be removed."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from torch import nn

from gpf.network import surgery
from gpf.network.compaction.between import fits, flattened, keeps_units_apart
from gpf.network.compaction.declared import declared_links
from gpf.network.compaction.feed_forward import Link, Plain
from gpf.network.compaction.maps import count, is_map
from gpf.network.compaction.removable import links_of, parts_of
from gpf.network.mlp import MLP
from gpf.network.sharding import class_of


def find_links(model: nn.Module, stack: str) -> list[Link]:
    """All places in a stack where units can be removed, each once.

    A map or weight that the model uses in several places cannot be changed for one of them, and is left alone.
    """
    blocks = list(surgery.find_stack(model, stack))
    links: list[Link] = []
    if is_chain(model, stack):
        links += _links_along([part for block in blocks for part in _flat(block)] + _after(model, stack))
    for block in blocks:
        for module in block.modules():
            if parts_of(module) is not None:
                links += _links_along(_flat(module))
            links += chain(links_of(module), declared_links(module))
    uses = _Uses(model)
    by_producer = {id(link.producers[0].module): link for link in reversed(links)}  # nested chains are found twice
    return [link for link in by_producer.values() if all(uses.is_single(module) for module in link.changed())][::-1]


def is_chain(model: nn.Module, stack: str) -> bool:
    """Whether the blocks of a stack are known to run one after the other."""
    return class_of(model) is MLP or class_of(surgery.find_stack(model, stack)) is nn.Sequential


def check_follows(model: nn.Module, stack: str, block: nn.Module) -> None:
    """Refuse a new block for the end of a chain that does not fit the units which the last one has left."""
    if not is_chain(model, stack):
        return
    last, new = ([part for part in _flat(one) if is_map(part)] for one in (surgery.find_stack(model, stack)[-1], block))
    if not last or not new or type(last[-1]) is not type(new[0]):
        return
    units, sizes = count(last[-1], "outputs"), (count(new[0], "inputs"), count(new[-1], "outputs"))
    if set(sizes) != {units}:
        raise ValueError(
            f"block must make blocks of {units} inputs and outputs, as many units as the last layer has, got"
            f" {sizes[0]} and {sizes[1]}"
        )


class _Uses:
    """How often a model uses each of its parameters and buffers."""

    def __init__(self, model: nn.Module) -> None:
        named = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
        self.counts = Counter(id(tensor) for _, tensor in named)

    def is_single(self, module: nn.Module) -> bool:
        """Whether nothing that a module holds is used in another place."""
        return all(self.counts[id(tensor)] == 1 for tensor in chain(module.parameters(), module.buffers()))


def _links_along(parts: list[nn.Module]) -> Iterator[Link]:
    """The links of a chain of modules."""
    producer: nn.Module | None = None
    between: list[nn.Module] = []
    for part in parts:
        if is_map(part):
            if producer is not None and fits(producer, between, part):
                yield Plain(producer, between, part)
            producer, between = part, []
        elif producer is not None and keeps_units_apart(part, producer, flattened(between)):
            between = [*between, part]
        else:
            producer, between = None, []


def _flat(module: nn.Module) -> list[nn.Module]:
    """The modules that run one after the other in a module; itself if that is not known."""
    parts = parts_of(module)
    return [module] if parts is None else [inner for part in parts for inner in _flat(part)]


def _after(model: nn.Module, stack: str) -> list[nn.Module]:
    """The module after the stack, as far as it is known: in our MLP the head, in a Sequential the next modules."""
    if type(model) is MLP:
        return [model.head]
    path, _, name = stack.rpartition(".")
    owner = model.get_submodule(path)
    if not stack or type(owner) is not nn.Sequential:
        return []
    names = list(owner._modules)
    return [inner for child in list(owner)[names.index(name) + 1 :] for inner in _flat(child)]
