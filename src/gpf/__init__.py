"""Networks that grow, prune and freeze themselves while they learn, and an odour-plume world for them to learn in."""

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from gpf import spectra
    from gpf.network import MLP, GrowPruneFreeze, Rules, attach, load

__version__ = "0.1.0"
__all__ = ["MLP", "GrowPruneFreeze", "Rules", "attach", "load", "spectra"]

gymnasium.register(
    id="gpf/Plume-v0",
    entry_point="gpf.plume.env:PlumeEnv",
    vector_entry_point="gpf.plume.vector_env:PlumeVectorEnv",
)
gymnasium.register(
    id="gpf/ImaginedPlume-v0",
    entry_point="gpf.world_model.env:ImaginedPlumeEnv",
    vector_entry_point="gpf.world_model.env:ImaginedPlumeVectorEnv",
)


def __getattr__(name: str) -> Any:
    """Load what needs torch when it is first asked for, so that `import gpf` stays light."""
    if name == "spectra":
        return importlib.import_module("gpf.spectra")
    if name in __all__:
        from gpf import network

        return getattr(network, name)
    raise AttributeError(f"module 'gpf' has no attribute {name!r}")
