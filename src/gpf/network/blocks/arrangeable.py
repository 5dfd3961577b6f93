"""Whether the blocks of a stack can take each other's places, as some ways to grow need it."""

from collections.abc import Iterable

from torch import nn

from gpf.network.rules import COPIES, Rules


def alike(blocks: Iterable[nn.Module]) -> bool:
    """Whether all blocks have the same parameters and buffers, in number, name and shape."""
    shapes = [{name: tensor.shape for name, tensor in block.state_dict().items()} for block in blocks]
    return all(one == shapes[0] for one in shapes)


def check_arrangeable(blocks: Iterable[nn.Module], rules: Rules) -> None:
    """Refuse rules under which blocks of different shapes would take each other's places."""
    moved = list(blocks)
    if rules.grow_init in COPIES:
        setting, others = f"grow_init={rules.grow_init!r}", "identity, copy, kaiming or built"
    elif rules.grow_place != "end":
        setting, others = f"grow_place={rules.grow_place!r}", "end"
        moved = moved[1:] if rules.grow_place == "middle" else moved
    else:
        return
    if moved and not alike(moved):
        raise ValueError(f"{setting} needs blocks of the same shape, and they differ; use {others}")
