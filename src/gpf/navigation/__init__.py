"""Agents that search for the source of a plume, and how well they do."""

import importlib
from typing import TYPE_CHECKING, Any

from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.policies import CastAndSurge, Policy, Random, Reactive, make_policy

if TYPE_CHECKING:
    from gpf.navigation.agents import Navigator
    from gpf.navigation.agents import load_navigator as load
    from gpf.navigation.config import Config
    from gpf.tasks.plume import train

__all__ = [
    "CastAndSurge", "Config", "Evaluation", "Navigator", "Policy", "Random", "Reactive", "evaluate", "load",
    "make_policy", "train",
]  # fmt: skip

_WITH_TORCH = {
    "Config": ("gpf.navigation.config", "Config"),
    "Navigator": ("gpf.navigation.agents", "Navigator"),
    "load": ("gpf.navigation.agents", "load_navigator"),
    "train": ("gpf.tasks.plume", "train"),
}


def __getattr__(name: str) -> Any:
    """Load names that need torch on first use, to evaluate baselines without it."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'gpf.navigation' has no attribute {name!r}")
    module, attribute = _WITH_TORCH[name]
    return getattr(importlib.import_module(module), attribute)
