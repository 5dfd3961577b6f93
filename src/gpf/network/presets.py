"""Rules that are derived from a model."""

from typing import Any, get_args

from torch import nn

from gpf.network.blocks.arrangeable import why_fixed
from gpf.network.compaction.units import unit_groups
from gpf.network.rules import Preset, Rules
from gpf.network.sharding import is_sharded


def chosen_rules(rules: Any, model: nn.Module, stack: str) -> Rules:
    """The rules that a user has given: none, rules, or the name of a preset for this model."""
    if rules is None:
        return Rules()
    if isinstance(rules, Rules):
        return rules
    if rules not in get_args(Preset):
        raise ValueError(f"rules must be gpf.Rules or one of {', '.join(get_args(Preset))}, got {rules!r}")
    if rules == "smaller":
        removable = not is_sharded(model) and any(group.count > 1 for group in unit_groups(model, stack))
        return Rules.smaller("unit" if removable else "weight")
    depth = len(list(model.get_submodule(stack).children()))
    return Rules.faster(depth, grow_init="identity" if why_fixed(model, stack) else "stack")
