"""Grow, prune and freeze for any torch model; knows nothing of plumes or of reinforcement learning."""

from gpf.network.checkpoint import CheckpointError
from gpf.network.controller import GrowPruneFreeze, attach
from gpf.network.events import Event, Frozen, Grown, Pruned, Shape, Thawed, Undone
from gpf.network.initialisers import register_identity, zero_outputs
from gpf.network.loading import load
from gpf.network.mlp import MLP
from gpf.network.rules import Rules, batch_size
from gpf.network.wrappers import renew

__all__ = [
    "MLP",
    "CheckpointError",
    "Event",
    "Frozen",
    "GrowPruneFreeze",
    "Grown",
    "Pruned",
    "Rules",
    "Shape",
    "Thawed",
    "Undone",
    "attach",
    "batch_size",
    "load",
    "register_identity",
    "renew",
    "zero_outputs",
]
