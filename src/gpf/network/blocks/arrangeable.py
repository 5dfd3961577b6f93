"""Whether the blocks of a stack can exchange places, as some kinds of growth require."""

from collections.abc import Iterable

from torch import nn

from gpf.network.blocks.depth import block_kinds
from gpf.network.rules import COPIES, Rules


def alike(blocks: Iterable[nn.Module]) -> bool:
    """Whether all blocks have the same parameters and buffers, in number, name and shape."""
    shapes = [{name: tensor.shape for name, tensor in block.state_dict().items()} for block in blocks]
    return all(one == shapes[0] for one in shapes)


def why_fixed(model: nn.Module, path: str, first: int = 0) -> str | None:
    """Why the blocks of a stack, from some place on, cannot take each other's places; None if they can."""
    blocks = list(model.get_submodule(path).children())
    if not alike(blocks[first:]):
        return "needs blocks of the same shape, and they differ"
    if len(set(block_kinds(model, path, len(blocks))[first:])) > 1:
        return "needs blocks of the same kind, and the model's configuration lists several kinds"
    owned = [id(parameter) for block in blocks for parameter in {id(p): p for p in block.parameters()}.values()]
    inside = {id(module) for block in blocks for module in block.modules()}
    outside = {id(p) for module in model.modules() if id(module) not in inside for p in module._parameters.values()}
    if len(set(owned)) < len(owned) or outside & set(owned):
        return "needs blocks with parameters of their own, and some are shared"
    return None


def check_arrangeable(model: nn.Module, path: str, rules: Rules) -> None:
    """Refuse rules under which blocks would take each other's places that cannot."""
    if rules.grow_init in COPIES:
        setting, others, first = f"grow_init={rules.grow_init!r}", "identity, copy, kaiming or built", 0
    elif rules.grow_place != "end":
        setting, others, first = f"grow_place={rules.grow_place!r}", "end", int(rules.grow_place == "middle")
    else:
        return
    if (why := why_fixed(model, path, first)) is not None:
        raise ValueError(f"{setting} {why}; use {others}")
