"""Grow, prune and freeze for any torch model; independent of plumes and of reinforcement learning."""

from gpf.network.blocks.gated import Gated
from gpf.network.blocks.initialisers import register_identity
from gpf.network.blocks.zeroing import zero_outputs
from gpf.network.checkpoints.loading import load
from gpf.network.checkpoints.saving import CheckpointError
from gpf.network.compaction.declared import register_units
from gpf.network.controller import GrowPruneFreeze, attach
from gpf.network.events import Event, Frozen, Grown, Pruned, Regrown, Removed, Shape, Thawed, Undone
from gpf.network.mlp import MLP
from gpf.network.rules import Rules, batch_size
from gpf.network.wrappers import renew

__all__ = [
    "MLP",
    "CheckpointError",
    "Event",
    "Frozen",
    "Gated",
    "GrowPruneFreeze",
    "Grown",
    "Pruned",
    "Regrown",
    "Removed",
    "Rules",
    "Shape",
    "Thawed",
    "Undone",
    "attach",
    "batch_size",
    "load",
    "register_identity",
    "register_units",
    "renew",
    "zero_outputs",
]
