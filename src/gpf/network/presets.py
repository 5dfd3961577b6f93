"""Rules that fit a model nobody has looked at."""

from collections.abc import Sequence
from typing import get_args

from torch import nn

from gpf.network.blocks.arrangeable import alike
from gpf.network.rules import Preset, Rules


def named_rules(name: str, blocks: Sequence[nn.Module] | nn.Sequential | nn.ModuleList) -> Rules:
    """The rules of a preset for a model with these blocks."""
    if name not in get_args(Preset):
        raise ValueError(f"rules must be gpf.Rules or one of {', '.join(get_args(Preset))}, got {name!r}")
    copies = alike(blocks)
    return Rules.faster(len(blocks), grow_init="stack" if copies else "identity")
