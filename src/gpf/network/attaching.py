"""Checks a model, and cuts its stack, before gpf is attached to it."""

import weakref

from torch import nn

from gpf.network import sharding, surgery
from gpf.network.blocks.arrangeable import check_arrangeable
from gpf.network.optimizers import Optimizers
from gpf.network.prunable import Prunable, named_weights
from gpf.network.rules import Rules
from gpf.network.wrappers import is_distributed, unwrap

ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""The stacks to which a network is attached."""


def shorten(model: nn.Module, optimizers: Optimizers, stack: str, rules: Rules, prunable: Prunable | None) -> None:
    """Cut the stack of a model to the depth that the rules begin with, once nothing speaks against attaching."""
    bare = unwrap(model)
    if is_distributed(model) or sharding.is_sharded(bare):
        raise ValueError("start_depth must be None for a model that is wrapped for several processes; attach first")
    check_attachable(bare, stack, optimizers)
    check_arrangeable(bare, stack, rules)
    blocks = surgery.find_stack(bare, stack)
    depth = rules.start_depth or 1
    if depth > len(blocks):
        raise ValueError(f"start_depth must be at most the {len(blocks)} layers that the model has, got {depth}")
    for block in blocks:
        list(named_weights(block, prunable))  # raises where the choice is wrong
    surgery.shorten(bare, stack, depth, optimizers)


def check_shardable(sharded: bool, rules: Rules) -> None:
    """Refuse rules that need whole weights where these are sharded."""
    if sharded and rules.remove_units:
        raise ValueError("remove_units must be False for a sharded model, got True")
    if sharded and rules.regrow:
        raise ValueError(f"regrow must be 0 for a sharded model, got {rules.regrow}")


def check_attachable(model: nn.Module, stack: str, optimizers: Optimizers) -> None:
    """Refuse what cannot be trained and changed at the same time."""
    sharding.check(model)
    blocks = surgery.find_stack(model, stack)
    if blocks in ATTACHED:
        raise ValueError(f"gpf is attached to {stack!r} of this model already; call detach() first")
    if len({id(block) for block in blocks}) < len(blocks):
        raise ValueError(f"stack must hold each block once, got {stack!r} with a block twice")
    members = {id(p) for group in optimizers.groups for p in group["params"]}
    for name, parameter in blocks.named_parameters():
        if parameter.requires_grad and id(parameter) not in members:
            where = f"{stack}.{name}" if stack else name
            raise ValueError(f"optimizer must train the whole stack, got one without {where}")
