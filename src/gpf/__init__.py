"""Networks that grow, prune and freeze themselves while they learn, and an odour-plume world for them to learn in."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import gymnasium as _gymnasium

if _TYPE_CHECKING:
    from gpf import continual, navigation, network, plume, spectra, tasks, world_model
    from gpf.navigation.agents import load_navigator
    from gpf.network import MLP, GrowPruneFreeze, Rules, attach, load
    from gpf.tasks.plume import train

__version__ = "0.1.0"
__all__ = [
    "MLP",
    "GrowPruneFreeze",
    "Rules",
    "attach",
    "continual",
    "load",
    "load_navigator",
    "navigation",
    "network",
    "plume",
    "spectra",
    "tasks",
    "train",
    "world_model",
]
_HOMES = {
    "load_navigator": "gpf.navigation.agents",
    "train": "gpf.tasks.plume",
    **dict.fromkeys(("MLP", "GrowPruneFreeze", "Rules", "attach", "load"), "gpf.network"),
}
"""Where what is not a package of ours comes from."""

_gymnasium.register(
    id="gpf/Plume-v0",
    entry_point="gpf.plume.env:PlumeEnv",
    vector_entry_point="gpf.plume.vector_env:PlumeVectorEnv",
)
_gymnasium.register(
    id="gpf/ImaginedPlume-v0",
    entry_point="gpf.world_model.env:ImaginedPlumeEnv",
    vector_entry_point="gpf.world_model.env:ImaginedPlumeVectorEnv",
)


def __getattr__(name: str) -> _Any:
    """Load names that need torch or numba on first use, which keeps `import gpf` light."""
    if name not in __all__:
        raise AttributeError(f"module 'gpf' has no attribute {name!r}")
    if name in _HOMES:
        return getattr(_importlib.import_module(_HOMES[name]), name)
    return _importlib.import_module(f"gpf.{name}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
